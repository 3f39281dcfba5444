//! Action profiles: members and groups that table entries name.

use crate::entries::error::invalid;
use crate::entries::profile::{
    GroupMember, ProfileGroup, ProfileInfo, ProfileRules, SizeSemantics, WatchPort,
};
use crate::entries::{ControlError, ControlResult};
use crate::free_ids::FreeIds;
use crate::table::{OneShot, Target};
use slab::Slab;
use std::collections::{BTreeMap, HashSet};

/// Largest sum of the weights of a group or one-shot set.
const MAX_WEIGHT: u64 = 1 << 16;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Public action.
    pub action: usize,
    /// The words of the action's arguments.
    pub args: Box<[u64]>,
    /// The control plane's id.
    pub id: u32,
    /// The number of entries and groups that name it.
    pub uses: u32,
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The group as the control plane gave it.
    pub given: ProfileGroup,
    /// Places of members, each as often as its weight, in order of their ids, without those whose
    /// port is down.
    pub spread: Vec<u32>,
    /// The number of entries that name it.
    pub uses: u32,
}

/// An action profile of a running program. Entries name members and groups by their place (a key of
/// the slab), so that a packet needs no look-up by id. Places are below 2^32, as ids are.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// The selector's calculation.
    pub calculation: Option<usize>,
    pub members: Slab<Member>,
    pub groups: Slab<Group>,
    /// Places of members by id.
    pub member_places: BTreeMap<u32, u32>,
    /// Places of groups by id.
    pub group_places: BTreeMap<u32, u32>,
    /// Ids that no member has.
    pub free_members: FreeIds,
    /// Ids that no group has.
    pub free_groups: FreeIds,
    pub rules: ProfileRules,
    /// Size of all groups and one-shot sets together, as the rules count it.
    pub total_size: u64,
    /// Entries with one-shot sets.
    pub one_shots: usize,
}

/// Whether the port that a member depends on, if any, can carry frames.
fn alive(watch: Option<WatchPort>, ports: &BTreeMap<u32, bool>) -> bool {
    watch.is_none_or(|watch| ports.get(&watch.port) == Some(&true))
}

/// Size of a group or set with members of these weights.
fn size_of(rules: ProfileRules, weights: impl Iterator<Item = u32>) -> u64 {
    weights
        .map(|weight| match rules.semantics {
            SizeSemantics::SumOfWeights => u64::from(weight),
            SizeSemantics::SumOfMembers => 1,
        })
        .sum()
}

/// Each index as often as its weight.
fn spread(weights: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    weights
        .flat_map(|(index, weight)| std::iter::repeat_n(index, weight as usize))
        .collect()
}

/// The indices of a one-shot set's calls, each as often as its weight, without those whose port is
/// down.
pub(crate) fn one_shot_spread(
    weights: &[(u32, Option<WatchPort>)],
    ports: &BTreeMap<u32, bool>,
) -> Vec<u32> {
    let weights = weights.iter().enumerate();
    spread(
        weights
            .filter(|(_, (_, watch))| alive(*watch, ports))
            .map(|(i, (weight, _))| (i as u32, *weight)),
    )
}

impl Profile {
    /// An empty profile.
    pub fn new(calculation: Option<usize>) -> Self {
        Self {
            calculation,
            ..Self::default()
        }
    }

    /// The member at a place.
    #[inline]
    pub fn member(&self, at: u32) -> Option<&Member> {
        self.members.get(at as usize)
    }

    /// The group at a place.
    pub fn group(&self, at: u32) -> Option<&Group> {
        self.groups.get(at as usize)
    }

    /// The member with an id, and its place.
    pub fn member_mut(&mut self, id: u32) -> Option<(u32, &mut Member)> {
        let at = *self.member_places.get(&id)?;
        Some((at, self.members.get_mut(at as usize)?))
    }

    /// Counts that a group names its members (`more`), or no longer does.
    pub fn use_members(&mut self, group: &ProfileGroup, more: bool) {
        for m in &group.members {
            if let Some((_, member)) = self.member_mut(m.member) {
                member.uses = if more {
                    member.uses + 1
                } else {
                    member.uses.saturating_sub(1)
                };
            }
        }
    }

    /// The size of a group, as the rules count it.
    pub fn group_size(&self, group: &ProfileGroup) -> u64 {
        size_of(self.rules, group.members.iter().map(|m| m.weight))
    }

    /// The size of a one-shot set, as the rules count it.
    pub fn one_shot_size(&self, set: &OneShot) -> u64 {
        size_of(self.rules, set.weights.iter().map(|w| w.0))
    }

