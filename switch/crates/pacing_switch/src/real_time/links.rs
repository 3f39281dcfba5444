//! The interfaces of the ports: the rings with frames, the frames collected for sending, the losses of
//! the interfaces, and captures.

use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use captures::{CaptureWriter, Direction, path};
use p4runtime_server::ControllerSender;
use ports::{LinkState, Waiter, clock};
use switch::notification::Notification;
use switch::{Batch, Leaving, Sink, Switch, Trains};
use traffic_manager::DropCause;

use super::interfaces::{Interface, Interfaces};
use super::port_set::{PortSet, RETRY_NS};
use super::subscribers::Subscribers;

/// Packets that start together on a port whose interface takes frames again: at first, and at most. A port
/// keeps more ([`ports::Port::is_stuck`]).
const STARTS_MIN: u32 = 32;
const STARTS_MAX: u32 = 256;

/// A port number with its interface.
pub(super) struct Link {
    pub(super) number: u16,
    /// The name of the interface.
    pub(super) name: String,
    pub(super) state: LinkState,
    /// Whether it has ever been up. Before that, it may not be configured yet.
    pub(super) was_up: bool,
    /// The kernel did not take all frames of the port lately: the packets that may start at once when it
    /// does again.
    starts: Option<u32>,
    /// Counters as last reported to the switch.
    last_reported: ports::PortStatistics,
    received: Capture,
    sent: Capture,
}

/// One direction of a link's traffic in a file, if asked for. The first error ends it.
struct Capture(Option<CaptureWriter>);

impl Capture {
    fn write(&mut self, port: u16, frame: &[u8], at_ns: u64) {
        let write = |writer: &mut CaptureWriter| writer.write(frame, clock::to_realtime_ns(at_ns));
        self.attempt(port, write);
    }

    fn attempt(
        &mut self,
        port: u16,
        attempt: impl FnOnce(&mut CaptureWriter) -> anyhow::Result<()>,
    ) {
        if let Some(writer) = &mut self.0
            && let Err(error) = attempt(writer)
        {
            tracing::warn!(port, %error, "capture ends: its file cannot be written");
            self.0 = None;
        }
    }
}

/// The links of a switch; where its frames go.
pub(super) struct Links {
    /// By the places that the interfaces have.
    links: Vec<Link>,
    pub(super) interfaces: Interfaces,
    /// Position in `links` by port number.
    by_number: Vec<Option<usize>>,
    controllers: ControllerSender,
    /// Subscribers, who get notifications instead of the controllers while there are any.
    pub(super) subscribers: Option<Subscribers>,
    /// Frames collected.
    pub(super) collected: usize,
    /// One of them has a departure time, so it must not wait for more.
    pub(super) has_held: bool,
    /// Interfaces that did not take all frames at the last call of [`hold_lines`](Self::hold_lines).
    seen_stuck: usize,
    /// Links that did not take all frames lately.
    slow: usize,
    /// When packets may start on these again.
    grant_ns: u64,
    /// There are captures.
    captures: bool,
}

impl Links {
    /// Without interfaces. `threads`: threads will receive and send.
    pub(super) fn new(controllers: ControllerSender, threads: bool) -> Self {
        Self {
            links: Vec::new(),
            interfaces: if threads {
                Interfaces::Waiting(Vec::new())
            } else {
                Interfaces::Own(PortSet::new())
            },
            by_number: vec![None; 512],
            controllers,
            subscribers: None,
            collected: 0,
            has_held: false,
            seen_stuck: 0,
            slow: 0,
            grant_ns: 0,
            captures: false,
        }
    }

    /// Adds an interface. `captures`: folder for its capture files.
    pub(super) fn add(
        &mut self,
        number: u16,
        interface: Interface,
        captures: Option<&Path>,
        waiter: &mut Waiter,
    ) -> anyhow::Result<()> {
        let port = &interface.port;
        let (name, was_up) = (port.name().to_owned(), port.link_state() == LinkState::Up);
        let create = |direction| {
            captures
                .map(|folder| CaptureWriter::create(&path(&folder.join(&name), direction)))
                .transpose()
        };
        let (received, sent) = (create(Direction::In)?, create(Direction::Out)?);
        self.captures |= captures.is_some();
        self.interfaces
            .add(interface, waiter)
            .context("waiting for frames")?;
        if let Some(position) = self.by_number.get_mut(usize::from(number)) {
            *position = Some(self.links.len());
        }
        self.links.push(Link {
            number,
            name,
            was_up,
            starts: None,
            state: LinkState::Up,
            last_reported: ports::PortStatistics::default(),
            received: Capture(received),
            sent: Capture(sent),
        });
        Ok(())
    }

    /// All links, in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    /// The link at a position of [`Self::iter`].
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Link> {
        self.links.get_mut(at)
    }

    /// Hands the collected frames of all ports to the kernel.
    pub(super) fn flush(&mut self) {
        self.interfaces.flush();
        self.collected = 0;
        self.has_held = false;
    }

    /// Whether lines must be held, or need no longer be ([`hold_lines`](Self::hold_lines)).
    pub(super) fn must_hold(&self) -> bool {
        self.interfaces.stuck() != self.seen_stuck
    }

