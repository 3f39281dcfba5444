//! Rates and depths of egress queues, as far as a port has one FIFO.
//!
//! BMv2 counts packets. A port here has a line rate in bits and a FIFO in bytes, so a packet counts as
//! a full-sized frame.

use switch::Switch;
use traffic_manager::{LINE_RATE_MAX_BPS, LINE_RATE_MIN_BPS, PortConfig, RateCounts};

/// A full-sized frame: layer 2 with FCS, in bytes.
const FRAME_BYTES: u64 = 1_518;
/// The overhead of a frame on the wire: preamble and gap, in bytes.
const WIRE_BYTES: u64 = 20;

/// A setting of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Packets in a second; 0 for no limit.
    RatePps(u64),
    /// Packets that wait.
    DepthPackets(u64),
}

impl Setting {
    fn apply(self, config: PortConfig) -> PortConfig {
        match self {
            Self::RatePps(pps) => {
                let bits = (FRAME_BYTES + WIRE_BYTES) * 8;
                let rate_bps = pps.saturating_mul(bits);
                PortConfig {
                    // Faster than any line is no limit.
                    line_rate_bps: (1..=LINE_RATE_MAX_BPS)
                        .contains(&rate_bps)
                        .then_some(rate_bps.max(LINE_RATE_MIN_BPS)),
                    counts: RateCounts::Wire,
                    ..config
                }
            }
            Self::DepthPackets(packets) => PortConfig {
                fifo_bytes: packets.saturating_mul(FRAME_BYTES),
                ..config
            },
        }
    }
}

/// Sets the FIFO of a port, or of all (`None`). A port that the switch does not have is ignored, as in
/// BMv2, whose queues exist without ports.
pub(crate) fn set(switch: &mut Switch, port: Option<i32>, setting: Setting) {
    let lines = switch.lines();
    let of = lines.filter(|(number, _)| port.is_none_or(|port| port == i32::from(*number)));
    let changed: Vec<_> = of
        .map(|(number, config)| (number, setting.apply(*config)))
        .collect();
    for (number, config) in changed {
        if let Err(error) = switch.change_port(number, config) {
            tracing::warn!(port = number, %error, "a queue's setting is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traffic_manager::Gaps;

    #[test]
    fn a_packet_is_a_full_sized_frame() {
        let before = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Layer2,
            fifo_bytes: 1,
            delay_ns: 7,
            gaps: Gaps::Accounted,
        };
        let rate = Setting::RatePps(1_000).apply(before);
        assert_eq!(rate.line_rate_bps, Some(12_304_000));
        assert_eq!((rate.counts, rate.delay_ns), (RateCounts::Wire, 7));
        for unlimited in [0, u64::MAX] {
            assert_eq!(Setting::RatePps(unlimited).apply(rate).line_rate_bps, None);
        }
        assert_eq!(Setting::DepthPackets(64).apply(before).fifo_bytes, 97_152);
    }
}
