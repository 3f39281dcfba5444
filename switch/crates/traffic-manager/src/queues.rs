//! The class queues of all ports, found by port and class.
//!
//! Nearly every class leaves by one port. So a class has one record, with its queue on the first port
//! that it used. A class that leaves by several ports has further records for the others. A packet of
//! an ordinary class touches half a cache line, which has the contents of the queue and of the class.
//! Such a class takes 32 bytes, for any ports of its neighbours.

use std::collections::BTreeMap;

use crate::class_sums::{ClassSums, Held};
use crate::config::frame_bytes;
use crate::paged::{PAGE, Paged};
use crate::slab::{List, Meta, NONE, Slab};
use crate::time::Q24;

/// Stands for no port: the traffic manager has no port with this number.
const NO_PORT: u16 = u16::MAX;

/// The port's bits in [`Queue::bytes_and_port`].
const PORT_BITS: u32 = u16::BITS;

/// A class queue of one port. Small, because a million classes may each have one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    /// First and last packet. Of an empty queue, parts of a [`Spacing`]: its time after R, and its
    /// departure time.
    ends_or_spacing: [u32; 2],
    /// R, whole nanoseconds and fraction (2^-24 ns).
    release_ns: u64,
    release_fraction: u32,
    pub(crate) packets: u32,
    /// `bytes << PORT_BITS | port`.
    bytes_and_port: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            ends_or_spacing: [0, 0],
            release_ns: 0,
            release_fraction: 0,
            packets: 0,
            bytes_and_port: NO_PORT.into(),
        }
    }
}

/// R of a queue after a packet left, and the distance that the next packet keeps from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spacing {
    /// R.
    pub(crate) release: Q24,
    /// S: the earliest start of a packet with another departure time than the one that left. At most
    /// R when the class does not catch up with spaced packets.
    pub(crate) spaced: Q24,
}

impl Queue {
    /// Most bytes a queue may hold.
    pub(crate) const BYTES_MAX: u64 = u64::MAX >> PORT_BITS;

    /// The port whose queue this is.
    fn port(&self) -> u16 {
        self.bytes_and_port as u16
    }

    /// Bytes that wait, layer 2 + FCS.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_and_port >> PORT_BITS
    }

    pub(crate) fn release(&self) -> Q24 {
        Q24::from_parts(self.release_ns, self.release_fraction)
    }

    /// The first packet; [`NONE`] if it is empty.
    pub(crate) fn head(&self) -> u32 {
        self.list().head
    }

    fn list(&self) -> List {
        match (self.packets, self.ends_or_spacing) {
            (0, _) => List::default(),
            (_, [head, tail]) => List { head, tail },
        }
    }

    fn set_list(&mut self, List { head, tail }: List) {
        self.ends_or_spacing = [head, tail];
    }

    /// The time after R when a packet with another departure time than the last one may start, of an
    /// empty queue.
    fn spacing(&self) -> Q24 {
        let [spacing_ns, _] = self.ends_or_spacing;
        Q24::from_ns(spacing_ns.into())
    }

    /// The earliest start of the first packet of an empty queue.
    fn earliest(&self, departure_ns: u64) -> Q24 {
        let [_, last_departure] = self.ends_or_spacing;
        if last_departure == low_bits(departure_ns) {
            self.release()
        } else {
            self.release().plus(self.spacing().raw())
        }
    }

    /// Whether the queue can be forgotten: it is empty, and R and S have passed. Then they have no
    /// effect, because E = max(departure, R, S), and departures are not before arrivals.
    fn is_idle(&self, now: Q24) -> bool {
        self.packets == 0 && self.release().plus(self.spacing().raw()) <= now
    }
}

/// The part of a departure time that an empty queue keeps.
fn low_bits(departure_ns: u64) -> u32 {
    departure_ns as u32
}