    /// Holds the lines of ports whose frames the kernel does not take, so that packets wait in the queues
    /// of the switch. Once it has taken all, the packets that wait start a few at a time: more than it may
    /// have room for again, but no more than the port keeps. Returns the time of the next call.
    pub(super) fn hold_lines(&mut self, switch: &mut Switch, now_ns: u64) -> u64 {
        let stuck = self.interfaces.stuck();
        self.seen_stuck = stuck;
        if stuck == 0 && self.slow == 0 {
            return u64::MAX;
        }
        let grants = self.grant_ns <= now_ns;
        if grants {
            self.grant_ns = now_ns.saturating_add(RETRY_NS);
        }
        for (at, link) in self.links.iter_mut().enumerate() {
            // The packets of an interface that is down leave in their time, and are lost there.
            let is_up = link.state == LinkState::Up;
            if is_up && self.interfaces.is_stuck(at) {
                link.starts = Some(STARTS_MIN);
                switch.limit_starts(link.number, Some(0), now_ns);
            } else if let Some(starts) = link.starts.filter(|_| grants) {
                // A line that does not use its starts up is slower than its interface again.
                let left = switch.traffic_manager().starts_left(link.number);
                let is_limited = is_up && left == Some(0);
                link.starts = is_limited.then_some((starts * 2).min(STARTS_MAX));
                switch.limit_starts(link.number, is_limited.then_some(starts), now_ns);
            }
        }
        self.slow = self
            .links
            .iter()
            .filter(|link| link.starts.is_some())
            .count();
        if self.slow == 0 {
            u64::MAX
        } else {
            self.grant_ns
        }
    }

    /// Offers the kernel again the frames that it did not take, if it is time. Returns the time of the
    /// next call.
    pub(super) fn flush_stuck(&mut self, now_ns: u64) -> u64 {
        let links = &self.links;
        let is_up = |at: usize| links.get(at).is_some_and(|l| l.state == LinkState::Up);
        self.interfaces.flush_stuck(now_ns, is_up)
    }

    /// Writes the captures' data in memory to their files.
    pub(super) fn flush_captures(&mut self) {
        if !self.captures {
            return;
        }
        for link in &mut self.links {
            for capture in [&mut link.received, &mut link.sent] {
                capture.attempt(link.number, |writer| Ok(writer.flush()?));
            }
        }
    }

    /// Takes the frame at the head of the ring of the link at `at`, which arrived at `arrival_ns`.
    pub(super) fn receive(
        &mut self,
        at: usize,
        arrival_ns: u64,
        now_ns: u64,
        batch: &mut Batch<'_>,
    ) {
        let Some(link) = self.links.get_mut(at) else {
            return;
        };
        // Stamps are of another clock. They are converted to within some nanoseconds.
        let arrival_ns = arrival_ns.min(now_ns);
        self.interfaces.receive(at, now_ns, |frame, in_train| {
            link.received.write(link.number, frame, arrival_ns);
            if in_train {
                batch.receive_segment(link.number, frame, arrival_ns, now_ns);
            } else {
                batch.receive(link.number, frame, arrival_ns, now_ns);
            }
        });
    }

    /// Reports to the switch the losses of the interfaces since the last report.
    pub(super) fn report_losses(&mut self, switch: &mut Switch) {
        let losses = |counted: &ports::PortStatistics| {
            [
                (DropCause::RxRingFull, counted.rx_ring_full),
                (
                    DropCause::Oversize,
                    counted.rx_oversize + counted.tx_oversize,
                ),
                (DropCause::ParserError, counted.rx_runt),
                (DropCause::TxFailed, counted.tx_failed + counted.tx_runt),
            ]
        };
        for (at, link) in self.links.iter_mut().enumerate() {
            let counted = self.interfaces.statistics(at);
            let before = losses(&std::mem::replace(&mut link.last_reported, counted));
            for ((cause, now), (_, before)) in losses(&counted).into_iter().zip(before) {
                switch.count_drop(link.number, cause, now.saturating_sub(before));
            }
        }
    }

    /// Reports to the switch the trains of the interfaces, as of the last report of losses.
    pub(super) fn report_trains(&self, switch: &mut Switch) {
        for link in &self.links {
            let trains = Trains {
                received: link.last_reported.rx_trains,
                sent: link.last_reported.tx_trains,
            };
            switch.report_trains(link.number, trains);
        }
    }

    /// Records that a port is given a frame to send. Returns its place.
    fn sending(&mut self, frame: &[u8], leaving: Leaving) -> Option<usize> {
        let at = (*self.by_number.get(usize::from(leaving.port))?)?;
        let link = self.links.get_mut(at)?;
        link.sent.write(leaving.port, frame, leaving.delivery_ns);
        self.collected += 1;
        self.has_held |= leaving.held;
        Some(at)
    }
}

/// How the switch has an interface send a frame.
fn at_interface(leaving: Leaving) -> ports::Sending {
    ports::Sending {
        departure_ns: leaving.delivery_ns,
        in_train: leaving.in_train,
    }
}

impl Sink for Links {
    fn transmit(&mut self, frame: &[u8], leaving: Leaving) {
        if let Some(at) = self.sending(frame, leaving) {
            self.interfaces.send(at, frame, at_interface(leaving));
        }
    }

    fn transmit_buffer(&mut self, buffer: &mut Vec<u8>, frame: Range<usize>, leaving: Leaving) {
        let bytes = buffer.get(frame.clone()).unwrap_or_default();
        if let Some(at) = self.sending(bytes, leaving) {
            let sending = at_interface(leaving);
            self.interfaces.send_buffer(at, buffer, frame, sending);
        }
    }

    fn to_controller(&mut self, frame: &[u8]) {
        // The sender counts frames that do not fit into its queue.
        let _ = self.controllers.packet_in(frame);
    }

    fn notify(&mut self, notification: Notification) -> bool {
        if let Some(subscribers) = &mut self.subscribers
            && subscribers.notify(&notification.body)
        {
            return true;
        }
        let at_ns = clock::to_realtime_ns(notification.at_ns);
        // As above.
        self.controllers.notify(Notification {
            at_ns,
            ..notification
        })
    }
}
