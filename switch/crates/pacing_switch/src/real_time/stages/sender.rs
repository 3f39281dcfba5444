//! The thread that sends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ports::{Waiter, clock};
use rtrb::{Consumer, Producer};

use super::polling::polls_until_ns;
use super::rings::{CHUNK_FRAMES, Counters, StuckPorts, ToSend};
use crate::real_time::port_set::PortSet;

/// Hands frames of the loop to the kernel.
pub(super) struct Sender {
    pub(super) ports: PortSet,
    pub(super) waiter: Waiter,
    pub(super) frames: Consumer<ToSend>,
    /// Buffers that go back.
    pub(super) buffers: Producer<Vec<u8>>,
    pub(super) counters: Counters,
    pub(super) stuck: Arc<StuckPorts>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Sender {
    /// Runs until it is told to stop and all frames are sent.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut last_frame_ns = 0;
        loop {
            // It is read first: frames that come before are sent.
            let stop = self.stop.load(Ordering::Acquire);
            let sent = self.send_some();
            let now_ns = clock::now_ns();
            let retry_ns = self.offer_again(now_ns);
            if sent {
                last_frame_ns = now_ns;
                continue;
            }
            if stop {
                return Ok(());
            }
            let polls_until_ns = polls_until_ns(now_ns, last_frame_ns);
            let until_ns = polls_until_ns.into_iter().chain(retry_ns).min();
            let frames = &self.frames;
            self.waiter.wait(now_ns, until_ns, |_| !frames.is_empty())?;
        }
    }

    /// Sends the frames that are to leave now, at most a few chunks. False: there are none.
    fn send_some(&mut self) -> bool {
        let mut sent = 0;
        let mut whole = true;
        // A chunk is sent whole: the loop is about to hand over the rest of one that has begun.
        while sent < CHUNK_FRAMES || !whole {
            let Ok(mut frame) = self.frames.pop() else {
                if whole {
                    break;
                }
                std::thread::yield_now();
                continue;
            };
            let place = frame.frame;
            self.ports
                .send_buffer(frame.at, &mut frame.buffer, place, frame.sending);
            // A buffer for which there is no room is freed.
            let _ = self.buffers.push(frame.buffer);
            whole = frame.flush;
            sent += 1;
        }
        if sent == 0 {
            return false;
        }
        self.ports.flush();
        self.publish_counters();
        true
    }

    /// Offers the kernel again the frames that it did not take, if it is time, and tells the loop whose
    /// they are. Returns the time of the next offer, if there is to be one.
    fn offer_again(&mut self, now_ns: u64) -> Option<u64> {
        let retry_ns = self.ports.flush_stuck(now_ns, |_| true);
        if !self.stuck.tell(&self.ports) {
            return None;
        }
        self.publish_counters();
        Some(retry_ns)
    }

    fn publish_counters(&self) {
        for (port, counters) in self.ports.iter().zip(&*self.counters) {
            counters.store(port.counters());
        }
    }
}
