//! Frames by AF_XDP (see the kernel's Documentation/networking/af_xdp.rst): rings for both directions
//! over one piece of memory. The kernel copies frames into and out of it. If the interface's driver
//! supports it, the hardware reads and writes the memory directly.
//!
//! # Arrival times
//! AF_XDP has no receive stamps. The port's XDP program reads the clock when it sees a frame, and
//! puts the reading in front of it as metadata. Some drivers have no room for metadata: then the
//! stamp is zero, and the time at which the port looks at the frame is its arrival time.
//!
//! # Frames that the kernel does not send
//! Frames that the kernel has cannot be taken back. If it does not send them (the interface is down),
//! the port must ask it again until it does. Until then the port refuses further frames, so at most one
//! batch waits.
//!
//! # Frames longer than a place
//! They have several parts, each in a place of its own (multi-buffer, Linux 6.6): all but the last have the
//! flag XDP_PKT_CONTD. A port whose frames may be that long copies the parts of each received frame together.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{self, SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::clock;
use crate::frame::{ChecksumState, Head, Lost};
use crate::mapping::Mapping;
use crate::opening::Opening;
use crate::options::{PortError, PortMode, PortOptions};
use crate::sys;
use crate::tx::{Flushed, MAX_RETRIES};
use crate::xdp_program::{self, Place, Program, STAMP_BYTES};
use crate::xdp_ring::{Consumer, Producer, Ring};

/// Number of retries, and the pause between them, for a busy queue.
const BIND_RETRIES: u32 = 20;
const BIND_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

/// Bytes that the kernel keeps free in front of each received frame (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: usize = 256;
/// Sizes that a frame's place may have.
const SLOT_BYTES: [usize; 2] = [2048, 4096];
/// Most memory for received frames, bytes: as much as a packet socket's ring may have.
const MAX_RX_BYTES: usize = 1 << 30;
/// Most places for frames being sent.
const MAX_TX_SLOTS: usize = 1 << 16;
/// The queue whose frames are received, and that frames are sent to.
const QUEUE: u32 = 0;
/// Socket option (Linux 6.17): frames the kernel sends in one call; 32 without it.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// An AF_XDP socket with its memory, its rings and its program.
pub(crate) struct XdpDriver {
    rx: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    memory: Mapping,
    slot_bytes: usize,
    max_frame_bytes: usize,
    /// The frame at the head of a port whose frames may have several parts.
    gathered: Option<Box<Gathered>>,
    /// Places for frames to be sent.
    free: Vec<u64>,
    tx_batch_frames: usize,
    /// Frames in `tx` since the last flush.
    collected: usize,
    collected_bytes: usize,
    /// Frames there was no room for since the last flush.
    refused: usize,
    /// The index in `tx` behind what was put there last.
    put_until: u32,
    /// The index behind the last part of each frame that has not been counted as taken by the kernel.
    frame_ends: VecDeque<u32>,
    /// The error number for which the kernel did not take all frames at the last flush; 0: it did.
    blocked_errno: i32,
    zero_copy: bool,
    /// The kernel's count of losses at the last call of [`XdpDriver::lost`].
    last_reported: Lost,
    /// Closed first: then nothing more comes to the socket. None for a port that only sends.
    program: Option<Program>,
    socket: OwnedFd,
    /// A packet socket that receives nothing; it keeps the interface promiscuous.
    control: OwnedFd,
}

