//! Writes protobuf messages, field by field, to the end of a buffer.
//!
//! There is nothing between a packet's step and the bytes of its trace, so a step takes no memory of its own.

/// Wire types (protobuf's documentation, "Message Structure").
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

/// A message that is being written. Fields that have their default value are left out, as in proto3.
pub(super) struct Message<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> Message<'b> {
    /// A message at the end of a buffer.
    pub(super) fn new(out: &'b mut Vec<u8>) -> Self {
        Self { out }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// A number or an enum.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.optional_number(field, value);
        }
    }

    /// A number that is there although it may be 0.
    pub(super) fn optional_number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A string.
    pub(super) fn text(&mut self, field: u32, value: &str) {
        if !value.is_empty() {
            self.bytes(field, value.as_bytes());
        }
    }

    /// A string of hexadecimal digits, all those of the bytes.
    pub(super) fn hex(&mut self, field: u32, bytes: impl Iterator<Item = u8>) {
        self.message(field, |text| text.put_hex(bytes));
    }

    /// A string or message that is encoded already.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    /// Bytes that are encoded already, with their tags.
    pub(super) fn encoded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Characters of a string.
    pub(super) fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Characters of a string: a number in hexadecimal.
    pub(super) fn put_hex(&mut self, bytes: impl Iterator<Item = u8>) {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        self.put("0x");
        for byte in bytes {
            self.out.push(DIGITS[usize::from(byte >> 4)]);
            self.out.push(DIGITS[usize::from(byte & 15)]);
        }
    }

    /// A message or a string whose content `write` writes. It is there although it may be empty.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) {
        self.tag(field, LENGTH_DELIMITED);
        // Most are shorter than 128 bytes: their length takes a byte.
        let place = self.out.len();
        self.out.push(0);
        write(&mut Message { out: self.out });
        let mut length = self.out.len() - place - 1;
        let mut at = place;
        while length >= 0x80 {
            self.out[at] = length as u8 | 0x80;
            length >>= 7;
            at += 1;
            self.out.insert(at, 0);
        }
        self.out[at] = length as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Message::new(&mut out));
        out
    }

    #[test]
    fn fields_are_encoded_as_in_protobufs_documentation() {
        assert_eq!(written(|m| m.number(1, 150)), [0x08, 0x96, 0x01]);
        let text = written(|m| m.text(2, "testing"));
        assert_eq!(text, b"\x12\x07testing");
        let nested = written(|m| m.message(3, |m| m.number(1, 150)));
        assert_eq!(nested, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let defaults = written(|m| {
            m.number(1, 0);
            m.text(2, "");
        });
        assert!(defaults.is_empty());
        assert_eq!(written(|m| m.optional_number(1, 0)), [0x08, 0]);
        assert_eq!(written(|m| m.message(26, |_| {})), [0xd2, 0x01, 0]);
        let hex = written(|m| m.hex(1, [0x0a, 0xff].into_iter()));
        assert_eq!(hex, b"\x0a\x060x0aff");
    }

    #[test]
    fn lengths_of_any_size_are_put_in_front() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 70_000] {
            let content = vec![7; length];
            let by_message = written(|m| m.message(1, |m| m.encoded(&content)));
            assert_eq!(by_message, written(|m| m.bytes(1, &content)), "{length}");
        }
    }
}
