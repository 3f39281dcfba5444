//! Runs a compiled program over packets.
//!
//! [`control`] walks a control's graph and applies tables, [`run`] executes code. The operations
//! that the fast loop of [`run`] does not handle are grouped by their object: [`packet`] (the whole
//! packet), [`state`] (registers, counters, meters, random numbers), [`arithmetic`] (values of several
//! words), [`headers`] and [`parse`]. [`checksums`] and [`deparse`] come before a packet leaves.
//! [`trace`] reports the steps of all of them.

mod arithmetic;
mod checksums;
mod control;
mod deparse;
mod headers;
mod packet;
mod parse;
mod run;
mod state;
mod trace;

use crate::api::Externs;
use crate::context::Context;
use crate::layout::Field;
use crate::profile::Profile;
use crate::program::Program;
use crate::state::State;
use crate::table::Table;
use crate::trial::Trial;
use crate::value_set::ValueSets;
use crate::wide::mask64;

/// The end of a run of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// At its end.
    Done,
    /// The program executed `exit`.
    Exit,
    /// An `assert` or `assume` failed, or a loop did not end.
    Asserted,
    /// A parser error, with its code.
    Error(u64),
    /// A case that cannot happen: the packet is dropped as an internal error.
    Fault,
}

impl Outcome {
    /// Notes in the context that the packet must be dropped, if it must.
    pub fn note(self, ctx: &mut Context) {
        match self {
            Self::Asserted => ctx.assertion_failed = true,
            Self::Fault => ctx.internal_error = true,
            Self::Done | Self::Exit | Self::Error(_) => {}
        }
    }
}

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

impl<E: Externs> Machine<'_, E> {
    /// The drop port as `egress_spec` holds it.
    pub fn drop_value(&self) -> u64 {
        u64::from(self.drop_port) & mask64(self.program.intrinsics.egress_spec.bits)
    }
}

/// Writes a value of the switch to a field, truncated to the field's width.
pub(crate) fn set_field(phv: &mut [u64], field: Field, value: u64) {
    phv[field.slot as usize] = value & mask64(field.bits);
    if field.bits > 64 {
        let end = (field.slot + field.limbs()) as usize;
        phv[field.slot as usize + 1..end].fill(0);
    }
}

/// The low word of a field.
pub(crate) fn get_field(phv: &[u64], field: Field) -> u64 {
    phv[field.slot as usize]
}

/// A word as an index. Words that are no index of this machine become one that nothing has.
fn to_index(word: u64) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}
