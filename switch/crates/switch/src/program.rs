//! A P4 program with everything that it owns: pipeline, replication engine, digests, the packets
//! that are in it. A [`Switch`](crate::Switch) has one that runs and at most one that is staged.
//!
//! The steps of a packet's way are methods of [`Program`]. The parts that outlive a program (ports,
//! traffic manager, counters) come with each call, as an [`Environment`].

use std::ops::Range;
use std::sync::Arc;

use traffic_manager::{DropCause, HeaderFields, Queued, Reads, TrafficManager};
use v1model::entries::digest::DigestList;
use v1model::{IngressInput, IngressVerdict, InstanceType, Pipeline};

use crate::config::SwitchConfig;
use crate::destination::Destination;
use crate::externs::TrafficManagerView;
use crate::header_fields;
use crate::learning::Learning;
use crate::notification::{Notification, NotificationBody};
use crate::pool::{PacketId, Pool};
use crate::recirculation::{Recirculating, Target};
use crate::replica_store::ReplicationEngine;
use crate::trace::{Collector, Depth, Event, Outcome as TraceOutcome, Traced, Tracer, Vocabulary};

/// Entries that one search for idle entries visits: it takes some hundred microseconds.
const IDLE_ENTRIES_PER_SEARCH: usize = 512;

/// Time between two searches for idle entries.
const IDLE_INTERVAL_NS: u64 = 1_000_000;

/// Most packets that `enq_qdepth` and `deq_qdepth` show: 19 bits.
pub(crate) const QUEUE_DEPTH_MAX: u32 = (1 << 19) - 1;

/// A frame's way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// The port whose interface it is for.
    pub port: u16,
    /// The time when its first bit leaves: at most the `now_ns` of the call that led here, unless the sink
    /// sends frames when it is time ([`Switch::hand_over_early`](crate::Switch::hand_over_early)).
    pub delivery_ns: u64,
    /// The program gave it a departure time, so the instant at which it leaves matters.
    pub held: bool,
    /// It came in a train, or is a copy of a packet that did, so it may leave in one.
    pub in_train: bool,
}

/// The receiver of frames that leave the switch.
pub trait Sink {
    /// A frame for an interface. PAUSE frames that fill gaps come this way, too.
    fn transmit(&mut self, frame: &[u8], leaving: Leaving);

    /// The same for the frame at `frame` of `buffer`. The sink may exchange the buffer for another
    /// one instead of copying from it.
    fn transmit_buffer(&mut self, buffer: &mut Vec<u8>, frame: Range<usize>, leaving: Leaving) {
        self.transmit(buffer.get(frame).unwrap_or_default(), leaving);
    }

    /// A frame for the controller, with the program's packet-in header in front.
    fn to_controller(&mut self, frame: &[u8]);

    /// A message for the controllers. Returns false if there was no room for it.
    fn notify(&mut self, notification: Notification) -> bool;
}

/// The counters of the switch as a whole, since its start. The traffic manager counts drops, per port
/// and cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames whose parser ended with an error, dropped by the program or not.
    pub parser_errors: u64,
    /// Packets handed to the controller.
    pub packets_to_controller: u64,
    /// Packets taken from the controller.
    pub packets_from_controller: u64,
    /// Digest messages lost because too many waited.
    pub digests_lost: u64,
    /// Times that a packet entered ingress again (resubmitted, recirculated).
    pub recirculated: u64,
    /// Packets dropped because an `assert` or `assume` failed, or a loop did not end.
    pub assertions_failed: u64,
}

impl Counters {
    /// Counts a packet that an assertion ended. Logs the first one and each that doubles the count.
    pub(crate) fn assertion_failed(&mut self, control: &str, port: u16) {
        self.assertions_failed += 1;
        let so_far = self.assertions_failed;
        if so_far.is_power_of_two() {
            tracing::warn!(target: "p4", control, port, so_far, "packet dropped: an assert or assume failed, or an action's loops did not end");
        }
    }
}

/// The parts of the switch that a program uses and does not own.
pub(crate) struct Environment {
    pub(crate) config: SwitchConfig,
    pub(crate) manager: TrafficManager<PacketId>,
    pub(crate) counters: Counters,
    /// Latest time that the driver has given.
    pub(crate) now_ns: u64,
    /// In a dry run: the traffic manager for which `manager` stands in.
    pub(crate) real_manager: Option<Box<TrafficManager<PacketId>>>,
    pub(crate) traces: Collector,
}

/// The `Externs` of a packet that is traced.
pub(crate) fn traced<'a>(
    tracer: &'a mut Option<Box<Tracer>>,
    id: PacketId,
    view: TrafficManagerView<'a>,
) -> Option<Traced<'a>> {
    tracer.as_mut()?.externs(id, view)
}

