//! Tables and their entries.

use super::action::ActionCall;
use super::array::{CounterValue, MeterState, MeterUnit};
use super::digest::IdleTimeout;
use super::key::{EntryKey, KeyField};
use super::profile::IndirectAction;

/// A table's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Its number in the program's BMv2 JSON.
    pub json_id: u32,
    /// Key fields in order; empty for a keyless table.
    pub key: Vec<KeyField>,
    /// Actions that entries may use (indices into [`crate::Pipeline::actions`]).
    pub actions: Vec<usize>,
    /// The most entries that the table takes.
    pub size: usize,
    /// The program fixes the entries (`const entries`). Until
    /// [`crate::Pipeline::table_rules`] says otherwise, this holds for any entries that it has.
    pub const_entries: bool,
    /// The greatest priority that the program's BMv2 JSON gives one of its entries. There the lowest wins, so
    /// an entry with this number has priority 1 here.
    pub program_priority_max: i32,
    /// The program fixes the default action (`const default_action`).
    pub const_default: bool,
    /// The table has a direct counter.
    pub direct_counter: bool,
    /// The direct meter, if the table has one.
    pub direct_meter: Option<DirectMeterInfo>,
    /// Action profile whose members its entries name (index into [`crate::Pipeline::profiles`]).
    pub profile: Option<usize>,
    /// Entries may have idle timeouts.
    pub idle_timeout: bool,
}

/// A direct meter's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectMeterInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// The unit that it counts in.
    pub unit: MeterUnit,
}

/// The action of an entry for packets that match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryAction {
    /// Runs this action. For tables without an action profile.
    Call(ActionCall),
    /// Runs a member, a group or a one-shot set of the table's action profile.
    Indirect(IndirectAction),
}

impl From<ActionCall> for EntryAction {
    fn from(call: ActionCall) -> Self {
        Self::Call(call)
    }
}

impl From<IndirectAction> for EntryAction {
    fn from(action: IndirectAction) -> Self {
        Self::Indirect(action)
    }
}

/// An entry as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Match fields and priority.
    pub key: EntryKey,
    /// Action with arguments; in a table with an action profile, that of the member (of a
    /// group: of its first member).
    pub action: ActionCall,
    /// The member, group or one-shot set that the entry names, in a table with an action profile.
    pub indirect: Option<IndirectAction>,
    /// Direct counter, if the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, if the table has one.
    pub meter: Option<MeterState>,
    /// Idle timeout, if the table has them.
    pub idle: Option<IdleTimeout>,
}

/// An entry and its handle as BMv2 numbers entries: an index in the lower 24 bits, and how often the index was given to another
/// entry before (modulo 256).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// The handle.
    pub handle: u32,
    /// The entry.
    pub entry: TableEntry,
}

/// A table's default entry: the action for packets that no other entry matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultEntry {
    /// `None`: no action, a miss does nothing.
    pub action: Option<ActionCall>,
    /// A member or group that is run instead of the action, in a table with an action profile.
    pub indirect: Option<IndirectAction>,
    /// Direct counter, where the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, where the table has one.
    pub meter: Option<MeterState>,
}
