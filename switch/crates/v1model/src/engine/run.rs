//! Executes code.

use super::machine::Machine;
use super::outcome::Outcome;
use crate::api::Externs;
use crate::context::Context;
use crate::ops::{Code, MAX_LOOP_ITERATIONS, Op};
use crate::wide::sext64;

impl<E: Externs> Machine<'_, E> {
    /// Runs code from its start to its end.
    #[inline]
    pub fn run(&mut self, ctx: &mut Context, code: Code) -> Outcome {
        if code.is_empty() {
            return Outcome::Done;
        }
        ctx.unchanged.note(code.changes);
        self.run_ops(ctx, code)
    }

    /// Most operations work on single words of the PHV and nothing else. They have a small loop of
    /// their own, which needs neither the registers nor the stack that the others need.
    fn run_ops(&mut self, ctx: &mut Context, code: Code) -> Outcome {
        let program = self.program;
        // Jumps stay within the code.
        let ops = &program.ops[..code.end as usize];
        let mut pc = code.start;
        let mut iterations_left = MAX_LOOP_ITERATIONS;
        loop {
            let w = &mut ctx.phv[..];
            let other = loop {
                let Some(op) = ops.get(pc as usize) else {
                    return Outcome::Done;
                };
                self.report_primitive(pc);
                pc += 1;
                macro_rules! two {
                    ($d:expr, $a:expr, $b:expr, $f:expr) => {
                        w[$d as usize] = $f(w[$a as usize], w[$b as usize])
                    };
                }
                match *op {
                    Op::Copy { d, a } => w[d as usize] = w[a as usize],
                    Op::CopyW { d, a, n: 2 } => {
                        let (a, d) = (a as usize, d as usize);
                        let (low, high) = (w[a], w[a + 1]);
                        (w[d], w[d + 1]) = (low, high);
                    }
                    Op::CopyW { d, a, n } => {
                        let a = a as usize;
                        w.copy_within(a..a + n as usize, d as usize);
                    }
                    Op::ExtendW {
                        d,
                        a,
                        from: 1,
                        n: 2,
                        signed: false,
                    } => {
                        let d = d as usize;
                        (w[d], w[d + 1]) = (w[a as usize], 0);
                    }
                    Op::Add { d, a, b } => two!(d, a, b, u64::wrapping_add),
                    Op::Sub { d, a, b } => two!(d, a, b, u64::wrapping_sub),
                    Op::Mul { d, a, b } => two!(d, a, b, u64::wrapping_mul),
                    Op::And { d, a, b } => two!(d, a, b, |x, y| x & y),
                    Op::Or { d, a, b } => two!(d, a, b, |x, y| x | y),
                    Op::Xor { d, a, b } => two!(d, a, b, |x, y| x ^ y),
                    Op::Not { d, a } => w[d as usize] = !w[a as usize],
                    Op::Shl { d, a, b } => two!(d, a, b, shl),
                    Op::Shr { d, a, b } => two!(d, a, b, shr),
                    Op::Sar { d, a, b } => two!(d, a, b, sar),
                    Op::Div { d, a, b } => two!(d, a, b, |x: u64, y| x.checked_div(y).unwrap_or(0)),
                    Op::Rem { d, a, b } => two!(d, a, b, |x: u64, y| x.checked_rem(y).unwrap_or(0)),
                    Op::Sext { d, a, bits } => {
                        w[d as usize] = sext64(w[a as usize], u32::from(bits));
                    }
                    Op::Eq { d, a, b } => two!(d, a, b, |x, y| u64::from(x == y)),
                    Op::Ne { d, a, b } => two!(d, a, b, |x, y| u64::from(x != y)),
                    Op::Lt { d, a, b } => two!(d, a, b, |x, y| u64::from(x < y)),
                    Op::Le { d, a, b } => two!(d, a, b, |x, y| u64::from(x <= y)),
                    Op::LtS { d, a, b } => two!(d, a, b, |x, y| u64::from((x as i64) < y as i64)),
                    Op::LeS { d, a, b } => two!(d, a, b, |x, y| u64::from(x as i64 <= y as i64)),
                    Op::IsZero { d, a } => w[d as usize] = u64::from(w[a as usize] == 0),
                    Op::NonZero { d, a } => w[d as usize] = u64::from(w[a as usize] != 0),
                    Op::Select { d, c, a, b } => {
                        let from = if w[c as usize] != 0 { a } else { b };
                        w[d as usize] = w[from as usize];
                    }
                    Op::Jump { to } => pc = to,
                    Op::JumpIfZero { a, to } => {
                        if w[a as usize] == 0 {
                            pc = to;
                        }
                    }
                    _ => break op,
                }
            };
            let outcome = match *other {
                Op::Extract { header } => {
                    let outcome = self.extract_fixed(ctx, header);
                    if outcome == Outcome::Done {
                        self.report_extract(ctx, header);
                    }
                    outcome
                }
                Op::JumpBack { to } => {
                    if iterations_left == 0 {
                        return Outcome::Asserted;
                    }
                    iterations_left -= 1;
                    pc = to;
                    continue;
                }
                _ => self.step(ctx, other, &mut pc),
            };
            if outcome != Outcome::Done {
                return outcome;
            }
        }
    }

    /// Executes an operation that the fast loop does not handle. After [`Outcome::Done`] the run
    /// continues at `pc`. The most frequent groups come first: each group hands the operations of
    /// others to the next group.
    #[inline(never)]
    fn step(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        if E::STEPS {
            self.step_reported(ctx, op, pc)
        } else {
            self.step_state(ctx, op, pc)
        }
    }
}

fn shl(value: u64, by: u64) -> u64 {
    if by < 64 { value << by } else { 0 }
}

fn shr(value: u64, by: u64) -> u64 {
    if by < 64 { value >> by } else { 0 }
}

fn sar(value: u64, by: u64) -> u64 {
    ((value as i64) >> by.min(63)) as u64
}
