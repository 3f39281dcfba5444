//! How closely the loop watches for departures: the time between two looks at what is due.
//!
//! The loop looks before and after every frame it takes (where frames may lie: every batch) and,
//! while it waits awake, all the time; what it does between two looks is bounded (one frame, or
//! such a batch, through the program, one small batch to the kernel). A gap far longer than that
//! was not the loop's doing: the machine ran something else, and that is a *stall*, counted apart.
//! Time that the loop meant to sleep is not counted, what it overslept is; nor is time in which
//! nothing waited for its departure.

use switch::ports::{Attention as Told, Lateness, Stalls};
use traffic_manager::TimeHistogram;

/// A gap between two looks that bounded work cannot explain, in ns.
pub const STALL_NS: u64 = 100_000;

/// Gaps between looks, and stalls.
#[derive(Debug)]
pub struct Attention {
    gaps: TimeHistogram,
    stalls: Stalls,
    control_max_ns: u64,
    /// When the loop looked last, or means to look next.
    expected_ns: u64,
}

impl Attention {
    /// Nothing waits yet.
    pub fn at_rest() -> Self {
        Self {
            gaps: TimeHistogram::default(),
            stalls: Stalls::default(),
            control_max_ns: 0,
            expected_ns: u64::MAX,
        }
    }

    /// The loop looks at what is due at `now_ns`.
    pub fn look(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.expected_ns);
        self.expected_ns = now_ns;
        if gap_ns == 0 {
            // It rested, or the clock stands still.
        } else if gap_ns < STALL_NS {
            self.gaps.record(gap_ns);
        } else {
            self.stalls.count += 1;
            self.stalls.total_ns += gap_ns;
            self.stalls.max_ns = self.stalls.max_ns.max(gap_ns);
        }
    }

    /// The loop looks after work for the control plane or for an interface, whose length is
    /// another's affair.
    pub fn look_after_control(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.expected_ns);
        self.expected_ns = now_ns;
        self.control_max_ns = self.control_max_ns.max(gap_ns);
    }

    /// Nothing wants a look before `at_ns`.
    pub fn rest_until(&mut self, at_ns: u64) {
        self.expected_ns = self.expected_ns.max(at_ns);
    }

    /// What is told of it.
    pub fn told(&self) -> Told {
        Told {
            gaps: Lateness {
                buckets: self.gaps.buckets().to_vec(),
                max_ns: self.gaps.max_ns(),
            },
            control_max_ns: self.control_max_ns,
            stalls: self.stalls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_from_look_to_look() {
        let mut attention = Attention::at_rest();
        for now_ns in [1_000_000, 1_000_300, 1_003_300] {
            attention.look(now_ns);
        }
        let told = attention.told();
        assert_eq!(told.gaps.max_ns, 3_000);
        assert_eq!(told.gaps.buckets.iter().sum::<u64>(), 2);
        assert_eq!(told.stalls, Stalls::default());
    }

    #[test]
    fn what_bounded_work_cannot_explain_is_a_stall() {
        let mut attention = Attention::at_rest();
        attention.look(1_000_000);
        attention.look(1_000_000 + STALL_NS);
        attention.look(1_000_000 + 4 * STALL_NS);
        let told = attention.told();
        assert_eq!(told.stalls.count, 2);
        assert_eq!(told.stalls.total_ns, 4 * STALL_NS);
        assert_eq!(told.stalls.max_ns, 3 * STALL_NS);
        assert_eq!(told.gaps.max_ns, 0);
    }

    #[test]
    fn sleep_is_no_gap_and_oversleeping_is() {
        let mut attention = Attention::at_rest();
        attention.look(3_000_000);
        attention.rest_until(5_000_000);
        // A frame ends the sleep early, another time the machine ends it late.
        attention.look(4_000_000);
        attention.rest_until(6_000_000);
        attention.look(6_070_000);
        assert_eq!(attention.told().gaps.max_ns, 70_000);
        attention.rest_until(7_000_000);
        attention.look(8_000_000);
        assert_eq!(attention.told().stalls.max_ns, 1_000_000);
    }

    #[test]
    fn control_work_is_told_apart() {
        let mut attention = Attention::at_rest();
        attention.look(1_000);
        attention.look_after_control(500_000);
        attention.look(500_100);
        let told = attention.told();
        assert_eq!(told.control_max_ns, 499_000);
        assert_eq!(told.gaps.max_ns, 100);
        assert_eq!(told.stalls, Stalls::default());
    }
}
