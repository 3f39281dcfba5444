//! The errors of refused programs.

/// A program that cannot be loaded: the place in the JSON, and the error. The place names the object
/// the way a reader of the JSON would look for it, for example
/// `pipeline 'ingress': table 'PacerIngress.flows'`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// The result of a step of loading.
pub type LoadResult<T> = Result<T, LoadError>;

impl LoadError {
    /// Makes an error without a place; callers add it with [`At::at`].
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Adds the enclosing object to an error's place.
pub(crate) trait At<T> {
    /// Puts `place()`, evaluated only on error, before the error's text.
    fn at<S: AsRef<str>>(self, place: impl FnOnce() -> S) -> LoadResult<T>;
}

impl<T> At<T> for LoadResult<T> {
    fn at<S: AsRef<str>>(self, place: impl FnOnce() -> S) -> LoadResult<T> {
        self.map_err(|LoadError(text)| LoadError(format!("{}: {text}", place().as_ref())))
    }
}

/// Returns a [`LoadError`] with a formatted message.
macro_rules! refuse {
    ($($arg:tt)*) => { return Err($crate::error::LoadError::new(format!($($arg)*))) };
}
pub(crate) use refuse;
