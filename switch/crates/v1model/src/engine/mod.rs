//! Runs a compiled program over packets.
//!
//! [`machine`] has all that a packet is processed with; the other modules add its steps. [`control`]
//! walks a control's graph and applies tables, [`run`] executes code. The operations that the fast loop
//! of [`run`] does not handle are grouped by their object: [`packet`] (the whole packet), [`state`]
//! (registers, counters, meters, random numbers), [`arithmetic`] (values of several words), [`headers`]
//! and [`parse`]. [`checksums`] and [`deparse`] come before a packet leaves. [`trace`] reports the steps
//! of all of them.

mod arithmetic;
mod checksums;
mod chosen;
mod control;
mod deparse;
mod headers;
mod machine;
mod outcome;
mod packet;
mod parse;
mod phv;
mod run;
mod state;
mod trace;

pub(crate) use chosen::Chosen;
pub(crate) use control::fault;
pub(crate) use deparse::IN_FRAME;
pub(crate) use machine::Machine;
pub(crate) use outcome::Outcome;
pub(crate) use packet::hold;
pub(crate) use phv::{get_field, set_field, to_index};
