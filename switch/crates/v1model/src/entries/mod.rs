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

mod action;
mod array;
pub mod digest;
pub(crate) mod error;
mod key;
mod page;
pub mod profile;
mod table;

pub use action::{ActionCall, ActionInfo, Bits};
pub use array::{
    ArrayInfo, CellValue, ColourCounts, CounterValue, MeterConfig, MeterState, MeterUnit,
    MeterWrite,
};
pub use error::{ControlError, ControlResult};
pub use key::{EntryKey, KeyField, MatchField, MatchKind, ValueSetInfo};
pub use page::Page;
pub use table::{DefaultEntry, DirectMeterInfo, EntryAction, Handled, TableEntry, TableInfo};
