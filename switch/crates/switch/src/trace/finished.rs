//! Finished traces, until the driver takes them.

use std::collections::VecDeque;

use super::tree::PacketTrace;

/// Traces that may wait for the driver ([`Switch::take_trace`](crate::Switch::take_trace)).
const WAITING_MAX: usize = 1_024;

/// The number of the next trace, and finished traces that wait for the driver.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    traces: VecDeque<PacketTrace>,
    /// Traces that have been begun, by this program and by those before it.
    begun: u64,
    /// Traces that found no room.
    pub(crate) lost: u64,
}

impl Finished {
    /// The number of a trace that begins.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun - 1
    }

    pub(super) fn put(&mut self, trace: PacketTrace) {
        if self.traces.len() < WAITING_MAX {
            self.traces.push_back(trace);
        } else {
            self.lost += 1;
        }
    }

    /// The next trace.
    pub(crate) fn take(&mut self) -> Option<PacketTrace> {
        self.traces.pop_front()
    }
}
