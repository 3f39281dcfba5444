//! The egress queues of a port, and the order in which they send.
//!
//! # The mechanism
//!
//! A port without egress queues has one FIFO. A port with them has a tree of PIFOs (push in, first
//! out: Sivaraman et al., "Programmable Packet Scheduling at Line Rate", SIGCOMM 2016; semantics:
//! Mohan et al., "Formal Abstractions for Packet Scheduling", OOPSLA 2023). A PIFO of packets orders
//! them when they come. Here a node orders its *children that have packets*, and a child gets a new
//! rank when it begins to have packets and after each packet that it sends (as in Eiffel, Saeed et
//! al., NSDI 2019). The order is the same where the ranks of a child do not decrease, and a packet
//! that its queue drops leaves nothing behind in the nodes above.
//!
//! The nodes are those of a [`tree`] of up to 64 queues. A node has two PIFOs, as in the paper:
//!
//! * the *shaping* PIFO, by instant: children that have packets and may not send yet ([`shaper`]); one for
//!   all nodes;
//! * the *scheduling* PIFO, by the ranks of its discipline ([`order`]): children that may send.
//!
//! A discipline is one small file, and names the paper that it follows: [`strict`], [`drr`], [`wfq`].
//!
//! # The rules, exactly
//!
//! * A queue's head may start from `E = max(arrival_ns, C)`. C is the queue's rate clock, 0 at first,
//!   and stays 0 without a maximum rate.
//! * The port's next unpaced transmission is at `u = max(smallest E, port_free)`. At `u`, all queues
//!   with `E <= u` may send, and the discipline chooses. Queues come to its notice in order of E, and
//!   at the latest when a packet arrives or starts.
//! * After a start at `t`, `C' = max(E, t - burst) + cost`. A rate in packets per second has no
//!   `burst` limit (`C' = E + cost`), as simple_switch has none.
//! * In a tree, a node may send from `E = max(s, C)` on, with C its rate clock, and s the instant from which
//!   children of it have been able to send without a break. Its clock moves as that of a queue.
//! * A child with a minimum rate has a clock G ([`minima`]), at first 0, and `G' = max(G, E)` when it begins to
//!   be able to send at E. At `u`, the child with the smallest `G <= u` sends in place of the one that the
//!   discipline would choose; then `G' = max(G, t - credit) + cost`, and the discipline does not count it.
//! * Held packets go before all queues, or are a leaf of the tree ([`Below::Paced`]): see the rules of the [crate].
//!   The leaf has a packet from the smallest E of all classes' heads on. A head arrives there at its E.

mod aqm;
mod bits;
mod config;
mod depths;
mod drr;
mod item;
mod limits;
mod minima;
mod order;
mod pifo;
mod queue;
mod queue_config;
mod queueing_error;
mod scheduler;
mod shaper;
mod statistics;
mod strict;
mod tree;
mod wfq;

pub use aqm::{
    AQM_TIME_MAX_NS, AqmConfig, AqmError, CodelConfig, DualPi2Config, FLOWS_MAX, FqCodelConfig,
    PieConfig, RedConfig, RedProfile,
};
pub use config::{Buffer, QueueingConfig, Reads};
pub use limits::{
    BUFFER_SHARE_MAX_PPM, BUFFER_SHARE_ONE_PPM, CHILDREN_MAX, DEPTH_MAX, DEPTH_PACKETS_MAX,
    NODES_MAX, QUEUES_MAX, WEIGHT_MAX,
};
pub use queue_config::{MaxRate, QueueConfig};
pub use queueing_error::QueueingError;
pub use scheduler::{Below, Discipline, Scheduler, SchedulerChild, SchedulerNode};
pub use statistics::QueueStatistics;

use crate::cause::DropCause;
use crate::slab::Slab;
use crate::statistics::Waiting;
use crate::time::Q24;
pub(crate) use item::Item;
use queue::EgressQueue;
pub(crate) use queue::{Admission, CommonBuffer, Room};
use tree::{Child, Heads, Tree};

/// The packet that leaves a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    /// Its place in the slab.
    pub(crate) node: u32,
    pub(crate) queue: u8,
    pub(crate) start: Q24,
    /// Packets that its queue has left.
    pub(crate) left_behind: u32,
    pub(crate) marked: bool,
}

/// Whether a queue keeps its packets where they are when the queues change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// They are put in anew.
    No,
    /// It does, and the new scheduler does not know of it yet.
    Unknown,
    /// It does.
    Known,
}

/// The egress queues of one port.
#[derive(Debug)]
pub(crate) struct EgressQueues {
    config: QueueingConfig,
    reads: Reads,
    queues: Vec<EgressQueue>,
    tree: Tree,
    /// The places of packets that were dropped at the head of their queues.
    dropped: Vec<u32>,
    /// Bytes of the held packet that is next, where held packets have a place in the tree.
    paced_bytes: u64,
}