impl XdpDriver {
    /// `control`: a packet socket that is not bound.
    pub(crate) fn open(
        opening: &Opening<'_>,
        control: OwnedFd,
        options: &PortOptions,
        max_frame_bytes: usize,
    ) -> Result<XdpDriver, PortError> {
        let (slot_bytes, frame_slots) = slots_for(max_frame_bytes);
        let has_parts = frame_slots > 1;
        if options.receive {
            check_queues(opening, control.as_fd())?;
        }
        let socket = open_socket(opening)?;
        let fd = socket.as_fd();
        // This comes before the request for memory, which fails without rights with another error.
        let map = xdp_program::create_map()
            .map_err(|source| refused(opening, "make a map for its XDP program", source))?;
        let rx_slots = ring_size(options.rx_frames * frame_slots);
        let tx_slots = ring_size(
            (options.tx_buffer_bytes / slot_bytes)
                .clamp(options.tx_batch_frames * frame_slots, MAX_TX_SLOTS),
        );
        if rx_slots as usize * slot_bytes > MAX_RX_BYTES {
            return Err(PortError::RingTooLarge {
                name: opening.name.to_owned(),
                frames: options.rx_frames,
                frame_bytes: max_frame_bytes,
            });
        }
        let memory = register_memory(opening, fd, (rx_slots + tx_slots) as usize, slot_bytes)?;
        opening.set_send_buffer(fd, options.tx_buffer_bytes)?;
        let Rings {
            rx,
            mut fill,
            tx,
            completion,
        } = Rings::open(opening, fd, rx_slots, tx_slots)?;
        let slot = |i: u32| u64::from(i) * slot_bytes as u64;
        for i in 0..rx_slots {
            fill.push(slot(i));
        }
        fill.publish();
        let batch = libc::c_int::try_from(options.tx_batch_frames).unwrap_or(libc::c_int::MAX);
        // An older kernel sends 32 in one call, so a full batch takes two calls.
        let _ = sys::set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, batch);
        // The kernel itself falls back to copying if the driver needs it.
        bind(fd, opening.index, has_parts).map_err(|source| match source.raw_os_error() {
            // The flag for frames of several parts is unknown.
            Some(libc::EINVAL) if has_parts => PortError::TooLongForXdp {
                name: opening.name.to_owned(),
                frame_bytes: max_frame_bytes,
                most: SLOT_BYTES[1] - HEADROOM_BYTES,
            },
            _ => refused(opening, "bind the AF_XDP socket", source),
        })?;
        let how = opening.step("ask how frames get there", sockopt::xdp_options(fd))?;
        if options.promiscuous {
            opening.receive_all_addresses(control.as_fd())?;
        }
        // Last: from here on frames come in.
        let program = if options.receive {
            let attached = Program::attach(map.as_fd(), fd, opening.index, has_parts);
            let step = "put an XDP program on it (needs Linux 5.9)";
            Some(attached.map_err(|source| refused(opening, step, source))?)
        } else {
            None
        };
        Ok(XdpDriver {
            rx,
            fill,
            tx,
            completion,
            memory,
            slot_bytes,
            max_frame_bytes,
            gathered: has_parts.then(Box::default),
            free: (rx_slots..rx_slots + tx_slots).rev().map(slot).collect(),
            tx_batch_frames: options.tx_batch_frames,
            collected: 0,
            collected_bytes: 0,
            refused: 0,
            put_until: 0,
            frame_ends: VecDeque::new(),
            blocked_errno: 0,
            zero_copy: how.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY),
            last_reported: Lost::default(),
            program,
            socket,
            control,
        })
    }

    pub(crate) fn mode(&self) -> PortMode {
        PortMode::AfXdp {
            in_driver: self
                .program
                .as_ref()
                .is_none_or(|program| program.place == Place::Driver),
            zero_copy: self.zero_copy,
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.gathered.as_ref().is_some_and(|frame| frame.is_whole) || !self.rx.is_empty()
    }

    pub(crate) fn head(&mut self) -> Option<Head> {
        if self.gathered.is_some() {
            return self.gather();
        }
        let received = self.rx.peek()?;
        let (slot, start) = self.place(received.addr)?;
        let wire_bytes = received.len as usize;
        let stamp_ns = stamp_before(self.slot(slot)?, start);
        Some(head_of(
            wire_bytes,
            start..start + wire_bytes.min(self.slot_bytes - start),
            stamp_ns,
        ))
    }

    /// Copies the parts of the frame at the head together; `None`: not all of them are there.
    fn gather(&mut self) -> Option<Head> {
        let mut frame = self.gathered.take()?;
        while !frame.is_whole
            && let Some(part) = self.rx.peek()
        {
            self.rx.advance();
            if let Some((slot, start)) = self.place(part.addr) {
                let bytes = self.slot(slot).unwrap_or_default();
                if frame.places.is_empty() {
                    frame.stamp_ns = stamp_before(bytes, start);
                }
                let room = self.max_frame_bytes.saturating_sub(frame.bytes.len());
                let end = start + (part.len as usize).min(room);
                let taken = bytes.get(start..end).unwrap_or_default();
                frame.bytes.extend_from_slice(taken);
                frame.places.push(slot);
            }
            frame.wire_bytes += part.len as usize;
            frame.is_whole = part.options & libc::XDP_PKT_CONTD == 0;
        }
        let captured = 0..frame.bytes.len();
        let head = head_of(frame.wire_bytes, captured, frame.stamp_ns);
        let is_whole = frame.is_whole;
        self.gathered = Some(frame);
        is_whole.then_some(head)
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        if let Some(frame) = &self.gathered {
            return Some(&frame.bytes);
        }
        let (slot, _) = self.place(self.rx.peek()?.addr)?;
        self.slot(slot)
    }

    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.gathered.is_none() {
            let (slot, _) = self.place(self.rx.peek()?.addr)?;
            return self.slot_mut(slot);
        }
        self.gathered.as_mut().map(|frame| &mut frame.bytes[..])
    }

    pub(crate) fn release(&mut self) {
        if let Some(frame) = &mut self.gathered {
            for place in frame.places.drain(..) {
                // There is room, as below.
                self.fill.push(place);
            }
            self.fill.publish();
            frame.bytes.clear();
            (frame.wire_bytes, frame.is_whole) = (0, false);
            return;
        }
        let Some(received) = self.rx.peek() else {
            return;
        };
        self.rx.advance();
        // There is room: the ring has an entry for each of these places.
        self.fill
            .push(received.addr - received.addr % self.slot_bytes as u64);
        self.fill.publish();
    }

    pub(crate) fn lost(&mut self) -> Lost {
        let Ok(kernel) = sockopt::xdp_statistics(&self.socket) else {
            return Lost::default();
        };
        // The kernel also counts frames without a free place as dropped. All other dropped frames were
        // too long for their place, which none is if it may have several.
        let no_place = match self.gathered {
            Some(_) => kernel.rx_dropped,
            None => kernel.rx_fill_ring_empty_descs.unwrap_or(0),
        };
        let now = Lost {
            ring_full: kernel.rx_ring_full.unwrap_or(0) + no_place,
            oversize: kernel.rx_dropped.saturating_sub(no_place),
        };
        let before = std::mem::replace(&mut self.last_reported, now);
        Lost {
            ring_full: now.ring_full.saturating_sub(before.ring_full),
            oversize: now.oversize.saturating_sub(before.oversize),
        }
    }

    pub(crate) fn collected(&self) -> usize {
        self.collected + self.refused
    }

    pub(crate) fn collected_bytes(&self) -> usize {
        self.collected_bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.collected() >= self.tx_batch_frames
    }

    /// Whether the kernel holds frames back that another flush may make it take.
    pub(crate) fn is_stuck(&self) -> bool {
        self.tx.pending() > 0 && (!self.zero_copy || self.tx.memory().needs_wakeup())
    }

    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.collected_bytes += frame.len();
        let parts = frame.len().div_ceil(self.slot_bytes);
        if self.free.len() < parts {
            self.take_back_sent();
        }
        if self.blocked_errno != 0 || self.free.len() < parts {
            self.refused += 1;
            return;
        }
        let mut left = frame.chunks(self.slot_bytes).peekable();
        while let Some(part) = left.next() {
            self.put(part, left.peek().is_some());
        }
        self.collected += 1;
        self.frame_ends.push_back(self.put_until);
    }

    /// Copies a part of a frame to a free place and into the ring, which has an entry for each place.
    /// `continues`: another part follows.
    fn put(&mut self, part: &[u8], continues: bool) {
        let Some(slot) = self.free.pop() else {
            return;
        };
        let to = self
            .slot_mut(slot)
            .and_then(|bytes| bytes.get_mut(..part.len()));
        if let Some(to) = to {
            to.copy_from_slice(part);
        }
        self.tx.push(libc::xdp_desc {
            addr: slot,
            len: u32::try_from(part.len()).unwrap_or(u32::MAX),
            options: if continues { libc::XDP_PKT_CONTD } else { 0 },
        });
        self.put_until = self.put_until.wrapping_add(1);
    }

    pub(crate) fn flush(&mut self) -> Flushed {
        let mut flushed = Flushed {
            failed: std::mem::take(&mut self.refused),
            ..Flushed::default()
        };
        if flushed.failed > 0 {
            flushed.last_errno = match self.blocked_errno {
                0 => libc::ENOBUFS,
                errno => errno,
            };
        }
        (self.collected, self.collected_bytes) = (0, 0);
        self.tx.publish();
        self.blocked_errno = 0;
        let mut lost = 0;
        let mut stuck = 0;
        // In copy mode, the kernel takes frames only within the call, up to a limit. Otherwise it goes
        // on by itself after it is woken.
        while self.is_stuck() {
            let before = self.tx.pending();
            let error = sys::send(self.socket.as_fd(), &[]).err();
            if self.tx.pending() < before {
                stuck = 0;
                if error == Some(Errno::BUSY) {
                    lost += 1; // the last one taken: the interface did not want it
                    flushed.last_errno = libc::EBUSY;
                }
            } else if stuck < MAX_RETRIES && !self.zero_copy {
                stuck += 1;
                flushed.retries += 1;
            } else {
                self.blocked_errno = error.map_or(0, Errno::raw_os_error);
                break;
            }
        }
        flushed.sent = self.count_taken().saturating_sub(lost);
        flushed.failed += lost;
        self.take_back_sent();
        flushed
    }

    /// Frames of which the kernel has taken the last part since the last call.
    fn count_taken(&mut self) -> usize {
        let consumed = self.tx.consumed();
        let is_taken = |end: &u32| consumed.wrapping_sub(*end).cast_signed() >= 0;
        let mut taken = 0;
        while self.frame_ends.front().is_some_and(is_taken) {
            self.frame_ends.pop_front();
            taken += 1;
        }
        taken
    }

    /// Places of frames that have been sent are free again.
    fn take_back_sent(&mut self) {
        while let Some(slot) = self.completion.peek() {
            self.completion.advance();
            self.free.push(slot);
        }
    }

    /// The beginning of the place that holds `address`, and the offset of `address` in it.
    fn place(&self, address: u64) -> Option<(u64, usize)> {
        let start = address % self.slot_bytes as u64;
        Some((address - start, usize::try_from(start).ok()?))
    }

    /// The offset of a place, if all of it is in the memory.
    fn offset(&self, slot: u64) -> Option<usize> {
        let at = usize::try_from(slot).ok()?;
        (at.checked_add(self.slot_bytes)? <= self.memory.bytes()).then_some(at)
    }

    fn slot(&self, slot: u64) -> Option<&[u8]> {
        let at = self.offset(slot)?;
        // SAFETY: the place lies in the memory, which lives as long as self. It is that of the frame at the
        // head, so that the kernel leaves it alone until it is released, which takes `&mut self` and
        // so ends this borrow.
        Some(unsafe {
            std::slice::from_raw_parts(self.memory.base().add(at).as_ptr(), self.slot_bytes)
        })
    }

    fn slot_mut(&mut self, slot: u64) -> Option<&mut [u8]> {
        let at = self.offset(slot)?;
        // SAFETY: as for `slot`; or the place is one of the free ones, of which the kernel knows
        // nothing until it is in the ring of frames to be sent.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.memory.base().add(at).as_ptr(), self.slot_bytes)
        })
    }
}

