//! Files that the command line names.

use anyhow::Context;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Places of a program's JSON, from the folder of its source: beside it, or as in this project.
const COMPILED_IN: [&str; 3] = ["", "compiled", "compiled/pacing_switch"];

/// Refuses P4 source where the switch needs p4c's JSON.
///
/// # Errors
/// The file's name ends in `.p4`: names its JSON if that exists, else the command that makes it.
pub fn refuse_source(program: &Path) -> anyhow::Result<()> {
    if program
        .extension()
        .is_none_or(|extension| extension != "p4")
    {
        return Ok(());
    }
    let json = program.with_extension("json");
    let name = json.file_name().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new(""));
    let mut places = COMPILED_IN
        .iter()
        .map(|place| folder.join(place).join(name));
    let (source, json) = (program.display(), json.display());
    match places.find(|place| place.is_file()) {
        Some(compiled) => anyhow::bail!(
            "{source} is P4 source: give the switch its compiled program, {}",
            compiled.display()
        ),
        None => anyhow::bail!(
            "{source} is P4 source: compile it with p4c, and give the switch {json}: \
             p4c-bm2-ss --emit-externs -o {json} {source}"
        ),
    }
}

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
