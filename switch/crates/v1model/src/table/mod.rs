//! Match-action tables: how entries are stored and found.
//!
//! [`key`] packs a packet's key into words. [`keyed`] and [`exact`] find entries of exact tables,
//! [`ternary`] those of all others; both use the hash table of [`cells`]. [`slots`] stores the
//! entries ([`entry`]). For the control plane, [`pack`] checks match keys, [`encoded_key`] stores
//! them, and [`key_index`] finds entries by them. [`handles`] has the numbers that BMv2 gives entries.

mod call;
mod cells;
mod encoded_key;
mod entry;
mod exact;
mod handles;
mod key;
mod key_index;
mod keyed;
pub(crate) mod pack;
mod range;
mod slots;
mod ternary;

use crate::entries::{EntryKey, MatchKind, MeterConfig, MeterUnit};
use crate::ops::Code;
use crate::program::Indexed;
use crate::slot::Slot;
pub(crate) use call::Call;
use cells::NO_HINT;
use encoded_key::EncodedKey;
pub(crate) use entry::{DefaultTarget, Direct, Entry, Idle, OneShot, Target};
use handles::Handles;
pub(crate) use key::{KeyPart, KeyWord, Packed};
use key_index::KeyIndex;
use keyed::Keyed;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet};
use ternary::Ternary;

/// One action a table may run.
#[derive(Debug, Clone)]
pub(crate) struct TableAction {
    /// Index into the public list of actions.
    pub public: usize,
    /// Its code.
    pub code: Code,
    /// Next node after this action, where the table does not choose by hit and miss.
    pub next: u32,
    /// Widths of the parameters.
    pub params: Box<[u32]>,
    /// The prefetches for its arguments.
    pub prefetches: Box<[Prefetch]>,
}

/// An entry that a packet hit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub id: u32,
    /// The argument that indexes what [`Table::hinted`] says, where it is known without reading the
    /// entry. It is used for prefetches only.
    pub hint: Option<u64>,
}

/// Memory that an argument of an action indexes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefetch {
    /// Position of the argument's word.
    pub argument: usize,
    pub indexed: Indexed,
}

/// The index by which entries are found.
#[derive(Debug)]
enum Lookup {
    /// No key: always a miss.
    Keyless,
    Exact(Keyed),
    Ternary(Ternary),
}

/// A direct meter's unit and where its colour goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectMeter {
    pub unit: MeterUnit,
    pub slot: Slot,
    pub mask: u64,
}

/// Fewest entries of a large table. Smaller tables stay in the caches.
const LARGE_ENTRIES: usize = 4_096;

/// A table of a running program.
#[derive(Debug)]
pub(crate) struct Table {
    pub spec: TableSpec,
    /// The words of the parts, as `find` needs them.
    gather: Box<[KeyWord]>,
    /// The prefetches for the hint of an entry: the first argument of its action that has prefetches.
    pub hinted: Box<[Indexed]>,
    /// The default entry.
    pub default: DefaultTarget,
    lookup: Lookup,
    slots: Slots<Entry>,
    by_key: KeyIndex,
    /// In order of insertion.
    by_order: BTreeMap<u64, u32>,
    next_order: u64,
    /// The check times of the entries with idle timeouts, and their orders.
    idle_due: BTreeSet<(u64, u64)>,
    /// BMv2's numbers of the entries, if they are asked for.
    handles: Option<Handles>,
}

/// The program's definition of a table.
#[derive(Debug)]
pub(crate) struct TableSpec {
    /// The fields of its key.
    pub parts: Box<[KeyPart]>,
    /// Words of a packed key.
    pub key_words: usize,
    /// Actions that entries may run.
    pub actions: Box<[TableAction]>,
    /// Whether entries have direct counters.
    pub counters: bool,
    /// The direct meter, if there is one.
    pub meter: Option<DirectMeter>,
    /// Whether entries have idle timeouts.
    pub ageing: bool,
    /// Action profile whose members entries name.
    pub profile: Option<usize>,
    /// Next node after a hit, where the table chooses by hit and miss.
    pub next_hit: Option<u32>,
    /// Next node after a miss, where the table chooses by hit and miss.
    pub next_miss: Option<u32>,
    /// Next node after a miss without a default action.
    pub base_next: u32,
    /// The default action that the program starts with.
    pub default: Option<Call>,
    /// Most entries.
    pub size: usize,
}

