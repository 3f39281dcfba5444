//! Members and groups of action profiles.
//!
//! Clients of P4Runtime choose ids from 1 on; BMv2 numbers members and groups from 0 on, by the lowest
//! handle that is free. A handle is the id less one.

use bmv2_thrift::standard::{BmMtActProfGroup, BmMtActProfMember, TableOperationErrorCode as Code};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::profile::{GroupMember, ProfileGroup, ProfileMember};
use v1model::entries::{ActionCall, ControlError};

use super::entries::{handle_of, id_of};
use super::lookup::{self, TableResult, refused};
use super::values;

/// Members or groups read between two looks at whether a visit is over.
const OBJECTS_PER_PIECE: usize = 32;

/// Why the switch has refused a change that BMv2's own checks have let pass.
fn of_profile(error: &ControlError, in_use: Code) -> bmv2_thrift::standard::InvalidTableOperation {
    tracing::debug!(%error, "refused");
    refused(match error {
        ControlError::FailedPrecondition(_) => in_use,
        ControlError::ResourceExhausted(_) => Code::TABLE_FULL,
        _ => Code::ERROR,
    })
}

/// A call of an action that all tables of a profile have.
fn call(
    pipeline: &Pipeline,
    profile: &str,
    action: &str,
    data: &[Vec<u8>],
) -> TableResult<(usize, ActionCall)> {
    let (number, info) = lookup::profile(pipeline, profile)?;
    let tables = info.tables.iter();
    let mut tables = tables.filter_map(|table| pipeline.tables().get(*table));
    let of_tables = tables.find_map(|table| lookup::action(pipeline, table, action).ok());
    let action = of_tables.ok_or_else(|| refused(Code::INVALID_ACTION_NAME))?;
    Ok((number, values::call(pipeline, action, data)?))
}

/// Adds a member with the lowest handle that is free.
pub(super) fn add_member(
    program: &mut Program,
    profile: &str,
    action: &str,
    data: &[Vec<u8>],
) -> TableResult<i32> {
    let pipeline = program.pipeline_mut();
    let (profile, call) = call(pipeline, profile, action, data)?;
    let id = pipeline.free_member_id(profile);
    let id = id.ok_or_else(|| refused(Code::TABLE_FULL))?;
    let added = pipeline.member_insert(profile, &ProfileMember { id, call });
    added.map_err(|error| of_profile(&error, Code::ERROR))?;
    Ok(handle_of(id))
}

/// A member that exists: its profile's number and its id.
fn member(pipeline: &Pipeline, profile: &str, handle: i32) -> TableResult<(usize, u32)> {
    let (profile, _) = lookup::profile(pipeline, profile)?;
    let id = id_of(handle).filter(|id| pipeline.member(profile, *id).is_ok());
    let id = id.ok_or_else(|| refused(Code::INVALID_MBR_HANDLE))?;
    Ok((profile, id))
}

/// A group that exists.
fn group(pipeline: &Pipeline, profile: usize, handle: i32) -> TableResult<ProfileGroup> {
    let group = id_of(handle).and_then(|id| pipeline.group(profile, id).ok());
    group.ok_or_else(|| refused(Code::INVALID_GRP_HANDLE))
}

pub(super) fn modify_member(
    program: &mut Program,
    profile: &str,
    handle: i32,
    action: &str,
    data: &[Vec<u8>],
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (_, call) = call(pipeline, profile, action, data)?;
    let (profile, id) = member(pipeline, profile, handle)?;
    let modified = pipeline.member_modify(profile, &ProfileMember { id, call });
    modified.map_err(|error| of_profile(&error, Code::ERROR))
}

pub(super) fn delete_member(program: &mut Program, profile: &str, handle: i32) -> TableResult<()> {
    let (profile, id) = member(program.pipeline(), profile, handle)?;
    let deleted = program.pipeline_mut().member_delete(profile, id);
    deleted.map_err(|error| of_profile(&error, Code::MBR_STILL_USED))
}

/// Creates a group with the lowest handle that is free.
pub(super) fn create_group(program: &mut Program, profile: &str) -> TableResult<i32> {
    let pipeline = program.pipeline_mut();
    let (profile, info) = lookup::profile(pipeline, profile)?;
    if !info.selector {
        return Err(refused(Code::NO_ACTION_PROFILE_SELECTION));
    }
    let id = pipeline.free_group_id(profile);
    let id = id.ok_or_else(|| refused(Code::TABLE_FULL))?;
    let group = ProfileGroup {
        id,
        max_size: 0,
        members: Vec::new(),
    };
    let created = pipeline.group_insert(profile, &group);
    created.map_err(|error| of_profile(&error, Code::ERROR))?;
    Ok(handle_of(id))
}

