//! Messages of `log_msg`: a format string, parsed at load, and the values that it shows.

use crate::error::{LoadResult, refuse};
use crate::slot::Slot;
use crate::wide::negate;
use std::fmt::Write;

/// A value that a message shows, in decimal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    /// The slot of its first limb.
    pub slot: Slot,
    pub limbs: u32,
    /// Two's complement.
    pub signed: bool,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Value(Argument),
}

/// A message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    parts: Vec<Part>,
}

impl Message {
    /// Parses a format string: `{}` stands for the next argument, `\{` and `\}` for braces.
    pub fn new(format: &str, arguments: Vec<Argument>) -> LoadResult<Self> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut arguments = arguments.into_iter();
        let mut rest = format.chars();
        while let Some(ch) = rest.next() {
            match ch {
                '\\' => match rest.next() {
                    Some(brace @ ('{' | '}')) => text.push(brace),
                    other => {
                        text.push('\\');
                        text.extend(other);
                    }
                },
                '{' => {
                    if !rest.any(|ch| ch == '}') {
                        refuse!("message \"{format}\" has a '{{' without '}}'");
                    }
                    let Some(argument) = arguments.next() else {
                        refuse!("message \"{format}\" has more places than arguments");
                    };
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(Part::Value(argument));
                }
                other => text.push(other),
            }
        }
        if arguments.next().is_some() {
            refuse!("message \"{format}\" has more arguments than places");
        }
        parts.push(Part::Text(text));
        Ok(Self { parts })
    }

    /// Replaces `out` by the message with the values of this PHV.
    pub fn write(&self, phv: &[u64], out: &mut String) {
        out.clear();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Value(a) => {
                    let from = a.slot as usize;
                    if let Some(limbs) = phv.get(from..from + a.limbs as usize) {
                        write_decimal(limbs, a.signed, out);
                    }
                }
            }
        }
    }
}

/// Most decimal groups of a value: 8,256 bits in groups of 19 digits.
const MAX_GROUPS: usize = 132;
/// The largest power of ten in a word.
const GROUP: u64 = 10_000_000_000_000_000_000;

/// Appends a value in decimal.
fn write_decimal(limbs: &[u64], signed: bool, out: &mut String) {
    let mut value = [0u64; MAX_GROUPS];
    let n = limbs.len().min(MAX_GROUPS);
    let value = &mut value[..n];
    value.copy_from_slice(&limbs[..n]);
    if signed && value.last().is_some_and(|top| top >> 63 == 1) {
        out.push('-');
        negate(value);
    }
    let mut groups = [0u64; MAX_GROUPS];
    let mut count = 0;
    while count == 0 || (count < MAX_GROUPS && value.iter().any(|&limb| limb != 0)) {
        let group = &mut groups[count..=count];
        group[0] = GROUP;
        // Leaves the quotient in the first, the remainder in the second.
        ruint::algorithms::div(value, group);
        count += 1;
    }
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", groups[count - 1]);
    for group in groups[..count - 1].iter().rev() {
        let _ = write!(out, "{group:019}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_braces() {
        let argument = |slot, limbs, signed| Argument {
            slot,
            limbs,
            signed,
        };
        let message = Message::new(
            "a = {}, b = {} \\{c\\} {}",
            vec![
                argument(0, 1, false),
                argument(1, 2, false),
                argument(3, 1, true),
            ],
        )
        .expect("a message");
        let mut out = String::new();
        message.write(&[7, 0, 1, u64::MAX], &mut out);
        assert_eq!(out, "a = 7, b = 18446744073709551616 {c} -1");
        message.write(&[0, u64::MAX, u64::MAX, 1 << 63], &mut out);
        assert_eq!(
            out,
            "a = 0, b = 340282366920938463463374607431768211455 {c} -9223372036854775808"
        );
        assert!(Message::new("{}", Vec::new()).is_err());
        assert!(Message::new("{", vec![argument(0, 1, false)]).is_err());
        assert!(Message::new("none", vec![argument(0, 1, false)]).is_err());
    }
}
