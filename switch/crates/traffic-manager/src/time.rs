//! Exact instants: unsigned fixed point, in units of 2^-24 ns.

use crate::hold::FRACTION_BITS;

/// An instant or a sum of durations, in 2^-24 ns. At most `u64::MAX` ns: every operation
/// saturates there (584 years), so no input can make the clock wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Q24(u128);

impl Q24 {
    /// Largest instant; 88 bits, so that a heap key still has room beside it.
    const MAX: u128 = (u64::MAX as u128) << FRACTION_BITS;
    const FRACTION_MASK: u128 = (1 << FRACTION_BITS) - 1;

    /// A whole number of nanoseconds.
    pub(crate) const fn from_ns(ns: u64) -> Self {
        Self((ns as u128) << FRACTION_BITS)
    }

    /// From the parts that [`Self::whole_ns`] and [`Self::fraction`] return.
    pub(crate) fn from_parts(ns: u64, fraction: u32) -> Self {
        Self(
            (u128::from(ns) << FRACTION_BITS | (u128::from(fraction) & Self::FRACTION_MASK))
                .min(Self::MAX),
        )
    }

    /// From units of 2^-24 ns.
    pub(crate) fn from_raw(raw: u128) -> Self {
        Self(raw.min(Self::MAX))
    }

    /// In units of 2^-24 ns; fits 88 bits.
    pub(crate) const fn raw(self) -> u128 {
        self.0
    }

    /// Nanoseconds, rounded down.
    pub(crate) fn whole_ns(self) -> u64 {
        u64::try_from(self.0 >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// The fraction of a nanosecond, 24 bits.
    pub(crate) fn fraction(self) -> u32 {
        u32::try_from(self.0 & Self::FRACTION_MASK).unwrap_or(0)
    }

    /// Nanoseconds, rounded up: the first whole nanosecond that is not before the instant.
    pub(crate) fn ceil_ns(self) -> u64 {
        u64::try_from((self.0 + Self::FRACTION_MASK) >> FRACTION_BITS).unwrap_or(u64::MAX)
    }

    /// Later by `q24` units of 2^-24 ns.
    pub(crate) fn plus(self, q24: u128) -> Self {
        Self(self.0.saturating_add(q24).min(Self::MAX))
    }

    /// The time from `earlier` to this instant, or the instant that is `earlier` before it; 0 if
    /// that is later.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Earlier by `ns`; not before 0.
    pub(crate) fn minus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(Self::from_ns(ns).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_to_the_next_whole_nanosecond() {
        assert_eq!(Q24::from_ns(7).ceil_ns(), 7);
        assert_eq!(Q24::from_ns(7).plus(1).ceil_ns(), 8);
        assert_eq!(Q24::from_ns(7).plus(1 << 24).ceil_ns(), 8);
    }

    #[test]
    fn saturates_instead_of_wrapping() {
        let end = Q24::from_ns(u64::MAX);
        assert_eq!(end.plus(u128::MAX), end);
        assert_eq!(end.ceil_ns(), u64::MAX);
        assert_eq!(Q24::from_ns(3).minus_ns(4), Q24::default());
    }

    #[test]
    fn parts_round_trip() {
        let t = Q24::from_ns(1 << 55).plus(12_345_678);
        assert_eq!(Q24::from_parts(t.whole_ns(), t.fraction()), t);
        assert_eq!(Q24::from_raw(t.raw()), t);
    }
}
