//! Active queue management: which packets an egress queue drops or marks before it is full.
//!
//! Each algorithm is a file that names its paper or RFC: [`red`], [`codel`], [`pie`],
//! [`fq_codel`], [`dualpi2`]. The first three are asked about a FIFO's packets, on arrival or at the head; the
//! others have several FIFOs.

mod codel;
mod dualpi2;
mod error;
mod fq_codel;
mod limits;
mod packets;
mod pi;
mod pie;
mod random;
mod red;
mod verdict;

pub use codel::CodelConfig;
pub use dualpi2::DualPi2Config;
pub use error::AqmError;
pub use fq_codel::FqCodelConfig;
pub use limits::{AQM_TIME_MAX_NS, FLOWS_MAX};
pub use pie::PieConfig;
pub use red::{RedConfig, RedProfile};

pub(super) use dualpi2::DualPi2;
pub(super) use fq_codel::FqCodel;
pub(super) use verdict::{Arriving, Leaving, Verdict};

use codel::Codel;
use limits::{PROBABILITY_ONE_PPM, THRESHOLD_MAX_BYTES, WEIGHT_SHIFT_MAX};
use pie::Pie;
use red::Red;

/// The algorithm of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AqmConfig {
    /// CoDel (RFC 8289).
    Codel(CodelConfig),
    /// RED, by colour (WRED).
    Red(RedConfig),
    /// PIE (RFC 8033).
    Pie(PieConfig),
    /// Flows with CoDel each (RFC 8290).
    FqCodel(FqCodelConfig),
    /// L4S beside classic traffic (RFC 9332).
    DualPi2(DualPi2Config),
}

impl AqmConfig {
    /// # Errors
    /// A setting is out of range.
    pub fn check(&self) -> Result<(), AqmError> {
        match self {
            Self::Codel(codel) => check_codel(codel),
            Self::FqCodel(fq) => {
                check_codel(&fq.codel)?;
                if !(1..=FLOWS_MAX).contains(&fq.flows) {
                    return Err(AqmError::Flows { flows: fq.flows });
                }
                if fq.quantum_bytes == 0 || fq.limit_packets == 0 {
                    return Err(AqmError::NoRoom);
                }
                Ok(())
            }
            Self::Pie(pie) => check_time(pie.target_ns, 1),
            Self::DualPi2(dual) => check_time(dual.target_ns, dualpi2::TARGET_MIN_NS),
            Self::Red(red) => {
                red.profiles.iter().try_for_each(check_profile)?;
                if !(1..=WEIGHT_SHIFT_MAX).contains(&red.weight_shift) {
                    let shift = red.weight_shift;
                    return Err(AqmError::WeightShift { shift });
                }
                check_time(red.packet_ns, 1)
            }
        }
    }
}

fn check_time(time_ns: u64, least_ns: u64) -> Result<(), AqmError> {
    if (least_ns..=AQM_TIME_MAX_NS).contains(&time_ns) {
        return Ok(());
    }
    Err(AqmError::Time { time_ns, least_ns })
}

/// CoDel looks for the shortest wait of an interval. RFC 8289 has a target of 5 to 10 % of the interval.
fn check_codel(codel: &CodelConfig) -> Result<(), AqmError> {
    let (target_ns, interval_ns) = (codel.target_ns, codel.interval_ns);
    check_time(target_ns, 1)?;
    check_time(interval_ns, 1)?;
    if target_ns > interval_ns {
        return Err(AqmError::TargetAboveInterval {
            target_ns,
            interval_ns,
        });
    }
    Ok(())
}

fn check_profile(profile: &RedProfile) -> Result<(), AqmError> {
    let (min_bytes, max_bytes) = (profile.min_bytes, profile.max_bytes);
    if min_bytes >= max_bytes {
        return Err(AqmError::Thresholds {
            min_bytes,
            max_bytes,
        });
    }
    if max_bytes > THRESHOLD_MAX_BYTES {
        return Err(AqmError::Threshold { max_bytes });
    }
    let ppm = profile.max_p_ppm;
    if !(1..=PROBABILITY_ONE_PPM).contains(&ppm) {
        return Err(AqmError::Probability { ppm });
    }
    Ok(())
}

/// The algorithm with its state.
#[derive(Debug)]
pub(super) enum Aqm {
    Codel(CodelConfig, Codel),
    Red(Red),
    Pie(Pie),
}

impl Aqm {
    /// `seed`: for random numbers. `None`: the algorithm is more than one FIFO.
    pub(super) fn new(config: AqmConfig, seed: u64) -> Option<Self> {
        Some(match config {
            AqmConfig::Codel(config) => Self::Codel(config, Codel::new()),
            AqmConfig::Red(config) => Self::Red(Red::new(config, seed)),
            AqmConfig::Pie(config) => Self::Pie(Pie::new(config, seed)),
            AqmConfig::FqCodel(_) | AqmConfig::DualPi2(_) => return None,
        })
    }

    /// A packet arrives that has room.
    pub(super) fn arriving(&mut self, packet: &Arriving) -> Verdict {
        match self {
            Self::Codel(..) => Verdict::Keep,
            Self::Red(red) => red.arriving(packet),
            Self::Pie(pie) => pie.arriving(packet),
        }
    }

    /// A packet is at the head, and the line is free for it.
    pub(super) fn leaving(&mut self, packet: &Leaving) -> Verdict {
        match self {
            Self::Codel(config, codel) => codel.leaving(config, packet),
            Self::Red(_) => Verdict::Keep,
            Self::Pie(pie) => {
                pie.left(packet);
                Verdict::Keep
            }
        }
    }

    /// The queue is empty from `now_ns` on.
    pub(super) fn emptied(&mut self, now_ns: u64) {
        match self {
            Self::Red(red) => red.emptied(now_ns),
            Self::Codel(..) | Self::Pie(_) => {}
        }
    }
}
