//! Multicast groups: the part of the P4Runtime packet replication engine that copies packets.

use std::collections::BTreeMap;

use crate::replication::Replica;
use v1model::entries::{ControlError, ControlResult, Page};

/// How large replication may get.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Most groups at once.
    pub groups: usize,
    /// Most replicas in one group.
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

/// Groups by id, replicas in the order in which they were given.
pub(crate) struct Groups {
    limits: GroupLimits,
    groups: BTreeMap<u32, Box<[Replica]>>,
}

impl Groups {
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self {
            limits,
            groups: BTreeMap::new(),
        }
    }

    /// The replicas of a group; an unknown group has none.
    pub(crate) fn replicas(&self, group: u16) -> &[Replica] {
        self.groups
            .get(&u32::from(group))
            .map_or(&[], |replicas| replicas)
    }

    pub(crate) fn insert(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        if self.groups.contains_key(&group) {
            return Err(ControlError::AlreadyExists(format!(
                "multicast group {group} exists already"
            )));
        }
        if self.groups.len() >= self.limits.groups {
            return Err(ControlError::ResourceExhausted(format!(
                "multicast group {group}: the switch holds {} groups at most",
                self.limits.groups
            )));
        }
        self.check(group, replicas)?;
        self.groups.insert(group, replicas.into());
        Ok(())
    }

    pub(crate) fn modify(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.check(group, replicas)?;
        match self.groups.get_mut(&group) {
            Some(kept) => {
                *kept = replicas.into();
                Ok(())
            }
            None => Err(unknown(group)),
        }
    }

    pub(crate) fn delete(&mut self, group: u32) -> ControlResult<()> {
        self.groups
            .remove(&group)
            .map(|_| ())
            .ok_or_else(|| unknown(group))
    }

    pub(crate) fn group(&self, group: u32) -> ControlResult<Vec<Replica>> {
        let replicas = self.groups.get(&group);
        replicas
            .map(|replicas| replicas.to_vec())
            .ok_or_else(|| unknown(group))
    }

    pub(crate) fn page(&self, from: u64, most: usize) -> Page<(u32, Vec<Replica>)> {
        let Ok(from) = u32::try_from(from) else {
            return Page::default();
        };
        let groups = self.groups.range(from..);
        Page::of(
            groups.map(|(id, replicas)| (u64::from(*id), (*id, replicas.to_vec()))),
            most,
        )
    }

    fn check(&self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        if !(1..=0xFFFF).contains(&group) {
            return Err(ControlError::InvalidArgument(format!(
                "multicast group {group}: ids are 1 to 65535"
            )));
        }
        check_replicas(
            &format!("multicast group {group}"),
            replicas,
            self.limits.replicas,
        )
    }
}

/// Refuses too many replicas and repeated ones; `what` is for the error.
pub(crate) fn check_replicas(what: &str, replicas: &[Replica], most: usize) -> ControlResult<()> {
    if replicas.len() > most {
        return Err(ControlError::ResourceExhausted(format!(
            "{what}: {} replicas given, {most} at most",
            replicas.len(),
        )));
    }
    let mut sorted = replicas.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ControlError::InvalidArgument(format!(
            "{what}: port {} with instance {} is given twice",
            pair[0].port, pair[0].rid
        )));
    }
    Ok(())
}

fn unknown(group: u32) -> ControlError {
    ControlError::NotFound(format!("no multicast group {group}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u32, rid: u16) -> Replica {
        Replica { port, rid }
    }

    #[test]
    fn a_refused_change_leaves_the_group_as_it_was() {
        let mut groups = Groups::new(GroupLimits {
            groups: 1,
            replicas: 2,
        });
        groups
            .insert(1, &[replica(1, 1), replica(2, 1)])
            .expect("first group");
        assert!(matches!(
            groups.insert(1, &[]),
            Err(ControlError::AlreadyExists(_))
        ));
        assert!(matches!(
            groups.insert(2, &[]),
            Err(ControlError::ResourceExhausted(_))
        ));
        assert!(matches!(
            groups.modify(1, &[replica(3, 1), replica(3, 1)]),
            Err(ControlError::InvalidArgument(_))
        ));
        assert!(matches!(
            groups.modify(1, &[replica(1, 1), replica(2, 1), replica(3, 1)]),
            Err(ControlError::ResourceExhausted(_))
        ));
        assert_eq!(groups.replicas(1), [replica(1, 1), replica(2, 1)]);
    }

    #[test]
    fn ids_outside_the_field_are_refused() {
        let mut groups = Groups::new(GroupLimits::default());
        for id in [0, 0x1_0000] {
            assert!(matches!(
                groups.insert(id, &[]),
                Err(ControlError::InvalidArgument(_))
            ));
        }
        assert!(matches!(groups.delete(7), Err(ControlError::NotFound(_))));
        assert!(groups.replicas(7).is_empty());
    }
}
