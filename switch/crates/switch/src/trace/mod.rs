//! Packet traces: a record of each packet's way through the program and the traffic manager.
//!
//! A trace is a tree. A branch has the events of one copy of the packet, in order, and ends with an
//! outcome. A clone or a multicast group forks a branch. `tracer` puts the trees together while
//! packets are in the switch.

mod event;
mod finished;
mod tracer;
mod tree;

pub use event::Event;
pub(crate) use finished::Finished;
pub(crate) use tracer::{Traced, Tracer};
pub use tree::{Branch, ForkReason, Outcome, PacketTrace};
