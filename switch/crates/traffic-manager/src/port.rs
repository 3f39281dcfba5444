//! One port: its line, its FIFO, its class queues, its delay line.

use std::collections::VecDeque;

use dataplane::hold::time_per_byte_q24;

use crate::calendar::Calendar;
use crate::heap::Key;
use crate::queues::ClassQueues;
use crate::slab::{List, Meta, NONE, Slab};
use crate::statistics::PortStatistics;
use crate::time::Q24;
use crate::{PortConfig, PortError, RateCounts};

/// "Nothing to do": later than every instant the traffic manager acts on.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// What a port does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    /// When: for a paced packet `max(E, port_free)`, for an unpaced one
    /// `max(arrival, port_free)`.
    pub(crate) at: Q24,
    /// Which kind.
    pub(crate) paced: bool,
}

/// A packet that was chosen.
#[derive(Debug)]
pub(crate) struct Chosen<P> {
    pub(crate) payload: P,
    pub(crate) meta: Meta,
    pub(crate) class: Option<u32>,
    pub(crate) start: Q24,
}

/// E of a class queue's head with the class, as [`waiting_key`] makes it: 120 bits.
impl Key for u128 {
    const VACANT: Self = Self::MAX;

    fn time_ns(self) -> u64 {
        Q24::from_raw(self >> CLASS_BITS).whole_ns()
    }
}

/// A head that may start: in order of departure, then of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    departure_ns: u64,
    sequence: u64,
    class: u32,
}

impl Key for Ready {
    const VACANT: Self = Self {
        departure_ns: u64::MAX,
        sequence: u64::MAX,
        class: u32::MAX,
    };

    fn time_ns(self) -> u64 {
        self.departure_ns
    }
}

/// A frame on its way to the interface.
#[derive(Debug)]
pub(crate) struct InFlight<P> {
    pub(crate) delivery_ns: u64,
    pub(crate) payload: P,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port<P> {
    pub(crate) number: u16,
    pub(crate) up: bool,
    pub(crate) config: PortConfig,
    line_time_per_byte_q24: u64,
    /// Serial number of the start that waits for `transmitted` or `abandoned`.
    pub(crate) pending: Option<u64>,
    /// The line is free from here on.
    free_at: Q24,
    /// The last frame left the line; `None` before the first.
    line_end: Option<Q24>,
    pub(crate) fifo: List,
    /// Packets in it.
    pub(crate) fifo_packets: u32,
    /// Heads of class queues by E: `E << 32 | class`.
    waiting: Calendar<u128>,
    /// Heads whose E has come. Every E in here is at most `free_at` whenever the port is free
    /// (see `decide`).
    ready: Calendar<Ready>,
    pub(crate) delay_line: VecDeque<InFlight<P>>,
    last_delivery_ns: u64,
    pub(crate) statistics: PortStatistics,
}

/// Of a key of `waiting`, below the instant.
const CLASS_BITS: u32 = u32::BITS;

/// Bytes that count against limits and rates: layer 2 with FCS.
pub(crate) const fn frame_bytes(length_bytes: u32) -> u64 {
    length_bytes as u64 + 4
}

/// Checks a configuration and computes the line's time per byte (0: no line rate).
fn line_time_per_byte_q24(config: &PortConfig) -> Result<u64, PortError> {
    match config.line_rate_bps {
        None => Ok(0),
        Some(rate) => time_per_byte_q24(rate).ok_or(PortError::LineRate(rate)),
    }
}

impl<P> Port<P> {
    pub(crate) fn new(number: u16, config: PortConfig) -> Result<Self, PortError> {
        Ok(Self {
            number,
            up: true,
            line_time_per_byte_q24: line_time_per_byte_q24(&config)?,
            config,
            pending: None,
            free_at: Q24::default(),
            line_end: None,
            fifo: List::default(),
            fifo_packets: 0,
            waiting: Calendar::new(),
            ready: Calendar::new(),
            delay_line: VecDeque::new(),
            last_delivery_ns: 0,
            statistics: PortStatistics::default(),
        })
    }

    /// Applies to the next frame; the one on the line keeps its time.
    pub(crate) fn configure(&mut self, config: PortConfig) -> Result<(), PortError> {
        self.line_time_per_byte_q24 = line_time_per_byte_q24(&config)?;
        self.config = config;
        Ok(())
    }

