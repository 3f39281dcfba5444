//! Action profiles: members and groups that table entries name, and the control plane's side of
//! them.

use crate::control::{invalid, not_found, to_bits};
use crate::pipeline::Pipeline;
use crate::table::args::Args;
use crate::table::{OneShot, Table, Target};
use dataplane::control::{ActionCall, ControlError, ControlResult, EntryKey};
use dataplane::profile::{
    GroupMember, IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, WeightedAction,
};
use std::collections::BTreeMap;

/// Largest sum of the weights of a group or one-shot set.
const MAX_WEIGHT: u64 = 1 << 16;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Public action.
    pub action: usize,
    pub args: Args,
    id: u32,
    /// Entries and groups that name it.
    uses: u32,
}

#[derive(Debug)]
struct Group {
    given: ProfileGroup,
    /// Places of members, each as often as its weight, in order of their ids.
    spread: Vec<u32>,
    uses: u32,
}

/// An action profile of a running program. Entries name members and groups by their places, so
/// that a packet needs no look-up by id.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// The selector's calculation.
    pub calculation: Option<usize>,
    members: Vec<Option<Member>>,
    groups: Vec<Option<Group>>,
    member_places: BTreeMap<u32, u32>,
    group_places: BTreeMap<u32, u32>,
}

/// Puts a value into the first free place.
fn place<T>(slots: &mut Vec<Option<T>>, value: T) -> u32 {
    let at = match slots.iter().position(Option::is_none) {
        Some(at) => at,
        None => {
            slots.push(None);
            slots.len() - 1
        }
    };
    slots[at] = Some(value);
    at as u32
}

/// Each index as often as its weight.
fn spread(weights: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    weights
        .flat_map(|(index, weight)| std::iter::repeat_n(index, weight as usize))
        .collect()
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
        self.members.get(at as usize)?.as_ref()
    }

    /// Members of the group at a place, as often as their weights; empty for an empty group.
    pub fn group(&self, at: u32) -> &[u32] {
        match self.groups.get(at as usize) {
            Some(Some(group)) => &group.spread,
            _ => &[],
        }
    }

    fn member_mut(&mut self, id: u32) -> Option<(u32, &mut Member)> {
        let at = *self.member_places.get(&id)?;
        Some((at, self.members.get_mut(at as usize)?.as_mut()?))
    }

    fn use_members(&mut self, group: &ProfileGroup, more: bool) {
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

    /// An entry names (`more`) or no longer names a target.
    fn count_use(&mut self, target: &Target, more: bool) {
        let uses = match target {
            Target::Member(at) => match self.members.get_mut(*at as usize) {
                Some(Some(member)) => &mut member.uses,
                _ => return,
            },
            Target::Group(at) => match self.groups.get_mut(*at as usize) {
                Some(Some(group)) => &mut group.uses,
                _ => return,
            },
            Target::Call(_) | Target::OneShot(_) => return,
        };
        *uses = if more {
            *uses + 1
        } else {
            uses.saturating_sub(1)
        };
    }

    /// A checked group's members in order, with their places.
    fn spread_of(&self, group: &ProfileGroup) -> Vec<u32> {
        let mut members: Vec<&GroupMember> = group.members.iter().collect();
        members.sort_by_key(|m| m.member);
        spread(
            members
                .into_iter()
                .filter_map(|m| Some((*self.member_places.get(&m.member)?, m.weight))),
        )
    }

    fn check_group(&self, info: &ProfileInfo, group: &ProfileGroup) -> ControlResult<()> {
        if !info.selector {
            return invalid(format!("action profile '{}' has no selector", info.name));
        }
        let mut total = 0;
        for (i, m) in group.members.iter().enumerate() {
            if !self.member_places.contains_key(&m.member) {
                return not_found(format!(
                    "action profile '{}' has no member {}",
                    info.name, m.member
                ));
            }
            if m.weight == 0 {
                return invalid(format!("member {} has weight 0", m.member));
            }
            if group.members[..i]
                .iter()
                .any(|other| other.member == m.member)
            {
                return invalid(format!("member {} is given twice", m.member));
            }
            total += u64::from(m.weight);
        }
        check_weight(total, group.max_size)
    }
}

