//! The memory of an AF_XDP socket's rings, of which one side is the kernel's. See the kernel's
//! Documentation/networking/af_xdp.rst. Our sides are those of `rings`.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rings::Memory;
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

    /// Whether the kernel wants a system call before it takes more.
    pub(crate) fn needs_wakeup(&self) -> bool {
        let flags = self.word(self.flags_at).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T: Plain> Memory for Ring<T> {
    type Entry = T;

    fn size(&self) -> u32 {
        self.size
    }

    fn produced(&self) -> &AtomicU32 {
        self.word(self.producer_at)
    }

    fn consumed(&self) -> &AtomicU32 {
        self.word(self.consumer_at)
    }

    fn read(&self, index: u32) -> T {
        // SAFETY: the kernel has produced this entry (seen with Acquire) and leaves it alone until our
        // index passes it. Any bits are a value of plain data.
        unsafe { self.entry(index).read() }
    }

    fn write(&self, index: u32, entry: T) {
        // SAFETY: the kernel's index has passed this entry (seen with Acquire), and it does not look
        // at it before our index says so.
        unsafe { self.entry(index).write(entry) };
    }
}

/// A ring that we take from: received frames, frames sent.
pub(crate) type Consumer<T> = rings::Consumer<Ring<T>>;

/// A ring that we put into: buffers to be filled, frames to be sent.
pub(crate) type Producer<T> = rings::Producer<Ring<T>>;
