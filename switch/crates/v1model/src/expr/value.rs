//! Code that computes the values of trees.

use super::code::Compiler;
use super::node::{HeaderNode, Kind, MAX_BITS, Node, Range};
use crate::error::{LoadResult, refuse};
use crate::layout::Field;
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::limbs;

/// Where a computed value stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Val {
    pub slot: Slot,
    pub limbs: u32,
    /// `Some`: the limbs hold exactly a value of this range, extended over all of them.
    /// `None`: only the low bits that were asked for are meaningful.
    pub exact: Option<Range>,
}

impl Val {
    /// An exact value.
    pub fn exact(slot: Slot, limbs: u32, range: Range) -> Self {
        Self {
            slot,
            limbs,
            exact: Some(range),
        }
    }

    /// The operation that extends the value to `n` limbs, which are more than it has, at `d`.
    pub fn extension(self, d: Slot, n: u32) -> Op {
        Op::ExtendW {
            d,
            a: self.slot,
            from: self.limbs as u16,
            n: n as u16,
            signed: self.exact.is_some_and(|r| r.neg),
        }
    }
}

/// What of a value is needed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    All,
    Low(u32),
}

/// What an operation must deliver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub need: Need,
    /// Bits to compute on.
    pub bits: u32,
    /// `Some`: the result must be exact, and has this range.
    pub exact: Option<Range>,
}

impl Want {
    fn new(range: Range, need: Need) -> LoadResult<Self> {
        let storage = range.storage();
        let want = match need {
            Need::Low(k) if storage > k => Self {
                need,
                bits: k,
                exact: None,
            },
            // The exact value costs no more where all of it fits in what is needed.
            _ => Self {
                need: Need::All,
                bits: storage,
                exact: Some(range),
            },
        };
        if want.bits > MAX_BITS {
            refuse!(
                "a value of {} bits is needed; the limit is {MAX_BITS}",
                want.bits
            );
        }
        Ok(want)
    }

    /// Limbs to compute on.
    pub fn limbs(self) -> u32 {
        limbs(self.bits)
    }

    /// The result, which stands at `slot`.
    pub fn result(self, slot: Slot) -> Val {
        Val {
            slot,
            limbs: self.limbs(),
            exact: self.exact,
        }
    }

    /// What the operands must deliver.
    pub fn of_operand(self) -> Need {
        match self.need {
            Need::All => Need::All,
            Need::Low(_) => Need::Low(self.bits),
        }
    }
}

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

    /// Computes `x`, limited to what fits in `bits` bits.
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
