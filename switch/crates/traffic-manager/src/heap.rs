//! A heap of keys, four children per node, each family of small keys in one cache line: half the
//! levels of a binary heap, and one line touched in each.

/// What is queued by its time: a time with what breaks ties.
pub(crate) trait Key: Copy + Ord {
    /// Vacant place: no key, and greater than all of them.
    const VACANT: Self;

    /// Whether it stands for a vacant place.
    fn is_vacant(self) -> bool;

    /// The whole nanoseconds of its time. A smaller key's is not greater.
    fn time_ns(self) -> u64;
}

/// Four siblings.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Family<K>([K; 4]);

/// Keys, the smallest first. Equal keys do not occur (a key names its class).
#[derive(Debug)]
pub(crate) struct MinHeap<K> {
    /// The smallest, or vacant.
    root: K,
    /// Family 0: the root's children; family `n + 1`: the children of place `n`, which is
    /// member `n % 4` of family `n / 4`.
    families: Vec<Family<K>>,
    /// Places taken, the root not counted.
    places: usize,
}

impl<K: Key> MinHeap<K> {
    pub(crate) const fn new() -> Self {
        Self {
            root: K::VACANT,
            families: Vec::new(),
            places: 0,
        }
    }

    /// Keys in it.
    pub(crate) fn len(&self) -> usize {
        self.places + usize::from(!self.root.is_vacant())
    }

    /// The smallest key.
    pub(crate) fn peek(&self) -> Option<K> {
        Some(self.root).filter(|key| !key.is_vacant())
    }

    /// Every key, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        let places = self.families.iter().flat_map(|family| family.0);
        std::iter::once(self.root)
            .chain(places)
            .filter(|key| !key.is_vacant())
    }

    /// Whether any key but the smallest is at most `last`.
    pub(crate) fn second_is_up_to(&self, last: K) -> bool {
        self.families
            .first()
            .is_some_and(|family| family.0.iter().any(|key| *key <= last))
    }

    pub(crate) fn push(&mut self, key: K) {
        if self.root.is_vacant() {
            self.root = key;
            return;
        }
        let place = self.places;
        if place.is_multiple_of(4) && self.families.len() <= place / 4 {
            self.families.push(Family([K::VACANT; 4]));
        }
        self.places += 1;
        self.rise(place, key);
    }

    /// Takes the smallest key.
    pub(crate) fn pop(&mut self) -> Option<K> {
        let smallest = self.peek()?;
        let last = match self.places.checked_sub(1) {
            None => K::VACANT,
            Some(place) => {
                self.places = place;
                self.replace(place, K::VACANT)
            }
        };
        if self.places == 0 {
            self.root = last;
        } else {
            self.refill(last);
        }
        Some(smallest)
    }

    /// Replaces the smallest key, which is what a queue does that has a further packet.
    pub(crate) fn replace_smallest(&mut self, key: K) {
        if self.places == 0 {
            self.root = key;
        } else {
            self.refill(key);
        }
    }

    /// Fills the root's place: lifts the smallest child, level by level, then puts `key` into the
    /// place that is left. Most keys belong near the bottom, so that is less work than to compare
    /// with `key` on the way down.
    fn refill(&mut self, key: K) {
        let Some(mut place) = self.smallest_of(0) else {
            self.root = key;
            return;
        };
        self.root = self.get(place);
        while let Some(child) = self.smallest_of(place + 1) {
            let lifted = self.get(child);
            self.replace(place, lifted);
            place = child;
        }
        self.rise(place, key);
    }

    /// Puts `key` into the vacant `place` or where its ancestors are smaller.
    fn rise(&mut self, mut place: usize, key: K) {
        loop {
            match (place / 4).checked_sub(1) {
                Some(parent) => {
                    let above = self.get(parent);
                    if above <= key {
                        break;
                    }
                    self.replace(place, above);
                    place = parent;
                }
                None if self.root <= key => break,
                None => {
                    let above = std::mem::replace(&mut self.root, key);
                    self.replace(place, above);
                    return;
                }
            }
        }
        self.replace(place, key);
    }

    /// Place of the smallest member of a family; `None` if it has none.
    fn smallest_of(&self, family: usize) -> Option<usize> {
        let members = &self.families.get(family)?.0;
        // Which child is smallest is unpredictable: sums of comparisons instead of branches.
        let left = usize::from(members[1] < members[0]);
        let right = 2 + usize::from(members[3] < members[2]);
        let member = [left, right][usize::from(members[right] < members[left])];
        let key = members[member];
        (!key.is_vacant()).then_some(family * 4 + member)
    }

    fn get(&self, place: usize) -> K {
        self.families
            .get(place / 4)
            .map_or(K::VACANT, |family| family.0[place % 4])
    }

    /// Writes a place; returns what was there.
    fn replace(&mut self, place: usize, key: K) -> K {
        self.families
            .get_mut(place / 4)
            .map_or(K::VACANT, |family| {
                std::mem::replace(&mut family.0[place % 4], key)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_sorted_set(
            operations in proptest::collection::vec((0..4u8, 0..500u128), 0..600),
        ) {
            let mut heap = MinHeap::new();
            let mut sorted = BTreeSet::new();
            for (operation, key) in operations {
                match operation {
                    0 => prop_assert_eq!(heap.pop(), sorted.pop_first()),
                    1 if !sorted.is_empty() && !sorted.contains(&key) => {
                        sorted.pop_first();
                        sorted.insert(key);
                        heap.replace_smallest(key);
                    }
                    _ => {
                        if sorted.insert(key) {
                            heap.push(key);
                        }
                    }
                }
                prop_assert_eq!(heap.peek(), sorted.first().copied());
                for last in [0, 100, 499] {
                    prop_assert_eq!(heap.second_is_up_to(last), sorted.range(..=last).count() > 1);
                }
            }
            while let Some(key) = sorted.pop_first() {
                prop_assert_eq!(heap.pop(), Some(key));
            }
            prop_assert_eq!(heap.pop(), None);
        }
    }
}
