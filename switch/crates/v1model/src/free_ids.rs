//! The ids that no object has, so that the lowest one is found without looking at the objects.

use std::collections::BTreeMap;

/// Ids from 1 on that are free, as ranges: first to last.
#[derive(Debug)]
pub(crate) struct FreeIds(BTreeMap<u32, u32>);

impl Default for FreeIds {
    fn default() -> Self {
        Self(BTreeMap::from([(1, u32::MAX)]))
    }
}

impl FreeIds {
    /// The lowest free id.
    pub fn lowest(&self) -> Option<u32> {
        self.0.keys().next().copied()
    }

    /// An object takes an id.
    pub fn take(&mut self, id: u32) {
        let Some((&first, &last)) = self.0.range(..=id).next_back() else {
            return;
        };
        if id > last {
            return;
        }
        self.0.remove(&first);
        if first < id {
            self.0.insert(first, id - 1);
        }
        if id < last {
            self.0.insert(id + 1, last);
        }
    }

    /// An object gives its id back.
    pub fn give(&mut self, id: u32) {
        // 0 is no id.
        if id == 0 {
            return;
        }
        let (mut first, mut last) = (id, id);
        if let Some((&before, &end)) = self.0.range(..=id).next_back() {
            if end >= id {
                return;
            }
            if end + 1 == id {
                first = before;
            }
        }
        let next = id.checked_add(1);
        if let Some(end) = next.and_then(|next| self.0.remove(&next)) {
            last = end;
        }
        self.0.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_last_id_can_be_taken_and_given_back() {
        let mut free = FreeIds::default();
        free.take(u32::MAX);
        free.take(1);
        assert_eq!(free.lowest(), Some(2));
        free.give(u32::MAX);
        free.give(1);
        assert_eq!(free.0, FreeIds::default().0);
    }

    proptest! {
        #[test]
        fn the_lowest_is_that_of_a_set(changes in prop::collection::vec((any::<bool>(), 0..40u32), 0..200)) {
            let mut free = FreeIds::default();
            let mut taken = BTreeSet::new();
            for (takes, id) in changes {
                if takes {
                    free.take(id);
                    taken.insert(id);
                } else {
                    free.give(id);
                    taken.remove(&id);
                }
                let lowest = (1..).find(|id| !taken.contains(id));
                prop_assert_eq!(free.lowest(), lowest);
            }
            taken.into_iter().for_each(|id| free.give(id));
            prop_assert_eq!(free.0, FreeIds::default().0);
        }
    }
}
