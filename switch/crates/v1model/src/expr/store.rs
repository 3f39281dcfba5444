//! Assignments, and values in the forms that primitives need.

use super::emit::extension;
use super::tree::truth;
use super::{Compiler, Dest, HeaderNode, Need, Node, Range, Val, type_value};
use crate::error::{At, LoadError, LoadResult};
use crate::message::{Argument, Message};
use crate::ops::{HeaderRef, Op};
use crate::slot::Slot;
use crate::wide::{limbs, mask64};
use serde_json::Value;

impl Compiler<'_> {
    /// Resolves a header to something code can name.
    pub fn header_ref(&mut self, h: &HeaderNode) -> LoadResult<HeaderRef> {
        Ok(match h {
            HeaderNode::Fixed(h) => HeaderRef::Fixed(self.layout.headers[*h].base),
            HeaderNode::Element(stack, index) => {
                let mut index = self.word(index)?;
                if self.layout.stacks[*stack].union.is_some() {
                    // Asked for again when the other members become invalid: by then a field that
                    // it stands in may be another.
                    let d = self.temp(1)?;
                    self.emit(Op::Copy { d, a: index });
                    index = d;
                }
                HeaderRef::Element(*stack as u16, index)
            }
        })
    }

    /// After `h` may have become valid: makes the other members of its union invalid.
    pub fn claim(&mut self, node: &HeaderNode, h: HeaderRef) {
        match (node, h) {
            (HeaderNode::Fixed(header), HeaderRef::Fixed(base)) => {
                if let Some(union) = self.layout.headers[*header].union {
                    let union = union as u16;
                    self.emit(Op::Claim { union, base });
                }
            }
            (_, HeaderRef::Element(stack, index)) => {
                if self.layout.stacks[stack as usize].union.is_some() {
                    self.emit(Op::ClaimElement { stack, index });
                }
            }
            (HeaderNode::Element(..), HeaderRef::Fixed(_)) => {}
        }
    }

    /// Formats a message with the values of `arguments` (JSON type values) and logs it.
    pub fn log(&mut self, format: &str, arguments: &[Value]) -> LoadResult<()> {
        let mut values = Vec::new();
        for (i, argument) in arguments.iter().enumerate() {
            let place = || format!("argument {i}");
            let (kind, value) = type_value(argument).at(place)?;
            let node = self.node(kind, value).at(place)?;
            let signed = node.range.neg;
            let value = self.value(&node, Need::All).at(place)?;
            values.push(Argument {
                slot: value.slot,
                limbs: value.limbs,
                signed,
            });
        }
        let message = u16::try_from(self.messages.len())
            .map_err(|_| LoadError::new("program has too many messages"))?;
        self.messages.push(Message::new(format, values)?);
        self.emit(Op::Log { message });
        Ok(())
    }

    /// `dest = node`, truncated to the destination's width.
    pub fn assign(&mut self, dest: &Dest, node: &Node) -> LoadResult<()> {
        let bits = dest.bits();
        let value = self.value(node, Need::Low(bits))?;
        let fits = value
            .exact
            .is_some_and(|r| !r.neg && r.bits <= bits && value.limbs <= limbs(bits));
        self.store(dest, value, fits)
    }

    /// Stores the low bits of a word at `slot` (a temporary) to `dest`. `value_bits` bounds it.
    pub fn store_word(&mut self, dest: &Dest, slot: Slot, value_bits: u32) -> LoadResult<()> {
        self.store_words(dest, slot, value_bits)
    }

    /// Stores an unsigned value of `value_bits` bits at `slot` to `dest`, truncated or extended.
    pub fn store_words(&mut self, dest: &Dest, slot: Slot, value_bits: u32) -> LoadResult<()> {
        let value = Val {
            slot,
            limbs: limbs(value_bits),
            exact: Some(Range::unsigned(value_bits)),
        };
        let fits = value_bits <= dest.bits();
        self.store(dest, value, fits)
    }

    fn store(&mut self, dest: &Dest, value: Val, fits: bool) -> LoadResult<()> {
        let bits = dest.bits();
        let n = limbs(bits);
        match dest {
            Dest::Field(f) => {
                if n > 1 {
                    if value.limbs < n {
                        self.emit(extension(f.slot, value, n));
                    } else if f.slot != value.slot {
                        self.emit(Op::CopyW {
                            d: f.slot,
                            a: value.slot,
                            n: n as u16,
                        });
                    }
                    if !fits && !bits.is_multiple_of(64) {
                        self.emit(Op::MaskW {
                            d: f.slot,
                            n: n as u16,
                            bits: bits as u16,
                        });
                    }
                } else {
                    let slot = if fits || bits == 64 {
                        value.slot
                    } else {
                        let b = self.constant(&[mask64(bits)])?;
                        self.computed(|d| Op::And {
                            d,
                            a: value.slot,
                            b,
                        })?
                    };
                    if f.slot != slot && !self.retarget(slot, f.slot) {
                        self.emit(Op::Copy { d: f.slot, a: slot });
                    }
                }
            }
            Dest::Element(stack, index, f) => {
                let value = self.resized(value, n)?;
                let index = self.word(index)?;
                let a = self.temp(n)?;
                self.emit(Op::CopyW {
                    d: a,
                    a: value,
                    n: n as u16,
                });
                self.emit(Op::MaskW {
                    d: a,
                    n: n as u16,
                    bits: bits as u16,
                });
                self.emit(Op::StoreElement {
                    a,
                    stack: *stack as u16,
                    index,
                    offset: f.slot as u16,
                    n: n as u16,
                });
            }
        }
        Ok(())
    }

    /// The value as one unsigned word; larger ones (and negative ones) become all ones. For
    /// indices, lengths and shift amounts.
    pub fn word(&mut self, node: &Node) -> LoadResult<Slot> {
        let v = self.value(node, Need::All)?;
        if v.limbs == 1 {
            return Ok(v.slot);
        }
        let d = self.temp(1)?;
        self.emit(Op::Saturate {
            d,
            a: v.slot,
            n: v.limbs as u16,
        });
        Ok(d)
    }

    /// The low `bits` (at most 64) bits of the value, in one word that may be a field.
    pub fn low_word(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        let v = self.value(node, Need::Low(bits))?;
        if v.exact.is_some_and(|r| !r.neg && r.bits <= bits) {
            return Ok(v.slot);
        }
        if bits == 64 {
            return Ok(v.slot);
        }
        let b = self.constant(&[mask64(bits)])?;
        self.computed(|d| Op::And { d, a: v.slot, b })
    }

    /// The low `bits` bits, zero extended over `limbs(bits)` words.
    pub fn low_words(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        if bits <= 64 {
            return self.low_word(node, bits);
        }
        let v = self.value(node, Need::Low(bits))?;
        let n = limbs(bits);
        let slot = self.resized(v, n)?;
        let d = self.temp(n)?;
        self.emit(Op::CopyW {
            d,
            a: slot,
            n: n as u16,
        });
        self.emit(Op::MaskW {
            d,
            n: n as u16,
            bits: bits as u16,
        });
        Ok(d)
    }

    /// The truth of a condition, 0 or 1, in a word.
    pub fn condition(&mut self, node: Node) -> LoadResult<Slot> {
        let node = truth(node);
        Ok(self.value(&node, Need::All)?.slot)
    }
}
