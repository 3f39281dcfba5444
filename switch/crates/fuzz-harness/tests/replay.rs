//! Every file of the committed corpora, through the function that its fuzz target calls.

use std::path::{Path, PathBuf};

fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target]
        .iter()
        .collect();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the corpus of {target} is in the tree");
    for file in files {
        let name = file.file_name().map(Path::new).expect("a name");
        // Cargo shows it if the function panics.
        println!("{target}: {}", name.display());
        run(&std::fs::read(&file).expect("a file"));
    }
}

#[test]
fn programs() {
    replay("program", fuzz_harness::program);
}

#[test]
fn frames() {
    replay("packets", fuzz_harness::packets);
}

#[test]
fn captures() {
    replay("capture", fuzz_harness::capture);
}

#[test]
fn write_requests() {
    replay("write_request", fuzz_harness::write_request);
}

#[test]
fn calls() {
    replay("call", fuzz_harness::call);
}

#[test]
fn thrift_messages() {
    replay("thrift", fuzz_harness::thrift);
}

#[test]
fn filters() {
    replay("filter", fuzz_harness::filter);
}

#[test]
fn trains() {
    replay("train", fuzz_harness::train);
}

#[test]
fn joined_trains() {
    replay("join", fuzz_harness::join);
}
