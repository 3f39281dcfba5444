//! Sending: frames are collected and handed to the kernel many at a time.
//!
//! sendmmsg(2) (send(2) for a single frame that leaves at once) and not PACKET_TX_RING: see the
//! crate's documentation for the measurement.
//!
//! Frames that find the socket's memory full (EAGAIN) are kept in order, up to [`KEPT_MAX`], and
//! leave with a later flush: the interface is slower than its port, and the queue belongs into the switch.
//! Other refusals are losses. A queueing discipline that drops a frame (ENOBUFS) may do so on purpose.
//!
//! Segments of trains that follow each other leave as one message, a train ([`Joining`]): first the
//! headers, made when it leaves, then the payloads, each from the buffer of its segment.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::joining::{Joining, MAX_HEADERS_BYTES};
use crate::sys;
use crate::train::OFFLOAD_HEADER_BYTES;

/// Number of immediate retries of a refused frame before it is dropped.
pub(crate) const MAX_RETRIES: u32 = 2;

/// Most frames kept while the kernel takes none: more than a switch hands over before it notices.
const KEPT_MAX: usize = 2_048;

/// The offload header of a frame that is no train.
static NO_OFFLOAD: [u8; OFFLOAD_HEADER_BYTES] = [0; OFFLOAD_HEADER_BYTES];

/// No bytes.
const NO_VECTOR: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Sending of trains.
struct TrainSide {
    /// A socket that takes an offload header before each frame.
    fd: OwnedFd,
    /// Longest segment, without a VLAN tag: the longest frame that the kernel takes.
    longest_bytes: usize,
    /// The trains among the collected frames, each of one segment or more.
    joinings: Vec<Joining>,
    /// Room for the headers of the trains; meaningless between calls.
    headers: Vec<[u8; MAX_HEADERS_BYTES]>,
}

impl TrainSide {
    /// Joins the frame in slot `at` to the last of `groups`, if it is a train that it belongs to.
    /// `timed`: only frames with the same departure time leave together.
    fn join(&mut self, groups: &mut [Group], slots: &[Slot], at: usize, timed: bool) -> bool {
        let Some(last) = groups.last_mut() else {
            return false;
        };
        let joining = last.joining.map(|index| index as usize);
        let (Some(joining), Some(first), Some(next)) = (
            joining.and_then(|index| self.joinings.get_mut(index)),
            slots.get(last.slots.start),
            slots.get(at),
        ) else {
            return false;
        };
        if (timed && first.departure_ns != next.departure_ns)
            || !joining.join(first.bytes(), next.bytes())
        {
            return false;
        }
        last.slots.end = at + 1;
        true
    }

    /// Begins a train with the segment in `frame`. Returns its index; `None`: it cannot be one of several.
    fn begin(&mut self, frame: &[u8]) -> Option<u32> {
        let joining = Joining::begin(frame, self.longest_bytes)?;
        let index = u32::try_from(self.joinings.len()).ok()?;
        self.joinings.push(joining);
        Some(index)
    }
}

/// How a frame leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// A port opened with [`PortOptions::kernel_departures`](crate::PortOptions::kernel_departures) has
    /// the kernel send the frame at this time of [`clock::now_ns`](crate::clock::now_ns)'s clock, at once
    /// if that is over.
    pub departure_ns: u64,
    /// The frame came in a train ([`Frame::in_train`](crate::Frame::in_train)), so it may leave in one.
    pub in_train: bool,
}

/// Frames on their way to the kernel.
pub(crate) struct TxBatch {
    fd: OwnedFd,
    trains: Option<Box<TrainSide>>,
    /// The first `collected` hold a frame each.
    slots: Vec<Slot>,
    collected: usize,
    /// Frames after which they are sent unasked.
    batch: usize,
    /// The kernel had no room for all frames of the last flush.
    stuck: bool,
    /// Frames for which there was no room here since the last flush.
    refused: usize,
    /// The collected frames as they leave, in order.
    groups: Vec<Group>,
    /// One of them is a train.
    has_train: bool,
    /// Kept to save allocations; filled again for every call, meaningless between calls.
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// The departure time of each message, if the kernel sends them at given times; else empty.
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

/// Frames that leave as one message: one, or the segments of a train.
struct Group {
    /// The slots of its frames.
    slots: Range<usize>,
    /// The index of its train; `None`: the frame cannot be part of a train.
    joining: Option<u32>,
}

impl Group {
    /// The train, of two segments or more, if it is one.
    fn train<'a>(&self, joinings: &'a [Joining]) -> Option<&'a Joining> {
        let joining = joinings.get(self.joining? as usize)?;
        debug_assert_eq!(joining.segments(), self.slots.len());
        (joining.segments() > 1).then_some(joining)
    }
}

