//! The control plane's access to action profiles: members, groups, and the entries that name them.

use crate::bits::split_bits;
use crate::entries::error::{internal, invalid, not_found};
use crate::entries::profile::{
    IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, ProfileRules, WatchPort,
    WeightedAction,
};
use crate::entries::{ActionCall, ControlError, ControlResult, EntryAction, Page};
use crate::pipeline::Pipeline;
use crate::profile::{Group, Member, Profile, check_weight, one_shot_spread};
use crate::table::{OneShot, Table, Target};
use std::collections::BTreeMap;

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

    /// Sets how the sizes of an empty profile are counted, and how large its groups may be.
    pub fn profile_rules(&mut self, profile: usize, rules: ProfileRules) -> ControlResult<()> {
        let (info, p, _) = self.profile_mut(profile)?;
        if p.total_size > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "action profile '{}' is in use",
                info.name
            )));
        }
        p.rules = rules;
        Ok(())
    }

    /// Registers a port of the switch, or sets whether it can carry frames (`up`). Members of groups
    /// and actions of one-shot sets that depend on a port are chosen only while it is up. Visits
    /// every group and one-shot set.
    pub fn port_changed(&mut self, port: u32, up: bool) {
        if self.ports.insert(port, up) == Some(up) {
            return;
        }
        let watches = |watch: Option<WatchPort>| watch.is_some_and(|watch| watch.port == port);
        for p in &mut self.profiles {
            for &at in p.group_places.values() {
                let group = p.groups.get(at as usize).map(|group| &group.given);
                let Some(given) = group.filter(|g| g.members.iter().any(|m| watches(m.watch)))
                else {
                    continue;
                };
                let spread = p.spread_of(given, &self.ports);
                if let Some(group) = p.groups.get_mut(at as usize) {
                    group.spread = spread;
                }
            }
        }
        for t in self.tables.iter_mut().filter(|t| t.spec.profile.is_some()) {
            t.change_targets(|target| {
                if let Target::OneShot(set) = target
                    && set.weights.iter().any(|w| watches(w.1))
                {
                    set.spread = one_shot_spread(&set.weights, &self.ports);
                }
            });
        }
    }

    /// Checks that the switch has these ports. `object` is for the error.
    ///
    /// # Errors
    /// [`InvalidArgument`](ControlError::InvalidArgument) that names the first port it does not have.
    pub fn check_ports(
        &self,
        object: &str,
        ports: impl IntoIterator<Item = u32>,
    ) -> ControlResult<()> {
        match ports
            .into_iter()
            .find(|port| !self.ports.contains_key(port))
        {
            Some(port) => invalid(format!("{object}: this switch has no port {port}")),
            None => Ok(()),
        }
    }

    fn check_watched(
        &self,
        object: &str,
        watched: impl Iterator<Item = Option<WatchPort>>,
    ) -> ControlResult<()> {
        self.check_ports(object, watched.flatten().map(|watch| watch.port))
    }

    fn check_group_ports(&self, group: &ProfileGroup) -> ControlResult<()> {
        let object = format!("group {}: watch_port", group.id);
        self.check_watched(&object, group.members.iter().map(|member| member.watch))
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
        let (info, p, _) = self.profile_mut(profile)?;
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
        let at = p.members.insert(Member {
            action: member.call.action,
            args,
            id: member.id,
            uses: 0,
        });
        p.member_places.insert(member.id, at as u32);
        p.free_members.take(member.id);
        Ok(())
    }

    /// Changes a member's action.
    pub fn member_modify(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        let args = self.member_of(profile, member)?;
        let (info, p, _) = self.profile_mut(profile)?;
        let Some((_, found)) = p.member_mut(member.id) else {
            return info.no_member(member.id);
        };
        found.action = member.call.action;
        found.args = args;
        Ok(())
    }

    /// Removes a member that nothing uses.
    pub fn member_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        let (info, p, _) = self.profile_mut(profile)?;
        let Some((at, found)) = p.member_mut(id) else {
            return info.no_member(id);
        };
        if found.uses > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "member {id} of action profile '{}' is used by {} entries and groups",
                info.name, found.uses
            )));
        }
        p.members.try_remove(at as usize);
        p.member_places.remove(&id);
        p.free_members.give(id);
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
            None => info.no_member(id),
        }
    }

    /// The lowest id from 1 on that no member has.
    pub fn free_member_id(&self, profile: usize) -> Option<u32> {
        self.profile(profile).ok()?.1.free_members.lowest()
    }

    /// The lowest id from 1 on that no group has.
    pub fn free_group_id(&self, profile: usize) -> Option<u32> {
        self.profile(profile).ok()?.1.free_groups.lowest()
    }

    /// Number of members.
    pub fn member_count(&self, profile: usize) -> ControlResult<usize> {
        self.profile(profile).map(|(_, p)| p.member_places.len())
    }

    /// Number of groups.
    pub fn group_count(&self, profile: usize) -> ControlResult<usize> {
        self.profile(profile).map(|(_, p)| p.group_places.len())
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

    /// The action of a member as the control plane names it.
    fn member_call(&self, member: &Member) -> ActionCall {
        let action = member.action;
        let params = self.program.action_infos.get(action);
        let params = params.map_or(&[][..], |a| &a.params).iter();
        ActionCall {
            action,
            args: split_bits(&member.args, params.map(|(_, bits)| *bits)),
        }
    }

    /// Adds a group.
    pub fn group_insert(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group_ports(group)?;
        let (info, p, ports) = self.profile_mut(profile)?;
        if p.group_places.contains_key(&group.id) {
            return Err(ControlError::AlreadyExists(format!(
                "action profile '{}' already has group {}",
                info.name, group.id
            )));
        }
        p.check_group(info, group, 0)?;
        p.use_members(group, true);
        p.total_size += p.group_size(group);
        let spread = p.spread_of(group, ports);
        let at = p.groups.insert(Group {
            given: group.clone(),
            spread,
            uses: 0,
        });
        p.group_places.insert(group.id, at as u32);
        p.free_groups.take(group.id);
        Ok(())
    }

    /// Replaces a group's members.
    pub fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group_ports(group)?;
        let (info, p, ports) = self.profile_mut(profile)?;
        let place = p.group_places.get(&group.id).copied();
        let kept = place.and_then(|at| p.groups.get(at as usize));
        let (Some(at), Some(kept)) = (place, kept) else {
            return info.no_group(group.id);
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
        let spread = p.spread_of(group, ports);
        let Some(kept) = p.groups.get_mut(at as usize) else {
            return internal("a group that exists is not there");
        };
        let before = std::mem::replace(&mut kept.given, group.clone());
        kept.spread = spread;
        p.use_members(&before, false);
        Ok(())
    }

    /// A profile, and the ports of the switch.
    fn profile_mut(
        &mut self,
        profile: usize,
    ) -> ControlResult<(&ProfileInfo, &mut Profile, &BTreeMap<u32, bool>)> {
        match (
            self.program.profile_infos.get(profile),
            self.profiles.get_mut(profile),
        ) {
            (Some(info), Some(p)) => Ok((info, p, &self.ports)),
            _ => not_found(format!("no action profile number {profile}")),
        }
    }

    /// Removes a group that no entry uses.
    pub fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        let (info, p, _) = self.profile_mut(profile)?;
        let place = p.group_places.get(&id).copied();
        let group = place.and_then(|at| p.groups.get(at as usize));
        let (Some(at), Some(group)) = (place, group) else {
            return info.no_group(id);
        };
        if group.uses > 0 {
            return Err(ControlError::FailedPrecondition(format!(
                "group {id} of action profile '{}' is used by {} entries",
                info.name, group.uses
            )));
        }
        p.group_places.remove(&id);
        p.free_groups.give(id);
        if let Some(group) = p.groups.try_remove(at as usize) {
            p.use_members(&group.given, false);
            p.total_size = p.total_size.saturating_sub(p.group_size(&group.given));
        }
        Ok(())
    }

    /// One group.
    pub fn group(&self, profile: usize, id: u32) -> ControlResult<ProfileGroup> {
        let (info, p) = self.profile(profile)?;
        let place = p.group_places.get(&id);
        match place.and_then(|&at| p.groups.get(at as usize)) {
            Some(group) => Ok(group.given.clone()),
            None => info.no_group(id),
        }
    }

    /// Groups by id, at most `most` of them, from id `from` on.
    pub fn groups(&self, profile: usize, from: u64, most: usize) -> Page<ProfileGroup> {
        let (Ok((_, p)), Ok(from)) = (self.profile(profile), u32::try_from(from)) else {
            return Page::default();
        };
        let places = p.group_places.range(from..);
        let groups = places.filter_map(|(&id, &at)| {
            let group = p.groups.get(at as usize)?;
            Some((u64::from(id), group.given.clone()))
        });
        Page::of(groups, most)
    }

    /// An entry's action, checked and by places. `before` is the entry's action so far.
    pub(crate) fn target(
        &self,
        table: usize,
        action: &EntryAction,
        before: Option<&Target>,
    ) -> ControlResult<Target> {
        match action {
            EntryAction::Indirect(action) => self.indirect_target(table, action, before),
            EntryAction::Call(call) => {
                let (info, t) = self.info(table)?;
                if t.spec.profile.is_some() {
                    return invalid(format!(
                        "entries of table '{}' name members of its action profile, not actions",
                        info.name
                    ));
                }
                self.call(table, call).map(Target::Call)
            }
        }
    }

    /// As [`Self::target`], for a table with an action profile.
    pub(crate) fn indirect_target(
        &self,
        table: usize,
        action: &IndirectAction,
        before: Option<&Target>,
    ) -> ControlResult<Target> {
        let (info, t) = self.info(table)?;
        let Some(profile) = t.spec.profile else {
            return invalid(format!("table '{}' has no action profile", info.name));
        };
        let (profile_info, p) = self.profile(profile)?;
        let target = match action {
            IndirectAction::Member(id) => match p.member_places.get(id) {
                Some(&at) => Target::Member(at),
                None => return profile_info.no_member(*id),
            },
            IndirectAction::Group(id) => match p.group_places.get(id) {
                Some(&at) => Target::Group(at),
                None => return profile_info.no_group(*id),
            },
            IndirectAction::OneShot(set) => {
                let freed = match before {
                    Some(Target::OneShot(set)) => p.one_shot_size(set),
                    _ => 0,
                };
                Target::OneShot(Box::new(self.one_shot(table, profile, set, freed)?))
            }
        };
        Ok(target)
    }

    /// A one-shot set of an entry of `table`, checked. `freed` is the size of the set that it
    /// replaces.
    fn one_shot(
        &self,
        table: usize,
        profile: usize,
        set: &[WeightedAction],
        freed: u64,
    ) -> ControlResult<OneShot> {
        let (info, p) = self.profile(profile)?;
        let name = &info.name;
        if !info.selector {
            return invalid(format!("action profile '{name}' has no selector"));
        }
        if !p.member_places.is_empty() || !p.group_places.is_empty() {
            return invalid(format!(
                "action profile '{name}' is programmed with members and groups; one-shot \
                 action sets cannot be beside them"
            ));
        }
        self.check_watched("watch_port", set.iter().map(|w| w.watch))?;
        let mut calls = Vec::with_capacity(set.len());
        let mut total = 0;
        for w in set {
            if w.weight == 0 {
                return invalid("an action of the set has weight 0".to_owned());
            }
            total += u64::from(w.weight);
            check_weight(total)?;
            calls.push(self.call(table, &w.call)?);
        }
        let weights: Vec<_> = set.iter().map(|w| (w.weight, w.watch)).collect();
        let one = OneShot {
            spread: one_shot_spread(&weights, &self.ports),
            calls,
            weights,
        };
        p.check_total(info, p.one_shot_size(&one), freed)?;
        Ok(one)
    }

    /// Counts the use of a profile by an entry that is put in (`more`), or that is gone.
    pub(crate) fn count_target(&mut self, table: usize, more: bool, target: &Target) {
        let profile = self.tables.get(table).and_then(|t| t.spec.profile);
        if let Some(p) = profile.and_then(|at| self.profiles.get_mut(at)) {
            p.count_use(target, more);
        }
    }

    /// A target as the control plane names it, and the action (its first) that it runs.
    pub(crate) fn public_target(
        &self,
        table: &Table,
        target: &Target,
    ) -> (ActionCall, Option<IndirectAction>) {
        let nothing = || ActionCall {
            action: table.spec.actions.first().map_or(0, |a| a.public),
            args: Vec::new(),
        };
        let profile = table.spec.profile.and_then(|at| self.profiles.get(at));
        let member = |at: u32| profile.and_then(|p| p.member(at));
        match target {
            Target::Call(call) => (Self::public_call(table, call), None),
            Target::Member(at) => match member(*at) {
                Some(m) => (self.member_call(m), Some(IndirectAction::Member(m.id))),
                None => (nothing(), None),
            },
            Target::Group(at) => {
                let group = profile.and_then(|p| p.groups.get(*at as usize));
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
