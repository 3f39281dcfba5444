//! Headers from and to bytes. Each header type is precompiled into groups: runs of fields that
//! begin and end on a byte boundary and fit in 64 bits are loaded or stored as one big-endian
//! number and split by shifts; wider fields go limb by limb.

use crate::layout::HeaderType;
use crate::wide::mask64;

/// One field inside a group.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Words after the header's base.
    offset: u32,
    shift: u32,
    mask: u64,
}

#[derive(Debug, Clone)]
enum Group {
    /// `bytes` (1 to 8) bytes at `at` hold all the parts.
    Packed {
        at: usize,
        bytes: usize,
        parts: Box<[Part]>,
    },
    /// One field at any bit position, of any width.
    Loose { bit: usize, bits: u32, offset: u32 },
}

/// How a header type is laid out on the wire.
#[derive(Debug, Clone)]
pub(crate) struct HeaderIo {
    /// Length on the wire in bytes.
    pub bytes: usize,
    groups: Box<[Group]>,
}

impl HeaderIo {
    /// Precompiles a header type whose width is a whole number of bytes.
    pub fn new(kind: &HeaderType) -> Self {
        let mut groups = Vec::new();
        let (mut bit, mut i) = (0usize, 0usize);
        while i < kind.fields.len() {
            match packed_run(kind, i, bit) {
                Some((count, width)) => {
                    let mut left = width;
                    let parts = kind.fields[i..i + count]
                        .iter()
                        .map(|f| {
                            left -= f.bits;
                            Part {
                                offset: f.offset,
                                shift: left,
                                mask: mask64(f.bits),
                            }
                        })
                        .collect();
                    groups.push(Group::Packed {
                        at: bit / 8,
                        bytes: width as usize / 8,
                        parts,
                    });
                    bit += width as usize;
                    i += count;
                }
                None => {
                    let f = &kind.fields[i];
                    groups.push(Group::Loose {
                        bit,
                        bits: f.bits,
                        offset: f.offset,
                    });
                    bit += f.bits as usize;
                    i += 1;
                }
            }
        }
        Self {
            bytes: kind.bits as usize / 8,
            groups: groups.into(),
        }
    }

    /// Reads the header's fields from `data`, which holds at least `self.bytes` bytes.
    pub fn extract(&self, data: &[u8], words: &mut [u64], base: u32) {
        for group in &self.groups {
            match group {
                Group::Packed { at, bytes, parts } => {
                    let value = load(data, *at, *bytes);
                    for p in parts {
                        words[(base + p.offset) as usize] = (value >> p.shift) & p.mask;
                    }
                }
                Group::Loose { bit, bits, offset } => {
                    read_bits(data, *bit, *bits, words, (base + offset) as usize);
                }
            }
        }
    }

    /// Writes the header to the first `self.bytes` bytes of `out`.
    pub fn emit(&self, words: &[u64], base: u32, out: &mut [u8]) {
        for group in &self.groups {
            match group {
                Group::Packed { at, bytes, parts } => {
                    let mut value = 0;
                    for p in parts {
                        value |= words[(base + p.offset) as usize] << p.shift;
                    }
                    let bytes = *bytes;
                    out[*at..*at + bytes].copy_from_slice(&value.to_be_bytes()[8 - bytes..]);
                }
                Group::Loose { bit, bits, offset } => {
                    let offset = (base + offset) as usize;
                    write_bits(out, *bit, *bits, words, offset);
                }
            }
        }
    }
}

/// The longest run of fields from `first` that starts at bit `bit` on a byte boundary, ends on
/// one and fits in 64 bits: (fields, bits). The shortest such run is enough.
fn packed_run(kind: &HeaderType, first: usize, bit: usize) -> Option<(usize, u32)> {
    if !bit.is_multiple_of(8) {
        return None;
    }
    let mut width = 0;
    for (count, f) in kind.fields[first..].iter().enumerate() {
        width += f.bits;
        if width > 64 {
            return None;
        }
        if width % 8 == 0 {
            return Some((count + 1, width));
        }
    }
    None
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

/// Reads a field of any width into limbs at `slot`.
pub(crate) fn read_bits(data: &[u8], bit: usize, bits: u32, words: &mut [u64], slot: usize) {
    let mut end = bit + bits as usize;
    let mut left = bits;
    let mut i = 0;
    while left > 0 {
        let take = left.min(64);
        words[slot + i] = read_bits64(data, end - take as usize, take);
        end -= take as usize;
        left -= take;
        i += 1;
    }
}

/// Writes a field of any width from limbs at `slot`; other bits of the bytes are kept.
pub(crate) fn write_bits(out: &mut [u8], bit: usize, bits: u32, words: &[u64], slot: usize) {
    let mut end = bit + bits as usize;
    let mut left = bits;
    let mut i = 0;
    while left > 0 {
        let take = left.min(64);
        write_bits64(out, end - take as usize, take, words[slot + i]);
        end -= take as usize;
        left -= take;
        i += 1;
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
