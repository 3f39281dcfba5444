//! Arithmetic on values wider than a machine word: little-endian 64-bit limbs, two's complement.
//!
//! The functions work on ranges of `n` words of one array `w`: `d` is where the destination begins,
//! `a` and `b` where the operands do. A destination does not overlap operands unless the function
//! works in place.

/// Limbs needed for `bits`. A value of no bits takes one, which is zero.
pub(crate) const fn limbs(bits: u32) -> u32 {
    if bits == 0 { 1 } else { bits.div_ceil(64) }
}

/// All ones in the low `bits` (0 to 64) bits.
pub(crate) const fn mask64(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1u64 << bits) - 1
    }
}

/// Sign-extends the low `bits` (1 to 64) of `value`.
pub(crate) const fn sext64(value: u64, bits: u32) -> u64 {
    if bits >= 64 || bits == 0 {
        value
    } else {
        let shift = 64 - bits;
        (((value << shift) as i64) >> shift) as u64
    }
}

/// Bits of a value up to its highest one.
pub(crate) fn bit_length(value: &[u64]) -> u32 {
    value
        .iter()
        .enumerate()
        .rev()
        .find(|&(_, &limb)| limb != 0)
        .map_or(0, |(i, limb)| 64 * i as u32 + 64 - limb.leading_zeros())
}

/// `a + b`, modulo 2^(64 n).
pub(crate) fn add(w: &mut [u64], d: usize, a: usize, b: usize, n: usize) {
    let mut carry = false;
    for i in 0..n {
        let (sum, c1) = w[a + i].overflowing_add(w[b + i]);
        let (sum, c2) = sum.overflowing_add(u64::from(carry));
        w[d + i] = sum;
        carry = c1 | c2;
    }
}

/// `a - b`, modulo 2^(64 n).
pub(crate) fn sub(w: &mut [u64], d: usize, a: usize, b: usize, n: usize) {
    let mut borrow = false;
    for i in 0..n {
        let (diff, b1) = w[a + i].overflowing_sub(w[b + i]);
        let (diff, b2) = diff.overflowing_sub(u64::from(borrow));
        w[d + i] = diff;
        borrow = b1 | b2;
    }
}

/// `a * b`, modulo 2^(64 n).
pub(crate) fn mul(w: &mut [u64], d: usize, a: usize, b: usize, n: usize) {
    w[d..d + n].fill(0);
    for i in 0..n {
        let mut carry = 0u128;
        for j in 0..n - i {
            let t = u128::from(w[a + i]) * u128::from(w[b + j]) + u128::from(w[d + i + j]) + carry;
            w[d + i + j] = t as u64;
            carry = t >> 64;
        }
    }
}

/// `a << amount`, zero filled; any amount.
pub(crate) fn shl(w: &mut [u64], d: usize, a: usize, amount: u64, n: usize) {
    let (skip, shift) = split(amount, n);
    for i in (0..n).rev() {
        let low = if i >= skip { w[a + i - skip] } else { 0 };
        let below = if i > skip { w[a + i - skip - 1] } else { 0 };
        w[d + i] = ((join(low, below) << shift) >> 64) as u64;
    }
}

/// `a >> amount`, filled with the sign where `signed`; any amount.
pub(crate) fn shr(w: &mut [u64], d: usize, a: usize, amount: u64, n: usize, signed: bool) {
    let (skip, shift) = split(amount, n);
    let fill = if signed && is_negative(w, a, n) {
        u64::MAX
    } else {
        0
    };
    for i in 0..n {
        let low = if i + skip < n { w[a + i + skip] } else { fill };
        let above = if i + skip + 1 < n {
            w[a + i + skip + 1]
        } else {
            fill
        };
        w[d + i] = (join(above, low) >> shift) as u64;
    }
}

