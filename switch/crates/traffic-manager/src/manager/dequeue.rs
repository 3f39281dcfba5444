//! The way out: the start of packets and gap frames, and their delivery to the interfaces.

use super::TrafficManager;
use super::start::Start;
use crate::cause::DropCause;
use crate::packet::{Delivery, Dequeued, DroppedAtHead, Frame, Refused, TransmitToken};
use crate::port::{Kind, NEVER_NS, Scheduled};
use crate::time::Q24;

/// A port's delay line may hold this many times the free places.
const DELAY_LINE_ALPHA: u64 = 4;

impl<P> TrafficManager<P> {
    /// Earliest instant at which a transmission may start on any port that waits for nothing,
    /// rounded up to a nanosecond; in the past if the driver is late.
    pub fn next_dequeue_ns(&self) -> Option<u64> {
        self.starts.next_ns()
    }

    /// Starts at most one packet that is due by `until_ns`, and the gap frames that are due before
    /// it. Of several ports, the one with the earliest start comes first, then the one with the
    /// lowest number. Call until `None`.
    ///
    /// `until_ns` is `now_ns`. It is later if the sink keeps frames until their time; then a packet
    /// that arrives after this call starts after all packets that this call has started.
    pub fn dequeue(&mut self, until_ns: u64, now_ns: u64) -> Option<Dequeued<P>> {
        self.latest_ns = self.latest_ns.max(now_ns);
        while self.next_dequeue_ns()? <= until_ns {
            let at = self.starts.earliest();
            let port = self.ports.get(at);
            let next = port.and_then(|port| Some((port, port.next_transmission(&self.slab)?)));
            let Some((port, mut scheduled)) = next else {
                self.internal_error(at);
                continue;
            };
            if let Kind::Gap { until } = scheduled.kind {
                let start = scheduled.start(now_ns);
                if start < until {
                    self.start_gap_frame(at, start, until);
                    continue;
                }
                // So late that the gap is over.
                scheduled = port.after_gap(until);
            }
            match self.start(at, scheduled, now_ns) {
                Start::Nothing => self.internal_error(at),
                Start::Later => self.refresh_start(at),
                Start::Packet(dequeued) => return Some(dequeued),
            }
        }
        None
    }

    /// Takes a packet that an egress queue dropped at its head. Call until `None`, after each
    /// [`Self::enqueue`], [`Self::dequeue`], [`Self::dequeue_unpaced`] and [`Self::set_queues`].
    pub fn take_dropped(&mut self) -> Option<DroppedAtHead<P>> {
        self.dropped.pop()
    }

    /// After a change of what waits at a port: takes the packets that its egress queues have dropped, and counts
    /// what they hold of the switch's buffer. Returns whether there are dropped packets.
    pub(super) fn settle(&mut self, at: usize) -> bool {
        let Some(port) = self.ports.get_mut(at) else {
            return false;
        };
        let mut any = false;
        while let Some(node) = port.take_dropped(&self.slab) {
            any = true;
            if let Some((payload, _)) = self.slab.take(node) {
                self.dropped.push(DroppedAtHead {
                    port: port.number,
                    cause: DropCause::Aqm,
                    payload,
                });
            }
        }
        self.count_buffered(at);
        any
    }

    /// Handles a fault: the packet scheduled at a port is not in its queue. Counts it as lost, and marks
    /// the port as idle, or the driver would poll it for ever.
    fn internal_error(&mut self, at: usize) {
        debug_assert!(false, "a packet that starts is not in its queue");
        self.starts.set(at, NEVER_NS);
        self.count_internal_error(at);
    }

    /// Starts a gap frame at a port and puts it into the delay line.
    fn start_gap_frame(&mut self, at: usize, start: Q24, until: Q24) {
        let free = self.delay_line_free();
        let Some(port) = self.ports.get_mut(at) else {
            return self.internal_error(at);
        };
        let (length_bytes, delivery_ns) = port.fill_gap(start, until);
        // Packets have four times the room, so gap frames never take it from them.
        if (port.delay_line.len() as u64) < free {
            port.propagate(delivery_ns, Frame::Gap { length_bytes }, false);
            self.statistics.delay_line_packets += 1;
            self.deliveries.set(at, port.next_delivery_ns());
        } else {
            port.statistics.drops.add(DropCause::GapFrame, 1);
        }
        self.refresh_start(at);
    }

