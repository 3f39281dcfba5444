//! Numbers of entries as BMv2 gives them, for its Thrift interface.
//!
//! A handle is an index of 24 bits below a version of 8. An entry takes the lowest index that is free,
//! and each removal makes the index's version greater, so the handle of an entry that is gone is not
//! that of the entry at its place.

use crate::entries::MeterConfig;
use std::collections::{BTreeSet, HashMap};

/// Bits of a handle's index.
const INDEX_BITS: u32 = 24;

/// The index of a handle.
fn index(handle: u32) -> u32 {
    handle & ((1 << INDEX_BITS) - 1)
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    version: u8,
    /// The entry's number in the order of insertion.
    order: Option<u64>,
}

impl Place {
    fn handle(self, index: u32) -> u32 {
        u32::from(self.version) << INDEX_BITS | index
    }
}

/// The direct meters of a table's indices: BMv2's meters are those of indices, not of entries.
#[derive(Debug, Default)]
struct Meters {
    /// Of the indices that are not in `by_index`.
    others: Option<MeterConfig>,
    by_index: HashMap<u32, Option<MeterConfig>>,
}

/// The handles of a table's entries.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    places: Vec<Place>,
    free: BTreeSet<u32>,
    /// Indices by the entries' numbers in the order of insertion.
    indices: HashMap<u64, u32>,
    meters: Meters,
}

impl Handles {
    /// Gives an entry a handle. A table has fewer than 2^24 entries with handles; others have none.
    pub fn give(&mut self, order: u64) {
        let index = match self.free.pop_first() {
            Some(index) => index,
            None => {
                let end = u32::try_from(self.places.len()).ok();
                let Some(end) = end.filter(|end| *end < 1 << INDEX_BITS) else {
                    return;
                };
                self.places.push(Place::default());
                end
            }
        };
        if let Some(place) = self.places.get_mut(index as usize) {
            place.order = Some(order);
            self.indices.insert(order, index);
        }
    }

    /// Takes the handle of an entry back.
    pub fn take(&mut self, order: u64) {
        let Some(index) = self.indices.remove(&order) else {
            return;
        };
        if let Some(place) = self.places.get_mut(index as usize) {
            *place = Place {
                version: place.version.wrapping_add(1),
                order: None,
            };
            self.free.insert(index);
        }
    }

    /// Forgets the versions of a table without entries.
    pub fn forget(&mut self) {
        if self.indices.is_empty() {
            *self = Self {
                meters: std::mem::take(&mut self.meters),
                ..Self::default()
            };
        }
    }

    /// Sets the meter of a handle's index, or of all indices.
    pub fn set_meter(&mut self, handle: Option<u32>, config: Option<MeterConfig>) {
        match handle {
            Some(handle) => {
                self.meters.by_index.insert(index(handle), config);
            }
            None => {
                self.meters = Meters {
                    others: config,
                    by_index: HashMap::new(),
                };
            }
        }
    }

    /// The meter of a handle's index.
    pub fn meter(&self, handle: u32) -> Option<MeterConfig> {
        let found = self.meters.by_index.get(&index(handle)).copied();
        found.unwrap_or(self.meters.others)
    }

    /// The handle of an entry.
    pub fn of(&self, order: u64) -> Option<u32> {
        let index = *self.indices.get(&order)?;
        let place = self.places.get(index as usize)?;
        Some(place.handle(index))
    }

    /// Entries with their handles, by index, from the index of `handle` on.
    pub fn from(&self, handle: u32) -> impl Iterator<Item = (u32, u64)> {
        let first = index(handle);
        let places = self.places.get(first as usize..).unwrap_or_default();
        let numbered = (first..).zip(places);
        numbered.filter_map(|(index, place)| Some((place.handle(index), place.order?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_index_is_taken_with_a_new_version() {
        let mut handles = Handles::default();
        (10..14).for_each(|order| handles.give(order));
        assert_eq!(handles.of(12), Some(2));
        handles.take(12);
        handles.take(10);
        assert_eq!(handles.of(12), None);
        handles.give(20);
        handles.give(21);
        handles.give(22);
        let all: Vec<_> = handles.from(0).collect();
        let second = 1 << INDEX_BITS;
        assert_eq!(
            all,
            [(second, 20), (1, 11), (second | 2, 21), (3, 13), (4, 22)]
        );
        assert_eq!(handles.from(3).next(), Some((3, 13)));
        assert_eq!(handles.from(9).next(), None);
    }

    #[test]
    fn an_empty_table_forgets_its_versions() {
        let mut handles = Handles::default();
        handles.give(1);
        handles.forget();
        assert_eq!(handles.of(1), Some(0));
        handles.take(1);
        handles.forget();
        handles.give(2);
        assert_eq!(handles.of(2), Some(0));
    }
}
