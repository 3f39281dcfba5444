//! The traffic manager of `pacing_switch`: ports that behave like physical ones.
//!
//! A port has a line rate, a drop-tail FIFO in bytes for unpaced packets, one queue per paced
//! class, and a propagation delay. The pipeline puts packets in ([`TrafficManager::enqueue`]);
//! the driver takes them out as time passes. The crate has no clock, no I/O and no packet
//! content: time is an argument, and a packet is its length and an opaque payload `P` (a pool
//! index, for instance).
//!
//! # A packet's way
//!
//! ```text
//! enqueue --> unpaced FIFO --.
//!         \                   >-- dequeue --(egress pipeline)--> transmit --> delay line --> deliver
//!          `-> class queues -'                              `-> cancel, release
//! ```
//!
//! # The rules, exactly
//!
//! Instants are exact: unsigned fixed point, 24 bits below the nanosecond. `len` is the
//! packet's layer-2 length without FCS on arrival; frame bytes are `len + 4`.
//!
//! * **Eligible.** The head of a class queue may start from `E = max(departure_ns, R)`. `R` is
//!   the release clock of the (port, class), 0 at first. `departure_ns` is never taken to be
//!   before the packet's arrival.
//! * **Next transmission.** While the port waits for nothing (see [`TransmitToken`]), its next transmission is
//!   at `p = max(smallest E of all heads, port_free)` for paced packets and at
//!   `u = max(arrival_ns, port_free)` for the FIFO's head. If `p <= u` a paced packet goes,
//!   else the FIFO's head: paced packets have strict, non-preemptive priority.
//! * **Start, paced.** A poll at whole nanosecond `now` stands for the instants in
//!   `(now - 1, now]`. If `p` is among them, the packet starts at `p`, fraction included
//!   (virtual time is always like this). If `p` is earlier, the poll is late and the packet
//!   starts at `now`; only the rules below make up lost time. Of all heads with
//!   `E <= start`, the smallest (`departure_ns`, order of arrival) goes.
//! * **Stall rule.** On every paced start, `R' = max(R, start - allowance) + cost`.
//! * **Spaced catch-up**, for drivers that ask for it ([`TrafficManager::space_catch_up`]): after a
//!   packet that a late poll started late by more than an eighth of its cost, the next of its class
//!   has `E = max(departure_ns, R, S)`, `S = start + 7/8 cost`; after one that waited for `S`,
//!   `S' = S + 7/8 cost` (of when it could have gone: polls that are always late cost no rate). If
//!   none waits, `R' = max(R', S)`: it may wait up to a packet's time longer than it had to. S does not
//!   keep packets with the same `departure_ns` apart, because packets of a quantum leave together.
//! * **Egress queues** take the FIFO's place on a port that has them
//!   ([`TrafficManager::set_queues`]): `u = max(smallest E of all queues, port_free)`, and of the queues
//!   with `E <= u` the port's scheduler chooses one. So paced packets go before all queues.
//! * **A place for paced packets** in the scheduler's tree ([`Below::Paced`]) replaces that priority. The next
//!   transmission is at `x = max(smallest E of all heads and queues, port_free)`. At `x` the tree chooses among
//!   the queues and the leaf of the paced packets, which may send if a head has `E <= x`. A queue's packet starts
//!   at `x`, a paced one at `x` or, if the poll is late, at `now`, as above. A head arrives at the leaf, for
//!   weighted fair queueing, at its E.
//! * **Start, unpaced.** At `u`, even if the poll comes later: a link emulator must not add its
//!   own lateness. But an unpaced packet does not overtake a paced one because of a late poll:
//!   if a paced head was eligible at `u`, it goes first, at `now`, and the FIFO after it.
//! * **Line.** `port_free' = start + line_bytes * time per byte`, by the frame's length after
//!   egress; without a line rate, or if egress drops the frame, `port_free' = start`.
//!   So the starts of one port never go back in time.
//! * **Gap frames** ([`Gaps::PauseFrames`]): while a paced packet waits and none can start, PAUSE
//!   frames take the line like packets do, from `port_free` (or the packet's arrival, or a late
//!   poll's `now`, whichever is last) up to the next `E`, rounded up to a byte; see the rules in
//!   [`Gaps`]. A packet that arrives meanwhile waits for the end of the one on the line, and the
//!   stall rule does not count such a wait: `R' = max(R, start - wait - allowance) + cost`.
//! * **Delivery** to the interface is at `ceil(start) + delay_ns`, in order.
//! * **Order.** Over several ports, starts come by `ceil` of the scheduled instant, then by
//!   port number; deliveries by delivery time, then by port number.
//!
//! # Calls of the driver
//!
//! At the same instant, starts come before arrivals. So, in virtual time, for an arrival at
//! `t`: `dequeue(t, t)` until `None`, `enqueue`, `dequeue(t, t)` until `None`; between arrivals,
//! jump to [`TrafficManager::next_dequeue_ns`] or [`TrafficManager::next_delivery_ns`].
//!
//! ```
//! use traffic_manager::hold::{Hold, time_per_byte_q24};
//! use traffic_manager::{HeaderFields, Gaps, Limits, PortConfig, Queued, RateCounts, TrafficManager};
//!
//! fn start_all(tm: &mut TrafficManager<&'static str>, now_ns: u64) {
//!     while let Some(start) = tm.dequeue(now_ns, now_ns) {
//!         // Egress processing of `start.payload` would go here; it could also call `cancel`.
//!         if let Err(refused) = tm.transmit(start.token, start.length_bytes, start.payload) {
//!             eprintln!("{} dropped: {}", refused.payload, refused.cause);
//!         }
//!     }
//! }
//!
//! let mut tm = TrafficManager::new(Limits::default());
//! let config = PortConfig {
//!     line_rate_bps: Some(1_000_000_000),
//!     counts: RateCounts::Wire,
//!     fifo_bytes: 65_536,
//!     delay_ns: 5_000,
//!     gaps: Gaps::Accounted,
//! };
//! tm.add_port(1, config)?;
//!
//! // Two packets of 1514 bytes arrive at once: one of a class of 500 Mbit/s, due at 100 ns,
//! // and one unpaced.
//! let hold = Hold {
//!     class: 7,
//!     counts_to: None,
//!     departure_ns: 100,
//!     cost_q24: 1518 * time_per_byte_q24(500_000_000).ok_or("rate")?,
//!     allowance_ns: 24_288,
//! };
//! for (payload, hold) in [("paced", Some(hold)), ("unpaced", None)] {
//!     start_all(&mut tm, 0);
//!     let packet = Queued { payload, length_bytes: 1514, arrival_ns: 0, hold, queue: 0, header: HeaderFields::default() };
//!     tm.enqueue(1, packet).map_err(|refused| refused.cause.as_str())?;
//!     start_all(&mut tm, 0);
//! }
//!
//! // The unpaced one started at 0 and takes the line for 1538 * 8 ns.
//! assert_eq!(tm.next_dequeue_ns(), Some(12_304));
//! start_all(&mut tm, 12_304);
//! let delivered: Vec<_> = std::iter::from_fn(|| tm.deliver(20_000, 20_000))
//!     .filter_map(|d| Some((d.frame.packet()?, d.delivery_ns)))
//!     .collect();
//! assert_eq!(delivered, [("unpaced", 5_000), ("paced", 17_304)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In real time, packets are read some time after they arrived. To give a FIFO the occupancy that
//! it had at the packet's arrival, call [`TrafficManager::dequeue_unpaced`] up to the packet's
//! `arrival_ns` before `enqueue`. It starts the packets that the FIFOs had started by then, but
//! releases no paced packet (these start at the real `now`, by `dequeue`).
//!
//! # Limits
//!
//! Everything is bounded by [`Limits`]. A packet that does not fit is refused: its payload is
//! returned and the cause counted. Instants saturate at `u64::MAX` ns; a packet with that
//! departure time never leaves by itself.

