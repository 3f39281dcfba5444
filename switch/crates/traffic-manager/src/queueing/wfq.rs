//! Weighted fair queueing: WF2Q (Bennett and Zhang, "WF2Q: Worst-case Fair Weighted Fair Queueing",
//! INFOCOM 1996), which follows the fluid server of Parekh and Gallager (GPS) to within a frame. In a tree
//! (Bennett and Zhang, "Hierarchical Packet Fair Queueing Algorithms", SIGCOMM 1996) each node has a fluid
//! server of its own, which does the node's work.
//!
//! The fluid server gives each child that has bytes left in it a share of the work by weight. Its
//! virtual time V grows by the work over the sum of these weights. Bytes that arrive take the virtual time
//! from `S = max(F, V)` on, with F the end of the child's bytes before; then `F = S + bytes / weight`.
//! Of the children whose next byte has started in the fluid server (`S <= V`), the one whose next packet
//! ends first sends. A packet takes the child's first bytes, whichever they were on arrival: so the children
//! of a node below may overtake each other.
//!
//! Work counts the node's own bytes, not time, so a line that others use meanwhile stops the fluid server,
//! too. The frame on the line counts by the part that has left when a packet arrives.

use std::collections::VecDeque;

use super::bits::{bit, bits};

/// Fraction bits of work and of virtual time, which are bytes and bytes over weight.
pub(super) const WORK_BITS: u32 = 40;

/// The virtual time of bytes that follow each other.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u128,
    finish: u128,
}

/// The children. Each field that a search reads is an array of its own, and bitmaps say which children it
/// has to read.
#[derive(Debug)]
pub(super) struct Wfq {
    weights: Vec<u64>,
    /// The virtual time of a byte.
    per_byte: Vec<u64>,
    /// F of the last byte that arrived.
    finish: Vec<u128>,
    /// The span of the next byte; meaningless where no packet waits.
    first: Vec<Span>,
    /// The spans after it.
    further: Vec<VecDeque<Span>>,
    /// The end of the next packet, where known.
    packet_finish: Vec<u128>,
    /// Bit by child: `packet_finish` is known.
    known: u64,
    /// Bit by child: the next packet may become another while it waits, so it is never known.
    changing: u64,
    /// Bit by child: packets wait.
    waiting: u64,
    /// Bit by child: packets wait, and it may send.
    ready: u64,
    /// Bit by child: F > V, so the fluid server has bytes of it.
    busy: u64,
    /// The sum of the weights of those.
    busy_weight: u64,
    /// V.
    now: u128,
    /// Work that the fluid server has done.
    done: u128,
}