/// The outcome of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames the kernel took.
    pub sent: usize,
    /// Trains among them, of two or more of these frames.
    pub trains: usize,
    /// Frames the kernel refused (and that are lost).
    pub failed: usize,
    /// The error number of the last refusal (ENOBUFS, ENETDOWN, ...); 0: none was refused.
    pub last_errno: i32,
    /// Times a refused frame was offered again.
    pub retries: usize,
}

impl TxBatch {
    /// `batch`: frames after which they are sent unasked. `timed`: the kernel sends each frame at its
    /// departure time (`SO_TXTIME` is set).
    pub(crate) fn new(fd: OwnedFd, batch: usize, timed: bool) -> TxBatch {
        // SAFETY: all-zero is a valid mmsghdr: no name, no vectors, no control data.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
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
            trains: None,
            slots: std::iter::repeat_with(Slot::default).take(batch).collect(),
            collected: 0,
            batch,
            stuck: false,
            refused: 0,
            groups: Vec::with_capacity(batch),
            has_train: false,
            vectors: vec![NO_VECTOR; batch],
            messages: vec![message; batch],
            departures: vec![departure; if timed { batch } else { 0 }],
        }
    }

    /// Sends trains by another socket, which takes an offload header before each frame.
    /// `longest_bytes`: the longest frame, without a VLAN tag, that the kernel takes.
    pub(crate) fn send_trains(&mut self, fd: OwnedFd, longest_bytes: usize) {
        let capacity = self.slots.len();
        // A message has a header besides its frames.
        self.vectors.resize(2 * capacity, NO_VECTOR);
        self.trains = Some(Box::new(TrainSide {
            fd,
            longest_bytes,
            joinings: Vec::with_capacity(capacity),
            // A train has two frames or more.
            headers: vec![[0; MAX_HEADERS_BYTES]; capacity / 2],
        }));
    }

    pub(crate) fn len(&self) -> usize {
        self.collected
    }

    /// Whether the frames must be sent before another is collected.
    pub(crate) fn is_full(&self) -> bool {
        self.collected >= self.batch && !self.stuck
    }

    /// Whether the kernel had no room for all frames of the last flush.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// A free slot, with all that its frame needs in a call; `None`: there is no room. Beyond a batch, room is
    /// made only when it is needed.
    fn free_slot(&mut self) -> Option<&mut Slot> {
        let most = self.batch.max(KEPT_MAX);
        if self.collected == self.slots.len() && self.collected < most {
            self.slots.push(Slot::default());
            self.messages.extend_from_within(..1);
            if !self.departures.is_empty() {
                self.departures.extend_from_within(..1);
            }
            self.vectors.push(NO_VECTOR);
            if let Some(trains) = &mut self.trains {
                self.vectors.push(NO_VECTOR);
                trains.headers.push([0; MAX_HEADERS_BYTES]);
            }
        }
        self.slots.get_mut(self.collected)
    }

    /// Copies a frame into the batch. The caller has checked that it fits. If there is no room it is
    /// lost, and the next flush counts it.
    pub(crate) fn push(&mut self, frame: &[u8], sending: Sending) {
        if let Some(slot) = self.free_slot() {
            slot.buffer.clear();
            slot.buffer.extend_from_slice(frame);
            self.collect(0..frame.len(), sending);
        } else {
            self.refused += 1;
        }
    }

    /// Takes the frame in `buffer` without copying it: `buffer` becomes another one, with anything
    /// in it. The caller has checked as for [`push`](TxBatch::push).
    pub(crate) fn push_buffer(
        &mut self,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        if let Some(slot) = self.free_slot() {
            mem::swap(&mut slot.buffer, buffer);
            self.collect(frame, sending);
        } else {
            self.refused += 1;
        }
    }

    /// Adds the frame at `frame` of the next slot's buffer to those collected.
    fn collect(&mut self, frame: Range<usize>, sending: Sending) {
        let at = self.collected;
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        slot.frame = frame;
        slot.departure_ns = sending.departure_ns;
        self.collected += 1;
        let mut joining = None;
        if sending.in_train
            && let Some(trains) = &mut self.trains
        {
            let timed = !self.departures.is_empty();
            if trains.join(&mut self.groups, &self.slots, at, timed) {
                self.has_train = true;
                return;
            }
            joining = trains.begin(self.slots.get(at).map_or(&[][..], Slot::bytes));
        }
        self.groups.push(Group {
            slots: at..at + 1,
            joining,
        });
    }

    /// Bytes of the frames collected.
    pub(crate) fn bytes(&self) -> usize {
        let frames = self.slots.iter().take(self.collected);
        frames.map(|slot| slot.frame.len()).sum()
    }

    /// Hands all frames to the kernel, in order, without blocking. Those for which it has no room are kept.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut flushed = Flushed {
            failed: mem::take(&mut self.refused),
            ..Flushed::default()
        };
        if flushed.failed > 0 {
            flushed.last_errno = libc::EAGAIN;
        }
        self.stuck = false;
        let mut next = 0;
        let mut retries = 0;
        while next < self.groups.len() {
            match self.send_from(next) {
                Ok(sent) if sent > 0 => {
                    for group in self.groups.iter().skip(next).take(sent) {
                        flushed.sent += group.slots.len();
                        // A frame that is no train is in a group of its own.
                        flushed.trains += usize::from(group.slots.len() > 1);
                    }
                    next += sent;
                    retries = 0;
                }
                Err(libc::EAGAIN) => {
                    self.stuck = true;
                    break;
                }
                Err(errno) if may_pass(errno) && retries < MAX_RETRIES => {
                    retries += 1;
                    flushed.retries += 1;
                }
                refused => {
                    retries = 0;
                    if !self.take_apart(next) {
                        // (None sent and no error cannot happen; counted as lost rather than tried for
                        // ever.)
                        flushed.last_errno = refused.err().unwrap_or(0);
                        flushed.failed += 1;
                        next += 1;
                    }
                }
            }
        }
        self.keep_from(next);
        flushed
    }

    /// Forgets the groups before the one at `first`, with their frames.
    fn keep_from(&mut self, first: usize) {
        self.groups.drain(..first.min(self.groups.len()));
        let gone = self
            .groups
            .first()
            .map_or(self.collected, |group| group.slots.start);
        if let Some(slots) = self.slots.get_mut(..self.collected) {
            slots.rotate_left(gone);
        }
        self.collected -= gone;
        // Trains are in the order of their groups.
        let trains_gone = self.groups.iter().find_map(|group| group.joining);
        if let Some(trains) = &mut self.trains {
            let all = trains.joinings.len();
            let last_gone = trains_gone.map_or(all, |joining| joining as usize);
            trains.joinings.drain(..last_gone.min(all));
        }
        for group in &mut self.groups {
            group.slots = group.slots.start - gone..group.slots.end - gone;
            group.joining = group
                .joining
                .map(|joining| joining - trains_gone.unwrap_or(0));
        }
        self.has_train = self.groups.iter().any(|group| group.slots.len() > 1);
    }

    /// Makes the segments of a train that the kernel refused single frames. False: it is no train.
    fn take_apart(&mut self, at: usize) -> bool {
        let Some(group) = self.groups.get(at).filter(|group| group.slots.len() > 1) else {
            return false;
        };
        let single = |slot| Group {
            slots: slot..slot + 1,
            joining: None,
        };
        let singles = group.slots.clone().map(single);
        self.groups.splice(at..=at, singles);
        true
    }

    /// Makes one system call for the messages from `first` on. Returns the number of accepted ones, or
    /// the error number for `first`.
    fn send_from(&mut self, first: usize) -> Result<usize, i32> {
        if first + 1 == self.groups.len()
            && self.departures.is_empty()
            && let Some(group) = self
                .groups
                .get(first)
                .filter(|group| group.slots.len() == 1)
            && let Some(slot) = self.slots.get(group.slots.start)
        {
            return match sys::send(self.fd.as_fd(), slot.bytes()) {
                Ok(_) => Ok(1),
                Err(error) => Err(error.raw_os_error()),
            };
        }
        self.send_many(first)
    }

    fn send_many(&mut self, first: usize) -> Result<usize, i32> {
        let groups = self.groups.get(first..).unwrap_or_default();
        // Trains, and with them the other frames of the batch, leave by the socket with offload headers.
        let trains = self.trains.as_deref_mut().filter(|_| self.has_train);
        let has_headers = usize::from(trains.is_some());
        let (fd, joinings, headers) = match trains {
            Some(trains) => (&trains.fd, &trains.joinings[..], &mut trains.headers[..]),
            None => (&self.fd, &[][..], &mut [][..]),
        };
        let mut headers = headers.iter_mut();
        let mut vectors = self.vectors.iter_mut();
        let mut put = |bytes: &[u8]| {
            let vector = vectors.next();
            debug_assert!(
                vector.is_some(),
                "there is room for all frames and a header each"
            );
            if let Some(vector) = vector {
                vector.iov_base = bytes.as_ptr().cast_mut().cast();
                vector.iov_len = bytes.len();
            }
        };
        for (i, (group, message)) in groups.iter().zip(&mut self.messages).enumerate() {
            let slots = self.slots.get(group.slots.clone()).unwrap_or_default();
            let mut payload_at = 0;
            if let Some(train) = group.train(joinings)
                && let (Some(slot), Some(headers)) = (slots.first(), headers.next())
            {
                let bytes = train.write_headers(slot.bytes(), headers);
                put(&headers[..bytes]);
                payload_at = train.payload_at();
            } else if has_headers > 0 {
                debug_assert!(slots.len() == 1, "a train has headers");
                put(&NO_OFFLOAD);
            }
            for slot in slots {
                put(slot.bytes().get(payload_at..).unwrap_or_default());
            }
            if let Some(departure) = self.departures.get_mut(i) {
                departure.departure_ns = slots.first().map_or(0, |slot| slot.departure_ns);
                let header = &mut message.msg_hdr;
                header.msg_control = (&raw mut *departure).cast();
                header.msg_controllen = mem::size_of::<Departure>();
            }
        }
        let mut next = self.vectors.as_mut_ptr();
        for (group, message) in groups.iter().zip(&mut self.messages) {
            let parts = has_headers + group.slots.len();
            message.msg_hdr.msg_iov = next;
            message.msg_hdr.msg_iovlen = parts as _;
            next = next.wrapping_add(parts);
        }
        // SAFETY: as many messages as there are groups, each with the vectors counted above and at most
        // one control message, all in memory owned by self (or static) that lives across the call;
        // sendmmsg only reads the frames.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                groups.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| errno(&io::Error::last_os_error()))
    }
}

