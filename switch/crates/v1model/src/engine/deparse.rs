//! Writes a packet's valid headers before its payload.

use super::{Machine, Outcome};
use crate::api::Externs;
use crate::context::Context;
use crate::slot::Changes;

impl<E: Externs> Machine<'_, E> {
    /// Runs the deparser's externs and writes the valid headers, in order, before the payload.
    pub fn deparse(&mut self, ctx: &mut Context) -> Outcome {
        let program = self.program;
        let outcome = self.run(ctx, program.deparser_code);
        self.report_emitted(ctx);
        if let Some(changed) = ctx.unchanged.changed_in_place(ctx.parsed) {
            self.rewrite(ctx, changed);
            return outcome;
        }
        if self.write_headers(ctx).is_none() {
            debug_assert!(false, "the headers do not fit before the payload");
            return Outcome::Fault;
        }
        outcome
    }

    /// Writes all valid headers. `None` if they do not fit.
    fn write_headers(&self, ctx: &mut Context) -> Option<()> {
        let program = self.program;
        let length = program
            .deparse_order
            .iter()
            .filter(|h| ctx.phv[h.base as usize] != 0)
            .map(|h| program.kinds[h.kind].length(&ctx.phv, h.base))
            .sum();
        let (mut out, phv) = ctx.prepend(length)?;
        for h in &program.deparse_order {
            if phv[h.base as usize] != 0 {
                let io = &program.kinds[h.kind];
                let (here, rest) = out.split_at_mut_checked(io.length(phv, h.base))?;
                io.emit(phv, h.base, here);
                out = rest;
            }
        }
        Some(())
    }

    /// Overwrites the headers that changed, where all of them lie in the frame as they leave.
    fn rewrite(&self, ctx: &mut Context, changed: Changes) {
        let program = self.program;
        let unchanged = std::mem::take(&mut ctx.unchanged);
        let (frame, phv) = ctx.output_in_place();
        if changed != 0 {
            for (position, h) in program.deparse_order.iter().enumerate() {
                if changed & h.change != 0 && phv[h.base as usize] != 0 {
                    let at = unchanged.place(position);
                    if let Some(here) = frame.get_mut(at..) {
                        program.kinds[h.kind].emit(phv, h.base, here);
                    }
                }
            }
        }
        debug_assert!(
            program
                .deparse_order
                .iter()
                .enumerate()
                .filter(|(_, h)| phv[h.base as usize] != 0)
                .all(|(position, h)| {
                    let io = &program.kinds[h.kind];
                    let mut written = vec![0; io.length(phv, h.base)];
                    io.emit(phv, h.base, &mut written);
                    frame[unchanged.place(position)..].starts_with(&written)
                }),
            "a header in the frame differs from the PHV"
        );
        ctx.unchanged = unchanged;
    }
}
