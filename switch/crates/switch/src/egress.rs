//! Egress: the program's egress control and deparser, and the fate of the packet.

use traffic_manager::{Dequeued, DropCause};
use v1model::{EgressInput, EgressVerdict, InstanceType};

use crate::header_fields;
use crate::pool::PacketId;
use crate::program::{Environment, Leaving, Outcome, Program, QUEUE_DEPTH_MAX, Sink, traced};
use crate::recirculation::Target;
use crate::trace::{Event, Outcome as TraceOutcome};

impl Program {
    /// Starts the packets that the FIFOs have started by `until_ns`, without releasing paced packets.
    pub(crate) fn start_unpaced(&mut self, env: &mut Environment, until_ns: u64) {
        while let Some(start) = env.manager.dequeue_unpaced(until_ns, env.now_ns) {
            self.egress(env, start);
        }
        self.release_dropped_at_heads(env);
    }

    /// Handles the start of a packet at its port.
    pub(crate) fn egress(&mut self, env: &mut Environment, start: Dequeued<PacketId>) {
        let id = start.payload;
        let Some(packet) = self.packets.get_mut(id) else {
            debug_assert!(false, "a queued packet is not in the pool");
            env.manager.cancel(start.token, DropCause::InternalError);
            return;
        };
        let input = EgressInput {
            port: start.port,
            now_ns: start.start_ns,
            rid: packet.replication_id,
            enqueued_ns: start.enqueued_ns,
            enq_qdepth: start.enqueued_behind_packets.min(QUEUE_DEPTH_MAX),
            deq_qdepth: start.left_behind_packets.min(QUEUE_DEPTH_MAX),
            qid: start.queue,
            instance_type: packet.instance_type,
        };
        if let Some(tracer) = &mut self.tracer {
            tracer.event(id, || Event::Dequeue {
                port: start.port,
                start_ns: start.start_ns,
                enqueued_ns: start.enqueued_ns,
                gap_ns: env.manager.gap_ns(&start.token),
            });
        }
        match self.run_egress(env, id, &input) {
            Outcome::Drop(cause) => {
                env.manager.cancel(start.token, cause);
                self.release_dropped(env, id, start.port, cause);
            }
            Outcome::Oversize => {
                env.manager.release(start.token);
                self.drop_packet(env, id, start.port, DropCause::Oversize);
            }
            Outcome::Recirculate => {
                env.manager.release(start.token);
                // As in simple_switch, a recirculated packet has no ingress port of its own.
                let target = Target::Ingress(InstanceType::Recirculated);
                self.recirculate(env, id, target, 0, start.start_ns);
            }
            Outcome::Transmit if start.marked && !self.mark(id) => {
                // The program took away what the queue would mark.
                env.manager.cancel(start.token, DropCause::Aqm);
                self.release_dropped(env, id, start.port, DropCause::Aqm);
            }
            Outcome::Transmit => {
                if start.marked
                    && let Some(tracer) = &mut self.tracer
                {
                    tracer.event(id, || Event::EcnMark);
                }
                let packet = self.packets.get_mut(id);
                let length = packet.map_or(0, |packet| packet.context.output().len());
                let length_bytes = u32::try_from(length).unwrap_or(u32::MAX);
                if let Err(refused) = env.manager.transmit(start.token, length_bytes, id) {
                    self.release_dropped(env, refused.payload, start.port, refused.cause);
                }
            }
        }
    }

    /// Sets CE in a packet that leaves; false: it is not ECN-capable.
    fn mark(&mut self, id: PacketId) -> bool {
        let packet = self.packets.get_mut(id);
        packet.is_some_and(|packet| header_fields::mark(packet.context.output_mut()))
    }

