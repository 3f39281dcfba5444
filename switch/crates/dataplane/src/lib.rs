//! The words that the parts of `pacing_switch` use with each other.
//!
//! * [`control`]: what a control server (P4Runtime) may ask of a running program.
//! * [`profile`]: action profiles and selectors.
//! * [`notify`]: digests and idle entries.
//! * [`ports`]: what a control server may ask of the ports.
//! * [`switch`]: both, of one switch.
//! * [`hold`]: what the P4 program asks of the traffic manager for one packet.
//!
//! This crate holds no behaviour beyond small conversions: `switch-core` implements it with the
//! packet engine (`v1model`) and the traffic manager, `p4runtime-server` speaks it.

pub mod control;
pub mod hold;
pub mod notify;
pub mod ports;
pub mod profile;
pub mod switch;
