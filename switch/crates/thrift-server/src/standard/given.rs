//! Prefixes as they were given. The switch clears the bits beyond a prefix's length; BMv2 keeps them and
//! shows them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bmv2_thrift::standard::{BmMatchParam, BmMatchParamType as Type, BmMtEntry};

/// Most keys that are remembered. Of further ones, the switch's form is shown.
const KEYS_MAX: usize = 1 << 16;

/// A key as it was given, and as the switch has it.
#[derive(Debug)]
struct Key {
    given: Vec<BmMatchParam>,
    kept: Vec<BmMatchParam>,
}

/// Keys with prefixes that the switch has changed, by table and handle.
#[derive(Debug, Default)]
pub(crate) struct Given(Mutex<HashMap<(String, i32), Key>>);

impl Given {
    /// The keys. A panic elsewhere leaves them consistent: each change is one call.
    fn keys(&self) -> MutexGuard<'_, HashMap<(String, i32), Key>> {
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
        } else if keys.len() < KEYS_MAX || keys.contains_key(&place) {
            keys.insert(place, Key { given, kept });
        }
    }

    /// Shows an entry's prefixes as they were given.
    pub(super) fn show(&self, table: &str, entry: &mut BmMtEntry) {
        let keys = self.keys();
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
    }
}
