//! Writes a packet's valid headers before its payload.

use super::machine::Machine;
use super::outcome::Outcome;
use crate::api::Externs;
use crate::context::Context;
use crate::slot::Changes;
use crate::trace::{Stage, Step};

impl<E: Externs> Machine<'_, E> {
    /// Updates checksums, runs the deparser's externs and writes the valid headers, in order, before
    /// the payload. A failed assertion or a fault is noted in the context.
    pub fn deparse(&mut self, ctx: &mut Context) {
        let program = self.program;
        self.update(ctx);
        self.report(Step::Enter(Stage::Deparser));
        self.run(ctx, program.deparser_code).note(ctx);
        self.report_emitted(ctx);
        match ctx.unchanged.changed_in_place(ctx.parsed) {
            Some(changed) => self.rewrite(ctx, changed),
            None => self.write_all(ctx).note(ctx),
        }
        self.report(Step::Leave(Stage::Deparser));
    }

    /// Writes all valid headers.
    pub fn write_all(&self, ctx: &mut Context) -> Outcome {
        match self.write_headers(ctx) {
            Some(()) => Outcome::Done,
            None => {
                debug_assert!(false, "the headers do not fit before the payload");
                Outcome::Fault
            }
        }
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
        if changed != 0 {
            for (position, h) in program.deparse_order.iter().enumerate() {
                if changed & h.change != 0 && ctx.phv[h.base as usize] != 0 {
                    self.rewrite_header(ctx, position);
                }
            }
        }
        ctx.output_in_place();
        debug_assert!(self.is_in_frame(ctx), "{IN_FRAME}");
    }

    /// Overwrites the header at a position of the deparser's order where it lies in the frame.
    pub fn rewrite_header(&self, ctx: &mut Context, position: usize) {
        let program = self.program;
        let at = ctx.unchanged.place(position);
        let (frame, phv) = ctx.parts();
        if let Some(h) = program.deparse_order.get(position)
            && let Some(here) = frame.get_mut(at..)
        {
            program.kinds[h.kind].emit(phv, h.base, here);
        }
    }

    /// Whether the frame has all valid headers as they are in the PHV.
    pub fn is_in_frame(&self, ctx: &mut Context) -> bool {
        let program = self.program;
        let unchanged = ctx.unchanged.clone();
        let (frame, phv) = ctx.parts();
        let headers = program.deparse_order.iter().enumerate();
        let mut valid = headers.filter(|(_, h)| phv[h.base as usize] != 0);
        valid.all(|(position, h)| {
            let io = &program.kinds[h.kind];
            let mut written = vec![0; io.length(phv, h.base)];
            io.emit(phv, h.base, &mut written);
            frame[unchanged.place(position)..].starts_with(&written)
        })
    }
}

/// What [`Machine::is_in_frame`] finds.
pub(crate) const IN_FRAME: &str = "a header in the frame differs from the PHV";