/// Whether the same call may succeed at once.
fn may_pass(errno: i32) -> bool {
    matches!(errno, libc::ENOBUFS | libc::EINTR)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A batch for a socket whose other end takes no frame until it is read.
    fn slow(batch: usize) -> (TxBatch, UnixDatagram) {
        let (here, there) = UnixDatagram::pair().expect("sockets");
        there.set_nonblocking(true).expect("a socket");
        (TxBatch::new(here.into(), batch, false), there)
    }

    /// Reads all frames that are there: their numbers.
    fn read(from: &UnixDatagram) -> Vec<u32> {
        let mut frame = [0; 60];
        let mut numbers = Vec::new();
        while let Ok(60) = from.recv(&mut frame) {
            let number = frame.first_chunk().expect("60 bytes");
            numbers.push(u32::from_be_bytes(*number));
        }
        numbers
    }

    fn push(batch: &mut TxBatch, number: u32) {
        let mut frame = [0; 60];
        frame[..4].copy_from_slice(&number.to_be_bytes());
        batch.push(&frame, Sending::default());
    }

    #[test]
    fn frames_that_the_kernel_has_no_room_for_leave_later_in_order() {
        let (mut batch, there) = slow(64);
        let mut sent = 0;
        // More than the other end's queue holds, whatever the system's limit.
        while !batch.is_stuck() {
            for _ in 0..64 {
                push(&mut batch, sent);
                sent += 1;
            }
            assert_eq!(batch.flush().failed, 0);
        }
        let mut received = Vec::new();
        while received.len() < sent as usize {
            let now = read(&there);
            assert!(!now.is_empty(), "{} of {sent}", received.len());
            received.extend(now);
            assert_eq!(batch.flush().failed, 0);
        }
        assert_eq!(received, (0..sent).collect::<Vec<_>>());
        assert!(!batch.is_stuck());
        assert_eq!((batch.len(), batch.bytes()), (0, 0));
    }

    #[test]
    fn frames_beyond_the_room_are_lost_and_counted() {
        let (mut batch, there) = slow(2);
        let (mut offered, mut taken) = (0, 0);
        while !batch.is_stuck() {
            push(&mut batch, offered);
            offered += 1;
            taken += batch.flush().sent;
        }
        // One is kept.
        for _ in 0..KEPT_MAX + 2 {
            push(&mut batch, offered);
            offered += 1;
        }
        assert_eq!(batch.len(), KEPT_MAX);
        let flushed = batch.flush();
        assert_eq!((flushed.sent, flushed.failed), (0, 3));
        assert_eq!(flushed.last_errno, libc::EAGAIN);
        let mut left = KEPT_MAX + taken;
        while left > 0 {
            left -= read(&there).len();
            assert_eq!(batch.flush().failed, 0);
        }
        assert_eq!(batch.len(), 0);
    }
}
