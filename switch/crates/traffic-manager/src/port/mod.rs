//! One port: its line, its FIFO, its delay line. Its class queues are in [`paced`].

mod paced;
mod ready;
mod waiting;

use std::collections::VecDeque;

use crate::cause::DropCause;
use crate::hold::time_per_byte_q24;

use crate::config::{FCS_BYTES, PortConfig, RateCounts, frame_bytes};
use crate::gaps::{self, Gaps};
use crate::packet::{Frame, HeaderFields};
use crate::port_error::PortError;
use crate::queueing::{Buffer, EgressQueues, Item, QueueingConfig};
use crate::queues::ClassQueues;
use crate::slab::{List, Meta, NONE, Slab};
use crate::statistics::{PortStatistics, Waiting};
use crate::time::Q24;
use crate::timer_wheel::TimerWheel;
use ready::Ready;
use waiting::eligible_at;

/// Stands for no instant: later than every instant at which the traffic manager acts.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// The action that a port starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet of a class queue.
    Paced,
    /// The FIFO's head, or that of an egress queue.
    Unpaced,
    /// A packet that the scheduler's tree chooses, in which held packets have a place.
    OfTree,
    /// A PAUSE frame; a paced packet waits until the instant.
    Gap { until: Q24 },
}

/// The next action of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheduled {
    /// The instant: for a paced packet `max(E, port_free)`, for an unpaced one
    /// `max(arrival, port_free)`, for a gap frame `port_free`.
    pub(crate) at: Q24,
    /// The kind of action.
    pub(crate) kind: Kind,
}

impl Scheduled {
    pub(crate) const fn new(at: Q24, kind: Kind) -> Self {
        Self { at, kind }
    }

    /// The instant that a poll at `now_ns` acts at: a late one starts now, not then.
    pub(crate) fn start(&self, now_ns: u64) -> Q24 {
        if self.at.ceil_ns() < now_ns {
            Q24::from_ns(now_ns)
        } else {
            self.at
        }
    }
}

/// The way of an unpaced packet into the port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The egress queue, if the port has any.
    pub(crate) queue: u8,
    pub(crate) header: HeaderFields,
    /// Its queue has decided to mark it.
    pub(crate) marked: bool,
}

/// A packet that was chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Its place.
    pub(crate) node: u32,
    pub(crate) class: Option<u32>,
    pub(crate) start: Q24,
    /// The egress queue; 0 if it comes from none.
    pub(crate) queue: u8,
    /// Packets that wait where it waited.
    pub(crate) left_behind: u64,
    /// Its egress queue marks it.
    pub(crate) marked: bool,
}

/// A frame on its way to the interface.
#[derive(Debug)]
pub(crate) struct InFlight<P> {
    pub(crate) delivery_ns: u64,
    pub(crate) frame: Frame<P>,
    /// A late poll for it counts as lateness of unpaced packets.
    pub(crate) timed: bool,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port<P> {
    pub(crate) number: u16,
    pub(crate) up: bool,
    pub(crate) config: PortConfig,
    line_time_per_byte_q24: u64,
    /// Serial number of the start that waits for its token.
    pub(crate) pending: Option<u64>,
    /// Packets that may still start; `None`: any number ([`crate::TrafficManager::limit_starts`]).
    pub(crate) starts_left: Option<u32>,
    /// The line is free from here on.
    free_at: Q24,
    /// The last packet left the line; `None` before the first.
    line_end: Option<Q24>,
    /// Most time that waiting packets may have lost to the last gap frame.
    gap_wait: Q24,
    /// Late classes catch up with spaced packets ([`crate::TrafficManager::space_catch_up`]).
    pub(crate) spaces_catch_up: bool,
    /// The last poll that was late for a paced packet.
    late_poll_ns: u64,
    pub(crate) fifo: List,
    /// Packets in it.
    pub(crate) fifo_packets: u32,
    /// In place of the FIFO, which is then empty.
    pub(crate) egress_queues: Option<Box<EgressQueues>>,
    /// Held packets have a place in the scheduler's tree.
    paced_in_tree: bool,
    /// Its part of the bytes that are counted in the switch's buffer.
    pub(crate) buffered_bytes: u64,
    /// Heads of class queues by E: `E << 32 | class`.
    waiting: TimerWheel<u128>,
    /// Heads whose E has come. Every E in here is at most `free_at` whenever the port is free
    /// (see `next_transmission`).
    ready: TimerWheel<Ready>,
    pub(crate) delay_line: VecDeque<InFlight<P>>,
    last_delivery_ns: u64,
    pub(crate) statistics: PortStatistics,
}

/// Checks a configuration and computes the line's time per byte (0: no line rate).
fn line_time_per_byte_q24(config: &PortConfig) -> Result<u64, PortError> {
    if let Gaps::PauseFrames { longest_bytes } = config.gaps {
        if !(gaps::GAP_FRAME_MIN_BYTES..=gaps::GAP_FRAME_MAX_BYTES).contains(&longest_bytes) {
            return Err(PortError::GapFrame(longest_bytes));
        }
        if config.line_rate_bps.is_none() {
            return Err(PortError::GapsWithoutRate);
        }
    }
    match config.line_rate_bps {
        None => Ok(0),
        Some(rate) => time_per_byte_q24(rate).ok_or(PortError::LineRate(rate)),
    }
}

impl<P> Port<P> {
    pub(crate) fn new(number: u16, config: PortConfig) -> Result<Self, PortError> {
        let line_time_per_byte_q24 = line_time_per_byte_q24(&config)?;
        Ok(Self::idle(number, config, line_time_per_byte_q24))
    }

