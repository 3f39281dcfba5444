//! The methods of the extern `TrafficManager`.

use super::params::Params;
use crate::error::{LoadResult, refuse};
use crate::expr::Compiler;
use crate::ops::Op;

/// Compiles the call of a method.
pub(super) fn method(c: &mut Compiler<'_>, name: &str, params: Params<'_>) -> LoadResult<()> {
    match name {
        "now" => now(c, params),
        "backlog" => backlog(c, params),
        "hold" => hold(c, params),
        other => refuse!("extern type 'TrafficManager' has no method '{other}'"),
    }
}

fn now(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_, dest] = params.all()?;
    let dest = dest.dest(c)?;
    let d = c.temp(1)?;
    c.emit(Op::Now { d });
    c.store_words(&dest, d, 64)
}

fn backlog(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [_, class, dest] = params.all()?;
    let (class, dest) = (class.node(c)?, dest.dest(c)?);
    let class = c.low_word(&class, 32)?;
    let d = c.temp(1)?;
    c.emit(Op::Backlog { d, class });
    // The parameter is bit<32>: a larger backlog must not wrap to a small one.
    let most = c.constant(&[u64::from(u32::MAX)])?;
    let over = c.temp(1)?;
    c.emit(Op::Lt {
        d: over,
        a: most,
        b: d,
    });
    c.emit(Op::Select {
        d,
        c: over,
        a: most,
        b: d,
    });
    c.store_words(&dest, d, 32)
}

fn hold(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    // A program may leave out the class to which the queue counts.
    let (counts_to, first) = match params.get(5) {
        Some(_) => {
            let [_, first @ .., class] = params.all::<6>()?;
            (class.low_word(c, 32)?, first)
        }
        None => {
            let [_, first @ ..] = params.all::<5>()?;
            (c.constant(&[Op::COUNTS_TO_NONE])?, first)
        }
    };
    let args = c.temp(5)?;
    for (d, (param, bits)) in (args..).zip(first.into_iter().zip([32, 64, 64, 64])) {
        let a = param.low_word(c, bits)?;
        c.emit(Op::Copy { d, a });
    }
    c.emit(Op::Copy {
        d: args + 4,
        a: counts_to,
    });
    c.emit(Op::Hold { args });
    Ok(())
}
