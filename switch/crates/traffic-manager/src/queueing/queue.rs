//! One egress queue: its packets, with depths in bytes and packets, a rate clock, and active queue
//! management.

use std::collections::VecDeque;

use super::aqm::{self, Aqm, AqmConfig, DualPi2, FqCodel};
use super::config::Buffer;
use super::depths::Depths;
use super::item::Item;
use super::limits::BUFFER_SHARE_ONE_PPM;
use super::queue_config::QueueConfig;
use super::shaper::Shaper;
use super::statistics::QueueStatistics;
use crate::cause::DropCause;
use crate::packet::HeaderFields;
use crate::statistics::Waiting;
use crate::time::Q24;

/// A packet that asks for room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) bytes: u64,
    pub(crate) arrival_ns: u64,
    pub(crate) header: HeaderFields,
}

/// A buffer that queues have in common, and what they hold of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommonBuffer {
    pub(crate) size_bytes: u64,
    pub(crate) waiting_bytes: u64,
}

impl CommonBuffer {
    /// Whether a queue that holds `waiting_bytes` may hold `more_bytes` more. Choudhury and Hahne, "Dynamic
    /// Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking, 1998.
    fn has_room(&self, waiting_bytes: u64, more_bytes: u64, share_ppm: Option<u32>) -> bool {
        let free_bytes = self.size_bytes.saturating_sub(self.waiting_bytes);
        let share_ppm = u128::from(share_ppm.unwrap_or(BUFFER_SHARE_ONE_PPM));
        let threshold = u128::from(free_bytes) * share_ppm;
        let holds = u128::from(waiting_bytes + more_bytes);
        more_bytes <= free_bytes && holds * u128::from(BUFFER_SHARE_ONE_PPM) <= threshold
    }
}

/// The room that there is for the packets of a port's queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Packets that the memory of the switch still takes.
    pub(crate) free_packets: usize,
    /// Room in bytes of a queue without a depth of its own, and without a common buffer.
    pub(crate) port_depth_bytes: u64,
    /// Bytes that wait in all queues of the port.
    pub(crate) waiting_bytes: u64,
    /// The buffer of the switch, if it has one.
    pub(crate) switch_buffer: Option<CommonBuffer>,
}

impl Room {
    /// A common buffer, and the cause of a drop where it has no room.
    fn common(&self, buffer: Option<Buffer>) -> Option<(CommonBuffer, DropCause)> {
        match buffer? {
            Buffer::OfPort(size_bytes) => {
                let waiting_bytes = self.waiting_bytes;
                let buffer = CommonBuffer {
                    size_bytes,
                    waiting_bytes,
                };
                Some((buffer, DropCause::BufferShare))
            }
            Buffer::OfSwitch => Some((self.switch_buffer?, DropCause::SwitchBuffer)),
        }
    }
}

/// The packets of a queue.
#[derive(Debug)]
enum Store {
    Fifo {
        items: VecDeque<Item>,
        aqm: Option<Aqm>,
    },
    Flows(FqCodel),
    Dual(Box<DualPi2>),
}

impl Store {
    fn new(aqm: Option<AqmConfig>, seed: u64) -> Self {
        match aqm {
            Some(AqmConfig::FqCodel(config)) => Self::Flows(FqCodel::new(config)),
            Some(AqmConfig::DualPi2(config)) => Self::Dual(Box::new(DualPi2::new(config))),
            aqm => Self::Fifo {
                items: VecDeque::new(),
                aqm: aqm.and_then(|aqm| Aqm::new(aqm, seed)),
            },
        }
    }

    /// The depths of the queue, where the store keeps them itself.
    fn set_depths(&mut self, depths: Depths) {
        if let Self::Flows(flows) = self {
            flows.set_depths(depths);
        }
    }

    fn packets(&self) -> usize {
        match self {
            Self::Fifo { items, .. } => items.len(),
            Self::Flows(flows) => flows.packets(),
            Self::Dual(dual) => dual.packets(),
        }
    }

    /// A packet by which the queue is judged from outside: the head, or one of the flow that is next.
    fn first(&self) -> Option<&Item> {
        match self {
            Self::Fifo { items, .. } => items.front(),
            Self::Flows(flows) => flows.first(),
            Self::Dual(dual) => dual.first(),
        }
    }
}

/// A queue.
#[derive(Debug)]
pub(super) struct EgressQueue {
    store: Store,
    config: QueueConfig,
    /// `None`: no maximum rate.
    shaper: Option<Shaper>,
    /// E of the packet that started last.
    last_eligible: Option<Q24>,
    /// For random numbers.
    seed: u64,
    /// It has had packets since then.
    since_ns: u64,
    pub(super) statistics: QueueStatistics,
}

impl EgressQueue {
    /// `common_bytes`: the depth in bytes of a queue without one of its own.
    pub(super) fn new(config: &QueueConfig, seed: u64, common_bytes: u64) -> Self {
        let mut store = Store::new(config.aqm, seed);
        store.set_depths(config.depths(common_bytes));
        Self {
            store,
            config: *config,
            shaper: config.max_rate.and_then(Shaper::new),
            last_eligible: None,
            seed,
            since_ns: 0,
            statistics: QueueStatistics::default(),
        }
    }

