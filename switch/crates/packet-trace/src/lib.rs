//! Packet traces as protobuf messages (`switch/proto/packet_trace.proto`), as lines of a log in the words
//! of BMv2, and as messages of BMv2's event log.

mod events;
mod message;
mod text;

pub use events::EventLog;
pub use message::to_delimited;
pub use proto::PacketTrace;
pub use text::to_lines;

/// The generated messages.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/pacer.v1.rs"));
}
