//! Digests for subscribers, as BMv2 publishes them: learning messages over nanomsg.
//!
//! * [`Address`]: where subscribers connect, `ipc://PATH` or `tcp://127.0.0.1:PORT`.
//! * [`Publisher`]: the PUB side of nanomsg's publish/subscribe protocol. Only the few bytes of it that
//!   a publisher needs are here, instead of a binding to the C library: a handshake of eight bytes, and
//!   the length before each message ("SP TCP Mapping" and "SP IPC Mapping", nanomsg's rfc folder).
//! * [`learning_message`]: a digest list in BMv2's form (`learning.h`, `msg_hdr_t`).
//!
//! A subscriber that does not keep up loses messages; they are counted.

mod address;
mod learning;
mod publisher;

pub use address::{Address, AddressError};
pub use learning::learning_message;
pub use publisher::Publisher;
