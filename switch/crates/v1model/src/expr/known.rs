//! Values that have been computed and still stand somewhere: they are not computed again.
//!
//! p4c repeats an expression wherever it is used, and a masked sum for each part of one. What
//! straight-line code has computed is known until its result, or what it was computed from, is
//! overwritten; where code may be entered or left, nothing is.

use super::Compiler;
use crate::error::LoadResult;
use crate::ops::{Op, Written};
use crate::slot::Slot;

/// Most values that are known at once: what is looked through for each operation.
const MAX_KNOWN: usize = 64;
/// A statement may leave so many words of temporaries to those after it.
const MAX_KEPT_WORDS: u32 = 64;

/// What straight-line code has computed: operations with 0 for their destination, and where their
/// results stand.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<(Op, Slot)>);

impl Known {
    fn find(&self, op: &Op) -> Option<Slot> {
        let found = self.0.iter().find(|(known, _)| known == op);
        found.map(|(_, slot)| *slot)
    }

    fn note(&mut self, op: Op, slot: Slot) {
        if self.0.len() == MAX_KNOWN {
            self.0.remove(0);
        }
        self.0.push((op, slot));
    }

    /// `words` words from `slot` on have other values now.
    fn overwrite(&mut self, slot: Slot, words: u32) {
        let written = slot..slot + words;
        self.0.retain(|(op, result)| {
            let operands = op.operands().unwrap_or_default();
            !written.contains(result) && !operands.iter().any(|operand| written.contains(operand))
        });
    }
}

impl Compiler<'_> {
    /// Emits an operation that makes one word of others, unless its result stands somewhere. Gives
    /// the slot of the result, which is not to be written to.
    pub(super) fn computed(&mut self, op: impl Fn(Slot) -> Op) -> LoadResult<Slot> {
        let value = op(0);
        if let Some(slot) = self.known.find(&value) {
            return Ok(slot);
        }
        let d = self.temp(1)?;
        self.emit(op(d));
        self.known.note(value, d);
        Ok(d)
    }

    /// Emits an operation.
    pub fn emit(&mut self, op: Op) {
        match op.written() {
            Written::Words(slot, words) => self.known.overwrite(slot, words),
            Written::Two(a, b) => {
                self.known.overwrite(a, 1);
                self.known.overwrite(b, 1);
            }
            Written::Cell(slot, array) => match self.cell_words(array) {
                Some(words) => self.known.overwrite(slot, words),
                None => self.forget(),
            },
            Written::Nothing if op.leaves_words() => {}
            Written::Nothing | Written::Elements(_) => self.forget(),
        }
        self.ops.push(op);
    }

    /// Has the last operation, which made the temporary `from`, write to `to` instead. False if it
    /// is another or cannot.
    pub(super) fn retarget(&mut self, from: Slot, to: Slot) -> bool {
        let is_temp = (self.temp_base..self.constant_base).contains(&from);
        let last = self.ops.last_mut().filter(|_| is_temp);
        if !last.is_some_and(|op| op.retarget(from, to)) {
            return false;
        }
        self.known.overwrite(to, 1);
        for (_, slot) in &mut self.known.0 {
            if *slot == from {
                *slot = to;
            }
        }
        true
    }

    /// From here on nothing is known: code may come here from elsewhere, or not have come the whole
    /// way.
    pub fn forget(&mut self) {
        self.known.0.clear();
    }

    /// Gives the temporaries back; values computed before are gone.
    pub fn free_temps(&mut self) {
        self.forget();
        self.temp_next = self.temp_base;
    }

    /// Between two statements that always follow each other: the temporaries stay, with what is known,
    /// as long as they are few.
    pub fn next_statement(&mut self) {
        if self.temp_next - self.temp_base > MAX_KEPT_WORDS {
            self.free_temps();
        }
    }
}
