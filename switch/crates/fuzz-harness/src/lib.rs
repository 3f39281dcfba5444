//! The fuzz targets as functions of the input's bytes.
//!
//! The targets themselves (`switch/fuzz`, for cargo-fuzz) only call these functions; so does
//! `tests/replay.rs`, with every file of the committed corpora. A function returns if all is
//! well and panics otherwise.

mod call;
mod filter;
mod packets;
mod program;
mod thrift;
mod trains;
mod write_request;

use std::path::PathBuf;

pub use call::call;
pub use filter::filter;
pub use packets::{capture, packets};
pub use program::program;
pub use thrift::thrift;
pub use trains::train;
pub use write_request::write_request;

/// The switch's own folder.
fn switch_folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}

/// A file of the repository.
fn read(path: &str) -> Vec<u8> {
    let path = switch_folder().join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
