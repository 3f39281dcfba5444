//! Bounded queues that carry frames and notifications from the thread that owns the switch to the
//! controllers. Every loss is counted by cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use switch::notification::Notification;
use tokio::sync::mpsc;
use traffic_manager::DropCount;

/// The outcome for a frame or notification that has left the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Offered to the primary controllers with the permission to get it.
    Offered {
        /// Controllers that took it.
        delivered: u64,
        /// Controllers whose stream had no room.
        slow: u64,
    },
    /// It cannot be translated by P4Info.
    Malformed,
    /// It comes from a program before the running one.
    PipelineSwap,
}

/// Outcomes of frames or notifications, counted from the start of the process.
#[derive(Debug, Default)]
struct Counters {
    /// All that the switch offered.
    offered: AtomicU64,
    delivered: AtomicU64,
    queue_full: AtomicU64,
    no_controller: AtomicU64,
    controller_slow: AtomicU64,
    malformed: AtomicU64,
    pipeline_swap: AtomicU64,
}

impl Counters {
    fn count(&self, fate: Fate, items: u64) {
        let add = |counter: &AtomicU64, items| counter.fetch_add(items, Ordering::Relaxed);
        match fate {
            Fate::Offered { delivered, slow } => {
                // Each controller that misses it counts as a loss, even if another one has it.
                add(&self.controller_slow, items.saturating_mul(slow));
                if delivered > 0 {
                    add(&self.delivered, items);
                } else if slow == 0 {
                    add(&self.no_controller, items);
                }
            }
            Fate::Malformed => drop(add(&self.malformed, items)),
            Fate::PipelineSwap => drop(add(&self.pipeline_swap, items)),
        }
    }

    /// Drops by cause. `full` and `malformed` are the names of these two causes.
    fn drops(&self, [full, malformed]: [&'static str; 2]) -> Vec<DropCount> {
        [
            (full, &self.queue_full),
            ("no-controller", &self.no_controller),
            ("controller-slow", &self.controller_slow),
            (malformed, &self.malformed),
            ("pipeline-swap", &self.pipeline_swap),
        ]
        .into_iter()
        .map(|(cause, count)| DropCount {
            cause,
            packets: count.load(Ordering::Relaxed),
        })
        .collect()
    }
}

/// Losses on the way to the controllers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerLosses {
    /// Packet-ins, by cause: `controller-queue-full` (the queue from the switch was full),
    /// `no-controller` (no primary controller that may get it), `controller-slow` (it did not
    /// read its stream), `packet-in-malformed` (shorter than the packet-in header, or with a
    /// value of a translated type that has no mapping),
    /// `pipeline-swap` (of a program before the running one).
    pub packet_ins: Vec<DropCount>,
    /// Digest messages and idle entries, by the same causes; `not-in-p4info` instead of
    /// `packet-in-malformed`.
    pub notifications: Vec<DropCount>,
}

/// Counters of packet-ins and notifications.
#[derive(Debug, Default)]
pub struct ControllerCounters {
    packet_ins: Counters,
    notifications: Counters,
}

impl ControllerCounters {
    /// Packet-ins handed to a controller's stream.
    pub fn packet_ins(&self) -> u64 {
        self.packet_ins.delivered.load(Ordering::Relaxed)
    }

    /// Digest messages and idle entries handed to a controller's stream.
    pub fn notifications(&self) -> u64 {
        self.notifications.delivered.load(Ordering::Relaxed)
    }

    /// Losses so far.
    pub fn losses(&self) -> ControllerLosses {
        ControllerLosses {
            packet_ins: self
                .packet_ins
                .drops(["controller-queue-full", "packet-in-malformed"]),
            notifications: self
                .notifications
                .drops(["controller-queue-full", "not-in-p4info"]),
        }
    }

    /// Counts of all that was offered so far. Read on the switch's thread while a program is put in
    /// place, they separate frames and notifications of the old program from those of the new one.
    pub(crate) fn offered(&self) -> Generation {
        Generation {
            packet_ins: self.packet_ins.offered.load(Ordering::Relaxed),
            notifications: self.notifications.offered.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_packet_in(&self, fate: Fate) {
        self.packet_ins.count(fate, 1);
    }

    /// `items`: digest messages or idle entries in the notification.
    pub(crate) fn count_notification(&self, fate: Fate, items: usize) {
        self.notifications
            .count(fate, u64::try_from(items).unwrap_or(u64::MAX));
    }
}

/// The numbers of the first packet-in and the first notification that may come from a program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Generation {
    pub(crate) packet_ins: u64,
    pub(crate) notifications: u64,
}

/// A frame or notification with its number among all that were offered, from 0.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) item: T,
}

