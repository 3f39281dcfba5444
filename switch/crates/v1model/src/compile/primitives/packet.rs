//! The primitives for the packet: drop, clone, resubmit, digest, truncate, assert, log.

use super::params::Params;
use crate::error::{LoadResult, refuse};
use crate::expr::{Compiler, text};
use crate::ops::Op;
use crate::slot::Slot;
use serde_json::Value;

/// The header whose `egress_spec` and `mcast_grp` the switch reads.
const STANDARD_METADATA: &str = "standard_metadata";

/// Marks the packet to be dropped, in the standard metadata or in a copy of it.
pub(super) fn mark_to_drop(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let header = params.get(0).filter(|p| p.kind == "header");
    let name = header.map_or(Ok(STANDARD_METADATA), |p| text(p.value))?;
    if name == STANDARD_METADATA {
        c.emit(Op::MarkToDrop);
        return Ok(());
    }
    let own = c.layout.header(STANDARD_METADATA)?;
    let copy = c.layout.header(name)?;
    if c.layout.headers[copy].kind != c.layout.headers[own].kind {
        refuse!("'{name}' is no copy of the standard metadata");
    }
    c.emit(Op::MarkCopyToDrop {
        egress_spec: c.layout.field(name, "egress_spec")?.slot,
        mcast_grp: c.layout.field(name, "mcast_grp")?.slot,
    });
    Ok(())
}

/// Emits an operation with the only parameter as a word.
pub(super) fn with_word(
    c: &mut Compiler<'_>,
    params: Params<'_>,
    op: impl Fn(Slot) -> Op,
) -> LoadResult<()> {
    let [word] = params.all()?;
    let word = word.word(c)?;
    c.emit(op(word));
    Ok(())
}

/// Asks for a clone to a mirror session, with a field list.
pub(super) fn clone(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [session, list] = params.all()?;
    let (session, list) = (session.word(c)?, list.word(c)?);
    c.emit(Op::Clone { session, list });
    Ok(())
}

/// Asks for a digest; the switch does not look at its receiver.
pub(super) fn digest(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_receiver, list] = params.all()?;
    let list = list.word(c)?;
    c.emit(Op::Digest { list });
    Ok(())
}

/// Logs a message.
pub(super) fn log(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let Some(format) = params.get(0) else {
        refuse!("parameter 0 is missing");
    };
    let arguments = match params.get(1) {
        None => &[],
        Some(p) if p.kind == "parameters_vector" => match &p.value {
            Value::Array(list) => list.as_slice(),
            // p4c writes this for a message without values.
            Value::Object(members) if members.is_empty() => &[],
            _ => refuse!("parameter 1 is not a list"),
        },
        Some(p) => refuse!("parameter 1 is of type '{}'", p.kind),
    };
    c.log(format.named("string")?, arguments)
}

/// Asserts a condition.
pub(super) fn assert(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [condition] = params.all()?;
    let a = condition.condition(c)?;
    c.emit(Op::Assert { a });
    Ok(())
}
