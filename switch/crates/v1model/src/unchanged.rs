//! Which headers are still as they lie in the frame.
//!
//! Most packets leave with the headers they came with, a field or two of them changed. The
//! deparser then need not write all headers anew: those that lie in the frame in the order in
//! which they are to leave, and nothing else between them, stay where they are, and only those
//! that changed are written over. What may change a header is found at load ([`masks`] and
//! `Compiler::since`) and noted when its code runs; the comparison errs towards "changed" only.

use crate::layout::Header;
use crate::layout::HeaderType;
use crate::ops::Slot;

/// A set of headers that may have changed: a bit for each of the first [`OTHERS`] headers, one
/// bit for all others, and [`RESHAPED`].
pub(crate) type Changes = u64;

/// Headers came or went, or are not where they would be written: write all of them.
pub(crate) const RESHAPED: Changes = 1 << 63;

/// The bit of all headers that have none of their own.
const OTHERS: u32 = 62;

/// Position of a header that the deparser does not write, or not at one place.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// What a change of each header is noted as; nothing for metadata.
pub(crate) fn masks(headers: &[Header], types: &[HeaderType]) -> Vec<Changes> {
    let mut next = 0;
    let mask = |header: &Header| {
        if header.metadata {
            return 0;
        }
        let bit = next.min(OTHERS);
        next += 1;
        // Its length may change with it.
        match types[header.kind].variable {
            Some(_) => RESHAPED,
            None => 1 << bit,
        }
    };
    headers.iter().map(mask).collect()
}

/// What writing `words` words from `slot` on changes. `headers` are in order of their bases.
pub(crate) fn of_words(
    headers: &[Header],
    types: &[HeaderType],
    masks: &[Changes],
    slot: Slot,
    words: u32,
) -> Changes {
    let end = slot.saturating_add(words);
    let first = headers.partition_point(|h| h.base + types[h.kind].words <= slot);
    let written = headers.iter().zip(masks).skip(first);
    written
        .take_while(|(h, _)| h.base < end)
        .fold(0, |all, (h, &mask)| {
            // With its validity it comes or goes.
            let validity = mask != 0 && (slot..end).contains(&h.base);
            all | mask | if validity { RESHAPED } else { 0 }
        })
}

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
