//! The tree of nodes above a port's egress queues: which leaf sends next, a queue or the held packets.
//!
//! A child (queue or node) is *ready* in its node if it may send: it has packets, and its rate lets it.
//! A node is a child of the node above it in the same way: it has packets if one of its children is ready.
//! The children that are not ready wait in one shaping PIFO for all nodes, by the instant at which their own
//! rates let them.

use super::config::QueueingConfig;
use super::minima::Minima;
use super::order::Order;
use super::pifo::Pifo;
use super::queue::EgressQueue;
use super::queue_config::QueueConfig;
use super::scheduler::{Below, SchedulerNode};
use super::shaper::Shaper;
use super::wfq::WORK_BITS;
use crate::time::Q24;

/// A child of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    Queue(u8),
    /// The held packets whose departure times have come.
    Paced,
    /// By number; higher than that of the node above.
    Node(u8),
}

/// The leaf of the held packets.
#[derive(Debug, Clone, Copy)]
struct PacedLeaf {
    place: Place,
    /// Its node knows that it has packets.
    ready: bool,
}

/// A child's place.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    node: u8,
    child: u8,
}

/// A node.
#[derive(Debug)]
struct Node {
    /// The children that may send.
    order: Order,
    children: Vec<Child>,
    /// `None`: the root.
    above: Option<Place>,
    /// `None`: no maximum rate.
    shaper: Option<Shaper>,
    /// `None`: no child has a minimum rate.
    minima: Option<Box<Minima>>,
    /// The front sends by its minimum rate.
    by_minimum: bool,
    /// From this instant on the children of `order` may have been able to send.
    ready_since: Q24,
    /// Bytes of its frames that have started, without those that children sent by minimum rates.
    started_bytes: u64,
    /// The number of the last such frame.
    last_frame: u64,
    /// Its front may become another by time alone, so it is never known.
    changing: bool,
    /// The leaf to which its front leads, where known.
    front: Option<Child>,
}

impl Node {
    /// The instant from which it may send; meaningless if no child is ready.
    fn eligible(&self) -> Q24 {
        match &self.shaper {
            None => self.ready_since,
            Some(shaper) => shaper.eligible(self.ready_since),
        }
    }

    fn enter(&mut self, child: u8, eligible: Q24) {
        self.ready_since = if self.order.is_empty() {
            eligible
        } else {
            self.ready_since.min(eligible)
        };
        self.order.enter(child);
        if let Some(minima) = &mut self.minima {
            minima.enter(child, eligible);
        }
    }

    /// A child has sent a frame, and may go on sending or not.
    fn sent(&mut self, child: u8, frame: &OnLine, stays: bool) {
        if let Some(minima) = &mut self.minima {
            if self.by_minimum {
                minima.charge(child, frame.start, frame.bytes);
            }
            if !stays {
                minima.leave(child);
            }
        }
        if self.by_minimum {
            self.order.sent_by_minimum(child, frame.bytes, stays);
        } else {
            self.order.sent(child, frame.bytes, stays);
            self.started_bytes += frame.bytes;
            self.last_frame = frame.number;
        }
    }
}

/// The last frame that left a queue.
#[derive(Debug, Clone, Copy, Default)]
struct OnLine {
    /// Frames that have started, this one included.
    number: u64,
    bytes: u64,
    start: Q24,
    /// The end of its time on the line.
    end: Q24,
}

impl OnLine {
    /// The part of the frame that has not left by `now`, in 2^-[`WORK_BITS`] bytes.
    fn unfinished(&self, now: Q24) -> u128 {
        let (left, whole) = (self.end.since(now), self.end.since(self.start));
        // A frame's time on the line fits 2^63, its length 2^17.
        let part = left.raw().min(whole.raw()) * u128::from(self.bytes);
        shifted_quotient(part, whole.raw())
    }
}

