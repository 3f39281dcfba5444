//! Match-action tables: packed keys, look-up structures, entries with their direct counters
//! and meters.

mod call;
mod cells;
mod encoded_key;
pub(crate) mod exact;
mod keyed;
pub(crate) mod pack;
pub(crate) mod range;
mod slots;
pub(crate) mod ternary;

use crate::entries::profile::WatchPort;
use crate::entries::{EntryKey, MatchKind, MeterState, MeterUnit, MeterWrite};
use crate::meter::{Count, GREEN, Meter, Metered, count};
use crate::ops::Code;
use crate::program::Indexed;
use crate::slot::Slot;
use crate::state::meter_state;
use crate::wide::{limbs, mask64};
pub(crate) use call::Call;
use cells::{NO_HINT, Tag};
use encoded_key::EncodedKey;
use foldhash::quality::RandomState;
use keyed::Keyed;
use range::Bounds;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use ternary::Ternary;

/// A word of a key and where it is ORed to.
#[derive(Debug, Clone, Copy)]
struct KeyWord {
    slot: Slot,
    word: u32,
    shift: u32,
    mask: u64,
}

impl KeyWord {
    fn of(part: &KeyPart) -> impl Iterator<Item = Self> {
        (0..limbs(part.bits)).map(|limb| Self {
            slot: part.slot + limb,
            word: part.word as u32 + limb,
            shift: part.shift,
            mask: match &part.mask {
                Some(mask) => mask.get(limb as usize).copied().unwrap_or(0),
                None => u64::MAX,
            },
        })
    }
}

/// No next node: the end of the control.
pub(crate) const END: u32 = u32::MAX;

/// One field of a key and its place in the packed key words. Fields up to 64 bits share words;
/// wider ones have words of their own.
#[derive(Debug, Clone)]
pub(crate) struct KeyPart {
    pub slot: Slot,
    pub bits: u32,
    pub kind: MatchKind,
    pub word: usize,
    pub shift: u32,
    /// Static mask of the program, applied to the packet's value.
    pub mask: Option<Box<[u64]>>,
}

impl KeyPart {
    /// Places fields of these widths; returns (word, shift) each, and the words needed.
    pub fn pack(widths: &[u32]) -> (Vec<(usize, u32)>, usize) {
        let mut places = vec![(0, 0); widths.len()];
        let mut words = 0;
        // The shared word being filled and the bits used in it.
        let mut open: Option<(usize, u32)> = None;
        for (place, &bits) in places.iter_mut().zip(widths) {
            if bits > 64 {
                *place = (words, 0);
                words += limbs(bits) as usize;
                continue;
            }
            *place = match open {
                Some((word, used)) if used + bits <= 64 => (word, used),
                _ => {
                    words += 1;
                    (words - 1, 0)
                }
            };
            open = Some((place.0, place.1 + bits));
        }
        (places, words)
    }

    /// ORs the field's limbs into packed words.
    pub fn put(&self, limbs: &[u64], packed: &mut [u64]) {
        for (i, limb) in limbs.iter().enumerate() {
            if let Some(word) = packed.get_mut(self.word + i) {
                *word |= limb << self.shift;
            }
        }
    }
}

/// What an entry does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Call(Call),
    /// Place of a member in the table's action profile.
    Member(u32),
    /// Place of a group.
    Group(u32),
    /// Actions of its own, chosen among like the members of a group.
    OneShot(Box<OneShot>),
}

/// A one-shot action set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OneShot {
    pub calls: Vec<Call>,
    /// Weight of each call, and the port it depends on.
    pub weights: Vec<(u32, Option<WatchPort>)>,
    /// Calls by index, each as often as its weight, without those whose port is down.
    pub spread: Vec<u32>,
}

/// An entry's idle timeout.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Idle {
    /// 0: none.
    pub timeout_ns: u64,
    /// When a packet met the entry last, or when it was made.
    pub last_hit_ns: u64,
    /// From when on it has to be idle for its timeout: its last packet as far as it was looked for, or
    /// when it was told to be idle last.
    from_ns: u64,
}

