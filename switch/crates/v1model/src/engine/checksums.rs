//! Verifies checksums after parsing and updates them before deparsing.

use super::machine::Machine;
use super::phv::{get_field, set_field};
use crate::api::Externs;
use crate::context::Context;
use crate::ops::Code;
use crate::slot::Slot;

impl<E: Externs> Machine<'_, E> {
    /// Verifies checksums; true if one is wrong.
    pub(super) fn verify(&mut self, ctx: &mut Context) -> bool {
        let program = self.program;
        let mut wrong = false;
        for checksum in &program.verify {
            if ctx.phv[checksum.valid as usize] == 0 || !self.condition(ctx, checksum.condition) {
                continue;
            }
            let value = ctx.compute(&program.calculations[checksum.calculation], &program.kinds);
            let (slot, n) = (checksum.target.slot, checksum.target.limbs());
            let above = slot as usize + 1..(slot + n) as usize;
            wrong |= value != get_field(&ctx.phv, checksum.target)
                || ctx.phv[above].iter().any(|&limb| limb != 0);
        }
        wrong
    }

    /// Updates checksums.
    pub(super) fn update(&mut self, ctx: &mut Context) {
        let program = self.program;
        for checksum in &program.update {
            if self.condition(ctx, checksum.condition) {
                let calculation = &program.calculations[checksum.calculation];
                let value = ctx.compute(calculation, &program.kinds);
                ctx.unchanged.note(checksum.change);
                set_field(&mut ctx.phv, checksum.target, value);
            }
        }
    }

    /// Whether a checksum's condition holds. A failed assertion or a fault is noted in the
    /// context.
    fn condition(&mut self, ctx: &mut Context, condition: Option<(Code, Slot)>) -> bool {
        match condition {
            None => true,
            Some((code, slot)) => {
                self.run(ctx, code).note(ctx);
                ctx.phv[slot as usize] != 0
            }
        }
    }
}
