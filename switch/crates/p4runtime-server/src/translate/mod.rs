//! P4Info ids and protocol messages to data-plane indices and values, and back.
//!
//! A [`Pipeline`] is made once per program. Making it checks that P4Info and the program agree:
//! whatever P4Info names must be there with the same widths.

mod arrays;
mod bind;
mod digest;
mod keys;
mod profile;
mod replication;
mod shape;
mod table;

use std::collections::HashMap;

use v1model::entries::ActionCall;
use v1model::entries::profile::IndirectAction;

use crate::error::UpdateError;
use crate::packet_io::ControllerHeader;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;
use shape::Shape;

pub(crate) use arrays::{
    counter_message, counter_value, meter_config, meter_counts_message, meter_message,
};
pub(crate) use digest::Digest;
pub(crate) use keys::Keys;
pub(crate) use profile::Profile;
pub(crate) use replication::{clone_session, clone_session_message, replica_messages, replicas};

type Result<T> = std::result::Result<T, UpdateError>;

/// What an entry does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EntryAction {
    Call(ActionCall),
    Indirect(IndirectAction),
}

/// An action as one table uses it.
#[derive(Debug, Clone)]
pub(crate) struct TableAction {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the data plane; several actions there may have the same name.
    pub(crate) index: usize,
    pub(crate) scope: p4info::action_ref::Scope,
    /// In the data plane's order.
    params: Vec<Param>,
}

#[derive(Debug, Clone)]
struct Param {
    id: u32,
    name: String,
    bits: u32,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the data plane.
    pub(crate) index: usize,
    pub(crate) keys: Keys,
    pub(crate) actions: Vec<TableAction>,
    pub(crate) const_entries: bool,
    /// Most entries: P4Info's, or the program's where that is more.
    pub(crate) size: usize,
    pub(crate) const_default: bool,
    pub(crate) direct_counter: bool,
    pub(crate) direct_meter: Option<MeterKind>,
    /// Position of its action profile or selector in [`Pipeline::profiles`].
    pub(crate) profile: Option<usize>,
    /// Entries may have idle timeouts.
    pub(crate) idle_timeout: bool,
}

/// A parser value set.
#[derive(Debug, Clone)]
pub(crate) struct ValueSet {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the data plane.
    pub(crate) index: usize,
    pub(crate) keys: Keys,
}

/// What configurations a meter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeterKind(p4info::meter_spec::Type);

/// What the cells of an array are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Counter,
    Meter(MeterKind),
    /// `None`: of a type that is not implemented (p4c gives v1model none).
    Register(Option<Shape>),
}

/// An indirect counter, meter or register.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the data plane.
    pub(crate) index: usize,
    pub(crate) size: usize,
    pub(crate) bits: u32,
    pub(crate) cell: Cell,
}

/// A program with its P4Info.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    /// As the controller gave it.
    pub(crate) config: p4::ForwardingPipelineConfig,
    /// In P4Info's order.
    pub(crate) tables: Vec<Table>,
    pub(crate) counters: Vec<Array>,
    pub(crate) meters: Vec<Array>,
    pub(crate) registers: Vec<Array>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) value_sets: Vec<ValueSet>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) packet_in: ControllerHeader,
    pub(crate) packet_out: ControllerHeader,
    table_by_id: HashMap<u32, usize>,
}

impl Pipeline {
    /// The table of this P4Info id.
    pub(crate) fn table(&self, id: u32) -> Result<&Table> {
        self.table_by_id
            .get(&id)
            .and_then(|position| self.tables.get(*position))
            .ok_or_else(|| unknown_id("table_id", id, "table"))
    }

    /// A table's action profile.
    pub(crate) fn profile_of(&self, table: &Table) -> Option<&Profile> {
        self.profiles.get(table.profile?)
    }

    /// A table whose actions the members of a profile have: any of those that use it.
    pub(crate) fn table_of(&self, profile: &Profile) -> Result<&Table> {
        profile
            .table
            .and_then(|position| self.tables.get(position))
            .ok_or_else(|| {
                UpdateError::invalid(format!("{}: no table uses this profile", profile.name))
            })
    }

    /// The table with this index in the data plane.
    pub(crate) fn table_at(&self, index: usize) -> Option<&Table> {
        self.tables.iter().find(|table| table.index == index)
    }

    pub(crate) fn counter(&self, id: u32) -> Result<&Array> {
        find(
            &self.counters,
            |array| array.id,
            "counter_id",
            id,
            "counter",
        )
    }

    pub(crate) fn meter(&self, id: u32) -> Result<&Array> {
        find(&self.meters, |array| array.id, "meter_id", id, "meter")
    }

    pub(crate) fn register(&self, id: u32) -> Result<&Array> {
        find(
            &self.registers,
            |array| array.id,
            "register_id",
            id,
            "register",
        )
    }

    pub(crate) fn profile(&self, id: u32) -> Result<&Profile> {
        let what = "action profile";
        find(
            &self.profiles,
            |profile| profile.id,
            "action_profile_id",
            id,
            what,
        )
    }

    pub(crate) fn value_set(&self, id: u32) -> Result<&ValueSet> {
        find(
            &self.value_sets,
            |set| set.id,
            "value_set_id",
            id,
            "value set",
        )
    }

    pub(crate) fn digest(&self, id: u32) -> Result<&Digest> {
        find(&self.digests, |digest| digest.id, "digest_id", id, "digest")
    }
}

fn unknown_id(field: &str, id: u32, what: &str) -> UpdateError {
    if id == 0 {
        UpdateError::invalid(format!("{field}: not given, the id of a {what} expected"))
    } else {
        UpdateError::not_found(format!(
            "{field}: {id} (0x{id:08x}) given, no {what} of the program has this id"
        ))
    }
}

fn find<'a, T>(
    all: &'a [T],
    id_of: impl Fn(&T) -> u32,
    field: &str,
    id: u32,
    what: &str,
) -> Result<&'a T> {
    all.iter()
        .find(|one| id_of(one) == id)
        .ok_or_else(|| unknown_id(field, id, what))
}

/// An id that the controller chose, which must not be 0.
pub(crate) fn nonzero(id: u32, object: &str, field: &str) -> Result<u32> {
    if id == 0 {
        return Err(UpdateError::invalid(format!(
            "{object}: {field}: 0 given, greater than 0 expected"
        )));
    }
    Ok(id)
}

/// Refuses what this switch has nothing of.
pub(crate) fn unimplemented_entity(name: &str) -> UpdateError {
    UpdateError::unimplemented(format!(
        "{name}: this entity is not implemented by this switch"
    ))
}
