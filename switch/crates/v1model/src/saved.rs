//! Copies of the state that the control plane writes, to restore it.

use crate::entries::profile::IndirectAction;
use crate::state::MeterCell;
use crate::table::{DefaultTarget, Entry};

/// An entry or a default entry as the table has it or had it, for
/// [`Pipeline::table_restore`](crate::Pipeline::table_restore).
#[derive(Debug)]
pub struct SavedEntry(pub(crate) SavedTarget);

#[derive(Debug)]
pub(crate) enum SavedTarget {
    /// With the member or group that it named in the table's action profile.
    Entry(Box<Entry>, Option<IndirectAction>),
    Default(DefaultTarget),
}

/// A cell of an indirect meter with its configuration, buckets and counts, for
/// [`Pipeline::meter_restore`](crate::Pipeline::meter_restore).
#[derive(Debug)]
pub struct SavedMeter(pub(crate) MeterCell);

/// Cells of an array, for [`Pipeline::array_restore`](crate::Pipeline::array_restore).
#[derive(Debug)]
pub struct SavedArray {
    /// The first of them.
    pub(crate) first: usize,
    pub(crate) cells: SavedCells,
}

#[derive(Debug)]
pub(crate) enum SavedCells {
    Counters(Vec<u64>),
    Meters(Vec<MeterCell>),
    Register(Vec<u64>),
}
