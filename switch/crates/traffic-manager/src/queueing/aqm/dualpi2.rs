//! DualPI2 (RFC 9332, appendix A, with its overload code): a queue of low latency for L4S traffic beside a
//! classic one, with coupled marks.
//!
//! PI2, a controller of the classic queue's delay, moves a base probability. The classic queue drops or marks
//! by its square, and the other one marks by a multiple of it, or by its own ramp if that is more.
//! Probabilities are kept by the RFC's `recur`, without random numbers.
//!
//! The RFC leaves the scheduler open. Here the queue of low latency goes first, by weighted round robin in
//! bytes while both have packets, so that the classic one keeps a tenth. The updates that are due are made
//! when a packet comes or leaves, with the delays that the heads had at the instants of the updates.

use std::collections::VecDeque;

use super::pi::{Gains, seconds};
use crate::queueing::item::Item;

/// RTT_max.
const RTT_MAX_NS: u64 = 100_000_000;
/// The coupling factor k.
const COUPLING: f64 = 2.0;
/// p_Cmax: from here on ECN-capable classic packets are dropped, too.
const CLASSIC_MAX: f64 = 0.25;
/// p_Lmax.
const LOW_LATENCY_MAX: f64 = 1.0;
/// minTh: up to this delay the ramp marks nothing.
const RAMP_FROM_NS: u64 = 800_000;
/// The length of the ramp.
const RAMP_NS: u64 = 400_000;
/// The shares of the line while both queues have packets.
const LOW_LATENCY_SHARE: i64 = 9;
const CLASSIC_SHARE: i64 = 1;

/// Shortest target, in nanoseconds. It bounds the updates that one call makes after a long time: an idle
/// queue's base probability falls from 1 to 0 in at most 100,000.
pub(super) const TARGET_MIN_NS: u64 = 1_000_000;

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DualPi2Config {
    /// The target of the classic queue's delay, in nanoseconds, at least 1,000,000.
    pub target_ns: u64,
}

impl DualPi2Config {
    /// Tupdate: min(target, RTT_max / 3).
    fn update_ns(&self) -> u64 {
        self.target_ns.min(RTT_MAX_NS / 3)
    }
}

/// One of the two queues, with the state of `recur`.
#[derive(Debug, Default)]
struct Half {
    items: VecDeque<Item>,
    count: f64,
}

impl Half {
    /// The delay of the head at an instant.
    fn delay_ns(&self, now_ns: u64) -> u64 {
        let head = self.items.front();
        head.map_or(0, |head| now_ns.saturating_sub(head.arrival_ns()))
    }

    /// `recur`: true with a likelihood.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let hit = self.count > 1.0;
        if hit {
            self.count -= 1.0;
        }
        hit
    }
}

/// The two queues; names as in the RFC.
#[derive(Debug)]
pub(crate) struct DualPi2 {
    config: DualPi2Config,
    low_latency: Half,
    classic: Half,
    /// p'.
    base: f64,
    /// prevq.
    previous_ns: u64,
    /// `None`: nothing has arrived yet.
    update_at_ns: Option<u64>,
    /// The service that the classic queue is owed, in bytes times shares.
    credit: i64,
}

impl DualPi2 {
    pub(crate) fn new(config: DualPi2Config) -> Self {
        Self {
            config,
            low_latency: Half::default(),
            classic: Half::default(),
            base: 0.0,
            previous_ns: 0,
            update_at_ns: None,
            credit: 0,
        }
    }

    pub(crate) fn packets(&self) -> usize {
        self.low_latency.items.len() + self.classic.items.len()
    }

