//! A receive ring (TPACKET_V2) shared with the kernel. See `packet(7)` and the kernel's
//! Documentation/networking/packet_mmap.rst.
//!
//! Version 2 and not 3: version 3 hands frames over in blocks, and a block that is not full is
//! handed over when a timer of at least 1 ms fires. Version 2 hands over every frame as it comes.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clock;
use crate::frame::{ChecksumState, Head};
use crate::mapping::Mapping;
use crate::sys;
use crate::train::{Marked, OFFLOAD_HEADER_BYTES, Segmentation};
use prefetch::prefetch;

const TYPE_VLAN: u16 = 0x8100;

/// `TPACKET2_HDRLEN` rounded up as the kernel does it: the earliest place of the frame.
/// Also the room it needs for Ethernet headers before the 16-byte aligned network header, and for
/// the offload header.
const HEADROOM_BYTES: usize = 96 + OFFLOAD_HEADER_BYTES.next_multiple_of(16);

/// One more than the largest memory for one ring, in bytes.
const MAX_RING_BYTES: usize = 1 << 30;

/// Memory the kernel allocates in one piece; larger pieces may not be found.
const BLOCK_BYTES: usize = 1 << 16;

/// Most bytes of a frame that are prefetched: a frame of ordinary length whole.
const PREFETCHED_BYTES: usize = 1_536;

/// The sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSize {
    pub(crate) slot_bytes: usize,
    pub(crate) slots: usize,
    block_bytes: usize,
}

impl RingSize {
    /// The smallest ring that holds `frames` frames of up to `frame_bytes`.
    pub(crate) fn new(frames: usize, frame_bytes: usize) -> Option<RingSize> {
        let slot_bytes = frame_bytes
            .checked_add(HEADROOM_BYTES)?
            .checked_next_power_of_two()?
            .max(256);
        let block_bytes = slot_bytes.max(BLOCK_BYTES);
        let slots_per_block = block_bytes / slot_bytes;
        let slots = frames.max(2).checked_next_multiple_of(slots_per_block)?;
        let size = RingSize {
            slot_bytes,
            slots,
            block_bytes,
        };
        (slots.checked_mul(slot_bytes)? <= MAX_RING_BYTES).then_some(size)
    }

    fn bytes(self) -> usize {
        self.slot_bytes * self.slots
    }
}

/// The ring. Slots are handed to us in order; [`release`](RxRing::release) hands the head back.
pub(crate) struct RxRing {
    mapping: Mapping,
    size: RingSize,
    head: usize,
    /// An offload header precedes each frame.
    offloads: bool,
}

impl RxRing {
    /// Sets up a ring on an unbound packet socket. The mapping keeps the kernel's side alive.
    /// `offloads`: `PACKET_VNET_HDR` is set on the socket.
    pub(crate) fn new(fd: BorrowedFd<'_>, size: RingSize, offloads: bool) -> io::Result<RxRing> {
        sys::set_option(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as libc::c_int,
        )?;
        let request = libc::tpacket_req {
            tp_block_size: narrow(size.block_bytes)?,
            tp_block_nr: narrow(size.bytes() / size.block_bytes)?,
            tp_frame_size: narrow(size.slot_bytes)?,
            tp_frame_nr: narrow(size.slots)?,
        };
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let mapping = Mapping::shared(fd, size.bytes(), 0)?;
        Ok(RxRing {
            mapping,
            size,
            head: 0,
            offloads,
        })
    }