    /// A port that has sent nothing.
    fn idle(number: u16, config: PortConfig, line_time_per_byte_q24: u64) -> Self {
        Self {
            number,
            up: true,
            line_time_per_byte_q24,
            config,
            pending: None,
            starts_left: None,
            free_at: Q24::default(),
            line_end: None,
            gap_wait: Q24::default(),
            spaces_catch_up: false,
            late_poll_ns: 0,
            fifo: List::default(),
            fifo_packets: 0,
            egress_queues: None,
            paced_in_tree: false,
            buffered_bytes: 0,
            waiting: TimerWheel::new(),
            ready: TimerWheel::new(),
            delay_line: VecDeque::new(),
            last_delivery_ns: 0,
            statistics: PortStatistics::default(),
        }
    }

    /// A port for [`TrafficManager::stand_in`](crate::TrafficManager::stand_in). The packets of the
    /// FIFO, or of all egress queues, are not in it, and its line is busy until they would have left.
    pub(crate) fn stand_in(&self) -> Self {
        let packets = match &self.egress_queues {
            None => u64::from(self.fifo_packets),
            Some(queues) => queues.statistics().map(|queue| queue.packets).sum(),
        };
        // Those of the statistics have the FCS, and so has the overhead.
        let without_fcs = self.statistics.fifo_bytes - packets * FCS_BYTES;
        let line_bytes = without_fcs + packets * u64::from(self.overhead_bytes());
        let line_time = u128::from(line_bytes) * u128::from(self.line_time_per_byte_q24);
        let free_at = self.free_at.plus(line_time);
        Self {
            up: self.up,
            free_at,
            line_end: if packets == 0 {
                self.line_end
            } else {
                Some(free_at)
            },
            spaces_catch_up: self.spaces_catch_up,
            late_poll_ns: self.late_poll_ns,
            last_delivery_ns: self.last_delivery_ns,
            egress_queues: self
                .egress_queues
                .as_ref()
                .map(|queues| Box::new(queues.stand_in())),
            paced_in_tree: self.paced_in_tree,
            buffered_bytes: self.buffered_bytes,
            statistics: PortStatistics {
                fifo_bytes: self.statistics.fifo_bytes,
                queued_packets: self.statistics.queued_packets,
                ..PortStatistics::default()
            },
            ..Self::idle(self.number, self.config, self.line_time_per_byte_q24)
        }
    }

    /// Applies to the next frame; the one on the line keeps its time.
    pub(crate) fn configure(&mut self, config: PortConfig) -> Result<(), PortError> {
        self.line_time_per_byte_q24 = line_time_per_byte_q24(&config)?;
        self.config = config;
        Ok(())
    }

