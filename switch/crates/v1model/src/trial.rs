//! Trials: packets whose changes to the program's state are taken back.
//!
//! During a trial the engine notes each cell, meter and entry before a packet changes it. It does so in
//! its version that reports steps only, so other packets pay nothing for it. Changes that were taken back
//! can be made again, so that a trial can go on later.

use std::mem;

use crate::state::{MeterCell, State};
use crate::table::{Direct, Table};

/// Something that a packet of a trial changes: as it was before or, if the change has been taken back, as
/// it was after.
#[derive(Debug)]
enum Change {
    /// A cell of a register or counter array, by its number in [`State::cells`].
    Cell {
        array: usize,
        cell: usize,
        words: Box<[u64]>,
    },
    /// A cell of a meter array.
    Meter {
        array: usize,
        cell: usize,
        meter: MeterCell,
    },
    /// The state of the random number generator.
    Random(u64),
    /// Direct counter, direct meter and last hit of an entry.
    Entry {
        table: usize,
        id: u32,
        direct: Direct,
        last_hit_ns: u64,
    },
    /// Direct counter and meter of a default entry.
    DefaultEntry { table: usize, direct: Direct },
}

/// The changes of a trial's packets, in their order.
#[derive(Debug, Default)]
pub struct Trial(Vec<Change>);

impl Trial {
    /// The number of changes.
    pub(crate) fn changes(&self) -> usize {
        self.0.len()
    }

    /// Notes a cell of a register or counter array.
    pub(crate) fn note_cell(&mut self, state: &State, array: usize, cell: usize) {
        if let Some(words) = state.cells.get(array, cell) {
            let words = words.into();
            self.0.push(Change::Cell { array, cell, words });
        }
    }

    /// Notes a cell of a meter array.
    pub(crate) fn note_meter(&mut self, state: &State, array: usize, cell: usize) {
        if let Some(meters) = state.meters.get(array) {
            let meter = meters.cell(cell);
            self.0.push(Change::Meter { array, cell, meter });
        }
    }

    /// Notes the random number generator.
    pub(crate) fn note_random(&mut self, state: &State) {
        self.0.push(Change::Random(state.random));
    }

    /// Notes the data of the entry that a packet found, or of the default entry.
    pub(crate) fn note_entry(&mut self, at: usize, table: &Table, found: Option<u32>) {
        let entry = found.map(|id| (id, table.entry(id)));
        self.0.push(match entry {
            Some((id, Some(entry))) => Change::Entry {
                table: at,
                id,
                direct: entry.direct.clone(),
                last_hit_ns: entry.idle.last_hit_ns,
            },
            Some((_, None)) => return,
            None => Change::DefaultEntry {
                table: at,
                direct: table.default.direct.clone(),
            },
        });
    }

    /// Takes all changes back, the last one first.
    pub(crate) fn take_back(&mut self, state: &mut State, tables: &mut [Table]) {
        for change in self.0.iter_mut().rev() {
            change.exchange(state, tables);
        }
    }

    /// Makes the changes that were taken back again. The next [`Self::take_back`] restores the values
    /// that others have set meanwhile.
    pub(crate) fn make_again(&mut self, state: &mut State, tables: &mut [Table]) {
        for change in &mut self.0 {
            change.exchange(state, tables);
        }
    }
}

impl Change {
    /// Exchanges what is noted with what is there. An entry that has gone is left out.
    fn exchange(&mut self, state: &mut State, tables: &mut [Table]) {
        match self {
            Self::Cell { array, cell, words } => {
                if let Some(now) = state.cells.get_mut(*array, *cell) {
                    now.swap_with_slice(words);
                }
            }
            Self::Meter { array, cell, meter } => {
                if let Some(meters) = state.meters.get_mut(*array) {
                    let now = meters.cell(*cell);
                    meters.put(*cell, mem::replace(meter, now));
                }
            }
            Self::Random(random) => mem::swap(random, &mut state.random),
            Self::Entry {
                table,
                id,
                direct,
                last_hit_ns,
            } => {
                let entry = tables
                    .get_mut(*table)
                    .and_then(|table| table.entry_mut(*id));
                if let Some(entry) = entry {
                    mem::swap(direct, &mut entry.direct);
                    mem::swap(last_hit_ns, &mut entry.idle.last_hit_ns);
                }
            }
            Self::DefaultEntry { table, direct } => {
                if let Some(table) = tables.get_mut(*table) {
                    mem::swap(direct, &mut table.default.direct);
                }
            }
        }
    }
}
