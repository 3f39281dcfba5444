//! The ports as a control server sees them: their settings and their statistics.

/// Lowest line rate of a port, in bit/s.
pub const LINE_RATE_MIN_BPS: u64 = 8_000;
/// Highest line rate of a port, in bit/s.
pub const LINE_RATE_MAX_BPS: u64 = 100_000_000_000;
/// Longest propagation delay of a port, in ns.
pub const DELAY_MAX_NS: u64 = 10_000_000_000;
/// Most classes whose state one request may ask for.
pub const CLASSES_PER_REQUEST_MAX: usize = 4_096;

/// Which bytes of a frame take time on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineCounting {
    /// Layer-2 bytes and FCS (frame + 4).
    Layer2,
    /// Layer-2 bytes, FCS, preamble, start delimiter, inter-frame gap (frame + 24).
    Wire,
}

/// How fast a port's line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRate {
    /// The port takes frames at any rate.
    Unlimited,
    /// Bits per second, [`LINE_RATE_MIN_BPS`] to [`LINE_RATE_MAX_BPS`].
    BitsPerSecond(u64),
}

/// What fills the gaps between a port's paced packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapMode {
    /// Nothing but time.
    Accounted,
    /// PAUSE frames of IEEE 802.3x with pause time 0. Needs a line rate.
    PauseFrames {
        /// The longest, layer 2 without FCS. In a change, `None` keeps the value, or takes the
        /// switch's own.
        longest_bytes: Option<u32>,
    },
}

/// A port and its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// P4 port number.
    pub port: u32,
    /// Network interface (or pcap file) behind the port.
    pub interface: String,
    /// Whether the interface can carry frames.
    pub up: bool,
    /// Line rate.
    pub line_rate: LineRate,
    /// What the line rate counts.
    pub counts: LineCounting,
    /// Size of the drop-tail FIFO, in bytes; at least 1.
    pub fifo_bytes: u64,
    /// Propagation delay, in ns; at most [`DELAY_MAX_NS`].
    pub delay_ns: u64,
    /// What fills the gaps.
    pub gap_mode: GapMode,
}

/// What to change about a port; `None` keeps the value. Values are within their ranges: the
/// service has checked them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortChange {
    /// New line rate.
    pub line_rate: Option<LineRate>,
    /// New way of counting.
    pub counts: Option<LineCounting>,
    /// New FIFO size, in bytes.
    pub fifo_bytes: Option<u64>,
    /// New propagation delay, in ns.
    pub delay_ns: Option<u64>,
    /// What shall fill the gaps.
    pub gap_mode: Option<GapMode>,
}

/// Packets lost for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropCount {
    /// Stable name of the cause (`fifo-full`, `class-limit`, ...).
    pub cause: &'static str,
    /// Packets.
    pub packets: u64,
}

/// How late starts of transmission were against their scheduled instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lateness {
    /// `buckets[0]`: on time; `buckets[i]`: late by 2^(i-1) ns or more and less than 2^i ns.
    pub buckets: Vec<u64>,
    /// Greatest lateness seen, in ns.
    pub max_ns: u64,
}

/// Times that the machine kept the switch from watching for departures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How often.
    pub count: u64,
    /// For how long in all, in ns.
    pub total_ns: u64,
    /// For how long at most, in ns.
    pub max_ns: u64,
}

/// How closely the switch watched for departures while packets waited for theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attention {
    /// Time between two looks at what is due, stalls and control work excluded.
    pub gaps: Lateness,
    /// Longest time between two looks that went to control requests or to an interface's state,
    /// in ns.
    pub control_max_ns: u64,
    /// What the machine took.
    pub stalls: Stalls,
}

/// Totals of the switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchStatistics {
    /// The switch's clock, in ns.
    pub now_ns: u64,
    /// Packets received on all ports.
    pub rx_packets: u64,
    /// Packets whose transmission has started, on all ports.
    pub tx_packets: u64,
    /// Packets held at the moment.
    pub held_packets: u64,
    /// Most packets the switch holds.
    pub held_packets_limit: u64,
    /// Packets lost that belong to no port, by cause.
    pub drops: Vec<DropCount>,
    /// How closely departures were watched for, when last told; all zero in virtual time.
    pub attention: Attention,
}

/// Counters and state of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// P4 port number.
    pub port: u32,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received, layer 2 without FCS.
    pub rx_bytes: u64,
    /// Packets whose transmission has started: those in the propagation delay are among them,
    /// and those that the interface then refused (`tx-failed`).
    pub tx_packets: u64,
    /// Their bytes, layer 2 without FCS.
    pub tx_bytes: u64,
    /// Bytes waiting in the FIFO.
    pub fifo_backlog_bytes: u64,
    /// Most bytes that ever waited in the FIFO.
    pub fifo_backlog_max_bytes: u64,
    /// Bytes waiting in class queues.
    pub paced_backlog_bytes: u64,
    /// Packets waiting in FIFO and class queues.
    pub queued_packets: u64,
    /// Packets started and not yet delivered.
    pub in_flight_packets: u64,
    /// Packets lost at this port, by cause.
    pub drops: Vec<DropCount>,
    /// Lateness of starts of transmission.
    pub lateness: Lateness,
    /// PAUSE frames sent in gaps; not among `tx_packets`.
    pub gap_frames: u64,
    /// Their bytes, layer 2 without FCS.
    pub gap_bytes: u64,
    /// Times for which the line had no packet before each but the first: `[0]`: back to back;
    /// `[i]`: 2^(i-1) ns or more and less than 2^i ns.
    pub gap_buckets: Vec<u64>,
}

/// State of one class in the traffic manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassState {
    /// Class.
    pub class_id: u32,
    /// Bytes held on all ports and not yet started.
    pub backlog_bytes: u64,
    /// Packets held on all ports and not yet started.
    pub held_packets: u64,
    /// The class's queues by port.
    pub queues: Vec<ClassQueue>,
}

/// A class's queue on one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassQueue {
    /// P4 port number.
    pub port: u32,
    /// Bytes held and not yet started.
    pub backlog_bytes: u64,
    /// Packets held and not yet started.
    pub held_packets: u64,
    /// Release clock R, whole ns.
    pub release_ns: u64,
    /// Fraction of R in units of 2^-24 ns.
    pub release_frac: u32,
}

/// Statistics taken at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Totals.
    pub switch: SwitchStatistics,
    /// One per port, by port number.
    pub ports: Vec<PortStatistics>,
    /// One per class asked for, in that order.
    pub classes: Vec<ClassState>,
}
