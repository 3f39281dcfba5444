//! Calculations of hashes and checksums.

use super::objects::Objects;
use crate::calculation::{Calculation, Input};
use crate::error::{At, LoadResult, refuse};
use crate::expr::{Compiler, hex_limbs, text};
use crate::hash::Algorithm;
use crate::layout::{Layout, MAX_FIELD_BITS, pair};
use crate::model::{self, Root, TypeValue};
use crate::program::Checksum;
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

/// The checksums of a program.
#[derive(Default)]
pub(super) struct Checksums {
    pub verify: Vec<Checksum>,
    pub update: Vec<Checksum>,
}

impl Checksums {
    /// Compiles the checksums.
    pub fn compile(c: &mut Compiler<'_>, root: &Root, objects: &Objects) -> LoadResult<Self> {
        let mut all = Self::default();
        for k in &root.checksums {
            let built = checksum(c, objects, k).at(|| format!("checksum '{}'", k.name))?;
            if k.verify {
                all.verify.push(built.clone());
            }
            if k.update {
                all.update.push(built);
            }
        }
        Ok(all)
    }
}

fn checksum(c: &mut Compiler<'_>, objects: &Objects, k: &model::Checksum) -> LoadResult<Checksum> {
    if k.kind != "generic" {
        refuse!("type '{}' is not supported", k.kind);
    }
    let target = c.layout.field(&k.target.0, &k.target.1)?;
    let condition = match &k.if_cond {
        None => None,
        Some(e) => {
            c.free_temps();
            let start = c.here();
            let node = c.node(&e.kind, &e.value).at(|| "if_cond")?;
            let slot = c.condition(node).at(|| "if_cond")?;
            Some((c.since(start), slot))
        }
    };
    Ok(Checksum {
        calculation: objects.calculation(&k.calculation)?,
        change: c.layout.changes(target.slot, target.limbs()),
        target,
        valid: c.layout.headers[c.layout.header(&k.target.0)?].base,
        condition,
    })
}
