//! Action profiles: members and groups that table entries name.

use crate::entries::error::{invalid, not_found};
use crate::entries::profile::{
    GroupMember, ProfileGroup, ProfileInfo, ProfileRules, SizeSemantics, WatchPort,
};
use crate::entries::{ControlError, ControlResult};
use crate::table::{OneShot, Target};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Largest sum of the weights of a group or one-shot set.
const MAX_WEIGHT: u64 = 1 << 16;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Public action.
    pub action: usize,
    pub args: Box<[u64]>,
    pub id: u32,
    /// Entries and groups that name it.
    pub uses: u32,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub given: ProfileGroup,
    /// Places of members, each as often as its weight, in order of their ids, without those whose
    /// port is down.
    pub spread: Vec<u32>,
    pub uses: u32,
}

/// An action profile of a running program. Entries name members and groups by their places, so
/// that a packet needs no look-up by id.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// The selector's calculation.
    pub calculation: Option<usize>,
    pub members: Places<Member>,
    pub groups: Places<Group>,
    pub member_places: BTreeMap<u32, u32>,
    pub group_places: BTreeMap<u32, u32>,
    pub rules: ProfileRules,
    /// Size of all groups and one-shot sets together, as the rules count.
    pub total_size: u64,
    /// Entries with one-shot sets.
    pub one_shots: usize,
}

/// Values at places that stay the same while the value is there.
#[derive(Debug)]
pub(crate) struct Places<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Places<T> {
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Puts a value into a free place.
    pub fn put(&mut self, value: T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize] = Some(value);
        at
    }

    pub fn take(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }
}

/// Whether the port that a member depends on, if any, can carry frames.
fn alive(watch: Option<WatchPort>, down: &BTreeSet<u32>) -> bool {
    watch.is_none_or(|watch| !down.contains(&watch.port))
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

/// The calls of a one-shot set by index, each as often as its weight.
pub(crate) fn one_shot_spread(
    weights: &[(u32, Option<WatchPort>)],
    down: &BTreeSet<u32>,
) -> Vec<u32> {
    let weights = weights.iter().enumerate();
    spread(
        weights
            .filter(|(_, (_, watch))| alive(*watch, down))
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
        self.members.get(at)
    }

    /// Members of the group at a place, as often as their weights; empty for an empty group.
    pub fn group(&self, at: u32) -> &[u32] {
        self.groups.get(at).map_or(&[], |group| &group.spread)
    }

    pub fn member_mut(&mut self, id: u32) -> Option<(u32, &mut Member)> {
        let at = *self.member_places.get(&id)?;
        Some((at, self.members.get_mut(at)?))
    }

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

    pub fn group_size(&self, group: &ProfileGroup) -> u64 {
        size_of(self.rules, group.members.iter().map(|m| m.weight))
    }

    pub fn one_shot_size(&self, set: &OneShot) -> u64 {
        size_of(self.rules, set.weights.iter().map(|w| w.0))
    }

    /// Checks that a group or set of `size` fits, where `freed` is given up for it.
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

    /// P4Runtime specification, section "One Shot Action Selector Programming": a selector is
    /// programmed in one way or the other.
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

    /// An entry names (`more`) or no longer names a target.
    pub fn count_use(&mut self, target: &Target, more: bool) {
        let uses = match target {
            Target::Member(at) => match self.members.get_mut(*at) {
                Some(member) => &mut member.uses,
                None => return,
            },
            Target::Group(at) => match self.groups.get_mut(*at) {
                Some(group) => &mut group.uses,
                None => return,
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

    /// A checked group's members in order, with their places.
    pub fn spread_of(&self, group: &ProfileGroup, down: &BTreeSet<u32>) -> Vec<u32> {
        let members = group.members.iter();
        let mut members: Vec<&GroupMember> = members.filter(|m| alive(m.watch, down)).collect();
        members.sort_by_key(|m| m.member);
        spread(
            members
                .into_iter()
                .filter_map(|m| Some((*self.member_places.get(&m.member)?, m.weight))),
        )
    }

    /// `freed`: size of the group that this one replaces.
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
                return not_found(format!(
                    "action profile '{}' has no member {}",
                    info.name, m.member
                ));
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

pub(crate) fn check_weight(total: u64) -> ControlResult<()> {
    if total > MAX_WEIGHT {
        return Err(ControlError::ResourceExhausted(format!(
            "weights of {total} in all; {MAX_WEIGHT} at most"
        )));
    }
    Ok(())
}
