//! BMv2's packet replication engine: groups of nodes, whose members are ports and LAGs.
//!
//! The behaviour is simple_switch's; the module itself does not use a switch.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use switch::Replica;

/// Most groups, and most nodes.
const OBJECTS_MAX: usize = 4_096;
/// Highest number of a LAG.
const LAG_MAX: u16 = 256;
/// The hash by which simple_switch chooses the port of a LAG: it is the same for all packets.
const LAG_HASH: usize = 0xFF;
/// Most digits of a map: a port number has 9 bits.
pub(crate) const MAP_DIGITS_MAX: usize = 512;

/// Why an operation is refused. The values are those of the services' exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    TableFull = 1,
    InvalidGroup = 3,
    InvalidNode = 4,
    Error = 5,
}

/// A node: copies with one replication id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) rid: u32,
    pub(crate) ports: BTreeSet<u16>,
    pub(crate) lags: BTreeSet<u16>,
    group: Option<u32>,
}

/// The engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pre {
    /// The nodes of each group, as they were associated.
    groups: BTreeMap<u32, Vec<u32>>,
    nodes: BTreeMap<u32, Node>,
    lags: BTreeMap<u16, BTreeSet<u16>>,
}

/// Reads a map: a digit, 0 or 1, for each number, the last one for 0. `None`: it is none.
pub(crate) fn parse_map(map: &str) -> Option<BTreeSet<u16>> {
    if map.len() > MAP_DIGITS_MAX {
        return None;
    }
    let mut numbers = BTreeSet::new();
    for (number, digit) in (0..).zip(map.bytes().rev()) {
        match digit {
            b'1' => drop(numbers.insert(number)),
            b'0' => {}
            _ => return None,
        }
    }
    Some(numbers)
}

impl Pre {
    /// Creates a group; one that exists stays as it is.
    pub(crate) fn create_group(&mut self, group: u32) -> Result<(), Refused> {
        if self.groups.len() >= OBJECTS_MAX {
            return Err(Refused::TableFull);
        }
        self.groups.entry(group).or_default();
        Ok(())
    }

    /// Removes a group, if it exists. Its nodes stay.
    pub(crate) fn destroy_group(&mut self, group: u32) {
        for node in self.groups.remove(&group).unwrap_or_default() {
            if let Some(node) = self.nodes.get_mut(&node) {
                node.group = None;
            }
        }
    }

    /// Creates a node and returns its handle: the lowest that is free.
    pub(crate) fn create_node(
        &mut self,
        rid: u32,
        ports: BTreeSet<u16>,
        lags: BTreeSet<u16>,
    ) -> Result<u32, Refused> {
        if self.nodes.len() >= OBJECTS_MAX {
            return Err(Refused::TableFull);
        }
        let taken = self.nodes.keys();
        let free = (0..).zip(taken).find(|(handle, taken)| handle != *taken);
        let handle = free.map_or(self.nodes.len() as u32, |(handle, _)| handle);
        let node = Node {
            rid,
            ports,
            lags,
            group: None,
        };
        self.nodes.insert(handle, node);
        Ok(handle)
    }

    fn node_and_group(
        &mut self,
        group: u32,
        node: u32,
    ) -> Result<(&mut Node, &mut Vec<u32>), Refused> {
        let node = self.nodes.get_mut(&node).ok_or(Refused::InvalidNode)?;
        let group = self.groups.get_mut(&group).ok_or(Refused::InvalidGroup)?;
        Ok((node, group))
    }

    pub(crate) fn associate(&mut self, group: u32, node: u32) -> Result<(), Refused> {
        let (found, members) = self.node_and_group(group, node)?;
        if found.group.is_some() {
            return Err(Refused::Error);
        }
        found.group = Some(group);
        members.push(node);
        Ok(())
    }

