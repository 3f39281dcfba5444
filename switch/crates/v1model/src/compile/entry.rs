//! Constant entries and default entries, which the program itself writes.

use super::action::Actions;
use crate::bits::{prefix_mask, to_bits};
use crate::entries::{Bits, EntryKey, KeyField, MatchField, MatchKind, TableInfo};
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::hex_limbs;
use crate::model;
use crate::table::pack::insert_checked;
use crate::table::{Call, Table, Target};
use crate::wide::{bit_length, limbs, mask, negate};
use serde_json::Value;

/// Compiles the call of an action of a table with constant arguments.
pub(super) fn call(
    actions: &Actions,
    t: &model::Table,
    id: u32,
    data: &[String],
) -> LoadResult<Call> {
    let action = actions.find(id, false)?;
    let Some(local) = t.action_ids.iter().position(|&a| a == id) else {
        refuse!(
            "action '{}' (id {id}) is not one of the table's",
            action.name
        );
    };
    if action.params.len() != data.len() {
        refuse!(
            "action '{}' takes {} arguments, has {}",
            action.name,
            action.params.len(),
            data.len()
        );
    }
    let mut args = Vec::new();
    for ((name, bits), hex) in action.params.iter().zip(data) {
        let (negative, digits) = match hex.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, hex.as_str()),
        };
        let mut value = hex_limbs(digits).at(|| format!("argument '{name}'"))?;
        let n = limbs(*bits) as usize;
        value.resize(n, 0);
        if negative {
            negate(&mut value);
        }
        mask(&mut value, 0, n, *bits);
        args.extend(value);
    }
    Ok(Call::new(local, &args))
}

/// Inserts the constant entries of a table.
pub(super) fn insert_constant_entries(
    table: &mut Table,
    info: &TableInfo,
    actions: &Actions,
    t: &model::Table,
) -> LoadResult<()> {
    let entries = t.entries.as_deref().unwrap_or_default();
    // In BMv2 JSON the lowest number wins, in P4Runtime the greatest. Mirrored, so that the
    // program's last entry has priority 1.
    let most = info.program_priority_max;
    for (i, e) in entries.iter().enumerate() {
        let priority = if table.has_priorities() {
            let below = most.saturating_sub(e.priority.unwrap_or(most));
            below.saturating_add(1)
        } else {
            0
        };
        let action = &e.action_entry;
        let target = call(actions, t, action.action_id, &action.action_data);
        target
            .and_then(|call| insert(table, info, e, call, priority))
            .at(|| format!("entry {i}"))?;
    }
    Ok(())
}

fn insert(
    table: &mut Table,
    info: &TableInfo,
    e: &model::ConstEntry,
    call: Call,
    priority: i32,
) -> LoadResult<()> {
    if e.match_key.len() != info.key.len() {
        refuse!(
            "has {} match fields, the table has {}",
            e.match_key.len(),
            info.key.len()
        );
    }
    let mut fields = Vec::new();
    for (field, m) in info.key.iter().zip(&e.match_key) {
        fields.push(match_field(field, m).at(|| format!("match field '{}'", field.name))?);
    }
    let key = EntryKey { fields, priority };
    insert_checked(table, info, &key, Target::Call(call), 0)
        .map_err(|error| LoadError::new(error.to_string()))
}

/// Clears the bits that are not in the mask.
fn and(value: &mut [u64], mask: &[u64]) {
    for (limb, mask) in value.iter_mut().zip(mask) {
        *limb &= mask;
    }
}

/// A hexadecimal string as bits of a field.
fn bits_of(hex: Option<&str>, bits: u32) -> LoadResult<Vec<u64>> {
    let Some(hex) = hex else {
        refuse!("value is missing");
    };
    let mut value = hex_limbs(hex)?;
    if bit_length(&value) > bits {
        refuse!("'{hex}' is wider than {bits} bits");
    }
    value.resize(limbs(bits) as usize, 0);
    Ok(value)
}

fn match_field(field: &KeyField, m: &model::ConstMatch) -> LoadResult<MatchField> {
    let bits = field.bits;
    let key = m.key.as_ref().and_then(Value::as_str);
    let out = |limbs: &[u64]| -> Bits { to_bits(limbs, bits) };
    Ok(match (field.kind, m.match_type.as_str()) {
        (MatchKind::Exact, "exact") => MatchField::Exact(out(&bits_of(key, bits)?)),
        (MatchKind::Exact, "valid") => match m.key.as_ref().and_then(Value::as_bool) {
            Some(b) => MatchField::Exact(out(&[u64::from(b)])),
            None => refuse!("key is not a boolean"),
        },
        (MatchKind::Lpm, "lpm") => {
            let prefix_bits = m.prefix_length.unwrap_or(bits);
            if prefix_bits > bits {
                refuse!("prefix length {prefix_bits} of a {bits}-bit field");
            }
            let mut value = bits_of(key, bits)?;
            and(&mut value, &prefix_mask(bits, prefix_bits));
            MatchField::Lpm {
                value: out(&value),
                prefix_bits,
            }
        }
        (MatchKind::Ternary, "ternary") | (MatchKind::Optional, "ternary" | "optional") => {
            let mask = bits_of(m.mask.as_deref(), bits)?;
            let mut value = bits_of(key, bits)?;
            and(&mut value, &mask);
            if field.kind == MatchKind::Optional {
                let any = mask.iter().all(|&m| m == 0);
                MatchField::Optional((!any).then(|| out(&value)))
            } else {
                MatchField::Ternary {
                    value: out(&value),
                    mask: out(&mask),
                }
            }
        }
        (MatchKind::Range, "range") => MatchField::Range {
            low: out(&bits_of(m.start.as_deref(), bits)?),
            high: out(&bits_of(m.end.as_deref(), bits)?),
        },
        (_, other) => refuse!("match type '{other}' does not fit the table's key"),
    })
}
