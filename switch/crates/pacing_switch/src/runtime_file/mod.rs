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
mod values;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use switch::Switch;
use v1model::Pipeline;
use v1model::entries::profile::IndirectAction;
use v1model::entries::{EntryAction, EntryKey, TableInfo};

use objects::Objects;
use values::{GroupReplica, action_call, find, match_field};

/// Most bytes of a runtime file.
pub const MAX_BYTES: u64 = 256 << 20;

/// A parsed file; the program's names are looked up when it is applied.
#[derive(Debug, Deserialize)]
pub struct RuntimeFile {
    // Keys for the tutorials' own loader.
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

/// The keys of a file. Any other is refused.
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
        let program = switch.program_mut()?;
        for group in &self.multicast_group_entries {
            let replicas = group.replicas.iter().map(GroupReplica::replica);
            program.multicast_insert(group.multicast_group_id, replicas.collect())?;
        }
        self.objects.apply(program)
    }

    /// The time when the first entry after `applied` is due; `None` when all are applied.
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
                .apply(switch.program_mut()?.pipeline_mut())
                .with_context(|| format!("table entry {applied} ({})", entry.table))?;
            applied += 1;
        }
        Ok(applied)
    }
}

impl Entry {
    fn apply(&self, pipeline: &mut Pipeline) -> anyhow::Result<()> {
        let (table, info) = find(pipeline.tables(), &self.table, |table| &table.name)
            .ok_or_else(|| anyhow!("the program has no such table"))?;
        let key = self.key(info);
        if self.operation == Operation::Delete {
            pipeline.table_delete(table, &key?)?;
            return Ok(());
        }
        let action = match self.indirect()? {
            Some(indirect) => EntryAction::Indirect(indirect),
            None => {
                let name = self.action_name.as_ref();
                let name = name.ok_or_else(|| anyhow!("no action_name"))?;
                let call = action_call(pipeline, info, name, &self.action_params)?;
                if self.default_action {
                    pipeline.table_set_default(table, Some(&call))?;
                    return Ok(());
                }
                EntryAction::Call(call)
            }
        };
        if self.operation == Operation::Modify {
            pipeline.table_modify(table, &key?, &action)?;
        } else {
            pipeline.table_insert(table, &key?, &action)?;
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
        let ordered = table.key.iter().any(|field| field.kind.needs_priority());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_wrong_field_is_refused_by_name() {
        let error =
            RuntimeFile::parse(r#"{"table_entries": [{"tabel": "x"}]}"#).expect_err("no table");
        assert!(error.to_string().contains("table"), "{error}");
    }
}
