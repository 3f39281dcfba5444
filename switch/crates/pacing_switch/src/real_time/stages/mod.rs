//! Receiving and sending by threads of their own, on both sides of the loop.
//!
//! ```text
//! kernel --> receiver --(ring)--> loop: program and traffic manager --(ring)--> sender --> kernel
//! ```
//!
//! The loop owns all state, so nothing is locked. The rings are bounded and have one producer and one
//! consumer each. While the first is full, frames wait in the kernel's rings, which count what they lose.
//! While the second is full, the loop waits, as it does for a system call that sends. The thread that sends
//! tells the loop of interfaces that take no frames, whose lines the loop holds. Buffers go back
//! by two further rings, so no memory is allocated for a frame.
//!
//! The receiver merges the frames of all ports by arrival time, and the sender gets frames as the loop
//! collects them, so order and trains are as with one thread.

mod polling;
mod receiver;
mod rings;
mod sender;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_utils::atomic::AtomicCell;
use ports::{
    FrameWaker, LinkState, Port, PortStatistics, Sending, Waiter, WaiterOptions, Waker, Watch,
};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use super::port_set::PortSet;
use polling::SPIN_NS;
use receiver::Receiver;
use rings::{CHUNK_FRAMES, Counters, RING_FRAMES, Received, StuckPorts, ToSend};
use sender::Sender;

/// A port of a switch with stages.
struct Watched {
    watch: Watch,
    /// Frames that its ring had no room for.
    ring_full: u64,
}

/// The loop's side of the two threads.
pub struct Stages {
    received: Consumer<Received>,
    /// Buffers of received frames on their way back.
    used: Producer<Vec<u8>>,
    to_send: Producer<ToSend>,
    /// Buffers of sent frames on their way back.
    spare: Consumer<Vec<u8>>,
    /// Frames collected, not yet handed to the sender.
    collected: Vec<ToSend>,
    sender: FrameWaker,
    receiver: Waker,
    watched: Vec<Watched>,
    counters: [Counters; 2],
    stuck: Arc<StuckPorts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Stages {
    /// Starts the threads. `ports`: of each interface the port that receives and the one that sends.
    /// `loop_waker` ends the waits of the loop. `realtime`: the loop has a real-time scheduling class.
    ///
    /// # Errors
    /// No descriptors, threads or memory left.
    pub fn start(
        ports: Vec<(Port, Port)>,
        loop_waker: FrameWaker,
        realtime: bool,
    ) -> io::Result<Self> {
        let options = WaiterOptions { spin_ns: SPIN_NS };
        let (mut receiving_waiter, sending_waiter) = (Waiter::new(options)?, Waiter::new(options)?);
        let counters = [(); 2].map(|()| {
            let ports = ports.iter().map(|_| AtomicCell::default());
            ports.collect::<Counters>()
        });
        let stuck = Arc::new(StuckPorts::new(ports.len()));
        let (mut receiving, mut sending) = (PortSet::new(), PortSet::new());
        let mut watched = Vec::new();
        // Ports that send only have no frames to wait for.
        let mut no_frames = Waiter::new(options)?;
        for (receives, sends) in ports {
            watched.push(Watched {
                watch: receives.watch()?,
                ring_full: 0,
            });
            receiving.add(receives, &mut receiving_waiter)?;
            sending.add(sends, &mut no_frames)?;
        }
        let (received_to, received) = RingBuffer::new(RING_FRAMES);
        let (used, unused) = RingBuffer::new(RING_FRAMES);
        let (to_send, to_send_from) = RingBuffer::new(RING_FRAMES);
        let (spare_to, spare) = RingBuffer::new(RING_FRAMES);
        let stop = Arc::new(AtomicBool::new(false));
        let (receiver_waker, sender_waker) =
            (receiving_waiter.waker(), sending_waiter.frame_waker());
        let receiver = Receiver {
            ports: receiving,
            waiter: receiving_waiter,
            frames: received_to,
            buffers: unused,
            to_loop: loop_waker.clone(),
            counters: Arc::clone(&counters[0]),
            stop: Arc::clone(&stop),
        };
        let sender = Sender {
            ports: sending,
            waiter: sending_waiter,
            frames: to_send_from,
            buffers: spare_to,
            counters: Arc::clone(&counters[1]),
            stuck: Arc::clone(&stuck),
            stop: Arc::clone(&stop),
        };
        let begin = move || {
            if realtime {
                // Without the class it is slower and does the same.
                let _ = ports::scheduling::become_realtime();
            }
        };
        let receive = thread::Builder::new().name("receive".to_owned());
        let send = thread::Builder::new().name("send".to_owned());
        let threads = vec![
            receive.spawn(move || {
                begin();
                receiver.run()
            })?,
            send.spawn(move || {
                begin();
                sender.run()
            })?,
        ];
        Ok(Self {
            received,
            used,
            to_send,
            spare,
            collected: Vec::with_capacity(CHUNK_FRAMES),
            sender: sender_waker,
            receiver: receiver_waker,
            watched,
            counters,
            stuck,
            stop,
            threads,
        })
    }

    /// Whether a frame has been received.
    pub fn has_frame(&self) -> bool {
        !self.received.is_empty()
    }

    /// The earliest frame: its arrival time, and the place of its port.
    pub fn earliest(&mut self) -> Option<(u64, usize)> {
        let next = self.received.peek().ok()?;
        Some((next.arrival_ns, next.at))
    }

    /// Takes the earliest frame: `take` gets its bytes, and whether it is a segment of a train.
    pub fn receive(&mut self, take: impl FnOnce(&[u8], bool)) {
        if let Ok(frame) = self.received.pop() {
            take(&frame.bytes, frame.in_train);
            // There is room: no more buffers are under way than the ring of frames holds and the
            // receiver has in hand. One too many is freed.
            let _ = self.used.push(frame.bytes);
        }
    }

    /// Has a port send a copy of a frame at the next [`flush`](Self::flush).
    pub fn send(&mut self, at: usize, frame: &[u8], sending: Sending) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.collect(at, buffer, 0..frame.len(), sending);
    }

