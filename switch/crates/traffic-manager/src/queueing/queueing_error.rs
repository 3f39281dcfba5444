//! The errors for settings of egress queues.

use std::fmt;

use super::aqm::AqmError;
use super::limits::{
    BUFFER_SHARE_MAX_PPM, CHILDREN_MAX, DEPTH_MAX, DEPTH_PACKETS_MAX, NODES_MAX, PPS_MAX,
    QUEUES_MAX, WEIGHT_MAX,
};
use crate::config::{LINE_RATE_MAX_BPS, LINE_RATE_MIN_BPS};

/// The error for queues that were not configured. Nodes count from 0, the root, in the order in which the
/// tree is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueingError {
    /// Too few or too many queues.
    Queues(usize),
    /// Not one weight for each queue.
    Weights {
        /// Weights.
        given: usize,
        /// Queues.
        queues: usize,
    },
    /// A weight is out of range.
    Weight {
        /// The queue.
        queue: usize,
        /// Its weight.
        weight: u32,
    },
    /// The weight of the held packets is out of range.
    PacedWeight {
        /// The weight.
        weight: u32,
    },
    /// The held packets are more than one leaf of the tree.
    PacedTwice,
    /// A weight of a node is out of range.
    NodeWeight {
        /// The node.
        node: usize,
        /// Its weight.
        weight: u32,
    },
    /// A queue is no leaf of the tree.
    QueueMissing {
        /// The queue.
        queue: usize,
    },
    /// A queue is more than one leaf of the tree.
    QueueTwice {
        /// The queue.
        queue: usize,
    },
    /// A leaf of the tree is a queue that the port does not have.
    NoSuchQueue {
        /// The queue.
        queue: usize,
        /// Queues of the port.
        queues: usize,
    },
    /// The tree has too many levels.
    TooDeep,
    /// The tree has too many nodes.
    TooManyNodes,
    /// A node has no children, or too many.
    Children {
        /// The node.
        node: usize,
        /// Its children.
        children: usize,
    },
    /// A node's rate in bit/s is out of range.
    NodeRate {
        /// The node.
        node: usize,
        /// The rate.
        rate_bps: u64,
    },
    /// A node's minimum rate is above its highest.
    NodeMinimum {
        /// The node.
        node: usize,
        /// Its minimum rate.
        min_bps: u64,
        /// Its highest rate.
        rate_bps: u64,
    },
    /// A node's minimum rate is below the sum of its children's.
    NodeBelowMinima {
        /// The node.
        node: usize,
        /// Its minimum rate.
        min_bps: u64,
        /// The sum of its children's.
        children_bps: u64,
    },
    /// A queue's minimum rate is above its highest.
    Minimum {
        /// The queue.
        queue: usize,
        /// Its minimum rate.
        min_bps: u64,
        /// Its highest rate.
        rate_bps: u64,
    },
    /// A common buffer of 0 bytes.
    NoBuffer,
    /// The queues share the buffer of the switch, and it has none.
    NoSwitchBuffer,
    /// A queue has a share of a common buffer, and the port has none.
    ShareOfNothing {
        /// The queue.
        queue: usize,
    },
    /// A queue's share of the common buffer is out of range.
    Share {
        /// The queue.
        queue: usize,
        /// Its share, in millionths.
        share_ppm: u32,
    },
    /// A queue's depth in packets is too large.
    DepthPackets {
        /// The queue.
        queue: usize,
        /// Its depth.
        packets: u64,
    },
    /// A setting of a queue's active queue management is out of range.
    Aqm {
        /// The queue.
        queue: usize,
        /// The setting.
        error: AqmError,
    },
    /// A queue's rate in bit/s is out of range.
    Rate {
        /// The queue.
        queue: usize,
        /// The rate.
        rate_bps: u64,
    },
    /// A queue's rate in packets per second is out of range.
    PacketRate {
        /// The queue.
        queue: usize,
        /// The rate.
        pps: u64,
    },
}

