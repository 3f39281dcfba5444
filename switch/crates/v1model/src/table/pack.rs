//! Checks match keys of the control plane against a table, and packs them.

use super::encoded_key::EncodedKey;
use super::range::Bounds;
use super::{KeyPart, Packed, Table, Target};
use crate::bits::{from_bits, prefix_mask, to_bits};
use crate::entries::error::invalid;
use crate::entries::{
    ControlError, ControlResult, EntryKey, KeyField, MatchField, MatchKind, TableInfo,
};
use std::borrow::Cow;

/// Checks a match key against the table; returns its canonical form, encoded, and packed.
pub(crate) fn pack(
    table: &Table,
    info: &TableInfo,
    key: &EntryKey,
) -> ControlResult<(EncodedKey, Packed)> {
    if key.fields.len() != info.key.len() {
        return invalid(format!(
            "table '{}' has {} key fields, {} given",
            info.name,
            info.key.len(),
            key.fields.len()
        ));
    }
    if table.has_priorities() {
        if key.priority < 1 {
            return invalid(format!(
                "table '{}' needs a priority of at least 1, {} given",
                info.name, key.priority
            ));
        }
    } else if key.priority != 0 {
        return invalid(format!(
            "table '{}' has no priorities, {} given",
            info.name, key.priority
        ));
    }
    let mut packed = Packed {
        value: vec![0; table.spec.key_words],
        mask: vec![0; table.spec.key_words],
        bounds: Vec::new(),
        priority: i64::from(key.priority),
    };
    let mut canonical = Cow::Borrowed(key);
    let fields = table.spec.parts.iter().zip(&info.key).zip(&key.fields);
    for (i, ((part, field), given)) in fields.enumerate() {
        let masked = field.mask.as_ref().map(|mask| given.under(mask));
        let given = masked.as_ref().unwrap_or(given);
        let other = pack_field(part, field, given, &mut packed, !table.has_priorities())?;
        if let Some(other) = other.or(masked) {
            canonical.to_mut().fields[i] = other;
        }
    }
    Ok((EncodedKey::of(&canonical), packed))
}

/// Checks and packs a field; returns its canonical form if that is another.
fn pack_field(
    part: &KeyPart,
    field: &KeyField,
    given: &MatchField,
    packed: &mut Packed,
    by_prefix: bool,
) -> ControlResult<Option<MatchField>> {
    let what = || format!("key '{}'", field.name);
    let bits = field.bits;
    let full = prefix_mask(bits, bits);
    let mut put = |value: &[u64], mask: &[u64]| {
        if value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
            return invalid(format!("{}: value has bits outside its mask", what()));
        }
        part.put(value, &mut packed.value);
        part.put(mask, &mut packed.mask);
        Ok(())
    };
    match (field.kind, given) {
        (MatchKind::Exact, MatchField::Exact(value)) => {
            put(&from_bits(value, bits, what)?, &full)?;
        }
        (MatchKind::Lpm, MatchField::Lpm { value, prefix_bits }) => {
            if *prefix_bits > bits {
                return invalid(format!(
                    "{}: prefix of {prefix_bits} of {bits} bits",
                    what()
                ));
            }
            let mask = prefix_mask(bits, *prefix_bits);
            put(&from_bits(value, bits, what)?, &mask)?;
            if by_prefix {
                packed.priority = i64::from(*prefix_bits);
            }
        }
        (MatchKind::Ternary, MatchField::Ternary { value, mask }) => {
            let mask = from_bits(mask, bits, what)?;
            put(&from_bits(value, bits, what)?, &mask)?;
        }
        // p4c writes optional keys as ternary ones; accept the optional form for them too.
        (MatchKind::Optional | MatchKind::Ternary, MatchField::Optional(value)) => {
            let (value, mask) = match value {
                Some(value) => (from_bits(value, bits, what)?, full),
                None => (Vec::new(), Vec::new()),
            };
            put(&value, &mask)?;
            if field.kind == MatchKind::Ternary {
                return Ok(Some(MatchField::Ternary {
                    value: to_bits(&value, bits),
                    mask: to_bits(&mask, bits),
                }));
            }
        }
        (MatchKind::Range, MatchField::Range { low, high }) => {
            let low = from_bits(low, bits, what)?;
            let high = from_bits(high, bits, what)?;
            if low.iter().rev().gt(high.iter().rev()) {
                return invalid(format!("{}: range ends before it starts", what()));
            }
            let bounds = Bounds::new(part.word, part.shift, bits, &low, &high);
            packed.bounds.push(bounds);
        }
        (kind, _) => return invalid(format!("{}: is matched by {kind:?}", what())),
    }
    Ok(None)
}

/// Checks that a table has room for an entry.
pub(crate) fn check_room(table: &Table, info: &TableInfo) -> ControlResult<()> {
    if table.len() >= info.size {
        return Err(ControlError::ResourceExhausted(format!(
            "table '{}' is full ({} entries)",
            info.name, info.size
        )));
    }
    Ok(())
}

/// Inserts an entry after all checks, except whether the table is constant.
pub(crate) fn insert_checked(
    table: &mut Table,
    info: &TableInfo,
    key: &EntryKey,
    target: Target,
    now_ns: u64,
) -> ControlResult<()> {
    if info.key.is_empty() {
        return invalid(format!("table '{}' has no key", info.name));
    }
    let (key, packed) = pack(table, info, key)?;
    if table.id_of(&key).is_some() {
        return Err(ControlError::AlreadyExists(format!(
            "table '{}' already has this entry",
            info.name
        )));
    }
    check_room(table, info)?;
    table.insert(key, &packed, target, now_ns);
    Ok(())
}
