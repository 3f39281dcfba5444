//! The control plane's access to tables: entries, default entries, direct resources, idle timeouts.
//!
//! A refused call changes nothing.
//!
//! Priorities are P4Runtime's: greater wins. Entries written in the program get priorities
//! from the number of entries downwards (the first one wins, the last one has 1), whichever
//! numbers BMv2 JSON gives them, where the lowest wins. Among equal priorities the entry that
//! was inserted first wins.

use std::sync::Arc;

use crate::bits::{from_bits, split_bits};
use crate::entries::digest::{IdleEntry, IdleTimeout};
use crate::entries::error::{internal, invalid, not_found};
use crate::entries::profile::IndirectAction;
use crate::entries::{
    ActionCall, ActionInfo, ControlError, ControlResult, CounterValue, DefaultEntry, EntryAction,
    EntryKey, MeterState, MeterWrite, Page, TableEntry, TableInfo,
};
use crate::pipeline::Pipeline;
use crate::saved::{SavedEntry, SavedTarget};
use crate::state::counter_value;
use crate::table::pack::{check_room, insert_checked, pack};
use crate::table::{Call, DefaultTarget, Direct, Entry, Packed, Table};
use crate::trace::Labels;

fn direct_counter(info: &TableInfo, direct: &Direct) -> Option<CounterValue> {
    info.direct_counter.then(|| counter_value(direct.counter))
}

fn direct_meter(info: &TableInfo, direct: &Direct) -> Option<MeterState> {
    info.direct_meter.as_ref().map(|_| direct.meter_state())
}

fn const_default(info: &TableInfo) -> ControlError {
    ControlError::PermissionDenied(format!(
        "the default action of table '{}' is constant",
        info.name
    ))
}

impl Pipeline {
    /// All tables of the program, in program order (ingress, then egress), including those
    /// that p4c makes of plain statements (`tbl_...`, keyless, not in P4Info).
    pub fn tables(&self) -> &[TableInfo] {
        &self.program.table_infos
    }

    /// The names of the program's other objects.
    pub fn labels(&self) -> &Arc<Labels> {
        &self.program.labels
    }

    /// All actions. The copies that p4c makes of one action appear once.
    pub fn actions(&self) -> &[ActionInfo] {
        &self.program.action_infos
    }

    pub(crate) fn info(&self, table: usize) -> ControlResult<(&TableInfo, &Table)> {
        match (self.program.table_infos.get(table), self.tables.get(table)) {
            (Some(info), Some(t)) => Ok((info, t)),
            _ => not_found(format!("no table number {table}")),
        }
    }

    pub(crate) fn info_mut(&mut self, table: usize) -> ControlResult<(&TableInfo, &mut Table)> {
        match (
            self.program.table_infos.get(table),
            self.tables.get_mut(table),
        ) {
            (Some(info), Some(t)) => Ok((info, t)),
            _ => not_found(format!("no table number {table}")),
        }
    }

    /// A call of one of the table's actions, checked.
    pub(crate) fn call(&self, table: usize, action: &ActionCall) -> ControlResult<Call> {
        let (info, t) = self.info(table)?;
        let Some(public) = self.program.action_infos.get(action.action) else {
            return not_found(format!("no action number {}", action.action));
        };
        let Some(local) = t.local(action.action) else {
            return invalid(format!(
                "action '{}' is not one of table '{}'",
                public.name, info.name
            ));
        };
        if action.args.len() != public.params.len() {
            return invalid(format!(
                "action '{}' takes {} arguments, {} given",
                public.name,
                public.params.len(),
                action.args.len()
            ));
        }
        let mut args = Vec::new();
        for ((name, bits), value) in public.params.iter().zip(&action.args) {
            args.extend(from_bits(value, *bits, || format!("argument '{name}'"))?);
        }
        Ok(Call::new(local, &args))
    }

    /// A call as the control plane names it.
    pub(crate) fn public_call(table: &Table, call: &Call) -> ActionCall {
        let action = table.spec.actions.get(call.local());
        debug_assert!(action.is_some(), "no action {}", call.local());
        let params = action.map_or(&[][..], |action| &action.params);
        ActionCall {
            action: action.map_or(0, |action| action.public),
            args: split_bits(call.args(), params.iter().copied()),
        }
    }

