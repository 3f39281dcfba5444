//! Packet traces: a record of each packet's way through the program and the traffic manager.
//!
//! A trace is a tree. A branch has the events of one copy of the packet, in order, and ends with an
//! outcome. A clone or a multicast group forks a branch. `tracer` puts the trees together while
//! packets are in the switch, of events as `record` keeps them: a few words each, without names.
//! `collector` knows who wants the traces, and `filter` of which packets. The reader of a trace makes a
//! message of switch/proto/packet_trace.proto of it, or JSON: `tree` walks through it, and `shapes` has the
//! message of each event of a program ready.

mod collector;
mod event;
mod filter;
mod names;
mod record;
mod shapes;
mod tracer;
mod tree;
mod writer;

pub(crate) use collector::Collector;
pub use collector::{
    Receiver, TooManyWatches, WATCH_BURST, WATCH_TRACES_PER_S, WATCHES_MAX, WatchId, WatchOptions,
};
pub(crate) use event::{Depth, Event};
pub use filter::{FilterError, INSTRUCTIONS_MAX, Instruction, PacketFilter};
pub(crate) use shapes::Vocabulary;
pub(crate) use tracer::{Traced, Tracer};
pub use tree::{Branch, ForkReason, Outcome, PacketTrace};
pub use v1model::JsonIds;
