//! The whole of what a control server needs of a switch.

use std::any::Any;

use crate::control::{
    ActionInfo, ArrayInfo, ControlResult, DataPlane, MeterUnit, TableInfo, ValueSetInfo,
};
use crate::notify::DigestInfo;
use crate::ports::TrafficManagerControl;
use crate::profile::ProfileInfo;

/// What a program offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// As [`DataPlane::tables`] once installed.
    pub tables: Vec<TableInfo>,
    /// As [`DataPlane::actions`] once installed.
    pub actions: Vec<ActionInfo>,
    /// As [`DataPlane::counters`] once installed.
    pub counters: Vec<ArrayInfo>,
    /// As [`DataPlane::meters`] once installed.
    pub meters: Vec<(ArrayInfo, MeterUnit)>,
    /// As [`DataPlane::registers`] once installed.
    pub registers: Vec<ArrayInfo>,
    /// As [`DataPlane::profiles`] once loaded.
    pub profiles: Vec<ProfileInfo>,
    /// As [`DataPlane::value_sets`] once loaded.
    pub value_sets: Vec<ValueSetInfo>,
    /// As [`DataPlane::digests`] once loaded.
    pub digests: Vec<DigestInfo>,
}

/// A compiled program on its way from a [`Compiler`] to the [`Switch`] that it compiles for.
#[derive(Debug)]
pub struct CompiledProgram {
    /// What the program offers.
    pub info: ProgramInfo,
    /// What only that switch understands, with all the memory that the program needs.
    pub code: Box<dyn Any + Send + Sync>,
}

/// Compiles programs for one switch, on any thread: compiling takes long, and packets must not
/// wait for it.
pub trait Compiler: Send + Sync + 'static {
    /// Checks and compiles a program (BMv2 JSON).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::control::ControlError::InvalidArgument): no such program, or
    /// one that the switch cannot run; the text says what and where.
    fn compile(&self, bmv2_json: &[u8]) -> ControlResult<CompiledProgram>;
}

/// Everything the server asks of a switch.
pub trait Switch: DataPlane + TrafficManagerControl {
    /// Keeps a compiled program beside the running one: from now on everything of
    /// [`DataPlane`] but packet-outs and acknowledgements refers to it, whose tables, groups and sessions are its own,
    /// while packets go on through the running one. Returns what was staged before, for
    /// the caller to drop where it holds nobody up: it may be large.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::control::ControlError::InvalidArgument): not compiled by this
    /// switch's compiler. What was staged before stays.
    fn stage(&mut self, program: CompiledProgram) -> ControlResult<Box<dyn Any + Send>>;

    /// Puts the staged program, with all that was written to it, in place of the running one,
    /// between two packets. Packets in flight of the old program are dropped and counted
    /// (`pipeline-swap`). Returns what ran before, as [`Self::stage`].
    ///
    /// # Errors
    /// [`FailedPrecondition`](crate::control::ControlError::FailedPrecondition): none is staged.
    fn commit_staged(&mut self) -> ControlResult<Box<dyn Any + Send>>;

    /// Forgets the staged program, if there is one; returns it.
    fn unstage(&mut self) -> Box<dyn Any + Send>;
}
