//! Places in the text of a program.

use serde::Deserialize;

/// A place in the text of a program, as BMv2 JSON has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SourceInfo {
    /// The file.
    pub filename: String,
    /// The line, from 1.
    pub line: u32,
    /// The text there, as far as p4c quotes it.
    pub source_fragment: String,
}
