//! The settings of a port's scheduler: a tree of disciplines over the egress queues.
//!
//! The tree is a class tree as HTB's users write it: each node orders its children by strict priority, by
//! deficit round robin or by weighted fair queueing, and may have a highest rate.

use super::limits::{CHILDREN_MAX, DEPTH_MAX, NODES_MAX, WEIGHT_MAX};
use super::queue_config::{MaxRate, QueueConfig};
use super::queueing_error::QueueingError;
use crate::hold::time_per_byte_q24;

/// The order in which queues send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheduler {
    /// The queue with the highest number goes first, as in simple_switch.
    Strict,
    /// Deficit round robin with these weights, by number; each 1 to [`WEIGHT_MAX`].
    Drr(Vec<u32>),
    /// Weighted fair queueing with these weights, by number; each 1 to [`WEIGHT_MAX`].
    Wfq(Vec<u32>),
    /// A tree in which each queue is a leaf once.
    Tree(SchedulerNode),
}

/// The order of the children of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// The first child goes first.
    Strict,
    /// Deficit round robin by weight.
    Drr,
    /// Weighted fair queueing by weight.
    Wfq,
}

/// An inner node of the tree, or its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerNode {
    /// The order of its children.
    pub discipline: Discipline,
    /// At least one, at most [`CHILDREN_MAX`].
    pub children: Vec<SchedulerChild>,
    /// Highest rate of all that is below; `None`: the line's.
    pub max_rate: Option<MaxRate>,
    /// Minimum rate in bit/s of all that is below, at least the sum of its children's; `None`: that sum.
    pub min_rate_bps: Option<u64>,
}

/// A child of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerChild {
    /// Its weight, 1 to [`WEIGHT_MAX`]; strict priority has no use for it.
    pub weight: u32,
    /// Queue or node.
    pub below: Below,
}

/// The kind of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Below {
    /// The queue with this number.
    Queue(u8),
    /// The held packets of all classes whose departure times have come. A tree without this child has them
    /// before all that is in it.
    Paced,
    /// Another node.
    Node(SchedulerNode),
}

impl Below {
    /// Its minimum rate in bit/s; 0: none.
    pub(super) fn min_rate_bps(&self, queues: &[QueueConfig]) -> u64 {
        match self {
            Self::Queue(queue) => {
                let queue = queues.get(usize::from(*queue));
                queue.and_then(|queue| queue.min_rate_bps).unwrap_or(0)
            }
            Self::Paced => 0,
            Self::Node(node) => {
                let of_children = node.min_rate_of_children_bps(queues);
                node.min_rate_bps.unwrap_or(of_children)
            }
        }
    }
}

impl SchedulerNode {
    /// The sum of its children's minimum rates in bit/s.
    fn min_rate_of_children_bps(&self, queues: &[QueueConfig]) -> u64 {
        let children = self.children.iter();
        let rates = children.map(|child| child.below.min_rate_bps(queues));
        rates.fold(0, u64::saturating_add)
    }
}

impl Scheduler {
    /// The sum of all minimum rates in bit/s: what they take of the line.
    pub(super) fn min_rates_bps(&self, queues: &[QueueConfig]) -> u64 {
        self.tree(queues.len()).min_rate_of_children_bps(queues)
    }

    /// The tree of a scheduler of `queues` queues.
    pub(super) fn tree(&self, queues: usize) -> SchedulerNode {
        let flat = |discipline, children: Vec<SchedulerChild>| SchedulerNode {
            discipline,
            children,
            max_rate: None,
            min_rate_bps: None,
        };
        let leaf = |(queue, weight): (u8, u32)| SchedulerChild {
            weight,
            below: Below::Queue(queue),
        };
        let weighted = |weights: &[u32]| (0..).zip(weights.iter().copied()).map(leaf).collect();
        match self {
            Self::Strict => {
                let last = u8::try_from(queues).unwrap_or(u8::MAX);
                let highest_first = (0..last).rev().map(|queue| leaf((queue, 1)));
                flat(Discipline::Strict, highest_first.collect())
            }
            Self::Drr(weights) => flat(Discipline::Drr, weighted(weights)),
            Self::Wfq(weights) => flat(Discipline::Wfq, weighted(weights)),
            Self::Tree(root) => root.clone(),
        }
    }

