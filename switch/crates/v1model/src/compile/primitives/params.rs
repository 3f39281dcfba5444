//! The parameters of a primitive.

use crate::error::{At, LoadResult, refuse};
use crate::expr::{Compiler, Dest, HeaderNode, Node, text};
use crate::model::TypeValue;
use crate::slot::Slot;
use serde_json::Value;

/// The parameters of one primitive.
#[derive(Clone, Copy)]
pub(super) struct Params<'p>(pub &'p [TypeValue]);

impl<'p> Params<'p> {
    /// The parameters, of which there must be `N`.
    pub fn all<const N: usize>(self) -> LoadResult<[Param<'p>; N]> {
        match <&[TypeValue; N]>::try_from(self.0) {
            Ok(all) => Ok(std::array::from_fn(|number| {
                Param::new(number, &all[number])
            })),
            Err(_) => refuse!("takes {N} parameters, has {}", self.0.len()),
        }
    }

    /// The parameter `number`, which may be missing.
    pub fn get(self, number: usize) -> Option<Param<'p>> {
        self.0.get(number).map(|p| Param::new(number, p))
    }

    /// The name of the extern instance of which this is a method call, if it is one.
    pub fn extern_instance(self) -> LoadResult<Option<&'p str>> {
        match self.0.first() {
            Some(first) if first.kind == "extern" => text(&first.value).map(Some),
            _ => Ok(None),
        }
    }
}

/// One parameter.
#[derive(Clone, Copy)]
pub(super) struct Param<'p> {
    number: usize,
    pub kind: &'p str,
    pub value: &'p Value,
}

impl<'p> Param<'p> {
    fn new(number: usize, p: &'p TypeValue) -> Self {
        Self {
            number,
            kind: &p.kind,
            value: &p.value,
        }
    }

    fn place(self) -> String {
        format!("parameter {}", self.number)
    }

    /// The parameter as an expression.
    pub fn node(self, c: &Compiler<'_>) -> LoadResult<Node> {
        c.node(self.kind, self.value).at(|| self.place())
    }

    /// Computes the parameter as one word, as [`Compiler::word`] does.
    pub fn word(self, c: &mut Compiler<'_>) -> LoadResult<Slot> {
        let node = self.node(c)?;
        c.word(&node)
    }

    /// Computes the low `bits` bits of the parameter, as [`Compiler::low_word`] does.
    pub fn low_word(self, c: &mut Compiler<'_>, bits: u32) -> LoadResult<Slot> {
        let node = self.node(c)?;
        c.low_word(&node, bits)
    }

    /// Computes the truth of the parameter, 0 or 1.
    pub fn condition(self, c: &mut Compiler<'_>) -> LoadResult<Slot> {
        let node = self.node(c)?;
        c.condition(node)
    }

    /// The parameter as the destination of an assignment.
    pub fn dest(self, c: &Compiler<'_>) -> LoadResult<Dest> {
        c.dest(self.kind, self.value).at(|| self.place())
    }

    /// The parameter as a header.
    pub fn header(self, c: &Compiler<'_>) -> LoadResult<HeaderNode> {
        c.header(self.kind, self.value).at(|| self.place())
    }

    /// The name of an object of type `kind`.
    pub fn named(self, kind: &str) -> LoadResult<&'p str> {
        if self.kind != kind {
            refuse!("{} is of type '{}', not '{kind}'", self.place(), self.kind);
        }
        text(self.value).at(|| self.place())
    }
}
