//! The request of a program for a clone.

/// A clone that the program requested. Only the last request of a control counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRequest {
    /// Clone session (simple_switch keeps 15 bits of it).
    pub session: u16,
    /// The field list whose metadata the clone preserves, for
    /// [`crate::Pipeline::clone_from_ingress`] or [`crate::Pipeline::clone_from_egress`].
    pub field_list: u16,
}
