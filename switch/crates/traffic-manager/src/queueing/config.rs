//! The settings of a port's egress queues.

use super::aqm::AqmConfig;
use super::limits::{BUFFER_SHARE_MAX_PPM, DEPTH_PACKETS_MAX, PPS_MAX, QUEUES_MAX};
use super::queue_config::{MaxRate, QueueConfig};
use super::queueing_error::QueueingError;
use super::scheduler::Scheduler;
use crate::hold::time_per_byte_q24;

/// The fields of a packet's header that egress queues read ([`HeaderFields`](crate::HeaderFields)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// Nothing.
    Nothing,
    /// ECN and colour.
    Codepoints,
    /// ECN, colour and flow.
    Flows,
}

/// A buffer that queues have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Of the queues of the port alone, in bytes, at least 1.
    OfPort(u64),
    /// Of the switch ([`Limits::buffer_bytes`](crate::Limits::buffer_bytes)): the queues of all ports with this
    /// setting share it.
    OfSwitch,
}

/// The settings of all egress queues of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueingConfig {
    /// By number; 1 to [`QUEUES_MAX`].
    pub queues: Vec<QueueConfig>,
    /// The order in which they send.
    pub scheduler: Scheduler,
    /// The buffer that the queues have in common; `None`: none.
    pub buffer: Option<Buffer>,
}

impl QueueingConfig {
    /// `queues` equal queues in strict order.
    pub fn strict(queues: usize) -> Self {
        Self {
            queues: vec![QueueConfig::default(); queues],
            scheduler: Scheduler::Strict,
            buffer: None,
        }
    }

    /// The depth in bytes of a queue without one of its own. `switch_buffer_bytes`: the buffer of the switch.
    pub(crate) fn common_bytes(
        &self,
        port_depth_bytes: u64,
        switch_buffer_bytes: Option<u64>,
    ) -> u64 {
        match self.buffer {
            None => port_depth_bytes,
            Some(Buffer::OfPort(bytes)) => bytes,
            Some(Buffer::OfSwitch) => switch_buffer_bytes.unwrap_or(port_depth_bytes),
        }
    }

    /// What the queues read of a packet's header.
    pub(super) fn reads(&self) -> Reads {
        let of = |queue: &QueueConfig| match queue.aqm {
            None => Reads::Nothing,
            Some(AqmConfig::FqCodel(_)) => Reads::Flows,
            Some(_) => Reads::Codepoints,
        };
        let most = self.queues.iter().map(of).max();
        most.unwrap_or(Reads::Nothing)
    }

    /// # Errors
    /// A setting is out of range.
    pub fn check(&self) -> Result<(), QueueingError> {
        if !(1..=QUEUES_MAX).contains(&self.queues.len()) {
            return Err(QueueingError::Queues(self.queues.len()));
        }
        if self.buffer == Some(Buffer::OfPort(0)) {
            return Err(QueueingError::NoBuffer);
        }
        for (queue, config) in self.queues.iter().enumerate() {
            if let Some(aqm) = config.aqm {
                aqm.check()
                    .map_err(|error| QueueingError::Aqm { queue, error })?;
            }
            if let Some(packets) = config.depth_packets
                && packets > DEPTH_PACKETS_MAX
            {
                return Err(QueueingError::DepthPackets { queue, packets });
            }
            if let Some(share_ppm) = config.buffer_share_ppm {
                if self.buffer.is_none() {
                    return Err(QueueingError::ShareOfNothing { queue });
                }
                if !(1..=BUFFER_SHARE_MAX_PPM).contains(&share_ppm) {
                    return Err(QueueingError::Share { queue, share_ppm });
                }
            }
            if let Some(rate_bps) = config.min_rate_bps
                && time_per_byte_q24(rate_bps).is_none()
            {
                return Err(QueueingError::Rate { queue, rate_bps });
            }
            match config.max_rate {
                Some(MaxRate::Bits { rate_bps, .. })
                    if config
                        .min_rate_bps
                        .is_some_and(|min_bps| min_bps > rate_bps) =>
                {
                    let min_bps = config.min_rate_bps.unwrap_or(0);
                    return Err(QueueingError::Minimum {
                        queue,
                        min_bps,
                        rate_bps,
                    });
                }
                Some(MaxRate::Bits { rate_bps, .. }) if time_per_byte_q24(rate_bps).is_none() => {
                    return Err(QueueingError::Rate { queue, rate_bps });
                }
                Some(MaxRate::Packets(pps)) if !(1..=PPS_MAX).contains(&pps) => {
                    return Err(QueueingError::PacketRate { queue, pps });
                }
                _ => {}
            }
        }
        self.scheduler.check(&self.queues)
    }

    /// The sum of all minimum rates in bit/s, which is to be at most the line's rate.
    pub fn min_rates_bps(&self) -> u64 {
        self.scheduler.min_rates_bps(&self.queues)
    }
}