/// `(part << WORK_BITS) / whole`, 0 if `whole` is 0.
fn shifted_quotient(part: u128, whole: u128) -> u128 {
    (part << WORK_BITS).checked_div(whole).unwrap_or(0)
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root first; each before the nodes below it.
    nodes: Vec<Node>,
    /// By number of the queue.
    places: Vec<Place>,
    /// `None`: held packets go before the tree.
    paced: Option<PacedLeaf>,
    /// The children that wait for their rates, by the instants at which they may send.
    waiting: Pifo<Q24, Child>,
    last: OnLine,
}

impl Tree {
    /// A tree of idle queues.
    pub(super) fn new(config: &QueueingConfig, queues: &[EgressQueue]) -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            places: vec![Place::default(); queues.len()],
            paced: None,
            waiting: Pifo::default(),
            last: OnLine::default(),
        };
        let root = config.scheduler.tree(queues.len());
        tree.add(&root, None, &config.queues, queues);
        tree
    }

    /// Adds a node and those below it; whether its front may become another by time alone.
    fn add(
        &mut self,
        config: &SchedulerNode,
        above: Option<Place>,
        configs: &[QueueConfig],
        queues: &[EgressQueue],
    ) -> bool {
        let changes = |below: &Below| match below {
            Below::Queue(queue) => {
                let queue = queues.get(usize::from(*queue));
                queue.is_some_and(EgressQueue::may_change_head)
            }
            Below::Paced | Below::Node(_) => true,
        };
        let minima = config.children.iter();
        let minima = Minima::new(minima.map(|child| child.below.min_rate_bps(configs)));
        let node = self.nodes.len();
        // There are at most NODES_MAX nodes of CHILDREN_MAX children.
        let number = node as u8;
        self.nodes.push(Node {
            order: Order::new(config, changes),
            children: Vec::with_capacity(config.children.len()),
            above,
            shaper: config.max_rate.and_then(Shaper::new),
            changing: minima.is_some(),
            minima,
            by_minimum: false,
            ready_since: Q24::default(),
            started_bytes: 0,
            last_frame: 0,
            front: None,
        });
        for (child, below) in (0..).zip(&config.children) {
            let place = Place {
                node: number,
                child,
            };
            let (entry, changing) = match &below.below {
                Below::Queue(queue) => {
                    if let Some(at) = self.places.get_mut(usize::from(*queue)) {
                        *at = place;
                    }
                    (Child::Queue(*queue), changes(&below.below))
                }
                Below::Paced => {
                    self.paced = Some(PacedLeaf {
                        place,
                        ready: false,
                    });
                    (Child::Paced, true)
                }
                Below::Node(config) => {
                    let below = self.nodes.len() as u8;
                    let changing = self.add(config, Some(place), configs, queues);
                    (Child::Node(below), changing)
                }
            };
            if let Some(node) = self.nodes.get_mut(node) {
                node.children.push(entry);
                node.changing |= changing;
            }
        }
        self.nodes.get(node).is_none_or(|node| node.changing)
    }

    fn place(&self, child: Child) -> Option<Place> {
        match child {
            Child::Queue(queue) => self.places.get(usize::from(queue)).copied(),
            Child::Paced => self.paced.map(|leaf| leaf.place),
            Child::Node(node) => self.nodes.get(usize::from(node))?.above,
        }
    }

    /// The fronts of the nodes above a child may become others.
    fn forget_fronts(&mut self, child: Child) {
        let mut place = self.place(child);
        while let Some(node) = place.and_then(|place| self.nodes.get_mut(usize::from(place.node))) {
            node.front = None;
            place = node.above;
        }
    }

    /// The earliest instant at which a packet could leave; not later for a port that was busy then. Below
    /// nodes with rates it may be too early. `paced`: the earliest E of the held packets that the tree does not
    /// know of yet.
    pub(super) fn next_at(&self, paced: Option<Q24>) -> Option<Q24> {
        let root = self.nodes.first()?;
        let paced = paced.filter(|_| self.paced.is_some_and(|leaf| !leaf.ready));
        let waiting = self.waiting.first_rank().into_iter().chain(paced).min();
        let first = if root.order.is_empty() {
            waiting?
        } else {
            waiting.map_or(root.ready_since, |first| first.min(root.ready_since))
        };
        Some(match &root.shaper {
            None => first,
            Some(shaper) => shaper.eligible(first),
        })
    }

    /// Whether held packets have a place in the tree.
    pub(super) fn places_paced(&self) -> bool {
        self.paced.is_some()
    }

    /// A packet arrives at a leaf, whether the leaf may send or not.
    pub(super) fn arrive(&mut self, leaf: Child, bytes: u64, now: Q24) {
        let last = self.last;
        let mut front_changes = false;
        let mut place = self.place(leaf);
        while let Some(Place { node, child }) = place {
            let Some(node) = self.nodes.get_mut(usize::from(node)) else {
                return;
            };
            let (started_bytes, last_frame) = (node.started_bytes, node.last_frame);
            // The fronts of the nodes above lead through this one.
            front_changes |= node.order.arrive(child, bytes, || {
                let started = u128::from(started_bytes) << WORK_BITS;
                if last_frame == last.number {
                    started - last.unfinished(now)
                } else {
                    started
                }
            });
            if front_changes {
                node.front = None;
            }
            place = node.above;
        }
    }

    /// A queue drops a packet that has arrived.
    pub(super) fn dropped(&mut self, queue: u8, bytes: u64) {
        let mut place = self.place(Child::Queue(queue));
        while let Some(Place { node, child }) = place {
            let Some(node) = self.nodes.get_mut(usize::from(node)) else {
                return;
            };
            node.order.dropped(child, bytes);
            node.front = None;
            place = node.above;
        }
    }

    /// A queue that was not ready has a head that may start from `eligible` on. No child waits that may start
    /// by `now`.
    pub(super) fn offer(&mut self, queue: u8, eligible: Q24, now: Q24) {
        if eligible <= now {
            self.enter(Child::Queue(queue), eligible, now);
        } else {
            self.waiting.push(eligible, Child::Queue(queue));
        }
    }

    /// Held packets may start from `eligible` on, which is now. No child waits that may start by then.
    pub(super) fn offer_paced(&mut self, eligible: Q24) {
        if let Some(leaf) = &mut self.paced
            && !std::mem::replace(&mut leaf.ready, true)
        {
            self.enter(Child::Paced, eligible, eligible);
        }
    }

    /// A child that may start from `eligible` on is ready at `now`, and with it the nodes above, if no other
    /// child is to become ready before them.
    fn enter(&mut self, mut child: Child, mut eligible: Q24, now: Q24) {
        self.forget_fronts(child);
        loop {
            let Some(place) = self.place(child) else {
                return;
            };
            let Some(node) = self.nodes.get_mut(usize::from(place.node)) else {
                return;
            };
            let was_ready = !node.order.is_empty();
            node.enter(place.child, eligible);
            if was_ready || node.above.is_none() {
                return;
            }
            child = Child::Node(place.node);
            eligible = node.eligible();
            let other = self.waiting.first_rank();
            if eligible > now || other.is_some_and(|other| other <= eligible) {
                return self.waiting.push(eligible, child);
            }
        }
    }

    /// Makes the children ready whose rates let them start by `now`, in order of these instants; whether there
    /// are any.
    pub(super) fn enter_until(&mut self, now: Q24) -> bool {
        let mut any = false;
        while let Some(eligible) = self.waiting.first_rank().filter(|first| *first <= now) {
            if let Some(child) = self.waiting.pop() {
                self.enter(child, eligible, now);
                any = true;
            }
        }
        any
    }

    /// The leaf that sends at `now`, when the line is free. `None`: none may.
    pub(super) fn front(&mut self, heads: &Heads<'_>, now: Q24) -> Option<Child> {
        front(&mut self.nodes, 0, heads, now)
    }

    /// The front has dropped all that it had, and does not send.
    pub(super) fn emptied(&mut self, queue: u8) {
        self.forget_fronts(Child::Queue(queue));
        let mut place = self.place(Child::Queue(queue));
        while let Some(Place { node, child }) = place {
            let Some(node) = self.nodes.get_mut(usize::from(node)) else {
                return;
            };
            node.order.leave(child);
            if let Some(minima) = &mut node.minima {
                minima.leave(child);
            }
            if !node.order.is_empty() {
                return;
            }
            place = node.above;
        }
    }

    /// The front sends a packet at `start`. `next`: the instant from which its next head may start; of held
    /// packets, only if that is not after `start`.
    pub(super) fn sent(&mut self, leaf: Child, bytes: u64, start: Q24, next: Option<Q24>) {
        if let (Child::Paced, Some(paced)) = (leaf, &mut self.paced) {
            paced.ready = next.is_some();
        }
        self.last = OnLine {
            number: self.last.number + 1,
            bytes,
            start,
            end: start,
        };
        let (mut child, mut next) = (leaf, next);
        while let Some(place) = self.place(child) {
            let stays = next.is_some_and(|eligible| eligible <= start);
            if !stays && let Some(eligible) = next {
                self.waiting.push(eligible, child);
            }
            let Some(node) = self.nodes.get_mut(usize::from(place.node)) else {
                return;
            };
            node.sent(place.child, &self.last, stays);
            node.front = None;
            let eligible = node.eligible();
            if let Some(shaper) = &mut node.shaper {
                shaper.charge(eligible, start, bytes);
            }
            next = (!node.order.is_empty()).then(|| node.eligible());
            child = Child::Node(place.node);
        }
    }

    /// A frame of the port that started at `start` leaves the line at `end`.
    pub(super) fn on_line(&mut self, start: Q24, end: Q24) {
        if self.last.start == start {
            self.last.end = end;
        }
    }
}

