//! Operations on the data plane: what an update comes to, how it is applied and taken back.

use switch::replication::{CloneSession, Replica};
use v1model::entries::digest::DigestConfig;
use v1model::entries::profile::{ProfileGroup, ProfileMember};
use v1model::entries::{
    ActionCall, CellValue, ControlError, ControlResult, CounterValue, EntryKey, MatchField,
    MeterWrite,
};
use v1model::{SavedArray, SavedEntry, SavedMeter};

use crate::translate::EntryAction;
use switch::Switch;

/// Bytes that a configured meter takes, at most.
const METER_BYTES: usize = 160;

/// What an update does to an object with a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change<T> {
    Insert(T),
    Modify(T),
    Delete,
}

impl<T> Change<T> {
    /// What takes this back; `before`: what the object is now.
    fn inverse(&self, before: impl FnOnce() -> ControlResult<T>) -> ControlResult<Self> {
        Ok(match self {
            Self::Insert(_) => Self::Delete,
            Self::Modify(_) => Self::Modify(before()?),
            Self::Delete => Self::Insert(before()?),
        })
    }
}

/// What an update says of an entry's counter, meter and timeout.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Direct {
    /// `None`: keep the counter.
    pub(crate) counter: Option<CounterValue>,
    /// `None`: keep the meter (where there is one).
    pub(crate) meter: Option<MeterWrite>,
    /// `None`: keep the idle timeout (where there is one).
    pub(crate) idle_ns: Option<u64>,
}

/// What an update does to a default entry's action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DefaultAction {
    Keep,
    /// The program's own again.
    Reset,
    Set(ActionCall),
}

/// One operation on the data plane; objects of the program by the data plane's index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operation {
    TableInsert {
        table: usize,
        key: EntryKey,
        action: EntryAction,
        direct: Direct,
    },
    TableModify {
        table: usize,
        key: EntryKey,
        /// `None`: keep the action.
        action: Option<EntryAction>,
        direct: Direct,
    },
    TableDelete {
        table: usize,
        key: EntryKey,
    },
    DefaultModify {
        table: usize,
        action: DefaultAction,
        direct: Direct,
    },
    CellSet {
        array: usize,
        index: usize,
        value: CellValue,
    },
    /// All cells; takes several visits, unless it must be taken back.
    Fill {
        array: usize,
        size: usize,
        value: CellValue,
    },
    Multicast {
        group: u32,
        change: Change<Vec<Replica>>,
    },
    Clones {
        session: u32,
        change: Change<CloneSession>,
    },
    Member {
        profile: usize,
        member: u32,
        change: Change<ActionCall>,
    },
    Group {
        profile: usize,
        group: u32,
        change: Change<ProfileGroup>,
    },
    ValueSet {
        set: usize,
        members: Vec<Vec<MatchField>>,
    },
    Digest {
        digest: usize,
        change: Change<DigestConfig>,
    },
    /// Valid, but changes nothing.
    Nothing,
}

