//! Finds entries of ternary, lpm, range and optional tables by tuple-space search (Srinivasan, Suri
//! and Varghese 1999).
//!
//! Entries with the same mask share a hash map. A look-up computes one hash per distinct mask, and
//! stops as soon as no remaining mask can have a better entry. A filter tells nearly always that no
//! entry of a mask matches, without reading the map (as Dharmapurikar, Krishnamurthy and Taylor do
//! for the longest prefix, SIGCOMM 2003). Longest-prefix match uses the prefix length as priority; a
//! range is a few prefixes.
//!
//! The worst cases are those of the entries, not of the packets: as many look-ups as there are
//! distinct masks (prefix lengths), and as many comparisons as there are entries of the same
//! value and mask that differ only in bounds still to be checked.

use super::cells::{Cell, NO_HINT, Tag};
use super::exact::WordMap;
use super::range::{self, Bounds};
use foldhash::quality::RandomState;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The order of entries that match the same packet: greater priority first, then earlier insertion.
type Rank = (i64, Reverse<u64>);

/// Most entries of a group whose best rank is computed again after a deletion. A larger group keeps
/// it as an upper bound, which costs only look-ups that could have been skipped.
const EXACT_BEST_LIMIT: usize = 256;

/// An entry with one value and mask.
#[derive(Debug, Clone)]
struct Candidate {
    rank: Rank,
    id: u32,
    /// Ranges that are still to be checked.
    bounds: Option<Box<[Bounds]>>,
}

impl Candidate {
    /// Whether a key of its value and mask is within its bounds.
    #[inline]
    fn matches(&self, key: &[u64]) -> bool {
        match &self.bounds {
            None => true,
            Some(bounds) => bounds.iter().all(|bound| bound.contain(key)),
        }
    }
}

/// Entries of one value and mask, best first. Most often there is one, which needs no allocation.
type Candidates = SmallVec<[Candidate; 1]>;

/// The entries of one mask.
#[derive(Debug)]
struct Group {
    mask: Box<[u64]>,
    /// The words of the mask that are not 0, with their positions: they are hashed and compared.
    words: Box<[(usize, u64)]>,
    /// The best entry by masked value.
    map: WordMap,
    /// Entries by the map's rows.
    candidates: Vec<Candidates>,
    /// An upper bound of the ranks of its entries.
    best: Rank,
    /// Whether an entry has had bounds: a packet then may match another entry than the map's.
    bounded: bool,
}

impl Group {
    fn new(mask: &[u64], best: Rank) -> Self {
        let words = mask.iter().copied().enumerate();
        let words: Box<[_]> = words.filter(|(_, mask)| *mask != 0).collect();
        Self {
            mask: mask.into(),
            map: WordMap::new(words.len()),
            words,
            candidates: Vec::new(),
            best,
            bounded: false,
        }
    }

    /// The masked words of a key.
    #[inline]
    fn masked<'a>(&'a self, key: &'a [u64]) -> impl Iterator<Item = u64> + Clone + 'a {
        let words = self.words.iter();
        words.map(|&(at, mask)| key.get(at).copied().unwrap_or(0) & mask)
    }

    #[inline]
    fn tag(&self, key: &[u64]) -> Tag {
        self.map.tag(self.masked(key))
    }

    /// The cell of a key's masked value.
    #[inline]
    fn cell(&self, key: &[u64]) -> Option<&Cell> {
        match *self.words {
            // The most frequent case needs no loop.
            [(at, mask)] => self.map.get_word(key.get(at)? & mask),
            _ => self.map.find(self.tag(key), self.masked(key)),
        }
    }

    /// Adds an entry.
    fn insert(&mut self, value: &[u64], candidate: Candidate, hint: u32) {
        let value: Vec<u64> = self.masked(value).collect();
        self.bounded |= candidate.bounds.is_some();
        let row = self.map.get(&value).map(|cell| cell.row as usize);
        match row.and_then(|row| self.candidates.get_mut(row)) {
            Some(candidates) => {
                let (id, rank) = (candidate.id, candidate.rank);
                let at = candidates.partition_point(|other| other.rank > rank);
                candidates.insert(at, candidate);
                if at == 0 {
                    self.map.insert(&value, id, hint);
                }
            }
            None => {
                let row = self.map.insert(&value, candidate.id, hint) as usize;
                match self.candidates.get_mut(row) {
                    Some(place) => *place = smallvec![candidate],
                    None => self.candidates.push(smallvec![candidate]),
                }
            }
        }
    }

