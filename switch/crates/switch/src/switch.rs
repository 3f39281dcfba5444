//! A packet's way through the switch.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::notification::{Notification, NotificationBody};
use crate::ports::Attention;
use traffic_manager::hold::Hold;
use traffic_manager::{
    DropCause, Frame, Gaps, Limits, PortConfig, PortError, Queued, RateCounts, TrafficManager,
};
use v1model::entries::digest::DigestList;
use v1model::{
    CloneRequest, EgressInput, EgressVerdict, Externs, IngressInput, IngressVerdict, InstanceType,
    LoadOptions, Pipeline,
};

use crate::learning::Learning;
use crate::mirror::Sessions;
use crate::multicast::{GroupLimits, Groups};
use crate::pause_frame::{PauseFrame, is_pause};
use crate::pool::{PacketId, Pool};

/// A packet that the program sends round again (resubmitted, recirculated) re-enters ingress
/// this much later: a program that does so for ever must not stop time.
const ROUND_NS: u64 = 1_000;

/// Packets on their way round at once, as many as simple_switch takes.
const GOING_ROUND_PACKETS: usize = 1_024;

/// Entries looked at in one go for whether they are idle: some hundred microseconds.
const IDLE_LOOKS: usize = 512;

/// Time between two such goes.
const IDLE_INTERVAL_NS: u64 = 1_000_000;

/// FIFO of the CPU port: what the controller has not taken yet, in bytes.
const CPU_FIFO_BYTES: u64 = 1 << 20;

/// Longest time that a frame may lie before the switch looks at it ([`Switch::moderation_ns`]):
/// what came meanwhile delays what is to leave by some ten microseconds.
const MODERATION_MAX_NS: u64 = 250_000;

/// The same where what is to leave has been handed over before.
const MODERATION_EARLY_MAX_NS: u64 = 1_000_000;

/// By how much packets start before their time, at most, where frames are handed over before they
/// leave, and every frame is looked at when it comes.
const START_LEAD_NS: u64 = 400_000;

/// Where the switch is awake anyway it starts packets when this part of the lead is left, all of the
/// lead at once: each hand-over costs a system call, however many frames it has.
const AWAKE_PARTS: u64 = 2;

/// It wakes up for them when this part is left.
const WAKES_PARTS: u64 = 8;

/// Later than everything: nothing happens by itself.
const NEVER_NS: u64 = u64::MAX;

/// Most packets that `enq_qdepth` and `deq_qdepth` tell of: 19 bits.
const QUEUE_DEPTH_MAX: u32 = (1 << 19) - 1;

/// Port numbers of v1model: 9 bits.
const PORT_NUMBERS: usize = 512;

/// Longest frame that any interface or capture brings, in bytes without FCS: 65,535 of IP, Ethernet
/// and two tags.
pub const MAX_FRAME_BYTES: usize = 65_557;

/// Settings that do not change while the switch runs.
#[derive(Debug, Clone)]
pub struct SwitchConfig {
    /// Port whose packets go to and come from the controller.
    pub cpu_port: Option<u16>,
    /// `egress_spec` that means "drop".
    pub drop_port: u16,
    /// Longest frame in bytes, without FCS.
    pub max_frame_bytes: usize,
    /// Most packets in the switch at once: held, queued and in delay lines.
    pub max_packets: usize,
    /// Limits of multicast.
    pub groups: GroupLimits,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            cpu_port: None,
            drop_port: 511,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_packets: 1 << 19,
            groups: GroupLimits::default(),
        }
    }
}

/// Where frames go that leave the switch.
pub trait Sink {
    /// A frame for the interface of `port`; its first bit leaves at `delivery_ns`, which is
    /// at most the `now_ns` of the call that led here, unless the sink sends frames when it is time
    /// ([`Switch::hand_over_early`]). `held`: the program gave it a departure
    /// time, so the instant at which it leaves matters. PAUSE frames that fill gaps come this way,
    /// too.
    fn transmit(&mut self, port: u16, frame: &[u8], delivery_ns: u64, held: bool);
    /// The same for the frame at `frame` of `buffer`, which may be exchanged for any other buffer
    /// instead of being copied from.
    fn transmit_buffer(
        &mut self,
        port: u16,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        delivery_ns: u64,
        held: bool,
    ) {
        let frame = buffer.get(frame).unwrap_or_default();
        self.transmit(port, frame, delivery_ns, held);
    }

    /// A frame for the controller, with the program's packet-in header in front.
    fn to_controller(&mut self, frame: &[u8]);
    /// Something to tell the controllers.
    /// False: there was no room for it, nobody will see it.
    fn notify(&mut self, notification: Notification) -> bool;
}

/// What the switch as a whole has seen since it started. Drops are counted by the traffic
/// manager, per port and cause.
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
    /// Times that the program sent a packet through ingress again (resubmitted, recirculated).
    pub rounds: u64,
    /// Packets dropped because an `assert` or `assume` failed, or a loop did not end.
    pub assertions_failed: u64,
}

