//! Canonical byte strings (P4Runtime specification, section "Bytestrings").
//!
//! On the wire a `bit<W>` value is big-endian with any number of leading zero bytes. The server
//! sends the shortest form, at least one byte. Inside the server, a value is [`Bits`]: exactly
//! `(W + 7) / 8` bytes.

use v1model::entries::Bits;

use crate::error::UpdateError;

/// Number of bytes of a value of `bits` bits.
pub fn byte_length(bits: u32) -> usize {
    usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
}

/// Reads a received byte string as a `bit<bits>` value.
///
/// `object` and `field` go into the error text. Leading zero bytes are accepted, as the
/// specification demands of a receiver.
///
/// # Errors
/// `OUT_OF_RANGE` when the string is empty or its value needs more than `bits` bits.
pub fn parse(value: &[u8], bits: u32, object: &str, field: &str) -> Result<Bits, UpdateError> {
    if value.is_empty() {
        return Err(UpdateError::out_of_range(format!(
            "{object}: field {field}: empty value given, {bits} bits (1 to {} bytes) expected",
            byte_length(bits)
        )));
    }
    let first = value.iter().position(|byte| *byte != 0);
    let significant = &value[first.unwrap_or(value.len())..];
    let used_bits = significant.first().map_or(0, |top| {
        significant.len() * 8 - top.leading_zeros() as usize
    });
    let most_bytes = byte_length(bits);
    if u32::try_from(used_bits).map_or(true, |used| used > bits) {
        return Err(UpdateError::out_of_range(
            if significant.len() > most_bytes {
                format!(
                    "{object}: field {field}: {} bytes given, {bits} bits (at most {most_bytes} \
                 bytes) expected",
                    value.len()
                )
            } else {
                format!(
                    "{object}: field {field}: value 0x{} needs {used_bits} bits, {bits} bits expected",
                    hex(significant)
                )
            },
        ));
    }
    let mut wide = vec![0; most_bytes - significant.len()];
    wide.extend(significant);
    Ok(wide.into_boxed_slice())
}

/// Reads a received byte string as an `int<bits>` value.
///
/// `object` and `field` go into the error text. Any number of leading bytes that repeat the sign is
/// accepted.
///
/// # Errors
/// `OUT_OF_RANGE` when the string is empty or its value needs more than `bits` bits.
pub fn parse_signed(
    value: &[u8],
    bits: u32,
    object: &str,
    field: &str,
) -> Result<Bits, UpdateError> {
    let length = byte_length(bits);
    let Some(top) = value.first() else {
        return Err(UpdateError::out_of_range(format!(
            "{object}: field {field}: empty value given, {bits} bits (1 to {length} bytes) expected"
        )));
    };
    let filler = if top & 0x80 != 0 { 0xff } else { 0 };
    let mut wide = vec![filler; length.saturating_sub(value.len())];
    wide.extend(
        value
            .get(value.len().saturating_sub(length)..)
            .unwrap_or(&[]),
    );
    // Bits beyond the width, and the bit of the sign, must all be the sign.
    let unused_bits = (length * 8).saturating_sub(bits as usize);
    let signs = !(0x7f_u8 >> unused_bits);
    let above = value.len().saturating_sub(length);
    let extended = value.iter().take(above).all(|byte| *byte == filler);
    let fits = wide
        .first()
        .is_some_and(|top| top & signs == filler & signs);
    if !extended || !fits {
        return Err(UpdateError::out_of_range(format!(
            "{object}: field {field}: value 0x{} given, which does not fit in int<{bits}>",
            hex(value)
        )));
    }
    if let Some(top) = wide.first_mut() {
        *top &= 0xff_u8 >> unused_bits;
    }
    Ok(wide.into_boxed_slice())
}

/// The canonical form of a value: no leading zero bytes, at least one byte.
pub fn canonical(value: &[u8]) -> Vec<u8> {
    let start = value.iter().position(|byte| *byte != 0);
    start.map_or_else(|| vec![0], |start| value[start..].to_vec())
}

/// The canonical form of a two's complement value of `bits` bits: the fewest bytes that keep its
/// sign.
pub fn canonical_signed(value: &[u8], bits: u32) -> Vec<u8> {
    let length = byte_length(bits);
    let sign_bit = 0x80u8 >> (length * 8).saturating_sub(bits as usize);
    let negative = value.first().is_some_and(|top| top & sign_bit != 0);
    // The unused high bits repeat the sign.
    let filler = if negative { 0xff } else { 0 };
    let mut wide = value.to_vec();
    if let Some(top) = wide.first_mut().filter(|_| negative) {
        *top |= !(sign_bit | (sign_bit - 1));
    }
    let keeps_sign = |byte: &u8| (byte & 0x80 != 0) == negative;
    let start = (0..wide.len().saturating_sub(1))
        .take_while(|at| wide.get(*at) == Some(&filler) && wide.get(at + 1).is_some_and(keeps_sign))
        .count();
    match wide.get(start..) {
        Some(tail) if !tail.is_empty() => tail.to_vec(),
        _ => vec![0],
    }
}

/// The value with all bits zero.
pub fn zero(bits: u32) -> Bits {
    vec![0; byte_length(bits)].into_boxed_slice()
}

/// The value with all bits one.
pub fn ones(bits: u32) -> Bits {
    prefix_mask(bits, bits)
}

/// The mask of the `prefix_bits` most significant bits of a value of `bits` bits.
pub fn prefix_mask(bits: u32, prefix_bits: u32) -> Bits {
    let unused_high_bits = byte_length(bits) * 8 - bits as usize;
    let mut mask = zero(bits);
    for bit in unused_high_bits..unused_high_bits + prefix_bits.min(bits) as usize {
        mask[bit / 8] |= 0x80 >> (bit % 8);
    }
    mask
}

