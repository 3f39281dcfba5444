//! One port: its line, its FIFO, its class queues, its delay line.

use std::collections::VecDeque;

use crate::hold::time_per_byte_q24;

use crate::calendar::Calendar;
use crate::config::{PortConfig, PortError, RateCounts, frame_bytes};
use crate::gaps::{self, Gaps};
use crate::heap::Key;
use crate::queues::{ClassQueues, Queue};
use crate::slab::{List, Meta, NONE, Slab};
use crate::statistics::PortStatistics;
use crate::time::Q24;
use prefetch::prefetch;

/// "Nothing to do": later than every instant the traffic manager acts on.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// How many of the packets that leave soon are prefetched together.
const PREFETCHED: usize = 24;

/// A class that catches up gains one part in this many of a packet's time with each packet.
const CATCH_UP_PARTS: u128 = 8;

/// What a port starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet of a class queue.
    Paced,
    /// The FIFO's head.
    Unpaced,
    /// A PAUSE frame; a paced packet waits until the instant.
    Gap { until: Q24 },
}

/// What a port does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    /// When: for a paced packet `max(E, port_free)`, for an unpaced one
    /// `max(arrival, port_free)`, for a gap frame `port_free`.
    pub(crate) at: Q24,
    /// Which kind.
    pub(crate) kind: Kind,
}

impl Decision {
    /// The instant that a poll at `now_ns` acts at: a late one starts now, not then.
    pub(crate) fn start(&self, now_ns: u64) -> Q24 {
        if self.at.ceil_ns() < now_ns {
            Q24::from_ns(now_ns)
        } else {
            self.at
        }
    }
}

/// A packet that was chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Where it is.
    pub(crate) node: u32,
    pub(crate) class: Option<u32>,
    pub(crate) start: Q24,
}

/// E of a class queue's head with the class, as [`waiting_key`] makes it: 120 bits.
impl Key for u128 {
    const VACANT: Self = Self::MAX;

    fn is_vacant(self) -> bool {
        // One word tells, of which a key has only 56 bits. To compare both would be to load at once
        // what was stored as two words, for which the processor waits.
        (self >> u64::BITS) as u64 == u64::MAX
    }

    fn time_ns(self) -> u64 {
        Q24::from_raw(self >> CLASS_BITS).whole_ns()
    }
}

/// A head that may start: in order of departure, then of arrival. `spaced`: see
/// [`Head::spaced`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    departure_ns: u64,
    sequence: u64,
    class: u32,
    spaced: Option<Q24>,
}

impl Key for Ready {
    const VACANT: Self = Self {
        departure_ns: u64::MAX,
        sequence: u64::MAX,
        class: u32::MAX,
        spaced: None,
    };

    fn is_vacant(self) -> bool {
        self.sequence == u64::MAX
    }

    fn time_ns(self) -> u64 {
        self.departure_ns
    }
}

/// The head of a class queue that starts.
#[derive(Debug, Clone, Copy)]
struct Head {
    class: u32,
    /// It is still the first of `waiting`.
    in_waiting: bool,
    /// Where it waited for its distance to the packet before, past departure and R, until when:
    /// its class is still catching up.
    spaced: Option<Q24>,
}

/// What reaches an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<P> {
    /// What [`crate::TrafficManager::transmitted`] got.
    Packet(P),
    /// A PAUSE frame that fills a gap ([`Gaps::PauseFrames`]).
    Gap {
        /// Layer 2 without FCS, in bytes.
        length_bytes: u32,
    },
}

impl<P> Frame<P> {
    /// The packet, if it is one.
    pub fn packet(self) -> Option<P> {
        match self {
            Self::Packet(payload) => Some(payload),
            Self::Gap { .. } => None,
        }
    }
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
    /// Serial number of the start that waits for `transmitted` or `abandoned`.
    pub(crate) pending: Option<u64>,
    /// The line is free from here on.
    free_at: Q24,
    /// The last packet left the line; `None` before the first.
    line_end: Option<Q24>,
    /// How much of what packets wait for now the last gap frame is to blame for, at most.
    gap_wait: Q24,
    /// Late classes catch up with spaced packets ([`crate::TrafficManager::space_catch_up`]).
    pub(crate) spaces_catch_up: bool,
    /// The last poll that was late for a paced packet.
    late_poll_ns: u64,
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
        Ok(Self {
            number,
            up: true,
            line_time_per_byte_q24: line_time_per_byte_q24(&config)?,
            config,
            pending: None,
            free_at: Q24::default(),
            line_end: None,
            gap_wait: Q24::default(),
            spaces_catch_up: false,
            late_poll_ns: 0,
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
            (Some(at), Some(other)) if at <= other => Some(Decision {
                at,
                kind: Kind::Paced,
            }),
            // A packet that is never to leave has no gap before it.
            (Some(until), None)
                if self.config.gaps != Gaps::Accounted
                    && self.free_at < until
                    && until.ceil_ns() < NEVER_NS =>
            {
                Some(Decision {
                    at: self.free_at,
                    kind: Kind::Gap { until },
                })
            }
            (Some(at), None) => Some(Decision {
                at,
                kind: Kind::Paced,
            }),
            (_, Some(at)) => Some(Decision {
                at,
                kind: Kind::Unpaced,
            }),
            (None, None) => None,
        }
    }

