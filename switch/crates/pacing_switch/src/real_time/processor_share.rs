//! Leaves a share of the processor to others while the loop has a real-time scheduling class.
//!
//! A thread of such a class runs until it sleeps. If it takes the whole processor, the kernel stops it
//! for 50 ms of each second: always before Linux 6.12 (sched(7), `sched_rt_runtime_us`), and since then
//! if an ordinary thread waits for that processor. That is 2,000 packets at 500 Mbit/s. After such a stop the
//! loop sleeps in small pieces for a while: it polls the clock for a shorter time before each departure, and
//! if that is not enough it rests. It does not do so before a stop, because a wake-up is less exact than
//! polling.

/// Time between two looks at the used processor time, ns. A look is a system call.
const WINDOW_NS: u64 = 1_000_000;
/// The loop polls less if it used more than this part of the processor, in percent.
const POLL_LESS_PERCENT: u64 = 90;
/// The loop polls more if it used less than this part.
const POLL_MORE_PERCENT: u64 = 80;
/// The loop rests if it used more than this part. The kernel allows 95.
const REST_PERCENT: u64 = 94;
/// The length of a rest, ns.
pub const REST_NS: u64 = 80_000;
/// Shortest time without running that is taken for a stop by the kernel, ns.
pub const STOP_NS: u64 = 30_000_000;
/// Time for which the loop leaves a share after the first stop, ns. It doubles with each one.
const SHARING_MIN_NS: u64 = 10_000_000_000;
/// The longest such time, ns: an hour.
const SHARING_MAX_NS: u64 = 3_600_000_000_000;
/// Shortest time of polling before a departure, ns.
const SPIN_MIN_NS: u64 = 2_000;

/// The processor time that the loop uses, and the polling that it may do.
#[derive(Debug)]
pub struct ProcessorShare {
    spin_max_ns: u64,
    spin_ns: u64,
    window_began_ns: u64,
    used_ns: u64,
    /// The loop leaves a share until then.
    sharing_until_ns: u64,
    /// The time for which it will do so after the next stop.
    sharing_ns: u64,
}

impl ProcessorShare {
    /// `spin_ns`: the longest time of polling before a departure.
    pub fn new(spin_ns: u64) -> Self {
        Self {
            spin_max_ns: spin_ns,
            spin_ns,
            window_began_ns: 0,
            used_ns: 0,
            sharing_until_ns: 0,
            sharing_ns: SHARING_MIN_NS,
        }
    }

    /// The kernel stopped the loop. `used_ns`: the processor time that the thread has used by
    /// `now_ns`.
    pub fn stopped(&mut self, now_ns: u64, used_ns: u64) {
        self.sharing_until_ns = now_ns + self.sharing_ns;
        self.sharing_ns = (2 * self.sharing_ns).min(SHARING_MAX_NS);
        self.window_began_ns = now_ns;
        self.used_ns = used_ns;
    }

    /// The time of polling before a departure, ns.
    pub fn spin_ns(&self) -> u64 {
        self.spin_ns
    }

    /// Looks at the processor time if a window has ended since a stop. `used_ns` reads it. True: the
    /// loop must rest now.
    pub fn must_rest(&mut self, now_ns: u64, used_ns: impl FnOnce() -> u64) -> bool {
        if now_ns >= self.sharing_until_ns {
            self.spin_ns = self.spin_max_ns;
            return false;
        }
        let window_ns = now_ns.saturating_sub(self.window_began_ns);
        if window_ns < WINDOW_NS {
            return false;
        }
        let used_before_ns = std::mem::replace(&mut self.used_ns, used_ns());
        self.window_began_ns = now_ns;
        let percent = 100 * (self.used_ns - used_before_ns) / window_ns;
        if percent > POLL_LESS_PERCENT {
            let least_ns = SPIN_MIN_NS.min(self.spin_max_ns);
            self.spin_ns = (self.spin_ns - self.spin_ns / 8).max(least_ns);
        } else if percent < POLL_MORE_PERCENT {
            self.spin_ns = (self.spin_ns + self.spin_max_ns / 64).min(self.spin_max_ns);
        }
        percent > REST_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows of 1 ms, in which `used` says how much of the processor the loop uses.
    fn run(share: &mut ProcessorShare, windows: u64, used: impl Fn(&ProcessorShare) -> u64) -> u64 {
        let mut rests = 0;
        for _ in 0..windows {
            let used_ns = share.used_ns + used(share);
            let now_ns = share.window_began_ns + WINDOW_NS;
            rests += u64::from(share.must_rest(now_ns, || used_ns));
        }
        rests
    }

    fn stopped(spin_ns: u64) -> ProcessorShare {
        let mut share = ProcessorShare::new(spin_ns);
        share.stopped(1_000_000_000, 500_000_000);
        share
    }

    #[test]
    fn polling_shrinks_to_what_leaves_a_share() {
        let mut share = stopped(100_000);
        // A departure each 24 us takes 3 us of work; the rest is polling, as far as it is allowed.
        let used = |share: &ProcessorShare| 41 * (3_000 + share.spin_ns().min(21_000));
        run(&mut share, 100, used);
        let spin_ns = share.spin_ns();
        assert!((14_000..21_000).contains(&spin_ns), "{spin_ns}");
        assert_eq!(run(&mut share, 1_000, used), 0);
        // With a departure each 200 us there is room for all of it.
        run(&mut share, 1_000, |share| 5 * (3_000 + share.spin_ns()));
        assert_eq!(share.spin_ns(), 100_000);
    }

    #[test]
    fn a_loop_that_works_all_the_time_rests_in_each_window() {
        let mut share = stopped(100_000);
        assert_eq!(run(&mut share, 50, |_| WINDOW_NS), 50);
        assert_eq!(share.spin_ns(), SPIN_MIN_NS);
        assert!(!share.must_rest(share.window_began_ns + 999_999, || unreachable!()));
    }

    #[test]
    fn a_share_is_left_only_for_a_while_after_a_stop() {
        let mut share = ProcessorShare::new(100_000);
        assert!(!share.must_rest(5_000_000_000, || unreachable!()));
        share.stopped(6_000_000_000, 1_000);
        assert!(share.must_rest(6_001_000_000, || 1_001_000));
        assert!(share.spin_ns() < 100_000);
        assert!(!share.must_rest(16_000_000_000, || unreachable!()));
        assert_eq!(share.spin_ns(), 100_000);
        // The second time it is left for twice as long.
        share.stopped(17_000_000_000, 2_000_000);
        assert!(share.must_rest(36_999_000_000, || 19_990_000_000));
        assert!(!share.must_rest(37_000_000_000, || unreachable!()));
    }
}