impl Operation {
    /// Applies the operation; a refused one changes nothing.
    pub(crate) fn apply(&self, switch: &mut Switch) -> ControlResult<()> {
        match self {
            Self::TableInsert {
                table,
                key,
                action,
                direct,
            } => {
                match action {
                    EntryAction::Call(call) => switch.table_insert(*table, key, call)?,
                    EntryAction::Indirect(action) => {
                        switch.table_insert_indirect(*table, key, action)?;
                    }
                }
                let set = direct.set(*table, Some(key), switch);
                if set.is_err() {
                    switch.table_delete(*table, key)?;
                }
                set
            }
            Self::TableModify {
                table,
                key,
                action,
                direct,
            } => {
                let before = switch.table_save(*table, Some(key))?;
                match action {
                    Some(EntryAction::Call(call)) => switch.table_modify(*table, key, call)?,
                    Some(EntryAction::Indirect(action)) => {
                        switch.table_modify_indirect(*table, key, action)?;
                    }
                    None => {}
                }
                let set = direct.set(*table, Some(key), switch);
                if set.is_err() {
                    switch.table_restore(*table, before)?;
                }
                set
            }
            Self::TableDelete { table, key } => switch.table_delete(*table, key).map(drop),
            Self::DefaultModify {
                table,
                action,
                direct,
            } => {
                let before = switch.table_save(*table, None)?;
                match action {
                    DefaultAction::Keep => {}
                    DefaultAction::Reset => switch.table_set_default(*table, None)?,
                    DefaultAction::Set(call) => switch.table_set_default(*table, Some(call))?,
                }
                let set = direct.set(*table, None, switch);
                if set.is_err() {
                    switch.table_restore(*table, before)?;
                }
                set
            }
            Self::CellSet {
                array,
                index,
                value,
            } => set_cell(value, *array, *index, switch),
            Self::Fill { array, value, .. } => switch.array_fill(*array, value).map(drop),
            Self::Multicast { group, change } => match change {
                Change::Insert(replicas) => switch.multicast_insert(*group, replicas),
                Change::Modify(replicas) => switch.multicast_modify(*group, replicas),
                Change::Delete => switch.multicast_delete(*group),
            },
            Self::Clones { session, change } => match change {
                Change::Insert(to) => switch.clone_session_insert(*session, to),
                Change::Modify(to) => switch.clone_session_modify(*session, to),
                Change::Delete => switch.clone_session_delete(*session),
            },
            Self::Member {
                profile,
                member: id,
                change,
            } => {
                let member = |call: &ActionCall| ProfileMember {
                    id: *id,
                    call: call.clone(),
                };
                match change {
                    Change::Insert(call) => switch.member_insert(*profile, &member(call)),
                    Change::Modify(call) => switch.member_modify(*profile, &member(call)),
                    Change::Delete => switch.member_delete(*profile, *id),
                }
            }
            Self::Group {
                profile,
                group: id,
                change,
            } => match change {
                Change::Insert(group) => switch.group_insert(*profile, group),
                Change::Modify(group) => switch.group_modify(*profile, group),
                Change::Delete => switch.group_delete(*profile, *id),
            },
            Self::ValueSet { set, members } => switch.value_set_write(*set, members),
            Self::Digest { digest, change } => change_digest(*digest, change, switch),
            Self::Nothing => Ok(()),
        }
    }

    /// Bytes of memory that it takes to take back the write of a whole array; 0 for others.
    pub(crate) fn array_bytes(&self) -> usize {
        let Self::Fill { size, value, .. } = self else {
            return 0;
        };
        let cell = match value {
            CellValue::Counter(_) => 16,
            // Index, count of green, and the meter, if it is configured.
            CellValue::Meter(_) => 20 + METER_BYTES,
            CellValue::Register(value) => 8 * value.len().div_ceil(8),
        };
        size.saturating_mul(cell)
    }

    /// Applies the operation and tells how to take it back.
    pub(crate) fn apply_with_undo(&self, switch: &mut Switch) -> ControlResult<Undo> {
        let undo = match self {
            Self::TableDelete { table, key } => {
                let removed = switch.table_delete(*table, key)?;
                return Ok(Undo::Entry(*table, removed));
            }
            Self::TableModify { table, key, .. } => {
                Undo::Entry(*table, switch.table_save(*table, Some(key))?)
            }
            Self::DefaultModify { table, .. } => {
                Undo::Entry(*table, switch.table_save(*table, None)?)
            }
            Self::CellSet {
                array,
                index,
                value: CellValue::Meter(_),
            } => Undo::Meter(*array, *index, switch.meter_save(*array, *index)?),
            Self::Fill { array, value, .. } => {
                return Ok(Undo::Array(*array, switch.array_fill(*array, value)?));
            }
            _ => Undo::Apply(self.inverse(switch)?),
        };
        self.apply(switch)?;
        Ok(undo)
    }

