//! Trials: packets whose changes to the program's state are put back.
//!
//! During a trial the engine notes each cell, meter and entry before a packet changes it. It does so in
//! its version that reports steps only, so other packets pay nothing for it.

use crate::state::{MeterCell, State};
use crate::table::{Direct, Table};

/// Something that a packet of a trial changes, as it was before.
#[derive(Debug)]
enum Before {
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

/// The changes of a trial's packets.
#[derive(Debug, Default)]
pub(crate) struct Trial(Vec<Before>);

impl Trial {
    /// Notes a cell of a register or counter array.
    pub fn note_cell(&mut self, state: &State, array: usize, cell: usize) {
        if let Some(words) = state.cells.get(array, cell) {
            let words = words.into();
            self.0.push(Before::Cell { array, cell, words });
        }
    }

    /// Notes a cell of a meter array.
    pub fn note_meter(&mut self, state: &State, array: usize, cell: usize) {
        if let Some(meters) = state.meters.get(array) {
            let meter = meters.cell(cell);
            self.0.push(Before::Meter { array, cell, meter });
        }
    }

    /// Notes the random number generator.
    pub fn note_random(&mut self, state: &State) {
        self.0.push(Before::Random(state.random));
    }

    /// Notes the data of the entry that a packet found, or of the default entry.
    pub fn note_entry(&mut self, at: usize, table: &Table, found: Option<u32>) {
        let entry = found.map(|id| (id, table.entry(id)));
        self.0.push(match entry {
            Some((id, Some(entry))) => Before::Entry {
                table: at,
                id,
                direct: entry.direct.clone(),
                last_hit_ns: entry.idle.last_hit_ns,
            },
            Some((_, None)) => return,
            None => Before::DefaultEntry {
                table: at,
                direct: table.default.direct.clone(),
            },
        });
    }

    /// Puts everything back, the last change first.
    pub fn put_back(self, state: &mut State, tables: &mut [Table]) {
        for before in self.0.into_iter().rev() {
            before.put_back(state, tables);
        }
    }
}

impl Before {
    fn put_back(self, state: &mut State, tables: &mut [Table]) {
        match self {
            Self::Cell { array, cell, words } => {
                if let Some(now) = state.cells.get_mut(array, cell) {
                    now.copy_from_slice(&words);
                }
            }
            Self::Meter { array, cell, meter } => {
                if let Some(meters) = state.meters.get_mut(array) {
                    meters.put(cell, meter);
                }
            }
            Self::Random(random) => state.random = random,
            Self::Entry {
                table,
                id,
                direct,
                last_hit_ns,
            } => {
                let entry = tables.get_mut(table).and_then(|table| table.entry_mut(id));
                if let Some(entry) = entry {
                    entry.direct = direct;
                    entry.idle.last_hit_ns = last_hit_ns;
                }
            }
            Self::DefaultEntry { table, direct } => {
                if let Some(table) = tables.get_mut(table) {
                    table.default.direct = direct;
                }
            }
        }
    }
}
