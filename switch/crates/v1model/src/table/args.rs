//! Arguments of an action.

use std::ops::Deref;

/// So many words are in the entry itself, where a look-up finds them without a further cache miss.
const FEW: usize = 6;

/// The words of an action's arguments, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Args {
    /// So many, and zeros.
    Few(usize, [u64; FEW]),
    Many(Box<[u64]>),
}

impl From<Vec<u64>> for Args {
    fn from(words: Vec<u64>) -> Self {
        let mut few = [0; FEW];
        match few.get_mut(..words.len()) {
            Some(place) => {
                place.copy_from_slice(&words);
                Self::Few(words.len(), few)
            }
            None => Self::Many(words.into()),
        }
    }
}

impl Deref for Args {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match self {
            Self::Few(count, words) => words.get(..*count).unwrap_or(words),
            Self::Many(words) => words,
        }
    }
}