impl fmt::Display for QueueingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues(given) => write!(f, "{given} queues; a port has 1 to {QUEUES_MAX}"),
            Self::Weights { given, queues } => {
                write!(
                    f,
                    "{given} weights for {queues} queues, one for each expected"
                )
            }
            Self::Weight { queue, weight } => write!(
                f,
                "queue {queue}: weight {weight} is not between 1 and {WEIGHT_MAX}"
            ),
            Self::PacedWeight { weight } => write!(
                f,
                "paced: weight {weight} is not between 1 and {WEIGHT_MAX}"
            ),
            Self::PacedTwice => write!(f, "paced is in the scheduler twice"),
            Self::NodeWeight { node, weight } => write!(
                f,
                "scheduler node {node}: weight {weight} is not between 1 and {WEIGHT_MAX}"
            ),
            Self::QueueMissing { queue } => write!(
                f,
                "queue {queue} is not in the scheduler; each queue of the port is there once"
            ),
            Self::QueueTwice { queue } => write!(
                f,
                "queue {queue} is in the scheduler twice; each queue of the port is there once"
            ),
            Self::NoSuchQueue { queue, queues } => write!(
                f,
                "the scheduler has queue {queue}; the port has queues 0 to {}",
                queues.saturating_sub(1)
            ),
            Self::TooDeep => write!(f, "the scheduler has more than {DEPTH_MAX} levels of nodes"),
            Self::TooManyNodes => write!(f, "the scheduler has more than {NODES_MAX} nodes"),
            Self::Children { node, children } => write!(
                f,
                "scheduler node {node}: {children} children; a node has 1 to {CHILDREN_MAX}"
            ),
            Self::NodeRate { node, rate_bps } => write!(
                f,
                "scheduler node {node}: rate {rate_bps} bit/s is not between {LINE_RATE_MIN_BPS} and \
                 {LINE_RATE_MAX_BPS}"
            ),
            Self::NodeMinimum {
                node,
                min_bps,
                rate_bps,
            } => write!(
                f,
                "scheduler node {node}: minimum rate {min_bps} bit/s is above its highest of {rate_bps}"
            ),
            Self::NodeBelowMinima {
                node,
                min_bps,
                children_bps,
            } => write!(
                f,
                "scheduler node {node}: minimum rate {min_bps} bit/s is below the {children_bps} of its \
                 children together"
            ),
            Self::Minimum {
                queue,
                min_bps,
                rate_bps,
            } => write!(
                f,
                "queue {queue}: minimum rate {min_bps} bit/s is above its highest of {rate_bps}"
            ),
            Self::NoBuffer => write!(f, "a common buffer of 0 bytes takes no packet"),
            Self::NoSwitchBuffer => {
                write!(f, "buffer: the switch has no buffer that ports share")
            }
            Self::ShareOfNothing { queue } => {
                write!(f, "queue {queue}: share: the port has no common buffer")
            }
            Self::Share { queue, share_ppm } => write!(
                f,
                "queue {queue}: share of {share_ppm} millionths is not between 1 and {BUFFER_SHARE_MAX_PPM}"
            ),
            Self::DepthPackets { queue, packets } => write!(
                f,
                "queue {queue}: depth of {packets} packets is above {DEPTH_PACKETS_MAX}"
            ),
            Self::Aqm { queue, error } => write!(f, "queue {queue}: aqm: {error}"),
            Self::Rate { queue, rate_bps } => write!(
                f,
                "queue {queue}: rate {rate_bps} bit/s is not between {LINE_RATE_MIN_BPS} and \
                 {LINE_RATE_MAX_BPS}"
            ),
            Self::PacketRate { queue, pps } => write!(
                f,
                "queue {queue}: rate {pps} packets/s is not between 1 and {PPS_MAX}"
            ),
        }
    }
}

impl std::error::Error for QueueingError {}
