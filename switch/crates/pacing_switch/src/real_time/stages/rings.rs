//! The frames and counters that the loop and its two threads exchange.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_utils::atomic::AtomicCell;
use ports::{PortStatistics, Sending};

use crate::real_time::port_set::PortSet;

/// Frames that a ring between two threads holds.
pub(super) const RING_FRAMES: usize = 1_024;
/// Most frames that are handed to the sender together: as many as a port collects.
pub(super) const CHUNK_FRAMES: usize = 64;

/// A frame on its way to the loop.
pub(super) struct Received {
    /// The place of its port.
    pub(super) at: usize,
    pub(super) arrival_ns: u64,
    pub(super) in_train: bool,
    pub(super) bytes: Vec<u8>,
}

/// A frame on its way to the kernel.
pub(super) struct ToSend {
    /// The place of its port.
    pub(super) at: usize,
    pub(super) buffer: Vec<u8>,
    /// The place of the frame in the buffer.
    pub(super) frame: Range<usize>,
    pub(super) sending: Sending,
    /// The frames up to this one leave now.
    pub(super) flush: bool,
}

/// The counters of ports, which the thread that has them publishes.
pub(super) type Counters = Arc<[AtomicCell<PortStatistics>]>;

/// The interfaces that do not take all frames, as the thread that sends tells the loop.
pub(super) struct StuckPorts {
    each: Box<[AtomicBool]>,
    count: AtomicUsize,
}

impl StuckPorts {
    /// None of `ports` is.
    pub(super) fn new(ports: usize) -> Self {
        let each = std::iter::repeat_with(AtomicBool::default);
        Self {
            each: each.take(ports).collect(),
            count: AtomicUsize::default(),
        }
    }

    /// Tells of these. False: none is, and none was.
    pub(super) fn tell(&self, ports: &PortSet) -> bool {
        let stuck = ports.stuck();
        if stuck == 0 && self.count() == 0 {
            return false;
        }
        for (at, each) in self.each.iter().enumerate() {
            each.store(ports.is_stuck(at), Ordering::Relaxed);
        }
        self.count.store(stuck, Ordering::Release);
        true
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn is_stuck(&self, at: usize) -> bool {
        let each = self.each.get(at);
        each.is_some_and(|each| each.load(Ordering::Relaxed))
    }
}
