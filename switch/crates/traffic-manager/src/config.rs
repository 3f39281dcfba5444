//! Limits, and the settings of a port.

use crate::gaps::Gaps;

/// Lowest line rate of a port, in bit/s.
pub const LINE_RATE_MIN_BPS: u64 = 8_000;
/// Highest line rate of a port, in bit/s.
pub const LINE_RATE_MAX_BPS: u64 = 100_000_000_000;
/// Longest propagation delay of a port, in nanoseconds.
pub const DELAY_MAX_NS: u64 = 10_000_000_000;

/// Ethernet's longest frame, layer 2 + FCS.
pub(crate) const FRAME_DEFAULT_BYTES: u64 = 1_518;

/// Bytes of a frame check sequence.
pub(crate) const FCS_BYTES: u64 = 4;

/// Upper bounds of everything the traffic manager keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ports.
    pub max_ports: usize,
    /// Packets that wait (FIFOs and class queues of all ports). No queue may hold more than are
    /// free: one alone gets half, `n` that want all get `1 / (n + 1)` each, and there is always
    /// room for the others.
    pub max_held_packets: usize,
    /// Frames in the delay lines of all ports. No port may have more on their way than four times
    /// the free places: one port alone gets four fifths, `n` that want all get `4 / (4n + 1)` each.
    pub max_delay_line_packets: usize,
    /// Classes: class numbers are below this.
    pub max_classes: u32,
    /// Class queues with memory (32 bytes each, in groups of 64 classes): one for each class, and
    /// one more for each further port it leaves by. Idle groups are reused when it is reached.
    pub max_queues: usize,
    /// Bytes of a buffer that egress queues of several ports share ([`Buffer::OfSwitch`](crate::Buffer::OfSwitch)),
    /// at least 1; `None`: none.
    pub buffer_bytes: Option<u64>,
}

impl Default for Limits {
    /// 512 ports (v1model's 9-bit port numbers), 1,048,576 packets waiting, 4,194,304 on their
    /// way, 4,194,304 queues; 1,048,576 classes and, above them, the 65,536 flows that `pacer.p4`
    /// tracks and gives queues of their own; no buffer that ports share.
    fn default() -> Self {
        Self {
            max_ports: 512,
            max_held_packets: 1 << 20,
            max_delay_line_packets: 1 << 22,
            max_classes: (1 << 20) + (1 << 16),
            max_queues: 1 << 22,
            buffer_bytes: None,
        }
    }
}

/// The bytes of a frame that take time on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateCounts {
    /// Layer 2 with FCS: `len + 4`. The papers count a bottleneck's rate in these bytes.
    Layer2,
    /// The whole frame on the wire: `len + 24` (FCS 4, preamble and SFD 8, inter-frame gap 12).
    Wire,
}

/// The settings of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Line rate in bit/s, [`LINE_RATE_MIN_BPS`] to [`LINE_RATE_MAX_BPS`]; `None`: frames take no
    /// time.
    pub line_rate_bps: Option<u64>,
    /// The bytes that the line rate counts.
    pub counts: RateCounts,
    /// Room of the unpaced drop-tail FIFO, in bytes of layer 2 + FCS. The frame on the line does
    /// not count, but a packet needs room even on an idle port.
    pub fifo_bytes: u64,
    /// Propagation delay, in nanoseconds; at most [`DELAY_MAX_NS`].
    pub delay_ns: u64,
    /// The content of the gaps between paced packets.
    pub gaps: Gaps,
}

/// Bytes that count against limits and rates: layer 2 with FCS.
pub(crate) const fn frame_bytes(length_bytes: u32) -> u64 {
    length_bytes as u64 + FCS_BYTES
}
