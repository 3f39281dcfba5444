//! Values that have been computed and still stand in a slot: they are not computed again.
//!
//! p4c repeats an expression wherever it is used, and a masked sum for each part of one. A value that
//! straight-line code has computed is known until its result or one of its operands is overwritten.
//! Where code may be entered or left, nothing is known.

use crate::ops::Op;
use crate::slot::Slot;

/// Most values that are known at once, because each operation looks through all of them.
const MAX_KNOWN: usize = 64;

/// The results of straight-line code so far: operations with 0 for their destination, and the slots of
/// their results.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<(Op, Slot)>);

impl Known {
    /// The slot of the result of `op`, if it is known.
    pub fn find(&self, op: &Op) -> Option<Slot> {
        let found = self.0.iter().find(|(known, _)| known == op);
        found.map(|(_, slot)| *slot)
    }

    /// Notes that the result of `op` stands in `slot`.
    pub fn note(&mut self, op: Op, slot: Slot) {
        if self.0.len() == MAX_KNOWN {
            self.0.remove(0);
        }
        self.0.push((op, slot));
    }

    /// Forgets values that depend on the `words` words from `slot` on, which have changed.
    pub fn overwrite(&mut self, slot: Slot, words: u32) {
        let written = slot..slot + words;
        self.0.retain(|(op, result)| {
            let operands = op.operands().unwrap_or_default();
            !written.contains(result) && !operands.iter().any(|operand| written.contains(operand))
        });
    }

    /// Notes that a result stands in `to` instead of `from`.
    pub fn move_result(&mut self, from: Slot, to: Slot) {
        for (_, slot) in self.0.iter_mut().filter(|(_, slot)| *slot == from) {
            *slot = to;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
