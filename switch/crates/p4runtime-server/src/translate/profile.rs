//! Action profiles and selectors: members, groups, one-shot action sets (specification, section
//! "ActionProfileMember & ActionProfileGroup").

use v1model::entries::profile::{
    GroupMember, IndirectAction, ProfileGroup, ProfileRules, SizeSemantics, WatchPort,
    WeightedAction,
};
use v1model::entries::{EntryAction, TableEntry};

use super::ports::Ports;
use super::table::BoundTable;
use crate::error::{UpdateError, UpdateResult};
use crate::ids::nonzero;
use crate::proto::p4::v1 as p4;

/// An action profile or selector.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program.
    pub(crate) index: usize,
    pub(crate) selector: bool,
    pub(crate) rules: ProfileRules,
    /// Largest weight of a member; 0 for no limit.
    pub(crate) max_member_weight: u32,
    /// Controllers give no weights; all members have the same.
    pub(crate) weights_disallowed: bool,
    /// Of `watch_port`.
    pub(crate) ports: Ports,
    /// Position in [`super::BoundPipeline::tables`] of the first table that uses it.
    pub(crate) table: Option<usize>,
}

impl Profile {
    /// The kinds of action that entries of a table with this profile take, for errors.
    pub(super) fn expected(&self) -> &'static str {
        if self.selector {
            "a member, a group or an action set (the table has an action selector)"
        } else {
            "a member (the table has an action profile)"
        }
    }

    /// The weight of a member or action as the program has it.
    fn weight(&self, given: i32, object: &str) -> UpdateResult<u32> {
        if self.weights_disallowed {
            if given != 0 {
                return Err(UpdateError::invalid(format!(
                    "{object}: weight: {given} given, 0 expected (weights_disallowed)"
                )));
            }
            return Ok(1);
        }
        let weight = u32::try_from(given).ok().filter(|weight| *weight > 0);
        let Some(weight) = weight else {
            return Err(UpdateError::invalid(format!(
                "{object}: weight: {given} given, at least 1 expected"
            )));
        };
        if self.max_member_weight > 0 && weight > self.max_member_weight {
            return Err(UpdateError::invalid(format!(
                "{object}: weight: {given} given, at most {} expected (max_member_weight)",
                self.max_member_weight
            )));
        }
        Ok(weight)
    }

    fn weight_message(&self, weight: u32) -> i32 {
        if self.weights_disallowed {
            0
        } else {
            i32::try_from(weight).unwrap_or(i32::MAX)
        }
    }

    /// Reads a one-shot action set of an entry of `table` (section "One Shot Action Selector
    /// Programming").
    pub(super) fn one_shot(
        &self,
        table: &BoundTable,
        set: &p4::ActionProfileActionSet,
    ) -> UpdateResult<Vec<WeightedAction>> {
        use p4::action_profile_action::WatchKind;
        let object = format!("{}: action set", table.name);
        if set.group_action.is_some() || set.action_selection_mode != 0 || set.size_semantics != 0 {
            return Err(UpdateError::unimplemented(format!(
                "{object}: group_action, action_selection_mode and size_semantics (P4Runtime 1.5) \
                 are not implemented"
            )));
        }
        let mut size: u64 = 0;
        let mut actions = Vec::with_capacity(set.action_profile_actions.len());
        for given in &set.action_profile_actions {
            let Some(action) = &given.action else {
                return Err(UpdateError::invalid(format!(
                    "{object}: an action of the set has no action"
                )));
            };
            let weight = self.weight(given.weight, &object)?;
            size += match self.rules.semantics {
                SizeSemantics::SumOfWeights => u64::from(weight),
                SizeSemantics::SumOfMembers => 1,
            };
            #[allow(deprecated)]
            let watch = match &given.watch_kind {
                None => None,
                Some(WatchKind::Watch(port)) => self.numeric_watch(*port, &object)?,
                Some(WatchKind::WatchPort(port)) => self.watch_port(port, &object)?,
            };
            actions.push(WeightedAction {
                call: table.action_call(action, false)?,
                weight,
                watch,
            });
        }
        let most = self.rules.max_group_size;
        if most > 0 && size > u64::from(most) {
            return Err(UpdateError::invalid(format!(
                "{object}: size {size} given, at most {most} expected (max_group_size)"
            )));
        }
        Ok(actions)
    }

    /// A one-shot action set as a controller sees it; `None` if P4Info does not give the table one of its
    /// actions.
    pub(super) fn one_shot_message(
        &self,
        table: &BoundTable,
        set: &[WeightedAction],
    ) -> UpdateResult<Option<p4::ActionProfileActionSet>> {
        use p4::action_profile_action::WatchKind;
        let object = format!("{}: action set", table.name);
        let mut actions = Vec::with_capacity(set.len());
        for action in set {
            let Some(call) = table.action_message(&action.call)? else {
                return Ok(None);
            };
            #[allow(deprecated)]
            let kinds = (WatchKind::Watch, WatchKind::WatchPort);
            let watch_kind = self.told_watch(action.watch, &object, kinds)?;
            actions.push(p4::ActionProfileAction {
                action: Some(call),
                weight: self.weight_message(action.weight),
                watch_kind,
            });
        }
        Ok(Some(p4::ActionProfileActionSet {
            action_profile_actions: actions,
            ..p4::ActionProfileActionSet::default()
        }))
    }

    /// Reads a group with its members (section "Group Programming").
    pub(crate) fn group(&self, given: &p4::ActionProfileGroup) -> UpdateResult<ProfileGroup> {
        use p4::action_profile_group::member::WatchKind;
        let object = format!("{}: group {}", self.name, given.group_id);
        let most = self.rules.max_group_size;
        let max_size = u32::try_from(given.max_size)
            .ok()
            .filter(|size| most == 0 || (1..=most).contains(size));
        let Some(max_size) = max_size else {
            return Err(UpdateError::invalid(if most == 0 {
                format!(
                    "{object}: max_size: {} given, at least 0 expected",
                    given.max_size
                )
            } else {
                format!(
                    "{object}: max_size: {} given, 1 to {most} expected (max_group_size)",
                    given.max_size
                )
            }));
        };
        let mut members = Vec::with_capacity(given.members.len());
        for member in &given.members {
            #[allow(deprecated)]
            let watch = match &member.watch_kind {
                None => None,
                Some(WatchKind::Watch(port)) => self.numeric_watch(*port, &object)?,
                Some(WatchKind::WatchPort(port)) => self.watch_port(port, &object)?,
            };
            members.push(GroupMember {
                member: member.member_id,
                weight: self.weight(member.weight, &object)?,
                watch,
            });
        }
        Ok(ProfileGroup {
            id: given.group_id,
            max_size,
            members,
        })
    }

    /// A group as a controller sees it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: the mapping of ports does not have one that is watched.
    pub(crate) fn group_message(
        &self,
        group: &ProfileGroup,
    ) -> UpdateResult<p4::ActionProfileGroup> {
        use p4::action_profile_group::Member;
        use p4::action_profile_group::member::WatchKind;
        let object = format!("{}: group {}", self.name, group.id);
        let mut members = Vec::with_capacity(group.members.len());
        for member in &group.members {
            #[allow(deprecated)]
            let kinds = (WatchKind::Watch, WatchKind::WatchPort);
            let watch_kind = self.told_watch(member.watch, &object, kinds)?;
            members.push(Member {
                member_id: member.member,
                weight: self.weight_message(member.weight),
                watch_kind,
            });
        }
        Ok(p4::ActionProfileGroup {
            action_profile_id: self.id,
            group_id: group.id,
            members,
            max_size: i32::try_from(group.max_size).unwrap_or(i32::MAX),
        })
    }

    /// Reads the port of `watch_port`. An empty value means none.
    fn watch_port(&self, value: &[u8], object: &str) -> UpdateResult<Option<WatchPort>> {
        if value.is_empty() {
            return Ok(None);
        }
        Ok(Some(WatchPort {
            port: self.ports.read(value, object, "watch_port")?,
            numeric: false,
        }))
    }

    /// Reads the port of the deprecated field `watch`. 0 means none.
    fn numeric_watch(&self, value: i32, object: &str) -> UpdateResult<Option<WatchPort>> {
        match u32::try_from(value) {
            Ok(0) => Ok(None),
            Ok(port) => Ok(Some(WatchPort {
                port: self.ports.read_number(port, object, "watch")?,
                numeric: true,
            })),
            Err(_) => Err(UpdateError::invalid(format!(
                "{object}: watch: {value} given, a port expected"
            ))),
        }
    }

    /// A watched port as a controller sees it. `deprecated` and `bytes` make the message of the field
    /// that it was given in.
    fn told_watch<K>(
        &self,
        watch: Option<WatchPort>,
        object: &str,
        (deprecated, bytes): (impl FnOnce(i32) -> K, impl FnOnce(Vec<u8>) -> K),
    ) -> UpdateResult<Option<K>> {
        let Some(watch) = watch else {
            return Ok(None);
        };
        Ok(Some(if watch.numeric {
            let port = self.ports.tell_number(watch.port, object, "watch")?;
            deprecated(i32::try_from(port).unwrap_or(i32::MAX))
        } else {
            bytes(self.ports.tell(watch.port, object, "watch_port")?)
        }))
    }
}