/// The rings of a socket.
struct Rings {
    rx: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
}

impl Rings {
    fn open(
        opening: &Opening<'_>,
        fd: BorrowedFd<'_>,
        rx_slots: u32,
        tx_slots: u32,
    ) -> Result<Rings, PortError> {
        let set_up = sockopt::set_xdp_umem_fill_ring_size(fd, rx_slots)
            .and_then(|()| sockopt::set_xdp_rx_ring_size(fd, rx_slots))
            .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(fd, tx_slots))
            .and_then(|()| sockopt::set_xdp_tx_ring_size(fd, tx_slots));
        opening.step("set up the rings", set_up)?;
        let at = opening.step("find the rings", sockopt::xdp_mmap_offsets(fd))?;
        let map = || {
            let fill = Ring::map(fd, xdp::XDP_UMEM_PGOFF_FILL_RING, &at.fr, rx_slots)?;
            let completion = Ring::map(fd, xdp::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, tx_slots)?;
            io::Result::Ok(Rings {
                rx: Consumer::new(Ring::map(fd, xdp::XDP_PGOFF_RX_RING, &at.rx, rx_slots)?),
                fill: Producer::new(fill),
                tx: Producer::new(Ring::map(fd, xdp::XDP_PGOFF_TX_RING, &at.tx, tx_slots)?),
                completion: Consumer::new(completion),
            })
        };
        opening.step("map the rings", map())
    }
}

