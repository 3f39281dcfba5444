//! BMv2's mirror sessions: copies for a port, for the members of a multicast group, or for both.

use std::collections::BTreeMap;

use switch::Replica;

use crate::pre::Pre;

/// Highest number of a session.
const SESSION_MAX: u32 = 0x7FFF;

/// Where the copies of a session go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) port: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// The sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mirrors(BTreeMap<u32, Session>);

impl Mirrors {
    /// Adds or replaces a session. A number that no session can have is ignored, as BMv2 does; false
    /// then.
    pub(crate) fn add(&mut self, id: i32, session: Session) -> bool {
        let id = u32::try_from(id).ok().filter(|id| *id <= SESSION_MAX);
        id.is_some_and(|id| {
            self.0.insert(id, session);
            true
        })
    }

    /// Removes a session; false: there is none.
    pub(crate) fn delete(&mut self, id: i32) -> bool {
        let id = u32::try_from(id).ok();
        id.is_some_and(|id| self.0.remove(&id).is_some())
    }

    pub(crate) fn get(&self, id: i32) -> Option<Session> {
        self.0.get(&u32::try_from(id).ok()?).copied()
    }

    /// The sessions' numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// Where the copies of a session go, in order.
    pub(crate) fn replicas(&self, id: u32, pre: &Pre) -> Vec<Replica> {
        let session = self.0.get(&id).copied().unwrap_or_default();
        let port = session.port.map(|port| Replica { port, rid: 0 });
        let group = session.group.map(|group| pre.replicas(group));
        port.into_iter()
            .chain(group.into_iter().flatten())
            .collect()
    }

    /// Makes a session that of somebody else. Of several ports, the first is told.
    pub(crate) fn adopt(&mut self, id: u32, replicas: &[Replica]) {
        let session = Session {
            port: replicas.first().map(|replica| replica.port),
            group: None,
        };
        self.0.insert(id, session);
    }

    /// Removes a session that somebody else has removed.
    pub(crate) fn forget(&mut self, id: u32) {
        self.0.remove(&id);
    }
}
