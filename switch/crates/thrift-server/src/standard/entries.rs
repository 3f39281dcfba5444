//! Changes of entries, default entries and timeouts.

use bmv2_thrift::standard::{BmMatchParam, TableOperationErrorCode as Code};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::profile::IndirectAction;
use v1model::entries::{EntryAction, EntryKey, MeterWrite, TableInfo};

use super::keys;
use super::lookup::{self, TableResult, refused};
use super::values;

/// Entries removed between two looks at whether a visit is over.
const ENTRIES_PER_PIECE: usize = 8;

fn writable(table: &TableInfo) -> TableResult<()> {
    match table.const_entries {
        true => Err(refused(Code::IMMUTABLE_TABLE_ENTRIES)),
        false => Ok(()),
    }
}

/// Inserts an entry with the meter of its index, and returns its handle.
fn insert(
    pipeline: &mut Pipeline,
    table: usize,
    key: &EntryKey,
    action: &EntryAction,
) -> TableResult<i32> {
    let inserted = pipeline.table_insert(table, key, action);
    inserted.map_err(|error| lookup::of_entry(&error))?;
    let handle = pipeline.entry_handle(table, key);
    let handle = handle.map_err(|_| refused(Code::ERROR))?;
    if let Some(config) = pipeline.index_meter(table, handle) {
        let write = MeterWrite {
            config: Some(config),
            clear_counts: false,
        };
        let set = pipeline.direct_meter_set(table, Some(key), write);
        set.map_err(|error| lookup::of_entry(&error))?;
    }
    Ok(handle.cast_signed())
}

pub(super) fn add(
    program: &mut Program,
    table: &str,
    key: &[BmMatchParam],
    action: &str,
    data: &[Vec<u8>],
    priority: i32,
) -> TableResult<i32> {
    let pipeline = program.pipeline_mut();
    let (table, info) = lookup::direct(pipeline, table)?;
    let action = lookup::action(pipeline, info, action)?;
    writable(info)?;
    let call = values::call(pipeline, action, data)?;
    let key = keys::entry_key(info, key, priority)?;
    insert(pipeline, table, &key, &call.into())
}

pub(super) fn modify(
    program: &mut Program,
    table: &str,
    handle: i32,
    action: &str,
    data: &[Vec<u8>],
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (table, info) = lookup::direct(pipeline, table)?;
    let action = lookup::action(pipeline, info, action)?;
    writable(info)?;
    let call = values::call(pipeline, action, data)?;
    let key = lookup::entry(pipeline, table, handle)?.entry.key;
    let modified = pipeline.table_modify(table, &key, &call.into());
    modified.map_err(|error| lookup::of_entry(&error))
}

/// An entry that was removed: its table and its key.
pub(super) type Removed = (usize, EntryKey);

pub(super) fn delete(program: &mut Program, table: &str, handle: i32) -> TableResult<Removed> {
    let (table, info) = lookup::direct(program.pipeline(), table)?;
    writable(info)?;
    remove(program.pipeline_mut(), table, handle)
}

pub(super) fn indirect_delete(
    program: &mut Program,
    table: &str,
    handle: i32,
) -> TableResult<Removed> {
    let (table, _) = lookup::indirect(program.pipeline(), table)?;
    remove(program.pipeline_mut(), table, handle)
}

fn remove(pipeline: &mut Pipeline, table: usize, handle: i32) -> TableResult<Removed> {
    let key = lookup::entry(pipeline, table, handle)?.entry.key;
    let removed = pipeline.table_delete(table, &key);
    removed.map_err(|error| lookup::of_entry(&error))?;
    Ok((table, key))
}

/// Removes entries of a table, some at a time. Returns the table's number when it has none.
pub(super) fn clear_piece(
    program: &mut Program,
    table: &str,
    also_default: bool,
) -> TableResult<Option<usize>> {
    let pipeline = program.pipeline_mut();
    let (table, info) = lookup::table(pipeline, table)?;
    writable(info)?;
    for handled in pipeline.handled_entries(table, 0, ENTRIES_PER_PIECE).items {
        let removed = pipeline.table_delete(table, &handled.entry.key);
        removed.map_err(|error| lookup::of_entry(&error))?;
    }
    let is_empty = pipeline.handled_entries(table, 0, 1).items.is_empty();
    if is_empty {
        let forgotten = pipeline.handles_forget(table);
        forgotten.map_err(|error| lookup::of_entry(&error))?;
        if also_default {
            let reset = pipeline.table_set_default(table, None);
            reset.map_err(|error| lookup::of_entry(&error))?;
        }
    }
    Ok(is_empty.then_some(table))
}

pub(super) fn set_timeout(
    program: &mut Program,
    table: &str,
    handle: i32,
    timeout_ms: i32,
) -> TableResult<()> {
    let pipeline = program.pipeline();
    let (table, info) = lookup::table(pipeline, table)?;
    if !info.idle_timeout {
        return Err(refused(Code::AGEING_DISABLED));
    }
    let key = lookup::entry_at(pipeline, table, handle)?.entry.key;
    let timeout_ns = u64::from(timeout_ms.cast_unsigned()) * 1_000_000;
    let set = program.idle_timeout_set(table, &key, timeout_ns);
    set.map_err(|error| lookup::of_entry(&error))
}