fn check_weight(total: u64, max_size: u32) -> ControlResult<()> {
    if total > MAX_WEIGHT {
        return Err(ControlError::ResourceExhausted(format!(
            "weights of {total} in all; {MAX_WEIGHT} at most"
        )));
    }
    if max_size > 0 && total > u64::from(max_size) {
        return Err(ControlError::ResourceExhausted(format!(
            "weights of {total} in all; the group has room for {max_size}"
        )));
    }
    Ok(())
}

impl Pipeline {
    /// Action profiles of the program.
    pub fn profiles(&self) -> &[ProfileInfo] {
        &self.program.profile_infos
    }

    fn profile(&self, profile: usize) -> ControlResult<(&ProfileInfo, &Profile)> {
        match (
            self.program.profile_infos.get(profile),
            self.profiles.get(profile),
        ) {
            (Some(info), Some(p)) => Ok((info, p)),
            _ => not_found(format!("no action profile number {profile}")),
        }
    }

    fn profile_mut(&mut self, profile: usize) -> ControlResult<(&ProfileInfo, &mut Profile)> {
        match (
            self.program.profile_infos.get(profile),
            self.profiles.get_mut(profile),
        ) {
            (Some(info), Some(p)) => Ok((info, p)),
            _ => not_found(format!("no action profile number {profile}")),
        }
    }

    /// A checked member: its action must be one of every table that uses the profile.
    fn member_of(&self, profile: usize, member: &ProfileMember) -> ControlResult<Args> {
        let (info, _) = self.profile(profile)?;
        let mut args = None;
        for &table in &info.tables {
            args = Some(self.call(table, &member.call)?.args);
        }
        args.ok_or_else(|| {
            ControlError::InvalidArgument(format!("no table uses action profile '{}'", info.name))
        })
    }

    /// Adds a member.
    pub fn member_insert(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        let args = self.member_of(profile, member)?;
        let (info, p) = self.profile_mut(profile)?;
        if p.member_places.contains_key(&member.id) {
            return Err(ControlError::AlreadyExists(format!(
                "action profile '{}' already has member {}",
                info.name, member.id
            )));
        }
        if p.member_places.len() >= info.size {
            return Err(ControlError::ResourceExhausted(format!(
                "action profile '{}' is full ({} members)",
                info.name, info.size
            )));
        }
        let at = place(
            &mut p.members,
            Member {
                action: member.call.action,
                args,
                id: member.id,
                uses: 0,
            },
        );
        p.member_places.insert(member.id, at);
        Ok(())
    }

    /// Changes a member's action.
    pub fn member_modify(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        let args = self.member_of(profile, member)?;
        let (info, p) = self.profile_mut(profile)?;
        let Some((_, found)) = p.member_mut(member.id) else {
            return not_found(format!(
                "action profile '{}' has no member {}",
                info.name, member.id
            ));
        };
        found.action = member.call.action;
        found.args = args;
        Ok(())
    }

