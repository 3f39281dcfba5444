//! Writes messages of packet_trace.proto to the end of a buffer, field by field, in one of two forms.

/// Wire types (protobuf's documentation, "Message Structure").
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

/// The two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut hex = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        hex[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    hex
};

/// A form of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Protobuf.
    Message,
    /// Protobuf's mapping to JSON, with the names of the .proto file. Numbers of 64 bits are numbers, not
    /// strings: times are below 2^53 ns for a hundred days, and readers expect numbers.
    Json,
}

impl Form {
    pub(super) const ALL: [Self; 2] = [Self::Message, Self::Json];
}

/// A field of a message: its number, and its name as it stands in JSON, behind a comma.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Field(pub(super) u32, pub(super) &'static str);

macro_rules! field {
    ($number:literal, $name:literal) => {
        $crate::trace::writer::Field($number, concat!(",\"", $name, "\":"))
    };
}
pub(super) use field;

/// The place of a word's digits in what has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hole {
    at: usize,
    digits: usize,
}

impl Hole {
    /// Those of a value of so many digits at `at`, the lowest word first. A value of no digits has a word, too.
    fn all(at: usize, digits: usize) -> impl Iterator<Item = Self> {
        (0..digits.div_ceil(16).max(1)).map(move |word| {
            let end = digits - 16 * word;
            let start = end.saturating_sub(16);
            Self {
                at: at + start,
                digits: end - start,
            }
        })
    }

    /// Puts a word into it.
    #[inline]
    fn fill(self, written: &mut [u8], mut word: u64) {
        if let Some(digits) = written.get_mut(self.at..self.at + self.digits) {
            for pair in digits.rchunks_exact_mut(2) {
                pair.copy_from_slice(&HEX[usize::from(word as u8)]);
                word >>= 8;
            }
        }
    }
}

/// Fields that are written already, except for the digits of some values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prepared {
    bytes: Box<[u8]>,
    holes: Box<[Hole]>,
}

impl Prepared {
    /// The fields that `write` writes.
    pub(super) fn new(form: Form, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(form, &mut bytes);
        write(&mut writer);
        let holes = writer.holes.into();
        Self {
            bytes: bytes.into(),
            holes,
        }
    }

    /// Words of the values.
    pub(super) fn words(&self) -> usize {
        self.holes.len()
    }

    #[inline(never)]
    fn fill(&self, written: &mut [u8], values: &[u64]) {
        for (hole, word) in self.holes.iter().zip(values) {
            hole.fill(written, *word);
        }
    }
}

/// Writes the fields of a message. Fields that have their default value are left out, as in proto3.
pub(super) struct Writer<'b> {
    form: Form,
    out: &'b mut Vec<u8>,
    /// Those of [`Self::hole`].
    holes: Vec<Hole>,
}

impl<'b> Writer<'b> {
    /// Writes to the end of a buffer.
    pub(super) fn new(form: Form, out: &'b mut Vec<u8>) -> Self {
        Self {
            form,
            out,
            holes: Vec::new(),
        }
    }

    /// The message that is not in another one.
    pub(super) fn outermost(&mut self, write: impl FnOnce(&mut Self)) {
        match self.form {
            Form::Message => write(self),
            Form::Json => self.braces(write),
        }
    }

    /// A number that is there unless it is 0.
    pub(super) fn number(&mut self, field: Field, value: u64) {
        if value != 0 {
            self.optional_number(field, value);
        }
    }

    /// A number that is there although it may be 0.
    pub(super) fn optional_number(&mut self, field: Field, value: u64) {
        self.key(field, VARINT);
        match self.form {
            Form::Message => self.varint(value),
            Form::Json => put_decimal(value, self.out),
        }
    }

    /// A `bool`.
    pub(super) fn flag(&mut self, field: Field, value: bool) {
        if value {
            self.key(field, VARINT);
            match self.form {
                Form::Message => self.varint(1),
                Form::Json => self.put(b"true"),
            }
        }
    }

    /// One of an enum's values, from 1; `names`: the names of all.
    pub(super) fn choice(&mut self, field: Field, value: usize, names: &[&str]) {
        self.key(field, VARINT);
        match self.form {
            Form::Message => self.varint(value as u64),
            Form::Json => {
                let name = value.checked_sub(1).and_then(|at| names.get(at));
                put_quoted(name.copied().unwrap_or_default(), self.out);
            }
        }
    }

