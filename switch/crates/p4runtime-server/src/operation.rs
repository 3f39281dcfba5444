//! Operations on a program. An update is translated to an operation, which can be applied and undone.

use switch::{CloneSession, Program, Replica};
use v1model::entries::digest::DigestConfig;
use v1model::entries::profile::{ProfileGroup, ProfileMember};
use v1model::entries::{
    ActionCall, CellValue, ControlError, ControlResult, CounterValue, EntryAction, EntryKey,
    MatchField, MeterWrite,
};
use v1model::{Pipeline, SavedArray, SavedEntry, SavedMeter};

use crate::executor::CELLS_PER_LOOK;

/// Most bytes that a configured meter takes.
const METER_BYTES: usize = 160;

/// A change of an object with a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change<T> {
    Insert(T),
    Modify(T),
    Delete,
}

impl<T> Change<T> {
    /// Applies the change by the given functions, and returns the change that undoes it.
    fn apply(
        &self,
        program: &mut Program,
        get: impl FnOnce(&Program) -> ControlResult<T>,
        insert: impl FnOnce(&mut Program, &T) -> ControlResult<()>,
        modify: impl FnOnce(&mut Program, &T) -> ControlResult<()>,
        delete: impl FnOnce(&mut Program) -> ControlResult<()>,
    ) -> ControlResult<Self> {
        Ok(match self {
            Self::Insert(value) => {
                insert(program, value)?;
                Self::Delete
            }
            Self::Modify(value) => {
                let before = get(program)?;
                modify(program, value)?;
                Self::Modify(before)
            }
            Self::Delete => {
                let before = get(program)?;
                delete(program)?;
                Self::Insert(before)
            }
        })
    }
}

/// An update's values for an entry's counter, meter and idle timeout.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Direct {
    /// `None`: keep the counter.
    pub(crate) counter: Option<CounterValue>,
    /// `None`: keep the meter (where there is one).
    pub(crate) meter: Option<MeterWrite>,
    /// `None`: keep the idle timeout (where there is one).
    pub(crate) idle_ns: Option<u64>,
}

/// A change of a default entry's action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DefaultAction {
    Keep,
    /// The program's own action.
    Reset,
    Set(ActionCall),
}

