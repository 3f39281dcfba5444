//! A port: an interface of the machine as the switch sees it.

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use tracing::warn;

use crate::checksum;
use crate::clock;
use crate::driver::Driver;
use crate::frame::{ChecksumState, Head};
use crate::link_state::{LinkState, link_state};
use crate::opening::Opening;
use crate::options::{MAX_RX_FRAMES, PortDriver, PortError, PortMode, PortOptions};
use crate::packet::PacketDriver;
use crate::sys;
use crate::train::{OFFLOAD_HEADER_BYTES, Train};
use crate::tx::{Flushed, Sending};
use crate::watch::Watch;
use crate::xdp::XdpDriver;

/// An Ethernet header: two addresses and a type. Shorter frames are refused.
pub const MIN_FRAME_BYTES: usize = 14;
/// Bytes of a VLAN tag.
const VLAN_TAG_BYTES: usize = 4;
/// Both addresses. A tag follows them.
const ADDRESSES_BYTES: usize = 12;
/// Larger than any frame an interface can have: an IP packet and its headers.
const MAX_FRAME_BYTES: usize = 65_535 + MIN_FRAME_BYTES + 2 * VLAN_TAG_BYTES;
const MAX_TX_BATCH: usize = 1024; // UIO_MAXIOV: the most that sendmmsg takes

/// A receive stamp may be this far ahead of the caller's `now`, which was read before the frame came. If
/// it is further ahead, the clock is read again: the stamp is of the future if CLOCK_REALTIME was
/// stepped and the step is not yet known.
const MAX_AHEAD_NS: u64 = 1_000_000;

/// The reason why a frame was not accepted for sending. Counted in [`PortStatistics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefused {
    /// Longer than the port's longest frame.
    #[error("frame of {bytes} bytes, the port takes up to {max_bytes}")]
    Oversize {
        /// Length of the frame.
        bytes: usize,
        /// [`Port::max_frame_bytes`].
        max_bytes: usize,
    },
    /// Shorter than an Ethernet header.
    #[error("frame of {bytes} bytes has no Ethernet header")]
    Runt {
        /// Length of the frame.
        bytes: usize,
    },
}

/// Counters of a port since it was opened. Nothing is lost without being counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames delivered by [`Port::receive`].
    pub rx_frames: u64,
    /// Their bytes, without FCS.
    pub rx_bytes: u64,
    /// Frames lost because the ring, or the room for frames of several segments, was full (drop cause
    /// `rx-ring-full`).
    pub rx_ring_full: u64,
    /// Frames longer than the port takes, dropped (drop cause `oversize`): mostly the senders'
    /// segmentation offload on a port that does not take it, or in a tunnel of a kind that it does not take.
    pub rx_oversize: u64,
    /// Frames of several segments (TSO, GSO, GRO), taken apart. Their segments are in `rx_frames`.
    pub rx_trains: u64,
    /// Frames without a whole Ethernet header, dropped (drop cause `parser-error`).
    pub rx_runt: u64,
    /// Transport checksums completed in software: the senders have checksum offload on.
    pub rx_checksums_completed: u64,
    /// Frames with an incomplete checksum that could not be completed (neither TCP, UDP nor
    /// ICMPv6); delivered unchanged.
    pub rx_checksums_unfinished: u64,
    /// VLAN tags the kernel had taken out, put back.
    pub rx_vlan_tags_restored: u64,
    /// Frames whose stamp was wrong and was replaced: after a step of the clock, or stamped out of
    /// order on two CPUs.
    pub rx_stamps_repaired: u64,
    /// Frames the kernel took, segments of trains one by one.
    pub tx_frames: u64,
    /// Trains the kernel took. Their segments are in `tx_frames`.
    pub tx_trains: u64,
    /// Bytes of frames handed to the kernel, without FCS, refused ones included.
    pub tx_bytes: u64,
    /// Frames the kernel refused (drop cause `tx-failed`).
    pub tx_failed: u64,
    /// Times a refused frame was offered again.
    pub tx_retries: u64,
    /// Frames not taken because they are longer than the port's longest (drop cause `oversize`).
    pub tx_oversize: u64,
    /// Frames not taken because they are shorter than an Ethernet header.
    pub tx_runt: u64,
    /// The kernel's reason for the last of `tx_failed`, as an error number; 0: none.
    pub tx_last_errno: i32,
}