    /// Removes an entry by its rank.
    fn remove(&mut self, value: &[u64], rank: Rank) {
        let value: Vec<u64> = self.masked(value).collect();
        let Some(row) = self.map.get(&value).map(|cell| cell.row as usize) else {
            return;
        };
        let Some(candidates) = self.candidates.get_mut(row) else {
            return;
        };
        let by_rank = |candidate: &Candidate| Reverse(candidate.rank);
        let Ok(at) = candidates.binary_search_by_key(&Reverse(rank), by_rank) else {
            return;
        };
        candidates.remove(at);
        match candidates.first() {
            None => self.map.remove(&value),
            Some(best) if at == 0 => {
                self.map.insert(&value, best.id, NO_HINT);
            }
            Some(_) => {}
        }
    }

    /// The best rank of its entries.
    fn best_rank(&self) -> Option<Rank> {
        let rows = self.map.rows();
        let candidates = rows.filter_map(|row| self.candidates.get(row as usize)?.first());
        candidates.map(|candidate| candidate.rank).max()
    }
}

/// Entries with value, mask and bounds.
#[derive(Debug, Default)]
pub(crate) struct Ternary {
    groups: Vec<Group>,
    by_mask: HashMap<Box<[u64]>, u32, RandomState>,
    /// Groups with their best rank, best first.
    order: Vec<(Reverse<Rank>, u32)>,
}

impl Ternary {
    /// Adds entry `id` with its hint; `value & !mask` is zero.
    pub fn insert(
        &mut self,
        value: &[u64],
        mask: &[u64],
        bounds: &[Bounds],
        (priority, order): (i64, u64),
        (id, hint): (u32, u32),
    ) {
        let (rows, checked) = range::rows(value, mask, bounds);
        let bounds = (!checked.is_empty()).then(|| checked.into_boxed_slice());
        for (value, mask) in rows {
            let candidate = Candidate {
                rank: (priority, Reverse(order)),
                id,
                bounds: bounds.clone(),
            };
            self.insert_row(&value, &mask, candidate, hint);
        }
    }

    /// Adds one row of an entry.
    fn insert_row(&mut self, value: &[u64], mask: &[u64], candidate: Candidate, hint: u32) {
        let rank = candidate.rank;
        let at = match self.by_mask.get(mask) {
            Some(&at) => at,
            None => {
                // Fewer groups than rows, which are fewer than 2^32.
                let at = self.groups.len() as u32;
                self.by_mask.insert(mask.into(), at);
                self.groups.push(Group::new(mask, rank));
                self.rank(at, None, Some(rank));
                at
            }
        };
        let Some(group) = self.groups.get_mut(at as usize) else {
            return;
        };
        group.insert(value, candidate, hint);
        if rank > group.best {
            let before = std::mem::replace(&mut group.best, rank);
            self.rank(at, Some(before), Some(rank));
        }
    }

    /// Changes the hint of an entry that was inserted with this value, mask and bounds.
    pub fn change(
        &mut self,
        value: &[u64],
        mask: &[u64],
        bounds: &[Bounds],
        (id, hint): (u32, u32),
    ) {
        for (value, mask) in range::rows(value, mask, bounds).0 {
            let at = self.by_mask.get(&*mask);
            if let Some(group) = at.and_then(|&at| self.groups.get_mut(at as usize)) {
                let value: Vec<u64> = group.masked(&value).collect();
                if group.map.get(&value).is_some_and(|cell| cell.id == id) {
                    group.map.insert(&value, id, hint);
                }
            }
        }
    }

    /// Removes an entry that was inserted with this value, mask, bounds and rank.
    pub fn remove(
        &mut self,
        value: &[u64],
        mask: &[u64],
        bounds: &[Bounds],
        (priority, order): (i64, u64),
    ) {
        for (value, mask) in range::rows(value, mask, bounds).0 {
            self.remove_row(&value, &mask, (priority, Reverse(order)));
        }
    }

    /// Removes one row of an entry.
    fn remove_row(&mut self, value: &[u64], mask: &[u64], rank: Rank) {
        let Some(&at) = self.by_mask.get(mask) else {
            return;
        };
        let Some(group) = self.groups.get_mut(at as usize) else {
            return;
        };
        group.remove(value, rank);
        let before = group.best;
        if group.map.len() == 0 {
            self.rank(at, Some(before), None);
            self.by_mask.remove(mask);
            self.groups.swap_remove(at as usize);
            if let Some(moved) = self.groups.get(at as usize) {
                let (mask, best) = (moved.mask.clone(), moved.best);
                let last = self.groups.len() as u32;
                self.by_mask.insert(mask, at);
                self.rank(last, Some(best), None);
                self.rank(at, None, Some(best));
            }
        } else if group.map.len() <= EXACT_BEST_LIMIT
            && let Some(best) = group.best_rank()
        {
            group.best = best;
            self.rank(at, Some(before), Some(best));
        }
    }

    /// Moves a group in the order.
    fn rank(&mut self, group: u32, before: Option<Rank>, now: Option<Rank>) {
        if before == now {
            return;
        }
        if let Some(before) = before
            && let Ok(at) = self.order.binary_search(&(Reverse(before), group))
        {
            self.order.remove(at);
        }
        if let Some(now) = now {
            let place = (Reverse(now), group);
            let at = self.order.partition_point(|other| *other < place);
            self.order.insert(at, place);
        }
    }

