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
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::And { d, a, b }
                } else {
                    Op::AndW {
                        d,
                        a,
                        b,
                        n: n as u16,
                    }
                });
                Ok(Val {
                    slot: d,
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
                let d = self.temp(n)?;
                self.emit(match (op, n) {
                    (BinOp::Add, 1) => Op::Add { d, a, b },
                    (BinOp::Sub, 1) => Op::Sub { d, a, b },
                    (BinOp::Mul, 1) => Op::Mul { d, a, b },
                    (BinOp::Or, 1) => Op::Or { d, a, b },
                    (BinOp::Xor, 1) => Op::Xor { d, a, b },
                    (BinOp::Add, _) => Op::AddW { d, a, b, n: wide },
                    (BinOp::Sub, _) => Op::SubW { d, a, b, n: wide },
                    (BinOp::Mul, _) => Op::MulW { d, a, b, n: wide },
                    (BinOp::Or, _) => Op::OrW { d, a, b, n: wide },
                    _ => Op::XorW { d, a, b, n: wide },
                });
                Ok(val(d))
            }
            BinOp::Shl => {
                let b = self.word(r)?;
                let a = self.operand(l, need_of(need, bits), n)?;
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::Shl { d, a, b }
                } else {
                    Op::ShlW { d, a, b, n: wide }
                });
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
                let m = v.limbs;
                let d = self.temp(m)?;
                self.emit(match (m, signed) {
                    (1, false) => Op::Shr { d, a: v.slot, b },
                    (1, true) => Op::Sar { d, a: v.slot, b },
                    _ => Op::ShrW {
                        d,
                        a: v.slot,
                        b,
                        n: m as u16,
                        signed,
                    },
                });
                Ok(Val {
                    slot: d,
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
                let d = self.temp(m)?;
                self.emit(match (op, m, signed) {
                    (BinOp::Div, 1, false) => Op::Div { d, a, b },
                    (BinOp::Rem, 1, false) => Op::Rem { d, a, b },
                    _ => Op::DivW {
                        d,
                        a,
                        b,
                        n: m as u16,
                        signed,
                        rest: op == BinOp::Rem,
                    },
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact: Some(range),
                })
            }
            BinOp::LAnd | BinOp::LOr => {
                let a = self.value(l, Need::All)?.slot;
                let b = self.value(r, Need::All)?.slot;
                let d = self.temp(1)?;
                self.emit(if op == BinOp::LAnd {
                    Op::And { d, a, b }
                } else {
                    Op::Or { d, a, b }
                });
                Ok(val(d))
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
        let d = self.temp(1)?;
        let wide = n as u16;
        match (op, n, signed) {
            (BinOp::Eq, 1, _) => self.emit(Op::Eq { d, a, b }),
            (BinOp::Ne, 1, _) => self.emit(Op::Ne { d, a, b }),
            (BinOp::Lt | BinOp::Gt, 1, false) => self.emit(Op::Lt { d, a, b }),
            (BinOp::Lt | BinOp::Gt, 1, true) => self.emit(Op::LtS { d, a, b }),
            (_, 1, false) => self.emit(Op::Le { d, a, b }),
            (_, 1, true) => self.emit(Op::LeS { d, a, b }),
            (BinOp::Eq, ..) => self.emit(Op::EqW { d, a, b, n: wide }),
            (BinOp::Ne, ..) => {
                self.emit(Op::EqW { d, a, b, n: wide });
                self.emit(Op::IsZero { d, a: d });
            }
            (BinOp::Lt | BinOp::Gt, ..) => self.emit(Op::LtW {
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
        Ok(Val {
            slot: d,
            limbs: 1,
            exact: Some(Range::BOOL),
        })
    }
}
