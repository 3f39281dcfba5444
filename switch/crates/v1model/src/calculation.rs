//! Computes checksums and hashes over fields of a packet.

use crate::hash::{Algorithm, CustomCrc};
use crate::header_io::HeaderIo;
use crate::layout::Field;

/// One input of a calculation. Inputs of an invalid header are left out.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// A field; `valid` is its header's validity slot.
    Field { field: Field, valid: u32 },
    /// A variable-length field; `length` is the slot with its length in bits.
    Variable {
        field: Field,
        length: u32,
        valid: u32,
    },
    /// Constant bits.
    Constant { bits: u32, value: Vec<u64> },
    /// A whole header (a whole number of bytes).
    Header { base: u32, kind: usize },
}

impl Input {
    /// The validity slot of the input's header; none of a constant.
    fn valid(&self) -> Option<u32> {
        match self {
            Self::Field { valid, .. } | Self::Variable { valid, .. } => Some(*valid),
            Self::Header { base, .. } => Some(*base),
            Self::Constant { .. } => None,
        }
    }
}

/// A compiled calculation.
#[derive(Debug, Clone)]
pub(crate) struct Calculation {
    algorithm: Algorithm,
    inputs: Box<[Input]>,
    /// Whether the payload follows the inputs.
    payload: bool,
    /// A faster way to the same value, if there is one.
    sum: Option<Sum>,
    /// A CRC whose parameters were set, in place of the algorithm.
    custom: Option<Box<CustomCrc>>,
}

/// An internet checksum over fields of one header: as 2^16 is 1 modulo 2^16 - 1, each field counts
/// as its value times a power of two that depends on where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Sum {
    /// Validity slot of the header.
    pub valid: u32,
    pub terms: Box<[Term]>,
}

/// A word of a sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub slot: u32,
    /// It counts as its value times 2 to this.
    pub power: u32,
    /// Most bits of its value.
    pub bits: u32,
}

/// Most terms of a sum: each is below 2^48, so that their sum fits in a word.
const MAX_TERMS: usize = 1 << 15;

