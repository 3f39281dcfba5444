//! A bell that wakes one sleeping thread, at the cost of a system call only if it sleeps.
//!
//! The bell tells the ringing thread whether to make that system call. The two sides choose the call: a
//! write to an eventfd, for instance. No ring is lost: a thread that is rung for while it is awake, or
//! while it falls asleep, does not sleep. `tests/orders.rs` tries all orders of the threads' steps with
//! loom.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

/// The state that a sleeper shares with its wakers.
#[derive(Debug)]
pub struct Bell(AtomicU8);

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

impl Bell {
    /// A bell whose sleeper is awake.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Rings, from any thread or signal handler. True: the sleeper may sleep, so the caller must wake
    /// it. Earlier writes of the caller are visible to the sleeper after it has learnt of the ring.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.0.swap(RUNG, Ordering::AcqRel) == ASLEEP
    }

    /// The sleeper asks to sleep. False: it has been rung for, and must not sleep; this call takes the
    /// ring. True: it sleeps next, and calls [`wake_up`](Self::wake_up) after the sleep, which may end
    /// for any reason.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        let asleep = self
            .0
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if asleep.is_err() {
            // The swap also takes a ring that arrives at this moment.
            self.0.swap(AWAKE, Ordering::AcqRel);
        }
        asleep.is_ok()
    }

    /// The sleeper is awake again. True: it has been rung for; this call takes the ring. A sleeper that
    /// has not slept may call this, too.
    pub fn wake_up(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == RUNG
    }

    /// Whether there is a ring to take. It costs no more than reading a byte, for threads that spin.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNG
    }
}
