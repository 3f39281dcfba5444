//! The packet replication engine.

use crate::mirror::MirrorSessions;
use crate::multicast::{GroupLimits, Groups};

/// The packet replication engine (P4Runtime specification, section "PacketReplicationEngineEntry"):
/// multicast groups and mirror sessions.
pub(crate) struct ReplicationEngine {
    pub(crate) groups: Groups,
    pub(crate) mirrors: MirrorSessions,
}

impl ReplicationEngine {
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self {
            groups: Groups::new(limits),
            mirrors: MirrorSessions::new(limits),
        }
    }
}