/// A packet that has been parsed and waits for ingress.
#[derive(Clone, Copy)]
pub(crate) struct Parsed {
    pub(crate) id: PacketId,
    pub(crate) input: IngressInput,
}

/// The decision of egress for a packet.
pub(crate) enum Outcome {
    /// It goes to its port.
    Transmit,
    /// It enters ingress again.
    Recirculate,
    /// It is too long to enter ingress again.
    Oversize,
    /// It is dropped for this cause.
    Drop(DropCause),
}

/// A program, with everything that one P4 program owns.
pub struct Program {
    pub(crate) pipeline: Pipeline,
    pub(crate) replication: ReplicationEngine,
    pub(crate) learning: Learning,
    pub(crate) packets: Pool,
    /// Traces of the packets that are in the switch; `None`: nobody wants traces.
    pub(crate) tracer: Option<Box<Tracer>>,
    /// The names that traces show; `None`: there was no trace so far.
    vocabulary: Option<Arc<Vocabulary>>,
    pub(crate) recirculating: Recirculating,
    /// The words of one digest message.
    digest_words: Vec<u64>,
    /// The times of the next and of the last search for idle entries.
    pub(crate) idle_due_ns: Option<u64>,
    idle_searched_ns: u64,
}

impl Program {
    pub(crate) fn new(pipeline: Pipeline, config: &SwitchConfig) -> Self {
        let mut learning = Learning::default();
        if config.digests.is_some() {
            for digest in 0..pipeline.digests().len() {
                learning.configure(digest, config.digests, 0);
            }
        }
        Self {
            pipeline,
            replication: ReplicationEngine::new(config.groups),
            learning,
            packets: Pool::new(config.max_packets),
            tracer: None,
            vocabulary: None,
            recirculating: Recirculating::default(),
            digest_words: Vec::new(),
            idle_due_ns: None,
            idle_searched_ns: 0,
        }
    }

    /// A tracer without traces.
    pub(crate) fn new_tracer(&mut self) -> Box<Tracer> {
        let pipeline = &self.pipeline;
        let new = || Arc::new(Vocabulary::new(pipeline));
        Box::new(Tracer::new(Arc::clone(
            self.vocabulary.get_or_insert_with(new),
        )))
    }

    /// Whether [`Self::new_tracer`] of this program has made a tracer.
    pub(crate) fn has_made(&self, tracer: &Tracer) -> bool {
        let own = self.vocabulary.as_ref();
        own.is_some_and(|vocabulary| tracer.names_by(vocabulary))
    }

    /// Parses a frame that arrives, then runs the frame `before` it through ingress. See
    /// [`Batch`](crate::Batch).
    pub(crate) fn receive(
        &mut self,
        env: &mut Environment,
        frame: &[u8],
        input: IngressInput,
        mut before: Option<Parsed>,
    ) -> Option<Parsed> {
        // The frame before may occupy the last place in the pool.
        if !self.packets.has_room() {
            if let Some(before) = before.take() {
                self.run_parsed(env, before);
            }
            self.start_unpaced(env, input.now_ns);
        }
        let parsed = self.take_in(env, frame, input);
        if let Some(before) = before {
            if let Some(packet) = parsed.and_then(|parsed| self.packets.get_mut(parsed.id)) {
                self.pipeline.prefetch_next(&mut packet.context);
            }
            self.run_parsed(env, before);
        }
        parsed
    }

    /// Runs a frame through ingress that has been parsed.
    pub(crate) fn run_parsed(&mut self, env: &mut Environment, Parsed { id, input }: Parsed) {
        // The FIFOs have room for this frame where they have sent others by then.
        self.start_unpaced(env, input.now_ns);
        self.ingress(env, id, input);
    }

    /// Takes a frame into the switch and parses it; `None`: it has been dropped.
    pub(crate) fn take_in(
        &mut self,
        env: &mut Environment,
        frame: &[u8],
        input: IngressInput,
    ) -> Option<Parsed> {
        if frame.len() > env.config.max_frame_bytes {
            env.manager.count_drop(input.port, DropCause::Oversize);
            return None;
        }
        let Some(id) = self.packets.take(&self.pipeline) else {
            env.manager.count_drop(input.port, DropCause::HoldLimit);
            return None;
        };
        let Some(packet) = self.packets.get_mut(id) else {
            env.internal_error(input.port);
            return None;
        };
        packet.in_train = false;
        packet.context.set_frame(frame);
        if let Some(tracer) = &mut self.tracer
            && let Some(wanted) = env.traces.wanted(input.port, frame, input.now_ns)
        {
            tracer.begin(id, (env.traces.begin(), wanted), &input, frame.len());
        }
        self.parse(env, id, &input);
        Some(Parsed { id, input })
    }

