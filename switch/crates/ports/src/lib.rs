//! Ethernet ports of `pacing_switch` on Linux, with the waiting and the clock that the loop over them
//! needs. The crate has all `unsafe` code of the switch but one instruction (crate `prefetch`), and
//! is the only one that uses the kernel for frames, time and memory.
//!
//! * [`Port`]: an interface, by AF_PACKET or AF_XDP ([`PortDriver`]): receive ring, send batches,
//!   counters per cause.
//! * [`Waiter`], [`Waker`]: wait for frames, other threads, signals and deadlines, in one system
//!   call.
//! * [`clock`]: the only place that reads a clock.
//! * [`HugePages`]: an allocator that backs large allocations with huge pages.
//! * [`checksum`]: completes checksums that senders left to their hardware.
//! * [`scheduling`]: the scheduling class of a thread.
//! * [`train`]: takes frames of several segments apart.
//! * [`joining`]: makes one frame of segments that leave one after the other.
//!
//! A loop that forwards single frames makes two system calls for each, wait and send, plus the
//! clock reading where that is one (User-Mode Linux); under load far fewer, for frames come and go
//! in batches.
//!
//! # Choices, with measurements
//! On a veth pair, Linux 6.18, 2 shared vCPUs; take the figures as ratios.
//!
//! * **Sending by send(2) and sendmmsg(2), not by PACKET_TX_RING.** Thousand frames per second, of
//!   60 and of 1500 bytes:
//!
//!   | | send | sendmmsg | TX ring |
//!   |---|---|---|---|
//!   | one frame at a time | 1450, 1400 | 1290, 1230 | 1140, 1130 |
//!   | batches of 64 | 1420, 1390 | 1605, 1430 | 1540, 1395 |
//!
//!   So single frames leave by send (unless with a time), batches by sendmmsg. (Pages of a ring
//!   must not reach another receiver, so on a veth the kernel copies them all the same.)
//! * **PACKET_QDISC_BYPASS is off**: within 5 % on a veth, which has no queueing discipline, and
//!   captures on the interface would miss the frames.
//! * **Receiving by a ring, TPACKET_V2**: no system call per frame. Version 3 hands over blocks,
//!   and one that is not full only by a timer of 1 ms or more.
//! * **Waiting by epoll_pwait2(2) with the kernel's slack taken off the timeout** (see [`Waiter`]): exact
//!   to the nanosecond in virtual time, in one system call. Without that a wait of 0.5 s ends
//!   0.5 ms late, in virtual as in real time (measured in real time: 569 us; with it: 52 us).
//! * **AF_XDP's rings and program by system calls of our own.** Of the crates, `xsk-rs` and aya need C
//!   or an object file made by a BPF compiler, `xdpilone` is under the EUPL, and `xdp` neither shows
//!   a received frame without taking it nor the flag that says whether the kernel wants a wake-up.
//!   The rest, two kinds of ring and a program of fifteen instructions, is small.
//! * **Stamps where the frame enters the network stack** (SO_TIMESTAMPNS), not where it reaches the
//!   ring.
//!
//! # Limits
//! Linux 4.20 or later, 5.9 for AF_XDP. Ethernet and loopback interfaces. One queue per port. Checksums of
//! TCP, UDP and ICMPv6 are completed, those inside tunnels other than VXLAN only where the kernel says which one is
//! left out (AF_PACKET with offloads); SCTP's is not (turn its offload off). Frames of several segments are taken apart if
//! they carry TCP or, from Linux 6.2 on, UDP, also inside VXLAN; others are counted and dropped. By AF_XDP
//! none leave. A port opened while its interface is down works once it is up; one whose interface was deleted
//! must be opened again.
//!
//! # Example
//!
//! ```no_run
//! use ports::{Port, PortOptions, Waiter, WaiterOptions, clock};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut ports = [
//!     Port::open("s1-eth1", &PortOptions::default())?,
//!     Port::open("s1-eth2", &PortOptions::default())?,
//! ];
//! let mut waiter = Waiter::new(WaiterOptions::default())?;
//! waiter.end_on_signals()?;
//! for port in &ports {
//!     waiter.add(port)?;
//! }
//! let mut now_ns = clock::now_ns();
//! loop {
//!     let deadline_ns = None; // when the traffic manager next wants to be polled
//!     let woken = waiter.wait(now_ns, deadline_ns, |_| ports.iter().any(Port::has_frame))?;
//!     if woken.signal.is_some() {
//!         break;
//!     }
//!     now_ns = clock::now_ns();
//!     let [left, right] = &mut ports;
//!     while let Some(frame) = left.receive(now_ns) {
//!         let _ = right.send(frame.bytes()); // counted if refused
//!     }
//!     right.flush();
//! }
//! # Ok(())
//! # }
//! ```

pub mod checksum;
pub mod clock;
mod driver;
mod frame;
pub mod joining;
mod link_state;
mod mapping;
mod memory;
mod opening;
mod options;
mod packet;
mod port;
mod qdisc;
mod ring;
pub mod scheduling;
mod signals;
mod sys;
pub mod train;
mod tx;
mod waiter;
mod wake_state;
mod watch;
mod xdp;
mod xdp_program;
mod xdp_ring;

pub use link_state::LinkState;
pub use memory::HugePages;
pub use options::{MAX_RX_FRAMES, PortDriver, PortError, PortMode, PortOptions};
pub use port::{Frame, MIN_FRAME_BYTES, Port, PortStatistics, SendRefused};
pub use tx::{Flushed, Sending};
pub use waiter::{FrameWaker, Token, Waiter, WaiterOptions, Waker, Woken};
pub use watch::Watch;
