//! The driver in real time: one loop, one system call to wait and one per port to send a batch. The loop
//! is one thread's; threads of their own may receive and send ([`stages`]).
//!
//! Each turn of the loop sends due frames, runs jobs of the control plane, takes frames in the order
//! of their arrival (a bounded batch), and waits for the next event of these kinds.
//!
//! # Pacing comes first
//! While departures are pending, the loop reads the clock and sends due frames before each frame that
//! it takes, after each visit of a job, and after each check of the state of an interface. The work
//! between two polls is bounded: one frame through the program, one batch of [`SEND_BATCH_PACED`]
//! frames to the kernel ([`SEND_BATCH_TRAIN`] that leave as they come or late), and a visit of a job, which
//! ends before the next departure ([`job_times`]). [`PollMonitor`] measures the time between polls. A
//! second thread for departures would poll no more often, and would have to share the queues.
//!
//! # Readings of the clock
//! The clock is read once per turn. It is read again for a frame only if a departure is to come or
//! the frame arrived after the last reading. In the lab, where a reading is a system call, that is
//! once per wake-up.
//!
//! # Moderation
//! See [`handover`].

mod handover;
mod interfaces;
mod job_times;
mod links;
mod poll_monitor;
mod port_set;
mod processor_share;
mod stages;
mod subscribers;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notifications::Publisher;
use p4runtime_server::{ControllerSender, JobQueue};
use ports::{LinkState, Waiter, WaiterOptions, clock};
use switch::{Batch, Switch};

pub use interfaces::Interface;
use job_times::JobTimes;
use links::{Link, Links};
use poll_monitor::PollMonitor;
pub use poll_monitor::STALL_NS;
use processor_share::{ProcessorShare, REST_NS, STOP_NS};
use subscribers::Subscribers;

use crate::service_manager::Heartbeat;
use crate::traces::TraceThread;

/// Most frames taken from the rings in one turn.
const RECEIVE_BATCH: usize = 64;
/// Most frames collected before they are handed to the kernel while departures are to come. Each
/// takes half a microsecond or more, and the next departure must not wait for many.
const SEND_BATCH_PACED: usize = 8;
/// Most paced frames collected from the segments of one train, so that they may leave in a train, too.
const SEND_BATCH_TRAIN: usize = 48;
/// Packets that are later than this wait for others of their train. Their gaps are lost, and a call for
/// each would make the next ones later still.
const LATE_NS: u64 = 5_000;
/// Time between two checks of the interfaces while one is down: the kernel does not report when it is
/// up again.
const LINK_CHECK_DOWN_NS: u64 = 100_000_000;
/// The same while all are up. An interface that goes down ends a wait; one that loses its carrier (a
/// veth's peer is taken down) does not.
const LINK_CHECK_NS: u64 = 1_000_000_000;
/// Longest work of jobs in one turn, in ns.
const JOB_TURN_NS: u64 = 200_000;
/// The same while frames wait in the rings: less than the frames of the turn take, so that no number
/// of jobs keeps the loop from emptying the rings.
const JOB_TURN_WITH_FRAMES_NS: u64 = 25_000;

/// The loop with everything it owns.
pub struct RealTime {
    switch: Switch,
    links: Links,
    waiter: Waiter,
    spin_ns: u64,
    jobs: JobQueue,
    job_times: JobTimes,
    monitor: PollMonitor,
    /// With a real-time scheduling class only.
    share: Option<ProcessorShare>,
    heartbeat: Heartbeat,
    traces: Option<TraceThread>,
    /// All interfaces so far have departures by the kernel.
    early: bool,
    /// The last turn has left frames in the rings that had arrived before it.
    frames_left: bool,
    /// The last turn took as many frames as it may.
    frames_wait: bool,
}

