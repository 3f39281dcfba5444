//! Ranges of the settings of active queue management.

/// Longest target or interval, in nanoseconds.
pub const AQM_TIME_MAX_NS: u64 = 10_000_000_000;

/// A probability of 1, in millionths.
pub(super) const PROBABILITY_ONE_PPM: u32 = 1_000_000;

/// Largest threshold of RED.
pub(super) const THRESHOLD_MAX_BYTES: u64 = u32::MAX as u64;

/// RED's smallest weight is 2 to the power of minus this.
pub(super) const WEIGHT_SHIFT_MAX: u32 = 16;

/// Most queues of flows.
pub const FLOWS_MAX: u32 = 65_536;
