//! Match keys as BMv2 has them.
//!
//! BMv2's lowest priority wins and P4Runtime's highest. So the one is the difference of the other from the
//! greatest, as in simple_switch_grpc. Constant entries have the priorities of the program's JSON.

use bmv2_thrift::standard::{
    BmMatchParam, BmMatchParamExact, BmMatchParamLPM, BmMatchParamRange, BmMatchParamTernary,
    BmMatchParamType as Type, TableOperationErrorCode as Code,
};
use v1model::entries::{EntryKey, KeyField, MatchField, MatchKind, TableInfo};

use super::lookup::{TableResult, refused};
use super::values::{bytes_of, exact, fit, masked, prefix_given, prefix_mask, prefix_told};

/// BMv2's priority of entries of tables without priorities.
const NO_PRIORITY: i32 = -1;

fn has_priorities(table: &TableInfo) -> bool {
    table.key.iter().any(|field| field.kind.needs_priority())
}

/// BMv2's priority that is 1 in P4Runtime, the lowest there.
fn last_priority(table: &TableInfo) -> i32 {
    match table.const_entries {
        // The numbers of the program's JSON.
        true => table.program_priority_max,
        false => i32::MAX - 1,
    }
}

/// The key that a client gives.
pub(super) fn entry_key(
    table: &TableInfo,
    params: &[BmMatchParam],
    priority: i32,
) -> TableResult<EntryKey> {
    if table.key.is_empty() {
        return Err(refused(Code::NO_TABLE_KEY));
    }
    let bad = || refused(Code::BAD_MATCH_KEY);
    if params.len() != table.key.len() {
        return Err(bad());
    }
    let fields = table.key.iter().zip(params);
    let fields = fields.map(|(field, param)| match_field(field, param));
    let priority = if has_priorities(table) {
        let last = last_priority(table);
        if !(0..=last).contains(&priority) {
            return Err(bad());
        }
        (last - priority).saturating_add(1)
    } else {
        0
    };
    Ok(EntryKey {
        fields: fields.collect::<Option<_>>().ok_or_else(bad)?,
        priority,
    })
}

/// A field that a client gives; `None`: of another kind or width than the table's.
fn match_field(field: &KeyField, param: &BmMatchParam) -> Option<MatchField> {
    let bits = field.bits;
    Some(match (field.kind, param.type_?) {
        (MatchKind::Exact, Type::EXACT) => {
            MatchField::Exact(exact(param.exact.as_ref()?.key.as_ref()?, bits)?)
        }
        // A header's validity, which p4c makes an exact field of one bit.
        (MatchKind::Exact, Type::VALID) => {
            let valid = param.valid.as_ref()?.key?;
            MatchField::Exact(exact(&[u8::from(valid)], bits)?)
        }
        (MatchKind::Lpm, Type::LPM) => {
            let lpm = param.lpm.as_ref()?;
            let given = u32::try_from(lpm.prefix_length?).ok()?;
            let prefix_bits = prefix_given(bits, given)?;
            let value = exact(lpm.key.as_ref()?, bits)?;
            MatchField::Lpm {
                value: masked(&value, &prefix_mask(bits, prefix_bits)),
                prefix_bits,
            }
        }
        (MatchKind::Ternary | MatchKind::Optional, Type::TERNARY) => {
            let ternary = param.ternary.as_ref()?;
            let value = exact(ternary.key.as_ref()?, bits)?;
            let mask = exact(ternary.mask.as_ref()?, bits)?;
            let value = masked(&value, &mask);
            if field.kind == MatchKind::Ternary {
                return Some(MatchField::Ternary { value, mask });
            }
            match mask == prefix_mask(bits, bits) {
                true => MatchField::Optional(Some(value)),
                false if mask.iter().all(|byte| *byte == 0) => MatchField::Optional(None),
                false => return None,
            }
        }
        (MatchKind::Range, Type::RANGE) => {
            let range = param.range.as_ref()?;
            let low = exact(range.start.as_ref()?, bits)?;
            let high = exact(range.end_.as_ref()?, bits)?;
            (low <= high).then_some(MatchField::Range { low, high })?
        }
        _ => return None,
    })
}

/// A key that a client gives, without the bits of prefixes that are beyond their fields.
pub(super) fn with_fitting_prefixes(
    table: &TableInfo,
    mut params: Vec<BmMatchParam>,
) -> Vec<BmMatchParam> {
    for (field, param) in table.key.iter().zip(&mut params) {
        if let Some(key) = param.lpm.as_mut().and_then(|lpm| lpm.key.as_mut()) {
            *key = fit(key, field.bits).to_vec();
        }
    }
    params
}

fn param(kind: Type) -> BmMatchParam {
    BmMatchParam::new(kind, None, None, None, None, None)
}

/// A field as a client sees it.
fn told(field: &KeyField, given: &MatchField) -> BmMatchParam {
    let ternary = |value: &[u8], mask: &[u8]| BmMatchParam {
        ternary: Some(BmMatchParamTernary::new(value.to_vec(), mask.to_vec())),
        ..param(Type::TERNARY)
    };
    let full = prefix_mask(field.bits, field.bits);
    let zero = vec![0; bytes_of(field.bits)];
    match given {
        MatchField::Exact(value) => BmMatchParam {
            exact: Some(BmMatchParamExact::new(value.to_vec())),
            ..param(Type::EXACT)
        },
        MatchField::Lpm { value, prefix_bits } => BmMatchParam {
            lpm: Some(BmMatchParamLPM::new(
                value.to_vec(),
                prefix_told(field.bits, *prefix_bits).cast_signed(),
            )),
            ..param(Type::LPM)
        },
        MatchField::Ternary { value, mask } => ternary(value, mask),
        MatchField::Range { low, high } => BmMatchParam {
            range: Some(BmMatchParamRange::new(low.to_vec(), high.to_vec())),
            ..param(Type::RANGE)
        },
        MatchField::Optional(Some(value)) => ternary(value, &full),
        MatchField::Optional(None) => ternary(&zero, &zero),
    }
}

/// A key as a client sees it, and its priority.
pub(super) fn told_key(table: &TableInfo, key: &EntryKey) -> (Vec<BmMatchParam>, i32) {
    let fields = table.key.iter().zip(&key.fields);
    let priority = match has_priorities(table) {
        true => last_priority(table).saturating_sub(key.priority.saturating_sub(1)),
        false => NO_PRIORITY,
    };
    (
        fields.map(|(field, given)| told(field, given)).collect(),
        priority,
    )
}

/// The priority in a client's options.
pub(super) fn priority(options: &bmv2_thrift::standard::BmAddEntryOptions) -> i32 {
    options.priority.unwrap_or(0)
}
