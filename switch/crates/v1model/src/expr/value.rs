//! Code that computes the values of trees.

use super::code::Compiler;
use super::node::{HeaderNode, Kind, Node, Range};
use super::want::{Need, Val, Want};
use crate::error::LoadResult;
use crate::layout::Field;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::limbs;

impl Compiler<'_> {
    /// Puts `value` on exactly `n` limbs (fewer: its low limbs).
    pub(super) fn resized(&mut self, value: Val, n: u32) -> LoadResult<Slot> {
        if value.limbs >= n {
            return Ok(value.slot);
        }
        let d = self.temp(n)?;
        self.emit(value.extension(d, n));
        Ok(d)
    }

    /// Computes `node` on exactly `n` limbs.
    pub(super) fn operand(&mut self, node: &Node, need: Need, n: u32) -> LoadResult<Slot> {
        let v = self.value(node, need)?;
        self.resized(v, n)
    }

    /// Computes `node`. With `Need::Low(k)`, at least the low `k` bits are right.
    pub(super) fn value(&mut self, node: &Node, need: Need) -> LoadResult<Val> {
        let want = Want::new(node.range, need)?;
        let n = want.limbs();
        let slot = match &node.kind {
            Kind::Bin(op, l, r) => return self.binary_value(*op, l, r, node.range, want),
            Kind::Slot(f) => return self.loaded(*f, f.slot, want.need),
            Kind::Element {
                stack,
                index,
                field,
            } => {
                let index = self.word(index)?;
                let d = self.element(*stack, index, field.slot, field.limbs())?;
                return self.loaded(*field, d, want.need);
            }
            Kind::Last { stack, field } => {
                let index = self.last_index(*stack)?;
                let d = self.element(*stack, index, field.slot, field.limbs())?;
                return self.loaded(*field, d, want.need);
            }
            Kind::LastIndex(stack) => {
                return Ok(Val::exact(self.last_index(*stack)?, 1, node.range));
            }
            Kind::Size(stack) => {
                let next = self.layout.stacks[*stack].next;
                return Ok(Val::exact(next, 1, node.range));
            }
            Kind::Register(array, index, bits) => {
                let d = self.register(*array, index, limbs(*bits))?;
                return Ok(Val::exact(d, limbs(*bits), node.range));
            }
            Kind::USat(x, width) => return self.saturated(x, *width, false, node.range),
            Kind::SSat(x, width) => return self.saturated(x, *width, true, node.range),
            Kind::TwoComp(x, width) => match want.need {
                // Fewer bits than the width: sign extension does not show.
                Need::Low(_) => return self.value(x, want.need),
                Need::All => {
                    let a = self.operand(x, Need::Low(*width), n)?;
                    self.sign_extended(a, n, *width)?
                }
            },
            Kind::Const(value) => {
                let mut value = value.clone();
                value.resize(n as usize, if node.range.neg { u64::MAX } else { 0 });
                self.constant(&value)?
            }
            Kind::Invert(x) => {
                let a = self.operand(x, want.of_operand(), n)?;
                self.computed_on(n, |d| Op::Not { d, a }, |d, n| Op::NotW { d, a, n })?
            }
            Kind::Not(x) => {
                let a = self.value(x, Need::All)?.slot;
                self.computed(|d| Op::IsZero { d, a })?
            }
            Kind::Truth(x) => {
                let Val { slot: a, limbs, .. } = self.value(x, Need::All)?;
                if limbs == 1 {
                    self.computed(|d| Op::NonZero { d, a })?
                } else {
                    let (d, n) = (self.temp(1)?, limbs as u16);
                    self.emit(Op::NonZeroW { d, a, n });
                    d
                }
            }
            Kind::Select(c, a, b) => {
                let c = self.value(c, Need::All)?.slot;
                let a = self.operand(a, want.of_operand(), n)?;
                let b = self.operand(b, want.of_operand(), n)?;
                let wide = |d, n| Op::SelectW { d, c, a, b, n };
                self.computed_on(n, |d| Op::Select { d, c, a, b }, wide)?
            }
            Kind::HeaderEq(a, b, negated) => {
                let words = self.layout.types[self.header_kind(a)].words as u16;
                let (a, b) = (self.header_ref(a)?, self.header_ref(b)?);
                let d = self.temp(1)?;
                self.emit(Op::EqHeader { d, a, b, words });
                if *negated {
                    self.emit(Op::IsZero { d, a: d });
                }
                d
            }
            Kind::Valid(HeaderNode::Fixed(h)) => self.layout.headers[*h].base,
            Kind::Valid(HeaderNode::Element(stack, index)) => {
                let index = self.word(index)?;
                self.element(*stack, index, 0, 1)?
            }
        };
        Ok(want.result(slot))
    }

    /// Loads `n` words at `offset` of a stack element.
    fn element(&mut self, stack: usize, index: Slot, offset: u32, n: u32) -> LoadResult<Slot> {
        let d = self.temp(n)?;
        self.emit(Op::LoadElement {
            d,
            stack: stack as u16,
            index,
            offset: offset as u16,
            n: n as u16,
        });
        Ok(d)
    }

    fn last_index(&mut self, stack: usize) -> LoadResult<Slot> {
        let (d, stack) = (self.temp(1)?, stack as u16);
        self.emit(Op::LastIndex { d, stack });
        Ok(d)
    }

    /// Reads a register cell of `n` words; zero if the index is out of range.
    fn register(&mut self, array: u16, index: &Node, n: u32) -> LoadResult<Slot> {
        let index = self.word(index)?;
        let d = self.temp(n)?;
        let a = self.constant(&vec![0; n as usize])?;
        self.emit(Op::CopyW { d, a, n: n as u16 });
        self.emit(Op::RegisterRead {
            d,
            array,
            index,
            skip: 0,
        });
        Ok(d)
    }

    /// Computes `x`, saturated to the range of `bits` bits.
    fn saturated(&mut self, x: &Node, bits: u32, to_signed: bool, range: Range) -> LoadResult<Val> {
        let v = self.value(x, Need::All)?;
        let n = v.limbs.max(limbs(range.storage()));
        let a = self.resized(v, n)?;
        let d = self.temp(n)?;
        self.emit(Op::CopyW { d, a, n: n as u16 });
        self.emit(Op::ClampW {
            d,
            n: n as u16,
            bits: bits as u16,
            signed: x.range.neg,
            to_signed,
        });
        Ok(Val::exact(d, n, range))
    }

    /// Extends the sign of the low `bits` bits of `a` over `n` limbs.
    fn sign_extended(&mut self, a: Slot, n: u32, bits: u32) -> LoadResult<Slot> {
        let bits = bits as u16;
        if n == 1 {
            return self.computed(|d| Op::Sext { d, a, bits });
        }
        let (d, n) = (self.temp(n)?, n as u16);
        self.emit(Op::CopyW { d, a, n });
        self.emit(Op::SextW { d, n, bits });
        Ok(d)
    }

    /// The value of a field that stands at `slot`; sign-extended if it is signed and all of it is
    /// needed.
    fn loaded(&mut self, f: Field, slot: Slot, need: Need) -> LoadResult<Val> {
        let n = f.limbs();
        match need {
            Need::Low(_) if f.signed => Ok(Val {
                slot,
                limbs: n,
                exact: None,
            }),
            _ => {
                let slot = if f.signed {
                    self.sign_extended(slot, n, f.bits)?
                } else {
                    slot
                };
                Ok(Val::exact(slot, n, Range::of_field(f)))
            }
        }
    }
}
