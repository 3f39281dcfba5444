//! The `Write` RPC: updates to operations on the data plane, and their execution
//! (specification, section "Write RPC").

use std::sync::Arc;

use dataplane::control::{
    ActionCall, Bits, ControlResult, CounterValue, EntryKey, MeterConfig, RemovedEntry, Replica,
};
use tonic::{Code, Status};

use crate::error::{UpdateError, write_status};
use crate::executor::{self, Switch};
use crate::pipeline_config::{Cookie, GroupCookie, PipelineState};
use crate::proto::p4::v1 as p4;
use crate::server::{Limits, Shared};
use crate::translate::{self, Array, Cell, Pipeline, Table};

type Result<T> = std::result::Result<T, UpdateError>;

/// Operations run in one visit to the data plane's thread; packets pass between visits.
const OPERATIONS_PER_VISIT: usize = 256;
/// Entries of a table read in one visit. (A switch of 64-byte frames has some 2,000 a
/// millisecond to forward; copying these takes a fraction of one.)
pub(crate) const ENTRIES_PER_VISIT: usize = 1_024;
/// Cells of an array read or written in one visit.
pub(crate) const CELLS_PER_VISIT: usize = 4_096;

/// One operation on the data plane; tables and arrays by the data plane's index.
#[derive(Debug, Clone, PartialEq)]
enum Operation {
    TableInsert {
        table: usize,
        key: EntryKey,
        action: ActionCall,
        counter: Option<CounterValue>,
        meter: Option<MeterConfig>,
    },
    TableModify {
        table: usize,
        key: EntryKey,
        /// `None`: keep the action.
        action: Option<ActionCall>,
        /// `None`: keep the counter.
        counter: Option<CounterValue>,
        /// `None`: no direct meter.
        meter: Option<Option<MeterConfig>>,
    },
    TableDelete {
        table: usize,
        key: EntryKey,
    },
    DefaultSet {
        table: usize,
        action: Option<ActionCall>,
    },
    CellSet {
        array: usize,
        index: usize,
        value: CellValue,
    },
    /// All cells; takes several visits.
    Fill {
        array: usize,
        size: usize,
        value: CellValue,
    },
    GroupInsert {
        group: u32,
        replicas: Vec<Replica>,
    },
    GroupModify {
        group: u32,
        replicas: Vec<Replica>,
    },
    GroupDelete {
        group: u32,
    },
    /// Valid, but changes nothing.
    Nothing,
}

#[derive(Debug, Clone, PartialEq)]
enum CellValue {
    Counter(CounterValue),
    Meter(Option<MeterConfig>),
    Register(Bits),
}

/// What an update changes beside the data plane.
#[derive(Debug, Clone, PartialEq)]
enum SideChange {
    None,
    Entry(usize, EntryKey, Cookie),
    EntryGone(usize, EntryKey),
    Default(usize, Cookie),
    Group(u32, GroupCookie),
    GroupGone(u32),
}

/// An update, checked and translated.
#[derive(Debug, Clone, PartialEq)]
struct Planned {
    operation: Operation,
    side: SideChange,
    /// P4 name, for errors of the data plane.
    object: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Modify,
    Delete,
}

/// `Write`, after the checks of device and primary; the caller holds the write lock.
pub(crate) async fn write(
    shared: &Shared,
    state: &mut PipelineState,
    request: p4::WriteRequest,
) -> std::result::Result<(), Status> {
    let pipeline = state.usable()?;
    let most = shared.config.limits.updates_per_write;
    if request.updates.len() > most {
        return Err(Status::invalid_argument(format!(
            "updates: {} given, at most {most} expected in one WriteRequest",
            request.updates.len()
        )));
    }
    let planned: Vec<Result<Planned>> = request
        .updates
        .iter()
        .map(|update| plan(&pipeline, &shared.config.limits, update))
        .collect();
    use p4::write_request::Atomicity;
    let results = match Atomicity::try_from(request.atomicity) {
        Ok(Atomicity::ContinueOnError) => run_each(shared, &planned).await?,
        // A batch runs in one visit, between two packets, and is undone at the first error:
        // that is both modes at once.
        Ok(Atomicity::RollbackOnError | Atomicity::DataplaneAtomic) => {
            run_all_or_none(shared, &planned).await?
        }
        Err(_) => {
            return Err(Status::invalid_argument(format!(
                "atomicity: {} given, CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR or DATAPLANE_ATOMIC \
                 expected",
                request.atomicity
            )));
        }
    };
    for (planned, result) in planned.into_iter().zip(&results) {
        if let (Ok(planned), Ok(())) = (planned, result) {
            change_side(state, planned.side);
        }
    }
    write_status(&results)
}