    /// Puts a PAUSE frame on the line at `start`, the longest that the gap until `until` needs.
    /// Returns its length and when it reaches the interface.
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

    /// A packet starts that was eligible from `eligible` on: how much earlier it would have
    /// started without the last gap frame. That is at most what the frame took, and what this
    /// packet and those between them waited in all. Such a wait is no stall.
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

    /// Takes the packet that `decision` stands for. A paced packet looked at later than its
    /// instant's nanosecond starts now, not then; an unpaced one starts at its instant.
    pub(crate) fn choose(
        &mut self,
        decision: Decision,
        now_ns: u64,
        queues: &mut ClassQueues,
        slab: &Slab<P>,
    ) -> Option<Chosen> {
        let chosen = if decision.kind == Kind::Paced {
            let poll_lateness = self.poll_lateness(decision, now_ns);
            self.choose_paced(decision.start(now_ns), poll_lateness, queues, slab)
        } else {
            let node = slab.unlink(&mut self.fifo)?;
            let meta = slab.meta(node)?;
            self.waited_for_gap(decision.at, Q24::from_ns(meta.arrival_ns));
            self.fifo_packets -= 1;
            self.statistics.fifo_bytes -= frame_bytes(meta.length_bytes);
            Some(Chosen {
                node,
                class: None,
                start: decision.at,
            })
        }?;
        self.statistics.queued_packets -= 1;
        // Decisions of a port never go back in time, not even when egress drops the packet.
        self.free_at = self.free_at.max(chosen.start);
        Some(chosen)
    }

    /// How much of what a packet is late by may be the doing of the poll at `now_ns`, at most. A poll
    /// that was late for one is so for all that start with it.
    fn poll_lateness(&mut self, decision: Decision, now_ns: u64) -> Q24 {
        let now = Q24::from_ns(now_ns);
        if decision.at.ceil_ns() < now_ns {
            self.late_poll_ns = now_ns;
            now.since(decision.at)
        } else if self.late_poll_ns == now_ns && decision.at.ceil_ns() == now_ns {
            now
        } else {
            Q24::default()
        }
    }

    /// Takes the first paced packet that may start at `start`. `poll_lateness`: see
    /// [`Self::poll_lateness`].
    fn choose_paced(
        &mut self,
        start: Q24,
        poll_lateness: Q24,
        queues: &mut ClassQueues,
        slab: &Slab<P>,
    ) -> Option<Chosen> {
        // Keys up to this one have E <= start, whatever the class.
        let last = start.raw() << CLASS_BITS | u128::from(u32::MAX);
        let head = self.eligible(last, queues, slab)?;
        let (class, number, spaces_catch_up) = (head.class, self.number, self.spaces_catch_up);
        let mut spaced = Q24::default();
        // Stall rule: R' = max(R, t - allowance) + cost, t without what a gap frame took.
        let release = |meta: &Meta, release: Q24, is_last: bool| {
            let eligible = Q24::from_ns(meta.departure_ns).max(release);
            let punctual = start.since(self.waited_for_gap(start, eligible));
            let cost = u128::from(meta.cost_q24);
            let release = release.max(punctual.minus_ns(meta.allowance_ns)).plus(cost);
            let may_gain = cost / CATCH_UP_PARTS;
            let late = start.since(eligible).min(poll_lateness);
            // From when it could have gone: polls that are late again and again must not add up.
            let from = head.spaced.or((late.raw() > may_gain).then_some(start));
            if let Some(from) = from.filter(|_| spaces_catch_up) {
                spaced = from.plus(cost - may_gain);
            }
            // What no packet waits for is not made up: it would take a clock of its own.
            if is_last {
                release.max(spaced)
            } else {
                release
            }
        };
        let unlinked = queues.unlink((number, class), slab, release)?;
        self.statistics.paced_bytes -= unlinked.bytes;
        let next = slab
            .meta(unlinked.next)
            .map(|next| waiting_key(next.departure_ns, unlinked.release.max(spaced), class));
        match (head.in_waiting, next) {
            (true, Some(key)) => self.waiting.replace_smallest(key),
            (true, None) => {
                self.waiting.pop();
            }
            (false, Some(key)) => self.waiting.push(key),
            (false, None) => {}
        }
        if self.waiting.take_refilled() {
            self.prefetch_next(queues, slab);
        }
        Some(Chosen {
            node: unlinked.node,
            class: Some(class),
            start,
        })
    }

