//! Gaps between frames, start to start, and a pacer's accuracy from them.
//!
//! Rates count layer-2 bytes and FCS, as PSPacer does: a frame of `len` bytes followed after `gap`
//! is worth `(len + 4) * 8 / gap`.

use serde::Serialize;

const FCS_BYTES: u64 = 4;
const NS_PER_US: f64 = 1e3;
/// A frame later than this behind the ideal gap was held up by the machine, not by the pacer.
const STALL_NS: f64 = 100_000.0;
/// A pacer is on time for at least one of so many frames in a row.
const ON_TIME_FRAMES: usize = 200;

/// Arrivals of the frames that count. Memory: 8 bytes per frame, for at most `limit` frames.
#[derive(Debug)]
pub struct Arrivals {
    gaps_ns: Vec<u64>,
    /// Bytes with FCS of all frames but the last.
    bytes_before_last: u64,
    last_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    frames: u64,
    limit: usize,
    min_rate_bps: f64,
    max_rate_bps: f64,
}

/// The measurements, written as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Frames that met the conditions.
    pub packets: u64,
    /// Their bytes, layer 2 with FCS.
    pub bytes: u64,
    /// First to last, s.
    pub seconds: f64,
    /// Frames per second, first to last.
    pub pps: f64,
    /// The gap there should be, ns: as given, or the mean.
    pub ideal_ns: f64,
    /// Smallest gap, us.
    pub min_us: f64,
    /// Median gap, us.
    pub p50_us: f64,
    /// 99th percentile of the gaps, us.
    pub p99_us: f64,
    /// 99.9th percentile of the gaps, us.
    pub p999_us: f64,
    /// Largest gap, us.
    pub max_us: f64,
    /// Median of |gap - ideal|, us.
    pub error_p50_us: f64,
    /// 99th percentile of |gap - ideal|, us.
    pub error_p99_us: f64,
    /// 99.9th percentile of |gap - ideal|, us.
    pub error_p999_us: f64,
    /// Largest |gap - ideal|, us.
    pub error_max_us: f64,
    /// Frames in the longest run whose gaps are all below the threshold; 1: no two frames are that
    /// close.
    pub back_to_back_max: u64,
    /// The same without the runs that end a stall: a gap 100 us or more above the ideal.
    pub back_to_back_max_unstalled: u64,
    /// Gaps 100 us or more above the ideal.
    pub stalls: u64,
    /// The largest queue, in bytes, in front of a virtual bottleneck that takes a frame in each ideal gap.
    pub queue_max_bytes: u64,
    /// The longest time by which a frame came before it was due, us. Frames are due one ideal gap after the
    /// other. A pacer that was held up may only put the following ones off.
    pub early_max_us: f64,
    /// The threshold, percent of the ideal gap.
    pub back_to_back_percent: f64,
    /// Mean rate, bit/s.
    pub mean_rate_bps: f64,
    /// Least rate of one frame and the gap behind it, bit/s.
    pub min_rate_bps: f64,
    /// Greatest rate of one frame and the gap behind it, bit/s; of two frames with the same stamp:
    /// as if 1 ns apart.
    pub max_rate_bps: f64,
}

impl Arrivals {
    /// No arrivals yet; takes up to `limit` frames.
    #[must_use]
    pub fn new(limit: usize) -> Arrivals {
        Arrivals {
            gaps_ns: Vec::with_capacity(limit.min(1 << 20)),
            bytes_before_last: 0,
            last_bytes: 0,
            first_ns: 0,
            last_ns: 0,
            frames: 0,
            limit,
            min_rate_bps: f64::INFINITY,
            max_rate_bps: 0.0,
        }
    }

    /// A frame of `frame_bytes` (without FCS) arrived; times do not run backwards. False: it was
    /// not taken, there are `limit` already.
    pub fn add(&mut self, arrival_ns: u64, frame_bytes: usize) -> bool {
        if self.is_full() {
            return false;
        }
        if self.frames == 0 {
            self.first_ns = arrival_ns;
        } else {
            let gap_ns = arrival_ns.saturating_sub(self.last_ns);
            self.gaps_ns.push(gap_ns);
            let rate_bps = self.last_bytes as f64 * 8e9 / gap_ns.max(1) as f64;
            self.min_rate_bps = self.min_rate_bps.min(rate_bps);
            self.max_rate_bps = self.max_rate_bps.max(rate_bps);
            self.bytes_before_last += self.last_bytes;
        }
        self.frames += 1;
        self.last_ns = arrival_ns;
        self.last_bytes = frame_bytes as u64 + FCS_BYTES;
        true
    }

