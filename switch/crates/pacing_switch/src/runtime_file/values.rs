//! Values, match fields and names of a runtime file, looked up in the program and encoded.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, anyhow, bail};
use p4runtime_server::bytestring;
use serde::Deserialize;
use serde_json::{Map, Value};
use switch::Replica;
use v1model::Pipeline;
use v1model::entries::{ActionCall, Bits, KeyField, MatchField, MatchKind, TableInfo};

/// A replica of a multicast group or clone session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupReplica {
    egress_port: u32,
    #[serde(default)]
    instance: u16,
}

impl GroupReplica {
    pub(super) fn replica(&self) -> Replica {
        Replica {
            port: self.egress_port,
            rid: self.instance,
        }
    }
}

/// One of the table's actions with named arguments.
pub(super) fn action_call(
    pipeline: &Pipeline,
    table: &TableInfo,
    name: &str,
    params: &Map<String, Value>,
) -> anyhow::Result<ActionCall> {
    let (action, info) = table
        .actions
        .iter()
        .filter_map(|index| Some((*index, pipeline.actions().get(*index)?)))
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

pub(super) fn find<'a, T>(
    items: &'a [T],
    name: &str,
    name_of: impl Fn(&T) -> &String,
) -> Option<(usize, &'a T)> {
    items
        .iter()
        .enumerate()
        .find(|(_, item)| named(name_of(item), name))
}

pub(super) fn match_field(field: &KeyField, value: Option<&Value>) -> anyhow::Result<MatchField> {
    let bits = field.bits;
    let zero = || bytestring::zero(bits);
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
            high: bytestring::ones(bits),
        },
        (MatchKind::Optional, value) => {
            MatchField::Optional(value.map(|value| encode(value, bits)).transpose()?)
        }
    })
}

/// A JSON value as a big-endian byte string of `bits` bits.
pub(super) fn encode(value: &Value, bits: u32) -> anyhow::Result<Bits> {
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
    bytestring::parse(&raw, bits, "", "").map_err(|_| anyhow!("{value} does not fit {bits} bits"))
}

fn encode_text(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("0x") {
        let even = format!("{}{hex}", if hex.len() % 2 == 1 { "0" } else { "00" });
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
}
