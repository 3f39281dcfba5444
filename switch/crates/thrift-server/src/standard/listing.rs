//! Entries as clients see them.

use bmv2_thrift::standard::{
    BmActionEntry, BmActionEntryType as Type, BmAddEntryOptions, BmMatchParam, BmMtEntry,
    BmMtEntryLife,
};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::digest::IdleTimeout;
use v1model::entries::profile::IndirectAction;
use v1model::entries::{ActionCall, Handled, TableInfo};

use super::entries::handle_of;
use super::keys;
use super::lookup::{self, TableResult, refused};
use super::values;
use bmv2_thrift::standard::TableOperationErrorCode as Code;

/// Entries read between two looks at whether a visit is over.
pub(super) const ENTRIES_PER_PIECE: usize = 16;

fn action_entry(kind: Type) -> BmActionEntry {
    BmActionEntry::new(kind, None, None, None, None)
}

/// What BMv2 tells of a table that does not exist, and of one without a default entry.
pub(super) fn no_action() -> BmActionEntry {
    action_entry(Type::NONE)
}

fn told_action(
    pipeline: &Pipeline,
    call: Option<&ActionCall>,
    indirect: Option<&IndirectAction>,
) -> BmActionEntry {
    match (indirect, call) {
        (Some(IndirectAction::Member(id)), _) => BmActionEntry {
            mbr_handle: Some(handle_of(*id)),
            ..action_entry(Type::MBR_HANDLE)
        },
        (Some(IndirectAction::Group(id)), _) => BmActionEntry {
            grp_handle: Some(handle_of(*id)),
            ..action_entry(Type::GRP_HANDLE)
        },
        // Of a one-shot set, which BMv2 does not have, the first action.
        (Some(IndirectAction::OneShot(_)) | None, Some(call)) => {
            let (name, data) = values::told(pipeline, call);
            BmActionEntry {
                action_name: Some(name),
                action_data: Some(data),
                ..action_entry(Type::ACTION_DATA)
            }
        }
        (_, None) => no_action(),
    }
}

/// An entry without anything: what BMv2 tells of a table that does not exist.
pub(super) fn no_entry() -> BmMtEntry {
    BmMtEntry {
        match_key: Some(Vec::new()),
        options: Some(BmAddEntryOptions::new(None)),
        entry_handle: Some(0),
        action_entry: Some(no_action()),
        life: None,
    }
}

fn milliseconds(ns: u64) -> i32 {
    ((ns / 1_000_000) as u32).cast_signed()
}

fn life(idle: IdleTimeout) -> Option<BmMtEntryLife> {
    (idle.timeout_ns > 0).then(|| {
        BmMtEntryLife::new(
            milliseconds(idle.timeout_ns),
            milliseconds(idle.since_hit_ns),
        )
    })
}

fn told_entry(pipeline: &Pipeline, info: &TableInfo, handled: &Handled) -> BmMtEntry {
    let Handled { handle, entry } = handled;
    let (key, priority) = keys::told_key(info, &entry.key);
    BmMtEntry {
        match_key: Some(key),
        options: Some(BmAddEntryOptions::new(priority)),
        entry_handle: Some(handle.cast_signed()),
        action_entry: Some(told_action(
            pipeline,
            Some(&entry.action),
            entry.indirect.as_ref(),
        )),
        life: entry.idle.and_then(life),
    }
}

/// Number of a table's entries; `None`: no such table.
pub(super) fn count(program: &Program, table: &str) -> Option<usize> {
    let pipeline = program.pipeline();
    let (table, _) = lookup::table(pipeline, table).ok()?;
    pipeline.table_len(table).ok()
}

/// Some entries of a table by index, and where to go on.
pub(super) fn page(
    program: &Program,
    table: &str,
    from: u32,
) -> TableResult<(Vec<BmMtEntry>, Option<u32>)> {
    let pipeline = program.pipeline();
    let (table, info) = lookup::table(pipeline, table)?;
    let page = pipeline.handled_entries(table, from, ENTRIES_PER_PIECE);
    let entries = page.items.iter();
    let entries = entries.map(|handled| told_entry(pipeline, info, handled));
    let next = page.next.and_then(|next| u32::try_from(next).ok());
    Ok((entries.collect(), next))
}

/// The entry of a handle.
pub(super) fn by_handle(program: &Program, table: &str, handle: i32) -> TableResult<BmMtEntry> {
    let pipeline = program.pipeline();
    let Ok((table, info)) = lookup::table(pipeline, table) else {
        return Ok(no_entry());
    };
    let handled = lookup::entry(pipeline, table, handle)?;
    Ok(told_entry(pipeline, info, &handled))
}

/// The entry of a key.
pub(super) fn by_key(
    program: &Program,
    table: &str,
    key: &[BmMatchParam],
    priority: i32,
) -> TableResult<BmMtEntry> {
    let pipeline = program.pipeline();
    let Ok((table, info)) = lookup::table(pipeline, table) else {
        return Ok(no_entry());
    };
    let key = keys::entry_key(info, key, priority)?;
    let unknown = |_| refused(Code::BAD_MATCH_KEY);
    let handle = pipeline.entry_handle(table, &key).map_err(unknown)?;
    let entry = pipeline.table_entry(table, &key).map_err(unknown)?;
    Ok(told_entry(pipeline, info, &Handled { handle, entry }))
}

/// The default entry.
pub(super) fn default(program: &Program, table: &str) -> TableResult<BmActionEntry> {
    let pipeline = program.pipeline();
    let Ok((table, info)) = lookup::table(pipeline, table) else {
        return Ok(no_action());
    };
    let default = pipeline.table_default(table);
    let default = default.map_err(|error| lookup::of_entry(&error))?;
    // BMv2 tells nothing of the action that the program gives a table with an action profile.
    let call = default.action.as_ref().filter(|_| info.profile.is_none());
    Ok(told_action(pipeline, call, default.indirect.as_ref()))
}
