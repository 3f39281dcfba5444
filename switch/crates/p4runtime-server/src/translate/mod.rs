//! P4Info ids and protocol messages to data-plane indices and values, and back.
//!
//! A [`Pipeline`] is made once per program. Making it checks that P4Info and the program agree:
//! whatever P4Info names must be there with the same widths.

mod bind;
mod values;

use std::collections::HashMap;

use dataplane::control::MatchKind;

use crate::error::UpdateError;
use crate::packet_io::ControllerHeader;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

pub(crate) use values::{
    counter_message, counter_value, meter_config, meter_message, replica_message, replicas,
    unimplemented_entity,
};

type Result<T> = std::result::Result<T, UpdateError>;

/// One field of a table's key as P4Info and the program have it.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// As controllers see it.
    pub(crate) kind: MatchKind,
    pub(crate) bits: u32,
    /// Optional for controllers, but the program compares under a mask: BMv2 JSON knows no
    /// optional match.
    masked_optional: bool,
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
    /// In the data plane's order.
    pub(crate) keys: Vec<Key>,
    pub(crate) actions: Vec<TableAction>,
    pub(crate) const_entries: bool,
    pub(crate) const_default: bool,
    pub(crate) direct_counter: bool,
    pub(crate) direct_meter: Option<MeterKind>,
    /// Has an action profile or selector, which this server does not serve.
    pub(crate) indirect: bool,
}

/// What configurations a meter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeterKind(p4info::meter_spec::Type);

/// What the cells of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Counter,
    Meter(MeterKind),
    Register(RegisterType),
}

/// How a register's cell appears in `P4Data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegisterType {
    Bits,
    SerializableEnum,
    /// Signed, a struct, a header, ... (p4c gives v1model none of them).
    Other,
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
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// As the controller gave it.
    pub(crate) config: p4::ForwardingPipelineConfig,
    /// Number of the first packet-in that may come from this program.
    pub(crate) first_packet_in: u64,
    /// In P4Info's order.
    pub(crate) tables: Vec<Table>,
    pub(crate) counters: Vec<Array>,
    pub(crate) meters: Vec<Array>,
    pub(crate) registers: Vec<Array>,
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

    pub(crate) fn counter(&self, id: u32) -> Result<&Array> {
        find_array(&self.counters, "counter_id", id, "counter")
    }

    pub(crate) fn meter(&self, id: u32) -> Result<&Array> {
        find_array(&self.meters, "meter_id", id, "meter")
    }

    pub(crate) fn register(&self, id: u32) -> Result<&Array> {
        find_array(&self.registers, "register_id", id, "register")
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

fn find_array<'a>(arrays: &'a [Array], field: &str, id: u32, what: &str) -> Result<&'a Array> {
    arrays
        .iter()
        .find(|array| array.id == id)
        .ok_or_else(|| unknown_id(field, id, what))
}
