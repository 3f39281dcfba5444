//! A packet on its way through the traffic manager, as the caller sees it.

use crate::cause::DropCause;
use crate::hold::Hold;
use crate::time::Q24;

#[cfg(doc)]
use crate::TrafficManager;

/// A packet as the pipeline hands it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued<P> {
    /// The caller's handle.
    pub payload: P,
    /// Layer-2 length without FCS, in bytes.
    pub length_bytes: u32,
    /// Arrival time at the switch, in nanoseconds.
    pub arrival_ns: u64,
    /// The program's request to hold it in a class queue; `None`: unpaced FIFO.
    pub hold: Option<Hold>,
}

/// A refused packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<P> {
    /// The cause, which has been counted.
    pub cause: DropCause,
    /// The caller's handle, back.
    pub payload: P,
}

/// Obligation to call [`TrafficManager::transmit`], [`TrafficManager::cancel`] or
/// [`TrafficManager::release`]: the port starts nothing else before. It cannot be copied, so it
/// cannot be used twice. Losing it blocks the port.
#[derive(Debug)]
#[must_use = "the port is blocked until transmit(), cancel() or release() gets this"]
pub struct TransmitToken {
    pub(crate) port: u16,
    pub(crate) serial: u64,
    pub(crate) start: Q24,
    /// A late delivery counts as lateness.
    pub(crate) timed: bool,
}

impl TransmitToken {
    /// The port that waits.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A packet whose transmission starts; the caller runs egress processing on it.
#[derive(Debug)]
pub struct Dequeued<P> {
    /// Port.
    pub port: u16,
    /// Start of transmission, rounded up to a nanosecond.
    pub start_ns: u64,
    /// The scheduled start: `start_ns` in virtual time; earlier if a paced packet was polled late. In
    /// nanoseconds, rounded up.
    pub scheduled_ns: u64,
    /// Class, if paced.
    pub class: Option<u32>,
    /// The caller's handle.
    pub payload: P,
    /// Arrival at the switch ([`Queued::arrival_ns`]).
    pub enqueued_ns: u64,
    /// Departure time D of a paced packet (not before its arrival); the arrival of an unpaced
    /// one. In nanoseconds.
    pub departure_ns: u64,
    /// Length on arrival ([`Queued::length_bytes`]).
    pub length_bytes: u32,
    /// Packets that waited for the port when it was queued, itself not counted.
    pub enqueued_behind_packets: u32,
    /// Packets that wait for the port after it has left.
    pub left_behind_packets: u32,
    /// The token for the call that completes the start.
    pub token: TransmitToken,
}

/// A frame that has reached the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Port.
    pub port: u16,
    /// The time when its first bit leaves, in nanoseconds.
    pub delivery_ns: u64,
    /// The frame.
    pub frame: Frame<P>,
}

/// A frame that reaches an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<P> {
    /// The payload given to [`TrafficManager::transmit`](crate::TrafficManager::transmit).
    Packet(P),
    /// A PAUSE frame that fills a gap ([`Gaps::PauseFrames`](crate::Gaps::PauseFrames)).
    Gap {
        /// Layer 2 without FCS, in bytes.
        length_bytes: u32,
    },
}

impl<P> Frame<P> {
    /// The packet, if it is one.
    pub fn packet(self) -> Option<P> {
        match self {
            Self::Packet(payload) => Some(payload),
            Self::Gap { .. } => None,
        }
    }
}
