//! Checksums to update and the deparser as a function.

use super::emitter::{Emitter, callback};
use super::untranslated::Result;
use crate::context::Context;
use crate::slot::RESHAPED;
use crate::unchanged::Unchanged;
use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use std::mem::offset_of;

impl Emitter<'_, '_> {
    /// Writes the update of checksums, the deparser's code, and the headers. The function returns 1 if
    /// it has overwritten the headers that changed where they lie in the frame.
    pub fn deparser(&mut self) -> Result<()> {
        let program = self.source.program;
        self.update(&program.update)?;
        let ended = self.b.create_block();
        let exits = self.exits(ended, None);
        self.code(program.deparser_code, exits)?;
        self.join(ended);

        let changed = self.unchanged_word(Unchanged::CHANGED);
        let bytes = self.unchanged_word(Unchanged::BYTES);
        let parsed = self.context_word(offset_of!(Context, parsed));
        let all = self.b.create_block();
        let reshaped = self.b.ins().band_imm(changed, RESHAPED.cast_signed());
        self.leave_if(reshaped, all);
        let others = self.b.ins().icmp(IntCC::NotEqual, bytes, parsed);
        self.leave_if(others, all);
        for (position, header) in program.deparse_order.iter().enumerate() {
            let done = self.b.create_block();
            let bit = self.b.ins().band_imm(changed, header.change.cast_signed());
            let unchanged = self.compare(IntCC::Equal, bit, 0);
            self.leave_if(unchanged, done);
            let valid = self.word(header.base)?;
            let invalid = self.compare(IntCC::Equal, valid, 0);
            self.leave_if(invalid, done);
            let io = &program.kinds[header.kind];
            if io.is_variable() {
                self.ask(callback!(write_header), position as u64);
            } else {
                let place = self.place_of(position, io.bytes, done);
                self.write_header(io, place, header.base)?;
            }
            self.join(done);
        }
        let one = self.number(1);
        self.b.ins().return_(&[one]);

        self.begin(all);
        self.ask(callback!(write_headers), 0);
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
        Ok(())
    }
}