impl Counters {
    /// Notes a packet that an assertion ended, and tells of the first and of each that makes them
    /// twice as many.
    fn assertion_failed(&mut self, control: &str, port: u16) {
        self.assertions_failed += 1;
        let so_far = self.assertions_failed;
        if so_far.is_power_of_two() {
            tracing::warn!(target: "p4", control, port, so_far, "packet dropped: an assert or assume failed, or an action's loops went round too often");
        }
    }
}

/// What came in at one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames.
    pub packets: u64,
    /// Their layer-2 bytes without FCS.
    pub bytes: u64,
}

/// What the traffic manager does not know of a port.
#[derive(Debug, Clone, Default)]
struct Face {
    interface: String,
    /// Source of the PAUSE frames that the port sends.
    address: [u8; 6],
    received: Received,
}

/// The traffic manager as the program's extern sees it.
struct Backlogs<'a>(&'a TrafficManager<PacketId>);

impl Externs for Backlogs<'_> {
    fn backlog_bytes(&self, class: u32) -> u64 {
        self.0.class_backlog_bytes(class)
    }

    fn logs(&self) -> bool {
        tracing::enabled!(target: "p4", tracing::Level::INFO)
    }

    fn log(&self, message: &str) {
        tracing::info!(target: "p4", "{message}");
    }
}

/// The program with the packets that are in it.
pub(crate) struct Running {
    pub(crate) pipeline: Pipeline,
    pool: Pool,
    going_round: VecDeque<GoingRound>,
}

/// What is written for a program beside its tables.
pub(crate) struct Engines {
    pub(crate) groups: Groups,
    pub(crate) sessions: Sessions,
    pub(crate) learning: Learning,
}

impl Engines {
    fn new(limits: GroupLimits) -> Self {
        Self {
            groups: Groups::new(limits),
            sessions: Sessions::new(limits),
            learning: Learning::default(),
        }
    }
}

/// A program that does not run yet, with what was written for it.
pub(crate) struct Staged {
    pub(crate) pipeline: Pipeline,
    pub(crate) engines: Engines,
}

/// A packet that the program sends through ingress again (resubmitted, recirculated), or one for
/// a port that does not exist: as in simple_switch, egress sees that one all the same, and may
/// clone or recirculate it.
struct GoingRound {
    ready_ns: u64,
    port: u16,
    instance_type: InstanceType,
    id: PacketId,
    /// On the way to egress; `port` is where it cannot go.
    nowhere: bool,
}

/// A packet that has been parsed and waits for its turn.
struct Parsed {
    id: PacketId,
    input: IngressInput,
}

/// Where a packet or a copy of it goes, and as what.
#[derive(Debug, Clone, Copy)]
struct Destination {
    port: u16,
    rid: u16,
    instance_type: InstanceType,
    /// Port that a multicast copy's packet came in at.
    copied_from: Option<u16>,
}

/// A v1model switch. See the [crate] documentation.
pub struct Switch {
    config: SwitchConfig,
    pub(crate) running: Option<Running>,
    manager: TrafficManager<PacketId>,
    /// See [`Switch::receive_ahead`].
    parsed: Option<Parsed>,
    pub(crate) engines: Engines,
    pub(crate) staged: Option<Staged>,
    /// The words of one digest message.
    digest_words: Vec<u64>,
    /// When to look for idle entries, and when that was done last.
    idle_due_ns: Option<u64>,
    idle_looked_ns: u64,
    /// Ports that cannot carry frames.
    down: BTreeSet<u16>,
    counters: Counters,
    /// By port number.
    faces: Vec<Face>,
    /// Latest instant the driver told; time of what the control plane does.
    now_ns: u64,
    /// What the driver told last.
    attention: Attention,
    pause_frame: PauseFrame,
    /// See [`Switch::moderation_ns`].
    moderation_ns: u64,
    /// See [`Switch::hand_over_early`].
    hands_over_early: bool,
    /// By how much packets start before their time.
    start_lead_ns: u64,
}

impl Switch {
    /// A switch without ports and program. `limits` are those of the traffic manager.
    pub fn new(config: SwitchConfig, limits: Limits) -> Self {
        let mut manager = TrafficManager::new(limits);
        if let Some(port) = config.cpu_port {
            // A fresh traffic manager with room for any port takes this one.
            let _ = manager.add_port(
                port,
                PortConfig {
                    line_rate_bps: None,
                    counts: RateCounts::Layer2,
                    fifo_bytes: CPU_FIFO_BYTES,
                    delay_ns: 0,
                    gaps: Gaps::Accounted,
                },
            );
        }
        Self {
            engines: Engines::new(config.groups),
            staged: None,
            digest_words: Vec::new(),
            idle_due_ns: None,
            idle_looked_ns: 0,
            down: BTreeSet::new(),
            config,
            running: None,
            manager,
            parsed: None,
            counters: Counters::default(),
            faces: vec![Face::default(); PORT_NUMBERS],
            now_ns: 0,
            attention: Attention::default(),
            pause_frame: PauseFrame::new(),
            moderation_ns: 0,
            hands_over_early: false,
            start_lead_ns: 0,
        }
    }