impl Sum {
    /// The sum that computes the same as a calculation, if there is one.
    fn of(algorithm: Algorithm, inputs: &[Input], payload: bool) -> Option<Self> {
        if algorithm != Algorithm::Csum16 || payload {
            return None;
        }
        let fields: Vec<(Field, u32)> = inputs
            .iter()
            .map(|input| match input {
                Input::Field { field, valid } => Some((*field, *valid)),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let &(_, valid) = fields.first()?;
        if fields.iter().any(|(_, other)| *other != valid) {
            return None;
        }
        let mut end = 0;
        let mut terms = Vec::new();
        for (field, _) in fields {
            end += field.bits;
            // The bits to the right of it in its 16-bit word. Its upper limbs are 64 bits to the left,
            // which is 1 modulo 2^16 - 1.
            let power = end.next_multiple_of(16) - end;
            terms.extend((0..field.limbs()).map(|limb| Term {
                slot: field.slot + limb,
                power,
                bits: (field.bits - (64 * limb).min(field.bits)).min(64),
            }));
        }
        (terms.len() <= MAX_TERMS).then(|| Self {
            valid,
            terms: terms.into(),
        })
    }

    #[inline]
    fn compute(&self, phv: &[u64]) -> u64 {
        let mut sum = 0;
        if phv[self.valid as usize] != 0 {
            for term in &self.terms {
                let value = phv[term.slot as usize];
                sum += ((value & 0xffff_ffff) + (value >> 32)) << term.power;
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u64::from(!(sum as u16))
    }
}

/// Concatenates bit strings.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Up to 7 bits not yet written, right-aligned.
    pending: u64,
    count: u32,
}

impl BitWriter<'_> {
    #[inline]
    fn push(&mut self, value: u64, bits: u32) {
        if bits + self.count > 64 {
            let low = bits - 32;
            self.push(value >> low, 32);
            self.push(value & crate::wide::mask64(low), low);
            return;
        }
        let all = if bits == 64 {
            value
        } else {
            (self.pending << bits) | value
        };
        let total = self.count + bits;
        let whole = total / 8;
        let rest = total % 8;
        if whole > 0 {
            let bytes = (all >> rest).to_be_bytes();
            self.out.extend_from_slice(&bytes[8 - whole as usize..]);
        }
        self.pending = all & crate::wide::mask64(rest);
        self.count = rest;
    }

    fn push_limbs(&mut self, limbs: &[u64], bits: u32) {
        let mut left = bits;
        for limb in limbs.iter().rev() {
            let take = match left % 64 {
                0 => left.min(64),
                part => part,
            };
            self.push(limb & crate::wide::mask64(take), take);
            left -= take;
        }
    }

    fn finish(mut self) {
        if self.count > 0 {
            let pad = 8 - self.count;
            self.push(0, pad);
        }
    }
}

impl Calculation {
    pub fn new(algorithm: Algorithm, inputs: Vec<Input>, payload: bool) -> Self {
        Self {
            algorithm,
            sum: Sum::of(algorithm, &inputs, payload),
            inputs: inputs.into(),
            payload,
            custom: None,
        }
    }

    /// The sum that computes it, if it is one.
    pub fn sum(&self) -> Option<&Sum> {
        self.sum.as_ref()
    }

    /// Width of the CRC whose parameters can be set, if it is one, in bits.
    pub fn custom_bits(&self) -> Option<u32> {
        self.algorithm.custom_bits()
    }

    /// Computes this CRC from now on.
    pub fn set_custom(&mut self, crc: CustomCrc) {
        self.custom = Some(Box::new(crc));
    }

    /// Most bytes of the inputs, without the payload.
    pub fn max_bytes(&self, kinds: &[HeaderIo]) -> usize {
        let bits: usize = self
            .inputs
            .iter()
            .map(|input| match input {
                Input::Field { field, .. } | Input::Variable { field, .. } => field.bits as usize,
                Input::Constant { bits, .. } => *bits as usize,
                Input::Header { kind, .. } => kinds[*kind].max_bytes() * 8,
            })
            .sum();
        bits.div_ceil(8) + 1
    }

    /// The calculation's value for a packet. `payload`: the bytes after its parsed headers. `scratch`:
    /// a buffer with any contents.
    #[inline]
    pub fn compute(
        &self,
        phv: &[u64],
        payload: &[u8],
        kinds: &[HeaderIo],
        scratch: &mut Vec<u8>,
    ) -> u64 {
        match &self.sum {
            Some(sum) => sum.compute(phv),
            None => self.compute_bytes(phv, payload, kinds, scratch),
        }
    }

    fn compute_bytes(
        &self,
        phv: &[u64],
        payload: &[u8],
        kinds: &[HeaderIo],
        scratch: &mut Vec<u8>,
    ) -> u64 {
        scratch.clear();
        let mut bits = BitWriter {
            out: scratch,
            pending: 0,
            count: 0,
        };
        for input in &self.inputs {
            if input.valid().is_some_and(|valid| phv[valid as usize] == 0) {
                continue;
            }
            match input {
                Input::Field { field, .. } => {
                    let slot = field.slot as usize;
                    if field.bits <= 64 {
                        bits.push(phv[slot], field.bits);
                    } else {
                        let limbs = &phv[slot..slot + field.limbs() as usize];
                        bits.push_limbs(limbs, field.bits);
                    }
                }
                Input::Variable { field, length, .. } => {
                    let n = phv[*length as usize].min(u64::from(field.bits)) as u32;
                    let slot = field.slot as usize;
                    let limbs = &phv[slot..slot + crate::wide::limbs(n) as usize];
                    bits.push_limbs(limbs, n);
                }
                Input::Constant { bits: n, value } => bits.push_limbs(value, *n),
                Input::Header { base, kind } => {
                    // Headers start on a byte: zero bits fill the last byte before.
                    let pad = (8 - bits.count) % 8;
                    bits.push(0, pad);
                    let at = bits.out.len();
                    bits.out.resize(at + kinds[*kind].length(phv, *base), 0);
                    kinds[*kind].emit(phv, *base, &mut bits.out[at..]);
                }
            }
        }
        bits.finish();
        if self.payload {
            scratch.extend_from_slice(payload);
        }
        match &self.custom {
            Some(crc) => crc.compute(scratch),
            None => self.algorithm.compute(scratch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::csum16;
    use crate::header_io::write_bits;

    /// The sum must be the checksum of the bytes, wherever the fields lie and end.
    #[test]
    fn a_sum_of_fields_is_the_checksum_of_their_bytes() {
        let mut seed = 5u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
            (seed >> 33) % n
        };
        let widths = [1, 3, 4, 7, 8, 13, 16, 20, 32, 48, 63, 64, 65, 100, 128, 200];
        for round in 0..2_000 {
            let (mut words, mut inputs, mut bytes) = (vec![1], Vec::new(), vec![0; 400]);
            let mut bit = 0;
            for _ in 0..1 + next(12) {
                let bits = widths[next(widths.len() as u64) as usize];
                let slot = words.len();
                for limb in 0..crate::wide::limbs(bits) {
                    let mask = crate::wide::mask64(bits - 64 * limb);
                    // All zeros and all ones are where the two sums could differ.
                    words.push([0, u64::MAX, next(u64::MAX)][round % 3] & mask);
                }
                write_bits(&mut bytes, bit, bits, &words, slot);
                bit += bits as usize;
                let field = Field {
                    slot: slot as u32,
                    bits,
                    signed: false,
                };
                inputs.push(Input::Field { field, valid: 0 });
            }
            bytes.truncate(bit.div_ceil(8));
            let sum = Sum::of(Algorithm::Csum16, &inputs, false).expect("a sum");
            assert_eq!(sum.compute(&words), u64::from(csum16(&bytes)));
            words[0] = 0;
            assert_eq!(sum.compute(&words), u64::from(csum16(&[])));
        }
    }
}
