//! The objects of a program as the control plane sees them: tables and entries, actions,
//! counters, meters, registers, value sets.
//!
//! * [`profile`]: action profiles and selectors.
//! * [`digest`]: digests and idle entries.
//!
//! Values cross this boundary as big-endian byte strings of exactly `(bits + 7) / 8` bytes
//! ([`Bits`]); the P4Runtime server converts to and from canonical form. Objects are named by
//! the fully qualified P4 name that p4c writes in both BMv2 JSON and P4Info (for example
//! `PacerIngress.flows`); a caller resolves names once and uses indices.

pub mod digest;
mod error;
pub mod profile;

pub use error::{ControlError, ControlResult};

use self::digest::IdleTimeout;
use self::profile::IndirectAction;

/// A value of known width, big-endian, `(bits + 7) / 8` bytes, unused high bits zero.
pub type Bits = Box<[u8]>;

/// How a key field is matched.
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

/// One field of a table's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    /// Name as p4c writes it (`hdr.ipv4.src_addr`).
    pub name: String,
    /// How it is matched.
    pub kind: MatchKind,
    /// Width in bits.
    pub bits: u32,
}

/// One field of an entry's match key, in the order of [`TableInfo::key`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MatchField {
    /// Equal to the value.
    Exact(Bits),
    /// The `prefix_bits` most significant bits are equal; 0 matches everything.
    Lpm {
        /// Value; bits beyond the prefix are zero.
        value: Bits,
        /// Prefix length in bits.
        prefix_bits: u32,
    },
    /// `key & mask == value`; `value & !mask` is zero; an all-zero mask matches everything.
    Ternary {
        /// Value.
        value: Bits,
        /// Mask.
        mask: Bits,
    },
    /// `low <= key <= high`.
    Range {
        /// Lowest value that matches.
        low: Bits,
        /// Highest value that matches.
        high: Bits,
    },
    /// Equal, or `None`: matches everything.
    Optional(Option<Bits>),
}

/// An action with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionCall {
    /// Index into [`DataPlane::actions`].
    pub action: usize,
    /// Arguments in declaration order, each as wide as its parameter.
    pub args: Vec<Bits>,
}

/// What identifies an entry: its match fields and, where the table has ternary, range or
/// optional keys, its priority (greater wins; 0 where the table has no priorities).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// One per key field.
    pub fields: Vec<MatchField>,
    /// P4Runtime priority.
    pub priority: i32,
}

/// A table's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Key fields in order; empty for a keyless table.
    pub key: Vec<KeyField>,
    /// Actions that entries may use (indices into [`DataPlane::actions`]).
    pub actions: Vec<usize>,
    /// Most entries the table takes.
    pub size: usize,
    /// Entries are fixed by the program (`const entries`; as long as nobody has told
    /// otherwise, any that it has).
    pub const_entries: bool,
    /// The default action is fixed by the program (`const default_action`).
    pub const_default: bool,
    /// The table has a direct counter.
    pub direct_counter: bool,
    /// Unit of the direct meter, if the table has one.
    pub direct_meter: Option<MeterUnit>,
    /// Action profile whose members its entries name (index into [`DataPlane::profiles`]).
    pub profile: Option<usize>,
    /// Entries may have idle timeouts.
    pub idle_timeout: bool,
}

/// An action's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Parameter names and widths in bits.
    pub params: Vec<(String, u32)>,
}

/// A counter, meter or register array's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Number of cells.
    pub size: usize,
    /// Width of a cell in bits (registers; 0 otherwise).
    pub bits: u32,
}

/// What a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// Rates and bursts of a meter, in the meter's unit per second and units: a two-rate three-colour
/// marker (RFC 2698), or, with an excess burst, a single-rate one (RFC 2697).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed information rate, units per second.
    pub cir: u64,
    /// Committed burst size, units.
    pub cburst: u64,
    /// Peak information rate, units per second; at least `cir`.
    pub pir: u64,
    /// Peak burst size, units.
    pub pburst: u64,
    /// Excess burst size, units; 0 for a two-rate marker. With another value `pir` and `pburst`
    /// are `cir` and `cburst`. (A single-rate marker with no excess burst is the two-rate marker
    /// whose rates and bursts are equal.)
    pub eburst: u64,
}

/// What a meter has coloured: green, yellow, red.
pub type ColourCounts = [CounterValue; 3];

/// What a meter is set to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterWrite {
    /// Configured so, with full buckets; `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// What it has counted becomes 0; otherwise it stays.
    pub clear_counts: bool,
}

/// A meter as read back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterState {
    /// `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// What it has coloured, configured or not.
    pub counts: ColourCounts,
}

/// Packets and bytes counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes (layer 2, without FCS, as BMv2 counts).
    pub bytes: u64,
}

/// An entry as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Match fields and priority.
    pub key: EntryKey,
    /// Action with arguments; in a table with an action profile, that of the member (of a
    /// group: of its first member).
    pub action: ActionCall,
    /// What the entry names, in a table with an action profile.
    pub indirect: Option<IndirectAction>,
    /// Direct counter, where the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, where the table has one.
    pub meter: Option<MeterState>,
    /// Idle timeout, where the table has them.
    pub idle: Option<IdleTimeout>,
}

/// A table's default entry: what happens to packets that no other entry matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultEntry {
    /// `None`: no action, a miss does nothing.
    pub action: Option<ActionCall>,
    /// Direct counter, where the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, where the table has one.
    pub meter: Option<MeterState>,
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

/// Some of many objects, so that no call takes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, in their order.
    pub items: Vec<T>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<u64>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

impl<T> Page<T> {
    /// The first `most` (at least 1) of `items`, which are in order of their numbers; the next page
    /// begins at the number after.
    pub fn of(items: impl Iterator<Item = (u64, T)>, most: usize) -> Self {
        let mut items = items;
        let mut page = Self::default();
        for (number, item) in items.by_ref() {
            if page.items.len() >= most.max(1) {
                page.next = Some(number);
                break;
            }
            page.items.push(item);
        }
        page
    }
}

/// What a cell of an array is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellValue {
    /// Of an indirect counter.
    Counter(CounterValue),
    /// Of an indirect meter.
    Meter(MeterWrite),
    /// Of a register; as wide as the register.
    Register(Bits),
}
