//! The rings of an AF_XDP socket: single producer, single consumer, one side the kernel's. See the
//! kernel's Documentation/networking/af_xdp.rst.
//!
//! Indices count on for ever, modulo 2^32; the entry of an index is at its value modulo the ring's
//! size, a power of two. Each side writes its own index only.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::XdpRingOffset;

use crate::mapping::Mapping;
use crate::sys::Plain;

/// A ring as mapped. `size` entries.
pub(crate) struct Ring<T> {
    mapping: Mapping,
    producer_at: usize,
    consumer_at: usize,
    flags_at: usize,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: it owns its mapping, and entries are plain data.
unsafe impl<T: Plain> Send for Ring<T> {}

impl<T: Plain> Ring<T> {
    /// Maps a ring of `fd` that has `size` entries.
    pub(crate) fn map(
        fd: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let offset = |bytes: u64| usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData);
        let entries_at = offset(offsets.desc)?;
        let bytes = entries_at + size as usize * size_of::<T>();
        let mapping = Mapping::shared(fd, bytes, page_offset)?;
        let ring = Ring {
            producer_at: offset(offsets.producer)?,
            consumer_at: offset(offsets.consumer)?,
            flags_at: offset(offsets.flags.ok_or(io::ErrorKind::Unsupported)?)?,
            // SAFETY: entries_at < bytes, so this stays inside the mapping.
            entries: unsafe { mapping.base().add(entries_at) }.cast(),
            mapping,
            size,
        };
        let words = [ring.producer_at, ring.consumer_at, ring.flags_at];
        let whole =
            |at: usize| at.is_multiple_of(size_of::<u32>()) && at + size_of::<u32>() <= bytes;
        if !size.is_power_of_two() || !words.into_iter().all(whole) || !ring.entries.is_aligned() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(ring)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `map` made sure that the word lies in the mapping, aligned; both sides touch it as
        // an atomic only, and it lives as long as self.
        unsafe { AtomicU32::from_ptr(self.mapping.base().add(at).as_ptr().cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the remainder is below `size`, and `size` entries lie in the mapping.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }.as_ptr()
    }
}

/// A ring that we take from: received frames, frames sent.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
}

impl<T: Plain> Consumer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Consumer { ring, next: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let produced = self
            .ring
            .word(self.ring.producer_at)
            .load(Ordering::Acquire);
        produced == self.next
    }

    /// The next entry, which stays.
    pub(crate) fn peek(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the kernel has produced this entry (seen with Acquire) and leaves it alone until
        // our index passes it. Any bits are a value of plain data.
        Some(unsafe { self.ring.entry(self.next).read() })
    }

    /// Gives the entry just peeked at back.
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        let consumer = self.ring.word(self.ring.consumer_at);
        consumer.store(self.next, Ordering::Release);
    }
}

/// A ring that we put into: buffers to be filled, frames to be sent.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    next: u32,
    published: u32,
}

impl<T: Plain> Producer<T> {
    pub(crate) fn new(ring: Ring<T>) -> Self {
        Producer {
            ring,
            next: 0,
            published: 0,
        }
    }

    /// Puts an entry in, unseen until [`publish`](Producer::publish). False: the ring is full.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.consumed()) >= self.ring.size {
            return false;
        }
        // SAFETY: the kernel's index has passed this entry (seen with Acquire), and it does not look
        // at it before our index says so.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Entries put in and not published.
    pub(crate) fn unpublished(&self) -> u32 {
        self.next.wrapping_sub(self.published)
    }

    /// Hands the entries put in to the kernel.
    pub(crate) fn publish(&mut self) {
        self.published = self.next;
        let producer = self.ring.word(self.ring.producer_at);
        producer.store(self.published, Ordering::Release);
    }

    /// The index up to which the kernel has taken entries.
    pub(crate) fn consumed(&self) -> u32 {
        self.ring
            .word(self.ring.consumer_at)
            .load(Ordering::Acquire)
    }

    /// Entries published that the kernel has not taken.
    pub(crate) fn pending(&self) -> u32 {
        self.published.wrapping_sub(self.consumed())
    }

    /// Whether the kernel wants a system call before it takes more.
    pub(crate) fn needs_wakeup(&self) -> bool {
        let flags = self.ring.word(self.ring.flags_at).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
