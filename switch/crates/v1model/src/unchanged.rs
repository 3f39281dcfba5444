//! Which headers are still as they lie in the frame.
//!
//! Most packets leave with the headers they came with, a field or two of them changed. The
//! deparser then need not write all headers anew: those that lie in the frame in the order in
//! which they are to leave, and nothing else between them, stay where they are, and only those
//! that changed are written over. What may change a header is found at load ([`masks`] and
//! `Compiler::since`) and noted when its code runs; the comparison errs towards "changed" only.

use crate::slot::{Changes, RESHAPED};

/// The position of a header that the deparser does not write, or writes at several positions.
pub(crate) const NO_POSITION: u32 = u32::MAX;

/// Where the parser found the headers of a packet, and what has changed since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unchanged {
    changed: Changes,
    /// The next header must come at this position of the deparser's order, or after.
    next: u32,
    /// Bytes of the headers found.
    bytes: usize,
    /// Where they begin, by position.
    places: Vec<usize>,
}

impl Unchanged {
    /// For a program whose deparser writes `positions` headers.
    pub fn new(positions: usize) -> Self {
        Self {
            places: vec![0; positions],
            ..Self::default()
        }
    }

    /// Before parsing. `changed`: what is written over in any case.
    #[inline]
    pub fn begin(&mut self, changed: Changes) {
        self.changed = changed;
        self.next = 0;
        self.bytes = 0;
    }

    /// The parser took `length` bytes at `at` of the frame for the header at `position`.
    #[inline]
    pub fn found(&mut self, position: u32, at: usize, length: usize) {
        match self.places.get_mut(position as usize) {
            Some(place) if position >= self.next => {
                *place = at;
                self.next = position + 1;
                self.bytes += length;
            }
            _ => self.changed |= RESHAPED,
        }
    }

    /// Notes changes.
    #[inline]
    pub fn note(&mut self, changes: Changes) {
        self.changed |= changes;
    }

    /// The headers changed, if the first `parsed` bytes of the frame are the headers to leave, in
    /// their order.
    #[inline]
    pub fn changed_in_place(&self, parsed: usize) -> Option<Changes> {
        (self.changed & RESHAPED == 0 && self.bytes == parsed).then_some(self.changed)
    }

    /// Where the header at `position` begins.
    #[inline]
    pub fn place(&self, position: usize) -> usize {
        self.places.get(position).copied().unwrap_or(0)
    }

    /// Becomes what `source` is, without allocating.
    pub fn copy_from(&mut self, source: &Self) {
        self.changed = source.changed;
        self.next = source.next;
        self.bytes = source.bytes;
        self.places.clone_from(&source.places);
    }
}
