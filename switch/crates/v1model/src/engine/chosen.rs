//! The choice of an action by a table.

/// The result of a packet's look-up in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The table's number of an action.
    Action(usize),
    /// There is no default action, or no member of a group whose port is up.
    Nothing,
    /// A case that cannot happen.
    Fault,
}
