//! The interfaces of the ports: the rings with frames, the frames collected for sending, the losses of
//! the interfaces, and captures.

use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use captures::{CaptureWriter, Direction, path};
use p4runtime_server::ControllerSender;
use ports::{LinkState, Port, Token, Waiter, clock};
use switch::notification::Notification;
use switch::{Batch, Sink, Switch};
use traffic_manager::DropCause;

/// Most ports for which all rings are looked at for each frame. With more, the kernel reports the rings
/// that hold frames.
const SCANNED_PORTS_MAX: usize = 8;
/// Time after which a port with frames that the kernel did not take is flushed again, unless another
/// frame is sent there before.
const RETRY_NS: u64 = 10_000_000;

/// A port number with its interface.
pub(super) struct Link {
    pub(super) number: u16,
    pub(super) port: Port,
    pub(super) token: Token,
    pub(super) state: LinkState,
    /// Whether it has ever been up. Before that, it may not be configured yet.
    pub(super) was_up: bool,
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
    links: Vec<Link>,
    /// Position in `links` by port number.
    by_number: Vec<Option<usize>>,
    controllers: ControllerSender,
    /// Positions in `links` of the ports that have collected frames.
    unsent: Vec<usize>,
    /// Frames collected.
    pub(super) collected: usize,
    /// One of them has a departure time, so it must not wait for more.
    pub(super) has_held: bool,
    /// Positions in `links` of the ports whose frames the kernel did not take.
    stuck: Vec<usize>,
    /// The time to flush these again.
    retry_ns: u64,
    /// Positions in `links` of the rings that may hold frames; `None`: any may.
    readable: Option<Vec<usize>>,
    /// There are captures.
    captures: bool,
}

impl Links {
    /// Without interfaces.
    pub(super) fn new(controllers: ControllerSender) -> Self {
        Self {
            links: Vec::new(),
            by_number: vec![None; 512],
            controllers,
            unsent: Vec::new(),
            collected: 0,
            has_held: false,
            stuck: Vec::new(),
            retry_ns: u64::MAX,
            readable: None,
            captures: false,
        }
    }

