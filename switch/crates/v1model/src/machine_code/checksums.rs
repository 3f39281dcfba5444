//! Checksums as instructions.

use super::emitter::{Emitter, callback};
use super::untranslated::{Result, Untranslated};
use crate::ops::Code;
use crate::program::Checksum;
use crate::slot::Slot;
use crate::wide::mask64;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};

impl Emitter<'_, '_> {
    /// Writes the verification of checksums; the result, of one byte, is 1 if one is wrong.
    pub fn verify(&mut self, checksums: &[Checksum]) -> Result<Value> {
        let wrong = self.b.declare_var(types::I8);
        let zero = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(wrong, zero);
        for checksum in checksums {
            let skip = self.b.create_block();
            let valid = self.word(checksum.valid)?;
            let next = self.b.create_block();
            self.branch(valid, next, skip);
            self.go_on(next);
            self.condition(checksum.condition, skip)?;
            let value = self.calculation(checksum.calculation)?;
            let target = checksum.target;
            let found = self.word(target.slot)?;
            let mut here = self.b.ins().icmp(IntCC::NotEqual, value, found);
            for slot in (target.slot..target.slot + target.limbs()).skip(1) {
                let limb = self.word(slot)?;
                let more = self.compare(IntCC::NotEqual, limb, 0);
                here = self.b.ins().bor(here, more);
            }
            let before = self.b.use_var(wrong);
            let now = self.b.ins().bor(before, here);
            self.b.def_var(wrong, now);
            self.join(skip);
        }
        Ok(self.b.use_var(wrong))
    }

    /// Writes the update of checksums.
    pub fn update(&mut self, checksums: &[Checksum]) -> Result<()> {
        for checksum in checksums {
            let skip = self.b.create_block();
            self.condition(checksum.condition, skip)?;
            let value = self.calculation(checksum.calculation)?;
            self.note(checksum.change);
            self.set_field(checksum.target, value)?;
            self.join(skip);
        }
        Ok(())
    }

    /// Goes on where a condition holds, and to `otherwise` where not. However its code ends, the
    /// condition is the word at its slot.
    fn condition(&mut self, condition: Option<(Code, Slot)>, otherwise: Block) -> Result<()> {
        let Some((code, slot)) = condition else {
            return Ok(());
        };
        let ended = self.b.create_block();
        let exits = self.exits(ended, None);
        self.code(code, exits)?;
        let direct = self.known();
        self.jump(ended);
        // Most conditions cannot end early.
        let ops = &self.source.program.ops[code.start as usize..code.end as usize];
        if ops
            .iter()
            .all(|op| op.operands().is_some() || matches!(op, crate::ops::Op::Copy { .. }))
        {
            self.begin_with(ended, direct);
        } else {
            self.begin(ended);
        }
        let holds = self.truth(slot)?;
        let next = self.b.create_block();
        self.branch(holds, next, otherwise);
        self.go_on(next);
        Ok(())
    }

    /// The value of a calculation.
    fn calculation(&mut self, index: usize) -> Result<Value> {
        let calculation = self.source.program.calculations.get(index);
        let calculation = calculation.ok_or_else(|| Untranslated::missing("a calculation"))?;
        match calculation.sum() {
            Some(sum) => self.sum(sum.valid, &sum.terms),
            None => Ok(self.ask(callback!(compute), index as u64)),
        }
    }

    /// An internet checksum over words of one header.
    fn sum(&mut self, valid: Slot, terms: &[crate::calculation::Term]) -> Result<Value> {
        let mut sum: Option<Value> = None;
        for term in terms {
            let word = self.word(term.slot)?;
            let folded = if term.bits <= 32 {
                word
            } else {
                let low = self.b.ins().band_imm(word, 0xffff_ffff);
                let high = self.b.ins().ushr_imm(word, 32);
                self.b.ins().iadd(low, high)
            };
            let shifted = self.shifted(folded, term.power);
            sum = Some(match sum {
                None => shifted,
                Some(sum) => self.b.ins().iadd(sum, shifted),
            });
        }
        let zero = self.number(0);
        let valid = self.word(valid)?;
        let mut sum = match sum {
            None => zero,
            Some(sum) => self.b.ins().select(valid, sum, zero),
        };
        // No turn makes another remainder by 2^16 - 1, or zero of what is not.
        let mut most = terms.iter().fold(0u64, |most, term| {
            let folded = match term.bits {
                ..=32 => mask64(term.bits),
                _ => (1 << 33) - 2,
            };
            most.saturating_add(folded << term.power)
        });
        while most > 0xffff {
            let low = self.b.ins().band_imm(sum, 0xffff);
            let high = self.b.ins().ushr_imm(sum, 16);
            sum = self.b.ins().iadd(low, high);
            most = most_after_turn(most);
        }
        let inverted = self.b.ins().bnot(sum);
        Ok(self.b.ins().band_imm(inverted, 0xffff))
    }
}

/// The greatest sum of the lower 16 bits and the others of a number that is at most `most`.
fn most_after_turn(most: u64) -> u64 {
    let high = most >> 16;
    let all = (most & 0xffff) + high;
    // Below the last multiple of 2^16, the lower bits may all be set.
    high.checked_sub(1)
        .map_or(all, |high| all.max(0xffff + high))
}

#[cfg(test)]
mod tests {
    use super::most_after_turn;

    #[test]
    fn a_turn_is_bounded_exactly() {
        for most in (0..=0x3_0003)
            .step_by(0x4001)
            .chain([0xffff, 0x1_0000, 0x1_0003, 0x1_ffff])
        {
            let turned = (0..=most).map(|sum| (sum & 0xffff) + (sum >> 16));
            assert_eq!(turned.max(), Some(most_after_turn(most)), "{most:x}");
        }
    }
}
