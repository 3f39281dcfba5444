//! What a switch tells its controllers unasked: digests and idle entries.

use crate::control::{Bits, EntryKey};

/// A digest's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestInfo {
    /// Name of the digest's type in P4, as P4Info has it.
    pub name: String,
    /// Widths of its fields in bits, in order.
    pub widths: Vec<u32>,
}

/// One digest that the program sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// Index into [`crate::control::DataPlane::digests`].
    pub digest: usize,
    /// The fields' values, in order.
    pub fields: Vec<Bits>,
    /// When, in nanoseconds of the switch's clock.
    pub at_ns: u64,
}

/// An entry's idle timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTimeout {
    /// The entry is idle after so many nanoseconds without a packet; 0: never.
    pub timeout_ns: u64,
    /// Nanoseconds since the last packet (or since the entry was made).
    pub since_hit_ns: u64,
}

/// An entry that has become idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleEntry {
    /// Index into [`crate::control::DataPlane::tables`].
    pub table: usize,
    /// Which entry.
    pub key: EntryKey,
}
