//! Reads headers from bytes and writes them to bytes.
//!
//! Each header type is precompiled into groups. A run of fields that begins and ends on a byte
//! boundary and fits in 64 bits is one group: it is loaded or stored as one big-endian number, and
//! shifts split it. Any other field is a group of its own and goes limb by limb.

use crate::layout::{FieldType, HeaderType};
use crate::wide::{limbs, mask64};

/// One field inside a group, of one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub shift: u32,
    pub mask: u64,
}

/// Fields that are read and written together.
#[derive(Debug, Clone)]
pub(crate) enum Group {
    /// `bytes` (1 to 8) bytes at `at` hold all the parts, whose words follow each other from
    /// `offset` after the header's base on.
    Packed {
        at: usize,
        bytes: usize,
        offset: u32,
        parts: Box<[Part]>,
    },
    /// One field at any bit position, of any width.
    Loose { bit: usize, bits: u32, offset: u32 },
}

/// A variable-length field and the fields after it.
#[derive(Debug, Clone)]
struct VariablePart {
    /// Its beginning.
    bit: usize,
    /// Words after the header's base: its value, and its length now in bits.
    offset: u32,
    length: u32,
    /// Its largest width in bits.
    bits: u32,
    /// The fields after it, at the places they have when it is empty.
    tail: Box<[Group]>,
}

/// The layout of a header type on the wire.
#[derive(Debug, Clone)]
pub(crate) struct HeaderIo {
    /// Length on the wire in bytes, without the variable field.
    pub bytes: usize,
    groups: Box<[Group]>,
    variable: Option<Box<VariablePart>>,
}

impl HeaderIo {
    /// Precompiles a header type whose width is a whole number of bytes.
    pub fn new(kind: &HeaderType) -> Self {
        let first = kind.variable.map_or(kind.fields.len(), |v| v.field);
        let mut bit = 0;
        let groups = groups_of(&kind.fields[..first], &mut bit);
        let variable = kind.variable.map(|v| {
            let begin = bit;
            let field = &kind.fields[v.field];
            Box::new(VariablePart {
                bit: begin,
                offset: field.offset,
                length: v.length,
                bits: field.bits,
                tail: groups_of(&kind.fields[v.field + 1..], &mut bit),
            })
        });
        Self {
            bytes: kind.bits as usize / 8,
            groups,
            variable,
        }
    }

    /// The fields before the variable field.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether it has a variable field.
    pub fn is_variable(&self) -> bool {
        self.variable.is_some()
    }

    /// Bytes of the longest such header.
    pub fn max_bytes(&self) -> usize {
        self.bytes + self.variable.as_ref().map_or(0, |v| v.bits as usize / 8)
    }

    /// Bytes of the header at `base`, with the present length of its variable field.
    #[inline]
    pub fn length(&self, phv: &[u64], base: u32) -> usize {
        match &self.variable {
            None => self.bytes,
            Some(v) => {
                let bits = phv[(base + v.length) as usize].min(u64::from(v.bits));
                self.bytes + bits as usize / 8
            }
        }
    }

    /// Zeroes a header's words, except the length of its variable field.
    pub fn clear(&self, header: &mut [u64]) {
        match &self.variable {
            None => header.fill(0),
            Some(v) => {
                let at = v.length as usize;
                let length = header.get(at).copied().unwrap_or(0);
                header.fill(0);
                if let Some(kept) = header.get_mut(at) {
                    *kept = length;
                }
            }
        }
    }

    /// Reads the header's fields from `data`, which holds at least `self.bytes` bytes.
    pub fn extract(&self, data: &[u8], phv: &mut [u64], base: u32) {
        read_groups(&self.groups, data, phv, base);
        if self.variable.is_some() {
            self.extract_variable(data, phv, base, 0);
        }
    }