/// Runs every operation whatever becomes of the others.
async fn run_each(
    shared: &Shared,
    planned: &[Result<Planned>],
) -> std::result::Result<Vec<Result<()>>, Status> {
    let mut results: Vec<Result<()>> = Vec::with_capacity(planned.len());
    let mut rest = planned;
    while let Some(first) = rest.first() {
        match first {
            Err(error) => {
                results.push(Err(error.clone()));
                rest = rest.get(1..).unwrap_or(&[]);
            }
            Ok(Planned {
                operation: Operation::Fill { array, size, value },
                object,
                ..
            }) => {
                results.push(fill(shared, *array, *size, value, object).await?);
                rest = rest.get(1..).unwrap_or(&[]);
            }
            Ok(_) => {
                let run: Vec<(Operation, String)> = rest
                    .iter()
                    .take(OPERATIONS_PER_VISIT)
                    .map_while(|planned| match planned {
                        Ok(planned) if !matches!(planned.operation, Operation::Fill { .. }) => {
                            Some((planned.operation.clone(), planned.object.clone()))
                        }
                        _ => None,
                    })
                    .collect();
                rest = rest.get(run.len()..).unwrap_or(&[]);
                let done = executor::with(&*shared.executor, move |switch| {
                    run.iter()
                        .map(|(operation, object)| {
                            apply(operation, switch)
                                .map_err(|error| UpdateError::from_control(error, object))
                        })
                        .collect::<Vec<_>>()
                })
                .await?;
                results.extend(done);
            }
        }
    }
    Ok(results)
}

/// Runs all operations in one visit; the first that fails undoes those before it.
async fn run_all_or_none(
    shared: &Shared,
    planned: &[Result<Planned>],
) -> std::result::Result<Vec<Result<()>>, Status> {
    let aborted = || {
        UpdateError::new(
            Code::Aborted,
            "not applied: another update of the batch failed",
        )
    };
    if planned.iter().any(Result::is_err) {
        return Ok(planned
            .iter()
            .map(|planned| match planned {
                Ok(_) => Err(aborted()),
                Err(error) => Err(error.clone()),
            })
            .collect());
    }
    let operations: Vec<(Operation, String)> = planned
        .iter()
        .filter_map(|planned| planned.as_ref().ok())
        .map(|planned| (planned.operation.clone(), planned.object.clone()))
        .collect();
    if let Some((_, object)) = operations
        .iter()
        .find(|(operation, _)| matches!(operation, Operation::Fill { .. }))
    {
        return Err(Status::unimplemented(format!(
            "{object}: writing all cells (index not given) is implemented for CONTINUE_ON_ERROR \
             only"
        )));
    }
    let count = operations.len();
    let failure = executor::with(&*shared.executor, move |switch| {
        let mut undos: Vec<Undo> = Vec::with_capacity(count);
        for (position, (operation, object)) in operations.iter().enumerate() {
            match apply_with_undo(operation, switch) {
                Ok(undo) => undos.push(undo),
                Err(error) => {
                    // Each restores a state that was there: it cannot be refused.
                    for undo in undos.into_iter().rev() {
                        if let Err(error) = undo.run(switch) {
                            tracing::error!(%error, "rollback of a batch failed");
                        }
                    }
                    return Some((position, UpdateError::from_control(error, object)));
                }
            }
        }
        None
    })
    .await?;
    Ok(match failure {
        None => (0..count).map(|_| Ok(())).collect(),
        Some((failed, error)) => (0..count)
            .map(|position| {
                Err(if position == failed {
                    error.clone()
                } else {
                    aborted()
                })
            })
            .collect(),
    })
}

