//! JSON, by protobuf's own mapping, with the names of the .proto file.
//!
//! A table of the messages' fields, made of their descriptors, tells how to write the bytes of a message as
//! JSON in one pass.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use switch::trace::PacketTrace;

const FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/packet_trace.binpb"));

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::new);

/// The messages, and which of them is a trace.
struct Schema {
    messages: Vec<Vec<Option<Field>>>,
    trace: usize,
}

/// A field of a message, in its place by number.
struct Field {
    /// The member's name, in quotes and with its colon.
    name: String,
    repeated: bool,
    kind: Kind,
}

enum Kind {
    Unsigned,
    Signed,
    Bool,
    Text,
    /// Names in quotes, by number.
    Enum(HashMap<u64, String>),
    /// By its place among the messages.
    Message(usize),
}

impl Schema {
    /// Reads the descriptors.
    ///
    /// # Panics
    /// Never: they are part of the program, and a test reads them.
    fn new() -> Self {
        let files = FileDescriptorSet::decode(FILES).expect("the build puts it there");
        let mut named = Vec::new();
        let mut enums = HashMap::new();
        for file in &files.file {
            for message in &file.message_type {
                collect(file.package(), message, &mut named, &mut enums);
            }
        }
        let place = |name: &str| named.iter().position(|(of, _)| of == name);
        let messages = named.iter().map(|(_, message)| {
            let mut fields = Vec::new();
            for field in &message.field {
                let kind = match field.r#type() {
                    Type::Bool => Kind::Bool,
                    Type::String => Kind::Text,
                    Type::Int32 | Type::Int64 => Kind::Signed,
                    Type::Enum => Kind::Enum(enums[field.type_name()].clone()),
                    Type::Message => {
                        Kind::Message(place(field.type_name()).expect("a message of the file"))
                    }
                    _ => Kind::Unsigned,
                };
                let number = usize::try_from(field.number()).expect("a field's number");
                while fields.len() <= number {
                    fields.push(None);
                }
                fields[number] = Some(Field {
                    name: format!("\"{}\":", field.name()),
                    repeated: field.label() == Label::Repeated,
                    kind,
                });
            }
            fields
        });
        Self {
            messages: messages.collect(),
            trace: place(".pacer.v1.PacketTrace").expect("a message of the file"),
        }
    }
}

/// Adds a message and those in it, and their enums.
fn collect<'d>(
    scope: &str,
    message: &'d DescriptorProto,
    named: &mut Vec<(String, &'d DescriptorProto)>,
    enums: &mut HashMap<String, HashMap<u64, String>>,
) {
    let scope = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&scope, nested, named, enums);
    }
    for numbered in &message.enum_type {
        let values = numbered.value.iter();
        let values = values.map(|value| {
            let number = u64::from(value.number().unsigned_abs());
            (number, format!("\"{}\"", value.name()))
        });
        enums.insert(format!(".{scope}.{}", numbered.name()), values.collect());
    }
    named.push((format!(".{scope}"), message));
}

/// Writes a trace to the end of a buffer as one line of JSON, without the line's end. `message` is scratch.
///
/// Numbers of 64 bits are numbers, not strings as protobuf's mapping has them: times are below 2^53
/// ns for a hundred days, and readers expect numbers.
pub fn to_json(trace: &PacketTrace, message: &mut Vec<u8>, out: &mut Vec<u8>) {
    message.clear();
    trace.encode(message);
    let schema = &*SCHEMA;
    let written = put_message(schema, schema.trace, message, out);
    debug_assert!(
        written.is_some(),
        "a trace is not the message that it should be"
    );
}

/// The next number of a message, and the bytes behind it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

/// Writes a message. `None`: it is none of this kind.
fn put_message(schema: &Schema, place: usize, mut bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let fields = schema.messages.get(place)?;
    out.push(b'{');
    // The repeated field whose values are being written.
    let mut list = None;
    let mut is_first = true;
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes)?;
        let number = usize::try_from(tag >> 3).ok()?;
        let field = fields.get(number)?.as_ref()?;
        if list == Some(number) {
            out.push(b',');
        } else {
            if list.take().is_some() {
                out.push(b']');
            }
            if !is_first {
                out.push(b',');
            }
            out.extend_from_slice(field.name.as_bytes());
            if field.repeated {
                list = Some(number);
                out.push(b'[');
            }
        }
        is_first = false;
        bytes = put_value(schema, &field.kind, tag & 7, rest, out)?;
    }
    if list.is_some() {
        out.push(b']');
    }
    out.push(b'}');
    Some(())
}

/// Writes the value at the beginning of some bytes; returns those behind it.
fn put_value<'b>(
    schema: &Schema,
    kind: &Kind,
    wire_type: u64,
    bytes: &'b [u8],
    out: &mut Vec<u8>,
) -> Option<&'b [u8]> {
    let (number, rest) = varint(bytes)?;
    match (kind, wire_type) {
        (Kind::Unsigned, 0) => put_number(number, out),
        (Kind::Signed, 0) => {
            let number = number.cast_signed();
            if number < 0 {
                out.push(b'-');
            }
            put_number(number.unsigned_abs(), out);
        }
        (Kind::Bool, 0) => out.extend_from_slice(if number == 0 { b"false" } else { b"true" }),
        (Kind::Enum(names), 0) => out.extend_from_slice(names.get(&number)?.as_bytes()),
        (Kind::Text, 2) => {
            let (text, rest) = rest.split_at_checked(usize::try_from(number).ok()?)?;
            put_text(std::str::from_utf8(text).ok()?, out);
            return Some(rest);
        }
        (Kind::Message(place), 2) => {
            let (content, rest) = rest.split_at_checked(usize::try_from(number).ok()?)?;
            put_message(schema, *place, content, out)?;
            return Some(rest);
        }
        _ => return None,
    }
    Some(rest)
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    if text
        .bytes()
        .all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
    {
        out.extend_from_slice(text.as_bytes());
    } else {
        for character in text.chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                '\0'..='\x1f' => {
                    let escaped = format!("\\u{:04x}", u32::from(character));
                    out.extend_from_slice(escaped.as_bytes());
                }
                _ => {
                    let mut bytes = [0; 4];
                    out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                }
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut out = Vec::new();
        put_text("a\"b\\c\n\u{e9}", &mut out);
        assert_eq!(out, "\"a\\\"b\\\\c\\u000a\u{e9}\"".as_bytes());
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, u64::MAX] {
            let mut out = Vec::new();
            put_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let schema = &*SCHEMA;
        for bytes in [&[0x0a, 5][..], &[0x80], &[0x7a, 0], &[0x08, 1]] {
            assert_eq!(
                put_message(schema, schema.trace, bytes, &mut Vec::new()),
                None
            );
        }
    }
}
