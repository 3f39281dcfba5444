//! BMv2's Thrift services: a module for each of the interface files in `switch/thrift`.
//!
//! Everything but this file is generated: change the interface files, then run `make thrift`.

#![allow(clippy::all, clippy::too_many_lines, missing_docs, unused)]

pub mod simple_pre;
pub mod simple_pre_lag;
pub mod simple_switch;
pub mod standard;