/// Two limbs as one number.
fn join(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// A shift as whole limbs and bits; past the end of `n` limbs, as `n` limbs.
fn split(amount: u64, n: usize) -> (usize, u32) {
    let total = 64 * n as u64;
    if amount >= total {
        (n, 0)
    } else {
        ((amount / 64) as usize, (amount % 64) as u32)
    }
}

/// Whether a two's complement value is negative.
pub(crate) fn is_negative(w: &[u64], a: usize, n: usize) -> bool {
    n > 0 && w[a + n - 1] >> 63 == 1
}

/// Whether all limbs are zero.
pub(crate) fn is_zero(w: &[u64], a: usize, n: usize) -> bool {
    w[a..a + n].iter().all(|&limb| limb == 0)
}

/// `a == b`.
pub(crate) fn eq(w: &[u64], a: usize, b: usize, n: usize) -> bool {
    w[a..a + n] == w[b..b + n]
}

/// `a < b`; as two's complement where `signed`.
pub(crate) fn lt(w: &[u64], a: usize, b: usize, n: usize, signed: bool) -> bool {
    if signed {
        let (na, nb) = (is_negative(w, a, n), is_negative(w, b, n));
        if na != nb {
            return na;
        }
    }
    for i in (0..n).rev() {
        if w[a + i] != w[b + i] {
            return w[a + i] < w[b + i];
        }
    }
    false
}

/// Copies `from` limbs of `a` to `n` limbs of `d`, extended by sign where `signed`.
pub(crate) fn extend(w: &mut [u64], d: usize, a: usize, from: usize, n: usize, signed: bool) {
    let fill = if signed && is_negative(w, a, from) {
        u64::MAX
    } else {
        0
    };
    w.copy_within(a..a + from.min(n), d);
    if from < n {
        w[d + from..d + n].fill(fill);
    }
}

/// Clears every bit from `bits` up, in place.
pub(crate) fn mask(w: &mut [u64], d: usize, n: usize, bits: u32) {
    for i in 0..n {
        let below = 64 * i as u32;
        w[d + i] &= mask64(bits.saturating_sub(below));
    }
}

/// Sign-extends from `bits` (at least 1) to all `n` limbs, in place.
pub(crate) fn sext(w: &mut [u64], d: usize, n: usize, bits: u32) {
    let top = ((bits - 1) / 64) as usize;
    if top >= n {
        return;
    }
    w[d + top] = sext64(w[d + top], bits - 64 * top as u32);
    let fill = if w[d + top] >> 63 == 1 { u64::MAX } else { 0 };
    w[d + top + 1..d + n].fill(fill);
}

/// Clamps `d` (a two's complement value) to `bits` bits, unsigned, in place.
pub(crate) fn clamp_unsigned(w: &mut [u64], d: usize, n: usize, bits: u32, signed: bool) {
    if signed && is_negative(w, d, n) {
        w[d..d + n].fill(0);
    } else if (0..n).any(|i| w[d + i] & !mask64(bits.saturating_sub(64 * i as u32)) != 0) {
        w[d..d + n].fill(u64::MAX);
        mask(w, d, n, bits);
    }
}

/// Clamps `d` to `bits` bits, two's complement, in place.
pub(crate) fn clamp_signed(w: &mut [u64], d: usize, n: usize, bits: u32, signed: bool) {
    let negative = signed && is_negative(w, d, n);
    let sign = if negative { u64::MAX } else { 0 };
    // In range if every bit from `bits - 1` up equals the sign.
    let out = (0..n).any(|i| {
        let low = mask64((bits - 1).saturating_sub(64 * i as u32));
        (w[d + i] ^ sign) & !low != 0
    });
    if out {
        for i in 0..n {
            let low = mask64((bits - 1).saturating_sub(64 * i as u32));
            w[d + i] = if negative { !low } else { low };
        }
    }
}

/// Most limbs that [`divide`] takes.
pub(crate) const MAX_DIVISION_LIMBS: usize = 130;

/// `a / b` rounded towards zero, or with `rest` the remainder, which has the sign of `a`. A zero
/// divisor gives zero.
pub(crate) fn divide(
    w: &mut [u64],
    d: usize,
    a: usize,
    b: usize,
    n: usize,
    signed: bool,
    rest: bool,
) {
    let n = n.min(MAX_DIVISION_LIMBS);
    if is_zero(w, b, n) {
        w[d..d + n].fill(0);
        return;
    }
    let (a_negative, b_negative) = (
        signed && is_negative(w, a, n),
        signed && is_negative(w, b, n),
    );
    let (mut dividend, mut divisor) = ([0u64; MAX_DIVISION_LIMBS], [0u64; MAX_DIVISION_LIMBS]);
    let (dividend, divisor) = (&mut dividend[..n], &mut divisor[..n]);
    dividend.copy_from_slice(&w[a..a + n]);
    divisor.copy_from_slice(&w[b..b + n]);
    if a_negative {
        negate(dividend);
    }
    if b_negative {
        negate(divisor);
    }
    // Leaves the quotient in the first, the remainder in the second.
    ruint::algorithms::div(dividend, divisor);
    let (result, negative) = if rest {
        (divisor, a_negative)
    } else {
        (dividend, a_negative != b_negative)
    };
    if negative {
        negate(result);
    }
    w[d..d + n].copy_from_slice(result);
}

/// The two's complement of `value`, in place.
pub(crate) fn negate(value: &mut [u64]) {
    let mut carry = true;
    for limb in value {
        (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient_and_rest(a: i128, b: i128) -> (i128, i128) {
        let split = |v: i128| [v as u64, (v >> 64) as u64];
        let mut w = [split(a), split(b), [0; 2], [0; 2]].concat();
        divide(&mut w, 4, 0, 2, 2, true, false);
        divide(&mut w, 6, 0, 2, 2, true, true);
        let join = |at: usize| i128::from(w[at]) | (i128::from(w[at + 1] as i64) << 64);
        (join(4), join(6))
    }

    #[test]
    fn division_rounds_towards_zero() {
        let big = 0x1234_5678_9abc_def0_1122_3344_5566_7788_i128;
        for a in [0, 1, -1, 7, -7, big, -big, i128::MAX] {
            for b in [1, -1, 2, 3, -3, big >> 3, -(big >> 3), 1 << 64, i128::MAX] {
                assert_eq!(quotient_and_rest(a, b), (a / b, a % b), "{a} / {b}");
            }
        }
        assert_eq!(quotient_and_rest(5, 0), (0, 0));
    }
}
