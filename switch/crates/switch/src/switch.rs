//! The switch: its ports, the program that runs and the one that is staged.

use std::collections::BTreeSet;

use port_settings::QueueSettings;
use traffic_manager::{
    DropCause, DropCount, Frame, Gaps, Limits, PortConfig, PortError, PortStatistics, RateCounts,
    TrafficManager,
};
use v1model::{IngressInput, InstanceType, LoadOptions, Pipeline};

use crate::config::SwitchConfig;
use crate::handover::{Conditions, Handover, Leads};
use crate::pause_frame::{PauseFrame, is_pause};
use crate::polling::Polling;
use crate::program::{Counters, Environment, Leaving, Parsed, Program, Sink};
use crate::trace::{Collector, PacketTrace, Receiver, TooManyWatches, WatchId, WatchOptions};

/// Size of the CPU port's FIFO, for packets that the controller has not taken yet, in bytes.
const CPU_FIFO_BYTES: u64 = 1 << 20;

/// Stands for no instant, later than all: nothing happens by itself.
const NEVER_NS: u64 = u64::MAX;

/// Port numbers of v1model: 9 bits.
const PORT_NUMBERS: usize = 512;

/// The frames that came in at one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames.
    pub packets: u64,
    /// Their layer-2 bytes without FCS.
    pub bytes: u64,
}

/// Frames of several segments that crossed a port's interface. Their segments count as packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trains {
    /// Trains that came in and were taken apart.
    pub received: u64,
    /// Trains that left.
    pub sent: u64,
}

/// The data of a port beside those in the traffic manager.
#[derive(Debug, Clone, Default)]
struct Interface {
    name: String,
    /// Source address of the PAUSE frames that the port sends.
    address: [u8; 6],
    /// As they were given.
    queues: Option<QueueSettings>,
    received: Received,
    /// The driver's last report.
    trains: Trains,
    /// See [`Switch::remove_port`].
    removed: bool,
}

/// The error for settings of a port that were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Its egress queues; the text says which setting and why.
    #[error("{0}")]
    Queues(String),
}

/// A v1model switch. See the [crate] documentation.
pub struct Switch {
    pub(crate) env: Environment,
    pub(crate) running: Option<Program>,
    pub(crate) staged: Option<Program>,
    /// Ports whose interfaces cannot carry frames.
    down: BTreeSet<u16>,
    /// Ports restored since [`Self::take_restored`].
    restored: BTreeSet<u16>,
    /// By port number.
    interfaces: Vec<Interface>,
    /// The last report of the driver's polling.
    polling: Polling,
    /// The driver's last report of traces that were lost.
    lost_traces: Vec<DropCount>,
    pause_frame: PauseFrame,
    handover: Handover,
}

impl Switch {
    /// A switch without ports and program. `limits` are those of the traffic manager.
    pub fn new(config: SwitchConfig, limits: Limits) -> Self {
        let mut manager = TrafficManager::new(limits);
        if let Some(port) = config.cpu_port {
            let added = manager.add_port(
                port,
                PortConfig {
                    line_rate_bps: None,
                    counts: RateCounts::Layer2,
                    fifo_bytes: CPU_FIFO_BYTES,
                    delay_ns: 0,
                    gaps: Gaps::Accounted,
                },
            );
            debug_assert!(added.is_ok(), "a new traffic manager has room for a port");
        }
        Self {
            env: Environment {
                config,
                manager,
                counters: Counters::default(),
                now_ns: 0,
                real_manager: None,
                traces: Collector::default(),
            },
            running: None,
            staged: None,
            down: BTreeSet::new(),
            restored: BTreeSet::new(),
            interfaces: vec![Interface::default(); PORT_NUMBERS],
            polling: Polling::default(),
            lost_traces: Vec::new(),
            pause_frame: PauseFrame::new(),
            handover: Handover::default(),
        }
    }

    /// The time for which arrivals may wait before the switch takes them, without a later departure of
    /// any packet (as interfaces moderate their interrupts). It is 0 unless every port has a propagation
    /// delay and the program's results do not depend on the time when it runs.
    pub fn moderation_ns(&self) -> u64 {
        self.handover.moderation_ns
    }

    /// Sets whether the sink sends frames at their times. If so, it gets them early: by up to
    /// [`Self::moderation_ns`], or by 400 us if that is 0. In the second case, packets that arrive
    /// meanwhile for the same port leave behind them, limits on queues do not count them, and egress
    /// sees future times. So it does not apply if PAUSE frames fill gaps, or if the program recirculates
    /// or clones packets or reads queues.
    pub fn hand_over_early(&mut self, early: bool) {
        self.handover.early = early;
        self.update_handover();
    }

