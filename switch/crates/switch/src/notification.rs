//! What a switch sends its controllers unasked.

use v1model::entries::digest::{DigestList, IdleEntry};

/// A message for the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// When, in nanoseconds of the switch's clock.
    pub at_ns: u64,
    /// What it says.
    pub body: NotificationBody,
}

/// What a notification says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationBody {
    /// Digest messages.
    Digests(DigestList),
    /// Entries without packets for as long as their timeouts, or again so long after they were
    /// last told. Never empty.
    Idle(Vec<IdleEntry>),
}

impl NotificationBody {
    /// Digest messages or entries in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Digests(list) => list.messages.len(),
            Self::Idle(entries) => entries.len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