/// Writes all cells of an array, some thousand per visit.
async fn fill(
    shared: &Shared,
    array: usize,
    size: usize,
    value: &CellValue,
    object: &str,
) -> std::result::Result<Result<()>, Status> {
    let mut start = 0;
    while start < size {
        let end = size.min(start + CELLS_PER_VISIT);
        let value = value.clone();
        let done = executor::with(&*shared.executor, move |switch| {
            (start..end).try_for_each(|index| set_cell(array, index, &value, switch))
        })
        .await?;
        if let Err(error) = done {
            return Ok(Err(UpdateError::from_control(error, object)));
        }
        start = end;
    }
    Ok(Ok(()))
}

fn set_cell(
    array: usize,
    index: usize,
    value: &CellValue,
    switch: &mut dyn Switch,
) -> ControlResult<()> {
    match value {
        CellValue::Counter(value) => switch.counter_write(array, index, *value),
        CellValue::Meter(config) => switch.meter_write(array, index, *config),
        CellValue::Register(value) => switch.register_write(array, index, value),
    }
}

/// Applies one operation; a refused one changes nothing.
fn apply(operation: &Operation, switch: &mut dyn Switch) -> ControlResult<()> {
    match operation {
        Operation::TableInsert {
            table,
            key,
            action,
            counter,
            meter,
        } => {
            switch.table_insert(*table, key, action)?;
            let direct = set_direct(*table, key, *counter, meter.map(Some), switch);
            if direct.is_err() {
                switch.table_delete(*table, key)?;
            }
            direct
        }
        Operation::TableModify {
            table,
            key,
            action,
            counter,
            meter,
        } => {
            let before = switch.table_entry(*table, key)?;
            if let Some(action) = action {
                switch.table_modify(*table, key, action)?;
            }
            let direct = set_direct(*table, key, *counter, *meter, switch);
            if direct.is_err() && action.is_some() {
                switch.table_modify(*table, key, &before.action)?;
            }
            direct
        }
        Operation::TableDelete { table, key } => switch.table_delete(*table, key).map(drop),
        Operation::DefaultSet { table, action } => {
            switch.table_set_default(*table, action.as_ref())
        }
        Operation::CellSet {
            array,
            index,
            value,
        } => set_cell(*array, *index, value, switch),
        Operation::Fill { array, size, value } => {
            (0..*size).try_for_each(|index| set_cell(*array, index, value, switch))
        }
        Operation::GroupInsert { group, replicas } => switch.multicast_insert(*group, replicas),
        Operation::GroupModify { group, replicas } => switch.multicast_modify(*group, replicas),
        Operation::GroupDelete { group } => switch.multicast_delete(*group),
        Operation::Nothing => Ok(()),
    }
}

/// Sets an entry's direct resources; the meter first, because only its values can be refused.
fn set_direct(
    table: usize,
    key: &EntryKey,
    counter: Option<CounterValue>,
    meter: Option<Option<MeterConfig>>,
    switch: &mut dyn Switch,
) -> ControlResult<()> {
    if let Some(config) = meter {
        switch.direct_meter_set(table, key, config)?;
    }
    if let Some(value) = counter {
        switch.direct_counter_set(table, key, value)?;
    }
    Ok(())
}

/// How to take an operation back.
#[derive(Debug)]
enum Undo {
    /// By another operation.
    Apply(Operation),
    /// By putting back the very entry that was removed.
    Restore { table: usize, removed: RemovedEntry },
}

impl Undo {
    fn run(self, switch: &mut dyn Switch) -> ControlResult<()> {
        match self {
            Self::Apply(operation) => apply(&operation, switch),
            Self::Restore { table, removed } => switch.table_restore(table, removed),
        }
    }
}

/// Applies one operation, as [`apply`], and tells how to take it back.
fn apply_with_undo(operation: &Operation, switch: &mut dyn Switch) -> ControlResult<Undo> {
    if let Operation::TableDelete { table, key } = operation {
        let removed = switch.table_delete(*table, key)?;
        return Ok(Undo::Restore {
            table: *table,
            removed,
        });
    }
    let inverse = inverse(operation, switch)?;
    apply(operation, switch)?;
    Ok(Undo::Apply(inverse))
}

