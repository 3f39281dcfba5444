//! The text of the program that clients see, and the ids, which only the text has.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use p4runtime_server::{Changing, Reading, SetProgram};
use serde::Deserialize;

/// A program as BMv2 JSON.
pub(crate) struct Text {
    json: Vec<u8>,
    md5: OnceLock<[u8; 16]>,
    objects: OnceLock<Objects>,
}

/// A program's objects in the JSON.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Objects {
    #[serde(default)]
    pipelines: Vec<Controls>,
    #[serde(default)]
    pub(crate) counter_arrays: Vec<Named>,
    #[serde(default)]
    pub(crate) meter_arrays: Vec<Named>,
    #[serde(default)]
    pub(crate) register_arrays: Vec<Named>,
    #[serde(default)]
    pub(crate) learn_lists: Vec<Named>,
    #[serde(default)]
    pub(crate) calculations: Vec<Named>,
}

#[derive(Debug, Deserialize)]
struct Controls {
    #[serde(default)]
    tables: Vec<Named>,
    #[serde(default)]
    action_profiles: Vec<Named>,
}

/// An object with its number.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) id: i32,
}

impl Text {
    pub(crate) fn new(json: Vec<u8>) -> Self {
        Self {
            json,
            md5: OnceLock::new(),
            objects: OnceLock::new(),
        }
    }

    pub(crate) fn json(&self) -> &[u8] {
        &self.json
    }

    pub(crate) fn md5(&self) -> [u8; 16] {
        *self.md5.get_or_init(|| md5::compute(&self.json).0)
    }

    /// The objects. The switch has loaded the program, so it can be read.
    pub(crate) fn objects(&self) -> &Objects {
        self.objects
            .get_or_init(|| serde_json::from_slice(&self.json).unwrap_or_default())
    }
}

impl Objects {
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Named> {
        self.pipelines.iter().flat_map(|controls| &controls.tables)
    }

    pub(crate) fn action_profiles(&self) -> impl Iterator<Item = &Named> {
        let controls = self.pipelines.iter();
        controls.flat_map(|controls| &controls.action_profiles)
    }
}

/// The programs whose texts are known.
#[derive(Default)]
pub(crate) struct Programs(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The program that the switch has started with, or runs since a swap.
    own: Option<Arc<Text>>,
    /// The program that has been loaded and not swapped in yet.
    staged: Option<Arc<Text>>,
    /// The last that a P4Runtime controller has set.
    set: Option<(SetProgram, Arc<Text>)>,
}

impl Programs {
    /// `own`: the program that the switch has started with.
    pub(crate) fn new(own: Option<Vec<u8>>) -> Self {
        Self(Mutex::new(Known {
            own: own.map(Text::new).map(Arc::new),
            ..Known::default()
        }))
    }

    /// The known programs. A panic elsewhere leaves them consistent: each change is an assignment.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program that clients see: the one that is loaded and not swapped in yet, if there is one.
    pub(crate) fn current(&self, reading: &Reading<'_>) -> Option<Arc<Text>> {
        let mut known = self.known();
        if reading.is_staged_beside() {
            return known.staged.clone();
        }
        let Some(set) = reading.set_program() else {
            return known.own.clone();
        };
        if let Some((before, text)) = &known.set
            && before.is(&set)
        {
            return Some(Arc::clone(text));
        }
        let text = Arc::new(Text::new(set.bmv2_json()));
        known.set = Some((set, Arc::clone(&text)));
        Some(text)
    }

    /// A program has been staged.
    pub(crate) fn staged(&self, _changing: &Changing<'_>, json: Vec<u8>) {
        self.known().staged = Some(Arc::new(Text::new(json)));
    }

    /// The staged program has been put in place of the running one.
    pub(crate) fn swapped(&self, _changing: &Changing<'_>) {
        let mut known = self.known();
        known.own = known.staged.take();
        known.set = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_tells_ids_and_its_digest() {
        let text = Text::new(br#"{"pipelines": [{"tables": [{"name": "t", "id": 3}]}]}"#.to_vec());
        let tables: Vec<_> = text.objects().tables().collect();
        assert_eq!((tables[0].name.as_str(), tables[0].id), ("t", 3));
        assert_eq!(text.objects().action_profiles().count(), 0);
        assert_eq!(Text::new(b"abc".to_vec()).md5()[..3], [0x90, 0x01, 0x50]);
    }
}
