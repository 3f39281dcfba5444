//! Match fields: of table entries and of members of value sets (specification, section "Match
//! Format").

use tonic::Code;
use v1model::entries::{Bits, MatchField, MatchKind};

use super::translation::ValueType;
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::ids;
use crate::proto::p4::v1 as p4;

/// One field of a key as P4Info and the program have it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// As controllers see it.
    pub(crate) kind: MatchKind,
    pub(crate) value: ValueType,
    /// The field is optional for controllers and ternary in the program, because BMv2 JSON has no
    /// optional match.
    pub(super) masked_optional: bool,
    /// The program's own mask ([`v1model::entries::KeyField::mask`]).
    pub(super) mask: Option<Bits>,
}

impl Key {
    fn any_ternary(&self) -> MatchField {
        MatchField::Ternary {
            value: bytestring::zero(self.value.bits),
            mask: bytestring::zero(self.value.bits),
        }
    }

    /// An optional field as the program has it.
    fn optional(&self, value: Option<Bits>) -> MatchField {
        match (value, self.masked_optional) {
            (value, false) => MatchField::Optional(value),
            (Some(value), true) => MatchField::Ternary {
                value,
                mask: bytestring::ones(self.value.bits),
            },
            (None, true) => self.any_ternary(),
        }
    }
}

/// The fields of a table's key or of a value set's members.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// P4 name of the table or value set, for errors.
    pub(crate) object: String,
    /// In the program's order.
    pub(crate) fields: Vec<Key>,
}

impl Keys {
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether entries have priorities (specification, section "TableEntry").
    pub(crate) fn have_priorities(&self) -> bool {
        self.fields.iter().any(|key| key.kind.needs_priority())
    }

    /// Reads match fields. Fields that are left out match everything (section "Match Format").
    pub(crate) fn match_fields(&self, given: &[p4::FieldMatch]) -> UpdateResult<Vec<MatchField>> {
        let known = self.fields.iter();
        let known = known.map(|key| (key.id, key.name.as_str()));
        let ids = given.iter().map(|field| field.field_id);
        ids::check(&format!("{}: match", self.object), "field", ids, known)?;
        self.fields
            .iter()
            .map(|key| {
                let field = given.iter().find(|field| field.field_id == key.id);
                let field = match field {
                    Some(field) => self.match_field(key, field)?,
                    None => self.dont_care(key)?,
                };
                Ok(match &key.mask {
                    Some(mask) => field.under(mask),
                    None => field,
                })
            })
            .collect()
    }

    fn dont_care(&self, key: &Key) -> UpdateResult<MatchField> {
        Ok(match key.kind {
            MatchKind::Exact => {
                return Err(UpdateError::invalid(format!(
                    "{}: field {}: not given, but an exact field must be ({})",
                    self.object,
                    key.name,
                    key.value.expected()
                )));
            }
            MatchKind::Lpm => MatchField::Lpm {
                value: bytestring::zero(key.value.bits),
                prefix_bits: 0,
            },
            MatchKind::Ternary => key.any_ternary(),
            MatchKind::Range => MatchField::Range {
                low: bytestring::zero(key.value.bits),
                high: bytestring::ones(key.value.bits),
            },
            MatchKind::Optional => key.optional(None),
        })
    }

    fn match_field(&self, key: &Key, field: &p4::FieldMatch) -> UpdateResult<MatchField> {
        use p4::field_match::FieldMatchType as Given;
        match (key.kind, &field.field_match_type) {
            (MatchKind::Exact, Some(Given::Exact(exact))) => {
                Ok(MatchField::Exact(self.value(key, &exact.value, "")?))
            }
            (MatchKind::Optional, Some(Given::Optional(optional))) => {
                let value = self.value(key, &optional.value, "")?;
                Ok(key.optional(Some(value)))
            }
            (MatchKind::Lpm, Some(Given::Lpm(lpm))) => self.lpm(key, lpm),
            (MatchKind::Ternary, Some(Given::Ternary(ternary))) => self.ternary(key, ternary),
            (MatchKind::Range, Some(Given::Range(range))) => self.range(key, range),
            (kind, given) => Err(self.refuse(
                key,
                format!(
                    "{} given, {} expected",
                    match given {
                        None => "no match",
                        Some(Given::Exact(_)) => "exact",
                        Some(Given::Ternary(_)) => "ternary",
                        Some(Given::Lpm(_)) => "lpm",
                        Some(Given::Range(_)) => "range",
                        Some(Given::Optional(_)) => "optional",
                        Some(Given::Other(_)) => "other",
                    },
                    kind_name(kind)
                ),
            )),
        }
    }

