//! The state that wakers and signal handlers share with the waiter.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bell::Bell;

use crate::sys;

/// The state that wakers and signal handlers share with the waiter.
#[derive(Debug)]
pub(crate) struct WakeState {
    pub(crate) bell: Bell,
    /// A [`Waker`](crate::Waker) was used since the waiter last looked.
    pub(crate) called: AtomicBool,
    /// The signal that asks the process to end; 0: none.
    pub(crate) signal: AtomicI32,
    pub(crate) event: OwnedFd,
}

impl WakeState {
    /// Takes a ring of the bell. Returns whether a [`Waker`](crate::Waker) was used.
    pub(crate) fn take_call(&self) -> bool {
        self.bell.wake_up() && self.called.swap(false, Ordering::Relaxed)
    }

    /// Async-signal-safe: two atomics and at most one write(2).
    pub(crate) fn wake(&self) {
        if self.bell.ring() {
            sys::event_signal(self.event.as_fd());
        }
    }

    /// Async-signal-safe.
    pub(crate) fn wake_for_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Release);
        self.wake();
    }
}
