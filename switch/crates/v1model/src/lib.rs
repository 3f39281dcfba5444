//! The packet engine of `pacing_switch`: runs the BMv2 JSON that p4c-bm2-ss writes for a v1model
//! program.
//!
//! At load, the JSON becomes typed structures (`model`), then flat code over an array of words
//! (`compile`, `expr`, `ops`), which `engine` runs. A packet takes no name look-up, no allocation, and
//! no hashing except in tables that match by hash. The engine does no I/O and reads no clock: the
//! caller passes it frames and times and carries out its verdicts.
//!
//! ```
//! use v1model::{IngressInput, LoadOptions, NoTrafficManager, Pipeline};
//! # fn main() -> Result<(), v1model::LoadError> {
//! # let json = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/flows.json")).unwrap();
//! let mut pipeline = Pipeline::load(&json, &LoadOptions::default())?;
//! let mut ctx = pipeline.new_context();
//! ctx.set_frame(&[0; 60]);
//! let input = IngressInput { port: 1, now_ns: 0, ..IngressInput::default() };
//! let verdict = pipeline.ingress(&mut ctx, &input, &NoTrafficManager);
//! assert_eq!(verdict.mcast_group, 1);
//! # Ok(()) }
//! ```
//!
//! `docs/v1model.md` lists the features that a program may use, and those that are refused at load,
//! each with an error that names it.

// A file of the tests names the crate so, and serves tests within the crate, too.
#[cfg(test)]
extern crate self as v1model;

#[cfg(test)]
mod agreement;
mod api;
mod bits;
mod calculation;
mod clone_request;
mod compile;
mod context;
mod engine;
pub mod entries;
mod error;
mod expr;
mod free_ids;
mod hash;
mod header_io;
mod json_ids;
mod layout;
mod machine_code;
mod message;
mod meter;
mod model;
mod names;
mod ops;
mod pipeline;
mod profile;
mod program;
mod rows;
mod saved;
mod slot;
mod source_info;
mod state;
mod table;
mod trace;
mod trial;
mod unchanged;
mod value_set;
mod wide;

pub use api::{
    EgressInput, EgressVerdict, Engine, EngineInUse, Externs, IngressInput, IngressVerdict,
    InstanceType, LoadOptions, NoTrafficManager,
};
pub use clone_request::CloneRequest;
pub use context::Context;
pub use error::LoadError;
pub use hash::CrcParameters;
pub use json_ids::JsonIds;
pub use pipeline::Pipeline;
pub use saved::{SavedArray, SavedEntry, SavedMeter};
pub use source_info::SourceInfo;
pub use trace::{
    ArgumentValues, HeaderLabel, HeaderValues, KeyValues, Labels, MatchingEntry, NodeLabel,
    PrimitiveLabel, QueueRead, QueueReading, Stage, Step, Value,
};
pub use trial::Trial;
