//! The controller of PIE (RFC 8033, section 4.2) and PI2 (RFC 9332, appendix A): proportional to the error
//! of the delay, and integral by its change.

const NS_PER_S: f64 = 1e9;

/// Nanoseconds in seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

/// The gains of a controller, in 1/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gains {
    pub(super) alpha: f64,
    pub(super) beta: f64,
}

impl Gains {
    /// The change of the probability in one update.
    pub(super) fn change(self, delay_ns: u64, previous_ns: u64, target_ns: u64) -> f64 {
        let (delay, previous) = (seconds(delay_ns), seconds(previous_ns));
        self.alpha * (delay - seconds(target_ns)) + self.beta * (delay - previous)
    }
}