    /// Whether the scheduler is one for these queues.
    pub(super) fn check(&self, queues: &[QueueConfig]) -> Result<(), QueueingError> {
        if let Self::Drr(weights) | Self::Wfq(weights) = self
            && weights.len() != queues.len()
        {
            return Err(QueueingError::Weights {
                given: weights.len(),
                queues: queues.len(),
            });
        }
        let mut seen = Seen {
            configs: queues,
            queues: vec![false; queues.len()],
            paced: false,
            nodes: 0,
        };
        seen.node(&self.tree(queues.len()), 1)?;
        match seen.queues.iter().position(|seen| !seen) {
            Some(queue) => Err(QueueingError::QueueMissing { queue }),
            None => Ok(()),
        }
    }
}

/// The nodes that a check of the tree has met so far.
struct Seen<'a> {
    configs: &'a [QueueConfig],
    queues: Vec<bool>,
    paced: bool,
    nodes: usize,
}

impl Seen<'_> {
    fn node(&mut self, node: &SchedulerNode, depth: usize) -> Result<(), QueueingError> {
        let number = self.nodes;
        self.nodes += 1;
        if depth > DEPTH_MAX {
            return Err(QueueingError::TooDeep);
        }
        if self.nodes > NODES_MAX {
            return Err(QueueingError::TooManyNodes);
        }
        let children = node.children.len();
        if !(1..=CHILDREN_MAX).contains(&children) {
            return Err(QueueingError::Children {
                node: number,
                children,
            });
        }
        if let Some(MaxRate::Bits { rate_bps, .. }) = node.max_rate
            && time_per_byte_q24(rate_bps).is_none()
        {
            return Err(QueueingError::NodeRate {
                node: number,
                rate_bps,
            });
        }
        self.minimum(node, number)?;
        for child in &node.children {
            let weight = child.weight;
            let in_range = (1..=WEIGHT_MAX).contains(&weight);
            match &child.below {
                Below::Queue(queue) => {
                    let queue = usize::from(*queue);
                    if !in_range {
                        return Err(QueueingError::Weight { queue, weight });
                    }
                    self.leaf(queue)?;
                }
                Below::Paced if !in_range => return Err(QueueingError::PacedWeight { weight }),
                Below::Paced => {
                    if std::mem::replace(&mut self.paced, true) {
                        return Err(QueueingError::PacedTwice);
                    }
                }
                Below::Node(_) if !in_range => {
                    let node = self.nodes;
                    return Err(QueueingError::NodeWeight { node, weight });
                }
                Below::Node(node) => self.node(node, depth + 1)?,
            }
        }
        Ok(())
    }

    fn minimum(&self, node: &SchedulerNode, number: usize) -> Result<(), QueueingError> {
        let children_bps = node.min_rate_of_children_bps(self.configs);
        let min_bps = node.min_rate_bps.unwrap_or(children_bps);
        if min_bps < children_bps {
            return Err(QueueingError::NodeBelowMinima {
                node: number,
                min_bps,
                children_bps,
            });
        }
        if (min_bps > 0 || node.min_rate_bps.is_some()) && time_per_byte_q24(min_bps).is_none() {
            return Err(QueueingError::NodeRate {
                node: number,
                rate_bps: min_bps,
            });
        }
        match node.max_rate {
            Some(MaxRate::Bits { rate_bps, .. }) if rate_bps < min_bps => {
                Err(QueueingError::NodeMinimum {
                    node: number,
                    min_bps,
                    rate_bps,
                })
            }
            _ => Ok(()),
        }
    }

    fn leaf(&mut self, queue: usize) -> Result<(), QueueingError> {
        let queues = self.queues.len();
        let Some(seen) = self.queues.get_mut(queue) else {
            return Err(QueueingError::NoSuchQueue { queue, queues });
        };
        if std::mem::replace(seen, true) {
            return Err(QueueingError::QueueTwice { queue });
        }
        Ok(())
    }
}
