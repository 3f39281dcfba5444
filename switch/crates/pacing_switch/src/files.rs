//! Files that the command line names.

use anyhow::Context;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a file of `most` bytes at most.
pub fn read_limited(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    // Reads one byte more to see whether there is more; a device or a pipe has no size to ask for.
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        bytes.len() as u64 <= most,
        "{} is too large: {most} bytes at most",
        path.display()
    );
    Ok(bytes)
}
