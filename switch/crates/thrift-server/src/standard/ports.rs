//! The switch's ports.

use std::collections::BTreeMap;

use bmv2_thrift::standard::{DevMgrErrorCode, DevMgrPortInfo, InvalidDevMgrOperation};
use switch::Switch;

/// The ports that have a line, by number.
pub(super) fn show(switch: &Switch) -> Vec<DevMgrPortInfo> {
    let ports = switch.lines().map(|(port, _)| {
        DevMgrPortInfo::new(
            i32::from(port),
            switch.interface(port).to_owned(),
            switch.is_port_up(port),
            BTreeMap::new(),
        )
    });
    ports.collect()
}

/// Ports are those that the switch has opened when it started: it has given up the right to open
/// others.
pub(super) fn fixed() -> InvalidDevMgrOperation {
    InvalidDevMgrOperation::new(DevMgrErrorCode::ERROR)
}
