//! The number of an egress queue, as settings and schedulers name it.

use std::fmt;
use std::str::FromStr;

/// The queue that a word such as `q3` names; `None` if it names none.
///
/// # Errors
/// The number has a sign or leading zeros: each queue has one name, so that no setting is given twice.
pub(crate) fn queue_number<N: FromStr + fmt::Display>(word: &str) -> Result<Option<N>, String> {
    let number: Option<N> = word.strip_prefix('q').and_then(|n| n.parse().ok());
    match number.as_ref().map(|number| format!("q{number}")) {
        Some(name) if name != word => Err(format!("'{word}': write {name}")),
        _ => Ok(number),
    }
}