impl TableSpec {
    /// The next node after an action, or after none.
    pub fn next(&self, action: Option<&TableAction>, hit: bool) -> u32 {
        let chosen = if hit { self.next_hit } else { self.next_miss };
        chosen.unwrap_or_else(|| action.map_or(self.base_next, |action| action.next))
    }
}

impl Table {
    /// A table without entries.
    pub fn new(spec: TableSpec) -> Self {
        let lookup = if spec.parts.is_empty() {
            Lookup::Keyless
        } else if spec.parts.iter().all(|p| p.kind == MatchKind::Exact) {
            Lookup::Exact(Keyed::new(spec.key_words, spec.size))
        } else {
            Lookup::Ternary(Ternary::default())
        };
        Self {
            handles: None,
            gather: spec.parts.iter().flat_map(KeyWord::of).collect(),
            hinted: Box::default(),
            default: DefaultTarget {
                call: spec.default.clone(),
                indirect: None,
                direct: Direct::default(),
            },
            spec,
            lookup,
            slots: Slots::new(),
            by_key: KeyIndex::default(),
            by_order: BTreeMap::new(),
            next_order: 0,
            idle_due: BTreeSet::new(),
        }
    }

    /// Whether entries have priorities.
    pub fn has_priorities(&self) -> bool {
        self.spec.parts.iter().any(|p| p.kind.needs_priority())
    }

    /// The entry that matches the packet with this PHV. `key` is scratch of at least
    /// [`TableSpec::key_words`] words.
    #[inline]
    pub fn find(&self, phv: &[u64], key: &mut [u64]) -> Option<Hit> {
        // An empty table needs no key.
        if matches!(self.lookup, Lookup::Keyless) || self.by_key.is_empty() {
            return None;
        }
        self.find_key(self.gathered(phv, key)?)
    }

    /// The entry that matches a packed key.
    #[inline]
    pub fn find_key(&self, key: &[u64]) -> Option<Hit> {
        let (id, hint) = match &self.lookup {
            Lookup::Keyless => None,
            Lookup::Exact(map) => map.get(key),
            Lookup::Ternary(t) => t.find(key),
        }?;
        Some(Hit {
            id,
            hint: (hint != NO_HINT).then_some(hint.into()),
        })
    }

    /// Whether entries are likely to have left the caches since they were read last.
    pub fn is_large(&self) -> bool {
        self.by_order.len() >= LARGE_ENTRIES
    }

    /// Prefetches the cell in which a packet's key will be looked for first. `key` as for
    /// [`Self::find`].
    #[inline]
    pub fn prefetch_cell(&self, phv: &[u64], key: &mut [u64]) {
        if let Some(key) = self.gathered(phv, key) {
            match &self.lookup {
                Lookup::Keyless => {}
                Lookup::Exact(map) => map.prefetch(key),
                Lookup::Ternary(t) => t.prefetch(key),
            }
        }
    }

    /// The words of the PHV that the packed key consists of.
    pub fn key_words(&self) -> &[KeyWord] {
        &self.gather
    }

