//! A packet on its way through the traffic manager, as the caller sees it.

use crate::cause::DropCause;
use crate::hold::Hold;
use crate::time::Q24;

#[cfg(doc)]
use crate::TrafficManager;

/// The ECN field of an IP header (RFC 3168).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable; or not IP.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0).
    Capable0,
    /// CE.
    Congested,
}

impl Ecn {
    /// The codepoint of the two lowest bits.
    pub fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congested,
        }
    }

    /// Whether a queue may mark the packet in place of dropping it.
    pub fn is_capable(self) -> bool {
        self != Self::NotCapable
    }
}

/// The drop precedence of a packet: of its DSCP, if that is one of assured forwarding (RFC 2597).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Colour {
    /// Low; all packets without assured forwarding.
    #[default]
    Green,
    /// Medium.
    Yellow,
    /// High.
    Red,
}

impl Colour {
    /// The colour of a DSCP, 6 bits.
    pub fn of_dscp(dscp: u8) -> Self {
        let class = dscp >> 3;
        match dscp & 7 {
            4 if (1..=4).contains(&class) => Self::Yellow,
            6 if (1..=4).contains(&class) => Self::Red,
            _ => Self::Green,
        }
    }
}

/// The fields of a packet's header for active queue management.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeaderFields {
    /// Its ECN field.
    pub ecn: Ecn,
    /// Its drop precedence.
    pub colour: Colour,
    /// A hash of its flow (addresses, protocol, ports).
    pub flow: u32,
}

/// A packet as the pipeline hands it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued<P> {
    /// The caller's handle.
    pub payload: P,
    /// Layer-2 length without FCS, in bytes.
    pub length_bytes: u32,
    /// Arrival time at the switch, in nanoseconds.
    pub arrival_ns: u64,
    /// The program's request to hold it in a class queue; `None`: unpaced FIFO or egress queue.
    pub hold: Option<Hold>,
    /// The egress queue of a packet that is not held, on a port with egress queues.
    pub queue: u8,
    /// Its header, where the port's queues ask for it
    /// ([`TrafficManager::reads`]).
    pub header: HeaderFields,
}

/// A packet that an egress queue dropped at its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedAtHead<P> {
    /// The port.
    pub port: u16,
    /// The cause, which has been counted.
    pub cause: DropCause,
    /// The caller's handle, back.
    pub payload: P,
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
    /// The egress queue that it left; 0 for a held packet and on a port without egress queues.
    pub queue: u8,
    /// Packets that waited when it was queued, itself not counted: in its egress queue, or for the port
    /// if it was held or the port has no egress queues.
    pub enqueued_behind_packets: u32,
    /// Packets that wait there after it has left.
    pub left_behind_packets: u32,
    /// Its queue marks it: the caller sets CE in its IP header.
    pub marked: bool,
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