/// The operation that takes `operation` back, found before it is applied; not for a
/// [`Operation::TableDelete`], whose entry only [`Undo::Restore`] brings back whole.
fn inverse(operation: &Operation, switch: &mut dyn Switch) -> ControlResult<Operation> {
    Ok(match operation {
        Operation::TableInsert { table, key, .. } => Operation::TableDelete {
            table: *table,
            key: key.clone(),
        },
        Operation::TableModify {
            table, key, meter, ..
        } => {
            let before = switch.table_entry(*table, key)?;
            Operation::TableModify {
                table: *table,
                key: key.clone(),
                action: Some(before.action),
                counter: before.counter,
                meter: meter.map(|_| before.meter),
            }
        }
        Operation::DefaultSet { table, .. } => Operation::DefaultSet {
            table: *table,
            action: switch.table_default(*table),
        },
        Operation::CellSet {
            array,
            index,
            value,
        } => Operation::CellSet {
            array: *array,
            index: *index,
            value: match value {
                CellValue::Counter(_) => CellValue::Counter(switch.counter_read(*array, *index)?),
                CellValue::Meter(_) => CellValue::Meter(switch.meter_read(*array, *index)?),
                CellValue::Register(_) => {
                    CellValue::Register(switch.register_read(*array, *index)?)
                }
            },
        },
        Operation::GroupInsert { group, .. } => Operation::GroupDelete { group: *group },
        Operation::GroupModify { group, .. } => Operation::GroupModify {
            group: *group,
            replicas: group_replicas(*group, switch),
        },
        Operation::GroupDelete { group } => Operation::GroupInsert {
            group: *group,
            replicas: group_replicas(*group, switch),
        },
        Operation::TableDelete { .. } | Operation::Fill { .. } | Operation::Nothing => {
            Operation::Nothing
        }
    })
}

fn group_replicas(group: u32, switch: &mut dyn Switch) -> Vec<Replica> {
    switch
        .multicast_groups()
        .into_iter()
        .find(|(id, _)| *id == group)
        .map(|(_, replicas)| replicas)
        .unwrap_or_default()
}

