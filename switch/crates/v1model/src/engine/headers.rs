//! Operations on whole headers, header stacks and unions.

use super::machine::Machine;
use super::outcome::Outcome;
use super::phv::to_index;
use crate::api::Externs;
use crate::context::Context;
use crate::ops::{HeaderRef, Op};
use crate::program::{Program, StackInfo};
use crate::slot::{Changes, RESHAPED, Slot};

impl<E: Externs> Machine<'_, E> {
    /// Executes an operation of this group, or hands it to the next group.
    #[inline(always)]
    pub(super) fn step_headers(&mut self, ctx: &mut Context, op: &Op, _pc: &mut u32) -> Outcome {
        let program = self.program;
        let w = &mut ctx.phv[..];
        match *op {
            Op::LoadElement {
                d,
                stack,
                index,
                offset,
                n,
            } => {
                let (d, n) = (d as usize, n as usize);
                match program.base(w, HeaderRef::Element(stack, index)) {
                    Some(base) => {
                        let from = base + offset as usize;
                        w.copy_within(from..from + n, d);
                    }
                    None => w[d..d + n].fill(0),
                }
            }
            Op::StoreElement {
                a,
                stack,
                index,
                offset,
                n,
            } => {
                if let Some(base) = program.base(w, HeaderRef::Element(stack, index)) {
                    let a = a as usize;
                    w.copy_within(a..a + n as usize, base + offset as usize);
                }
            }
            Op::LastIndex { d, stack } => {
                let next = program.stacks[stack as usize].next;
                w[d as usize] = w[next as usize].wrapping_sub(1);
            }
            Op::SetValid { h, words, kind } => set_valid(program, ctx, h, words, kind),
            Op::SetInvalid { h, kind } => set_invalid(program, ctx, h, kind),
            Op::Claim { union, base } => {
                let changes = claim(program, w, union, base);
                ctx.unchanged.note(changes);
            }
            Op::ClaimElement { stack, index } => {
                let s = &program.stacks[stack as usize];
                let changes = claim_element(program, w, s, to_index(w[index as usize]));
                ctx.unchanged.note(changes);
            }
            Op::CopyHeader { d, a, words } => {
                if let (Some(d), Some(a)) = (program.base(w, d), program.base(w, a)) {
                    copy_header(w, d, a, words);
                }
                ctx.unchanged.note(RESHAPED);
            }
            Op::EqHeader { d, a, b, words } => {
                let equal = match (program.base(w, a), program.base(w, b)) {
                    (Some(a), Some(b)) => {
                        let n = words as usize;
                        w[a] != 0 && w[a..a + n] == w[b..b + n]
                    }
                    _ => false,
                };
                w[d as usize] = u64::from(equal);
            }
            Op::CopyStack { d, a, words } => {
                let (to, from) = (&program.stacks[d as usize], &program.stacks[a as usize]);
                w[to.next as usize] = w[from.next as usize];
                for (&d, &a) in to.bases.iter().zip(&from.bases) {
                    copy_header(w, d as usize, a as usize, words);
                }
                ctx.unchanged.note(RESHAPED);
            }
            Op::MoveStack {
                stack,
                count,
                words,
                first,
                push,
            } => {
                let count = to_index(w[count as usize]);
                let stack = &program.stacks[stack as usize];
                move_stack(w, stack, count.min(stack.bases.len()), words, (first, push));
                ctx.unchanged.note(RESHAPED);
            }
            _ => return self.step_parse(ctx, op),
        }
        Outcome::Done
    }
}

impl Program {
    /// The base of a header; `None` for an element past the end of its stack.
    fn base(&self, phv: &[u64], h: HeaderRef) -> Option<usize> {
        match h {
            HeaderRef::Fixed(base) => Some(base as usize),
            HeaderRef::Element(stack, index) => {
                let index = usize::try_from(phv[index as usize]).ok()?;
                let bases = &self.stacks[stack as usize].bases;
                bases.get(index).map(|&base| base as usize)
            }
        }
    }
}