impl EgressQueues {
    /// `common_bytes`: room of a queue without a depth of its own ([`QueueingConfig::common_bytes`]).
    /// The settings are checked.
    pub(crate) fn new(config: QueueingConfig, common_bytes: u64) -> Self {
        let queues: Vec<_> = (1..)
            .zip(&config.queues)
            .map(|(seed, config)| EgressQueue::new(config, seed, common_bytes))
            .collect();
        Self {
            tree: Tree::new(&config, &queues),
            queues,
            dropped: Vec::new(),
            paced_bytes: 0,
            reads: config.reads(),
            config,
        }
    }

    /// Takes the place of a FIFO whose last packet has left the line at `left`: queue 0 does.
    pub(crate) fn follow_fifo(&mut self, left: Option<Q24>) {
        if let Some(queue) = self.queues.first_mut() {
            queue.follow_fifo(left);
        }
    }

    pub(crate) fn config(&self) -> &QueueingConfig {
        &self.config
    }

    pub(crate) fn reads(&self) -> Reads {
        self.reads
    }

    pub(crate) fn statistics(&self) -> impl Iterator<Item = &QueueStatistics> {
        self.queues.iter().map(|queue| &queue.statistics)
    }

    /// Packets that wait in a queue.
    pub(crate) fn packets(&self, queue: u8) -> u32 {
        self.queue(queue).map_or(0, EgressQueue::packets)
    }

    /// The packets that wait in a queue; `None`: no such queue.
    pub(crate) fn waiting(&self, queue: u8) -> Option<Waiting> {
        self.queue(queue).map(EgressQueue::waiting)
    }

    fn queue(&self, queue: u8) -> Option<&EgressQueue> {
        self.queues.get(usize::from(queue))
    }

    /// Whether a packet has room and is kept; true: it is to be marked. A refusal is counted at the queue.
    pub(crate) fn admit(
        &mut self,
        queue: u8,
        packet: &Admission,
        room: &Room,
    ) -> Result<bool, DropCause> {
        let queue = self.queues.get_mut(usize::from(queue));
        let queue = queue.ok_or(DropCause::NoSuchQueue)?;
        let admitted = queue.admit(packet, room, self.config.buffer);
        if let Err(cause) = admitted {
            queue.statistics.drops.add(cause, 1);
        }
        admitted
    }

    /// Appends a packet that was admitted. Returns whether [`Self::next_at`] may have changed.
    pub(crate) fn push(&mut self, number: u8, item: Item) -> bool {
        let arrival = Q24::from_ns(item.arrival_ns());
        let any_entered = self.tree.enter_until(arrival);
        let Some(queue) = self.queues.get_mut(usize::from(number)) else {
            debug_assert!(
                false,
                "a packet was admitted to a queue that does not exist"
            );
            return false;
        };
        let (tree, dropped) = (&mut self.tree, &mut self.dropped);
        tree.arrive(Child::Queue(number), item.frame_bytes(), arrival);
        let became_head = queue.push(item, |item| {
            tree.dropped(number, item.frame_bytes());
            dropped.push(item.node);
        });
        if became_head && let Some(eligible) = queue.eligible() {
            tree.offer(number, eligible, arrival);
        }
        became_head || any_entered
    }

    /// The earliest instant at which a packet could leave; not later for a port that was busy then. Where
    /// nodes have rates it may be too early. `paced`: the earliest E of held packets that
    /// [`Self::paced_eligible`] has not told of.
    pub(crate) fn next_at(&self, paced: Option<Q24>) -> Option<Q24> {
        self.tree.next_at(paced)
    }

    /// Whether held packets have a place in the tree.
    pub(crate) fn places_paced(&self) -> bool {
        self.tree.places_paced()
    }

    /// The first held packet of a class may start from `eligible` on, which is now.
    pub(crate) fn paced_eligible(&mut self, bytes: u64, eligible: Q24) {
        self.tree.enter_until(eligible);
        self.tree.arrive(Child::Paced, bytes, eligible);
        self.tree.offer_paced(eligible);
    }

    /// Whether a held packet goes at `at`. `bytes`: of the first of those that may.
    pub(crate) fn chooses_paced(&mut self, bytes: u64, at: Q24) -> bool {
        self.paced_bytes = bytes;
        self.tree.enter_until(at);
        matches!(self.front(at), Some(Child::Paced))
    }

    /// A held packet starts, for which the tree has decided. `more`: another one may start at the same time.
    pub(crate) fn paced_sent(&mut self, bytes: u64, start: Q24, more: bool) {
        let next = more.then_some(start);
        self.tree.sent(Child::Paced, bytes, start, next);
    }

    /// The leaf that sends at `at`.
    fn front(&mut self, at: Q24) -> Option<Child> {
        let heads = Heads {
            queues: &self.queues,
            paced_bytes: self.paced_bytes,
        };
        self.tree.front(&heads, at)
    }