fn change_side(state: &mut PipelineState, side: SideChange) {
    match side {
        SideChange::None => {}
        SideChange::Entry(table, key, cookie) => {
            if cookie == Cookie::default() {
                state.cookies.remove(&(table, key));
            } else {
                state.cookies.insert((table, key), cookie);
            }
        }
        SideChange::EntryGone(table, key) => {
            state.cookies.remove(&(table, key));
        }
        SideChange::Default(table, cookie) => {
            state.default_cookies.insert(table, cookie);
        }
        SideChange::Group(group, cookie) => {
            state.group_cookies.insert(group, cookie);
        }
        SideChange::GroupGone(group) => {
            state.group_cookies.remove(&group);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// From message to operation

fn plan(pipeline: &Pipeline, limits: &Limits, update: &p4::Update) -> Result<Planned> {
    use p4::entity::Entity;
    let Some(entity) = update
        .entity
        .as_ref()
        .and_then(|entity| entity.entity.as_ref())
    else {
        return Err(UpdateError::invalid("entity: not given"));
    };
    use p4::update::Type;
    let kind = match Type::try_from(update.r#type) {
        Ok(Type::Insert) => Kind::Insert,
        Ok(Type::Modify) => Kind::Modify,
        Ok(Type::Delete) => Kind::Delete,
        Ok(Type::Unspecified) | Err(_) => {
            return Err(UpdateError::invalid(format!(
                "type: {} given, INSERT, MODIFY or DELETE expected",
                update.r#type
            )));
        }
    };
    match entity {
        Entity::TableEntry(entry) => plan_table_entry(pipeline, limits, kind, entry),
        Entity::DirectCounterEntry(entry) => plan_direct_counter(pipeline, kind, entry),
        Entity::DirectMeterEntry(entry) => plan_direct_meter(pipeline, kind, entry),
        Entity::CounterEntry(entry) => {
            let array = pipeline.counter(entry.counter_id)?;
            only_modify(kind, &array.name, "a counter")?;
            let value = match &entry.data {
                Some(data) => Some(CellValue::Counter(translate::counter_value(
                    data,
                    &array.name,
                )?)),
                None => None,
            };
            plan_cell(array, entry.index.as_ref(), value)
        }
        Entity::MeterEntry(entry) => {
            let array = pipeline.meter(entry.meter_id)?;
            only_modify(kind, &array.name, "a meter")?;
            refuse_colour_counters(entry.counter_data.as_ref(), &array.name)?;
            let Cell::Meter(meter) = array.cell else {
                return Err(UpdateError::invalid(format!("{}: not a meter", array.name)));
            };
            let config = entry
                .config
                .as_ref()
                .map(|config| translate::meter_config(config, meter, &array.name))
                .transpose()?;
            plan_cell(array, entry.index.as_ref(), Some(CellValue::Meter(config)))
        }
        Entity::RegisterEntry(entry) => {
            let array = pipeline.register(entry.register_id)?;
            only_modify(kind, &array.name, "a register")?;
            let value = array.register_value(entry.data.as_ref())?;
            plan_cell(
                array,
                entry.index.as_ref(),
                Some(CellValue::Register(value)),
            )
        }
        Entity::PacketReplicationEngineEntry(entry) => {
            use p4::packet_replication_engine_entry::Type;
            match &entry.r#type {
                Some(Type::MulticastGroupEntry(group)) => plan_group(limits, kind, group),
                Some(Type::CloneSessionEntry(session)) => Err(translate::unimplemented_entity(
                    &format!("clone_session_entry {}", session.session_id),
                )),
                None => Err(UpdateError::invalid(
                    "packet_replication_engine_entry: empty, a multicast_group_entry expected",
                )),
            }
        }
        other => Err(translate::unimplemented_entity(entity_name(other))),
    }
}

/// The entity's name as in the protocol.
pub(crate) fn entity_name(entity: &p4::entity::Entity) -> &'static str {
    use p4::entity::Entity;
    match entity {
        Entity::ExternEntry(_) => "extern_entry",
        Entity::TableEntry(_) => "table_entry",
        Entity::ActionProfileMember(_) => "action_profile_member",
        Entity::ActionProfileGroup(_) => "action_profile_group",
        Entity::MeterEntry(_) => "meter_entry",
        Entity::DirectMeterEntry(_) => "direct_meter_entry",
        Entity::CounterEntry(_) => "counter_entry",
        Entity::DirectCounterEntry(_) => "direct_counter_entry",
        Entity::PacketReplicationEngineEntry(_) => "packet_replication_engine_entry",
        Entity::ValueSetEntry(_) => "value_set_entry",
        Entity::RegisterEntry(_) => "register_entry",
        Entity::DigestEntry(_) => "digest_entry",
    }
}

fn only_modify(kind: Kind, object: &str, what: &str) -> Result<()> {
    if kind == Kind::Modify {
        return Ok(());
    }
    Err(UpdateError::invalid(format!(
        "{object}: type: {kind:?} given, {what} can only be modified (MODIFY)"
    )))
}

/// Counts per colour are not kept (section "MeterCounterData": `UNIMPLEMENTED` then).
pub(crate) fn refuse_colour_counters(
    data: Option<&p4::MeterCounterData>,
    object: &str,
) -> Result<()> {
    if data.is_none() {
        return Ok(());
    }
    Err(UpdateError::unimplemented(format!(
        "{object}: counts per meter colour are not implemented"
    )))
}

fn plan_cell(
    array: &Array,
    index: Option<&p4::Index>,
    value: Option<CellValue>,
) -> Result<Planned> {
    let index = array.index(index)?;
    let operation = match (index, value) {
        // "The counter value is not modified if this Protobuf field is not set."
        (_, None) => Operation::Nothing,
        (Some(index), Some(value)) => Operation::CellSet {
            array: array.index,
            index,
            value,
        },
        (None, Some(value)) => Operation::Fill {
            array: array.index,
            size: array.size,
            value,
        },
    };
    Ok(Planned {
        operation,
        side: SideChange::None,
        object: array.name.clone(),
    })
}

fn cookie(
    limits: &Limits,
    object: &str,
    controller_metadata: u64,
    metadata: &[u8],
) -> Result<Cookie> {
    if metadata.len() > limits.metadata_bytes {
        return Err(UpdateError::new(
            Code::ResourceExhausted,
            format!(
                "{object}: metadata: {} bytes given, at most {} are kept",
                metadata.len(),
                limits.metadata_bytes
            ),
        ));
    }
    Ok(Cookie {
        controller_metadata,
        metadata: metadata.to_vec(),
    })
}

fn plan_table_entry(
    pipeline: &Pipeline,
    limits: &Limits,
    kind: Kind,
    entry: &p4::TableEntry,
) -> Result<Planned> {
    let table = pipeline.table(entry.table_id)?;
    let object = table.name.clone();
    if entry.is_default_action {
        return plan_default(table, limits, kind, entry);
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
    if entry.is_const {
        return Err(UpdateError::invalid(format!(
            "{object}: is_const: true given, false expected in a write"
        )));
    }
    if entry.idle_timeout_ns != 0 {
        return Err(UpdateError::invalid(format!(
            "{object}: idle_timeout_ns: {} given, 0 expected (the table has no idle timeout)",
            entry.idle_timeout_ns
        )));
    }
    let counter = direct_counter(table, entry.counter_data.as_ref())?;
    let meter = direct_meter(table, entry.meter_config.as_ref())?;
    refuse_colour_counters(entry.meter_counter_data.as_ref(), &object)?;
    let key = table.entry_key(entry)?;
    let action = entry
        .action
        .as_ref()
        .map(|action| table.action_call(action, false))
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
            counter,
            meter,
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
            counter,
            // "If unset: the meter entry's configuration is reset to the default."
            meter: table.direct_meter.map(|_| meter),
        },
    };
    Ok(Planned {
        operation,
        side: SideChange::Entry(table.index, key, cookie),
        object,
    })
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
fn plan_default(
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
    let action = entry
        .action
        .as_ref()
        .map(|action| table.action_call(action, true))
        .transpose()?;
    let cookie = if action.is_some() {
        cookie(limits, &object, controller_metadata(entry), &entry.metadata)?
    } else {
        // "When resetting the default entry, its metadata ... will be reset."
        Cookie::default()
    };
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

fn plan_direct_counter(
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
            counter,
            meter: None,
        },
        side: SideChange::None,
        object: table.name.clone(),
    })
}

