//! Replication, action profiles, value sets and digests.

use switch::{CloneSession, Program, Replica};
use v1model::entries::profile::{ProfileGroup, ProfileMember};
use v1model::entries::{ControlResult, Page};

use super::{Emitter, Reader, Stop, View};
use crate::error::{UpdateError, UpdateResult};
use crate::ids::all_or_one;
use crate::proto::p4::v1 as p4;
use crate::translate::{self, Profile};

/// Members of a profile in one page, and read between two checks of whether the visit is over.
const MEMBERS: [usize; 2] = [1_024, 32];
/// The same for groups and sessions, each of which may have hundreds of members or replicas.
const GROUPS: [usize; 2] = [32, 4];

impl Reader<'_> {
    /// Emits the object that `one` reads or, where that is `None`, all objects that `page` reads, a
    /// page in each visit. `message` translates an object.
    async fn objects<V: Send + 'static>(
        &self,
        object: &str,
        one: Option<impl FnOnce(&Program) -> ControlResult<V> + Send + 'static>,
        (sizes, page): (
            [usize; 2],
            impl Fn(&Program, u64, usize) -> Page<V> + Send + Copy + 'static,
        ),
        message: impl Fn(&View<'_>, V) -> UpdateResult<p4::entity::Entity>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        if let Some(one) = one {
            let view = self.view().await?;
            let value = self.visit(&view, object, one).await?;
            emitter.entity(message(&view, value));
            drop(view);
            return emitter.send().await;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let view = self.view().await?;
            let read = self.page_of(&view, object, at, sizes, page).await?;
            from = read.next;
            for value in read.items {
                emitter.entity(message(&view, value));
            }
            drop(view);
            emitter.send().await?;
        }
        Ok(())
    }

    pub(super) async fn groups(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0).then_some(move |program: &Program| {
            Ok((id, program.multicast_groups().get(id)?.clone()))
        });
        let message = |view: &View<'_>, (multicast_group_id, replicas): (u32, Vec<Replica>)| {
            let annotation = view.annotations().of_group(multicast_group_id);
            let replicas = translate::replica_messages(
                &format!("multicast group {multicast_group_id}"),
                &self.pipeline.ports,
                &replicas,
                &annotation.deprecated_ports,
            )?;
            Ok(pre_entity(
                p4::packet_replication_engine_entry::Type::MulticastGroupEntry(
                    p4::MulticastGroupEntry {
                        multicast_group_id,
                        replicas,
                        metadata: annotation.metadata,
                    },
                ),
            ))
        };
        self.objects(
            &format!("multicast group {id}"),
            one,
            (GROUPS, |program, from, most| {
                program.multicast_groups().page(from, most)
            }),
            message,
            emitter,
        )
        .await
    }

    pub(super) async fn sessions(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0).then_some(move |program: &Program| {
            Ok((id, program.clone_sessions().get(id)?.clone()))
        });
        let message = |view: &View<'_>, (id, session): (u32, CloneSession)| {
            let deprecated = view.annotations().deprecated_ports(id);
            let ports = &self.pipeline.ports;
            let entry = translate::clone_session_message(id, ports, &session, deprecated)?;
            Ok(pre_entity(
                p4::packet_replication_engine_entry::Type::CloneSessionEntry(entry),
            ))
        };
        self.objects(
            &format!("clone session {id}"),
            one,
            (GROUPS, |program, from, most| {
                program.clone_sessions().page(from, most)
            }),
            message,
            emitter,
        )
        .await
    }

    /// The profiles whose members or groups are requested. `inner` is the id of a member or group.
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
        let one =
            (id != 0).then_some(move |program: &Program| program.pipeline().member(index, id));
        let message = |_: &View<'_>, member: ProfileMember| {
            let action = table.map(|table| table.action_message(&member.call));
            Ok(p4::entity::Entity::ActionProfileMember(
                p4::ActionProfileMember {
                    action_profile_id: profile.id,
                    member_id: member.id,
                    action: action.transpose()?.flatten(),
                },
            ))
        };
        self.objects(
            &profile.name,
            one,
            (MEMBERS, move |program, from, most| {
                program.pipeline().members(index, from, most)
            }),
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
        let one = (id != 0).then_some(move |program: &Program| program.pipeline().group(index, id));
        let message = |_: &View<'_>, group: ProfileGroup| {
            Ok(p4::entity::Entity::ActionProfileGroup(
                profile.group_message(&group)?,
            ))
        };
        self.objects(
            &profile.name,
            one,
            (GROUPS, move |program, from, most| {
                program.pipeline().groups(index, from, most)
            }),
            message,
            emitter,
        )
        .await
    }

    pub(super) async fn value_sets(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let pipeline = self.pipeline;
        for set in all_or_one(&pipeline.value_sets, id, |id| pipeline.value_set(id))? {
            let index = set.index;
            let view = self.view().await?;
            let members = self.visit(&view, &set.name, move |program| {
                program.pipeline().value_set_members(index)
            });
            let members = members.await?;
            let members = members.iter().map(|fields| {
                Ok(p4::ValueSetMember {
                    r#match: set.keys.match_messages(fields)?,
                })
            });
            let members = members.collect::<UpdateResult<Vec<_>>>();
            emitter.entity(members.map(|members| {
                p4::entity::Entity::ValueSetEntry(p4::ValueSetEntry {
                    value_set_id: set.id,
                    members,
                })
            }));
            drop(view);
            emitter.send().await?;
        }
        Ok(())
    }

    pub(super) async fn digests(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let pipeline = self.pipeline;
        for digest in all_or_one(&pipeline.digests, id, |id| pipeline.digest(id))? {
            let index = digest.index;
            let view = self.view().await?;
            let config = self.visit(&view, &digest.name, move |program| {
                program.digest_config(index)
            });
            match config.await? {
                Some(config) => {
                    let message = digest.config_message(config);
                    emitter.entity(Ok(p4::entity::Entity::DigestEntry(message)));
                    drop(view);
                    emitter.send().await?;
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
