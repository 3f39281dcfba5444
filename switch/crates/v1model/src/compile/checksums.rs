//! Checksums that are verified after parsing or updated before deparsing.

use super::objects::Objects;
use crate::error::{At, LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::{self, Root};
use crate::program::Checksum;

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
