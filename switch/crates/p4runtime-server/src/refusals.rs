//! Refusals of the control servers, counted by cause from the start of the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cause of the refusal of a connection, a call or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The limit of holders' connections was reached.
    ConnectionsFull,
    /// The limit of strangers' connections was reached.
    ConnectionsOfStrangersFull,
    /// A connection from another machine without credentials made room for a newer one.
    RemoteConnectionsFull,
    /// Such a connection made room for a newer one of its address.
    ConnectionsOfAddressFull,
    /// A connection from another machine made room for a newer one before its handshake ended.
    HandshakesFull,
    /// Such a connection made room for a newer one of its address.
    HandshakesOfAddressFull,
    /// A client did not complete the handshake of TLS, or did not begin that of HTTP/2, in time.
    ConnectionSlow,
    /// A connection was plain, but only TLS is served.
    NoTls,
    /// The handshake of TLS or HTTP/2 failed.
    Handshake,
    /// A call from another machine had no certificate or token, or had a wrong token.
    NoCredentials,
    /// A call that changes something did not come from the primary controller of its role.
    NotPrimary,
    /// A stranger asked to become primary after a holder had asked.
    Outbid,
    /// A stranger asked for traces of packets beside a holder.
    TraceOfStranger,
    /// The controller's role does not allow the request.
    Role,
    /// The limit of calls at once was reached.
    CallsFull,
    /// The limit of bytes of all calls together was reached.
    BytesFull,
    /// A message was longer than its call allows.
    MessageTooLong,
    /// A request did not arrive in time.
    RequestSlow,
    /// The limit of reads at once was reached.
    ReadsFull,
    /// The limit of open streams was reached.
    StreamsFull,
}

/// All causes with their stable names.
const CAUSES: [(Refusal, &str); 20] = [
    (Refusal::ConnectionsFull, "connections-full"),
    (
        Refusal::ConnectionsOfStrangersFull,
        "connections-of-strangers-full",
    ),
    (Refusal::RemoteConnectionsFull, "remote-connections-full"),
    (
        Refusal::ConnectionsOfAddressFull,
        "connections-of-address-full",
    ),
    (Refusal::HandshakesFull, "handshakes-full"),
    (
        Refusal::HandshakesOfAddressFull,
        "handshakes-of-address-full",
    ),
    (Refusal::ConnectionSlow, "connection-slow"),
    (Refusal::NoTls, "no-tls"),
    (Refusal::Handshake, "handshake"),
    (Refusal::NoCredentials, "no-credentials"),
    (Refusal::NotPrimary, "not-primary"),
    (Refusal::Outbid, "outbid"),
    (Refusal::TraceOfStranger, "trace-of-stranger"),
    (Refusal::Role, "role"),
    (Refusal::CallsFull, "calls-full"),
    (Refusal::BytesFull, "bytes-full"),
    (Refusal::MessageTooLong, "message-too-long"),
    (Refusal::RequestSlow, "request-slow"),
    (Refusal::ReadsFull, "reads-full"),
    (Refusal::StreamsFull, "streams-full"),
];

/// Refusals of one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusalCount {
    /// Stable name of the cause.
    pub cause: &'static str,
    /// The number of refusals.
    pub count: u64,
}

/// Returns the refusals of another control server on the same switch.
type Beside = Box<dyn Fn() -> Vec<RefusalCount> + Send + Sync>;

/// Counters of refusals.
#[derive(Default)]
pub struct Refusals {
    counts: [AtomicU64; CAUSES.len()],
    beside: OnceLock<Beside>,
}

impl Refusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        let at = CAUSES.iter().position(|(cause, _)| *cause == refusal);
        if let Some(count) = at.and_then(|at| self.counts.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds the refusals of another control server to [`Self::counts`]. There is at most one server.
    pub(crate) fn add_beside(&self, counts: Beside) {
        let added = self.beside.set(counts);
        debug_assert!(added.is_ok(), "a second control server beside this one");
    }

    /// Each cause with its count.
    pub fn counts(&self) -> Vec<RefusalCount> {
        let own = CAUSES.iter().zip(&self.counts);
        let own = own.map(|((_, cause), count)| RefusalCount {
            cause,
            count: count.load(Ordering::Relaxed),
        });
        let beside = self.beside.get().map(|counts| counts());
        own.chain(beside.into_iter().flatten()).collect()
    }
}
