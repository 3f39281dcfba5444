//! BMv2's Thrift services `standard`, `simple_pre`, `simple_pre_lag` and `simple_switch`, so that its
//! command lines (`runtime_CLI`, `simple_switch_CLI`) and tools made for them work.
//!
//! ```text
//!   Thrift clients ── connections ── session ── protocol   bounded messages
//!                                      │
//!          ┌───────────┬───────────────┼───────────────┐
//!       standard   simple_pre   simple_pre_lag   simple_switch
//!          └───────────┴───────┬───────┴───────────────┘
//!                           control     who may change; jobs for the switch's thread
//!                              │
//!                       p4runtime_server::Beside
//! ```
//!
//! A client sees the program that P4Runtime's controllers see, and changes wait for each other. A
//! connection has a thread of its own, which answers one call after the other. Refused calls are
//! answered with BMv2's exceptions.

mod connections;
mod control;
mod errors;
mod limits;
mod mirrors;
mod pre;
mod programs;
mod protocol;
mod queues;
mod refusals;
mod replication;
mod session;
mod simple_pre;
mod simple_switch;
mod standard;

pub use connections::{ThriftConfig, ThriftServer, listen};
pub use limits::ThriftLimits;
