//! The thread that receives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ports::{FrameWaker, LinkState, Waiter, clock};
use rtrb::{Consumer, Producer};

use super::polling::polls_until_ns;
use super::rings::{Counters, Received};
use crate::real_time::port_set::PortSet;

/// Most frames taken before the loop is told.
const BATCH_FRAMES: usize = 16;
/// Time between two looks at a ring to the loop that is full, ns.
const FULL_NS: u64 = 20_000;

/// Takes frames from the kernel, and hands them to the loop in the order of their arrival.
pub(super) struct Receiver {
    pub(super) ports: PortSet,
    pub(super) waiter: Waiter,
    pub(super) frames: Producer<Received>,
    /// Buffers that come back.
    pub(super) buffers: Consumer<Vec<u8>>,
    pub(super) to_loop: FrameWaker,
    pub(super) counters: Counters,
    pub(super) stop: Arc<AtomicBool>,
}

impl Receiver {
    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut last_frame_ns = 0;
        while !self.stop.load(Ordering::Acquire) {
            let now_ns = clock::now_ns();
            if self.take_batch(now_ns) {
                last_frame_ns = now_ns;
                continue;
            }
            let ports = &self.ports;
            let woken = if self.frames.is_full() {
                self.waiter.sleep_until(now_ns, now_ns + FULL_NS)?
            } else {
                let until_ns = polls_until_ns(now_ns, last_frame_ns);
                self.waiter
                    .wait(now_ns, until_ns, |_| ports.is_any_readable())?
            };
            self.ports.note_readable(self.waiter.readable());
            if woken.error {
                self.take_errors();
            }
        }
        Ok(())
    }

    /// Takes a batch of frames. False: there are none, or there is no room for them.
    fn take_batch(&mut self, now_ns: u64) -> bool {
        let mut taken = 0;
        while taken < BATCH_FRAMES && !self.frames.is_full() {
            let Some((arrival_ns, at)) = self.ports.earliest(now_ns) else {
                break;
            };
            if let Some(frame) = self.ports.receive(at, now_ns) {
                let mut bytes = self.buffers.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(frame.bytes());
                let in_train = frame.in_train;
                drop(frame);
                let pushed = self.frames.push(Received {
                    at,
                    arrival_ns,
                    in_train,
                    bytes,
                });
                debug_assert!(pushed.is_ok(), "this thread alone fills the ring");
            }
            taken += 1;
            if let (Some((port, _)), Some(counters)) = (self.ports.get(at), self.counters.get(at)) {
                counters.store(port.counters());
            }
        }
        if taken > 0 {
            self.to_loop.wake();
        }
        taken > 0
    }

    /// Takes the errors of interfaces, which would end each wait. The loop finds out the states.
    fn take_errors(&mut self) {
        for at in 0.. {
            let Some((port, token)) = self.ports.get(at) else {
                return;
            };
            if self.waiter.has_error(token) {
                let _ = port.take_error();
                if port.link_state() == LinkState::Gone {
                    self.waiter.remove(port);
                }
            }
        }
    }
}
