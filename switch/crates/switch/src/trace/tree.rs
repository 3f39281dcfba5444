//! The trace of a packet: a tree of branches.

use std::sync::Arc;

use traffic_manager::DropCause;
use v1model::JsonIds;

use super::record::Events;
use super::shapes::{Shapes, Vocabulary};
use super::writer::{Field, Form, Writer, field};

const ROOT: Field = field!(2, "root");
const BRANCHES: Field = field!(2, "branches");

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
    /// The names of the program's objects.
    pub(super) vocabulary: Arc<Vocabulary>,
}

/// The events of one copy of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// In the order in which they happened.
    pub events: Events,
    /// How the branch ends.
    pub outcome: Outcome,
}

impl PacketTrace {
    /// Writes the trace to the end of a buffer, as the message `PacketTrace`.
    pub fn to_message(&self, out: &mut Vec<u8>) {
        self.put(Form::Message, out);
    }

    /// Writes the trace to the end of a buffer, as one line of JSON without the line's end.
    pub fn to_json(&self, out: &mut Vec<u8>) {
        self.put(Form::Json, out);
    }

    /// The numbers of the program's objects in its BMv2 JSON.
    #[must_use]
    pub fn ids(&self) -> &Arc<JsonIds> {
        &self.vocabulary.names.labels.ids
    }

    fn put(&self, form: Form, out: &mut Vec<u8>) {
        let shapes = self.vocabulary.shapes(form);
        Writer::new(form, out).outermost(|trace| {
            trace.message(field!(1, "input"), |m| {
                m.number(field!(1, "packet_id"), self.packet_id);
                m.number(field!(2, "ingress_port"), self.ingress_port.into());
                m.number(field!(3, "arrival_ns"), self.arrival_ns);
                m.number(field!(4, "packet_size"), self.frame_bytes as u64);
            });
            trace.message(ROOT, |tree| self.root.put(shapes, tree));
            trace.number(field!(3, "left_out"), self.left_out);
        });
    }
}

impl Branch {
    fn put(&self, shapes: &Shapes, tree: &mut Writer<'_>) {
        shapes.put(&self.events, tree);
        match &self.outcome {
            Outcome::Transmit {
                port,
                frame_bytes,
                delivery_ns,
            } => tree.message(field!(2, "transmit"), |m| {
                m.number(field!(1, "egress_port"), (*port).into());
                m.number(field!(2, "packet_size"), *frame_bytes as u64);
                m.number(field!(3, "delivery_ns"), *delivery_ns);
            }),
            Outcome::Drop { port, cause } => tree.message(field!(3, "drop"), |m| {
                m.number(field!(1, "port"), (*port).into());
                m.text(field!(2, "cause"), cause.as_str());
            }),
            Outcome::Fork { reason, branches } => tree.message(field!(4, "fork"), |m| {
                let reason = match reason {
                    ForkReason::Clone => 1,
                    ForkReason::Multicast => 2,
                };
                m.choice(field!(1, "reason"), reason, &["CLONE", "MULTICAST"]);
                m.list(BRANCHES, |list| {
                    for branch in branches {
                        list.item(BRANCHES, |tree| branch.put(shapes, tree));
                    }
                });
            }),
            Outcome::PacketIn { frame_bytes } => tree.message(field!(5, "packet_in"), |m| {
                m.number(field!(1, "packet_size"), *frame_bytes as u64);
            }),
            Outcome::Unfinished => tree.message(field!(6, "unfinished"), |_| {}),
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