    /// Limits the packets that start. A line on which none could start was busy until `now_ns`.
    pub(crate) fn limit_starts(&mut self, starts: Option<u32>, now_ns: u64) {
        if self.starts_left == Some(0) {
            self.free_at = self.free_at.max(Q24::from_ns(now_ns));
        }
        self.starts_left = starts;
    }

    /// The next action of the port, if nothing else arrives before.
    ///
    /// Once a transmission was chosen at `t`, `free_at >= t` (see [`Self::choose`]), so the heads in
    /// `ready` were eligible by `free_at` and the earliest of them can start then. Where the scheduler's tree
    /// chooses, it knows of them.
    pub(crate) fn next_transmission(&self, slab: &Slab<P>) -> Option<Scheduled> {
        if self.pending.is_some() || self.starts_left == Some(0) {
            return None;
        }
        if self.paced_in_tree {
            return self.next_of_tree();
        }
        let paced = if self.ready.peek().is_none() {
            self.waiting
                .peek()
                .map(|key| eligible_at(key).max(self.free_at))
        } else {
            Some(self.free_at)
        };
        let unpaced = match &self.egress_queues {
            None => slab
                .meta(self.fifo.head)
                .map(|meta| Q24::from_ns(meta.arrival_ns)),
            Some(queues) => queues.next_at(None),
        };
        let unpaced = unpaced.map(|at| at.max(self.free_at));
        match (paced, unpaced) {
            // Strict priority: at the instant the unpaced packet could start, an eligible paced
            // one goes first.
            (Some(at), Some(other)) if at <= other => Some(Scheduled::new(at, Kind::Paced)),
            // A packet that is never to leave has no gap before it.
            (Some(until), None)
                if self.config.gaps != Gaps::Accounted
                    && self.free_at < until
                    && until.ceil_ns() < NEVER_NS =>
            {
                Some(Scheduled::new(self.free_at, Kind::Gap { until }))
            }
            (Some(at), None) => Some(Scheduled::new(at, Kind::Paced)),
            (_, Some(at)) => Some(Scheduled::new(at, Kind::Unpaced)),
            (None, None) => None,
        }
    }

    /// The next action of a port whose scheduler's tree has a place for held packets.
    fn next_of_tree(&self) -> Option<Scheduled> {
        let paced = self.waiting.peek().map(eligible_at);
        let at = self
            .egress_queues
            .as_ref()?
            .next_at(paced)?
            .max(self.free_at);
        let in_gap = self.free_at < at && self.statistics.fifo_bytes == 0;
        if in_gap && self.config.gaps != Gaps::Accounted && at.ceil_ns() < NEVER_NS {
            return Some(Scheduled::new(self.free_at, Kind::Gap { until: at }));
        }
        Some(Scheduled::new(at, Kind::OfTree))
    }

    /// The action at the end of a gap.
    pub(crate) fn after_gap(&self, until: Q24) -> Scheduled {
        let kind = if self.paced_in_tree {
            Kind::OfTree
        } else {
            Kind::Paced
        };
        Scheduled::new(until, kind)
    }

    /// The next action of the port by `until_ns`, if that is the start of an unpaced packet.
    pub(crate) fn next_unpaced(
        &mut self,
        until_ns: u64,
        queues: &ClassQueues,
        slab: &Slab<P>,
    ) -> Option<Scheduled> {
        let next = self.next_transmission(slab)?;
        if next.at.ceil_ns() > until_ns {
            return None;
        }
        let is_unpaced = match next.kind {
            Kind::Unpaced => true,
            Kind::OfTree => !self.tree_chooses_paced(next.at, queues, slab),
            Kind::Paced | Kind::Gap { .. } => false,
        };
        is_unpaced.then_some(next)
    }