/// Creates the queues from the switch to the controllers. They hold at most `packet_ins` frames and
/// `notifications` notifications, each at least 1.
pub fn controller_queues(
    packet_ins: usize,
    notifications: usize,
) -> (ControllerSender, ControllerReceiver) {
    let (packet_sender, packet_receiver) = mpsc::channel(packet_ins.max(1));
    let (notification_sender, notification_receiver) = mpsc::channel(notifications.max(1));
    let counters = Arc::new(ControllerCounters::default());
    (
        ControllerSender {
            packet_ins: packet_sender,
            notifications: notification_sender,
            counters: Arc::clone(&counters),
        },
        ControllerReceiver {
            packet_ins: packet_receiver,
            notifications: notification_receiver,
            counters,
        },
    )
}

/// The switch's end of the queues for the controllers.
#[derive(Debug)]
pub struct ControllerSender {
    packet_ins: mpsc::Sender<Numbered<Box<[u8]>>>,
    notifications: mpsc::Sender<Numbered<Notification>>,
    counters: Arc<ControllerCounters>,
}

impl ControllerSender {
    /// Queues a frame that begins with the program's packet-in header. Returns `false` if the queue
    /// is full; the loss is counted.
    pub fn packet_in(&self, frame: &[u8]) -> bool {
        let counters = &self.counters.packet_ins;
        let number = counters.offered.fetch_add(1, Ordering::Relaxed);
        let Ok(place) = self.packet_ins.try_reserve() else {
            counters.queue_full.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        place.send(Numbered {
            number,
            item: frame.into(),
        });
        true
    }

    /// Queues a notification, whose time is in nanoseconds since the Epoch. Returns `false` if the
    /// queue is full; the loss is counted.
    pub fn notify(&self, notification: Notification) -> bool {
        let counters = &self.counters.notifications;
        let number = counters.offered.fetch_add(1, Ordering::Relaxed);
        let Ok(place) = self.notifications.try_reserve() else {
            let items = u64::try_from(notification.body.len()).unwrap_or(u64::MAX);
            counters.queue_full.fetch_add(items, Ordering::Relaxed);
            return false;
        };
        place.send(Numbered {
            number,
            item: notification,
        });
        true
    }

    /// Counters of all that was sent.
    pub fn counters(&self) -> &ControllerCounters {
        &self.counters
    }
}

/// The server's end of the queues for the controllers.
#[derive(Debug)]
pub struct ControllerReceiver {
    pub(crate) packet_ins: mpsc::Receiver<Numbered<Box<[u8]>>>,
    pub(crate) notifications: mpsc::Receiver<Numbered<Notification>>,
    counters: Arc<ControllerCounters>,
}

impl ControllerReceiver {
    /// Counters of all that was sent. They go on counting, and can be read after the server has
    /// ended.
    pub fn counters(&self) -> Arc<ControllerCounters> {
        Arc::clone(&self.counters)
    }
}

#[cfg(test)]
mod tests {
    use switch::notification::NotificationBody;
    use v1model::entries::digest::DigestList;

    use super::*;

    fn full(drops: &[DropCount]) -> u64 {
        drops
            .iter()
            .find(|drop| drop.cause == "controller-queue-full")
            .expect("cause")
            .packets
    }

    #[test]
    fn what_one_controller_misses_is_counted_though_another_has_it() {
        let counters = ControllerCounters::default();
        for (delivered, slow) in [(1, 2), (0, 1), (2, 0), (0, 0)] {
            counters.count_packet_in(Fate::Offered { delivered, slow });
        }
        assert_eq!(counters.packet_ins(), 2);
        let lost = counters.losses().packet_ins;
        let of = |cause| {
            lost.iter()
                .find(|drop| drop.cause == cause)
                .map(|d| d.packets)
        };
        assert_eq!(of("controller-slow"), Some(3));
        assert_eq!(of("no-controller"), Some(1));
    }

    #[test]
    fn full_queues_lose_what_they_count() {
        let (sender, receiver) = controller_queues(2, 1);
        assert!(sender.packet_in(&[1]) && sender.packet_in(&[2]) && !sender.packet_in(&[3]));
        let notification = Notification {
            at_ns: 0,
            body: NotificationBody::Digests(DigestList {
                digest: 0,
                json_id: 1,
                headers: 0,
                list_id: 1,
                messages: vec![Vec::new(), Vec::new()],
            }),
        };
        assert!(sender.notify(notification.clone()) && !sender.notify(notification));
        let losses = receiver.counters().losses();
        assert_eq!(
            (full(&losses.packet_ins), full(&losses.notifications)),
            (1, 2)
        );
        let offered = sender.counters().offered();
        assert_eq!((offered.packet_ins, offered.notifications), (3, 2));
    }
}
