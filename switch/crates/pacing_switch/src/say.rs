//! Messages of the program on standard error, beside its log.

use std::io::Write;

/// Writes to standard error. A closed standard error does not end the switch.
pub fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
