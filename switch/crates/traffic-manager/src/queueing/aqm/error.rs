//! The errors for settings of active queue management.

use std::fmt;

use super::limits::{
    AQM_TIME_MAX_NS, FLOWS_MAX, PROBABILITY_ONE_PPM, THRESHOLD_MAX_BYTES, WEIGHT_SHIFT_MAX,
};

/// A setting of active queue management is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AqmError {
    /// A time.
    Time {
        /// The time, in nanoseconds.
        time_ns: u64,
        /// The shortest that is in range.
        least_ns: u64,
    },
    /// CoDel's target is above its interval.
    TargetAboveInterval {
        /// The target, in nanoseconds.
        target_ns: u64,
        /// The interval, in nanoseconds.
        interval_ns: u64,
    },
    /// RED's upper threshold is not above the lower one.
    Thresholds {
        /// The lower one, in bytes.
        min_bytes: u64,
        /// The upper one, in bytes.
        max_bytes: u64,
    },
    /// RED's upper threshold is too large.
    Threshold {
        /// The threshold, in bytes.
        max_bytes: u64,
    },
    /// A probability, in millionths.
    Probability {
        /// The probability.
        ppm: u32,
    },
    /// RED's weight, as a power of 1/2.
    WeightShift {
        /// The power.
        shift: u32,
    },
    /// FQ-CoDel's number of flows.
    Flows {
        /// The flows.
        flows: u32,
    },
    /// FQ-CoDel's quantum or its limit is 0.
    NoRoom,
}

impl fmt::Display for AqmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time { time_ns, least_ns } => write!(
                f,
                "time {time_ns} ns is not between {least_ns} and {AQM_TIME_MAX_NS}"
            ),
            Self::TargetAboveInterval {
                target_ns,
                interval_ns,
            } => write!(
                f,
                "target {target_ns} ns is above the interval of {interval_ns}"
            ),
            Self::Thresholds {
                min_bytes,
                max_bytes,
            } => write!(
                f,
                "MIN of {min_bytes} bytes is not below MAX of {max_bytes}"
            ),
            Self::Threshold { max_bytes } => {
                write!(f, "MAX of {max_bytes} bytes is above {THRESHOLD_MAX_BYTES}")
            }
            Self::Probability { ppm } => write!(
                f,
                "probability of {ppm} millionths is not between 1 and {PROBABILITY_ONE_PPM}"
            ),
            Self::WeightShift { shift } => {
                write!(
                    f,
                    "weight 2^-{shift} is not between 2^-{WEIGHT_SHIFT_MAX} and 1/2"
                )
            }
            Self::Flows { flows } => write!(f, "{flows} flows are not between 1 and {FLOWS_MAX}"),
            Self::NoRoom => write!(f, "a quantum or limit of 0 takes no packet"),
        }
    }
}

impl std::error::Error for AqmError {}
