//! The switch itself, without clock or I/O: a frame comes in with its arrival time, and frames go
//! out to a [`Sink`] with their delivery times.
//!
//! ```text
//!            receive(port, frame, arrival_ns, now_ns)
//!                  |
//!   v1model ingress: parser, checksums, ingress control
//!                  |        unicast, replicas (replication.rs), or a counted drop
//!   traffic manager: holds until departure time, drop-tail FIFO, line rate
//!                  |        poll(now_ns): due packets start
//!   v1model egress: egress control, checksums, deparser
//!                  |
//!   traffic manager: propagation delay
//!                  |
//!            sink.transmit(port, frame, delivery_ns)
//! ```
//!
//! Digests are collected on the way (learning.rs); lists of them and entries that have become idle
//! leave by `sink.notify` when their time has come.
//!
//! The same code runs in real time and in virtual time: the driver owns the clock. It calls
//! [`Switch::receive`] for each frame, or a [`Batch`] for many; then [`Switch::poll`], and again at
//! [`Switch::poll_at_ns`].

mod batch;
mod config;
mod control;
mod copies;
mod destination;
mod dry_run;
mod egress;
mod externs;
mod handover;
mod header_fields;
mod learning;
mod loading;
pub mod notification;
mod pause_frame;
mod polling;
mod pool;
mod program;
mod recirculation;
mod reentry;
mod replica_store;
mod switch;
pub mod trace;

pub use batch::Batch;
pub use config::SwitchConfig;
pub use dry_run::{DryRun, DryRunError};
pub use loading::{Compiler, Retired};
pub use polling::{Polling, Stalls};
pub use program::{Counters, Leaving, Program, Sink};
pub use replica_store::{CloneSession, GroupLimits, Replica, ReplicaStore};
pub use switch::{Received, SettingsError, Switch, Trains};
