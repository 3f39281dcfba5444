//! Finds entries by packed key words.

use super::cells::{Cell, Cells, Tag};
use foldhash::quality::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A map from key words to entries. Its hash is seeded per process, so that no sender can choose keys
/// that collide.
///
/// The keys of a million entries are one vector, and [`super::ternary`] finds its candidates by their
/// rows.
#[derive(Debug)]
pub(crate) struct WordMap {
    /// Words of a key.
    words: usize,
    hasher: RandomState,
    cells: Cells,
    /// Keys by row, one after the other.
    keys: Vec<u64>,
    rows: u32,
    /// Rows without a key.
    free: Vec<u32>,
}

impl WordMap {
    /// A map for keys of `words` words.
    pub fn new(words: usize) -> Self {
        Self {
            words,
            hasher: RandomState::default(),
            cells: Cells::default(),
            keys: Vec::new(),
            rows: 0,
            free: Vec::new(),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// The rows of its keys, in no order.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.cells.iter().map(|cell| cell.row)
    }

    /// The tag of a key.
    #[inline]
    pub fn tag(&self, key: impl Iterator<Item = u64>) -> Tag {
        let mut hasher = self.hasher.build_hasher();
        key.for_each(|word| hasher.write_u64(word));
        Tag::of(hasher.finish())
    }

    /// False if no key has the tag; reads no cell.
    #[inline]
    pub fn may_have(&self, tag: Tag) -> bool {
        self.cells.may_have(tag)
    }

    /// Prefetches the cells of a tag.
    #[inline]
    pub fn prefetch(&self, tag: Tag) {
        self.cells.prefetch(tag);
    }

    /// Whether a cell's key is this one. Without branches, so that the processor reads the entry of
    /// the cell meanwhile.
    #[inline]
    fn is_key(&self, cell: &Cell, key: impl Iterator<Item = u64>) -> bool {
        let begin = cell.row as usize * self.words;
        let Some(stored) = self.keys.get(begin..begin + self.words) else {
            return false;
        };
        let differing = stored.iter().zip(key).map(|(stored, given)| stored ^ given);
        differing.fold(0, |all, word| all | word) == 0
    }

    /// The cell of a key with its tag.
    #[inline]
    pub fn find(&self, tag: Tag, key: impl Iterator<Item = u64> + Clone) -> Option<&Cell> {
        self.cells.find(tag, |cell| self.is_key(cell, key.clone()))
    }

    /// The cell of a key.
    #[inline]
    pub fn get(&self, key: &[u64]) -> Option<&Cell> {
        let key = key.iter().copied();
        self.find(self.tag(key.clone()), key)
    }

    /// The cell of a key of one word.
    #[inline]
    pub fn get_word(&self, word: u64) -> Option<&Cell> {
        debug_assert_eq!(self.words, 1);
        let tag = self.tag(std::iter::once(word));
        self.cells
            .find(tag, |cell| self.keys.get(cell.row as usize) == Some(&word))
    }

    /// Sets the entry of a key, and its hint. Returns the key's row.
    pub fn insert(&mut self, key: &[u64], id: u32, hint: u32) -> u32 {
        let words = key.iter().copied();
        let tag = self.tag(words.clone());
        let mut cells = std::mem::take(&mut self.cells);
        let row = if let Some(cell) = cells.find_mut(tag, |cell| self.is_key(cell, words.clone())) {
            (cell.id, cell.hint) = (id, hint);
            cell.row
        } else {
            let row = self.store(key);
            cells.insert(tag, row, id, hint);
            row
        };
        self.cells = cells;
        row
    }

    /// Stores a key; returns its row. There are fewer than 2^32.
    fn store(&mut self, key: &[u64]) -> u32 {
        match self.free.pop() {
            Some(row) => {
                let begin = row as usize * self.words;
                if let Some(place) = self.keys.get_mut(begin..begin + self.words) {
                    place.copy_from_slice(key);
                }
                row
            }
            None => {
                self.keys.extend_from_slice(key);
                self.rows += 1;
                self.rows - 1
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u64]) {
        let words = key.iter().copied();
        let tag = self.tag(words.clone());
        let mut cells = std::mem::take(&mut self.cells);
        if let Some(cell) = cells.remove(tag, |cell| self.is_key(cell, words.clone())) {
            self.free.push(cell.row);
        }
        self.cells = cells;
    }
}
