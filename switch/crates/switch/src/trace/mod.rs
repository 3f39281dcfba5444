//! Packet traces: a record of each packet's way through the program and the traffic manager.
//!
//! A trace is a tree. A branch has the events of one copy of the packet, in order, and ends with an
//! outcome. A clone or a multicast group forks a branch. `tracer` puts the trees together while
//! packets are in the switch; `encoder` writes each event at once as protobuf (switch/proto/packet_trace.proto);
//! `collector` knows who wants the traces, and `filter` of which packets.

mod collector;
mod encoder;
mod event;
mod filter;
mod protobuf;
mod tracer;
mod tree;

pub(crate) use collector::Collector;
pub use collector::{
    Receiver, TooManyWatches, WATCH_BURST, WATCH_TRACES_PER_S, WATCHES_MAX, WatchId, WatchOptions,
};
pub(crate) use event::{Depth, Event};
pub use filter::{FilterError, INSTRUCTIONS_MAX, Instruction, PacketFilter};
pub(crate) use tracer::{Traced, Tracer};
pub use tree::{Branch, ForkReason, Outcome, PacketTrace};
pub use v1model::JsonIds;
