//! Code of trees.

use super::{Compiler, HeaderNode, Kind, MAX_BITS, Need, Node, Range, Val};
use crate::error::{LoadResult, refuse};
use crate::layout::Field;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::limbs;

impl Compiler<'_> {
    /// `value` on exactly `n` limbs (fewer: its low limbs).
    pub(super) fn resized(&mut self, value: Val, n: u32) -> LoadResult<Slot> {
        if value.limbs >= n {
            return Ok(value.slot);
        }
        let d = self.temp(n)?;
        self.emit(extension(d, value, n));
        Ok(d)
    }

    pub(super) fn operand(&mut self, node: &Node, need: Need, n: u32) -> LoadResult<Slot> {
        let v = self.value(node, need)?;
        self.resized(v, n)
    }

    /// Computes `node`. With `Need::Low(k)`, at least the low `k` bits are right.
    pub(super) fn value(&mut self, node: &Node, need: Need) -> LoadResult<Val> {
        let storage = node.range.storage();
        // Everything fits in what was asked for: then the exact value costs no more.
        let need = match need {
            Need::Low(k) if storage <= k => Need::All,
            other => other,
        };
        let (bits, exact) = match need {
            Need::All => (storage, Some(node.range)),
            Need::Low(k) => (k, None),
        };
        if bits > MAX_BITS {
            refuse!("a value of {bits} bits is needed; the limit is {MAX_BITS}");
        }
        let n = limbs(bits);
        let val = |slot| Val {
            slot,
            limbs: n,
            exact,
        };
        match &node.kind {
            Kind::Const(value) => {
                let mut value = value.clone();
                let fill = if node.range.neg { u64::MAX } else { 0 };
                value.resize(n as usize, fill);
                Ok(val(self.constant(&value)?))
            }
            Kind::Slot(f) => self.loaded(*f, f.slot, need),
            Kind::Element {
                stack,
                index,
                field,
            } => {
                let index = self.word(index)?;
                let d = self.temp(field.limbs())?;
                self.emit(Op::LoadElement {
                    d,
                    stack: *stack as u16,
                    index,
                    offset: field.slot as u16,
                    n: field.limbs() as u16,
                });
                self.loaded(*field, d, need)
            }
            Kind::Last { stack, field } => {
                let index = self.temp(1)?;
                self.emit(Op::LastIndex {
                    d: index,
                    stack: *stack as u16,
                });
                let d = self.temp(field.limbs())?;
                self.emit(Op::LoadElement {
                    d,
                    stack: *stack as u16,
                    index,
                    offset: field.slot as u16,
                    n: field.limbs() as u16,
                });
                self.loaded(*field, d, need)
            }
            Kind::LastIndex(stack) => {
                let d = self.temp(1)?;
                self.emit(Op::LastIndex {
                    d,
                    stack: *stack as u16,
                });
                Ok(Val {
                    slot: d,
                    limbs: 1,
                    exact: Some(node.range),
                })
            }
            Kind::Size(stack) => Ok(Val {
                slot: self.layout.stacks[*stack].next,
                limbs: 1,
                exact: Some(node.range),
            }),
            Kind::Invert(x) => {
                let a = self.operand(x, need_of(need, bits), n)?;
                if n == 1 {
                    return Ok(val(self.computed(|d| Op::Not { d, a })?));
                }
                let d = self.temp(n)?;
                self.emit(Op::NotW { d, a, n: n as u16 });
                Ok(val(d))
            }
            Kind::Not(x) => {
                let a = self.value(x, Need::All)?.slot;
                Ok(val(self.computed(|d| Op::IsZero { d, a })?))
            }
            Kind::Truth(x) => {
                let v = self.value(x, Need::All)?;
                let a = v.slot;
                if v.limbs == 1 {
                    return Ok(val(self.computed(|d| Op::NonZero { d, a })?));
                }
                let (d, n) = (self.temp(1)?, v.limbs as u16);
                self.emit(Op::NonZeroW { d, a, n });
                Ok(val(d))
            }
            Kind::Select(c, a, b) => {
                let c = self.value(c, Need::All)?.slot;
                let a = self.operand(a, need_of(need, bits), n)?;
                let b = self.operand(b, need_of(need, bits), n)?;
                if n == 1 {
                    return Ok(val(self.computed(|d| Op::Select { d, c, a, b })?));
                }
                let (d, n) = (self.temp(n)?, n as u16);
                self.emit(Op::SelectW { d, c, a, b, n });
                Ok(val(d))
            }
            Kind::TwoComp(x, width) => {
                if let Need::Low(k) = need {
                    // Fewer bits than the width: sign extension does not show.
                    return self.value(x, Need::Low(k));
                }
                let a = self.operand(x, Need::Low(*width), n)?;
                let bits = *width as u16;
                if n == 1 {
                    return Ok(val(self.computed(|d| Op::Sext { d, a, bits })?));
                }
                let (d, n) = (self.temp(n)?, n as u16);
                self.emit(Op::CopyW { d, a, n });
                self.emit(Op::SextW { d, n, bits });
                Ok(val(d))
            }
            Kind::USat(x, width) | Kind::SSat(x, width) => {
                let to_signed = matches!(node.kind, Kind::SSat(..));
                let v = self.value(x, Need::All)?;
                let m = v.limbs.max(limbs(storage));
                let a = self.resized(v, m)?;
                let d = self.temp(m)?;
                self.emit(Op::CopyW { d, a, n: m as u16 });
                self.emit(Op::ClampW {
                    d,
                    n: m as u16,
                    bits: *width as u16,
                    signed: x.range.neg,
                    to_signed,
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact: Some(node.range),
                })
            }
            Kind::HeaderEq(a, b, negated) => {
                let words = self.layout.types[self.header_kind(a)].words as u16;
                let (a, b) = (self.header_ref(a)?, self.header_ref(b)?);
                let d = self.temp(1)?;
                self.emit(Op::EqHeader { d, a, b, words });
                if *negated {
                    self.emit(Op::IsZero { d, a: d });
                }
                Ok(val(d))
            }
            Kind::Valid(h) => match h {
                HeaderNode::Fixed(h) => Ok(val(self.layout.headers[*h].base)),
                HeaderNode::Element(stack, index) => {
                    let index = self.word(index)?;
                    let d = self.temp(1)?;
                    self.emit(Op::LoadElement {
                        d,
                        stack: *stack as u16,
                        index,
                        offset: 0,
                        n: 1,
                    });
                    Ok(val(d))
                }
            },
            Kind::Register(array, index, bits) => {
                let index = self.word(index)?;
                let m = limbs(*bits);
                let d = self.temp(m)?;
                // What an index out of range leaves.
                let zero = self.constant(&vec![0; m as usize])?;
                self.emit(Op::CopyW {
                    d,
                    a: zero,
                    n: m as u16,
                });
                self.emit(Op::RegisterRead {
                    d,
                    array: *array,
                    index,
                    skip: 0,
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact: Some(node.range),
                })
            }
            Kind::Bin(op, l, r) => self.binary_value(*op, l, r, node.range, need, bits, exact),
        }
    }

    /// A field that stands at `slot`; sign-extended if it is signed and all of it is needed.
    fn loaded(&mut self, f: Field, slot: Slot, need: Need) -> LoadResult<Val> {
        let n = f.limbs();
        if !f.signed {
            return Ok(Val {
                slot,
                limbs: n,
                exact: Some(Range::unsigned(f.bits)),
            });
        }
        if matches!(need, Need::Low(_)) {
            return Ok(Val {
                slot,
                limbs: n,
                exact: None,
            });
        }
        let bits = f.bits as u16;
        let slot = if n == 1 {
            self.computed(|d| Op::Sext { d, a: slot, bits })?
        } else {
            let (d, n) = (self.temp(n)?, n as u16);
            self.emit(Op::CopyW { d, a: slot, n });
            self.emit(Op::SextW { d, n, bits });
            d
        };
        Ok(Val {
            slot,
            limbs: n,
            exact: Some(Range::signed(f.bits - 1)),
        })
    }
}

/// `value` on `n` limbs, which are more than it has, at `d`.
pub(super) fn extension(d: Slot, value: Val, n: u32) -> Op {
    Op::ExtendW {
        d,
        a: value.slot,
        from: value.limbs as u16,
        n: n as u16,
        signed: value.exact.is_some_and(|r| r.neg),
    }
}

/// What an operand must deliver when the result needs `need`, computed on `bits` bits.
pub(super) fn need_of(need: Need, bits: u32) -> Need {
    match need {
        Need::All => Need::All,
        Need::Low(_) => Need::Low(bits),
    }
}
