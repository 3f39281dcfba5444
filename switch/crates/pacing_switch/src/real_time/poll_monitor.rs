//! Measures the times between two polls of the loop for departures.
//!
//! The loop polls before every frame that it takes (in the moderated states: every batch), and all
//! the time while it waits awake. Its work between two polls is bounded: one frame or such a batch
//! through the program, and one small batch to the kernel. A far longer interval is a *stall*: the
//! machine ran something else. Stalls are counted apart. The time of a sleep is not counted, but the
//! time by which the machine ends it late is. Time in which no packet waits for its departure is not
//! counted either.

use switch::Polling;

/// Shortest time between two polls that counts as a stall, in ns: bounded work cannot explain it.
pub const STALL_NS: u64 = 100_000;

/// Measures the times between polls.
#[derive(Debug)]
pub struct PollMonitor {
    polling: Polling,
    /// Time of the last poll, or of the next one if the loop means to sleep until then.
    expected_ns: u64,
    /// The longest stall since it was last taken, in ns.
    longest_ns: u64,
}

impl PollMonitor {
    /// No packet waits yet.
    pub fn new() -> Self {
        Self {
            polling: Polling::default(),
            expected_ns: u64::MAX,
            longest_ns: 0,
        }
    }

    /// The loop polls at `now_ns`.
    pub fn poll(&mut self, now_ns: u64) {
        let interval_ns = self.interval_ns(now_ns);
        if interval_ns == 0 {
            // The loop slept, or the clock stands still.
        } else if interval_ns < STALL_NS {
            self.polling.intervals.record(interval_ns);
        } else {
            let stalls = &mut self.polling.stalls;
            stalls.count += 1;
            stalls.total_ns += interval_ns;
            stalls.max_ns = stalls.max_ns.max(interval_ns);
            self.longest_ns = self.longest_ns.max(interval_ns);
        }
    }

    /// The loop polls at `now_ns`, after work for the control plane or for an interface.
    pub fn poll_after_control(&mut self, now_ns: u64) {
        let interval_ns = self.interval_ns(now_ns);
        self.polling.control_max_ns = self.polling.control_max_ns.max(interval_ns);
    }

    fn interval_ns(&mut self, now_ns: u64) -> u64 {
        let interval_ns = now_ns.saturating_sub(self.expected_ns);
        self.expected_ns = now_ns;
        interval_ns
    }

    /// No poll is needed before `at_ns`: the time until then is not counted.
    pub fn idle_until(&mut self, at_ns: u64) {
        self.expected_ns = self.expected_ns.max(at_ns);
    }

    /// The longest stall since the last call, in ns; 0: none.
    pub fn take_longest_ns(&mut self) -> u64 {
        std::mem::take(&mut self.longest_ns)
    }

    /// The measurements so far.
    pub fn polling(&self) -> &Polling {
        &self.polling
    }
}

#[cfg(test)]
mod tests {
    use switch::Stalls;

    use super::*;

    #[test]
    fn intervals_count_from_poll_to_poll() {
        let mut monitor = PollMonitor::new();
        for now_ns in [1_000_000, 1_000_300, 1_003_300] {
            monitor.poll(now_ns);
        }
        let polling = monitor.polling();
        assert_eq!(polling.intervals.max_ns(), 3_000);
        assert_eq!(polling.intervals.count(), 2);
        assert_eq!(polling.stalls, Stalls::default());
    }

    #[test]
    fn what_bounded_work_cannot_explain_is_a_stall() {
        let mut monitor = PollMonitor::new();
        monitor.poll(1_000_000);
        monitor.poll(1_000_000 + STALL_NS);
        monitor.poll(1_000_000 + 4 * STALL_NS);
        let polling = monitor.polling();
        assert_eq!(polling.stalls.count, 2);
        assert_eq!(polling.stalls.total_ns, 4 * STALL_NS);
        assert_eq!(polling.stalls.max_ns, 3 * STALL_NS);
        assert_eq!(polling.intervals.max_ns(), 0);
    }

    #[test]
    fn sleep_is_no_interval_and_oversleeping_is() {
        let mut monitor = PollMonitor::new();
        monitor.poll(3_000_000);
        monitor.idle_until(5_000_000);
        // A frame ends the sleep early, another time the machine ends it late.
        monitor.poll(4_000_000);
        monitor.idle_until(6_000_000);
        monitor.poll(6_070_000);
        assert_eq!(monitor.polling().intervals.max_ns(), 70_000);
        monitor.idle_until(7_000_000);
        monitor.poll(8_000_000);
        assert_eq!(monitor.polling().stalls.max_ns, 1_000_000);
    }

    #[test]
    fn control_work_is_counted_apart() {
        let mut monitor = PollMonitor::new();
        monitor.poll(1_000);
        monitor.poll_after_control(500_000);
        monitor.poll(500_100);
        let polling = monitor.polling();
        assert_eq!(polling.control_max_ns, 499_000);
        assert_eq!(polling.intervals.max_ns(), 100);
        assert_eq!(polling.stalls, Stalls::default());
    }
}
