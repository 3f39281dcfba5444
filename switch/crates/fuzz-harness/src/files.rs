//! Files of the repository.

use std::path::PathBuf;

/// The switch's own folder.
fn switch_folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> Vec<u8> {
    let path = switch_folder().join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