    /// Prefetches what the next releases need. Prefetches of several places run at the same time,
    /// while each release alone would wait for its own memory.
    fn prefetch_next(&self, queues: &ClassQueues, slab: &Slab<P>) {
        // One step at a time for all of them: a step reads what the step before has prefetched.
        let mut places = [None; PREFETCHED];
        for (place, key) in places.iter_mut().zip(self.waiting.soon()) {
            *place = queues.first_of(class_of(key));
        }
        places.iter().flatten().for_each(|queue| prefetch(*queue));
        let packets = places.map(|queue| queue.map_or(NONE, |queue| queue.list.head));
        packets.iter().for_each(|&packet| slab.prefetch(packet));
        // After the release the next packet becomes the first.
        let successors = packets.map(|packet| slab.next(packet));
        successors.iter().for_each(|&packet| slab.prefetch(packet));
    }

    /// The head with the smallest (departure, sequence) of those with keys up to `last`.
    ///
    /// The common case is one eligible head: it need not go through `ready`.
    fn eligible(&mut self, last: u128, queues: &ClassQueues, slab: &Slab<P>) -> Option<Head> {
        while let Some(key) = self.waiting.peek()
            && key <= last
        {
            let class = class_of(key);
            let alone = self.ready.peek().is_none() && !self.waiting.second_may_be_up_to(last);
            if alone && !self.spaces_catch_up {
                return Some(Head {
                    class,
                    in_waiting: true,
                    spaced: None,
                });
            }
            let spaces_catch_up = self.spaces_catch_up;
            let spaced = |queue: &Queue, meta: &Meta| {
                let unspaced = waiting_key(meta.departure_ns, queue.release(), class);
                (spaces_catch_up && key > unspaced).then(|| Q24::from_raw(key >> CLASS_BITS))
            };
            let found = queues.get(self.number, class).and_then(|queue| {
                let meta = slab.meta(queue.list.head)?;
                Some((meta, spaced(queue, meta)))
            });
            if alone {
                return Some(Head {
                    class,
                    in_waiting: true,
                    spaced: found.and_then(|(_, spaced)| spaced),
                });
            }
            self.waiting.pop();
            if let Some((meta, spaced)) = found {
                self.ready.push(Ready {
                    departure_ns: meta.departure_ns,
                    sequence: meta.sequence,
                    class,
                    spaced,
                });
            }
        }
        self.ready.pop().map(|ready| Head {
            class: ready.class,
            in_waiting: false,
            spaced: ready.spaced,
        })
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
        let release_of_empty = queues.push((self.number, class), payload, meta, slab)?;
        if let Some(release) = release_of_empty {
            let key = waiting_key(meta.departure_ns, release, class);
            self.waiting.push(key);
        }
        if self.config.gaps != Gaps::Accounted && self.statistics.paced_bytes == 0 {
            // Gap frames flow while a paced packet waits: from here on, not from before.
            self.free_at = self.free_at.max(Q24::from_ns(meta.arrival_ns));
        }
        let bytes = frame_bytes(meta.length_bytes);
        let statistics = &mut self.statistics;
        statistics.paced_bytes += bytes;
        statistics.paced_bytes_max = statistics.paced_bytes_max.max(statistics.paced_bytes);
        self.count_queued();
        Ok(release_of_empty.is_some())
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

    /// The packet takes the line; returns when it reaches the interface.
    pub(crate) fn occupy(&mut self, start: Q24, final_length_bytes: u32) -> u64 {
        if let Some(end) = self.line_end {
            let gap_ns = start.since(end).whole_ns();
            self.statistics.gaps.record(gap_ns);
        }
        let (line_bytes, delivery_ns) = self.take_line(start, final_length_bytes);
        self.line_end = Some(self.free_at);
        self.statistics.tx_packets += 1;
        self.statistics.tx_bytes += frame_bytes(final_length_bytes);
        self.statistics.tx_line_bytes += line_bytes;
        delivery_ns
    }

    /// What a frame takes of the line beside its length.
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

    /// When the next frame reaches the interface; [`NEVER_NS`] if none is on its way.
    pub(crate) fn next_delivery_ns(&self) -> u64 {
        self.delay_line
            .front()
            .map_or(NEVER_NS, |frame| frame.delivery_ns)
    }

    /// Takes what waits in the FIFO. What waits in class queues the caller takes.
    pub(crate) fn take_waiting(&mut self, slab: &mut Slab<P>, mut out: impl FnMut(P)) {
        while let Some(payload) = slab.pop(&mut self.fifo) {
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
