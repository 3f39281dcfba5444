//! Entries of exact tables by key.

use super::exact::WordMap;

/// Most keys that an array covers: 4 bytes each, where they are used.
const ARRAY_KEYS_MAX: usize = 1 << 24;

/// Numbers of entries by key: numbers below the table's size in an array, where a million
/// neighbours share cache lines and there is nothing to hash; other keys in a hash map.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// By key: 0 for none, otherwise 1 + the entry. Zeroed, paged in by the system as it is
    /// touched.
    small: Vec<u32>,
    others: WordMap<u32>,
}

impl Keyed {
    /// For keys of `words` words of a table of `size` entries.
    pub fn new(words: usize, size: usize) -> Self {
        let small = if words == 1 {
            size.min(ARRAY_KEYS_MAX)
        } else {
            0
        };
        Self {
            small: vec![0; small],
            others: WordMap::new(words),
        }
    }

    /// Whether some keys are found by the array.
    pub fn has_array(&self) -> bool {
        !self.small.is_empty()
    }

    /// The key's place in the array, if it has one.
    #[inline]
    fn place(&self, key: &[u64]) -> Option<usize> {
        let [key] = key else { return None };
        usize::try_from(*key)
            .ok()
            .filter(|key| *key < self.small.len())
    }

    #[inline]
    pub fn get(&self, key: &[u64]) -> Option<u32> {
        match self.place(key) {
            Some(place) => self.small.get(place)?.checked_sub(1),
            None => self.others.get(key).copied(),
        }
    }

    /// Of an entry's number, which is below 2^32 - 1.
    pub fn insert(&mut self, key: &[u64], id: u32) {
        match self.place(key) {
            Some(place) => self.small[place] = id + 1,
            None => self.others.insert(key, id),
        }
    }

    pub fn remove(&mut self, key: &[u64]) {
        match self.place(key) {
            Some(place) => self.small[place] = 0,
            None => self.others.remove(key),
        }
    }
}
