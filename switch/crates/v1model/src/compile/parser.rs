//! The parser: its states and their operations.

use super::objects::Objects;
use super::primitives::assign::{copy_variable, variable};
use super::primitives::{primitives, refuse_calls};
use super::select::{ValueSets, lookahead, need_each_last, next_state, select};
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::{Compiler, Dest, Node, text, type_value};
use crate::layout::pair;
use crate::model::{ParseState, ParserOp, Primitive, Root, by_name};
use crate::names::Names;
use crate::ops::Op;
use crate::program::State;
use serde::Deserialize;
use serde_json::Value;

/// A compiled parser.
pub(super) struct Parser {
    pub states: Vec<State>,
    pub names: Vec<String>,
    pub start: u32,
    pub value_sets: ValueSets,
}

/// Compiles the parser.
pub(super) fn parser(c: &mut Compiler<'_>, objects: &Objects, root: &Root) -> LoadResult<Parser> {
    let parser = by_name(&root.parsers, "parser", |p| &p.name)?;
    let mut value_sets = ValueSets::declare(&root.parse_vsets)?;
    let mut names = Names::default();
    for s in &parser.parse_states {
        names.add(&s.name).at(|| format!("state '{}'", s.name))?;
    }
    let mut states = Vec::new();
    for s in &parser.parse_states {
        let place = || format!("state '{}'", s.name);
        let start = c.here();
        parser_ops(c, objects, s).at(place)?;
        states.push(select(c, start, s, &names, &mut value_sets).at(place)?);
    }
    let start = next_state(&names, parser.init_state.as_deref()).at(|| "init_state")?;
    Ok(Parser {
        states,
        names: parser.parse_states.iter().map(|s| s.name.clone()).collect(),
        start,
        value_sets,
    })
}

/// Compiles the operations of a state.
fn parser_ops(c: &mut Compiler<'_>, objects: &Objects, s: &ParseState) -> LoadResult<()> {
    for (i, op) in s.parser_ops.iter().enumerate() {
        c.free_temps();
        parser_op(c, objects, op).at(|| format!("operation {i} ('{}')", op.op))?;
    }
    Ok(())
}

fn parser_op(c: &mut Compiler<'_>, objects: &Objects, op: &ParserOp) -> LoadResult<()> {
    let param = |i: usize| {
        let param = op.parameters.get(i);
        param.ok_or_else(|| LoadError::new(format!("parameter {i} is missing")))
    };
    let node = |c: &Compiler<'_>, i: usize| -> LoadResult<Node> {
        let (kind, value) = type_value(param(i)?)?;
        c.node(kind, value).at(|| format!("parameter {i}"))
    };
    for param in &op.parameters {
        need_each_last(c, param)?;
    }
    match op.op.as_str() {
        "extract" => extract(c, param(0)?, None)?,
        "extract_VL" => {
            let bits = node(c, 1)?;
            let bits = c.word(&bits)?;
            extract(c, param(0)?, Some(bits))?;
        }
        "set" => {
            let (kind, value) = type_value(param(0)?)?;
            let (from_kind, from) = type_value(param(1)?)?;
            // p4c has a varbit assigned like any other field here.
            if let (Some(to), Some(from)) =
                (variable(c, kind, value)?, variable(c, from_kind, from)?)
            {
                return copy_variable(c, to, from);
            }
            let dest = c.dest(kind, value).at(|| "parameter 0")?;
            set(c, &dest, from_kind, from).at(|| "parameter 1")?;
        }
        "verify" => {
            let condition = node(c, 0)?;
            let a = c.condition(condition)?;
            let error = node(c, 1)?;
            let error = c.low_word(&error, 32)?;
            c.emit(Op::Verify { a, error });
        }
        "shift" => match param(0)?.as_u64() {
            Some(bytes) => {
                let a = c.constant(&[bytes.saturating_mul(8)])?;
                c.emit(Op::Advance { a });
            }
            None => refuse!("parameter 0 is not a number of bytes"),
        },
        "advance" => {
            let bits = node(c, 0)?;
            let a = c.word(&bits)?;
            c.emit(Op::Advance { a });
        }
        "primitive" => {
            let call = Primitive::deserialize(param(0)?)
                .map_err(|e| LoadError::new(format!("parameter 0: {e}")))?;
            let call = std::slice::from_ref(&call);
            refuse_calls(call, "a parser")?;
            primitives(c, objects, call)?;
        }
        other => refuse!("parser operation '{other}' is not supported"),
    }
    Ok(())
}

/// Extracts a header, the next element of a stack, or a member of the next element of a stack
/// of unions. `bits`: the slot with the length of its variable field.
fn extract(c: &mut Compiler<'_>, what: &Value, bits: Option<u32>) -> LoadResult<()> {
    let (kind, value) = type_value(what)?;
    let stack = match kind {
        "regular" => {
            let header = c.layout.header(text(value)?)?;
            let h = &c.layout.headers[header];
            if h.metadata {
                refuse!("'{}' is metadata", h.name);
            }
            check_variable(c, h.kind, bits)?;
            let (union, base) = (h.union, h.base);
            let header = header as u16;
            c.emit(match bits {
                None => Op::Extract { header },
                Some(bits) => Op::ExtractVariable { header, bits },
            });
            if let Some(union) = union {
                let union = union as u16;
                c.emit(Op::Claim { union, base });
            }
            return Ok(());
        }
        "stack" => c.layout.stack(text(value)?)?,
        "union_stack" => {
            let (stack, member) = pair(value)?;
            c.layout.member_stack(stack, member)?
        }
        other => refuse!("extract to '{other}' is not supported"),
    };
    check_variable(c, c.layout.stacks[stack].kind, bits)?;
    let stack = stack as u16;
    c.emit(match bits {
        None => Op::ExtractNext { stack },
        Some(bits) => Op::ExtractNextVariable { stack, bits },
    });
    Ok(())
}

fn check_variable(c: &Compiler<'_>, kind: usize, bits: Option<u32>) -> LoadResult<()> {
    let kind = &c.layout.types[kind];
    match (kind.variable, bits) {
        (None, Some(_)) => refuse!("header type '{}' has no variable-length field", kind.name),
        (Some(_), None) => refuse!("the length of the variable-length field is missing"),
        _ => Ok(()),
    }
}

/// Assigns the source of a parser's assignment to `dest`.
fn set(c: &mut Compiler<'_>, dest: &Dest, kind: &str, value: &Value) -> LoadResult<()> {
    if kind == "lookahead" {
        let (slot, bits) = lookahead(c, value)?;
        return c.store_words(dest, slot, bits);
    }
    let node = c.node(kind, value)?;
    c.assign(dest, &node)
}