/// A packet that left its queue.
#[derive(Debug)]
pub(crate) struct Unlinked {
    /// Its place in the slab.
    pub(crate) node: u32,
    /// Layer 2 + FCS.
    pub(crate) bytes: u64,
    /// The queue's first packet now; none if it is empty.
    pub(crate) next: u32,
    /// R and S of the queue now.
    pub(crate) spacing: Spacing,
}

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct ClassQueues {
    /// Each class's queue on the first port that it used.
    first: Paged<Queue>,
    /// Queues of classes that used another port first, by port.
    further: BTreeMap<u16, Paged<Queue>>,
    /// The bytes of the classes in further queues. A class without a page here has none.
    further_bytes: Paged<u64>,
    /// The sums of the classes that have queues of other numbers.
    sums: ClassSums,
}

impl ClassQueues {
    pub(crate) fn get(&self, port: u16, class: u32) -> Option<&Queue> {
        match self.first.get(class) {
            Some(queue) if queue.port() == port => Some(queue),
            _ => {
                let queue = self.further.get(&port)?.get(class)?;
                (queue.port() == port).then_some(queue)
            }
        }
    }

    /// The class's queue on the first port that it used. Reads nothing of the queue.
    pub(crate) fn first_of(&self, class: u32) -> Option<&Queue> {
        self.first.get(class)
    }

    fn get_mut(&mut self, port: u16, class: u32) -> Option<&mut Queue> {
        match self.first.get_mut(class) {
            Some(queue) if queue.port() == port => Some(queue),
            _ => {
                let queue = self.further.get_mut(&port)?.get_mut(class)?;
                (queue.port() == port).then_some(queue)
            }
        }
    }

    /// Bytes (layer 2 + FCS) that wait in queues of `class` on all ports.
    pub(crate) fn backlog_bytes(&self, class: u32) -> u64 {
        self.first.get(class).map_or(0, Queue::bytes)
            + self.further_bytes.get(class).copied().unwrap_or(0)
    }

    /// Packets that wait in queues of `class`, and in queues that count to it, on all ports.
    pub(crate) fn held(&self, class: u32) -> Held {
        let own = self.own(class);
        let others = self.sums.held(class);
        Held {
            bytes: own.bytes + others.bytes,
            packets: own.packets + others.packets,
        }
    }

    /// Packets that wait in queues of `class` on all ports.
    fn own(&self, class: u32) -> Held {
        let first = self.first.get(class).map_or(0, |queue| queue.packets);
        let further = self.further.values().filter_map(|pages| pages.get(class));
        let packets = further.map(|queue| queue.packets).chain([first]);
        Held {
            bytes: self.backlog_bytes(class),
            packets: packets.map(u64::from).sum(),
        }
    }

    /// Makes the queues of `class` count to another class.
    pub(crate) fn count_to(&mut self, class: u32, other: u32) {
        if other != class && self.sums.changes(class, other) {
            let held = self.own(class);
            self.sums.set(class, other, held);
        }
    }

    /// The number of queues with memory.
    pub(crate) fn len(&self) -> usize {
        let further = self.further.values().map(Paged::used_pages).sum::<usize>();
        (self.first.used_pages() + further) * PAGE
    }

    /// Makes a queue that does not exist, with memory for it if there is room for `limit` queues;
    /// false if there is not.
    pub(crate) fn create(&mut self, port: u16, class: u32, limit: usize) -> bool {
        let room = self.len() + PAGE <= limit;
        let pages = match self.first.get(class) {
            Some(queue) if queue.port() != NO_PORT => {
                self.further_bytes.create(class);
                self.further.entry(port).or_default()
            }
            _ => &mut self.first,
        };
        if pages.get(class).is_none() && !room {
            return false;
        }
        pages.create(class);
        if let Some(queue) = pages.get_mut(class) {
            queue.bytes_and_port = port.into();
        }
        true
    }

    /// Frees the memory of queues of which all neighbours are idle, too.
    pub(crate) fn free_idle(&mut self, now: Q24) {
        self.first.free_idle(|queue| queue.is_idle(now));
        for pages in self.further.values_mut() {
            pages.free_idle(|queue| queue.is_idle(now));
        }
        self.further.retain(|_, pages| pages.used_pages() > 0);
    }