    /// Refuses a match on a part of a translated value: "it may be infeasible to translate the value-mask
    /// pair" (section "Translation of Match Fields"). `is_whole`: of these controllers' bits.
    fn check_whole(&self, key: &Key, is_whole: impl FnOnce(u32) -> bool) -> UpdateResult<()> {
        if key.value.controllers_bits().is_some_and(is_whole) {
            return Ok(());
        }
        let text = "a match on a part of the value given, but its type is translated: a prefix or mask of \
                    the whole number expected, or leave the field out to match everything";
        Err(self.refuse(key, text))
    }

    fn lpm(&self, key: &Key, lpm: &p4::field_match::Lpm) -> UpdateResult<MatchField> {
        let value = self.value(key, &lpm.value, "")?;
        if key.value.is_translated() {
            self.check_whole(key, |bits| u32::try_from(lpm.prefix_len) == Ok(bits))?;
            return Ok(MatchField::Lpm {
                value,
                prefix_bits: key.value.bits,
            });
        }
        let prefix_bits = match u32::try_from(lpm.prefix_len) {
            Ok(0) => {
                let text = "prefix length 0 given; leave the field out to match everything";
                return Err(self.refuse(key, text));
            }
            Ok(prefix) if prefix <= key.value.bits => prefix,
            _ => {
                let text = format!(
                    "prefix length {} given, 1 to {} expected",
                    lpm.prefix_len, key.value.bits
                );
                return Err(self.refuse(key, text));
            }
        };
        if !bytestring::within_mask(
            &value,
            &bytestring::prefix_mask(key.value.bits, prefix_bits),
        ) {
            let text = format!(
                "value 0x{} has bits set beyond its prefix of {prefix_bits} bits; they must be 0",
                bytestring::hex(&value)
            );
            return Err(self.refuse(key, text));
        }
        Ok(MatchField::Lpm { value, prefix_bits })
    }

    fn ternary(&self, key: &Key, ternary: &p4::field_match::Ternary) -> UpdateResult<MatchField> {
        let value = self.value(key, &ternary.value, "value")?;
        if key.value.is_translated() {
            self.check_whole(key, |bits| {
                let mask = bytestring::parse(&ternary.mask, bits, &self.object, &key.name);
                mask.is_ok_and(|mask| mask == bytestring::ones(bits))
            })?;
            return Ok(MatchField::Ternary {
                value,
                mask: bytestring::ones(key.value.bits),
            });
        }
        let mask = self.value(key, &ternary.mask, "mask")?;
        if bytestring::is_zero(&mask) {
            let text = "mask 0 given; leave the field out to match everything";
            return Err(self.refuse(key, text));
        }
        if !bytestring::within_mask(&value, &mask) {
            let text = format!(
                "value 0x{} has bits set outside its mask 0x{}; they must be 0",
                bytestring::hex(&value),
                bytestring::hex(&mask)
            );
            return Err(self.refuse(key, text));
        }
        Ok(MatchField::Ternary { value, mask })
    }

    fn range(&self, key: &Key, range: &p4::field_match::Range) -> UpdateResult<MatchField> {
        let low = self.value(key, &range.low, "low")?;
        let high = self.value(key, &range.high, "high")?;
        if key.value.is_translated() && low != high {
            let text = "a range of several values given, but its type is translated: low and high the \
                        same expected, or leave the field out to match everything";
            return Err(self.refuse(key, text));
        }
        // Both are equally long and big-endian, so byte order is number order.
        if low > high {
            let text = format!(
                "low 0x{} is greater than high 0x{}",
                bytestring::hex(&low),
                bytestring::hex(&high)
            );
            return Err(self.refuse(key, text));
        }
        if bytestring::is_zero(&low) && high == bytestring::ones(key.value.bits) {
            let text = "the range includes every value; leave the field out to match everything";
            return Err(self.refuse(key, text));
        }
        Ok(MatchField::Range { low, high })
    }

