//! The class queues of a port, and the choice of the paced packet that starts.

use prefetch::prefetch;

use super::ready::Ready;
use super::waiting::{class_of, eligible_at, last_key, waiting_key};
use super::{Chosen, Port, Scheduled};
use crate::config::frame_bytes;
use crate::gaps::Gaps;
use crate::queues::{ClassQueues, Queue, Spacing};
use crate::slab::{Meta, NONE, Slab};
use crate::time::Q24;

/// Number of packets that leave soon and are prefetched together.
const PREFETCHED: usize = 24;

/// A class that catches up gains one part in this many of a packet's time with each packet.
const CATCH_UP_PARTS: u128 = 8;

/// The head of a class queue that starts.
#[derive(Debug, Clone, Copy)]
struct Head {
    class: u32,
    /// It is still the first of `waiting`.
    in_waiting: bool,
    /// Set while its class catches up with spaced packets: the time when its distance to the previous
    /// packet lets it start, after its departure time and R.
    spaced: Option<Q24>,
}

impl<P> Port<P> {
    /// Most of a packet's lateness that the poll at `now_ns` may have caused. A poll that was late for
    /// one packet was late for all packets that start in it.
    pub(super) fn poll_lateness(&mut self, scheduled: Scheduled, now_ns: u64) -> Q24 {
        let now = Q24::from_ns(now_ns);
        if scheduled.at.ceil_ns() < now_ns {
            self.late_poll_ns = now_ns;
            now.since(scheduled.at)
        } else if self.late_poll_ns == now_ns && scheduled.at.ceil_ns() == now_ns {
            now
        } else {
            Q24::default()
        }
    }