    /// Adds an interface. `captures`: folder for its capture files.
    pub(super) fn add(
        &mut self,
        number: u16,
        port: Port,
        captures: Option<&Path>,
        waiter: &mut Waiter,
    ) -> anyhow::Result<()> {
        let create = |direction| {
            captures
                .map(|folder| CaptureWriter::create(&path(&folder.join(port.name()), direction)))
                .transpose()
        };
        let (received, sent) = (create(Direction::In)?, create(Direction::Out)?);
        self.captures |= captures.is_some();
        let token = waiter.add(&port).context("waiting for frames")?;
        if let Some(position) = self.by_number.get_mut(usize::from(number)) {
            *position = Some(self.links.len());
        }
        self.links.push(Link {
            was_up: port.link_state() == LinkState::Up,
            number,
            port,
            token,
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
        for at in self.unsent.drain(..) {
            if let Some(link) = self.links.get_mut(at) {
                link.port.flush();
                if link.port.is_stuck() && !self.stuck.contains(&at) {
                    self.stuck.push(at);
                }
            }
        }
        self.collected = 0;
        self.has_held = false;
    }

    /// Offers the kernel again the frames that it did not take, if it is time. Returns the time of the
    /// next call.
    pub(super) fn flush_stuck(&mut self, now_ns: u64) -> u64 {
        let links = &mut self.links;
        if self.retry_ns <= now_ns {
            self.stuck.retain(|&at| {
                links.get_mut(at).is_some_and(|link| {
                    link.port.flush();
                    link.port.is_stuck()
                })
            });
            self.retry_ns = u64::MAX;
        }
        // A link that is down waits until it is found up.
        let is_up = |at: &usize| links.get(*at).is_some_and(|l| l.state == LinkState::Up);
        if self.stuck.iter().any(is_up) {
            self.retry_ns = self.retry_ns.min(now_ns.saturating_add(RETRY_NS));
        }
        self.retry_ns
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

    /// Records the links that a wait found readable; `None`: the kernel was not asked.
    pub(super) fn note_readable(&mut self, readable: Option<&[usize]>) {
        match readable.filter(|_| self.links.len() > SCANNED_PORTS_MAX) {
            Some(readable) => {
                let noted = self.readable.get_or_insert_default();
                noted.clear();
                noted.extend_from_slice(readable);
            }
            None => self.readable = None,
        }
    }

    /// Whether a ring holds a frame, as far as is known without asking the kernel.
    pub(super) fn is_any_readable(&self) -> bool {
        let has_frame = |at: &usize| self.links.get(*at).is_some_and(|l| l.port.has_frame());
        match &self.readable {
            Some(readable) => readable.iter().any(has_frame),
            None => self.has_frame(),
        }
    }

    /// Whether any ring holds a frame.
    pub(super) fn has_frame(&self) -> bool {
        self.links.iter().any(|link| link.port.has_frame())
    }

    /// The earliest frame in the rings: its arrival time, and the position of its link.
    pub(super) fn earliest(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        let links = &mut self.links;
        let Some(readable) = &mut self.readable else {
            let all = links.iter_mut().enumerate();
            let arrivals = all.filter_map(|(at, l)| Some((l.port.next_arrival_ns(now_ns)?, at)));
            return arrivals.min();
        };
        let mut earliest: Option<(u64, usize)> = None;
        readable.retain(|&at| {
            let link = links.get_mut(at);
            let Some(arrival_ns) = link.and_then(|l| l.port.next_arrival_ns(now_ns)) else {
                return false;
            };
            let this = (arrival_ns, at);
            earliest = Some(earliest.map_or(this, |earliest| earliest.min(this)));
            true
        });
        earliest
    }

    /// Takes the frame at the head of the ring of the link at `at`, which arrived at `arrival_ns`.
    pub(super) fn receive(
        &mut self,
        at: usize,
        arrival_ns: u64,
        now_ns: u64,
        batch: &mut Batch<'_>,
    ) {
        if let Some(link) = self.links.get_mut(at)
            && let Some(frame) = link.port.receive(now_ns)
        {
            // Stamps are of another clock. They are converted to within some nanoseconds.
            let arrival_ns = arrival_ns.min(now_ns);
            link.received.write(link.number, frame.bytes(), arrival_ns);
            batch.receive(link.number, frame.bytes(), arrival_ns, now_ns);
        }
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
        for link in &mut self.links {
            let counted = link.port.statistics();
            let before = losses(&std::mem::replace(&mut link.last_reported, counted));
            for ((cause, now), (_, before)) in losses(&counted).into_iter().zip(before) {
                switch.count_drop(link.number, cause, now.saturating_sub(before));
            }
        }
    }

    /// The link of a port that is given a frame to send.
    fn sending(
        &mut self,
        port: u16,
        frame: &[u8],
        delivery_ns: u64,
        held: bool,
    ) -> Option<&mut Link> {
        let at = (*self.by_number.get(usize::from(port))?)?;
        let link = self.links.get_mut(at)?;
        link.sent.write(port, frame, delivery_ns);
        if link.port.unflushed() == 0 {
            self.unsent.push(at);
        }
        self.collected += 1;
        self.has_held |= held;
        Some(link)
    }
}

impl Sink for Links {
    fn transmit(&mut self, port: u16, frame: &[u8], delivery_ns: u64, held: bool) {
        if let Some(link) = self.sending(port, frame, delivery_ns, held) {
            // The port counts a refusal, which is reported with its other losses.
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
        // The sender counts frames that do not fit into its queue.
        let _ = self.controllers.packet_in(frame);
    }

    fn notify(&mut self, notification: Notification) -> bool {
        let at_ns = clock::to_realtime_ns(notification.at_ns);
        // As above.
        self.controllers.notify(Notification {
            at_ns,
            ..notification
        })
    }
}
