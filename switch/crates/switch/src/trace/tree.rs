//! The trace of a packet: a tree of branches.

use std::sync::Arc;

use traffic_manager::DropCause;
use v1model::JsonIds;

use super::protobuf::Message;

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
    /// The numbers of the program's objects in its BMv2 JSON.
    pub ids: Arc<JsonIds>,
}

/// The events of one copy of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// In the order in which they happened.
    pub events: Events,
    /// How the branch ends.
    pub outcome: Outcome,
}

/// Events as the field `events` of the message `TraceTree`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events(pub(super) Vec<u8>);

impl Events {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PacketTrace {
    /// Writes the trace to the end of a buffer, as the message `PacketTrace`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut message = Message::new(out);
        message.message(1, |input| {
            input.number(1, self.packet_id);
            input.number(2, self.ingress_port.into());
            input.number(3, self.arrival_ns);
            input.number(4, self.frame_bytes as u64);
        });
        message.message(2, |tree| self.root.encode(tree));
        message.number(3, self.left_out);
    }
}

impl Branch {
    fn encode(&self, message: &mut Message<'_>) {
        message.encoded(&self.events.0);
        match &self.outcome {
            Outcome::Transmit {
                port,
                frame_bytes,
                delivery_ns,
            } => message.message(2, |m| {
                m.number(1, (*port).into());
                m.number(2, *frame_bytes as u64);
                m.number(3, *delivery_ns);
            }),
            Outcome::Drop { port, cause } => message.message(3, |m| {
                m.number(1, (*port).into());
                m.text(2, cause.as_str());
            }),
            Outcome::Fork { reason, branches } => message.message(4, |m| {
                m.number(
                    1,
                    match reason {
                        ForkReason::Clone => 1,
                        ForkReason::Multicast => 2,
                    },
                );
                for branch in branches {
                    m.message(2, |tree| branch.encode(tree));
                }
            }),
            Outcome::PacketIn { frame_bytes } => {
                message.message(5, |m| m.number(1, *frame_bytes as u64));
            }
            Outcome::Unfinished => message.message(6, |_| {}),
        }
    }
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
