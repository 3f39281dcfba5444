//! Table entries and their direct resources.

use dataplane::control::{CounterValue, EntryKey, MeterConfig};

use super::{Kind, Planned, Result, SideChange, cookie, only_modify, refuse_colour_counters};
use crate::error::UpdateError;
use crate::operation::{Direct, Operation};
use crate::proto::p4::v1 as p4;
use crate::server::Limits;
use crate::translate::{self, Pipeline, Table};

/// A table entry (specification, section "TableEntry").
pub(super) fn entry(
    pipeline: &Pipeline,
    limits: &Limits,
    kind: Kind,
    entry: &p4::TableEntry,
) -> Result<Planned> {
    let table = pipeline.table(entry.table_id)?;
    let object = table.name.clone();
    if entry.is_default_action {
        return default_entry(table, limits, kind, entry);
    }
    if table.keys.is_empty() {
        return Err(UpdateError::invalid(format!(
            "{object}: the table has no key; only its default action can be set \
             (is_default_action)"
        )));
    }
    if table.const_entries && kind != Kind::Modify {
        return Err(UpdateError::permission_denied(format!(
            "{object}: its entries are constant (const entries)"
        )));
    }
    // Also of a DELETE: "the is_const field must be false in any INSERT, MODIFY, or DELETE".
    if entry.is_const {
        return Err(UpdateError::invalid(format!(
            "{object}: is_const: true given, false expected in a write"
        )));
    }
    if kind == Kind::Delete {
        // "These key fields are the only fields considered by the server."
        let key = table.entry_key(entry)?;
        return Ok(Planned {
            operation: Operation::TableDelete {
                table: table.index,
                key: key.clone(),
            },
            side: SideChange::EntryGone(table.index, key),
            object,
        });
    }
    let idle_ns = idle_timeout(table, entry)?;
    let counter = direct_counter(table, entry.counter_data.as_ref())?;
    let meter = direct_meter(table, entry.meter_config.as_ref())?;
    refuse_colour_counters(entry.meter_counter_data.as_ref(), &object)?;
    let key = table.entry_key(entry)?;
    let action = entry
        .action
        .as_ref()
        .map(|action| table.entry_action(action, pipeline.profile_of(table)))
        .transpose()?;
    if table.const_entries && action.is_some() {
        return Err(UpdateError::permission_denied(format!(
            "{object}: action: given, but the actions of constant entries cannot be modified; \
             leave it unset to modify direct resources"
        )));
    }
    let cookie = cookie(limits, &object, controller_metadata(entry), &entry.metadata)?;
    let operation = match (kind, action) {
        (Kind::Insert, Some(action)) => Operation::TableInsert {
            table: table.index,
            key: key.clone(),
            action,
            direct: Direct {
                counter,
                meter: meter.map(Some),
                idle_ns,
            },
        },
        (Kind::Insert, None) => {
            return Err(UpdateError::invalid(format!(
                "{object}: action: not given, an action expected to insert an entry"
            )));
        }
        (_, action) => Operation::TableModify {
            table: table.index,
            key: key.clone(),
            action,
            direct: Direct {
                counter,
                // "If unset: the meter entry's configuration is reset to the default."
                meter: table.direct_meter.map(|_| meter),
                idle_ns,
            },
        },
    };
    Ok(Planned {
        operation,
        side: SideChange::Entry(table.index, key, cookie),
        object,
    })
}

/// Specification, section "Idle-timeout"; `None` for a table without.
fn idle_timeout(table: &Table, entry: &p4::TableEntry) -> Result<Option<u64>> {
    if entry.time_since_last_hit.is_some() {
        return Err(UpdateError::invalid(format!(
            "{}: time_since_last_hit: given, unset expected in a write",
            table.name
        )));
    }
    if !table.idle_timeout {
        if entry.idle_timeout_ns == 0 {
            return Ok(None);
        }
        return Err(UpdateError::invalid(format!(
            "{}: idle_timeout_ns: {} given, 0 expected (the table has no idle timeout)",
            table.name, entry.idle_timeout_ns
        )));
    }
    match u64::try_from(entry.idle_timeout_ns) {
        Ok(timeout_ns) => Ok(Some(timeout_ns)),
        Err(_) => Err(UpdateError::invalid(format!(
            "{}: idle_timeout_ns: {} given, at least 0 expected",
            table.name, entry.idle_timeout_ns
        ))),
    }
}

/// The deprecated cookie of an entry, which must still be kept.
pub(crate) fn controller_metadata(entry: &p4::TableEntry) -> u64 {
    #[allow(deprecated)]
    let value = entry.controller_metadata;
    value
}

fn direct_counter(table: &Table, data: Option<&p4::CounterData>) -> Result<Option<CounterValue>> {
    let Some(data) = data else {
        return Ok(None);
    };
    if !table.direct_counter {
        return Err(UpdateError::invalid(format!(
            "{}: counter_data: given, but the table has no direct counter",
            table.name
        )));
    }
    translate::counter_value(data, &table.name).map(Some)
}

