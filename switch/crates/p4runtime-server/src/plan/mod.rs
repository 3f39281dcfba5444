//! From updates to operations: each checked and translated before anything is applied.

mod profile;
mod replication;
mod table;

use std::collections::HashSet;

use tonic::Code;
use v1model::entries::{CellValue, EntryKey, MeterWrite};

use crate::error::UpdateError;
use crate::operation::{Change, Operation};
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::shared::Limits;
use crate::state::{Cookie, GroupCookie, Side};
use crate::translate::{self, Array, Cell, Pipeline};

pub(crate) use table::{check_default_key, controller_metadata, direct_entry};

type Result<T> = std::result::Result<T, UpdateError>;

/// What an update changes beside the data plane.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SideChange {
    None,
    Entry(usize, EntryKey, Cookie),
    EntryGone(usize, EntryKey),
    /// `None`: the program's own again.
    Default(usize, Option<Cookie>),
    Group(u32, GroupCookie),
    GroupGone(u32),
    Session(u32, Vec<bool>),
    SessionGone(u32),
}

impl SideChange {
    pub(crate) fn apply(self, side: &mut Side) {
        match self {
            Self::None => {}
            Self::Entry(table, key, cookie) => {
                if cookie == Cookie::default() {
                    side.cookies.remove(&(table, key));
                } else {
                    side.cookies.insert((table, key), cookie);
                }
            }
            Self::EntryGone(table, key) => {
                side.cookies.remove(&(table, key));
            }
            Self::Default(table, Some(cookie)) => {
                side.default_cookies.insert(table, cookie);
            }
            Self::Default(table, None) => {
                side.default_cookies.remove(&table);
            }
            Self::Group(group, cookie) => {
                side.groups.insert(group, cookie);
            }
            Self::GroupGone(group) => {
                side.groups.remove(&group);
            }
            Self::Session(session, deprecated_ports) => {
                side.sessions.insert(session, deprecated_ports);
            }
            Self::SessionGone(session) => {
                side.sessions.remove(&session);
            }
        }
    }
}

/// An update, checked and translated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) operation: Operation,
    pub(crate) side: SideChange,
    /// P4 name, for errors of the data plane.
    pub(crate) object: String,
}

impl Planned {
    /// An operation with nothing beside it.
    fn only(operation: Operation, object: impl Into<String>) -> Self {
        Self {
            operation,
            side: SideChange::None,
            object: object.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Insert,
    Modify,
    Delete,
}

impl Kind {
    /// The change to an object with a key; a `DELETE` reads nothing but the key.
    fn change<T>(self, content: impl FnOnce() -> Result<T>) -> Result<Change<T>> {
        Ok(match self {
            Self::Insert => Change::Insert(content()?),
            Self::Modify => Change::Modify(content()?),
            Self::Delete => Change::Delete,
        })
    }
}

/// Checks and translates an update.
///
/// # Errors
/// As the specification names them for the entity.
pub(crate) fn plan(
    pipeline: &Pipeline,
    limits: &Limits,
    scope: &Scope,
    update: &p4::Update,
) -> Result<Planned> {
    use p4::entity::Entity;
    let Some(entity) = update
        .entity
        .as_ref()
        .and_then(|entity| entity.entity.as_ref())
    else {
        return Err(UpdateError::invalid("entity: not given"));
    };
    // "If an update is not allowed under the given controller role, the server must return a
    // PERMISSION_DENIED error for this update."
    if !scope.has_entity(entity) {
        return Err(UpdateError::permission_denied(
            "not of the controller's role (role.config)",
        ));
    }
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
        Entity::TableEntry(entry) => table::entry(pipeline, limits, kind, entry),
        Entity::DirectCounterEntry(entry) => table::direct_counter_entry(pipeline, kind, entry),
        Entity::DirectMeterEntry(entry) => table::direct_meter_entry(pipeline, kind, entry),
        Entity::ActionProfileMember(member) => profile::member(pipeline, kind, member),
        Entity::ActionProfileGroup(group) => profile::group(pipeline, kind, group),
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
            let Cell::Meter(meter) = array.cell else {
                return Err(UpdateError::invalid(format!("{}: not a meter", array.name)));
            };
            let config = entry
                .config
                .as_ref()
                .map(|config| translate::meter_config(config, meter, &array.name))
                .transpose()?;
            let write = MeterWrite {
                config,
                clear_counts: clears_counts(entry.counter_data.as_ref(), &array.name)?,
            };
            plan_cell(array, entry.index.as_ref(), Some(CellValue::Meter(write)))
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
                Some(Type::MulticastGroupEntry(group)) => {
                    replication::multicast_group(limits, kind, group)
                }
                Some(Type::CloneSessionEntry(session)) => replication::clone_session(kind, session),
                None => Err(UpdateError::invalid(
                    "packet_replication_engine_entry: empty, a multicast_group_entry or \
                     clone_session_entry expected",
                )),
            }
        }
        Entity::ValueSetEntry(entry) => {
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
        Entity::DigestEntry(entry) => {
            let digest = pipeline.digest(entry.digest_id)?;
            let operation = Operation::Digest {
                digest: digest.index,
                change: kind.change(|| digest.config(entry.config.as_ref()))?,
            };
            Ok(Planned::only(operation, &digest.name))
        }
        Entity::ExternEntry(_) => Err(translate::unimplemented_entity("extern_entry")),
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

/// Whether a write clears the counts of a meter's colours (section "DirectMeterEntry"): "If the field
/// is set, targets supporting these counters should reset all the color counters to (0), if any of
/// the sub-fields are set to a non-zero value, then an INVALID_ARGUMENT error should be returned."
fn clears_counts(data: Option<&p4::MeterCounterData>, object: &str) -> Result<bool> {
    let Some(data) = data else {
        return Ok(false);
    };
    let given = [&data.green, &data.yellow, &data.red];
    let counted = |count: &&p4::CounterData| **count != p4::CounterData::default();
    if given.into_iter().flatten().any(|count| counted(&count)) {
        return Err(UpdateError::invalid(format!(
            "{object}: counts of a meter's colours: other than 0 given; a write can only reset them"
        )));
    }
    Ok(true)
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
    Ok(Planned::only(operation, &array.name))
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
