//! The refusal of a translation.

/// Why a program is not translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untranslated(pub String);

pub(super) type Result<T> = std::result::Result<T, Untranslated>;

impl Untranslated {
    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }

    /// A fault of the compiled form.
    pub(super) fn missing(what: &str) -> Self {
        Self(format!("{what} is not there"))
    }
}
