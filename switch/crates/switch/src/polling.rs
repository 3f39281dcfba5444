//! How closely the driver watches for departures.

use traffic_manager::TimeHistogram;

/// Times that the machine kept the driver from polling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How often.
    pub count: u64,
    /// For how long in all, in ns.
    pub total_ns: u64,
    /// For how long at most, in ns.
    pub max_ns: u64,
}

/// How closely the driver polled while packets waited for their departure; all zero in virtual
/// time.
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