    /// What the port does next, if nothing else arrives before.
    ///
    /// Once a decision was taken at `t`, `free_at >= t` (see [`Self::choose`]), so the heads in
    /// `ready` were eligible by `free_at` and the earliest of them can start then.
    pub(crate) fn decide(&self, slab: &Slab<P>) -> Option<Decision> {
        if self.pending.is_some() {
            return None;
        }
        let paced = if self.ready.peek().is_none() {
            self.waiting
                .peek()
                .map(|key| Q24::from_raw(key >> CLASS_BITS).max(self.free_at))
        } else {
            Some(self.free_at)
        };
        let unpaced = slab
            .meta(self.fifo.head)
            .map(|meta| Q24::from_ns(meta.arrival_ns).max(self.free_at));
        match (paced, unpaced) {
            // Strict priority: at the instant the unpaced packet could start, an eligible paced
            // one goes first.
            (Some(at), Some(other)) if at <= other => Some(Decision { at, paced: true }),
            (Some(at), None) => Some(Decision { at, paced: true }),
            (_, Some(at)) => Some(Decision { at, paced: false }),
            (None, None) => None,
        }
    }

    /// Takes the packet that `decision` stands for. A paced packet looked at later than its
    /// instant's nanosecond starts now, not then; an unpaced one starts at its instant.
    pub(crate) fn choose(
        &mut self,
        decision: Decision,
        now_ns: u64,
        queues: &mut ClassQueues,
        slab: &mut Slab<P>,
    ) -> Option<Chosen<P>> {
        let chosen = if decision.paced {
            let start = if decision.at.ceil_ns() < now_ns {
                Q24::from_ns(now_ns)
            } else {
                decision.at
            };
            self.choose_paced(start, queues, slab)
        } else {
            let (payload, meta) = slab.pop(&mut self.fifo)?;
            self.fifo_packets -= 1;
            self.statistics.fifo_bytes -= frame_bytes(meta.length_bytes);
            Some(Chosen {
                payload,
                meta,
                class: None,
                start: decision.at,
            })
        }?;
        self.statistics.queued_packets -= 1;
        // Decisions of a port never go back in time, not even when egress drops the packet.
        self.free_at = self.free_at.max(chosen.start);
        Some(chosen)
    }

    fn choose_paced(
        &mut self,
        start: Q24,
        queues: &mut ClassQueues,
        slab: &mut Slab<P>,
    ) -> Option<Chosen<P>> {
        // Keys up to this one have E <= start, whatever the class.
        let last = start.raw() << CLASS_BITS | u128::from(u32::MAX);
        let (class, in_waiting) = self.eligible(last, queues, slab)?;
        // Stall rule: R' = max(R, t - allowance) + cost.
        let release = |meta: &Meta, release: Q24| {
            release
                .max(start.minus_ns(meta.allowance_ns))
                .plus(u128::from(meta.cost_q24))
        };
        let (payload, meta, queue) = queues.pop((self.number, class), slab, release)?;
        self.statistics.paced_bytes -= frame_bytes(meta.length_bytes);
        let next = slab
            .meta(queue.list.head)
            .map(|next| waiting_key(next.departure_ns, queue.release(), class));
        match (in_waiting, next) {
            (true, Some(key)) => self.waiting.replace_smallest(key),
            (true, None) => {
                self.waiting.pop();
            }
            (false, Some(key)) => self.waiting.push(key),
            (false, None) => {}
        }
        if self.waiting.take_refilled() {
            self.look_at_next(queues, slab);
        }
        Some(Chosen {
            payload,
            meta,
            class: Some(class),
            start,
        })
    }

    /// Reads what the next releases will need. Loads that wait for memory together take little
    /// longer than one, while each release alone would wait for its own.
    fn look_at_next(&self, queues: &ClassQueues, slab: &Slab<P>) {
        let heads = self.waiting.soon().map(|key| {
            let queue = queues.get(self.number, class_of(key));
            queue
                .and_then(|queue| slab.meta(queue.list.head))
                .map_or(0, |meta| meta.sequence)
        });
        std::hint::black_box(heads.fold(0, u64::wrapping_add));
    }

    /// The class whose head has the smallest (departure, sequence) of those with keys up to
    /// `last`, and whether that head is still the first of `waiting`.
    ///
    /// The common case is one eligible head: it need not go through `ready`.
    fn eligible(
        &mut self,
        last: u128,
        queues: &ClassQueues,
        slab: &Slab<P>,
    ) -> Option<(u32, bool)> {
        while let Some(key) = self.waiting.peek()
            && key <= last
        {
            let class = class_of(key);
            if self.ready.peek().is_none() && !self.waiting.second_may_be_up_to(last) {
                return Some((class, true));
            }
            self.waiting.pop();
            let queue = queues.get(self.number, class);
            if let Some(meta) = queue.and_then(|queue| slab.meta(queue.list.head)) {
                self.ready.push(Ready {
                    departure_ns: meta.departure_ns,
                    sequence: meta.sequence,
                    class,
                });
            }
        }
        self.ready.pop().map(|ready| (ready.class, false))
    }

