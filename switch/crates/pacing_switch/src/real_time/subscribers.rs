//! Subscribers to the switch's notifications, in BMv2's form.

use std::sync::Arc;

use notifications::{Publisher, ageing_messages, learning_message, ports_message};
use switch::notification::NotificationBody;

/// Publishes notifications. Subscribers that do not keep up lose them, which the publisher counts.
pub(super) struct Subscribers {
    publisher: Arc<Publisher>,
    device_id: u64,
    /// Number of the next message of idle entries.
    next_ageing: u64,
}

impl Subscribers {
    pub(super) fn new(publisher: Arc<Publisher>, device_id: u64) -> Self {
        Self {
            publisher,
            device_id,
            next_ageing: 0,
        }
    }

    /// Publishes digests or idle entries. False: nobody has subscribed.
    pub(super) fn notify(&mut self, body: &NotificationBody) -> bool {
        if !self.publisher.has_subscribers() {
            return false;
        }
        match body {
            NotificationBody::Digests(list) => {
                self.publisher
                    .publish(&learning_message(self.device_id, list));
            }
            NotificationBody::Idle(entries) => {
                let next = &mut self.next_ageing;
                for message in ageing_messages(self.device_id, next, entries) {
                    self.publisher.publish(&message);
                }
            }
        }
        true
    }

    /// Publishes that ports have gone up (true) or down.
    pub(super) fn notify_of_ports(&self, ports: &[(u16, bool)]) {
        if !ports.is_empty() && self.publisher.has_subscribers() {
            self.publisher
                .publish(&ports_message(self.device_id, ports));
        }
    }
}