    /// Checks that a group or one-shot set of `size` fits if it replaces one of size `freed`.
    pub fn check_total(&self, info: &ProfileInfo, size: u64, freed: u64) -> ControlResult<()> {
        let total = self.total_size.saturating_sub(freed) + size;
        if total > info.size as u64 {
            return Err(ControlError::ResourceExhausted(format!(
                "action profile '{}' has room for groups and sets of {} {} together, {total} wanted",
                info.name,
                info.size,
                match self.rules.semantics {
                    SizeSemantics::SumOfWeights => "weights",
                    SizeSemantics::SumOfMembers => "members",
                }
            )));
        }
        Ok(())
    }

    /// Checks that no entry has a one-shot set. P4Runtime specification, section "One Shot Action
    /// Selector Programming": a selector has one-shot sets or members and groups, not both.
    pub fn check_no_one_shots(&self, info: &ProfileInfo) -> ControlResult<()> {
        if self.one_shots > 0 {
            return invalid(format!(
                "action profile '{}' is programmed with one-shot action sets ({} entries); members \
                 and groups cannot be beside them",
                info.name, self.one_shots
            ));
        }
        Ok(())
    }

    /// Counts that an entry names a target (`more`), or no longer does.
    pub fn count_use(&mut self, target: &Target, more: bool) {
        let uses = match target {
            Target::Member(at) => match self.members.get_mut(*at as usize) {
                Some(member) => &mut member.uses,
                None => return debug_assert!(false, "an entry names a member that is gone"),
            },
            Target::Group(at) => match self.groups.get_mut(*at as usize) {
                Some(group) => &mut group.uses,
                None => return debug_assert!(false, "an entry names a group that is gone"),
            },
            Target::OneShot(set) => {
                let size = self.one_shot_size(set);
                if more {
                    self.one_shots += 1;
                    self.total_size += size;
                } else {
                    self.one_shots = self.one_shots.saturating_sub(1);
                    self.total_size = self.total_size.saturating_sub(size);
                }
                return;
            }
            Target::Call(_) => return,
        };
        *uses = if more {
            *uses + 1
        } else {
            uses.saturating_sub(1)
        };
    }

    /// The places of a checked group's members in order of their ids, each as often as its weight,
    /// without those whose port is down.
    pub fn spread_of(&self, group: &ProfileGroup, ports: &BTreeMap<u32, bool>) -> Vec<u32> {
        let members = group.members.iter();
        let mut members: Vec<&GroupMember> = members.filter(|m| alive(m.watch, ports)).collect();
        members.sort_by_key(|m| m.member);
        spread(
            members
                .into_iter()
                .filter_map(|m| Some((*self.member_places.get(&m.member)?, m.weight))),
        )
    }

    /// Checks a group. `freed`: size of the group that this one replaces.
    pub fn check_group(
        &self,
        info: &ProfileInfo,
        group: &ProfileGroup,
        freed: u64,
    ) -> ControlResult<()> {
        if !info.selector {
            return invalid(format!("action profile '{}' has no selector", info.name));
        }
        self.check_no_one_shots(info)?;
        let mut total = 0;
        let mut seen = HashSet::with_capacity(group.members.len());
        for m in &group.members {
            if !self.member_places.contains_key(&m.member) {
                return info.no_member(m.member);
            }
            if m.weight == 0 {
                return invalid(format!("member {} has weight 0", m.member));
            }
            if !seen.insert(m.member) {
                return invalid(format!("member {} is given twice", m.member));
            }
            total += u64::from(m.weight);
        }
        check_weight(total)?;
        if self.rules.semantics == SizeSemantics::SumOfWeights {
            check_weight(u64::from(group.max_size))?;
        }
        let size = self.group_size(group);
        let most = match (group.max_size, self.rules.max_group_size) {
            (0, most) | (most, 0) => most,
            (most, other) => most.min(other),
        };
        if most > 0 && size > u64::from(most) {
            return Err(ControlError::ResourceExhausted(format!(
                "group {} of action profile '{}' has size {size}; it has room for {most}",
                group.id, info.name
            )));
        }
        self.check_total(info, size, freed)
    }
}

/// Checks the sum of the weights of a group or one-shot set.
pub(crate) fn check_weight(total: u64) -> ControlResult<()> {
    if total > MAX_WEIGHT {
        return Err(ControlError::ResourceExhausted(format!(
            "weights of {total} in all; {MAX_WEIGHT} at most"
        )));
    }
    Ok(())
}
