//! Calculations: the bytes that checksums and hashes are computed over.

use crate::context::Context;
use crate::hash::Algorithm;
use crate::header_io::HeaderIo;
use crate::layout::Field;

/// One input of a calculation. Inputs of an invalid header are left out.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// A field; `valid` is its header's validity slot.
    Field { field: Field, valid: u32 },
    /// A variable-length field; `length` is the slot with its length in bits.
    Variable {
        field: Field,
        length: u32,
        valid: u32,
    },
    /// Constant bits.
    Constant { bits: u32, value: Vec<u64> },
    /// A whole header (a whole number of bytes).
    Header { base: u32, kind: usize },
}

/// A compiled calculation.
#[derive(Debug, Clone)]
pub(crate) struct Calculation {
    pub algorithm: Algorithm,
    pub inputs: Box<[Input]>,
    /// The unparsed rest of the packet follows the inputs.
    pub payload: bool,
}

/// Concatenates bit strings.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Up to 7 bits not yet written, right-aligned.
    pending: u64,
    count: u32,
}

impl BitWriter<'_> {
    #[inline]
    fn push(&mut self, value: u64, bits: u32) {
        if bits + self.count > 64 {
            let low = bits - 32;
            self.push(value >> low, 32);
            self.push(value & crate::wide::mask64(low), low);
            return;
        }
        let all = if bits == 64 {
            value
        } else {
            (self.pending << bits) | value
        };
        let total = self.count + bits;
        let whole = total / 8;
        let rest = total % 8;
        if whole > 0 {
            let bytes = (all >> rest).to_be_bytes();
            self.out.extend_from_slice(&bytes[8 - whole as usize..]);
        }
        self.pending = all & crate::wide::mask64(rest);
        self.count = rest;
    }

    fn push_limbs(&mut self, limbs: &[u64], bits: u32) {
        let mut left = bits;
        for limb in limbs.iter().rev() {
            let take = if left.is_multiple_of(64) {
                64
            } else {
                left % 64
            };
            self.push(limb & crate::wide::mask64(take), take);
            left -= take;
        }
    }

    fn finish(mut self) {
        if self.count > 0 {
            let pad = 8 - self.count;
            self.push(0, pad);
        }
    }
}

impl Calculation {
    /// Bytes the inputs take at most, without the payload.
    pub fn max_bytes(&self, io: &[HeaderIo]) -> usize {
        let bits: usize = self
            .inputs
            .iter()
            .map(|input| match input {
                Input::Field { field, .. } | Input::Variable { field, .. } => field.bits as usize,
                Input::Constant { bits, .. } => *bits as usize,
                Input::Header { kind, .. } => io[*kind].max_bytes() * 8,
            })
            .sum();
        bits.div_ceil(8) + 1
    }

    /// The calculation's value for this packet.
    pub fn compute(&self, ctx: &mut Context, io: &[HeaderIo]) -> u64 {
        let mut scratch = std::mem::take(&mut ctx.scratch);
        scratch.clear();
        let mut bits = BitWriter {
            out: &mut scratch,
            pending: 0,
            count: 0,
        };
        for input in &self.inputs {
            match input {
                Input::Field { field, valid } => {
                    if ctx.words[*valid as usize] == 0 {
                        continue;
                    }
                    let slot = field.slot as usize;
                    if field.bits <= 64 {
                        bits.push(ctx.words[slot], field.bits);
                    } else {
                        let limbs = &ctx.words[slot..slot + field.limbs() as usize];
                        bits.push_limbs(limbs, field.bits);
                    }
                }
                Input::Variable {
                    field,
                    length,
                    valid,
                } => {
                    if ctx.words[*valid as usize] == 0 {
                        continue;
                    }
                    let n = ctx.words[*length as usize].min(u64::from(field.bits)) as u32;
                    let slot = field.slot as usize;
                    let limbs = &ctx.words[slot..slot + crate::wide::limbs(n) as usize];
                    bits.push_limbs(limbs, n);
                }
                Input::Constant { bits: n, value } => bits.push_limbs(value, *n),
                Input::Header { base, kind } => {
                    if ctx.words[*base as usize] == 0 {
                        continue;
                    }
                    // Headers start on a byte; what came before is padded.
                    let pad = (8 - bits.count) % 8;
                    bits.push(0, pad);
                    let at = bits.out.len();
                    let length = io[*kind].length(&ctx.words, *base);
                    bits.out.resize(at + length, 0);
                    io[*kind].emit(&ctx.words, *base, &mut bits.out[at..]);
                }
            }
        }
        bits.finish();
        if self.payload {
            scratch.extend_from_slice(ctx.payload());
        }
        let value = self.algorithm.compute(&scratch);
        ctx.scratch = scratch;
        value
    }
}
