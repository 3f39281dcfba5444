//! The request "hold this packet" that the `TrafficManager` extern carries from P4 to the
//! traffic manager.

use crate::config::{LINE_RATE_MAX_BPS, LINE_RATE_MIN_BPS};

/// Fraction bits of every sub-nanosecond quantity: times are kept in units of 2^-24 ns.
///
/// 24 bits keep the rounding error of `time_per_byte` under 0.3 ppm at 100 Gbit/s, and the
/// product with a 16-bit frame length within 64 bits down to 8 kbit/s.
pub const FRACTION_BITS: u32 = 24;

/// A packet of a paced class, as the P4 program hands it to the traffic manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Class index; the traffic manager keeps one queue per (port, class).
    pub class: u32,
    /// Another class to whose sum the queue counts from now on: that of the flow whose queue `class`
    /// is. `None`: the queue counts to the same class as before, at first to none.
    pub counts_to: Option<u32>,
    /// Earliest start of transmission (D), in nanoseconds, already rounded up.
    pub departure_ns: u64,
    /// Time this packet takes from its class, `(length + 4) * time_per_byte`, in 2^-24 ns.
    pub cost_q24: u64,
    /// Most time that a stalled class may make up (burst allowance), in nanoseconds.
    pub allowance_ns: u64,
}

/// `time_per_byte` in 2^-24 ns for a rate in bit/s, rounded to nearest.
///
/// Returns `None` outside 8 kbit/s to 100 Gbit/s, the range of the pacing contract.
///
/// ```
/// assert_eq!(traffic_manager::hold::time_per_byte_q24(500_000_000), Some(16 << 24));
/// ```
pub fn time_per_byte_q24(rate_bps: u64) -> Option<u64> {
    if !(LINE_RATE_MIN_BPS..=LINE_RATE_MAX_BPS).contains(&rate_bps) {
        return None;
    }
    let numerator = 8_000_000_000u128 << FRACTION_BITS;
    u64::try_from((numerator + u128::from(rate_bps) / 2) / u128::from(rate_bps)).ok()
}
