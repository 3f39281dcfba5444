//! RED (Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking, 1993): drops or marks on arrival with a probability that grows with the
//! average queue. With a profile for each colour it is the weighted RED (WRED) of routers: one average,
//! and thresholds by the packet's drop precedence (RFC 2597).
//!
//! All values are integers: the average has 32 fraction bits, and its weight is a power of two.

use super::random::Random;
use super::verdict::{Arriving, Verdict};
#[cfg(doc)]
use crate::packet::Colour;

/// Fraction bits of the average and of probabilities.
const FRACTION_BITS: u32 = 32;
const ONE: u128 = 1 << FRACTION_BITS;

/// The thresholds for the packets of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedProfile {
    /// Below this average, in bytes, no packet is dropped.
    pub min_bytes: u64,
    /// From this average on, in bytes, every packet is dropped.
    pub max_bytes: u64,
    /// The probability just below `max_bytes`, in millionths.
    pub max_p_ppm: u32,
}

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedConfig {
    /// By [`Colour`]: green, yellow, red.
    pub profiles: [RedProfile; 3],
    /// The weight w of a new sample is 2^-shift.
    pub weight_shift: u32,
    /// While the queue is empty, the average decays as if a packet left in each of these times, in
    /// nanoseconds.
    pub packet_ns: u64,
    /// ECN-capable packets are marked, while the average is below `max_bytes`.
    pub ecn: bool,
}

/// The state of a queue; names as in the paper.
#[derive(Debug)]
pub(crate) struct Red {
    config: RedConfig,
    /// `avg`, in 2^-32 bytes.
    average: u128,
    /// By colour: packets since the last drop or mark; `None`: the average was below the minimum.
    counts: [Option<u64>; 3],
    idle_since_ns: u64,
    random: Random,
}

impl Red {
    pub(crate) fn new(config: RedConfig, seed: u64) -> Self {
        Self {
            config,
            average: 0,
            counts: [None; 3],
            idle_since_ns: 0,
            random: Random::new(seed),
        }
    }

    /// The average after a time without packets.
    fn decay(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.idle_since_ns);
        let mut packets = idle_ns / self.config.packet_ns.max(1);
        // (1 - w)^packets by squaring.
        let mut factor = ONE - (ONE >> self.config.weight_shift);
        while packets > 0 && self.average > 0 {
            if packets & 1 == 1 {
                self.average = (self.average * factor) >> FRACTION_BITS;
            }
            factor = (factor * factor) >> FRACTION_BITS;
            packets >>= 1;
        }
    }

    pub(crate) fn arriving(&mut self, packet: &Arriving) -> Verdict {
        if packet.waiting_bytes == 0 {
            self.decay(packet.now_ns);
        } else {
            let sample = u128::from(packet.waiting_bytes) << FRACTION_BITS;
            let shift = self.config.weight_shift;
            self.average = self.average - (self.average >> shift) + (sample >> shift);
        }
        let colour = packet.colour as usize;
        let profile = self.config.profiles[colour];
        let last = &mut self.counts[colour];
        let min = u128::from(profile.min_bytes) << FRACTION_BITS;
        let max = u128::from(profile.max_bytes) << FRACTION_BITS;
        if self.average < min {
            *last = None;
            return Verdict::Keep;
        }
        if self.average >= max {
            *last = Some(0);
            return Verdict::Drop;
        }
        let count = last.map_or(0, |count| count + 1);
        let max_p = u128::from(profile.max_p_ppm) * ONE / 1_000_000;
        let p_b = max_p * (self.average - min) / (max - min);
        // p_a = p_b / (1 - count * p_b)
        let rest = ONE.saturating_sub(u128::from(count) * p_b);
        let chance = u128::from(self.random.below(1 << FRACTION_BITS));
        if chance * rest < p_b << FRACTION_BITS {
            *last = Some(0);
            return if self.config.ecn && packet.ecn_capable {
                Verdict::Mark
            } else {
                Verdict::Drop
            };
        }
        *last = Some(count);
        Verdict::Keep
    }

    /// The queue is empty from now on.
    pub(crate) fn emptied(&mut self, now_ns: u64) {
        self.idle_since_ns = now_ns;
    }
}
