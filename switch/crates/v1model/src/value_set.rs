//! Parser value sets: their members, and the tests of a select's key for them.

use crate::entries::MatchField;
use crate::program::Program;

/// `(word & mask) - low` (modulo 2^64) is at most `span`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    /// The word's slot.
    pub slot: u32,
    pub mask: u64,
    pub low: u64,
    pub span: u64,
}

/// The value sets' contents.
#[derive(Debug, Default)]
pub(crate) struct ValueSets {
    /// By value set: its members, each a field per component of the key.
    pub members: Vec<Vec<Vec<MatchField>>>,
    /// By use of a set: its members as tests.
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

    /// Whether the key of a use, from the PHV, is a member of the set.
    pub fn contains(&self, place: u16, phv: &[u64]) -> bool {
        let members = self.tests.get(usize::from(place));
        members.is_some_and(|members| {
            members.iter().any(|tests| {
                tests
                    .iter()
                    .all(|t| (phv[t.slot as usize] & t.mask).wrapping_sub(t.low) <= t.span)
            })
        })
    }
}