    /// Puts the next PAUSE frame of the gap until `until` on the line at `start`. It fills the gap,
    /// or its share of a gap that takes several frames of equal size.
    /// Returns its length in bytes and when it reaches the interface.
    pub(crate) fn fill_gap(&mut self, start: Q24, until: Q24) -> (u32, u64) {
        let longest_bytes = match self.config.gaps {
            Gaps::PauseFrames { longest_bytes } => longest_bytes,
            Gaps::Accounted => gaps::GAP_FRAME_MIN_BYTES,
        };
        let gap_q24 = until.raw().saturating_sub(start.raw());
        let gap_line_bytes = gap_q24.div_ceil(u128::from(self.line_time_per_byte_q24.max(1)));
        let length_bytes =
            gaps::frame_length_bytes(gap_line_bytes, longest_bytes, self.overhead_bytes());
        let (_, delivery_ns) = self.take_line(start, length_bytes);
        self.gap_wait = self.free_at.since(start);
        self.statistics.gap_frames += 1;
        self.statistics.gap_bytes += frame_bytes(length_bytes);
        (length_bytes, delivery_ns)
    }

    /// The time by which a starting packet, eligible from `eligible` on, would have started earlier
    /// without the last gap frame. It is at most the frame's time on the line, and the total wait of
    /// this packet and those between them. Such a wait is not a stall.
    fn waited_for_gap(&mut self, start: Q24, eligible: Q24) -> Q24 {
        if self.gap_wait != Q24::default() {
            let waited = if start == self.free_at {
                start.since(eligible)
            } else {
                Q24::default()
            };
            self.gap_wait = self.gap_wait.min(waited);
        }
        self.gap_wait
    }

    /// Takes the packet that is scheduled. If the poll is late, a paced packet starts at `now_ns`, and
    /// an unpaced packet at its instant all the same. `None`: the egress queues let none start now, or there is
    /// none.
    pub(crate) fn choose(
        &mut self,
        scheduled: Scheduled,
        now_ns: u64,
        queues: &mut ClassQueues,
        slab: &Slab<P>,
    ) -> Option<Chosen> {
        self.statistics.queued_packets -= 1;
        let is_paced = match scheduled.kind {
            Kind::Paced => true,
            Kind::OfTree => self.tree_chooses_paced(scheduled.at, queues, slab),
            Kind::Unpaced | Kind::Gap { .. } => false,
        };
        let chosen = if is_paced {
            let poll_lateness = self.poll_lateness(scheduled, now_ns);
            self.choose_paced(scheduled.start(now_ns), poll_lateness, queues, slab)
        } else {
            self.choose_unpaced(scheduled.at, slab)
        };
        let Some(chosen) = chosen else {
            self.statistics.queued_packets += 1;
            return None;
        };
        if is_paced && self.paced_in_tree {
            self.tell_paced_sent(&chosen, slab);
        }
        if let Some(left) = &mut self.starts_left {
            *left = left.saturating_sub(1);
        }
        // Transmissions of a port never go back in time, not even when egress drops the packet.
        self.free_at = self.free_at.max(chosen.start);
        Some(chosen)
    }

    /// Takes the unpaced packet that starts at `at`: the FIFO's head, or the one that the egress queues
    /// choose.
    fn choose_unpaced(&mut self, at: Q24, slab: &Slab<P>) -> Option<Chosen> {
        let chosen = match &mut self.egress_queues {
            None => {
                self.fifo_packets = self.fifo_packets.checked_sub(1)?;
                Chosen {
                    node: slab.unlink(&mut self.fifo)?,
                    class: None,
                    start: at,
                    queue: 0,
                    left_behind: self.statistics.queued_packets,
                    marked: false,
                }
            }
            Some(queues) => {
                let leaving = queues.take(at)?;
                Chosen {
                    node: leaving.node,
                    class: None,
                    start: leaving.start,
                    queue: leaving.queue,
                    left_behind: leaving.left_behind.into(),
                    marked: leaving.marked,
                }
            }
        };
        let meta = slab.meta(chosen.node)?;
        self.waited_for_gap(chosen.start, Q24::from_ns(meta.arrival_ns));
        self.statistics.fifo_bytes -= frame_bytes(meta.length_bytes);
        Some(chosen)
    }

    /// Takes a packet that its egress queue dropped at the head; returns its place.
    pub(crate) fn take_dropped(&mut self, slab: &Slab<P>) -> Option<u32> {
        let node = self.egress_queues.as_mut()?.take_dropped()?;
        let bytes = frame_bytes(slab.meta(node)?.length_bytes);
        let statistics = &mut self.statistics;
        statistics.queued_packets -= 1;
        statistics.fifo_bytes -= bytes;
        statistics.drops.add(DropCause::Aqm, 1);
        Some(node)
    }