impl Wfq {
    pub(super) fn new(
        weights: impl Iterator<Item = u32>,
        changing: impl Iterator<Item = bool>,
    ) -> Self {
        let weights: Vec<_> = weights.map(u64::from).collect();
        let children = weights.len();
        let per_byte = |weight: &u64| (1 << WORK_BITS) / (*weight).max(1);
        Self {
            per_byte: weights.iter().map(per_byte).collect(),
            weights,
            finish: vec![0; children],
            first: vec![Span::default(); children],
            further: vec![VecDeque::new(); children],
            packet_finish: vec![0; children],
            known: 0,
            changing: (0..)
                .zip(changing)
                .fold(0, |all, (child, changes)| all | u64::from(changes) << child),
            waiting: 0,
            ready: 0,
            busy: 0,
            busy_weight: 0,
            now: 0,
            done: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// The virtual time of so many bytes of a child.
    fn cost(&self, at: usize, bytes: u64) -> u128 {
        // A frame's length fits 2^17.
        u128::from(bytes * self.per_byte[at])
    }

    /// The fluid server has done `work` in all. Returns whether that is more than before.
    fn advance(&mut self, work: u128) -> bool {
        let all = work.saturating_sub(self.done);
        let mut left = all;
        self.done += all;
        while left > 0 && self.busy != 0 {
            let next = self.least(self.busy, |at| self.finish[at]);
            let until_next = (next - self.now) * u128::from(self.busy_weight);
            if left < until_next {
                self.now += divided(left, self.busy_weight);
                break;
            }
            left -= until_next;
            self.reach(next);
        }
        all > 0
    }

    /// V becomes `now`, which is not before.
    fn reach(&mut self, now: u128) {
        self.now = now;
        for child in bits(self.busy) {
            if self.finish[child] <= now {
                self.busy &= !(1 << child);
                self.busy_weight -= self.weights[child];
            }
        }
    }

    /// The smallest value of some children, at least one.
    fn least(&self, children: u64, value: impl Fn(usize) -> u128) -> u128 {
        bits(children).map(value).min().unwrap_or(self.now)
    }

    /// A packet arrives when the node has done `work` in all. Returns whether the front may be another one
    /// than before.
    pub(super) fn arrive(&mut self, child: u8, bytes: u64, work: u128) -> bool {
        let advanced = self.advance(work);
        let (at, bit) = (usize::from(child), bit(child));
        let before = self.finish[at];
        let start = before.max(self.now);
        let finish = start + self.cost(at, bytes);
        self.finish[at] = finish;
        if self.busy & bit == 0 {
            self.busy |= bit;
            self.busy_weight += self.weights[at];
        }
        let span = Span { start, finish };
        let is_first = self.waiting & bit == 0;
        if is_first {
            self.waiting |= bit;
            self.known &= !bit;
            self.first[at] = span;
        } else if start > before {
            self.further[at].push_back(span);
        } else {
            let last = self.further[at].back_mut();
            last.unwrap_or(&mut self.first[at]).finish = finish;
        }
        advanced || is_first
    }

    /// A child that has packets may send from now on.
    pub(super) fn enter(&mut self, child: u8) {
        self.ready |= bit(child);
    }

    /// The child that sends next, when the node has done `work` in all. `head_bytes`: of the packet that a
    /// child would send; it is asked for children that have started.
    pub(super) fn front(
        &mut self,
        work: u128,
        mut head_bytes: impl FnMut(u8) -> u64,
    ) -> Option<u8> {
        self.advance(work);
        if self.ready == 0 {
            return None;
        }
        loop {
            let (mut first, mut first_finish, mut least_start) = (None, u128::MAX, u128::MAX);
            for at in bits(self.ready) {
                let start = self.first[at].start;
                least_start = least_start.min(start);
                if start > self.now {
                    continue;
                }
                // At most 63.
                let child = at as u8;
                if self.known & bit(child) == 0 {
                    let cost = self.cost(at, head_bytes(child));
                    self.packet_finish[at] = start + cost;
                    self.known |= bit(child) & !self.changing;
                }
                if self.packet_finish[at] < first_finish {
                    (first, first_finish) = (Some(child), self.packet_finish[at]);
                }
            }
            if first.is_some() {
                return first;
            }
            // A child that had to wait for its rate, or rounding, may leave none that has started.
            self.reach(least_start);
        }
    }

    /// A child has sent a packet, or dropped one. The part of a dropped one that the fluid server has
    /// served stays served.
    pub(super) fn consume(&mut self, child: u8, bytes: u64) {
        let at = usize::from(child);
        let cost = self.cost(at, bytes);
        let first = &mut self.first[at];
        first.start += cost;
        while first.start >= first.finish {
            let Some(next) = self.further[at].pop_front() else {
                debug_assert_eq!(first.start, first.finish, "more leaves than has arrived");
                self.waiting &= !bit(child);
                break;
            };
            first.start = next.start + (first.start - first.finish);
            first.finish = next.finish;
        }
        self.known &= !bit(child);
    }

    /// A child has sent a packet by its minimum rate, which is no work of the fluid server: it takes the
    /// child's last bytes away, and what the fluid server has served of them stays served.
    pub(super) fn withdraw(&mut self, child: u8, bytes: u64) {
        let at = usize::from(child);
        let mut cost = self.cost(at, bytes);
        while let Some(last) = self.further[at].back_mut() {
            let length = last.finish - last.start;
            if cost < length {
                break;
            }
            cost -= length;
            self.further[at].pop_back();
        }
        let last = self.further[at].back_mut();
        let last = last.unwrap_or(&mut self.first[at]);
        debug_assert!(
            last.start + cost <= last.finish,
            "more leaves than has arrived"
        );
        last.finish -= cost;
        if last.start == last.finish {
            self.waiting &= !bit(child);
        }
        let finish = last.finish;
        self.finish[at] = finish;
        if finish <= self.now && self.busy & bit(child) != 0 {
            self.busy &= !bit(child);
            self.busy_weight -= self.weights[at];
        }
        self.known &= !bit(child);
    }

    /// A child may no longer send.
    pub(super) fn leave(&mut self, child: u8) {
        self.ready &= !bit(child);
    }
}

/// A quotient of which the dividend is nearly always short.
fn divided(work: u128, weight: u64) -> u128 {
    match u64::try_from(work) {
        Ok(work) => u128::from(work / weight),
        Err(_) => work / u128::from(weight),
    }
}
