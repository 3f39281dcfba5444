//! The services `simple_pre` and `simple_pre_lag`: multicast groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use bmv2_thrift::simple_pre::{self, SimplePreSyncHandler};
use bmv2_thrift::simple_pre_lag::{self, SimplePreLAGSyncHandler};
use p4runtime_server::Standing;

use crate::control::Control;
use crate::errors::{application, context};
use crate::pre::{self, MAP_DIGITS_MAX, Pre, Refused};
use crate::replication::Replication;

/// Both services.
pub(crate) struct SimplePre {
    pub(crate) control: Arc<Control>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) standing: Standing,
}

fn map(name: &str, text: &str) -> thrift::Result<BTreeSet<u16>> {
    pre::parse_map(text).ok_or_else(|| {
        application(format!(
            "{name}: '{text}' given, at most {MAP_DIGITS_MAX} digits 0 and 1 expected"
        ))
    })
}

impl SimplePre {
    fn change<R, E: Into<thrift::Error>>(
        &self,
        cxt_id: i32,
        exception: impl FnOnce(Refused) -> E,
        change: impl FnOnce(&mut Pre) -> Result<R, Refused>,
    ) -> thrift::Result<R> {
        context(cxt_id)?;
        let changed = self
            .replication
            .change(&self.control, self.standing, |state| change(&mut state.pre))?;
        changed.map_err(|refused| exception(refused).into())
    }

    fn entries(&self, cxt_id: i32) -> thrift::Result<String> {
        context(cxt_id)?;
        let entries = self
            .replication
            .read(&self.control, |state| state.pre.entries())?;
        serde_json::to_string(&entries).map_err(|error| application(error.to_string()))
    }
}

fn plain(refused: Refused) -> simple_pre::InvalidMcOperation {
    simple_pre::InvalidMcOperation::new(simple_pre::McOperationErrorCode(refused as i32))
}

fn with_lags(refused: Refused) -> simple_pre_lag::InvalidMcOperation {
    simple_pre_lag::InvalidMcOperation::new(simple_pre_lag::McOperationErrorCode(refused as i32))
}

/// The functions that both services have.
macro_rules! common {
    ($exception:expr) => {
        fn handle_bm_mc_mgrp_create(&self, cxt_id: i32, mgrp: i32) -> thrift::Result<i32> {
            self.change(cxt_id, $exception, |pre| {
                pre.create_group(mgrp.cast_unsigned())
            })?;
            Ok(mgrp)
        }

        fn handle_bm_mc_mgrp_destroy(&self, cxt_id: i32, mgrp_handle: i32) -> thrift::Result<()> {
            self.change(cxt_id, $exception, |pre| {
                pre.destroy_group(mgrp_handle.cast_unsigned());
                Ok(())
            })
        }

        fn handle_bm_mc_node_associate(
            &self,
            cxt_id: i32,
            mgrp_handle: i32,
            l1_handle: i32,
        ) -> thrift::Result<()> {
            let (group, node) = (mgrp_handle.cast_unsigned(), l1_handle.cast_unsigned());
            self.change(cxt_id, $exception, |pre| pre.associate(group, node))
        }

        fn handle_bm_mc_node_dissociate(
            &self,
            cxt_id: i32,
            mgrp_handle: i32,
            l1_handle: i32,
        ) -> thrift::Result<()> {
            let (group, node) = (mgrp_handle.cast_unsigned(), l1_handle.cast_unsigned());
            self.change(cxt_id, $exception, |pre| pre.dissociate(group, node))
        }

        fn handle_bm_mc_node_destroy(&self, cxt_id: i32, l1_handle: i32) -> thrift::Result<()> {
            self.change(cxt_id, $exception, |pre| {
                pre.destroy_node(l1_handle.cast_unsigned())
            })
        }

        fn handle_bm_mc_get_entries(&self, cxt_id: i32) -> thrift::Result<String> {
            self.entries(cxt_id)
        }
    };
}

impl SimplePreSyncHandler for SimplePre {
    common!(plain);

    fn handle_bm_mc_node_create(
        &self,
        cxt_id: i32,
        rid: i32,
        port_map: String,
    ) -> thrift::Result<i32> {
        let ports = map("port_map", &port_map)?;
        let node = self.change(cxt_id, plain, |pre| {
            pre.create_node(rid.cast_unsigned(), ports, BTreeSet::new())
        })?;
        Ok(node.cast_signed())
    }

    fn handle_bm_mc_node_update(
        &self,
        cxt_id: i32,
        l1_handle: i32,
        port_map: String,
    ) -> thrift::Result<()> {
        let ports = map("port_map", &port_map)?;
        self.change(cxt_id, plain, |pre| {
            pre.update_node(l1_handle.cast_unsigned(), ports, BTreeSet::new())
        })
    }
}

impl SimplePreLAGSyncHandler for SimplePre {
    common!(with_lags);

    fn handle_bm_mc_node_create(
        &self,
        cxt_id: i32,
        rid: i32,
        port_map: String,
        lag_map: String,
    ) -> thrift::Result<i32> {
        let (ports, lags) = (map("port_map", &port_map)?, map("lag_map", &lag_map)?);
        let node = self.change(cxt_id, with_lags, |pre| {
            pre.create_node(rid.cast_unsigned(), ports, lags)
        })?;
        Ok(node.cast_signed())
    }

    fn handle_bm_mc_node_update(
        &self,
        cxt_id: i32,
        l1_handle: i32,
        port_map: String,
        lag_map: String,
    ) -> thrift::Result<()> {
        let (ports, lags) = (map("port_map", &port_map)?, map("lag_map", &lag_map)?);
        self.change(cxt_id, with_lags, |pre| {
            pre.update_node(l1_handle.cast_unsigned(), ports, lags)
        })
    }

    fn handle_bm_mc_set_lag_membership(
        &self,
        cxt_id: i32,
        lag_index: i16,
        port_map: String,
    ) -> thrift::Result<()> {
        let ports = map("port_map", &port_map)?;
        self.change(cxt_id, with_lags, |pre| {
            pre.set_lag(lag_index.cast_unsigned(), ports)
        })
    }
}
