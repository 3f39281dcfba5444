//! Notifications for subscribers, as BMv2 publishes them over nanomsg: digests, idle entries, ports.
//!
//! * [`Address`]: where subscribers connect, `ipc://PATH` or `tcp://127.0.0.1:PORT`.
//! * [`Publisher`]: the PUB side of nanomsg's publish/subscribe protocol. Only the few bytes of it that
//!   a publisher needs are here, instead of a binding to the C library: a handshake of eight bytes, and
//!   the length before each message ("SP TCP Mapping" and "SP IPC Mapping", nanomsg's rfc folder).
//! * [`learning_message`]: a digest list in BMv2's form (`learning.h`, `msg_hdr_t`).
//! * [`ageing_messages`]: idle entries in BMv2's form (`ageing.h`).
//! * [`ports_message`]: states of ports in BMv2's form (`port_monitor.h`).
//!
//! A subscriber that does not keep up loses messages; they are counted.

mod address;
mod messages;
mod publisher;

pub use address::{Address, AddressError};
pub use messages::{ageing_messages, learning_message, ports_message};
pub use publisher::Publisher;
