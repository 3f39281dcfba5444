//! The settings of one egress queue.

use super::aqm::AqmConfig;
#[cfg(doc)]
use super::config::QueueingConfig;
use super::depths::Depths;
#[cfg(doc)]
use super::limits::{BUFFER_SHARE_MAX_PPM, BUFFER_SHARE_ONE_PPM, DEPTH_PACKETS_MAX};
use crate::config::FRAME_DEFAULT_BYTES;

/// The highest rate of a queue or node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxRate {
    /// Bits (layer 2 + FCS) per second, as a rate of a class counts them. After a wait, a queue may
    /// make up this many bytes.
    Bits {
        /// Rate, 8 kbit/s to 100 Gbit/s.
        rate_bps: u64,
        /// Bytes that it may make up.
        burst_bytes: u64,
    },
    /// Packets per second, 1 to 1,000,000,000, as in simple_switch: a packet of any length takes the
    /// same time, whole nanoseconds, and a queue makes up all of a wait.
    Packets(u64),
}

impl MaxRate {
    /// A rate in bit/s with the default burst of one full-sized frame.
    pub fn bits(rate_bps: u64) -> Self {
        Self::Bits {
            rate_bps,
            burst_bytes: FRAME_DEFAULT_BYTES,
        }
    }
}

/// The settings of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// Room in bytes of layer 2 + FCS; `None`: that of the port's FIFO
    /// ([`PortConfig::fifo_bytes`](crate::PortConfig::fifo_bytes)), or of the common buffer. A packet beyond is
    /// refused; with FQ-CoDel others are dropped for it.
    pub depth_bytes: Option<u64>,
    /// Room in packets, in the same way, at most [`DEPTH_PACKETS_MAX`]; `None`: no limit beside bytes and the
    /// common buffer.
    pub depth_packets: Option<u64>,
    /// Alpha in millionths: the bytes that it may hold for each byte that is free in the common buffer
    /// ([`QueueingConfig::buffer`]), 1 to [`BUFFER_SHARE_MAX_PPM`]; `None`: [`BUFFER_SHARE_ONE_PPM`].
    pub buffer_share_ppm: Option<u32>,
    /// Highest rate; `None`: the line's.
    pub max_rate: Option<MaxRate>,
    /// Minimum rate in bit/s, 8 kbit/s to 100 Gbit/s; `None`: its share alone.
    pub min_rate_bps: Option<u64>,
    /// Active queue management; `None`: drop-tail.
    pub aqm: Option<AqmConfig>,
}

impl QueueConfig {
    /// `common_bytes`: the depth in bytes of a queue without one of its own.
    pub(super) fn depths(&self, common_bytes: u64) -> Depths {
        Depths {
            packets: self.depth_packets.unwrap_or(u64::MAX),
            bytes: self.depth_bytes.unwrap_or(common_bytes),
        }
    }

    /// Whether a full queue takes a packet and drops others for it, of its longest flow (RFC 8290, section
    /// 5.2.3).
    pub(super) fn drops_of_longest(&self) -> bool {
        matches!(self.aqm, Some(AqmConfig::FqCodel(_)))
    }
}