fn plan_direct_meter(
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
            counter: None,
            meter: Some(config),
        },
        side: SideChange::None,
        object: table.name.clone(),
    })
}

fn plan_group(limits: &Limits, kind: Kind, entry: &p4::MulticastGroupEntry) -> Result<Planned> {
    let group = entry.multicast_group_id;
    let object = format!("multicast group {group}");
    if group == 0 {
        return Err(UpdateError::invalid(
            "multicast_group_entry: multicast_group_id: 0 given, 1 to 65535 expected",
        ));
    }
    if kind == Kind::Delete {
        return Ok(Planned {
            operation: Operation::GroupDelete { group },
            side: SideChange::GroupGone(group),
            object,
        });
    }
    let replicas = translate::replicas(entry)?;
    let cookie = cookie(limits, &object, 0, &entry.metadata)?;
    #[allow(deprecated)]
    let deprecated_ports = entry.replicas.iter().any(|replica| {
        matches!(
            replica.port_kind,
            Some(p4::replica::PortKind::EgressPort(_))
        )
    });
    Ok(Planned {
        operation: if kind == Kind::Insert {
            Operation::GroupInsert { group, replicas }
        } else {
            Operation::GroupModify { group, replicas }
        },
        side: SideChange::Group(
            group,
            GroupCookie {
                metadata: cookie.metadata,
                deprecated_ports,
            },
        ),
        object,
    })
}

/// The batch on a task of its own: a client that goes away does not cut it short ("the server
/// will finish processing any Write requests that have already started").
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: p4::WriteRequest,
) -> std::result::Result<(), Status> {
    shared.check_primary(
        request.device_id,
        &request.role,
        request.election_id.as_ref(),
    )?;
    let task = tokio::spawn(async move {
        let _writing = shared.writing.lock().await;
        // Checked again: while this write waited, another controller may have become primary.
        shared.check_primary(
            request.device_id,
            &request.role,
            request.election_id.as_ref(),
        )?;
        let mut state = shared.pipeline.write().await;
        write(&shared, &mut state, request).await
    });
    task.await
        .map_err(|error| Status::internal(format!("the write was cut short: {error}")))?
}
