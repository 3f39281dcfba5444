//! Frames by AF_PACKET (see packet(7)): a receive ring, sending by sendmmsg(2).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{TxTimeFlags, sockopt};
use rustix::time::ClockId;

use crate::frame::{Head, Lost};
use crate::opening::Opening;
use crate::options::{PortError, PortOptions};
use crate::qdisc;
use crate::ring::{RingSize, RxRing};
use crate::sys;
use crate::train::OFFLOAD_HEADER_BYTES;
use crate::tx::{Flushed, Sending, TxBatch};

/// Two packet sockets of an interface, one each way.
pub(crate) struct PacketDriver {
    fd: OwnedFd,
    ring: Option<RxRing>,
    tx: TxBatch,
}

impl PacketDriver {
    /// `fd`: a packet socket that is not bound.
    pub(crate) fn open(
        opening: &Opening<'_>,
        fd: OwnedFd,
        options: &PortOptions,
        max_frame_bytes: usize,
        longest_sent_bytes: usize,
    ) -> Result<PacketDriver, PortError> {
        let tx_fd = opening.step("open a packet socket", sys::packet_socket())?;
        let ring = if options.receive {
            Some(receive_side(opening, fd.as_fd(), options, max_frame_bytes)?)
        } else {
            None
        };
        send_side(opening, tx_fd.as_fd(), options)?;
        let (capacity, timed) = (options.tx_batch_frames, options.kernel_departures);
        let mut tx = TxBatch::new(tx_fd, capacity, timed);
        // Past the queueing discipline, the kernel drops a train that it would have to cut.
        if options.offloads && !options.qdisc_bypass {
            tx.send_trains(train_side(opening, options)?, longest_sent_bytes);
        }
        Ok(PacketDriver { fd, ring, tx })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.ring.as_ref().is_some_and(RxRing::has_frame)
    }

    pub(crate) fn head(&self) -> Option<Head> {
        self.ring.as_ref()?.head()
    }

    /// Prefetches the frame after the head.
    pub(crate) fn prefetch_next(&self) {
        if let Some(ring) = &self.ring {
            ring.prefetch_next();
        }
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.ring.as_ref()?.bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.ring.as_mut()?.bytes_mut()
    }

    pub(crate) fn release(&mut self) {
        if let Some(ring) = self.ring.as_mut() {
            ring.release();
        }
    }

    /// Takes the whole frame at the head into `room`, after its offload header. Returns the length of
    /// the frame; `None`: the frame is longer than the room, and lost.
    ///
    /// The kernel keeps a frame that is longer than a slot in the socket's queue, too, in the order of
    /// the slots, so each slot with [`Head::kept_whole`] must be followed by one call.
    pub(crate) fn take_whole(&mut self, room: &mut [u8]) -> Option<usize> {
        let bytes = sys::receive_whole(self.fd.as_fd(), room).ok()?;
        (bytes <= room.len())
            .then(|| bytes.checked_sub(OFFLOAD_HEADER_BYTES))
            .flatten()
    }

    pub(crate) fn lost(&mut self) -> Lost {
        if self.ring.is_none() {
            return Lost::default();
        }
        Lost {
            ring_full: take_ring_full(self.fd.as_fd()).unwrap_or(0),
            oversize: 0,
        }
    }

    pub(crate) fn collected(&self) -> usize {
        self.tx.len()
    }

    pub(crate) fn collected_bytes(&self) -> usize {
        self.tx.bytes()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tx.is_full()
    }

    pub(crate) fn push(&mut self, frame: &[u8], sending: Sending) {
        self.tx.push(frame, sending);
    }

    pub(crate) fn push_buffer(
        &mut self,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        self.tx.push_buffer(buffer, frame, sending);
    }

    /// Whether the kernel had no room for all frames of the last flush.
    pub(crate) fn is_stuck(&self) -> bool {
        self.tx.is_stuck()
    }

