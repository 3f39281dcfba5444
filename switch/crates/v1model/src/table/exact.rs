//! Hash maps keyed by packed key words.

use foldhash::quality::RandomState;
use std::collections::HashMap;

/// A map from key words to `V`, specialised for short keys. Seeded per process, so that
/// chosen keys cannot be made to collide.
#[derive(Debug, Clone)]
pub(crate) enum WordMap<V> {
    One(HashMap<u64, V, RandomState>),
    Two(HashMap<[u64; 2], V, RandomState>),
    Many(HashMap<Box<[u64]>, V, RandomState>),
}

impl<V> WordMap<V> {
    /// A map for keys of `words` words.
    pub fn new(words: usize) -> Self {
        match words {
            0 | 1 => Self::One(HashMap::default()),
            2 => Self::Two(HashMap::default()),
            _ => Self::Many(HashMap::default()),
        }
    }

    #[inline]
    pub fn get(&self, key: &[u64]) -> Option<&V> {
        match (self, key) {
            (Self::One(m), [a]) => m.get(a),
            (Self::Two(m), [a, b]) => m.get(&[*a, *b]),
            (Self::Many(m), key) => m.get(key),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, key: &[u64]) -> Option<&mut V> {
        match (self, key) {
            (Self::One(m), [a]) => m.get_mut(a),
            (Self::Two(m), [a, b]) => m.get_mut(&[*a, *b]),
            (Self::Many(m), key) => m.get_mut(key),
            _ => None,
        }
    }

    pub fn insert(&mut self, key: &[u64], value: V) {
        match (self, key) {
            (Self::One(m), [a]) => drop(m.insert(*a, value)),
            (Self::Two(m), [a, b]) => drop(m.insert([*a, *b], value)),
            (Self::Many(m), key) => drop(m.insert(key.into(), value)),
            _ => {}
        }
    }

    pub fn remove(&mut self, key: &[u64]) {
        match (self, key) {
            (Self::One(m), [a]) => drop(m.remove(a)),
            (Self::Two(m), [a, b]) => drop(m.remove(&[*a, *b])),
            (Self::Many(m), key) => drop(m.remove(key)),
            _ => {}
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::One(m) => m.len(),
            Self::Two(m) => m.len(),
            Self::Many(m) => m.len(),
        }
    }

    pub fn values(&self) -> Box<dyn Iterator<Item = &V> + '_> {
        match self {
            Self::One(m) => Box::new(m.values()),
            Self::Two(m) => Box::new(m.values()),
            Self::Many(m) => Box::new(m.values()),
        }
    }
}
