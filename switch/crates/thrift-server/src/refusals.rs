//! The server's refusals, counted by cause from the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use p4runtime_server::RefusalCount;

/// Why a connection or a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A client that is on another machine, or has closed its socket.
    NotHere,
    /// The limit of holders' connections was reached.
    ConnectionsFull,
    /// The limit of strangers' connections was reached.
    ConnectionsOfStrangersFull,
    /// A stranger's change, and holders control the switch.
    Stranger,
    /// A message longer than its limit.
    MessageTooLong,
    /// A list with too many elements.
    ListTooLong,
    /// A message that is none of Thrift's.
    Malformed,
    /// A message that did not come in time, or an answer that was not taken in time.
    Slow,
    /// An answer with too many elements.
    AnswerTooLong,
    /// The limit of long answers at once was reached.
    AnswersFull,
    /// Too many jobs waited for the switch.
    Busy,
}

/// All causes with their stable names.
const CAUSES: [(Refusal, &str); 11] = [
    (Refusal::NotHere, "thrift-not-here"),
    (Refusal::ConnectionsFull, "thrift-connections-full"),
    (
        Refusal::ConnectionsOfStrangersFull,
        "thrift-connections-of-strangers-full",
    ),
    (Refusal::Stranger, "thrift-stranger"),
    (Refusal::MessageTooLong, "thrift-message-too-long"),
    (Refusal::ListTooLong, "thrift-list-too-long"),
    (Refusal::Malformed, "thrift-malformed"),
    (Refusal::Slow, "thrift-slow"),
    (Refusal::AnswerTooLong, "thrift-answer-too-long"),
    (Refusal::AnswersFull, "thrift-answers-full"),
    (Refusal::Busy, "thrift-busy"),
];

/// Counters of refusals.
#[derive(Debug, Default)]
pub(crate) struct ThriftRefusals {
    counts: [AtomicU64; CAUSES.len()],
}

impl ThriftRefusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        let at = CAUSES.iter().position(|(cause, _)| *cause == refusal);
        if let Some(count) = at.and_then(|at| self.counts.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each cause with its count.
    pub(crate) fn counts(&self) -> Vec<RefusalCount> {
        let counts = CAUSES.iter().zip(&self.counts);
        counts
            .map(|((_, cause), count)| RefusalCount {
                cause,
                count: count.load(Ordering::Relaxed),
            })
            .collect()
    }
}
