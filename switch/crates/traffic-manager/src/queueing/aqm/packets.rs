//! Packets of many flows in one array, linked into a list for each flow.
//!
//! A place that becomes free is the next to be taken, so few places are used in turn and stay in the caches.

use crate::queueing::item::Item;

/// No packet.
const NONE: u32 = u32::MAX;

/// A packet, and the next one of its list. Half a cache line.
#[derive(Debug, Clone, Copy)]
struct Place {
    item: Item,
    next: u32,
}

/// First and last of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
        }
    }
}

/// The array.
#[derive(Debug)]
pub(super) struct Packets {
    places: Vec<Place>,
    /// The first free place; those after it are linked.
    free: u32,
    waiting: usize,
    bytes: u64,
}

impl Packets {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: NONE,
            waiting: 0,
            bytes: 0,
        }
    }

    /// Packets of all lists.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn first(&self, list: &List) -> Option<&Item> {
        self.places.get(list.head as usize).map(|place| &place.item)
    }

    /// The packets of a list.
    pub(super) fn of(&self, list: &List) -> impl Iterator<Item = &Item> {
        let mut at = list.head;
        std::iter::from_fn(move || {
            let place = self.places.get(at as usize)?;
            at = place.next;
            Some(&place.item)
        })
    }

    /// Appends a packet; there are fewer than 2^32, as the slab has.
    pub(super) fn push(&mut self, list: &mut List, item: Item) {
        let place = Place { item, next: NONE };
        let at = self.free;
        let at = match self.places.get_mut(at as usize) {
            Some(free) => {
                self.free = free.next;
                *free = place;
                at
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        };
        match self.places.get_mut(list.tail as usize) {
            Some(tail) => tail.next = at,
            None => list.head = at,
        }
        list.tail = at;
        self.waiting += 1;
        self.bytes += item.frame_bytes();
    }

    pub(super) fn pop(&mut self, list: &mut List) -> Option<Item> {
        let at = list.head;
        let place = self.places.get_mut(at as usize)?;
        let (item, next) = (place.item, place.next);
        place.next = self.free;
        self.free = at;
        list.head = next;
        if next == NONE {
            list.tail = NONE;
        }
        self.waiting -= 1;
        self.bytes -= item.frame_bytes();
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_half_a_cache_line() {
        assert_eq!(size_of::<Place>(), 32);
    }
}
