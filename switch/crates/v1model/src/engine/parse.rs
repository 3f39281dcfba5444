//! Runs the parser: its states, and the operations that extract headers.

use super::headers::claim_element;
use super::machine::Machine;
use super::outcome::Outcome;
use super::phv::to_index;
use crate::api::Externs;
use crate::context::Context;
use crate::header_io::read_bits;
use crate::ops::Op;
use crate::program::{HeaderInfo, Program};
use crate::trace::{Stage, Step};

impl<E: Externs> Machine<'_, E> {
    /// Runs the parser over the context's frame and verifies checksums. The parser error, and whether
    /// a checksum is wrong, are in the context then.
    pub fn parse(&mut self, ctx: &mut Context, max_states: u32) {
        let program = self.program;
        self.report(Step::Enter(Stage::Parser));
        ctx.parser_error = self.states(ctx, max_states);
        if ctx.parser_error != program.errors.none {
            self.report(Step::ParserError(program.labels.error(ctx.parser_error)));
        }
        self.report(Step::Leave(Stage::Parser));
        ctx.checksum_error = self.verify(ctx);
        if ctx.checksum_error {
            self.report(Step::ChecksumError);
        }
    }

    /// Goes through the parser's states; returns the parser error code. A failed assertion or a fault
    /// ends it and is noted in the context.
    fn states(&mut self, ctx: &mut Context, max_states: u32) -> u64 {
        let program = self.program;
        let mut state = program.start_state;
        let mut left = max_states;
        while let Some(current) = program.states.get(state as usize) {
            if left == 0 {
                return program.errors.parser_timeout;
            }
            left -= 1;
            self.report_state(state);
            match self.run(ctx, current.code) {
                Outcome::Done | Outcome::Exit => {}
                Outcome::Error(code) => return code,
                outcome @ (Outcome::Asserted | Outcome::Fault) => {
                    outcome.note(ctx);
                    break;
                }
            }
            state = current
                .cases
                .iter()
                .find(|case| match case.value_set {
                    None => case
                        .tests
                        .iter()
                        .all(|t| ctx.phv[t.slot as usize] & t.mask == t.value),
                    Some(place) => self.value_sets.contains(place, &ctx.phv),
                })
                .map_or(current.default, |case| case.next);
        }
        program.errors.none
    }

    /// Extracts a header without a variable field.
    #[inline]
    pub(super) fn extract_fixed(&self, ctx: &mut Context, header: u16) -> Outcome {
        let program = self.program;
        if extract(ctx, program, &program.headers[header as usize]) {
            Outcome::Done
        } else {
            Outcome::Error(program.errors.packet_too_short)
        }
    }

    /// Executes an operation of this group. Operations that `run` handles do not come here.
    #[inline(always)]
    pub(super) fn step_parse(&mut self, ctx: &mut Context, op: &Op) -> Outcome {
        let program = self.program;
        let w = &mut ctx.phv[..];
        let error = match *op {
            Op::ExtractNext { stack } => extract_next(ctx, program, stack, None),
            Op::ExtractVariable { header, bits } => {
                let bits = w[bits as usize];
                extract_variable(ctx, program, &program.headers[header as usize], bits)
            }
            Op::ExtractNextVariable { stack, bits } => {
                let bits = w[bits as usize];
                extract_next(ctx, program, stack, Some(bits))
            }
            Op::Advance { a } => {
                let bits = w[a as usize];
                advance(ctx, program, bits)
            }
            Op::Lookahead { d, skip_bits, bits } => {
                let (data, phv) = ctx.unparsed();
                if data.len() * 8 < skip_bits as usize + usize::from(bits) {
                    Some(program.errors.packet_too_short)
                } else {
                    read_bits(data, skip_bits as usize, u32::from(bits), phv, d as usize);
                    None
                }
            }
            Op::Verify { a, error } => (w[a as usize] == 0).then_some(w[error as usize]),
            Op::NeedLast { stack } => {
                let next = program.stacks[stack as usize].next;
                (w[next as usize] == 0).then_some(program.errors.stack_out_of_bounds)
            }
            _ => {
                debug_assert!(false, "no group executes {op:?}");
                return Outcome::Fault;
            }
        };
        error.map_or(Outcome::Done, Outcome::Error)
    }
}

/// Moves the parser's position by `bits`; returns the parser error if there is one.
fn advance(ctx: &mut Context, program: &Program, bits: u64) -> Option<u64> {
    if !bits.is_multiple_of(8) {
        return Some(program.errors.parser_invalid_argument);
    }
    let left = ctx.frame_len().saturating_sub(ctx.parsed);
    match usize::try_from(bits / 8) {
        Ok(bytes) if bytes <= left => {
            ctx.parsed += bytes;
            None
        }
        _ => Some(program.errors.packet_too_short),
    }
}

/// Extracts a header at the parser's position; false if the frame is too short.
#[inline]
fn extract(ctx: &mut Context, program: &Program, h: &HeaderInfo) -> bool {
    let io = &program.kinds[h.kind];
    let (data, phv) = ctx.unparsed();
    if data.len() < io.bytes {
        return false;
    }
    io.extract(data, phv, h.base);
    phv[h.base as usize] = 1;
    ctx.unchanged.found(h.position, ctx.parsed, io.bytes);
    ctx.parsed += io.bytes;
    true
}

/// Extracts a header with a variable field of `bits` bits. Returns the parser error if there is
/// one, in BMv2's order of tests.
fn extract_variable(
    ctx: &mut Context,
    program: &Program,
    h: &HeaderInfo,
    bits: u64,
) -> Option<u64> {
    let errors = &program.errors;
    // BMv2 reads an int, which is at most 2^31 - 1, and that is not a multiple of 8.
    if bits > i32::MAX as u64 || !bits.is_multiple_of(8) {
        return Some(errors.parser_invalid_argument);
    }
    let io = &program.kinds[h.kind];
    let (data, phv) = ctx.unparsed();
    let length = to_index(bits / 8).saturating_add(io.bytes);
    if data.len() < length {
        return Some(errors.packet_too_short);
    }
    if length > io.max_bytes() {
        return Some(errors.header_too_short);
    }
    io.extract_variable(data, phv, h.base, bits as u32);
    phv[h.base as usize] = 1;
    ctx.unchanged.found(h.position, ctx.parsed, length);
    ctx.parsed += length;
    None
}

/// Extracts the next element of a stack, with a variable field of `bits` bits if it has one;
/// returns the parser error if there is one.
fn extract_next(
    ctx: &mut Context,
    program: &Program,
    stack: u16,
    bits: Option<u64>,
) -> Option<u64> {
    let s = &program.stacks[stack as usize];
    let next = to_index(ctx.phv[s.next as usize]);
    let Some(&element) = s.elements.get(next) else {
        return Some(program.errors.stack_out_of_bounds);
    };
    let h = &program.headers[element as usize];
    let error = match bits {
        None => (!extract(ctx, program, h)).then_some(program.errors.packet_too_short),
        Some(bits) => extract_variable(ctx, program, h, bits),
    };
    if error.is_none() {
        let changes = claim_element(program, &mut ctx.phv, s, next);
        ctx.unchanged.note(changes);
        ctx.phv[s.next as usize] += 1;
    }
    error
}
