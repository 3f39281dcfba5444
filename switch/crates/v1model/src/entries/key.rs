//! Match keys: of table entries and of members of value sets.

use super::action::Bits;
use serde::{Deserialize, Serialize};

/// The match kind of a key field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// Equal.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value under mask.
    Ternary,
    /// Inclusive range.
    Range,
    /// Equal or don't care.
    Optional,
}

impl MatchKind {
    /// Whether entries with a field of this kind have a priority: several of them may match one
    /// packet, and no rule of the kind itself decides (P4Runtime specification, "TableEntry").
    #[must_use]
    pub const fn needs_priority(self) -> bool {
        match self {
            Self::Ternary | Self::Range | Self::Optional => true,
            Self::Exact | Self::Lpm => false,
        }
    }
}

/// One field of a table's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    /// Name as p4c writes it (`hdr.ipv4.src_addr`).
    pub name: String,
    /// Its match kind.
    pub kind: MatchKind,
    /// Width in bits.
    pub bits: u32,
    /// The program's own mask: only these bits of packets and entries count (P4_14). The unused
    /// bits above the width are ones.
    pub mask: Option<Bits>,
}

/// One field of an entry's match key, in the order of [`TableInfo::key`](super::TableInfo::key).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MatchField {
    /// Equal to the value.
    Exact(#[serde(with = "serde_bytes")] Bits),
    /// The `prefix_bits` most significant bits are equal; 0 matches everything.
    Lpm {
        /// Value; bits beyond the prefix are zero.
        #[serde(with = "serde_bytes")]
        value: Bits,
        /// Prefix length in bits.
        prefix_bits: u32,
    },
    /// `key & mask == value`; `value & !mask` is zero; an all-zero mask matches everything.
    Ternary {
        /// Value.
        #[serde(with = "serde_bytes")]
        value: Bits,
        /// Mask.
        #[serde(with = "serde_bytes")]
        mask: Bits,
    },
    /// `low <= key <= high`.
    Range {
        /// Lowest value that matches.
        #[serde(with = "serde_bytes")]
        low: Bits,
        /// Highest value that matches.
        #[serde(with = "serde_bytes")]
        high: Bits,
    },
    /// Equal, or `None`: matches everything.
    Optional(#[serde(with = "serde_bytes")] Option<Bits>),
}

impl MatchField {
    /// The match under a mask of the program, as BMv2 takes it: values lose the other bits, while a
    /// ternary match's mask and a range's end stay. A value of another width stays, too.
    #[must_use]
    pub fn under(&self, mask: &[u8]) -> Self {
        let masked = |value: &Bits| -> Bits {
            if value.len() != mask.len() {
                return value.clone();
            }
            value.iter().zip(mask).map(|(v, m)| v & m).collect()
        };
        match self {
            Self::Exact(value) => Self::Exact(masked(value)),
            Self::Lpm { value, prefix_bits } => Self::Lpm {
                value: masked(value),
                prefix_bits: *prefix_bits,
            },
            Self::Ternary { value, mask } => Self::Ternary {
                value: masked(value),
                mask: mask.clone(),
            },
            Self::Range { low, high } => Self::Range {
                low: masked(low),
                high: high.clone(),
            },
            Self::Optional(value) => Self::Optional(value.as_ref().map(masked)),
        }
    }
}

/// The identity of an entry: its match fields and, if the table has ternary, range or optional keys,
/// its priority (the greater one wins; 0 if the table has no priorities).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntryKey {
    /// One per key field.
    pub fields: Vec<MatchField>,
    /// P4Runtime priority.
    pub priority: i32,
}

/// A parser value set's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSetInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Widths of the fields of a member in bits, in order.
    pub widths: Vec<u32>,
    /// Most members.
    pub size: usize,
}
