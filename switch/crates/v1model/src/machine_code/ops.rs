//! Code as instructions.

use super::emitter::{Emitter, Exits, callback, cells};
use super::env::{Env, Status, run_argument};
use super::untranslated::{Result, Untranslated};
use crate::context::Context;
use crate::ops::{Code, MAX_LOOP_ITERATIONS, Op};
use crate::rows::Column;
use crate::slot::Slot;
use crate::wide::mask64;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};
use cranelift_frontend::Variable;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// The run of code that is being written.
struct Run<'e, 'a, 'f> {
    emitter: &'e mut Emitter<'a, 'f>,
    /// Blocks of the operations that others jump to, and of the end.
    labels: BTreeMap<u32, Block>,
    code: Code,
    exits: Exits,
    /// Loop iterations that are left, if there is a loop.
    iterations_left: Option<Variable>,
}

/// Where an operation may go besides the next one.
fn jump_target(at: u32, op: &Op) -> Option<u32> {
    match *op {
        Op::Jump { to } | Op::JumpIfZero { to, .. } | Op::JumpBack { to } => Some(to),
        Op::RegisterRead { skip, .. } | Op::Meter { skip, .. } | Op::Random { skip, .. } => {
            Some(at + 1 + u32::from(skip))
        }
        _ => None,
    }
}

impl Emitter<'_, '_> {
    /// Writes code. Afterwards the emitter is in a block that is reached when the code runs to its end.
    pub fn code(&mut self, code: Code, exits: Exits) -> Result<()> {
        if code.is_empty() {
            return Ok(());
        }
        let ops = self
            .source
            .program
            .ops
            .get(code.start as usize..code.end as usize);
        let ops = ops.ok_or_else(|| Untranslated::new("code is not there"))?;
        self.note(code.changes);
        if ops.len() > self.ops_left {
            let status = self.call(callback!(run), run_argument(code));
            let all = [Status::Exit, Status::Asserted, Status::Error];
            self.check(status, exits, &all);
            return Ok(());
        }
        self.ops_left -= ops.len();
        let run = Run {
            labels: self.labels(code, ops),
            iterations_left: self.iteration_limit(ops),
            code,
            exits,
            emitter: self,
        };
        run.write(ops)
    }

    /// Blocks of the operations that others jump to.
    fn labels(&mut self, code: Code, ops: &[Op]) -> BTreeMap<u32, Block> {
        let mut labels = BTreeMap::new();
        for (at, op) in (code.start..).zip(ops) {
            if let Some(to) = jump_target(at, op) {
                let block = labels.entry(to.min(code.end));
                block.or_insert_with(|| self.b.create_block());
            }
        }
        labels
    }

    /// The loop iterations that are left, if there is a loop.
    fn iteration_limit(&mut self, ops: &[Op]) -> Option<Variable> {
        if !ops.iter().any(|op| matches!(op, Op::JumpBack { .. })) {
            return None;
        }
        let left = self.b.declare_var(types::I32);
        let most = i64::from(MAX_LOOP_ITERATIONS);
        let most = self.b.ins().iconst(types::I32, most);
        self.b.def_var(left, most);
        Some(left)
    }

    /// Lets the interpreter execute an operation. `skip`: where it may go besides the next one.
    fn step(&mut self, at: u32, op: &Op, skip: Option<Block>, exits: Exits) {
        let status = self.call(callback!(step), at.into());
        if let Some(skip) = skip {
            // A skip is all that can happen.
            self.leave_if(status, skip);
        } else if may_end(op) {
            self.check(status, exits, &[Status::Error]);
        }
    }

