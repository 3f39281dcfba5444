//! The fuzz targets as functions of the input's bytes.
//!
//! The targets themselves (`switch/fuzz`, for cargo-fuzz) only call these functions; so does
//! `tests/replay.rs`, with every file of the committed corpora. A function returns if all is
//! well and panics otherwise.

mod call;
mod files;
mod filter;
mod packets;
mod program;
mod thrift;
mod trains;
mod write_request;

pub use call::call;
pub use filter::filter;
pub use packets::{capture, packets};
pub use program::program;
pub use thrift::thrift;
pub use trains::{join, train};
pub use write_request::write_request;