impl Idle {
    /// When to look whether it is idle.
    fn due_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.timeout_ns)
    }

    /// Nothing before its last packet counts, nor before `born_ns`.
    fn look(&mut self, born_ns: u64) {
        self.from_ns = self.from_ns.max(self.last_hit_ns).max(born_ns);
    }
}

/// An entry's direct counter and meter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Direct {
    pub counter: Count,
    /// What the meter found green.
    green: Count,
    meter: Option<Box<Meter>>,
}

impl Direct {
    /// Whether the meter is configured.
    pub fn is_configured(&self) -> bool {
        self.meter.as_ref().is_some_and(|m| m.config.is_some())
    }

    /// Runs a packet through the meter, and gives its colour.
    #[inline]
    pub fn colour(&mut self, unit: MeterUnit, packet: Metered) -> u64 {
        let meter = self.meter.as_mut();
        let colour = meter.map_or(GREEN, |meter| meter.mark(unit, packet));
        if colour == GREEN {
            count(&mut self.green, packet.bytes);
        }
        colour
    }

    /// The meter's configuration and counts.
    pub fn meter_state(&self) -> MeterState {
        meter_state(self.green, self.meter.as_deref())
    }

    /// Sets the meter.
    pub fn write_meter(&mut self, write: MeterWrite) {
        if write.clear_counts {
            self.green = Count::default();
        }
        self.meter = Meter::written(self.meter.as_deref(), write).map(Box::new);
    }
}

/// The default entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct DefaultTarget {
    /// `None`: a miss does nothing.
    pub call: Option<Call>,
    pub direct: Direct,
}

/// An entry. What packets need comes first: of an action with few arguments and no meter, one cache
/// line, and the processor brings its neighbour, too.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
pub(crate) struct Entry {
    pub target: Target,
    pub direct: Direct,
    pub idle: Idle,
    pub order: u64,
    key: Box<EncodedKey>,
}

impl Entry {
    /// Its match key.
    pub fn key(&self) -> EntryKey {
        self.key.key()
    }

    /// A copy without what a one-shot set chooses by: that is as long as its weights say, and
    /// found anew when the entry is put back.
    pub fn without_spread(&self) -> Self {
        let target = match &self.target {
            Target::OneShot(set) => Target::OneShot(Box::new(OneShot {
                calls: set.calls.clone(),
                weights: set.weights.clone(),
                spread: Vec::new(),
            })),
            target => target.clone(),
        };
        Self {
            target,
            direct: self.direct.clone(),
            idle: self.idle,
            order: self.order,
            key: self.key.clone(),
        }
    }
}

/// One action a table may run.
#[derive(Debug, Clone)]
pub(crate) struct TableAction {
    /// Index into the public list of actions.
    pub public: usize,
    pub code: Code,
    /// Next node after this action, where the table does not choose by hit and miss.
    pub next: u32,
    /// Widths of the parameters.
    pub params: Box<[u32]>,
    /// What to prefetch for its arguments.
    pub prefetches: Box<[Prefetch]>,
}

/// An entry that was found.
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

#[derive(Debug)]
enum Lookup {
    /// No key: always a miss.
    Keyless,
    Exact(Keyed),
    Ternary(Ternary),
}

/// An entry's match in packed form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packed {
    pub value: Vec<u64>,
    pub mask: Vec<u64>,
    pub bounds: Vec<Bounds>,
    pub priority: i64,
}

/// A direct meter's unit and where its colour goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectMeter {
    pub unit: MeterUnit,
    pub slot: Slot,
    pub mask: u64,
}

/// Entries by match key. The keys themselves are in the entries; here are their hashes.
#[derive(Debug, Default)]
struct KeyIndex {
    hasher: RandomState,
    places: HashMap<u64, u32, RandomState>,
    /// Further entries with the same hash: hardly ever any.
    collided: Vec<(u64, u32)>,
}

impl KeyIndex {
    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn hash(&self, key: &EncodedKey) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The entry that `is_it`, of those with the key's hash.
    fn find(&self, key: &EncodedKey, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = self.hash(key);
        let first = *self.places.get(&hash)?;
        let others = self.collided.iter().filter(|(other, _)| *other == hash);
        std::iter::once(first)
            .chain(others.map(|&(_, id)| id))
            .find(|id| is_it(*id))
    }

