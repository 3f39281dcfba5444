//! The control services of a switch: P4Runtime, and the traffic manager's own service, over
//! gRPC.
//!
//! The switch lives on a thread of its own and is never locked. The server sends closures
//! ([`executor::Executor`]) to that thread, which runs them between packets. Packets and
//! notifications for controllers come back through bounded queues ([`controller_queues`]).
//!
//! ```text
//!   gRPC clients ── server ─┬─ arbitration      the primary of each role
//!                           ├─ pipeline_config  the program, checked against its P4Info
//!                           ├─ write: plan      updates -> operations, by translate
//!                           │         batch of operations applied, taken back
//!                           ├─ read             program -> entities, by translate
//!                           ├─ stream           packet I/O, digests, idle timeouts
//!                           └─ tm_service       ports and statistics
//!                                 │ executor::with(closure)        ▲ controller_queue
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
pub mod proto;
pub mod server;
pub mod tm_service;
mod tracing_service;

mod answer;
mod batch;
mod beside;
mod connections;
mod controller_queue;
mod egress_queues;
mod ids;
mod intake;
mod notifications;
mod operation;
mod packet_io;
mod pipeline_config;
mod plan;
mod read;
mod reconcile;
mod refusals;
mod roles;
mod sessions;
mod shared;
mod sock_diag;
mod standing;
mod state;
mod stream;
mod tls;
mod token;
mod translate;
mod write;
mod writers;

pub use beside::{Beside, Changing, Reading, SetProgram};
pub use controller_queue::{
    ControllerCounters, ControllerLosses, ControllerReceiver, ControllerSender, controller_queues,
};
pub use executor::{ExecuteError, Executor, Job, JobQueue, Visit};
pub use refusals::{RefusalCount, Refusals};
pub use server::{BoundServer, ServeError, bind, listen};
pub use shared::{ServerConfig, ServerLimits};
pub use standing::{Standing, kernel_tells_users, standing_here};
pub use tls::Tls;
pub use token::{TOKEN_CHARACTERS_MIN, Token};
pub use translate::{Mappings, MappingsError};
