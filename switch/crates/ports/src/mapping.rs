//! Memory shared with the kernel.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping, readable and writable, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The memory that the kernel shares through `fd`, from `offset` on.
    pub(crate) fn shared(fd: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else is touched.
        let base = unsafe { mmap(null_mut(), bytes, READ_WRITE, MapFlags::SHARED, fd, offset) };
        Mapping::new(base?, bytes)
    }

    /// Fresh memory, zeroed and resident.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, READ_WRITE, flags) };
        Mapping::new(base?, bytes)
    }

    fn new(base: *mut c_void, bytes: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; the owner of a Mapping ends its borrows first.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
