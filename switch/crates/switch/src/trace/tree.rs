//! The trace of a packet: a tree of branches.

use traffic_manager::DropCause;

use super::event::Event;

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
    /// The trace ends while the packet is in the switch.
    Unfinished,
}

/// Why a packet is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkReason {
    /// The program clones it, at the end of ingress or egress.
    Clone,
    /// The packet goes to a multicast group.
    Multicast,
}