/// A received frame whose parts are copied together.
#[derive(Debug, Default)]
struct Gathered {
    /// The frame, or its beginning if the port does not take it.
    bytes: Vec<u8>,
    /// Length of the parts that have come.
    wire_bytes: usize,
    stamp_ns: Option<u64>,
    /// Places of the parts that have come.
    places: Vec<u64>,
    /// The last part has come.
    is_whole: bool,
}

/// The head of a frame that is at `captured` of [`XdpDriver::bytes`].
fn head_of(wire_bytes: usize, captured: Range<usize>, stamp_ns: Option<u64>) -> Head {
    Head {
        wire_bytes,
        captured_bytes: captured.len(),
        start: captured.start,
        stamp_ns: stamp_ns.unwrap_or_else(clock::now_ns),
        checksum: ChecksumState::Unmarked,
        vlan_tag: None,
        segmentation: None,
        kept_whole: false,
    }
}

/// Size of the places for frames of up to `max_frame_bytes`, and how many of them a received frame needs
/// at most.
fn slots_for(max_frame_bytes: usize) -> (usize, usize) {
    let needed = |slot_bytes: usize| max_frame_bytes.div_ceil(slot_bytes - HEADROOM_BYTES);
    let [_, longest] = SLOT_BYTES;
    let slot_bytes = SLOT_BYTES.into_iter().find(|slot| needed(*slot) == 1);
    let slot_bytes = slot_bytes.unwrap_or(longest);
    (slot_bytes, needed(slot_bytes))
}

