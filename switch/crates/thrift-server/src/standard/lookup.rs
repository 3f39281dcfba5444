//! Finds what BMv2 names: tables, actions, action profiles and entries by their handles.

use bmv2_thrift::standard::{InvalidTableOperation, TableOperationErrorCode as Code};
use v1model::Pipeline;
use v1model::entries::profile::ProfileInfo;
use v1model::entries::{ControlError, Handled, TableInfo};

pub(super) type TableResult<T> = Result<T, InvalidTableOperation>;

pub(super) fn refused(code: Code) -> InvalidTableOperation {
    InvalidTableOperation::new(code)
}

/// The object of this name, with its number.
pub(super) fn named<'a, T>(
    objects: &'a [T],
    name: &str,
    name_of: impl Fn(&T) -> &str,
) -> Option<(usize, &'a T)> {
    let mut numbered = objects.iter().enumerate();
    numbered.find(|(_, object)| name_of(object) == name)
}

/// Any table.
pub(super) fn table<'a>(pipeline: &'a Pipeline, name: &str) -> TableResult<(usize, &'a TableInfo)> {
    named(pipeline.tables(), name, |table| &table.name)
        .ok_or_else(|| refused(Code::INVALID_TABLE_NAME))
}

/// A table whose entries have actions.
pub(super) fn direct<'a>(
    pipeline: &'a Pipeline,
    name: &str,
) -> TableResult<(usize, &'a TableInfo)> {
    let found = table(pipeline, name)?;
    match found.1.profile {
        None => Ok(found),
        Some(_) => Err(refused(Code::WRONG_TABLE_TYPE)),
    }
}

/// A table whose entries name members, with the number of its action profile.
pub(super) fn indirect(pipeline: &Pipeline, name: &str) -> TableResult<(usize, usize)> {
    let (number, info) = table(pipeline, name)?;
    let profile = info.profile.ok_or_else(|| refused(Code::WRONG_TABLE_TYPE));
    Ok((number, profile?))
}

/// A table whose entries may name groups, with the number of its action profile.
pub(super) fn with_selector(pipeline: &Pipeline, name: &str) -> TableResult<(usize, usize)> {
    let found = indirect(pipeline, name)?;
    match pipeline.profiles().get(found.1) {
        Some(profile) if profile.selector => Ok(found),
        _ => Err(refused(Code::WRONG_TABLE_TYPE)),
    }
}

/// An action profile.
pub(super) fn profile<'a>(
    pipeline: &'a Pipeline,
    name: &str,
) -> TableResult<(usize, &'a ProfileInfo)> {
    named(pipeline.profiles(), name, |profile| &profile.name)
        .ok_or_else(|| refused(Code::INVALID_ACTION_PROFILE_NAME))
}

/// One of a table's actions.
pub(super) fn action(pipeline: &Pipeline, table: &TableInfo, name: &str) -> TableResult<usize> {
    let named = |action: &&usize| {
        let info = pipeline.actions().get(**action);
        info.is_some_and(|info| info.name == name)
    };
    let found = table.actions.iter().find(named);
    found
        .copied()
        .ok_or_else(|| refused(Code::INVALID_ACTION_NAME))
}

/// The entry with this handle.
pub(super) fn entry(pipeline: &Pipeline, table: usize, handle: i32) -> TableResult<Handled> {
    let found = entry_at(pipeline, table, handle)?;
    if found.handle == handle.cast_unsigned() {
        return Ok(found);
    }
    Err(refused(Code::EXPIRED_HANDLE))
}

/// The entry at the index of this handle, with any version, for calls in which BMv2 ignores the version.
pub(super) fn entry_at(pipeline: &Pipeline, table: usize, handle: i32) -> TableResult<Handled> {
    pipeline
        .handled_entry(table, handle.cast_unsigned())
        .ok_or_else(|| refused(Code::INVALID_HANDLE))
}

/// Why the switch has refused a change of an entry that BMv2's own checks have let pass.
pub(super) fn of_entry(error: &ControlError) -> InvalidTableOperation {
    tracing::debug!(%error, "refused");
    refused(match error {
        ControlError::AlreadyExists(_) => Code::DUPLICATE_ENTRY,
        ControlError::ResourceExhausted(_) => Code::TABLE_FULL,
        ControlError::PermissionDenied(_) => Code::IMMUTABLE_TABLE_ENTRIES,
        ControlError::NotFound(_) => Code::INVALID_HANDLE,
        ControlError::InvalidArgument(_) => Code::BAD_MATCH_KEY,
        _ => Code::ERROR,
    })
}
