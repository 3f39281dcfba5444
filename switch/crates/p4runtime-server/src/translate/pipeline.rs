//! A program with its P4Info, and look-ups by P4Info's ids.

use std::collections::HashMap;

use v1model::entries::EntryKey;

use super::arrays::Array;
use super::digest::Digest;
use super::keys::Keys;
use super::ports::Ports;
use super::profile::Profile;
use super::table::BoundTable;
use crate::error::{UpdateError, UpdateResult};
use crate::ids::{self, find};
use crate::packet_io::ControllerHeader;
use crate::proto::p4::v1 as p4;

/// A parser value set.
#[derive(Debug, Clone)]
pub(crate) struct ValueSet {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program.
    pub(crate) index: usize,
    pub(crate) keys: Keys,
}

/// A program with its P4Info.
#[derive(Debug, Clone)]
pub(crate) struct BoundPipeline {
    /// As the controller gave it.
    pub(crate) config: p4::ForwardingPipelineConfig,
    /// In P4Info's order.
    pub(crate) tables: Vec<BoundTable>,
    pub(crate) counters: Vec<Array>,
    pub(crate) meters: Vec<Array>,
    pub(crate) registers: Vec<Array>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) value_sets: Vec<ValueSet>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) packet_in: ControllerHeader,
    pub(crate) packet_out: ControllerHeader,
    /// Of replicas.
    pub(crate) ports: Ports,
    pub(super) table_by_id: HashMap<u32, usize>,
}

impl BoundPipeline {
    /// The table of this P4Info id.
    pub(crate) fn table(&self, id: u32) -> UpdateResult<&BoundTable> {
        self.table_by_id
            .get(&id)
            .and_then(|position| self.tables.get(*position))
            .ok_or_else(|| ids::unknown("table", id))
    }

    /// A table's action profile.
    pub(crate) fn profile_of(&self, table: &BoundTable) -> Option<&Profile> {
        self.profiles.get(table.profile?)
    }

    /// A table that uses a profile, and whose actions its members may have. All tables that use the
    /// profile have the same actions.
    pub(crate) fn table_of(&self, profile: &Profile) -> UpdateResult<&BoundTable> {
        profile
            .table
            .and_then(|position| self.tables.get(position))
            .ok_or_else(|| {
                UpdateError::invalid(format!("{}: no table uses this profile", profile.name))
            })
    }

    /// The table with this index in the program.
    pub(crate) fn table_at(&self, index: usize) -> Option<&BoundTable> {
        self.tables.iter().find(|table| table.index == index)
    }

    pub(crate) fn counter(&self, id: u32) -> UpdateResult<&Array> {
        find(&self.counters, |array| array.id, "counter", id)
    }

    pub(crate) fn meter(&self, id: u32) -> UpdateResult<&Array> {
        find(&self.meters, |array| array.id, "meter", id)
    }

    pub(crate) fn register(&self, id: u32) -> UpdateResult<&Array> {
        find(&self.registers, |array| array.id, "register", id)
    }

    pub(crate) fn profile(&self, id: u32) -> UpdateResult<&Profile> {
        find(&self.profiles, |profile| profile.id, "action profile", id)
    }

    pub(crate) fn value_set(&self, id: u32) -> UpdateResult<&ValueSet> {
        find(&self.value_sets, |set| set.id, "value set", id)
    }

    pub(crate) fn digest(&self, id: u32) -> UpdateResult<&Digest> {
        find(&self.digests, |digest| digest.id, "digest", id)
    }

    /// The table and the key (`None`: the default entry) that the entry of a direct counter or meter
    /// names.
    pub(crate) fn direct_entry(
        &self,
        entry: Option<&p4::TableEntry>,
        what: &str,
    ) -> UpdateResult<(&BoundTable, Option<EntryKey>)> {
        let Some(entry) = entry else {
            return Err(UpdateError::invalid(format!(
                "{what}: table_entry: not given, the entry it belongs to expected"
            )));
        };
        let table = self.table(entry.table_id)?;
        if entry.is_default_action {
            table.check_default_key(entry)?;
            return Ok((table, None));
        }
        Ok((table, Some(table.entry_key(entry)?)))
    }
}
