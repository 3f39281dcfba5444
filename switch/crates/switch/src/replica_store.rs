//! Multicast groups and mirror sessions (P4Runtime's clone sessions) of the packet replication
//! engine, by id.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use v1model::entries::{ControlError, ControlResult, Page};

/// Ids of multicast groups: 16 bits; 0 is no group.
const GROUP_IDS: RangeInclusive<u32> = 1..=0xFFFF;

/// Ids of mirror sessions: 15 bits. P4Runtime does not use 0.
const SESSION_IDS: RangeInclusive<u32> = 0..=0x7FFF;

/// The limits of replication.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Most groups at once, and most mirror sessions.
    pub groups: usize,
    /// Most replicas in a group or session.
    pub replicas: usize,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            groups: 4096,
            replicas: 512,
        }
    }
}

/// A replica of a multicast group: one copy to `port`, with replication id `rid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Replica {
    /// Egress port.
    pub port: u32,
    /// Seen by the program as `standard_metadata.egress_rid`.
    pub rid: u16,
}

/// A mirror session (P4Runtime's clone session): the destinations of clones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloneSession {
    /// One copy each.
    pub replicas: Vec<Replica>,
    /// Class of service, kept for the controller.
    pub class_of_service: u32,
    /// Most bytes of a copy; 0 for all.
    pub packet_length_bytes: u32,
}

/// The packet replication engine (P4Runtime specification, section "PacketReplicationEngineEntry"):
/// multicast groups and mirror sessions.
pub(crate) struct ReplicationEngine {
    pub(crate) groups: ReplicaStore<Vec<Replica>>,
    pub(crate) mirrors: ReplicaStore<CloneSession>,
}

impl ReplicationEngine {
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self {
            groups: ReplicaStore::of_groups(limits),
            mirrors: ReplicaStore::of_sessions(limits),
        }
    }
}

/// An object that lists replicas.
pub trait Replicated {
    /// The replicas, in the order given.
    fn replicas(&self) -> &[Replica];
}

impl Replicated for Vec<Replica> {
    fn replicas(&self) -> &[Replica] {
        self
    }
}

impl Replicated for CloneSession {
    fn replicas(&self) -> &[Replica] {
        &self.replicas
    }
}

/// Multicast groups (`T`: their replicas in the order given) or mirror sessions, by id.
#[derive(Debug)]
pub struct ReplicaStore<T> {
    /// Name of an object in errors.
    name: &'static str,
    ids: RangeInclusive<u32>,
    limits: GroupLimits,
    objects: BTreeMap<u32, T>,
}

impl ReplicaStore<Vec<Replica>> {
    pub(crate) fn of_groups(limits: GroupLimits) -> Self {
        Self::new("multicast group", GROUP_IDS, limits)
    }
}

impl ReplicaStore<CloneSession> {
    pub(crate) fn of_sessions(limits: GroupLimits) -> Self {
        Self::new("clone session", SESSION_IDS, limits)
    }
}

impl<T: Clone> ReplicaStore<T> {
    fn new(name: &'static str, ids: RangeInclusive<u32>, limits: GroupLimits) -> Self {
        Self {
            name,
            ids,
            limits,
            objects: BTreeMap::new(),
        }
    }

    /// The object with this id.
    ///
    /// # Errors
    /// [`NotFound`](ControlError::NotFound).
    pub fn get(&self, id: u32) -> ControlResult<&T> {
        self.objects.get(&id).ok_or_else(|| self.unknown(id))
    }

    /// At most `most` objects by id, from id `from` on; [`Page::next`] continues.
    pub fn page(&self, from: u64, most: usize) -> Page<(u32, T)> {
        let Ok(from) = u32::try_from(from) else {
            return Page::default();
        };
        let objects = self.objects.range(from..);
        let objects = objects.map(|(id, object)| (u64::from(*id), (*id, object.clone())));
        Page::of(objects, most)
    }

