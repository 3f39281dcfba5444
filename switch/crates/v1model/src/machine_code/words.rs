//! Operations on words.

use super::emitter::Emitter;
use super::untranslated::Result;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::mask64;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

/// Most words of a value whose operations are written out.
const FEW: u16 = 8;

impl Emitter<'_, '_> {
    /// Writes an operation that works on words only; false if it is another one, or one on so many
    /// words that the interpreter executes it.
    pub fn words_op(&mut self, op: &Op) -> Result<bool> {
        match *op {
            Op::Copy { d, a } => {
                let value = self.word(a)?;
                self.set_word(d, value)?;
            }
            Op::Add { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().iadd(x, y))?,
            Op::Sub { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().isub(x, y))?,
            Op::Mul { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().imul(x, y))?,
            Op::And { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().band(x, y))?,
            Op::Or { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().bor(x, y))?,
            Op::Xor { d, a, b } => self.two(d, a, b, |e, x, y| e.b.ins().bxor(x, y))?,
            Op::Not { d, a } => {
                let value = self.word(a)?;
                let value = self.b.ins().bnot(value);
                self.set_word(d, value)?;
            }
            Op::Shl { d, a, b } => self.shift(d, a, b, |e, x, y| e.b.ins().ishl(x, y))?,
            Op::Shr { d, a, b } => self.shift(d, a, b, |e, x, y| e.b.ins().ushr(x, y))?,
            Op::Sar { d, a, b } => self.two(d, a, b, |e, x, y| {
                let most = e.number(63);
                let y = e.b.ins().umin(y, most);
                e.b.ins().sshr(x, y)
            })?,
            Op::Div { d, a, b } => self.divide(d, a, b, |e, x, y| e.b.ins().udiv(x, y))?,
            Op::Rem { d, a, b } => self.divide(d, a, b, |e, x, y| e.b.ins().urem(x, y))?,
            Op::Sext { d, a, bits } => {
                let value = self.word(a)?;
                let value = self.sign_extended(value, bits.into());
                self.set_word(d, value)?;
            }
            Op::Eq { d, a, b } => self.relation(d, a, b, IntCC::Equal)?,
            Op::Ne { d, a, b } => self.relation(d, a, b, IntCC::NotEqual)?,
            Op::Lt { d, a, b } => self.relation(d, a, b, IntCC::UnsignedLessThan)?,
            Op::Le { d, a, b } => self.relation(d, a, b, IntCC::UnsignedLessThanOrEqual)?,
            Op::LtS { d, a, b } => self.relation(d, a, b, IntCC::SignedLessThan)?,
            Op::LeS { d, a, b } => self.relation(d, a, b, IntCC::SignedLessThanOrEqual)?,
            Op::IsZero { d, a } => self.zero(d, a, IntCC::Equal)?,
            Op::NonZero { d, a } => self.zero(d, a, IntCC::NotEqual)?,
            Op::Select { d, c, a, b } => self.select(d, c, a, b, 1)?,
            _ => return self.wide_op(op),
        }
        Ok(true)
    }

