//! Finished traces, until the driver takes them.

use std::collections::VecDeque;

use super::tree::PacketTrace;

/// Traces that may wait for the driver ([`Switch::take_trace`](crate::Switch::take_trace)).
const WAITING_MAX: usize = 1_024;

/// Finished traces that wait for the driver.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    traces: VecDeque<PacketTrace>,
    /// Traces that found no room.
    pub(crate) lost: u64,
}

impl Finished {
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
