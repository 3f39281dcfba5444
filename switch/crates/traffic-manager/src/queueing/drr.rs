//! Deficit round robin (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round-Robin",
//! SIGCOMM 1995).
//!
//! The scheduling PIFO is the paper's ActiveList: a child's rank is its place in the round. A child's
//! quantum is its weight times a full-sized frame, so each visit sends at least one frame of Ethernet.

use std::collections::VecDeque;

use crate::config::FRAME_DEFAULT_BYTES;

/// A child of the node.
#[derive(Debug, Clone, Copy)]
struct Child {
    quantum_bytes: i64,
    /// Below 0 after a head that was longer than the one that was dropped before it.
    deficit_bytes: i64,
}

/// The children that may send, in the order of the round.
#[derive(Debug)]
pub(super) struct Drr {
    children: Vec<Child>,
    round: VecDeque<u8>,
    /// The first of the round has got its quantum.
    granted: bool,
}

impl Drr {
    pub(super) fn new(weights: impl Iterator<Item = u32>) -> Self {
        let child = |weight| Child {
            quantum_bytes: i64::from(weight) * FRAME_DEFAULT_BYTES as i64,
            deficit_bytes: 0,
        };
        let children: Vec<_> = weights.map(child).collect();
        Self {
            round: VecDeque::with_capacity(children.len()),
            children,
            granted: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.round.is_empty()
    }

    /// A child may send from now on: it joins the end of the round, without a deficit.
    pub(super) fn enter(&mut self, child: u8) {
        if let Some(entry) = self.children.get_mut(usize::from(child)) {
            entry.deficit_bytes = 0;
            self.round.push_back(child);
        }
    }

    /// The child that sends next: the first whose deficit is enough for the packet that it would send.
    pub(super) fn front(&mut self, mut head_bytes: impl FnMut(u8) -> u64) -> Option<u8> {
        loop {
            let number = *self.round.front()?;
            let child = self.children.get_mut(usize::from(number))?;
            if !self.granted {
                child.deficit_bytes += child.quantum_bytes;
                self.granted = true;
            }
            if head_bytes(number) as i64 <= child.deficit_bytes {
                return Some(number);
            }
            self.granted = false;
            self.round.rotate_left(1);
        }
    }

    /// The front has sent.
    pub(super) fn charge(&mut self, child: u8, bytes: u64) {
        if let Some(entry) = self.children.get_mut(usize::from(child)) {
            entry.deficit_bytes -= bytes as i64;
        }
    }

    /// A child may no longer send.
    pub(super) fn leave(&mut self, child: u8) {
        match self.round.iter().position(|other| *other == child) {
            Some(0) => {
                self.round.pop_front();
                self.granted = false;
            }
            Some(at) => {
                self.round.remove(at);
            }
            None => debug_assert!(false, "a child leaves that is not in the round"),
        }
    }
}
