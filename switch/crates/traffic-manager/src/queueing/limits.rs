//! The limits of egress queues and their schedulers.

/// Most egress queues of a port.
pub const QUEUES_MAX: usize = 64;

/// Largest depth of a queue in packets.
pub const DEPTH_PACKETS_MAX: u64 = 1 << 32;

/// Highest weight of a queue or node.
pub const WEIGHT_MAX: u32 = 65_536;

/// The share of a common buffer in which a queue may hold as much as is free, in millionths.
pub const BUFFER_SHARE_ONE_PPM: u32 = 1_000_000;

/// Largest share of a common buffer, in millionths.
pub const BUFFER_SHARE_MAX_PPM: u32 = 1_024 * BUFFER_SHARE_ONE_PPM;

/// Highest rate of a queue in packets per second: one packet in a nanosecond.
pub(super) const PPS_MAX: u64 = 1_000_000_000;

/// Most levels of nodes, the root's included.
pub const DEPTH_MAX: usize = 8;

/// Most nodes of a scheduler.
pub const NODES_MAX: usize = 64;

/// Most children of a node.
pub const CHILDREN_MAX: usize = 64;
