//! Calculations of hashes and checksums.

use crate::calculation::{Calculation, Input};
use crate::error::{At, LoadResult, refuse};
use crate::expr::{hex_limbs, text};
use crate::hash::Algorithm;
use crate::layout::{Layout, MAX_FIELD_BITS, pair};
use crate::model::TypeValue;
use crate::wide::{limbs, mask64};

/// Compiles a calculation.
pub(super) fn calculation(
    algorithm: &str,
    input: &[TypeValue],
    layout: &Layout,
) -> LoadResult<Calculation> {
    let algorithm = Algorithm::from_name(algorithm)?;
    let mut inputs = Vec::new();
    let mut payload = false;
    for (i, input) in input.iter().enumerate() {
        if input.kind == "payload" {
            payload = true;
        } else {
            inputs.push(calculation_input(input, layout).at(|| format!("input {i}"))?);
        }
    }
    Ok(Calculation::new(algorithm, inputs, payload))
}

fn calculation_input(input: &TypeValue, layout: &Layout) -> LoadResult<Input> {
    match input.kind.as_str() {
        "field" => {
            let (header, field) = pair(&input.value)?;
            let valid = layout.headers[layout.header(header)?].base;
            Ok(match layout.variable(header, field)? {
                Some((field, length)) => Input::Variable {
                    field,
                    length,
                    valid,
                },
                None => Input::Field {
                    field: layout.field(header, field)?,
                    valid,
                },
            })
        }
        "hexstr" => {
            let bits = match input.bitwidth {
                Some(bits) if (1..=MAX_FIELD_BITS).contains(&bits) => bits,
                _ => refuse!("constant without a usable bitwidth"),
            };
            let mut value = hex_limbs(text(&input.value)?)?;
            value.resize(limbs(bits) as usize, 0);
            if let Some(top) = value.last_mut() {
                *top &= mask64(bits - 64 * (limbs(bits) - 1));
            }
            Ok(Input::Constant { bits, value })
        }
        "header" => {
            let h = &layout.headers[layout.header(text(&input.value)?)?];
            Ok(Input::Header {
                base: h.base,
                kind: h.kind,
            })
        }
        other => refuse!("input of type '{other}' is not supported"),
    }
}
