//! The room of a queue.

/// In packets and in bytes of layer 2 + FCS; the largest number: no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Depths {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}
