//! Generates the messages of packet traces, with a protobuf compiler written in Rust.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let source = protos.join("packet_trace.proto");
    println!("cargo:rerun-if-changed={}", source.display());
    let files = protox::compile([&source], [&protos])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("packet_trace.binpb"), files.encode_to_vec())?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