    /// Frames so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Whether no more are taken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.frames >= self.limit as u64
    }

    /// The figures; `None` with fewer than two frames. `ideal_ns`: the gap there should be, if
    /// known; frames closer than `back_to_back_percent` of it are back to back.
    #[must_use]
    pub fn summary(&self, ideal_ns: Option<f64>, back_to_back_percent: f64) -> Option<Summary> {
        if self.gaps_ns.is_empty() {
            return None;
        }
        let span_ns = (self.last_ns - self.first_ns).max(1) as f64;
        let ideal_ns = ideal_ns.unwrap_or(span_ns / self.gaps_ns.len() as f64);
        let mut gaps_ns = self.gaps_ns.clone();
        gaps_ns.sort_unstable();
        let mut errors_ns: Vec<f64> = gaps_ns
            .iter()
            .map(|gap_ns| (*gap_ns as f64 - ideal_ns).abs())
            .collect();
        errors_ns.sort_unstable_by(f64::total_cmp);
        let gap_us = |share| percentile(&gaps_ns, share).map_or(0.0, |ns| ns as f64) / NS_PER_US;
        let error_us = |share| percentile(&errors_ns, share).unwrap_or(0.0) / NS_PER_US;
        let below_ns = ideal_ns * back_to_back_percent / 100.0;
        let bytes = self.bytes_before_last + self.last_bytes;
        let frame_bytes = bytes as f64 / self.frames as f64;
        Some(Summary {
            packets: self.frames,
            bytes,
            seconds: span_ns / 1e9,
            pps: self.gaps_ns.len() as f64 * 1e9 / span_ns,
            ideal_ns,
            min_us: gap_us(0.0),
            p50_us: gap_us(0.5),
            p99_us: gap_us(0.99),
            p999_us: gap_us(0.999),
            max_us: gap_us(1.0),
            error_p50_us: error_us(0.5),
            error_p99_us: error_us(0.99),
            error_p999_us: error_us(0.999),
            error_max_us: error_us(1.0),
            back_to_back_max: self.longest_run(below_ns, f64::INFINITY),
            back_to_back_max_unstalled: self.longest_run(below_ns, ideal_ns + STALL_NS),
            stalls: self
                .gaps_ns
                .iter()
                .filter(|gap_ns| **gap_ns as f64 >= ideal_ns + STALL_NS)
                .count() as u64,
            queue_max_bytes: (self.longest_queue(ideal_ns) * frame_bytes).round() as u64,
            early_max_us: self.earliest_ns(ideal_ns) / NS_PER_US,
            back_to_back_percent,
            mean_rate_bps: self.bytes_before_last as f64 * 8e9 / span_ns,
            min_rate_bps: self.min_rate_bps,
            max_rate_bps: self.max_rate_bps,
        })
    }

    /// The longest queue in front of a bottleneck that takes a frame each `ideal_ns`, in frames. The one on
    /// the line counts.
    fn longest_queue(&self, ideal_ns: f64) -> f64 {
        let (mut longest, mut queue) = (1.0_f64, 1.0_f64);
        for gap_ns in &self.gaps_ns {
            queue = (queue - *gap_ns as f64 / ideal_ns).max(0.0) + 1.0;
            longest = longest.max(queue);
        }
        longest
    }

    /// The longest time by which a frame came before it was due, ns.
    ///
    /// Frames are due one ideal gap after the other, from the one of some frames in a row that came earliest by this
    /// schedule. A stall moves the schedule to later times, and nothing moves it back. A frame that is
    /// on time counts as early by at most what that earliest one was late.
    fn earliest_ns(&self, ideal_ns: f64) -> f64 {
        let (mut earliest_ns, mut late_ns) = (0.0_f64, 0.0);
        let mut due_ns = f64::NEG_INFINITY;
        for gaps_ns in self.gaps_ns.chunks(ON_TIME_FRAMES) {
            let mut best_ns = f64::INFINITY;
            for gap_ns in gaps_ns {
                late_ns += *gap_ns as f64 - ideal_ns;
                best_ns = best_ns.min(late_ns);
                earliest_ns = earliest_ns.max(due_ns - late_ns);
            }
            due_ns = due_ns.max(best_ns);
        }
        earliest_ns
    }

    /// Frames in the longest run of gaps below `below_ns`, runs behind a gap of `stall_ns` or
    /// more left out.
    fn longest_run(&self, below_ns: f64, stall_ns: f64) -> u64 {
        let (mut longest, mut run, mut counts) = (1, 1, true);
        for gap_ns in &self.gaps_ns {
            let gap_ns = *gap_ns as f64;
            if gap_ns < below_ns {
                run += 1;
            } else {
                (run, counts) = (1, gap_ns < stall_ns);
            }
            if counts {
                longest = longest.max(run);
            }
        }
        longest
    }
}