    /// Whether the kernel has handed over the slot at the head. No system call.
    pub(crate) fn has_frame(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The frame at the head, if the kernel has handed it over. No system call.
    pub(crate) fn head(&self) -> Option<Head> {
        let header = self.header_at(self.head)?;
        let status = header.tp_status;
        let frame = self.frame_in_slot(&header);
        let offload = self.offload_before(frame.start);
        let realtime_ns = u64::from(header.tp_sec) * clock::NS_PER_S + u64::from(header.tp_nsec);
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            header.tp_vlan_tpid
        } else {
            TYPE_VLAN
        };
        let [tpid_high, tpid_low] = tpid.to_be_bytes();
        let [tci_high, tci_low] = header.tp_vlan_tci.to_be_bytes();
        Some(Head {
            wire_bytes: header.tp_len as usize,
            captured_bytes: frame.len(),
            start: frame.start,
            stamp_ns: clock::from_stamp_ns(realtime_ns),
            checksum: if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
                ChecksumState::Incomplete(offload.and_then(Marked::parse))
            } else {
                ChecksumState::Complete
            },
            vlan_tag: (status & libc::TP_STATUS_VLAN_VALID != 0)
                .then_some([tpid_high, tpid_low, tci_high, tci_low]),
            segmentation: offload.and_then(Segmentation::parse),
            kept_whole: status & libc::TP_STATUS_COPY != 0,
        })
    }

    /// The header of a slot; `None` when the slot is not ours.
    fn header_at(&self, at: usize) -> Option<libc::tpacket2_hdr> {
        if self.status_at(at).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours until released (seen with Acquire), so the kernel no longer
        // writes to it; it starts with a tpacket2_hdr and slots are 16-byte aligned.
        Some(unsafe { self.slot_at(at).cast::<libc::tpacket2_hdr>().read() })
    }

    /// The offload header before the frame at the head.
    fn offload_before(&self, frame_at: usize) -> Option<&[u8; OFFLOAD_HEADER_BYTES]> {
        if !self.offloads {
            return None;
        }
        let at = frame_at.checked_sub(OFFLOAD_HEADER_BYTES)?;
        self.bytes_at(self.head).get(at..frame_at)?.try_into().ok()
    }

    /// The place of the frame in a slot with this header.
    fn frame_in_slot(&self, header: &libc::tpacket2_hdr) -> Range<usize> {
        let start = usize::from(header.tp_mac).min(self.size.slot_bytes);
        let bytes = (header.tp_snaplen as usize).min(self.size.slot_bytes - start);
        start..start + bytes
    }

    /// The bytes of the slot at the head; `None` when it is not ours.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.has_frame().then(|| self.bytes_at(self.head))
    }

    /// The bytes of a slot that is ours.
    fn bytes_at(&self, at: usize) -> &[u8] {
        // SAFETY: as for `bytes_mut`, which takes `&mut self`, so there is no such borrow now.
        unsafe { std::slice::from_raw_parts(self.slot_at(at), self.size.slot_bytes) }
    }

    /// The bytes of the slot at the head, to change; `None` when it is not ours.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if !self.has_frame() {
            return None;
        }
        // SAFETY: the slot is ours until released, which takes `&mut self` and so ends this borrow;
        // it is slot_bytes long and lies within the mapping.
        Some(unsafe { std::slice::from_raw_parts_mut(self.slot(), self.size.slot_bytes) })
    }

    /// Hands the slot at the head back to the kernel and moves on.
    pub(crate) fn release(&mut self) {
        self.status()
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.head = self.following(self.head);
    }

    /// Prefetches the data that is read after the head: the start of the next frame, and the header of
    /// the one after that. Another processor has written them, so a read takes as long as some hundred
    /// instructions.
    pub(crate) fn prefetch_next(&self) {
        let next = self.following(self.head);
        prefetch(self.status_at(self.following(next)));
        if let Some(header) = self.header_at(next) {
            let frame = self.frame_in_slot(&header);
            let end = frame.end.min(frame.start + PREFETCHED_BYTES);
            prefetch(&self.bytes_at(next)[frame.start..end]);
        }
    }

    fn following(&self, at: usize) -> usize {
        if at + 1 == self.size.slots { 0 } else { at + 1 }
    }

    fn slot(&self) -> *mut u8 {
        self.slot_at(self.head)
    }

    fn slot_at(&self, at: usize) -> *mut u8 {
        debug_assert!(at < self.size.slots);
        // SAFETY: at < slots, so this stays inside the mapping. Slots lie back to back, for a
        // block is a whole number of slots.
        unsafe { self.mapping.base().as_ptr().add(at * self.size.slot_bytes) }
    }

    fn status(&self) -> &AtomicU32 {
        self.status_at(self.head)
    }

    fn status_at(&self, at: usize) -> &AtomicU32 {
        // SAFETY: tp_status is the first field of the slot's header, aligned, mapped as long as
        // self lives, and only touched as an atomic while the kernel may write it.
        unsafe { AtomicU32::from_ptr(self.slot_at(at).cast()) }
    }
}

fn narrow(value: usize) -> io::Result<libc::c_uint> {
    libc::c_uint::try_from(value).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let usual = RingSize::new(4096, 1522).unwrap();
        assert_eq!((usual.slot_bytes, usual.slots), (2048, 4096));
        let jumbo = RingSize::new(100, 9022).unwrap();
        assert_eq!((jumbo.slot_bytes, jumbo.slots), (16384, 100));
        let tiny = RingSize::new(1, 60).unwrap();
        assert_eq!((tiny.slot_bytes, tiny.slots), (256, 256));
        let huge = RingSize::new(4, 70_000).unwrap();
        assert_eq!((huge.slot_bytes, huge.block_bytes), (131_072, 131_072));
        assert_eq!(RingSize::new(usize::MAX, 1522), None);
        assert_eq!(RingSize::new(4096, usize::MAX), None);
        assert_eq!(RingSize::new(1 << 20, 1522), None);
    }
}