    /// Queues a paced packet; the queue of `class` exists and the slab has room.
    /// Returns whether it became the head of its queue.
    pub(crate) fn push_paced(
        &mut self,
        class: u32,
        payload: P,
        meta: Meta,
        queues: &mut ClassQueues,
        slab: &mut Slab<P>,
    ) -> Result<bool, P> {
        let before = queues.push((self.number, class), payload, meta, slab)?;
        let was_empty = before.packets == 0;
        if was_empty {
            let key = waiting_key(meta.departure_ns, before.release(), class);
            self.waiting.push(key);
        }
        let bytes = frame_bytes(meta.length_bytes);
        let statistics = &mut self.statistics;
        statistics.paced_bytes += bytes;
        statistics.paced_bytes_max = statistics.paced_bytes_max.max(statistics.paced_bytes);
        self.count_queued();
        Ok(was_empty)
    }

    /// Queues an unpaced packet; the caller has checked the FIFO's room.
    /// Returns whether it became the head.
    pub(crate) fn push_unpaced(
        &mut self,
        payload: P,
        meta: Meta,
        slab: &mut Slab<P>,
    ) -> Result<bool, P> {
        let was_empty = self.fifo.head == NONE;
        slab.push(&mut self.fifo, payload, meta)?;
        self.fifo_packets += 1;
        let statistics = &mut self.statistics;
        statistics.fifo_bytes += frame_bytes(meta.length_bytes);
        statistics.fifo_bytes_max = statistics.fifo_bytes_max.max(statistics.fifo_bytes);
        self.count_queued();
        Ok(was_empty)
    }

    fn count_queued(&mut self) {
        let statistics = &mut self.statistics;
        statistics.queued_packets += 1;
        statistics.queued_packets_max =
            statistics.queued_packets_max.max(statistics.queued_packets);
    }

    /// The frame takes the line; returns when it reaches the interface.
    pub(crate) fn occupy(&mut self, start: Q24, final_length_bytes: u32) -> u64 {
        let line_bytes = match self.config.counts {
            RateCounts::Layer2 => frame_bytes(final_length_bytes),
            // Preamble and SFD 8, FCS 4, inter-frame gap 12 (IEEE 802.3).
            RateCounts::Wire => u64::from(final_length_bytes) + 24,
        };
        if let Some(end) = self.line_end {
            let gap_ns = start.raw().saturating_sub(end.raw()) >> 24;
            self.statistics
                .gaps
                .record(u64::try_from(gap_ns).unwrap_or(u64::MAX));
        }
        self.free_at = start.plus(u128::from(line_bytes) * u128::from(self.line_time_per_byte_q24));
        self.line_end = Some(self.free_at);
        self.statistics.tx_packets += 1;
        self.statistics.tx_bytes += frame_bytes(final_length_bytes);
        self.statistics.tx_line_bytes += line_bytes;
        // A wire does not reorder, not even while its delay is being shortened.
        start
            .ceil_ns()
            .saturating_add(self.config.delay_ns)
            .clamp(self.last_delivery_ns, NEVER_NS - 1)
    }

    /// Puts a frame into the delay line.
    pub(crate) fn propagate(&mut self, delivery_ns: u64, payload: P) {
        self.last_delivery_ns = delivery_ns;
        self.delay_line.push_back(InFlight {
            delivery_ns,
            payload,
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

    /// When the next frame reaches the interface; [`NEVER_NS`] if none is on its way.
    pub(crate) fn next_delivery_ns(&self) -> u64 {
        self.delay_line
            .front()
            .map_or(NEVER_NS, |frame| frame.delivery_ns)
    }

    /// Takes what waits in the FIFO. What waits in class queues the caller takes.
    pub(crate) fn take_waiting(&mut self, slab: &mut Slab<P>, mut out: impl FnMut(P)) {
        while let Some((payload, _)) = slab.pop(&mut self.fifo) {
            out(payload);
        }
        self.fifo_packets = 0;
        self.waiting.clear();
        self.ready.clear();
        self.statistics.queued_packets = 0;
        self.statistics.fifo_bytes = 0;
        self.statistics.paced_bytes = 0;
    }
}

/// Key of a head in `waiting`: E = max(departure, R), then the class.
fn waiting_key(departure_ns: u64, release: Q24, class: u32) -> u128 {
    let eligible = Q24::from_ns(departure_ns).max(release);
    eligible.raw() << CLASS_BITS | u128::from(class)
}

/// The class in a key of `waiting`.
fn class_of(key: u128) -> u32 {
    u32::try_from(key & u128::from(u32::MAX)).unwrap_or(0)
}