    /// Egress of a packet for a port that does not exist. As in simple_switch its egress runs, and
    /// may clone or recirculate it; then it is dropped.
    pub(crate) fn egress_invalid_port(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        port: u16,
        now_ns: u64,
    ) {
        let Some(packet) = self.packets.get_mut(id) else {
            return env.internal_error(port);
        };
        let input = EgressInput {
            port,
            now_ns,
            rid: packet.replication_id,
            enqueued_ns: now_ns,
            enq_qdepth: 0,
            deq_qdepth: 0,
            qid: 0,
            instance_type: packet.instance_type,
        };
        let ingress_port = packet.context.ingress_port();
        let (at, cause) = match self.run_egress(env, id, &input) {
            Outcome::Recirculate => {
                let target = Target::Ingress(InstanceType::Recirculated);
                self.recirculate(env, id, target, 0, now_ns);
                return;
            }
            Outcome::Drop(cause @ (DropCause::Assertion | DropCause::InternalError)) => {
                (ingress_port, cause)
            }
            // The program chose no port.
            _ if port == 0 => (ingress_port, DropCause::NoRoute),
            _ => (port, DropCause::NoSuchPort),
        };
        self.drop_packet(env, id, at, cause);
    }

    /// Runs egress control, clones, deparses and prepares recirculation.
    fn run_egress(&mut self, env: &mut Environment, id: PacketId, input: &EgressInput) -> Outcome {
        let Some(packet) = self.packets.get_mut(id) else {
            debug_assert!(false, "a packet in egress is not in the pool");
            return Outcome::Drop(DropCause::InternalError);
        };
        let externs = env.view();
        let (pipeline, context) = (&mut self.pipeline, &mut packet.context);
        let mut verdict = match traced(&mut self.tracer, id, externs) {
            None => pipeline.egress_control(context, input, &externs),
            Some(externs) => pipeline.egress_control(context, input, &externs),
        };
        let copied_from = packet.copied_from;
        if let Some(request) = verdict.clone {
            // A clone has the headers as egress left them: checksums are updated later.
            self.clone_packet(env, id, request, InstanceType::EgressClone, input.now_ns);
        }
        if !verdict.drop {
            self.deparse(env, id, input.now_ns, &mut verdict);
        }
        if verdict.assertion_failed {
            env.counters.assertion_failed("egress", input.port);
        }
        if verdict.drop {
            return Outcome::Drop(if verdict.internal_error {
                DropCause::InternalError
            } else if verdict.assertion_failed {
                DropCause::Assertion
            } else if copied_from == Some(input.port) {
                DropCause::Pruned
            } else {
                DropCause::EgressDrop
            });
        }
        let Some(field_list) = verdict.recirculate else {
            return Outcome::Transmit;
        };
        let recirculates = self
            .packets
            .get_mut(id)
            .is_some_and(|packet| self.pipeline.recirculate(&mut packet.context, field_list));
        if recirculates {
            Outcome::Recirculate
        } else {
            Outcome::Oversize
        }
    }

    /// Updates a packet's checksums and deparses it, after its egress.
    fn deparse(
        &mut self,
        env: &Environment,
        id: PacketId,
        now_ns: u64,
        verdict: &mut EgressVerdict,
    ) {
        if let Some(packet) = self.packets.get_mut(id) {
            let externs = env.view();
            let (pipeline, context) = (&mut self.pipeline, &mut packet.context);
            match traced(&mut self.tracer, id, externs) {
                None => pipeline.deparse(context, now_ns, &externs, verdict),
                Some(externs) => pipeline.deparse(context, now_ns, &externs, verdict),
            }
        }
    }

    /// Hands a packet to the interface or to the controller, and frees it.
    pub(crate) fn deliver(
        &mut self,
        env: &mut Environment,
        port: u16,
        id: PacketId,
        delivery_ns: u64,
        sink: &mut impl Sink,
    ) {
        let Some(packet) = self.packets.get_mut(id) else {
            return env.internal_error(port);
        };
        if let Some(tracer) = &mut self.tracer {
            let frame_bytes = packet.context.output().len();
            let outcome = if env.config.cpu_port == Some(port) {
                TraceOutcome::PacketIn { frame_bytes }
            } else {
                TraceOutcome::Transmit {
                    port,
                    frame_bytes,
                    delivery_ns,
                }
            };
            tracer.end(id, outcome, &mut env.traces);
        }
        if env.config.cpu_port == Some(port) {
            env.counters.packets_to_controller += 1;
            sink.to_controller(packet.context.output());
        } else {
            let (buffer, frame) = packet.context.lend_output();
            let leaving = Leaving {
                port,
                delivery_ns,
                held: packet.held,
                in_train: packet.in_train,
            };
            sink.transmit_buffer(buffer, frame, leaving);
        }
        self.packets.release(id);
    }
}
