//! The way in: the admission of packets, and the choice of a queue.

use super::TrafficManager;
use crate::cause::DropCause;
use crate::config::frame_bytes;
use crate::packet::{Queued, Refused};
use crate::port::Entry;
use crate::queueing::{Admission, CommonBuffer, Room};
use crate::queues::Queue;
use crate::slab::Meta;
use crate::time::Q24;

/// A full queue table is searched for idle queues at most once in this time.
const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;

impl<P> TrafficManager<P> {
    /// Takes a packet for `port`. Refused: no such port, port down, no such egress queue, its queue
    /// (FIFO, egress queue or class queue of the port) holds as many packets as are free ([`Limits::max_held_packets`](crate::Limits::max_held_packets),
    /// `hold-limit`), FIFO or egress queue full, or its share of a common buffer (unpaced), class number or number of queues beyond the limits
    /// (paced: `hold-limit`). The program checks class limits.
    ///
    /// A departure time before the arrival counts as the arrival.
    pub fn enqueue(&mut self, port: u16, packet: Queued<P>) -> Result<(), Refused<P>> {
        let admitted = match self.position(port) {
            None => Err(DropCause::NoSuchPort),
            Some(at) => self.admit(at, &packet).map(|marked| (at, marked)),
        };
        let result = match admitted {
            Err(cause) => Err((cause, packet.payload)),
            Ok((at, marked)) => self.insert(at, packet, marked).map_err(|payload| {
                debug_assert!(false, "no room for a packet that was admitted");
                (DropCause::InternalError, payload)
            }),
        };
        result.map_err(|(cause, payload)| {
            self.count_drop(port, cause);
            Refused { cause, payload }
        })
    }

    /// Whether the packet fits, and a queue for it; true: its egress queue marks it.
    fn admit(&mut self, at: usize, packet: &Queued<P>) -> Result<bool, DropCause> {
        let port = self.ports.get_mut(at).ok_or(DropCause::NoSuchPort)?;
        if !port.up {
            return Err(DropCause::PortDown);
        }
        // Choudhury and Hahne's dynamic threshold with alpha = 1: any number of overflowing queues
        // leaves room for the others.
        let free = self.slab.free();
        let bytes = frame_bytes(packet.length_bytes);
        let Some(hold) = packet.hold else {
            if let Some(queues) = &mut port.egress_queues {
                let admission = Admission {
                    bytes,
                    arrival_ns: packet.arrival_ns,
                    header: packet.header,
                };
                let room = Room {
                    free_packets: free,
                    port_depth_bytes: port.config.fifo_bytes,
                    waiting_bytes: port.statistics.fifo_bytes,
                    switch_buffer: self.statistics.buffer.map(|buffer| CommonBuffer {
                        size_bytes: buffer.size_bytes,
                        waiting_bytes: buffer.bytes,
                    }),
                };
                return queues.admit(packet.queue, &admission, &room);
            }
            if port.fifo_packets as usize >= free {
                return Err(DropCause::HoldLimit);
            }
            return if port.statistics.fifo_bytes + bytes > port.config.fifo_bytes {
                Err(DropCause::FifoFull)
            } else {
                Ok(false)
            };
        };
        if hold.class.max(hold.counts_to.unwrap_or(0)) >= self.limits.max_classes {
            return Err(DropCause::HoldLimit);
        }
        let number = port.number;
        match self.queues.get(number, hold.class) {
            Some(queue)
                if (queue.packets as usize) < free && queue.bytes() + bytes <= Queue::BYTES_MAX =>
            {
                Ok(false)
            }
            None if free > 0 => self
                .create_queue(number, hold.class, packet.arrival_ns)
                .map(|()| false),
            _ => Err(DropCause::HoldLimit),
        }
    }

    /// Makes room for a class queue, if need be by forgetting idle ones.
    fn create_queue(&mut self, port: u16, class: u32, arrival_ns: u64) -> Result<(), DropCause> {
        if self.queues.create(port, class, self.limits.max_queues) {
            return Ok(());
        }
        if arrival_ns < self.next_sweep_ns {
            return Err(DropCause::HoldLimit);
        }
        self.next_sweep_ns = arrival_ns.saturating_add(SWEEP_INTERVAL_NS);
        let now = Q24::from_ns(self.latest_ns.min(arrival_ns));
        self.queues.free_idle(now);
        if self.queues.create(port, class, self.limits.max_queues) {
            Ok(())
        } else {
            Err(DropCause::HoldLimit)
        }
    }

    /// Puts a packet that was admitted into its queue.
    fn insert(&mut self, at: usize, packet: Queued<P>, marked: bool) -> Result<(), P> {
        let Queued {
            payload,
            length_bytes,
            arrival_ns,
            hold,
            queue,
            header,
        } = packet;
        let Some(port) = self.ports.get_mut(at) else {
            return Err(payload);
        };
        let (queues, slab) = (&mut self.queues, &mut self.slab);
        let mut meta = Meta {
            length_bytes,
            before_packets: 0,
            arrival_ns,
            sequence: self.next_sequence,
            departure_ns: arrival_ns,
            cost_q24: 0,
            allowance_ns: 0,
        };
        let became_head = match hold {
            None => {
                meta.before_packets = port.waiting_packets(queue);
                let entry = Entry {
                    queue,
                    header,
                    marked,
                };
                port.push_unpaced(entry, payload, meta, queues, slab)?
            }
            Some(hold) => {
                meta.before_packets =
                    u32::try_from(port.statistics.queued_packets).unwrap_or(u32::MAX);
                meta.departure_ns = hold.departure_ns.max(arrival_ns);
                meta.cost_q24 = hold.cost_q24;
                meta.allowance_ns = hold.allowance_ns;
                if let Some(class) = hold.counts_to {
                    queues.count_to(hold.class, class);
                }
                port.push_paced(hold.class, payload, meta, queues, slab)?
            }
        };
        self.next_sequence += 1;
        let held = slab.len() as u64;
        self.statistics.held_packets_max = self.statistics.held_packets_max.max(held);
        let any_dropped = self.settle(at);
        if became_head || any_dropped {
            self.refresh_start(at);
        }
        Ok(())
    }
}
