//! PIE (RFC 8033): drops or marks on arrival with a probability that a controller moves every 15 ms by
//! the time that packets wait.
//!
//! The latency is that of the packet that left last (section 4.3: time stamps); an empty queue has
//! none. The updates that are due are made when a packet comes or leaves. Nothing of the RFC's optional
//! parts is here but ECN (section 5.1) and the cap of a
//! step up (section 5.5).

use super::pi::Gains;
use super::random::Random;
use super::verdict::{Arriving, Leaving, Verdict};

/// T_UPDATE.
const UPDATE_NS: u64 = 15_000_000;
/// MEAN_PKTSIZE.
const MEAN_PACKET_BYTES: u64 = 1_024;
/// MAX_BURST.
const BURST_NS: u64 = 150_000_000;
const GAINS: Gains = Gains {
    alpha: 0.125,
    beta: 1.25,
};
/// Above this probability, packets are dropped that could be marked.
const MARK_MAX: f64 = 0.1;

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieConfig {
    /// QDELAY_REF, in nanoseconds.
    pub target_ns: u64,
    /// ECN-capable packets are marked, while the probability is below 0.1.
    pub ecn: bool,
}

/// The state of a queue; names as in the RFC.
#[derive(Debug)]
pub(crate) struct Pie {
    config: PieConfig,
    drop_probability: f64,
    delay_ns: u64,
    old_delay_ns: u64,
    burst_allowance_ns: u64,
    /// `None`: nothing has arrived yet.
    update_at_ns: Option<u64>,
    random: Random,
}

impl Pie {
    pub(crate) fn new(config: PieConfig, seed: u64) -> Self {
        Self {
            config,
            drop_probability: 0.0,
            delay_ns: 0,
            old_delay_ns: 0,
            burst_allowance_ns: BURST_NS,
            update_at_ns: None,
            random: Random::new(seed),
        }
    }

    /// `calculate_drop_prob`.
    fn update(&mut self) {
        let mut p = GAINS.change(self.delay_ns, self.old_delay_ns, self.config.target_ns);
        let probability = self.drop_probability;
        p /= match probability {
            _ if probability < 0.000_001 => 2_048.0,
            _ if probability < 0.000_01 => 512.0,
            _ if probability < 0.000_1 => 128.0,
            _ if probability < 0.001 => 32.0,
            _ if probability < 0.01 => 8.0,
            _ if probability < 0.1 => 2.0,
            _ => 1.0,
        };
        if probability >= 0.1 && p > 0.02 {
            p = 0.02;
        }
        let mut next = probability + p;
        if self.delay_ns == 0 && self.old_delay_ns == 0 {
            next *= 0.98;
        }
        self.drop_probability = next.clamp(0.0, 1.0);
        self.burst_allowance_ns = self.burst_allowance_ns.saturating_sub(UPDATE_NS);
        self.old_delay_ns = self.delay_ns;
    }

    /// Makes the updates that are due.
    fn update_until(&mut self, now_ns: u64) {
        let at_ns = self
            .update_at_ns
            .get_or_insert(now_ns.saturating_add(UPDATE_NS));
        let mut at_ns = *at_ns;
        while at_ns <= now_ns {
            let before = (self.drop_probability, self.old_delay_ns);
            self.update();
            at_ns += UPDATE_NS;
            let settled = before == (self.drop_probability, self.old_delay_ns);
            if settled && at_ns <= now_ns {
                // Further updates change the allowance alone.
                let rest_ns = (now_ns - at_ns) / UPDATE_NS * UPDATE_NS + UPDATE_NS;
                self.burst_allowance_ns = self.burst_allowance_ns.saturating_sub(rest_ns);
                at_ns += rest_ns;
            }
        }
        self.update_at_ns = Some(at_ns);
    }

    pub(crate) fn arriving(&mut self, packet: &Arriving) -> Verdict {
        self.update_until(packet.now_ns);
        let half_ns = self.config.target_ns / 2;
        if self.drop_probability == 0.0 && self.delay_ns < half_ns && self.old_delay_ns < half_ns {
            self.burst_allowance_ns = BURST_NS;
        }
        let calm = self.old_delay_ns < half_ns && self.drop_probability < 0.2;
        let short = packet.waiting_bytes <= 2 * MEAN_PACKET_BYTES;
        if self.burst_allowance_ns > 0 || calm || short {
            return Verdict::Keep;
        }
        let chance = self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        if chance >= self.drop_probability {
            Verdict::Keep
        } else if self.config.ecn && packet.ecn_capable && self.drop_probability < MARK_MAX {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// A packet leaves.
    pub(crate) fn left(&mut self, packet: &Leaving) {
        self.update_until(packet.now_ns);
        self.delay_ns = if packet.left_bytes == 0 {
            0
        } else {
            packet.sojourn_ns
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Colour;

    /// The updates of decades in which a full queue stands still are not made one by one.
    #[test]
    fn a_queue_that_stands_still_costs_no_time() {
        let config = PieConfig {
            target_ns: 15_000_000,
            ecn: false,
        };
        let mut pie = Pie::new(config, 1);
        let arrive = |pie: &mut Pie, now_ns| {
            pie.arriving(&Arriving {
                now_ns,
                waiting_bytes: 100_000,
                ecn_capable: false,
                colour: Colour::Green,
            })
        };
        arrive(&mut pie, 0);
        pie.left(&Leaving {
            now_ns: 1_000_000_000,
            sojourn_ns: 1_000_000_000,
            left_bytes: 100_000,
            ecn_capable: false,
        });
        assert_eq!(arrive(&mut pie, 1 << 61), Verdict::Drop);
        assert_eq!(pie.burst_allowance_ns, 0);
    }
}
