//! Messages that a switch sends its controllers by itself.

use v1model::entries::digest::{DigestList, IdleEntry};

/// A message for the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Time in nanoseconds of the switch's clock.
    pub at_ns: u64,
    /// Its content.
    pub body: NotificationBody,
}

/// The content of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotificationBody {
    /// Digest messages.
    Digests(DigestList),
    /// Entries that have had no packet for as long as their timeout since the last packet or the
    /// last notification. Never empty.
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