    /// Reads the header with its variable field, `bits` (a whole number of bytes, at most what
    /// the field takes) wide. `data` holds at least that many more bytes than `self.bytes`.
    pub fn extract_variable(&self, data: &[u8], phv: &mut [u64], base: u32, bits: u32) {
        read_groups(&self.groups, data, phv, base);
        let Some(v) = &self.variable else { return };
        let bits = bits.min(v.bits);
        let slot = (base + v.offset) as usize;
        phv[slot..slot + limbs(v.bits) as usize].fill(0);
        read_bits(data, v.bit, bits, phv, slot);
        phv[(base + v.length) as usize] = u64::from(bits);
        let tail = data.get(bits as usize / 8..).unwrap_or_default();
        read_groups(&v.tail, tail, phv, base);
    }

    /// Writes the header to the first [`Self::length`] bytes of `out`, which are zero where
    /// fields do not begin and end on bytes.
    pub fn emit(&self, phv: &[u64], base: u32, out: &mut [u8]) {
        write_groups(&self.groups, phv, base, out);
        let Some(v) = &self.variable else { return };
        let bits = phv[(base + v.length) as usize].min(u64::from(v.bits)) as u32;
        write_bits(out, v.bit, bits, phv, (base + v.offset) as usize);
        if let Some(tail) = out.get_mut(bits as usize / 8..) {
            write_groups(&v.tail, phv, base, tail);
        }
    }
}

/// The groups of consecutive fields from bit `bit` on; moves `bit` behind them.
fn groups_of(fields: &[FieldType], bit: &mut usize) -> Box<[Group]> {
    let mut groups = Vec::new();
    let mut i = 0;
    while i < fields.len() {
        match packed_run(&fields[i..], *bit) {
            Some((count, width)) => {
                let mut left = width;
                let parts = fields[i..i + count]
                    .iter()
                    .map(|f| {
                        left -= f.bits;
                        Part {
                            shift: left,
                            mask: mask64(f.bits),
                        }
                    })
                    .collect();
                groups.push(Group::Packed {
                    at: *bit / 8,
                    bytes: width as usize / 8,
                    offset: fields[i].offset,
                    parts,
                });
                *bit += width as usize;
                i += count;
            }
            None => {
                let f = &fields[i];
                groups.push(Group::Loose {
                    bit: *bit,
                    bits: f.bits,
                    offset: f.offset,
                });
                *bit += f.bits as usize;
                i += 1;
            }
        }
    }
    groups.into()
}

#[inline]
fn read_groups(groups: &[Group], data: &[u8], phv: &mut [u64], base: u32) {
    for group in groups {
        match group {
            Group::Packed {
                at,
                bytes,
                offset,
                parts,
            } => {
                let value = load(data, *at, *bytes);
                let words = &mut phv[(base + offset) as usize..];
                for (word, p) in words.iter_mut().zip(parts) {
                    *word = (value >> p.shift) & p.mask;
                }
            }
            Group::Loose { bit, bits, offset } => {
                read_bits(data, *bit, *bits, phv, (base + offset) as usize);
            }
        }
    }
}

#[inline]
fn write_groups(groups: &[Group], phv: &[u64], base: u32, out: &mut [u8]) {
    for group in groups {
        match group {
            Group::Packed {
                at,
                bytes,
                offset,
                parts,
            } => {
                let mut value = 0;
                let words = &phv[(base + offset) as usize..];
                for (word, p) in words.iter().zip(parts) {
                    value |= word << p.shift;
                }
                store(out, *at, *bytes, value);
            }
            Group::Loose { bit, bits, offset } => {
                let offset = (base + offset) as usize;
                write_bits(out, *bit, *bits, phv, offset);
            }
        }
    }
}

/// The longest run of fields that starts at bit `bit` on a byte boundary, ends on one and fits
/// in 64 bits: (fields, bits).
fn packed_run(fields: &[FieldType], bit: usize) -> Option<(usize, u32)> {
    if !bit.is_multiple_of(8) {
        return None;
    }
    let mut width = 0;
    let mut longest = None;
    for (count, f) in fields.iter().enumerate() {
        width += f.bits;
        if width > 64 || f.bits == 0 {
            break;
        }
        if width % 8 == 0 {
            longest = Some((count + 1, width));
        }
    }
    longest
}

