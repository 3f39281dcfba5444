//! Packets in the switch: a bounded pool of contexts. A context is allocated when there are more
//! packets in the switch than ever before. After that it is reused with its buffers, so a packet
//! allocates nothing. Crate `slab` would drop removed contexts; to make and drop a context of `pacer.p4`
//! takes 310 ns, more than half of a packet's time.

use v1model::{Context, InstanceType, Pipeline};

/// Names a packet in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PacketId(u32);

/// A packet with the data that the switch keeps between ingress and egress.
pub(crate) struct Packet {
    pub(crate) context: Context,
    pub(crate) replication_id: u16,
    /// Ingress port of the packet that this is a multicast copy of; `None`: it is no copy.
    pub(crate) copied_from: Option<u16>,
    pub(crate) instance_type: InstanceType,
    /// It waits, or has waited, for its departure time.
    pub(crate) held: bool,
    /// It came in a train, or is a copy of a packet that did.
    pub(crate) in_train: bool,
}

/// Grows on demand up to its limit.
pub(crate) struct Pool {
    packets: Vec<Packet>,
    free: Vec<PacketId>,
    limit: usize,
}

impl Pool {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            packets: Vec::new(),
            free: Vec::new(),
            limit: limit.min(u32::MAX as usize),
        }
    }

    /// A packet to fill, or `None` at the limit.
    pub(crate) fn take(&mut self, pipeline: &Pipeline) -> Option<PacketId> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        if self.packets.len() >= self.limit {
            return None;
        }
        let id = PacketId(u32::try_from(self.packets.len()).ok()?);
        self.packets.push(Packet {
            context: pipeline.new_context(),
            replication_id: 0,
            copied_from: None,
            instance_type: InstanceType::Normal,
            held: false,
            in_train: false,
        });
        Some(id)
    }

    /// Whether [`Self::take`] gives a packet.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.packets.len() < self.limit
    }

    pub(crate) fn release(&mut self, id: PacketId) {
        self.free.push(id);
    }

    /// The packet, if the identifier is of this pool.
    pub(crate) fn get_mut(&mut self, id: PacketId) -> Option<&mut Packet> {
        self.packets.get_mut(id.0 as usize)
    }

    /// Two different packets, the first to read.
    pub(crate) fn pair(&mut self, a: PacketId, b: PacketId) -> Option<(&Packet, &mut Packet)> {
        let [a, b] = self
            .packets
            .get_disjoint_mut([a.0 as usize, b.0 as usize])
            .ok()?;
        Some((a, b))
    }
}