/// The next packets of the leaves.
#[derive(Debug)]
pub(super) struct Heads<'a> {
    pub(super) queues: &'a [EgressQueue],
    /// Bytes of the held packet that is next.
    pub(super) paced_bytes: u64,
}

impl Heads<'_> {
    fn bytes(&self, leaf: Child) -> u64 {
        match leaf {
            Child::Queue(queue) => {
                let queue = self.queues.get(usize::from(queue));
                queue.map_or(0, EgressQueue::head_bytes)
            }
            Child::Paced => self.paced_bytes,
            Child::Node(_) => 0,
        }
    }
}

/// The leaf to which the fronts of `nodes[0]` and of the nodes below it lead at `now`. `nodes` begins with the
/// node of number `number`.
fn front(nodes: &mut [Node], number: usize, heads: &Heads<'_>, now: Q24) -> Option<Child> {
    let (node, below) = nodes.split_first_mut()?;
    if node.front.is_some() {
        return node.front;
    }
    let children = &node.children;
    let mut leaf_of = |child: u8| match *children.get(usize::from(child))? {
        Child::Node(other) => {
            let skipped = usize::from(other).checked_sub(number + 1)?;
            front(below.get_mut(skipped..)?, usize::from(other), heads, now)
        }
        leaf => Some(leaf),
    };
    let due = node.minima.as_ref().and_then(|minima| minima.due(now));
    node.by_minimum = due.is_some();
    let child = due.or_else(|| {
        let work = u128::from(node.started_bytes) << WORK_BITS;
        node.order.front(work, |child| {
            leaf_of(child).map_or(0, |leaf| heads.bytes(leaf))
        })
    })?;
    let leaf = leaf_of(child);
    node.front = leaf.filter(|_| !node.changing);
    leaf
}
