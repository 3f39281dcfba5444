//! The service `simple_switch`: mirror sessions, egress queues, time.

use std::sync::Arc;

use bmv2_thrift::simple_switch::{
    InvalidMirroringOperation, MirroringOperationErrorCode, MirroringSessionConfig,
    SimpleSwitchSyncHandler,
};
use p4runtime_server::Standing;

use crate::control::Control;
use crate::errors::application;
use crate::mirrors::{Mirrors, Session};
use crate::queues::{self, Setting};
use crate::replication::Replication;

/// The service.
pub(crate) struct SimpleSwitch {
    pub(crate) control: Arc<Control>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) since_1970_ns: fn(u64) -> u64,
    pub(crate) standing: Standing,
}

fn not_found() -> thrift::Error {
    InvalidMirroringOperation::new(MirroringOperationErrorCode::SESSION_NOT_FOUND).into()
}

impl SimpleSwitch {
    fn change_mirrors<R>(&self, change: impl FnOnce(&mut Mirrors) -> R) -> thrift::Result<R> {
        let changed = self
            .replication
            .change(&self.control, self.standing, |state| {
                Ok(change(&mut state.mirrors))
            })?;
        changed.map_err(|_| {
            application("the switch has no room for this mirror session, or runs no program")
        })
    }

    fn session(&self, mirror_id: i32) -> thrift::Result<Option<Session>> {
        self.replication
            .read(&self.control, |state| state.mirrors.get(mirror_id))
    }

    /// Sets a queue of a port, or all of a port, or of all ports.
    fn set_queue(
        &self,
        port: Option<i32>,
        priority: Option<i32>,
        setting: Setting,
    ) -> thrift::Result<i32> {
        let _changing = self.control.begin(self.standing)?;
        self.control
            .run(move |switch| queues::set(switch, port, priority, setting))?
            .map_err(application)?;
        Ok(0)
    }
}

/// BMv2 takes rates and depths as numbers without sign.
fn rate(pps: i64) -> Setting {
    Setting::RatePps(pps.cast_unsigned())
}

fn depth(packets: i32) -> Setting {
    Setting::DepthPackets(packets.cast_unsigned().into())
}

impl SimpleSwitchSyncHandler for SimpleSwitch {
    fn handle_mirroring_mapping_add(
        &self,
        mirror_id: i32,
        egress_port: i32,
    ) -> thrift::Result<i32> {
        let session = Session {
            port: Some(egress_port.cast_unsigned()),
            group: None,
        };
        self.change_mirrors(|mirrors| mirrors.add(mirror_id, session))
            .map(i32::from)
    }

    fn handle_mirroring_mapping_delete(&self, mirror_id: i32) -> thrift::Result<i32> {
        self.change_mirrors(|mirrors| mirrors.delete(mirror_id))
            .map(i32::from)
    }

    fn handle_mirroring_mapping_get_egress_port(&self, mirror_id: i32) -> thrift::Result<i32> {
        let port = self.session(mirror_id)?.and_then(|session| session.port);
        Ok(port.map_or(-1, u32::cast_signed))
    }

    fn handle_mirroring_session_add(
        &self,
        mirror_id: i32,
        config: MirroringSessionConfig,
    ) -> thrift::Result<()> {
        let session = Session {
            port: config.port.map(i32::cast_unsigned),
            group: config.mgid.map(i32::cast_unsigned),
        };
        self.change_mirrors(|mirrors| mirrors.add(mirror_id, session))
            .map(drop)
    }

    fn handle_mirroring_session_delete(&self, mirror_id: i32) -> thrift::Result<()> {
        match self.change_mirrors(|mirrors| mirrors.delete(mirror_id))? {
            true => Ok(()),
            false => Err(not_found()),
        }
    }

    fn handle_mirroring_session_get(
        &self,
        mirror_id: i32,
    ) -> thrift::Result<MirroringSessionConfig> {
        let session = self.session(mirror_id)?.ok_or_else(not_found)?;
        Ok(MirroringSessionConfig {
            port: session.port.map(u32::cast_signed),
            mgid: session.group.map(u32::cast_signed),
        })
    }

    fn handle_set_egress_priority_queue_depth(
        &self,
        port_num: i32,
        priority: i32,
        depth_pkts: i32,
    ) -> thrift::Result<i32> {
        self.set_queue(Some(port_num), Some(priority), depth(depth_pkts))
    }

    fn handle_set_egress_queue_depth(&self, port_num: i32, depth_pkts: i32) -> thrift::Result<i32> {
        self.set_queue(Some(port_num), None, depth(depth_pkts))
    }

    fn handle_set_all_egress_queue_depths(&self, depth_pkts: i32) -> thrift::Result<i32> {
        self.set_queue(None, None, depth(depth_pkts))
    }

    fn handle_set_egress_priority_queue_rate(
        &self,
        port_num: i32,
        priority: i32,
        rate_pps: i64,
    ) -> thrift::Result<i32> {
        self.set_queue(Some(port_num), Some(priority), rate(rate_pps))
    }

    fn handle_set_egress_queue_rate(&self, port_num: i32, rate_pps: i64) -> thrift::Result<i32> {
        self.set_queue(Some(port_num), None, rate(rate_pps))
    }

    fn handle_set_all_egress_queue_rates(&self, rate_pps: i64) -> thrift::Result<i32> {
        self.set_queue(None, None, rate(rate_pps))
    }

    /// The time that the program sees in packets (`ingress_global_timestamp`), so that both can be
    /// compared.
    fn handle_get_time_elapsed_us(&self) -> thrift::Result<i64> {
        let now_ns = self.control.run(|switch| switch.now_ns())?;
        Ok((now_ns / 1_000).cast_signed())
    }

    fn handle_get_time_since_epoch_us(&self) -> thrift::Result<i64> {
        let now_ns = self.control.run(|switch| switch.now_ns())?;
        Ok(((self.since_1970_ns)(now_ns) / 1_000).cast_signed())
    }
}
