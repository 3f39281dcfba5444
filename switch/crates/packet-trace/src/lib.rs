//! Packet traces as protobuf messages (`switch/proto/packet_trace.proto`), as JSON, and as lines of a
//! log in the words of BMv2.

mod json;
mod message;
mod text;

pub use json::to_json;
pub use message::to_delimited;
pub use proto::PacketTrace;
pub use text::to_lines;

/// The generated messages.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/pacer.v1.rs"));
}