    /// The bytes of its queues that wait in the switch's buffer.
    pub(crate) fn holds_of_switch_buffer(&self) -> u64 {
        match &self.egress_queues {
            Some(queues) if queues.config().buffer == Some(Buffer::OfSwitch) => {
                self.statistics.fifo_bytes
            }
            _ => 0,
        }
    }

    /// Gives the port egress queues in place of its FIFO, or its FIFO back (`None`). No waiting packet is
    /// dropped: those of the FIFO go to queue 0. The settings are checked. `buffer_bytes`: the buffer of the switch.
    pub(crate) fn set_queues(
        &mut self,
        config: Option<QueueingConfig>,
        buffer_bytes: Option<u64>,
        class_queues: &ClassQueues,
        slab: &mut Slab<P>,
    ) {
        let port_bytes = self.config.fifo_bytes;
        let common_bytes = |config: &QueueingConfig| config.common_bytes(port_bytes, buffer_bytes);
        let begins_anew = match (config, &mut self.egress_queues) {
            (None, None) => false,
            (Some(config), Some(queues)) => {
                let common_bytes = common_bytes(&config);
                queues.configure(config, common_bytes, slab)
            }
            (Some(config), None) => {
                let common_bytes = common_bytes(&config);
                let mut queues = EgressQueues::new(config, common_bytes);
                queues.follow_fifo(self.line_end);
                while let Some(node) = slab.unlink(&mut self.fifo) {
                    if let Some(meta) = slab.meta(node) {
                        queues.push(0, Item::new(node, meta, HeaderFields::default(), false));
                    }
                }
                self.fifo_packets = 0;
                self.egress_queues = Some(Box::new(queues));
                true
            }
            (None, Some(queues)) => {
                for (_, item) in queues.items_by_arrival(slab) {
                    slab.link(&mut self.fifo, item.node);
                    self.fifo_packets += 1;
                }
                self.egress_queues = None;
                true
            }
        };
        if begins_anew {
            let queues = self.egress_queues.as_ref();
            self.paced_in_tree = queues.is_some_and(|queues| queues.places_paced());
            self.forget_ready(class_queues);
        }
    }

    /// Packets that wait where an unpaced packet for `queue` would.
    pub(crate) fn waiting_packets(&self, queue: u8) -> u32 {
        match &self.egress_queues {
            None => u32::try_from(self.statistics.queued_packets).unwrap_or(u32::MAX),
            Some(queues) => queues.packets(queue),
        }
    }

    /// The packets that wait in an egress queue, or in the FIFO, which is queue 0; `None`: no such queue.
    pub(crate) fn waiting(&self, queue: u8, slab: &Slab<P>) -> Option<Waiting> {
        match &self.egress_queues {
            Some(queues) => queues.waiting(queue),
            None => (queue == 0).then(|| Waiting {
                packets: self.fifo_packets.into(),
                bytes: self.statistics.fifo_bytes,
                head_arrival_ns: slab.meta(self.fifo.head).map(|meta| meta.arrival_ns),
            }),
        }
    }

    /// Queues an unpaced packet; the caller has checked the room of the FIFO or of the egress queue.
    /// Returns whether the next action may have changed.
    pub(crate) fn push_unpaced(
        &mut self,
        to: Entry,
        payload: P,
        meta: Meta,
        class_queues: &ClassQueues,
        slab: &mut Slab<P>,
    ) -> Result<bool, P> {
        // The tree learns of packets in the order of time.
        self.enter_paced(Q24::from_ns(meta.arrival_ns), class_queues, slab);
        let became_head = match &mut self.egress_queues {
            None => {
                let was_empty = self.fifo.head == NONE;
                slab.push(&mut self.fifo, payload, meta)?;
                self.fifo_packets += 1;
                was_empty
            }
            Some(queues) => {
                let node = slab.insert(payload, meta)?;
                let item = Item::new(node, &meta, to.header, to.marked);
                queues.push(to.queue, item)
            }
        };
        let statistics = &mut self.statistics;
        statistics.fifo_bytes += frame_bytes(meta.length_bytes);
        statistics.fifo_bytes_max = statistics.fifo_bytes_max.max(statistics.fifo_bytes);
        self.count_queued();
        Ok(became_head || self.paced_in_tree)
    }

