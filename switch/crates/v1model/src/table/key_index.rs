//! Finds entries by their match key, for the control plane.

use super::encoded_key::EncodedKey;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Numbers of entries by match key. The keys are in the entries. Each number has the hash of its key
/// beside it, so that growth does not read a million keys.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    hasher: RandomState,
    ids: HashTable<(u64, u32)>,
}

impl KeyIndex {
    /// Whether there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The entry with this key. `is_it` compares the key of an entry with it.
    pub fn find(&self, key: &EncodedKey, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let found = self
            .ids
            .find(hash, |&(other, id)| other == hash && is_it(id));
        found.map(|&(_, id)| id)
    }

    /// Adds an entry whose key is new.
    pub fn insert(&mut self, key: &EncodedKey, id: u32) {
        let hash = self.hasher.hash_one(key);
        self.ids.insert_unique(hash, (hash, id), |&(hash, _)| hash);
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &EncodedKey, id: u32) {
        let hash = self.hasher.hash_one(key);
        let found = self.ids.find_entry(hash, |&(_, other)| other == id);
        debug_assert!(found.is_ok(), "an entry is not in the index");
        if let Ok(found) = found {
            found.remove();
        }
    }
}