    pub(crate) fn parse(&mut self, env: &Environment, id: PacketId, input: &IngressInput) {
        if let Some(packet) = self.packets.get_mut(id) {
            let externs = env.view();
            match traced(&mut self.tracer, id, externs) {
                None => self.pipeline.parse(&mut packet.context, input, &externs),
                Some(externs) => self.pipeline.parse(&mut packet.context, input, &externs),
            }
        }
    }

    /// Runs ingress on a parsed packet, and carries out its decision.
    pub(crate) fn ingress(&mut self, env: &mut Environment, id: PacketId, input: IngressInput) {
        let Some(packet) = self.packets.get_mut(id) else {
            return env.internal_error(input.port);
        };
        let length_bytes = u32::try_from(packet.context.frame_len()).unwrap_or(u32::MAX);
        let externs = env.view();
        let (pipeline, context) = (&mut self.pipeline, &mut packet.context);
        let verdict = match traced(&mut self.tracer, id, externs) {
            None => pipeline.ingress_control(context, &input, &externs),
            Some(externs) => pipeline.ingress_control(context, &input, &externs),
        };
        env.counters.parser_errors += u64::from(verdict.parser_error);
        if verdict.internal_error {
            self.drop_packet(env, id, input.port, DropCause::InternalError);
            return;
        }
        if verdict.assertion_failed {
            // A failed assertion overrides everything that the program asked for before.
            env.counters.assertion_failed("ingress", input.port);
            self.drop_packet(env, id, input.port, DropCause::Assertion);
            return;
        }
        if let Some(digest) = verdict.digest {
            self.learn(env, id, digest, input.now_ns);
        }
        if let Some(request) = verdict.clone {
            self.clone_packet(env, id, request, InstanceType::IngressClone, input.now_ns);
        }
        self.leave_ingress(env, id, input, &verdict, length_bytes);
    }

    /// Carries out the decision of ingress for a packet: resubmit, multicast, drop or unicast, in this
    /// order of precedence (v1model.p4).
    fn leave_ingress(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        input: IngressInput,
        verdict: &IngressVerdict,
        length_bytes: u32,
    ) {
        if let Some(field_list) = verdict.resubmit {
            if let Some(packet) = self.packets.get_mut(id) {
                self.pipeline.resubmit(&mut packet.context, field_list);
            }
            let target = Target::Ingress(InstanceType::Resubmit);
            self.recirculate(env, id, target, input.port, input.now_ns);
        } else if verdict.mcast_group != 0 {
            self.replicate(env, id, verdict, input, length_bytes);
        } else if verdict.drop {
            self.drop_packet(env, id, input.port, DropCause::IngressDrop);
        } else {
            let to = Destination {
                port: verdict.egress_port,
                rid: 0,
                // As in simple_switch, also for a packet that was recirculated.
                instance_type: InstanceType::Normal,
                copied_from: None,
            };
            self.enqueue(env, id, to, verdict.hold, input.now_ns, length_bytes);
        }
    }

    /// Hands a packet to the traffic manager.
    pub(crate) fn enqueue(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        to: Destination,
        hold: Option<traffic_manager::hold::Hold>,
        now_ns: u64,
        length_bytes: u32,
    ) {
        // Packets to the controller leave at once, since its path is not paced.
        let hold = hold.filter(|_| env.config.cpu_port != Some(to.port));
        if let Some(packet) = self.packets.get_mut(id) {
            packet.replication_id = to.rid;
            packet.copied_from = to.copied_from;
            packet.instance_type = to.instance_type;
            packet.held = hold.is_some();
        }
        if env.manager.port_config(to.port).is_none() {
            self.recirculate(env, id, Target::EgressOfInvalidPort, to.port, now_ns);
            return;
        }
        let (queue, header) = match env.manager.reads(to.port) {
            Some(reads) => self.way_of(id, reads),
            None => (0, HeaderFields::default()),
        };
        if let Some(tracer) = &mut self.tracer {
            tracer.event(id, || Event::Enqueue {
                port: to.port,
                at_ns: now_ns,
                hold,
                depth: env.depth(to.port, queue, hold.map(|hold| hold.class)),
            });
        }
        let queued = Queued {
            payload: id,
            length_bytes,
            arrival_ns: now_ns,
            hold,
            queue,
            header,
        };
        if let Err(refused) = env.manager.enqueue(to.port, queued) {
            self.release_dropped(env, refused.payload, to.port, refused.cause);
        }
        self.release_dropped_at_heads(env);
    }

    /// The egress queue that the program chose; no port has a queue `u8::MAX`. And the header's fields that
    /// the queues ask for, as the frame came in.
    fn way_of(&mut self, id: PacketId, reads: Reads) -> (u8, HeaderFields) {
        let Some(packet) = self.packets.get_mut(id) else {
            return (u8::MAX, HeaderFields::default());
        };
        let queue = self.pipeline.egress_queue(&packet.context);
        let header = header_fields::of(packet.context.frame(), reads);
        (queue, header)
    }