    /// Appends a packet to a queue that exists; gives it back otherwise. If the queue was empty,
    /// returns the time before which the packet may not start, max(R, S).
    pub(crate) fn push<P>(
        &mut self,
        (port, class): (u16, u32),
        payload: P,
        meta: Meta,
        slab: &mut Slab<P>,
    ) -> Result<Option<Q24>, P> {
        let Some(queue) = self.get_mut(port, class) else {
            return Err(payload);
        };
        let earliest = (queue.packets == 0).then(|| queue.earliest(meta.departure_ns));
        let at = slab.insert(payload, meta)?;
        let mut list = queue.list();
        slab.link(&mut list, at);
        queue.set_list(list);
        queue.packets += 1;
        queue.bytes_and_port += frame_bytes(meta.length_bytes) << PORT_BITS;
        if let Some(further) = self.further_mut(port, class) {
            *further += frame_bytes(meta.length_bytes);
        }
        self.sums.enter(class, one(frame_bytes(meta.length_bytes)));
        Ok(earliest)
    }

    /// Unlinks the first packet of a queue, and sets its R and S to what `space` makes of the packet
    /// and R.
    pub(crate) fn unlink<P>(
        &mut self,
        (port, class): (u16, u32),
        slab: &Slab<P>,
        space: impl FnOnce(&Meta, Q24) -> Spacing,
    ) -> Option<Unlinked> {
        let queue = self.get_mut(port, class)?;
        let mut list = queue.list();
        let node = slab.unlink(&mut list)?;
        let meta = slab.meta(node)?;
        let bytes = frame_bytes(meta.length_bytes);
        queue.packets -= 1;
        queue.bytes_and_port -= bytes << PORT_BITS;
        let spacing = space(meta, queue.release());
        queue.release_ns = spacing.release.whole_ns();
        queue.release_fraction = spacing.release.fraction();
        let next = list.head;
        if next == NONE {
            let after_release_ns = spacing.spaced.since(spacing.release).ceil_ns();
            let after_release_ns = u32::try_from(after_release_ns).unwrap_or(u32::MAX);
            queue.ends_or_spacing = [after_release_ns, low_bits(meta.departure_ns)];
        } else {
            queue.set_list(list);
        }
        if let Some(further) = self.further_mut(port, class) {
            *further -= bytes;
        }
        self.sums.leave(class, one(bytes));
        Some(Unlinked {
            node,
            bytes,
            next,
            spacing,
        })
    }

    /// The second count of the bytes of a further queue; `None` for a first one.
    fn further_mut(&mut self, port: u16, class: u32) -> Option<&mut u64> {
        match self.first.get(class) {
            Some(queue) if queue.port() == port => None,
            _ => self.further_bytes.get_mut(class),
        }
    }

    /// Takes every packet out of the queues of the ports that are `wanted`, and forgets those
    /// queues.
    pub(crate) fn take<P>(
        &mut self,
        wanted: impl Fn(u16) -> bool,
        slab: &mut Slab<P>,
        mut out: impl FnMut(P),
    ) {
        let sums = &mut self.sums;
        let mut empty = |class: u32, queue: &mut Queue| {
            let held = Held {
                bytes: queue.bytes(),
                packets: queue.packets.into(),
            };
            sums.leave(class, held);
            let mut list = queue.list();
            while let Some(payload) = slab.pop(&mut list) {
                out(payload);
            }
            *queue = Queue::default();
        };
        self.first.for_each_mut(|class, queue| {
            if wanted(queue.port()) {
                empty(class, queue);
            }
        });
        self.first.free_idle(|queue| queue.port() == NO_PORT);
        let Self {
            further,
            further_bytes,
            ..
        } = self;
        further.retain(|port, pages| {
            let kept = !wanted(*port);
            if !kept {
                pages.for_each_mut(|class, queue| {
                    if let Some(bytes) = further_bytes.get_mut(class) {
                        *bytes -= queue.bytes();
                    }
                    empty(class, queue);
                });
            }
            kept
        });
        if further.is_empty() {
            further_bytes.clear();
        }
    }
}

/// A packet of so many bytes.
fn one(bytes: u64) -> Held {
    Held { bytes, packets: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_is_half_a_cache_line() {
        assert_eq!(size_of::<Queue>(), 32);
    }
}
