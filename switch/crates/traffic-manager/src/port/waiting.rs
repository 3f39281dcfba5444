//! Keys of a port's class queues whose first packet may not start yet, as the timer wheel orders them.

use crate::time::Q24;
use crate::timer_wheel::Key;

/// Width of the class in a key of `waiting`; the instant is in the bits above it.
const CLASS_BITS: u32 = u32::BITS;

/// E of a class queue's head with the class, as [`waiting_key`] makes it: 120 bits.
impl Key for u128 {
    fn time_ns(self) -> u64 {
        eligible_at(self).whole_ns()
    }
}

/// Key of a head in `waiting`: E = max(departure, R, S), then the class. `earliest`: max(R, S).
pub(super) fn waiting_key(departure_ns: u64, earliest: Q24, class: u32) -> u128 {
    let eligible = Q24::from_ns(departure_ns).max(earliest);
    eligible.raw() << CLASS_BITS | u128::from(class)
}

/// Keys of `waiting` up to this one have E <= `now`, for any class.
pub(super) fn last_key(now: Q24) -> u128 {
    now.raw() << CLASS_BITS | u128::from(u32::MAX)
}

/// The class in a key of `waiting`.
pub(super) fn class_of(key: u128) -> u32 {
    u32::try_from(key & u128::from(u32::MAX)).unwrap_or(0)
}

/// E in a key of `waiting`.
pub(super) fn eligible_at(key: u128) -> Q24 {
    Q24::from_raw(key >> CLASS_BITS)
}
