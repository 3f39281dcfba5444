//! How a run of code ends.

use crate::context::Context;

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