impl PortStatistics {
    /// The counters of an interface of which one port receives, with these counters, and another one
    /// sends.
    #[must_use]
    pub fn with_sending(self, sending: PortStatistics) -> PortStatistics {
        PortStatistics {
            tx_frames: sending.tx_frames,
            tx_trains: sending.tx_trains,
            tx_bytes: sending.tx_bytes,
            tx_failed: sending.tx_failed,
            tx_retries: sending.tx_retries,
            tx_oversize: sending.tx_oversize,
            tx_runt: sending.tx_runt,
            tx_last_errno: sending.tx_last_errno,
            ..self
        }
    }
}

/// A received frame, without FCS, with its VLAN tag, its checksum complete. Dropping it hands its
/// place in the ring back to the kernel.
pub struct Frame<'a> {
    port: &'a mut Port,
    place: Place,
    /// The time when the kernel received it, in ns on [`clock::now_ns`]'s clock. It is never before that
    /// of the previous frame on this port.
    pub arrival_ns: u64,
    /// It is a segment of a train.
    pub in_train: bool,
}

impl Frame<'_> {
    /// The frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let place = self.place.range();
        match self.place {
            Place::Slot(..) => {
                let slot = self.port.driver.bytes();
                slot.and_then(|slot| slot.get(place)).unwrap_or_default()
            }
            Place::Whole(..) | Place::Train(..) => self.port.train.bytes(place),
        }
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.port.release_ready();
    }
}

/// The first and last byte of a frame, and where they are.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the slot at the head of the ring.
    Slot(usize, usize),
    /// A frame longer than a slot: in the room for a train.
    Whole(usize, usize),
    /// In the train that is under way.
    Train(usize, usize),
}

impl Place {
    fn range(self) -> Range<usize> {
        let (Place::Slot(start, end) | Place::Whole(start, end) | Place::Train(start, end)) = self;
        start..end
    }
}

/// The next frame, made ready for delivery.
#[derive(Clone, Copy, Debug)]
struct Ready {
    place: Place,
    arrival_ns: u64,
}

/// An interface opened for raw frames, by AF_PACKET or by AF_XDP. No call blocks.
///
/// Receiving makes no system call. Sending makes one per [`flush`](Port::flush).
pub struct Port {
    name: String,
    c_name: CString,
    index: i32,
    mac: [u8; 6],
    max_frame_bytes: usize,
    /// Longer frames are taken once the interface's MTU allows them.
    follows_mtu: bool,
    kernel_departures: bool,
    driver: Driver,
    /// The frame of several segments whose segments are delivered now.
    train: Train,
    ready: Option<Ready>,
    /// The ready frame has been given out as a [`Frame`].
    delivered: bool,
    last_arrival_ns: u64,
    statistics: PortStatistics,
    warned_oversize: bool,
    warned_send: bool,
}

impl Port {
    /// Opens `interface` in the network namespace of the calling thread. Rights: see [`PortDriver`].
    ///
    /// An interface that is down is opened all the same, with a warning in the log: it works from
    /// the moment it is brought up (see [`link_state`](Port::link_state)). It is never brought up
    /// by this crate.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn open(interface: &str, options: &PortOptions) -> Result<Port, PortError> {
        check_options(interface, options)?;
        let no_such = || PortError::NoSuchInterface {
            name: interface.to_owned(),
            existing: sys::interface_names(),
        };
        let c_name = sys::c_name(interface).map_err(|_| no_such())?;
        let opening = Opening {
            name: interface,
            index: sys::interface_index(&c_name).ok_or_else(no_such)?,
        };

        let fd = opening.step("open a packet socket", sys::packet_socket())?;
        let (hardware_type, mac) = opening.step(
            "read the hardware address",
            sys::interface_hardware(fd.as_fd(), &c_name),
        )?;
        if hardware_type != libc::ARPHRD_ETHER && hardware_type != libc::ARPHRD_LOOPBACK {
            return Err(PortError::NotEthernet {
                name: interface.to_owned(),
                hardware_type,
            });
        }
        let mtu = opening.step("read the MTU", sys::interface_mtu(fd.as_fd(), &c_name))?;
        let max_frame_bytes = options
            .max_frame_bytes
            .unwrap_or_else(|| longest_frame_bytes(mtu));

