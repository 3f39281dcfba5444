//! The outcome of a scheduled start.

use crate::packet::Dequeued;

/// The outcome of a start that was scheduled at a port.
pub(super) enum Start<P> {
    /// A packet starts.
    Packet(Dequeued<P>),
    /// No packet starts now; the port may start one at another time.
    Later,
    /// The packet is not in its queue: a fault.
    Nothing,
}
