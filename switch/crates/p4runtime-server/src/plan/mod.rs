//! Planning: each update is checked and translated to an operation before anything is applied.

mod array;
mod planned;
mod profile;
mod replication;
mod table;

use std::collections::HashSet;

use tonic::Code;

use crate::error::{UpdateError, UpdateResult};
use crate::operation::Operation;
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::shared::ServerLimits;
use crate::translate::{self, BoundPipeline};
use planned::{Kind, only_modify};

pub(crate) use planned::Planned;

/// Checks and translates an update.
///
/// # Errors
/// As the specification names them for the entity.
pub(crate) fn plan(
    pipeline: &BoundPipeline,
    limits: &ServerLimits,
    scope: &Scope,
    update: &p4::Update,
) -> UpdateResult<Planned> {
    use p4::entity::Entity;
    let entity = update.entity.as_ref();
    let Some(entity) = entity.and_then(|entity| entity.entity.as_ref()) else {
        return Err(UpdateError::invalid("entity: not given"));
    };
    // "If an update is not allowed under the given controller role, the server must return a
    // PERMISSION_DENIED error for this update."
    if !scope.has_entity(entity) {
        return Err(UpdateError::permission_denied(
            "not of the controller's role (role.config)",
        ));
    }
    let kind = Kind::of(update)?;
    match entity {
        Entity::TableEntry(entry) => table::entry(pipeline, limits, kind, entry),
        Entity::DirectCounterEntry(entry) => table::direct_counter_entry(pipeline, kind, entry),
        Entity::DirectMeterEntry(entry) => table::direct_meter_entry(pipeline, kind, entry),
        Entity::ActionProfileMember(member) => profile::member(pipeline, kind, member),
        Entity::ActionProfileGroup(group) => profile::group(pipeline, kind, group),
        Entity::CounterEntry(entry) => array::counter(pipeline, kind, entry),
        Entity::MeterEntry(entry) => array::meter(pipeline, kind, entry),
        Entity::RegisterEntry(entry) => array::register(pipeline, kind, entry),
        Entity::PacketReplicationEngineEntry(entry) => {
            replication::entry(pipeline, limits, kind, entry)
        }
        Entity::ValueSetEntry(entry) => value_set(pipeline, kind, entry),
        Entity::DigestEntry(entry) => digest(pipeline, kind, entry),
        Entity::ExternEntry(_) => Err(translate::unimplemented_entity("extern_entry")),
    }
}

/// Specification, section "ValueSetEntry".
fn value_set(
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::ValueSetEntry,
) -> UpdateResult<Planned> {
    let set = pipeline.value_set(entry.value_set_id)?;
    only_modify(kind, &set.name, "a value set")?;
    let mut members = Vec::with_capacity(entry.members.len());
    let mut seen = HashSet::with_capacity(entry.members.len());
    for member in &entry.members {
        let fields = set.keys.match_fields(&member.r#match)?;
        if !seen.insert(fields.clone()) {
            return Err(UpdateError::new(
                Code::AlreadyExists,
                format!("{}: members: one of them is given twice", set.name),
            ));
        }
        members.push(fields);
    }
    let operation = Operation::ValueSet {
        set: set.index,
        members,
    };
    Ok(Planned::only(operation, &set.name))
}

/// Specification, section "DigestEntry".
fn digest(pipeline: &BoundPipeline, kind: Kind, entry: &p4::DigestEntry) -> UpdateResult<Planned> {
    let digest = pipeline.digest(entry.digest_id)?;
    let operation = Operation::Digest {
        digest: digest.index,
        change: kind.change(|| digest.config(entry.config.as_ref()))?,
    };
    Ok(Planned::only(operation, &digest.name))
}
