//! The traffic manager: all ports together.

use crate::hold::Hold;

use crate::cause::DropCause;
use crate::config::{PortConfig, PortError, frame_bytes};
use crate::port::{Decision, Frame, Kind, NEVER_NS, Port};
use crate::queues::{ClassQueues, Queue};
use crate::slab::{Meta, Slab};
use crate::statistics::{PortStatistics, QueueState, Statistics};
use crate::time::Q24;
use prefetch::prefetch;

/// Upper bounds of everything the traffic manager keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ports.
    pub max_ports: usize,
    /// Packets that wait (FIFOs and class queues of all ports). No queue may hold more than are
    /// free: one alone gets half, `n` that want all get `1 / (n + 1)` each, and there is always
    /// room for the others.
    pub max_held_packets: usize,
    /// Frames in the delay lines of all ports. No port may have more on their way than four times
    /// what is free: one alone gets four fifths, `n` that want all get `4 / (4n + 1)` each.
    pub max_delay_line_packets: usize,
    /// Classes: class numbers are below this.
    pub max_classes: u32,
    /// Class queues with memory (32 bytes each, in groups of 64 classes): one for each class, and
    /// one more for each further port it leaves by. Idle groups are reused when it is reached.
    pub max_queues: usize,
}

impl Default for Limits {
    /// 512 ports (v1model's 9-bit port numbers), 1,048,576 packets waiting, 4,194,304 on their
    /// way, 4,194,304 queues; 1,048,576 classes and, above them, the 65,536 flows that `pacer.p4`
    /// tracks and gives queues of their own.
    fn default() -> Self {
        Self {
            max_ports: 512,
            max_held_packets: 1 << 20,
            max_delay_line_packets: 1 << 22,
            max_classes: (1 << 20) + (1 << 16),
            max_queues: 1 << 22,
        }
    }
}

/// A packet as the pipeline hands it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued<P> {
    /// The caller's handle.
    pub payload: P,
    /// Layer-2 length without FCS, in bytes.
    pub length_bytes: u32,
    /// When it arrived at the switch, in nanoseconds.
    pub arrival_ns: u64,
    /// Request of the program's to hold it in a class queue; `None`: unpaced FIFO.
    pub hold: Option<Hold>,
}

/// A packet that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<P> {
    /// Why; it has been counted.
    pub cause: DropCause,
    /// The caller's handle, back.
    pub payload: P,
}

/// Obligation to call [`TrafficManager::transmitted`] or [`TrafficManager::abandoned`]: the
/// port starts nothing else before. It cannot be copied, so it cannot be used twice; losing it
/// blocks the port.
#[derive(Debug)]
#[must_use = "the port is blocked until transmitted() or abandoned() gets this"]
pub struct StartToken {
    port: u16,
    serial: u64,
    start: Q24,
    /// Its lateness is told when it is delivered.
    timed: bool,
}

impl StartToken {
    /// The port that waits.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A packet whose transmission starts; the caller runs egress processing on it.
#[derive(Debug)]
pub struct Start<P> {
    /// Port.
    pub port: u16,
    /// Start of transmission, rounded up to a nanosecond.
    pub start_ns: u64,
    /// When it should have started: `start_ns` in virtual time; before it where a paced packet
    /// was polled late. In nanoseconds, rounded up.
    pub scheduled_ns: u64,
    /// Class, if paced.
    pub class: Option<u32>,
    /// The caller's handle.
    pub payload: P,
    /// Arrival at the switch ([`Queued::arrival_ns`]).
    pub enqueued_ns: u64,
    /// Departure time D of a paced packet (not before its arrival); the arrival of an unpaced
    /// one. In nanoseconds.
    pub departure_ns: u64,
    /// Length on arrival ([`Queued::length_bytes`]).
    pub length_bytes: u32,
    /// Packets that waited for the port when it was queued, itself not counted.
    pub enqueued_behind_packets: u32,
    /// Packets that wait for the port now that it has left.
    pub left_behind_packets: u32,
    /// To be given to [`TrafficManager::transmitted`] or [`TrafficManager::abandoned`].
    pub token: StartToken,
}

/// A frame that has reached the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Port.
    pub port: u16,
    /// When its first bit leaves, in nanoseconds.
    pub delivery_ns: u64,
    /// Which frame.
    pub frame: Frame<P>,
}