    /// How long arrivals may lie before they are looked at, with nothing leaving later for it (as
    /// interfaces moderate their interrupts): 0 unless every port has a propagation delay, and the
    /// program does not mind when it is run. What is for the controller may be that much later.
    pub fn moderation_ns(&self) -> u64 {
        self.moderation_ns
    }

    /// The sink sends frames when it is time: it gets them up to [`Self::moderation_ns`] before. Where
    /// that is 0 it is 400 us: what arrives meanwhile for the same port leaves behind them, limits on
    /// queues see that much less, and egress of the program is told times to come. Not where PAUSE
    /// frames fill gaps, which hang on what comes, nor where the program sends packets round or
    /// clones them.
    pub fn hand_over_early(&mut self, early: bool) {
        self.hands_over_early = early;
        self.moderate();
    }

    /// By how much frames are handed over before they leave.
    fn lead_ns(&self) -> u64 {
        if self.hands_over_early {
            self.moderation_ns.max(self.start_lead_ns)
        } else {
            0
        }
    }

    /// The program or a port has changed.
    fn moderate(&mut self) {
        let ports = self.manager.ports();
        let lines = ports.filter(|(port, _)| self.config.cpu_port != Some(*port));
        let shortest_ns = lines.map(|(_, config)| config.delay_ns).min().unwrap_or(0);
        let may_run_late = |running: &Running| running.pipeline.may_run_late();
        self.moderation_ns = if self.running.as_ref().is_some_and(may_run_late) {
            let most_ns = if self.hands_over_early {
                MODERATION_EARLY_MAX_NS
            } else {
                MODERATION_MAX_NS
            };
            (shortest_ns / 2).min(most_ns)
        } else {
            0
        };
        let fills_gaps = |config: &PortConfig| config.gaps != Gaps::Accounted;
        self.start_lead_ns = if self.hands_over_early
            && self.moderation_ns == 0
            && self
                .running
                .as_ref()
                .is_some_and(|running| running.pipeline.may_start_early())
            && !self.manager.ports().any(|(_, config)| fills_gaps(config))
        {
            START_LEAD_NS
        } else {
            0
        };
    }

    /// The driver may be late: classes that this puts behind catch up with spaced packets
    /// ([`TrafficManager::space_catch_up`]).
    pub fn space_catch_up(&mut self) {
        self.manager.space_catch_up();
    }

    /// Settings.
    pub fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Counters of the switch as a whole.
    pub fn totals(&self) -> Counters {
        self.counters
    }

    /// Ports, queues and their statistics.
    pub fn traffic_manager(&self) -> &TrafficManager<impl Sized + use<>> {
        &self.manager
    }

    /// Adds a port; `interface` is what people know it by.
    ///
    /// # Errors
    /// The number is taken (also by the CPU port), too many ports, line rate out of range.
    pub fn add_port(
        &mut self,
        port: u16,
        interface: &str,
        config: PortConfig,
    ) -> Result<(), PortError> {
        self.manager.add_port(port, config)?;
        if let Some(face) = self.faces.get_mut(usize::from(port)) {
            interface.clone_into(&mut face.interface);
            let [high, low] = port.to_be_bytes();
            face.address = [0x02, 0, 0, 0, high, low];
        }
        self.moderate();
        Ok(())
    }

    /// Tells the address of a port's interface: the source of the PAUSE frames that fill gaps. Until
    /// then it is a locally administered one, 02-00-00-00 and the port's number.
    pub fn set_port_address(&mut self, port: u16, address: [u8; 6]) {
        if let Some(face) = self.faces.get_mut(usize::from(port)) {
            face.address = address;
        }
    }

    /// Name of a port's interface.
    pub fn interface(&self, port: u16) -> &str {
        self.faces
            .get(usize::from(port))
            .map_or("", |face| &face.interface)
    }

    /// What came in at a port.
    pub fn received(&self, port: u16) -> Received {
        self.faces
            .get(usize::from(port))
            .map_or_else(Received::default, |face| face.received)
    }

    /// The latest instant that the driver told.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// How closely the driver watches for departures, as last told.
    pub fn attention(&self) -> &Attention {
        &self.attention
    }

    /// The driver tells how closely it has watched for departures, for the statistics.
    pub fn tell_attention(&mut self, attention: Attention) {
        self.attention = attention;
    }

    /// Changes a port; applies to the next frame.
    ///
    /// # Errors
    /// No such port, line rate out of range.
    pub fn change_port(&mut self, port: u16, config: PortConfig) -> Result<(), PortError> {
        self.manager.set_port(port, config)?;
        self.moderate();
        Ok(())
    }