    fn insert(&mut self, key: &EncodedKey, id: u32) {
        let hash = self.hash(key);
        if let Some(before) = self.places.insert(hash, id) {
            self.collided.push((hash, before));
        }
    }

    fn remove(&mut self, key: &EncodedKey, id: u32) {
        let hash = self.hash(key);
        let at = match self.places.get(&hash) {
            Some(&first) if first == id => {
                self.places.remove(&hash);
                self.collided.iter().position(|(other, _)| *other == hash)
            }
            _ => {
                self.collided.retain(|&other| other != (hash, id));
                None
            }
        };
        if let Some(at) = at {
            let (_, next) = self.collided.swap_remove(at);
            self.places.insert(hash, next);
        }
    }
}

/// Tables of at least so many entries are large: smaller ones stay in the caches anyway.
const LARGE_ENTRIES: usize = 4_096;

/// Where something is looked for in a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    group: u32,
    tag: Tag,
}

/// What a packet that is still to come will look up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upcoming {
    pub table: usize,
    pub home: Home,
}

/// A table of a running program.
#[derive(Debug)]
pub(crate) struct Table {
    pub parts: Box<[KeyPart]>,
    /// The parts once more, as `find` needs them.
    gather: Box<[KeyWord]>,
    pub key_words: usize,
    pub actions: Box<[TableAction]>,
    /// What to prefetch for the hint of an entry: the first argument of its action that has
    /// prefetches.
    pub hinted: Box<[Indexed]>,
    pub counters: bool,
    pub meter: Option<DirectMeter>,
    /// Entries have idle timeouts.
    pub ageing: bool,
    /// Action profile whose members entries name.
    pub profile: Option<usize>,
    pub next_hit: Option<u32>,
    pub next_miss: Option<u32>,
    /// Next node after a miss without a default action.
    pub base_next: u32,
    pub default: DefaultTarget,
    /// The default the program starts with.
    pub program_default: Option<Call>,
    lookup: Lookup,
    slots: Slots,
    by_key: KeyIndex,
    /// In order of insertion.
    by_order: BTreeMap<u64, u32>,
    next_order: u64,
    /// When to look at entries with idle timeouts, and their orders.
    idle_due: BTreeSet<(u64, u64)>,
}

/// The parts of a table that `compile` works out.
#[derive(Debug)]
pub(crate) struct TableSpec {
    pub parts: Box<[KeyPart]>,
    pub key_words: usize,
    pub actions: Box<[TableAction]>,
    pub counters: bool,
    pub meter: Option<DirectMeter>,
    /// Entries have idle timeouts.
    pub ageing: bool,
    /// Action profile whose members entries name.
    pub profile: Option<usize>,
    pub next_hit: Option<u32>,
    pub next_miss: Option<u32>,
    pub base_next: u32,
    pub default: Option<Call>,
    /// Most entries.
    pub size: usize,
}

impl Table {
    pub fn new(spec: TableSpec) -> Self {
        let lookup = if spec.parts.is_empty() {
            Lookup::Keyless
        } else if spec.parts.iter().all(|p| p.kind == MatchKind::Exact) {
            Lookup::Exact(Keyed::new(spec.key_words, spec.size))
        } else {
            Lookup::Ternary(Ternary::default())
        };
        Self {
            gather: spec.parts.iter().flat_map(KeyWord::of).collect(),
            parts: spec.parts,
            key_words: spec.key_words,
            actions: spec.actions,
            hinted: Box::default(),
            counters: spec.counters,
            meter: spec.meter,
            ageing: spec.ageing,
            profile: spec.profile,
            next_hit: spec.next_hit,
            next_miss: spec.next_miss,
            base_next: spec.base_next,
            program_default: spec.default.clone(),
            default: DefaultTarget {
                call: spec.default,
                direct: Direct::default(),
            },
            lookup,
            slots: Slots::default(),
            by_key: KeyIndex::default(),
            by_order: BTreeMap::new(),
            next_order: 0,
            idle_due: BTreeSet::new(),
        }
    }

