//! Programs before and after they run, which other threads compile and free.

use v1model::entries::{ControlError, ControlResult};
use v1model::{EngineInUse, LoadOptions, Pipeline};

use crate::program::Program;

/// Compiles programs for one [`Switch`](crate::Switch), on any thread, because compiling takes long and
/// packets must not wait for it.
#[derive(Debug, Clone)]
pub struct Compiler {
    options: LoadOptions,
}

impl Compiler {
    pub(crate) fn new(options: LoadOptions) -> Self {
        Self { options }
    }

    /// Checks and compiles a program (BMv2 JSON).
    ///
    /// # Errors
    /// [`InvalidArgument`](ControlError::InvalidArgument): no such program, or one that the switch
    /// cannot run; the text names the fault and its place.
    pub fn compile(&self, bmv2_json: &[u8]) -> ControlResult<Pipeline> {
        let pipeline = Pipeline::load(bmv2_json, &self.options)
            .map_err(|error| ControlError::InvalidArgument(error.to_string()))?;
        match pipeline.engine() {
            EngineInUse::Machine { code_bytes } => {
                tracing::info!(code_bytes, "the program is machine code");
            }
            EngineInUse::Interpreter { because: None } => {}
            EngineInUse::Interpreter {
                because: Some(reason),
            } => tracing::warn!(
                "the interpreter runs the program, as no machine code can be made: {reason}"
            ),
        }
        Ok(pipeline)
    }
}

/// A program that no longer runs or is no longer staged. Dropping it frees its memory, which takes
/// long for large tables: drop it where no packet waits.
#[must_use = "dropping a program takes long; choose where"]
pub struct Retired {
    _program: Option<Program>,
}

impl Retired {
    pub(crate) fn new(program: Option<Program>) -> Self {
        Self { _program: program }
    }
}
