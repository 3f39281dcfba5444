//! Headers that become valid or invalid, and header stacks that move.

use super::params::Params;
use crate::error::LoadResult;
use crate::expr::{Compiler, text};
use crate::ops::Op;

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

/// Pushes elements to the front of a stack, or pops them: moves the stack, or each stack of the
/// members of a stack of unions.
pub(super) fn move_stack(c: &mut Compiler<'_>, params: Params<'_>, push: bool) -> LoadResult<()> {
    let [stack, count] = params.all()?;
    let stacks = match stack.kind {
        "header_union_stack" => {
            let stack = c.layout.union_stack(text(stack.value)?)?;
            c.layout.union_stacks[stack].stacks.clone()
        }
        _ => vec![c.layout.stack(stack.named("header_stack")?)?],
    };
    let count = count.word(c)?;
    for (i, stack) in stacks.into_iter().enumerate() {
        let words = c.layout.types[c.layout.stacks[stack].kind].words as u16;
        c.emit(Op::MoveStack {
            stack: stack as u16,
            count,
            words,
            first: i == 0,
            push,
        });
    }
    Ok(())
}
