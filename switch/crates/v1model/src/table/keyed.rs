//! Finds entries of exact tables by their key.

use super::cells::NO_HINT;
use super::exact::WordMap;
use prefetch::prefetch;

/// Most keys of an array. Each takes 4 bytes, where it is used.
const ARRAY_KEYS_MAX: usize = 1 << 22;

/// Numbers of entries by key. Keys of one word below the table's size are indices of an array, which
/// needs no hash and of which sixteen share a cache line; other keys are in a hash map.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// By key: 0 for no entry, otherwise 1 + its number. As long as the greatest key needs; the
    /// system gives it memory as it is used.
    small: Vec<u32>,
    /// Keys below this are in the array.
    end: u64,
    others: WordMap,
}

impl Keyed {
    /// A map for keys of `words` words, of a table of `size` entries.
    pub fn new(words: usize, size: usize) -> Self {
        let end = if words == 1 {
            size.min(ARRAY_KEYS_MAX) as u64
        } else {
            0
        };
        Self {
            small: Vec::new(),
            end,
            others: WordMap::new(words),
        }
    }

    /// Whether it has an array.
    pub fn has_array(&self) -> bool {
        self.end > 0
    }

    /// The key's place in the array, if it belongs there.
    #[inline]
    fn place(&self, key: &[u64]) -> Option<usize> {
        match key {
            [key] if *key < self.end => Some(*key as usize),
            _ => None,
        }
    }

    /// The number that an entry of this key should have if it is free: the entry can then be
    /// prefetched without reading the array.
    pub fn preferred(&self, key: &[u64]) -> Option<u32> {
        self.place(key).map(|place| place as u32)
    }

    /// The entry of a key, and its hint.
    #[inline]
    pub fn get(&self, key: &[u64]) -> Option<(u32, u32)> {
        match self.place(key) {
            Some(place) => Some((self.small.get(place)?.checked_sub(1)?, NO_HINT)),
            None => {
                let cell = match *key {
                    [word] => self.others.get_word(word),
                    _ => self.others.get(key),
                };
                cell.map(|cell| (cell.id, cell.hint))
            }
        }
    }

    /// Prefetches where a key is looked for.
    #[inline]
    pub fn prefetch(&self, key: &[u64]) {
        match self.place(key) {
            Some(place) => {
                if let Some(known) = self.small.get(place) {
                    prefetch(known);
                }
            }
            None => self.others.prefetch(self.others.tag(key.iter().copied())),
        }
    }

    /// Sets the entry of a key, whose number is below 2^32 - 1, and its hint.
    pub fn insert(&mut self, key: &[u64], id: u32, hint: u32) {
        match self.place(key) {
            Some(place) => {
                if place >= self.small.len() {
                    self.grow(place + 1);
                }
                if let Some(known) = self.small.get_mut(place) {
                    *known = id + 1;
                }
            }
            None => {
                self.others.insert(key, id, hint);
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u64]) {
        match self.place(key) {
            Some(place) => {
                if let Some(known) = self.small.get_mut(place) {
                    *known = 0;
                }
            }
            None => self.others.remove(key),
        }
    }

    /// Grows the array to hold `keys` keys. Memory that is not used yet is not written.
    fn grow(&mut self, keys: usize) {
        let mut grown = vec![0; keys.next_power_of_two()];
        if let Some(known) = grown.get_mut(..self.small.len()) {
            known.copy_from_slice(&self.small);
        }
        self.small = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn is_a_map(
            size in 0..100usize,
            operations in proptest::collection::vec((0..3u8, 0..200u64), 0..400),
        ) {
            let mut keyed = Keyed::new(1, size);
            let mut map = HashMap::new();
            for (number, (operation, key)) in (0..).zip(operations) {
                match operation {
                    0 => {
                        keyed.remove(&[key]);
                        map.remove(&key);
                    }
                    1 => {
                        keyed.insert(&[key], number, NO_HINT);
                        map.insert(key, number);
                    }
                    _ => {
                        let found = keyed.get(&[key]).map(|(id, _)| id);
                        prop_assert_eq!(found, map.get(&key).copied());
                    }
                }
            }
        }
    }
}
