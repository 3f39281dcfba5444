//! Values of a width, as BMv2 and as the switch have them.

use v1model::Pipeline;
use v1model::entries::{ActionCall, Bits};

use super::lookup::{TableResult, refused};
use bmv2_thrift::standard::TableOperationErrorCode as Code;

pub(super) fn bytes_of(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

/// A value that must have the bytes of its width. Bits beyond the width are cleared, as BMv2 does.
pub(super) fn exact(value: &[u8], bits: u32) -> Option<Bits> {
    (value.len() == bytes_of(bits)).then(|| fit(value, bits))
}

/// The lowest bits of a value.
pub(super) fn fit(value: &[u8], bits: u32) -> Bits {
    let bytes = bytes_of(bits);
    let missing = bytes.saturating_sub(value.len());
    let from = value.len().saturating_sub(bytes);
    let mut fitted: Bits = std::iter::repeat_n(0, missing)
        .chain(value.get(from..).unwrap_or_default().iter().copied())
        .collect();
    if let Some(first) = fitted.first_mut() {
        *first &= 0xFF >> unused_bits(bits);
    }
    fitted
}

/// Clears the bits of a value that are not in a mask.
pub(super) fn masked(value: &[u8], mask: &[u8]) -> Bits {
    value.iter().zip(mask).map(|(v, m)| v & m).collect()
}

/// The bits of a value's first byte that are above its width.
fn unused_bits(bits: u32) -> u32 {
    bytes_of(bits) as u32 * 8 - bits
}

/// The length of a field's prefix that a client gives: BMv2 counts from the first bit of the field's first byte.
/// `None`: it is longer than these bytes.
pub(super) fn prefix_given(bits: u32, given: u32) -> Option<u32> {
    let unused = unused_bits(bits);
    (given <= bits + unused).then(|| given.saturating_sub(unused))
}

/// The length of a field's prefix as a client sees it.
pub(super) fn prefix_told(bits: u32, prefix: u32) -> u32 {
    match prefix {
        0 => 0,
        _ => prefix + unused_bits(bits),
    }
}

/// The mask of a prefix, which begins at the first bit of the field.
pub(super) fn prefix_mask(bits: u32, prefix: u32) -> Bits {
    let bytes = bytes_of(bits);
    let unused = unused_bits(bits);
    (0..bytes as u32)
        .map(|byte| {
            let ones = (prefix + unused).saturating_sub(byte * 8).min(8);
            let mask = 0xFF_u8.checked_shl(8 - ones).unwrap_or(0);
            if byte == 0 {
                mask & (0xFF >> unused)
            } else {
                mask
            }
        })
        .collect()
}

/// A value without leading zeros, as BMv2 tells arguments of actions; at least a byte.
pub(super) fn shortest(value: &[u8]) -> Vec<u8> {
    let zeros = value.iter().take_while(|byte| **byte == 0).count();
    let from = zeros.min(value.len().saturating_sub(1));
    value.get(from..).unwrap_or_default().to_vec()
}

/// A call of an action with the arguments that a client gives.
pub(super) fn call(
    pipeline: &Pipeline,
    action: usize,
    data: &[Vec<u8>],
) -> TableResult<ActionCall> {
    let params = pipeline.actions().get(action).map(|info| &info.params[..]);
    let params = params.unwrap_or_default();
    if params.len() != data.len() {
        return Err(refused(Code::BAD_ACTION_DATA));
    }
    let args = params.iter().zip(data);
    Ok(ActionCall {
        action,
        args: args.map(|((_, bits), value)| fit(value, *bits)).collect(),
    })
}

/// The name of a call's action and its arguments, as BMv2 tells them.
pub(super) fn told(pipeline: &Pipeline, call: &ActionCall) -> (String, Vec<Vec<u8>>) {
    let info = pipeline.actions().get(call.action);
    let name = info.map_or_else(String::new, |info| info.name.clone());
    (name, call.args.iter().map(|arg| shortest(arg)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_to_their_width() {
        assert_eq!(exact(&[0xFF, 0x34], 9).as_deref(), Some(&[1, 0x34][..]));
        assert_eq!(exact(&[0x34], 9), None);
        assert_eq!(*fit(&[0x34], 16), [0, 0x34]);
        assert_eq!(*fit(&[1, 2, 3], 12), [2, 3]);
        assert_eq!(*fit(&[], 8), [0]);
        assert_eq!(shortest(&[0, 0, 1, 0]), [1, 0]);
        assert_eq!(shortest(&[0, 0]), [0]);
    }

    #[test]
    fn a_client_counts_a_prefix_from_the_first_bit_of_the_first_byte() {
        let fields = [(32, 24, 24), (32, 0, 0), (9, 8, 1), (9, 16, 9), (12, 12, 8)];
        for (bits, given, prefix) in fields {
            assert_eq!(prefix_given(bits, given), Some(prefix), "{given} of {bits}");
            assert_eq!(prefix_told(bits, prefix), given, "{prefix} of {bits}");
        }
        // No bit of the field.
        assert_eq!(prefix_given(12, 3), Some(0));
        assert_eq!(prefix_given(12, 17), None);
    }

    #[test]
    fn a_prefix_begins_at_the_first_bit_of_the_field() {
        assert_eq!(*prefix_mask(32, 24), [0xFF, 0xFF, 0xFF, 0]);
        assert_eq!(*prefix_mask(32, 0), [0; 4]);
        assert_eq!(*prefix_mask(32, 32), [0xFF; 4]);
        assert_eq!(*prefix_mask(9, 1), [1, 0]);
        assert_eq!(*prefix_mask(12, 6), [0x0F, 0xC0]);
        assert_eq!(*masked(&[0x12, 0x34], &[0xF0, 0x0F]), [0x10, 0x04]);
    }
}