    /// Frames for which the delay lines still have room.
    fn delay_line_free(&self) -> u64 {
        let on_the_way = self.statistics.delay_line_packets;
        (self.limits.max_delay_line_packets as u64).saturating_sub(on_the_way)
    }

    /// Starts at most one unpaced packet whose scheduled instant is at most `until_ns` and that
    /// no paced packet precedes, as of `now_ns` (for the lateness only). For drivers that learn
    /// of arrivals late: see the [crate] documentation. Call until `None`.
    pub fn dequeue_unpaced(&mut self, until_ns: u64, now_ns: u64) -> Option<Dequeued<P>> {
        if self.starts.next_ns()? > until_ns {
            return None;
        }
        loop {
            let (slab, queues) = (&self.slab, &self.queues);
            let (at, scheduled) = self
                .ports
                .iter_mut()
                .enumerate()
                .filter_map(|(at, port)| Some((at, port.next_unpaced(until_ns, queues, slab)?)))
                .min_by_key(|(_, scheduled)| scheduled.at.ceil_ns())?;
            match self.start(at, scheduled, now_ns) {
                Start::Nothing => {
                    self.internal_error(at);
                    return None;
                }
                Start::Later => self.refresh_start(at),
                Start::Packet(dequeued) => return Some(dequeued),
            }
        }
    }

