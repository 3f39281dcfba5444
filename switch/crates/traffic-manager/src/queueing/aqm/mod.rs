//! Active queue management: which packets an egress queue drops or marks before it is full.
//!
//! Each algorithm is a file that names its paper or RFC: [`red`], [`codel`], [`pie`],
//! [`fq_codel`], [`dualpi2`]. The first three are asked about a FIFO's packets, on arrival or at the head; the
//! others have several FIFOs.

mod codel;
mod dualpi2;
mod fq_codel;
mod packets;
mod pi;
mod pie;
mod random;
mod red;
mod verdict;

pub use codel::CodelConfig;
pub use dualpi2::DualPi2Config;
pub use fq_codel::{FLOWS_MAX, FqCodelConfig};
pub use pie::PieConfig;
pub use red::{RedConfig, RedProfile};

pub(super) use dualpi2::DualPi2;
pub(super) use fq_codel::FqCodel;
pub(super) use verdict::{Arriving, Leaving, Verdict};

use codel::Codel;
use pie::Pie;
use red::Red;

/// Longest target or interval, in nanoseconds.
pub const AQM_TIME_MAX_NS: u64 = 10_000_000_000;

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
    /// Whether the settings are in range.
    pub(super) fn is_valid(&self) -> bool {
        let is_time = |ns: u64| (1..=AQM_TIME_MAX_NS).contains(&ns);
        let is_codel = |codel: &CodelConfig| is_time(codel.target_ns) && is_time(codel.interval_ns);
        match self {
            Self::Codel(codel) => is_codel(codel),
            Self::FqCodel(fq) => {
                is_codel(&fq.codel)
                    && (1..=FLOWS_MAX).contains(&fq.flows)
                    && fq.quantum_bytes > 0
                    && fq.limit_packets > 0
            }
            Self::Pie(pie) => is_time(pie.target_ns),
            Self::DualPi2(dual) => is_time(dual.target_ns) && dual.is_valid(),
            Self::Red(red) => {
                let profiles = red.profiles.iter();
                let mut valid = profiles.map(|profile| {
                    profile.min_bytes < profile.max_bytes
                        && profile.max_bytes <= u64::from(u32::MAX)
                        && (1..=1_000_000).contains(&profile.max_p_ppm)
                });
                valid.all(|valid| valid)
                    && (1..=16).contains(&red.weight_shift)
                    && is_time(red.packet_ns)
            }
        }
    }
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