    /// A string.
    pub(super) fn text(&mut self, field: Field, value: &str) {
        if !value.is_empty() {
            self.key(field, LENGTH_DELIMITED);
            match self.form {
                Form::Message => {
                    self.varint(value.len() as u64);
                    self.put(value.as_bytes());
                }
                Form::Json => put_quoted(value, self.out),
            }
        }
    }

    /// A string with a value of so many bits in hexadecimal, with all digits of its bytes; the lowest word first.
    pub(super) fn hex(&mut self, field: Field, bits: u32, words: &[u64]) {
        for (hole, word) in self.zeros(field, bits).zip(words) {
            hole.fill(self.out, *word);
        }
    }

    /// The same for a value that is not known yet.
    pub(super) fn hole(&mut self, field: Field, bits: u32) {
        let holes = self.zeros(field, bits);
        self.holes.extend(holes);
    }

    /// The value 0, in hexadecimal.
    fn zeros(&mut self, field: Field, bits: u32) -> impl Iterator<Item = Hole> + use<> {
        let digits = 2 * bits.div_ceil(8) as usize;
        self.key(field, LENGTH_DELIMITED);
        match self.form {
            Form::Message => self.varint(2 + digits as u64),
            Form::Json => self.put(b"\""),
        }
        self.put(b"0x");
        let at = self.out.len();
        self.out.resize(at + digits, b'0');
        if self.form == Form::Json {
            self.put(b"\"");
        }
        Hole::all(at, digits)
    }

    /// A message. It is there although it may be empty.
    pub(super) fn message(&mut self, field: Field, write: impl FnOnce(&mut Self)) {
        self.key(field, LENGTH_DELIMITED);
        match self.form {
            Form::Message => self.sized(write),
            Form::Json => self.braces(write),
        }
    }

    /// The messages of a repeated field: `write` writes each with [`Self::item`].
    pub(super) fn list(&mut self, field: Field, write: impl FnOnce(&mut Self)) {
        match self.form {
            Form::Message => write(self),
            Form::Json => {
                let before = self.out.len();
                self.key(field, LENGTH_DELIMITED);
                self.out.push(b'[');
                let start = self.out.len();
                write(self);
                if self.out.len() == start {
                    self.out.truncate(before);
                } else {
                    self.out.push(b']');
                }
            }
        }
    }

    /// A message of a repeated field.
    pub(super) fn item(&mut self, field: Field, write: impl FnOnce(&mut Self)) {
        match self.form {
            Form::Message => self.message(field, write),
            Form::Json => {
                self.separate();
                self.braces(write);
            }
        }
    }