/// Entries of tables, with or without an action profile.
impl BoundTable {
    /// Reads the action of an entry with a match (section "Action Specification"). `profile` is the
    /// table's action profile, if it has one.
    pub(crate) fn entry_action(
        &self,
        given: &p4::TableAction,
        profile: Option<&Profile>,
    ) -> UpdateResult<EntryAction> {
        use p4::table_action::Type;
        let refuse = |given: &str, expected: &str| {
            Err(UpdateError::invalid(format!(
                "{}: action: {given} given, {expected} expected",
                self.name
            )))
        };
        let indirect = match (&given.r#type, profile) {
            (None, _) => return refuse("nothing", "an action, a member, a group or a set"),
            (Some(Type::Action(action)), None) => {
                return self.action_call(action, false).map(EntryAction::Call);
            }
            (Some(_), None) => {
                return refuse(
                    "a member, group or action set",
                    "an action (the table has no action profile)",
                );
            }
            (Some(Type::Action(_)), Some(profile)) => {
                return refuse("an action", profile.expected());
            }
            (Some(Type::ActionProfileMemberId(id)), Some(_)) => {
                IndirectAction::Member(nonzero(*id, &self.name, "action_profile_member_id")?)
            }
            (Some(Type::ActionProfileGroupId(id)), Some(profile)) => {
                if !profile.selector {
                    return refuse("a group", profile.expected());
                }
                IndirectAction::Group(nonzero(*id, &self.name, "action_profile_group_id")?)
            }
            (Some(Type::ActionProfileActionSet(set)), Some(profile)) => {
                if !profile.selector {
                    return refuse("an action set", profile.expected());
                }
                IndirectAction::OneShot(profile.one_shot(self, set)?)
            }
        };
        Ok(EntryAction::Indirect(indirect))
    }

    /// The action of an entry as a controller sees it. `profile` is the table's action profile, if it
    /// has one.
    pub(crate) fn entry_message(
        &self,
        entry: &TableEntry,
        profile: Option<&Profile>,
    ) -> UpdateResult<Option<p4::TableAction>> {
        use p4::table_action::Type;
        let action = match &entry.indirect {
            None => self.action_message(&entry.action)?.map(Type::Action),
            Some(IndirectAction::Member(id)) => Some(Type::ActionProfileMemberId(*id)),
            Some(IndirectAction::Group(id)) => Some(Type::ActionProfileGroupId(*id)),
            Some(IndirectAction::OneShot(set)) => match profile {
                Some(profile) => profile
                    .one_shot_message(self, set)?
                    .map(Type::ActionProfileActionSet),
                None => None,
            },
        };
        Ok(action.map(|action| p4::TableAction {
            r#type: Some(action),
        }))
    }
}
