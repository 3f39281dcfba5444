//! Jumps between the primitives of a list.

use super::params::{Param, Params};
use crate::error::{LoadResult, refuse};
use crate::expr::{Compiler, hex_limbs, text};
use crate::ops::Op;

/// The jumps of a list of primitives.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    /// The beginning of each primitive.
    starts: Vec<u32>,
    /// Jumps forward, to be resolved: their addresses and the primitives that they go to.
    forward: Vec<(u32, usize)>,
}

impl Jumps {
    /// Notes that the next primitive begins at `address`.
    pub fn begin_primitive(&mut self, address: u32) {
        self.starts.push(address);
    }

    /// Compiles a jump.
    pub fn jump(&mut self, c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
        let [target] = params.all()?;
        let target = jump_target(target)?;
        match self.starts.get(target) {
            // The end of a loop.
            Some(&to) => c.emit(Op::JumpBack { to }),
            None => self.forward.push((c.jump(), target)),
        }
        Ok(())
    }

    /// Compiles a jump that is taken if a condition is false.
    pub fn jump_if_zero(&mut self, c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
        let [condition, target] = params.all()?;
        let a = condition.condition(c)?;
        let target = jump_target(target)?;
        let jump = c.jump_if_zero(a);
        match self.starts.get(target) {
            Some(&to) => {
                let otherwise = c.jump();
                c.land(jump);
                c.emit(Op::JumpBack { to });
                c.land(otherwise);
            }
            None => self.forward.push((jump, target)),
        }
        Ok(())
    }

    /// Resolves the jumps forward, after the last primitive.
    pub fn resolve(mut self, c: &mut Compiler<'_>) -> LoadResult<()> {
        self.starts.push(c.here());
        for (jump, target) in self.forward {
            match self.starts.get(target) {
                Some(&to) => c.set_target(jump, to),
                None => refuse!("jump to primitive {target}, which does not exist"),
            }
        }
        Ok(())
    }
}

fn jump_target(p: Param<'_>) -> LoadResult<usize> {
    match hex_limbs(text(p.value)?)?.as_slice() {
        [one] => Ok(usize::try_from(*one).unwrap_or(usize::MAX)),
        _ => refuse!("jump target is too large"),
    }
}
