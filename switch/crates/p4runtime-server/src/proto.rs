//! The protocols' messages and services, generated at build time.

#![allow(missing_docs, clippy::all, clippy::too_many_lines)]

include!(concat!(env!("OUT_DIR"), "/protocols.rs"));
