//! The program, its tables and state, and the caller's functions, together for a packet.

use crate::profile::Profile;
use crate::program::Program;
use crate::state::State;
use crate::table::Table;
use crate::trial::Trial;
use crate::value_set::ValueSets;

/// Everything a packet is processed with.
pub(crate) struct Machine<'a, E> {
    /// The compiled program.
    pub program: &'a Program,
    /// The tables, with their entries.
    pub tables: &'a mut [Table],
    /// Registers, counters, meters and random numbers.
    pub state: &'a mut State,
    /// Action profiles, by their index.
    pub profiles: &'a [Profile],
    /// The parser's value sets.
    pub value_sets: &'a ValueSets,
    /// The traffic manager, and the log.
    pub externs: &'a E,
    /// The packet's time, in ns.
    pub now_ns: u64,
    /// `egress_spec` value that means "drop".
    pub drop_port: u16,
    /// Takes what the packet changes, as it was before, if the packet is of a trial.
    pub trial: Option<&'a mut Trial>,
}
