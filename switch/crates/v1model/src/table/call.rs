//! An action with its arguments, as table entries and defaults hold it.

/// Most words of arguments that are in the call itself. With them and a counter, the part of an entry
/// that packets need is one cache line.
const FEW: usize = 5;

/// An action with the words of its arguments, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// `count` arguments, then zeros.
    Few {
        local: u32,
        count: u8,
        words: [u64; FEW],
    },
    /// More arguments.
    Many { local: u32, words: Box<[u64]> },
}

impl Call {
    /// `local`: index into the table's own list of actions, which has fewer than 2^32.
    pub fn new(local: usize, args: &[u64]) -> Self {
        let local = local as u32;
        let mut words = [0; FEW];
        match words.get_mut(..args.len()) {
            Some(place) => {
                place.copy_from_slice(args);
                Self::Few {
                    local,
                    count: args.len() as u8,
                    words,
                }
            }
            None => Self::Many {
                local,
                words: args.into(),
            },
        }
    }

    /// Index into the table's own list of actions.
    #[inline]
    pub fn local(&self) -> usize {
        match self {
            Self::Few { local, .. } | Self::Many { local, .. } => *local as usize,
        }
    }

    /// The words of the arguments.
    #[inline]
    pub fn args(&self) -> &[u64] {
        match self {
            Self::Few { count, words, .. } => words.get(..usize::from(*count)).unwrap_or(words),
            Self::Many { words, .. } => words,
        }
    }
}
