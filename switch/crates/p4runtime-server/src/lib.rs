//! The control services of a switch: P4Runtime, and the traffic manager's own service, over
//! gRPC.
//!
//! The switch lives on a thread of its own and is never locked: the server sends it closures
//! ([`executor::Executor`]) that run between packets. Packets for the controller come the other
//! way through a bounded queue ([`packet_io::packet_in_channel`]).
//!
//! ```text
//!   gRPC clients ── server ─┬─ arbitration      who may write
//!                           ├─ pipeline_config  which program, checked against its P4Info
//!                           ├─ write, read      entities <-> data plane, by translate
//!                           ├─ packet_io        packet-in, packet-out
//!                           └─ tm_service       ports and statistics
//!                                 │ executor::with(closure)        ▲ packet-ins
//!                                 ▼                                │
//!                           thread that owns the switch ───────────┘
//! ```
//!
//! Implements P4Runtime 1.4.1 (see [`server::P4RUNTIME_API_VERSION`]); section names in comments
//! are those of its specification.

pub mod arbitration;
pub mod bytestring;
pub mod error;
pub mod executor;
pub mod packet_io;
pub mod server;
pub mod tm_service;

mod pipeline_config;
mod read;
mod stream;
mod translate;
mod write;

/// The protocols' messages and services, generated at build time.
pub mod proto {
    #![allow(missing_docs, clippy::all)]
    include!(concat!(env!("OUT_DIR"), "/protocols.rs"));
}

pub use executor::{
    CompiledProgram, Compiler, ExecuteError, Executor, Job, JobQueue, ProgramInfo, Switch,
};
pub use packet_io::{PacketInReceiver, PacketInSender, packet_in_channel};
pub use server::{BoundServer, ServeError, ServerConfig, bind};
pub use tm_service::TrafficManagerControl;
