//! A driver's report of received and lost frames.

use crate::train::{Marked, Segmentation};

/// The state of a received frame's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumState {
    Complete,
    /// The sender left it to its hardware. `None`: the kernel does not say which one it is.
    Incomplete(Option<Marked>),
    /// The kernel's mark did not come along.
    Unmarked,
}

/// The frame at the head of a receive ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Bytes the frame had.
    pub(crate) wire_bytes: usize,
    /// Bytes of it in the slot, from `start` of the slot.
    pub(crate) captured_bytes: usize,
    pub(crate) start: usize,
    /// The time when the kernel received it, on the clock of the switch.
    pub(crate) stamp_ns: u64,
    pub(crate) checksum: ChecksumState,
    /// The VLAN tag that the kernel took out, as it was in the frame.
    pub(crate) vlan_tag: Option<[u8; 4]>,
    /// The frame has several segments.
    pub(crate) segmentation: Option<Segmentation>,
    /// The slot has the beginning of the frame only; the driver has the whole frame
    /// ([`PacketDriver::take_whole`](crate::packet::PacketDriver::take_whole)).
    pub(crate) kept_whole: bool,
}

/// Frames that the kernel has lost since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) ring_full: u64,
    pub(crate) oversize: u64,
}
