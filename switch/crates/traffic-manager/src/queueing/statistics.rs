//! The counters of an egress queue.

use crate::cause::DropCounters;
use crate::statistics::TimeHistogram;

/// Counters of one egress queue. Bytes are layer 2 + FCS on arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStatistics {
    /// Packets that wait.
    pub packets: u64,
    /// Most packets that ever waited at once.
    pub packets_max: u64,
    /// Bytes that wait.
    pub bytes: u64,
    /// Most bytes that ever waited at once.
    pub bytes_max: u64,
    /// Packets that left the queue for the line.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets dropped here, by cause. The port counts them, too.
    pub drops: DropCounters,
    /// Packets marked with CE in place of a drop; they are among those that left.
    pub marked_packets: u64,
    /// The time from a packet's arrival to its start, rounded up.
    pub sojourn: TimeHistogram,
}
