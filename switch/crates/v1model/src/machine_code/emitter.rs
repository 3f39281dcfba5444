//! Writes instructions: loads and stores of the packet's words, callbacks, jumps.

use super::env::{Env, Status};
use super::source::Source;
use super::untranslated::{Result, Untranslated};
use crate::context::Context;
use crate::layout::Field;
use crate::slot::{Changes, Slot};
use crate::unchanged::Unchanged;
use crate::wide::mask64;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, Block, InstBuilder, MemFlags, SigRef, Signature, Type, Value, types,
};
use cranelift_frontend::FunctionBuilder;
use std::collections::HashMap;
use std::mem::offset_of;

/// Most operations of a stage that become machine code. The interpreter runs the others.
const MAX_STAGE_OPS: usize = 20_000;

/// Words whose values are known in the block that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    words: HashMap<Slot, Value>,
    /// Results of comparisons as the processor's truth values.
    truths: HashMap<Slot, Value>,
    /// The least position, in the deparser's order, of the next header that the parser finds in order.
    next_position: Option<u32>,
}

/// Where to go when code does not run to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exits {
    pub exit: Block,
    pub asserted: Block,
    pub fault: Block,
    /// Takes the code of the parser error.
    pub error: Block,
}

/// Writes one function.
pub(super) struct Emitter<'a, 'f> {
    pub b: FunctionBuilder<'f>,
    pub source: &'a Source<'a>,
    pub env: Value,
    pub ctx: Value,
    phv: Value,
    /// Words of the packet.
    words: u32,
    known: Known,
    callback: SigRef,
    /// Operations that may still become machine code.
    pub ops_left: usize,
    endings: Vec<Ending>,
}

/// A block that ends code early. It is written last.
struct Ending {
    block: Block,
    /// The `bool` of [`Context`] that it sets.
    flag: Option<usize>,
    to: Block,
    /// The argument of `to`, if it takes one.
    argument: Option<u64>,
}

/// Memory that is there and aligned, in a region that no access to another region touches.
fn flags(region: AliasRegion) -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(region))
}

/// The packet's words.
fn words() -> MemFlags {
    flags(AliasRegion::Heap)
}

/// The context and the data of the call.
fn context() -> MemFlags {
    flags(AliasRegion::Vmctx)
}

/// The switch's input.
pub(super) fn given() -> MemFlags {
    flags(AliasRegion::Vmctx).with_readonly()
}

/// Bytes of the frame, which need no alignment.
pub(super) fn bytes() -> MemFlags {
    MemFlags::new()
        .with_notrap()
        .with_alias_region(Some(AliasRegion::Table))
}

/// Registers and counters.
pub(super) fn cells() -> MemFlags {
    MemFlags::trusted()
}

/// An offset of a field, which is small.
fn small(offset: usize) -> i32 {
    offset as i32
}

impl<'a, 'f> Emitter<'a, 'f> {
    /// Begins a function.
    pub fn new(mut b: FunctionBuilder<'f>, source: &'a Source<'a>) -> Result<Self> {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let env = b.block_params(entry)[0];
        let load =
            |b: &mut FunctionBuilder<'_>, at| b.ins().load(types::I64, context(), env, small(at));
        let phv = load(&mut b, offset_of!(Env, phv));
        let ctx = load(&mut b, offset_of!(Env, ctx));
        let mut signature = Signature::new(b.func.signature.call_conv);
        signature.params = vec![AbiParam::new(types::I64); 2];
        signature.returns = vec![AbiParam::new(types::I64)];
        let callback = b.import_signature(signature);
        let program = source.program;
        let words = program.constant_base as usize + program.constants.len();
        let words = u32::try_from(words).map_err(Untranslated::new)?;
        Ok(Self {
            b,
            source,
            env,
            ctx,
            phv,
            words,
            known: Known::default(),
            callback,
            ops_left: MAX_STAGE_OPS,
            endings: Vec::new(),
        })
    }

    /// Completes the function.
    pub fn complete(mut self) {
        for ending in std::mem::take(&mut self.endings) {
            self.begin(ending.block);
            if let Some(flag) = ending.flag {
                self.set_flag(flag);
            }
            let argument = ending.argument.map(|argument| self.number(argument).into());
            self.b.ins().jump(ending.to, argument.as_slice());
        }
        self.b.seal_all_blocks();
        self.b.finalize();
    }

    /// Exits that note failed assertions and faults in the context and go to `to`, with an argument if
    /// it takes one.
    pub fn exits(&mut self, to: Block, argument: Option<u64>) -> Exits {
        let [asserted, fault, error] = [(); 3].map(|()| self.b.create_block());
        self.b.append_block_param(error, types::I64);
        for (block, flag) in [
            (asserted, Some(offset_of!(Context, assertion_failed))),
            (fault, Some(offset_of!(Context, internal_error))),
            (error, None),
        ] {
            self.endings.push(Ending {
                block,
                flag,
                to,
                argument,
            });
        }
        Exits {
            exit: to,
            asserted,
            fault,
            error,
        }
    }

