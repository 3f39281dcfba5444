//! Code that computes binary operators.

use super::code::Compiler;
use super::node::{BinOp, Kind, Node, Range};
use super::want::{Need, Val, Want};
use crate::error::LoadResult;
use crate::ops::Op;
use crate::wide::limbs;

impl Compiler<'_> {
    /// Computes `l op r`, whose range is `range`.
    pub(super) fn binary_value(
        &mut self,
        op: BinOp,
        l: &Node,
        r: &Node,
        range: Range,
        want: Want,
    ) -> LoadResult<Val> {
        match op {
            BinOp::And => self.and(l, r, range, want),
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Or | BinOp::Xor => {
                self.modular(op, l, r, want)
            }
            BinOp::Shl => {
                let b = self.word(r)?;
                let a = self.operand(l, want.of_operand(), want.limbs())?;
                let wide = |d, n| Op::ShlW { d, a, b, n };
                let slot = self.computed_on(want.limbs(), |d| Op::Shl { d, a, b }, wide)?;
                Ok(want.result(slot))
            }
            BinOp::Shr => self.shift_right(l, r, range, want),
            BinOp::Div | BinOp::Rem => self.quotient(op == BinOp::Rem, l, r, range),
            BinOp::LAnd | BinOp::LOr => {
                let a = self.value(l, Need::All)?.slot;
                let b = self.value(r, Need::All)?.slot;
                let slot = self.computed(|d| match op {
                    BinOp::LAnd => Op::And { d, a, b },
                    _ => Op::Or { d, a, b },
                })?;
                Ok(want.result(slot))
            }
            BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => {
                let slot = self.comparison(op, l, r)?;
                Ok(Val::exact(slot, 1, Range::BOOL))
            }
        }
    }

    /// Operators whose low bits depend on the low bits of the operands only.
    fn modular(&mut self, op: BinOp, l: &Node, r: &Node, want: Want) -> LoadResult<Val> {
        // For an exact result the low bits of the operands are not enough: it is extended.
        let n = want.limbs();
        let a = self.operand(l, want.of_operand(), n)?;
        let b = self.operand(r, want.of_operand(), n)?;
        let slot = self.computed_on(
            n,
            |d| match op {
                BinOp::Add => Op::Add { d, a, b },
                BinOp::Sub => Op::Sub { d, a, b },
                BinOp::Mul => Op::Mul { d, a, b },
                BinOp::Or => Op::Or { d, a, b },
                _ => Op::Xor { d, a, b },
            },
            |d, n| match op {
                BinOp::Add => Op::AddW { d, a, b, n },
                BinOp::Sub => Op::SubW { d, a, b, n },
                BinOp::Mul => Op::MulW { d, a, b, n },
                BinOp::Or => Op::OrW { d, a, b, n },
                _ => Op::XorW { d, a, b, n },
            },
        )?;
        Ok(want.result(slot))
    }

    fn and(&mut self, l: &Node, r: &Node, range: Range, want: Want) -> LoadResult<Val> {
        if let Some(value) = self.masked(l, r)? {
            return Ok(value);
        }
        let (l_need, r_need, exact) = if !range.neg && range.bits <= want.bits {
            let (l_need, r_need) = and_needs(l, r, range);
            (l_need, r_need, Some(range))
        } else {
            (want.of_operand(), want.of_operand(), want.exact)
        };
        let n = if exact == Some(range) {
            limbs(range.storage())
        } else {
            want.limbs()
        };
        let a = self.operand(l, l_need, n)?;
        let b = self.operand(r, r_need, n)?;
        let slot = self.computed_on(n, |d| Op::And { d, a, b }, |d, n| Op::AndW { d, a, b, n })?;
        Ok(Val {
            slot,
            limbs: n,
            exact,
        })
    }

    fn shift_right(&mut self, l: &Node, r: &Node, range: Range, want: Want) -> LoadResult<Val> {
        // Low k bits of a constant shift by s need the low k + s bits of the operand.
        let whole = l.range.storage();
        let wanted = match (&r.kind, want.need) {
            (Kind::Const(s), Need::Low(k)) if s.len() == 1 && s[0] < 1 << 16 => k + s[0] as u32,
            _ => whole,
        };
        let b = self.word(r)?;
        let (v, signed, exact) = if wanted < whole {
            (self.value(l, Need::Low(wanted))?, false, None)
        } else {
            (self.value(l, Need::All)?, l.range.neg, Some(range))
        };
        let (a, limbs) = (v.slot, v.limbs);
        let one = |d| match signed {
            false => Op::Shr { d, a, b },
            true => Op::Sar { d, a, b },
        };
        let wide = |d, n| Op::ShrW { d, a, b, n, signed };
        Ok(Val {
            slot: self.computed_on(limbs, one, wide)?,
            limbs,
            exact,
        })
    }

    /// Computes a quotient, or with `rest` a remainder.
    fn quotient(&mut self, rest: bool, l: &Node, r: &Node, range: Range) -> LoadResult<Val> {
        let signed = l.range.neg || r.range.neg;
        let most = l.range.storage().max(r.range.storage()) + u32::from(signed);
        let limbs = limbs(most);
        let a = self.operand(l, Need::All, limbs)?;
        let b = self.operand(r, Need::All, limbs)?;
        let slot = match (rest, limbs, signed) {
            (false, 1, false) => self.computed(|d| Op::Div { d, a, b })?,
            (true, 1, false) => self.computed(|d| Op::Rem { d, a, b })?,
            _ => {
                let d = self.temp(limbs)?;
                self.emit(Op::DivW {
                    d,
                    a,
                    b,
                    n: limbs as u16,
                    signed,
                    rest,
                });
                d
            }
        };
        Ok(Val::exact(slot, limbs, range))
    }

    fn comparison(&mut self, op: BinOp, l: &Node, r: &Node) -> LoadResult<u32> {
        let signed = l.range.neg || r.range.neg;
        let bits = l.range.bits.max(r.range.bits) + u32::from(signed);
        let n = limbs(bits.max(1));
        let mut a = self.operand(l, Need::All, n)?;
        let mut b = self.operand(r, Need::All, n)?;
        if matches!(op, BinOp::Gt | BinOp::Ge) {
            std::mem::swap(&mut a, &mut b);
        }
        if n == 1 {
            return self.computed(|d| match (op, signed) {
                (BinOp::Eq, _) => Op::Eq { d, a, b },
                (BinOp::Ne, _) => Op::Ne { d, a, b },
                (BinOp::Lt | BinOp::Gt, false) => Op::Lt { d, a, b },
                (BinOp::Lt | BinOp::Gt, true) => Op::LtS { d, a, b },
                (_, false) => Op::Le { d, a, b },
                (_, true) => Op::LeS { d, a, b },
            });
        }
        let (d, n) = (self.temp(1)?, n as u16);
        if matches!(op, BinOp::Le | BinOp::Ge) {
            // a <= b is not (b < a).
            std::mem::swap(&mut a, &mut b);
        }
        self.emit(match op {
            BinOp::Eq | BinOp::Ne => Op::EqW { d, a, b, n },
            _ => Op::LtW { d, a, b, n, signed },
        });
        if matches!(op, BinOp::Ne | BinOp::Le | BinOp::Ge) {
            self.emit(Op::IsZero { d, a: d });
        }
        Ok(d)
    }

    /// Computes `l & r` where one side is a constant of low ones only that clears no bit the other
    /// side can have: the value is the other side, whole or modulo 2^64.
    fn masked(&mut self, l: &Node, r: &Node) -> LoadResult<Option<Val>> {
        let (side, bits) = match (ones(l), ones(r)) {
            (_, Some(bits)) => (l, bits),
            (Some(bits), None) => (r, bits),
            (None, None) => return Ok(None),
        };
        if !side.range.neg && side.range.bits <= bits {
            return self.value(side, Need::All).map(Some);
        }
        if bits != u64::BITS {
            return Ok(None);
        }
        // It needs at least one word of the other side, and a word has no more bits.
        let value = self.value(side, Need::Low(bits))?;
        Ok(Some(Val::exact(value.slot, 1, Range::unsigned(bits))))
    }
}

/// What `l & r` needs of each side when its `range` is not negative: one exact, non-negative side is
/// enough to clear the high bits of the other.
fn and_needs(l: &Node, r: &Node, range: Range) -> (Need, Need) {
    let need = |side: &Node, other: &Node| {
        if !side.range.neg && side.range.bits <= other.range.bits.max(1) {
            Need::All
        } else {
            Need::Low(range.bits.max(1))
        }
    };
    if !l.range.neg && l.range.bits == range.bits {
        (Need::All, need(r, l))
    } else if !r.range.neg && r.range.bits == range.bits {
        (need(l, r), Need::All)
    } else {
        (need(l, r), need(r, l))
    }
}

/// The number of low ones in a constant that has no other bits.
fn ones(node: &Node) -> Option<u32> {
    match &node.kind {
        Kind::Const(value) if !node.range.neg => match value.as_slice() {
            [low] if low.trailing_ones() == 64 - low.leading_zeros() => Some(low.trailing_ones()),
            _ => None,
        },
        _ => None,
    }
}
