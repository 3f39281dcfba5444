//! The control plane's side of a pipeline: table entries, counters, meters, registers.
//!
//! A refused call changes nothing.
//!
//! Priorities are P4Runtime's: greater wins. Entries written in the program get priorities
//! from the number of entries downwards (the first one wins, the last one has 1), whatever
//! numbers BMv2 JSON gives them, where the lowest wins. Among equal priorities the entry that
//! was inserted first wins.

use crate::bits::{from_bits, prefix_mask, to_bits};
use crate::entries::digest::{IdleEntry, IdleTimeout};
use crate::entries::profile::IndirectAction;
use crate::entries::{
    ActionCall, ActionInfo, ArrayInfo, Bits, CellValue, ControlError, ControlResult, CounterValue,
    DefaultEntry, EntryKey, KeyField, MatchField, MatchKind, MeterConfig, MeterState, MeterUnit,
    MeterWrite, Page, TableEntry, TableInfo,
};
use crate::pipeline::Pipeline;
use crate::state::{MeterArray, MeterCell, counter_value};
use crate::table::range::Bounds;
use crate::table::{Call, DefaultTarget, Direct, Entry, KeyPart, Packed, Table, Target};
use crate::wide::limbs;

pub(crate) fn invalid<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::InvalidArgument(message.into()))
}

pub(crate) fn not_found<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::NotFound(message.into()))
}

/// Checks a match key against the table; gives it in canonical form and packed.
fn pack(table: &Table, info: &TableInfo, key: &EntryKey) -> ControlResult<(EntryKey, Packed)> {
    if key.fields.len() != info.key.len() {
        return invalid(format!(
            "table '{}' has {} key fields, {} given",
            info.name,
            info.key.len(),
            key.fields.len()
        ));
    }
    if table.has_priorities() {
        if key.priority < 1 {
            return invalid(format!(
                "table '{}' needs a priority of at least 1, {} given",
                info.name, key.priority
            ));
        }
    } else if key.priority != 0 {
        return invalid(format!(
            "table '{}' has no priorities, {} given",
            info.name, key.priority
        ));
    }
    let mut packed = Packed {
        value: vec![0; table.key_words],
        mask: vec![0; table.key_words],
        bounds: Vec::new(),
        priority: i64::from(key.priority),
    };
    let mut canonical = Vec::with_capacity(key.fields.len());
    for ((part, field), given) in table.parts.iter().zip(&info.key).zip(&key.fields) {
        let canon = pack_field(part, field, given, &mut packed, !table.has_priorities())?;
        canonical.push(canon);
    }
    let key = EntryKey {
        fields: canonical,
        priority: key.priority,
    };
    Ok((key, packed))
}

fn pack_field(
    part: &KeyPart,
    field: &KeyField,
    given: &MatchField,
    packed: &mut Packed,
    by_prefix: bool,
) -> ControlResult<MatchField> {
    let what = || format!("key '{}'", field.name);
    let bits = field.bits;
    let full = Table::full_mask(part);
    let mut put = |value: &[u64], mask: &[u64]| {
        if value.iter().zip(mask).any(|(v, m)| v & !m != 0) {
            return invalid(format!("{}: value has bits outside its mask", what()));
        }
        part.put(value, &mut packed.value);
        part.put(mask, &mut packed.mask);
        Ok(())
    };
    match (field.kind, given) {
        (MatchKind::Exact, MatchField::Exact(value)) => {
            put(&from_bits(value, bits, &what())?, &full)?;
        }
        (MatchKind::Lpm, MatchField::Lpm { value, prefix_bits }) => {
            if *prefix_bits > bits {
                return invalid(format!(
                    "{}: prefix of {prefix_bits} of {bits} bits",
                    what()
                ));
            }
            let mask = prefix_mask(bits, *prefix_bits);
            put(&from_bits(value, bits, &what())?, &mask)?;
            if by_prefix {
                packed.priority = i64::from(*prefix_bits);
            }
        }
        (MatchKind::Ternary, MatchField::Ternary { value, mask }) => {
            let mask = from_bits(mask, bits, &what())?;
            put(&from_bits(value, bits, &what())?, &mask)?;
        }
        // p4c writes optional keys as ternary ones; accept the optional form for them too.
        (MatchKind::Optional | MatchKind::Ternary, MatchField::Optional(value)) => {
            let canonical = match value {
                Some(value) => {
                    put(&from_bits(value, bits, &what())?, &full)?;
                    (value.clone(), to_bits(&full, bits))
                }
                None => (to_bits(&[], bits), to_bits(&[], bits)),
            };
            if field.kind == MatchKind::Ternary {
                return Ok(MatchField::Ternary {
                    value: canonical.0,
                    mask: canonical.1,
                });
            }
        }
        (MatchKind::Range, MatchField::Range { low, high }) => {
            let low = from_bits(low, bits, &what())?;
            let high = from_bits(high, bits, &what())?;
            if low.iter().rev().gt(high.iter().rev()) {
                return invalid(format!("{}: range ends before it starts", what()));
            }
            let bounds = Bounds::new(part.word, part.shift, bits, &low, &high);
            packed.bounds.push(bounds);
        }
        (kind, _) => return invalid(format!("{}: is matched by {kind:?}", what())),
    }
    Ok(given.clone())
}

