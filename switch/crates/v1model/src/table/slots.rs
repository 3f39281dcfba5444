//! The entries of a table by their numbers: places that never move.

use super::Entry;

/// Entries that lie together: two megabytes, as much as a huge page.
const CHUNK: usize = 1 << 14;

/// Entries by number. A million of them are chunks, so that one more is never a copy of them all.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    chunks: Vec<Vec<Option<Entry>>>,
    free: Vec<u32>,
}

impl Slots {
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Entry> {
        let chunk = self.chunks.get(id as usize / CHUNK)?;
        chunk.get(id as usize % CHUNK)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Entry> {
        let chunk = self.chunks.get_mut(id as usize / CHUNK)?;
        chunk.get_mut(id as usize % CHUNK)?.as_mut()
    }

    /// Every entry.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.chunks.iter_mut().flatten().flatten()
    }

    /// Puts an entry in; returns its number: where one is wished for, perhaps that. There are fewer
    /// than 2^32.
    pub fn put(&mut self, entry: Entry, wished: Option<u32>) -> u32 {
        let wishes_next = wished.is_some_and(|id| id as usize == self.end());
        if !wishes_next && let Some(id) = self.free.pop() {
            let chunk = self.chunks.get_mut(id as usize / CHUNK);
            if let Some(place) = chunk.and_then(|chunk| chunk.get_mut(id as usize % CHUNK)) {
                *place = Some(entry);
            }
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows with the table, the others are for tables that need them whole.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let id = self.end();
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Some(entry));
        }
        id as u32
    }

    /// The least number that never was an entry's.
    fn end(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        full + self.chunks.last().map_or(0, Vec::len)
    }

    /// Takes an entry out.
    pub fn take(&mut self, id: u32) -> Option<Entry> {
        let chunk = self.chunks.get_mut(id as usize / CHUNK)?;
        let entry = chunk.get_mut(id as usize % CHUNK)?.take()?;
        self.free.push(id);
        Some(entry)
    }
}
