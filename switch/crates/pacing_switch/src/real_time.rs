//! The driver in real time: one thread, one loop, one system call to wait and one per port to
//! send a batch.
//!
//! Each turn: departures that are due, jobs of the control plane, frames in order of arrival (a
//! bounded batch), sending, waiting until the next of these.
//!
//! # Pacing waits behind nothing
//! While departures are to come, the loop looks at the clock and at what is due before each frame
//! it takes, and what is due leaves at once. What happens between two looks is bounded: one frame
//! through the program, and one batch of [`SEND_BATCH_TIMED`] frames to the kernel. A second thread
//! for departures would not look more often, and would have to share the queues. Control jobs and
//! looks at the state of interfaces are taken one at a time, with a look at what is due after each.
//! [`PollMonitor`] counts how long it was between looks.
//!
//! # Moderation
//! Where nothing can leave before a propagation delay is over ([`Switch::moderation_ns`]), frames
//! do not end a wait that ends soon by itself. They are taken in order of arrival, each before what
//! started after it, so queues and drops are as if the switch had looked at once; what leaves
//! meanwhile waits for a batch of [`RECEIVE_BATCH`].
//!
//! # Thrift
//! The clock is read once per turn, and again for a frame only where a departure is to come or the
//! frame arrived after the last reading: in virtual time, where a reading is a system call, once
//! per wake-up.

use std::io;
use std::ops::Range;

use anyhow::Context;
use p4runtime_server::{ControllerSender, JobQueue};
use ports::{LinkState, Port, Token, Waiter, WaiterOptions, clock};
use switch::notification::Notification;
use switch::{Sink, Switch};
use traffic_manager::DropCause;

use crate::captures::{CaptureWriter, Direction, path};
use crate::poll_monitor::PollMonitor;

/// Frames taken from the rings in one turn.
const RECEIVE_BATCH: usize = 64;
/// The same of frames that have been lying, in batches with what is due in between: as many as a
/// ring holds.
const RECEIVE_LYING: usize = 4096;
/// A frame that arrives while the loop is at work has a stamp ahead of the last reading of the
/// clock, by less than this.
const STAMP_AHEAD_NS: u64 = 1_000_000;
/// Frames collected before they are handed to the kernel while departures are to come: it takes
/// half a microsecond and more for each, and the next departure must not wait for many.
const SEND_BATCH_TIMED: usize = 8;
/// How often interfaces are looked at while one is down: nothing tells when it comes back.
const LINK_CHECK_DOWN_NS: u64 = 100_000_000;
/// How often they are looked at when all are up: that an interface itself goes down ends a wait,
/// but nothing tells when its carrier goes (a veth's peer is taken down).
const LINK_CHECK_NS: u64 = 1_000_000_000;
/// How soon a port is flushed again whose frames the kernel did not take, if nothing else is sent
/// there before.
const FLUSH_AGAIN_NS: u64 = 10_000_000;
/// Where there are more ports than these, their rings are not all looked at for each frame: the kernel
/// says which have some.
const PORTS_LOOKED_AT: usize = 8;
/// Jobs run between two turns.
const JOB_BATCH: usize = 64;

/// A port number with its interface.
struct Link {
    number: u16,
    port: Port,
    token: Token,
    /// Counters already told to the switch.
    told: ports::PortStatistics,
    state: LinkState,
    received: Option<CaptureWriter>,
    sent: Option<CaptureWriter>,
}

/// Interfaces by port number.
struct Links {
    links: Vec<Link>,
    /// Position in `links` by port number.
    by_number: Vec<Option<usize>>,
    controllers: ControllerSender,
    /// Positions in `links` of the ports that have collected frames.
    unsent: Vec<usize>,
    /// Of those that have frames which the kernel did not take.
    stuck: Vec<usize>,
    /// When to flush these again.
    again_ns: u64,
    /// Frames collected.
    collected: usize,
    /// One of them had a departure time: it must not wait for more.
    held: bool,
    /// Positions in `links` of the rings that may hold frames; where `all_may`, any may.
    with_frames: Vec<usize>,
    all_may: bool,
}

