//! Packet traces: a record of each packet's way through the program and the traffic manager.
//!
//! A trace is a tree. A branch has the events of one copy of the packet, in order, and ends with an
//! outcome. A clone or a multicast group forks a branch. `tracer` puts the trees together while
//! packets are in the switch; `collector` knows who wants them, and `filter` which packets.

mod collector;
mod event;
mod filter;
mod tracer;
mod tree;

pub(crate) use collector::Collector;
pub use collector::{
    Receiver, TooManyWatches, WATCH_BURST, WATCH_TRACES_PER_S, WATCHES_MAX, WatchId, WatchOptions,
};
pub use event::Event;
pub use filter::{FilterError, INSTRUCTIONS_MAX, Instruction, PacketFilter};
pub(crate) use tracer::{Traced, Tracer};
pub use tree::{Branch, ForkReason, Outcome, PacketTrace};
