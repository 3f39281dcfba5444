//! The time for which a thread polls its ring before it sleeps.

/// That time, ns.
pub(super) const SPIN_NS: u64 = 20_000;

/// When a thread whose last frame came at `last_frame_ns` stops polling its ring; `None`: it sleeps.
pub(super) fn polls_until_ns(now_ns: u64, last_frame_ns: u64) -> Option<u64> {
    // Frames mostly come one soon after the other.
    Some(last_frame_ns + SPIN_NS).filter(|until_ns| now_ns < *until_ns)
}
