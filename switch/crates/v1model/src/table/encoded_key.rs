//! Encodes match keys for storage: one allocation per key. As [`EntryKey`]s, the keys of a million
//! flows of `pacer.p4` would be twenty million allocations.

use crate::entries::EntryKey;

/// An encoded match key. Equal keys have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct EncodedKey(Box<[u8]>);

impl EncodedKey {
    /// Encodes a key.
    pub fn of(key: &EntryKey) -> Self {
        // Reserve the exact length: shrinking a million allocations would fragment the memory.
        let length = postcard::experimental::serialized_size(key).unwrap_or(0);
        let mut bytes = vec![0; length].into_boxed_slice();
        let encoded = postcard::to_slice(key, &mut bytes);
        debug_assert!(encoded.is_ok_and(|used| used.len() == length));
        Self(bytes)
    }

    /// Decodes the key.
    pub fn key(&self) -> EntryKey {
        let key = postcard::from_bytes(&self.0);
        debug_assert!(key.is_ok(), "a key is not as it was encoded");
        key.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::{Bits, MatchField};
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