/// Inserts an entry after all checks except that for constant tables.
pub(crate) fn insert_checked(
    table: &mut Table,
    info: &TableInfo,
    key: &EntryKey,
    target: Target,
    now_ns: u64,
) -> ControlResult<()> {
    if info.key.is_empty() {
        return invalid(format!("table '{}' has no key", info.name));
    }
    let (key, packed) = pack(table, info, key)?;
    if table.id_of(&key).is_some() {
        return Err(ControlError::AlreadyExists(format!(
            "table '{}' already has this entry",
            info.name
        )));
    }
    if table.len() >= info.size {
        return Err(ControlError::ResourceExhausted(format!(
            "table '{}' is full ({} entries)",
            info.name, info.size
        )));
    }
    table.insert(&key, &packed, target, now_ns);
    Ok(())
}

/// An entry or a default entry as the table has it or had it, for [`Pipeline::table_restore`].
#[derive(Debug)]
pub struct SavedEntry(Saved);

/// A cell of an indirect meter with its configuration, buckets and counts, for
/// [`Pipeline::meter_restore`].
#[derive(Debug)]
pub struct SavedMeter(MeterCell);

/// All cells of an array, for [`Pipeline::array_restore`].
#[derive(Debug)]
pub struct SavedArray(SavedCells);

#[derive(Debug)]
enum Saved {
    /// With what it named in the table's action profile.
    Entry(Box<Entry>, Option<IndirectAction>),
    Default(DefaultTarget),
}

#[derive(Debug)]
enum SavedCells {
    Counters(Vec<u64>),
    Meters(Box<MeterArray>),
    Register(Vec<u64>),
}

fn check_meter(config: Option<MeterConfig>) -> ControlResult<()> {
    match config {
        Some(c) if c.pir < c.cir => invalid(format!(
            "peak rate {} is below committed rate {} (RFC 2698)",
            c.pir, c.cir
        )),
        Some(c) if c.eburst > 0 && (c.pir, c.pburst) != (c.cir, c.cburst) => invalid(format!(
            "excess burst {} with a peak rate or burst of its own (RFC 2697 has none)",
            c.eburst
        )),
        _ => Ok(()),
    }
}

fn direct_counter(info: &TableInfo, direct: &Direct) -> Option<CounterValue> {
    info.direct_counter.then(|| counter_value(direct.counter))
}

fn direct_meter(info: &TableInfo, direct: &Direct) -> Option<MeterState> {
    info.direct_meter.map(|_| direct.meter_state())
}

fn cell<'i>(
    list: &'i [ArrayInfo],
    what: &str,
    array: usize,
    index: usize,
) -> ControlResult<&'i ArrayInfo> {
    let Some(info) = list.get(array) else {
        return not_found(format!("no {what} number {array}"));
    };
    if index >= info.size {
        return invalid(format!(
            "{what} '{}' has {} cells, index {index} given",
            info.name, info.size
        ));
    }
    Ok(info)
}

