//! Why a program was refused.

/// A program that cannot be loaded: what is wrong, and where in the JSON.
///
/// `place` names the object the way a reader of the JSON would look for it, for example
/// `pipeline 'ingress': table 'PacerIngress.flows'`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", self.prefix())]
pub struct LoadError {
    place: String,
    message: String,
}

/// The result of a step of loading.
pub type LoadResult<T> = Result<T, LoadError>;

impl LoadError {
    /// Makes an error without a place; callers add it with [`At::at`].
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            place: String::new(),
            message: message.into(),
        }
    }

    /// Where in the program the error is; empty when it concerns the whole file.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The place as it stands before the message.
    fn prefix(&self) -> String {
        if self.place.is_empty() {
            return String::new();
        }
        format!("{}: ", self.place)
    }

    /// Adds the enclosing object to the place.
    fn inside(mut self, outer: &str) -> Self {
        self.place = if self.place.is_empty() {
            outer.to_owned()
        } else {
            format!("{outer}: {}", self.place)
        };
        self
    }
}

/// Adds the enclosing object to an error's place.
pub(crate) trait At<T> {
    /// Prefixes the error's place with `place()`, evaluated only on error.
    fn at<S: AsRef<str>>(self, place: impl FnOnce() -> S) -> LoadResult<T>;
}

impl<T> At<T> for LoadResult<T> {
    fn at<S: AsRef<str>>(self, place: impl FnOnce() -> S) -> LoadResult<T> {
        self.map_err(|e| e.inside(place().as_ref()))
    }
}

/// Returns a [`LoadError`] with a formatted message.
macro_rules! refuse {
    ($($arg:tt)*) => { return Err($crate::error::LoadError::new(format!($($arg)*))) };
}
pub(crate) use refuse;
