//! Table entries and their direct resources.

use v1model::entries::{CounterValue, EntryKey, MeterWrite};

use super::planned::{Kind, Planned, annotation, only_modify};
use crate::error::{UpdateError, UpdateResult};
use crate::operation::{DefaultAction, Direct, Operation};
use crate::proto::p4::v1 as p4;
use crate::shared::ServerLimits;
use crate::state::{AnnotationChange, EntryAnnotation};
use crate::translate::{self, BoundPipeline, BoundTable};

/// A table entry (specification, section "TableEntry").
pub(super) fn entry(
    pipeline: &BoundPipeline,
    limits: &ServerLimits,
    kind: Kind,
    entry: &p4::TableEntry,
) -> UpdateResult<Planned> {
    let table = pipeline.table(entry.table_id)?;
    if entry.is_default_action {
        return default_entry(table, limits, kind, entry);
    }
    check_writable(table, kind, entry)?;
    if kind == Kind::Delete {
        // "These key fields are the only fields considered by the server."
        let key = table.entry_key(entry)?;
        return Ok(Planned {
            operation: Operation::TableDelete {
                table: table.index,
                key: key.clone(),
            },
            annotation: AnnotationChange::Entry(table.index, key, None),
            object: table.name.clone(),
        });
    }
    let idle_ns = idle_timeout(table, entry)?;
    let mut direct = Direct {
        idle_ns,
        ..entry_resources(table, entry)?
    };
    let key = table.entry_key(entry)?;
    let action = entry.action.as_ref();
    let action = action.map(|action| table.entry_action(action, pipeline.profile_of(table)));
    let action = action.transpose()?;
    if table.const_entries && action.is_some() {
        return Err(UpdateError::permission_denied(format!(
            "{}: action: given, but the actions of constant entries cannot be modified; leave it \
             unset to modify direct resources",
            table.name
        )));
    }
    let kept = entry_annotation(table, limits, entry)?;
    let annotation = AnnotationChange::Entry(table.index, key.clone(), Some(kept));
    let table_index = table.index;
    let operation = match (kind, action) {
        (Kind::Insert, None) => {
            return Err(UpdateError::invalid(format!(
                "{}: action: not given, an action expected to insert an entry",
                table.name
            )));
        }
        (Kind::Insert, Some(action)) => {
            // A new entry's meter has no configuration and counted nothing.
            direct.meter = direct.meter.filter(|meter| meter.config.is_some());
            Operation::TableInsert {
                table: table_index,
                key,
                action,
                direct,
            }
        }
        (_, action) => Operation::TableModify {
            table: table_index,
            key,
            action,
            direct,
        },
    };
    Ok(Planned {
        operation,
        annotation,
        object: table.name.clone(),
    })
}

/// Checks that this kind of update may be made to the table's entries.
fn check_writable(table: &BoundTable, kind: Kind, entry: &p4::TableEntry) -> UpdateResult<()> {
    if table.keys.is_empty() {
        return Err(UpdateError::invalid(format!(
            "{}: the table has no key; only its default action can be set (is_default_action)",
            table.name
        )));
    }
    if table.const_entries && kind != Kind::Modify {
        return Err(UpdateError::permission_denied(format!(
            "{}: its entries are constant (const entries)",
            table.name
        )));
    }
    check_not_const(table, entry)
}

/// "the is_const field must be false in any INSERT, MODIFY, or DELETE"
fn check_not_const(table: &BoundTable, entry: &p4::TableEntry) -> UpdateResult<()> {
    if !entry.is_const {
        return Ok(());
    }
    Err(UpdateError::invalid(format!(
        "{}: is_const: true given, false expected in a write",
        table.name
    )))
}

/// The values that a controller attaches to an entry.
fn entry_annotation(
    table: &BoundTable,
    limits: &ServerLimits,
    entry: &p4::TableEntry,
) -> UpdateResult<EntryAnnotation> {
    let controller_metadata = translate::controller_metadata(entry);
    annotation(limits, &table.name, controller_metadata, &entry.metadata)
}

/// An entry's direct counter and meter.
fn entry_resources(table: &BoundTable, entry: &p4::TableEntry) -> UpdateResult<Direct> {
    Ok(Direct {
        counter: direct_counter(table, entry.counter_data.as_ref())?,
        meter: direct_meter(
            table,
            entry.meter_config.as_ref(),
            entry.meter_counter_data.as_ref(),
        )?,
        idle_ns: None,
    })
}

/// Specification, section "Idle-timeout"; `None` for a table without.
fn idle_timeout(table: &BoundTable, entry: &p4::TableEntry) -> UpdateResult<Option<u64>> {
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

fn direct_counter(
    table: &BoundTable,
    data: Option<&p4::CounterData>,
) -> UpdateResult<Option<CounterValue>> {
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

/// The write of a direct meter that an update makes. `None`: the table has none. "If unset: the meter
/// entry's configuration is reset to the default (meter returns GREEN for all packets)."
fn direct_meter(
    table: &BoundTable,
    config: Option<&p4::MeterConfig>,
    counts: Option<&p4::MeterCounterData>,
) -> UpdateResult<Option<MeterWrite>> {
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
    translate::meter_write(config, counts, kind, &table.name).map(Some)
}

/// Specification, section "Default Entry".
fn default_entry(
    table: &BoundTable,
    limits: &ServerLimits,
    kind: Kind,
    entry: &p4::TableEntry,
) -> UpdateResult<Planned> {
    let object = table.name.clone();
    if kind != Kind::Modify {
        return Err(UpdateError::invalid(format!(
            "{object}: type: {kind:?} given, the default entry can only be modified (MODIFY)"
        )));
    }
    table.check_default_key(entry)?;
    check_not_const(table, entry)?;
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
    let given = entry_resources(table, entry)?;
    use p4::table_action::Type;
    let action = match entry.action.as_ref().map(|action| action.r#type.as_ref()) {
        None => DefaultAction::Reset,
        Some(Some(Type::Action(action))) => DefaultAction::Set(table.action_call(action, true)?),
        Some(_) => {
            return Err(UpdateError::invalid(format!(
                "{object}: action: an action expected for the default entry"
            )));
        }
    };
    let (direct, kept) = if action == DefaultAction::Reset {
        // "When resetting the default entry, its metadata ... will be reset." "When resetting the
        // default entry, its ... value as well as the configurations for its direct resources will
        // be reset to their defaults". The update's own values apply after that.
        let direct = Direct {
            counter: table
                .direct_counter
                .then(|| given.counter.unwrap_or_default()),
            meter: given.meter.map(|meter| MeterWrite {
                clear_counts: true,
                ..meter
            }),
            idle_ns: None,
        };
        (direct, None)
    } else {
        (given, Some(entry_annotation(table, limits, entry)?))
    };
    Ok(Planned {
        operation: Operation::DefaultModify {
            table: table.index,
            action,
            direct,
        },
        annotation: AnnotationChange::Default(table.index, kept),
        object,
    })
}

/// A change of an entry's direct resources and nothing else.
fn direct_only(table: &BoundTable, key: Option<EntryKey>, direct: Direct) -> Planned {
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
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::DirectCounterEntry,
) -> UpdateResult<Planned> {
    let (table, key) = pipeline.direct_entry(entry.table_entry.as_ref(), "direct_counter_entry")?;
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
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::DirectMeterEntry,
) -> UpdateResult<Planned> {
    let (table, key) = pipeline.direct_entry(entry.table_entry.as_ref(), "direct_meter_entry")?;
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
