//! Copies of packets, for multicast groups and mirror sessions.

use traffic_manager::DropCause;
use v1model::{CloneRequest, Context, IngressInput, IngressVerdict, InstanceType, Pipeline};

use crate::destination::Destination;
use crate::pool::PacketId;
use crate::program::{Environment, Program};
use crate::recirculation::Target;
use crate::trace::ForkReason;

impl Program {
    /// Sends clones of a packet, at the end of ingress or of egress, to the replicas of its mirror
    /// session. An unknown session has no replicas.
    pub(crate) fn clone_packet(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        request: CloneRequest,
        instance_type: InstanceType,
        now_ns: u64,
    ) {
        let original = self.packets.get_mut(id);
        let of_a_clone =
            original.is_some_and(|packet| packet.instance_type == InstanceType::EgressClone);
        let mirrors = &self.replication.mirrors;
        let count = mirrors.replicas(request.session).len();
        let session = mirrors.find(request.session);
        let longest_bytes = session.map_or(0, |session| session.packet_length_bytes);
        for index in 0..count {
            let replicas = self.replication.mirrors.replicas(request.session);
            let Some(replica) = replicas.get(index).copied() else {
                break;
            };
            let port = u16::try_from(replica.port).unwrap_or(u16::MAX);
            let list = request.field_list;
            let mut length_bytes = 0;
            let reason = ForkReason::Clone;
            let copy = self.copy_packet(env, id, port, reason, |pipeline, original, clone| {
                if instance_type == InstanceType::IngressClone {
                    pipeline.clone_from_ingress(original, clone, list);
                } else {
                    pipeline.clone_from_egress(original, clone, list);
                }
                clone.truncate_to(longest_bytes);
                length_bytes = u32::try_from(clone.frame_len()).unwrap_or(u32::MAX);
            });
            let Some(copy) = copy else {
                continue;
            };
            let to = Destination {
                port,
                rid: replica.rid,
                instance_type,
                copied_from: None,
            };
            if of_a_clone && instance_type == InstanceType::EgressClone {
                let target = Target::Queue { to, length_bytes };
                self.recirculate(env, copy, target, port, now_ns);
            } else {
                self.enqueue(env, copy, to, None, now_ns, length_bytes);
            }
        }
    }

    /// Sends copies of a packet to the replicas of its multicast group.
    pub(crate) fn replicate(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        verdict: &IngressVerdict,
        input: IngressInput,
        length_bytes: u32,
    ) {
        let count = self.replication.groups.replicas(verdict.mcast_group).len();
        if count == 0 {
            self.drop_packet(env, id, input.port, DropCause::EmptyGroup);
            return;
        }
        for index in 0..count {
            let replicas = self.replication.groups.replicas(verdict.mcast_group);
            let Some(replica) = replicas.get(index).copied() else {
                break;
            };
            let port = u16::try_from(replica.port).unwrap_or(u16::MAX);
            // The last copy is the packet itself.
            let copy = if index + 1 == count {
                Some(id)
            } else {
                self.copy_packet(env, id, port, ForkReason::Multicast, |_, original, copy| {
                    copy.copy_from(original);
                })
            };
            let Some(copy) = copy else {
                continue;
            };
            if let Some(packet) = self.packets.get_mut(copy) {
                packet.context.clear_truncate();
            }
            let to = Destination {
                port,
                rid: replica.rid,
                instance_type: InstanceType::Replication,
                copied_from: Some(input.port),
            };
            self.enqueue(env, copy, to, verdict.hold, input.now_ns, length_bytes);
        }
    }

    /// Takes a packet from the pool and lets `fill` make it a copy of packet `id`. `None`: the copy is
    /// lost, and the loss is counted at `port`.
    fn copy_packet(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        port: u16,
        reason: ForkReason,
        fill: impl FnOnce(&mut Pipeline, &Context, &mut Context),
    ) -> Option<PacketId> {
        let Some(copy) = self.packets.take(&self.pipeline) else {
            env.manager.count_drop(port, DropCause::HoldLimit);
            return None;
        };
        let Some((original, packet)) = self.packets.pair(id, copy) else {
            self.packets.release(copy);
            env.internal_error(port);
            return None;
        };
        packet.in_train = original.in_train;
        fill(&mut self.pipeline, &original.context, &mut packet.context);
        if let Some(tracer) = &mut self.tracer {
            tracer.copied(id, copy, reason);
        }
        Some(copy)
    }
}
