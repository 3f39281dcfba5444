//! Encodes match keys for storage: one allocation per key. As [`EntryKey`]s, the keys of a million
//! flows of `pacer.p4` would be twenty million allocations.

use crate::entries::{Bits, EntryKey, MatchField};

/// An encoded match key. Equal keys have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct EncodedKey(Box<[u8]>);

/// The first byte of a field: its kind.
const EXACT: u8 = 0;
const LPM: u8 = 1;
const TERNARY: u8 = 2;
const RANGE: u8 = 3;
const OPTIONAL: u8 = 4;
const ANY: u8 = 5;

impl EncodedKey {
    /// Encodes a key, whose fields are at most 2^16 - 1 bytes wide.
    pub fn of(key: &EntryKey) -> Self {
        // Reserve the exact length: shrinking a million allocations would fragment the memory.
        let width = |value: &Bits| size_of::<u16>() + value.len();
        let lengths = key.fields.iter().map(|field| match field {
            MatchField::Exact(value) | MatchField::Optional(Some(value)) => width(value),
            MatchField::Lpm { value, prefix_bits } => width(value) + size_of_val(prefix_bits),
            MatchField::Ternary { value: a, mask: b } | MatchField::Range { low: a, high: b } => {
                width(a) + width(b)
            }
            MatchField::Optional(None) => 0,
        });
        let length = lengths.map(|length| 1 + length).sum::<usize>();
        let mut bytes = Vec::with_capacity(size_of_val(&key.priority) + length);
        bytes.extend(key.priority.to_le_bytes());
        for field in &key.fields {
            let mut put = |kind, values: &[&Bits]| {
                bytes.push(kind);
                for value in values {
                    bytes.extend((value.len() as u16).to_le_bytes());
                    bytes.extend_from_slice(value);
                }
            };
            match field {
                MatchField::Exact(value) => put(EXACT, &[value]),
                MatchField::Lpm { value, prefix_bits } => {
                    put(LPM, &[value]);
                    bytes.extend(prefix_bits.to_le_bytes());
                }
                MatchField::Ternary { value, mask } => put(TERNARY, &[value, mask]),
                MatchField::Range { low, high } => put(RANGE, &[low, high]),
                MatchField::Optional(Some(value)) => put(OPTIONAL, &[value]),
                MatchField::Optional(None) => put(ANY, &[]),
            }
        }
        Self(bytes.into())
    }

    /// Decodes the key.
    pub fn key(&self) -> EntryKey {
        let mut rest = Reader(&self.0);
        let priority = i32::from_le_bytes(rest.array());
        let mut fields = Vec::new();
        while let [kind, after @ ..] = rest.0 {
            rest.0 = after;
            fields.push(match *kind {
                EXACT => MatchField::Exact(rest.bits()),
                LPM => MatchField::Lpm {
                    value: rest.bits(),
                    prefix_bits: u32::from_le_bytes(rest.array()),
                },
                TERNARY => MatchField::Ternary {
                    value: rest.bits(),
                    mask: rest.bits(),
                },
                RANGE => MatchField::Range {
                    low: rest.bits(),
                    high: rest.bits(),
                },
                OPTIONAL => MatchField::Optional(Some(rest.bits())),
                _ => MatchField::Optional(None),
            });
        }
        EntryKey { fields, priority }
    }
}

/// The bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((array, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *array
    }

    fn bits(&mut self) -> Bits {
        let length = u16::from_le_bytes(self.array()).into();
        let (bits, rest) = self.0.split_at_checked(length).unwrap_or_default();
        self.0 = rest;
        bits.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits() -> impl Strategy<Value = Bits> {
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Into::into)
    }

    fn field() -> impl Strategy<Value = MatchField> {
        prop_oneof![
            bits().prop_map(MatchField::Exact),
            (bits(), any::<u32>())
                .prop_map(|(value, prefix_bits)| MatchField::Lpm { value, prefix_bits }),
            (bits(), bits()).prop_map(|(value, mask)| MatchField::Ternary { value, mask }),
            (bits(), bits()).prop_map(|(low, high)| MatchField::Range { low, high }),
            proptest::option::of(bits()).prop_map(MatchField::Optional),
        ]
    }

    proptest! {
        #[test]
        fn decodes_to_the_same_key(
            fields in proptest::collection::vec(field(), 0..6),
            priority in any::<i32>(),
        ) {
            let key = EntryKey { fields, priority };
            prop_assert_eq!(EncodedKey::of(&key).key(), key);
        }
    }
}