impl RealTime {
    /// A driver without interfaces. `controllers` takes frames and notifications for the
    /// controllers; those beyond its room are lost and counted. Each turn of the loop is a beat of
    /// `heartbeat`. `threads`: threads of their own receive and send; then each interface has
    /// a port for each.
    ///
    /// # Errors
    /// No descriptors left, or no signal handlers.
    pub fn new(
        mut switch: Switch,
        spin_ns: u64,
        jobs: impl FnOnce(ports::Waker) -> JobQueue,
        controllers: ControllerSender,
        heartbeat: Heartbeat,
        threads: bool,
    ) -> io::Result<Self> {
        let waiter = Waiter::new(WaiterOptions { spin_ns })?;
        waiter.end_on_signals()?;
        // A thread that always sleeps wakes late for every packet, so spacing would cost rate.
        if spin_ns > 0 {
            switch.space_catch_up();
        }
        Ok(Self {
            jobs: jobs(waiter.waker()),
            job_times: JobTimes::default(),
            switch,
            links: Links::new(controllers, threads),
            waiter,
            spin_ns,
            monitor: PollMonitor::new(),
            share: None,
            heartbeat,
            traces: None,
            early: true,
            frames_left: false,
            frames_wait: false,
        })
    }

    /// Gives notifications to subscribers instead of the controllers, as long as there are any.
    pub fn publish(&mut self, publisher: Arc<Publisher>, device_id: u64) {
        self.links.subscribers = Some(Subscribers::new(publisher, device_id));
    }

    /// Adds an opened interface. `captures`: folder for its capture files.
    ///
    /// # Errors
    /// A capture file cannot be created.
    pub fn add(
        &mut self,
        number: u16,
        interface: Interface,
        captures: Option<&Path>,
    ) -> anyhow::Result<()> {
        let port = &interface.port;
        self.switch.set_port_address(number, port.mac());
        self.early &= port.has_kernel_departures();
        self.switch.hand_over_early(self.early);
        self.links
            .add(number, interface, captures, &mut self.waiter)
    }

    /// The calling thread, which will run the loop, has a real-time scheduling class.
    pub fn share_processor(&mut self) {
        self.share = Some(ProcessorShare::new());
    }

    /// Hands the traces of packets to a thread.
    pub fn write_traces(&mut self, traces: TraceThread) {
        self.traces = Some(traces);
    }

    /// Runs until a signal asks to end, on this processor if one is named. Returns the switch for its
    /// statistics.
    ///
    /// # Errors
    /// The kernel refuses to wait, or threads that receive and send, or the processor.
    pub fn run(mut self, processor: Option<usize>) -> io::Result<Switch> {
        self.links
            .interfaces
            .start(&self.waiter, self.share.is_some())?;
        if let Some(processor) = processor {
            ports::scheduling::keep_to_processor(processor)?;
        }
        // When jobs may go on.
        let mut jobs_at_ns = 0;
        self.check_links();
        let mut next_link_check_ns = clock::now_ns() + self.link_check_interval_ns();
        loop {
            self.heartbeat.beat();
            if let Some(traces) = &mut self.traces {
                traces.trace_if_wanted(&mut self.switch);
            }
            let mut now_ns = self.poll();
            let began_ns = now_ns;
            if jobs_at_ns <= now_ns {
                jobs_at_ns = self.run_jobs(now_ns);
            }
            now_ns = self.receive(now_ns);
            self.links.flush();
            if let Some(traces) = &mut self.traces {
                traces.hand_over(&mut self.switch);
            }
            now_ns = self.leave_a_share(began_ns, now_ns);
            let retry_ns = self.links.flush_stuck(now_ns);
            let grant_ns = self.links.hold_lines(&mut self.switch, now_ns);
            let poll_at_ns = self.switch.poll_at_ns().unwrap_or(u64::MAX);
            if jobs_at_ns > now_ns {
                self.monitor
                    .idle_until(poll_at_ns.saturating_sub(self.spin_ns));
            }
            let deadline_ns = [next_link_check_ns, retry_ns, grant_ns, jobs_at_ns]
                .into_iter()
                .fold(poll_at_ns, u64::min);
            self.links.flush_captures();
            let woken = self.wait(now_ns, deadline_ns)?;
            if woken.called {
                jobs_at_ns = 0;
            }
            if let Some(signal) = woken.signal {
                tracing::info!(signal, "ending on a signal");
                self.links.interfaces.stop()?;
                self.report();
                if let Some(mut traces) = self.traces.take() {
                    traces.hand_over(&mut self.switch);
                    self.switch.report_lost_traces(traces.finish());
                }
                return Ok(self.switch);
            }
            if woken.error || next_link_check_ns <= now_ns {
                self.check_links();
                next_link_check_ns = now_ns + self.link_check_interval_ns();
                if !self.links.interfaces.are_running() {
                    self.links.interfaces.stop()?;
                    return Err(io::Error::other(
                        "a thread that receives or sends has ended",
                    ));
                }
            }
        }
    }

