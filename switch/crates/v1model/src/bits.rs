//! Converts between limbs and the control plane's byte strings, most significant byte first.

use crate::entries::{Bits, ControlError, ControlResult};
use crate::wide::{bit_length, limbs, mask64};

/// Limbs of a byte string that must be exactly as wide as `bits`. `what` names it in an error.
pub(crate) fn from_bits(
    value: &[u8],
    bits: u32,
    what: impl Fn() -> String,
) -> ControlResult<Vec<u64>> {
    let bytes = bits.div_ceil(8) as usize;
    if value.len() != bytes {
        return Err(ControlError::InvalidArgument(format!(
            "{}: {} bytes given, a {bits}-bit value has {bytes}",
            what(),
            value.len()
        )));
    }
    let out: Vec<u64> = value
        .rchunks(8)
        .map(|chunk| chunk.iter().fold(0, |v, &b| (v << 8) | u64::from(b)))
        .collect();
    if bit_length(&out) > bits {
        return Err(ControlError::InvalidArgument(format!(
            "{}: value does not fit in {bits} bits",
            what()
        )));
    }
    Ok(out)
}

/// The byte string of a value of `bits` bits.
pub(crate) fn to_bits(value: &[u64], bits: u32) -> Bits {
    let bytes = bits.div_ceil(8) as usize;
    (0..bytes)
        .rev()
        .map(|i| {
            value
                .get(i / 8)
                .map_or(0, |limb| (limb >> (8 * (i % 8))) as u8)
        })
        .collect()
}

/// The byte strings of values of these widths that stand one after the other in `words`.
pub(crate) fn split_bits(words: &[u64], widths: impl Iterator<Item = u32>) -> Vec<Bits> {
    let mut rest = words;
    let values = widths.map(|bits| {
        let n = limbs(bits) as usize;
        debug_assert!(n <= rest.len(), "a value of {bits} bits is missing");
        let (now, later) = rest.split_at(n.min(rest.len()));
        rest = later;
        to_bits(now, bits)
    });
    values.collect()
}

/// Limbs of the mask with the `prefix` most significant of `bits` bits set.
pub(crate) fn prefix_mask(bits: u32, prefix: u32) -> Vec<u64> {
    let below = bits - prefix.min(bits);
    (0..limbs(bits))
        .map(|i| {
            let all = mask64(bits - 64 * i);
            let low = mask64(below.saturating_sub(64 * i));
            all & !low
        })
        .collect()
}
