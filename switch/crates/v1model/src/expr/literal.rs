//! Constants and the small JSON shapes of operands.

use super::node::{Kind, MAX_BITS, Node, Range};
use crate::error::{LoadError, LoadResult, refuse};
use crate::wide::{bit_length, negate};
use serde_json::Value;

/// A constant from a hexadecimal string, which a minus sign may precede.
pub(super) fn constant(text: &str) -> LoadResult<Node> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mut value = hex_limbs(digits)?;
    let bits = bit_length(&value);
    let range = if negative && bits > 0 {
        negate(&mut value);
        // One more limb where the sign bit does not fit.
        if bits.is_multiple_of(64) {
            value.push(u64::MAX);
        }
        Range::signed(bits)
    } else {
        Range::unsigned(bits)
    };
    Ok(Node {
        kind: Kind::Const(value),
        range,
    })
}

/// Limbs of a hexadecimal string such as `0x1f`; at least one limb, no more than needed.
pub(crate) fn hex_limbs(text: &str) -> LoadResult<Vec<u64>> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let bad = || LoadError::new(format!("'{text}' is not a hexadecimal number"));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() > MAX_BITS as usize / 4 {
        refuse!("a constant is wider than {MAX_BITS} bits");
    }
    let mut out = Vec::new();
    for chunk in digits.as_bytes().rchunks(16) {
        let chunk = std::str::from_utf8(chunk).map_err(|_| bad())?;
        out.push(u64::from_str_radix(chunk, 16).map_err(|_| bad())?);
    }
    if out.is_empty() {
        out.push(0);
    }
    Ok(out)
}

/// A JSON string.
pub(crate) fn text(value: &Value) -> LoadResult<&str> {
    match value.as_str() {
        Some(s) => Ok(s),
        None => refuse!("expected a string, found {value}"),
    }
}

/// The parts of a `{"type": .., "value": ..}` object.
pub(crate) fn type_value(value: &Value) -> LoadResult<(&str, &Value)> {
    match (
        value.get("type").and_then(Value::as_str),
        value.get("value"),
    ) {
        (Some(kind), Some(value)) => Ok((kind, value)),
        _ if value.is_null() => refuse!("an operand is missing"),
        _ => refuse!("expected an object with 'type' and 'value'"),
    }
}