    /// Reads a value of a field. `part` names it in errors, where a field has several.
    fn value(&self, key: &Key, value: &[u8], part: &str) -> UpdateResult<Bits> {
        let name = if part.is_empty() {
            key.name.clone()
        } else {
            format!("{} ({part})", key.name)
        };
        let parsed = key.value.parse(value, &self.object, &name);
        parsed.map_err(UpdateError::as_invalid)
    }

    fn refuse(&self, key: &Key, text: impl std::fmt::Display) -> UpdateError {
        UpdateError::invalid(format!("{}: field {}: {text}", self.object, key.name))
    }

    /// Match fields as a controller sees them: canonical, "don't care" left out.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: a value that no controller's value stands for.
    pub(crate) fn match_messages(
        &self,
        fields: &[MatchField],
    ) -> UpdateResult<Vec<p4::FieldMatch>> {
        let mut messages = Vec::with_capacity(fields.len());
        for (key, field) in self.fields.iter().zip(fields) {
            if let Some(given) = self.match_message(key, field)? {
                messages.push(p4::FieldMatch {
                    field_id: key.id,
                    field_match_type: Some(given),
                });
            }
        }
        Ok(messages)
    }

    fn match_message(
        &self,
        key: &Key,
        field: &MatchField,
    ) -> UpdateResult<Option<p4::field_match::FieldMatchType>> {
        use p4::field_match as m;
        let tell = |value: &[u8]| key.value.tell(value, &self.object, &key.name);
        // A part of a translated value: a client of another protocol may match on one.
        let parts = |is_part: bool| match is_part && key.value.is_translated() {
            true => Err(UpdateError::new(
                Code::FailedPrecondition,
                format!(
                    "{}: field {}: the switch has a match on a part of the value, but its type is \
                     translated",
                    self.object, key.name
                ),
            )),
            false => Ok(()),
        };
        let bits = key.value.bits;
        let ones = bytestring::ones(bits);
        Ok(Some(match field {
            MatchField::Exact(value) => m::FieldMatchType::Exact(m::Exact {
                value: tell(value)?,
            }),
            MatchField::Lpm { prefix_bits: 0, .. } => return Ok(None),
            MatchField::Lpm { value, prefix_bits } => {
                parts(*prefix_bits != bits || key.value.controllers_bits().is_none())?;
                let all = key.value.controllers_bits().unwrap_or(bits);
                let prefix = if *prefix_bits == bits {
                    all
                } else {
                    *prefix_bits
                };
                m::FieldMatchType::Lpm(m::Lpm {
                    value: tell(value)?,
                    prefix_len: i32::try_from(prefix).unwrap_or(i32::MAX),
                })
            }
            MatchField::Ternary { mask, .. } if bytestring::is_zero(mask) => return Ok(None),
            MatchField::Ternary { value, .. } if key.masked_optional => {
                m::FieldMatchType::Optional(m::Optional {
                    value: tell(value)?,
                })
            }
            MatchField::Ternary { value, mask } => {
                parts(*mask != ones || key.value.controllers_bits().is_none())?;
                let all = key.value.controllers_bits().unwrap_or(bits);
                let mask = if *mask == ones {
                    &bytestring::ones(all)
                } else {
                    mask
                };
                m::FieldMatchType::Ternary(m::Ternary {
                    value: tell(value)?,
                    mask: bytestring::canonical(mask),
                })
            }
            MatchField::Range { low, high } if bytestring::is_zero(low) && *high == ones => {
                return Ok(None);
            }
            MatchField::Range { low, high } => {
                parts(low != high)?;
                m::FieldMatchType::Range(m::Range {
                    low: tell(low)?,
                    high: tell(high)?,
                })
            }
            MatchField::Optional(None) => return Ok(None),
            MatchField::Optional(Some(value)) => m::FieldMatchType::Optional(m::Optional {
                value: tell(value)?,
            }),
        }))
    }
}

pub(super) fn kind_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Exact => "exact",
        MatchKind::Lpm => "lpm",
        MatchKind::Ternary => "ternary",
        MatchKind::Range => "range",
        MatchKind::Optional => "optional",
    }
}