/// Whether all bytes are zero.
pub fn is_zero(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
}

/// Whether `value` has no bit outside `mask` (both equally long).
pub fn within_mask(value: &[u8], mask: &[u8]) -> bool {
    value.iter().zip(mask).all(|(v, m)| v & !m == 0)
}

/// Lower-case hexadecimal digits.
pub fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn accepts_every_valid_encoding_of_the_specification() {
        // Table "Examples of Valid Bytestring Encoding", the unsigned rows.
        for (bits, wire, value) in [
            (8, &[0x63][..], &[0x63][..]),
            (16, &[0x00, 0x63], &[0x00, 0x63]),
            (16, &[0x63], &[0x00, 0x63]),
            (16, &[0x30, 0x64], &[0x30, 0x64]),
            (16, &[0x00, 0x30, 0x64], &[0x30, 0x64]),
            (12, &[0x00, 0x63], &[0x00, 0x63]),
            (12, &[0x63], &[0x00, 0x63]),
            (12, &[0x00, 0x00, 0x63], &[0x00, 0x63]),
            (1, &[0x00], &[0x00]),
        ] {
            let parsed = parse(wire, bits, "t", "f").expect("valid");
            assert_eq!(&parsed[..], value, "bit<{bits}> {wire:?}");
        }
    }

    #[test]
    fn refuses_every_invalid_encoding_of_the_specification() {
        // Table "Examples of Invalid Bytestring Encoding", the unsigned rows.
        for (bits, wire) in [
            (8, &[0x01, 0x63][..]),
            (8, &[]),
            (16, &[0x01, 0x00, 0x63]),
            (12, &[0x10, 0x63]),
            (12, &[0x01, 0x00, 0x63]),
            (12, &[0x00, 0x40, 0x63]),
        ] {
            let error = parse(wire, bits, "t", "f").expect_err("invalid");
            assert_eq!(error.code, Code::OutOfRange, "bit<{bits}> {wire:?}");
        }
    }

    #[test]
    fn signed_values_are_read_with_their_sign() {
        // The signed rows of both tables, and the ends of the range.
        for (bits, wire, value) in [
            (8, &[0x63][..], &[0x63][..]),
            (8, &[0x9d], &[0x9d]),
            (8, &[0xff, 0x9d], &[0x9d]),
            (12, &[0xfd, 0x1d], &[0x0d, 0x1d]),
            (12, &[0xff], &[0x0f, 0xff]),
            (12, &[0xf8, 0x00], &[0x08, 0x00]),
            (12, &[0x07, 0xff], &[0x07, 0xff]),
            (16, &[0x00, 0x00], &[0x00, 0x00]),
            (16, &[0x00, 0x00, 0x9d], &[0x00, 0x9d]),
            (1, &[0xff], &[0x01]),
        ] {
            let parsed = parse_signed(wire, bits, "t", "f").expect("valid");
            assert_eq!(&parsed[..], value, "int<{bits}> {wire:?}");
        }
        for (bits, wire) in [
            (8, &[0x00, 0x9d][..]),
            (12, &[0x8d, 0x1d]),
            (12, &[0x08, 0x00]),
            (12, &[0xf7, 0xff]),
            (16, &[]),
            (16, &[0xfe, 0xff, 0xff]),
            (1, &[0x01]),
        ] {
            let error = parse_signed(wire, bits, "t", "f").expect_err("invalid");
            assert_eq!(error.code, Code::OutOfRange, "int<{bits}> {wire:?}");
        }
    }

    #[test]
    fn error_text_names_object_field_and_what_is_right() {
        let error = parse(&[1; 7], 48, "PacerIngress.forward", "dst_mac").expect_err("too wide");
        assert_eq!(
            error.message,
            "PacerIngress.forward: field dst_mac: 7 bytes given, 48 bits (at most 6 bytes) expected"
        );
    }

    #[test]
    fn canonical_is_the_shortest_form() {
        assert_eq!(canonical(&[0, 0, 0]), [0]);
        assert_eq!(canonical(&[0, 1, 0]), [1, 0]);
        assert_eq!(canonical(&[0x80]), [0x80]);
        assert_eq!(canonical(&[]), [0]);
    }

    #[test]
    fn signed_canonical_form_keeps_the_sign() {
        // Table "Examples of Valid Bytestring Encoding", the signed rows.
        for (bits, value, wire) in [
            (8, &[0x63][..], &[0x63][..]),
            (8, &[0x9d], &[0x9d]),
            (16, &[0x00, 0x63], &[0x63]),
            (16, &[0xff, 0x9d], &[0x9d]),
            (12, &[0x0f, 0x9d], &[0x9d]),
            (16, &[0x00, 0x9d], &[0x00, 0x9d]),
            (16, &[0xff, 0x63], &[0xff, 0x63]),
            (16, &[0x00, 0x00], &[0x00]),
            (16, &[0xff, 0xff], &[0xff]),
        ] {
            assert_eq!(canonical_signed(value, bits), wire, "int<{bits}> {value:?}");
        }
    }

    #[test]
    fn masks_respect_widths_that_are_no_multiple_of_eight() {
        assert_eq!(&*prefix_mask(9, 9), &[0x01, 0xff]);
        assert_eq!(&*prefix_mask(9, 1), &[0x01, 0x00]);
        assert_eq!(&*prefix_mask(32, 20), &[0xff, 0xff, 0xf0, 0x00]);
        assert_eq!(&*prefix_mask(32, 0), &[0, 0, 0, 0]);
        assert_eq!(&*ones(6), &[0x3f]);
        assert!(within_mask(&[0x0a, 0], &[0xff, 0]));
        assert!(!within_mask(&[0x0a, 1], &[0xff, 0]));
    }
}