    /// New settings with the same active queue management; the clock of a rate goes on.
    pub(super) fn configure(&mut self, config: &QueueConfig) {
        debug_assert_eq!(config.aqm, self.config.aqm, "the queue is to be rebuilt");
        self.config = *config;
        self.follow(self.shaper);
    }

    /// Begins the rate of its settings after that of another time.
    fn follow(&mut self, before: Option<Shaper>) {
        let rate = self.config.max_rate;
        self.shaper =
            rate.and_then(|rate| Shaper::following(before.as_ref(), rate, self.last_eligible));
    }

    /// Takes the place of a FIFO whose last packet has left the line at `left`.
    pub(super) fn follow_fifo(&mut self, left: Option<Q24>) {
        self.last_eligible = left;
        self.follow(None);
    }

    /// Takes over the counters of a queue whose place this one takes.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.statistics = QueueStatistics {
            packets: 0,
            bytes: 0,
            ..before.statistics.clone()
        };
        self.last_eligible = before.last_eligible;
        self.follow(before.shaper);
    }

    /// Takes over the packets of a queue whose place this one takes, with the state of active queue
    /// management; false: this one has another.
    pub(super) fn keep_store(&mut self, before: &mut Self) -> bool {
        if self.config.aqm != before.config.aqm {
            return false;
        }
        self.store = std::mem::replace(&mut before.store, Store::new(None, before.seed));
        self.since_ns = before.since_ns;
        self.statistics.packets = before.statistics.packets;
        self.statistics.bytes = before.statistics.bytes;
        true
    }

    /// Whether its head may become another while it waits.
    pub(super) fn may_change_head(&self) -> bool {
        !matches!(self.store, Store::Fifo { .. })
    }

    /// Packets that wait; fewer than 2^32, as the slab's.
    pub(super) fn packets(&self) -> u32 {
        self.store.packets() as u32
    }

    /// The packets that wait.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            packets: self.statistics.packets,
            bytes: self.statistics.bytes,
            head_arrival_ns: self.store.first().map(Item::arrival_ns),
        }
    }

    /// The packets that wait.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        let (fifo, flows, dual) = match &self.store {
            Store::Fifo { items, .. } => (Some(items.iter()), None, None),
            Store::Flows(flows) => (None, Some(flows.items()), None),
            Store::Dual(dual) => (None, None, Some(dual.items())),
        };
        let fifo = fifo.into_iter().flatten();
        let flows = flows.into_iter().flatten();
        fifo.chain(flows).chain(dual.into_iter().flatten())
    }

    /// Whether a packet has room and active queue management keeps it; true: it is to be marked.
    pub(super) fn admit(
        &mut self,
        packet: &Admission,
        room: &Room,
        buffer: Option<Buffer>,
    ) -> Result<bool, DropCause> {
        let waiting = &self.statistics;
        if waiting.packets >= room.free_packets as u64 {
            return Err(DropCause::HoldLimit);
        }
        let common = room.common(buffer);
        let common_bytes = common.map_or(room.port_depth_bytes, |(buffer, _)| buffer.size_bytes);
        let depths = self.config.depths(common_bytes);
        let is_full =
            waiting.bytes + packet.bytes > depths.bytes || waiting.packets >= depths.packets;
        if is_full && !self.config.drops_of_longest() {
            return Err(DropCause::QueueFull);
        }
        if let Some((buffer, cause)) = common
            && !buffer.has_room(waiting.bytes, packet.bytes, self.config.buffer_share_ppm)
        {
            return Err(cause);
        }
        let aqm = match &mut self.store {
            Store::Fifo { aqm: Some(aqm), .. } => aqm,
            store => {
                store.set_depths(depths);
                return Ok(false);
            }
        };
        let verdict = aqm.arriving(&aqm::Arriving {
            now_ns: packet.arrival_ns,
            waiting_bytes: waiting.bytes,
            ecn_capable: packet.header.ecn.is_capable(),
            colour: packet.header.colour,
        });
        match verdict {
            aqm::Verdict::Keep => Ok(false),
            aqm::Verdict::Mark => Ok(true),
            aqm::Verdict::Drop => Err(DropCause::Aqm),
        }
    }

    /// Appends a packet. Returns whether the queue was empty. Packets that are too many for its active
    /// queue management go to `dropped`.
    pub(super) fn push(&mut self, item: Item, mut dropped: impl FnMut(Item)) -> bool {
        let waiting = &mut self.statistics;
        let was_empty = waiting.packets == 0;
        if was_empty {
            self.since_ns = item.arrival_ns();
        }
        waiting.packets += 1;
        waiting.packets_max = waiting.packets_max.max(waiting.packets);
        waiting.bytes += item.frame_bytes();
        waiting.bytes_max = waiting.bytes_max.max(waiting.bytes);
        match &mut self.store {
            Store::Fifo { items, .. } => items.push_back(item),
            Store::Flows(flows) => flows.push(item, |item| {
                count_dropped(waiting, &item);
                dropped(item);
            }),
            Store::Dual(dual) => dual.push(item),
        }
        was_empty
    }

    /// Bytes of the head; 0: the queue is empty.
    pub(super) fn head_bytes(&self) -> u64 {
        self.store.first().map_or(0, Item::frame_bytes)
    }

    /// The arrival of the head; where that would be a search, of an earlier packet, which is as good: the
    /// queue has not been empty since.
    fn arrival_ns(&self) -> Option<u64> {
        match &self.store {
            Store::Fifo { items, .. } => items.front().map(Item::arrival_ns),
            Store::Flows(_) | Store::Dual(_) => {
                (self.statistics.packets > 0).then_some(self.since_ns)
            }
        }
    }

    /// E of the head; `None`: the queue is empty.
    pub(super) fn eligible(&self) -> Option<Q24> {
        let arrival_ns = self.arrival_ns()?;
        Some(match &self.shaper {
            None => Q24::from_ns(arrival_ns),
            Some(shaper) => shaper.eligible(Q24::from_ns(arrival_ns)),
        })
    }

    /// Takes the packet that starts at `at`; or at its arrival, if the order of arrivals at several
    /// ports made that later. Those before it that active queue management drops go to `dropped`. `None`:
    /// the queue is empty.
    pub(super) fn pop(&mut self, at: Q24, mut dropped: impl FnMut(Item)) -> Option<(Item, Q24)> {
        let at = at.max(Q24::from_ns(self.arrival_ns()?));
        let now_ns = at.ceil_ns();
        let statistics = &mut self.statistics;
        let item = match &mut self.store {
            Store::Flows(flows) => flows.pop(now_ns, |item| {
                count_dropped(statistics, &item);
                dropped(item);
            })?,
            Store::Dual(dual) => dual.pop(now_ns, |item| {
                count_dropped(statistics, &item);
                dropped(item);
            })?,
            Store::Fifo { items, aqm } => loop {
                let mut item = items.pop_front()?;
                let left_bytes = statistics.bytes - item.frame_bytes();
                let verdict = match aqm {
                    None => break item,
                    Some(aqm) => aqm.leaving(&aqm::Leaving {
                        now_ns,
                        sojourn_ns: now_ns.saturating_sub(item.arrival_ns()),
                        left_bytes,
                        ecn_capable: item.ecn_capable(),
                    }),
                };
                if let Some(aqm) = aqm
                    && items.is_empty()
                {
                    aqm.emptied(now_ns);
                }
                match verdict {
                    aqm::Verdict::Keep => break item,
                    aqm::Verdict::Mark => {
                        item.marked = true;
                        break item;
                    }
                    aqm::Verdict::Drop => {
                        count_dropped(statistics, &item);
                        dropped(item);
                    }
                }
            },
        };
        let bytes = item.frame_bytes();
        statistics.packets -= 1;
        statistics.bytes -= bytes;
        statistics.tx_packets += 1;
        statistics.tx_bytes += bytes;
        statistics.marked_packets += u64::from(item.marked);
        let start = at.max(Q24::from_ns(item.arrival_ns()));
        let sojourn_ns = start.ceil_ns().saturating_sub(item.arrival_ns());
        statistics.sojourn.record(sojourn_ns);
        let mut eligible = Q24::from_ns(item.arrival_ns());
        if let Some(shaper) = &mut self.shaper {
            eligible = shaper.eligible(eligible);
            shaper.charge(eligible, start, bytes);
        }
        self.last_eligible = Some(eligible);
        Some((item, start))
    }

    /// Takes out all packets, and forgets the clock.
    pub(super) fn take_all(&mut self, out: &mut impl FnMut(u32)) {
        self.items().for_each(|item| out(item.node));
        self.store = Store::new(self.config.aqm, self.seed);
        self.statistics.packets = 0;
        self.statistics.bytes = 0;
        self.shaper = self.config.max_rate.and_then(Shaper::new);
        self.last_eligible = None;
    }

    /// An empty queue whose counters say that it is as full as this one.
    pub(super) fn stand_in(&self) -> Self {
        Self {
            store: Store::new(None, self.seed),
            config: self.config,
            shaper: self.shaper,
            last_eligible: self.last_eligible,
            seed: self.seed,
            since_ns: self.since_ns,
            statistics: QueueStatistics {
                packets: self.statistics.packets,
                bytes: self.statistics.bytes,
                ..QueueStatistics::default()
            },
        }
    }
}

/// Counts a packet that active queue management drops from a queue.
fn count_dropped(statistics: &mut QueueStatistics, item: &Item) {
    statistics.packets -= 1;
    statistics.bytes -= item.frame_bytes();
    statistics.drops.add(DropCause::Aqm, 1);
}
