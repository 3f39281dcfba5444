//! Arithmetic on values of several words.

use super::machine::Machine;
use super::outcome::Outcome;
use crate::api::Externs;
use crate::context::Context;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide;

impl<E: Externs> Machine<'_, E> {
    /// Executes an operation of this group, or hands it to the next group.
    #[inline(always)]
    pub(super) fn step_arithmetic(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        let w = &mut ctx.phv[..];
        match *op {
            Op::AddW { d, a, b, n } => three(wide::add, w, d, a, b, n),
            Op::SubW { d, a, b, n } => three(wide::sub, w, d, a, b, n),
            Op::MulW { d, a, b, n } => three(wide::mul, w, d, a, b, n),
            Op::AndW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x & y),
            Op::OrW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x | y),
            Op::XorW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x ^ y),
            Op::NotW { d, a, n } => bitwise(w, d, a, a, n, |x, _| !x),
            Op::ShlW { d, a, b, n } => {
                let amount = w[b as usize];
                wide::shl(w, d as usize, a as usize, amount, n as usize);
            }
            Op::ShrW { d, a, b, n, signed } => {
                let amount = w[b as usize];
                wide::shr(w, d as usize, a as usize, amount, n as usize, signed);
            }
            Op::DivW {
                d,
                a,
                b,
                n,
                signed,
                rest,
            } => wide::divide(
                w, d as usize, a as usize, b as usize, n as usize, signed, rest,
            ),
            Op::ExtendW {
                d,
                a,
                from,
                n,
                signed,
            } => wide::extend(w, d as usize, a as usize, from as usize, n as usize, signed),
            Op::MaskW { d, n, bits } => wide::mask(w, d as usize, n as usize, u32::from(bits)),
            Op::SextW { d, n, bits } => wide::sext(w, d as usize, n as usize, u32::from(bits)),
            Op::ClampW {
                d,
                n,
                bits,
                signed,
                to_signed,
            } => {
                let clamp = if to_signed {
                    wide::clamp_signed
                } else {
                    wide::clamp_unsigned
                };
                clamp(w, d as usize, n as usize, u32::from(bits), signed);
            }
            Op::EqW { d, a, b, n } => {
                w[d as usize] = u64::from(wide::eq(w, a as usize, b as usize, n as usize));
            }
            Op::LtW { d, a, b, n, signed } => {
                let less = wide::lt(w, a as usize, b as usize, n as usize, signed);
                w[d as usize] = u64::from(less);
            }
            Op::NonZeroW { d, a, n } => {
                w[d as usize] = u64::from(!wide::is_zero(w, a as usize, n as usize));
            }
            Op::SelectW { d, c, a, b, n } => {
                let from = if w[c as usize] != 0 { a } else { b } as usize;
                w.copy_within(from..from + n as usize, d as usize);
            }
            Op::Saturate { d, a, n } => {
                let fits = wide::is_zero(w, a as usize + 1, n as usize - 1);
                w[d as usize] = if fits { w[a as usize] } else { u64::MAX };
            }
            _ => return self.step_headers(ctx, op, pc),
        }
        Outcome::Done
    }
}

fn three(
    f: fn(&mut [u64], usize, usize, usize, usize),
    w: &mut [u64],
    d: Slot,
    a: Slot,
    b: Slot,
    n: u16,
) {
    f(w, d as usize, a as usize, b as usize, n as usize);
}

fn bitwise(w: &mut [u64], d: Slot, a: Slot, b: Slot, n: u16, f: impl Fn(u64, u64) -> u64) {
    for i in 0..n as usize {
        w[d as usize + i] = f(w[a as usize + i], w[b as usize + i]);
    }
}
