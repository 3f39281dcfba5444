//! Packet traces: a record of each packet's way through the program and the traffic manager.
//!
//! A trace is a tree. A branch has the events of one copy of the packet, in order, and ends with an
//! outcome. A clone or a multicast group forks a branch. `tracer` puts the trees together while
//! packets are in the switch.

mod event;
mod tracer;

use std::collections::VecDeque;

use traffic_manager::DropCause;

pub use event::Event;
pub(crate) use tracer::{Traced, Tracer};

/// Traces that may wait for the driver ([`Switch::take_trace`](crate::Switch::take_trace)).
const WAITING_MAX: usize = 1_024;

/// The trace of a packet that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTrace {
    /// Number of the packet among those that were traced, from 0.
    pub packet_id: u64,
    /// The port at which it came in.
    pub ingress_port: u16,
    /// Time of its arrival.
    pub arrival_ns: u64,
    /// Length without FCS.
    pub frame_bytes: usize,
    /// The events of its way.
    pub root: Branch,
    /// Events and branches that the trace has no room for.
    pub left_out: u64,
}

/// The events of one copy of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// How the branch ends.
    pub outcome: Outcome,
}

/// The end of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The frame goes to an interface.
    Transmit {
        /// The port.
        port: u16,
        /// Length without FCS.
        frame_bytes: usize,
        /// When its first bit leaves.
        delivery_ns: u64,
    },
    /// The frame goes to the controller.
    PacketIn {
        /// Length with the program's packet-in header.
        frame_bytes: usize,
    },
    /// The packet is dropped.
    Drop {
        /// The port that counts the drop.
        port: u16,
        /// The cause.
        cause: DropCause,
    },
    /// Copies are made.
    Fork {
        /// Why.
        reason: ForkReason,
        /// A branch for each copy; the first is the packet itself.
        branches: Vec<Branch>,
    },
}

/// Why a packet is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkReason {
    /// The program clones it, at the end of ingress or egress.
    Clone,
    /// The packet goes to a multicast group.
    Multicast,
}

/// Finished traces that wait for the driver.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    traces: VecDeque<PacketTrace>,
    /// Traces that found no room.
    pub(crate) lost: u64,
}

impl Finished {
    fn put(&mut self, trace: PacketTrace) {
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