    /// The words of a packet's key.
    #[inline]
    fn gathered<'k>(&self, phv: &[u64], key: &'k mut [u64]) -> Option<&'k [u64]> {
        let key = key.get_mut(..self.spec.key_words)?;
        key.fill(0);
        for from in &self.gather {
            let valid = from.validity.map_or(1, |slot| phv[slot as usize]);
            let value = phv[from.slot as usize] & from.mask & valid.wrapping_neg();
            key[from.word as usize] |= value << from.shift;
        }
        Some(key)
    }

    /// The hint of an entry with this target: an argument that can be prefetched for without
    /// reading the entry.
    fn hint(&self, target: &Target) -> u32 {
        let Target::Call(call) = target else {
            return NO_HINT;
        };
        let action = self.spec.actions.get(call.local());
        let first = action.and_then(|action| action.prefetches.first());
        let argument = first.and_then(|first| call.args().get(first.argument));
        argument.map_or(NO_HINT, |&word| word.try_into().unwrap_or(NO_HINT))
    }

    /// The slot of its key, if an array finds the entries.
    pub fn small_key(&self) -> Option<Slot> {
        match (&self.lookup, &*self.spec.parts) {
            (Lookup::Exact(map), [part]) if map.has_array() => Some(part.slot),
            _ => None,
        }
    }

    /// Prefetches the reads of a small key's look-up: its place in the array, and its entry. Most
    /// entries have the number that they prefer, so the entry is prefetched without reading the
    /// array.
    #[inline]
    pub fn prefetch_key(&self, key: u64) {
        if let Lookup::Exact(map) = &self.lookup
            && let Some(id) = map.preferred(&[key])
        {
            map.prefetch(&[key]);
            self.prefetch_entry(id);
        }
    }

    /// Prefetches an entry.
    #[inline]
    pub fn prefetch_entry(&self, id: u32) {
        self.slots.prefetch(id);
    }

    /// The entry of a number.
    #[inline]
    pub fn entry(&self, id: u32) -> Option<&Entry> {
        self.slots.get(id)
    }

    /// The entry of a number, to be changed.
    #[inline]
    pub fn entry_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.slots.get_mut(id)
    }

    /// Lets `change` change the target of every entry.
    pub fn change_targets(&mut self, change: impl FnMut(&mut Target)) {
        let entries = self.slots.iter_mut();
        entries.map(|entry| &mut entry.target).for_each(change);
    }

    /// The entry with exactly this match key.
    pub fn id_of(&self, key: &EncodedKey) -> Option<u32> {
        let is_it = |id| self.entry(id).is_some_and(|entry| *entry.key == *key);
        self.by_key.find(key, is_it)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.by_order.len()
    }

    /// The table's own number of a public action.
    pub fn local(&self, public: usize) -> Option<usize> {
        self.spec.actions.iter().position(|a| a.public == public)
    }

    /// Adds an entry. The caller has checked that the key is new and the table not full.
    pub fn insert(&mut self, key: EncodedKey, packed: &Packed, target: Target, now_ns: u64) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry {
            target,
            direct: Direct::default(),
            idle: Idle::new(now_ns),
            order,
            key: Box::new(key),
        };
        self.put(entry, packed);
    }

    /// Adds an entry at its place in the order of insertion. Checks as for [`Self::insert`].
    pub fn put(&mut self, mut entry: Entry, packed: &Packed) {
        let order = entry.order;
        if entry.idle.timeout_ns > 0 {
            // Too early for an entry that is older than the first packet, which is checked again.
            entry.idle.restart(0);
            self.idle_due.insert((entry.idle.due_ns(), order));
        }
        let hint = self.hint(&entry.target);
        let preferred = match &self.lookup {
            Lookup::Exact(map) => map.preferred(&packed.value),
            _ => None,
        };
        let id = self.slots.put(entry, preferred);
        match &mut self.lookup {
            Lookup::Keyless => {}
            Lookup::Exact(map) => map.insert(&packed.value, id, hint),
            Lookup::Ternary(t) => {
                let rank = (packed.priority, order);
                t.insert(
                    &packed.value,
                    &packed.mask,
                    &packed.bounds,
                    rank,
                    (id, hint),
                );
            }
        }
        if let Some(entry) = self.slots.get(id) {
            self.by_key.insert(&entry.key, id);
        }
        self.by_order.insert(order, id);
        if let Some(handles) = &mut self.handles {
            handles.give(order);
        }
    }

    /// Changes the target of an entry that exists, and returns the one before.
    pub fn change(&mut self, id: u32, packed: &Packed, target: Target) -> Option<Target> {
        let hint = self.hint(&target);
        match &mut self.lookup {
            Lookup::Keyless => {}
            Lookup::Exact(map) => map.insert(&packed.value, id, hint),
            Lookup::Ternary(t) => {
                t.change(&packed.value, &packed.mask, &packed.bounds, (id, hint));
            }
        }
        let entry = self.slots.get_mut(id)?;
        Some(std::mem::replace(&mut entry.target, target))
    }

    /// Removes an entry that exists, and returns it.
    pub fn remove(&mut self, id: u32, packed: &Packed) -> Option<Entry> {
        let entry = self.slots.take(id)?;
        match &mut self.lookup {
            Lookup::Keyless => {}
            Lookup::Exact(map) => map.remove(&packed.value),
            Lookup::Ternary(t) => {
                let rank = (packed.priority, entry.order);
                t.remove(&packed.value, &packed.mask, &packed.bounds, rank);
            }
        }
        self.by_key.remove(&entry.key, id);
        self.by_order.remove(&entry.order);
        self.idle_due.remove(&(entry.idle.due_ns(), entry.order));
        if let Some(handles) = &mut self.handles {
            handles.take(entry.order);
        }
        Some(entry)
    }

    /// Sets an entry's idle timeout; 0 for none.
    pub fn set_idle_timeout(&mut self, id: u32, timeout_ns: u64) {
        let Some(entry) = self.slots.get_mut(id) else {
            return;
        };
        self.idle_due.remove(&(entry.idle.due_ns(), entry.order));
        entry.idle.timeout_ns = timeout_ns;
        if timeout_ns > 0 {
            entry.idle.restart(0);
            self.idle_due.insert((entry.idle.due_ns(), entry.order));
        }
    }

    /// The time of the next check for idle entries.
    pub fn next_idle_ns(&self) -> Option<u64> {
        self.idle_due.first().map(|&(due_ns, _)| due_ns)
    }

    /// Checks up to `checks` entries that may be idle by `now_ns`. Reports those that are to `idle`,
    /// with their timeouts and handles; they are reported again after another timeout. `born_ns`: the time
    /// of the first packet. Returns the checks that are left.
    pub fn take_idle(
        &mut self,
        now_ns: u64,
        born_ns: u64,
        checks: usize,
        mut idle: impl FnMut(&EntryKey, u64, Option<u32>),
    ) -> usize {
        for left in (0..checks).rev() {
            let Some(&(due_ns, order)) = self.idle_due.first().filter(|due| due.0 <= now_ns) else {
                return left + 1;
            };
            self.idle_due.pop_first();
            let id = self.by_order.get(&order);
            let Some(entry) = id.and_then(|&id| self.slots.get_mut(id)) else {
                debug_assert!(false, "an entry with an idle timeout does not exist");
                continue;
            };
            debug_assert_eq!(entry.idle.due_ns(), due_ns);
            entry.idle.restart(born_ns);
            if entry.idle.due_ns() <= now_ns {
                let handle = self.handles.as_ref().and_then(|it| it.of(order));
                idle(&entry.key.key(), entry.idle.timeout_ns, handle);
                entry.idle.reported(now_ns);
            }
            self.idle_due.insert((entry.idle.due_ns(), order));
        }
        0
    }

    /// Entries in order of insertion, from the first whose order is at least `from`.
    pub fn entries_from(&self, from: u64) -> impl Iterator<Item = &Entry> {
        self.by_order
            .range(from..)
            .filter_map(|(_, &id)| self.entry(id))
    }

    /// Keeps BMv2's handles of the entries from now on.
    pub fn keep_handles(&mut self) {
        let mut handles = Handles::default();
        self.by_order.keys().for_each(|order| handles.give(*order));
        self.handles = Some(handles);
    }

    /// BMv2's handle of an entry, if the table keeps handles.
    pub fn handle_of(&self, entry: &Entry) -> Option<u32> {
        self.handles.as_ref()?.of(entry.order)
    }

    /// Entries with BMv2's handles, by the handles' indices, from that of `handle` on.
    pub fn handled_from(&self, handle: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let handles = self.handles.iter();
        let handles = handles.flat_map(move |handles| handles.from(handle));
        handles.filter_map(|(handle, order)| {
            let id = self.by_order.get(&order)?;
            Some((handle, self.entry(*id)?))
        })
    }

    /// Gives handles from now on as if the table never had an entry. It has none.
    pub fn forget_handles(&mut self) {
        if let Some(handles) = &mut self.handles {
            handles.forget();
        }
    }

    /// Sets the meter of a handle's index, or of all indices, if the table keeps handles.
    pub fn set_index_meter(&mut self, handle: Option<u32>, config: Option<MeterConfig>) {
        if let Some(handles) = &mut self.handles {
            handles.set_meter(handle, config);
        }
    }

    /// The meter of a handle's index.
    pub fn index_meter(&self, handle: u32) -> Option<MeterConfig> {
        self.handles.as_ref()?.meter(handle)
    }
}