    /// Adapts the hand-over policy after the program or a port has changed.
    fn update_handover(&mut self) {
        let running = self.running.as_ref().map(|program| &program.pipeline);
        let lines = self.lines();
        self.handover.update(&Conditions {
            shortest_delay_ns: lines.map(|(_, config)| config.delay_ns).min().unwrap_or(0),
            program_may_run_late: running.is_some_and(Pipeline::may_run_late),
            program_may_start_early: running.is_some_and(Pipeline::may_start_early),
            fills_gaps: self
                .env
                .manager
                .ports()
                .any(|(_, config)| config.gaps != Gaps::Accounted),
            has_queues: {
                let manager = &self.env.manager;
                manager
                    .ports()
                    .any(|(port, _)| manager.queues(port).is_some())
            },
        });
    }

    /// Allows for a late driver: classes that late polls have put behind catch up with spaced packets
    /// ([`TrafficManager::space_catch_up`]).
    pub fn space_catch_up(&mut self) {
        self.env.manager.space_catch_up();
    }

    /// Settings.
    pub fn config(&self) -> &SwitchConfig {
        &self.env.config
    }

    /// Counters of the switch as a whole.
    pub fn totals(&self) -> Counters {
        self.env.counters
    }

    /// Ports, queues and their statistics.
    pub fn traffic_manager(&self) -> &TrafficManager<impl Sized + use<>> {
        &self.env.manager
    }

    /// Adds a port; `interface` is its name for people.
    ///
    /// # Errors
    /// The number is taken (also by the CPU port), too many ports, line rate out of range.
    pub fn add_port(
        &mut self,
        port: u16,
        interface: &str,
        config: PortConfig,
    ) -> Result<(), PortError> {
        self.env.manager.add_port(port, config)?;
        let [high, low] = port.to_be_bytes();
        self.set_port_address(port, [0x02, 0, 0, 0, high, low]);
        if let Some(of_port) = self.interfaces.get_mut(usize::from(port)) {
            interface.clone_into(&mut of_port.name);
        }
        for program in self.running.iter_mut().chain(&mut self.staged) {
            program.pipeline.port_changed(port.into(), true);
        }
        self.update_handover();
        Ok(())
    }

