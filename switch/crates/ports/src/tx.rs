//! Sending: frames are collected and handed to the kernel many at a time.
//!
//! sendmmsg(2) (send(2) for a single frame that leaves at once) and not PACKET_TX_RING: see the
//! crate's documentation for the measurement.
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
    headers: Box<[[u8; MAX_HEADERS_BYTES]]>,
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
    slots: Box<[Slot]>,
    collected: usize,
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
    /// `timed`: the kernel sends each frame at its departure time (`SO_TXTIME` is set).
    pub(crate) fn new(fd: OwnedFd, capacity: usize, timed: bool) -> TxBatch {
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
            slots: std::iter::repeat_with(Slot::default)
                .take(capacity)
                .collect(),
            collected: 0,
            groups: Vec::with_capacity(capacity),
            has_train: false,
            vectors: vec![NO_VECTOR; capacity],
            messages: vec![message; capacity],
            departures: vec![departure; if timed { capacity } else { 0 }],
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
            headers: vec![[0; MAX_HEADERS_BYTES]; capacity / 2].into(),
        }));
    }

    pub(crate) fn len(&self) -> usize {
        self.collected
    }

    pub(crate) fn is_full(&self) -> bool {
        self.collected == self.slots.len()
    }

    /// Copies a frame into the batch. The caller has checked that it fits and that there is room.
    pub(crate) fn push(&mut self, frame: &[u8], sending: Sending) {
        if let Some(slot) = self.slots.get_mut(self.collected) {
            slot.buffer.clear();
            slot.buffer.extend_from_slice(frame);
            self.collect(0..frame.len(), sending);
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
        if let Some(slot) = self.slots.get_mut(self.collected) {
            mem::swap(&mut slot.buffer, buffer);
            self.collect(frame, sending);
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

    /// Hands all frames to the kernel, in order, without blocking; the batch is empty afterwards.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut flushed = Flushed::default();
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
        self.collected = 0;
        self.groups.clear();
        if let Some(trains) = &mut self.trains {
            trains.joinings.clear();
        }
        self.has_train = false;
        flushed
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

/// Whether the same call may succeed a moment later.
fn may_pass(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::EINTR)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}
