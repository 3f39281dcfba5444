//! Limits of the server.

use std::time::Duration;

/// Limits of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThriftLimits {
    /// Most connections of holders. Each has a thread.
    pub connections: usize,
    /// Most connections of strangers.
    pub stranger_connections: usize,
    /// Longest message, in bytes, but for a program.
    pub message_bytes: usize,
    /// Longest message with a program, in bytes.
    pub program_bytes: usize,
    /// Most elements of a list in a message.
    pub list_elements: usize,
    /// Most entries, members, groups or cells in an answer.
    pub answer_elements: usize,
    /// Most answers with more than a few elements at once, for all holders together. Strangers may have half
    /// as many, beside those of holders.
    pub long_answers: usize,
    /// How long a message may take to come after its first byte, and an answer to be taken.
    pub message_time: Duration,
}

impl Default for ThriftLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            stranger_connections: 16,
            message_bytes: 1 << 20,
            program_bytes: 64 << 20,
            list_elements: 4_096,
            answer_elements: 1 << 20,
            long_answers: 4,
            message_time: Duration::from_secs(10),
        }
    }
}
