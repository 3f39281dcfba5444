//! Digests: their configuration, and their messages (specification, section "DigestEntry").

use v1model::entries::Bits;
use v1model::entries::digest::{DigestConfig, DigestInfo};

use super::shape::{Fields, Shape, Widths};
use super::translation::Types;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

/// A digest.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program.
    pub(crate) index: usize,
    /// The composition of a message's value from its fields; `None`: a type that is not implemented.
    shape: Option<Shape>,
    /// As the program describes it.
    info: DigestInfo,
}

impl Digest {
    /// `info`: its messages in the program.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: P4Info's type has other fields.
    pub(super) fn new(
        (id, name): (u32, String),
        index: usize,
        spec: Option<&p4info::P4DataTypeSpec>,
        types: &Types<'_>,
        info: &DigestInfo,
    ) -> UpdateResult<Self> {
        let shape = Shape::new(spec, types, info.widths.len());
        let widths = Widths::of(info);
        if !shape.as_ref().is_none_or(|shape| shape.is_made_of(widths)) {
            return Err(UpdateError::invalid(format!(
                "P4Info: digest {name}: the fields of its type in P4Info are not those in the \
                 program ({:?} bits)",
                info.widths
            )));
        }
        Ok(Self {
            id,
            name,
            index,
            shape,
            info: info.clone(),
        })
    }

    /// Reads a configuration.
    pub(crate) fn config(
        &self,
        given: Option<&p4::digest_entry::Config>,
    ) -> UpdateResult<DigestConfig> {
        if self.shape.is_none() {
            return Err(UpdateError::unimplemented(format!(
                "{}: the digest's type is not implemented; bit, int, bool, enums, types with a \
                 mapping (--translation), headers of these, and structs and tuples of all these are",
                self.name
            )));
        }
        let Some(given) = given else {
            return Err(UpdateError::invalid(format!(
                "{}: config: not given, the timeouts and list size expected",
                self.name
            )));
        };
        let refuse = |field: &str, value: i64| {
            UpdateError::invalid(format!(
                "{}: {field}: {value} given, at least 0 expected",
                self.name
            ))
        };
        let time = |value: i64, field| u64::try_from(value).map_err(|_| refuse(field, value));
        Ok(DigestConfig {
            max_timeout_ns: time(given.max_timeout_ns, "max_timeout_ns")?,
            max_list_size: u32::try_from(given.max_list_size)
                .map_err(|_| refuse("max_list_size", given.max_list_size.into()))?,
            ack_timeout_ns: time(given.ack_timeout_ns, "ack_timeout_ns")?,
        })
    }

    /// A configuration as a controller sees it.
    pub(crate) fn config_message(&self, config: DigestConfig) -> p4::DigestEntry {
        let time = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        p4::DigestEntry {
            digest_id: self.id,
            config: Some(p4::digest_entry::Config {
                max_timeout_ns: time(config.max_timeout_ns),
                max_list_size: i32::try_from(config.max_list_size).unwrap_or(i32::MAX),
                ack_timeout_ns: time(config.ack_timeout_ns),
            }),
        }
    }

    /// A message (of the values that [`DigestInfo`] names) as a controller sees it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: a value that no controller's value stands for.
    pub(crate) fn message(&self, fields: &[Bits]) -> UpdateResult<p4::P4Data> {
        let Some(shape) = &self.shape else {
            return Ok(p4::P4Data::default());
        };
        shape.value(Fields::new(fields, &self.info), &self.name)
    }
}
