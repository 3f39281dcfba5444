//! Events of a packet outside the program.

use traffic_manager::hold::Hold;
use v1model::InstanceType;

/// An act of the switch itself on a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The packet goes to the queue of a port.
    Enqueue {
        /// The port.
        port: u16,
        /// When.
        at_ns: u64,
        /// The departure time that the traffic manager keeps.
        hold: Option<Hold>,
    },
    /// The packet's turn at its port has come.
    Dequeue {
        /// The port.
        port: u16,
        /// When its transmission starts.
        start_ns: u64,
        /// When it was queued.
        enqueued_ns: u64,
    },
    /// The packet enters ingress again.
    Reenter {
        /// As what.
        instance_type: InstanceType,
        /// When.
        at_ns: u64,
    },
}
