//! Table entries and multicast groups from a file, for runs without a controller.
//!
//! The format is that of the P4 tutorials' `sX-runtime.json`, so existing files work:
//!
//! ```json
//! {
//!   "table_entries": [
//!     {"table": "PacerIngress.classes", "match": {"class_id": 1},
//!      "action_name": "PacerIngress.paced_static",
//!      "action_params": {"time_per_byte_q24": 268435456, "limit_bytes": 1000000,
//!                        "allowance_ns": 24288}},
//!     {"table": "ipv4_lpm", "match": {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]}, "...": "..."}
//!   ],
//!   "multicast_group_entries": [
//!     {"multicast_group_id": 1, "replicas": [{"egress_port": 1, "instance": 1}]}
//!   ]
//! }
//! ```
//!
//! Clone sessions, members and groups of action profiles, value sets and register cells stand in
//! `clone_session_entries`, `action_profile_members`, `action_profile_groups`,
//! `value_set_entries` and `register_entries` (see `objects`); an entry of a table with an action
//! profile has `"member_id"` or `"group_id"` instead of an action.
//!
//! Match values: exact `v`, lpm `[v, prefix]`, ternary `[v, mask]`, range `[low, high]`,
//! optional `v`; a field that is left out matches everything. A value is an integer, `"0x..."`,
//! a decimal string, or a MAC, IPv4 or IPv6 address. `"default_action": true` sets the default
//! action. Beyond the tutorials: `"at_ns"` applies an entry at that instant of
//! virtual time, `"operation"` is
//! `insert` (default), `modify` or `delete`.

mod objects;

use std::net::{Ipv4Addr, Ipv6Addr};
use switch::Switch;

use anyhow::{Context, anyhow, bail};
use objects::Objects;
use serde::Deserialize;
use serde_json::{Map, Value};
use switch::replication::Replica;
use v1model::entries::profile::IndirectAction;
use v1model::entries::{ActionCall, Bits, EntryKey, KeyField, MatchField, MatchKind, TableInfo};

/// Most bytes of a runtime file.
pub const MAX_BYTES: u64 = 256 << 20;

/// A parsed file; the program's names are looked up when it is applied.
#[derive(Debug, Deserialize)]
pub struct RuntimeFile {
    // What the tutorials' own loader reads besides.
    #[serde(default, rename = "target")]
    _target: Value,
    #[serde(default, rename = "p4info")]
    _p4info: Value,
    #[serde(default, rename = "bmv2_json")]
    _bmv2_json: Value,
    #[serde(default)]
    table_entries: Vec<Entry>,
    #[serde(default)]
    multicast_group_entries: Vec<Group>,
    #[serde(flatten)]
    objects: Objects,
}

/// What a file may have; a name that is not among them is a mistake.
const KEYS: [&str; 10] = [
    "target",
    "p4info",
    "bmv2_json",
    "table_entries",
    "multicast_group_entries",
    "clone_session_entries",
    "action_profile_members",
    "action_profile_groups",
    "value_set_entries",
    "register_entries",
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    table: String,
    #[serde(default, rename = "match")]
    fields: Map<String, Value>,
    #[serde(default)]
    member_id: Option<u32>,
    #[serde(default)]
    group_id: Option<u32>,
    #[serde(default)]
    action_name: Option<String>,
    #[serde(default)]
    action_params: Map<String, Value>,
    #[serde(default)]
    default_action: bool,
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    operation: Operation,
    #[serde(default)]
    at_ns: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    #[default]
    Insert,
    Modify,
    Delete,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    multicast_group_id: u32,
    replicas: Vec<GroupReplica>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupReplica {
    egress_port: u32,
    #[serde(default)]
    instance: u16,
}

impl GroupReplica {
    fn replica(&self) -> Replica {
        Replica {
            port: self.egress_port,
            rid: self.instance,
        }
    }
}

impl RuntimeFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Names the place or the field.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        // By way of an object: serde takes a list for a structure, too.
        let object: Map<String, Value> = serde_json::from_str(text)?;
        if let Some(unknown) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            bail!("unknown field '{unknown}'; known: {}", KEYS.join(", "));
        }
        let mut file: Self = serde_json::from_value(Value::Object(object))?;
        // Entries of the same instant keep the order of the file.
        file.table_entries.sort_by_key(|entry| entry.at_ns);
        Ok(file)
    }

    /// Installs the multicast groups and everything else that table entries may refer to.
    ///
    /// # Errors
    /// Names the group; those before it are installed.
    pub fn apply_groups(&self, switch: &mut Switch) -> anyhow::Result<()> {
        for group in &self.multicast_group_entries {
            let replicas: Vec<Replica> = group.replicas.iter().map(GroupReplica::replica).collect();
            switch.multicast_insert(group.multicast_group_id, &replicas)?;
        }
        self.objects.apply(switch)
    }

    /// When the first entry after `applied` is due; `None` when all are applied.
    pub fn due_ns(&self, applied: usize) -> Option<u64> {
        self.table_entries.get(applied).map(|entry| entry.at_ns)
    }

    /// Applies the entries that are due at `now_ns`, from number `applied` on; returns how many
    /// are applied now in all.
    ///
    /// # Errors
    /// Names entry, table and field; the entries before it are applied.
    pub fn apply_due(
        &self,
        switch: &mut Switch,
        mut applied: usize,
        now_ns: u64,
    ) -> anyhow::Result<usize> {
        while let Some(entry) = self.table_entries.get(applied)
            && entry.at_ns <= now_ns
        {
            entry
                .apply(switch)
                .with_context(|| format!("table entry {applied} ({})", entry.table))?;
            applied += 1;
        }
        Ok(applied)
    }
}

