//! Decides which packets are traced, and for whom; keeps finished traces until they are taken.

use std::collections::VecDeque;

use thiserror::Error;

use super::filter::PacketFilter;
use super::tree::PacketTrace;

/// Traces that may wait for the driver ([`Switch::take_trace`](crate::Switch::take_trace)).
const WAITING_MAX: usize = 1_024;

/// Most watches at a time.
pub const WATCHES_MAX: usize = 8;

/// Most traces of a watch in a second, after a burst of [`WATCH_BURST`]: tracing a packet takes some five
/// times as long as the packet alone.
pub const WATCH_TRACES_PER_S: u64 = 1_000;

/// Traces of a watch that may begin at once.
pub const WATCH_BURST: u64 = 100;

const WATCH_INTERVAL_NS: u64 = 1_000_000_000 / WATCH_TRACES_PER_S;

/// Bit of the driver among those that want a trace; a watch has that of its place.
const DRIVER: u16 = 1 << WATCHES_MAX;

/// Takes the traces of a watch, each with the number of packets that the watch skipped since the last
/// one because they were too many. It returns false if it wants no more.
pub type Receiver = Box<dyn FnMut(PacketTrace, u64) -> bool + Send>;

/// The packets that a watch traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOptions {
    /// Port at which they come in; `None`: any.
    pub port: Option<u16>,
    /// `None`: all.
    pub filter: Option<PacketFilter>,
    /// Number of packets after which the watch ends by itself.
    pub count: u64,
}

/// The reason why a watch was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{WATCHES_MAX} watches trace packets already, the most that are possible")]
pub struct TooManyWatches;

/// Names a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchId(u64);

struct Watch {
    id: WatchId,
    options: WatchOptions,
    receiver: Receiver,
    /// The number of the first trace that may be its own: those before were of another watch.
    first: u64,
    /// Traces that have been begun and are not finished.
    open: u64,
    skipped: u64,
    /// When its allowance is full again (virtual scheduling of a leaky bucket, ITU-T I.371).
    full_at_ns: u64,
}

impl Watch {
    /// Whether it traces a packet that comes in. Takes one of its count.
    fn takes(&mut self, port: u16, frame: &[u8], now_ns: u64) -> bool {
        let options = &self.options;
        if options.count == 0
            || options.port.is_some_and(|wanted| wanted != port)
            || options.filter.as_ref().is_some_and(|f| !f.accepts(frame))
        {
            return false;
        }
        let allowance_ns = (WATCH_BURST - 1) * WATCH_INTERVAL_NS;
        if self.full_at_ns > now_ns.saturating_add(allowance_ns) {
            self.skipped += 1;
            return false;
        }
        self.full_at_ns = self
            .full_at_ns
            .max(now_ns)
            .saturating_add(WATCH_INTERVAL_NS);
        self.options.count -= 1;
        self.open += 1;
        true
    }
}

/// Those that want a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted(u16);

/// The driver and the watches, and finished traces that wait for the driver.
#[derive(Default)]
pub(crate) struct Collector {
    /// Whether the driver wants the trace of each packet.
    driver: bool,
    watches: [Option<Watch>; WATCHES_MAX],
    /// Watches so far.
    watched: u64,
    waiting: VecDeque<PacketTrace>,
    /// Traces that have been begun, by this program and by those before it.
    begun: u64,
    /// Traces that found no room.
    pub(crate) lost: u64,
}

impl Collector {
    /// Sets whether the driver wants the trace of each packet.
    pub(crate) fn set_driver(&mut self, wants: bool) {
        self.driver = wants;
    }

    /// Whether anybody wants traces of packets that come in.
    pub(crate) fn is_wanted(&self) -> bool {
        self.driver || self.watches.iter().any(Option::is_some)
    }

    /// Those that want the trace of a packet that comes in; `None`: nobody.
    pub(crate) fn wanted(&mut self, port: u16, frame: &[u8], now_ns: u64) -> Option<Wanted> {
        let mut wanted = if self.driver { DRIVER } else { 0 };
        for (at, watch) in self.watches.iter_mut().enumerate() {
            if let Some(watch) = watch
                && watch.takes(port, frame, now_ns)
            {
                wanted |= 1 << at;
            }
        }
        (wanted != 0).then_some(Wanted(wanted))
    }

    /// The number of a trace that begins.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun - 1
    }

    /// Takes a finished trace.
    pub(super) fn put(&mut self, wanted: Wanted, trace: PacketTrace) {
        for (at, place) in self.watches.iter_mut().enumerate() {
            if wanted.0 & 1 << at != 0
                && let Some(watch) = place.as_mut()
                && watch.first <= trace.packet_id
            {
                watch.open -= 1;
                let wants = (watch.receiver)(trace.clone(), std::mem::take(&mut watch.skipped));
                if !wants || watch.options.count == 0 && watch.open == 0 {
                    *place = None;
                }
            }
        }
        if wanted.0 & DRIVER == 0 {
            return;
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(trace);
        } else {
            self.lost += 1;
        }
    }

    /// The open traces are lost: each watch traces as many other packets in their place.
    pub(crate) fn lose_open(&mut self) {
        for watch in self.watches.iter_mut().flatten() {
            watch.options.count += std::mem::take(&mut watch.open);
        }
    }

    /// The next trace for the driver.
    pub(crate) fn take(&mut self) -> Option<PacketTrace> {
        self.waiting.pop_front()
    }

    /// Adds a watch.
    pub(crate) fn watch(
        &mut self,
        options: WatchOptions,
        receiver: Receiver,
    ) -> Result<WatchId, TooManyWatches> {
        let free = self.watches.iter_mut().find(|place| place.is_none());
        let free = free.ok_or(TooManyWatches)?;
        let id = WatchId(self.watched);
        self.watched += 1;
        *free = Some(Watch {
            id,
            options,
            receiver,
            first: self.begun,
            open: 0,
            skipped: 0,
            full_at_ns: 0,
        });
        Ok(id)
    }

    /// Ends a watch. One that has ended already is none.
    pub(crate) fn unwatch(&mut self, id: WatchId) {
        for place in &mut self.watches {
            if place.as_ref().is_some_and(|watch| watch.id == id) {
                *place = None;
            }
        }
    }
}