    fn count_queued(&mut self) {
        let statistics = &mut self.statistics;
        statistics.queued_packets += 1;
        statistics.queued_packets_max =
            statistics.queued_packets_max.max(statistics.queued_packets);
    }

    /// Time between the end of the last packet and a start, in whole nanoseconds; `None` before the first
    /// packet.
    pub(crate) fn gap_ns(&self, start: Q24) -> Option<u64> {
        self.line_end.map(|end| start.since(end).whole_ns())
    }

    /// The packet takes the line; returns when it reaches the interface.
    pub(crate) fn occupy(&mut self, start: Q24, final_length_bytes: u32) -> u64 {
        if let Some(gap_ns) = self.gap_ns(start) {
            self.statistics.gaps.record(gap_ns);
        }
        let (line_bytes, delivery_ns) = self.take_line(start, final_length_bytes);
        self.line_end = Some(self.free_at);
        if let Some(queues) = &mut self.egress_queues {
            queues.on_line(start, self.free_at);
        }
        self.statistics.tx_packets += 1;
        self.statistics.tx_bytes += frame_bytes(final_length_bytes);
        self.statistics.tx_line_bytes += line_bytes;
        delivery_ns
    }

    /// The bytes that a frame takes on the line beside its length.
    fn overhead_bytes(&self) -> u32 {
        match self.config.counts {
            RateCounts::Layer2 => 4,
            // Preamble and SFD 8, FCS 4, inter-frame gap 12 (IEEE 802.3).
            RateCounts::Wire => 24,
        }
    }

    /// A frame takes the line from `start` on; returns its bytes there, and when it reaches the
    /// interface.
    fn take_line(&mut self, start: Q24, length_bytes: u32) -> (u64, u64) {
        let line_bytes = u64::from(length_bytes) + u64::from(self.overhead_bytes());
        self.free_at = start.plus(u128::from(line_bytes) * u128::from(self.line_time_per_byte_q24));
        // A wire does not reorder, not even while its delay is being shortened.
        let delivery_ns = start
            .ceil_ns()
            .saturating_add(self.config.delay_ns)
            .clamp(self.last_delivery_ns, NEVER_NS - 1);
        (line_bytes, delivery_ns)
    }

    /// Puts a frame into the delay line; `timed`: see [`InFlight`].
    pub(crate) fn propagate(&mut self, delivery_ns: u64, frame: Frame<P>, timed: bool) {
        self.last_delivery_ns = delivery_ns;
        self.delay_line.push_back(InFlight {
            delivery_ns,
            frame,
            timed,
        });
        let packets = self.delay_line.len() as u64;
        let statistics = &mut self.statistics;
        statistics.delay_line_packets = packets;
        statistics.delay_line_packets_max = statistics.delay_line_packets_max.max(packets);
    }

    /// Takes the frame that reaches the interface next.
    pub(crate) fn deliver(&mut self) -> Option<InFlight<P>> {
        let frame = self.delay_line.pop_front();
        self.statistics.delay_line_packets = self.delay_line.len() as u64;
        frame
    }

    /// The time when the next frame reaches the interface; [`NEVER_NS`] if none is on its way.
    pub(crate) fn next_delivery_ns(&self) -> u64 {
        self.delay_line
            .front()
            .map_or(NEVER_NS, |frame| frame.delivery_ns)
    }

    /// Takes the packets of the FIFO or of the egress queues. The caller takes those of the class queues.
    pub(crate) fn take_waiting(&mut self, slab: &mut Slab<P>, mut out: impl FnMut(P)) {
        while let Some(payload) = slab.pop(&mut self.fifo) {
            out(payload);
        }
        if let Some(queues) = &mut self.egress_queues {
            queues.take_all(|node| {
                if let Some((payload, _)) = slab.take(node) {
                    out(payload);
                }
            });
        }
        self.fifo_packets = 0;
        self.waiting.clear();
        self.ready.clear();
        self.statistics.queued_packets = 0;
        self.statistics.fifo_bytes = 0;
        self.statistics.paced_bytes = 0;
    }
}
