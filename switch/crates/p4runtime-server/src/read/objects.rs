//! Replication, action profiles, value sets and digests.

use v1model::entries;
use v1model::entries::profile::{ProfileGroup, ProfileMember};

use super::{Emitter, Reader, Stop};
use crate::error::UpdateError;
use crate::executor;
use crate::proto::p4::v1 as p4;
use crate::translate::{self, Profile};

/// Members of a profile read in one visit.
const MEMBERS_PER_VISIT: usize = 1_024;
/// Groups and sessions read in one visit: each may have hundreds of members or replicas.
const GROUPS_PER_VISIT: usize = 32;

impl Reader<'_> {
    /// Emits what `message` makes of the object that `one` reads, or, where there is none, of all
    /// that `page` reads, a page per visit.
    async fn objects<V: Send + 'static>(
        &self,
        object: &str,
        one: Option<impl FnOnce(&mut switch::Switch) -> entries::ControlResult<V> + Send + 'static>,
        page: impl Fn(&mut switch::Switch, u64) -> entries::Page<V> + Send + Copy + 'static,
        message: impl Fn(V) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        if let Some(one) = one {
            let value = executor::with(&*self.shared.executor, one)
                .await?
                .map_err(|error| UpdateError::from_control(error, object))?;
            return emitter.entity(message(value)).await;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let read = executor::with(&*self.shared.executor, move |switch| page(switch, at));
            let read = read.await?;
            from = read.next;
            for value in read.items {
                emitter.entity(message(value)).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn groups(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0)
            .then_some(move |switch: &mut switch::Switch| Ok((id, switch.multicast_group(id)?)));
        let message = |(multicast_group_id, replicas): (u32, Vec<switch::replication::Replica>)| {
            let cookie = self.side.groups.get(&multicast_group_id).cloned();
            let cookie = cookie.unwrap_or_default();
            pre_entity(
                p4::packet_replication_engine_entry::Type::MulticastGroupEntry(
                    p4::MulticastGroupEntry {
                        multicast_group_id,
                        replicas: translate::replica_messages(&replicas, &cookie.deprecated_ports),
                        metadata: cookie.metadata,
                    },
                ),
            )
        };
        self.objects(
            &format!("multicast group {id}"),
            one,
            |switch, from| switch.multicast_groups(from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    pub(super) async fn sessions(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0)
            .then_some(move |switch: &mut switch::Switch| Ok((id, switch.clone_session(id)?)));
        let message = |(id, session): (u32, switch::replication::CloneSession)| {
            let deprecated = self.side.sessions.get(&id).map_or(&[][..], Vec::as_slice);
            pre_entity(
                p4::packet_replication_engine_entry::Type::CloneSessionEntry(
                    translate::clone_session_message(id, &session, deprecated),
                ),
            )
        };
        self.objects(
            &format!("clone session {id}"),
            one,
            |switch, from| switch.clone_sessions(from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    /// The profiles whose members or groups are wanted; `inner`: the id of one of these.
    pub(super) fn profiles(&self, id: u32, inner: u32, field: &str) -> Result<Vec<&Profile>, Stop> {
        if id != 0 {
            return Ok(vec![self.pipeline.profile(id)?]);
        }
        if inner != 0 {
            return Err(UpdateError::invalid(format!(
                "{field}: {inner} given without action_profile_id; the id belongs to one profile"
            ))
            .into());
        }
        Ok(self.pipeline.profiles.iter().collect())
    }

    pub(super) async fn members(
        &self,
        profile: &Profile,
        id: u32,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let index = profile.index;
        let table = self.pipeline.table_of(profile).ok();
        let one = (id != 0).then_some(move |switch: &mut switch::Switch| switch.member(index, id));
        let message = |member: ProfileMember| {
            p4::entity::Entity::ActionProfileMember(p4::ActionProfileMember {
                action_profile_id: profile.id,
                member_id: member.id,
                action: table.and_then(|table| table.action_message(&member.call)),
            })
        };
        self.objects(
            &profile.name,
            one,
            move |switch, from| switch.members(index, from, MEMBERS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    pub(super) async fn profile_groups(
        &self,
        profile: &Profile,
        id: u32,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let index = profile.index;
        let one = (id != 0).then_some(move |switch: &mut switch::Switch| switch.group(index, id));
        let message = |group: ProfileGroup| {
            p4::entity::Entity::ActionProfileGroup(profile.group_message(&group))
        };
        self.objects(
            &profile.name,
            one,
            move |switch, from| switch.groups(index, from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    pub(super) async fn value_sets(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let sets = match id {
            0 => self.pipeline.value_sets.iter().collect(),
            id => vec![self.pipeline.value_set(id)?],
        };
        for set in sets {
            let index = set.index;
            let members = executor::with(&*self.shared.executor, move |switch| {
                switch.value_set_members(index)
            })
            .await?
            .map_err(|error| UpdateError::from_control(error, &set.name))?;
            let members = members.iter().map(|fields| p4::ValueSetMember {
                r#match: set.keys.match_messages(fields),
            });
            let message = p4::ValueSetEntry {
                value_set_id: set.id,
                members: members.collect(),
            };
            emitter
                .entity(p4::entity::Entity::ValueSetEntry(message))
                .await?;
        }
        Ok(())
    }

    pub(super) async fn digests(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let digests = match id {
            0 => self.pipeline.digests.iter().collect(),
            id => vec![self.pipeline.digest(id)?],
        };
        for digest in digests {
            let index = digest.index;
            let config = executor::with(&*self.shared.executor, move |switch| {
                switch.digest_config(index)
            })
            .await?
            .map_err(|error| UpdateError::from_control(error, &digest.name))?;
            match config {
                Some(config) => {
                    let message = digest.config_message(config);
                    emitter
                        .entity(p4::entity::Entity::DigestEntry(message))
                        .await?;
                }
                None if id != 0 => {
                    return Err(UpdateError::not_found(format!(
                        "{}: the digest is not enabled",
                        digest.name
                    ))
                    .into());
                }
                None => {}
            }
        }
        Ok(())
    }
}

fn pre_entity(entry: p4::packet_replication_engine_entry::Type) -> p4::entity::Entity {
    p4::entity::Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
        r#type: Some(entry),
    })
}
