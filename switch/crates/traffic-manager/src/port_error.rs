//! The error for a port that was not added or changed.

use crate::gaps::{GAP_FRAME_MAX_BYTES, GAP_FRAME_MIN_BYTES};
use crate::queueing::QueueingError;

/// The error for a port that was not added or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortError {
    /// The port exists already.
    Exists(u16),
    /// No such port.
    NoSuchPort(u16),
    /// As many ports as [`Limits::max_ports`](crate::Limits::max_ports) allows.
    TooManyPorts(usize),
    /// Line rate out of range, in bit/s.
    LineRate(u64),
    /// Longest PAUSE frame out of range, in bytes.
    GapFrame(u32),
    /// PAUSE frames fill a line's time, and the port has no line rate.
    GapsWithoutRate,
    /// A setting of the egress queues is out of range.
    Queueing(QueueingError),
}

impl From<QueueingError> for PortError {
    fn from(error: QueueingError) -> Self {
        Self::Queueing(error)
    }
}

impl std::fmt::Display for PortError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(port) => write!(f, "port {port} exists already"),
            Self::NoSuchPort(port) => write!(f, "no port {port}"),
            Self::TooManyPorts(limit) => write!(f, "no more than {limit} ports"),
            Self::LineRate(rate) => write!(
                f,
                "line rate {rate} bit/s is not between 8 kbit/s and 100 Gbit/s"
            ),
            Self::GapFrame(bytes) => write!(
                f,
                "longest PAUSE frame of {bytes} bytes is not between {GAP_FRAME_MIN_BYTES} and \
                 {GAP_FRAME_MAX_BYTES}"
            ),
            Self::Queueing(error) => error.fmt(f),
            Self::GapsWithoutRate => {
                write!(
                    f,
                    "PAUSE frames in the gaps need a line rate, which the port has not"
                )
            }
        }
    }
}

impl std::error::Error for PortError {}
