//! The orders in which a sleeper and its wakers may run: all of them (`make loom`), some with each access to
//! memory checked (`make miri`), and those that happen (`cargo test`).

use bell::Bell;
use interleavings::sync::{Arc, Condvar, Mutex};
use interleavings::{UnsafeCell, check, spawn};

/// A bell as the switch uses it: with an event like an eventfd, and data that is written before the
/// ring. loom and Miri fail a test that reads the data before it has learnt of the ring, or that waits for
/// ever.
struct Shared {
    bell: Bell,
    event: Mutex<bool>,
    signalled: Condvar,
    data: [UnsafeCell<u32>; 2],
}

// Each cell is written by one waker, before its ring, and read by the sleeper, after it.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell::new(),
            event: Mutex::new(false),
            signalled: Condvar::new(),
            data: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    #[allow(unsafe_code)]
    fn write_and_ring(&self, which: usize) {
        // SAFETY: no other thread writes this cell, and no thread reads it before the ring.
        self.data[which].with_mut(|data| unsafe { *data = 1 });
        if self.bell.ring() {
            *self.event.lock().unwrap() = true;
            self.signalled.notify_one();
        }
    }

    #[allow(unsafe_code)]
    fn read(&self, which: usize) -> u32 {
        // SAFETY: the sleeper has learnt of the ring that came after the write.
        self.data[which].with(|data| unsafe { *data })
    }

    /// Sleeps without an end, as epoll does; true: rung.
    fn sleep(&self) -> bool {
        if !self.bell.fall_asleep() {
            return true;
        }
        let mut event = self.event.lock().unwrap();
        while !*event {
            event = self.signalled.wait(event).unwrap();
        }
        *event = false;
        drop(event);
        self.bell.wake_up()
    }

    /// A sleep that another event ends at once: a frame, or the deadline.
    fn doze(&self) -> bool {
        !self.bell.fall_asleep() || self.bell.wake_up()
    }
}

/// Sleeps until rung. A signal may be left over from a ring that a doze has taken; then it sleeps again.
fn sleep_until_rung(shared: &Shared) {
    while !shared.sleep() {}
}

#[test]
fn a_sleeper_learns_of_a_ring_and_of_what_came_before_it() {
    check(None, || {
        let shared = Shared::new();
        let waker = Arc::clone(&shared);
        let thread = spawn(move || waker.write_and_ring(0));
        sleep_until_rung(&shared);
        assert_eq!(shared.read(0), 1);
        thread.join().unwrap();
    });
}

#[test]
fn a_ring_is_not_lost_between_sleeps_that_end_by_themselves() {
    check(None, || {
        let shared = Shared::new();
        let waker = Arc::clone(&shared);
        let thread = spawn(move || waker.write_and_ring(0));
        if !shared.doze() && !shared.doze() {
            sleep_until_rung(&shared);
        }
        assert_eq!(shared.read(0), 1);
        thread.join().unwrap();
    });
}

#[test]
fn a_sleeper_that_only_looks_takes_the_ring_afterwards() {
    check(None, || {
        let shared = Shared::new();
        let waker = Arc::clone(&shared);
        let thread = spawn(move || waker.write_and_ring(0));
        let seen = shared.bell.is_rung();
        if shared.bell.wake_up() {
            assert_eq!(shared.read(0), 1);
        } else {
            assert!(!seen, "a ring that was seen is there to take");
            sleep_until_rung(&shared);
            assert_eq!(shared.read(0), 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn two_wakers_are_both_heard() {
    check(Some(3), || {
        let shared = Shared::new();
        let threads: Vec<_> = (0..2)
            .map(|which| {
                let waker = Arc::clone(&shared);
                spawn(move || waker.write_and_ring(which))
            })
            .collect();
        sleep_until_rung(&shared);
        for thread in threads {
            thread.join().unwrap();
        }
        // One ring may have stood for both. If it did not, the other is still there to take.
        shared.doze();
        assert_eq!(shared.read(0) + shared.read(1), 2);
    });
}
