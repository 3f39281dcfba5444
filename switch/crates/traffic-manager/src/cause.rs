//! The causes of drops, which the switch counts for each port.
//!
//! A P4 program counts its own drops by its own causes (`p4src/include/drops.p4` for `pacer.p4`). The
//! switch counts each of those packets as [`DropCause::IngressDrop`] or [`DropCause::EgressDrop`].

use std::fmt;

/// Cause of a drop. The names ([`DropCause::as_str`]) are stable: statistics, the
/// `pacer.v1.TrafficManager` service and the tests use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropCause {
    /// The frame has no whole Ethernet header, so it is not parsed. A frame whose parser ends with
    /// an error is counted apart (`parser_errors` of the switch's counters), and the program
    /// decides whether to drop it.
    ParserError,
    /// The program chose no port: `egress_spec` is still 0, and there is no port 0.
    NoRoute,
    /// The packet's class already queues its limit of bytes. The P4 program counts this cause; the
    /// switch itself does not.
    ClassLimit,
    /// The flow's meter said red and the flow drops red packets. The P4 program counts this cause;
    /// the switch itself does not.
    MeterRed,
    /// The port's unpaced FIFO has no room for the packet.
    FifoFull,
    /// A limit of the traffic manager is reached: held packets (the queue's share of them), class
    /// number, queues.
    HoldLimit,
    /// The program chose a port (other than 0) that does not exist.
    NoSuchPort,
    /// The port exists, but is down or was removed while the packet waited.
    PortDown,
    /// The pipeline was replaced while the packet waited.
    PipelineSwap,
    /// The program's egress dropped the packet (`mark_to_drop`).
    EgressDrop,
    /// The packet is longer than the port's interface takes.
    Oversize,
    /// The interface refused the packet.
    TxFailed,
    /// The kernel's receive ring overflowed before the packet was read.
    RxRingFull,
    /// No program is loaded.
    NoProgram,
    /// Sent to a multicast group without replicas.
    EmptyGroup,
    /// The queue of recirculated packets was full.
    RecirculationFull,
    /// The program's ingress dropped the packet (`mark_to_drop`).
    IngressDrop,
    /// The program's egress dropped the copy of a flooded packet that would have gone back to the
    /// packet's port. No loss.
    Pruned,
    /// The port has as many frames on their way to the interface as it may have.
    DelayLineFull,
    /// A PAUSE frame (IEEE 802.3x) came in, and the port consumed it. No loss.
    PauseFrame,
    /// The delay line had no room for a PAUSE frame that fills a gap. The gap is the same without it.
    /// No loss.
    GapFrame,
    /// An `assert` or `assume` of the program failed, or an action's loops did not end.
    Assertion,
    /// The packet's egress queue has no room for it (depth in bytes or packets).
    QueueFull,
    /// Active queue management of the egress queue dropped the packet, to signal congestion; or FQ-CoDel did, to
    /// make room.
    Aqm,
    /// The program chose an egress queue that the port does not have.
    NoSuchQueue,
    /// The packet's egress queue holds its share of the port's common buffer.
    BufferShare,
    /// The packet's egress queue holds its share of the switch's buffer.
    SwitchBuffer,
    /// A fault of the switch itself: a case that cannot happen did. Please report it.
    InternalError,
}

impl DropCause {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 28] = [
        Self::ParserError,
        Self::NoRoute,
        Self::ClassLimit,
        Self::MeterRed,
        Self::FifoFull,
        Self::HoldLimit,
        Self::NoSuchPort,
        Self::PortDown,
        Self::PipelineSwap,
        Self::EgressDrop,
        Self::Oversize,
        Self::TxFailed,
        Self::RxRingFull,
        Self::NoProgram,
        Self::EmptyGroup,
        Self::RecirculationFull,
        Self::IngressDrop,
        Self::Pruned,
        Self::DelayLineFull,
        Self::PauseFrame,
        Self::GapFrame,
        Self::Assertion,
        Self::QueueFull,
        Self::Aqm,
        Self::NoSuchQueue,
        Self::BufferShare,
        Self::SwitchBuffer,
        Self::InternalError,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ParserError => "parser-error",
            Self::NoRoute => "no-route",
            Self::ClassLimit => "class-limit",
            Self::MeterRed => "meter-red",
            Self::FifoFull => "fifo-full",
            Self::HoldLimit => "hold-limit",
            Self::NoSuchPort => "no-such-port",
            Self::PortDown => "port-down",
            Self::PipelineSwap => "pipeline-swap",
            Self::EgressDrop => "egress-drop",
            Self::Oversize => "oversize",
            Self::TxFailed => "tx-failed",
            Self::RxRingFull => "rx-ring-full",
            Self::NoProgram => "no-program",
            Self::EmptyGroup => "empty-group",
            Self::RecirculationFull => "recirculation-full",
            Self::IngressDrop => "ingress-drop",
            Self::Pruned => "pruned",
            Self::DelayLineFull => "delay-line-full",
            Self::PauseFrame => "pause-frame",
            Self::GapFrame => "gap-frame",
            Self::Assertion => "assertion",
            Self::QueueFull => "queue-full",
            Self::Aqm => "aqm",
            Self::NoSuchQueue => "no-such-queue",
            Self::BufferShare => "buffer-share",
            Self::SwitchBuffer => "switch-buffer",
            Self::InternalError => "internal-error",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Packets dropped for one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCount {
    /// Stable name of the cause (`fifo-full`, `hold-limit`, ...).
    pub cause: &'static str,
    /// Packets.
    pub packets: u64,
}

/// Packets dropped, by cause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropCounters([u64; DropCause::ALL.len()]);

impl DropCounters {
    /// Packets dropped for `cause`.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Counts `packets` more.
    pub fn add(&mut self, cause: DropCause, packets: u64) {
        if let Some(counter) = self.0.get_mut(cause as usize) {
            *counter = counter.saturating_add(packets);
        }
    }

    /// Packets dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The causes for which packets were dropped, in the order of [`DropCause::ALL`].
    pub fn counts(&self) -> Vec<DropCount> {
        let counts = self.iter().filter(|(_, packets)| *packets > 0);
        counts
            .map(|(cause, packets)| DropCount {
                cause: cause.as_str(),
                packets,
            })
            .collect()
    }

    /// Every cause with its count, zeros included, in the order of [`DropCause::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL
            .into_iter()
            .map(|cause| (cause, self.get(cause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_counter_and_name() {
        let mut counters = DropCounters::default();
        for (at, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            counters.add(cause, at as u64 + 1);
        }
        for (at, (cause, packets)) in counters.iter().enumerate() {
            assert_eq!(packets, at as u64 + 1, "{cause}");
        }
        let names: std::collections::BTreeSet<_> =
            DropCause::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), DropCause::ALL.len());
    }
}