/// Refuses an interface with several receive queues: only frames of [`QUEUE`] would be received.
fn check_queues(opening: &Opening<'_>, control: BorrowedFd<'_>) -> Result<(), PortError> {
    let c_name = opening.step("read its name", sys::c_name(opening.name))?;
    // A driver that does not say has one. If not, binding is refused.
    match sys::receive_queues(control, &c_name).unwrap_or(1) {
        0 | 1 => Ok(()),
        queues => Err(PortError::ManyQueues {
            name: opening.name.to_owned(),
            queues,
        }),
    }
}

fn open_socket(opening: &Opening<'_>) -> Result<OwnedFd, PortError> {
    sys::xdp_socket().map_err(|source| match source.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => PortError::NoXdp {
            name: opening.name.to_owned(),
        },
        _ => refused(opening, "open an AF_XDP socket", source),
    })
}

/// Memory for frames, shared with the kernel.
fn register_memory(
    opening: &Opening<'_>,
    fd: BorrowedFd<'_>,
    slots: usize,
    slot_bytes: usize,
) -> Result<Mapping, PortError> {
    let bytes = slots * slot_bytes;
    let memory = opening.step("get memory for frames", Mapping::anonymous(bytes))?;
    let region = XdpUmemReg {
        addr: memory.base().as_ptr().expose_provenance() as u64,
        len: bytes as u64,
        chunk_size: slot_bytes as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    opening.step(
        "register memory for frames (is 'ulimit -l' too low?)",
        sockopt::set_xdp_umem_reg(fd, region),
    )?;
    Ok(memory)
}

/// The program's stamp in front of the frame that begins at `start` of its place; `None`: none.
fn stamp_before(slot: &[u8], start: usize) -> Option<u64> {
    let at = start.checked_sub(STAMP_BYTES)?;
    let stamp = slot.get(at..start)?.try_into().ok()?;
    Some(u64::from_ne_bytes(stamp)).filter(|&ns| ns != 0)
}

/// Binds to the interface's queue. The kernel releases a closed socket's queue a moment after the close,
/// so a port that is opened again at once finds the queue busy and retries. `has_parts`: frames may have several
/// parts.
fn bind(fd: BorrowedFd<'_>, interface_index: i32, has_parts: bool) -> io::Result<()> {
    let index = u32::try_from(interface_index).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    flags.set(SocketAddrXdpFlags::XDP_USE_SG, has_parts);
    let address = SocketAddrXdp::new(flags, index, QUEUE);
    let mut tries = 0;
    loop {
        let bound = rustix::net::bind(fd, &address);
        if bound != Err(Errno::BUSY) || tries == BIND_RETRIES {
            return Ok(bound?);
        }
        tries += 1;
        std::thread::sleep(BIND_AGAIN);
    }
}

/// An error of a step that takes the rights of XDP, or the interface to itself.
fn refused(opening: &Opening<'_>, step: &'static str, source: io::Error) -> PortError {
    let name = opening.name.to_owned();
    match source.raw_os_error() {
        _ if xdp_program::is_occupied(&source) => PortError::XdpOccupied { name },
        Some(libc::EPERM | libc::EACCES) => PortError::XdpNotPermitted { name },
        _ => PortError::Refused { name, step, source },
    }
}

fn ring_size(entries: usize) -> u32 {
    // Options are checked: far below the greatest.
    u32::try_from(entries.next_power_of_two()).unwrap_or(1 << 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_nothing_was_put_into_has_no_stamp() {
        let mut slot = [0; 512];
        assert_eq!(stamp_before(&slot, HEADROOM_BYTES), None);
        slot[HEADROOM_BYTES - STAMP_BYTES..HEADROOM_BYTES].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(stamp_before(&slot, HEADROOM_BYTES), Some(77));
        assert_eq!(stamp_before(&slot, STAMP_BYTES - 1), None);
        assert_eq!(stamp_before(&slot, slot.len() + 1), None);
    }
}
