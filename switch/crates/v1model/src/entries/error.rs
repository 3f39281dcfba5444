//! Errors of control requests.

/// The error of a refused control request. Each kind maps to one gRPC status code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub enum ControlError {
    /// An argument is invalid. The text names it and the expected values.
    InvalidArgument(String),
    /// The object or entry does not exist.
    NotFound(String),
    /// The object or entry exists already.
    AlreadyExists(String),
    /// A limit is reached (table full, too many groups); names the limit.
    ResourceExhausted(String),
    /// The program forbids the change (const entries, const default action).
    PermissionDenied(String),
    /// The object is in use, or no program is loaded.
    FailedPrecondition(String),
    /// The program or this target does not have the feature.
    Unimplemented(String),
    /// A fault of the switch itself.
    Internal(String),
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
            | Self::Unimplemented(m)
            | Self::Internal(m) => m,
        }
    }
}

/// Result of a control request.
pub type ControlResult<T> = Result<T, ControlError>;

/// Refuses a request with invalid arguments.
pub(crate) fn invalid<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::InvalidArgument(message.into()))
}

/// Ends a request in a state that cannot occur. Panics in debug builds.
pub(crate) fn internal<T>(message: impl Into<String>) -> ControlResult<T> {
    let message = message.into();
    debug_assert!(false, "{message}");
    Err(ControlError::Internal(message))
}

/// Refuses a request for something that does not exist.
pub(crate) fn not_found<T>(message: impl Into<String>) -> ControlResult<T> {
    Err(ControlError::NotFound(message.into()))
}
