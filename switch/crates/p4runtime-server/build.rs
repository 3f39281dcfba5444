//! Generates the protocols: P4Runtime from the descriptors that `make` takes out of a published
//! package, and our own ones with a protobuf compiler written in Rust.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::FileDescriptorSet;

/// Environment variable that names the P4Runtime descriptor set.
const DESCRIPTORS_VARIABLE: &str = "P4RUNTIME_DESCRIPTORS";

fn main() -> Result<(), Box<dyn Error>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    println!("cargo:rerun-if-env-changed={DESCRIPTORS_VARIABLE}");
    let descriptors = std::env::var_os(DESCRIPTORS_VARIABLE)
        .map(PathBuf::from)
        .unwrap_or_else(|| repository.join("build/p4runtime.binpb"));
    println!("cargo:rerun-if-changed={}", descriptors.display());
    let bytes = std::fs::read(&descriptors).map_err(|error| {
        format!(
            "cannot read the P4Runtime descriptors {}: {error}. Run `make switch` once at the top of \
             the repository (it makes that file by switch/tools/extract_descriptors.py), or set \
             {DESCRIPTORS_VARIABLE} to a FileDescriptorSet of p4/v1/p4runtime.proto",
            descriptors.display()
        )
    })?;
    let mut files = FileDescriptorSet::decode(bytes.as_slice()).map_err(|error| {
        format!(
            "{} is not a FileDescriptorSet ({error}); remove it and run `make switch`",
            descriptors.display()
        )
    })?;

    let protos = repository.join("switch/proto");
    let sources = [
        "traffic_manager.proto",
        "role_config.proto",
        "packet_tracing.proto",
    ]
    .map(|name| protos.join(name));
    for source in &sources {
        println!("cargo:rerun-if-changed={}", source.display());
    }
    println!(
        "cargo:rerun-if-changed={}",
        protos.join("packet_trace.proto").display()
    );
    let own = protox::compile(&sources, [&protos])?;
    for file in own.file {
        if !files.file.iter().any(|known| known.name == file.name) {
            files.file.push(file);
        }
    }

    tonic_prost_build::configure()
        // Crate `packet-trace` makes these messages.
        .extern_path(".pacer.v1.PacketTrace", "::packet_trace::PacketTrace")
        .include_file("protocols.rs")
        .compile_fds(files)?;
    Ok(())
}
