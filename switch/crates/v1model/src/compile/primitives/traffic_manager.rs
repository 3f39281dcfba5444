//! The methods of the extern `TrafficManager`.

use super::params::Params;
use crate::compile::objects::Objects;
use crate::error::{LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::Primitive;
use crate::ops::Op;

/// Prefix of a method in p4c's output; the method's name follows.
const PREFIX: &str = "_TrafficManager_";

/// Refuses primitives that call the traffic manager, which `place` cannot.
pub(in crate::compile) fn refuse_calls(list: &[Primitive], place: &str) -> LoadResult<()> {
    if list.iter().any(|p| p.op.starts_with(PREFIX)) {
        refuse!("the traffic manager cannot be called from {place}");
    }
    Ok(())
}

/// Compiles the call of a method of `instance`, which is the first parameter.
pub(super) fn method(
    c: &mut Compiler<'_>,
    objects: &Objects,
    op: &str,
    instance: &str,
    params: Params<'_>,
) -> LoadResult<()> {
    if !objects.has_traffic_manager(instance) {
        refuse!("unknown extern instance '{instance}'");
    }
    match op.strip_prefix(PREFIX) {
        Some("now") => now(c, params),
        Some("backlog") => backlog(c, params),
        Some("hold") => hold(c, params),
        Some(other) => refuse!("extern type 'TrafficManager' has no method '{other}'"),
        None => {
            refuse!("is no method of extern instance '{instance}' of type 'TrafficManager'")
        }
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
