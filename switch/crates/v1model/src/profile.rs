//! Action profiles: members and groups that table entries name, and the control plane's side of
//! them.

use crate::bits::to_bits;
use crate::control::{invalid, not_found};
use crate::entries::profile::{
    GroupMember, IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, ProfileRules,
    SizeSemantics, WatchPort, WeightedAction,
};
use crate::entries::{ActionCall, ControlError, ControlResult, EntryKey, Page};
use crate::pipeline::Pipeline;
use crate::table::{OneShot, Table, Target};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Largest sum of the weights of a group or one-shot set.
const MAX_WEIGHT: u64 = 1 << 16;

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Public action.
    pub action: usize,
    pub args: Box<[u64]>,
    id: u32,
    /// Entries and groups that name it.
    uses: u32,
}

#[derive(Debug)]
struct Group {
    given: ProfileGroup,
    /// Places of members, each as often as its weight, in order of their ids, without those whose
    /// port is down.
    spread: Vec<u32>,
    uses: u32,
}

/// An action profile of a running program. Entries name members and groups by their places, so
/// that a packet needs no look-up by id.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// The selector's calculation.
    pub calculation: Option<usize>,
    members: Places<Member>,
    groups: Places<Group>,
    member_places: BTreeMap<u32, u32>,
    group_places: BTreeMap<u32, u32>,
    rules: ProfileRules,
    /// Size of all groups and one-shot sets together, as the rules count.
    total_size: u64,
    /// Entries with one-shot sets.
    one_shots: usize,
}

