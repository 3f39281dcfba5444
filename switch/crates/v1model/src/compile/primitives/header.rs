//! Headers that become valid or invalid, and header stacks that move.

use super::params::Params;
use crate::error::LoadResult;
use crate::expr::{Compiler, text};
use crate::ops::Op;
use crate::slot::Slot;

/// Makes a header valid.
pub(super) fn set_valid(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [header] = params.all()?;
    let node = header.header(c)?;
    let kind = c.header_kind(&node);
    let words = c.layout.types[kind].words as u16;
    let (h, kind) = (c.header_ref(&node)?, kind as u16);
    c.emit(Op::SetValid { h, words, kind });
    c.claim(&node, h);
    Ok(())
}

/// Makes a header invalid.
pub(super) fn set_invalid(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [header] = params.all()?;
    let node = header.header(c)?;
    let kind = c.header_kind(&node) as u16;
    let h = c.header_ref(&node)?;
    c.emit(Op::SetInvalid { h, kind });
    Ok(())
}

/// Pushes elements to the front of a stack.
pub(super) fn push(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    move_stack(c, params, |stack, count, words, first| Op::Push {
        stack,
        count,
        words,
        first,
    })
}

/// Pops elements from the front of a stack.
pub(super) fn pop(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    move_stack(c, params, |stack, count, words, first| Op::Pop {
        stack,
        count,
        words,
        first,
    })
}

/// Emits the operation for a stack, or for each stack of the members of a stack of unions.
fn move_stack(
    c: &mut Compiler<'_>,
    params: Params<'_>,
    op: impl Fn(u16, Slot, u16, bool) -> Op,
) -> LoadResult<()> {
    let [stack, count] = params.all()?;
    let stacks = match stack.kind {
        "header_union_stack" => {
            let stack = c.layout.union_stack(text(stack.value)?)?;
            c.layout.union_stacks[stack].stacks.clone()
        }
        _ => vec![c.layout.stack(stack.named("header_stack")?)?],
    };
    let count = count.node(c)?;
    let count = c.word(&count)?;
    for (i, stack) in stacks.into_iter().enumerate() {
        let words = c.layout.types[c.layout.stacks[stack].kind].words as u16;
        c.emit(op(stack as u16, count, words, i == 0));
    }
    Ok(())
}