/// The smallest value that at least this share (0 to 1) of the sorted values do not exceed (nearest
/// rank).
fn percentile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(times_ns: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::new(1000);
        for time_ns in times_ns {
            assert!(arrivals.add(*time_ns, 1514));
        }
        arrivals
    }

    #[test]
    fn even_gaps_are_the_rate() {
        let times_ns: Vec<u64> = (0..100).map(|i| 5_000 + i * 24_288).collect();
        let summary = arrivals(&times_ns).summary(Some(24_288.0), 50.0).unwrap();
        assert_eq!(summary.packets, 100);
        assert_eq!(summary.bytes, 151_800);
        assert_eq!((summary.min_us, summary.max_us), (24.288, 24.288));
        assert_eq!(summary.error_max_us, 0.0);
        assert_eq!(summary.back_to_back_max, 1);
        assert_eq!(summary.queue_max_bytes, 1_518);
        for rate_bps in [
            summary.mean_rate_bps,
            summary.min_rate_bps,
            summary.max_rate_bps,
        ] {
            assert!((rate_bps - 500e6).abs() < 1e-3, "{rate_bps}");
        }
    }

    #[test]
    fn a_burst_is_found() {
        let summary = arrivals(&[0, 100, 101, 102, 103, 200, 300])
            .summary(Some(100.0), 50.0)
            .unwrap();
        assert_eq!(summary.back_to_back_max, 4);
        assert_eq!(summary.min_us, 0.001);
        assert_eq!(summary.p50_us, 0.001);
        // 3.97 frames at 103 ns. The next one comes when a frame less 3 % of it has left.
        assert_eq!(summary.queue_max_bytes, 4 * 1_518);
    }

    #[test]
    fn what_follows_a_stall_is_told_apart() {
        let times_ns = [0, 100, 110, 200, 300, 200_000, 200_001, 200_002, 200_100];
        let summary = arrivals(&times_ns).summary(Some(100.0), 50.0).unwrap();
        assert_eq!(summary.back_to_back_max, 3);
        assert_eq!(summary.back_to_back_max_unstalled, 2);
        assert_eq!(summary.stalls, 1);
    }

    #[test]
    fn an_early_frame_is_found_and_a_late_one_is_not_taken_for_a_schedule() {
        // 100 ns apart; every tenth is 60 ns late.
        let late = |i: u64| i * 100 + if i.is_multiple_of(10) { 60 } else { 0 };
        let early_us = |times_ns: &[u64]| {
            let summary = arrivals(times_ns).summary(Some(100.0), 50.0);
            summary.expect("frames").early_max_us
        };
        let mut times_ns: Vec<u64> = (0..900).map(late).collect();
        assert_eq!(early_us(&times_ns), 0.0);
        // A stall puts all that follow off.
        times_ns[600..].iter_mut().for_each(|at_ns| *at_ns += 5_000);
        assert_eq!(early_us(&times_ns), 0.0);
        // One comes by the schedule before the stall.
        times_ns[851] -= 30;
        assert_eq!(early_us(&times_ns), 0.03);
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<u32> = (1..=1000).collect();
        let at = |share| percentile(&values, share).unwrap();
        assert_eq!(
            (at(0.0), at(0.5), at(0.99), at(0.999), at(1.0)),
            (1, 500, 990, 999, 1000)
        );
        assert_eq!(percentile::<u32>(&[], 0.5), None);
    }

    #[test]
    fn too_few_and_too_many() {
        assert_eq!(arrivals(&[]).summary(None, 50.0), None);
        assert_eq!(arrivals(&[7]).summary(None, 50.0), None);
        let same = arrivals(&[7, 7]).summary(None, 50.0).unwrap();
        assert!(same.mean_rate_bps.is_finite() && same.max_rate_bps.is_finite());
        let mut one = Arrivals::new(1);
        assert!(one.add(0, 60) && !one.add(1, 60) && one.is_full());
    }
}
