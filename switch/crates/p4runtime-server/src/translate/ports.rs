//! Ports where P4Info names no type: those of replicas and of `watch_port` (specification, section "Port
//! Translation for PSA Extern APIs").

use tonic::Code;

use super::translation::{Types, ValueType};
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};

/// How such ports are read, and told in an answer.
#[derive(Debug, Clone)]
pub(crate) struct Ports(ValueType);

impl Ports {
    pub(super) fn new(types: &Types<'_>) -> Self {
        Self(types.ports())
    }

    /// Reads a port. `object` and `field` go into the error text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: not a port.
    pub(super) fn read(&self, value: &[u8], object: &str, field: &str) -> UpdateResult<u32> {
        let port = self.0.parse(value, object, field);
        Ok(number(&port.map_err(UpdateError::as_invalid)?))
    }

    /// Reads a port of a deprecated field, which is a number.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: not a port, or controllers use strings.
    pub(super) fn read_number(&self, value: u32, object: &str, field: &str) -> UpdateResult<u32> {
        if self.0.controllers_bits().is_none() {
            return Err(UpdateError::invalid(format!(
                "{object}: field {field}: a number given, {} expected, which the field of type bytes takes",
                self.0.expected()
            )));
        }
        self.read(&value.to_be_bytes(), object, field)
    }

    /// A port as controllers see it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: the mapping does not have it.
    pub(super) fn tell(&self, port: u32, object: &str, field: &str) -> UpdateResult<Vec<u8>> {
        let value = bytestring::parse(&port.to_be_bytes(), self.0.bits, object, field);
        let value =
            value.map_err(|error| UpdateError::new(Code::FailedPrecondition, error.message))?;
        self.0.tell(&value, object, field)
    }

    /// A port as controllers see it, for a deprecated field.
    ///
    /// # Errors
    /// As [`tell`](Self::tell).
    pub(super) fn tell_number(&self, port: u32, object: &str, field: &str) -> UpdateResult<u32> {
        Ok(number(&self.tell(port, object, field)?))
    }
}

/// A number of up to 32 bits.
fn number(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter();
    bytes.fold(0, |number, byte| (number << 8) | u32::from(*byte))
}