    /// Writes an operation on registers, counters, the clock or the whole packet; false if it is
    /// another one. `skip`: where it may go besides the next one.
    fn state_op(&mut self, op: &Op, skip: Option<Block>) -> Result<bool> {
        match *op {
            Op::RegisterRead {
                d, array, index, ..
            } => {
                let column = self.column(array.into())?;
                let skip = skip.ok_or_else(|| Untranslated::new("a skip leads nowhere"))?;
                let cell = self.cell(column, index, skip)?;
                for (word, slot) in (0..column.words).zip(d..) {
                    let value = self
                        .b
                        .ins()
                        .load(types::I64, cells(), cell, 8 * word as i32);
                    self.set_word(slot, value)?;
                }
            }
            Op::RegisterWrite { array, index, a } => {
                let column = self.column(array.into())?;
                let beyond = self.b.create_block();
                let cell = self.cell(column, index, beyond)?;
                for (word, slot) in (0..column.words).zip(a..) {
                    let value = self.word(slot)?;
                    self.b.ins().store(cells(), value, cell, 8 * word as i32);
                }
                self.join(beyond);
            }
            Op::Count { array, index } => {
                let column = self.column(self.source.state.counter_array(array.into()))?;
                let beyond = self.b.create_block();
                let cell = self.cell(column, index, beyond)?;
                let length = self.context_word(offset_of!(Context, ingress_length));
                let one = self.number(1);
                for (more, at) in [(one, 0), (length, 8)] {
                    let count = self.b.ins().load(types::I64, cells(), cell, at);
                    let count = self.b.ins().iadd(count, more);
                    self.b.ins().store(cells(), count, cell, at);
                }
                self.join(beyond);
            }
            Op::Now { d } => {
                let now = self.env_word(offset_of!(Env, now_ns));
                self.set_word(d, now)?;
            }
            Op::Hold { args } => {
                self.ask(callback!(hold), args.into());
            }
            Op::Backlog { d, class } => {
                let class = self.word(class)?;
                let bytes = self.ask_about(callback!(backlog), class);
                self.set_word(d, bytes)?;
            }
            Op::MarkToDrop => {
                let i = &self.source.program.intrinsics;
                let drop = self.number(self.source.drop_port);
                self.set_field(i.egress_spec, drop)?;
                if let Some(group) = i.mcast_grp {
                    let none = self.number(0);
                    self.set_field(group, none)?;
                }
            }
            Op::MarkCopyToDrop {
                egress_spec,
                mcast_grp,
            } => {
                let bits = self.source.program.intrinsics.egress_spec.bits;
                let drop = self.number(self.source.drop_port & mask64(bits));
                let none = self.number(0);
                self.set_word(egress_spec, drop)?;
                self.set_word(mcast_grp, none)?;
            }
            Op::Truncate { a } => {
                let (limit, at) = (self.word(a)?, offset_of!(Context, truncate));
                let before = self.context_word(at);
                let limit = self.b.ins().umin(before, limit);
                self.set_context(at, limit);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The places of an array's cells, which are all there.
    fn column(&self, array: usize) -> Result<Column> {
        let column = self.source.state.cells.column(array);
        column.ok_or_else(|| Untranslated::new("a register or counter is not there"))
    }

    /// The address of a cell; goes to `beyond` if the array does not have it.
    fn cell(&mut self, column: Column, index: Slot, beyond: Block) -> Result<Value> {
        let index = self.word(index)?;
        let known = self.compare(IntCC::UnsignedLessThan, index, column.cells as u64);
        let next = self.b.create_block();
        self.branch(known, next, beyond);
        self.go_on(next);
        let base = self.env_word(offset_of!(Env, cells));
        let stride = self.b.ins().imul_imm(index, 8 * column.stride as i64);
        let row = self.b.ins().iadd(base, stride);
        Ok(self.b.ins().iadd_imm(row, 8 * column.first as i64))
    }
}

impl Run<'_, '_, '_> {
    /// The block of an operation, or of the end.
    fn label(&self, at: u32) -> Result<Block> {
        let block = self.labels.get(&at.min(self.code.end)).copied();
        block.ok_or_else(|| Untranslated::new("a jump leads nowhere"))
    }

    /// Writes the operations. Afterwards the emitter is in a block that is reached when they run to
    /// their end.
    fn write(mut self, ops: &[Op]) -> Result<()> {
        // Whether the operation can be reached.
        let mut reached = true;
        for (at, op) in (self.code.start..).zip(ops) {
            if let Some(&label) = self.labels.get(&at) {
                if reached {
                    self.emitter.jump(label);
                }
                self.emitter.begin(label);
                reached = true;
            }
            if reached {
                reached = self.op(at, op)?;
            }
        }
        if let Some(&label) = self.labels.get(&self.code.end) {
            if reached {
                self.emitter.jump(label);
            }
            self.emitter.begin(label);
        } else if !reached {
            let nowhere = self.emitter.b.create_block();
            self.emitter.begin(nowhere);
        }
        Ok(())
    }

    /// Writes an operation; false if the next one is not reached from it.
    fn op(&mut self, at: u32, op: &Op) -> Result<bool> {
        match *op {
            Op::Jump { to } => {
                let to = self.label(to)?;
                self.emitter.jump(to);
                return Ok(false);
            }
            Op::JumpIfZero { a, to } => {
                let (truth, to) = (self.emitter.truth(a)?, self.label(to)?);
                let next = self.emitter.b.create_block();
                self.emitter.branch(truth, next, to);
                self.emitter.go_on(next);
            }
            Op::JumpBack { to } => {
                self.jump_back(self.label(to)?)?;
                return Ok(false);
            }
            Op::Exit => {
                self.emitter.jump(self.exits.exit);
                return Ok(false);
            }
            Op::Assert { a } => {
                let truth = self.emitter.truth(a)?;
                let next = self.emitter.b.create_block();
                self.emitter.branch(truth, next, self.exits.asserted);
                self.emitter.go_on(next);
            }
            _ => {
                let skip = jump_target(at, op).map(|to| self.label(to)).transpose()?;
                let emitter = &mut *self.emitter;
                if !emitter.words_op(op)?
                    && !emitter.state_op(op, skip)?
                    && !emitter.header_op(op, self.exits)?
                {
                    emitter.step(at, op, skip, self.exits);
                }
            }
        }
        Ok(true)
    }

    fn jump_back(&mut self, to: Block) -> Result<()> {
        let left = self.iterations_left;
        let variable = left.ok_or_else(|| Untranslated::new("a loop has no limit"))?;
        let left = self.emitter.b.use_var(variable);
        let next = self.emitter.b.create_block();
        self.emitter.branch(left, next, self.exits.asserted);
        self.emitter.go_on(next);
        let left = self.emitter.b.ins().iadd_imm(left, -1);
        self.emitter.b.def_var(variable, left);
        self.emitter.jump(to);
        Ok(())
    }
}

/// Whether an operation that the interpreter executes may end the code.
fn may_end(op: &Op) -> bool {
    matches!(
        op,
        Op::ExtractNext { .. }
            | Op::ExtractVariable { .. }
            | Op::ExtractNextVariable { .. }
            | Op::Extract { .. }
            | Op::Advance { .. }
            | Op::Lookahead { .. }
            | Op::Verify { .. }
            | Op::NeedLast { .. }
    )
}
