//! A packet in an egress queue.

use crate::config::frame_bytes;
use crate::packet::{Ecn, HeaderFields};
use crate::slab::Meta;

/// A packet that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// Its place in the slab.
    pub(crate) node: u32,
    length_bytes: u32,
    arrival_ns: u64,
    ecn: Ecn,
    /// Hash of its flow.
    flow: u32,
    /// It is marked when it leaves.
    pub(super) marked: bool,
}

impl Item {
    /// `marked`: it is to be marked when it leaves.
    pub(crate) fn new(node: u32, meta: &Meta, header: HeaderFields, marked: bool) -> Self {
        Self {
            node,
            length_bytes: meta.length_bytes,
            arrival_ns: meta.arrival_ns,
            ecn: header.ecn,
            flow: header.flow,
            marked,
        }
    }

    pub(super) fn arrival_ns(&self) -> u64 {
        self.arrival_ns
    }

    pub(super) fn ecn_capable(&self) -> bool {
        self.ecn.is_capable()
    }

    /// Whether it asks for low latency (RFC 9331): ECT(1) or CE.
    pub(super) fn low_latency(&self) -> bool {
        matches!(self.ecn, Ecn::Capable1 | Ecn::Congested)
    }

    pub(super) fn flow(&self) -> u32 {
        self.flow
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.length_bytes)
    }
}
