//! The driver of a port: one of two ways to exchange frames with the kernel, chosen at the opening.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::frame::{Head, Lost};
use crate::packet::PacketDriver;
use crate::tx::{Flushed, Sending};
use crate::xdp::XdpDriver;

/// A driver, boxed because one is much larger than the other. No call blocks.
pub(crate) enum Driver {
    Packet(Box<PacketDriver>),
    Xdp(Box<XdpDriver>),
}

/// Calls a method of the driver.
macro_rules! of {
    ($driver:expr, $each:ident => $call:expr) => {
        match $driver {
            Driver::Packet($each) => $call,
            Driver::Xdp($each) => $call,
        }
    };
}

impl Driver {
    /// The socket that is readable when a frame is there.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        of!(self, driver => driver.socket())
    }

    /// A socket that answers questions about interfaces.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        of!(self, driver => driver.control())
    }

    /// Whether a frame is there, at the cost of one memory read.
    pub(crate) fn has_frame(&self) -> bool {
        of!(self, driver => driver.has_frame())
    }

    /// The frame at the head, if there is one.
    pub(crate) fn head(&mut self) -> Option<Head> {
        of!(self, driver => driver.head())
    }

    /// Prefetches the frame after the head, where another processor wrote it and nothing has read
    /// it since.
    pub(crate) fn prefetch_next(&self) {
        match self {
            Driver::Packet(driver) => driver.prefetch_next(),
            // The place of the next frame is known only once it is at the head.
            Driver::Xdp(_) => {}
        }
    }

    /// The slot of the frame at the head.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        of!(self, driver => driver.bytes())
    }

    /// The slot of the frame at the head, to change.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        of!(self, driver => driver.bytes_mut())
    }

    /// Takes the whole frame at the head, of which the slot has the beginning, into `room` after its
    /// offload header. Returns the length of the frame; `None`: it is longer than the room, and lost.
    pub(crate) fn take_whole(&mut self, room: &mut [u8]) -> Option<usize> {
        match self {
            Driver::Packet(driver) => driver.take_whole(room),
            Driver::Xdp(_) => unreachable!("AF_XDP has no frames that are longer than their slot"),
        }
    }

    /// Hands the slot at the head back to the kernel and moves on.
    pub(crate) fn release(&mut self) {
        of!(self, driver => driver.release());
    }

    /// Frames the kernel lost since the last call (one system call).
    pub(crate) fn lost(&mut self) -> Lost {
        of!(self, driver => driver.lost())
    }

    /// Frames collected for sending.
    pub(crate) fn collected(&self) -> usize {
        of!(self, driver => driver.collected())
    }

    /// Their bytes.
    pub(crate) fn collected_bytes(&self) -> usize {
        of!(self, driver => driver.collected_bytes())
    }

    /// Whether the kernel has not taken all frames of an earlier flush, so another flush is needed.
    pub(crate) fn is_stuck(&self) -> bool {
        of!(self, driver => driver.is_stuck())
    }

    /// Whether they must be flushed before another is collected.
    pub(crate) fn is_full(&self) -> bool {
        of!(self, driver => driver.is_full())
    }

    /// Copies a frame, no longer than the port's longest, to those collected. If there is no room it
    /// is lost, and the next [`flush`](Driver::flush) counts it.
    pub(crate) fn push(&mut self, frame: &[u8], sending: Sending) {
        match self {
            Driver::Packet(driver) => driver.push(frame, sending),
            // It has neither departure times nor trains.
            Driver::Xdp(driver) => driver.push(frame),
        }
    }

    /// As `push`, for the frame at `frame` of `buffer`. The buffer may become another one with any
    /// content.
    pub(crate) fn push_buffer(
        &mut self,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        match self {
            Driver::Packet(driver) => driver.push_buffer(buffer, frame, sending),
            // Frames leave from memory that is shared with the kernel.
            Driver::Xdp(driver) => driver.push(buffer.get(frame).unwrap_or_default()),
        }
    }

    /// Hands the collected frames to the kernel, in order.
    pub(crate) fn flush(&mut self) -> Flushed {
        of!(self, driver => driver.flush())
    }
}
