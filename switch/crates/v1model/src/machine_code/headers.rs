//! Operations of the parser, and on whole headers.

use super::emitter::{Emitter, Exits};
use super::env::Env;
use super::untranslated::Result;
use crate::context::Context;
use crate::header_io::limb_places;
use crate::ops::{HeaderRef, Op};
use crate::program::HeaderInfo;
use crate::slot::{RESHAPED, Slot};
use crate::unchanged::{NO_POSITION, Unchanged};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlags, Value, types};
use std::mem::offset_of;

/// Most words of a header that are cleared by instructions.
const FEW: u16 = 32;

impl Emitter<'_, '_> {
    /// Writes an operation on a header whose place in the packet is fixed, or on the parser's
    /// position; false if it is another one.
    pub fn header_op(&mut self, op: &Op, exits: Exits) -> Result<bool> {
        let program = self.source.program;
        match *op {
            Op::Extract { header } => {
                let header = program.headers.get(usize::from(header)).copied();
                match header.filter(|header| !program.kinds[header.kind].is_variable()) {
                    Some(header) => self.extract(header, exits)?,
                    None => return Ok(false),
                }
            }
            Op::Advance { a } => self.advance(a, exits)?,
            Op::Lookahead { d, skip_bits, bits } => {
                let needed = (skip_bits as usize + usize::from(bits)).div_ceil(8);
                let (at, _) = self.need(needed, exits);
                let places = limb_places(skip_bits as usize, bits.into());
                for (slot, (bit, take)) in (d..).zip(places) {
                    let value = self.load_bits(at, bit, take, needed)?;
                    self.set_word(slot, value)?;
                }
            }
            Op::Verify { a, error } => {
                let (holds, error) = (self.word(a)?, self.word(error)?);
                let fails = self.compare(IntCC::Equal, holds, 0);
                self.fail_if(fails, exits, error);
            }
            Op::SetValid {
                h: HeaderRef::Fixed(base),
                words,
                kind,
            } if words <= FEW && !program.kinds[usize::from(kind)].is_variable() => {
                let bytes = program.kinds[usize::from(kind)].bytes;
                let valid = self.word(base)?;
                let done = self.b.create_block();
                self.leave_if(valid, done);
                let zero = self.number(0);
                for slot in (base + 1..).take(usize::from(words) - 1) {
                    self.set_word(slot, zero)?;
                }
                let one = self.number(1);
                self.set_word(base, one)?;
                self.reshape(bytes as i64);
                self.join(done);
            }
            Op::SetInvalid {
                h: HeaderRef::Fixed(base),
                kind,
            } if !program.kinds[usize::from(kind)].is_variable() => {
                let bytes = program.kinds[usize::from(kind)].bytes;
                let valid = self.word(base)?;
                let (invalid, done) = (self.compare(IntCC::Equal, valid, 0), self.b.create_block());
                self.leave_if(invalid, done);
                let zero = self.number(0);
                self.set_word(base, zero)?;
                self.reshape(-(bytes as i64));
                self.join(done);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Notes that headers were added or removed, and that the packet is so much longer.
    fn reshape(&mut self, bytes: i64) {
        self.note(RESHAPED);
        let at = offset_of!(Context, packet_length);
        let length = self.context_word(at);
        let length = self.b.ins().iadd_imm(length, bytes);
        self.set_context(at, length);
    }

    /// The address of the parser's position, and the position, if so many bytes follow.
    fn need(&mut self, bytes: usize, exits: Exits) -> (Value, Value) {
        let parsed = self.context_word(offset_of!(Context, parsed));
        let length = self.env_word(offset_of!(Env, length));
        let end = self.b.ins().iadd_imm(parsed, bytes as i64);
        let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, length);
        let error = self.number(self.source.program.errors.packet_too_short);
        self.fail_if(beyond, exits, error);
        let frame = self.env_word(offset_of!(Env, frame));
        (self.b.ins().iadd(frame, parsed), parsed)
    }

    fn extract(&mut self, header: HeaderInfo, exits: Exits) -> Result<()> {
        let io = &self.source.program.kinds[header.kind];
        let (at, parsed) = self.need(io.bytes, exits);
        self.read_header(io, at, header.base)?;
        let valid = self.number(1);
        self.set_word(header.base, valid)?;
        self.found(header.position, parsed, io.bytes);
        let parsed = self.b.ins().iadd_imm(parsed, io.bytes as i64);
        self.set_context(offset_of!(Context, parsed), parsed);
        Ok(())
    }

    /// Notes where a header was found, as [`Unchanged::found`] does.
    fn found(&mut self, position: u32, at: Value, length: usize) {
        let positions = self.source.program.deparse_order.len();
        if position == NO_POSITION || position as usize >= positions {
            return self.note(RESHAPED);
        }
        match self.next_position() {
            Some(next) if next <= position => {
                self.found_in_order(position, at, length);
                return self.set_next_position(Some(position + 1));
            }
            Some(_) => return self.note(RESHAPED),
            None => {}
        }
        let next = self.context_word(offset_of!(Context, unchanged) + Unchanged::NEXT);
        let known = self.known();
        let in_order = self.compare(IntCC::UnsignedLessThanOrEqual, next, position.into());
        let (yes, no) = (self.b.create_block(), self.b.create_block());
        let done = self.b.create_block();
        self.branch(in_order, yes, no);
        self.go_on(no);
        self.note(RESHAPED);
        self.jump(done);
        self.go_on(yes);
        self.found_in_order(position, at, length);
        self.jump(done);
        // Neither branch changes a word of the packet.
        self.begin_with(done, known);
    }

    /// Notes the place of a header that was found in the deparser's order.
    fn found_in_order(&mut self, position: u32, at: Value, length: usize) {
        let unchanged = offset_of!(Context, unchanged);
        let (next_at, bytes_at) = (unchanged + Unchanged::NEXT, unchanged + Unchanged::BYTES);
        let places = self.env_word(offset_of!(Env, places));
        let place = 8 * position as i32;
        self.b.ins().store(MemFlags::trusted(), at, places, place);
        let next = self.number(u64::from(position) + 1);
        self.set_context(next_at, next);
        let bytes = self.context_word(bytes_at);
        let bytes = self.b.ins().iadd_imm(bytes, length as i64);
        self.set_context(bytes_at, bytes);
    }

    fn advance(&mut self, a: Slot, exits: Exits) -> Result<()> {
        let errors = self.source.program.errors;
        let bits = self.word(a)?;
        let rest = self.b.ins().band_imm(bits, 7);
        let invalid = self.number(errors.parser_invalid_argument);
        self.fail_if(rest, exits, invalid);
        let bytes = self.b.ins().ushr_imm(bits, 3);
        let at = offset_of!(Context, parsed);
        let (parsed, length) = (
            self.context_word(at),
            self.env_word(offset_of!(Env, length)),
        );
        // The parser's position is at most the length.
        let left = self.b.ins().isub(length, parsed);
        let beyond = self.b.ins().icmp(IntCC::UnsignedGreaterThan, bytes, left);
        let short = self.number(errors.packet_too_short);
        self.fail_if(beyond, exits, short);
        let parsed = self.b.ins().iadd(parsed, bytes);
        self.set_context(at, parsed);
        Ok(())
    }

    /// The value of a word of [`Context`]'s tracking of unchanged headers.
    pub fn unchanged_word(&mut self, field: usize) -> Value {
        self.context_word(offset_of!(Context, unchanged) + field)
    }

    /// The address of the header at a position of the deparser's order, in the frame. Goes to `beyond` if
    /// its bytes are not in the frame.
    pub fn place_of(&mut self, position: usize, bytes: usize, beyond: Block) -> Value {
        let places = self.env_word(offset_of!(Env, places));
        let flags = MemFlags::trusted();
        let place = self
            .b
            .ins()
            .load(types::I64, flags, places, 8 * position as i32);
        let length = self.env_word(offset_of!(Env, length));
        let end = self.b.ins().iadd_imm(place, bytes as i64);
        let outside = self.b.ins().icmp(IntCC::UnsignedGreaterThan, end, length);
        self.leave_if(outside, beyond);
        let frame = self.env_word(offset_of!(Env, frame));
        self.b.ins().iadd(frame, place)
    }
}
