//! Table entries and their direct resources.

use v1model::entries::{CounterValue, EntryKey, MeterConfig, MeterWrite};

use super::{Kind, Planned, Result, SideChange, clears_counts, cookie, only_modify};
use crate::error::UpdateError;
use crate::operation::{DefaultAction, Direct, Operation};
use crate::proto::p4::v1 as p4;
use crate::shared::Limits;
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
    let meter = direct_meter(
        table,
        entry.meter_config.as_ref(),
        entry.meter_counter_data.as_ref(),
    )?;
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
                // A new entry's meter has no configuration and counted nothing.
                meter: meter.filter(|meter| meter.config.is_some()),
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
                meter,
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

/// What an update sets a table's direct meter to; `None` for a table without. "If unset: the meter
/// entry's configuration is reset to the default (meter returns GREEN for all packets)."
fn direct_meter(
    table: &Table,
    config: Option<&p4::MeterConfig>,
    counts: Option<&p4::MeterCounterData>,
) -> Result<Option<MeterWrite>> {
    let Some(kind) = table.direct_meter else {
        if config.is_some() || counts.is_some() {
            return Err(UpdateError::invalid(format!(
                "{}: {}: given, but the table has no direct meter",
                table.name,
                if config.is_some() {
                    "meter_config"
                } else {
                    "meter_counter_data"
                }
            )));
        }
        return Ok(None);
    };
    let config: Option<MeterConfig> = config
        .map(|config| translate::meter_config(config, kind, &table.name))
        .transpose()?;
    Ok(Some(MeterWrite {
        config,
        clear_counts: clears_counts(counts, &table.name)?,
    }))
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
    check_default_key(table, entry)?;
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
    let counter = direct_counter(table, entry.counter_data.as_ref())?;
    let meter = direct_meter(
        table,
        entry.meter_config.as_ref(),
        entry.meter_counter_data.as_ref(),
    )?;
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
    let (action, direct) = match action {
        Some(call) => {
            let direct = Direct {
                counter,
                meter,
                idle_ns: None,
            };
            (DefaultAction::Set(call), direct)
        }
        // "When resetting the default entry, its ... value as well as the configurations for its
        // direct resources will be reset to their defaults"; what the update gives comes after.
        None => {
            let direct = Direct {
                counter: table.direct_counter.then(|| counter.unwrap_or_default()),
                meter: meter.map(|meter| MeterWrite {
                    clear_counts: true,
                    ..meter
                }),
                idle_ns: None,
            };
            (DefaultAction::Reset, direct)
        }
    };
    Ok(Planned {
        operation: Operation::DefaultModify {
            table: table.index,
            action,
            direct,
        },
        side: SideChange::Default(table.index, cookie),
        object,
    })
}

/// The table and key (`None`: the default entry) that a direct counter's or meter's entry names.
pub(crate) fn direct_entry<'a>(
    pipeline: &'a Pipeline,
    entry: Option<&p4::TableEntry>,
    what: &str,
) -> Result<(&'a Table, Option<EntryKey>)> {
    let Some(entry) = entry else {
        return Err(UpdateError::invalid(format!(
            "{what}: table_entry: not given, the entry it belongs to expected"
        )));
    };
    let table = pipeline.table(entry.table_id)?;
    if entry.is_default_action {
        check_default_key(table, entry)?;
        return Ok((table, None));
    }
    let key = table.entry_key(entry)?;
    Ok((table, Some(key)))
}

/// "When this flag is set to true, the repeated match field must be empty and the priority field must
/// be set to zero."
pub(crate) fn check_default_key(table: &Table, entry: &p4::TableEntry) -> Result<()> {
    if entry.r#match.is_empty() && entry.priority == 0 {
        return Ok(());
    }
    Err(UpdateError::invalid(format!(
        "{}: is_default_action: true given with a match or a priority; the default entry has neither",
        table.name
    )))
}

/// A change of an entry's direct resources and nothing else.
fn direct_only(table: &Table, key: Option<EntryKey>, direct: Direct) -> Planned {
    let operation = match key {
        Some(key) => Operation::TableModify {
            table: table.index,
            key,
            action: None,
            direct,
        },
        None => Operation::DefaultModify {
            table: table.index,
            action: DefaultAction::Keep,
            direct,
        },
    };
    Planned::only(operation, &table.name)
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
    let direct = Direct {
        counter: direct_counter(table, entry.data.as_ref())?,
        ..Direct::default()
    };
    Ok(direct_only(table, key, direct))
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
    let direct = Direct {
        meter: direct_meter(table, entry.config.as_ref(), entry.counter_data.as_ref())?,
        ..Direct::default()
    };
    Ok(direct_only(table, key, direct))
}