pub(super) fn set_default(
    program: &mut Program,
    table: &str,
    action: &str,
    data: &[Vec<u8>],
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (table, info) = lookup::direct(pipeline, table)?;
    let action = lookup::action(pipeline, info, action)?;
    if info.const_default {
        return Err(refused(Code::DEFAULT_ENTRY_IS_CONST));
    }
    let call = values::call(pipeline, action, data)?;
    let set = pipeline.table_set_default(table, Some(&call));
    set.map_err(|error| lookup::of_entry(&error))
}

pub(super) fn reset_default(program: &mut Program, table: &str) -> TableResult<()> {
    let (table, _) = lookup::direct(program.pipeline(), table)?;
    let reset = program.pipeline_mut().table_set_default(table, None);
    reset.map_err(|error| lookup::of_entry(&error))
}

/// The target of an entry of a table with an action profile, as a client gives it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Member(i32),
    Group(i32),
}

impl Target {
    /// Finds the table, its profile and the member or group. `handle`: first, an entry must exist.
    fn find(
        self,
        pipeline: &Pipeline,
        table: &str,
        handle: Option<i32>,
    ) -> TableResult<(usize, IndirectAction, Option<EntryKey>)> {
        let (table, profile) = match self {
            Self::Member(_) => lookup::indirect(pipeline, table)?,
            Self::Group(_) => lookup::with_selector(pipeline, table)?,
        };
        let key = handle.map(|handle| lookup::entry(pipeline, table, handle));
        let key = key.transpose()?.map(|handled| handled.entry.key);
        let action = match self {
            Self::Member(handle) => {
                let invalid = || refused(Code::INVALID_MBR_HANDLE);
                let id = id_of(handle).ok_or_else(invalid)?;
                pipeline.member(profile, id).map_err(|_| invalid())?;
                IndirectAction::Member(id)
            }
            Self::Group(handle) => {
                let invalid = || refused(Code::INVALID_GRP_HANDLE);
                let id = id_of(handle).ok_or_else(invalid)?;
                pipeline.group(profile, id).map_err(|_| invalid())?;
                IndirectAction::Group(id)
            }
        };
        Ok((table, action, key))
    }

    /// Refuses a group without members.
    fn check_not_empty(
        action: &IndirectAction,
        pipeline: &Pipeline,
        table: usize,
    ) -> TableResult<()> {
        let profile = pipeline.tables().get(table).and_then(|info| info.profile);
        let (IndirectAction::Group(id), Some(profile)) = (action, profile) else {
            return Ok(());
        };
        match pipeline.group(profile, *id) {
            Ok(group) if group.members.is_empty() => Err(refused(Code::EMPTY_GRP)),
            _ => Ok(()),
        }
    }
}

/// P4Runtime's id of a member or group: it begins at 1, BMv2's handles at 0.
pub(super) fn id_of(handle: i32) -> Option<u32> {
    u32::try_from(handle).ok()?.checked_add(1)
}

/// BMv2's handle of a member or group.
pub(super) fn handle_of(id: u32) -> i32 {
    id.wrapping_sub(1).cast_signed()
}

pub(super) fn indirect_add(
    program: &mut Program,
    table: &str,
    key: &[BmMatchParam],
    target: Target,
    priority: i32,
) -> TableResult<i32> {
    let pipeline = program.pipeline_mut();
    let (table, action, _) = target.find(pipeline, table, None)?;
    Target::check_not_empty(&action, pipeline, table)?;
    let info = pipeline.tables().get(table);
    let info = info.ok_or_else(|| refused(Code::ERROR))?;
    let key = keys::entry_key(info, key, priority)?;
    insert(pipeline, table, &key, &action.into())
}

pub(super) fn indirect_modify(
    program: &mut Program,
    table: &str,
    handle: i32,
    target: Target,
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (table, action, key) = target.find(pipeline, table, Some(handle))?;
    Target::check_not_empty(&action, pipeline, table)?;
    let key = key.ok_or_else(|| refused(Code::ERROR))?;
    let modified = pipeline.table_modify(table, &key, &action.into());
    modified.map_err(|error| lookup::of_entry(&error))
}

pub(super) fn indirect_set_default(
    program: &mut Program,
    table: &str,
    target: Target,
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (number, _) = lookup::indirect(pipeline, table)?;
    let info = pipeline.tables().get(number);
    if info.is_some_and(|info| info.const_default) {
        return Err(refused(Code::DEFAULT_ENTRY_IS_CONST));
    }
    let (table, action, _) = target.find(pipeline, table, None)?;
    let set = pipeline.table_set_default_indirect(table, &action);
    set.map_err(|error| lookup::of_entry(&error))
}

pub(super) fn indirect_reset_default(program: &mut Program, table: &str) -> TableResult<()> {
    let (table, _) = lookup::indirect(program.pipeline(), table)?;
    let reset = program.pipeline_mut().table_set_default(table, None);
    reset.map_err(|error| lookup::of_entry(&error))
}