impl Links {
    /// Hands to the kernel what the ports have collected.
    fn flush(&mut self) {
        for at in self.unsent.drain(..) {
            if let Some(link) = self.links.get_mut(at) {
                link.port.flush();
                if link.port.is_stuck() && !self.stuck.contains(&at) {
                    self.stuck.push(at);
                }
            }
        }
        self.collected = 0;
        self.held = false;
    }

    /// Takes note of where a wait found frames. With few ports all rings are looked at: in order of
    /// arrival, what came last included.
    fn note_readable(&mut self, readable: Option<&[usize]>) {
        match readable {
            Some(readable) if self.links.len() > PORTS_LOOKED_AT => {
                self.all_may = false;
                self.with_frames.clear();
                self.with_frames.extend_from_slice(readable);
            }
            _ => self.all_may = true,
        }
    }

    /// Whether a ring holds a frame, as far as is known without asking the kernel.
    fn is_any_known(&self) -> bool {
        if self.all_may {
            self.has_frame()
        } else {
            let mut noted = self.with_frames.iter();
            noted.any(|&at| self.links.get(at).is_some_and(|link| link.port.has_frame()))
        }
    }

    /// Whether any ring holds a frame.
    fn has_frame(&self) -> bool {
        self.links.iter().any(|link| link.port.has_frame())
    }

    /// The first frame to come of those that lie in rings: when it came, and at which link.
    fn earliest(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        let links = &mut self.links;
        if self.all_may {
            let all = links.iter_mut().enumerate();
            let arrivals = all.filter_map(|(at, l)| Some((l.port.next_arrival_ns(now_ns)?, at)));
            return arrivals.min();
        }
        let mut first: Option<(u64, usize)> = None;
        self.with_frames.retain(|&at| {
            let arrival = links
                .get_mut(at)
                .and_then(|l| l.port.next_arrival_ns(now_ns));
            let Some(arrival_ns) = arrival else {
                return false;
            };
            let this = (arrival_ns, at);
            first = Some(first.map_or(this, |first| first.min(this)));
            true
        });
        first
    }

    /// Offers the kernel again what it did not take, if it is time; says when to come back.
    fn flush_again(&mut self, now_ns: u64) -> u64 {
        let links = &mut self.links;
        if self.again_ns <= now_ns {
            self.stuck.retain(|&at| {
                links.get_mut(at).is_some_and(|link| {
                    link.port.flush();
                    link.port.is_stuck()
                })
            });
            self.again_ns = u64::MAX;
        }
        // Those that are down wait for the look that finds them up.
        let is_up = |at: &usize| links.get(*at).is_some_and(|l| l.state == LinkState::Up);
        if self.stuck.iter().any(is_up) {
            self.again_ns = self.again_ns.min(now_ns.saturating_add(FLUSH_AGAIN_NS));
        }
        self.again_ns
    }
}

impl Links {
    /// The link of a port that gets a frame; notes that it has one to send.
    fn sending(
        &mut self,
        port: u16,
        frame: &[u8],
        delivery_ns: u64,
        held: bool,
    ) -> Option<&mut Link> {
        let at = (*self.by_number.get(usize::from(port))?)?;
        let link = self.links.get_mut(at)?;
        capture(&mut link.sent, port, frame, delivery_ns);
        if link.port.unflushed() == 0 {
            self.unsent.push(at);
        }
        self.collected += 1;
        self.held |= held;
        Some(link)
    }
}

impl Sink for Links {
    fn transmit(&mut self, port: u16, frame: &[u8], delivery_ns: u64, held: bool) {
        if let Some(link) = self.sending(port, frame, delivery_ns, held) {
            // A refusal is counted by the port and told with its other losses.
            let _ = link.port.send_at(frame, delivery_ns);
        }
    }

    fn transmit_buffer(
        &mut self,
        port: u16,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        delivery_ns: u64,
        held: bool,
    ) {
        let bytes = buffer.get(frame.clone()).unwrap_or_default();
        if let Some(link) = self.sending(port, bytes, delivery_ns, held) {
            let _ = link.port.send_buffer_at(buffer, frame, delivery_ns);
        }
    }

    fn to_controller(&mut self, frame: &[u8]) {
        // Full queue: the sender counts the loss.
        let _ = self.controllers.packet_in(frame);
    }