impl Pipeline {
    /// All tables of the program, in program order (ingress, then egress), including those
    /// that p4c makes of plain statements (`tbl_...`, keyless, not in P4Info).
    pub fn tables(&self) -> &[TableInfo] {
        &self.program.table_infos
    }

    /// All actions. The copies that p4c makes of one action appear once.
    pub fn actions(&self) -> &[ActionInfo] {
        &self.program.action_infos
    }

    /// Indirect counters.
    pub fn counters(&self) -> &[ArrayInfo] {
        &self.program.counter_infos
    }

    /// Indirect meters with their unit.
    pub fn meters(&self) -> &[(ArrayInfo, MeterUnit)] {
        &self.program.meter_infos
    }

    /// Registers.
    pub fn registers(&self) -> &[ArrayInfo] {
        &self.program.register_infos
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
            args.extend(from_bits(value, *bits, &format!("argument '{name}'"))?);
        }
        Ok(Call::new(local, &args))
    }

    pub(crate) fn public_call(table: &Table, call: &Call) -> ActionCall {
        let Some(action) = table.actions.get(call.local()) else {
            return ActionCall {
                action: 0,
                args: Vec::new(),
            };
        };
        let mut rest = call.args();
        let args = action
            .params
            .iter()
            .map(|&bits| {
                let (now, later) = rest.split_at(rest.len().min(limbs(bits) as usize));
                rest = later;
                to_bits(now, bits)
            })
            .collect();
        ActionCall {
            action: action.public,
            args,
        }
    }

    fn public_entry(&self, info: &TableInfo, table: &Table, e: &Entry) -> TableEntry {
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

    /// Tells the time, in ns, for what depends on it besides packets: idle timeouts.
    pub fn tell_time(&mut self, now_ns: u64) {
        self.clock_ns = self.clock_ns.max(now_ns);
        self.born_ns.get_or_insert(self.clock_ns);
    }

    /// Packets come from now on: no entry has been idle before.
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
        if let Some(e) = t.entry_mut(id) {
            e.idle.last_hit_ns = e.idle.last_hit_ns.max(born_ns);
        }
        t.set_idle_timeout(id, timeout_ns);
        Ok(())
    }

    /// The earliest instant, in ns, at which an entry may be idle.
    pub fn next_idle_ns(&self) -> Option<u64> {
        let tables = self.tables.iter().filter(|t| t.ageing);
        tables.filter_map(Table::next_idle_ns).min()
    }

    /// Entries that are idle by the time told, and were not told for as long as their timeout.
    /// Looks at `looks` entries at most: call it again while [`Self::next_idle_ns`] is past.
    pub fn take_idle_entries(&mut self, looks: usize) -> Vec<IdleEntry> {
        let (now_ns, born_ns) = (self.clock_ns, self.born_ns.unwrap_or(0));
        let mut all = Vec::new();
        let mut left = looks;
        for (table, t) in self.tables.iter_mut().enumerate().filter(|(_, t)| t.ageing) {
            left = t.take_idle(now_ns, born_ns, left, |key, timeout_ns| {
                all.push(IdleEntry {
                    table,
                    key: key.clone(),
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
        let there = self.info(table)?.1.len();
        if let Some(info) = self.program.table_infos.get_mut(table) {
            info.const_entries = const_entries;
            info.size = size.max(there);
        }
        Ok(())
    }

    /// Inserts an entry. Errors: exists already, table full, const table, action not of this
    /// table, wrong widths.
    pub fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let call = self.call(table, action)?;
        let now_ns = self.clock_ns;
        let (info, t) = self.info_mut(table)?;
        if t.profile.is_some() {
            return invalid(format!(
                "entries of table '{}' name members of its action profile, not actions",
                info.name
            ));
        }
        insert_checked(t, info, key, Target::Call(call), now_ns)
    }

    /// Changes the action of an existing entry; keeps its direct meter, resets nothing.
    pub fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.writable(table)?;
        let call = self.call(table, action)?;
        let (packed, id) = self.existing(table, key)?;
        let (info, t) = self.info_mut(table)?;
        if t.profile.is_some() {
            return invalid(format!(
                "entries of table '{}' name members of its action profile, not actions",
                info.name
            ));
        }
        t.change(id, &packed, Target::Call(call));
        Ok(())
    }

    /// Removes an entry; what it was can be given to [`Self::table_restore`].
    pub fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<SavedEntry> {
        self.writable(table)?;
        let (packed, id) = self.existing(table, key)?;
        let saved = self.table_save(table, Some(key))?;
        self.take_out(table, id, &packed);
        Ok(saved)
    }

    /// A copy of an entry (`None`: the default entry) as it is now, for [`Self::table_restore`].
    pub fn table_save(&self, table: usize, key: Option<&EntryKey>) -> ControlResult<SavedEntry> {
        let Some(key) = key else {
            let (_, t) = self.info(table)?;
            return Ok(SavedEntry(Saved::Default(t.default.clone())));
        };
        let (_, id) = self.existing(table, key)?;
        let (info, t) = self.info(table)?;
        let Some(entry) = t.entry(id) else {
            return not_found(format!("table '{}' has no such entry", info.name));
        };
        let (_, indirect) = self.public_target(t, &entry.target);
        let entry = Box::new(entry.without_spread());
        Ok(SavedEntry(Saved::Entry(entry, indirect)))
    }

    /// Removes an entry that exists.
    fn take_out(&mut self, table: usize, id: u32, packed: &Packed) {
        let entry = self
            .tables
            .get_mut(table)
            .and_then(|t| t.remove(id, packed));
        if let Some(entry) = entry {
            self.forget(table, &entry.target);
        }
    }

    /// Puts an entry of this table back as it was: action, counter, meter, idle timeout, place in
    /// the order of insertion. Takes the place of an entry of the same key.
    pub fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()> {
        let (info, t) = self.info(table)?;
        let (mut entry, indirect) = match saved.0 {
            Saved::Entry(entry, indirect) => (*entry, indirect),
            Saved::Default(default) => {
                self.info_mut(table)?.1.default = default;
                return Ok(());
            }
        };
        let (key, packed) = pack(t, info, &entry.key())?;
        let there = t.id_of(&key);
        if there.is_none() && t.len() >= info.size {
            return Err(ControlError::ResourceExhausted(format!(
                "table '{}' is full ({} entries)",
                info.name, info.size
            )));
        }
        if let Some(indirect) = indirect {
            // Members may stand at other places by now.
            let before = there.and_then(|id| t.entry(id)).map(|e| &e.target);
            entry.target = self.target(table, &indirect, before)?;
        }
        if let Some(id) = there {
            self.take_out(table, id, &packed);
        }
        self.use_target(table, &entry.target);
        self.info_mut(table)?.1.put(entry, &packed);
        Ok(())
    }

    /// Looks one entry up by its key.
    pub fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry> {
        let (_, id) = self.existing(table, key)?;
        let (info, t) = self.info(table)?;
        match t.entry(id) {
            Some(entry) => Ok(self.public_entry(info, t, entry)),
            None => not_found(format!("table '{}' has no such entry", info.name)),
        }
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
            None => t.program_default.clone(),
        };
        if info.const_default && call != t.default.call {
            return Err(ControlError::PermissionDenied(format!(
                "the default action of table '{}' is constant",
                info.name
            )));
        }
        self.info_mut(table)?.1.default.call = call;
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
        check_meter(write.config)?;
        let (info, direct) = self.direct_mut(table, key)?;
        if info.direct_meter.is_none() {
            return invalid(format!("table '{}' has no direct meter", info.name));
        }
        direct.write_meter(write);
        Ok(())
    }

    /// Reads a cell of an indirect counter.
    pub fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue> {
        cell(self.counters(), "counter", counter, index)?;
        let value = self.state.counter(counter, index);
        Ok(counter_value(value.copied().unwrap_or_default()))
    }

    /// Sets a cell of an indirect counter.
    pub fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()> {
        cell(self.counters(), "counter", counter, index)?;
        if let Some(cell) = self.state.counter_mut(counter, index) {
            *cell = [value.packets, value.bytes];
        }
        Ok(())
    }

    fn meter_cell(&self, meter: usize, index: usize) -> ControlResult<()> {
        let Some((info, _)) = self.meters().get(meter) else {
            return not_found(format!("no meter number {meter}"));
        };
        cell(std::slice::from_ref(info), "meter", 0, index).map(|_| ())
    }

    /// Reads a cell of an indirect meter.
    pub fn meter_read(&self, meter: usize, index: usize) -> ControlResult<MeterState> {
        self.meter_cell(meter, index)?;
        let array = self.state.meters.get(meter);
        Ok(array.map(|m| m.state(index)).unwrap_or_default())
    }

    /// Sets a cell of an indirect meter; its buckets start full.
    pub fn meter_write(
        &mut self,
        meter: usize,
        index: usize,
        write: MeterWrite,
    ) -> ControlResult<()> {
        check_meter(write.config)?;
        self.meter_cell(meter, index)?;
        if let Some(array) = self.state.meters.get_mut(meter) {
            array.write(index, write);
        }
        Ok(())
    }

    /// A copy of a cell of an indirect meter as it is now, for [`Self::meter_restore`].
    pub fn meter_save(&self, meter: usize, index: usize) -> ControlResult<SavedMeter> {
        self.meter_cell(meter, index)?;
        match self.state.meters.get(meter) {
            Some(array) => Ok(SavedMeter(array.cell(index))),
            None => not_found(format!("no meter number {meter}")),
        }
    }

    /// Puts a cell of an indirect meter back as it was, with what its buckets held and what it
    /// had counted.
    pub fn meter_restore(
        &mut self,
        meter: usize,
        index: usize,
        saved: SavedMeter,
    ) -> ControlResult<()> {
        self.meter_cell(meter, index)?;
        if let Some(array) = self.state.meters.get_mut(meter) {
            array.put(index, saved.0);
        }
        Ok(())
    }

    /// Sets all cells of an array of the value's kind; gives them as they were.
    pub fn array_fill(&mut self, array: usize, value: &CellValue) -> ControlResult<SavedArray> {
        let before = match value {
            CellValue::Counter(value) => {
                let value = [value.packets, value.bytes];
                let Some(before) = self.state.counter_fill(array, value) else {
                    return not_found(format!("no counter number {array}"));
                };
                SavedCells::Counters(before)
            }
            CellValue::Meter(write) => {
                check_meter(write.config)?;
                let Some(array) = self.state.meters.get_mut(array) else {
                    return not_found(format!("no meter number {array}"));
                };
                SavedCells::Meters(Box::new(array.fill(*write)))
            }
            CellValue::Register(value) => {
                let Some(info) = self.program.register_infos.get(array) else {
                    return not_found(format!("no register number {array}"));
                };
                let value = from_bits(value, info.bits, &format!("register '{}'", info.name))?;
                let Some(before) = self.state.register_fill(array, &value) else {
                    return not_found(format!("no register number {array}"));
                };
                SavedCells::Register(before)
            }
        };
        Ok(SavedArray(before))
    }

    /// Puts all cells of an array back as they were.
    pub fn array_restore(&mut self, array: usize, saved: SavedArray) -> ControlResult<()> {
        let state = &mut self.state;
        match saved.0 {
            SavedCells::Counters(before) => {
                if state.counter_restore(array, &before) {
                    return Ok(());
                }
            }
            SavedCells::Meters(before) => {
                let meters = state.meters.get_mut(array);
                if let Some(meters) = meters.filter(|meters| meters.len() == before.len()) {
                    meters.restore(*before);
                    return Ok(());
                }
            }
            SavedCells::Register(before) => {
                if state.register_restore(array, &before) {
                    return Ok(());
                }
            }
        }
        not_found(format!("no array number {array} of this kind and size"))
    }

    /// Reads a register cell.
    pub fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits> {
        let info = cell(self.registers(), "register", register, index)?;
        let cells = self.state.register(register, index);
        Ok(to_bits(cells.unwrap_or_default(), info.bits))
    }

    /// Writes a register cell; the value is as wide as the register.
    pub fn register_write(
        &mut self,
        register: usize,
        index: usize,
        value: &[u8],
    ) -> ControlResult<()> {
        let info = cell(self.registers(), "register", register, index)?;
        let value = from_bits(value, info.bits, &format!("register '{}'", info.name))?;
        if let Some(cells) = self.state.register_mut(register, index) {
            cells.copy_from_slice(&value);
        }
        Ok(())
    }
}
