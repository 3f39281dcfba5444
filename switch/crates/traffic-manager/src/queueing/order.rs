//! The scheduling PIFO of a node: the order of the children that may send, by one of the disciplines.

use super::drr::Drr;
use super::scheduler::{Below, Discipline, SchedulerNode};
use super::strict::Strict;
use super::wfq::Wfq;

/// The children that may send. A child enters, is at the front, sends, and stays or leaves.
#[derive(Debug)]
pub(super) enum Order {
    Strict(Strict),
    Drr(Drr),
    Wfq(Box<Wfq>),
}

impl Order {
    /// `changes`: whether the packet that a child would send may become another while it waits.
    pub(super) fn new(config: &SchedulerNode, changes: impl Fn(&Below) -> bool) -> Self {
        let children = &config.children;
        let weights = children.iter().map(|child| child.weight);
        match config.discipline {
            Discipline::Strict => Self::Strict(Strict::default()),
            Discipline::Drr => Self::Drr(Drr::new(weights)),
            Discipline::Wfq => {
                let changing = children.iter().map(|child| changes(&child.below));
                Self::Wfq(Box::new(Wfq::new(weights, changing)))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Strict(strict) => strict.is_empty(),
            Self::Drr(drr) => drr.is_empty(),
            Self::Wfq(wfq) => wfq.is_empty(),
        }
    }

    /// A packet arrives at a child, whether the child may send or not. `work`: what the node has done
    /// until then, in 2^-[`WORK_BITS`](super::wfq::WORK_BITS) bytes. Returns whether the front may be another one
    /// than before.
    pub(super) fn arrive(&mut self, child: u8, bytes: u64, work: impl FnOnce() -> u128) -> bool {
        match self {
            Self::Strict(_) | Self::Drr(_) => false,
            Self::Wfq(wfq) => wfq.arrive(child, bytes, work()),
        }
    }

    /// A child may send from now on.
    pub(super) fn enter(&mut self, child: u8) {
        match self {
            Self::Strict(strict) => strict.enter(child),
            Self::Drr(drr) => drr.enter(child),
            Self::Wfq(wfq) => wfq.enter(child),
        }
    }

    /// The child that sends next. `work`: what the node has done until now; `head_bytes`: of the packet
    /// that a child would send.
    pub(super) fn front(&mut self, work: u128, head_bytes: impl FnMut(u8) -> u64) -> Option<u8> {
        match self {
            Self::Strict(strict) => strict.front(),
            Self::Drr(drr) => drr.front(head_bytes),
            Self::Wfq(wfq) => wfq.front(work, head_bytes),
        }
    }

    /// A child has dropped a packet that had arrived.
    pub(super) fn dropped(&mut self, child: u8, bytes: u64) {
        match self {
            Self::Strict(_) | Self::Drr(_) => {}
            Self::Wfq(wfq) => wfq.consume(child, bytes),
        }
    }

    /// A child may no longer send: it has dropped all that it had.
    pub(super) fn leave(&mut self, child: u8) {
        match self {
            Self::Strict(strict) => strict.leave(child),
            Self::Drr(drr) => drr.leave(child),
            Self::Wfq(wfq) => wfq.leave(child),
        }
    }

    /// The front has sent a packet, and may go on sending or not.
    pub(super) fn sent(&mut self, child: u8, bytes: u64, stays: bool) {
        match self {
            Self::Strict(_) => {}
            Self::Drr(drr) => drr.charge(child, bytes),
            Self::Wfq(wfq) => wfq.consume(child, bytes),
        }
        if !stays {
            self.leave(child);
        }
    }

    /// A child has sent a packet by its minimum rate, and may go on sending or not.
    pub(super) fn sent_by_minimum(&mut self, child: u8, bytes: u64, stays: bool) {
        match self {
            Self::Strict(_) | Self::Drr(_) => {}
            Self::Wfq(wfq) => wfq.withdraw(child, bytes),
        }
        if !stays {
            self.leave(child);
        }
    }
}
