//! Events of a packet outside the program.

use traffic_manager::hold::Hold;
use v1model::InstanceType;

/// The content of a queue when a packet comes to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// The egress queue; 0 for a held packet and on a port without egress queues.
    pub(crate) qid: u8,
    /// `standard_metadata.enq_qdepth`: packets.
    pub(crate) enq_qdepth: u32,
    /// Bytes of layer 2 + FCS in the class, the egress queue or the FIFO.
    pub(crate) backlog_bytes: u64,
}

/// An act of the switch itself on a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The packet goes to the queue of a port.
    Enqueue {
        /// The port.
        port: u16,
        /// When.
        at_ns: u64,
        /// The departure time that the traffic manager keeps.
        hold: Option<Hold>,
        /// Packets and bytes that wait there.
        depth: Depth,
    },
    /// The packet's turn at its port has come.
    Dequeue {
        /// The port.
        port: u16,
        /// When its transmission starts.
        start_ns: u64,
        /// When it was queued.
        enqueued_ns: u64,
        /// Time between the end of the port's last packet and its start; `None`: the port has sent none.
        gap_ns: Option<u64>,
    },
    /// The packet's queue sets CE in its IP header.
    EcnMark,
    /// The packet enters ingress again.
    Reenter {
        /// As what.
        instance_type: InstanceType,
        /// When.
        at_ns: u64,
    },
}
