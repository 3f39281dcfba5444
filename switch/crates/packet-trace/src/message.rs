//! From the switch's trace to the message.

use prost::Message;
use switch::trace;

use crate::proto;

impl From<&trace::PacketTrace> for proto::PacketTrace {
    fn from(trace: &trace::PacketTrace) -> Self {
        let mut bytes = Vec::new();
        trace.to_message(&mut bytes);
        let message = Self::decode(bytes.as_slice());
        debug_assert!(message.is_ok(), "the switch writes messages: {message:?}");
        message.unwrap_or_default()
    }
}

/// Writes a trace to the end of a buffer as a message with its length in front, so that one can follow the
/// other in a file.
pub fn to_delimited(trace: &trace::PacketTrace, out: &mut Vec<u8>) {
    let start = out.len();
    trace.to_message(out);
    let length = out.len() - start;
    // The length has to be in front of what it is the length of.
    prost::encode_length_delimiter(length, out).unwrap_or_default();
    let rotation = out.len() - start - length;
    if let Some(message) = out.get_mut(start..) {
        message.rotate_right(rotation);
    }
}