    /// Prefetches the cells of `key` in the first group that has it, as far as the filters tell.
    #[inline]
    pub fn prefetch(&self, key: &[u64]) {
        let alone = self.order.len() == 1;
        for &(_, at) in &self.order {
            let Some(group) = self.groups.get(at as usize) else {
                return;
            };
            let tag = group.tag(key);
            if alone || group.map.may_have(tag) {
                return group.map.prefetch(tag);
            }
        }
    }

    /// The best entry for `key`, and its hint.
    #[inline]
    pub fn find(&self, key: &[u64]) -> Option<(u32, u32)> {
        if let [(_, at)] = self.order[..] {
            let group = self.groups.get(at as usize)?;
            if !group.bounded {
                let cell = group.cell(key)?;
                return Some((cell.id, cell.hint));
            }
        }
        let mut found: Option<(Rank, (u32, u32))> = None;
        let alone = self.order.len() == 1;
        let last = self.order.len().wrapping_sub(1);
        for (turn, &(Reverse(best), at)) in self.order.iter().enumerate() {
            if found.is_some_and(|(rank, _)| rank >= best) {
                break;
            }
            let Some(group) = self.groups.get(at as usize) else {
                break;
            };
            let tag = group.tag(key);
            // With one group the filter would only cost time.
            if !alone && !group.map.may_have(tag) {
                continue;
            }
            let Some(cell) = group.map.find(tag, group.masked(key)) else {
                continue;
            };
            // No rank is left to compare, so the candidates need not be read.
            if turn == last && found.is_none() && !group.bounded {
                return Some((cell.id, cell.hint));
            }
            let Some(candidates) = group.candidates.get(cell.row as usize) else {
                continue;
            };
            if let Some(place) = candidates.iter().position(|c| c.matches(key))
                && let Some(hit) = candidates.get(place)
                && found.is_none_or(|(rank, _)| hit.rank > rank)
            {
                // The cell's values are there before the candidate's.
                let entry = match place {
                    0 => (cell.id, cell.hint),
                    _ => (hit.id, NO_HINT),
                };
                found = Some((hit.rank, entry));
            }
        }
        found.map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry {
        value: u64,
        mask: u64,
        bounds: Vec<Bounds>,
        priority: i64,
        id: u32,
    }

    #[test]
    fn agrees_with_a_scan() {
        scan([0, 0xf, 0xf0, 0xff, 0x0f], 2);
    }

    #[test]
    fn agrees_with_a_scan_where_nothing_has_bounds() {
        scan([0, 0xf, 0xf0, 0xff, 0x0f], 0);
    }

    #[test]
    fn agrees_with_a_scan_where_all_have_one_mask() {
        for most_bounds in [0, 1] {
            scan([0xff; 5], most_bounds);
        }
    }

    /// The tuple space must agree with a plain priority scan, whose entries have a random one of
    /// `masks` and up to `most_bounds` bounds.
    fn scan(masks: [u64; 5], most_bounds: u64) {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
            (seed >> 33) % n
        };
        let mut t = Ternary::default();
        let mut all: Vec<Entry> = Vec::new();
        for id in 0..400u32 {
            let mask = masks[next(5) as usize];
            let mut bounds = Vec::new();
            for shift in [8, 12].into_iter().take(next(most_bounds + 1) as usize) {
                let (low, high) = (next(16), next(16));
                let (low, high) = (low.min(high), low.max(high));
                bounds.push(Bounds::new(0, shift, 4, &[low], &[high]));
            }
            let entry = Entry {
                value: next(256) & mask,
                mask,
                bounds,
                priority: next(20) as i64 + 1,
                id,
            };
            let rank = (entry.priority, u64::from(id));
            t.insert(&[entry.value], &[mask], &entry.bounds, rank, (id, NO_HINT));
            all.push(entry);
            if next(3) == 0 {
                let e = all.swap_remove(next(all.len() as u64) as usize);
                let rank = (e.priority, u64::from(e.id));
                t.remove(&[e.value], &[e.mask], &e.bounds, rank);
            }
            for _ in 0..200 {
                let key = next(1 << 16);
                let expect = all
                    .iter()
                    .filter(|e| key & e.mask == e.value)
                    .filter(|e| e.bounds.iter().all(|b| b.contain(&[key])))
                    .max_by_key(|e| (e.priority, Reverse(e.id)))
                    .map(|e| e.id);
                assert_eq!(t.find(&[key]).map(|(id, _)| id), expect);
            }
        }
        for e in all {
            let rank = (e.priority, u64::from(e.id));
            t.remove(&[e.value], &[e.mask], &e.bounds, rank);
        }
        assert!(t.groups.is_empty() && t.order.is_empty() && t.by_mask.is_empty());
    }
}