    /// Writes an operation on a few words.
    fn wide_op(&mut self, op: &Op) -> Result<bool> {
        match *op {
            Op::CopyW { d, a, n } if n <= FEW => {
                let values = self.all(a, n)?;
                self.set_all(d, values)?;
            }
            Op::AndW { d, a, b, n } if n <= FEW => {
                self.each(d, a, b, n, |e, x, y| e.b.ins().band(x, y))?;
            }
            Op::OrW { d, a, b, n } if n <= FEW => {
                self.each(d, a, b, n, |e, x, y| e.b.ins().bor(x, y))?;
            }
            Op::XorW { d, a, b, n } if n <= FEW => {
                self.each(d, a, b, n, |e, x, y| e.b.ins().bxor(x, y))?;
            }
            Op::NotW { d, a, n } if n <= FEW => {
                self.each(d, a, a, n, |e, x, _| e.b.ins().bnot(x))?;
            }
            Op::AddW { d, a, b, n } if n <= FEW => self.add_wide(d, a, b, n)?,
            Op::SubW { d, a, b, n } if n <= FEW => self.sub_wide(d, a, b, n)?,
            Op::ExtendW {
                d,
                a,
                from,
                n,
                signed,
            } if n <= FEW && (1..=n).contains(&from) => {
                let mut values = self.all(a, from)?;
                let fill = match values.last() {
                    Some(&top) if signed => self.b.ins().sshr_imm(top, 63),
                    _ => self.number(0),
                };
                values.resize(n.into(), fill);
                self.set_all(d, values)?;
            }
            Op::MaskW { d, n, bits } if n <= FEW => {
                for (i, slot) in (0..u32::from(n)).zip(d..) {
                    let mask = mask64(u32::from(bits).saturating_sub(64 * i));
                    if mask != u64::MAX {
                        let value = self.word(slot)?;
                        let value = self.b.ins().band_imm(value, mask.cast_signed());
                        self.set_word(slot, value)?;
                    }
                }
            }
            Op::EqW { d, a, b, n } if (1..=FEW).contains(&n) => {
                let (a, b) = (self.all(a, n)?, self.all(b, n)?);
                let differing = a.into_iter().zip(b).map(|(x, y)| self.b.ins().bxor(x, y));
                let differing: Vec<Value> = differing.collect();
                let any = self.any(&differing);
                let equal = self.compare(IntCC::Equal, any, 0);
                self.set_truth(d, equal)?;
            }
            Op::LtW { d, a, b, n, signed } if (1..=FEW).contains(&n) => {
                self.less_wide(d, a, b, n, signed)?;
            }
            Op::NonZeroW { d, a, n } if (1..=FEW).contains(&n) => {
                let values = self.all(a, n)?;
                let any = self.any(&values);
                let any = self.compare(IntCC::NotEqual, any, 0);
                self.set_truth(d, any)?;
            }
            Op::SelectW { d, c, a, b, n } if n <= FEW => self.select(d, c, a, b, n)?,
            Op::Saturate { d, a, n } if (2..=FEW).contains(&n) => {
                let values = self.all(a, n)?;
                let any = self.any(&values[1..]);
                let most = self.number(u64::MAX);
                let value = self.b.ins().select(any, most, values[0]);
                self.set_word(d, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The words from a slot on.
    fn all(&mut self, a: Slot, n: u16) -> Result<Vec<Value>> {
        (a..).take(n.into()).map(|slot| self.word(slot)).collect()
    }

    /// Sets the words from a slot on.
    fn set_all(&mut self, d: Slot, values: Vec<Value>) -> Result<()> {
        let mut words = (d..).zip(values);
        words.try_for_each(|(slot, value)| self.set_word(slot, value))
    }

    /// The words ORed: not 0 if one is not.
    fn any(&mut self, values: &[Value]) -> Value {
        let one = values.iter().copied().reduce(|x, y| self.b.ins().bor(x, y));
        one.unwrap_or_else(|| self.number(0))
    }

    fn two(
        &mut self,
        d: Slot,
        a: Slot,
        b: Slot,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Result<()> {
        let (a, b) = (self.word(a)?, self.word(b)?);
        let value = f(self, a, b);
        self.set_word(d, value)
    }

    fn each(
        &mut self,
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Result<()> {
        (0..Slot::from(n)).try_for_each(|i| self.two(d + i, a + i, b + i, &f))
    }

    /// A shift; zero from 64 on.
    fn shift(
        &mut self,
        d: Slot,
        a: Slot,
        b: Slot,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Result<()> {
        let constant = self.constant(b);
        self.two(d, a, b, |e, x, y| match constant {
            Some(0..=63) => f(e, x, y),
            Some(_) => e.number(0),
            None => {
                let shifted = f(e, x, y);
                let zero = e.number(0);
                let fits = e.compare(IntCC::UnsignedLessThan, y, 64);
                e.b.ins().select(fits, shifted, zero)
            }
        })
    }

    /// A division; zero by zero.
    fn divide(
        &mut self,
        d: Slot,
        a: Slot,
        b: Slot,
        f: impl Fn(&mut Self, Value, Value) -> Value,
    ) -> Result<()> {
        let constant = self.constant(b);
        self.two(d, a, b, |e, x, y| match constant {
            Some(0) => e.number(0),
            Some(_) => f(e, x, y),
            None => {
                let (zero, one) = (e.number(0), e.number(1));
                let divisor = e.b.ins().select(y, y, one);
                let quotient = f(e, x, divisor);
                e.b.ins().select(y, quotient, zero)
            }
        })
    }

    /// The low `bits` bits with their sign.
    fn sign_extended(&mut self, value: Value, bits: u32) -> Value {
        if bits == 0 || bits >= 64 {
            return value;
        }
        let shift = i64::from(64 - bits);
        let high = self.b.ins().ishl_imm(value, shift);
        self.b.ins().sshr_imm(high, shift)
    }

    fn relation(&mut self, d: Slot, a: Slot, b: Slot, relation: IntCC) -> Result<()> {
        let (a, b) = (self.word(a)?, self.word(b)?);
        let truth = self.b.ins().icmp(relation, a, b);
        self.set_truth(d, truth)
    }

    fn zero(&mut self, d: Slot, a: Slot, relation: IntCC) -> Result<()> {
        let a = self.word(a)?;
        let truth = self.compare(relation, a, 0);
        self.set_truth(d, truth)
    }

    fn select(&mut self, d: Slot, c: Slot, a: Slot, b: Slot, n: u16) -> Result<()> {
        let condition = self.truth(c)?;
        let (a, b) = (self.all(a, n)?, self.all(b, n)?);
        let values = a.into_iter().zip(b);
        let values = values.map(|(a, b)| self.b.ins().select(condition, a, b));
        let values = values.collect();
        self.set_all(d, values)
    }

    fn add_wide(&mut self, d: Slot, a: Slot, b: Slot, n: u16) -> Result<()> {
        let mut carry = None;
        for i in 0..Slot::from(n) {
            let (x, y) = (self.word(a + i)?, self.word(b + i)?);
            let (mut sum, mut over) = self.b.ins().uadd_overflow(x, y);
            if let Some(carry) = carry {
                let carry = self
                    .b
                    .ins()
                    .uextend(cranelift_codegen::ir::types::I64, carry);
                let (with_carry, more) = self.b.ins().uadd_overflow(sum, carry);
                over = self.b.ins().bor(over, more);
                sum = with_carry;
            }
            carry = Some(over);
            self.set_word(d + i, sum)?;
        }
        Ok(())
    }

    fn sub_wide(&mut self, d: Slot, a: Slot, b: Slot, n: u16) -> Result<()> {
        let mut borrow = None;
        for i in 0..Slot::from(n) {
            let (x, y) = (self.word(a + i)?, self.word(b + i)?);
            let mut under = self.b.ins().icmp(IntCC::UnsignedLessThan, x, y);
            let mut difference = self.b.ins().isub(x, y);
            if let Some(borrow) = borrow {
                let none_left = self.compare(IntCC::Equal, difference, 0);
                let more = self.b.ins().band(none_left, borrow);
                under = self.b.ins().bor(under, more);
                let borrow = self
                    .b
                    .ins()
                    .uextend(cranelift_codegen::ir::types::I64, borrow);
                difference = self.b.ins().isub(difference, borrow);
            }
            borrow = Some(under);
            self.set_word(d + i, difference)?;
        }
        Ok(())
    }

    fn less_wide(&mut self, d: Slot, a: Slot, b: Slot, n: u16, signed: bool) -> Result<()> {
        let (a, b) = (self.all(a, n)?, self.all(b, n)?);
        let mut less: Option<Value> = None;
        for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
            let top = i + 1 == usize::from(n);
            let relation = if top && signed {
                IntCC::SignedLessThan
            } else {
                IntCC::UnsignedLessThan
            };
            let here = self.b.ins().icmp(relation, x, y);
            less = Some(match less {
                None => here,
                Some(below) => {
                    let equal = self.b.ins().icmp(IntCC::Equal, x, y);
                    let below = self.b.ins().band(equal, below);
                    self.b.ins().bor(here, below)
                }
            });
        }
        match less {
            Some(less) => self.set_truth(d, less),
            None => Ok(()),
        }
    }
}