/// One operation on a program. Objects are named by their index in the program.
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
    /// Sets all cells.
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
    /// Applies the operation and returns its undo. A refused operation changes nothing.
    pub(crate) fn apply(&self, program: &mut Program) -> ControlResult<Undo> {
        let pipeline = program.pipeline_mut();
        match self {
            Self::TableInsert {
                table,
                key,
                action,
                direct,
            } => {
                pipeline.table_insert(*table, key, action)?;
                let inverse = Self::TableDelete {
                    table: *table,
                    key: key.clone(),
                };
                direct.set(*table, Some(key), program, Undo::Apply(inverse))
            }
            Self::TableModify {
                table,
                key,
                action,
                direct,
            } => {
                let undo = Undo::Entry(*table, pipeline.table_save(*table, Some(key))?);
                if let Some(action) = action {
                    pipeline.table_modify(*table, key, action)?;
                }
                direct.set(*table, Some(key), program, undo)
            }
            Self::TableDelete { table, key } => {
                let removed = pipeline.table_delete(*table, key)?;
                Ok(Undo::Entry(*table, removed))
            }
            Self::DefaultModify {
                table,
                action,
                direct,
            } => {
                let undo = Undo::Entry(*table, pipeline.table_save(*table, None)?);
                match action {
                    DefaultAction::Keep => {}
                    DefaultAction::Reset => pipeline.table_set_default(*table, None)?,
                    DefaultAction::Set(call) => pipeline.table_set_default(*table, Some(call))?,
                }
                direct.set(*table, None, program, undo)
            }
            Self::CellSet {
                array,
                index,
                value,
            } => {
                let undo = undo_of_cell(value, *array, *index, pipeline)?;
                set_cell(value, *array, *index, pipeline)?;
                Ok(undo)
            }
            Self::Fill { array, size, value } => {
                let saved = pipeline.array_fill(*array, 0..*size, value)?;
                Ok(Undo::Array(*array, saved))
            }
            Self::Multicast { group, change } => change_multicast(*group, change, program),
            Self::Clones { session, change } => change_clones(*session, change, program),
            Self::Member {
                profile,
                member,
                change,
            } => change_member(*profile, *member, change, program),
            Self::Group {
                profile,
                group,
                change,
            } => change_group(*profile, *group, change, program),
            Self::ValueSet { set, members } => {
                let inverse = Self::ValueSet {
                    set: *set,
                    members: pipeline.value_set_members(*set)?,
                };
                pipeline.value_set_write(*set, members)?;
                Ok(Undo::Apply(inverse))
            }
            Self::Digest { digest, change } => change_digest(*digest, change, program),
            Self::Nothing => Ok(Undo::Apply(Self::Nothing)),
        }
    }

    /// As [`Self::apply`] for one piece, which is some microseconds of work. The piece begins at the
    /// cell `from`; the first one begins at 0. Also returns the beginning of the next piece; `None`:
    /// this was the last one.
    pub(crate) fn apply_piece(
        &self,
        from: usize,
        program: &mut Program,
    ) -> ControlResult<(Undo, Option<usize>)> {
        let Self::Fill { array, size, value } = self else {
            return Ok((self.apply(program)?, None));
        };
        let end = (*size).min(from.saturating_add(CELLS_PER_LOOK));
        let saved = program
            .pipeline_mut()
            .array_fill(*array, from..end, value)?;
        Ok((Undo::Array(*array, saved), (end < *size).then_some(end)))
    }

    /// The work of the operation in units of some microseconds; that of a whole array depends on its
    /// size.
    pub(crate) fn work(&self) -> usize {
        match self {
            Self::Fill {
                size,
                value: CellValue::Meter(_),
                ..
            } => *size,
            Self::Fill { size, .. } => size.div_ceil(CELLS_PER_LOOK),
            _ => 1,
        }
    }

    /// Bytes of memory that the undo of a write of a whole array needs. 0 for other operations.
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
}

impl Direct {
    /// Sets the direct resources of an entry (`None`: of the default entry) after its action.
    /// If that is refused, `undo` restores the action.
    fn set(
        &self,
        table: usize,
        key: Option<&EntryKey>,
        program: &mut Program,
        undo: Undo,
    ) -> ControlResult<Undo> {
        match self.set_each(table, key, program) {
            Ok(()) => Ok(undo),
            Err(error) => {
                undo.run(program)?;
                Err(error)
            }
        }
    }

    fn set_each(
        &self,
        table: usize,
        key: Option<&EntryKey>,
        program: &mut Program,
    ) -> ControlResult<()> {
        let pipeline = program.pipeline_mut();
        if let Some(meter) = self.meter {
            pipeline.direct_meter_set(table, key, meter)?;
        }
        if let Some(value) = self.counter {
            pipeline.direct_counter_set(table, key, value)?;
        }
        if let (Some(timeout_ns), Some(key)) = (self.idle_ns, key) {
            program.idle_timeout_set(table, key, timeout_ns)?;
        }
        Ok(())
    }
}

/// Sets a cell of the array of the value's kind.
fn set_cell(
    value: &CellValue,
    array: usize,
    index: usize,
    pipeline: &mut Pipeline,
) -> ControlResult<()> {
    match value {
        CellValue::Counter(value) => pipeline.counter_write(array, index, *value),
        CellValue::Meter(write) => pipeline.meter_write(array, index, *write),
        CellValue::Register(value) => pipeline.register_write(array, index, value),
    }
}

/// The undo that restores the present value of a cell, in the array of the value's kind.
fn undo_of_cell(
    value: &CellValue,
    array: usize,
    index: usize,
    pipeline: &Pipeline,
) -> ControlResult<Undo> {
    let value = match value {
        CellValue::Counter(_) => CellValue::Counter(pipeline.counter_read(array, index)?),
        CellValue::Register(_) => CellValue::Register(pipeline.register_read(array, index)?),
        CellValue::Meter(_) => {
            return Ok(Undo::Meter(
                array,
                index,
                pipeline.meter_save(array, index)?,
            ));
        }
    };
    Ok(Undo::Apply(Operation::CellSet {
        array,
        index,
        value,
    }))
}