    /// Removes a member that nothing uses.
    pub fn member_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        let Some((at, found)) = p.member_mut(id) else {
            return not_found(format!("action profile '{}' has no member {id}", info.name));
        };
        if found.uses > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "member {id} of action profile '{}' is used by {} entries and groups",
                info.name, found.uses
            )));
        }
        p.members[at as usize] = None;
        p.member_places.remove(&id);
        Ok(())
    }

    /// All members by id.
    pub fn members(&self, profile: usize) -> Vec<ProfileMember> {
        let Ok((_, p)) = self.profile(profile) else {
            return Vec::new();
        };
        let places = p.member_places.iter();
        places
            .filter_map(|(&id, &at)| {
                let call = self.member_call(p.member(at)?);
                Some(ProfileMember { id, call })
            })
            .collect()
    }

    fn member_call(&self, member: &Member) -> ActionCall {
        let action = member.action;
        let params = self.program.action_infos.get(action);
        let mut rest = &*member.args;
        let args = params.map_or(&[][..], |a| &a.params).iter();
        let args = args
            .map(|&(_, bits)| {
                let n = crate::wide::limbs(bits) as usize;
                let (now, later) = rest.split_at(rest.len().min(n));
                rest = later;
                to_bits(now, bits)
            })
            .collect();
        ActionCall { action, args }
    }

    /// Adds a group.
    pub fn group_insert(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        if p.group_places.contains_key(&group.id) {
            return Err(ControlError::AlreadyExists(format!(
                "action profile '{}' already has group {}",
                info.name, group.id
            )));
        }
        p.check_group(info, group)?;
        p.use_members(group, true);
        let spread = p.spread_of(group);
        let at = place(
            &mut p.groups,
            Group {
                given: group.clone(),
                spread,
                uses: 0,
            },
        );
        p.group_places.insert(group.id, at);
        Ok(())
    }

    /// Replaces a group's members.
    pub fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        let Some(&at) = p.group_places.get(&group.id) else {
            return not_found(format!(
                "action profile '{}' has no group {}",
                info.name, group.id
            ));
        };
        p.check_group(info, group)?;
        p.use_members(group, true);
        let spread = p.spread_of(group);
        let Some(Some(kept)) = p.groups.get_mut(at as usize) else {
            return not_found(format!("no group {}", group.id));
        };
        let before = std::mem::replace(&mut kept.given, group.clone());
        kept.spread = spread;
        p.use_members(&before, false);
        Ok(())
    }

    /// Removes a group that no entry uses.
    pub fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        let unknown = || not_found(format!("action profile '{}' has no group {id}", info.name));
        let Some(&at) = p.group_places.get(&id) else {
            return unknown();
        };
        match p.groups.get(at as usize) {
            Some(Some(group)) if group.uses > 0 => {
                return Err(ControlError::FailedPrecondition(format!(
                    "group {id} of action profile '{}' is used by {} entries",
                    info.name, group.uses
                )));
            }
            Some(Some(_)) => {}
            _ => return unknown(),
        }
        p.group_places.remove(&id);
        if let Some(group) = p.groups[at as usize].take() {
            p.use_members(&group.given, false);
        }
        Ok(())
    }

    /// All groups by id.
    pub fn groups(&self, profile: usize) -> Vec<ProfileGroup> {
        let Ok((_, p)) = self.profile(profile) else {
            return Vec::new();
        };
        let places = p.group_places.values();
        places
            .filter_map(|&at| p.groups.get(at as usize)?.as_ref())
            .map(|group| group.given.clone())
            .collect()
    }

    /// What an entry is to do, checked, by places.
    fn target(&self, table: usize, action: &IndirectAction) -> ControlResult<(usize, Target)> {
        let (info, t) = self.info(table)?;
        let Some(profile) = t.profile else {
            return invalid(format!("table '{}' has no action profile", info.name));
        };
        let (profile_info, p) = self.profile(profile)?;
        let name = &profile_info.name;
        let target = match action {
            IndirectAction::Member(id) => match p.member_places.get(id) {
                Some(&at) => Target::Member(at),
                None => return not_found(format!("action profile '{name}' has no member {id}")),
            },
            IndirectAction::Group(id) => match p.group_places.get(id) {
                Some(&at) => Target::Group(at),
                None => return not_found(format!("action profile '{name}' has no group {id}")),
            },
            IndirectAction::OneShot(set) => {
                if !profile_info.selector {
                    return invalid(format!("action profile '{name}' has no selector"));
                }
                let mut one = OneShot {
                    calls: Vec::new(),
                    weights: Vec::new(),
                    spread: Vec::new(),
                };
                let mut total = 0;
                for w in set {
                    if w.weight == 0 {
                        return invalid("an action of the set has weight 0".to_owned());
                    }
                    total += u64::from(w.weight);
                    check_weight(total, 0)?;
                    one.calls.push(self.call(table, &w.call)?);
                    one.weights.push((w.weight, w.watch_port.clone()));
                }
                let weights = one.weights.iter().enumerate();
                one.spread = spread(weights.map(|(i, w)| (i as u32, w.0)));
                Target::OneShot(Box::new(one))
            }
        };
        Ok((profile, target))
    }

    /// Inserts an entry that names a member, a group or a one-shot set.
    pub fn table_insert_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let (profile, target) = self.target(table, action)?;
        let (info, t) = self.info_mut(table)?;
        crate::control::insert_checked(t, info, key, target.clone())?;
        if let Some(p) = self.profiles.get_mut(profile) {
            p.count_use(&target, true);
        }
        Ok(())
    }

    /// Changes what an existing entry names.
    pub fn table_modify_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let (profile, target) = self.target(table, action)?;
        let (_, id) = self.existing(table, key)?;
        let (_, t) = self.info_mut(table)?;
        let before = t
            .entry_mut(id)
            .map(|e| std::mem::replace(&mut e.target, target.clone()));
        if let Some(p) = self.profiles.get_mut(profile) {
            p.count_use(&target, true);
            if let Some(before) = before {
                p.count_use(&before, false);
            }
        }
        Ok(())
    }

    /// The target of an entry that is put (back) in, counted.
    pub(crate) fn use_target(
        &mut self,
        table: usize,
        action: &IndirectAction,
    ) -> ControlResult<Target> {
        let (profile, target) = self.target(table, action)?;
        if let Some(p) = self.profiles.get_mut(profile) {
            p.count_use(&target, true);
        }
        Ok(target)
    }

    /// An entry with this target is gone.
    pub(crate) fn forget(&mut self, table: usize, target: &Target) {
        let profile = self.tables.get(table).and_then(|t| t.profile);
        if let Some(p) = profile.and_then(|at| self.profiles.get_mut(at)) {
            p.count_use(target, false);
        }
    }

    /// A target as the control plane names it, and the action (its first) that it runs.
    pub(crate) fn public_target(
        &self,
        table: &Table,
        target: &Target,
    ) -> (ActionCall, Option<IndirectAction>) {
        let nothing = || ActionCall {
            action: table.actions.first().map_or(0, |a| a.public),
            args: Vec::new(),
        };
        let profile = table.profile.and_then(|at| self.profiles.get(at));
        let member = |at: u32| profile.and_then(|p| p.member(at));
        match target {
            Target::Call(call) => (Self::public_call(table, call), None),
            Target::Member(at) => match member(*at) {
                Some(m) => (self.member_call(m), Some(IndirectAction::Member(m.id))),
                None => (nothing(), None),
            },
            Target::Group(at) => {
                let group = profile.and_then(|p| p.groups.get(*at as usize)?.as_ref());
                let first = group.and_then(|g| member(*g.spread.first()?));
                (
                    first.map_or_else(nothing, |m| self.member_call(m)),
                    group.map(|g| IndirectAction::Group(g.given.id)),
                )
            }
            Target::OneShot(set) => {
                let calls = set.calls.iter().zip(&set.weights);
                let set: Vec<WeightedAction> = calls
                    .map(|(call, (weight, watch_port))| WeightedAction {
                        call: Self::public_call(table, call),
                        weight: *weight,
                        watch_port: watch_port.clone(),
                    })
                    .collect();
                let first = set.first().map_or_else(nothing, |w| w.call.clone());
                (first, Some(IndirectAction::OneShot(set)))
            }
        }
    }
}
