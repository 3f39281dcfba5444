//! Fields in bytes: headers as loads and stores.

use super::emitter::Emitter;
use super::untranslated::{Result, Untranslated};
use crate::header_io::{Group, HeaderIo, limb_places};
use crate::slot::Slot;
use crate::wide::mask64;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

/// The widest load or store of at most `left` bytes.
fn widest(left: usize) -> (Type, usize) {
    match left {
        8.. => (types::I64, 8),
        4.. => (types::I32, 4),
        2.. => (types::I16, 2),
        _ => (types::I8, 1),
    }
}

/// A position in bytes as an offset.
fn offset(at: usize) -> Result<i32> {
    i32::try_from(at).map_err(Untranslated::new)
}

impl Emitter<'_, '_> {
    /// Reads the fields of a header without a variable field from its bytes at `base`.
    pub fn read_header(&mut self, io: &HeaderIo, base: Value, header: Slot) -> Result<()> {
        for group in io.groups() {
            match group {
                Group::Packed {
                    at,
                    bytes,
                    offset,
                    parts,
                } => {
                    let value = self.load_bytes(base, *at, *bytes, io.bytes)?;
                    for (slot, part) in (header + offset..).zip(parts) {
                        let whole = 8 * *bytes as u32;
                        let value = self.bits_of(value, part.shift, part.mask, whole);
                        self.set_word(slot, value)?;
                    }
                }
                Group::Loose { bit, bits, offset } => {
                    for (slot, (at, take)) in (header + offset..).zip(limb_places(*bit, *bits)) {
                        let value = self.load_bits(base, at, take, io.bytes)?;
                        self.set_word(slot, value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the fields of a header without a variable field to its bytes at `base`.
    pub fn write_header(&mut self, io: &HeaderIo, base: Value, header: Slot) -> Result<()> {
        for group in io.groups() {
            match group {
                Group::Packed {
                    at,
                    bytes,
                    offset,
                    parts,
                } => {
                    let mut all: Option<Value> = None;
                    for (slot, part) in (header + offset..).zip(parts) {
                        let word = self.word(slot)?;
                        let word = self.shifted(word, part.shift);
                        all = Some(match all {
                            None => word,
                            Some(all) => self.b.ins().bor(all, word),
                        });
                    }
                    if let Some(value) = all {
                        self.store_bytes(base, *at, *bytes, value)?;
                    }
                }
                Group::Loose { bit, bits, offset } => {
                    for (slot, (at, take)) in (header + offset..).zip(limb_places(*bit, *bits)) {
                        let value = self.word(slot)?;
                        self.store_bits(base, at, take, value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `value << by`.
    pub fn shifted(&mut self, value: Value, by: u32) -> Value {
        if by == 0 {
            value
        } else {
            self.b.ins().ishl_imm(value, i64::from(by))
        }
    }

    /// The bits of `value`, which has `whole` bits, from `shift` on that `mask` has.
    fn bits_of(&mut self, value: Value, shift: u32, mask: u64, whole: u32) -> Value {
        let low = if shift == 0 {
            value
        } else {
            self.b.ins().ushr_imm(value, i64::from(shift))
        };
        if mask == mask64(whole - shift) {
            low
        } else {
            self.b.ins().band_imm(low, mask.cast_signed())
        }
    }

    /// `n` (1 to 8) big-endian bytes at `at`. `all` bytes can be read.
    fn load_bytes(&mut self, base: Value, at: usize, n: usize, all: usize) -> Result<Value> {
        let (kind, width) = widest(n);
        if width == n {
            return Ok(self.load_be(kind, base, offset(at)?));
        }
        // One wider load, if there are enough bytes after or before.
        let (kind, wide) = if n < 4 {
            (types::I32, 4)
        } else {
            (types::I64, 8)
        };
        if at + wide <= all {
            let value = self.load_be(kind, base, offset(at)?);
            return Ok(self.b.ins().ushr_imm(value, 8 * (wide - n) as i64));
        }
        if at + n >= wide {
            let value = self.load_be(kind, base, offset(at + n - wide)?);
            return Ok(self
                .b
                .ins()
                .band_imm(value, mask64(8 * n as u32).cast_signed()));
        }
        let high = self.load_be(kind_of(width), base, offset(at)?);
        let low = self.load_bytes(base, at + width, n - width, all)?;
        let high = self.shifted(high, 8 * (n - width) as u32);
        Ok(self.b.ins().bor(high, low))
    }

    /// Stores the low `n` (1 to 8) bytes of `value` at `at`, big-endian.
    fn store_bytes(&mut self, base: Value, at: usize, n: usize, value: Value) -> Result<()> {
        let (kind, width) = widest(n);
        let rest = n - width;
        let high = if rest == 0 {
            value
        } else {
            self.b.ins().ushr_imm(value, 8 * rest as i64)
        };
        self.store_be(kind, base, offset(at)?, high);
        if rest > 0 {
            self.store_bytes(base, at + width, rest, value)?;
        }
        Ok(())
    }

    /// `bits` (0 to 64) bits at a bit position. `all` bytes can be read.
    pub fn load_bits(&mut self, base: Value, bit: usize, bits: u32, all: usize) -> Result<Value> {
        if bits == 0 {
            return Ok(self.number(0));
        }
        let (first, last) = (bit / 8, (bit + bits as usize - 1) / 8);
        let n = last - first + 1;
        let below = (8 * (last + 1) - bit - bits as usize) as u32;
        if n <= 8 {
            let value = self.load_bytes(base, first, n, all)?;
            return Ok(self.bits_of(value, below, mask64(bits), 8 * n as u32));
        }
        let high = self.load_bytes(base, first, 8, all)?;
        let low = self.load_bytes(base, last, 1, all)?;
        let high = self.b.ins().ishl_imm(high, i64::from(8 - below));
        let low = self.b.ins().ushr_imm(low, i64::from(below));
        let value = self.b.ins().bor(high, low);
        Ok(self.b.ins().band_imm(value, mask64(bits).cast_signed()))
    }

    /// Stores `bits` (0 to 64) bits at a bit position; other bits of the bytes are kept.
    fn store_bits(&mut self, base: Value, bit: usize, bits: u32, value: Value) -> Result<()> {
        if bits == 0 {
            return Ok(());
        }
        let (first, last) = (bit / 8, (bit + bits as usize - 1) / 8);
        let n = last - first + 1;
        let below = (8 * (last + 1) - bit - bits as usize) as u32;
        if n > 8 {
            // The last byte alone, and the others.
            let here = 8 - below;
            self.store_bits(base, 8 * last, here, value)?;
            let rest = self.b.ins().ushr_imm(value, i64::from(here));
            return self.store_bits(base, bit, bits - here, rest);
        }
        if below == 0 && bits as usize == 8 * n {
            return self.store_bytes(base, first, n, value);
        }
        // Only these bytes may be read.
        let before = self.load_bytes(base, first, n, 0)?;
        let field = mask64(bits) << below;
        let kept = self.b.ins().band_imm(before, (!field).cast_signed());
        let value = self.b.ins().band_imm(value, mask64(bits).cast_signed());
        let value = self.shifted(value, below);
        let all = self.b.ins().bor(kept, value);
        self.store_bytes(base, first, n, all)
    }
}

/// The type of `width` (1, 2, 4 or 8) bytes.
fn kind_of(width: usize) -> Type {
    widest(width).0
}
