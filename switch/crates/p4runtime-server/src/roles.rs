//! The permissions of a role's controllers (specification, section "Role Config"; the scheme is
//! `pacer.v1.RoleConfig`).

use prost::Message;

use crate::bytestring::canonical;
use crate::error::UpdateError;
use crate::proto::p4::v1 as p4;
use crate::proto::p4::v1::stream_message_response::Update;
use crate::proto::pacer::v1 as pacer;

/// Name of the scheme in `Role.config`.
const TYPE_NAME: &str = "pacer.v1.RoleConfig";

/// The permissions of a role.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Scope {
    /// Permission for everything.
    #[default]
    All,
    /// Permission for the objects that a config names.
    Only(pacer::RoleConfig),
    /// Permission for all objects but those in the configs of other roles, joined here.
    AllBut(pacer::RoleConfig),
}

impl Scope {
    /// # Errors
    /// `INVALID_ARGUMENT`: not of the scheme.
    pub(crate) fn new(config: Option<&prost_types::Any>) -> Result<Self, UpdateError> {
        let Some(config) = config else {
            return Ok(Self::All);
        };
        let refuse =
            |text: String| UpdateError::invalid(format!("arbitration: role.config: {text}"));
        let name = config.type_url.rsplit('/').next().unwrap_or_default();
        if name != TYPE_NAME {
            return Err(refuse(format!(
                "a message of type {:?} given, {TYPE_NAME} expected",
                config.type_url
            )));
        }
        let limits = pacer::RoleConfig::decode(config.value.as_slice())
            .map_err(|error| refuse(format!("no {TYPE_NAME}: {error}")))?;
        Ok(Self::Only(limits))
    }

    /// Permission for the objects that no role with a config has.
    pub(crate) fn what_is_left_by<'a>(others: impl Iterator<Item = &'a Self>) -> Self {
        let mut named: Option<pacer::RoleConfig> = None;
        for other in others {
            let Self::Only(other) = other else {
                continue;
            };
            let named = named.get_or_insert_default();
            named.p4_ids.extend(&other.p4_ids);
            named.replication |= other.replication;
            named.pipeline |= other.pipeline;
            named.packet_outs |= other.packet_outs;
            named.ports |= other.ports;
        }
        named.map_or(Self::All, Self::AllBut)
    }

    /// Whether the role has the permission of a config's flag.
    fn allows(&self, flag: impl Fn(&pacer::RoleConfig) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Only(limits) => flag(limits),
            Self::AllBut(named) => !flag(named),
        }
    }

    /// Whether an object of P4Info is the role's.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.allows(|limits| limits.p4_ids.contains(&id))
    }

    /// Whether an entity is the role's.
    pub(crate) fn has_entity(&self, entity: &p4::entity::Entity) -> bool {
        use p4::entity::Entity;
        let table = |entry: Option<&p4::TableEntry>| entry.map_or(0, |entry| entry.table_id);
        let id = match entity {
            Entity::TableEntry(entry) => entry.table_id,
            Entity::DirectCounterEntry(entry) => table(entry.table_entry.as_ref()),
            Entity::DirectMeterEntry(entry) => table(entry.table_entry.as_ref()),
            Entity::ActionProfileMember(member) => member.action_profile_id,
            Entity::ActionProfileGroup(group) => group.action_profile_id,
            Entity::CounterEntry(entry) => entry.counter_id,
            Entity::MeterEntry(entry) => entry.meter_id,
            Entity::RegisterEntry(entry) => entry.register_id,
            Entity::ValueSetEntry(entry) => entry.value_set_id,
            Entity::DigestEntry(entry) => entry.digest_id,
            Entity::ExternEntry(entry) => entry.extern_id,
            Entity::PacketReplicationEngineEntry(_) => {
                return self.allows(|limits| limits.replication);
            }
        };
        self.has(id)
    }

    pub(crate) fn may_set_pipeline(&self) -> bool {
        self.allows(|limits| limits.pipeline)
    }

    pub(crate) fn may_set_ports(&self) -> bool {
        self.allows(|limits| limits.ports)
    }

    pub(crate) fn may_send(&self, packet: &p4::PacketOut) -> bool {
        self.allows(|limits| {
            limits.packet_outs && fits(&limits.packet_out_filters, &packet.metadata)
        })
    }

    /// The part of a packet-in or notification that is for the role.
    pub(crate) fn narrow(&self, update: &Update) -> Option<Update> {
        match update {
            Update::Packet(packet) => self
                .allows(|limits| {
                    limits.packet_ins && fits(&limits.packet_in_filters, &packet.metadata)
                })
                .then(|| update.clone()),
            Update::Digest(list) => self.has(list.digest_id).then(|| update.clone()),
            Update::IdleTimeoutNotification(all) => {
                let entries = all.table_entry.iter();
                let own = entries.filter(|entry| self.has(entry.table_id)).cloned();
                let table_entry: Vec<p4::TableEntry> = own.collect();
                (!table_entry.is_empty()).then_some(Update::IdleTimeoutNotification(
                    p4::IdleTimeoutNotification {
                        table_entry,
                        timestamp: all.timestamp,
                    },
                ))
            }
            Update::Arbitration(_) | Update::Other(_) | Update::Error(_) => Some(update.clone()),
        }
    }
}

fn fits(filters: &[pacer::MetadataFilter], metadata: &[p4::PacketMetadata]) -> bool {
    filters.is_empty()
        || filters.iter().any(|filter| {
            metadata.iter().any(|given| {
                given.metadata_id == filter.metadata_id
                    && canonical(&given.value) == canonical(&filter.value)
            })
        })
}
