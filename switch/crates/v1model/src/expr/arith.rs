//! Code of binary operators.

use super::emit::need_of;
use super::{BinOp, Compiler, Kind, Need, Node, Range, Val};
use crate::error::LoadResult;
use crate::ops::Op;
use crate::wide::limbs;

impl Compiler<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn binary_value(
        &mut self,
        op: BinOp,
        l: &Node,
        r: &Node,
        range: Range,
        need: Need,
        bits: u32,
        exact: Option<Range>,
    ) -> LoadResult<Val> {
        let n = limbs(bits);
        let wide = n as u16;
        let val = |slot| Val {
            slot,
            limbs: n,
            exact,
        };
        match op {
            BinOp::And => {
                if let Some(value) = self.masked(l, r)? {
                    return Ok(value);
                }
                // A non-negative side bounds what is needed of the other.
                let (l_need, r_need, exact) = if !range.neg && range.bits <= bits {
                    let all_or = |side: &Node, other: &Node| {
                        if !side.range.neg && side.range.bits <= other.range.bits.max(1) {
                            Need::All
                        } else {
                            Need::Low(range.bits.max(1))
                        }
                    };
                    let (mut ln, mut rn) = (all_or(l, r), all_or(r, l));
                    // Exactly one exact non-negative side is enough to clear the high bits.
                    if !l.range.neg && l.range.bits == range.bits {
                        ln = Need::All;
                    } else if !r.range.neg && r.range.bits == range.bits {
                        rn = Need::All;
                    }
                    (ln, rn, Some(range))
                } else {
                    (need_of(need, bits), need_of(need, bits), exact)
                };
                let n = if exact == Some(range) {
                    limbs(range.storage())
                } else {
                    n
                };
                let a = self.operand(l, l_need, n)?;
                let b = self.operand(r, r_need, n)?;
                let slot = if n == 1 {
                    self.computed(|d| Op::And { d, a, b })?
                } else {
                    let (d, n) = (self.temp(n)?, n as u16);
                    self.emit(Op::AndW { d, a, b, n });
                    d
                };
                Ok(Val {
                    slot,
                    limbs: n,
                    exact,
                })
            }
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Or | BinOp::Xor => {
                // Exact results: low bits of the operands are enough, because the result is
                // known to fit; but it must then be extended, so operands are taken whole.
                let need = need_of(need, bits);
                let a = self.operand(l, need, n)?;
                let b = self.operand(r, need, n)?;
                if n == 1 {
                    let slot = self.computed(|d| match op {
                        BinOp::Add => Op::Add { d, a, b },
                        BinOp::Sub => Op::Sub { d, a, b },
                        BinOp::Mul => Op::Mul { d, a, b },
                        BinOp::Or => Op::Or { d, a, b },
                        _ => Op::Xor { d, a, b },
                    })?;
                    return Ok(val(slot));
                }
                let d = self.temp(n)?;
                self.emit(match op {
                    BinOp::Add => Op::AddW { d, a, b, n: wide },
                    BinOp::Sub => Op::SubW { d, a, b, n: wide },
                    BinOp::Mul => Op::MulW { d, a, b, n: wide },
                    BinOp::Or => Op::OrW { d, a, b, n: wide },
                    _ => Op::XorW { d, a, b, n: wide },
                });
                Ok(val(d))
            }
            BinOp::Shl => {
                let b = self.word(r)?;
                let a = self.operand(l, need_of(need, bits), n)?;
                if n == 1 {
                    return Ok(val(self.computed(|d| Op::Shl { d, a, b })?));
                }
                let d = self.temp(n)?;
                self.emit(Op::ShlW { d, a, b, n: wide });
                Ok(val(d))
            }
            BinOp::Shr => {
                // Low k bits of a constant shift by s need the low k + s bits of the operand.
                let whole = l.range.storage();
                let wanted = match (&r.kind, need) {
                    (Kind::Const(s), Need::Low(k)) if s.len() == 1 && s[0] < 1 << 16 => {
                        k + s[0] as u32
                    }
                    _ => whole,
                };
                let b = self.word(r)?;
                let (v, signed, exact) = if wanted < whole {
                    (self.value(l, Need::Low(wanted))?, false, None)
                } else {
                    (self.value(l, Need::All)?, l.range.neg, Some(range))
                };
                let (a, m) = (v.slot, v.limbs);
                let slot = match (m, signed) {
                    (1, false) => self.computed(|d| Op::Shr { d, a, b })?,
                    (1, true) => self.computed(|d| Op::Sar { d, a, b })?,
                    _ => {
                        let (d, n) = (self.temp(m)?, m as u16);
                        self.emit(Op::ShrW { d, a, b, n, signed });
                        d
                    }
                };
                Ok(Val {
                    slot,
                    limbs: m,
                    exact,
                })
            }
            BinOp::Div | BinOp::Rem => {
                let signed = l.range.neg || r.range.neg;
                let most = l.range.storage().max(r.range.storage()) + u32::from(signed);
                let m = limbs(most);
                let a = self.operand(l, Need::All, m)?;
                let b = self.operand(r, Need::All, m)?;
                let slot = match (op, m, signed) {
                    (BinOp::Div, 1, false) => self.computed(|d| Op::Div { d, a, b })?,
                    (BinOp::Rem, 1, false) => self.computed(|d| Op::Rem { d, a, b })?,
                    _ => {
                        let d = self.temp(m)?;
                        self.emit(Op::DivW {
                            d,
                            a,
                            b,
                            n: m as u16,
                            signed,
                            rest: op == BinOp::Rem,
                        });
                        d
                    }
                };
                Ok(Val {
                    slot,
                    limbs: m,
                    exact: Some(range),
                })
            }
            BinOp::LAnd | BinOp::LOr => {
                let a = self.value(l, Need::All)?.slot;
                let b = self.value(r, Need::All)?.slot;
                let slot = self.computed(|d| match op {
                    BinOp::LAnd => Op::And { d, a, b },
                    _ => Op::Or { d, a, b },
                })?;
                Ok(val(slot))
            }
            BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => {
                self.comparison(op, l, r)
            }
        }
    }

    fn comparison(&mut self, op: BinOp, l: &Node, r: &Node) -> LoadResult<Val> {
        let signed = l.range.neg || r.range.neg;
        let bits = l.range.bits.max(r.range.bits) + u32::from(signed);
        let n = limbs(bits.max(1));
        let mut a = self.operand(l, Need::All, n)?;
        let mut b = self.operand(r, Need::All, n)?;
        if matches!(op, BinOp::Gt | BinOp::Ge) {
            std::mem::swap(&mut a, &mut b);
        }
        let truth = |slot| Val {
            slot,
            limbs: 1,
            exact: Some(Range::BOOL),
        };
        if n == 1 {
            let slot = self.computed(|d| match (op, signed) {
                (BinOp::Eq, _) => Op::Eq { d, a, b },
                (BinOp::Ne, _) => Op::Ne { d, a, b },
                (BinOp::Lt | BinOp::Gt, false) => Op::Lt { d, a, b },
                (BinOp::Lt | BinOp::Gt, true) => Op::LtS { d, a, b },
                (_, false) => Op::Le { d, a, b },
                (_, true) => Op::LeS { d, a, b },
            })?;
            return Ok(truth(slot));
        }
        let d = self.temp(1)?;
        let wide = n as u16;
        match op {
            BinOp::Eq => self.emit(Op::EqW { d, a, b, n: wide }),
            BinOp::Ne => {
                self.emit(Op::EqW { d, a, b, n: wide });
                self.emit(Op::IsZero { d, a: d });
            }
            BinOp::Lt | BinOp::Gt => self.emit(Op::LtW {
                d,
                a,
                b,
                n: wide,
                signed,
            }),
            _ => {
                // a <= b is not (b < a).
                self.emit(Op::LtW {
                    d,
                    a: b,
                    b: a,
                    n: wide,
                    signed,
                });
                self.emit(Op::IsZero { d, a: d });
            }
        }
        Ok(truth(d))
    }

    /// `l & r` where one of them is a constant whose low bits are ones, no others, and that takes
    /// nothing away that is there: the other side, whole or modulo 2^64.
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
        // What it needs of the other side is one word at least, and a word has no more bits.
        let value = self.value(side, Need::Low(bits))?;
        Ok(Some(Val {
            slot: value.slot,
            limbs: 1,
            exact: Some(Range::unsigned(bits)),
        }))
    }
}

/// How many low bits are ones in a constant that has no others.
fn ones(node: &Node) -> Option<u32> {
    match &node.kind {
        Kind::Const(value) if !node.range.neg => match value.as_slice() {
            [low] if low.trailing_ones() == 64 - low.leading_zeros() => Some(low.trailing_ones()),
            _ => None,
        },
        _ => None,
    }
}