    pub(crate) fn dissociate(&mut self, group: u32, node: u32) -> Result<(), Refused> {
        let (found, members) = self.node_and_group(group, node)?;
        if found.group != Some(group) {
            return Err(Refused::Error);
        }
        found.group = None;
        members.retain(|member| *member != node);
        Ok(())
    }

    /// Removes a node, also from its group.
    pub(crate) fn destroy_node(&mut self, node: u32) -> Result<(), Refused> {
        let gone = self.nodes.remove(&node).ok_or(Refused::InvalidNode)?;
        let members = gone.group.and_then(|group| self.groups.get_mut(&group));
        if let Some(members) = members {
            members.retain(|member| *member != node);
        }
        Ok(())
    }

    /// Replaces a node's members.
    pub(crate) fn update_node(
        &mut self,
        node: u32,
        ports: BTreeSet<u16>,
        lags: BTreeSet<u16>,
    ) -> Result<(), Refused> {
        let node = self.nodes.get_mut(&node).ok_or(Refused::InvalidNode)?;
        (node.ports, node.lags) = (ports, lags);
        Ok(())
    }

    /// Sets the ports of a LAG.
    pub(crate) fn set_lag(&mut self, lag: u16, ports: BTreeSet<u16>) -> Result<(), Refused> {
        if lag > LAG_MAX {
            return Err(Refused::Error);
        }
        self.lags.insert(lag, ports);
        Ok(())
    }

    /// The groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.keys().copied()
    }

    /// Where the copies of a group go, in order. A LAG gets one copy.
    pub(crate) fn replicas(&self, group: u32) -> Vec<Replica> {
        let members = self.groups.get(&group).into_iter().flatten();
        let mut replicas = Vec::new();
        for node in members.filter_map(|node| self.nodes.get(node)) {
            let lags = node.lags.iter().filter_map(|lag| {
                let ports = self.lags.get(lag)?;
                let chosen = LAG_HASH.checked_rem(ports.len())?;
                ports.iter().nth(chosen)
            });
            let ports = node.ports.iter().chain(lags);
            replicas.extend(ports.map(|port| Replica {
                port: u32::from(*port),
                // As wide as egress_rid.
                rid: node.rid as u16,
            }));
        }
        replicas
    }

    /// Makes a group that of somebody else, with a node for each replication id. Nodes that it had are
    /// gone.
    pub(crate) fn adopt_group(&mut self, group: u32, replicas: &[Replica]) {
        self.forget_group(group);
        let mut ports: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
        for replica in replicas {
            let of_rid = ports.entry(replica.rid).or_default();
            of_rid.extend(u16::try_from(replica.port).ok());
        }
        let mut nodes = Vec::new();
        for (rid, ports) in ports {
            // One node more than BMv2 allows is better than a copy that no client sees.
            let handle = self.create_node(rid.into(), ports, BTreeSet::new());
            if let Ok(handle) = handle
                && let Some(node) = self.nodes.get_mut(&handle)
            {
                node.group = Some(group);
                nodes.push(handle);
            }
        }
        self.groups.insert(group, nodes);
    }

    /// Removes a group with its nodes.
    pub(crate) fn forget_group(&mut self, group: u32) {
        for node in self.groups.remove(&group).unwrap_or_default() {
            self.nodes.remove(&node);
        }
    }

    /// All of it, as BMv2 writes it in JSON. A node has one level-2 handle: its own number.
    pub(crate) fn entries(&self) -> Entries {
        let groups = self.groups.iter().map(|(id, nodes)| Group {
            id: *id,
            l1_handles: nodes.clone(),
        });
        let nodes = self.nodes.iter().map(|(handle, node)| Level1 {
            handle: *handle,
            rid: node.rid,
            l2_handle: *handle,
        });
        let members = self.nodes.iter().map(|(handle, node)| Level2 {
            handle: *handle,
            ports: node.ports.clone(),
            lags: node.lags.clone(),
        });
        let lags = self.lags.iter().map(|(id, ports)| Lag {
            id: *id,
            ports: ports.clone(),
        });
        Entries {
            mgrps: groups.collect(),
            l1_handles: nodes.collect(),
            l2_handles: members.collect(),
            lags: lags.collect(),
        }
    }
}