        let driver = match options.driver {
            PortDriver::AfPacket => Driver::Packet(Box::new(PacketDriver::open(
                &opening,
                fd,
                options,
                max_frame_bytes,
                mtu + MIN_FRAME_BYTES,
            )?)),
            PortDriver::AfXdp => {
                let driver = XdpDriver::open(&opening, fd, options, max_frame_bytes)?;
                Driver::Xdp(Box::new(driver))
            }
        };
        let _ = clock::realtime_offset_ns(); // measured now and not at the first frame

        let port = Port {
            name: interface.to_owned(),
            c_name,
            index: opening.index,
            mac,
            max_frame_bytes,
            follows_mtu: options.max_frame_bytes.is_none()
                && options.offloads
                && options.driver == PortDriver::AfPacket,
            kernel_departures: options.kernel_departures,
            driver,
            train: Train::default(),
            ready: None,
            delivered: false,
            last_arrival_ns: 0,
            statistics: PortStatistics::default(),
            warned_oversize: false,
            warned_send: false,
        };
        if port.link_state() == LinkState::Down {
            let _ = port.take_error(); // binding to it left one
            warn!("interface '{interface}' is down; the port works once it is up");
        }
        Ok(port)
    }

    /// The next received frame, if there is one. Makes no system call. `now_ns` is the caller's
    /// latest reading of the clock. A stamp that is more than 100 ms after it is wrong, and becomes
    /// `now_ns`.
    ///
    /// Frames come in the order in which the kernel received them. Dropping the [`Frame`] makes room
    /// for another.
    pub fn receive(&mut self, now_ns: u64) -> Option<Frame<'_>> {
        if self.delivered {
            self.release_ready(); // the last frame was forgotten, not dropped
        }
        let ready = self.make_ready(now_ns)?;
        self.driver.prefetch_next();
        self.delivered = true;
        self.statistics.rx_frames += 1;
        self.statistics.rx_bytes += ready.place.range().len() as u64;
        Some(Frame {
            port: self,
            place: ready.place,
            arrival_ns: ready.arrival_ns,
            in_train: matches!(ready.place, Place::Train(..)),
        })
    }

    /// Arrival time of the frame that [`receive`](Port::receive) would return: for merging ports in
    /// order of arrival.
    pub fn next_arrival_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.delivered {
            self.release_ready();
        }
        self.make_ready(now_ns).map(|ready| ready.arrival_ns)
    }

    /// Whether a frame may be there, at the cost of two memory reads.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.train.has_segment() || self.driver.has_frame()
    }

    /// Takes a frame (without FCS) for sending. It is copied; it leaves at the next
    /// [`flush`](Port::flush), or at once with all collected before it when the batch is full. A
    /// frame shorter than 60 bytes is sent unchanged (the driver of a real interface pads it).
    ///
    /// # Errors
    /// See [`SendRefused`]; nothing is sent.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), SendRefused> {
        self.send_as(frame, Sending::default())
    }

    /// As [`send`](Port::send). If the frame and those before it are segments of one flow that a train
    /// can have, and came in trains, they leave as a train: as one frame that the kernel or the receiver
    /// takes apart into these frames, byte for byte.
    ///
    /// # Errors
    /// As [`send`](Port::send).
    pub fn send_as(&mut self, frame: &[u8], sending: Sending) -> Result<(), SendRefused> {
        self.make_room_for(frame.len())?;
        self.driver.push(frame, sending);
        Ok(())
    }

    /// Whether the kernel sends frames at the times that come with them.
    #[must_use]
    pub fn has_kernel_departures(&self) -> bool {
        self.kernel_departures
    }

    /// As [`send_as`](Port::send_as), of the frame at `frame` of `buffer`, without copying it: `buffer`
    /// is exchanged for another one, of any length and with anything in it.
    ///
    /// # Errors
    /// See [`SendRefused`]; nothing is sent.
    pub fn send_buffer_as(
        &mut self,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) -> Result<(), SendRefused> {
        self.make_room_for(frame.len())?;
        self.driver.push_buffer(buffer, frame, sending);
        Ok(())
    }

    /// Refuses a frame of this length, or makes sure that there is room for it.
    fn make_room_for(&mut self, bytes: usize) -> Result<(), SendRefused> {
        if !self.takes(bytes) {
            self.statistics.tx_oversize += 1;
            return Err(SendRefused::Oversize {
                bytes,
                max_bytes: self.max_frame_bytes,
            });
        }
        if bytes < MIN_FRAME_BYTES {
            self.statistics.tx_runt += 1;
            return Err(SendRefused::Runt { bytes });
        }
        if self.driver.is_full() {
            self.flush();
        }
        Ok(())
    }

    /// Hands the collected frames to the kernel, in one system call unless it refuses some; none
    /// when there are none. Frames that the kernel has no room for wait for another flush
    /// ([`is_stuck`](Port::is_stuck)). A frame that it refuses for another reason is dropped and counted,
    /// after two more offers if the reason may pass at once. Of a refused train each segment is offered by
    /// itself.
    pub fn flush(&mut self) -> Flushed {
        if self.driver.collected() == 0 && !self.driver.is_stuck() {
            return Flushed::default();
        }
        let bytes = self.driver.collected_bytes();
        let flushed = self.driver.flush();
        self.statistics.tx_bytes += bytes.saturating_sub(self.driver.collected_bytes()) as u64;
        self.statistics.tx_frames += flushed.sent as u64;
        self.statistics.tx_trains += flushed.trains as u64;
        self.statistics.tx_failed += flushed.failed as u64;
        self.statistics.tx_retries += flushed.retries as u64;
        if flushed.failed > 0 {
            self.statistics.tx_last_errno = flushed.last_errno;
            self.warn_send(flushed.last_errno);
        }
        flushed
    }

    /// Whether frames wait that the kernel did not take at the last [`flush`](Port::flush). The
    /// caller must flush again. There is room for some 2,000; frames beyond that are lost, and
    /// counted as refused.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.driver.is_stuck()
    }

    /// Frames collected and not yet handed to the kernel.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.driver.collected()
    }

    /// The counters. Asks the kernel for lost frames (one system call).
    pub fn statistics(&mut self) -> PortStatistics {
        let lost = self.driver.lost();
        self.statistics.rx_ring_full += lost.ring_full;
        self.statistics.rx_oversize += lost.oversize;
        self.statistics
    }

    /// State of the interface (one or two system calls).
    #[must_use]
    pub fn link_state(&self) -> LinkState {
        link_state(self.driver.control(), &self.c_name, self.index)
    }

    /// Watches the interface from another thread. Only for AF_PACKET.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn watch(&self) -> io::Result<Watch> {
        Ok(Watch {
            c_name: self.c_name.clone(),
            index: self.index,
            socket: self.driver.socket().try_clone_to_owned()?,
        })
    }

    /// The counters, without the kernel's of frames that the ring had no room for since the last call
    /// of [`statistics`](Port::statistics).
    #[must_use]
    pub fn counters(&self) -> PortStatistics {
        self.statistics
    }

    /// Takes the pending error of the socket, as it must be after [`Waiter`](crate::Waiter)
    /// reported one: "network is down" when the interface went down or away.
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        let pending = rustix::net::sockopt::socket_error(self.driver.socket());
        let error = pending.unwrap_or_else(Err).err()?;
        Some(error.into())
    }

    /// Name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hardware address of the interface.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The way in which the port gets its frames.
    #[must_use]
    pub fn mode(&self) -> PortMode {
        match &self.driver {
            Driver::Packet(_) => PortMode::AfPacket,
            Driver::Xdp(driver) => driver.mode(),
        }
    }

    /// Longest frame received and sent, bytes without FCS.
    #[must_use]
    pub fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    /// Whether the port takes a frame of this length. The MTU is read again before a frame is refused:
    /// p4-utils, for one, raises it after the start of the switch.
    fn takes(&mut self, bytes: usize) -> bool {
        if bytes > self.max_frame_bytes
            && self.follows_mtu
            && let Ok(mtu) = sys::interface_mtu(self.driver.control(), &self.c_name)
        {
            self.max_frame_bytes = self.max_frame_bytes.max(longest_frame_bytes(mtu));
        }
        bytes <= self.max_frame_bytes
    }

    /// Makes the frame at the head of the ring ready for delivery. Drops and counts frames that
    /// cannot be delivered.
    fn make_ready(&mut self, now_ns: u64) -> Option<Ready> {
        if self.ready.is_some() {
            return self.ready;
        }
        loop {
            if let Some(segment) = self.train.next_segment() {
                self.ready = Some(Ready {
                    place: Place::Train(segment.start, segment.end),
                    arrival_ns: self.train.arrival_ns,
                });
                return self.ready;
            }
            let head = self.driver.head()?;
            if head.segmentation.is_some() {
                self.begin_train(&head, now_ns);
            } else if let Some(place) = self.prepare(&head) {
                if matches!(place, Place::Whole(..)) {
                    self.driver.release();
                }
                self.ready = Some(Ready {
                    place,
                    arrival_ns: self.stamp(&head, now_ns),
                });
                return self.ready;
            }
            self.driver.release();
        }
    }

    /// Begins with the segments of the frame at the head, or drops it.
    fn begin_train(&mut self, head: &Head, now_ns: u64) {
        let room = self.train.room();
        let whole = if head.kept_whole {
            self.driver.take_whole(room)
        } else if head.captured_bytes < head.wire_bytes {
            // The frame found the socket's queue full.
            self.statistics.rx_ring_full += 1;
            return;
        } else {
            let slot = self.driver.bytes().unwrap_or_default();
            let frame = slot.get(head.start..head.start + head.wire_bytes);
            let at = OFFLOAD_HEADER_BYTES;
            frame.and_then(|frame| {
                room.get_mut(at..at + frame.len())?.copy_from_slice(frame);
                Some(frame.len())
            })
        };
        let arrival_ns = self.stamp(head, now_ns);
        let begun = whole
            .zip(head.segmentation)
            .is_some_and(|(bytes, of)| self.train.begin(bytes, of, head.vlan_tag, arrival_ns));
        if begun && self.takes(self.train.longest_bytes()) {
            self.statistics.rx_trains += 1;
            self.statistics.rx_vlan_tags_restored += u64::from(head.vlan_tag.is_some());
        } else {
            self.train.end();
            self.statistics.rx_oversize += 1;
            self.warn_oversize(head.wire_bytes);
        }
    }

    /// The arrival time of the frame at the head.
    fn stamp(&mut self, head: &Head, now_ns: u64) -> u64 {
        let now_ns = if head.stamp_ns > now_ns.saturating_add(MAX_AHEAD_NS) {
            clock::now_ns()
        } else {
            now_ns
        };
        let arrival_ns = plausible(head.stamp_ns, self.last_arrival_ns, now_ns);
        self.statistics.rx_stamps_repaired += u64::from(arrival_ns != head.stamp_ns);
        self.last_arrival_ns = arrival_ns;
        arrival_ns
    }

    /// Checks the frame of one segment at the head, and completes it. `None`: it is dropped.
    fn prepare(&mut self, head: &Head) -> Option<Place> {
        let whole_bytes = if head.kept_whole {
            self.driver.take_whole(self.train.room())
        } else {
            Some(head.captured_bytes)
        };
        let tag_bytes = head.vlan_tag.map_or(0, |tag| tag.len());
        if whole_bytes.is_none() || !self.takes(head.wire_bytes + tag_bytes) {
            self.statistics.rx_oversize += 1;
            self.warn_oversize(head.wire_bytes);
            return None;
        }
        if whole_bytes != Some(head.wire_bytes) {
            // The frame is longer than a slot, and found the socket's queue full.
            self.statistics.rx_ring_full += 1;
            return None;
        }
        if head.kept_whole {
            let start = OFFLOAD_HEADER_BYTES;
            let (at, length) = complete(self.train.room(), start, head, &mut self.statistics)?;
            Some(Place::Whole(at, at + length))
        } else {
            let slot = self.driver.bytes_mut()?;
            let (at, length) = complete(slot, head.start, head, &mut self.statistics)?;
            Some(Place::Slot(at, at + length))
        }
    }

    /// Makes room for the frame after the ready one.
    fn release_ready(&mut self) {
        self.delivered = false;
        if let Some(Ready {
            place: Place::Slot(..),
            ..
        }) = self.ready.take()
        {
            self.driver.release();
        }
    }

    fn warn_oversize(&mut self, bytes: usize) {
        if self.warned_oversize {
            return;
        }
        self.warned_oversize = true;
        warn!(
            "interface '{}': dropped a frame of {bytes} bytes, the port takes up to {}: either the \
             MTU of the sender is larger, or the frame is one of several segments that the port does \
             not take apart (offload=off, or a tunnel other than VXLAN); turn the offload off at the sending end of \
             the link (for a veth: its peer): ethtool -K PEER tso off gso off gro off; and here: \
             ethtool -K {} gro off (logged once)",
            self.name, self.max_frame_bytes, self.name
        );
    }

    fn warn_send(&mut self, errno: i32) {
        if self.warned_send {
            return;
        }
        self.warned_send = true;
        warn!(
            "interface '{}': the kernel refused a frame: {} (logged once; see tx-failed)",
            self.name,
            io::Error::from_raw_os_error(errno)
        );
    }
}

