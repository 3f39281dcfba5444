//! The destination of a packet in the switch.

use v1model::InstanceType;

/// The destination of a packet or of a copy of it, and its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) port: u16,
    pub(crate) rid: u16,
    pub(crate) instance_type: InstanceType,
    /// Ingress port of the packet that this is a multicast copy of.
    pub(crate) copied_from: Option<u16>,
}
