//! The switch's ports.

use std::collections::BTreeMap;

use bmv2_thrift::standard::{DevMgrErrorCode, DevMgrPortInfo, InvalidDevMgrOperation};
use switch::Switch;

/// The ports that have a line, by number.
pub(super) fn show(switch: &Switch) -> Vec<DevMgrPortInfo> {
    let ports = switch.lines().map(|(port, _)| port);
    let ports = ports.filter(|port| !switch.is_port_removed(*port));
    let ports = ports.map(|port| {
        DevMgrPortInfo::new(
            i32::from(port),
            switch.interface(port).to_owned(),
            switch.is_port_up(port),
            BTreeMap::new(),
        )
    });
    ports.collect()
}

/// Adds a port that was removed, with its interface. The switch has given up the right to open other
/// interfaces, and files for captures.
///
/// # Errors
/// There is no such port, or it is there.
pub(super) fn add(
    switch: &mut Switch,
    interface: &str,
    port: i32,
    captures: &str,
) -> Result<(), InvalidDevMgrOperation> {
    done(port, |port| {
        captures.is_empty() && switch.interface(port) == interface && switch.restore_port(port)
    })
}

/// Removes a port.
///
/// # Errors
/// There is no such port.
pub(super) fn remove(switch: &mut Switch, port: i32) -> Result<(), InvalidDevMgrOperation> {
    done(port, |port| switch.remove_port(port))
}

/// Whether `change` has changed a port with this number, as BMv2 tells it.
fn done(port: i32, change: impl FnOnce(u16) -> bool) -> Result<(), InvalidDevMgrOperation> {
    if u16::try_from(port).is_ok_and(change) {
        Ok(())
    } else {
        Err(InvalidDevMgrOperation::new(DevMgrErrorCode::ERROR))
    }
}