/// The longest frame of an interface with this MTU, with two VLAN tags.
fn longest_frame_bytes(mtu: usize) -> usize {
    (mtu + MIN_FRAME_BYTES + 2 * VLAN_TAG_BYTES).min(MAX_FRAME_BYTES)
}

/// Completes the checksum of the frame at `start` of `room` and puts its tag back. Returns where it is then,
/// and its length; `None`: it is too short.
fn complete(
    room: &mut [u8],
    start: usize,
    head: &Head,
    statistics: &mut PortStatistics,
) -> Option<(usize, usize)> {
    let frame = room.get_mut(start..start + head.wire_bytes)?;
    if frame.len() < MIN_FRAME_BYTES {
        statistics.rx_runt += 1;
        return None;
    }
    match head.checksum {
        ChecksumState::Complete => {}
        ChecksumState::Incomplete(marked) => {
            let completed = match marked {
                Some(marked) => checksum::complete_at(frame, marked.start, marked.offset),
                None => checksum::complete_if_partial(frame) || checksum::complete(frame),
            };
            statistics.rx_checksums_completed += u64::from(completed);
            statistics.rx_checksums_unfinished += u64::from(!completed);
        }
        ChecksumState::Unmarked => {
            let completed = checksum::complete_if_partial(frame);
            statistics.rx_checksums_completed += u64::from(completed);
        }
    }
    let Some(tag) = head.vlan_tag else {
        return Some((start, head.wire_bytes));
    };
    // The tag goes behind the addresses, which move down into the room before the frame: the kernel's
    // header, whose last field was read before.
    let at = start.checked_sub(VLAN_TAG_BYTES)?;
    room.copy_within(start..start + ADDRESSES_BYTES, at);
    room.get_mut(at + ADDRESSES_BYTES..start + ADDRESSES_BYTES)?
        .copy_from_slice(&tag);
    statistics.rx_vlan_tags_restored += 1;
    Some((at, head.wire_bytes + VLAN_TAG_BYTES))
}

