//! The clock: the only place of the switch that reads one.
//!
//! Everything runs on `CLOCK_MONOTONIC`, in nanoseconds. The kernel stamps received frames with
//! `CLOCK_REALTIME`, which an administrator or an NTP daemon may step by hours; a switch that ran
//! on it would freeze for as long. Both clocks advance at the same (slewed) pace and differ by a
//! constant, which converts stamps to `CLOCK_MONOTONIC`. The constant changes only when
//! `CLOCK_REALTIME` is stepped (`clock_settime`, `adjtimex` with an offset, a leap second). The kernel
//! tells the [`Waiter`](crate::Waiter) of a step (a timerfd with `TFD_TIMER_CANCEL_ON_SET`), and the
//! waiter measures the constant again. [`Port::receive`](crate::Port::receive) corrects the times of
//! frames that are stamped during a step.
//!
//! `clock_gettime` takes a few tens of ns on ordinary machines, but is a system call (14 us of real
//! time) in User-Mode Linux. So a caller reads the clock once per wake-up and passes the reading on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Nanoseconds per second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Rounds of readings that narrow the offset down; each costs three clock readings.
const OFFSET_ROUNDS: u32 = 32;

/// Width at which the measurement ends: the kernel's own stamps are not more exact.
const OFFSET_WINDOW_NS: i64 = 20;

/// Now, on the clock of the switch (`CLOCK_MONOTONIC`), in ns.
#[must_use]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The processor time that the calling thread has used, in ns.
#[must_use]
pub fn thread_used_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// `CLOCK_REALTIME - CLOCK_MONOTONIC` in ns: measured at the first call, then as last measured.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    offset_cell().load(Ordering::Relaxed)
}

/// Measures the offset again, after a step of `CLOCK_REALTIME`. Returns the new offset in ns.
pub fn remeasure_realtime_offset() -> i64 {
    let offset_ns = measure_offset();
    offset_cell().store(offset_ns, Ordering::Relaxed);
    offset_ns
}

/// Converts a receive stamp to the clock of the switch, in ns.
///
/// Stamps are of `CLOCK_REALTIME`, with one exception. A frame that a process of this namespace sends
/// at a given time (`SO_TXTIME`) comes out of a veth with that time, which is of `CLOCK_MONOTONIC`.
/// Such a stamp is smaller than the difference of the clocks, and is returned unchanged.
#[must_use]
pub fn from_stamp_ns(stamp_ns: u64) -> u64 {
    match u64::try_from(realtime_offset_ns()) {
        Ok(offset_ns) if stamp_ns >= offset_ns => stamp_ns - offset_ns,
        _ => stamp_ns,
    }
}

/// A time of the switch as ns since 1970, for instance for a capture file.
#[must_use]
pub fn to_realtime_ns(monotonic_ns: u64) -> u64 {
    monotonic_ns.saturating_add_signed(realtime_offset_ns())
}

fn offset_cell() -> &'static AtomicI64 {
    static OFFSET_NS: OnceLock<AtomicI64> = OnceLock::new();
    OFFSET_NS.get_or_init(|| AtomicI64::new(measure_offset()))
}

/// Brackets readings of the one clock between readings of the other. The offset is constant, so
/// every bracket holds it and their intersection does: a few tens of ns wide on an ordinary
/// machine, exact where a reading takes no time.
fn measure_offset() -> i64 {
    let mut low_ns = i64::MIN;
    let mut high_ns = i64::MAX;
    for _ in 0..OFFSET_ROUNDS {
        let before_ns = read(libc::CLOCK_MONOTONIC).cast_signed();
        let real_ns = read(libc::CLOCK_REALTIME).cast_signed();
        let after_ns = read(libc::CLOCK_MONOTONIC).cast_signed();
        low_ns = low_ns.max(real_ns.saturating_sub(after_ns));
        high_ns = high_ns.min(real_ns.saturating_sub(before_ns));
        if low_ns > high_ns {
            // Stepped between two rounds: only this round counts.
            low_ns = real_ns.saturating_sub(after_ns);
            high_ns = real_ns.saturating_sub(before_ns);
        }
        if high_ns.saturating_sub(low_ns) <= OFFSET_WINDOW_NS {
            break;
        }
    }
    low_ns + (high_ns - low_ns) / 2
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to. The call cannot fail: both clocks exist on
    // every Linux and the pointer is good.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(NS_PER_S)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_either_clock_are_the_same_instant() {
        let now_ns = now_ns();
        assert_eq!(from_stamp_ns(to_realtime_ns(now_ns)), now_ns);
        assert_eq!(from_stamp_ns(now_ns), now_ns);
    }

    #[test]
    fn the_offset_is_known_to_half_a_microsecond() {
        let offsets_ns: Vec<i64> = (0..1_000).map(|_| measure_offset()).collect();
        let differ = |pair: &&[i64]| pair[0].abs_diff(pair[1]) > 500;
        let apart = offsets_ns.windows(2).filter(differ).count();
        // Each step of the machine's clock, which nobody should make now, sets two apart.
        assert!(apart <= 3, "{apart} of 1,000 differ from the one before");
    }

    #[test]
    fn never_runs_backwards() {
        let mut last_ns = now_ns();
        for _ in 0..10_000 {
            let next_ns = now_ns();
            assert!(next_ns >= last_ns);
            last_ns = next_ns;
        }
    }
}
