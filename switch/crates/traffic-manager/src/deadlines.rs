//! The port with the next event, and its instant.
//!
//! A few ports change often. So each change compares two instants. Only a change of the earliest one
//! searches all, unless no other port has an instant.

use crate::port::NEVER_NS;

/// An instant for each port, by its position. [`NEVER_NS`]: none.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    next_ns: Vec<u64>,
    /// Position of the first port with the earliest instant; any position if no port has an instant.
    earliest: usize,
    /// Ports that have an instant.
    scheduled: usize,
}

impl Deadlines {
    /// Replaces all instants.
    pub(crate) fn reset(&mut self, entries: impl Iterator<Item = u64>) {
        self.next_ns = entries.collect();
        self.scheduled = self.next_ns.iter().filter(|ns| **ns != NEVER_NS).count();
        self.search();
    }

    fn search(&mut self) {
        self.earliest = (0..self.next_ns.len())
            .min_by_key(|at| self.next_ns.get(*at))
            .unwrap_or(0);
    }

    /// Changes the instant of the port at a position.
    pub(crate) fn set(&mut self, at: usize, ns: u64) {
        let Some(entry) = self.next_ns.get_mut(at) else {
            debug_assert!(false, "a port has no deadline");
            return;
        };
        let before = std::mem::replace(entry, ns);
        self.scheduled += usize::from(ns != NEVER_NS);
        self.scheduled -= usize::from(before != NEVER_NS);
        if at == self.earliest {
            if ns > before && self.scheduled > 0 {
                self.search();
            }
        } else if (ns, at) < (self.earliest_ns(), self.earliest) {
            self.earliest = at;
        }
    }

    /// Position of the port with the earliest instant.
    pub(crate) fn earliest(&self) -> usize {
        self.earliest
    }

    fn earliest_ns(&self) -> u64 {
        self.next_ns.get(self.earliest).copied().unwrap_or(NEVER_NS)
    }

    /// The earliest instant, if there is one.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        Some(self.earliest_ns()).filter(|ns| *ns != NEVER_NS)
    }
}
