//! Errors that reads and writes share.

use crate::error::UpdateError;

/// The error for a packet replication engine entry with nothing in it.
pub(crate) fn empty_replication_entry() -> UpdateError {
    UpdateError::invalid(
        "packet_replication_engine_entry: empty, a multicast_group_entry or clone_session_entry \
         expected",
    )
}

/// The error for an entity that this switch does not have.
pub(crate) fn unimplemented_entity(name: &str) -> UpdateError {
    UpdateError::unimplemented(format!(
        "{name}: this entity is not implemented by this switch"
    ))
}
