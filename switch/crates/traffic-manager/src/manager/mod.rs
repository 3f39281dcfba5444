//! The traffic manager: all ports together.

mod dequeue;
mod enqueue;
mod stand_in;
mod start;

use prefetch::prefetch;

use crate::cause::DropCause;
use crate::class_sums::Held;
use crate::config::{Limits, PortConfig};
use crate::deadlines::Deadlines;
use crate::packet::DroppedAtHead;
use crate::port::{NEVER_NS, Port, Scheduled};
use crate::port_error::PortError;
use crate::queueing::{Buffer, QueueStatistics, QueueingConfig, QueueingError, Reads};
use crate::queues::ClassQueues;
use crate::slab::Slab;
use crate::statistics::{BufferStatistics, PortStatistics, QueueState, Statistics, Waiting};

/// Index of "no such port" in the table of port numbers.
const NO_PORT: u16 = u16::MAX;

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
    starts: Deadlines,
    deliveries: Deadlines,
    /// Packets that egress queues dropped at their heads, for [`Self::take_dropped`].
    dropped: Vec<DroppedAtHead<P>>,
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
    /// A traffic manager without ports. Class numbers are at most 2^32 - 1 and packets fewer than
    /// 2^32, even if the limits are higher.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ports: Vec::new(),
            index: Vec::new(),
            slab: Slab::new(limits.max_held_packets),
            queues: ClassQueues::default(),
            starts: Deadlines::default(),
            deliveries: Deadlines::default(),
            dropped: Vec::new(),
            next_sequence: 0,
            next_serial: 0,
            latest_ns: 0,
            next_sweep_ns: 0,
            spaces_catch_up: false,
            statistics: Statistics {
                buffer: limits.buffer_bytes.map(BufferStatistics::empty),
                ..Statistics::default()
            },
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
    /// to the next arrival (no waiting packet is dropped), the delay to the next frame (none
    /// overtakes those on their way), the gap mode to the next frame.
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

    /// Gives a port egress queues in place of its FIFO; `None` gives the FIFO back. On a port that has
    /// queues, changes their settings: a rate applies to the next packet, a depth to the next arrival.
    /// No waiting packet is dropped, except by active queue management that begins ([`Self::take_dropped`]):
    /// those of the FIFO, and of queues that no longer exist, go to queue 0.
    pub fn set_queues(
        &mut self,
        port: u16,
        config: Option<QueueingConfig>,
    ) -> Result<(), PortError> {
        let at = self.position(port).ok_or(PortError::NoSuchPort(port))?;
        if let Some(config) = &config {
            self.check_queues(config)?;
        }
        let (slab, buffer_bytes) = (&mut self.slab, self.limits.buffer_bytes);
        self.ports
            .get_mut(at)
            .ok_or(PortError::NoSuchPort(port))?
            .set_queues(config, buffer_bytes, &self.queues, slab);
        // Queues whose active queue management begins may drop what is too much for it.
        self.settle(at);
        self.refresh_start(at);
        Ok(())
    }

    /// Whether settings of egress queues are in range, and the switch has the buffer that they name.
    pub fn check_queues(&self, config: &QueueingConfig) -> Result<(), QueueingError> {
        if config.buffer == Some(Buffer::OfSwitch) && self.limits.buffer_bytes.is_none() {
            return Err(QueueingError::NoSwitchBuffer);
        }
        config.check()
    }

    /// The egress queues of a port; `None`: it has a FIFO.
    pub fn queues(&self, port: u16) -> Option<&QueueingConfig> {
        let queues = self.port(port)?.egress_queues.as_ref()?;
        Some(queues.config())
    }

    /// What the egress queues of a port read of [`Queued::header`](crate::Queued::header); `None`: it has
    /// a FIFO.
    pub fn reads(&self, port: u16) -> Option<Reads> {
        let queues = self.port(port)?.egress_queues.as_ref()?;
        Some(queues.reads())
    }

    /// Counters of a port's egress queues, by number; none if it has a FIFO.
    pub fn queue_statistics(&self, port: u16) -> impl Iterator<Item = &QueueStatistics> {
        let queues = self.port(port).and_then(|port| port.egress_queues.as_ref());
        queues.into_iter().flat_map(|queues| queues.statistics())
    }

    /// The packets that wait in an egress queue of a port. Queue 0 of a port without egress queues is its FIFO. `None`: no
    /// such port or queue.
    pub fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        self.port(port)?.waiting(queue, &self.slab)
    }

    /// Takes a port down (packets for it are refused as `port-down`; those that wait leave in
    /// their time) or up again. Ports start up.
    pub fn set_port_up(&mut self, port: u16, up: bool) -> Result<(), PortError> {
        self.port_mut(port).ok_or(PortError::NoSuchPort(port))?.up = up;
        Ok(())
    }

    /// The packets that may still start on a port ([`limit_starts`](Self::limit_starts)).
    #[must_use]
    pub fn starts_left(&self, port: u16) -> Option<u32> {
        self.port(port)?.starts_left
    }

    /// Limits the packets that start on a port until the next call, for an interface that is slower than its
    /// line. With 0 the line is held until the next call, whose `now_ns` is when it is free: meanwhile packets
    /// wait in the port's queues, up to their limits. `None`, as at the beginning: no limit.
    pub fn limit_starts(
        &mut self,
        port: u16,
        starts: Option<u32>,
        now_ns: u64,
    ) -> Result<(), PortError> {
        let at = self.position(port).ok_or(PortError::NoSuchPort(port))?;
        let found = self.ports.get_mut(at).ok_or(PortError::NoSuchPort(port))?;
        found.limit_starts(starts, now_ns);
        self.refresh_start(at);
        Ok(())
    }

    /// Whether the port takes packets; false if there is no such port.
    pub fn is_port_up(&self, port: u16) -> bool {
        self.port(port).is_some_and(|port| port.up)
    }

    /// Removes a port and returns the packets that waited or were on their way there, counted as
    /// `port-down`.
    /// A pending [`TransmitToken`](crate::TransmitToken) of it becomes void: `transmit` gives its payload back.
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
        if let Some(buffer) = &mut self.statistics.buffer {
            buffer.change(removed.buffered_bytes, 0);
        }
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
        self.starts.reset(
            self.ports
                .iter()
                .map(|p| scheduled_ns(p.next_transmission(slab))),
        );
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

    /// After a change that may move the port's next scheduled.
    fn refresh_start(&mut self, at: usize) {
        if let Some(port) = self.ports.get(at) {
            self.starts
                .set(at, scheduled_ns(port.next_transmission(&self.slab)));
        }
    }

    /// Takes out all waiting packets of all ports, counted as `cause`, and forgets the release clocks.
    /// Frames in the delay lines stay for [`Self::deliver`].
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
        for at in 0..self.ports.len() {
            self.count_buffered(at);
        }
        self.reindex();
        payloads.into_iter()
    }

    /// Counts what a port's queues hold of the switch's buffer.
    fn count_buffered(&mut self, at: usize) {
        if let Some(buffer) = &mut self.statistics.buffer
            && let Some(port) = self.ports.get_mut(at)
        {
            let now = port.holds_of_switch_buffer();
            buffer.change(std::mem::replace(&mut port.buffered_bytes, now), now);
        }
    }

    /// Takes out all waiting packets of a port that is being removed.
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

    /// Bytes (layer 2 + FCS) that wait in queues of `class` on all ports.
    pub fn class_backlog_bytes(&self, class: u32) -> u64 {
        self.queues.backlog_bytes(class)
    }

    /// What `class` holds on all ports: in its own queues, and in those that count to it
    /// ([`Hold::counts_to`](crate::hold::Hold::counts_to)).
    pub fn class_held(&self, class: u32) -> Held {
        self.queues.held(class)
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
            head_departure_ns: self.slab.meta(queue.head()).map(|m| m.departure_ns),
            release_ns: queue.release().whole_ns(),
            release_fraction: queue.release().fraction(),
        })
    }

    /// Counts a drop of another part of the switch, so that all drops are in one place: on the port,
    /// or globally if there is no such port.
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

/// The time of a port's next start, rounded up.
fn scheduled_ns(next: Option<Scheduled>) -> u64 {
    next.map_or(NEVER_NS, |scheduled| scheduled.at.ceil_ns())
}
