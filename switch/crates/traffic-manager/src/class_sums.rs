//! The backlogs of classes that have queues of other numbers: a queue for each of their flows.
//!
//! A queue counts to one class, that of the latest packet that named one. So a packet changes one
//! sum, and a queue whose class changes moves as a whole.

use crate::paged::Paged;

/// Packets that wait, and their bytes (layer 2 + FCS).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// The class that a queue counts to, and 1; 0 for none.
#[derive(Debug, Clone, Copy, Default)]
struct CountsTo(u32);

/// The sums of classes.
#[derive(Debug, Default)]
pub(crate) struct ClassSums {
    /// By the queue's number.
    of_queue: Paged<CountsTo>,
    /// By class.
    held: Paged<Held>,
}

impl ClassSums {
    /// Packets in the queues of other numbers that count to `class`.
    pub(crate) fn held(&self, class: u32) -> Held {
        self.held.get(class).copied().unwrap_or_default()
    }

    /// The class that the queue counts to.
    fn class_of(&self, queue: u32) -> Option<u32> {
        self.of_queue.get(queue)?.0.checked_sub(1)
    }

    /// Whether the queue counts to another class, or to none.
    pub(crate) fn changes(&self, queue: u32, class: u32) -> bool {
        self.class_of(queue) != Some(class)
    }

    /// Makes a queue that holds `held` count to `class`. Both numbers are bounded by the caller.
    pub(crate) fn set(&mut self, queue: u32, class: u32, held: Held) {
        self.leave(queue, held);
        self.of_queue.create(queue);
        self.held.create(class);
        if let Some(counts_to) = self.of_queue.get_mut(queue) {
            *counts_to = CountsTo(class + 1);
        }
        self.enter(queue, held);
    }

    /// Counts packets that a queue gets.
    pub(crate) fn enter(&mut self, queue: u32, held: Held) {
        if let Some(sum) = self.sum_of(queue) {
            sum.bytes += held.bytes;
            sum.packets += held.packets;
        }
    }

    /// Counts packets that leave a queue.
    pub(crate) fn leave(&mut self, queue: u32, held: Held) {
        if let Some(sum) = self.sum_of(queue) {
            debug_assert!(sum.bytes >= held.bytes && sum.packets >= held.packets);
            sum.bytes = sum.bytes.saturating_sub(held.bytes);
            sum.packets = sum.packets.saturating_sub(held.packets);
        }
    }

    fn sum_of(&mut self, queue: u32) -> Option<&mut Held> {
        self.held.get_mut(self.class_of(queue)?)
    }
}
