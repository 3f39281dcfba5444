//! The whole of what a control server needs of a switch.

use crate::control::{
    ActionInfo, ArrayInfo, ControlResult, DataPlane, MeterUnit, TableInfo, ValueSetInfo,
};
use crate::notify::DigestInfo;
use crate::ports::TrafficManagerControl;
use crate::profile::ProfileInfo;

/// What a program offers, as [`Switch::describe`] finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// As [`DataPlane::tables`] once loaded.
    pub tables: Vec<TableInfo>,
    /// As [`DataPlane::actions`] once loaded.
    pub actions: Vec<ActionInfo>,
    /// As [`DataPlane::counters`] once loaded.
    pub counters: Vec<ArrayInfo>,
    /// As [`DataPlane::meters`] once loaded.
    pub meters: Vec<(ArrayInfo, MeterUnit)>,
    /// As [`DataPlane::registers`] once loaded.
    pub registers: Vec<ArrayInfo>,
    /// As [`DataPlane::profiles`] once loaded.
    pub profiles: Vec<ProfileInfo>,
    /// As [`DataPlane::value_sets`] once loaded.
    pub value_sets: Vec<ValueSetInfo>,
    /// As [`DataPlane::digests`] once loaded.
    pub digests: Vec<DigestInfo>,
}

impl ProgramInfo {
    /// The description of the program that `data_plane` runs.
    pub fn running(data_plane: &dyn DataPlane) -> Self {
        Self {
            tables: data_plane.tables().to_vec(),
            actions: data_plane.actions().to_vec(),
            counters: data_plane.counters().to_vec(),
            meters: data_plane.meters().to_vec(),
            registers: data_plane.registers().to_vec(),
            profiles: data_plane.profiles().to_vec(),
            value_sets: data_plane.value_sets().to_vec(),
            digests: data_plane.digests().to_vec(),
        }
    }
}

/// Everything the server asks of a switch.
pub trait Switch: DataPlane + TrafficManagerControl {
    /// Checks a program (BMv2 JSON) and says what it offers, without touching the running one.
    /// A `load` of the same bytes must offer the same objects at the same indices: the server
    /// compares the description with P4Info *before* it loads, so that a P4Info of another
    /// program changes nothing.
    ///
    /// # Errors
    /// As [`DataPlane::verify`].
    fn describe(&self, bmv2_json: &[u8]) -> ControlResult<ProgramInfo>;
}
