//! The input of a translation.

use crate::program::Program;
use crate::state::State;
use crate::table::Table;

/// The program that is translated, with its tables, its state and its limits.
pub(crate) struct Source<'a> {
    pub program: &'a Program,
    pub tables: &'a [Table],
    pub state: &'a State,
    /// The port that means "drop".
    pub drop_port: u64,
    /// Most states of the parser that a packet passes through.
    pub max_parser_states: u32,
}
