//! Parts of the tests.

use switch::notification::Notification;
use switch::{Leaving, Sink};

/// Takes frames and notifications, and forgets them.
pub struct Nowhere;

impl Sink for Nowhere {
    fn transmit(&mut self, _frame: &[u8], _leaving: Leaving) {}

    fn to_controller(&mut self, _frame: &[u8]) {}

    fn notify(&mut self, _notification: Notification) -> bool {
        true
    }
}