/// What `bm_mc_get_entries` tells.
#[derive(Debug, Serialize)]
pub(crate) struct Entries {
    mgrps: Vec<Group>,
    l1_handles: Vec<Level1>,
    l2_handles: Vec<Level2>,
    lags: Vec<Lag>,
}

#[derive(Debug, Serialize)]
struct Group {
    id: u32,
    l1_handles: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Level1 {
    handle: u32,
    rid: u32,
    l2_handle: u32,
}

#[derive(Debug, Serialize)]
struct Level2 {
    handle: u32,
    ports: BTreeSet<u16>,
    lags: BTreeSet<u16>,
}

#[derive(Debug, Serialize)]
struct Lag {
    id: u16,
    ports: BTreeSet<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u16]) -> BTreeSet<u16> {
        numbers.iter().copied().collect()
    }

    fn replica(port: u32, rid: u16) -> Replica {
        Replica { port, rid }
    }

    #[test]
    fn a_map_has_a_digit_for_each_number() {
        assert_eq!(parse_map("1010"), Some(set(&[1, 3])));
        assert_eq!(parse_map(""), Some(set(&[])));
        assert_eq!(parse_map("12"), None);
        assert_eq!(parse_map(&"0".repeat(513)), None);
    }

    #[test]
    fn nodes_and_groups_as_in_bmv2() {
        let mut pre = Pre::default();
        assert_eq!(pre.create_node(7, set(&[1, 2]), set(&[])), Ok(0));
        assert_eq!(pre.create_node(8, set(&[3]), set(&[5])), Ok(1));
        assert_eq!(pre.associate(1, 0), Err(Refused::InvalidGroup));
        assert_eq!(pre.create_group(1), Ok(()));
        assert_eq!(pre.associate(1, 9), Err(Refused::InvalidNode));
        assert_eq!((pre.associate(1, 1), pre.associate(1, 0)), (Ok(()), Ok(())));
        assert_eq!(pre.associate(1, 0), Err(Refused::Error));
        // LAG 5 has no ports yet.
        let without_lag = vec![replica(3, 8), replica(1, 7), replica(2, 7)];
        assert_eq!(pre.replicas(1), without_lag);
        // 255 modulo 2 is 1: the second port.
        assert_eq!(pre.set_lag(5, set(&[10, 20])), Ok(()));
        assert_eq!(pre.replicas(1)[1], replica(20, 8));
        assert_eq!(pre.set_lag(257, set(&[1])), Err(Refused::Error));
        assert_eq!(pre.dissociate(2, 1), Err(Refused::InvalidGroup));
        assert_eq!(pre.dissociate(1, 1), Ok(()));
        assert_eq!(pre.dissociate(1, 1), Err(Refused::Error));
        assert_eq!(pre.destroy_node(0), Ok(()));
        assert_eq!(pre.replicas(1), []);
        // The lowest handle is free again.
        assert_eq!(pre.create_node(1, set(&[]), set(&[])), Ok(0));
    }

    #[test]
    fn a_group_of_somebody_else_gets_a_node_for_each_replication_id() {
        let mut pre = Pre::default();
        pre.adopt_group(4, &[replica(1, 0), replica(2, 5), replica(3, 0)]);
        assert_eq!(
            pre.replicas(4),
            [replica(1, 0), replica(3, 0), replica(2, 5)]
        );
        pre.adopt_group(4, &[replica(9, 5)]);
        assert_eq!(pre.replicas(4), [replica(9, 5)]);
        let json = serde_json::to_string(&pre.entries()).expect("plain data");
        assert!(
            json.contains(r#""mgrps":[{"id":4,"l1_handles":[0]}]"#),
            "{json}"
        );
    }
}
