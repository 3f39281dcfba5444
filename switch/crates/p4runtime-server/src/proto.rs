//! The protocols' messages and services, generated at build time.

#![allow(missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/protocols.rs"));