/// Index of "no such port" in the table of port numbers.
const NO_PORT: u16 = u16::MAX;

/// A port's delay line may hold this many times what is free.
const DELAY_LINE_ALPHA: u64 = 4;

/// A full queue table is searched for idle queues at most once in this time.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;

/// The earliest entry of an array of instants, kept up to date entry by entry.
#[derive(Debug)]
struct Agenda {
    next_ns: Vec<u64>,
    /// Position of the first smallest entry.
    earliest: usize,
}

impl Agenda {
    fn new() -> Self {
        Self {
            next_ns: Vec::new(),
            earliest: 0,
        }
    }

    fn reset(&mut self, entries: impl Iterator<Item = u64>) {
        self.next_ns = entries.collect();
        self.search();
    }

    fn search(&mut self) {
        self.earliest = (0..self.next_ns.len())
            .min_by_key(|at| self.next_ns.get(*at))
            .unwrap_or(0);
    }

    fn set(&mut self, at: usize, ns: u64) {
        let Some(entry) = self.next_ns.get_mut(at) else {
            return;
        };
        let before = std::mem::replace(entry, ns);
        if at == self.earliest {
            if ns > before {
                self.search();
            }
        } else if (ns, at) < (self.earliest_ns(), self.earliest) {
            self.earliest = at;
        }
    }

    /// The smallest entry; [`NEVER_NS`] if there is none.
    fn earliest_ns(&self) -> u64 {
        self.next_ns.get(self.earliest).copied().unwrap_or(NEVER_NS)
    }

    fn upcoming(&self) -> Option<u64> {
        Some(self.earliest_ns()).filter(|ns| *ns != NEVER_NS)
    }
}

/// Ports, queues and departure times. See the [crate] documentation for the rules.
#[derive(Debug)]
pub struct TrafficManager<P> {
    limits: Limits,
    /// By number.
    ports: Vec<Port<P>>,
    /// Position in `ports` by port number.
    index: Vec<u16>,
    slab: Slab<P>,
    queues: ClassQueues,
    starts: Agenda,
    deliveries: Agenda,
    next_sequence: u64,
    next_serial: u64,
    /// Latest `now_ns` of any poll.
    latest_ns: u64,
    /// No search for idle queues before this arrival time.
    next_sweep_ns: u64,
    spaces_catch_up: bool,
    statistics: Statistics,
}

