//! The rate clock of a queue or node: the instant from which its next packet may start.
//!
//! It is the clock of a paced class, which has no credit while it is idle (design of PSPacer, Takano et
//! al.), with a bound on the time that a queue may make up when others have kept it waiting. In packets
//! per second it is the schedule of simple_switch's queues, which has no such bound.

use super::queue_config::MaxRate;
use crate::hold::{FRACTION_BITS, time_per_byte_q24};
use crate::time::Q24;

/// A maximum rate, with its clock C.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shaper {
    clock: Q24,
    per_byte_q24: u64,
    per_packet_q24: u64,
    /// Time that may be made up; `None`: all of it.
    burst: Option<Q24>,
}

impl Shaper {
    /// `None`: a rate out of range, which [`QueueingConfig::check`](super::QueueingConfig::check)
    /// refuses.
    pub(super) fn new(rate: MaxRate) -> Option<Self> {
        let unlimited = Self {
            clock: Q24::default(),
            per_byte_q24: 0,
            per_packet_q24: 0,
            burst: None,
        };
        Some(match rate {
            MaxRate::Bits {
                rate_bps,
                burst_bytes,
            } => {
                let per_byte_q24 = time_per_byte_q24(rate_bps)?;
                let burst = u128::from(burst_bytes) * u128::from(per_byte_q24);
                Self {
                    per_byte_q24,
                    burst: Some(Q24::from_raw(burst)),
                    ..unlimited
                }
            }
            MaxRate::Packets(pps) => Self {
                per_packet_q24: 1_000_000_000_u64.checked_div(pps)? << FRACTION_BITS,
                ..unlimited
            },
        })
    }

    /// E of a packet that could start from `arrival` on.
    pub(super) fn eligible(&self, arrival: Q24) -> Q24 {
        arrival.max(self.clock)
    }

    /// A packet that may start from `eligible` on starts.
    pub(super) fn charge(&mut self, eligible: Q24, start: Q24, bytes: u64) {
        let from = match self.burst {
            None => eligible,
            Some(burst) => eligible.max(start.since(burst)),
        };
        let cost = u128::from(bytes) * u128::from(self.per_byte_q24);
        self.clock = from.plus(cost + u128::from(self.per_packet_q24));
    }

    /// A new rate. The clock of the one before goes on. Without one before, a rate in packets per second
    /// counts from the last packet, as in simple_switch. `last_eligible`: E of that packet.
    pub(super) fn following(
        before: Option<&Self>,
        rate: MaxRate,
        last_eligible: Option<Q24>,
    ) -> Option<Self> {
        let shaper = Self::new(rate)?;
        let clock = match (before, rate) {
            (Some(before), _) => Some(before.clock),
            (None, MaxRate::Bits { .. }) => None,
            (None, MaxRate::Packets(_)) => {
                last_eligible.map(|last| last.plus(shaper.per_packet_q24.into()))
            }
        };
        Some(Self {
            clock: clock.unwrap_or_default(),
            ..shaper
        })
    }
}
