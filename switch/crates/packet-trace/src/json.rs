//! JSON, by protobuf's own mapping, with the names of the .proto file.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};

use crate::proto::PacketTrace;

const FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/packet_trace.binpb"));

static DESCRIPTOR: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILES).ok()?;
    pool.get_message_by_name("pacer.v1.PacketTrace")
});

/// A trace as one line of JSON.
///
/// Numbers of 64 bits are numbers, not strings as protobuf's mapping has them: times are below 2^53
/// ns for a hundred days, and readers expect numbers.
///
/// # Panics
/// Never: the descriptors are part of the program.
pub fn to_json(trace: &PacketTrace) -> String {
    let descriptor = DESCRIPTOR.clone().expect("the build puts it there");
    let message = DynamicMessage::decode(descriptor, trace.encode_to_vec().as_slice())
        .expect("a message of this type");
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false);
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut out);
    message
        .serialize_with_options(&mut serializer, &options)
        .expect("memory takes all bytes");
    String::from_utf8(out).expect("JSON is text")
}