fn change_multicast(
    group: u32,
    change: &Change<Vec<Replica>>,
    program: &mut Program,
) -> ControlResult<Undo> {
    let change = change.apply(
        program,
        |program| program.multicast_groups().get(group).cloned(),
        |program, replicas| program.multicast_insert(group, replicas.clone()),
        |program, replicas| program.multicast_modify(group, replicas.clone()),
        |program| program.multicast_delete(group),
    )?;
    Ok(Undo::Apply(Operation::Multicast { group, change }))
}

fn change_clones(
    session: u32,
    change: &Change<CloneSession>,
    program: &mut Program,
) -> ControlResult<Undo> {
    let change = change.apply(
        program,
        |program| program.clone_sessions().get(session).cloned(),
        |program, to| program.clone_session_insert(session, to.clone()),
        |program, to| program.clone_session_modify(session, to.clone()),
        |program| program.clone_session_delete(session),
    )?;
    Ok(Undo::Apply(Operation::Clones { session, change }))
}

fn change_member(
    profile: usize,
    member: u32,
    change: &Change<ActionCall>,
    program: &mut Program,
) -> ControlResult<Undo> {
    let of = |call: &ActionCall| ProfileMember {
        id: member,
        call: call.clone(),
    };
    let change = change.apply(
        program,
        |program| Ok(program.pipeline().member(profile, member)?.call),
        |program, call| program.pipeline_mut().member_insert(profile, &of(call)),
        |program, call| program.pipeline_mut().member_modify(profile, &of(call)),
        |program| program.pipeline_mut().member_delete(profile, member),
    )?;
    Ok(Undo::Apply(Operation::Member {
        profile,
        member,
        change,
    }))
}

fn change_group(
    profile: usize,
    group: u32,
    change: &Change<ProfileGroup>,
    program: &mut Program,
) -> ControlResult<Undo> {
    let change = change.apply(
        program,
        |program| program.pipeline().group(profile, group),
        |program, to| program.pipeline_mut().group_insert(profile, to),
        |program, to| program.pipeline_mut().group_modify(profile, to),
        |program| program.pipeline_mut().group_delete(profile, group),
    )?;
    Ok(Undo::Apply(Operation::Group {
        profile,
        group,
        change,
    }))
}

fn change_digest(
    digest: usize,
    change: &Change<DigestConfig>,
    program: &mut Program,
) -> ControlResult<Undo> {
    let config = |program: &Program| {
        program.digest_config(digest)?.ok_or_else(|| {
            ControlError::NotFound("the digest is not enabled; INSERT enables it".to_owned())
        })
    };
    let change = change.apply(
        program,
        config,
        |program, config| match program.digest_config(digest)? {
            Some(_) => Err(ControlError::AlreadyExists(
                "the digest is enabled already; MODIFY changes its configuration".to_owned(),
            )),
            None => program.digest_configure(digest, Some(*config)),
        },
        |program, config| program.digest_configure(digest, Some(*config)),
        |program| program.digest_configure(digest, None),
    )?;
    Ok(Undo::Apply(Operation::Digest { digest, change }))
}

/// The undo of an operation.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Apply another operation.
    Apply(Operation),
    /// Restore an entry of a table, or its default entry.
    Entry(usize, SavedEntry),
    /// Restore a cell of a meter.
    Meter(usize, usize, SavedMeter),
    /// Restore cells of an array.
    Array(usize, SavedArray),
}

impl Undo {
    /// Undoes the operation.
    pub(crate) fn run(self, program: &mut Program) -> ControlResult<()> {
        let pipeline = program.pipeline_mut();
        match self {
            Self::Apply(operation) => operation.apply(program).map(drop),
            Self::Entry(table, saved) => program.table_restore(table, saved),
            Self::Meter(meter, index, saved) => pipeline.meter_restore(meter, index, saved),
            Self::Array(array, saved) => pipeline.array_restore(array, saved),
        }
    }
}
