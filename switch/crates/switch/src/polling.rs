//! Measurements of the driver's polling for departures.

use traffic_manager::TimeHistogram;

/// Times that the machine kept the driver from polling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The number of stalls.
    pub count: u64,
    /// Their total time, in ns.
    pub total_ns: u64,
    /// The longest one, in ns.
    pub max_ns: u64,
}

/// The driver's polling while packets waited for their departure; all zero in virtual time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Polling {
    /// Time between two polls, stalls and control work excluded.
    pub intervals: TimeHistogram,
    /// Longest time between two polls that went to control requests or to an interface's state,
    /// in ns.
    pub control_max_ns: u64,
    /// Times that the machine took.
    pub stalls: Stalls,
}
