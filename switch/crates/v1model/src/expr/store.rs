//! Assignments, and values in the forms that primitives need.

use super::code::Compiler;
use super::literal::type_value;
use super::node::{Dest, Node, Range};
use super::want::{Need, Val};
use crate::error::{At, LoadError, LoadResult};
use crate::message::{Argument, Message};
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::{limbs, mask64};
use serde_json::Value;

impl Compiler<'_> {
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

    /// Assigns `node` to `dest`, truncated to the destination's width.
    pub fn assign(&mut self, dest: &Dest, node: &Node) -> LoadResult<()> {
        let bits = dest.bits();
        let value = self.value(node, Need::Low(bits))?;
        let fits = value
            .exact
            .is_some_and(|r| !r.neg && r.bits <= bits && value.limbs <= limbs(bits));
        self.store(dest, value, fits)
    }

    /// Stores an unsigned value of `value_bits` bits at `slot` to `dest`, truncated or extended.
    pub fn store_words(&mut self, dest: &Dest, slot: Slot, value_bits: u32) -> LoadResult<()> {
        let value = Val::exact(slot, limbs(value_bits), Range::unsigned(value_bits));
        let fits = value_bits <= dest.bits();
        self.store(dest, value, fits)
    }

    fn store(&mut self, dest: &Dest, value: Val, fits: bool) -> LoadResult<()> {
        let bits = dest.bits();
        let n = limbs(bits);
        match dest {
            Dest::Field(f) if n > 1 => {
                if value.limbs < n {
                    self.emit(value.extension(f.slot, n));
                } else if f.slot != value.slot {
                    self.emit(Op::CopyW {
                        d: f.slot,
                        a: value.slot,
                        n: n as u16,
                    });
                }
                if !fits && !bits.is_multiple_of(64) {
                    self.mask(f.slot, n, bits);
                }
            }
            Dest::Field(f) => {
                let slot = if fits {
                    value.slot
                } else {
                    self.masked_word(value.slot, bits)?
                };
                if f.slot != slot && !self.retarget(slot, f.slot) {
                    self.emit(Op::Copy { d: f.slot, a: slot });
                }
            }
            Dest::Element(stack, index, f) => {
                let value = self.resized(value, n)?;
                let index = self.word(index)?;
                let a = self.masked_copy(value, n, bits)?;
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

    /// Clears the bits from `bits` on of the `n` words at `d`.
    fn mask(&mut self, d: Slot, n: u32, bits: u32) {
        let (n, bits) = (n as u16, bits as u16);
        self.emit(Op::MaskW { d, n, bits });
    }

    /// Copies the low `bits` bits of the `n` words at `a` to a temporary.
    fn masked_copy(&mut self, a: Slot, n: u32, bits: u32) -> LoadResult<Slot> {
        let d = self.temp(n)?;
        self.emit(Op::CopyW { d, a, n: n as u16 });
        self.mask(d, n, bits);
        Ok(d)
    }

    /// Computes the low `bits` (at most 64) bits of the word at `a`.
    fn masked_word(&mut self, a: Slot, bits: u32) -> LoadResult<Slot> {
        if bits == 64 {
            return Ok(a);
        }
        let b = self.constant(&[mask64(bits)])?;
        self.computed(|d| Op::And { d, a, b })
    }

    /// Computes a value as one unsigned word; larger ones (and negative ones) become all ones. For
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

    /// Computes the low `bits` (at most 64) bits of a value, in one word that may be a field.
    pub fn low_word(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        let v = self.value(node, Need::Low(bits))?;
        if v.exact.is_some_and(|r| !r.neg && r.bits <= bits) {
            return Ok(v.slot);
        }
        self.masked_word(v.slot, bits)
    }

    /// Computes the low `bits` bits of a value, zero-extended over `limbs(bits)` words.
    pub fn low_words(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        if bits <= 64 {
            return self.low_word(node, bits);
        }
        let v = self.value(node, Need::Low(bits))?;
        let n = limbs(bits);
        let slot = self.resized(v, n)?;
        self.masked_copy(slot, n, bits)
    }

    /// Computes the truth of a condition, 0 or 1, in a word.
    pub fn condition(&mut self, node: Node) -> LoadResult<Slot> {
        Ok(self.value(&node.truth(), Need::All)?.slot)
    }
}
