//! Leaves a share of the processor to others while the loop has a real-time scheduling class.
//!
//! A thread of such a class runs until it sleeps. If it takes the whole processor, the kernel stops it
//! for 50 ms of each second: always before Linux 6.12 (sched(7), `sched_rt_runtime_us`), and since then
//! if an ordinary thread waits for that processor. That is 2,000 packets at 500 Mbit/s. After such a stop the
//! loop rests in small pieces for a while. It does not do so before a stop, because each rest delays packets.
//!
//! The loop rests seldom and polls as long as ever before each departure. If it slept for a part of each
//! gap instead, each packet would leave late by the time that a wake-up takes, which is 100 us on some virtual
//! machines.

/// Time between two looks at the used processor time, ns. A look is a system call.
const WINDOW_NS: u64 = 1_000_000;
/// The part of the processor that the loop leaves, in percent. The kernel asks for 5.
const LEFT_PERCENT: u64 = 6;
/// The length of a rest, ns. A class at 500 Mbit/s makes up 262 us (`allowance auto`, 16 KB), and less than one
/// of 100 of its gaps has a rest in it.
pub const REST_NS: u64 = 150_000;
/// Shortest time without running that is taken for a stop by the kernel, ns.
pub const STOP_NS: u64 = 30_000_000;
/// Time for which the loop leaves a share after the first stop, ns. It doubles with each one.
const SHARING_MIN_NS: u64 = 10_000_000_000;
/// The longest such time, ns: an hour.
const SHARING_MAX_NS: u64 = 3_600_000_000_000;

/// The processor time that the loop uses, and the rests that it owes.
#[derive(Debug)]
pub struct ProcessorShare {
    window_began_ns: u64,
    used_ns: u64,
    /// The time that the loop still has to leave to others, plus `REST_NS`. Below `REST_NS` it is ahead.
    owed_ns: u64,
    /// The loop leaves a share until then.
    sharing_until_ns: u64,
    /// The time for which it will do so after the next stop.
    sharing_ns: u64,
}

impl ProcessorShare {
    pub fn new() -> Self {
        Self {
            window_began_ns: 0,
            used_ns: 0,
            owed_ns: REST_NS,
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

    /// Looks at the processor time if a window has ended since a stop. `used_ns` reads it. True: the
    /// loop must rest now.
    pub fn must_rest(&mut self, now_ns: u64, used_ns: impl FnOnce() -> u64) -> bool {
        let window_ns = now_ns.saturating_sub(self.window_began_ns);
        if now_ns >= self.sharing_until_ns || window_ns < WINDOW_NS {
            return false;
        }
        let used_before_ns = std::mem::replace(&mut self.used_ns, used_ns());
        self.window_began_ns = now_ns;
        let left_ns = window_ns.saturating_sub(self.used_ns - used_before_ns);
        let due_ns = window_ns * LEFT_PERCENT / 100;
        self.owed_ns = (self.owed_ns + due_ns).saturating_sub(left_ns);
        self.owed_ns >= 2 * REST_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows of 1 ms, or longer by a rest of `rest_ns`, in which the loop uses `percent` of the
    /// processor but for rests. Returns the number of rests.
    fn run(share: &mut ProcessorShare, windows: u64, percent: u64, rest_ns: u64) -> u64 {
        let mut rests = 0;
        let mut rested_ns = 0;
        for _ in 0..windows {
            let used_ns = share.used_ns + WINDOW_NS * percent / 100;
            let now_ns = share.window_began_ns + WINDOW_NS + rested_ns;
            let rest = share.must_rest(now_ns, || used_ns);
            rested_ns = if rest { rest_ns } else { 0 };
            rests += u64::from(rest);
        }
        rests
    }

    fn stopped() -> ProcessorShare {
        let mut share = ProcessorShare::new();
        share.stopped(1_000_000_000, 500_000_000);
        share
    }

    #[test]
    fn a_loop_that_works_all_the_time_leaves_6_percent() {
        // Of 1,000 ms and the rests.
        assert_eq!(run(&mut stopped(), 1_000, 100, REST_NS), 425);
        // Rests that the machine makes longer are fewer.
        assert_eq!(run(&mut stopped(), 1_000, 100, 2 * REST_NS), 213);
        assert_eq!(run(&mut stopped(), 1_000, 97, REST_NS), 212);
    }

    #[test]
    fn a_loop_that_sleeps_by_itself_does_not_rest() {
        let mut share = stopped();
        assert_eq!(run(&mut share, 1_000, 94, REST_NS), 0);
        // It can be ahead by one rest only.
        assert_eq!(run(&mut share, 1_000, 20, REST_NS), 0);
        assert_eq!(run(&mut share, 6, 100, REST_NS), 1);
        assert!(!share.must_rest(share.window_began_ns + 999_999, || unreachable!()));
    }

    #[test]
    fn a_share_is_left_only_for_a_while_after_a_stop() {
        let mut share = ProcessorShare::new();
        assert!(!share.must_rest(5_000_000_000, || unreachable!()));
        share.stopped(6_000_000_000, 1_000);
        assert!(share.must_rest(6_003_000_000, || 3_001_000));
        assert!(!share.must_rest(16_000_000_000, || unreachable!()));
        // The second time it is left for twice as long.
        share.stopped(17_000_000_000, 2_000_000);
        assert!(share.must_rest(36_999_000_000, || 20_001_000_000));
        assert!(!share.must_rest(37_000_000_000, || unreachable!()));
    }
}
