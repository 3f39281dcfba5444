//! Parser value sets: members and the tests they make of a select's key.

use crate::entries::MatchField;
use crate::program::Program;

/// `(word & mask) - low` (modulo 2^64) is at most `span`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    pub slot: u32,
    pub mask: u64,
    pub low: u64,
    pub span: u64,
}

/// The value sets' contents.
#[derive(Debug, Default)]
pub(crate) struct ValueSets {
    pub members: Vec<Vec<Vec<MatchField>>>,
    /// Per use: members as tests.
    pub tests: Vec<Vec<Box<[Test]>>>,
}

impl ValueSets {
    /// Empty sets for a program.
    pub fn new(program: &Program) -> Self {
        Self {
            members: vec![Vec::new(); program.value_set_infos.len()],
            tests: vec![Vec::new(); program.value_set_uses.len()],
        }
    }

    /// Is the key of this use, as it stands in `words`, a member?
    pub fn contains(&self, place: u16, words: &[u64]) -> bool {
        let members = self.tests.get(usize::from(place));
        members.is_some_and(|members| {
            members.iter().any(|tests| {
                tests
                    .iter()
                    .all(|t| (words[t.slot as usize] & t.mask).wrapping_sub(t.low) <= t.span)
            })
        })
    }
}
