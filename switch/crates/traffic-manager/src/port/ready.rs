//! A port's class queues whose first packet may start, as the timer wheel orders them.

use crate::time::Q24;
use crate::timer_wheel::Key;

/// A head that may start: in order of departure, then of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    pub(super) departure_ns: u64,
    pub(super) sequence: u64,
    pub(super) class: u32,
    /// The end of its wait for its distance to the previous packet, after departure and R, while its
    /// class catches up.
    pub(super) spaced: Option<Q24>,
}

impl Key for Ready {
    fn time_ns(self) -> u64 {
        self.departure_ns
    }
}
