//! `RECONCILE_AND_COMMIT`: installs another program with all state written for the running one
//! (specification, section "SetForwardingPipelineConfig RPC").
//!
//! The state is read as entities, as a controller would read it, and written to the staged program.
//! Ids are P4Info's, which the compiler keeps for objects of the same name. Packets go through the
//! old program until the new one is complete.

use std::collections::HashSet;

use prost::Message;
use tonic::{Code, Status};

use crate::error::UpdateError;
use crate::plan::{self, Planned};
use crate::proto::p4::v1 as p4;
use crate::proto::p4::v1::entity::Entity;
use crate::proto::p4::v1::update::Type;
use crate::roles::Scope;
use crate::shared::Shared;
use crate::state::{InstalledPipeline, PipelineState};
use crate::{bytestring, read, write};

/// State that another program takes over.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    written: Vec<Entity>,
    /// Entries of the running program's source that have been deleted since.
    deleted: Vec<p4::TableEntry>,
}

/// The entries of these tables.
pub(crate) async fn entries_of(
    shared: &Shared,
    state: &PipelineState,
    tables: &[u32],
) -> Result<Vec<p4::TableEntry>, Status> {
    let all = tables.iter().map(|&table_id| {
        Entity::TableEntry(p4::TableEntry {
            table_id,
            ..Default::default()
        })
    });
    let entities = read::collect(shared, state, all.collect(), |_| true).await?;
    let entries = entities.into_iter().filter_map(|entity| match entity {
        Entity::TableEntry(entry) => Some(entry),
        _ => None,
    });
    Ok(entries.collect())
}

/// The key of an entry, in a form that can be hashed.
fn key_of(entry: &p4::TableEntry) -> Vec<u8> {
    let key = p4::TableEntry {
        table_id: entry.table_id,
        r#match: entry.r#match.clone(),
        priority: entry.priority,
        ..Default::default()
    };
    key.encode_to_vec()
}

/// Reads all state written for the running program.
pub(crate) async fn state_of(
    shared: &Shared,
    state: &PipelineState,
    active: &InstalledPipeline,
) -> Result<Kept, Status> {
    use p4::packet_replication_engine_entry::Type as Replication;
    let replication = |entry| {
        Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
            r#type: Some(entry),
        })
    };
    let defaults = active.pipeline.tables.iter().filter_map(|table| {
        active.annotations.of_default(table.index).map(|_| {
            Entity::TableEntry(p4::TableEntry {
                table_id: table.id,
                is_default_action: true,
                ..Default::default()
            })
        })
    });
    let mut requests = vec![
        // In the order of writing: an object comes before those that refer to it.
        Entity::ActionProfileMember(p4::ActionProfileMember::default()),
        Entity::ActionProfileGroup(p4::ActionProfileGroup::default()),
        replication(Replication::MulticastGroupEntry(
            p4::MulticastGroupEntry::default(),
        )),
        replication(Replication::CloneSessionEntry(
            p4::CloneSessionEntry::default(),
        )),
        Entity::ValueSetEntry(p4::ValueSetEntry::default()),
        Entity::DigestEntry(p4::DigestEntry::default()),
        Entity::TableEntry(p4::TableEntry {
            counter_data: Some(p4::CounterData::default()),
            meter_config: Some(p4::MeterConfig::default()),
            ..Default::default()
        }),
        Entity::CounterEntry(p4::CounterEntry::default()),
        Entity::MeterEntry(p4::MeterEntry::default()),
    ];
    // Registers that cannot be read as values cannot be kept either.
    requests.push(Entity::RegisterEntry(p4::RegisterEntry::default()));
    requests.extend(defaults);
    // Counters and meters of misses, also where the default action is the program's own.
    let default_entry = p4::TableEntry {
        is_default_action: true,
        ..Default::default()
    };
    requests.push(Entity::DirectCounterEntry(p4::DirectCounterEntry {
        table_entry: Some(default_entry.clone()),
        data: None,
    }));
    requests.push(Entity::DirectMeterEntry(p4::DirectMeterEntry {
        table_entry: Some(default_entry),
        ..Default::default()
    }));
    let written = read::collect(shared, state, requests, is_worth_keeping).await?;
    let tables: HashSet<u32> = active.preset.iter().map(|entry| entry.table_id).collect();
    let of_these = written.iter().filter_map(|entity| match entity {
        Entity::TableEntry(entry) if tables.contains(&entry.table_id) => Some(key_of(entry)),
        _ => None,
    });
    let there: HashSet<Vec<u8>> = of_these.collect();
    let presets = active.preset.iter();
    let deleted = presets.filter(|preset| !there.contains(&key_of(preset)));
    Ok(Kept {
        deleted: deleted.cloned().collect(),
        written,
    })
}

