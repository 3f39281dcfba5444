//! The deparser: its code, and the order in which it writes the headers.

use super::objects::Objects;
use super::primitives::{primitives, refuse_calls};
use crate::error::{LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::{Root, by_name};
use crate::ops::Code;
use crate::program::HeaderInfo;
use crate::unchanged::NO_POSITION;
use std::collections::HashSet;

/// Most headers that the deparser emits.
const MAX_EMITTED: usize = 1 << 16;

/// A compiled deparser.
pub(super) struct Deparser {
    pub code: Code,
    /// All headers of the program, with their positions in `order`.
    pub headers: Vec<HeaderInfo>,
    pub order: Vec<HeaderInfo>,
}

/// Compiles the deparser.
pub(super) fn deparser(
    c: &mut Compiler<'_>,
    objects: &Objects,
    root: &Root,
) -> LoadResult<Deparser> {
    let deparser = by_name(&root.deparsers, "deparser", |d| &d.name)?;
    refuse_calls(&deparser.primitives, "the deparser")?;
    let code = primitives(c, objects, &deparser.primitives)?;
    let headers = c.layout.headers.iter().map(|h| HeaderInfo {
        base: h.base,
        kind: h.kind,
        position: NO_POSITION,
        change: h.change,
    });
    let mut headers: Vec<HeaderInfo> = headers.collect();
    let mut order = Vec::new();
    let mut emitted = HashSet::new();
    for name in &deparser.order {
        let index = c.layout.header(name)?;
        if c.layout.headers[index].metadata {
            refuse!("emits metadata '{name}'");
        }
        let header = &mut headers[index];
        header.position = if emitted.insert(index) {
            order.len() as u32
        } else {
            NO_POSITION
        };
        order.push(*header);
    }
    if order.len() > MAX_EMITTED {
        refuse!("emits more than {MAX_EMITTED} headers");
    }
    Ok(Deparser {
        code,
        headers,
        order,
    })
}
