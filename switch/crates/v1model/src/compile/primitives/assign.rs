//! Assignments of values, headers, header stacks and header unions.

use super::params::{Param, Params};
use crate::error::{At, LoadResult, refuse};
use crate::expr::{Compiler, HeaderNode, type_value};
use crate::layout::{Field, pair};
use crate::ops::Op;
use serde_json::Value;

/// Assigns a value.
pub(super) fn value(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [dest, value] = params.all()?;
    let (dest, node) = (dest.dest(c)?, value.node(c)?);
    c.assign(&dest, &node)
}

/// Assigns a header.
pub(super) fn header(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [d, a] = params.all()?;
    let d = d.header(c)?;
    choose_header(c, &d, a.kind, a.value)
}

/// Copies a header that conditions (`?`) may choose.
fn choose_header(
    c: &mut Compiler<'_>,
    d: &HeaderNode,
    kind: &str,
    value: &Value,
) -> LoadResult<()> {
    match (kind, value.get("op").map(Value::as_str)) {
        ("expression", None) => {
            let (kind, value) = type_value(value)?;
            choose_header(c, d, kind, value)
        }
        ("expression", Some(Some("?"))) => {
            let (kind, condition) = type_value(&value["cond"])?;
            let node = c.node(kind, condition)?;
            let a = c.condition(node)?;
            let otherwise = c.jump_if_zero(a);
            let (kind, left) = type_value(&value["left"])?;
            choose_header(c, d, kind, left)?;
            let end = c.jump();
            c.land(otherwise);
            let (kind, right) = type_value(&value["right"])?;
            choose_header(c, d, kind, right)?;
            c.land(end);
            Ok(())
        }
        _ => {
            let a = c.header(kind, value)?;
            copy_header(c, d, &a)
        }
    }
}

/// Copies a header: its validity always, its fields if the source is valid.
fn copy_header(c: &mut Compiler<'_>, d: &HeaderNode, a: &HeaderNode) -> LoadResult<()> {
    let kind = c.header_kind(d);
    if kind != c.header_kind(a) {
        refuse!("headers are of different types");
    }
    let words = c.layout.types[kind].words as u16;
    let (to, from) = (c.header_ref(d)?, c.header_ref(a)?);
    c.emit(Op::CopyHeader {
        d: to,
        a: from,
        words,
    });
    c.claim(d, to);
    Ok(())
}

/// Assigns a header stack.
pub(super) fn stack(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [d, a] = params.all()?;
    let d = c.layout.stack(d.named("header_stack")?)?;
    let a = c.layout.stack(a.named("header_stack")?)?;
    copy_stack(c, d, a)
}

fn copy_stack(c: &mut Compiler<'_>, d: usize, a: usize) -> LoadResult<()> {
    let (to, from) = (&c.layout.stacks[d], &c.layout.stacks[a]);
    if to.kind != from.kind || to.bases.len() != from.bases.len() {
        refuse!("header stacks are of different types");
    }
    let words = c.layout.types[to.kind].words as u16;
    c.emit(Op::CopyStack {
        d: d as u16,
        a: a as u16,
        words,
    });
    Ok(())
}

/// Assigns a header union.
pub(super) fn union(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [d, a] = params.all()?;
    let to = c.union_members(d.kind, d.value)?;
    let from = c.union_members(a.kind, a.value)?;
    if to.len() != from.len() {
        refuse!("header unions are of different types");
    }
    to.iter()
        .zip(&from)
        .try_for_each(|(d, a)| copy_header(c, d, a))
}

/// Assigns a stack of header unions.
pub(super) fn union_stack(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [d, a] = params.all()?;
    let d = c.layout.union_stack(d.named("header_union_stack")?)?;
    let a = c.layout.union_stack(a.named("header_union_stack")?)?;
    let (to, from) = (&c.layout.union_stacks[d], &c.layout.union_stacks[a]);
    if to.stacks.len() != from.stacks.len() {
        refuse!("header union stacks are of different types");
    }
    let mut stacks = to.stacks.iter().zip(&from.stacks);
    stacks.try_for_each(|(&d, &a)| copy_stack(c, d, a))
}

/// Assigns a variable-length field.
pub(super) fn variable_field(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let field = |p: Param<'_>| match variable(c, p.kind, p.value)? {
        Some(found) => Ok(found),
        None => refuse!("expected a variable-length field, found '{}'", p.kind),
    };
    let [to, from] = params.all()?;
    let to = field(to).at(|| "parameter 0")?;
    let from = field(from).at(|| "parameter 1")?;
    copy_variable(c, to, from)
}

/// Finds a variable-length field and the slot of its length; `None`: an operand of another kind.
pub(in crate::compile) fn variable(
    c: &Compiler<'_>,
    kind: &str,
    value: &Value,
) -> LoadResult<Option<(Field, u32)>> {
    let value = match kind {
        "field" => value,
        "expression" => match type_value(value) {
            Ok(("field", inner)) => inner,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let (header, field) = pair(value)?;
    c.layout.variable(header, field)
}

/// Copies a variable-length field, with its length.
pub(in crate::compile) fn copy_variable(
    c: &mut Compiler<'_>,
    (to, to_length): (Field, u32),
    (from, from_length): (Field, u32),
) -> LoadResult<()> {
    if to.bits != from.bits {
        refuse!(
            "variable-length fields of {} and {} bits at most",
            to.bits,
            from.bits
        );
    }
    c.emit(Op::CopyW {
        d: to.slot,
        a: from.slot,
        n: to.limbs() as u16,
    });
    c.emit(Op::Copy {
        d: to_length,
        a: from_length,
    });
    Ok(())
}
