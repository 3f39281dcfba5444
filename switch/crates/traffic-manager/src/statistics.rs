//! The counters of the traffic manager.

use crate::cause::DropCounters;
use crate::config::FCS_BYTES;

/// Number of buckets of a [`TimeHistogram`].
pub const TIME_BUCKETS: usize = 65;

/// Counts times in power-of-two buckets: bucket 0 counts 0 ns, bucket `k` counts
/// `2^(k-1) <= time_ns < 2^k`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeHistogram {
    buckets: [u64; TIME_BUCKETS],
    max_ns: u64,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self {
            buckets: [0; TIME_BUCKETS],
            max_ns: 0,
        }
    }
}

impl TimeHistogram {
    /// Counts one time.
    pub fn record(&mut self, time_ns: u64) {
        let bucket = (u64::BITS - time_ns.leading_zeros()) as usize;
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.max_ns = self.max_ns.max(time_ns);
    }

    /// Times per bucket.
    pub fn buckets(&self) -> &[u64; TIME_BUCKETS] {
        &self.buckets
    }

    /// Smallest time that is too large for bucket `k`, in nanoseconds (`2^k`; 1 for bucket
    /// 0); `None` for the last bucket.
    pub fn bucket_end_ns(bucket: usize) -> Option<u64> {
        1u64.checked_shl(u32::try_from(bucket).ok()?)
    }

    /// Largest time, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The times of both histograms.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for (bucket, count) in merged.buckets.iter_mut().zip(other.buckets) {
            *bucket += count;
        }
        merged.max_ns = self.max_ns.max(other.max_ns);
        merged
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counters of one port since it was added. Bytes are layer 2 + FCS unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames whose transmission started.
    pub tx_packets: u64,
    /// Their bytes, as transmitted (after egress processing).
    pub tx_bytes: u64,
    /// Their bytes as the line counts them ([`crate::RateCounts`]): divided by time and by
    /// the line rate, this is the utilisation.
    pub tx_line_bytes: u64,
    /// PAUSE frames sent in gaps.
    pub gap_frames: u64,
    /// Their bytes.
    pub gap_bytes: u64,
    /// Packets dropped here, by cause.
    pub drops: DropCounters,
    /// Packets that wait: unpaced FIFO and class queues.
    pub queued_packets: u64,
    /// Most packets that ever waited at once.
    pub queued_packets_max: u64,
    /// Bytes in the unpaced FIFO now.
    pub fifo_bytes: u64,
    /// Most bytes the FIFO ever held.
    pub fifo_bytes_max: u64,
    /// Bytes in all class queues of the port now.
    pub paced_bytes: u64,
    /// Most bytes the class queues ever held at once.
    pub paced_bytes_max: u64,
    /// Frames that propagate towards the interface (delay line) now.
    pub delay_line_packets: u64,
    /// Most frames the delay line ever held.
    pub delay_line_packets_max: u64,
    /// The lateness of released paced packets.
    pub paced_lateness: TimeHistogram,
    /// The lateness of the polls for unpaced packets. On a port without propagation delay, it is
    /// measured at the start of the transmission, otherwise when the packet reaches the interface.
    /// The recorded start of the transmission is the scheduled one in both cases.
    pub unpaced_lateness: TimeHistogram,
    /// Time between the end of each packet and the start of the next, whether PAUSE frames filled
    /// it or not; 0: back to back. In whole nanoseconds, rounded down.
    pub gaps: TimeHistogram,
}

impl PortStatistics {
    /// Bytes of the frames whose transmission started, layer 2 without FCS.
    pub fn tx_frame_bytes(&self) -> u64 {
        self.tx_bytes.saturating_sub(FCS_BYTES * self.tx_packets)
    }

    /// Bytes of the PAUSE frames sent in gaps, layer 2 without FCS.
    pub fn gap_frame_bytes(&self) -> u64 {
        self.gap_bytes.saturating_sub(FCS_BYTES * self.gap_frames)
    }

    /// The lateness of packets, paced and unpaced.
    pub fn lateness(&self) -> TimeHistogram {
        self.paced_lateness.merged(&self.unpaced_lateness)
    }
}

/// The buffer that egress queues of several ports share. Bytes are layer 2 + FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferStatistics {
    /// Its size ([`Limits::buffer_bytes`](crate::Limits::buffer_bytes)).
    pub size_bytes: u64,
    /// Bytes that wait in it now.
    pub bytes: u64,
    /// Most bytes that ever waited at once.
    pub bytes_max: u64,
}

impl BufferStatistics {
    /// An empty buffer.
    pub(crate) fn empty(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            bytes: 0,
            bytes_max: 0,
        }
    }

    /// A port that held `before` bytes of it holds `now`.
    pub(crate) fn change(&mut self, before: u64, now: u64) {
        self.bytes = self.bytes + now - before;
        self.bytes_max = self.bytes_max.max(self.bytes);
    }
}

/// Counters of the whole traffic manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that wait on all ports.
    pub held_packets: u64,
    /// Most packets that ever waited at once.
    pub held_packets_max: u64,
    /// Frames in all delay lines.
    pub delay_line_packets: u64,
    /// Class queues with memory of their own (idle ones included).
    pub queues: u64,
    /// The buffer that ports share; `None`: the switch has none.
    pub buffer: Option<BufferStatistics>,
    /// Drops that belong to no existing port (`no-such-port`, and the counts of ports that were
    /// removed).
    pub drops: DropCounters,
}

/// The packets that wait in an egress queue, or in the FIFO of a port without egress queues, as read by
/// [`crate::TrafficManager::waiting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Packets.
    pub packets: u64,
    /// Their bytes, layer 2 + FCS on arrival.
    pub bytes: u64,
    /// Arrival of the packet at the head, in nanoseconds: with FQ-CoDel at the head of the flow that is first
    /// in its list, with DualPI2 at the head of the queue whose turn it is.
    pub head_arrival_ns: Option<u64>,
}

/// One class queue of one port, as read by [`crate::TrafficManager::queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    /// Packets that wait.
    pub packets: u32,
    /// Their bytes, layer 2 + FCS.
    pub bytes: u64,
    /// Departure time of the first one, in nanoseconds.
    pub head_departure_ns: Option<u64>,
    /// R, whole nanoseconds: nothing of this class starts on this port before it.
    pub release_ns: u64,
    /// The fraction of R, in 2^-24 ns.
    pub release_fraction: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let mut h = TimeHistogram::default();
        for time_ns in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            h.record(time_ns);
        }
        assert_eq!(h.buckets()[0..4], [1, 1, 2, 1]);
        assert_eq!(h.buckets()[10..12], [1, 1]);
        assert_eq!(h.buckets()[64], 1);
        assert_eq!((h.count(), h.max_ns()), (8, u64::MAX));
        assert_eq!(TimeHistogram::bucket_end_ns(0), Some(1));
        assert_eq!(TimeHistogram::bucket_end_ns(10), Some(1024));
        assert_eq!(TimeHistogram::bucket_end_ns(64), None);
    }
}