    /// The packets that wait, queue by queue.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.low_latency.items.iter().chain(&self.classic.items)
    }

    /// Whether the queue of low latency is next, where one has packets.
    fn low_latency_next(&self) -> bool {
        !self.low_latency.items.is_empty() && (self.classic.items.is_empty() || self.credit <= 0)
    }

    /// The head of the queue that is next.
    pub(crate) fn first(&self) -> Option<&Item> {
        if self.low_latency_next() {
            self.low_latency.items.front()
        } else {
            self.classic.items.front()
        }
    }

    /// `dualpi2_update`, at an instant.
    fn update(&mut self, at_ns: u64) {
        let rtt_max_s = seconds(RTT_MAX_NS);
        let gains = Gains {
            alpha: 0.1 * seconds(self.config.update_ns()) / (rtt_max_s * rtt_max_s),
            beta: 0.3 / rtt_max_s,
        };
        let delay_ns = self.delay_ns(at_ns);
        let change = gains.change(delay_ns, self.previous_ns, self.config.target_ns);
        self.base = (self.base + change).clamp(0.0, 1.0);
        self.previous_ns = delay_ns;
    }

    /// The greater delay of the two heads.
    fn delay_ns(&self, now_ns: u64) -> u64 {
        let low_latency_ns = self.low_latency.delay_ns(now_ns);
        low_latency_ns.max(self.classic.delay_ns(now_ns))
    }

    /// Makes the updates that are due.
    fn update_until(&mut self, now_ns: u64) {
        let update_ns = self.config.update_ns();
        let at_ns = self
            .update_at_ns
            .get_or_insert(now_ns.saturating_add(update_ns));
        let mut at_ns = *at_ns;
        while at_ns <= now_ns {
            self.update(at_ns);
            let idle = self.packets() == 0 && self.base == 0.0 && self.previous_ns == 0;
            // While no packet leaves, the delay grows, and the probability stays the highest.
            let above = self.previous_ns >= self.config.target_ns;
            let stuck = self.packets() > 0 && self.base == 1.0 && above;
            let rest = (now_ns - at_ns) / update_ns;
            if (idle || stuck) && rest > 0 {
                at_ns += rest * update_ns;
                self.previous_ns = self.delay_ns(at_ns);
            }
            at_ns = at_ns.saturating_add(update_ns);
        }
        self.update_at_ns = Some(at_ns);
    }

    /// `laqm` of a packet of low latency that leaves; 0 if no other one waits (figure 7, lines 5a to 5d).
    fn ramp(&self, delay_ns: u64) -> f64 {
        let above_ns = delay_ns.saturating_sub(RAMP_FROM_NS);
        if self.low_latency.items.is_empty() {
            0.0
        } else if above_ns >= RAMP_NS {
            1.0
        } else {
            above_ns as f64 / RAMP_NS as f64
        }
    }

    /// `dualpi2_enqueue`.
    pub(crate) fn push(&mut self, item: Item) {
        self.update_until(item.arrival_ns());
        if self.packets() == 0 {
            self.credit = 0;
        }
        let half = if item.low_latency() {
            &mut self.low_latency
        } else {
            &mut self.classic
        };
        half.items.push_back(item);
    }

    /// `dualpi2_dequeue`: takes the packet that leaves at `now_ns`. Those before it that are dropped go to
    /// `dropped`.
    pub(crate) fn pop(&mut self, now_ns: u64, mut dropped: impl FnMut(Item)) -> Option<Item> {
        self.update_until(now_ns);
        let classic = self.base * self.base;
        // A probability: `recur` would save up what is above 1.
        let coupled = (COUPLING * self.base).min(1.0);
        loop {
            let from_low_latency = self.low_latency_next();
            let mut item = if from_low_latency {
                self.low_latency.items.pop_front()
            } else {
                self.classic.items.pop_front()
            };
            let Some(item) = &mut item else {
                return None;
            };
            let kept = if !from_low_latency {
                let hit = self.classic.recur(classic);
                let marks = item.ecn_capable() && classic < CLASSIC_MAX;
                item.marked = hit && marks;
                !hit || marks
            } else if coupled < LOW_LATENCY_MAX {
                let ramp = self.ramp(now_ns.saturating_sub(item.arrival_ns()));
                item.marked = self.low_latency.recur(ramp.max(coupled));
                true
            } else if self.low_latency.recur(classic) {
                false
            } else {
                item.marked = self.low_latency.recur(coupled);
                true
            };
            if kept {
                self.charge(from_low_latency, item.frame_bytes());
                return Some(*item);
            }
            dropped(*item);
        }
    }

    /// A packet leaves one of the queues for the line.
    fn charge(&mut self, from_low_latency: bool, bytes: u64) {
        // A frame's length fits 2^17.
        let bytes = bytes as i64;
        if from_low_latency && !self.classic.items.is_empty() {
            self.credit += CLASSIC_SHARE * bytes;
        } else if !from_low_latency && !self.low_latency.items.is_empty() {
            self.credit -= LOW_LATENCY_SHARE * bytes;
        }
    }
}
