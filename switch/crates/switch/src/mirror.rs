//! Mirror sessions (P4Runtime's clone sessions): where the clones go that a program asks for.

use std::collections::BTreeMap;

use crate::replication::{CloneSession, Replica};
use v1model::entries::{ControlError, ControlResult, Page};

use crate::multicast::{GroupLimits, check_replicas};

/// Session numbers of v1model: 15 bits.
const SESSION_MAX: u32 = 0x7FFF;

/// Mirror sessions by id.
pub(crate) struct MirrorSessions {
    limits: GroupLimits,
    sessions: BTreeMap<u32, CloneSession>,
}

impl MirrorSessions {
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
        }
    }

    /// The replicas of a session; an unknown session has none.
    pub(crate) fn replicas(&self, session: u16) -> &[Replica] {
        self.sessions
            .get(&u32::from(session))
            .map_or(&[], |session| &session.replicas)
    }

    /// Most bytes of a clone; 0 for all.
    pub(crate) fn packet_length_bytes(&self, session: u16) -> u32 {
        self.sessions
            .get(&u32::from(session))
            .map_or(0, |session| session.packet_length_bytes)
    }

    pub(crate) fn insert(&mut self, id: u32, session: &CloneSession) -> ControlResult<()> {
        if self.sessions.contains_key(&id) {
            return Err(ControlError::AlreadyExists(format!(
                "clone session {id} exists already"
            )));
        }
        if self.sessions.len() >= self.limits.groups {
            return Err(ControlError::ResourceExhausted(format!(
                "clone session {id}: the switch holds {} sessions at most",
                self.limits.groups
            )));
        }
        self.check(id, session)?;
        self.sessions.insert(id, session.clone());
        Ok(())
    }

    pub(crate) fn modify(&mut self, id: u32, session: &CloneSession) -> ControlResult<()> {
        self.check(id, session)?;
        match self.sessions.get_mut(&id) {
            Some(kept) => {
                *kept = session.clone();
                Ok(())
            }
            None => Err(unknown(id)),
        }
    }

    pub(crate) fn delete(&mut self, id: u32) -> ControlResult<()> {
        self.sessions
            .remove(&id)
            .map(|_| ())
            .ok_or_else(|| unknown(id))
    }

    pub(crate) fn session(&self, id: u32) -> ControlResult<CloneSession> {
        self.sessions.get(&id).cloned().ok_or_else(|| unknown(id))
    }

    pub(crate) fn page(&self, from: u64, most: usize) -> Page<(u32, CloneSession)> {
        let Ok(from) = u32::try_from(from) else {
            return Page::default();
        };
        let sessions = self.sessions.range(from..);
        Page::of(
            sessions.map(|(id, session)| (u64::from(*id), (*id, session.clone()))),
            most,
        )
    }

    fn check(&self, id: u32, session: &CloneSession) -> ControlResult<()> {
        if !(1..=SESSION_MAX).contains(&id) {
            return Err(ControlError::InvalidArgument(format!(
                "clone session {id}: ids are 1 to {SESSION_MAX}"
            )));
        }
        check_replicas(
            &format!("clone session {id}"),
            &session.replicas,
            self.limits.replicas,
        )
    }
}

fn unknown(id: u32) -> ControlError {
    ControlError::NotFound(format!("no clone session {id}"))
}
