//! The pipelines that controllers have set, and the values kept with them for controllers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tonic::Status;
use v1model::entries::EntryKey;

use crate::controller_queue::Generation;
use crate::proto::p4::v1 as p4;
use crate::translate::BoundPipeline;

/// Values that controllers attach to an entry. The switch only keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EntryAnnotation {
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Vec<u8>,
}

/// Values that are kept with a multicast group beside its replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupAnnotation {
    pub(crate) metadata: Vec<u8>,
    /// For each replica, whether its port is in the deprecated field, so that it is read back there.
    pub(crate) deprecated_ports: Vec<bool>,
}

/// Values that the server keeps for controllers beside the program's own state.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    /// By the table's index in the program and the entry's key. Empty ones are left out.
    entries: HashMap<(usize, EntryKey), EntryAnnotation>,
    /// By the table's index, for tables whose default entry was set.
    defaults: HashMap<usize, EntryAnnotation>,
    groups: HashMap<u32, GroupAnnotation>,
    /// By clone session and replica, whether the port is in the deprecated field.
    sessions: HashMap<u32, Vec<bool>>,
}

/// A change of [`Annotations`]; `None` removes one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnnotationChange {
    Nothing,
    Entry(usize, EntryKey, Option<EntryAnnotation>),
    Default(usize, Option<EntryAnnotation>),
    Group(u32, Option<GroupAnnotation>),
    Session(u32, Option<Vec<bool>>),
}

impl Annotations {
    pub(crate) fn apply(&mut self, change: AnnotationChange) {
        match change {
            AnnotationChange::Nothing => {}
            AnnotationChange::Entry(table, key, annotation) => {
                let annotation = annotation.filter(|given| *given != EntryAnnotation::default());
                set(&mut self.entries, (table, key), annotation);
            }
            AnnotationChange::Default(table, annotation) => {
                set(&mut self.defaults, table, annotation);
            }
            AnnotationChange::Group(group, annotation) => set(&mut self.groups, group, annotation),
            AnnotationChange::Session(session, deprecated_ports) => {
                set(&mut self.sessions, session, deprecated_ports);
            }
        }
    }

    /// Forgets those of all entries of a table.
    pub(crate) fn forget_entries(&mut self, table: usize) {
        self.entries.retain(|(other, _), _| *other != table);
    }

    pub(crate) fn of_entry(&self, table: usize, key: &EntryKey) -> EntryAnnotation {
        let annotation = self.entries.get(&(table, key.clone()));
        annotation.cloned().unwrap_or_default()
    }

    /// `None`: the table's default entry is the program's own.
    pub(crate) fn of_default(&self, table: usize) -> Option<&EntryAnnotation> {
        self.defaults.get(&table)
    }

    pub(crate) fn of_group(&self, group: u32) -> GroupAnnotation {
        self.groups.get(&group).cloned().unwrap_or_default()
    }

    /// For each replica of a clone session, whether its port is in the deprecated field.
    pub(crate) fn deprecated_ports(&self, session: u32) -> &[bool] {
        self.sessions.get(&session).map_or(&[], Vec::as_slice)
    }
}

fn set<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

/// A pipeline that a controller has committed or saved.
#[derive(Debug)]
pub(crate) struct InstalledPipeline {
    pub(crate) pipeline: Arc<BoundPipeline>,
    pub(crate) annotations: Annotations,
    /// The program's own entries that may be deleted.
    pub(crate) preset: Vec<p4::TableEntry>,
}

/// The pipelines that controllers have set.
#[derive(Debug, Default)]
pub(crate) struct PipelineState {
    /// The pipeline that forwards packets.
    pub(crate) committed: Option<InstalledPipeline>,
    /// The pipeline of `VERIFY_AND_SAVE`, until it is committed or replaced. It is staged in the
    /// switch and takes the reads and writes.
    pub(crate) saved: Option<InstalledPipeline>,
    /// Another control server has staged a program ([`crate::Beside`]), of which there is no P4Info.
    pub(crate) staged_beside: bool,
}

impl PipelineState {
    /// The pipeline that reads refer to: "any subsequent Read / Write requests must refer to fields in the new
    /// config", which is the saved one.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: there is none yet, or another control server has staged a program.
    pub(crate) fn usable(&self) -> Result<&InstalledPipeline, Status> {
        if self.staged_beside {
            return Err(staged_beside());
        }
        let active = self.saved.as_ref().or(self.committed.as_ref());
        active.ok_or_else(no_config)
    }

    /// The pipeline that writes refer to, as [`Self::usable`].
    pub(crate) fn usable_mut(&mut self) -> Result<&mut InstalledPipeline, Status> {
        if self.staged_beside {
            return Err(staged_beside());
        }
        let active = self.saved.as_mut().or(self.committed.as_mut());
        active.ok_or_else(no_config)
    }
}

fn staged_beside() -> Status {
    Status::failed_precondition(
        "a program that was loaded over Thrift is staged; swap_configs puts it in place, \
         SetForwardingPipelineConfig replaces it",
    )
}

/// There is no config, and no request without one is possible.
pub(crate) fn no_config() -> Status {
    Status::failed_precondition(
        "no forwarding pipeline config yet; send SetForwardingPipelineConfig first",
    )
}

/// The pipeline that forwards packets, for the tasks that serve streams.
#[derive(Debug, Clone)]
pub(crate) struct ForwardingPipeline {
    pub(crate) pipeline: Arc<BoundPipeline>,
    /// The first packet-in and notification that may come from it.
    pub(crate) first: Generation,
}