    /// The operation that takes this one back, found before this one is applied.
    fn inverse(&self, switch: &mut Switch) -> ControlResult<Self> {
        Ok(match self {
            Self::TableInsert { table, key, .. } => Self::TableDelete {
                table: *table,
                key: key.clone(),
            },
            Self::CellSet {
                array,
                index,
                value,
            } => Self::CellSet {
                array: *array,
                index: *index,
                value: cell_now(value, *array, *index, switch)?,
            },
            Self::Multicast { group, change } => Self::Multicast {
                group: *group,
                change: change.inverse(|| switch.multicast_group(*group))?,
            },
            Self::Clones { session, change } => Self::Clones {
                session: *session,
                change: change.inverse(|| switch.clone_session(*session))?,
            },
            Self::Member {
                profile,
                member,
                change,
            } => Self::Member {
                profile: *profile,
                member: *member,
                change: change.inverse(|| Ok(switch.member(*profile, *member)?.call))?,
            },
            Self::Group {
                profile,
                group,
                change,
            } => Self::Group {
                profile: *profile,
                group: *group,
                change: change.inverse(|| switch.group(*profile, *group))?,
            },
            Self::ValueSet { set, .. } => Self::ValueSet {
                set: *set,
                members: switch.value_set_members(*set)?,
            },
            Self::Digest { digest, change } => Self::Digest {
                digest: *digest,
                change: change.inverse(|| {
                    switch
                        .digest_config(*digest)?
                        .ok_or_else(digest_not_enabled)
                })?,
            },
            Self::TableModify { .. }
            | Self::TableDelete { .. }
            | Self::DefaultModify { .. }
            | Self::Fill { .. }
            | Self::Nothing => Self::Nothing,
        })
    }
}

impl Direct {
    /// Sets the direct resources of an entry (`None`: of the default entry); the meter first,
    /// because only its values can be refused.
    fn set(&self, table: usize, key: Option<&EntryKey>, switch: &mut Switch) -> ControlResult<()> {
        if let Some(meter) = self.meter {
            switch.direct_meter_set(table, key, meter)?;
        }
        if let Some(value) = self.counter {
            switch.direct_counter_set(table, key, value)?;
        }
        if let (Some(timeout_ns), Some(key)) = (self.idle_ns, key) {
            switch.idle_timeout_set(table, key, timeout_ns)?;
        }
        Ok(())
    }
}

/// Sets a cell of the array of the value's kind.
pub(crate) fn set_cell(
    value: &CellValue,
    array: usize,
    index: usize,
    switch: &mut Switch,
) -> ControlResult<()> {
    match value {
        CellValue::Counter(value) => switch.counter_write(array, index, *value),
        CellValue::Meter(write) => switch.meter_write(array, index, *write),
        CellValue::Register(value) => switch.register_write(array, index, value),
    }
}

/// What the cell holds now, of the kind of `value`.
fn cell_now(
    value: &CellValue,
    array: usize,
    index: usize,
    switch: &mut Switch,
) -> ControlResult<CellValue> {
    Ok(match value {
        CellValue::Counter(_) => CellValue::Counter(switch.counter_read(array, index)?),
        CellValue::Meter(_) => CellValue::Meter(MeterWrite {
            config: switch.meter_read(array, index)?.config,
            clear_counts: false,
        }),
        CellValue::Register(_) => CellValue::Register(switch.register_read(array, index)?),
    })
}

fn digest_not_enabled() -> ControlError {
    ControlError::NotFound("the digest is not enabled; INSERT enables it".to_owned())
}

fn change_digest(
    digest: usize,
    change: &Change<DigestConfig>,
    switch: &mut Switch,
) -> ControlResult<()> {
    let enabled = switch.digest_config(digest)?.is_some();
    let config = match change {
        Change::Insert(_) if enabled => {
            return Err(ControlError::AlreadyExists(
                "the digest is enabled already; MODIFY changes its configuration".to_owned(),
            ));
        }
        Change::Modify(_) | Change::Delete if !enabled => return Err(digest_not_enabled()),
        Change::Insert(config) | Change::Modify(config) => Some(*config),
        Change::Delete => None,
    };
    switch.digest_configure(digest, config)
}

/// How to take an operation back.
#[derive(Debug)]
pub(crate) enum Undo {
    /// By another operation.
    Apply(Operation),
    /// By putting an entry of a table, or its default entry, back as it was.
    Entry(usize, SavedEntry),
    /// By putting a cell of a meter back as it was.
    Meter(usize, usize, SavedMeter),
    /// By putting an array back as it was.
    Array(usize, SavedArray),
    /// By all of these, the last first.
    All(Vec<Undo>),
}

impl Undo {
    pub(crate) fn run(self, switch: &mut Switch) -> ControlResult<()> {
        match self {
            Self::Apply(operation) => operation.apply(switch),
            Self::Entry(table, saved) => switch.table_restore(table, saved),
            Self::Meter(meter, index, saved) => switch.meter_restore(meter, index, saved),
            Self::Array(array, saved) => switch.array_restore(array, saved),
            Self::All(undos) => undos
                .into_iter()
                .rev()
                .try_for_each(|undo| undo.run(switch)),
        }
    }
}
