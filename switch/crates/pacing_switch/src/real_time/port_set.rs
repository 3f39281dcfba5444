//! The open interfaces that a thread receives from, or sends by, or both.

use std::ops::Range;

use ports::{Port, PortStatistics, Sending, Token, Waiter};

/// Most ports for which all rings are looked at for each frame. With more, the kernel reports the rings
/// that hold frames.
const SCANNED_PORTS_MAX: usize = 8;
/// Time after which a port with frames that the kernel did not take is flushed again. An interface of
/// 1 Gbit/s takes longer to empty the system's default buffer.
pub const RETRY_NS: u64 = 250_000;

/// Ports, each known by its place in the order in which they were added.
pub struct PortSet {
    ports: Vec<(Port, Token)>,
    /// Places of the ports that have collected frames.
    unsent: Vec<usize>,
    /// Places of the ports whose frames the kernel did not take.
    stuck: Vec<usize>,
    /// The time to flush these again.
    retry_ns: u64,
    /// Places of the rings that may hold frames; `None`: any may.
    readable: Option<Vec<usize>>,
}

impl PortSet {
    /// Without ports.
    pub fn new() -> Self {
        Self {
            ports: Vec::new(),
            unsent: Vec::new(),
            stuck: Vec::new(),
            retry_ns: u64::MAX,
            readable: None,
        }
    }

    /// Adds a port, for whose frames `waiter` waits from now on.
    ///
    /// # Errors
    /// The kernel has no memory for another one.
    pub fn add(&mut self, port: Port, waiter: &mut Waiter) -> std::io::Result<()> {
        let token = waiter.add(&port)?;
        self.ports.push((port, token));
        Ok(())
    }

    /// All ports.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().map(|(port, _)| port)
    }

    /// The port at a place, with its token.
    pub fn get(&self, at: usize) -> Option<(&Port, Token)> {
        self.ports.get(at).map(|(port, token)| (port, *token))
    }

    /// Counters of the port at a place; asks the kernel for lost frames.
    pub fn statistics(&mut self, at: usize) -> PortStatistics {
        let port = self.ports.get_mut(at);
        port.map(|(port, _)| port.statistics()).unwrap_or_default()
    }

    /// Records the ports that a wait found readable; `None`: the kernel was not asked.
    pub fn note_readable(&mut self, readable: Option<&[usize]>) {
        match readable.filter(|_| self.ports.len() > SCANNED_PORTS_MAX) {
            Some(readable) => {
                let noted = self.readable.get_or_insert_default();
                noted.clear();
                noted.extend_from_slice(readable);
            }
            None => self.readable = None,
        }
    }

    /// Whether a ring holds a frame, as far as is known without asking the kernel.
    pub fn is_any_readable(&self) -> bool {
        let has_frame = |at: &usize| {
            self.ports
                .get(*at)
                .is_some_and(|(port, _)| port.has_frame())
        };
        match &self.readable {
            Some(readable) => readable.iter().any(has_frame),
            None => self.has_frame(),
        }
    }

    /// Whether any ring holds a frame.
    pub fn has_frame(&self) -> bool {
        self.iter().any(Port::has_frame)
    }

    /// The earliest frame in the rings: its arrival time, and the place of its port.
    pub fn earliest(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        let ports = &mut self.ports;
        let Some(readable) = &mut self.readable else {
            let all = ports.iter_mut().enumerate();
            let arrivals = all.filter_map(|(at, (p, _))| Some((p.next_arrival_ns(now_ns)?, at)));
            return arrivals.min();
        };
        let mut earliest: Option<(u64, usize)> = None;
        readable.retain(|&at| {
            let port = ports.get_mut(at);
            let Some(arrival_ns) = port.and_then(|(port, _)| port.next_arrival_ns(now_ns)) else {
                return false;
            };
            let this = (arrival_ns, at);
            earliest = Some(earliest.map_or(this, |earliest| earliest.min(this)));
            true
        });
        earliest
    }

    /// The frame at the head of the ring of the port at a place.
    pub fn receive(&mut self, at: usize, now_ns: u64) -> Option<ports::Frame<'_>> {
        self.ports.get_mut(at)?.0.receive(now_ns)
    }

    /// The port at a place, to which a frame is sent.
    fn sending(&mut self, at: usize) -> Option<&mut Port> {
        let (port, _) = self.ports.get_mut(at)?;
        if port.unflushed() == 0 {
            self.unsent.push(at);
        }
        Some(port)
    }

    /// Has the port at a place send a copy of a frame at the next [`flush`](Self::flush).
    pub fn send(&mut self, at: usize, frame: &[u8], sending: Sending) {
        if let Some(port) = self.sending(at) {
            // The port counts a refusal, which is reported with its other losses.
            let _ = port.send_as(frame, sending);
        }
    }

    /// As [`send`](Self::send), of the frame at `frame` of `buffer`, which is exchanged for another one.
    pub fn send_buffer(
        &mut self,
        at: usize,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        if let Some(port) = self.sending(at) {
            let _ = port.send_buffer_as(buffer, frame, sending);
        }
    }

    /// Number of ports whose frames the kernel did not take.
    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// Whether the kernel did not take all frames of the port at a place.
    pub fn is_stuck(&self, at: usize) -> bool {
        self.stuck.contains(&at)
    }

    /// Hands the collected frames of all ports to the kernel.
    pub fn flush(&mut self) {
        for at in self.unsent.drain(..) {
            if let Some((port, _)) = self.ports.get_mut(at) {
                port.flush();
                if port.is_stuck() && !self.stuck.contains(&at) {
                    self.stuck.push(at);
                }
            }
        }
    }

    /// Offers the kernel again the frames that it did not take, if it is time. Returns the time of the
    /// next call. `is_up`: whether the interface at a place is up; one that is down waits until it is.
    pub fn flush_stuck(&mut self, now_ns: u64, is_up: impl Fn(usize) -> bool) -> u64 {
        let ports = &mut self.ports;
        if self.retry_ns <= now_ns {
            self.stuck.retain(|&at| {
                ports.get_mut(at).is_some_and(|(port, _)| {
                    port.flush();
                    port.is_stuck()
                })
            });
            self.retry_ns = u64::MAX;
        }
        if self.stuck.iter().any(|at| is_up(*at)) {
            self.retry_ns = self.retry_ns.min(now_ns.saturating_add(RETRY_NS));
        }
        self.retry_ns
    }
}
