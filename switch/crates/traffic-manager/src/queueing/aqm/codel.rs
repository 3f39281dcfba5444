//! CoDel (RFC 8289): drops or marks at the head while packets have waited longer than a target for an
//! interval, each time sooner.
//!
//! The RFC's `deque` loops over packets. Here the queue asks for each packet, so the place in the loop is
//! kept in [`Phase`]. No RFC has the marks; they are as in Linux's `codel_impl.h`: an ECN-capable packet is
//! marked where another one is dropped, and is sent.

use super::verdict::{Leaving, Verdict};

/// The largest packet (`maxpacket_`): a full-sized frame. A queue with no more than this is not
/// congested.
const LARGEST_BYTES: u64 = crate::config::FRAME_DEFAULT_BYTES;

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelConfig {
    /// TARGET, in nanoseconds, at most INTERVAL.
    pub target_ns: u64,
    /// INTERVAL, in nanoseconds.
    pub interval_ns: u64,
    /// ECN-capable packets are marked.
    pub ecn: bool,
}

/// The place in `deque`, between the packets of one transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first packet.
    First,
    /// After a drop of the dropping state.
    Dropping,
    /// After the drop that enters the dropping state.
    Entering,
}

/// The state of a queue; names as in the RFC. Small, because each of many flows may have one: the settings
/// are elsewhere.
#[derive(Debug)]
pub(crate) struct Codel {
    first_above_ns: u64,
    drop_next_ns: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
    phase: Phase,
}

impl Codel {
    pub(crate) fn new() -> Self {
        Self {
            first_above_ns: 0,
            drop_next_ns: 0,
            count: 0,
            last_count: 0,
            dropping: false,
            phase: Phase::First,
        }
    }

    /// `control_law`: t + INTERVAL / sqrt(count).
    fn control_law(&self, config: &CodelConfig, from_ns: u64) -> u64 {
        let interval_ns = u128::from(config.interval_ns);
        let step = (interval_ns * interval_ns / u128::from(self.count.max(1))).isqrt();
        from_ns.saturating_add(u64::try_from(step).unwrap_or(u64::MAX))
    }

    /// `dodequeue`: whether the packet may be dropped.
    fn ok_to_drop(&mut self, config: &CodelConfig, packet: &Leaving) -> bool {
        if packet.sojourn_ns < config.target_ns || packet.left_bytes <= LARGEST_BYTES {
            self.first_above_ns = 0;
            return false;
        }
        if self.first_above_ns == 0 {
            self.first_above_ns = packet.now_ns.saturating_add(config.interval_ns);
            return false;
        }
        packet.now_ns >= self.first_above_ns
    }

    /// Enters the dropping state.
    fn enter(&mut self, config: &CodelConfig, now_ns: u64) {
        self.dropping = true;
        let delta = self.count.wrapping_sub(self.last_count);
        let recent_ns = self.drop_next_ns.saturating_add(16 * config.interval_ns);
        self.count = if delta > 1 && now_ns < recent_ns {
            delta
        } else {
            1
        };
        self.drop_next_ns = self.control_law(config, now_ns);
        self.last_count = self.count;
    }

    /// The verdict on the packet at the head.
    pub(crate) fn leaving(&mut self, config: &CodelConfig, packet: &Leaving) -> Verdict {
        let ok = self.ok_to_drop(config, packet);
        let marks = config.ecn && packet.ecn_capable;
        match std::mem::replace(&mut self.phase, Phase::First) {
            Phase::Entering => {
                self.enter(config, packet.now_ns);
                return Verdict::Keep;
            }
            Phase::First if !self.dropping => {
                if !ok {
                    return Verdict::Keep;
                }
                if marks {
                    self.enter(config, packet.now_ns);
                    return Verdict::Mark;
                }
                self.phase = Phase::Entering;
                return Verdict::Drop;
            }
            Phase::First => self.dropping = ok,
            Phase::Dropping => {
                self.dropping = ok;
                if ok {
                    self.drop_next_ns = self.control_law(config, self.drop_next_ns);
                }
            }
        }
        if !self.dropping || packet.now_ns < self.drop_next_ns {
            return Verdict::Keep;
        }
        self.count = self.count.wrapping_add(1);
        if marks {
            self.drop_next_ns = self.control_law(config, self.drop_next_ns);
            return Verdict::Mark;
        }
        self.phase = Phase::Dropping;
        Verdict::Drop
    }

    /// `deque` finds no packet. It may have dropped the last one, as other queues of the link have more: it
    /// enters the dropping state all the same, and leaves it when it is called again.
    pub(crate) fn emptied(&mut self, config: &CodelConfig, now_ns: u64) {
        self.first_above_ns = 0;
        match std::mem::replace(&mut self.phase, Phase::First) {
            Phase::Entering => self.enter(config, now_ns),
            Phase::First | Phase::Dropping => self.dropping = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest s with s^2 * count <= INTERVAL^2.
    fn step_ns(interval_ns: u64, count: u32) -> u64 {
        let square = |ns: u64| u128::from(ns) * u128::from(ns);
        let (mut low, mut high) = (0, interval_ns);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if square(middle) * u128::from(count) <= square(interval_ns) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// RFC 8289, section 5: drop after drop comes INTERVAL / sqrt(count) later, rounded down to a nanosecond.
    #[test]
    fn ten_thousand_drops_come_at_their_nanosecond() {
        for interval_ns in [999_983, 100_000_000, 10_000_000_000] {
            let config = CodelConfig {
                target_ns: 1,
                interval_ns,
                ecn: false,
            };
            let mut codel = Codel::new();
            // More than the target and a full-sized frame are always waiting.
            let mut verdict = |now_ns| {
                let packet = Leaving {
                    now_ns,
                    sojourn_ns: interval_ns,
                    left_bytes: 2 * LARGEST_BYTES,
                    ecn_capable: false,
                };
                codel.leaving(&config, &packet)
            };
            assert_eq!(verdict(1), Verdict::Keep);
            let mut due_ns = 1 + interval_ns;
            for count in 1..=10_000 {
                assert_eq!(verdict(due_ns - 1), Verdict::Keep, "count {count}");
                assert_eq!(verdict(due_ns), Verdict::Drop, "count {count}");
                // The packet behind it leaves.
                assert_eq!(verdict(due_ns), Verdict::Keep, "count {count}");
                due_ns += step_ns(interval_ns, count);
            }
        }
    }
}
