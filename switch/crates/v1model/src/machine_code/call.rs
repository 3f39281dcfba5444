//! A part's function together with its input.

use super::memory::{Function, Memory};
use super::part::Part;
use crate::api::{EgressInput, IngressInput};
use std::ffi::c_void;
use std::ptr::null;

/// A part and the switch's input to it, beside the packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    /// `None`: headers and metadata are prepared already.
    Parser(Option<&'a IngressInput>),
    Ingress,
    Egress(&'a EgressInput),
    Deparser,
}

impl Input<'_> {
    /// The part that takes it.
    #[inline]
    fn part(self) -> Part {
        match self {
            Self::Parser(_) => Part::Parser,
            Self::Ingress => Part::Ingress,
            Self::Egress(_) => Part::Egress,
            Self::Deparser => Part::Deparser,
        }
    }
}

/// A call of a part's function with the input that it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    function: Function,
    input: Input<'a>,
}

impl<'a> Call<'a> {
    /// A call of the function of `memory` that takes `input`.
    #[inline]
    pub(super) fn new(memory: &Memory, input: Input<'a>) -> Self {
        Self {
            function: memory.function(input.part()),
            input,
        }
    }

    /// The part's function. Its [`Env`](super::env::Env) has [`Self::given`].
    #[inline]
    pub fn function(&self) -> Function {
        self.function
    }

    /// The input as the function takes it.
    #[inline]
    pub fn given(&self) -> *const c_void {
        match self.input {
            Input::Parser(Some(input)) => (&raw const *input).cast(),
            Input::Egress(input) => (&raw const *input).cast(),
            Input::Parser(None) | Input::Ingress | Input::Deparser => null(),
        }
    }
}
