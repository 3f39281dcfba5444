//! Packets that are processed again: by ingress (resubmitted, recirculated), by the egress of a port
//! that does not exist, or as clones of clones.

use std::collections::VecDeque;

use v1model::InstanceType;

use crate::destination::Destination;
use crate::pool::PacketId;

/// The destination of a recirculating packet.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Ingress again, as a packet of this type.
    Ingress(InstanceType),
    /// As in simple_switch, egress also sees packets for ports that do not exist.
    EgressOfInvalidPort,
    /// The queue of a port: a clone of a clone, of this length in bytes.
    Queue { to: Destination, length_bytes: u32 },
}

pub(crate) struct Waiting {
    pub(crate) ready_ns: u64,
    pub(crate) port: u16,
    pub(crate) id: PacketId,
    pub(crate) target: Target,
}

/// The packets that recirculate, in order.
#[derive(Default)]
pub(crate) struct Recirculating {
    pub(crate) queue: VecDeque<Waiting>,
}

impl Recirculating {
    /// The time when the next one is ready.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.front().map(|packet| packet.ready_ns)
    }

    /// The port of each, in order.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.queue.iter().map(|packet| packet.port)
    }
}
