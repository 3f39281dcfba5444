//! The entries of a table, by number. An entry never moves while it exists.
//!
//! Not a `slab::Slab`: that one is a single vector, which copies 128 MB when it grows beyond a
//! million entries, and packets wait meanwhile. It cannot give an entry a number of the caller's
//! choice either ([`Slots::put`]).

use prefetch::prefetch;

/// Entries that lie together: 2 MiB, the size of a huge page.
const CHUNK: usize = 1 << 14;

/// Entries by number, in chunks that stay where they are when the table grows.
#[derive(Debug)]
pub(crate) struct Slots<Entry> {
    chunks: Vec<Vec<Option<Entry>>>,
    free: Vec<u32>,
}

impl<Entry> Slots<Entry> {
    /// No entries.
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    fn slot(&self, id: u32) -> Option<&Option<Entry>> {
        self.chunks
            .get(id as usize / CHUNK)?
            .get(id as usize % CHUNK)
    }

    #[inline]
    fn slot_mut(&mut self, id: u32) -> Option<&mut Option<Entry>> {
        let chunk = self.chunks.get_mut(id as usize / CHUNK)?;
        chunk.get_mut(id as usize % CHUNK)
    }

    /// The entry of a number.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Entry> {
        self.slot(id)?.as_ref()
    }

    /// The entry of a number, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.slot_mut(id)?.as_mut()
    }

    /// Prefetches an entry.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        if let Some(slot) = self.slot(id) {
            prefetch(slot);
        }
    }

    /// Every entry.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.chunks.iter_mut().flatten().flatten()
    }

    /// Puts an entry in and returns its number: `preferred`, if that is the next number that no
    /// entry has had. A table has fewer than 2^32 entries.
    pub fn put(&mut self, entry: Entry, preferred: Option<u32>) -> u32 {
        let prefers_next = preferred.is_some_and(|id| id as usize == self.end());
        if !prefers_next && let Some(id) = self.free.pop() {
            let slot = self.slot_mut(id);
            debug_assert!(matches!(slot, Some(None)), "a free number has an entry");
            if let Some(slot) = slot {
                *slot = Some(entry);
                return id;
            }
        }
        let id = self.end();
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(Some(entry)),
            last => {
                // The first chunk grows with the table; a table that needs more has them whole.
                let room = if last.is_none() { 1 } else { CHUNK };
                let mut chunk = Vec::with_capacity(room);
                chunk.push(Some(entry));
                self.chunks.push(chunk);
            }
        }
        id as u32
    }

    /// The lowest number that no entry has had.
    fn end(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        full + self.chunks.last().map_or(0, Vec::len)
    }

    /// Takes an entry out.
    pub fn take(&mut self, id: u32) -> Option<Entry> {
        let entry = self.slot_mut(id)?.take()?;
        self.free.push(id);
        Some(entry)
    }
}
