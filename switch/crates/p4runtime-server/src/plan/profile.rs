//! Members and groups of action profiles (specification, section "ActionProfileMember &
//! ActionProfileGroup").

use super::planned::{Kind, Planned};
use crate::error::{UpdateError, UpdateResult};
use crate::ids::nonzero;
use crate::operation::Operation;
use crate::proto::p4::v1 as p4;
use crate::translate::BoundPipeline;

/// A member.
pub(super) fn member(
    pipeline: &BoundPipeline,
    kind: Kind,
    given: &p4::ActionProfileMember,
) -> UpdateResult<Planned> {
    let profile = pipeline.profile(given.action_profile_id)?;
    let member = nonzero(given.member_id, &profile.name, "member_id")?;
    let change = kind.change(|| {
        let Some(action) = &given.action else {
            return Err(UpdateError::invalid(format!(
                "{}: member {member}: action: not given, an action expected",
                profile.name
            )));
        };
        pipeline.table_of(profile)?.action_call(action, false)
    })?;
    let operation = Operation::Member {
        profile: profile.index,
        member,
        change,
    };
    Ok(Planned::only(operation, &profile.name))
}

/// A group.
pub(super) fn group(
    pipeline: &BoundPipeline,
    kind: Kind,
    given: &p4::ActionProfileGroup,
) -> UpdateResult<Planned> {
    let profile = pipeline.profile(given.action_profile_id)?;
    if !profile.selector {
        return Err(UpdateError::invalid(format!(
            "{}: the action profile has no selector, and so no groups",
            profile.name
        )));
    }
    let operation = Operation::Group {
        profile: profile.index,
        group: nonzero(given.group_id, &profile.name, "group_id")?,
        change: kind.change(|| profile.group(given))?,
    };
    Ok(Planned::only(operation, &profile.name))
}