    /// Rests if the loop takes too much of the processor. `began_ns`: when the turn began. Returns the
    /// time.
    fn leave_a_share(&mut self, began_ns: u64, now_ns: u64) -> u64 {
        let Some(share) = &mut self.share else {
            return now_ns;
        };
        // A stop comes while the loop works, or while it polls before a departure.
        let stopped_ns = self.monitor.take_longest_ns().max(now_ns - began_ns);
        if stopped_ns >= STOP_NS {
            share.stopped(now_ns, clock::thread_used_ns());
        }
        if !share.must_rest(now_ns, clock::thread_used_ns) {
            return now_ns;
        }
        self.monitor.idle_until(now_ns + REST_NS);
        std::thread::sleep(Duration::from_nanos(REST_NS));
        self.poll()
    }

    /// Reads the clock and sends the frames that are due. Returns the reading.
    fn poll(&mut self) -> u64 {
        let now_ns = clock::now_ns();
        self.monitor.poll(now_ns);
        self.send_due(now_ns);
        now_ns
    }

    /// As `poll`, after work for the control plane or for an interface.
    fn poll_after_control(&mut self) -> u64 {
        let now_ns = clock::now_ns();
        self.monitor.poll_after_control(now_ns);
        self.send_due(now_ns);
        now_ns
    }

    /// Sends the frames due at `now_ns`. In the moderated states, takes the frames that came before.
    fn send_due(&mut self, mut now_ns: u64) {
        if self.switch.moderation_ns() > 0 {
            now_ns = self.receive_moderated(now_ns);
        }
        let Self {
            switch,
            links,
            monitor,
            ..
        } = self;
        poll_if_due(&mut Batch::new(switch), links, monitor, now_ns);
        // Most polls of a loop that waits for a departure collect nothing.
        if links.collected > 0 {
            links.flush();
            links.hold_lines(switch, now_ns);
        }
    }

    /// Lets jobs work for a while, if the next departure leaves them time. Returns when they may go on;
    /// `u64::MAX`: none waits. Jobs see losses as of now, and the time as of `now_ns`.
    fn run_jobs(&mut self, mut now_ns: u64) -> u64 {
        self.switch.poll(now_ns, &mut self.links);
        self.links.flush();
        let turn_ns = if self.frames_wait || self.frames_left {
            JOB_TURN_WITH_FRAMES_NS
        } else {
            JOB_TURN_NS
        };
        let turn_ends_ns = now_ns + turn_ns;
        let mut has_reported = false;
        while self.jobs.has_jobs() {
            let due_ns = self.switch.poll_at_ns().unwrap_or(u64::MAX);
            let Some(ends_ns) = self.job_times.visit_ends_ns(now_ns, due_ns) else {
                return due_ns;
            };
            if !has_reported {
                self.report();
                has_reported = true;
            }
            let ends_ns = ends_ns.min(turn_ends_ns);
            let mut over = || clock::now_ns() >= ends_ns;
            self.jobs.visit(&mut self.switch, &mut over);
            now_ns = self.poll_after_control();
            if now_ns >= turn_ends_ns {
                return now_ns;
            }
        }
        u64::MAX
    }

    /// Reports the driver's counts to the switch, for its statistics.
    fn report(&mut self) {
        self.links.report_losses(&mut self.switch);
        self.links.report_trains(&mut self.switch);
        self.switch.report_polling(self.monitor.polling());
        if let Some(traces) = &self.traces {
            self.switch.report_lost_traces(traces.lost());
        }
    }