    /// Starts the packet that is scheduled at a port.
    fn start(&mut self, at: usize, scheduled: Scheduled, now_ns: u64) -> Start<P> {
        let Some(port) = self.ports.get_mut(at) else {
            return Start::Nothing;
        };
        let chosen = port.choose(scheduled, now_ns, &mut self.queues, &self.slab);
        let drops = self.settle(at);
        let Some(port) = self.ports.get_mut(at) else {
            return Start::Nothing;
        };
        let Some(chosen) = chosen else {
            // The rate of a node may let the packet start later than that of its queue.
            let next = port.next_transmission(&self.slab);
            let later = next.is_some_and(|next| next.at > scheduled.at);
            return if drops || later {
                Start::Later
            } else {
                Start::Nothing
            };
        };
        let Some((payload, meta)) = self.slab.take(chosen.node) else {
            return Start::Nothing;
        };
        let scheduled_ns = scheduled.at.ceil_ns();
        let lateness_ns = now_ns.saturating_sub(scheduled_ns);
        let timed = chosen.class.is_none() && port.config.delay_ns > 0;
        if chosen.class.is_some() {
            port.statistics.paced_lateness.record(lateness_ns);
        } else if !timed {
            port.statistics.unpaced_lateness.record(lateness_ns);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        port.pending = Some(serial);
        let number = port.number;
        let left_behind_packets = u32::try_from(chosen.left_behind).unwrap_or(u32::MAX);
        self.starts.set(at, NEVER_NS);
        Start::Packet(Dequeued {
            port: number,
            start_ns: chosen.start.ceil_ns(),
            scheduled_ns,
            class: chosen.class,
            payload,
            enqueued_ns: meta.arrival_ns,
            departure_ns: meta.departure_ns,
            length_bytes: meta.length_bytes,
            queue: chosen.queue,
            enqueued_behind_packets: meta.before_packets,
            left_behind_packets,
            marked: chosen.marked,
            token: TransmitToken {
                port: number,
                serial,
                start: chosen.start,
                timed,
            },
        })
    }

    /// The gap in front of a packet that starts: the time between the end of the last packet that its port
    /// sent and its own start, in whole nanoseconds, as in [`PortStatistics::gaps`]. `None`: the port has
    /// sent no packet.
    ///
    /// [`PortStatistics::gaps`]: crate::PortStatistics::gaps
    pub fn gap_ns(&self, token: &TransmitToken) -> Option<u64> {
        self.port(token.port)?.gap_ns(token.start)
    }

    /// Position of the port that waits for `token`.
    fn redeem(&mut self, token: &TransmitToken) -> Option<usize> {
        let at = self.position(token.port)?;
        let port = self.ports.get_mut(at)?;
        (port.pending == Some(token.serial)).then(|| port.pending = None)?;
        Some(at)
    }

    /// Egress kept the frame: it takes the line for its final length (layer 2 without FCS) and
    /// enters the delay line. Refused: the port was removed meanwhile (`port-down`), or the
    /// port's share of delay lines is used up (`delay-line-full`; the line time is taken all the
    /// same).
    pub fn transmit(
        &mut self,
        token: TransmitToken,
        final_length_bytes: u32,
        payload: P,
    ) -> Result<(), Refused<P>> {
        let free = self.delay_line_free();
        let redeemed = self.redeem(&token);
        let Some((at, port)) = redeemed.and_then(|at| Some((at, self.ports.get_mut(at)?))) else {
            let cause = DropCause::PortDown;
            self.statistics.drops.add(cause, 1);
            return Err(Refused { cause, payload });
        };
        let delivery_ns = port.occupy(token.start, final_length_bytes);
        // A dynamic threshold, too; larger, since a long fat path may need most of it.
        let share = free.saturating_mul(DELAY_LINE_ALPHA);
        let result = if (port.delay_line.len() as u64) < share {
            port.propagate(delivery_ns, Frame::Packet(payload), token.timed);
            self.statistics.delay_line_packets += 1;
            self.deliveries.set(at, port.next_delivery_ns());
            Ok(())
        } else {
            let cause = DropCause::DelayLineFull;
            port.statistics.drops.add(cause, 1);
            Err(Refused { cause, payload })
        };
        self.refresh_start(at);
        result
    }

    /// Egress dropped the packet, which is counted: it takes no line time.
    pub fn cancel(&mut self, token: TransmitToken, cause: DropCause) {
        self.count_drop(token.port, cause);
        self.release(token);
    }

    /// Egress recirculates the packet instead: it takes no line time and is no drop.
    pub fn release(&mut self, token: TransmitToken) {
        if let Some(at) = self.redeem(&token) {
            self.refresh_start(at);
        }
    }

    /// The time when the next frame reaches an interface; in the past if the driver is late.
    pub fn next_delivery_ns(&self) -> Option<u64> {
        self.deliveries.next_ns()
    }

    /// Takes at most one frame that reaches its interface by `until_ns`. That is `now_ns`, or later if
    /// another part of the system sends frames at their times. Call until `None`.
    pub fn deliver(&mut self, until_ns: u64, now_ns: u64) -> Option<Delivery<P>> {
        while self.deliveries.next_ns()? <= until_ns {
            let at = self.deliveries.earliest();
            let port = self.ports.get_mut(at);
            let Some((frame, port)) = port.and_then(|port| Some((port.deliver()?, port))) else {
                self.delivery_error(at);
                continue;
            };
            if frame.timed {
                let lateness_ns = now_ns.saturating_sub(frame.delivery_ns);
                port.statistics.unpaced_lateness.record(lateness_ns);
            }
            self.statistics.delay_line_packets -= 1;
            self.deliveries.set(at, port.next_delivery_ns());
            return Some(Delivery {
                port: port.number,
                delivery_ns: frame.delivery_ns,
                frame: frame.frame,
            });
        }
        None
    }

    /// As [`Self::internal_error`], for a frame that is to reach its interface.
    #[cold]
    fn delivery_error(&mut self, at: usize) {
        debug_assert!(false, "a frame that is due is not in its delay line");
        self.deliveries.set(at, NEVER_NS);
        self.count_internal_error(at);
    }

    fn count_internal_error(&mut self, at: usize) {
        if let Some(port) = self.ports.get_mut(at) {
            port.statistics.drops.add(DropCause::InternalError, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        DropCause, Gaps, HeaderFields, Limits, PortConfig, Queued, RateCounts, TrafficManager,
    };

    /// In release, a delay line that has lost its frame is counted and does not stay due.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "not in its delay line"))]
    fn a_lost_delivery_is_an_internal_error() {
        let mut manager = TrafficManager::new(Limits::default());
        let config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Layer2,
            fifo_bytes: 1 << 20,
            delay_ns: 10,
            gaps: Gaps::Accounted,
        };
        for port in [1, 2] {
            manager.add_port(port, config).expect("a new port");
            let packet = Queued {
                payload: port,
                length_bytes: 60,
                arrival_ns: 0,
                hold: None,
                queue: 0,
                header: HeaderFields::default(),
            };
            manager.enqueue(port, packet).expect("there is room");
            let start = manager.dequeue(0, 0).expect("it starts at once");
            let sent = manager.transmit(start.token, 60, port);
            sent.expect("there is room");
        }
        manager.ports[0].delay_line.clear();
        let delivery = manager.deliver(10, 10).expect("port 2 is unaffected");
        assert_eq!(delivery.port, 2);
        assert!(manager.deliver(10, 10).is_none());
        assert_eq!(manager.next_delivery_ns(), None);
        let statistics = manager.port_statistics(1).expect("port 1");
        assert_eq!(statistics.drops.get(DropCause::InternalError), 1);
    }
}