    /// Sets the address of a port's interface: the source of the PAUSE frames that fill gaps. Until
    /// then it is a locally administered one, 02-00-00-00 and the port's number.
    pub fn set_port_address(&mut self, port: u16, address: [u8; 6]) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            interface.address = address;
        }
    }

    /// Name of a port's interface.
    pub fn interface(&self, port: u16) -> &str {
        self.interfaces
            .get(usize::from(port))
            .map_or("", |interface| &interface.name)
    }

    /// The ports that have a line, with their settings, by number: all but the CPU port.
    pub fn lines(&self) -> impl Iterator<Item = (u16, &PortConfig)> {
        let cpu_port = self.env.config.cpu_port;
        let ports = self.env.manager.ports();
        ports.filter(move |(port, _)| cpu_port != Some(*port))
    }

    /// Every port, including the CPU port, with its arrivals and the traffic manager's counters.
    pub fn port_statistics(&self) -> impl Iterator<Item = (u16, Received, &PortStatistics)> {
        let manager = &self.env.manager;
        manager.ports().filter_map(|(port, _)| {
            let statistics = manager.port_statistics(port)?;
            Some((port, self.received(port), statistics))
        })
    }

    /// The frames that came in at a port.
    pub fn received(&self, port: u16) -> Received {
        self.interfaces
            .get(usize::from(port))
            .map_or_else(Received::default, |interface| interface.received)
    }

    /// The trains that crossed a port's interface, as last reported.
    pub fn trains(&self, port: u16) -> Trains {
        self.interfaces
            .get(usize::from(port))
            .map_or_else(Trains::default, |interface| interface.trains)
    }

    /// Takes the driver's report of the trains that crossed a port's interface, for the statistics.
    pub fn report_trains(&mut self, port: u16, trains: Trains) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            interface.trains = trains;
        }
    }

    /// The latest time that the driver has given.
    pub fn now_ns(&self) -> u64 {
        self.env.now_ns
    }

    /// The last report of the driver's polling.
    pub fn polling(&self) -> &Polling {
        &self.polling
    }

    /// Takes the driver's report of its polling, for the statistics.
    pub fn report_polling(&mut self, polling: &Polling) {
        self.polling.clone_from(polling);
    }

    /// The settings of a port's egress queues, as they were given; `None`: it has a FIFO.
    pub fn queues(&self, port: u16) -> Option<&QueueSettings> {
        self.interfaces.get(usize::from(port))?.queues.as_ref()
    }

    /// Changes a port, and keeps its egress queues; applies to the next frame.
    ///
    /// # Errors
    /// As [`Self::configure_port`].
    pub fn change_port(&mut self, port: u16, config: PortConfig) -> Result<(), SettingsError> {
        self.configure_port(port, config, self.queues(port).cloned())
    }

    /// Gives a port egress queues in place of its FIFO, changes their settings, or gives the FIFO back
    /// (`None`).
    ///
    /// # Errors
    /// As [`Self::configure_port`].
    pub fn set_queues(
        &mut self,
        port: u16,
        queues: Option<QueueSettings>,
    ) -> Result<(), SettingsError> {
        let config = *self
            .env
            .manager
            .port_config(port)
            .ok_or(PortError::NoSuchPort(port))?;
        self.configure_port(port, config, queues)
    }

    /// Changes a port and its egress queues together ([`TrafficManager::set_port`],
    /// [`TrafficManager::set_queues`]).
    ///
    /// # Errors
    /// No such port, a setting is wrong, or settings do not fit together. Nothing has changed.
    pub fn configure_port(
        &mut self,
        port: u16,
        config: PortConfig,
        queues: Option<QueueSettings>,
    ) -> Result<(), SettingsError> {
        let queueing = queues
            .as_ref()
            .map(|queues| queues.config(config.line_rate_bps))
            .transpose()
            .map_err(SettingsError::Queues)?;
        if let Some(queueing) = &queueing {
            let checked = self.env.manager.check_queues(queueing);
            checked.map_err(PortError::from)?;
        }
        self.env.manager.set_port(port, config)?;
        let set = self.env.manager.set_queues(port, queueing);
        debug_assert!(set.is_ok(), "the port exists and the settings were checked");
        set?;
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            interface.queues = queues;
        }
        if let Some(program) = &mut self.running {
            program.release_dropped_at_heads(&mut self.env);
        }
        self.update_handover();
        Ok(())
    }

    /// Sets whether a port's interface can carry frames; a port that cannot refuses packets
    /// (`port-down`). A port that does not exist has no state to keep.
    pub fn set_port_up(&mut self, port: u16, up: bool) {
        if self.env.manager.port_config(port).is_none() {
            return;
        }
        if up {
            self.down.remove(&port);
        } else {
            self.down.insert(port);
        }
        self.port_changed(port);
    }

    /// Removes a port that has a line, until [`Self::restore_port`]. Meanwhile packets that come in at it,
    /// wait at it or go to it are dropped (`port-down`). It keeps its settings and its counters. Returns
    /// whether there was such a port.
    pub fn remove_port(&mut self, port: u16) -> bool {
        self.set_removed(port, true)
    }

    /// Restores a port that was removed. Returns whether there was such a port.
    pub fn restore_port(&mut self, port: u16) -> bool {
        let restored = self.set_removed(port, false);
        if restored {
            self.restored.insert(port);
        }
        restored
    }

    /// Takes the ports that were restored since the last call.
    pub fn take_restored(&mut self) -> BTreeSet<u16> {
        std::mem::take(&mut self.restored)
    }

    fn set_removed(&mut self, port: u16, removed: bool) -> bool {
        let has_line = self.lines().any(|(number, _)| number == port);
        let interface = self.interfaces.get_mut(usize::from(port));
        let Some(interface) = interface.filter(|of_port| has_line && of_port.removed != removed)
        else {
            return false;
        };
        interface.removed = removed;
        self.port_changed(port);
        true
    }

    /// Tells the traffic manager and the programs whether a port carries frames.
    fn port_changed(&mut self, port: u16) {
        let up = self.is_port_up(port);
        // The port exists.
        let _ = self.env.manager.set_port_up(port, up);
        for program in self.running.iter_mut().chain(&mut self.staged) {
            program.pipeline.port_changed(port.into(), up);
        }
    }

    /// Limits the packets that start on a port: see [`TrafficManager::limit_starts`].
    pub fn limit_starts(&mut self, port: u16, starts: Option<u32>, now_ns: u64) {
        // A port that was removed starts none.
        let _ = self.env.manager.limit_starts(port, starts, now_ns);
    }

    /// Whether a port carries frames: its interface can, and it is not removed.
    pub fn is_port_up(&self, port: u16) -> bool {
        !self.down.contains(&port) && !self.is_port_removed(port)
    }

    /// Whether a port is removed.
    pub fn is_port_removed(&self, port: u16) -> bool {
        let interface = self.interfaces.get(usize::from(port));
        interface.is_some_and(|interface| interface.removed)
    }

    /// Counts drops that happened at an interface.
    pub fn count_drop(&mut self, port: u16, cause: DropCause, packets: u64) {
        self.env.manager.count_drops(port, cause, packets);
    }

    /// Options for loading a program here.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            drop_port: self.env.config.drop_port,
            cpu_port: self.env.config.cpu_port,
            max_frame_bytes: self.env.config.max_frame_bytes,
            entry_handles: self.env.config.entry_handles,
            engine: self.env.config.engine,
            ..LoadOptions::default()
        }
    }

    /// A program that does not run yet, with the time and the state of the ports.
    pub(crate) fn prepare(&self, mut pipeline: Pipeline) -> Program {
        pipeline.set_time(self.env.now_ns);
        for (port, _) in self.env.manager.ports() {
            pipeline.port_changed(port.into(), self.is_port_up(port));
        }
        Program::new(pipeline, &self.env.config)
    }

    /// Sets whether all packets that come in from now on are traced, for [`Self::take_trace`]. The traces
    /// of packets that are in the switch when the program is replaced are lost.
    pub fn set_tracing(&mut self, on: bool) {
        self.env.traces.set_driver(on);
        self.update_tracer();
    }

    /// Traces packets that come in from now on, for `receiver`. The watch ends with its count, when the
    /// receiver wants no more, or by [`Self::unwatch`].
    ///
    /// # Errors
    /// There are too many watches.
    pub fn watch(
        &mut self,
        options: WatchOptions,
        receiver: Receiver,
    ) -> Result<WatchId, TooManyWatches> {
        let id = self.env.traces.watch(options, receiver)?;
        self.update_tracer();
        Ok(id)
    }

    /// Ends a watch, if it has not ended by itself.
    pub fn unwatch(&mut self, id: WatchId) {
        self.env.traces.unwatch(id);
        self.update_tracer();
    }

    /// Gives the running program a tracer if somebody wants traces. The tracer stays until the next
    /// change, because it may have traces that others want.
    fn update_tracer(&mut self) {
        let wanted = self.env.traces.is_wanted();
        let Some(program) = &mut self.running else {
            return;
        };
        if !wanted {
            program.tracer = None;
        } else if program.tracer.is_none() {
            program.tracer = Some(program.new_tracer());
        }
    }

    /// The next trace that is complete.
    pub fn take_trace(&mut self) -> Option<PacketTrace> {
        self.env.traces.take()
    }

    /// Takes the driver's report of the traces that were lost after [`Self::take_trace`], for the
    /// statistics.
    pub fn report_lost_traces(&mut self, lost: Vec<DropCount>) {
        self.lost_traces = lost;
    }

    /// Traces that were lost, by cause: because too many waited for [`Self::take_trace`], or as the driver
    /// has reported.
    pub fn lost_traces(&self) -> Vec<DropCount> {
        let waiting = DropCount {
            cause: "traces-full",
            packets: self.env.traces.lost,
        };
        let all = self.lost_traces.iter().cloned().chain([waiting]);
        all.filter(|lost| lost.packets > 0).collect()
    }

    /// Puts a program in place of the running one; packets in flight are dropped and counted.
    /// Returns the old program.
    pub(crate) fn replace(&mut self, mut program: Program) -> Option<Program> {
        if let Some(old) = &self.running {
            for port in old.recirculating.ports() {
                self.env.manager.count_drop(port, DropCause::PipelineSwap);
            }
        }
        self.discard(DropCause::PipelineSwap);
        program.pipeline.start(self.env.now_ns);
        program.schedule_idle_search();
        let before = self.running.replace(program);
        self.env.traces.lose_open();
        self.update_tracer();
        self.update_handover();
        before
    }

    /// Drops every packet that waits in the traffic manager or is in a delay line.
    fn discard(&mut self, cause: DropCause) {
        let manager = &mut self.env.manager;
        let _ = manager.drain(cause);
        while let Some(delivery) = manager.deliver(u64::MAX, self.env.now_ns) {
            let cause = match delivery.frame {
                Frame::Packet(_) => cause,
                Frame::Gap { .. } => DropCause::GapFrame,
            };
            manager.count_drop(delivery.port, cause);
        }
    }

    /// The latest time of the next call of [`Self::poll`]; `None`: nothing happens by itself.
    pub fn poll_at_ns(&self) -> Option<u64> {
        Some(self.event_ns(self.handover.latest())).filter(|next_ns| *next_ns != NEVER_NS)
    }

    /// The earliest instant with something to do, with these leads. It is called several times a packet,
    /// so it takes only a few comparisons.
    fn event_ns(&self, leads: Leads) -> u64 {
        let start_ns = self
            .env
            .manager
            .next_dequeue_ns()
            .map_or(NEVER_NS, |at_ns| {
                at_ns
                    .saturating_sub(leads.start_ns)
                    .saturating_add(leads.patience_ns)
            });
        let delivery_ns = self.env.manager.next_delivery_ns();
        let delivery_ns =
            delivery_ns.map_or(NEVER_NS, |at_ns| at_ns.saturating_sub(leads.delivery_ns));
        let program_ns = self.running.as_ref().map_or(NEVER_NS, |program| {
            let recirculating_ns = program.recirculating.next_ns().unwrap_or(NEVER_NS);
            let learning_ns = program.learning.due_ns().unwrap_or(NEVER_NS);
            let idle_ns = program.idle_due_ns.unwrap_or(NEVER_NS);
            recirculating_ns.min(learning_ns).min(idle_ns)
        });
        start_ns.min(delivery_ns).min(program_ns)
    }

    /// Counts a frame that came in; true if it goes no further.
    pub(crate) fn count_received(&mut self, port: u16, frame: &[u8], now_ns: u64) -> bool {
        self.env.now_ns = self.env.now_ns.max(now_ns);
        if let Some(interface) = self.interfaces.get_mut(usize::from(port)) {
            if interface.removed {
                self.env.manager.count_drop(port, DropCause::PortDown);
                return true;
            }
            interface.received.packets += 1;
            interface.received.bytes += frame.len() as u64;
        }
        let consumed = is_pause(frame);
        if consumed {
            self.env.manager.count_drop(port, DropCause::PauseFrame);
        }
        consumed
    }

    /// A packet from the controller, at the latest time given.
    pub(crate) fn packet_from_controller(&mut self, port: u16, frame: &[u8]) {
        self.env.counters.packets_from_controller += 1;
        let input = IngressInput {
            port,
            now_ns: self.env.now_ns,
            instance_type: InstanceType::Normal,
        };
        if let Some(program) = &mut self.running
            && let Some(Parsed { id, input }) = program.take_in(&mut self.env, frame, input)
        {
            program.ingress(&mut self.env, id, input);
        }
    }

    /// Advances time to `now_ns`: packets due by then start, recirculate or leave to `sink`. Call it
    /// after frames have been received, and at [`Self::poll_at_ns`].
    pub fn poll(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.env.now_ns = self.env.now_ns.max(now_ns);
        if let Some(program) = &mut self.running {
            program.pipeline.set_time(self.env.now_ns);
        }
        let handed_ns = now_ns.saturating_add(self.handover.lead_ns());
        while self.event_ns(self.handover.earliest()) <= now_ns {
            let Some(program) = &mut self.running else {
                debug_assert!(false, "something is due and no program runs");
                self.discard(DropCause::InternalError);
                return;
            };
            let env = &mut self.env;
            program.notify(now_ns, sink);
            program.reenter(env, now_ns);
            let until_ns = match env.manager.next_dequeue_ns() {
                Some(next_ns) if next_ns > now_ns => {
                    now_ns.saturating_add(self.handover.start_lead_ns)
                }
                _ => now_ns,
            };
            while let Some(start) = env.manager.dequeue(until_ns, now_ns) {
                program.egress(env, start);
            }
            program.release_dropped_at_heads(env);
            while let Some(delivery) = env.manager.deliver(handed_ns, now_ns) {
                let (port, delivery_ns) = (delivery.port, delivery.delivery_ns);
                let interface = self.interfaces.get(usize::from(port));
                let removed = interface.is_some_and(|interface| interface.removed);
                match delivery.frame {
                    Frame::Packet(id) if removed => {
                        program.drop_packet(env, id, port, DropCause::PortDown);
                    }
                    Frame::Gap { .. } if removed => {}
                    Frame::Packet(id) => program.deliver(env, port, id, delivery_ns, sink),
                    Frame::Gap { length_bytes } => {
                        let address = interface.map_or([0; 6], |interface| interface.address);
                        let frame = self.pause_frame.bytes(address, length_bytes);
                        let leaving = Leaving {
                            port,
                            delivery_ns,
                            held: false,
                            in_train: false,
                        };
                        sink.transmit(frame, leaving);
                    }
                }
            }
        }
    }
}