    pub(crate) fn flush(&mut self) -> Flushed {
        self.tx.flush()
    }
}

/// Frames that a socket's ring had no room for since the last call.
pub(crate) fn take_ring_full(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let zero = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    // The kernel's counters start again from zero with every reading.
    let read = sys::get_option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero)?;
    Ok(u64::from(read.tp_drops))
}

fn receive_side(
    opening: &Opening<'_>,
    fd: BorrowedFd<'_>,
    options: &PortOptions,
    max_frame_bytes: usize,
) -> Result<RxRing, PortError> {
    // Stamps are taken where the frame enters the network stack, before it waits for its turn.
    opening.step(
        "turn on receive stamps",
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
    )?;
    opening.step(
        "leave out outgoing frames (needs Linux 4.20)",
        sys::set_option(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            libc::c_int::from(options.ignore_outgoing),
        ),
    )?;
    let size = RingSize::new(options.rx_frames, max_frame_bytes).ok_or_else(|| {
        PortError::RingTooLarge {
            name: opening.name.to_owned(),
            frames: options.rx_frames,
            frame_bytes: max_frame_bytes,
        }
    })?;
    if options.offloads {
        take_trains(opening, fd, options)?;
    }
    let ring = opening.step(
        "set up the receive ring",
        RxRing::new(fd, size, options.offloads),
    )?;
    if options.promiscuous {
        opening.receive_all_addresses(fd)?;
    }
    // Last: from here on frames come in.
    opening.step(
        "bind the receiving socket",
        sys::bind_packet(fd, opening.index, libc::ETH_P_ALL as u16),
    )?;
    Ok(ring)
}

/// Has the kernel say which frames have several segments, and keep those that are longer than a slot.
fn take_trains(
    opening: &Opening<'_>,
    fd: BorrowedFd<'_>,
    options: &PortOptions,
) -> Result<(), PortError> {
    opening.step("ask for offload headers", use_offload_headers(fd))?;
    opening.step(
        "have long frames kept whole",
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1),
    )?;
    opening.set_receive_buffer(fd, options.rx_train_bytes)
}

/// A second socket to send with, whose frames have offload headers.
fn train_side(opening: &Opening<'_>, options: &PortOptions) -> Result<OwnedFd, PortError> {
    let fd = opening.step("open a packet socket", sys::packet_socket())?;
    opening.step("send offload headers", use_offload_headers(fd.as_fd()))?;
    send_side(opening, fd.as_fd(), options)?;
    Ok(fd)
}

fn use_offload_headers(fd: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
}

fn send_side(
    opening: &Opening<'_>,
    fd: BorrowedFd<'_>,
    options: &PortOptions,
) -> Result<(), PortError> {
    // The kernel may not say; then frames have the larger buffer.
    let discipline = qdisc::root(opening.index).ok().flatten();
    // In front of a slower rate the system's buffer is enough, and frames that wait there cannot be seen
    // by the switch's queues.
    if !discipline.as_deref().is_some_and(qdisc::has_rate) {
        opening.set_send_buffer(fd, options.tx_buffer_bytes)?;
    }
    if options.qdisc_bypass {
        opening.step(
            "bypass the queueing discipline",
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1),
        )?;
    }
    if options.kernel_departures {
        let discipline = opening.step(
            "ask for its queueing discipline",
            qdisc::root(opening.index),
        )?;
        if !discipline.as_deref().is_some_and(qdisc::is_timed) {
            return Err(PortError::NotTimed {
                name: opening.name.to_owned(),
                discipline: discipline.unwrap_or_else(|| "noqueue".to_owned()),
            });
        }
        opening.step(
            "send frames at given times",
            sockopt::set_txtime(fd, ClockId::Monotonic, TxTimeFlags::empty()),
        )?;
    }
    opening.step(
        "bind the sending socket",
        sys::bind_packet(fd, opening.index, 0),
    )
}
