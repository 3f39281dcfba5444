//! The two sides of a ring with one producer and one consumer, in memory that they share. The other side
//! may be the kernel: `ports` has the rings of AF_XDP sockets.
//!
//! Indices count on for ever, modulo 2^32; the entry of an index is at its value modulo the ring's
//! size, a power of two. Each side writes its own index only. `tests/orders.rs` tries all orders of the
//! two sides' steps with loom.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// The memory of a ring.
pub trait Memory {
    /// An entry of the ring.
    type Entry: Copy;

    /// Entries that the ring holds, a power of two.
    fn size(&self) -> u32;

    /// The index up to which the producer has put entries in.
    fn produced(&self) -> &AtomicU32;

    /// The index up to which the consumer has given entries back.
    fn consumed(&self) -> &AtomicU32;

    /// Reads the entry of an index, modulo the ring's size. [`Consumer`] calls it for entries that are
    /// produced and not given back, which the producer leaves alone.
    fn read(&self, index: u32) -> Self::Entry;

    /// Writes the entry of an index, modulo the ring's size. [`Producer`] calls it for entries that are
    /// given back and not produced, which the consumer leaves alone.
    fn write(&self, index: u32, entry: Self::Entry);
}

/// The side that takes entries.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    next: u32,
}

impl<M: Memory> Consumer<M> {
    /// The only consumer of a ring; it goes on where the memory says.
    pub fn new(memory: M) -> Self {
        let next = memory.consumed().load(Ordering::Relaxed);
        Self { memory, next }
    }

    /// Whether there is no entry to take.
    pub fn is_empty(&self) -> bool {
        self.memory.produced().load(Ordering::Acquire) == self.next
    }

    /// The next entry, which stays.
    pub fn peek(&self) -> Option<M::Entry> {
        (!self.is_empty()).then(|| self.memory.read(self.next))
    }

    /// Gives the entry just peeked at back.
    pub fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.memory.consumed().store(self.next, Ordering::Release);
    }
}

/// The side that puts entries in.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    next: u32,
    published: u32,
}

impl<M: Memory> Producer<M> {
    /// The only producer of a ring; it goes on where the memory says.
    pub fn new(memory: M) -> Self {
        let next = memory.produced().load(Ordering::Relaxed);
        Self {
            memory,
            next,
            published: next,
        }
    }

    /// The memory of the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Puts an entry in, unseen until [`publish`](Self::publish). False: the ring is full.
    pub fn push(&mut self, entry: M::Entry) -> bool {
        if self.next.wrapping_sub(self.consumed()) >= self.memory.size() {
            return false;
        }
        self.memory.write(self.next, entry);
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Entries put in and not published.
    pub fn unpublished(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Hands the entries put in to the consumer.
    pub fn publish(&mut self) {
        self.published = self.next;
        let produced = self.memory.produced();
        produced.store(self.published, Ordering::Release);
    }

    /// The index up to which the consumer has taken entries.
    pub fn consumed(&self) -> u32 {
        self.memory.consumed().load(Ordering::Acquire)
    }

    /// Entries published that the consumer has not taken.
    pub fn pending(&self) -> u32 {
        self.published.wrapping_sub(self.consumed())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// The memory of a ring of two entries, for one thread.
    #[derive(Clone)]
    struct Two(Rc<(AtomicU32, AtomicU32, [Cell<u32>; 2])>);

    impl Two {
        /// A ring that has been used for `index` entries.
        fn at(index: u32) -> Self {
            let index = || AtomicU32::new(index);
            Self(Rc::new((index(), index(), [Cell::new(0), Cell::new(0)])))
        }
    }

    impl Memory for Two {
        type Entry = u32;

        fn size(&self) -> u32 {
            2
        }

        fn produced(&self) -> &AtomicU32 {
            &self.0.0
        }

        fn consumed(&self) -> &AtomicU32 {
            &self.0.1
        }

        fn read(&self, index: u32) -> u32 {
            self.0.2[(index % 2) as usize].get()
        }

        fn write(&self, index: u32, entry: u32) {
            self.0.2[(index % 2) as usize].set(entry);
        }
    }

    #[test]
    fn entries_pass_in_order_also_where_indices_wrap() {
        let memory = Two::at(u32::MAX - 2);
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory);
        for number in 0..8 {
            assert!(producer.push(number) && producer.push(100 + number));
            producer.publish();
            for expected in [number, 100 + number] {
                assert_eq!(consumer.peek(), Some(expected));
                consumer.advance();
            }
            assert_eq!(consumer.peek(), None);
        }
    }

    #[test]
    fn what_is_not_published_is_not_seen_and_a_full_ring_takes_nothing() {
        let memory = Two::at(0);
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        assert!(consumer.is_empty());
        assert_eq!((producer.unpublished(), producer.pending()), (2, 0));
        producer.publish();
        assert_eq!((producer.unpublished(), producer.pending()), (0, 2));
        assert_eq!(consumer.peek(), Some(1));
        assert!(!producer.push(3), "the entry is not given back");
        consumer.advance();
        assert_eq!((producer.consumed(), producer.pending()), (1, 1));
        assert!(producer.push(3));
    }
}
