//! The way back: packets that recirculate, go to the egress of a port that does not exist, or are
//! clones of clones.

use traffic_manager::DropCause;
use v1model::IngressInput;

use crate::pool::PacketId;
use crate::program::{Environment, Program};
use crate::recirculation::{Target, Waiting};
use crate::trace::Event;

/// Time from egress to ingress, or to the queue of a clone's clone. It is not 0, because a program may
/// recirculate a packet, or clone each clone, for ever.
const RECIRCULATION_NS: u64 = 1_000;

/// Most packets that recirculate at once, as in simple_switch.
const RECIRCULATING_MAX: usize = 1_024;

impl Program {
    /// Sends a packet back to `target`, as if it had come in at `port` or, for egress, left there.
    pub(crate) fn recirculate(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        target: Target,
        port: u16,
        now_ns: u64,
    ) {
        if self.recirculating.queue.len() >= RECIRCULATING_MAX {
            let cause = match target {
                Target::Ingress(_) | Target::Queue { .. } => DropCause::RecirculationFull,
                Target::EgressOfInvalidPort => DropCause::NoSuchPort,
            };
            self.drop_packet(env, id, port, cause);
            return;
        }
        env.counters.recirculated += 1;
        self.recirculating.queue.push_back(Waiting {
            // The time must not be in the driver's past, or the packet would fall behind more and
            // more.
            ready_ns: now_ns.max(env.now_ns).saturating_add(RECIRCULATION_NS),
            port,
            id,
            target,
        });
    }

    /// Packets that are ready by `now_ns` enter ingress again.
    pub(crate) fn reenter(&mut self, env: &mut Environment, now_ns: u64) {
        while self.reenter_next(env, now_ns) {}
    }

    /// The next packet, if it is ready by `now_ns`, enters ingress again; false: none is ready.
    pub(crate) fn reenter_next(&mut self, env: &mut Environment, now_ns: u64) -> bool {
        let next_ns = self.recirculating.next_ns();
        if next_ns.is_none_or(|ready_ns| ready_ns > now_ns) {
            return false;
        }
        let Some(packet) = self.recirculating.queue.pop_front() else {
            return false;
        };
        match packet.target {
            Target::Ingress(instance_type) => {
                let input = IngressInput {
                    port: packet.port,
                    now_ns: packet.ready_ns,
                    instance_type,
                };
                if let Some(tracer) = &mut self.tracer {
                    tracer.event(packet.id, || Event::Reenter {
                        instance_type,
                        at_ns: packet.ready_ns,
                    });
                }
                self.parse(env, packet.id, &input);
                self.ingress(env, packet.id, input);
            }
            Target::EgressOfInvalidPort => {
                self.egress_invalid_port(env, packet.id, packet.port, packet.ready_ns);
            }
            Target::Queue { to, length_bytes } => {
                self.enqueue(env, packet.id, to, None, packet.ready_ns, length_bytes);
            }
        }
        true
    }
}
