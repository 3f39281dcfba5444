//! Unsolicited messages of a switch to its controllers: lists of digest messages, and idle entries.

use super::action::Bits;
use super::key::EntryKey;

/// A digest's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestInfo {
    /// Name of the digest's type in P4, as P4Info has it.
    pub name: String,
    /// The number that the program's JSON gives it.
    pub json_id: u32,
    /// Widths of its fields in bits, in order.
    pub widths: Vec<u32>,
    /// The headers that are in the digest as a whole: the range of their fields. In a message, a bit
    /// for each of them follows the fields and says whether the packet has the header. If not, its
    /// fields are 0.
    pub headers: Vec<std::ops::Range<usize>>,
}

/// Settings for collecting a digest's messages into lists (P4Runtime specification, section
/// "DigestEntry").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DigestConfig {
    /// A list is sent this many nanoseconds after its first message at the latest; 0: at once.
    pub max_timeout_ns: u64,
    /// A list with this many messages is sent at once; 0: the switch chooses.
    pub max_list_size: u32,
    /// A message is not sent again until its list is acknowledged or this many nanoseconds have passed;
    /// 0: it is sent again at once.
    pub ack_timeout_ns: u64,
}

/// Digest messages, all different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestList {
    /// Index into [`crate::Pipeline::digests`].
    pub digest: usize,
    /// [`DigestInfo::json_id`].
    pub json_id: u32,
    /// Number of the list among those of its digest, from 1.
    pub list_id: u64,
    /// Each message's fields, in order, and the bits for its [`DigestInfo::headers`].
    pub messages: Vec<Vec<Bits>>,
    /// How many bits for headers a message ends with.
    pub headers: usize,
}

/// An entry's idle timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTimeout {
    /// The entry is idle after this many nanoseconds without a packet; 0: never.
    pub timeout_ns: u64,
    /// Nanoseconds since the last packet (or since the entry was made).
    pub since_hit_ns: u64,
}

/// An entry that is idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleEntry {
    /// Index into [`crate::Pipeline::tables`].
    pub table: usize,
    /// The table's [`TableInfo::json_id`](super::TableInfo::json_id).
    pub json_id: u32,
    /// The key of the entry.
    pub key: EntryKey,
    /// BMv2's handle of the entry, if the table keeps handles.
    pub handle: Option<u32>,
    /// Its idle timeout.
    pub timeout_ns: u64,
}