    /// Tells whether a port's interface can carry frames; a port that cannot refuses packets
    /// (`port-down`).
    pub fn set_port_up(&mut self, port: u16, up: bool) {
        if self.manager.set_port_up(port, up).is_err() {
            // A port that does not exist has no state to keep.
            return;
        }
        if up {
            self.down.remove(&port);
        } else {
            self.down.insert(port);
        }
        let running = self.running.as_mut().map(|running| &mut running.pipeline);
        let staged = self.staged.as_mut().map(|staged| &mut staged.pipeline);
        for pipeline in running.into_iter().chain(staged) {
            pipeline.port_changed(port.into(), up);
        }
    }

    /// Counts drops that happened at an interface.
    pub fn count_drop(&mut self, port: u16, cause: DropCause, packets: u64) {
        self.manager.count_drops(port, cause, packets);
    }

    /// Options for loading a program here.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            drop_port: self.config.drop_port,
            cpu_port: self.config.cpu_port,
            max_frame_bytes: self.config.max_frame_bytes,
            ..LoadOptions::default()
        }
    }

    /// A program as one that does not run yet, told how things are.
    pub(crate) fn prepared(&self, mut pipeline: Pipeline) -> Staged {
        pipeline.tell_time(self.now_ns);
        for port in &self.down {
            pipeline.port_changed((*port).into(), false);
        }
        Staged {
            pipeline,
            engines: Engines::new(self.config.groups),
        }
    }

    /// Puts a program in place of the running one; what was in flight is dropped and counted.
    /// Returns what ran before.
    pub(crate) fn replace(&mut self, staged: Staged) -> Option<Running> {
        let _ = self.manager.drain();
        if let Some(parsed) = self.parsed.take() {
            self.manager
                .count_drop(parsed.input.port, DropCause::PipelineSwap);
        }
        if let Some(old) = &self.running {
            for packet in &old.going_round {
                self.manager
                    .count_drop(packet.port, DropCause::PipelineSwap);
            }
        }
        while let Some(delivery) = self.manager.poll_delivery(u64::MAX, self.now_ns) {
            let cause = match delivery.frame {
                Frame::Packet(_) => DropCause::PipelineSwap,
                Frame::Gap { .. } => DropCause::GapFrame,
            };
            self.manager.count_drop(delivery.port, cause);
        }
        self.engines = staged.engines;
        let mut pipeline = staged.pipeline;
        pipeline.start(self.now_ns);
        let before = self.running.replace(Running {
            pipeline,
            pool: Pool::new(self.config.max_packets),
            going_round: VecDeque::new(),
        });
        self.look_for_idle();
        self.moderate();
        before
    }

    /// Idle timeouts have changed.
    pub(crate) fn look_for_idle(&mut self) {
        let running = self.running.as_ref();
        let due_ns = running.and_then(|running| running.pipeline.next_idle_ns());
        let earliest_ns = self.idle_looked_ns.saturating_add(IDLE_INTERVAL_NS);
        self.idle_due_ns = due_ns.map(|due_ns| due_ns.max(earliest_ns));
    }

    /// The latest instant at which [`Self::advance`] is to be called next; none if nothing happens
    /// by itself.
    pub fn next_event_ns(&self) -> Option<u64> {
        Some(self.event_ns(false)).filter(|next_ns| *next_ns != NEVER_NS)
    }

    /// The earliest instant at which there is something to do: `eager`, if all is done as soon as it
    /// may be, else as late. Asked several times per packet, so without more ado than a few
    /// comparisons.
    fn event_ns(&self, eager: bool) -> u64 {
        let round = self.running.as_ref().and_then(|r| r.going_round.front());
        let round_ns = round.map_or(NEVER_NS, |packet| packet.ready_ns);
        // In good time, where somebody else sends frames; with some to spare, so not each by itself.
        let (start_lead_ns, lead_ns) = (self.start_lead_ns, self.lead_ns());
        let (start_lead_ns, lead_ns, patience_ns) = if eager {
            (start_lead_ns / AWAKE_PARTS, lead_ns, 0)
        } else {
            (start_lead_ns / WAKES_PARTS, lead_ns / 2, self.moderation_ns)
        };
        let start_ns = self.manager.next_start_ns().map_or(NEVER_NS, |start_ns| {
            start_ns
                .saturating_sub(start_lead_ns)
                .saturating_add(patience_ns)
        });
        let delivery_ns = self
            .manager
            .next_delivery_ns()
            .map_or(NEVER_NS, |delivery_ns| delivery_ns.saturating_sub(lead_ns));
        let learning_ns = self.engines.learning.due_ns().unwrap_or(NEVER_NS);
        let idle_ns = self.idle_due_ns.unwrap_or(NEVER_NS);
        start_ns
            .min(delivery_ns)
            .min(round_ns)
            .min(learning_ns)
            .min(idle_ns)
    }

    /// A frame arrives. `now_ns` is the driver's present and at least `arrival_ns`, the time at
    /// which the frame reached the interface.
    pub fn receive(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        self.receive_ahead(port, frame, arrival_ns, now_ns);
        self.settle();
    }

    /// As [`Self::receive`], but only the frame received so before it goes through the program; this
    /// one is parsed and waits for the next, or for [`Self::settle`], which is to come before the
    /// driver waits or does anything else. So the switch knows what a frame will need of memory while
    /// it is at work for another; what comes of the frames is the same.
    pub fn receive_ahead(&mut self, port: u16, frame: &[u8], arrival_ns: u64, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(face) = self.faces.get_mut(usize::from(port)) {
            face.received.packets += 1;
            face.received.bytes += frame.len() as u64;
        }
        if is_pause(frame) {
            self.manager.count_drop(port, DropCause::PauseFrame);
            return;
        }
        let input = IngressInput {
            port,
            now_ns: arrival_ns,
            instance_type: InstanceType::Normal,
        };
        // The one before may be what keeps this one from being taken.
        if self.running.as_ref().is_some_and(|r| !r.pool.has_room()) {
            self.settle();
            self.start_unpaced(arrival_ns);
        }
        let parsed = self.take_in(frame, input);
        if let (Some(Parsed { id, .. }), Some(running), Some(_)) =
            (&parsed, &mut self.running, &self.parsed)
            && let Some(packet) = running.pool.get_mut(*id)
        {
            running.pipeline.expect(&mut packet.context);
        }
        self.settle();
        self.parsed = parsed;
    }

    /// The frame that waits after [`Self::receive_ahead`] goes through the program.
    pub fn settle(&mut self) {
        if let Some(Parsed { id, input }) = self.parsed.take() {
            // What the FIFOs had sent by then makes room for this one.
            self.start_unpaced(input.now_ns);
            self.ingress_control(id, input);
        }
    }

    /// A packet from the controller, at the time last told.
    pub(crate) fn packet_from_controller(&mut self, port: u16, frame: &[u8]) {
        self.counters.packets_from_controller += 1;
        let input = IngressInput {
            port,
            now_ns: self.now_ns,
            instance_type: InstanceType::Normal,
        };
        if let Some(Parsed { id, input }) = self.take_in(frame, input) {
            self.ingress_control(id, input);
        }
    }

    /// Takes a frame into the switch and parses it; `None`: it has been dropped.
    fn take_in(&mut self, frame: &[u8], input: IngressInput) -> Option<Parsed> {
        let Some(running) = &mut self.running else {
            self.manager.count_drop(input.port, DropCause::NoProgram);
            return None;
        };
        if frame.len() > self.config.max_frame_bytes {
            self.manager.count_drop(input.port, DropCause::Oversize);
            return None;
        }
        let Some(id) = running.pool.take(&running.pipeline) else {
            self.manager.count_drop(input.port, DropCause::HoldLimit);
            return None;
        };
        running.pool.get_mut(id)?.context.set_frame(frame);
        self.parse(id, &input);
        Some(Parsed { id, input })
    }

    fn parse(&mut self, id: PacketId, input: &IngressInput) {
        if let Some(Running { pipeline, pool, .. }) = &mut self.running
            && let Some(packet) = pool.get_mut(id)
        {
            pipeline.parse(&mut packet.context, input, &Backlogs(&self.manager));
        }
    }

    /// What a packet comes to that has been parsed.
    fn ingress_control(&mut self, id: PacketId, input: IngressInput) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(packet) = running.pool.get_mut(id) else {
            return;
        };
        let length_bytes = u32::try_from(packet.context.frame_len()).unwrap_or(u32::MAX);
        let verdict =
            running
                .pipeline
                .ingress_control(&mut packet.context, &input, &Backlogs(&self.manager));
        self.counters.parser_errors += u64::from(verdict.parser_error);
        if verdict.assertion_failed {
            // Whatever else the program asked for before.
            self.counters.assertion_failed("ingress", input.port);
            self.manager.count_drop(input.port, DropCause::Assertion);
            self.release(id);
            return;
        }
        if let Some(digest) = verdict.digest {
            self.learn(id, digest, input.now_ns);
        }
        if let Some(request) = verdict.clone {
            self.clone_packet(id, request, InstanceType::IngressClone, input.now_ns);
        }
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(packet) = running.pool.get_mut(id) else {
            return;
        };
        if let Some(field_list) = verdict.resubmit {
            running.pipeline.resubmit(&mut packet.context, field_list);
            self.send_round(id, input.port, InstanceType::Resubmit, input.now_ns, false);
        } else if verdict.mcast_group != 0 {
            self.replicate(id, &verdict, input, length_bytes);
        } else if verdict.drop {
            self.manager.count_drop(input.port, DropCause::IngressDrop);
            self.release(id);
        } else {
            let to = Destination {
                port: verdict.egress_port,
                rid: 0,
                // As simple_switch has it, whether the packet came round or not.
                instance_type: InstanceType::Normal,
                copied_from: None,
            };
            self.queue(id, to, verdict.hold, input.now_ns, length_bytes);
        }
    }

    /// Takes a packet's digest message, if a controller wants it.
    fn learn(&mut self, id: PacketId, digest: usize, at_ns: u64) {
        if !self.engines.learning.wants(digest) {
            return;
        }
        if let Some(running) = &mut self.running
            && let Some(packet) = running.pool.get_mut(id)
        {
            let words = running.pipeline.digest(&packet.context, digest);
            self.digest_words.clear();
            self.digest_words.extend(words);
            let words = &self.digest_words;
            self.counters.digests_lost += self.engines.learning.learn(digest, words, at_ns);
        }
    }

    /// Tells what is to be told by `now_ns`.
    fn notify(&mut self, now_ns: u64, sink: &mut impl Sink) {
        let Some(running) = &mut self.running else {
            return;
        };
        while let Some(list) = self.engines.learning.take(now_ns) {
            let messages = list.messages.iter();
            let (digest, list_id) = (list.digest, list.list_id);
            let list = DigestList {
                digest,
                list_id,
                messages: messages
                    .map(|words| running.pipeline.digest_fields(list.digest, words))
                    .collect(),
            };
            let taken = sink.notify(Notification {
                at_ns: now_ns,
                body: NotificationBody::Digests(list),
            });
            if !taken {
                // Nobody has seen it: its messages are to be told again.
                self.engines.learning.acknowledge(digest, list_id);
            }
        }
        if self.idle_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            let idle = running.pipeline.take_idle_entries(IDLE_LOOKS);
            self.idle_looked_ns = now_ns;
            self.look_for_idle();
            if !idle.is_empty() {
                sink.notify(Notification {
                    at_ns: now_ns,
                    body: NotificationBody::Idle(idle),
                });
            }
        }
    }

    /// Sends clones of a packet (at the end of ingress, or of egress) where its session says;
    /// nowhere, if there is no such session.
    fn clone_packet(
        &mut self,
        id: PacketId,
        request: CloneRequest,
        instance_type: InstanceType,
        now_ns: u64,
    ) {
        let count = self.engines.sessions.replicas(request.session).len();
        let cut = self.engines.sessions.packet_length_bytes(request.session);
        for index in 0..count {
            let Some(replica) = self
                .engines
                .sessions
                .replicas(request.session)
                .get(index)
                .copied()
            else {
                break;
            };
            let port = u16::try_from(replica.port).unwrap_or(u16::MAX);
            let copy = self.running.as_mut().and_then(|running| {
                let copy = running.pool.take(&running.pipeline)?;
                let (original, clone) = running.pool.pair(id, copy)?;
                let (pipeline, list) = (&mut running.pipeline, request.field_list);
                if instance_type == InstanceType::IngressClone {
                    pipeline.clone_from_ingress(&original.context, &mut clone.context, list);
                } else {
                    pipeline.clone_from_egress(&original.context, &mut clone.context, list);
                }
                clone.context.truncate_to(cut);
                Some((copy, clone.context.frame_len()))
            });
            match copy {
                Some((copy, length)) => {
                    let to = Destination {
                        port,
                        rid: replica.rid,
                        instance_type,
                        copied_from: None,
                    };
                    let length_bytes = u32::try_from(length).unwrap_or(u32::MAX);
                    self.queue(copy, to, None, now_ns, length_bytes);
                }
                None => self.manager.count_drop(port, DropCause::HoldLimit),
            }
        }
    }

    fn replicate(
        &mut self,
        id: PacketId,
        verdict: &IngressVerdict,
        input: IngressInput,
        length_bytes: u32,
    ) {
        let count = self.engines.groups.replicas(verdict.mcast_group).len();
        if count == 0 {
            self.manager.count_drop(input.port, DropCause::EmptyGroup);
            self.release(id);
            return;
        }
        for index in 0..count {
            let Some(replica) = self
                .engines
                .groups
                .replicas(verdict.mcast_group)
                .get(index)
                .copied()
            else {
                break;
            };
            let port = u16::try_from(replica.port).unwrap_or(u16::MAX);
            // The last copy is the packet itself.
            let copy = if index + 1 == count {
                Some(id)
            } else if let Some(running) = &mut self.running {
                running.pool.copy(&running.pipeline, id)
            } else {
                None
            };
            match copy {
                Some(copy) => {
                    let running = self.running.as_mut();
                    if let Some(packet) = running.and_then(|r| r.pool.get_mut(copy)) {
                        packet.context.keep_whole();
                    }
                    let to = Destination {
                        port,
                        rid: replica.rid,
                        instance_type: InstanceType::Replication,
                        copied_from: Some(input.port),
                    };
                    self.queue(copy, to, verdict.hold, input.now_ns, length_bytes);
                }
                None => self.manager.count_drop(port, DropCause::HoldLimit),
            }
        }
    }

    fn queue(
        &mut self,
        id: PacketId,
        to: Destination,
        hold: Option<Hold>,
        now_ns: u64,
        length_bytes: u32,
    ) {
        // The controller is not at the end of a paced path: its copies go at once.
        let hold = hold.filter(|_| self.config.cpu_port != Some(to.port));
        if let Some(packet) = self
            .running
            .as_mut()
            .and_then(|running| running.pool.get_mut(id))
        {
            packet.replication_id = to.rid;
            packet.copied_from = to.copied_from;
            packet.instance_type = to.instance_type;
            packet.held = hold.is_some();
        }
        if self.manager.port_config(to.port).is_none() {
            self.send_round(id, to.port, to.instance_type, now_ns, true);
            return;
        }
        let queued = Queued {
            payload: id,
            length_bytes,
            arrival_ns: now_ns,
            hold,
        };
        if let Err(refused) = self.manager.enqueue(to.port, queued) {
            self.release(refused.payload);
        }
    }

    /// Lets time come to `now_ns`: whatever is due by then starts, recirculates or leaves.
    pub fn advance(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.now_ns = self.now_ns.max(now_ns);
        if let Some(running) = &mut self.running {
            running.pipeline.tell_time(self.now_ns);
        }
        let handed_ns = now_ns.saturating_add(self.lead_ns());
        while self.event_ns(true) <= now_ns {
            self.notify(now_ns, sink);
            self.come_round(now_ns);
            let until_ns = match self.manager.next_start_ns() {
                Some(next_ns) if next_ns > now_ns => now_ns.saturating_add(self.start_lead_ns),
                _ => now_ns,
            };
            while let Some(start) = self.manager.poll_start(until_ns, now_ns) {
                self.egress(start);
            }
            while let Some(delivery) = self.manager.poll_delivery(handed_ns, now_ns) {
                let (port, delivery_ns) = (delivery.port, delivery.delivery_ns);
                match delivery.frame {
                    Frame::Packet(id) => self.deliver(port, id, delivery_ns, sink),
                    Frame::Gap { length_bytes } => {
                        let address = self
                            .faces
                            .get(usize::from(port))
                            .map_or([0; 6], |face| face.address);
                        let frame = self.pause_frame.bytes(address, length_bytes);
                        sink.transmit(port, frame, delivery_ns, false);
                    }
                }
            }
        }
    }

    /// Starts what the FIFOs started by `until_ns`, without releasing paced packets.
    fn start_unpaced(&mut self, until_ns: u64) {
        while let Some(start) = self.manager.poll_start_unpaced(until_ns, self.now_ns) {
            self.egress(start);
        }
    }

    fn egress(&mut self, start: traffic_manager::Start<PacketId>) {
        let id = start.payload;
        let Some((running, packet)) = self.running.as_mut().and_then(|running| {
            let Running { pipeline, pool, .. } = running;
            Some((pipeline, pool.get_mut(id)?))
        }) else {
            self.manager.abandoned(start.token, DropCause::PipelineSwap);
            return;
        };
        let mut verdict = running.egress_control(
            &mut packet.context,
            &EgressInput {
                port: start.port,
                now_ns: start.start_ns,
                rid: packet.replication_id,
                enqueued_ns: start.enqueued_ns,
                enq_qdepth: start.enqueued_behind_packets.min(QUEUE_DEPTH_MAX),
                deq_qdepth: start.left_behind_packets.min(QUEUE_DEPTH_MAX),
                instance_type: packet.instance_type,
            },
            &Backlogs(&self.manager),
        );
        let copied_from = packet.copied_from;
        if let Some(request) = verdict.clone {
            // As egress left the headers: checksums are updated later.
            self.clone_packet(id, request, InstanceType::EgressClone, start.start_ns);
        }
        if !verdict.drop {
            self.deparse(id, start.start_ns, &mut verdict);
        }
        if verdict.assertion_failed {
            self.counters.assertion_failed("egress", start.port);
        }
        if verdict.drop {
            let cause = if verdict.assertion_failed {
                DropCause::Assertion
            } else if copied_from == Some(start.port) {
                DropCause::Pruned
            } else {
                DropCause::EgressDrop
            };
            self.manager.abandoned(start.token, cause);
            self.release(id);
            return;
        }
        let Some((running, packet)) = self.running.as_mut().and_then(|running| {
            let Running { pipeline, pool, .. } = running;
            Some((pipeline, pool.get_mut(id)?))
        }) else {
            self.manager.abandoned(start.token, DropCause::PipelineSwap);
            return;
        };
        if let Some(field_list) = verdict.recirculate {
            if !running.recirculate(&mut packet.context, field_list) {
                // Grown past what a packet may be: it goes no further.
                self.manager.recirculated(start.token);
                self.manager.count_drop(start.port, DropCause::Oversize);
                self.release(id);
                return;
            }
            self.manager.recirculated(start.token);
            // Like simple_switch, a recirculated packet has no ingress port of its own.
            self.send_round(id, 0, InstanceType::Recirculated, start.start_ns, false);
            return;
        }
        let length_bytes = u32::try_from(packet.context.output().len()).unwrap_or(u32::MAX);
        if let Err(refused) = self.manager.transmitted(start.token, length_bytes, id) {
            self.release(refused.payload);
        }
    }

    /// Updates a packet's checksums and deparses it, after its egress.
    fn deparse(&mut self, id: PacketId, now_ns: u64, verdict: &mut EgressVerdict) {
        let Some(Running { pipeline, pool, .. }) = &mut self.running else {
            return;
        };
        if let Some(packet) = pool.get_mut(id) {
            let externs = Backlogs(&self.manager);
            pipeline.deparse(&mut packet.context, now_ns, &externs, verdict);
        }
    }

    fn send_round(
        &mut self,
        id: PacketId,
        port: u16,
        instance_type: InstanceType,
        now_ns: u64,
        nowhere: bool,
    ) {
        let Some(running) = &mut self.running else {
            return;
        };
        if running.going_round.len() >= GOING_ROUND_PACKETS {
            running.pool.release(id);
            let cause = if nowhere {
                DropCause::NoSuchPort
            } else {
                DropCause::RecirculationFull
            };
            self.manager.count_drop(port, cause);
            return;
        }
        self.counters.rounds += 1;
        running.going_round.push_back(GoingRound {
            // Never in the driver's past: one that is behind would only fall further behind.
            ready_ns: now_ns.max(self.now_ns).saturating_add(ROUND_NS),
            port,
            instance_type,
            id,
            nowhere,
        });
    }

    /// Egress of a packet for a port that does not exist: only clones and recirculation come
    /// of it.
    fn egress_nowhere(&mut self, id: PacketId, port: u16, now_ns: u64) {
        let Some(Running { pipeline, pool, .. }) = &mut self.running else {
            return;
        };
        let Some(packet) = pool.get_mut(id) else {
            return;
        };
        let input = EgressInput {
            port,
            now_ns,
            rid: packet.replication_id,
            enqueued_ns: now_ns,
            enq_qdepth: 0,
            deq_qdepth: 0,
            instance_type: packet.instance_type,
        };
        let from = packet.context.ingress_port();
        let externs = Backlogs(&self.manager);
        let mut verdict = pipeline.egress_control(&mut packet.context, &input, &externs);
        if let Some(request) = verdict.clone {
            self.clone_packet(id, request, InstanceType::EgressClone, now_ns);
        }
        if !verdict.drop {
            self.deparse(id, now_ns, &mut verdict);
        }
        if verdict.assertion_failed {
            self.counters.assertion_failed("egress", port);
        }
        let again = !verdict.drop
            && verdict.recirculate.is_some_and(|list| {
                self.running.as_mut().is_some_and(|running| {
                    let Running { pipeline, pool, .. } = running;
                    pool.get_mut(id)
                        .is_some_and(|packet| pipeline.recirculate(&mut packet.context, list))
                })
            });
        if again {
            self.send_round(id, 0, InstanceType::Recirculated, now_ns, false);
        } else {
            let (at, cause) = match port {
                _ if verdict.assertion_failed => (from, DropCause::Assertion),
                // The program chose none.
                0 => (from, DropCause::NoRoute),
                _ => (port, DropCause::NoSuchPort),
            };
            self.manager.count_drop(at, cause);
            self.release(id);
        }
    }

    /// Packets whose round is over enter ingress again.
    fn come_round(&mut self, now_ns: u64) {
        while let Some(running) = &mut self.running
            && let Some(packet) = running
                .going_round
                .front()
                .filter(|packet| packet.ready_ns <= now_ns)
        {
            let (id, nowhere, input) = (
                packet.id,
                packet.nowhere,
                IngressInput {
                    port: packet.port,
                    now_ns: packet.ready_ns,
                    instance_type: packet.instance_type,
                },
            );
            running.going_round.pop_front();
            if nowhere {
                self.egress_nowhere(id, input.port, input.now_ns);
            } else {
                self.parse(id, &input);
                self.ingress_control(id, input);
            }
        }
    }

    fn deliver(&mut self, port: u16, id: PacketId, delivery_ns: u64, sink: &mut impl Sink) {
        if let Some(packet) = self
            .running
            .as_mut()
            .and_then(|running| running.pool.get_mut(id))
        {
            if self.config.cpu_port == Some(port) {
                self.counters.packets_to_controller += 1;
                sink.to_controller(packet.context.output());
            } else {
                let (buffer, frame) = packet.context.lend_output();
                sink.transmit_buffer(port, buffer, frame, delivery_ns, packet.held);
            }
        }
        self.release(id);
    }

    fn release(&mut self, id: PacketId) {
        if let Some(running) = &mut self.running {
            running.pool.release(id);
        }
    }
}
