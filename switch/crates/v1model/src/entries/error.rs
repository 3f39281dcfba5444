//! Why a control request is refused.

/// Why a control request was refused; each maps to one gRPC status code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// An argument is wrong by itself; the text names it and says what is right.
    InvalidArgument(String),
    /// The object or entry does not exist.
    NotFound(String),
    /// The object or entry exists already.
    AlreadyExists(String),
    /// A limit is reached (table full, too many groups); names the limit.
    ResourceExhausted(String),
    /// The program forbids it (const entries, const default action).
    PermissionDenied(String),
    /// The state of the switch does not allow it: no program is loaded, or the object is in use.
    FailedPrecondition(String),
    /// The program has no such feature, or this target does not do it.
    Unimplemented(String),
}

impl ControlError {
    /// The explanation, as shown to the user.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidArgument(m)
            | Self::NotFound(m)
            | Self::AlreadyExists(m)
            | Self::ResourceExhausted(m)
            | Self::PermissionDenied(m)
            | Self::FailedPrecondition(m)
            | Self::Unimplemented(m) => m,
        }
    }
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for ControlError {}

/// Result of a control request.
pub type ControlResult<T> = Result<T, ControlError>;

/// Refuses a request whose arguments are wrong.
pub(crate) fn invalid<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::InvalidArgument(message.into()))
}

/// Refuses a request for something that does not exist.
pub(crate) fn not_found<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::NotFound(message.into()))
}