impl Entry {
    fn apply(&self, switch: &mut Switch) -> anyhow::Result<()> {
        let (table, info) = find(switch.tables(), &self.table, |table| &table.name)
            .ok_or_else(|| anyhow!("the program has no such table"))?;
        let info = info.clone();
        if self.operation == Operation::Delete {
            switch.table_delete(table, &self.key(&info)?)?;
            return Ok(());
        }
        if let Some(indirect) = self.indirect()? {
            let key = self.key(&info)?;
            if self.operation == Operation::Modify {
                switch.table_modify_indirect(table, &key, &indirect)?;
            } else {
                switch.table_insert_indirect(table, &key, &indirect)?;
            }
            return Ok(());
        }
        let name = self
            .action_name
            .as_ref()
            .ok_or_else(|| anyhow!("no action_name"))?;
        let action = action_call(switch, &info, name, &self.action_params)?;
        if self.default_action {
            switch.table_set_default(table, Some(&action))?;
        } else if self.operation == Operation::Modify {
            switch.table_modify(table, &self.key(&info)?, &action)?;
        } else {
            switch.table_insert(table, &self.key(&info)?, &action)?;
        }
        Ok(())
    }

    fn key(&self, table: &TableInfo) -> anyhow::Result<EntryKey> {
        for name in self.fields.keys() {
            if !table.key.iter().any(|field| &field.name == name) {
                let known: Vec<&str> = table.key.iter().map(|field| field.name.as_str()).collect();
                bail!("no key field '{name}'; known: {}", known.join(", "));
            }
        }
        let fields = table
            .key
            .iter()
            .map(|field| {
                match_field(field, self.fields.get(&field.name))
                    .with_context(|| format!("key field '{}'", field.name))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let ordered = table.key.iter().any(|field| {
            matches!(
                field.kind,
                MatchKind::Ternary | MatchKind::Range | MatchKind::Optional
            )
        });
        Ok(EntryKey {
            fields,
            priority: self.priority.unwrap_or(i32::from(ordered)),
        })
    }

    /// The member or group that the entry names, if it names one.
    fn indirect(&self) -> anyhow::Result<Option<IndirectAction>> {
        match (self.member_id, self.group_id, &self.action_name) {
            (None, None, _) => Ok(None),
            (Some(member), None, None) => Ok(Some(IndirectAction::Member(member))),
            (None, Some(group), None) => Ok(Some(IndirectAction::Group(group))),
            _ => bail!("more than one of member_id, group_id and action_name"),
        }
    }
}

/// One of the table's actions with named arguments.
fn action_call(
    switch: &Switch,
    table: &TableInfo,
    name: &str,
    params: &Map<String, Value>,
) -> anyhow::Result<ActionCall> {
    let (action, info) = table
        .actions
        .iter()
        .filter_map(|index| Some((*index, switch.actions().get(*index)?)))
        .find(|(_, action)| named(&action.name, name))
        .ok_or_else(|| anyhow!("the table has no action '{name}'"))?;
    for given in params.keys() {
        if !info.params.iter().any(|(param, _)| param == given) {
            bail!("action '{name}' has no parameter '{given}'");
        }
    }
    let args = info
        .params
        .iter()
        .map(|(param, bits)| {
            let value = params
                .get(param)
                .ok_or_else(|| anyhow!("action '{name}': parameter '{param}' is missing"))?;
            encode(value, *bits).with_context(|| format!("parameter '{param}'"))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(ActionCall { action, args })
}

/// Whether `given` is the fully qualified name or its last part.
fn named(full: &str, given: &str) -> bool {
    full == given || full.rsplit_once('.').is_some_and(|(_, last)| last == given)
}

fn find<'a, T>(
    items: &'a [T],
    name: &str,
    name_of: impl Fn(&T) -> &String,
) -> Option<(usize, &'a T)> {
    items
        .iter()
        .enumerate()
        .find(|(_, item)| named(name_of(item), name))
}

fn match_field(field: &KeyField, value: Option<&Value>) -> anyhow::Result<MatchField> {
    let bits = field.bits;
    let zero = || -> Bits { vec![0; bytes_for(bits)].into() };
    let pair = |value: &Value| -> anyhow::Result<(Value, Value)> {
        match value.as_array().map(Vec::as_slice) {
            Some([first, second]) => Ok((first.clone(), second.clone())),
            _ => bail!("a list of two is expected, not {value}"),
        }
    };
    Ok(match (field.kind, value) {
        (MatchKind::Exact, Some(value)) => MatchField::Exact(encode(value, bits)?),
        (MatchKind::Exact, None) => bail!("an exact field must be given"),
        (MatchKind::Lpm, Some(value)) => {
            let (value, prefix) = pair(value)?;
            let prefix_bits = prefix
                .as_u64()
                .and_then(|prefix| u32::try_from(prefix).ok())
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(|| anyhow!("prefix {prefix} is not 0 to {bits}"))?;
            MatchField::Lpm {
                value: encode(&value, bits)?,
                prefix_bits,
            }
        }
        (MatchKind::Lpm, None) => MatchField::Lpm {
            value: zero(),
            prefix_bits: 0,
        },
        (MatchKind::Ternary, Some(value)) => {
            let (value, mask) = pair(value)?;
            MatchField::Ternary {
                value: encode(&value, bits)?,
                mask: encode(&mask, bits)?,
            }
        }
        (MatchKind::Ternary, None) => MatchField::Ternary {
            value: zero(),
            mask: zero(),
        },
        (MatchKind::Range, Some(value)) => {
            let (low, high) = pair(value)?;
            MatchField::Range {
                low: encode(&low, bits)?,
                high: encode(&high, bits)?,
            }
        }
        (MatchKind::Range, None) => MatchField::Range {
            low: zero(),
            high: ones(bits),
        },
        (MatchKind::Optional, value) => {
            MatchField::Optional(value.map(|value| encode(value, bits)).transpose()?)
        }
    })
}

fn bytes_for(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

fn ones(bits: u32) -> Bits {
    let mut bytes = vec![0xFF; bytes_for(bits)];
    if let (Some(first), partial @ 1..) = (bytes.first_mut(), bits % 8) {
        *first = (1u8 << partial) - 1;
    }
    bytes.into()
}

/// A JSON value as a big-endian byte string of `bits` bits.
fn encode(value: &Value, bits: u32) -> anyhow::Result<Bits> {
    let raw: Vec<u8> = match value {
        Value::Number(number) => number
            .as_u64()
            .ok_or_else(|| anyhow!("{number} is not a whole number from 0"))?
            .to_be_bytes()
            .to_vec(),
        Value::String(text) => encode_text(text)
            .ok_or_else(|| anyhow!("'{text}' is not a number, MAC, IPv4 or IPv6 address"))?,
        _ => bail!("{value} is not a value"),
    };
    let digits: &[u8] = match raw.iter().position(|byte| *byte != 0) {
        Some(first) => raw.get(first..).unwrap_or(&[]),
        None => &[],
    };
    let width = bytes_for(bits);
    let limit = ones(bits);
    let too_wide =
        digits.len() > width || (digits.len() == width && digits.first() > limit.first());
    if too_wide {
        bail!("{value} does not fit {bits} bits");
    }
    let mut bytes = vec![0; width];
    if let Some(tail) = bytes.get_mut(width - digits.len()..) {
        tail.copy_from_slice(digits);
    }
    Ok(bytes.into())
}

fn encode_text(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("0x") {
        let even = if hex.len() % 2 == 1 {
            format!("0{hex}")
        } else {
            hex.to_owned()
        };
        return even
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
    }
    if let Ok(number) = text.parse::<u128>() {
        return Some(number.to_be_bytes().to_vec());
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(address.octets().to_vec());
    }
    let groups: Vec<&str> = text.split(':').collect();
    if groups.len() == 6 && groups.iter().all(|group| group.len() == 2) {
        return groups
            .iter()
            .map(|group| u8::from_str_radix(group, 16).ok())
            .collect();
    }
    text.parse::<Ipv6Addr>()
        .ok()
        .map(|address| address.octets().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_every_spelling() {
        let cases = [
            (json!(255), 8, vec![255]),
            (json!("0x1ff"), 9, vec![1, 0xFF]),
            (json!("10.0.1.1"), 32, vec![10, 0, 1, 1]),
            (json!("02:00:00:00:00:01"), 48, vec![2, 0, 0, 0, 0, 1]),
            (json!("12"), 16, vec![0, 12]),
        ];
        for (value, bits, expected) in cases {
            assert_eq!(*encode(&value, bits).expect("fits"), *expected, "{value}");
        }
        assert_eq!(encode(&json!("::1"), 128).expect("fits").len(), 16);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (value, bits) in [
            (json!(256), 8),
            (json!("0x200"), 9),
            (json!(-1), 8),
            (json!(1.5), 8),
            (json!("fast"), 8),
            (json!(null), 8),
        ] {
            assert!(encode(&value, bits).is_err(), "{value}");
        }
    }

    #[test]
    fn a_file_with_a_wrong_field_is_refused_by_name() {
        let error =
            RuntimeFile::parse(r#"{"table_entries": [{"tabel": "x"}]}"#).expect_err("no table");
        assert!(error.to_string().contains("table"), "{error}");
    }
}
