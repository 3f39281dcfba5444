//! Action profiles and selectors: tables whose entries name a member or a group instead of an
//! action.

use crate::control::ActionCall;

/// An action profile's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Most members.
    pub size: usize,
    /// Has groups, among whose members a hash of the packet chooses.
    pub selector: bool,
    /// Tables that use it, by index.
    pub tables: Vec<usize>,
}

/// What an entry of a table with an action profile does.
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
    /// Port that the action depends on, kept for the controller.
    pub watch_port: Vec<u8>,
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
    /// Limit on the sum of weights that the controller gave; 0 for none.
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
    /// Port that the member depends on, kept for the controller.
    pub watch_port: Vec<u8>,
}
