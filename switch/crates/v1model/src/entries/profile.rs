//! Action profiles and selectors: tables whose entries name a member or a group instead of an
//! action.

use super::action::ActionCall;
use super::error::{ControlResult, not_found};

/// An action profile's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Most members.
    pub size: usize,
    /// The profile has groups; a hash of the packet selects a member of a group.
    pub selector: bool,
    /// Tables that use it, by index.
    pub tables: Vec<usize>,
}

impl ProfileInfo {
    /// Refuses a request for a member that does not exist.
    pub(crate) fn no_member<T>(&self, id: u32) -> ControlResult<T> {
        not_found(format!("action profile '{}' has no member {id}", self.name))
    }

    /// Refuses a request for a group that does not exist.
    pub(crate) fn no_group<T>(&self, id: u32) -> ControlResult<T> {
        not_found(format!("action profile '{}' has no group {id}", self.name))
    }
}

/// The meaning of a profile's sizes (P4Info's `selector_size_semantics`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SizeSemantics {
    /// Weights of members, of one group and of all groups together.
    #[default]
    SumOfWeights,
    /// Members of one group and of all groups together, with any weights.
    SumOfMembers,
}

/// What P4Info, but not the program itself, says about a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProfileRules {
    /// Largest size of a group; 0: only the switch's own limit.
    pub max_group_size: u32,
    /// The meaning of sizes.
    pub semantics: SizeSemantics,
}

/// A port that a member of a group or an action of a one-shot set depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchPort {
    /// The port.
    pub port: u32,
    /// It was given in P4Runtime's older, numeric field, and is read back in the same way.
    pub numeric: bool,
}

/// The action of an entry in a table with an action profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndirectAction {
    /// Runs the member with this id.
    Member(u32),
    /// Runs a member of the group with this id.
    Group(u32),
    /// Runs one of these actions (P4Runtime's one-shot programming): chosen like the member of
    /// a group, by weight.
    OneShot(Vec<WeightedAction>),
}

/// An action of a one-shot set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedAction {
    /// The action with its arguments.
    pub call: ActionCall,
    /// Share of the packets, at least 1.
    pub weight: u32,
    /// Port that the action depends on: it is not chosen while the port is down.
    pub watch: Option<WatchPort>,
}

/// A member of an action profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileMember {
    /// Chosen by the controller.
    pub id: u32,
    /// The action with its arguments.
    pub call: ActionCall,
}

/// A group of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileGroup {
    /// Chosen by the controller.
    pub id: u32,
    /// Limit on the group's size that the controller gave; 0 for none.
    pub max_size: u32,
    /// The members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Id of a member of the same profile.
    pub member: u32,
    /// Share of the packets, at least 1.
    pub weight: u32,
    /// Port that the member depends on: it is not chosen while the port is down.
    pub watch: Option<WatchPort>,
}
