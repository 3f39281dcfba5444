//! Settings of the switch.

use v1model::Engine;
use v1model::entries::digest::DigestConfig;

use crate::replica_store::GroupLimits;

/// Longest frame that any interface or capture brings, in bytes without FCS: 65,535 of IP, Ethernet
/// and two tags.
const MAX_FRAME_BYTES: usize = 65_557;

/// Settings that do not change while the switch runs.
#[derive(Debug, Clone)]
pub struct SwitchConfig {
    /// Port whose packets go to and come from the controller.
    pub cpu_port: Option<u16>,
    /// `egress_spec` that means "drop".
    pub drop_port: u16,
    /// Longest frame in bytes, without FCS.
    pub max_frame_bytes: usize,
    /// Most packets in the switch at once: held, queued and in delay lines.
    pub max_packets: usize,
    /// Whether tables keep BMv2's handles of their entries, for its Thrift interface.
    pub entry_handles: bool,
    /// How digests are collected from the start; `None`: only those that a controller enables.
    pub digests: Option<DigestConfig>,
    /// The engine that runs programs.
    pub engine: Engine,
    /// Limits of the replication engine.
    pub groups: GroupLimits,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            cpu_port: None,
            drop_port: 511,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_packets: 1 << 19,
            entry_handles: false,
            digests: None,
            engine: Engine::default(),
            groups: GroupLimits::default(),
        }
    }
}