mod cause;
mod class_sums;
mod config;
mod deadlines;
mod gaps;
pub mod hold;
mod manager;
mod packet;
mod paged;
mod port;
mod port_error;
mod queueing;
mod queues;
mod slab;
mod statistics;
mod time;
mod timer_wheel;

pub use cause::{DropCause, DropCount, DropCounters};
pub use class_sums::Held;
pub use config::{
    DELAY_MAX_NS, LINE_RATE_MAX_BPS, LINE_RATE_MIN_BPS, Limits, PortConfig, RateCounts,
};
pub use gaps::{GAP_FRAME_DEFAULT_BYTES, GAP_FRAME_MAX_BYTES, GAP_FRAME_MIN_BYTES, Gaps};
pub use manager::TrafficManager;
pub use packet::{
    Colour, Delivery, Dequeued, DroppedAtHead, Ecn, Frame, HeaderFields, Queued, Refused,
    TransmitToken,
};
pub use port_error::PortError;
pub use queueing::{
    AQM_TIME_MAX_NS, AqmConfig, AqmError, BUFFER_SHARE_MAX_PPM, BUFFER_SHARE_ONE_PPM, Below,
    Buffer, CHILDREN_MAX, CodelConfig, DEPTH_MAX, DEPTH_PACKETS_MAX, Discipline, DualPi2Config,
    FLOWS_MAX, FqCodelConfig, MaxRate, NODES_MAX, PieConfig, QUEUES_MAX, QueueConfig,
    QueueStatistics, QueueingConfig, QueueingError, Reads, RedConfig, RedProfile, Scheduler,
    SchedulerChild, SchedulerNode, WEIGHT_MAX,
};
pub use statistics::{
    BufferStatistics, PortStatistics, QueueState, Statistics, TIME_BUCKETS, TimeHistogram, Waiting,
};