    /// A number.
    pub fn number(&mut self, value: u64) -> Value {
        self.b.ins().iconst(types::I64, value.cast_signed())
    }

    /// The byte offset of `n` words from `slot` on, if the packet has them.
    fn place(&self, slot: Slot, n: u32) -> Result<i32> {
        let end = slot.checked_add(n).filter(|&end| end <= self.words);
        match end.and_then(|_| i32::try_from(u64::from(slot) * 8).ok()) {
            Some(offset) => Ok(offset),
            None => Err(Untranslated(format!("slot {slot} is not in the packet"))),
        }
    }

    /// The value of a constant's slot.
    pub fn constant(&self, slot: Slot) -> Option<u64> {
        let program = self.source.program;
        let at = slot.checked_sub(program.constant_base)?;
        program.constants.get(at as usize).copied()
    }

    /// A word of the packet.
    pub fn word(&mut self, slot: Slot) -> Result<Value> {
        if let Some(&known) = self.known.words.get(&slot) {
            return Ok(known);
        }
        let value = match self.constant(slot) {
            Some(constant) => self.number(constant),
            None => {
                let offset = self.place(slot, 1)?;
                self.b.ins().load(types::I64, words(), self.phv, offset)
            }
        };
        self.known.words.insert(slot, value);
        Ok(value)
    }

    /// Sets a word of the packet.
    pub fn set_word(&mut self, slot: Slot, value: Value) -> Result<()> {
        let offset = self.place(slot, 1)?;
        self.b.ins().store(words(), value, self.phv, offset);
        self.known.words.insert(slot, value);
        self.known.truths.remove(&slot);
        Ok(())
    }

    /// Sets a field, truncated to its width.
    pub fn set_field(&mut self, field: Field, value: Value) -> Result<()> {
        let mask = mask64(field.bits);
        let low = if mask == u64::MAX {
            value
        } else {
            self.b.ins().band_imm(value, mask.cast_signed())
        };
        self.set_word(field.slot, low)?;
        for slot in (field.slot..field.slot + field.limbs()).skip(1) {
            let zero = self.number(0);
            self.set_word(slot, zero)?;
        }
        Ok(())
    }

    /// Clears the first words of the packet, of which nothing is known then.
    pub fn clear(&mut self, n: u32) -> Result<()> {
        let zero = self.number(0);
        let pair = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
            .then(|| self.b.ins().splat(types::I64X2, zero));
        let unaligned = MemFlags::new()
            .with_notrap()
            .with_alias_region(Some(AliasRegion::Heap));
        let mut slot = 0;
        while slot < n {
            let (value, words) = match pair {
                Some(pair) if slot + 1 < n => (pair, 2),
                _ => (zero, 1),
            };
            let offset = self.place(slot, words)?;
            self.b.ins().store(unaligned, value, self.phv, offset);
            slot += words;
        }
        self.known = Known::default();
        Ok(())
    }

    /// Notes that the parser is at the beginning of a frame.
    pub fn begin_frame(&mut self) {
        self.known.next_position = Some(0);
    }

    /// The least position of the next header in order, where it is known.
    pub fn next_position(&self) -> Option<u32> {
        self.known.next_position
    }

    /// Notes the least position of the next header in order.
    pub fn set_next_position(&mut self, position: Option<u32>) {
        self.known.next_position = position;
    }

    /// Sets a word of the packet to a truth value.
    pub fn set_truth(&mut self, slot: Slot, truth: Value) -> Result<()> {
        let word = self.b.ins().uextend(types::I64, truth);
        self.set_word(slot, word)?;
        self.known.truths.insert(slot, truth);
        Ok(())
    }

    /// A value that is 0 where a word is 0.
    pub fn truth(&mut self, slot: Slot) -> Result<Value> {
        match self.known.truths.get(&slot) {
            Some(&truth) => Ok(truth),
            None => self.word(slot),
        }
    }

    /// The words whose values are known now.
    pub fn known(&self) -> Known {
        self.known.clone()
    }

    /// Begins a block in which `known` holds.
    pub fn begin_with(&mut self, block: Block, known: Known) {
        self.b.switch_to_block(block);
        self.known = known;
    }

    /// Begins a block that several blocks lead to.
    pub fn begin(&mut self, block: Block) {
        self.begin_with(block, Known::default());
    }

    /// Begins a block that only the present one leads to.
    pub fn go_on(&mut self, block: Block) {
        self.b.switch_to_block(block);
    }

    /// Goes on where both the present block and `other` do, without what the present block knows.
    pub fn join(&mut self, other: Block) {
        self.jump(other);
        self.begin(other);
    }

    /// Jumps to a block.
    pub fn jump(&mut self, to: Block) {
        self.b.ins().jump(to, &[]);
    }

    /// Jumps by a truth value or word.
    pub fn branch(&mut self, truth: Value, yes: Block, no: Block) {
        self.b.ins().brif(truth, yes, &[], no, &[]);
    }

