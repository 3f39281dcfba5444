//! Sending: frames are collected and handed to the kernel many at a time.
//!
//! sendmmsg(2) (send(2) for a single frame that leaves at once) and not PACKET_TX_RING: see the
//! crate's documentation for the measurement.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::sys;

/// Number of immediate retries of a refused frame before it is dropped.
pub(crate) const MAX_RETRIES: u32 = 2;

/// Frames on their way to the kernel.
pub(crate) struct TxBatch {
    fd: OwnedFd,
    /// The first `collected` hold a frame each.
    slots: Box<[Slot]>,
    collected: usize,
    /// Kept to save allocations; filled again for every call, meaningless between calls.
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// The departure time of each frame, if the kernel sends them at given times; else empty.
    departures: Vec<Departure>,
}

/// A control message (cmsg(3)) of kind `SCM_TXTIME`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Departure {
    header: libc::cmsghdr,
    departure_ns: u64,
}

// The kernel reads this layout, by CMSG_LEN and CMSG_SPACE of eight bytes.
const _: () = assert!(mem::size_of::<Departure>() == mem::size_of::<libc::cmsghdr>() + 8);

// SAFETY: the raw pointers in `vectors` and `messages` (control data included) are set and used
// within `send_many` only.
unsafe impl Send for TxBatch {}

/// A frame, or room for one.
#[derive(Default)]
struct Slot {
    buffer: Vec<u8>,
    /// The place of the frame in the buffer.
    frame: Range<usize>,
    departure_ns: u64,
}

impl Slot {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.frame.clone()).unwrap_or_default()
    }
}

/// The outcome of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames the kernel took.
    pub sent: usize,
    /// Frames the kernel refused (and that are lost).
    pub failed: usize,
    /// The error number of the last refusal (ENOBUFS, ENETDOWN, ...); 0: none was refused.
    pub last_errno: i32,
    /// Times a refused frame was offered again.
    pub retries: usize,
}

impl TxBatch {
    /// `timed`: the kernel sends each frame at its departure time (`SO_TXTIME` is set).
    pub(crate) fn new(fd: OwnedFd, capacity: usize, timed: bool) -> TxBatch {
        // SAFETY: all-zero is a valid mmsghdr: no name, no vectors, no control data.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        let vector = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let departure = Departure {
            header: libc::cmsghdr {
                cmsg_len: mem::size_of::<Departure>(),
                cmsg_level: libc::SOL_SOCKET,
                cmsg_type: libc::SCM_TXTIME,
            },
            departure_ns: 0,
        };
        TxBatch {
            fd,
            slots: std::iter::repeat_with(Slot::default)
                .take(capacity)
                .collect(),
            collected: 0,
            vectors: vec![vector; capacity],
            messages: vec![message; capacity],
            departures: vec![departure; if timed { capacity } else { 0 }],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.collected
    }

    pub(crate) fn is_full(&self) -> bool {
        self.collected == self.slots.len()
    }

    /// Copies a frame into the batch. The caller has checked that it fits and that there is room.
    pub(crate) fn push(&mut self, frame: &[u8], departure_ns: u64) {
        if let Some(slot) = self.slots.get_mut(self.collected) {
            slot.buffer.clear();
            slot.buffer.extend_from_slice(frame);
            slot.frame = 0..frame.len();
            slot.departure_ns = departure_ns;
            self.collected += 1;
        }
    }

    /// Takes the frame in `buffer` without copying it: `buffer` becomes another one, with anything
    /// in it. The caller has checked as for [`push`](TxBatch::push).
    pub(crate) fn push_buffer(
        &mut self,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        departure_ns: u64,
    ) {
        if let Some(slot) = self.slots.get_mut(self.collected) {
            mem::swap(&mut slot.buffer, buffer);
            slot.frame = frame;
            slot.departure_ns = departure_ns;
            self.collected += 1;
        }
    }

    /// Bytes of the frames collected.
    pub(crate) fn bytes(&self) -> usize {
        let frames = self.slots.iter().take(self.collected);
        frames.map(|slot| slot.frame.len()).sum()
    }

    /// Hands all frames to the kernel, in order, without blocking; the batch is empty afterwards.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut flushed = Flushed::default();
        let mut next = 0;
        let mut retries = 0;
        while next < self.collected {
            match self.send_from(next) {
                Ok(0) | Err(0) => {
                    // Cannot happen; counted as lost rather than tried for ever.
                    flushed.failed += 1;
                    next += 1;
                }
                Ok(sent) => {
                    flushed.sent += sent;
                    next += sent;
                    retries = 0;
                }
                Err(errno) if may_pass(errno) && retries < MAX_RETRIES => {
                    retries += 1;
                    flushed.retries += 1;
                }
                Err(errno) => {
                    flushed.failed += 1;
                    flushed.last_errno = errno;
                    next += 1;
                    retries = 0;
                }
            }
        }
        self.collected = 0;
        flushed
    }

    /// Makes one system call for the frames from `first` on. Returns the number of accepted frames, or
    /// the error number for `first`.
    fn send_from(&mut self, first: usize) -> Result<usize, i32> {
        if first + 1 == self.collected && self.departures.is_empty() {
            return match sys::send(self.fd.as_fd(), self.slots[first].bytes()) {
                Ok(_) => Ok(1),
                Err(error) => Err(error.raw_os_error()),
            };
        }
        self.send_many(first)
    }

    fn send_many(&mut self, first: usize) -> Result<usize, i32> {
        let count = self.collected - first;
        for (i, slot) in self.slots[first..self.collected].iter().enumerate() {
            let frame = slot.bytes();
            self.vectors[i].iov_base = frame.as_ptr().cast_mut().cast();
            self.vectors[i].iov_len = frame.len();
            let header = &mut self.messages[i].msg_hdr;
            header.msg_iov = &raw mut self.vectors[i];
            header.msg_iovlen = 1;
            if let Some(departure) = self.departures.get_mut(i) {
                departure.departure_ns = slot.departure_ns;
                header.msg_control = (&raw mut *departure).cast();
                header.msg_controllen = mem::size_of::<Departure>();
            }
        }
        // SAFETY: `count` messages with one vector and at most one control message each, all in
        // memory owned by self that lives across the call; sendmmsg only reads the frames.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| errno(&io::Error::last_os_error()))
    }
}

/// Whether the same call may succeed a moment later.
fn may_pass(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::EINTR)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}
