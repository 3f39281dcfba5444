//! Values in the packet header vector (PHV): fields, and indices.

use crate::layout::Field;
use crate::wide::mask64;

/// Writes a value of the switch to a field, truncated to the field's width.
pub(crate) fn set_field(phv: &mut [u64], field: Field, value: u64) {
    phv[field.slot as usize] = value & mask64(field.bits);
    if field.bits > 64 {
        let end = (field.slot + field.limbs()) as usize;
        phv[field.slot as usize + 1..end].fill(0);
    }
}

/// The low word of a field.
pub(crate) fn get_field(phv: &[u64], field: Field) -> u64 {
    phv[field.slot as usize]
}

/// A word as an index. Words that are no index of this machine become one that nothing has.
pub(crate) fn to_index(word: u64) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}