/// Whether an entity must be written to the new program. The new program begins with empty arrays and
/// sets, and with its constant entries, of which only values beside the action are kept.
fn is_worth_keeping(entity: &Entity) -> bool {
    use p4::p4_data::Data;
    match entity {
        Entity::TableEntry(entry) => {
            !entry.is_const || is_given(entry) || has_counted(entry.counter_data)
        }
        Entity::ValueSetEntry(entry) => !entry.members.is_empty(),
        Entity::CounterEntry(p4::CounterEntry { data, .. })
        | Entity::DirectCounterEntry(p4::DirectCounterEntry { data, .. }) => has_counted(*data),
        Entity::MeterEntry(entry) => entry.config.is_some(),
        Entity::DirectMeterEntry(entry) => entry.config.is_some(),
        Entity::RegisterEntry(entry) => match entry.data.as_ref().and_then(|d| d.data.as_ref()) {
            Some(Data::Bitstring(value) | Data::EnumValue(value)) => !bytestring::is_zero(value),
            Some(Data::Bool(value)) => *value,
            // A cell may hold a number that has no name.
            Some(Data::Enum(name)) => !name.is_empty(),
            _ => false,
        },
        _ => true,
    }
}

fn has_counted(data: Option<p4::CounterData>) -> bool {
    data.is_some_and(|data| data != p4::CounterData::default())
}

/// Whether a controller gave an entry a value beside its action that must not be lost.
fn is_given(entry: &p4::TableEntry) -> bool {
    entry.meter_config.is_some() || !entry.metadata.is_empty()
}

/// Writes the state to the staged program `active`.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the state that cannot be preserved.
pub(crate) async fn write_to(
    shared: &Shared,
    active: &mut InstalledPipeline,
    state: Kept,
) -> Result<(), Status> {
    let presets: HashSet<Vec<u8>> = active.preset.iter().map(key_of).collect();
    let deleted = state.deleted.into_iter();
    let deleted = deleted.filter(|entry| presets.contains(&key_of(entry)));
    let deletions = deleted.map(|entry| update(Type::Delete, Entity::TableEntry(entry)));
    let written = state.written.into_iter().map(writing);
    let mut updates: Vec<p4::Update> = deletions.chain(written).collect();
    // Counters of objects that the new program does not have are left out.
    updates.retain(
        |update| match update.entity.as_ref().and_then(|e| e.entity.as_ref()) {
            Some(Entity::CounterEntry(entry)) => active.pipeline.counter(entry.counter_id).is_ok(),
            Some(Entity::DirectCounterEntry(entry)) => {
                let id = entry.table_entry.as_ref().map_or(0, |entry| entry.table_id);
                let table = active.pipeline.table(id);
                table.is_ok_and(|table| table.direct_counter)
            }
            _ => true,
        },
    );
    let planned = planned(shared, active, &updates)?;
    let results = write::run_each(shared, planned.iter().map(Ok)).await?;
    let mut again = Vec::new();
    for ((planned, result), update) in planned.into_iter().zip(results).zip(updates) {
        match result {
            Ok(()) => active.annotations.apply(planned.annotation),
            // The new program has an entry with this key.
            Err(error) if error.code == Code::AlreadyExists => again.push(p4::Update {
                r#type: Type::Modify.into(),
                ..update
            }),
            // Counts of an entry that the new program does not have are left out.
            Err(error) if error.code == Code::NotFound && is_statistics(&update) => {}
            Err(error) => return Err(not_preserved(&error)),
        }
    }
    let planned = self::planned(shared, active, &again)?;
    let results = write::run_each(shared, planned.iter().map(Ok)).await?;
    for (planned, result) in planned.into_iter().zip(results) {
        result.map_err(|error| not_preserved(&error))?;
        active.annotations.apply(planned.annotation);
    }
    Ok(())
}

fn planned(
    shared: &Shared,
    active: &InstalledPipeline,
    updates: &[p4::Update],
) -> Result<Vec<Planned>, Status> {
    let limits = &shared.config.limits;
    let everything = Scope::default();
    updates
        .iter()
        .map(|update| {
            plan::plan(&active.pipeline, limits, &everything, update)
                .map_err(|error| not_preserved(&error))
        })
        .collect()
}

/// Whether an update gives an existing entry counts, and nothing else.
fn is_statistics(update: &p4::Update) -> bool {
    match update.entity.as_ref().and_then(|e| e.entity.as_ref()) {
        Some(Entity::TableEntry(entry)) => entry.action.is_none() && !is_given(entry),
        _ => false,
    }
}

/// The update that writes an entity that was read.
fn writing(mut entity: Entity) -> p4::Update {
    let constant = match &mut entity {
        Entity::TableEntry(entry) if entry.is_const => {
            // The program itself has the entry, so its action must not be given.
            entry.is_const = false;
            entry.action = None;
            true
        }
        _ => false,
    };
    let kind = match &entity {
        Entity::TableEntry(_) if constant => Type::Modify,
        Entity::TableEntry(entry) if entry.is_default_action => Type::Modify,
        Entity::ValueSetEntry(_)
        | Entity::CounterEntry(_)
        | Entity::MeterEntry(_)
        | Entity::DirectCounterEntry(_)
        | Entity::DirectMeterEntry(_)
        | Entity::RegisterEntry(_) => Type::Modify,
        _ => Type::Insert,
    };
    update(kind, entity)
}

fn update(kind: Type, entity: Entity) -> p4::Update {
    p4::Update {
        r#type: kind.into(),
        entity: Some(p4::Entity {
            entity: Some(entity),
        }),
    }
}

fn not_preserved(error: &UpdateError) -> Status {
    Status::invalid_argument(format!(
        "config: the forwarding state cannot be preserved: {}",
        error.message
    ))
}
