//! Questions about a packet to active queue management, and its answers.

use crate::packet::Colour;

/// A packet that arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arriving {
    pub(crate) now_ns: u64,
    /// Bytes that wait in the queue.
    pub(crate) waiting_bytes: u64,
    pub(crate) ecn_capable: bool,
    pub(crate) colour: Colour,
}

/// A packet at the head that would leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) now_ns: u64,
    pub(crate) sojourn_ns: u64,
    /// Bytes that would wait behind it.
    pub(crate) left_bytes: u64,
    pub(crate) ecn_capable: bool,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// It is marked as having met congestion (CE).
    Mark,
    Drop,
}