    /// Takes a batch of frames, the earliest arrival first. Returns the last reading of the clock,
    /// `now_ns` if there was no need for another.
    fn receive(&mut self, mut now_ns: u64) -> u64 {
        if self.switch.moderation_ns() > 0 {
            return now_ns; // frames wait for the next turn
        }
        let Self {
            switch,
            links,
            monitor,
            ..
        } = self;
        let mut batch = Batch::new(switch);
        self.frames_wait = true;
        let (mut taken_last, mut is_late) = (None, false);
        for taken in 0..RECEIVE_BATCH {
            let Some(next) = links.interfaces.earliest(now_ns) else {
                self.frames_wait = false;
                break;
            };
            let (arrival_ns, at) = next;
            let departs = batch.poll_at_ns().is_some();
            if !departs {
                monitor.idle_until(u64::MAX);
            }
            // Frames keep arriving meanwhile, and the switch must not see one before its arrival.
            if (departs && taken > 0) || arrival_ns > now_ns {
                now_ns = clock::now_ns();
                monitor.poll(now_ns);
                is_late = poll_if_due(&mut batch, links, monitor, now_ns) > LATE_NS;
            }
            // Segments of one train that leave as they come, or late, may leave in one.
            let may_join = taken_last == Some(next)
                && (is_late || !departs)
                && links.collected < SEND_BATCH_TRAIN;
            if links.has_held && !may_join {
                links.flush();
            }
            taken_last = Some(next);
            links.receive(at, arrival_ns, now_ns, &mut batch);
            batch.poll(now_ns, links);
            if departs && links.collected >= SEND_BATCH_PACED {
                links.flush();
            }
            if links.must_hold() {
                break; // the next turn takes the other frames
            }
        }
        drop(batch);
        self.switch.poll(now_ns, &mut self.links);
        now_ns
    }

    fn link_check_interval_ns(&self) -> u64 {
        let is_down = |link: &Link| !matches!(link.state, LinkState::Up | LinkState::Gone);
        if self.links.iter().any(is_down) {
            LINK_CHECK_DOWN_NS
        } else {
            LINK_CHECK_NS
        }
    }

    /// Checks the state of each interface, and sets that of its port. Subscribers are told of ports that
    /// have gone up, down or come back.
    fn check_links(&mut self) {
        let mut changed = Vec::new();
        for at in 0.. {
            let (state, error) = self.links.interfaces.check(at, &self.waiter);
            let Some(link) = self.links.get_mut(at) else {
                break;
            };
            if state != link.state {
                let is_up = state == LinkState::Up;
                let removed = self.switch.is_port_removed(link.number);
                if is_up != (link.state == LinkState::Up) && !removed {
                    changed.push((link.number, is_up));
                }
                link.state = state;
                log_state(link, error.as_ref());
                self.switch.set_port_up(link.number, is_up);
                if state == LinkState::Gone {
                    self.links.interfaces.forget(at, &mut self.waiter);
                }
            }
            if let Some(link) = self.links.get_mut(at) {
                link.was_up |= state == LinkState::Up;
            }
            self.poll_after_control();
        }
        for port in self.switch.take_restored() {
            if self.switch.is_port_up(port) && !changed.contains(&(port, true)) {
                changed.push((port, true));
            }
        }
        if let Some(subscribers) = &self.links.subscribers {
            subscribers.notify_of_ports(&changed);
        }
    }
}

/// Collects the frames due at `now_ns`. Returns the lateness of the first, ns.
fn poll_if_due(
    batch: &mut Batch<'_>,
    links: &mut Links,
    monitor: &mut PollMonitor,
    now_ns: u64,
) -> u64 {
    let due_ns = batch.poll_at_ns().filter(|at_ns| *at_ns <= now_ns);
    if due_ns.is_some() {
        batch.poll(now_ns, links);
    }
    if batch.poll_at_ns().is_none() {
        monitor.idle_until(u64::MAX);
    }
    due_ns.map_or(0, |due_ns| now_ns - due_ns)
}

/// Logs a link's new state. `error`: the error that its socket reports.
fn log_state(link: &Link, error: Option<&io::Error>) {
    let (port, interface) = (link.number, &link.name);
    let error = error.map(io::Error::to_string);
    match link.state {
        LinkState::Up if !link.was_up => tracing::info!(port, interface, "interface is up"),
        LinkState::Up => tracing::warn!(port, interface, "interface is up again"),
        LinkState::Down | LinkState::NoCarrier if !link.was_up => {
            tracing::info!(port, interface, "interface is not up yet");
        }
        LinkState::Down => tracing::warn!(port, interface, error, "interface is down"),
        LinkState::NoCarrier => tracing::warn!(port, interface, error, "interface has no carrier"),
        LinkState::Gone => tracing::warn!(
            port,
            interface,
            error,
            "interface is gone and its port stays down; restart the switch to use a new interface of \
             this name"
        ),
    }
}
