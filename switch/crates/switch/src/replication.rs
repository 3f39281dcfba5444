//! What the packet replication engine makes copies for: replicas of multicast groups, and mirror
//! sessions.

/// A replica of a multicast group: one copy to `port`, with replication id `rid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Replica {
    /// Egress port.
    pub port: u32,
    /// Seen by the program as `standard_metadata.egress_rid`.
    pub rid: u16,
}

/// A mirror session (P4Runtime's clone session): where clones go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloneSession {
    /// One copy each.
    pub replicas: Vec<Replica>,
    /// Class of service, kept for the controller.
    pub class_of_service: u32,
    /// Most bytes of a copy; 0 for all.
    pub packet_length_bytes: u32,
}