    /// Do entries carry priorities?
    pub fn has_priorities(&self) -> bool {
        self.parts.iter().any(|p| {
            matches!(
                p.kind,
                MatchKind::Ternary | MatchKind::Range | MatchKind::Optional
            )
        })
    }

    /// The entry that matches the packet whose fields are in `words`. `key` is scratch of at
    /// least the key's words.
    #[inline]
    pub fn find(&self, words: &[u64], key: &mut [u64]) -> Option<Hit> {
        // An empty table needs no key.
        if matches!(self.lookup, Lookup::Keyless) || self.by_key.is_empty() {
            return None;
        }
        let key = self.gathered(words, key)?;
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

    /// Whether what it looks up is likely to have left the caches since it was looked up last.
    pub fn is_large(&self) -> bool {
        self.by_order.len() >= LARGE_ENTRIES
    }

    /// Where a packet's fields will be looked for first. `key` as for [`Self::find`].
    #[inline]
    pub fn home(&self, words: &[u64], key: &mut [u64]) -> Option<Home> {
        let key = self.gathered(words, key)?;
        match &self.lookup {
            Lookup::Keyless => None,
            Lookup::Exact(map) => map.home(key).map(|tag| Home { group: 0, tag }),
            Lookup::Ternary(t) => t.home(key).map(|(group, tag)| Home { group, tag }),
        }
    }

    /// Brings what is there into the caches; returns some of it.
    #[inline]
    pub fn look_at_home(&self, home: Home) -> u64 {
        match &self.lookup {
            Lookup::Keyless => 0,
            Lookup::Exact(map) => map.look(home.tag),
            Lookup::Ternary(t) => t.look(home.group, home.tag),
        }
    }

    /// The words of a packet's key.
    #[inline]
    fn gathered<'k>(&self, words: &[u64], key: &'k mut [u64]) -> Option<&'k [u64]> {
        let key = key.get_mut(..self.key_words)?;
        key.fill(0);
        for from in &self.gather {
            key[from.word as usize] |= (words[from.slot as usize] & from.mask) << from.shift;
        }
        Some(key)
    }

    /// What is known of an entry with this target without a look at it.
    fn hint(&self, target: &Target) -> u32 {
        let Target::Call(call) = target else {
            return NO_HINT;
        };
        let action = self.actions.get(call.local());
        let first = action.and_then(|action| action.prefetches.first());
        let argument = first.and_then(|first| call.args().get(first.argument));
        argument.map_or(NO_HINT, |&word| word.try_into().unwrap_or(NO_HINT))
    }

    /// The field that is its key, where entries are found by an array.
    pub fn small_key(&self) -> Option<Slot> {
        match (&self.lookup, &*self.parts) {
            (Lookup::Exact(map), [part]) if map.has_array() => Some(part.slot),
            _ => None,
        }
    }

    /// Brings the entry of a small key into the caches; returns a word of it.
    #[inline]
    pub fn look_at(&self, key: u64) -> u64 {
        match &self.lookup {
            Lookup::Exact(map) => {
                let look = |id| self.look_at_entry(id);
                // Most entries have the number that they wish for: those are looked at together
                // with the array.
                let guess = map.wished(&[key]);
                let known = map.get(&[key]).map(|(id, _)| id);
                let guessed = guess.map_or(0, look);
                match known {
                    Some(id) if known != guess => look(id),
                    _ => guessed,
                }
            }
            _ => 0,
        }
    }

    /// Brings an entry into the caches; returns some of it.
    #[inline]
    pub fn look_at_entry(&self, id: u32) -> u64 {
        let direct = self.entry(id).map(|entry| &entry.direct);
        direct.map_or(0, |direct| direct.counter[0] ^ direct.green[0])
    }

    pub fn entry(&self, id: u32) -> Option<&Entry> {
        self.slots.get(id)
    }

    pub fn entry_mut(&mut self, id: u32) -> Option<&mut Entry> {
        self.slots.get_mut(id)
    }

    /// Changes every entry's target that `change` wants to.
    pub fn change_targets(&mut self, change: impl FnMut(&mut Target)) {
        let entries = self.slots.iter_mut();
        entries.map(|entry| &mut entry.target).for_each(change);
    }

    /// The entry with exactly this match key.
    pub fn id_of(&self, key: &EntryKey) -> Option<u32> {
        let key = EncodedKey::of(key);
        self.by_key
            .find(&key, |id| self.entry(id).is_some_and(|e| *e.key == key))
    }

    pub fn len(&self) -> usize {
        self.by_order.len()
    }

    /// The table's own number of a public action.
    pub fn local(&self, public: usize) -> Option<usize> {
        self.actions.iter().position(|a| a.public == public)
    }

    /// Adds an entry; the caller has checked that the key is new and the table not full.
    pub fn insert(&mut self, key: &EntryKey, packed: &Packed, target: Target, now_ns: u64) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry {
            target,
            direct: Direct::default(),
            idle: Idle {
                last_hit_ns: now_ns,
                ..Idle::default()
            },
            order,
            key: Box::new(EncodedKey::of(key)),
        };
        self.put(entry, packed);
    }

    /// Puts in an entry at its place in the order of insertion; checks as for [`Self::insert`].
    pub fn put(&mut self, mut entry: Entry, packed: &Packed) {
        let order = entry.order;
        if entry.idle.timeout_ns > 0 {
            // Too early, if it is from before packets came: it is looked at once more then.
            entry.idle.look(0);
            self.idle_due.insert((entry.idle.due_ns(), order));
        }
        let hint = self.hint(&entry.target);
        let wished = match &self.lookup {
            Lookup::Exact(map) => map.wished(&packed.value),
            _ => None,
        };
        let id = self.slots.put(entry, wished);
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
    }

    /// Changes what an entry that exists does.
    pub fn change(&mut self, id: u32, packed: &Packed, target: Target) {
        let hint = self.hint(&target);
        match &mut self.lookup {
            Lookup::Keyless => {}
            Lookup::Exact(map) => map.insert(&packed.value, id, hint),
            Lookup::Ternary(t) => {
                t.change(&packed.value, &packed.mask, &packed.bounds, (id, hint));
            }
        }
        if let Some(entry) = self.slots.get_mut(id) {
            entry.target = target;
        }
    }

    /// Removes an entry that exists, and gives it to the caller.
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
            entry.idle.look(0);
            self.idle_due.insert((entry.idle.due_ns(), entry.order));
        }
    }

    /// When to look for idle entries next.
    pub fn next_idle_ns(&self) -> Option<u64> {
        self.idle_due.first().map(|&(due_ns, _)| due_ns)
    }

    /// Looks at up to `looks` entries that may be idle by `now_ns`; those that are go into `idle`
    /// with their timeouts, and come again after another timeout. `born_ns`: when packets began to
    /// come. Returns the looks left.
    pub fn take_idle(
        &mut self,
        now_ns: u64,
        born_ns: u64,
        looks: usize,
        mut idle: impl FnMut(&EntryKey, u64),
    ) -> usize {
        for left in (0..looks).rev() {
            let Some(&(due_ns, order)) = self.idle_due.first().filter(|due| due.0 <= now_ns) else {
                return left + 1;
            };
            self.idle_due.pop_first();
            let Some(id) = self.by_order.get(&order) else {
                continue;
            };
            let Some(entry) = self.slots.get_mut(*id) else {
                continue;
            };
            debug_assert_eq!(entry.idle.due_ns(), due_ns);
            entry.idle.look(born_ns);
            if entry.idle.due_ns() <= now_ns {
                idle(&entry.key.key(), entry.idle.timeout_ns);
                entry.idle.from_ns = now_ns;
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

    /// A mask that covers the whole field, in packed words.
    pub fn full_mask(part: &KeyPart) -> Vec<u64> {
        let n = limbs(part.bits);
        (0..n)
            .map(|i| mask64(part.bits.saturating_sub(64 * i)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_packet_needs_of_an_entry_is_one_cache_line() {
        assert_eq!(size_of::<Target>() + size_of::<Count>(), 64);
        assert_eq!(size_of::<Option<Entry>>(), 128);
    }
}