    /// Fields or items that are prepared in this form, with the values of their holes.
    #[inline]
    pub(super) fn prepared(&mut self, prepared: &Prepared, values: &[u64]) {
        if self.form == Form::Json {
            self.separate();
        }
        let start = self.out.len();
        self.put(&prepared.bytes);
        if !values.is_empty()
            && let Some(written) = self.out.get_mut(start..)
        {
            prepared.fill(written, values);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The text in front of a field's value.
    fn key(&mut self, field: Field, wire_type: u32) {
        match self.form {
            Form::Message => self.varint(u64::from(field.0 << 3 | wire_type)),
            Form::Json => {
                let is_first = self.is_first();
                self.put(&field.1.as_bytes()[usize::from(is_first)..]);
            }
        }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// A message of protobuf, with its length in front.
    fn sized(&mut self, write: impl FnOnce(&mut Self)) {
        // Most are shorter than 128 bytes: their length takes a byte.
        let (place, holes) = (self.out.len(), self.holes.len());
        self.out.push(0);
        write(self);
        let mut length = self.out.len() - place - 1;
        let mut at = place;
        while length >= 0x80 {
            self.out[at] = length as u8 | 0x80;
            length >>= 7;
            at += 1;
            self.out.insert(at, 0);
        }
        self.out[at] = length as u8;
        for hole in self.holes.iter_mut().skip(holes) {
            hole.at += at - place;
        }
    }

    /// An object of JSON.
    fn braces(&mut self, write: impl FnOnce(&mut Self)) {
        self.out.push(b'{');
        write(self);
        self.out.push(b'}');
    }

    /// Whether the next member or item of JSON is the first.
    fn is_first(&self) -> bool {
        matches!(self.out.last(), None | Some(b'{' | b'['))
    }

    /// A comma, unless the next item is the first.
    fn separate(&mut self) {
        if !self.is_first() {
            self.out.push(b',');
        }
    }
}

fn put_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[digits.len() - used..]);
}

/// Writes a string of JSON.
fn put_quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&HEX[usize::from(byte)]);
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Field = field!(1, "a");
    const B: Field = field!(2, "b");
    const C: Field = field!(3, "c");

    fn message(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Writer::new(Form::Message, &mut out));
        out
    }

    fn json(write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        Writer::new(Form::Json, &mut out).outermost(write);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn fields_are_encoded_as_in_protobufs_documentation() {
        assert_eq!(message(|m| m.number(A, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(message(|m| m.text(B, "testing")), b"\x12\x07testing");
        let nested = message(|m| m.message(C, |m| m.number(A, 150)));
        assert_eq!(nested, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let defaults = message(|m| {
            m.number(A, 0);
            m.text(B, "");
            m.flag(C, false);
        });
        assert!(defaults.is_empty());
        assert_eq!(message(|m| m.optional_number(A, 0)), [0x08, 0]);
        let empty = message(|m| m.message(field!(26, "z"), |_| {}));
        assert_eq!(empty, [0xd2, 0x01, 0]);
        let hex = message(|m| m.hex(A, 16, &[0x0aff]));
        assert_eq!(hex, b"\x0a\x060x0aff");
        let wide = message(|m| m.hex(A, 72, &[1, 2]));
        assert_eq!(wide, b"\x0a\x140x020000000000000001");
        assert_eq!(message(|m| m.hex(A, 0, &[0])), b"\x0a\x020x");
    }

    #[test]
    fn lengths_of_any_size_are_put_in_front() {
        for length in [0, 1, 124, 125, 300, 16_380, 16_381, 70_000] {
            let content = "7".repeat(length);
            let inner = message(|m| m.text(B, &content));
            let mut expected = vec![0x0a];
            Writer::new(Form::Message, &mut expected).varint(inner.len() as u64);
            expected.extend_from_slice(&inner);
            let nested = message(|m| m.message(A, |m| m.text(B, &content)));
            assert_eq!(nested, expected, "{length}");
        }
    }

    #[test]
    fn json_has_commas_between_members_and_no_empty_lists() {
        let written = json(|m| {
            m.number(A, 0);
            m.list(B, |_| {});
            m.message(C, |m| {
                m.list(A, |m| {
                    m.item(A, |_| {});
                    m.item(A, |m| m.flag(B, true));
                });
                m.choice(B, 2, &["ONE", "TWO"]);
                m.list(B, |_| {});
            });
            m.hex(B, 12, &[0xabc]);
        });
        let expected = r#"{"c":{"a":[{},{"b":true}],"b":"TWO"},"b":"0x0abc"}"#;
        assert_eq!(written, expected);
    }

    #[test]
    fn json_escapes_text_and_writes_numbers_in_decimal() {
        let written = json(|m| {
            m.text(A, "a\"b\\c\n\u{e9}");
            m.optional_number(B, 0);
            m.number(C, u64::MAX);
        });
        let expected = r#"{"a":"a\"b\\c\u000aé","b":0,"c":18446744073709551615}"#;
        assert_eq!(written, expected);
    }

    #[test]
    fn holes_take_values_wherever_lengths_have_moved_them() {
        let name = "n".repeat(130);
        let fields = |m: &mut Writer<'_>, values: Option<[u64; 4]>| {
            m.text(A, &name);
            m.list(B, |m| {
                for at in 0..2 {
                    m.item(B, |m| {
                        m.text(A, &name);
                        match values {
                            Some(values) => m.hex(B, 100, &values[2 * at..2 * at + 2]),
                            None => m.hole(B, 100),
                        }
                    });
                }
            });
        };
        let values = [0x1122_3344_5566_7788, 0x99, u64::MAX, 7];
        for form in Form::ALL {
            let prepared = Prepared::new(form, |m| fields(m, None));
            assert_eq!(prepared.words(), 4);
            let (mut filled, mut direct) = (Vec::new(), Vec::new());
            Writer::new(form, &mut filled).prepared(&prepared, &values);
            fields(&mut Writer::new(form, &mut direct), Some(values));
            assert_eq!(filled, direct);
        }
    }
}
