//! Trials: packets whose changes to the program's state are put back.
//!
//! During a trial the engine notes each cell, meter and entry before a packet changes it. It does so in
//! its version that reports steps only, so other packets pay nothing for it.

use crate::pipeline::Pipeline;
use crate::state::{MeterCell, State};
use crate::table::{Direct, Table};

/// Something that a packet of a trial changes, as it was before.
#[derive(Debug)]
pub(crate) enum Before {
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

impl State {
    /// Notes a cell of a register or counter array, if a trial runs.
    pub(crate) fn note_cell(&mut self, array: usize, cell: usize) {
        if let Some(trial) = &mut self.trial
            && let Some(words) = self.cells.get(array, cell)
        {
            let words = words.into();
            trial.push(Before::Cell { array, cell, words });
        }
    }

    /// Notes a cell of a meter array, if a trial runs.
    pub(crate) fn note_meter(&mut self, array: usize, cell: usize) {
        if let Some(trial) = &mut self.trial
            && let Some(meters) = self.meters.get(array)
        {
            let meter = meters.cell(cell);
            trial.push(Before::Meter { array, cell, meter });
        }
    }

    /// Notes the random number generator, if a trial runs.
    pub(crate) fn note_random(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.push(Before::Random(self.random));
        }
    }

    /// Notes the data of the entry that a packet found, or of the default entry, if a trial runs.
    pub(crate) fn note_entry(&mut self, at: usize, table: &Table, found: Option<u32>) {
        let Some(trial) = &mut self.trial else {
            return;
        };
        let entry = found.map(|id| (id, table.entry(id)));
        trial.push(match entry {
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
}

impl Pipeline {
    /// Begins a trial: until [`Self::end_trial`], all packets come with an [`crate::Externs`] that
    /// wants steps, and neither programs nor entries are changed.
    pub fn begin_trial(&mut self) {
        debug_assert!(self.state.trial.is_none(), "a trial runs already");
        self.state.trial = Some(Vec::new());
    }

    /// Ends a trial: registers, counters, meters, random numbers and the data of entries are as they
    /// were when it began.
    pub fn end_trial(&mut self) {
        let trial = self.state.trial.take();
        debug_assert!(trial.is_some(), "no trial runs");
        for before in trial.into_iter().flatten().rev() {
            self.put_back(before);
        }
    }

    fn put_back(&mut self, before: Before) {
        match before {
            Before::Cell { array, cell, words } => {
                if let Some(now) = self.state.cells.get_mut(array, cell) {
                    now.copy_from_slice(&words);
                }
            }
            Before::Meter { array, cell, meter } => {
                if let Some(meters) = self.state.meters.get_mut(array) {
                    meters.put(cell, meter);
                }
            }
            Before::Random(state) => self.state.random = state,
            Before::Entry {
                table,
                id,
                direct,
                last_hit_ns,
            } => {
                let entry = self.tables.get_mut(table).and_then(|t| t.entry_mut(id));
                if let Some(entry) = entry {
                    entry.direct = direct;
                    entry.idle.last_hit_ns = last_hit_ns;
                }
            }
            Before::DefaultEntry { table, direct } => {
                if let Some(table) = self.tables.get_mut(table) {
                    table.default.direct = direct;
                }
            }
        }
    }
}