    pub(super) fn public_entry(&self, info: &TableInfo, table: &Table, e: &Entry) -> TableEntry {
        let (action, indirect) = self.public_target(table, &e.target);
        TableEntry {
            key: e.key(),
            action,
            indirect,
            counter: direct_counter(info, &e.direct),
            meter: direct_meter(info, &e.direct),
            idle: info.idle_timeout.then(|| IdleTimeout {
                timeout_ns: e.idle.timeout_ns,
                since_hit_ns: self
                    .clock_ns
                    .saturating_sub(e.idle.last_hit_ns.max(self.born_ns.unwrap_or(0))),
            }),
        }
    }

    /// Sets the present, in ns, for idle timeouts. A time before the last one changes nothing.
    pub fn set_time(&mut self, now_ns: u64) {
        self.clock_ns = self.clock_ns.max(now_ns);
        self.born_ns.get_or_insert(self.clock_ns);
    }

    /// The present that was set last, in ns.
    pub fn now_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Starts the program: packets come from now on, and no entry counts as idle before.
    pub fn start(&mut self, now_ns: u64) {
        self.clock_ns = self.clock_ns.max(now_ns);
        self.born_ns = Some(self.clock_ns);
    }

    /// Sets an entry's idle timeout in ns (0: none); it counts from its last packet, or from when
    /// the entry was made.
    pub fn idle_timeout_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        timeout_ns: u64,
    ) -> ControlResult<()> {
        let (_, id) = self.existing(table, key)?;
        let born_ns = self.born_ns.unwrap_or(0);
        let (info, t) = self.info_mut(table)?;
        if !info.idle_timeout {
            return invalid(format!("table '{}' has no idle timeouts", info.name));
        }
        let Some(e) = t.entry_mut(id) else {
            return internal("an entry that exists is not there");
        };
        e.idle.last_hit_ns = e.idle.last_hit_ns.max(born_ns);
        t.set_idle_timeout(id, timeout_ns);
        Ok(())
    }

    /// The earliest instant, in ns, at which an entry may be idle.
    pub fn next_idle_ns(&self) -> Option<u64> {
        let tables = self.tables.iter().filter(|t| t.spec.ageing);
        tables.filter_map(Table::next_idle_ns).min()
    }

    /// Entries that are idle now and were not returned for as long as their timeout. Visits at most
    /// `max_visits` entries: call it again while [`Self::next_idle_ns`] is past.
    pub fn take_idle_entries(&mut self, max_visits: usize) -> Vec<IdleEntry> {
        let (now_ns, born_ns) = (self.clock_ns, self.born_ns.unwrap_or(0));
        let mut all = Vec::new();
        let mut left = max_visits;
        for (table, t) in self
            .tables
            .iter_mut()
            .enumerate()
            .filter(|(_, t)| t.spec.ageing)
        {
            let info = self.program.table_infos.get(table);
            left = t.take_idle(now_ns, born_ns, left, |key, timeout_ns, handle| {
                all.push(IdleEntry {
                    table,
                    json_id: info.map_or(0, |info| info.json_id),
                    key: key.clone(),
                    handle,
                    timeout_ns,
                });
            });
        }
        all
    }

    /// The existing entry with this key: its canonical packed form and id.
    pub(crate) fn existing(&self, table: usize, key: &EntryKey) -> ControlResult<(Packed, u32)> {
        let (info, t) = self.info(table)?;
        let (key, packed) = pack(t, info, key)?;
        match t.id_of(&key) {
            Some(id) => Ok((packed, id)),
            None => not_found(format!("table '{}' has no such entry", info.name)),
        }
    }

    /// The entry with this key, and its table.
    fn find(&self, table: usize, key: &EntryKey) -> ControlResult<(&TableInfo, &Table, &Entry)> {
        let (_, id) = self.existing(table, key)?;
        let (info, t) = self.info(table)?;
        match t.entry(id) {
            Some(entry) => Ok((info, t, entry)),
            None => internal("an entry that exists is not there"),
        }
    }

    pub(crate) fn writable(&self, table: usize) -> ControlResult<()> {
        let (info, _) = self.info(table)?;
        if info.const_entries {
            return Err(ControlError::PermissionDenied(format!(
                "the entries of table '{}' are constant",
                info.name
            )));
        }
        Ok(())
    }

    /// Sets whether a table's entries are constant, and how many it takes: at least those it has.
    pub fn table_rules(
        &mut self,
        table: usize,
        const_entries: bool,
        size: usize,
    ) -> ControlResult<()> {
        let present = self.info(table)?.1.len();
        let Some(info) = self.program.table_infos.get_mut(table) else {
            return internal("a table's description is missing");
        };
        info.const_entries = const_entries;
        info.size = size.max(present);
        Ok(())
    }

    /// Inserts an entry.
    ///
    /// # Errors
    /// The entry exists, the table is full or constant, or the key or the action does not fit the
    /// table. An indirect action may also name a member or group that does not exist, or be a
    /// one-shot set beside members (or the reverse) or with a port that the switch does not have.
    pub fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &EntryAction,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let target = self.target(table, action, None)?;
        let now_ns = self.clock_ns;
        let (info, t) = self.info_mut(table)?;
        insert_checked(t, info, key, target.clone(), now_ns)?;
        self.count_target(table, true, &target);
        Ok(())
    }

    /// Changes the action of an existing entry. Its direct resources do not change.
    ///
    /// # Errors
    /// As [`Self::table_insert`]; the entry does not exist.
    pub fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &EntryAction,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let (packed, id) = self.existing(table, key)?;
        let before = self.info(table)?.1.entry(id).map(|e| &e.target);
        let target = self.target(table, action, before)?;
        self.count_target(table, true, &target);
        let Some(before) = self.info_mut(table)?.1.change(id, &packed, target) else {
            return internal("an entry that exists is not there");
        };
        self.count_target(table, false, &before);
        Ok(())
    }

    /// Removes an entry and returns it for [`Self::table_restore`].
    pub fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<SavedEntry> {
        self.writable(table)?;
        let (packed, id) = self.existing(table, key)?;
        let entry = self.take_out(table, id, &packed)?;
        let (_, t) = self.info(table)?;
        Ok(self.saved(t, entry))
    }

    /// A copy of an entry (`None`: the default entry) in its present state, for [`Self::table_restore`].
    pub fn table_save(&self, table: usize, key: Option<&EntryKey>) -> ControlResult<SavedEntry> {
        let Some(key) = key else {
            let (_, t) = self.info(table)?;
            return Ok(SavedEntry(SavedTarget::Default(t.default.clone())));
        };
        let (_, t, entry) = self.find(table, key)?;
        Ok(self.saved(t, entry.without_spread()))
    }

    /// An entry for [`Self::table_restore`].
    fn saved(&self, table: &Table, entry: Entry) -> SavedEntry {
        let profile = table.spec.profile;
        let indirect = profile.and_then(|_| self.public_target(table, &entry.target).1);
        SavedEntry(SavedTarget::Entry(Box::new(entry), indirect))
    }

    /// Removes an entry that exists, and returns it.
    fn take_out(&mut self, table: usize, id: u32, packed: &Packed) -> ControlResult<Entry> {
        let Some(entry) = self.info_mut(table)?.1.remove(id, packed) else {
            return internal("an entry that exists is not there");
        };
        self.count_target(table, false, &entry.target);
        Ok(entry)
    }

    /// Puts an entry of this table back as it was: action, counter, meter, idle timeout, place in
    /// the order of insertion. Takes the place of an entry of the same key.
    pub fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()> {
        let (info, t) = self.info(table)?;
        let (mut entry, indirect) = match saved.0 {
            SavedTarget::Entry(entry, indirect) => (*entry, indirect),
            SavedTarget::Default(default) => {
                self.put_default(table, default)?;
                return Ok(());
            }
        };
        let (key, packed) = pack(t, info, &entry.key())?;
        let there = t.id_of(&key);
        if there.is_none() {
            check_room(t, info)?;
        }
        if let Some(indirect) = indirect {
            // Members may stand at other places by now.
            let before = there.and_then(|id| t.entry(id)).map(|e| &e.target);
            entry.target = self.indirect_target(table, &indirect, before)?;
        }
        if let Some(id) = there {
            self.take_out(table, id, &packed)?;
        }
        self.count_target(table, true, &entry.target);
        self.info_mut(table)?.1.put(entry, &packed);
        Ok(())
    }

    /// Number of entries.
    ///
    /// # Errors
    /// There is no such table.
    pub fn table_len(&self, table: usize) -> ControlResult<usize> {
        self.info(table).map(|(_, t)| t.len())
    }

    /// Looks one entry up by its key.
    pub fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry> {
        let (info, t, entry) = self.find(table, key)?;
        Ok(self.public_entry(info, t, entry))
    }

    /// Entries in insertion order, at most `most` of them, from where the page before ended (0:
    /// the first); none for a table that does not exist.
    pub fn table_entries(&self, table: usize, from: u64, most: usize) -> Page<TableEntry> {
        let Ok((info, t)) = self.info(table) else {
            return Page::default();
        };
        let entries = t.entries_from(from);
        Page::of(
            entries.map(|entry| (entry.order, self.public_entry(info, t, entry))),
            most,
        )
    }

    /// The default entry.
    pub fn table_default(&self, table: usize) -> ControlResult<DefaultEntry> {
        let (info, t) = self.info(table)?;
        let call = t.default.call.as_ref();
        Ok(DefaultEntry {
            action: call.map(|call| Self::public_call(t, call)),
            indirect: t
                .default
                .indirect
                .as_ref()
                .and_then(|target| self.public_target(t, target).1),
            counter: direct_counter(info, &t.default.direct),
            meter: direct_meter(info, &t.default.direct),
        })
    }

    /// Sets the default action; `None` restores the program's own.
    pub fn table_set_default(
        &mut self,
        table: usize,
        action: Option<&ActionCall>,
    ) -> ControlResult<()> {
        let (info, t) = self.info(table)?;
        let call = match action {
            Some(action) => Some(self.call(table, action)?),
            None => t.spec.default.clone(),
        };
        if info.const_default && call != t.default.call {
            return Err(const_default(info));
        }
        let direct = t.default.direct.clone();
        self.put_default(
            table,
            DefaultTarget {
                call,
                indirect: None,
                direct,
            },
        )
    }

    /// Makes a table with an action profile run a member or a group where no entry matches, instead of
    /// its default action.
    ///
    /// # Errors
    /// The table has no action profile, or that has no such member or group; a one-shot set is given;
    /// the default action is constant.
    pub fn table_set_default_indirect(
        &mut self,
        table: usize,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        let (info, t) = self.info(table)?;
        if info.const_default {
            return Err(const_default(info));
        }
        if matches!(action, IndirectAction::OneShot(_)) {
            return invalid(format!(
                "the default entry of table '{}' takes a member or a group, not a one-shot set",
                info.name
            ));
        }
        let default = DefaultTarget {
            call: t.spec.default.clone(),
            indirect: Some(self.indirect_target(table, action, None)?),
            direct: t.default.direct.clone(),
        };
        self.put_default(table, default)
    }

    /// Replaces the default entry, and counts the uses of a profile by the old and the new one.
    fn put_default(&mut self, table: usize, default: DefaultTarget) -> ControlResult<()> {
        if let Some(target) = &default.indirect {
            self.count_target(table, true, target);
        }
        let before = std::mem::replace(&mut self.info_mut(table)?.1.default, default);
        if let Some(target) = before.indirect {
            self.count_target(table, false, &target);
        }
        Ok(())
    }

    /// The direct resources of an entry (`None`: of the default entry).
    fn direct_mut(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
    ) -> ControlResult<(&TableInfo, &mut Direct)> {
        let id = match key {
            Some(key) => Some(self.existing(table, key)?.1),
            None => None,
        };
        let (info, t) = self.info_mut(table)?;
        let direct = match id {
            None => Some(&mut t.default.direct),
            Some(id) => t.entry_mut(id).map(|entry| &mut entry.direct),
        };
        match direct {
            Some(direct) => Ok((info, direct)),
            None => not_found(format!("table '{}' has no such entry", info.name)),
        }
    }

    /// Sets the direct counter of an entry (`None`: of the default entry).
    pub fn direct_counter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        value: CounterValue,
    ) -> ControlResult<()> {
        let (info, direct) = self.direct_mut(table, key)?;
        if !info.direct_counter {
            return invalid(format!("table '{}' has no direct counter", info.name));
        }
        direct.counter = [value.packets, value.bytes];
        Ok(())
    }

    /// Sets the direct meter of an entry (`None`: of the default entry). Its buckets start full.
    pub fn direct_meter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        write: MeterWrite,
    ) -> ControlResult<()> {
        write.check()?;
        let (info, direct) = self.direct_mut(table, key)?;
        if info.direct_meter.is_none() {
            return invalid(format!("table '{}' has no direct meter", info.name));
        }
        direct.write_meter(write);
        Ok(())
    }
}
