//! Hash maps keyed by packed key words.

use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

type Words<const N: usize, V> = HashMap<[u64; N], V, RandomState>;

/// A map from key words to `V`. Keys of up to eight words lie beside their value, so that to
/// compare one costs no further cache miss. Seeded per process, so that chosen keys cannot be
/// made to collide.
#[derive(Debug, Clone)]
pub(crate) enum WordMap<V> {
    One(Words<1, V>),
    Two(Words<2, V>),
    Three(Words<3, V>),
    Four(Words<4, V>),
    Five(Words<5, V>),
    Six(Words<6, V>),
    Seven(Words<7, V>),
    Eight(Words<8, V>),
    Many(HashMap<Box<[u64]>, V, RandomState>),
}

/// Evaluates `$do` with the map, whatever its width, and the key as that width's; `$wrong` for a
/// key of another width, which no table has.
macro_rules! with_map {
    ($self:expr, $key:expr, |$map:ident, $words:ident| $do:expr, $wrong:expr) => {
        with_map!(@ $self, $key, |$map, $words| $do, $wrong,
            One 1, Two 2, Three 3, Four 4, Five 5, Six 6, Seven 7, Eight 8)
    };
    (@ $self:expr, $key:expr, |$map:ident, $words:ident| $do:expr, $wrong:expr, $($width:ident $n:literal),*) => {
        match $self {
            $(Self::$width($map) => match <&[u64; $n]>::try_from($key) {
                Ok($words) => $do,
                Err(_) => $wrong,
            },)*
            Self::Many($map) => {
                let $words: &[u64] = $key;
                $do
            }
        }
    };
}

/// Evaluates `$do` with the map, whatever its width.
macro_rules! with_any {
    ($self:expr, |$map:ident| $do:expr) => {
        match $self {
            Self::One($map) => $do,
            Self::Two($map) => $do,
            Self::Three($map) => $do,
            Self::Four($map) => $do,
            Self::Five($map) => $do,
            Self::Six($map) => $do,
            Self::Seven($map) => $do,
            Self::Eight($map) => $do,
            Self::Many($map) => $do,
        }
    };
}

/// Inserts under a key of the map's own from one by reference.
fn put<K, V, Q>(map: &mut HashMap<K, V, RandomState>, words: &Q, value: V)
where
    K: Eq + Hash,
    Q: ToOwned + ?Sized,
    Q::Owned: Into<K>,
{
    map.insert(words.to_owned().into(), value);
}

impl<V> WordMap<V> {
    /// A map for keys of `words` words.
    pub fn new(words: usize) -> Self {
        match words {
            0 | 1 => Self::One(HashMap::default()),
            2 => Self::Two(HashMap::default()),
            3 => Self::Three(HashMap::default()),
            4 => Self::Four(HashMap::default()),
            5 => Self::Five(HashMap::default()),
            6 => Self::Six(HashMap::default()),
            7 => Self::Seven(HashMap::default()),
            8 => Self::Eight(HashMap::default()),
            _ => Self::Many(HashMap::default()),
        }
    }

    #[inline]
    pub fn get(&self, key: &[u64]) -> Option<&V> {
        with_map!(self, key, |map, words| map.get(words), None)
    }

    pub fn get_mut(&mut self, key: &[u64]) -> Option<&mut V> {
        with_map!(self, key, |map, words| map.get_mut(words), None)
    }

    pub fn insert(&mut self, key: &[u64], value: V) {
        with_map!(self, key, |map, words| put(map, words, value), ());
    }

    pub fn remove(&mut self, key: &[u64]) {
        with_map!(self, key, |map, words| drop(map.remove(words)), ());
    }

    pub fn len(&self) -> usize {
        with_any!(self, |map| map.len())
    }

    pub fn values(&self) -> Box<dyn Iterator<Item = &V> + '_> {
        with_any!(self, |map| Box::new(map.values()))
    }
}
