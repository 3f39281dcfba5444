//! Thrift's binary protocol, with bounds on the memory that a client may make the server use.
//!
//! The library's own reader takes the lengths that a client announces as they come. This one refuses
//! those that exceed the rest of the message, and takes memory as the bytes come.

use std::io::{self, BufRead, Read};

use thrift::protocol::{
    TFieldIdentifier, TInputProtocol, TListIdentifier, TMapIdentifier, TMessageIdentifier,
    TMessageType, TSetIdentifier, TStructIdentifier, TType,
};
use thrift::{ProtocolError, ProtocolErrorKind};

use crate::refusals::Refusal;

/// First two bytes of a message: version 1 of the protocol.
const VERSION: [u8; 2] = [0x80, 0x01];
/// Longest name of a service and a function, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Reads messages.
pub(crate) struct BoundedInput<R> {
    reader: R,
    /// Bytes that the message may still take.
    left_bytes: usize,
    list_elements: usize,
    /// Structs that have begun in the message.
    structs: usize,
    /// The reason why reading failed. The rest of the stream cannot be understood.
    failure: Option<Failure>,
}

/// Why reading failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client has closed the connection.
    Gone,
    /// It has broken a rule.
    Refused(Refusal),
}

impl<R: BufRead> BoundedInput<R> {
    /// Lists have at most `list_elements` elements.
    pub(crate) fn new(reader: R, list_elements: usize) -> Self {
        Self {
            reader,
            left_bytes: 0,
            list_elements,
            structs: 0,
            failure: None,
        }
    }

    /// The underlying reader.
    pub(crate) fn reader(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Waits for the first byte of a message; false: the client has closed the connection.
    pub(crate) fn wait(&mut self) -> bool {
        self.reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Lets the message that comes have this many bytes.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.left_bytes = bytes;
    }

    /// Whether a struct has begun in this message.
    pub(crate) fn has_structs(&self) -> bool {
        self.structs > 0
    }

    /// Why reading has failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    fn refuse<T>(&mut self, refusal: Refusal, message: &str) -> thrift::Result<T> {
        self.failure = self.failure.or(Some(Failure::Refused(refusal)));
        let kind = match refusal {
            Refusal::MessageTooLong | Refusal::ListTooLong => ProtocolErrorKind::SizeLimit,
            _ => ProtocolErrorKind::InvalidData,
        };
        Err(ProtocolError::new(kind, message).into())
    }

    fn read_failed<T>(&mut self, error: &io::Error) -> thrift::Result<T> {
        let refusal = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Some(Refusal::Slow),
            _ => None,
        };
        let failure = refusal.map_or(Failure::Gone, Failure::Refused);
        self.failure = self.failure.or(Some(failure));
        Err(thrift::Error::from(io::Error::new(
            error.kind(),
            error.to_string(),
        )))
    }

    fn take(&mut self, bytes: usize) -> thrift::Result<()> {
        match self.left_bytes.checked_sub(bytes) {
            Some(left) => {
                self.left_bytes = left;
                Ok(())
            }
            None => self.refuse(
                Refusal::MessageTooLong,
                "the message is longer than allowed",
            ),
        }
    }

    fn read_array<const N: usize>(&mut self) -> thrift::Result<[u8; N]> {
        self.take(N)?;
        let mut bytes = [0; N];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => self.read_failed(&error),
        }
    }

    /// Bytes after their length; at most `most`.
    fn read_counted(&mut self, most: usize) -> thrift::Result<Vec<u8>> {
        let length = i32::from_be_bytes(self.read_array()?);
        let Ok(length) = usize::try_from(length) else {
            return self.refuse(Refusal::Malformed, "a string has a negative length");
        };
        if length > most {
            return self.refuse(Refusal::MessageTooLong, "a string is longer than allowed");
        }
        self.take(length)?;
        let mut bytes = Vec::new();
        let read = self
            .reader
            .by_ref()
            .take(length as u64)
            .read_to_end(&mut bytes);
        match read {
            Ok(read) if read == length => Ok(bytes),
            Ok(_) => self.read_failed(&io::ErrorKind::UnexpectedEof.into()),
            Err(error) => self.read_failed(&error),
        }
    }

    fn read_type(&mut self) -> thrift::Result<TType> {
        let [byte] = self.read_array()?;
        Ok(match byte {
            0 => TType::Stop,
            2 => TType::Bool,
            3 => TType::I08,
            4 => TType::Double,
            6 => TType::I16,
            8 => TType::I32,
            10 => TType::I64,
            11 => TType::String,
            12 => TType::Struct,
            13 => TType::Map,
            14 => TType::Set,
            15 => TType::List,
            _ => return self.refuse(Refusal::Malformed, "a type that Thrift does not have"),
        })
    }

    /// Number of elements of a container. Each takes a byte at least, so that there cannot be more than
    /// the message has bytes left.
    fn read_size(&mut self) -> thrift::Result<i32> {
        let size = i32::from_be_bytes(self.read_array()?);
        let most = self.list_elements.min(self.left_bytes);
        match usize::try_from(size) {
            Err(_) => self.refuse(Refusal::Malformed, "a list has a negative length"),
            Ok(elements) if elements > most => {
                self.refuse(Refusal::ListTooLong, "a list is longer than allowed")
            }
            Ok(_) => Ok(size),
        }
    }
}