/// Values at places that stay the same while the value is there.
#[derive(Debug)]
struct Places<T> {
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
    fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Puts a value into a free place.
    fn put(&mut self, value: T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize] = Some(value);
        at
    }

    fn take(&mut self, at: u32) -> Option<T> {
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
fn one_shot_spread(weights: &[(u32, Option<WatchPort>)], down: &BTreeSet<u32>) -> Vec<u32> {
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

    fn member_mut(&mut self, id: u32) -> Option<(u32, &mut Member)> {
        let at = *self.member_places.get(&id)?;
        Some((at, self.members.get_mut(at)?))
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

    fn group_size(&self, group: &ProfileGroup) -> u64 {
        size_of(self.rules, group.members.iter().map(|m| m.weight))
    }

    fn one_shot_size(&self, set: &OneShot) -> u64 {
        size_of(self.rules, set.weights.iter().map(|w| w.0))
    }

    /// Checks that a group or set of `size` fits, where `freed` is given up for it.
    fn check_total(&self, info: &ProfileInfo, size: u64, freed: u64) -> ControlResult<()> {
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
    fn check_no_one_shots(&self, info: &ProfileInfo) -> ControlResult<()> {
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
    fn count_use(&mut self, target: &Target, more: bool) {
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
    fn spread_of(&self, group: &ProfileGroup, down: &BTreeSet<u32>) -> Vec<u32> {
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
    fn check_group(
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

fn check_weight(total: u64) -> ControlResult<()> {
    if total > MAX_WEIGHT {
        return Err(ControlError::ResourceExhausted(format!(
            "weights of {total} in all; {MAX_WEIGHT} at most"
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

    /// Sets what the sizes of an empty profile count, and how large its groups may be.
    pub fn profile_rules(&mut self, profile: usize, rules: ProfileRules) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        if p.total_size > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "action profile '{}' is in use",
                info.name
            )));
        }
        p.rules = rules;
        Ok(())
    }

    /// A port can carry frames (`up`) or cannot: members of groups and actions of one-shot sets
    /// that depend on it are chosen or not. Looks at every group and one-shot set.
    pub fn port_changed(&mut self, port: u32, up: bool) {
        let changed = if up {
            self.down.remove(&port)
        } else {
            self.down.insert(port)
        };
        if !changed {
            return;
        }
        let watches = |watch: Option<WatchPort>| watch.is_some_and(|watch| watch.port == port);
        for p in &mut self.profiles {
            for &at in p.group_places.values() {
                let group = p.groups.get(at).map(|group| &group.given);
                let Some(given) = group.filter(|g| g.members.iter().any(|m| watches(m.watch)))
                else {
                    continue;
                };
                let spread = p.spread_of(given, &self.down);
                if let Some(group) = p.groups.get_mut(at) {
                    group.spread = spread;
                }
            }
        }
        for t in self.tables.iter_mut().filter(|t| t.profile.is_some()) {
            t.change_targets(|target| {
                if let Target::OneShot(set) = target
                    && set.weights.iter().any(|w| watches(w.1))
                {
                    set.spread = one_shot_spread(&set.weights, &self.down);
                }
            });
        }
    }

    /// A checked member: its action must be one of every table that uses the profile.
    fn member_of(&self, profile: usize, member: &ProfileMember) -> ControlResult<Box<[u64]>> {
        let (info, _) = self.profile(profile)?;
        let mut args = None;
        for &table in &info.tables {
            args = Some(self.call(table, &member.call)?.args().into());
        }
        args.ok_or_else(|| {
            ControlError::InvalidArgument(format!("no table uses action profile '{}'", info.name))
        })
    }

    /// Adds a member.
    pub fn member_insert(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        let args = self.member_of(profile, member)?;
        let (info, p) = self.profile_mut(profile)?;
        p.check_no_one_shots(info)?;
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
        let at = p.members.put(Member {
            action: member.call.action,
            args,
            id: member.id,
            uses: 0,
        });
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
        p.members.take(at);
        p.member_places.remove(&id);
        Ok(())
    }

    /// One member.
    pub fn member(&self, profile: usize, id: u32) -> ControlResult<ProfileMember> {
        let (info, p) = self.profile(profile)?;
        let place = p.member_places.get(&id);
        match place.and_then(|&at| p.member(at)) {
            Some(member) => Ok(ProfileMember {
                id,
                call: self.member_call(member),
            }),
            None => not_found(format!("action profile '{}' has no member {id}", info.name)),
        }
    }

    /// Members by id, at most `most` of them, from id `from` on.
    pub fn members(&self, profile: usize, from: u64, most: usize) -> Page<ProfileMember> {
        let (Ok((_, p)), Ok(from)) = (self.profile(profile), u32::try_from(from)) else {
            return Page::default();
        };
        let places = p.member_places.range(from..);
        let members = places.filter_map(|(&id, &at)| {
            let call = self.member_call(p.member(at)?);
            Some((u64::from(id), ProfileMember { id, call }))
        });
        Page::of(members, most)
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
        let (info, p, down) = self.profile_and_ports(profile)?;
        if p.group_places.contains_key(&group.id) {
            return Err(ControlError::AlreadyExists(format!(
                "action profile '{}' already has group {}",
                info.name, group.id
            )));
        }
        p.check_group(info, group, 0)?;
        p.use_members(group, true);
        p.total_size += p.group_size(group);
        let spread = p.spread_of(group, down);
        let at = p.groups.put(Group {
            given: group.clone(),
            spread,
            uses: 0,
        });
        p.group_places.insert(group.id, at);
        Ok(())
    }

    /// Replaces a group's members.
    pub fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        let (info, p, down) = self.profile_and_ports(profile)?;
        let place = p.group_places.get(&group.id).copied();
        let kept = place.and_then(|at| p.groups.get(at));
        let (Some(at), Some(kept)) = (place, kept) else {
            return not_found(format!(
                "action profile '{}' has no group {}",
                info.name, group.id
            ));
        };
        if kept.given.max_size != group.max_size {
            return invalid(format!(
                "group {} of action profile '{}': max_size: {} given, {} expected: it cannot change",
                group.id, info.name, group.max_size, kept.given.max_size
            ));
        }
        let freed = p.group_size(&kept.given);
        p.check_group(info, group, freed)?;
        p.use_members(group, true);
        p.total_size = p.total_size.saturating_sub(freed) + p.group_size(group);
        let spread = p.spread_of(group, down);
        if let Some(kept) = p.groups.get_mut(at) {
            let before = std::mem::replace(&mut kept.given, group.clone());
            kept.spread = spread;
            p.use_members(&before, false);
        }
        Ok(())
    }

    /// A profile, and the ports that are down.
    fn profile_and_ports(
        &mut self,
        profile: usize,
    ) -> ControlResult<(&ProfileInfo, &mut Profile, &BTreeSet<u32>)> {
        match (
            self.program.profile_infos.get(profile),
            self.profiles.get_mut(profile),
        ) {
            (Some(info), Some(p)) => Ok((info, p, &self.down)),
            _ => not_found(format!("no action profile number {profile}")),
        }
    }

    /// Removes a group that no entry uses.
    pub fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        let (info, p) = self.profile_mut(profile)?;
        let place = p.group_places.get(&id).copied();
        let group = place.and_then(|at| p.groups.get(at));
        let (Some(at), Some(group)) = (place, group) else {
            return not_found(format!("action profile '{}' has no group {id}", info.name));
        };
        if group.uses > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "group {id} of action profile '{}' is used by {} entries",
                info.name, group.uses
            )));
        }
        p.group_places.remove(&id);
        if let Some(group) = p.groups.take(at) {
            p.use_members(&group.given, false);
            p.total_size = p.total_size.saturating_sub(p.group_size(&group.given));
        }
        Ok(())
    }

    /// One group.
    pub fn group(&self, profile: usize, id: u32) -> ControlResult<ProfileGroup> {
        let (info, p) = self.profile(profile)?;
        let place = p.group_places.get(&id);
        match place.and_then(|&at| p.groups.get(at)) {
            Some(group) => Ok(group.given.clone()),
            None => not_found(format!("action profile '{}' has no group {id}", info.name)),
        }
    }

    /// Groups by id, at most `most` of them, from id `from` on.
    pub fn groups(&self, profile: usize, from: u64, most: usize) -> Page<ProfileGroup> {
        let (Ok((_, p)), Ok(from)) = (self.profile(profile), u32::try_from(from)) else {
            return Page::default();
        };
        let places = p.group_places.range(from..);
        let groups = places.filter_map(|(&id, &at)| {
            let group = p.groups.get(at)?;
            Some((u64::from(id), group.given.clone()))
        });
        Page::of(groups, most)
    }

    /// What an entry is to do, checked, by places; `before`: what it does so far.
    pub(crate) fn target(
        &self,
        table: usize,
        action: &IndirectAction,
        before: Option<&Target>,
    ) -> ControlResult<Target> {
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
                if !p.member_places.is_empty() || !p.group_places.is_empty() {
                    return invalid(format!(
                        "action profile '{name}' is programmed with members and groups; one-shot \
                         action sets cannot be beside them"
                    ));
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
                    check_weight(total)?;
                    one.calls.push(self.call(table, &w.call)?);
                    one.weights.push((w.weight, w.watch));
                }
                let freed = match before {
                    Some(Target::OneShot(set)) => p.one_shot_size(set),
                    _ => 0,
                };
                p.check_total(profile_info, p.one_shot_size(&one), freed)?;
                one.spread = one_shot_spread(&one.weights, &self.down);
                Target::OneShot(Box::new(one))
            }
        };
        Ok(target)
    }

    /// Inserts an entry that names a member, a group or a one-shot set.
    pub fn table_insert_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let target = self.target(table, action, None)?;
        let now_ns = self.clock_ns;
        let (info, t) = self.info_mut(table)?;
        crate::control::insert_checked(t, info, key, target.clone(), now_ns)?;
        self.use_target(table, &target);
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
        let (_, id) = self.existing(table, key)?;
        let (_, t) = self.info(table)?;
        let target = self.target(table, action, t.entry(id).map(|e| &e.target))?;
        self.use_target(table, &target);
        let (_, t) = self.info_mut(table)?;
        let before = t
            .entry_mut(id)
            .map(|e| std::mem::replace(&mut e.target, target));
        if let Some(before) = before {
            self.forget(table, &before);
        }
        Ok(())
    }

    /// An entry with this target is put in.
    pub(crate) fn use_target(&mut self, table: usize, target: &Target) {
        let profile = self.tables.get(table).and_then(|t| t.profile);
        if let Some(p) = profile.and_then(|at| self.profiles.get_mut(at)) {
            p.count_use(target, true);
        }
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
                let group = profile.and_then(|p| p.groups.get(*at));
                let first = group.and_then(|g| member(*g.spread.first()?));
                (
                    first.map_or_else(nothing, |m| self.member_call(m)),
                    group.map(|g| IndirectAction::Group(g.given.id)),
                )
            }
            Target::OneShot(set) => {
                let calls = set.calls.iter().zip(&set.weights);
                let set: Vec<WeightedAction> = calls
                    .map(|(call, &(weight, watch))| WeightedAction {
                        call: Self::public_call(table, call),
                        weight,
                        watch,
                    })
                    .collect();
                let first = set.first().map_or_else(nothing, |w| w.call.clone());
                (first, Some(IndirectAction::OneShot(set)))
            }
        }
    }
}