    /// Takes the packet that leaves at `at`, which is not before [`Self::next_at`].
    /// `None`: none leaves now, because a rate lets the next one start later, or active queue management has
    /// dropped all that could leave, or all that could before a held packet; see [`Self::take_dropped`].
    pub(crate) fn take(&mut self, at: Q24) -> Option<Leaving> {
        self.tree.enter_until(at);
        loop {
            let Child::Queue(number) = self.front(at)? else {
                return None;
            };
            let queue = self.queues.get_mut(usize::from(number))?;
            let (tree, dropped) = (&mut self.tree, &mut self.dropped);
            let popped = queue.pop(at, |item| {
                tree.dropped(number, item.frame_bytes());
                dropped.push(item.node);
            });
            let Some((item, start)) = popped else {
                tree.emptied(number);
                continue;
            };
            let leaf = Child::Queue(number);
            tree.sent(leaf, item.frame_bytes(), start, queue.eligible());
            return Some(Leaving {
                node: item.node,
                queue: number,
                start,
                left_behind: queue.packets(),
                marked: item.marked,
            });
        }
    }

    /// The place of a packet that was dropped at the head of its queue.
    pub(crate) fn take_dropped(&mut self) -> Option<u32> {
        self.dropped.pop()
    }

    /// A frame of the port that started at `start` leaves the line at `end`.
    pub(crate) fn on_line(&mut self, start: Q24, end: Q24) {
        self.tree.on_line(start, end);
    }

    /// Applies settings to queues that may have packets. No packet is dropped, except where FQ-CoDel begins with
    /// more than it may have; those of a queue that no longer exists go to queue 0. Where the queues and the
    /// scheduler stay, so does the scheduler's state; where a queue's active queue management stays, so does its
    /// state. `common_bytes`: as for [`Self::new`]. Returns whether the scheduler begins anew, without held
    /// packets.
    pub(crate) fn configure<P>(
        &mut self,
        config: QueueingConfig,
        common_bytes: u64,
        slab: &Slab<P>,
    ) -> bool {
        let shape =
            |config: &QueueConfig| (config.max_rate.is_some(), config.min_rate_bps, config.aqm);
        let same = config.scheduler == self.config.scheduler
            && (config.queues.iter().map(shape)).eq(self.config.queues.iter().map(shape));
        if same {
            for (queue, config) in self.queues.iter_mut().zip(&config.queues) {
                queue.configure(config);
            }
            self.reads = config.reads();
            self.config = config;
            return false;
        }
        let mut other = Self::new(config, common_bytes);
        let items = self.items_by_arrival(slab);
        let count = other.queues.len();
        let any_moves = items.iter().any(|(queue, _)| usize::from(*queue) >= count);
        let mut kept = vec![Kept::No; count];
        let queues = other.queues.iter_mut().zip(&mut self.queues);
        for (number, ((to, from), kept)) in queues.zip(&mut kept).enumerate() {
            to.inherit(from);
            // Packets that come from elsewhere have places among those of queue 0.
            if (number > 0 || !any_moves) && to.keep_store(from) {
                *kept = Kept::Unknown;
            }
        }
        for (queue, item) in items {
            match kept.get_mut(usize::from(queue)) {
                None => {
                    other.push(0, item);
                }
                Some(Kept::No) => {
                    other.push(queue, item);
                }
                Some(kept) => {
                    other.stay(queue, &item, *kept == Kept::Unknown);
                    *kept = Kept::Known;
                }
            }
        }
        *self = other;
        true
    }

    /// Tells the scheduler of a packet that has stayed in its queue; `is_first`: of the queue's packets.
    fn stay(&mut self, number: u8, item: &Item, is_first: bool) {
        let arrival = Q24::from_ns(item.arrival_ns());
        self.tree.enter_until(arrival);
        let leaf = Child::Queue(number);
        self.tree.arrive(leaf, item.frame_bytes(), arrival);
        let head = self.queue(number).filter(|_| is_first);
        if let Some(eligible) = head.and_then(EgressQueue::eligible) {
            self.tree.offer(number, eligible, arrival);
        }
    }

    /// The packets that wait, in the order in which they came, with their queues.
    pub(crate) fn items_by_arrival<P>(&self, slab: &Slab<P>) -> Vec<(u8, Item)> {
        let mut items = Vec::new();
        for (number, queue) in (0..).zip(&self.queues) {
            items.extend(queue.items().map(|item| (number, *item)));
        }
        items.sort_by_key(|(_, item)| slab.meta(item.node).map(|meta| meta.sequence));
        items
    }

    /// Takes out all packets, and forgets the clocks.
    pub(crate) fn take_all(&mut self, mut out: impl FnMut(u32)) {
        for queue in &mut self.queues {
            queue.take_all(&mut out);
        }
        self.tree = self.idle_tree();
    }

    fn idle_tree(&self) -> Tree {
        Tree::new(&self.config, &self.queues)
    }

    /// Empty queues that are as full as these: their packets are counted and not there.
    pub(crate) fn stand_in(&self) -> Self {
        Self {
            queues: self.queues.iter().map(EgressQueue::stand_in).collect(),
            tree: self.idle_tree(),
            dropped: Vec::new(),
            paced_bytes: 0,
            reads: self.reads,
            config: self.config.clone(),
        }
    }
}