impl<R: BufRead> TInputProtocol for BoundedInput<R> {
    fn read_message_begin(&mut self) -> thrift::Result<TMessageIdentifier> {
        self.structs = 0;
        let [first, second, _, kind] = self.read_array()?;
        let kind = TMessageType::try_from(kind);
        let (true, Ok(kind)) = ([first, second] == VERSION, kind) else {
            return self.refuse(
                Refusal::Malformed,
                "not a message of Thrift's binary protocol, version 1",
            );
        };
        let name = self.read_counted(NAME_BYTES_MAX)?;
        let Ok(name) = String::from_utf8(name) else {
            return self.refuse(Refusal::Malformed, "the name of a function is not UTF-8");
        };
        let sequence_number = self.read_i32()?;
        Ok(TMessageIdentifier::new(name, kind, sequence_number))
    }

    fn read_message_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_struct_begin(&mut self) -> thrift::Result<Option<TStructIdentifier>> {
        self.structs += 1;
        Ok(None)
    }

    fn read_struct_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_field_begin(&mut self) -> thrift::Result<TFieldIdentifier> {
        let field_type = self.read_type()?;
        let id = match field_type {
            TType::Stop => 0,
            _ => self.read_i16()?,
        };
        Ok(TFieldIdentifier::new::<Option<String>, String, i16>(
            None, field_type, id,
        ))
    }

    fn read_field_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_bool(&mut self) -> thrift::Result<bool> {
        Ok(self.read_array::<1>()? != [0])
    }

    fn read_bytes(&mut self) -> thrift::Result<Vec<u8>> {
        self.read_counted(self.left_bytes)
    }

    fn read_i8(&mut self) -> thrift::Result<i8> {
        self.read_array().map(i8::from_be_bytes)
    }

    fn read_i16(&mut self) -> thrift::Result<i16> {
        self.read_array().map(i16::from_be_bytes)
    }

    fn read_i32(&mut self) -> thrift::Result<i32> {
        self.read_array().map(i32::from_be_bytes)
    }

    fn read_i64(&mut self) -> thrift::Result<i64> {
        self.read_array().map(i64::from_be_bytes)
    }

    fn read_double(&mut self) -> thrift::Result<f64> {
        self.read_array().map(f64::from_be_bytes)
    }

    /// A string that is not UTF-8 names no object: its invalid bytes are replaced.
    fn read_string(&mut self) -> thrift::Result<String> {
        let bytes = self.read_bytes()?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn read_list_begin(&mut self) -> thrift::Result<TListIdentifier> {
        let element_type = self.read_type()?;
        Ok(TListIdentifier::new(element_type, self.read_size()?))
    }

    fn read_list_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_set_begin(&mut self) -> thrift::Result<TSetIdentifier> {
        let element_type = self.read_type()?;
        Ok(TSetIdentifier::new(element_type, self.read_size()?))
    }

    fn read_set_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_map_begin(&mut self) -> thrift::Result<TMapIdentifier> {
        let key_type = self.read_type()?;
        let value_type = self.read_type()?;
        Ok(TMapIdentifier::new(key_type, value_type, self.read_size()?))
    }

    fn read_map_end(&mut self) -> thrift::Result<()> {
        Ok(())
    }

    fn read_byte(&mut self) -> thrift::Result<u8> {
        self.read_array().map(u8::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> BoundedInput<&[u8]> {
        let mut input = BoundedInput::new(bytes, 100);
        input.allow(1_000);
        input
    }

    fn refused(input: &BoundedInput<&[u8]>) -> Option<Refusal> {
        match input.failure() {
            Some(Failure::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }

    #[test]
    fn a_message_begins_with_version_name_and_number() {
        let mut read = input(b"\x80\x01\0\x01\0\0\0\x04name\0\0\0\x07");
        let message = read.read_message_begin().expect("a message");
        assert_eq!(
            (message.name.as_str(), message.sequence_number),
            ("name", 7)
        );
        let mut read = input(b"GET / HTTP/1.1\r\n");
        assert!(read.read_message_begin().is_err());
        assert_eq!(refused(&read), Some(Refusal::Malformed));
    }

    #[test]
    fn lengths_are_checked_before_memory_is_taken() {
        for (bytes, refusal) in [
            (b"\x7f\xff\xff\xff", Refusal::MessageTooLong),
            (b"\xff\xff\xff\xff", Refusal::Malformed),
        ] {
            let mut read = input(bytes);
            assert!(read.read_bytes().is_err());
            assert_eq!(refused(&read), Some(refusal));
        }
        for (bytes, refusal) in [
            (b"\x0c\0\0\0\x65", Refusal::ListTooLong),
            (b"\x0c\xff\xff\xff\xff", Refusal::Malformed),
            (b"\x63\0\0\0\x01", Refusal::Malformed),
        ] {
            let mut read = input(bytes);
            assert!(read.read_list_begin().is_err());
            assert_eq!(refused(&read), Some(refusal));
        }
    }

    #[test]
    fn a_message_ends_at_its_limit_and_with_its_connection() {
        let mut read = input(&[0; 64]);
        read.allow(6);
        assert!(read.read_i32().is_ok());
        assert!(read.read_i32().is_err());
        assert_eq!(refused(&read), Some(Refusal::MessageTooLong));
        let mut read = input(b"\0\0\0\x05abc");
        assert!(read.read_bytes().is_err());
        assert_eq!(read.failure(), Some(Failure::Gone));
    }

    #[test]
    fn deep_nesting_is_not_skipped_for_ever() {
        let nested = [0x0c, 0, 1].repeat(200);
        assert!(input(&nested).skip(TType::Struct).is_err());
    }
}