/// The frame's arrival time. It is its stamp, except in two cases: a stamp more than
/// [`MAX_AHEAD_NS`] ahead of `now_ns` becomes `now_ns`, and none is before the last frame's arrival.
fn plausible(stamp_ns: u64, last_ns: u64, now_ns: u64) -> u64 {
    let too_far = stamp_ns > now_ns.saturating_add(MAX_AHEAD_NS);
    let arrival_ns = if too_far { now_ns } else { stamp_ns };
    arrival_ns.max(last_ns)
}

impl AsFd for Port {
    /// The receiving socket: readable when the ring holds a frame.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.socket()
    }
}

fn check_options(interface: &str, options: &PortOptions) -> Result<(), PortError> {
    let check_range = |option, value: usize, least, most| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(PortError::OutOfRange {
            name: interface.to_owned(),
            option,
            value,
            least,
            most,
        })
    };
    check_range("rx_frames", options.rx_frames, 2, MAX_RX_FRAMES)?;
    check_range("tx_batch_frames", options.tx_batch_frames, 1, MAX_TX_BATCH)?;
    if let Some(bytes) = options.max_frame_bytes {
        check_range("max_frame_bytes", bytes, 60, MAX_FRAME_BYTES)?;
    }
    let past_discipline = options.driver != PortDriver::AfPacket || options.qdisc_bypass;
    if options.kernel_departures && past_discipline {
        return Err(PortError::DeparturesNeedPackets {
            name: interface.to_owned(),
        });
    }
    let most = i32::MAX as usize / 2; // the kernel doubles it
    check_range("tx_buffer_bytes", options.tx_buffer_bytes, 4096, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_a_step_of_the_clock() {
        let hour_ns = 3_600_000_000_000;
        let (last_ns, now_ns) = (5 * hour_ns, 5 * hour_ns + 1_000);
        assert_eq!(plausible(last_ns + 10, last_ns, now_ns), last_ns + 10);
        // A frame received after `now` was read.
        assert_eq!(plausible(now_ns + 7, last_ns, now_ns), now_ns + 7);
        // CLOCK_REALTIME was set an hour ahead, an hour back.
        assert_eq!(plausible(now_ns + hour_ns, last_ns, now_ns), now_ns);
        assert_eq!(plausible(now_ns - hour_ns, last_ns, now_ns), last_ns);
        assert_eq!(plausible(u64::MAX, 0, u64::MAX), u64::MAX);
    }
}
