//! Arithmetic on values wider than a machine word: little-endian 64-bit limbs, two's
//! complement, inside one array of words.
//!
//! Every function works on slot ranges of `w`. Destinations are fresh temporaries, so they
//! never overlap operands unless a function says otherwise.

/// Limbs needed for `bits`.
pub(crate) const fn limbs(bits: u32) -> u32 {
    bits.div_ceil(64)
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

pub(crate) fn add(w: &mut [u64], d: usize, a: usize, b: usize, n: usize) {
    let mut carry = false;
    for i in 0..n {
        let (sum, c1) = w[a + i].overflowing_add(w[b + i]);
        let (sum, c2) = sum.overflowing_add(u64::from(carry));
        w[d + i] = sum;
        carry = c1 | c2;
    }
}

pub(crate) fn sub(w: &mut [u64], d: usize, a: usize, b: usize, n: usize) {
    let mut borrow = false;
    for i in 0..n {
        let (diff, b1) = w[a + i].overflowing_sub(w[b + i]);
        let (diff, b2) = diff.overflowing_sub(u64::from(borrow));
        w[d + i] = diff;
        borrow = b1 | b2;
    }
}

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
        w[d + i] = if shift == 0 {
            low
        } else {
            (low << shift) | (below >> (64 - shift))
        };
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
        w[d + i] = if shift == 0 {
            low
        } else {
            (low >> shift) | (above << (64 - shift))
        };
    }
}

fn split(amount: u64, n: usize) -> (usize, u32) {
    let total = 64 * n as u64;
    if amount >= total {
        (n, 0)
    } else {
        ((amount / 64) as usize, (amount % 64) as u32)
    }
}

pub(crate) fn is_negative(w: &[u64], a: usize, n: usize) -> bool {
    n > 0 && w[a + n - 1] >> 63 == 1
}

pub(crate) fn is_zero(w: &[u64], a: usize, n: usize) -> bool {
    w[a..a + n].iter().all(|&limb| limb == 0)
}

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

/// Divides the non-negative `a` by a one-limb divisor; quotient to `d`, remainder returned.
/// A zero divisor gives zero and remainder zero.
pub(crate) fn div_small(w: &mut [u64], d: usize, a: usize, divisor: u64, n: usize) -> u64 {
    if divisor == 0 {
        w[d..d + n].fill(0);
        return 0;
    }
    let mut rest = 0u128;
    for i in (0..n).rev() {
        let part = (rest << 64) | u128::from(w[a + i]);
        w[d + i] = (part / u128::from(divisor)) as u64;
        rest = part % u128::from(divisor);
    }
    rest as u64
}