fn direct_meter(table: &Table, config: Option<&p4::MeterConfig>) -> Result<Option<MeterConfig>> {
    let Some(config) = config else {
        return Ok(None);
    };
    let Some(kind) = table.direct_meter else {
        return Err(UpdateError::invalid(format!(
            "{}: meter_config: given, but the table has no direct meter",
            table.name
        )));
    };
    translate::meter_config(config, kind, &table.name).map(Some)
}

/// Specification, section "Default Entry".
fn default_entry(
    table: &Table,
    limits: &Limits,
    kind: Kind,
    entry: &p4::TableEntry,
) -> Result<Planned> {
    let object = table.name.clone();
    if kind != Kind::Modify {
        return Err(UpdateError::invalid(format!(
            "{object}: type: {kind:?} given, the default entry can only be modified (MODIFY)"
        )));
    }
    if !entry.r#match.is_empty() || entry.priority != 0 {
        return Err(UpdateError::invalid(format!(
            "{object}: is_default_action: true given with a match or a priority; the default \
             entry has neither"
        )));
    }
    if entry.is_const {
        return Err(UpdateError::invalid(format!(
            "{object}: is_const: true given, false expected in a write"
        )));
    }
    if entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some() {
        return Err(UpdateError::invalid(format!(
            "{object}: idle_timeout_ns or time_since_last_hit given; the default entry has no idle \
             timeout"
        )));
    }
    if table.profile.is_some() {
        // "We have decided to restrict the default entry for indirect tables ... to a constant
        // NoAction action entry."
        return Err(UpdateError::permission_denied(format!(
            "{object}: the default entry of a table with an action profile is constant"
        )));
    }
    if table.const_default {
        return Err(UpdateError::permission_denied(format!(
            "{object}: its default action is constant (const default_action)"
        )));
    }
    if entry.counter_data.is_some()
        || entry.meter_config.is_some()
        || entry.meter_counter_data.is_some()
    {
        return Err(UpdateError::unimplemented(format!(
            "{object}: direct counters and meters of the default entry are not implemented"
        )));
    }
    use p4::table_action::Type;
    let action = match entry.action.as_ref().map(|action| action.r#type.as_ref()) {
        None => None,
        Some(Some(Type::Action(action))) => Some(table.action_call(action, true)?),
        Some(_) => {
            return Err(UpdateError::invalid(format!(
                "{object}: action: an action expected for the default entry"
            )));
        }
    };
    // "When resetting the default entry, its metadata ... will be reset."
    let cookie = action
        .as_ref()
        .map(|_| cookie(limits, &object, controller_metadata(entry), &entry.metadata))
        .transpose()?;
    Ok(Planned {
        operation: Operation::DefaultSet {
            table: table.index,
            action,
        },
        side: SideChange::Default(table.index, cookie),
        object,
    })
}

/// The table and key that a direct counter's or meter's entry names.
pub(crate) fn direct_entry<'a>(
    pipeline: &'a Pipeline,
    entry: Option<&p4::TableEntry>,
    what: &str,
) -> Result<(&'a Table, EntryKey)> {
    let Some(entry) = entry else {
        return Err(UpdateError::invalid(format!(
            "{what}: table_entry: not given, the entry it belongs to expected"
        )));
    };
    let table = pipeline.table(entry.table_id)?;
    if entry.is_default_action {
        return Err(UpdateError::unimplemented(format!(
            "{}: direct counters and meters of the default entry are not implemented",
            table.name
        )));
    }
    let key = table.entry_key(entry)?;
    Ok((table, key))
}

/// Specification, section "DirectCounterEntry".
pub(super) fn direct_counter_entry(
    pipeline: &Pipeline,
    kind: Kind,
    entry: &p4::DirectCounterEntry,
) -> Result<Planned> {
    let (table, key) = direct_entry(pipeline, entry.table_entry.as_ref(), "direct_counter_entry")?;
    only_modify(kind, &table.name, "a direct counter")?;
    if !table.direct_counter {
        return Err(UpdateError::invalid(format!(
            "{}: the table has no direct counter",
            table.name
        )));
    }
    let counter = direct_counter(table, entry.data.as_ref())?;
    Ok(Planned {
        operation: Operation::TableModify {
            table: table.index,
            key,
            action: None,
            direct: Direct {
                counter,
                ..Direct::default()
            },
        },
        side: SideChange::None,
        object: table.name.clone(),
    })
}

/// Specification, section "DirectMeterEntry".
pub(super) fn direct_meter_entry(
    pipeline: &Pipeline,
    kind: Kind,
    entry: &p4::DirectMeterEntry,
) -> Result<Planned> {
    let (table, key) = direct_entry(pipeline, entry.table_entry.as_ref(), "direct_meter_entry")?;
    only_modify(kind, &table.name, "a direct meter")?;
    if table.direct_meter.is_none() {
        return Err(UpdateError::invalid(format!(
            "{}: the table has no direct meter",
            table.name
        )));
    }
    refuse_colour_counters(entry.counter_data.as_ref(), &table.name)?;
    let config = direct_meter(table, entry.config.as_ref())?;
    Ok(Planned {
        operation: Operation::TableModify {
            table: table.index,
            key,
            action: None,
            direct: Direct {
                meter: Some(config),
                ..Direct::default()
            },
        },
        side: SideChange::None,
        object: table.name.clone(),
    })
}