    pub(crate) fn delete(&mut self, id: u32) -> ControlResult<()> {
        match self.objects.remove(&id) {
            Some(_) => Ok(()),
            None => Err(self.unknown(id)),
        }
    }

    fn unknown(&self, id: u32) -> ControlError {
        ControlError::NotFound(format!("no {} {id}", self.name))
    }
}

impl<T: Clone + Replicated> ReplicaStore<T> {
    /// The object with this id, for a packet.
    pub(crate) fn find(&self, id: u16) -> Option<&T> {
        self.objects.get(&u32::from(id))
    }

    /// The replicas of an object. An unknown object has none.
    pub(crate) fn replicas(&self, id: u16) -> &[Replica] {
        self.find(id).map_or(&[], Replicated::replicas)
    }

    pub(crate) fn insert(&mut self, id: u32, object: T) -> ControlResult<()> {
        let name = self.name;
        if self.objects.contains_key(&id) {
            return Err(ControlError::AlreadyExists(format!(
                "{name} {id} exists already"
            )));
        }
        if self.objects.len() >= self.limits.groups {
            return Err(ControlError::ResourceExhausted(format!(
                "{name} {id}: the switch holds at most {} of them",
                self.limits.groups
            )));
        }
        self.check(id, &object)?;
        self.objects.insert(id, object);
        Ok(())
    }

    pub(crate) fn modify(&mut self, id: u32, object: T) -> ControlResult<()> {
        self.check(id, &object)?;
        let Some(kept) = self.objects.get_mut(&id) else {
            return Err(self.unknown(id));
        };
        *kept = object;
        Ok(())
    }

    /// Refuses ids out of range, too many replicas and repeated ones.
    fn check(&self, id: u32, object: &T) -> ControlResult<()> {
        let (name, most) = (self.name, self.limits.replicas);
        if !self.ids.contains(&id) {
            return Err(ControlError::InvalidArgument(format!(
                "{name} {id}: ids are {} to {}",
                self.ids.start(),
                self.ids.end()
            )));
        }
        let mut replicas = object.replicas().to_vec();
        if replicas.len() > most {
            return Err(ControlError::ResourceExhausted(format!(
                "{name} {id}: {} replicas given, at most {most} expected",
                replicas.len(),
            )));
        }
        replicas.sort_unstable();
        if let Some(pair) = replicas.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ControlError::InvalidArgument(format!(
                "{name} {id}: port {} with instance {} is given twice",
                pair[0].port, pair[0].rid
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u32, rid: u16) -> Replica {
        Replica { port, rid }
    }

    #[test]
    fn a_refused_change_leaves_the_group_as_it_was() {
        let mut groups = ReplicaStore::of_groups(GroupLimits {
            groups: 1,
            replicas: 2,
        });
        groups
            .insert(1, vec![replica(1, 1), replica(2, 1)])
            .expect("first group");
        assert!(matches!(
            groups.insert(1, vec![]),
            Err(ControlError::AlreadyExists(_))
        ));
        assert!(matches!(
            groups.insert(2, vec![]),
            Err(ControlError::ResourceExhausted(_))
        ));
        assert!(matches!(
            groups.modify(1, vec![replica(3, 1), replica(3, 1)]),
            Err(ControlError::InvalidArgument(_))
        ));
        assert!(matches!(
            groups.modify(1, vec![replica(1, 1), replica(2, 1), replica(3, 1)]),
            Err(ControlError::ResourceExhausted(_))
        ));
        assert_eq!(groups.replicas(1), [replica(1, 1), replica(2, 1)]);
    }

    #[test]
    fn ids_outside_the_field_are_refused() {
        let mut groups = ReplicaStore::of_groups(GroupLimits::default());
        for id in [0, 0x1_0000] {
            assert!(matches!(
                groups.insert(id, vec![]),
                Err(ControlError::InvalidArgument(_))
            ));
        }
        assert!(matches!(groups.delete(7), Err(ControlError::NotFound(_))));
        assert!(groups.replicas(7).is_empty());
    }
}
