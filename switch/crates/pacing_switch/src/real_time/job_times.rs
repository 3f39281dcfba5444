//! Decides when jobs of the control plane may work, and for how long.
//!
//! A job looks at the clock after each piece of its work, which takes some microseconds. Nothing is sent
//! meanwhile. So no piece begins shortly before a departure: the loop waits for the departure, as it does
//! without jobs, and the job goes on after it. Where departures follow each other so closely that no job
//! would ever go on, a piece begins now and then all the same.

/// Longest work of a job between two checks for due frames, in ns.
const VISIT_NS: u64 = 50_000;
/// Time before a departure in which no piece of a job begins, in ns: more than most pieces take.
const GUARD_NS: u64 = 10_000;
/// Time after which departures keep a job waiting no longer, in ns. A piece of 3 us then takes a 20th of
/// the processor.
const HELD_MAX_NS: u64 = 50_000;

/// The times of jobs' visits to the switch.
#[derive(Debug, Default)]
pub struct JobTimes {
    /// Since when departures have kept a job from its visit; `None`: they do not.
    held_since_ns: Option<u64>,
}

impl JobTimes {
    /// The end of a visit that begins at `now_ns`; `None`: none may begin before the next departure, at
    /// `due_ns`.
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
        Some(ends_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE_NS: u64 = 3_000;

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

    /// When pieces of a job without an end begin, in 10 ms with a departure every `gap_ns`, and how many of
    /// them begin within the guard.
    fn pieces(gap_ns: u64) -> (Vec<u64>, usize) {
        let mut times = JobTimes::default();
        let (mut begun_ns, mut close) = (Vec::new(), 0);
        let mut now_ns = 0;
        while now_ns < 10_000_000 {
            let due_ns = (now_ns / gap_ns + 1) * gap_ns;
            let Some(ends_ns) = times.visit_ends_ns(now_ns, due_ns) else {
                now_ns = due_ns;
                continue;
            };
            loop {
                begun_ns.push(now_ns);
                close += usize::from(due_ns - now_ns < GUARD_NS);
                now_ns += PIECE_NS;
                if now_ns >= ends_ns {
                    break;
                }
            }
        }
        (begun_ns, close)
    }

    #[test]
    fn jobs_have_the_time_between_departures() {
        // 500 Mbit/s of 1,518-byte frames: five pieces in each gap.
        let (begun_ns, close) = pieces(24_608);
        assert_eq!(close, 0);
        assert!(begun_ns.len() >= 10_000_000 / 24_608 * 5);
    }

    #[test]
    fn departures_keep_a_job_waiting_for_60_us_at_most() {
        for gap_ns in [100, 1_230, 4_000, 9_999] {
            let (begun_ns, close) = pieces(gap_ns);
            let waits_ns = begun_ns.windows(2).map(|two| two[1] - two[0] - PIECE_NS);
            let longest_ns = waits_ns.max().expect("pieces");
            // No shorter either: departures have the rest of the time.
            let most_ns = HELD_MAX_NS + GUARD_NS;
            assert!(
                (HELD_MAX_NS..=most_ns).contains(&longest_ns),
                "{longest_ns}"
            );
            assert_eq!(close, begun_ns.len());
        }
    }
}