    fn notify(&mut self, notification: Notification) -> bool {
        let at_ns = clock::to_realtime_ns(notification.at_ns);
        // Full queue: the sender counts the loss.
        self.controllers.notify(Notification {
            at_ns,
            ..notification
        })
    }
}

/// Writes a frame to a capture; the first that cannot be written ends it.
fn capture(writer: &mut Option<CaptureWriter>, port: u16, frame: &[u8], at_ns: u64) {
    if let Some(open) = writer
        && let Err(error) = open.write(frame, clock::to_realtime_ns(at_ns))
    {
        tracing::warn!(port, %error, "capture ends");
        *writer = None;
    }
}

/// Writes what a capture still has in memory; an error ends it.
fn flush_capture(writer: &mut Option<CaptureWriter>, port: u16) {
    if let Some(open) = writer
        && let Err(error) = open.flush()
    {
        tracing::warn!(port, %error, "capture ends");
        *writer = None;
    }
}

/// The loop with everything it owns.
pub struct RealTime {
    switch: Switch,
    links: Links,
    waiter: Waiter,
    spin_ns: u64,
    jobs: JobQueue,
    monitor: PollMonitor,
    /// More frames have been lying than one turn may take.
    behind: bool,
    /// Some link has a capture.
    captures: bool,
}

impl RealTime {
    /// A driver without interfaces. `controllers` takes frames and notifications for the
    /// controllers; what it has no room for is lost and counted.
    ///
    /// # Errors
    /// No descriptors left, or no signal handlers.
    pub fn new(
        mut switch: Switch,
        spin_ns: u64,
        jobs: impl FnOnce(ports::Waker) -> JobQueue,
        controllers: ControllerSender,
    ) -> io::Result<Self> {
        let waiter = Waiter::new(WaiterOptions { spin_ns })?;
        waiter.end_on_signals()?;
        // A thread that always sleeps wakes late for every packet, so spacing would cost rate.
        if spin_ns > 0 {
            switch.space_catch_up();
        }
        Ok(Self {
            jobs: jobs(waiter.waker()),
            switch,
            links: Links {
                links: Vec::new(),
                by_number: vec![None; 512],
                controllers,
                unsent: Vec::new(),
                stuck: Vec::new(),
                again_ns: u64::MAX,
                collected: 0,
                held: false,
                with_frames: Vec::new(),
                all_may: true,
            },
            waiter,
            spin_ns,
            monitor: PollMonitor::new(),
            behind: false,
            captures: false,
        })
    }

    /// Adds an opened interface.
    ///
    /// # Errors
    /// A capture file cannot be created.
    pub fn add(
        &mut self,
        number: u16,
        port: Port,
        captures: Option<&std::path::Path>,
    ) -> anyhow::Result<()> {
        let create = |direction| {
            captures
                .map(|folder| CaptureWriter::create(&path(&folder.join(port.name()), direction)))
                .transpose()
        };
        self.switch.set_port_address(number, port.mac());
        let (received, sent) = (create(Direction::In)?, create(Direction::Out)?);
        self.captures |= captures.is_some();
        let token = self.waiter.add(&port).context("waiting for frames")?;
        if let Some(slot) = self.links.by_number.get_mut(usize::from(number)) {
            *slot = Some(self.links.links.len());
        }
        self.links.links.push(Link {
            number,
            port,
            token,
            told: ports::PortStatistics::default(),
            state: LinkState::Up,
            received,
            sent,
        });
        let links = &self.links.links;
        let early = links.iter().all(|link| link.port.has_kernel_departures());
        self.switch.hand_over_early(early);
        Ok(())
    }

