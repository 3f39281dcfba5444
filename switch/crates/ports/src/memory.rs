//! Memory in huge pages.
//!
//! Without huge pages, inserting and releasing packets of a million classes takes 14 % longer (343 ns
//! instead of 300 ns a packet; bench `insert_release`, `pair/spread/1000000`). The memory is in
//! collections of several crates: nodes of packets, queues, contexts, tables. In stable Rust, `Vec`
//! and hash tables take their memory only from the process's allocator. To call `madvise` for a few
//! arenas instead would need collections of our own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use rustix::mm::{madvise, mmap_anonymous, mremap, munmap};

/// A huge page of most machines. Allocations of at least this size are made of whole ones.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The system's allocator for small allocations; large ones are mappings of their own. The allocator
/// asks the kernel to back these with huge pages (`madvise(2)`, `MADV_HUGEPAGE`); without huge pages
/// they have ordinary ones.
///
/// Packets of a million classes touch memory in no order. With pages of 4 KB, each touch also misses
/// the processor's translation caches, and often has to read the page table from memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct HugePages;

/// The bytes of the mapping for a large allocation; `None`: it is the system allocator's.
fn mapping_bytes(bytes: usize, align: usize) -> Option<usize> {
    if bytes < HUGE_PAGE_BYTES || align > HUGE_PAGE_BYTES {
        return None;
    }
    bytes.checked_next_multiple_of(HUGE_PAGE_BYTES)
}

/// A fresh mapping that begins at a huge page's boundary, all zeros; null if there is none.
fn map(bytes: usize) -> *mut u8 {
    let Some(wide) = bytes.checked_add(HUGE_PAGE_BYTES) else {
        return ptr::null_mut();
    };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else is touched.
    let mapped = unsafe { mmap_anonymous(ptr::null_mut(), wide, access, MapFlags::PRIVATE) };
    let Ok(begin) = mapped.map(<*mut _>::cast::<u8>) else {
        return ptr::null_mut();
    };
    let before = begin.align_offset(HUGE_PAGE_BYTES);
    let aligned = begin.wrapping_add(before);
    unmap(begin, before);
    unmap(aligned.wrapping_add(bytes), HUGE_PAGE_BYTES - before);
    advise(aligned, bytes);
    aligned
}

/// Unmaps a part of a mapping. If the kernel refuses, the part stays mapped, unused.
fn unmap(begin: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the callers pass whole pages of a mapping made here that nothing uses.
        let _ = unsafe { munmap(begin.cast(), bytes) };
    }
}

/// Asks for huge pages. A refusal is of no consequence.
fn advise(begin: *mut u8, bytes: usize) {
    // SAFETY: a mapping made here; the advice changes no byte read from it or written to it.
    let _ = unsafe { madvise(begin.cast(), bytes, Advice::LinuxHugepage) };
}

// SAFETY: a block is the system allocator's, asked with the arguments as they came, or a mapping of
// its own, which size and alignment tell for as long as it lives (`mapping_bytes`). A mapping is
// aligned to huge pages when made, and to pages, which no caller's alignment exceeds, when moved.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match mapping_bytes(layout.size(), layout.align()) {
            Some(bytes) => map(bytes),
            // SAFETY: the caller keeps the contract, which is the same.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match mapping_bytes(layout.size(), layout.align()) {
            Some(bytes) => map(bytes),
            // SAFETY: as above.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, begin: *mut u8, layout: Layout) {
        match mapping_bytes(layout.size(), layout.align()) {
            Some(bytes) => unmap(begin, bytes),
            // SAFETY: as above.
            None => unsafe { System.dealloc(begin, layout) },
        }
    }

    unsafe fn realloc(&self, begin: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let (from, to) = (
            mapping_bytes(layout.size(), layout.align()),
            mapping_bytes(bytes, layout.align()),
        );
        match (from, to) {
            // SAFETY: as above.
            (None, None) => unsafe { System.realloc(begin, layout, bytes) },
            (Some(from), Some(to)) if layout.align() <= MOVED_ALIGN => {
                // SAFETY: `begin` is a mapping of `from` bytes that the caller gives up.
                let moved = unsafe { mremap(begin.cast(), from, to, MremapFlags::MAYMOVE) };
                let Ok(moved) = moved else {
                    return ptr::null_mut();
                };
                advise(moved.cast(), to);
                moved.cast()
            }
            _ => {
                // SAFETY: the caller guarantees that `bytes`, rounded up to the alignment, does not
                // overflow, and it is not 0.
                let new = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
                // SAFETY: as above.
                let to = unsafe { self.alloc(new) };
                if !to.is_null() {
                    // SAFETY: both are at least so long, and a new block overlaps no other.
                    unsafe { ptr::copy_nonoverlapping(begin, to, layout.size().min(bytes)) };
                    // SAFETY: the caller gives it up.
                    unsafe { self.dealloc(begin, layout) };
                }
                to
            }
        }
    }
}

/// Alignment of a mapping that the kernel has moved, at least, for any page size of the machine.
const MOVED_ALIGN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows and shrinks a block through all sizes: its bytes stay the same.
    #[test]
    fn blocks_keep_their_bytes_as_they_grow_and_shrink() {
        let sizes = [
            100,
            3 << 20,
            1 << 20,
            9 << 20,
            (2 << 20) - 1,
            2 << 20,
            40 << 20,
            5 << 20,
            7,
        ];
        for align in [1, 64, 1 << 14] {
            let mut layout = Layout::from_size_align(sizes[0], align).expect("a layout");
            // SAFETY: not of size 0.
            let mut begin = unsafe { HugePages.alloc_zeroed(layout) };
            assert!(!begin.is_null());
            let mark = |begin: *mut u8, bytes: usize| {
                for (at, value) in [(0, 1), (bytes / 2, 2), (bytes - 1, 3)] {
                    // SAFETY: within the block.
                    unsafe { begin.add(at).write(value) };
                }
            };
            mark(begin, sizes[0]);
            for bytes in &sizes[1..] {
                let before = layout.size();
                // SAFETY: the block is of this allocator and layout, and `bytes` is not 0.
                begin = unsafe { HugePages.realloc(begin, layout, *bytes) };
                assert!(!begin.is_null());
                assert_eq!(begin.align_offset(align), 0);
                layout = Layout::from_size_align(*bytes, align).expect("a layout");
                // SAFETY: the first byte is within the block.
                assert_eq!(unsafe { begin.read() }, 1);
                if before < *bytes {
                    // SAFETY: within the block, which has grown.
                    assert_eq!(unsafe { begin.add(before - 1).read() }, 3);
                }
                mark(begin, *bytes);
            }
            // SAFETY: the block is of this allocator and layout.
            unsafe { HugePages.dealloc(begin, layout) };
        }
    }

    #[test]
    fn large_blocks_are_zeroed_and_begin_at_a_huge_page() {
        let layout = Layout::from_size_align(5 << 20, 64).expect("a layout");
        for _ in 0..3 {
            // SAFETY: not of size 0.
            let begin = unsafe { HugePages.alloc_zeroed(layout) };
            assert_eq!(begin.addr() % HUGE_PAGE_BYTES, 0);
            for at in (0..5 << 20).step_by(4096) {
                // SAFETY: within the block.
                assert_eq!(unsafe { begin.add(at).replace(1) }, 0);
            }
            // SAFETY: the block is of this allocator and layout.
            unsafe { HugePages.dealloc(begin, layout) };
        }
    }
}
