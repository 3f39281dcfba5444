//! Decides when jobs of the control plane may work, and for how long.
//!
//! A job looks at the clock after each piece of its work, which takes some microseconds. Nothing is sent
//! meanwhile. So no piece begins shortly before a departure: a job that waits for its departure to pass
//! delays nobody. Where departures follow each other so closely that no job would ever begin, one piece
//! begins now and then all the same.

/// Longest work of a job between two checks for due frames, in ns.
const VISIT_NS: u64 = 50_000;
/// Time before a departure in which no piece of a job begins, in ns: more than most pieces take.
const GUARD_NS: u64 = 10_000;
/// Longest time that departures keep a job waiting, in ns. With departures all the time, jobs have one
/// piece in this time.
const HELD_MAX_NS: u64 = 250_000;

/// The times of jobs' visits to the switch.
#[derive(Debug, Default)]
pub struct JobTimes {
    /// Since when departures have kept a job from its visit; `None`: they do not.
    held_since_ns: Option<u64>,
}

impl JobTimes {
    /// The end of a visit that begins at `now_ns`; `None`: none may begin yet. `due_ns`: the next departure.
    pub fn visit_ends_ns(&mut self, now_ns: u64, due_ns: u64) -> Option<u64> {
        let ends_ns = due_ns
            .saturating_sub(GUARD_NS)
            .min(now_ns.saturating_add(VISIT_NS));
        if ends_ns <= now_ns {
            let since_ns = *self.held_since_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(since_ns) < HELD_MAX_NS {
                return None;
            }
        }
        self.held_since_ns = None;
        Some(ends_ns.max(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_ends_before_the_next_departure_and_after_50_us() {
        let mut times = JobTimes::default();
        assert_eq!(times.visit_ends_ns(1_000, u64::MAX), Some(51_000));
        assert_eq!(times.visit_ends_ns(1_000, 25_000), Some(15_000));
        assert_eq!(times.visit_ends_ns(1_000, 11_001), Some(1_001));
    }

    #[test]
    fn no_visit_begins_shortly_before_a_departure_or_while_one_is_late() {
        let mut times = JobTimes::default();
        for due_ns in [990_000, 1_000_000, 1_000_001, 1_010_000] {
            assert_eq!(times.visit_ends_ns(1_000_000, due_ns), None);
        }
        // The departure has passed, so the job waits no more.
        assert_eq!(times.visit_ends_ns(1_010_100, 1_034_000), Some(1_024_000));
        assert_eq!(times.visit_ends_ns(1_024_000, 1_034_000), None);
    }

    /// Departures every `gap_ns` and a piece of 3 us whenever a job may work, for 10 ms. Returns the pieces
    /// that began within the guard of a departure, and all.
    fn pieces(gap_ns: u64) -> (u64, u64) {
        let mut times = JobTimes::default();
        let (mut close, mut all) = (0, 0);
        let mut now_ns = 0_u64;
        while now_ns < 10_000_000 {
            let due_ns = now_ns.next_multiple_of(gap_ns);
            if let Some(ends_ns) = times.visit_ends_ns(now_ns, due_ns) {
                loop {
                    all += 1;
                    close += u64::from(due_ns.saturating_sub(now_ns) < GUARD_NS);
                    now_ns += 3_000;
                    if now_ns >= ends_ns {
                        break;
                    }
                }
            } else {
                now_ns = due_ns + 100;
            }
        }
        (close, all)
    }

    #[test]
    fn jobs_work_between_departures_and_have_a_bounded_share_where_these_are_close() {
        // 500 Mbit/s of 1,518-byte frames leave them half of the time.
        let (close, all) = pieces(24_608);
        assert_eq!(close, 0);
        assert!((1_500..2_500).contains(&all), "{all}");
        // 10 Gbit/s leaves them a piece of each 250 us.
        let (close, all) = pieces(1_230);
        assert_eq!(close, all);
        assert!((30..=40).contains(&all), "{all}");
    }
}