    /// As [`send`](Self::send), of the frame at `frame` of `buffer`, which is exchanged for another one.
    pub fn send_buffer(
        &mut self,
        at: usize,
        buffer: &mut Vec<u8>,
        frame: Range<usize>,
        sending: Sending,
    ) {
        let other = self.spare.pop().unwrap_or_default();
        let buffer = std::mem::replace(buffer, other);
        self.collect(at, buffer, frame, sending);
    }

    fn collect(&mut self, at: usize, buffer: Vec<u8>, frame: Range<usize>, sending: Sending) {
        if self.collected.len() >= CHUNK_FRAMES {
            self.flush();
        }
        self.collected.push(ToSend {
            at,
            buffer,
            frame,
            sending,
            flush: false,
        });
    }

    /// Hands the collected frames to the sender.
    pub fn flush(&mut self) {
        let Some(last) = self.collected.last_mut() else {
            return;
        };
        last.flush = true;
        for frame in self.collected.drain(..) {
            let mut left = self.to_send.push(frame);
            while let Err(PushError::Full(frame)) = left {
                if self.to_send.is_abandoned() {
                    return; // the sender has ended, and the loop soon does
                }
                self.sender.wake();
                // Not a loop that only spins: the sender may be on the same processor, in the same
                // real-time class.
                thread::yield_now();
                left = self.to_send.push(frame);
            }
        }
        self.sender.wake();
    }

    /// Number of interfaces that do not take all frames.
    pub fn stuck(&self) -> usize {
        self.stuck.count()
    }

    /// Whether the interface at a place does not take all frames.
    pub fn is_stuck(&self, at: usize) -> bool {
        self.stuck.is_stuck(at)
    }

    /// State of the interface at a place.
    pub fn link_state(&self, at: usize) -> LinkState {
        let watched = self.watched.get(at);
        watched.map_or(LinkState::Gone, |watched| watched.watch.link_state())
    }

    /// Counters of the interface at a place. Asks the kernel for lost frames.
    pub fn statistics(&mut self, at: usize) -> PortStatistics {
        let Some(watched) = self.watched.get_mut(at) else {
            return PortStatistics::default();
        };
        watched.ring_full += watched.watch.take_ring_full().unwrap_or(0);
        let [received, sent] = self
            .counters
            .each_ref()
            .map(|counters| counters.get(at).map(AtomicCell::load).unwrap_or_default());
        let mut all = received.with_sending(sent);
        all.rx_ring_full += watched.ring_full;
        all
    }

    /// Whether both threads run. They end early only if the kernel refuses to wait.
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Has the collected frames sent, and ends the threads.
    ///
    /// # Errors
    /// One of them ended earlier, because the kernel refused to wait.
    pub fn stop(&mut self) -> io::Result<()> {
        // A sender that has ended takes none.
        if self.is_running() {
            self.flush();
        }
        self.stop.store(true, Ordering::Release);
        self.receiver.wake();
        self.sender.wake();
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            let joined = thread.join().unwrap_or_else(|_| {
                let message = "the thread panicked";
                Err(io::Error::other(message))
            });
            ended = ended.and(joined);
        }
        ended
    }
}