/// Makes a header valid. As in BMv2, one that was invalid has zero fields, but its variable field
/// keeps its length.
fn set_valid(program: &Program, ctx: &mut Context, h: HeaderRef, words: u16, kind: u16) {
    let w = &mut ctx.phv[..];
    if let Some(base) = program.base(w, h)
        && w[base] == 0
    {
        let io = &program.kinds[kind as usize];
        let length = io.length(w, base as u32);
        io.clear(&mut w[base..base + words as usize]);
        w[base] = 1;
        ctx.unchanged.note(RESHAPED);
        ctx.packet_length = ctx.packet_length.wrapping_add(length as u64);
    }
}

/// Makes a header invalid.
fn set_invalid(program: &Program, ctx: &mut Context, h: HeaderRef, kind: u16) {
    let w = &mut ctx.phv[..];
    if let Some(base) = program.base(w, h)
        && w[base] != 0
    {
        w[base] = 0;
        ctx.unchanged.note(RESHAPED);
        let length = program.kinds[kind as usize].length(w, base as u32);
        ctx.packet_length = ctx.packet_length.wrapping_sub(length as u64);
    }
}

/// Copies the fields and the validity of the header at `from`; of an invalid header, only the
/// validity.
fn copy_header(w: &mut [u64], to: usize, from: usize, words: u16) {
    if w[from] == 0 {
        w[to] = 0;
    } else {
        w.copy_within(from..from + words as usize, to);
    }
}

/// Moves a stack's elements `count` places up or, where not `push`, down. The places that become
/// free are invalid, except in a stack of unions, where BMv2 leaves the headers that its swaps put
/// there. Only the `first` stack of a stack of unions moves the counter.
fn move_stack(w: &mut [u64], s: &StackInfo, count: usize, words: u16, (first, push): (bool, bool)) {
    let size = s.bases.len();
    let next = &mut w[s.next as usize];
    *next = match (first, push) {
        (false, _) => *next,
        (true, true) => (*next + count as u64).min(size as u64),
        (true, false) => next.saturating_sub(count as u64),
    };
    // BMv2 swaps the elements in this order.
    let mut swap_down = |i: usize| swap(w, s.bases[i], s.bases[i + count], words);
    let free = if push {
        (0..size - count).rev().for_each(&mut swap_down);
        0..count
    } else {
        (0..size - count).for_each(&mut swap_down);
        size - count..size
    };
    if s.siblings.is_empty() {
        for &base in &s.bases[free] {
            w[base as usize] = 0;
        }
    }
}

/// Swaps two headers.
fn swap(w: &mut [u64], a: Slot, b: Slot, words: u16) {
    for i in 0..words as usize {
        w.swap(a as usize + i, b as usize + i);
    }
}

/// Makes the other members of a union invalid if the member at `base` is valid.
fn claim(program: &Program, w: &mut [u64], union: u16, base: Slot) -> Changes {
    let mut changes = 0;
    if w[base as usize] != 0 {
        for &other in &program.unions[union as usize] {
            changes |= invalidate(w, other, base);
        }
    }
    changes
}

/// The same for element `index` of a stack of union members; does nothing for other stacks.
pub(super) fn claim_element(
    program: &Program,
    w: &mut [u64],
    stack: &StackInfo,
    index: usize,
) -> Changes {
    let mut changes = 0;
    if let Some(&base) = stack.bases.get(index)
        && w[base as usize] != 0
    {
        for &sibling in &stack.siblings {
            if let Some(&other) = program.stacks[sibling as usize].bases.get(index) {
                changes |= invalidate(w, other, base);
            }
        }
    }
    changes
}

/// Makes the union member at `base` invalid, unless it is the one to keep.
fn invalidate(w: &mut [u64], base: Slot, keep: Slot) -> Changes {
    if base != keep && std::mem::take(&mut w[base as usize]) != 0 {
        RESHAPED
    } else {
        0
    }
}