    /// Takes the first paced packet that may start at `start`. `poll_lateness`: see
    /// [`Self::poll_lateness`].
    pub(super) fn choose_paced(
        &mut self,
        start: Q24,
        poll_lateness: Q24,
        queues: &mut ClassQueues,
        slab: &Slab<P>,
    ) -> Option<Chosen> {
        let head = self.eligible(last_key(start), queues, slab)?;
        let (class, number, spaces_catch_up) = (head.class, self.number, self.spaces_catch_up);
        let mut departure_ns = 0;
        // Stall rule: R' = max(R, t - allowance) + cost, t without the time of a gap frame.
        let space = |meta: &Meta, release: Q24| {
            departure_ns = meta.departure_ns;
            let eligible = Q24::from_ns(meta.departure_ns).max(release);
            let punctual = start.since(self.waited_for_gap(start, eligible));
            let cost = u128::from(meta.cost_q24);
            let release = release.max(punctual.minus_ns(meta.allowance_ns)).plus(cost);
            let may_gain = cost / CATCH_UP_PARTS;
            let late = start.since(eligible).min(poll_lateness);
            // Spacing counts from the time when the packet could have started, so that the lateness
            // of one poll is not added to that of the next.
            let from = head.spaced.or((late.raw() > may_gain).then_some(start));
            let spaced = from.filter(|_| spaces_catch_up);
            let spaced = spaced.map(|from| from.plus(cost - may_gain));
            Spacing {
                release,
                spaced: spaced.unwrap_or_default(),
            }
        };
        let unlinked = queues.unlink((number, class), slab, space)?;
        self.statistics.paced_bytes -= unlinked.bytes;
        let next = slab.meta(unlinked.next).map(|next| {
            // Packets with the same departure time (of a quantum or a tick) leave together. An empty
            // queue knows the departure time of its last packet, so that this holds for a packet that
            // arrives later, too.
            let leave_together = next.departure_ns == departure_ns;
            let Spacing { release, spaced } = unlinked.spacing;
            let earliest = if leave_together {
                release
            } else {
                release.max(spaced)
            };
            waiting_key(next.departure_ns, earliest, class)
        });
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
            queue: 0,
            left_behind: self.statistics.queued_packets,
            marked: false,
        })
    }

    /// Prefetches the data of the next releases. Prefetches of several places run at the same time,
    /// while each release alone would wait for its own memory.
    fn prefetch_next(&self, queues: &ClassQueues, slab: &Slab<P>) {
        // One step at a time for all of them: a step reads the data that the previous one prefetched.
        let mut places = [None; PREFETCHED];
        for (place, key) in places.iter_mut().zip(self.waiting.soon()) {
            *place = queues.first_of(class_of(key));
        }
        places.iter().flatten().for_each(|queue| prefetch(*queue));
        let packets = places.map(|queue| queue.map_or(NONE, Queue::head));
        packets.iter().for_each(|&packet| slab.prefetch(packet));
        // After the release the next packet becomes the first.
        let successors = packets.map(|packet| slab.next(packet));
        successors.iter().for_each(|&packet| slab.prefetch(packet));
    }

    /// The head with the smallest (departure, sequence) of those with keys up to `last`.
    fn eligible(&mut self, last: u128, queues: &ClassQueues, slab: &Slab<P>) -> Option<Head> {
        self.make_ready(last, queues, slab).or_else(|| {
            self.ready.pop().map(|ready| Head {
                class: ready.class,
                in_waiting: false,
                spaced: ready.spaced,
            })
        })
    }

    /// Puts the heads with keys up to `last` into `ready`.
    ///
    /// The common case is one such head: it need not go there, and is returned. Where held packets have a place
    /// in the scheduler's tree, all heads go there, and the tree learns of each.
    fn make_ready(&mut self, last: u128, queues: &ClassQueues, slab: &Slab<P>) -> Option<Head> {
        while let Some(key) = self.waiting.peek()
            && key <= last
        {
            let class = class_of(key);
            let alone = !self.paced_in_tree
                && self.ready.peek().is_none()
                && !self.waiting.second_may_be_up_to(last);
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
                (spaces_catch_up && key > unspaced).then(|| eligible_at(key))
            };
            let found = queues.get(self.number, class).and_then(|queue| {
                let meta = slab.meta(queue.head())?;
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
                if self.paced_in_tree
                    && let Some(tree) = &mut self.egress_queues
                {
                    tree.paced_eligible(frame_bytes(meta.length_bytes), eligible_at(key));
                }
            }
        }
        None
    }

    /// Tells the scheduler's tree of the held packets that may start by `now`, if they have a place there.
    pub(super) fn enter_paced(&mut self, now: Q24, queues: &ClassQueues, slab: &Slab<P>) {
        if self.paced_in_tree {
            self.make_ready(last_key(now), queues, slab);
        }
    }

    /// Takes the heads out of `ready`, as for a tree that does not know of them.
    pub(super) fn forget_ready(&mut self, queues: &ClassQueues) {
        while let Some(ready) = self.ready.pop() {
            if let Some(queue) = queues.get(self.number, ready.class) {
                let earliest = queue.release().max(ready.spaced.unwrap_or_default());
                self.waiting
                    .push(waiting_key(ready.departure_ns, earliest, ready.class));
            }
        }
    }

    /// Whether the tree, of which held packets are a leaf, chooses one of them at `at`.
    pub(super) fn tree_chooses_paced(
        &mut self,
        at: Q24,
        queues: &ClassQueues,
        slab: &Slab<P>,
    ) -> bool {
        self.enter_paced(at, queues, slab);
        let head = self.ready.peek();
        let head = head.and_then(|ready| queues.get(self.number, ready.class));
        let head = head.and_then(|queue| slab.meta(queue.head()));
        let bytes = head.map_or(0, |meta| frame_bytes(meta.length_bytes));
        let tree = self.egress_queues.as_mut();
        tree.is_some_and(|tree| tree.chooses_paced(bytes, at))
    }

    /// Tells the tree of a held packet that it has chosen and that starts.
    pub(super) fn tell_paced_sent(&mut self, chosen: &Chosen, slab: &Slab<P>) {
        let bytes = slab
            .meta(chosen.node)
            .map(|meta| frame_bytes(meta.length_bytes));
        let next = self.waiting.peek().map(eligible_at);
        let more = self.ready.peek().is_some() || next.is_some_and(|next| next <= chosen.start);
        if let (Some(tree), Some(bytes)) = (&mut self.egress_queues, bytes) {
            tree.paced_sent(bytes, chosen.start, more);
        }
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
        let earliest_of_empty = queues.push((self.number, class), payload, meta, slab)?;
        if let Some(earliest) = earliest_of_empty {
            let key = waiting_key(meta.departure_ns, earliest, class);
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
        Ok(earliest_of_empty.is_some())
    }
}