/// Writes the low `bytes` (1 to 8) bytes of a number at `at`, big-endian. The usual lengths need no
/// call of `memcpy`.
#[inline]
fn store(out: &mut [u8], at: usize, bytes: usize, value: u64) {
    let all = value.to_be_bytes();
    let out = &mut out[at..at + bytes];
    match bytes {
        8 => out.copy_from_slice(&all),
        6 => {
            out[..4].copy_from_slice(&all[2..6]);
            out[4..].copy_from_slice(&all[6..]);
        }
        4 => out.copy_from_slice(&all[4..]),
        2 => out.copy_from_slice(&all[6..]),
        _ => out.copy_from_slice(&all[8 - bytes..]),
    }
}

/// `bytes` (1 to 8) big-endian bytes at `at`.
#[inline]
fn load(data: &[u8], at: usize, bytes: usize) -> u64 {
    if let Some(chunk) = data.get(at..).and_then(|d| d.first_chunk::<8>()) {
        return u64::from_be_bytes(*chunk) >> (64 - 8 * bytes);
    }
    data.iter()
        .skip(at)
        .take(bytes)
        .fold(0, |v, &b| (v << 8) | u64::from(b))
}

/// Reads up to 64 bits at a bit position; bits past the end of `data` read as zero.
pub(crate) fn read_bits64(data: &[u8], bit: usize, bits: u32) -> u64 {
    let (mut value, mut bit, mut left) = (0u64, bit, bits.min(64));
    while left > 0 {
        let byte = data.get(bit / 8).copied().unwrap_or(0);
        let have = 8 - (bit % 8) as u32;
        let take = have.min(left);
        let chunk = (byte >> (have - take)) & ((1u16 << take) - 1) as u8;
        value = (value << take) | u64::from(chunk);
        bit += take as usize;
        left -= take;
    }
    value
}

/// Where each limb of a field of `bits` bits at bit `bit` begins, and its bits; the lowest limb, which
/// ends the field, first.
#[inline]
pub(crate) fn limb_places(bit: usize, bits: u32) -> impl Iterator<Item = (usize, u32)> {
    (0..limbs(bits)).map(move |i| {
        let end = bits - 64 * i;
        let take = end.min(64);
        (bit + (end - take) as usize, take)
    })
}

/// Reads a field of any width into limbs at `slot`.
pub(crate) fn read_bits(data: &[u8], bit: usize, bits: u32, phv: &mut [u64], slot: usize) {
    for (i, (at, take)) in limb_places(bit, bits).enumerate() {
        phv[slot + i] = read_bits64(data, at, take);
    }
}

/// Writes a field of any width from limbs at `slot`; other bits of the bytes are kept.
pub(crate) fn write_bits(out: &mut [u8], bit: usize, bits: u32, phv: &[u64], slot: usize) {
    for (i, (at, take)) in limb_places(bit, bits).enumerate() {
        write_bits64(out, at, take, phv[slot + i]);
    }
}

/// Writes up to 64 bits at a bit position; bits past the end of `out` are lost.
pub(crate) fn write_bits64(out: &mut [u8], bit: usize, bits: u32, value: u64) {
    let (mut bit, mut left) = (bit, bits);
    while left > 0 {
        let have = 8 - (bit % 8) as u32;
        let take = have.min(left);
        let ones = ((1u16 << take) - 1) as u8;
        let chunk = (value >> (left - take)) as u8 & ones;
        if let Some(byte) = out.get_mut(bit / 8) {
            let shift = have - take;
            *byte = (*byte & !(ones << shift)) | (chunk << shift);
        }
        bit += take as usize;
        left -= take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip_at_any_position() {
        let words = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x15];
        for bit in 0..20 {
            for bits in [1, 5, 8, 12, 31, 63, 64, 65, 100, 128, 133] {
                let mut out = [0xaa; 24];
                let mut expect = words;
                crate::wide::mask(&mut expect, 0, 3, bits);
                write_bits(&mut out, bit, bits, &words, 0);
                let mut back = [0; 3];
                read_bits(&out, bit, bits, &mut back, 0);
                assert_eq!(back, expect, "bit {bit} bits {bits}");
                assert_eq!(
                    read_bits64(&out, 0, bit as u32),
                    read_bits64(&[0xaa; 24], 0, bit as u32)
                );
            }
        }
    }
}