impl<P> TrafficManager<P> {
    /// Without ports. Class numbers are at most 2^32 - 1 and packets fewer than 2^32 whatever
    /// the limits say.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ports: Vec::new(),
            index: Vec::new(),
            slab: Slab::new(limits.max_held_packets),
            queues: ClassQueues::default(),
            starts: Agenda::new(),
            deliveries: Agenda::new(),
            next_sequence: 0,
            next_serial: 0,
            latest_ns: 0,
            next_sweep_ns: 0,
            spaces_catch_up: false,
            statistics: Statistics::default(),
        }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// From now on a class that late polls have put behind catches up with spaced packets: each
    /// may go seven eighths of a packet's time after the one before could, until the class is back
    /// at `E`. For drivers in real time; without late polls nothing changes.
    pub fn space_catch_up(&mut self) {
        self.spaces_catch_up = true;
        for port in &mut self.ports {
            port.spaces_catch_up = true;
        }
    }

    // ----- ports -----

    /// Adds a port: up, idle, free since time 0.
    pub fn add_port(&mut self, port: u16, config: PortConfig) -> Result<(), PortError> {
        let limit = self.limits.max_ports.min(usize::from(NO_PORT));
        match self.ports.binary_search_by_key(&port, |p| p.number) {
            Ok(_) => Err(PortError::Exists(port)),
            Err(_) if self.ports.len() >= limit => Err(PortError::TooManyPorts(limit)),
            Err(at) => {
                let mut added = Port::new(port, config)?;
                added.spaces_catch_up = self.spaces_catch_up;
                self.ports.insert(at, added);
                self.reindex();
                Ok(())
            }
        }
    }

    /// Changes a port while it runs. The line rate applies to the next frame, the FIFO's size
    /// to the next arrival (nothing that waits is dropped), the delay to the next frame (none
    /// overtakes those on their way), what fills the gaps from the next frame on.
    pub fn set_port(&mut self, port: u16, config: PortConfig) -> Result<(), PortError> {
        let at = self.position(port).ok_or(PortError::NoSuchPort(port))?;
        self.ports
            .get_mut(at)
            .ok_or(PortError::NoSuchPort(port))?
            .configure(config)?;
        // Gap frames may begin or end.
        self.refresh_start(at);
        Ok(())
    }

    /// Takes a port down (packets for it are refused as `port-down`; those that wait leave in
    /// their time) or up again. Ports start up.
    pub fn set_port_up(&mut self, port: u16, up: bool) -> Result<(), PortError> {
        self.port_mut(port).ok_or(PortError::NoSuchPort(port))?.up = up;
        Ok(())
    }

    /// Whether the port takes packets; false if there is no such port.
    pub fn is_port_up(&self, port: u16) -> bool {
        self.port(port).is_some_and(|port| port.up)
    }

    /// Removes a port and returns what waited or was on its way there, counted as `port-down`.
    /// A pending [`StartToken`] of it becomes void: `transmitted` gives its payload back.
    pub fn remove_port(&mut self, port: u16) -> Result<Vec<P>, PortError> {
        let at = self
            .ports
            .binary_search_by_key(&port, |p| p.number)
            .map_err(|_| PortError::NoSuchPort(port))?;
        let mut removed = self.ports.remove(at);
        self.reindex();
        let mut payloads = self.take_waiting(&mut removed);
        payloads.extend(
            removed
                .delay_line
                .drain(..)
                .filter_map(|sent| sent.frame.packet()),
        );
        let drops = &mut self.statistics.drops;
        for (cause, packets) in removed.statistics.drops.iter() {
            drops.add(cause, packets);
        }
        drops.add(DropCause::PortDown, payloads.len() as u64);
        Ok(payloads)
    }

    /// Every port with its configuration, by number.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &PortConfig)> {
        self.ports.iter().map(|p| (p.number, &p.config))
    }

    /// A port's configuration.
    pub fn port_config(&self, port: u16) -> Option<&PortConfig> {
        self.port(port).map(|p| &p.config)
    }

    fn reindex(&mut self) {
        let end = self.ports.last().map_or(0, |p| usize::from(p.number) + 1);
        self.index = vec![NO_PORT; end];
        for (at, port) in self.ports.iter().enumerate() {
            if let (Some(slot), Ok(at)) = (
                self.index.get_mut(usize::from(port.number)),
                u16::try_from(at),
            ) {
                *slot = at;
            }
        }
        let slab = &self.slab;
        self.starts
            .reset(self.ports.iter().map(|p| decision_ns(p.decide(slab))));
        self.deliveries
            .reset(self.ports.iter().map(Port::next_delivery_ns));
    }

    fn position(&self, port: u16) -> Option<usize> {
        self.index
            .get(usize::from(port))
            .filter(|at| **at != NO_PORT)
            .map(|at| usize::from(*at))
    }

    fn port(&self, port: u16) -> Option<&Port<P>> {
        self.ports.get(self.position(port)?)
    }

    fn port_mut(&mut self, port: u16) -> Option<&mut Port<P>> {
        let at = self.position(port)?;
        self.ports.get_mut(at)
    }

    /// After a change that may move the port's next decision.
    fn refresh_start(&mut self, at: usize) {
        if let Some(port) = self.ports.get(at) {
            self.starts.set(at, decision_ns(port.decide(&self.slab)));
        }
    }

    // ----- in -----

    /// Takes a packet for `port`. Refused: no such port, port down, its queue (FIFO or class
    /// queue of the port) holds as many packets as are free ([`Limits::max_held_packets`],
    /// `hold-limit`), FIFO full (unpaced), class number or number of queues beyond the limits
    /// (paced: `hold-limit`). Class limits are the program's business.
    ///
    /// A departure time before the arrival counts as the arrival.
    pub fn enqueue(&mut self, port: u16, packet: Queued<P>) -> Result<(), Refused<P>> {
        let Some(at) = self.position(port) else {
            self.statistics.drops.add(DropCause::NoSuchPort, 1);
            return Err(Refused {
                cause: DropCause::NoSuchPort,
                payload: packet.payload,
            });
        };
        let payload = packet.payload;
        let result = match self.admit(at, packet.length_bytes, packet.arrival_ns, packet.hold) {
            Err(cause) => Err((cause, payload)),
            Ok(()) => self
                .insert(
                    at,
                    payload,
                    packet.length_bytes,
                    packet.arrival_ns,
                    packet.hold,
                )
                .map_err(|payload| (DropCause::HoldLimit, payload)),
        };
        match result {
            Ok(became_head) => {
                if became_head {
                    self.refresh_start(at);
                }
                Ok(())
            }
            Err((cause, payload)) => {
                self.count_drop(port, cause);
                Err(Refused { cause, payload })
            }
        }
    }

    /// Whether the packet fits, and a queue for it.
    fn admit(
        &mut self,
        at: usize,
        length_bytes: u32,
        arrival_ns: u64,
        hold: Option<Hold>,
    ) -> Result<(), DropCause> {
        let Some(port) = self.ports.get_mut(at) else {
            return Err(DropCause::NoSuchPort);
        };
        if !port.up {
            return Err(DropCause::PortDown);
        }
        // Choudhury and Hahne's dynamic threshold with alpha = 1: however many queues overflow,
        // they leave room for the others.
        let free = self.slab.free();
        let Some(hold) = hold else {
            if port.fifo_packets as usize >= free {
                return Err(DropCause::HoldLimit);
            }
            let bytes = port.statistics.fifo_bytes + frame_bytes(length_bytes);
            return if bytes > port.config.fifo_bytes {
                Err(DropCause::FifoFull)
            } else {
                Ok(())
            };
        };
        if hold.class >= self.limits.max_classes {
            return Err(DropCause::HoldLimit);
        }
        let number = port.number;
        match self.queues.get(number, hold.class) {
            Some(queue)
                if (queue.packets as usize) < free
                    && queue.bytes() + frame_bytes(length_bytes) <= Queue::BYTES_MAX =>
            {
                Ok(())
            }
            None if free > 0 => self.create_queue(number, hold.class, arrival_ns),
            _ => Err(DropCause::HoldLimit),
        }
    }

    /// Makes room for a class queue, if need be by forgetting idle ones.
    fn create_queue(&mut self, port: u16, class: u32, arrival_ns: u64) -> Result<(), DropCause> {
        if self.queues.create(port, class, self.limits.max_queues) {
            return Ok(());
        }
        if arrival_ns < self.next_sweep_ns {
            return Err(DropCause::HoldLimit);
        }
        self.next_sweep_ns = arrival_ns.saturating_add(SWEEP_INTERVAL_NS);
        let now = Q24::from_ns(self.latest_ns.min(arrival_ns));
        self.queues.free_idle(now);
        if self.queues.create(port, class, self.limits.max_queues) {
            Ok(())
        } else {
            Err(DropCause::HoldLimit)
        }
    }

    fn insert(
        &mut self,
        at: usize,
        payload: P,
        length_bytes: u32,
        arrival_ns: u64,
        hold: Option<Hold>,
    ) -> Result<bool, P> {
        let Some(port) = self.ports.get_mut(at) else {
            return Err(payload);
        };
        let mut meta = Meta {
            length_bytes,
            before_packets: u32::try_from(port.statistics.queued_packets).unwrap_or(u32::MAX),
            arrival_ns,
            sequence: self.next_sequence,
            departure_ns: arrival_ns,
            cost_q24: 0,
            allowance_ns: 0,
        };
        let became_head = match hold {
            None => port.push_unpaced(payload, meta, &mut self.slab)?,
            Some(hold) => {
                meta.departure_ns = hold.departure_ns.max(arrival_ns);
                meta.cost_q24 = hold.cost_q24;
                meta.allowance_ns = hold.allowance_ns;
                let (queues, slab) = (&mut self.queues, &mut self.slab);
                port.push_paced(hold.class, payload, meta, queues, slab)?
            }
        };
        self.next_sequence += 1;
        let held = self.slab.len() as u64;
        self.statistics.held_packets_max = self.statistics.held_packets_max.max(held);
        Ok(became_head)
    }

    // ----- out -----

    /// Earliest instant at which a transmission may start on any port that waits for nothing,
    /// rounded up to a nanosecond; in the past if the driver is late.
    pub fn next_start_ns(&self) -> Option<u64> {
        self.starts.upcoming()
    }

    /// Starts at most one packet that is due at `until_ns`, and what gap frames are due before it:
    /// on the port with the earliest one, then the lowest number. Call until `None`.
    ///
    /// `until_ns` is `now_ns`, or later for who has somebody else send frames when it is time: what
    /// arrives after this call then starts after what it has started.
    pub fn poll_start(&mut self, until_ns: u64, now_ns: u64) -> Option<Start<P>> {
        self.latest_ns = self.latest_ns.max(now_ns);
        loop {
            if self.starts.upcoming()? > until_ns {
                return None;
            }
            let at = self.starts.earliest;
            let mut decision = self.ports.get(at)?.decide(&self.slab)?;
            if let Kind::Gap { until } = decision.kind {
                let start = decision.start(now_ns);
                if start < until {
                    self.fill_gap(at, start, until);
                    continue;
                }
                // So late that the gap is over.
                decision = Decision {
                    at: until,
                    kind: Kind::Paced,
                };
            }
            return self.start(at, decision, now_ns);
        }
    }

    /// Starts a gap frame.
    fn fill_gap(&mut self, at: usize, start: Q24, until: Q24) {
        let free = self.delay_line_free();
        let Some(port) = self.ports.get_mut(at) else {
            return;
        };
        let (length_bytes, delivery_ns) = port.fill_gap(start, until);
        // Packets have four times the room: they never wait for want of what gaps hold.
        if (port.delay_line.len() as u64) < free {
            port.propagate(delivery_ns, Frame::Gap { length_bytes }, false);
            self.statistics.delay_line_packets += 1;
            self.deliveries.set(at, port.next_delivery_ns());
        } else {
            port.statistics.drops.add(DropCause::GapFrame, 1);
        }
        self.refresh_start(at);
    }

    /// Frames for which the delay lines still have room.
    fn delay_line_free(&self) -> u64 {
        let on_the_way = self.statistics.delay_line_packets;
        (self.limits.max_delay_line_packets as u64).saturating_sub(on_the_way)
    }

    /// Starts at most one unpaced packet whose scheduled instant is at most `until_ns` and that
    /// no paced packet precedes, as of `now_ns` (for the lateness only). For drivers that learn
    /// of arrivals late: see the [crate] documentation. Call until `None`.
    pub fn poll_start_unpaced(&mut self, until_ns: u64, now_ns: u64) -> Option<Start<P>> {
        if self.starts.upcoming()? > until_ns {
            return None;
        }
        let slab = &self.slab;
        let (at, decision) = self
            .ports
            .iter()
            .enumerate()
            .filter_map(|(at, port)| Some((at, port.decide(slab)?)))
            .filter(|(_, decision)| {
                decision.kind == Kind::Unpaced && decision.at.ceil_ns() <= until_ns
            })
            .min_by_key(|(_, decision)| decision.at.ceil_ns())?;
        self.start(at, decision, now_ns)
    }

    fn start(&mut self, at: usize, decision: Decision, now_ns: u64) -> Option<Start<P>> {
        let port = self.ports.get_mut(at)?;
        let chosen = port.choose(decision, now_ns, &mut self.queues, &self.slab)?;
        let (payload, meta) = self.slab.take(chosen.node)?;
        let scheduled_ns = decision.at.ceil_ns();
        let lateness_ns = now_ns.saturating_sub(scheduled_ns);
        let timed = chosen.class.is_none() && port.config.delay_ns > 0;
        if chosen.class.is_some() {
            port.statistics.paced_lateness.record(lateness_ns);
        } else if !timed {
            port.statistics.unpaced_lateness.record(lateness_ns);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        port.pending = Some(serial);
        let number = port.number;
        let left_behind_packets = u32::try_from(port.statistics.queued_packets).unwrap_or(u32::MAX);
        self.starts.set(at, NEVER_NS);
        Some(Start {
            port: number,
            start_ns: chosen.start.ceil_ns(),
            scheduled_ns,
            class: chosen.class,
            payload,
            enqueued_ns: meta.arrival_ns,
            departure_ns: meta.departure_ns,
            length_bytes: meta.length_bytes,
            enqueued_behind_packets: meta.before_packets,
            left_behind_packets,
            token: StartToken {
                port: number,
                serial,
                start: chosen.start,
                timed,
            },
        })
    }

    /// Position of the port that waits for `token`.
    fn redeem(&mut self, token: &StartToken) -> Option<usize> {
        let at = self.position(token.port)?;
        let port = self.ports.get_mut(at)?;
        (port.pending == Some(token.serial)).then(|| port.pending = None)?;
        Some(at)
    }

    /// Egress kept the frame: it takes the line for its final length (layer 2 without FCS) and
    /// enters the delay line. Refused: the port was removed meanwhile (`port-down`), or the
    /// port's share of delay lines is used up (`delay-line-full`; the line time is taken all the
    /// same).
    pub fn transmitted(
        &mut self,
        token: StartToken,
        final_length_bytes: u32,
        payload: P,
    ) -> Result<(), Refused<P>> {
        let Some(at) = self.redeem(&token) else {
            let cause = DropCause::PortDown;
            self.statistics.drops.add(cause, 1);
            return Err(Refused { cause, payload });
        };
        let free = self.delay_line_free();
        let Some(port) = self.ports.get_mut(at) else {
            let cause = DropCause::PortDown;
            return Err(Refused { cause, payload });
        };
        let delivery_ns = port.occupy(token.start, final_length_bytes);
        // A dynamic threshold, too; larger, since a long fat path may need most of it.
        let share = free.saturating_mul(DELAY_LINE_ALPHA);
        let result = if (port.delay_line.len() as u64) < share {
            port.propagate(delivery_ns, Frame::Packet(payload), token.timed);
            self.statistics.delay_line_packets += 1;
            self.deliveries.set(at, port.next_delivery_ns());
            Ok(())
        } else {
            let cause = DropCause::DelayLineFull;
            port.statistics.drops.add(cause, 1);
            Err(Refused { cause, payload })
        };
        self.refresh_start(at);
        result
    }

    /// Egress dropped the frame, which is counted: it takes no line time.
    pub fn abandoned(&mut self, token: StartToken, cause: DropCause) {
        self.count_drop(token.port, cause);
        self.recirculated(token);
    }

    /// Egress sent the packet round again instead of out: it takes no line time and is no drop.
    pub fn recirculated(&mut self, token: StartToken) {
        if let Some(at) = self.redeem(&token) {
            self.refresh_start(at);
        }
    }

    /// When the next frame reaches an interface; in the past if the driver is late.
    pub fn next_delivery_ns(&self) -> Option<u64> {
        self.deliveries.upcoming()
    }

    /// Takes at most one frame that reaches its interface by `until_ns`: `now_ns`, or later for
    /// who has somebody else send it when it is time. Call until `None`.
    pub fn poll_delivery(&mut self, until_ns: u64, now_ns: u64) -> Option<Delivery<P>> {
        if self.deliveries.upcoming()? > until_ns {
            return None;
        }
        let at = self.deliveries.earliest;
        let port = self.ports.get_mut(at)?;
        let frame = port.deliver()?;
        if frame.timed {
            let lateness_ns = now_ns.saturating_sub(frame.delivery_ns);
            port.statistics.unpaced_lateness.record(lateness_ns);
        }
        self.statistics.delay_line_packets -= 1;
        self.deliveries.set(at, port.next_delivery_ns());
        Some(Delivery {
            port: port.number,
            delivery_ns: frame.delivery_ns,
            frame: frame.frame,
        })
    }

    /// Takes out everything that waits on all ports, counted as `cause`, and forgets the release
    /// clocks. Frames in the delay lines stay: [`Self::poll_delivery`] gives them out.
    pub fn drain(&mut self, cause: DropCause) -> impl Iterator<Item = P> + use<P> {
        let mut payloads = Vec::with_capacity(self.slab.len());
        let Self {
            ports,
            queues,
            slab,
            ..
        } = self;
        for port in ports.iter_mut() {
            let waiting = port.statistics.queued_packets;
            port.statistics.drops.add(cause, waiting);
            port.take_waiting(slab, |payload| payloads.push(payload));
        }
        queues.take(|_| true, slab, |payload| payloads.push(payload));
        self.reindex();
        payloads.into_iter()
    }

    /// Takes out everything that waits on one port that is being removed.
    fn take_waiting(&mut self, port: &mut Port<P>) -> Vec<P> {
        let mut payloads = Vec::new();
        let slab = &mut self.slab;
        port.take_waiting(slab, |payload| payloads.push(payload));
        let number = port.number;
        self.queues.take(
            |port| port == number,
            slab,
            |payload| payloads.push(payload),
        );
        self.statistics.delay_line_packets -= port.delay_line.len() as u64;
        payloads
    }

    // ----- state and statistics -----

    /// Bytes (layer 2 + FCS) that wait in queues of `class` on all ports.
    pub fn class_backlog_bytes(&self, class: u32) -> u64 {
        self.queues.backlog_bytes(class)
    }

    /// Prefetches a class's queue, which the next packet of the class needs.
    pub fn prefetch_class(&self, class: u32) {
        if let Some(queue) = self.queues.first_of(class) {
            prefetch(queue);
        }
    }

    /// The queue of `class` on `port`; `None` if the class has left no trace there.
    pub fn queue(&self, port: u16, class: u32) -> Option<QueueState> {
        let queue = self.queues.get(port, class)?;
        Some(QueueState {
            packets: queue.packets,
            bytes: queue.bytes(),
            head_departure_ns: self.slab.meta(queue.list.head).map(|m| m.departure_ns),
            release_ns: queue.release().whole_ns(),
            release_fraction: queue.release().fraction(),
        })
    }

    /// Counts a drop that happened elsewhere in the switch, so that there is one place to look
    /// at: on the port, or globally if there is no such port.
    pub fn count_drop(&mut self, port: u16, cause: DropCause) {
        self.count_drops(port, cause, 1);
    }

    /// Counts several drops of one cause, as [`Self::count_drop`].
    pub fn count_drops(&mut self, port: u16, cause: DropCause, packets: u64) {
        match self.port_mut(port) {
            Some(port) => port.statistics.drops.add(cause, packets),
            None => self.statistics.drops.add(cause, packets),
        }
    }

    /// Counters of the whole.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            held_packets: self.slab.len() as u64,
            queues: self.queues.len() as u64,
            ..self.statistics.clone()
        }
    }

    /// Counters of one port.
    pub fn port_statistics(&self, port: u16) -> Option<&PortStatistics> {
        self.port(port).map(|p| &p.statistics)
    }
}

/// A decision's instant, rounded up.
fn decision_ns(decision: Option<Decision>) -> u64 {
    decision.map_or(NEVER_NS, |decision| decision.at.ceil_ns())
}
