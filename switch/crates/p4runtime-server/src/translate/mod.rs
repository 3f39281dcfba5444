//! Translates P4Info ids and protocol messages to the program's indices and values, and back.
//!
//! A [`BoundPipeline`] is built once for each program. Building it checks that every object that
//! P4Info names is in the program with the same widths.

mod arrays;
mod bind;
mod digest;
mod keys;
mod pipeline;
mod ports;
mod profile;
mod refusals;
mod replication;
mod shape;
mod table;
mod translation;

pub(crate) use arrays::{
    Array, counter_message, counter_value, meter_counts_message, meter_message, meter_write,
};
pub(crate) use pipeline::BoundPipeline;
pub(crate) use profile::Profile;
pub(crate) use refusals::{empty_replication_entry, unimplemented_entity};
pub(crate) use replication::{clone_session, clone_session_message, replica_messages, replicas};
pub(crate) use table::{BoundTable, controller_metadata};
pub use translation::{Mappings, MappingsError};
pub(crate) use translation::{Types, ValueType};
