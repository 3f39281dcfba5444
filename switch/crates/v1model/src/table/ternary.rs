//! Tuple-space search: entries with the same mask share a hash map. A look-up costs one hash
//! per distinct mask, not one comparison per entry, and stops as soon as no remaining mask can
//! hold a better entry. Longest-prefix match is the same thing with the prefix length as
//! priority.

use super::exact::WordMap;
use std::cmp::Reverse;

/// What orders entries that match the same packet: greater priority first, then earlier
/// insertion.
type Rank = (i64, Reverse<u64>);

/// Groups up to this size have their best rank recomputed after a deletion; larger ones keep it
/// as an upper bound, which only costs look-ups they might have skipped.
const EXACT_BEST_LIMIT: usize = 256;

#[derive(Debug)]
struct Group {
    mask: Box<[u64]>,
    /// Entries by masked value, best first.
    map: WordMap<Vec<(Rank, u32)>>,
    /// No entry of the group ranks above this.
    best: Rank,
}

/// Entries with value and mask.
#[derive(Debug, Default)]
pub(crate) struct Ternary {
    /// Best first.
    groups: Vec<Group>,
}

impl Ternary {
    /// Adds entry `id`; `value & !mask` is zero.
    pub fn insert(&mut self, value: &[u64], mask: &[u64], priority: i64, order: u64, id: u32) {
        let rank = (priority, Reverse(order));
        let at = match self.groups.iter().position(|g| &*g.mask == mask) {
            Some(at) => at,
            None => {
                self.groups.push(Group {
                    mask: mask.into(),
                    map: WordMap::new(mask.len()),
                    best: rank,
                });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.best = group.best.max(rank);
        match group.map.get_mut(value) {
            Some(list) => {
                let at = list.partition_point(|&(r, _)| r > rank);
                list.insert(at, (rank, id));
            }
            None => group.map.insert(value, vec![(rank, id)]),
        }
        self.sort();
    }

    /// Removes entry `id`, which was inserted with this value and mask.
    pub fn remove(&mut self, value: &[u64], mask: &[u64], id: u32) {
        let Some(at) = self.groups.iter().position(|g| &*g.mask == mask) else {
            return;
        };
        let group = &mut self.groups[at];
        if let Some(list) = group.map.get_mut(value) {
            list.retain(|&(_, other)| other != id);
            if list.is_empty() {
                group.map.remove(value);
            }
        }
        if group.map.len() == 0 {
            self.groups.remove(at);
        } else if group.map.len() <= EXACT_BEST_LIMIT
            && let Some(best) = group.map.values().filter_map(|l| l.first()).max()
        {
            group.best = best.0;
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.groups.sort_by_key(|g| Reverse(g.best));
    }

    /// The best entry for `key`; `masked` is room for as many words.
    #[inline]
    pub fn find(&self, key: &[u64], masked: &mut [u64]) -> Option<u32> {
        let mut found: Option<(Rank, u32)> = None;
        for group in &self.groups {
            if found.is_some_and(|(rank, _)| rank >= group.best) {
                break;
            }
            for ((m, k), mask) in masked.iter_mut().zip(key).zip(&group.mask) {
                *m = k & mask;
            }
            if let Some(&hit) = group.map.get(masked).and_then(|l| l.first())
                && found.is_none_or(|(rank, _)| hit.0 > rank)
            {
                found = Some(hit);
            }
        }
        found.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tuple space must agree with a plain priority scan.
    #[test]
    fn agrees_with_a_scan() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
            (seed >> 33) % n
        };
        let masks = [0, 0xf, 0xf0, 0xff, 0x0f];
        let mut t = Ternary::default();
        let mut all: Vec<(u64, u64, i64, u32)> = Vec::new();
        for id in 0..300u32 {
            let mask = masks[next(5) as usize];
            let value = next(256) & mask;
            let priority = next(20) as i64 + 1;
            t.insert(&[value], &[mask], priority, u64::from(id), id);
            all.push((value, mask, priority, id));
            if next(3) == 0 {
                let (value, mask, _, id) = all.swap_remove(next(all.len() as u64) as usize);
                t.remove(&[value], &[mask], id);
            }
            for key in 0..256 {
                let expect = all
                    .iter()
                    .filter(|(v, m, ..)| key & m == *v)
                    .max_by_key(|(_, _, p, id)| (*p, Reverse(*id)))
                    .map(|e| e.3);
                assert_eq!(t.find(&[key], &mut [0]), expect);
            }
        }
    }
}
