//! Tracks which headers are unchanged in the frame.
//!
//! Most packets leave with the headers that they came with, one or two fields changed. If the headers
//! lie in the frame in the order in which they leave, with nothing between them, the deparser
//! overwrites only those that changed. The compiler finds which headers code may change
//! (`Compiler::since`); the engine notes them when it runs the code. A header that is noted may be
//! unchanged; one that is not noted is.

use crate::slot::{Changes, RESHAPED};
use std::mem::offset_of;

/// The position of a header that the deparser does not write, or writes at several positions.
pub(crate) const NO_POSITION: u32 = u32::MAX;

/// The places where the parser found the headers of a packet, and the changes since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unchanged {
    changed: Changes,
    /// The least position, in the deparser's order, of the next header.
    next: usize,
    /// Bytes of the headers found.
    bytes: usize,
    /// Their beginnings, by position.
    places: Vec<usize>,
}

impl Unchanged {
    /// The offsets of fields, for machine code.
    pub const CHANGED: usize = offset_of!(Self, changed);
    pub const NEXT: usize = offset_of!(Self, next);
    pub const BYTES: usize = offset_of!(Self, bytes);

    /// For a program whose deparser writes `positions` headers.
    pub fn new(positions: usize) -> Self {
        Self {
            places: vec![0; positions],
            ..Self::default()
        }
    }

    /// Begins a packet. `changed`: the headers to overwrite in any case.
    #[inline]
    pub fn begin(&mut self, changed: Changes) {
        self.changed = changed;
        self.next = 0;
        self.bytes = 0;
    }

    /// Notes that the parser extracted the header at `position` from `length` bytes at `at` of the
    /// frame.
    #[inline]
    pub fn found(&mut self, position: u32, at: usize, length: usize) {
        match self.places.get_mut(position as usize) {
            Some(place) if position as usize >= self.next => {
                *place = at;
                self.next = position as usize + 1;
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

    /// The headers that changed, if the first `parsed` bytes of the frame are the headers that leave,
    /// in order; otherwise `None`.
    #[inline]
    pub fn changed_in_place(&self, parsed: usize) -> Option<Changes> {
        (self.changed & RESHAPED == 0 && self.bytes == parsed).then_some(self.changed)
    }

    /// The number of headers that the deparser writes.
    pub fn positions(&self) -> usize {
        self.places.len()
    }

    /// The address of the beginnings of all headers, for machine code.
    pub fn places(&mut self) -> *mut usize {
        self.places.as_mut_ptr()
    }

    /// The beginning of the header at `position`.
    #[inline]
    pub fn place(&self, position: usize) -> usize {
        self.places.get(position).copied().unwrap_or(0)
    }

    /// Becomes a copy of `source`, without allocation.
    pub fn copy_from(&mut self, source: &Self) {
        self.changed = source.changed;
        self.next = source.next;
        self.bytes = source.bytes;
        self.places.clone_from(&source.places);
    }
}