pub(super) fn delete_group(program: &mut Program, profile: &str, handle: i32) -> TableResult<()> {
    let (profile, _) = lookup::profile(program.pipeline(), profile)?;
    let id = group(program.pipeline(), profile, handle)?.id;
    let deleted = program.pipeline_mut().group_delete(profile, id);
    deleted.map_err(|error| of_profile(&error, Code::GRP_STILL_USED))
}

pub(super) fn add_to_group(
    program: &mut Program,
    profile: &str,
    member_handle: i32,
    group_handle: i32,
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (profile, id) = member(pipeline, profile, member_handle)?;
    let mut group = group(pipeline, profile, group_handle)?;
    if group.members.iter().any(|member| member.member == id) {
        return Err(refused(Code::MBR_ALREADY_IN_GRP));
    }
    group.members.push(GroupMember {
        member: id,
        weight: 1,
        watch: None,
    });
    let modified = pipeline.group_modify(profile, &group);
    modified.map_err(|error| of_profile(&error, Code::ERROR))
}

pub(super) fn remove_from_group(
    program: &mut Program,
    profile: &str,
    member_handle: i32,
    group_handle: i32,
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (profile, id) = member(pipeline, profile, member_handle)?;
    let mut group = group(pipeline, profile, group_handle)?;
    let before = group.members.len();
    group.members.retain(|member| member.member != id);
    if group.members.len() == before {
        return Err(refused(Code::MBR_NOT_IN_GRP));
    }
    let modified = pipeline.group_modify(profile, &group);
    modified.map_err(|error| of_profile(&error, Code::ERROR))
}

fn told_member(pipeline: &Pipeline, member: &ProfileMember) -> BmMtActProfMember {
    let (name, data) = values::told(pipeline, &member.call);
    BmMtActProfMember::new(handle_of(member.id), name, data)
}

fn told_group(group: &ProfileGroup) -> BmMtActProfGroup {
    let mut members: Vec<i32> = group.members.iter().map(|m| handle_of(m.member)).collect();
    members.sort_unstable();
    BmMtActProfGroup::new(handle_of(group.id), members)
}

pub(super) fn get_member(
    program: &Program,
    profile: &str,
    handle: i32,
) -> TableResult<BmMtActProfMember> {
    let pipeline = program.pipeline();
    let (profile, id) = member(pipeline, profile, handle)?;
    let member = pipeline.member(profile, id);
    let member = member.map_err(|error| of_profile(&error, Code::ERROR))?;
    Ok(told_member(pipeline, &member))
}

pub(super) fn get_group(
    program: &Program,
    profile: &str,
    handle: i32,
) -> TableResult<BmMtActProfGroup> {
    let pipeline = program.pipeline();
    let (profile, _) = lookup::profile(pipeline, profile)?;
    group(pipeline, profile, handle).map(|group| told_group(&group))
}

/// Number of members; 0 of a profile that does not exist.
pub(super) fn member_count(program: &Program, profile: &str) -> usize {
    let pipeline = program.pipeline();
    let found = lookup::profile(pipeline, profile).ok();
    found.map_or(0, |(profile, _)| {
        pipeline.member_count(profile).unwrap_or(0)
    })
}

/// As [`member_count`], of groups.
pub(super) fn group_count(program: &Program, profile: &str) -> usize {
    let pipeline = program.pipeline();
    let found = lookup::profile(pipeline, profile).ok();
    found.map_or(0, |(profile, _)| pipeline.group_count(profile).unwrap_or(0))
}

/// Some members by handle, and where to go on; none of a profile that does not exist.
pub(super) fn members(
    program: &Program,
    profile: &str,
    from: u64,
) -> (Vec<BmMtActProfMember>, Option<u64>) {
    let pipeline = program.pipeline();
    let Ok((profile, _)) = lookup::profile(pipeline, profile) else {
        return (Vec::new(), None);
    };
    let page = pipeline.members(profile, from, OBJECTS_PER_PIECE);
    let members = page.items.iter();
    let members = members.map(|member| told_member(pipeline, member));
    (members.collect(), page.next)
}

/// As [`members`], of groups.
pub(super) fn groups(
    program: &Program,
    profile: &str,
    from: u64,
) -> (Vec<BmMtActProfGroup>, Option<u64>) {
    let pipeline = program.pipeline();
    let Ok((profile, _)) = lookup::profile(pipeline, profile) else {
        return (Vec::new(), None);
    };
    let page = pipeline.groups(profile, from, OBJECTS_PER_PIECE);
    (page.items.iter().map(told_group).collect(), page.next)
}
