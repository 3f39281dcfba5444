//! The frames and counters that the loop and its two threads exchange.

use std::ops::Range;
use std::sync::Arc;

use crossbeam_utils::atomic::AtomicCell;
use ports::{PortStatistics, Sending};

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
