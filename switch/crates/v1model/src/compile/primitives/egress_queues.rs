//! The methods of the extern `EgressQueues`.

use super::params::{Param, Params};
use crate::error::{LoadResult, refuse};
use crate::expr::Compiler;
use crate::ops::Op;
use crate::slot::Slot;

/// Compiles the call of a method.
pub(super) fn method(c: &mut Compiler<'_>, name: &str, params: Params<'_>) -> LoadResult<()> {
    match name {
        "depth" => depth(c, params),
        "sojourn" => sojourn(c, params),
        "choose" => choose(c, params),
        other => refuse!("extern type 'EgressQueues' has no method '{other}'"),
    }
}

/// Reads a queue; the result is the first of [`Op::ReadQueue`]'s three slots.
fn read(c: &mut Compiler<'_>, port: Param<'_>, queue: Param<'_>) -> LoadResult<Slot> {
    let (port, queue) = (port.word(c)?, queue.word(c)?);
    let d = c.temp(3)?;
    c.emit(Op::ReadQueue { d, port, queue });
    Ok(d)
}

fn depth(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_, port, queue, bytes, packets] = params.all()?;
    let (bytes, packets) = (bytes.dest(c)?, packets.dest(c)?);
    let read = read(c, port, queue)?;
    c.store_words(&bytes, read, 32)?;
    c.store_words(&packets, read + 1, 32)
}

fn sojourn(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_, port, queue, dest] = params.all()?;
    let dest = dest.dest(c)?;
    let read = read(c, port, queue)?;
    c.store_words(&dest, read + 2, 64)
}

fn choose(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_, queue] = params.all()?;
    let queue = queue.word(c)?;
    c.emit(Op::ChooseQueue { queue });
    Ok(())
}