    /// Leaves for `to` where a truth value or word is not 0.
    pub fn leave_if(&mut self, truth: Value, to: Block) {
        let next = self.b.create_block();
        self.branch(truth, to, next);
        self.go_on(next);
    }

    /// Leaves with a parser error where a truth value or word is not 0.
    pub fn fail_if(&mut self, truth: Value, exits: Exits, error: Value) {
        let next = self.b.create_block();
        let ins = self.b.ins();
        ins.brif(truth, exits.error, &[error.into()], next, &[]);
        self.go_on(next);
    }

    /// A comparison with a number.
    pub fn compare(&mut self, relation: IntCC, a: Value, b: u64) -> Value {
        let b = self.number(b);
        self.b.ins().icmp(relation, a, b)
    }

    /// A word of [`Env`].
    pub fn env_word(&mut self, offset: usize) -> Value {
        let env = self.env;
        self.b.ins().load(types::I64, context(), env, small(offset))
    }

    /// A field of [`Context`].
    pub fn context_word(&mut self, offset: usize) -> Value {
        let ctx = self.ctx;
        self.b.ins().load(types::I64, context(), ctx, small(offset))
    }

    /// Sets a field of [`Context`], of the width of `value`.
    pub fn set_context(&mut self, offset: usize, value: Value) {
        let ctx = self.ctx;
        self.b.ins().store(context(), value, ctx, small(offset));
    }

    /// Sets a `bool` of [`Context`].
    pub fn set_flag(&mut self, offset: usize) {
        let one = self.b.ins().iconst(types::I8, 1);
        self.set_context(offset, one);
    }

    /// Notes changes of headers.
    pub fn note(&mut self, changes: Changes) {
        if changes != 0 {
            let at = offset_of!(Context, unchanged) + Unchanged::CHANGED;
            let before = self.context_word(at);
            let after = self.b.ins().bor_imm(before, changes.cast_signed());
            self.set_context(at, after);
        }
    }

    /// Calls a callback that may change words of the packet.
    pub fn call(&mut self, callback: usize, a: u64) -> Value {
        let answer = self.ask(callback, a);
        self.known = Known::default();
        answer
    }

    /// Calls a callback that changes no word of the packet.
    pub fn ask(&mut self, callback: usize, a: u64) -> Value {
        let a = self.number(a);
        self.ask_about(callback, a)
    }

    /// [`Self::ask`] about a value.
    pub fn ask_about(&mut self, callback: usize, a: Value) -> Value {
        let callbacks = self.env_word(offset_of!(Env, callbacks));
        let flags = context().with_readonly();
        let ins = self.b.ins();
        let function = ins.load(types::I64, flags, callbacks, small(callback));
        let arguments = [self.env, a];
        let ins = self.b.ins();
        let call = ins.call_indirect(self.callback, function, &arguments);
        self.b.inst_results(call)[0]
    }

    /// Goes on or leaves as a [`Status`] says that is one of `others`, or [`Status::Done`].
    pub fn check(&mut self, status: Value, exits: Exits, others: &[Status]) {
        let next = self.b.create_block();
        let other = self.b.create_block();
        self.branch(status, other, next);
        self.go_on(other);
        for of in others {
            let block = match of {
                Status::Done | Status::Skipped => next,
                Status::Exit => exits.exit,
                Status::Asserted => exits.asserted,
                Status::Fault => exits.fault,
                Status::Error => {
                    let error = self.env_word(offset_of!(Env, error));
                    let is_it = self.compare(IntCC::Equal, status, *of as u64);
                    self.fail_if(is_it, exits, error);
                    continue;
                }
            };
            let is_it = self.compare(IntCC::Equal, status, *of as u64);
            self.leave_if(is_it, block);
        }
        self.jump(exits.fault);
        self.go_on(next);
    }

    /// A load of `bytes` (1, 2, 4 or 8) bytes, big-endian.
    pub fn load_be(&mut self, kind: Type, base: Value, at: i32) -> Value {
        let raw = self.b.ins().load(kind, bytes(), base, at);
        let value = if kind == types::I8 {
            raw
        } else {
            self.b.ins().bswap(raw)
        };
        if kind == types::I64 {
            value
        } else {
            self.b.ins().uextend(types::I64, value)
        }
    }

    /// A store of the low bytes of `value`, big-endian.
    pub fn store_be(&mut self, kind: Type, base: Value, at: i32, value: Value) {
        let low = if kind == types::I64 {
            value
        } else {
            self.b.ins().ireduce(kind, value)
        };
        let raw = if kind == types::I8 {
            low
        } else {
            self.b.ins().bswap(low)
        };
        self.b.ins().store(bytes(), raw, base, at);
    }
}

/// The offset of a callback.
macro_rules! callback {
    ($name:ident) => {
        std::mem::offset_of!(crate::machine_code::env::Callbacks, $name)
    };
}
pub(super) use callback;