    /// Runs until a signal asks to end; returns the switch for its statistics.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn run(mut self) -> io::Result<Switch> {
        let mut called = true;
        self.check_links();
        let mut next_link_check_ns = clock::now_ns() + self.link_check_interval_ns();
        loop {
            let mut now_ns = self.poll_clock();
            if called {
                called = self.run_jobs(now_ns);
            }
            now_ns = self.receive(now_ns);
            self.links.flush();
            let event_ns = self.switch.next_event_ns().unwrap_or(u64::MAX);
            let deadline_ns = if called {
                now_ns // more jobs wait
            } else {
                self.monitor
                    .rest_until(event_ns.saturating_sub(self.spin_ns));
                let again_ns = self.links.flush_again(now_ns);
                event_ns.min(next_link_check_ns).min(again_ns)
            };
            if self.captures {
                for link in &mut self.links.links {
                    flush_capture(&mut link.received, link.number);
                    flush_capture(&mut link.sent, link.number);
                }
            }
            let rest_until_ns = now_ns.saturating_add(self.switch.moderation_ns());
            let woken = if now_ns < deadline_ns && deadline_ns < rest_until_ns && !self.behind {
                self.monitor.rest_until(deadline_ns);
                self.waiter.sleep_until(now_ns, deadline_ns)?
            } else {
                let (links, monitor) = (&self.links, &mut self.monitor);
                self.waiter.wait(now_ns, Some(deadline_ns), |at_ns| {
                    // The first time is before it sleeps, which is no look at what is due.
                    if at_ns > now_ns {
                        monitor.poll(at_ns);
                        links.has_frame()
                    } else {
                        links.is_any_known()
                    }
                })?
            };
            self.links.note_readable(self.waiter.readable());
            called |= woken.called;
            if let Some(signal) = woken.signal {
                tracing::info!(signal, "asked to end");
                self.tell_interface_losses();
                self.switch.report_polling(self.monitor.polling());
                return Ok(self.switch);
            }
            if woken.error || next_link_check_ns <= now_ns {
                self.check_links();
                next_link_check_ns = now_ns + self.link_check_interval_ns();
            }
        }
    }

    /// Reads the clock; what is due leaves. Returns the reading.
    fn poll_clock(&mut self) -> u64 {
        let now_ns = clock::now_ns();
        self.monitor.poll(now_ns);
        self.release(now_ns);
        now_ns
    }

    /// The same after something that is not the loop's own work.
    fn poll_after_control(&mut self) {
        let now_ns = clock::now_ns();
        self.monitor.poll_after_control(now_ns);
        self.release(now_ns);
    }

    /// What is due at `now_ns` leaves.
    fn release(&mut self, now_ns: u64) {
        let now_ns = if self.switch.moderation_ns() > 0 {
            self.take_arrived(now_ns)
        } else {
            now_ns
        };
        let mut next_ns = self.switch.next_event_ns();
        if next_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.switch.advance(now_ns, &mut self.links);
            self.links.flush();
            next_ns = self.switch.next_event_ns();
        }
        if next_ns.is_none() {
            self.monitor.rest_until(u64::MAX);
        }
    }

    /// Runs a batch of jobs; true if more may wait. Jobs see losses as of now, and time as of
    /// `now_ns`.
    fn run_jobs(&mut self, now_ns: u64) -> bool {
        self.tell_interface_losses();
        self.switch.report_polling(self.monitor.polling());
        self.switch.advance(now_ns, &mut self.links);
        self.links.flush();
        for _ in 0..JOB_BATCH {
            if self.jobs.run(&mut self.switch, 1) == 0 {
                return false;
            }
            self.poll_after_control();
        }
        true
    }

    /// Takes a batch of frames, the earliest arrival first. Returns the last reading of the
    /// clock, `now_ns` if there was no need for another.
    ///
    /// Frames keep arriving while a batch is taken, and a frame must not be taken for older than
    /// it is.
    fn receive(&mut self, mut now_ns: u64) -> u64 {
        if self.switch.moderation_ns() > 0 {
            return now_ns; // they lie until the next look
        }
        for taken in 0..RECEIVE_BATCH {
            let Some((arrival_ns, at)) = self.links.earliest(now_ns) else {
                break;
            };
            let timed = self.switch.next_event_ns().is_some();
            if !timed {
                self.monitor.rest_until(u64::MAX);
            }
            if (timed && taken > 0) || arrival_ns > now_ns {
                now_ns = self.poll_clock();
            }
            self.take(at, arrival_ns, now_ns);
            // What needs not wait goes on, and leaves with others of its kind.
            self.switch.advance(now_ns, &mut self.links);
            if self.links.held || (timed && self.links.collected >= SEND_BATCH_TIMED) {
                self.links.flush();
            }
        }
        self.switch.settle();
        self.switch.advance(now_ns, &mut self.links);
        now_ns
    }

    /// Takes the frames that have arrived by `now_ns`, before anything starts that came after
    /// them: queues are then as if each had been taken when it came. Returns until when that is
    /// so: `now_ns`, or less when there are more than one turn may take.
    fn take_arrived(&mut self, now_ns: u64) -> u64 {
        self.behind = false;
        let mut until_ns = 0;
        for taken in 1..=RECEIVE_LYING {
            let Some((stamp_ns, at)) = self.links.earliest(now_ns) else {
                return now_ns;
            };
            // A stamp far ahead is of a clock that was stepped: it will not be waited for.
            if stamp_ns > now_ns && stamp_ns - now_ns < STAMP_AHEAD_NS {
                return now_ns;
            }
            let arrival_ns = stamp_ns.min(now_ns);
            self.take(at, arrival_ns, now_ns);
            self.switch.settle();
            until_ns = arrival_ns.max(until_ns);
            if taken % RECEIVE_BATCH == 0 {
                self.switch.advance(until_ns, &mut self.links);
                self.links.flush();
            }
        }
        self.behind = true;
        until_ns
    }

    /// Takes the frame at the head of the ring of the link at `at`; what was taken before goes through
    /// the program.
    fn take(&mut self, at: usize, arrival_ns: u64, now_ns: u64) {
        if let Some(link) = self.links.links.get_mut(at)
            && let Some(frame) = link.port.receive(now_ns)
        {
            // Stamps come from another clock, carried over to within some nanoseconds.
            let arrival_ns = arrival_ns.min(now_ns);
            capture(&mut link.received, link.number, frame.bytes(), arrival_ns);
            self.switch
                .receive_ahead(link.number, frame.bytes(), arrival_ns, now_ns);
        }
    }

    /// Tells the switch what the interfaces have lost since the last time.
    fn tell_interface_losses(&mut self) {
        for link in &mut self.links.links {
            let now = link.port.statistics();
            let told = std::mem::replace(&mut link.told, now);
            for (cause, packets) in [
                (
                    DropCause::RxRingFull,
                    now.rx_ring_full.saturating_sub(told.rx_ring_full),
                ),
                (
                    DropCause::Oversize,
                    (now.rx_oversize + now.tx_oversize)
                        .saturating_sub(told.rx_oversize + told.tx_oversize),
                ),
                (
                    DropCause::ParserError,
                    now.rx_runt.saturating_sub(told.rx_runt),
                ),
                (
                    DropCause::TxFailed,
                    (now.tx_failed + now.tx_runt).saturating_sub(told.tx_failed + told.tx_runt),
                ),
            ] {
                self.switch.count_drop(link.number, cause, packets);
            }
        }
    }

    fn link_check_interval_ns(&self) -> u64 {
        let may_come_back = |link: &Link| !matches!(link.state, LinkState::Up | LinkState::Gone);
        if self.links.links.iter().any(may_come_back) {
            LINK_CHECK_DOWN_NS
        } else {
            LINK_CHECK_NS
        }
    }

    /// An interface went down, lost or got its carrier, came back, or is gone: the port follows.
    fn check_links(&mut self) {
        for at in 0..self.links.links.len() {
            let Some(link) = self.links.links.get_mut(at) else {
                return;
            };
            // Taken even when the state is what it was: else the next wait ends at once.
            let error = if self.waiter.has_error(link.token) {
                link.port.take_error()
            } else {
                None
            };
            let state = link.port.link_state();
            if state != link.state {
                let (port, interface) = (link.number, link.port.name());
                let error = error.map(|error| error.to_string());
                match state {
                    LinkState::Up => tracing::warn!(port, interface, "interface is up again"),
                    LinkState::Gone => tracing::warn!(
                        port,
                        interface,
                        error,
                        "interface is gone, and the port down for good: another of its name is not \
                         taken for it; start the switch again"
                    ),
                    LinkState::Down => tracing::warn!(port, interface, error, "interface is down"),
                    LinkState::NoCarrier => {
                        tracing::warn!(port, interface, error, "interface has no carrier");
                    }
                }
                link.state = state;
                self.switch.set_port_up(link.number, state == LinkState::Up);
                if state == LinkState::Gone {
                    self.waiter.remove(link.token);
                }
            }
            self.poll_after_control();
        }
    }
}
