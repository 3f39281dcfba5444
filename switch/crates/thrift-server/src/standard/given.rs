//! Prefixes as they were given. The switch clears the bits beyond a prefix's length; BMv2 keeps them and
//! shows them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bmv2_thrift::standard::{BmMatchParam, BmMatchParamType as Type, BmMtEntry};

/// Most memory of keys, in bytes. Of further ones, the switch's form is shown.
const BYTES_MAX: usize = 32 << 20;

/// A key as it was given, and as the switch has it.
#[derive(Debug)]
struct Key {
    given: Vec<BmMatchParam>,
    kept: Vec<BmMatchParam>,
}

impl Key {
    /// The memory that it takes, in bytes: somewhat more than it really does.
    fn bytes(&self, table: &str) -> usize {
        let fields = self.given.iter().chain(&self.kept);
        let of_field = |field: &BmMatchParam| {
            let lpm = field.lpm.as_ref().and_then(|lpm| lpm.key.as_ref());
            let exact = field.exact.as_ref().and_then(|exact| exact.key.as_ref());
            size_of::<BmMatchParam>() + lpm.or(exact).map_or(0, Vec::len)
        };
        table.len() + size_of::<Self>() + fields.map(of_field).sum::<usize>()
    }
}

/// Keys with prefixes that the switch has changed, by table and handle.
#[derive(Debug, Default)]
struct Keys {
    keys: HashMap<(String, i32), Key>,
    bytes: usize,
}

impl Keys {
    fn remove(&mut self, place: &(String, i32)) {
        if let Some(key) = self.keys.remove(place) {
            self.bytes = self.bytes.saturating_sub(key.bytes(&place.0));
        }
    }

    fn insert(&mut self, place: (String, i32), key: Key) {
        self.remove(&place);
        let bytes = key.bytes(&place.0);
        if self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.keys.insert(place, key);
        }
    }
}

/// The remembered keys.
#[derive(Debug, Default)]
pub(crate) struct Given(Mutex<Keys>);

impl Given {
    /// The keys. A panic elsewhere leaves them consistent: each change is one call.
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the key of an entry that was added, if its prefixes were changed.
    pub(super) fn remember(&self, table: &str, added: &BmMtEntry, given: Vec<BmMatchParam>) {
        let kept = added.match_key.clone().unwrap_or_default();
        let pairs = given.iter().zip(&kept);
        let mut prefixes = pairs.filter(|(given, _)| given.type_ == Some(Type::LPM));
        // With priorities, BMv2 clears the bits, too.
        let has_priority = added
            .options
            .as_ref()
            .is_none_or(|o| o.priority != Some(-1));
        let place = (table.to_owned(), added.entry_handle.unwrap_or(0));
        let mut keys = self.keys();
        if has_priority || prefixes.all(|(given, kept)| given == kept) {
            keys.remove(&place);
        } else {
            keys.insert(place, Key { given, kept });
        }
    }

    /// Shows an entry's prefixes as they were given.
    pub(super) fn show(&self, table: &str, entry: &mut BmMtEntry) {
        let remembered = self.keys();
        let keys = &remembered.keys;
        if keys.is_empty() {
            return;
        }
        let place = (table.to_owned(), entry.entry_handle.unwrap_or(0));
        let Some(key) = keys.get(&place) else {
            return;
        };
        // The handle may be that of another entry by now.
        if entry.match_key.as_ref() != Some(&key.kept) {
            return;
        }
        let shown = entry.match_key.iter_mut().flatten();
        let pairs = shown.zip(&key.given);
        for (shown, given) in pairs.filter(|(_, given)| given.type_ == Some(Type::LPM)) {
            shown.clone_from(given);
        }
    }
}

#[cfg(test)]
mod tests {
    use bmv2_thrift::standard::{BmAddEntryOptions, BmMatchParamLPM};

    use super::*;

    fn lpm(key: &[u8]) -> BmMatchParam {
        let lpm = BmMatchParamLPM::new(key.to_vec(), 12);
        BmMatchParam::new(Type::LPM, None, lpm, None, None, None)
    }

    fn entry(key: &[u8], priority: i32) -> BmMtEntry {
        let options = BmAddEntryOptions::new(priority);
        BmMtEntry::new(vec![lpm(key)], options, 5, None, None)
    }

    #[test]
    fn a_prefix_is_shown_as_it_was_given() {
        let given = Given::default();
        let shown = |key: &[u8]| {
            let mut entry = entry(key, -1);
            given.show("t", &mut entry);
            entry
        };
        given.remember("t", &entry(&[10, 0], -1), vec![lpm(&[10, 1])]);
        assert_eq!(shown(&[10, 0]), entry(&[10, 1], -1));
        // Another entry has the handle.
        assert_eq!(shown(&[11, 0]), entry(&[11, 0], -1));
        given.remember("t", &entry(&[10, 0], -1), vec![lpm(&[10, 0])]);
        assert_eq!(shown(&[10, 0]), entry(&[10, 0], -1));
        given.remember("t", &entry(&[10, 0], 3), vec![lpm(&[10, 1])]);
        assert_eq!(shown(&[10, 0]), entry(&[10, 0], -1));
        assert_eq!(given.keys().bytes, 0);
    }

    #[test]
    fn no_more_is_remembered_than_its_limit() {
        let given = Given::default();
        let long = vec![0; 1 << 20];
        let mut longer = long.clone();
        longer.push(1);
        for handle in 0..40 {
            let mut added = entry(&long, -1);
            added.entry_handle = Some(handle);
            given.remember("t", &added, vec![lpm(&longer)]);
        }
        let keys = given.keys();
        assert!((15..16).contains(&keys.keys.len()), "{}", keys.keys.len());
        assert!(keys.bytes <= BYTES_MAX);
    }
}