    /// Frees the packets that egress queues have dropped at their heads.
    pub(crate) fn release_dropped_at_heads(&mut self, env: &mut Environment) {
        while let Some(dropped) = env.manager.take_dropped() {
            self.release_dropped(env, dropped.payload, dropped.port, dropped.cause);
        }
    }

    /// Counts a drop at `port` and frees the packet.
    pub(crate) fn drop_packet(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        port: u16,
        cause: DropCause,
    ) {
        env.manager.count_drop(port, cause);
        self.release_dropped(env, id, port, cause);
    }

    /// Frees a packet whose drop has been counted.
    pub(crate) fn release_dropped(
        &mut self,
        env: &mut Environment,
        id: PacketId,
        port: u16,
        cause: DropCause,
    ) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(id, TraceOutcome::Drop { port, cause }, &mut env.traces);
        }
        self.packets.release(id);
    }

    /// Takes a packet's digest message, if a controller wants it.
    fn learn(&mut self, env: &mut Environment, id: PacketId, digest: usize, at_ns: u64) {
        if !self.learning.wants(digest) {
            return;
        }
        if let Some(packet) = self.packets.get_mut(id) {
            self.digest_words.clear();
            let words = self.pipeline.digest(&packet.context, digest);
            self.digest_words.extend(words);
            env.counters.digests_lost += self.learning.learn(digest, &self.digest_words, at_ns);
        }
    }

    /// Sends the notifications that are due by `now_ns`.
    pub(crate) fn notify(&mut self, now_ns: u64, sink: &mut impl Sink) {
        while let Some(list) = self.learning.take(now_ns) {
            let messages = list.messages.iter();
            let (digest, list_id) = (list.digest, list.list_id);
            let info = self.pipeline.digests().get(digest);
            let list = DigestList {
                digest,
                json_id: info.map_or(0, |info| info.json_id),
                headers: info.map_or(0, |info| info.headers.len()),
                list_id,
                messages: messages
                    .map(|words| self.pipeline.digest_fields(list.digest, words))
                    .collect(),
            };
            let taken = sink.notify(Notification {
                at_ns: now_ns,
                body: NotificationBody::Digests(list),
            });
            if !taken {
                // No controller has seen it, so its messages may be sent again.
                self.learning.acknowledge(digest, list_id);
            }
        }
        if self.idle_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            let idle = self.pipeline.take_idle_entries(IDLE_ENTRIES_PER_SEARCH);
            self.idle_searched_ns = now_ns;
            self.schedule_idle_search();
            if !idle.is_empty() {
                sink.notify(Notification {
                    at_ns: now_ns,
                    body: NotificationBody::Idle(idle),
                });
            }
        }
    }

    /// Sets the time of the next search for idle entries, after idle timeouts have changed.
    pub(crate) fn schedule_idle_search(&mut self) {
        let earliest_ns = self.idle_searched_ns.saturating_add(IDLE_INTERVAL_NS);
        let due_ns = self.pipeline.next_idle_ns();
        self.idle_due_ns = due_ns.map(|due_ns| due_ns.max(earliest_ns));
    }
}

impl Environment {
    /// The traffic manager and the log, for the program.
    pub(crate) fn view(&self) -> TrafficManagerView<'_> {
        TrafficManagerView {
            manager: &self.manager,
            real: self.real_manager.as_deref(),
        }
    }

    /// The content of the queue of a packet for `port`: that of its class, its egress queue or the FIFO.
    fn depth(&self, port: u16, queue: u8, class: Option<u32>) -> Depth {
        let of_port = self.manager.port_statistics(port);
        let (packets, fifo_bytes) =
            of_port.map_or((0, 0), |port| (port.queued_packets, port.fifo_bytes));
        let shown = |packets: u64| {
            let packets = u32::try_from(packets).unwrap_or(u32::MAX);
            packets.min(QUEUE_DEPTH_MAX)
        };
        if let Some(class) = class {
            return Depth {
                qid: 0,
                enq_qdepth: shown(packets),
                backlog_bytes: self.view().all_backlog_bytes(class),
            };
        }
        let of_queue = self.manager.queue_statistics(port).nth(queue.into());
        let (packets, backlog_bytes) =
            of_queue.map_or((packets, fifo_bytes), |queue| (queue.packets, queue.bytes));
        Depth {
            qid: queue,
            enq_qdepth: shown(packets),
            backlog_bytes,
        }
    }

    /// Counts a packet that is lost by a fault of the switch itself (`internal-error`).
    pub(crate) fn internal_error(&mut self, port: u16) {
        debug_assert!(false, "a packet of port {port} is not in the pool");
        self.manager.count_drop(port, DropCause::InternalError);
    }
}
