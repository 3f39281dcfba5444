//! The compiler of expressions: owns the growing code, the constants and the temporaries.

use super::known::Known;
use crate::error::{LoadResult, refuse};
use crate::layout::{Field, Layout};
use crate::message::Message;
use crate::ops::{Code, Op, Written};
use crate::slot::{Changes, RESHAPED, Slot};
use crate::trace::PrimitiveLabel;
use crate::wide::limbs;
use std::collections::HashMap;

/// Most words of temporaries of one primitive, with those kept from primitives before it.
pub(crate) const MAX_TEMP_WORDS: u32 = 8_192;
/// Most words of temporaries that a statement leaves to those after it.
const MAX_KEPT_WORDS: u32 = 64;
/// Most operations of a program.
const MAX_OPS: usize = 4 << 20;
/// Most words of constants.
const MAX_CONSTANT_WORDS: usize = 1 << 20;

/// Compiles expressions against a layout.
pub(crate) struct Compiler<'a> {
    pub layout: &'a Layout,
    pub ops: Vec<Op>,
    /// Values of the constant slots, from `constant_base` on.
    pub constants: Vec<u64>,
    constant_base: Slot,
    constant_slots: HashMap<Vec<u64>, Slot>,
    temp_base: Slot,
    temp_next: Slot,
    /// Most words of temporaries that were in use at once.
    pub temps_used: u32,
    /// Parameters of the action being compiled.
    pub params: Vec<Field>,
    /// Index and width of each register array.
    pub registers: HashMap<String, (u16, u32)>,
    /// Messages that the program logs.
    pub messages: Vec<Message>,
    /// The primitives of the code so far.
    pub primitives: Vec<PrimitiveLabel>,
    known: Known,
}

impl<'a> Compiler<'a> {
    /// A compiler without code.
    ///
    /// `param_words`: the most words that one action's arguments take. `temp_words`: words set
    /// aside for temporaries.
    pub fn new(layout: &'a Layout, param_words: u32, temp_words: u32) -> Self {
        let temp_base = layout.words + param_words;
        Self {
            layout,
            ops: Vec::new(),
            constants: Vec::new(),
            constant_base: temp_base + temp_words,
            constant_slots: HashMap::new(),
            temp_base,
            temp_next: temp_base,
            temps_used: 0,
            params: Vec::new(),
            registers: HashMap::new(),
            messages: Vec::new(),
            primitives: Vec::new(),
            known: Known::default(),
        }
    }

    /// First slot of action arguments.
    pub fn param_base(&self) -> Slot {
        self.layout.words
    }

    /// First slot of the temporaries, which follow the action arguments.
    pub fn temp_base(&self) -> Slot {
        self.temp_base
    }

    /// First slot of the constants.
    pub fn constant_base(&self) -> Slot {
        self.constant_base
    }

    /// Address of the next operation.
    pub fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Code from `start` to here.
    pub fn since(&self, start: u32) -> Code {
        let ops = self.ops.get(start as usize..).unwrap_or_default();
        Code {
            start,
            end: self.here(),
            changes: ops.iter().fold(0, |all, op| all | self.changes(op)),
        }
    }

    /// Headers that an operation may change.
    fn changes(&self, op: &Op) -> Changes {
        match op.written() {
            Written::Nothing => 0,
            Written::Words(slot, words) => self.layout.changes(slot, words),
            Written::Two(a, b) => self.layout.changes(a, 1) | self.layout.changes(b, 1),
            Written::Cell(slot, array) => self
                .cell_words(array)
                .map_or(RESHAPED, |words| self.layout.changes(slot, words)),
            Written::Elements(stack) => {
                let bases = self.layout.stacks.get(usize::from(stack));
                let bases = bases.map_or(&[][..], |stack| &stack.bases);
                // The field after the validity: any field of it stands for the header.
                let change = |base: &Slot| self.layout.changes(base + 1, 1);
                bases.iter().fold(0, |all, base| all | change(base))
            }
        }
    }

    /// Words of a cell of the register array `array`.
    fn cell_words(&self, array: u16) -> Option<u32> {
        let mut registers = self.registers.values();
        let found = registers.find(|(index, _)| *index == array);
        found.map(|&(_, bits)| limbs(bits))
    }

    /// Emits an operation.
    pub fn emit(&mut self, op: Op) {
        match op.written() {
            Written::Words(slot, words) => self.known.overwrite(slot, words),
            Written::Two(a, b) => {
                self.known.overwrite(a, 1);
                self.known.overwrite(b, 1);
            }
            Written::Cell(slot, array) => match self.cell_words(array) {
                Some(words) => self.known.overwrite(slot, words),
                None => self.forget(),
            },
            Written::Nothing if op.leaves_words() => {}
            Written::Nothing | Written::Elements(_) => self.forget(),
        }
        self.ops.push(op);
    }

    /// Emits an operation that makes one word of others, unless its result is known. Returns the
    /// slot of the result, which must not be written to.
    pub(super) fn computed(&mut self, op: impl Fn(Slot) -> Op) -> LoadResult<Slot> {
        let value = op(0);
        if let Some(slot) = self.known.find(&value) {
            return Ok(slot);
        }
        let d = self.temp(1)?;
        self.emit(op(d));
        self.known.note(value, d);
        Ok(d)
    }

    /// Emits the form of an operation that fits a result of `n` words: `one`, or `wide` with the
    /// destination and `n`. Returns the slot of the result, which must not be written to.
    pub(super) fn computed_on(
        &mut self,
        n: u32,
        one: impl Fn(Slot) -> Op,
        wide: impl Fn(Slot, u16) -> Op,
    ) -> LoadResult<Slot> {
        if n == 1 {
            return self.computed(one);
        }
        let d = self.temp(n)?;
        self.emit(wide(d, n as u16));
        Ok(d)
    }

    /// Makes the last operation, whose result is the temporary `from`, write to `to` instead. False
    /// if it is another operation or cannot.
    pub(super) fn retarget(&mut self, from: Slot, to: Slot) -> bool {
        let is_temp = (self.temp_base..self.constant_base).contains(&from);
        let last = self.ops.last_mut().filter(|_| is_temp);
        if !last.is_some_and(|op| op.retarget(from, to)) {
            return false;
        }
        self.known.overwrite(to, 1);
        self.known.move_result(from, to);
        true
    }

    /// Emits a jump if `a` is zero, and returns its address for [`Self::land`].
    pub fn jump_if_zero(&mut self, a: Slot) -> u32 {
        self.emit(Op::JumpIfZero { a, to: 0 });
        self.here() - 1
    }

    /// Emits a jump, and returns its address for [`Self::land`].
    pub fn jump(&mut self) -> u32 {
        self.emit(Op::Jump { to: 0 });
        self.here() - 1
    }

    /// Makes the jump at `jump` go to the next operation.
    pub fn land(&mut self, jump: u32) {
        self.forget();
        let here = self.here();
        self.set_target(jump, here);
    }

    /// Makes the jump at `jump` go to `target`.
    pub fn set_target(&mut self, jump: u32, target: u32) {
        match self.ops.get_mut(jump as usize) {
            Some(Op::Jump { to } | Op::JumpIfZero { to, .. }) => *to = target,
            other => debug_assert!(false, "no jump at {jump}: {other:?}"),
        }
    }

    /// Forgets which values are known, because code may come here from elsewhere, or not have come
    /// the whole way.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Gives the temporaries back; values computed before are gone.
    pub fn free_temps(&mut self) {
        self.forget();
        self.temp_next = self.temp_base;
    }

    /// Begins a statement that always follows the one before: the temporaries stay, with the known
    /// values, as long as they are few.
    pub fn next_statement(&mut self) {
        if self.temp_next - self.temp_base > MAX_KEPT_WORDS {
            self.free_temps();
        }
    }

    /// Reserves `n` fresh temporary words.
    pub fn temp(&mut self, n: u32) -> LoadResult<Slot> {
        let slot = self.temp_next;
        if slot + n > self.constant_base {
            refuse!("expression needs more than {MAX_TEMP_WORDS} words of temporaries");
        }
        if self.ops.len() > MAX_OPS {
            refuse!("program needs more than {MAX_OPS} operations");
        }
        self.temp_next += n;
        self.temps_used = self.temps_used.max(self.temp_next - self.temp_base);
        Ok(slot)
    }

    /// Reserves a constant, or finds it, and returns its slot.
    pub fn constant(&mut self, value: &[u64]) -> LoadResult<Slot> {
        if let Some(&slot) = self.constant_slots.get(value) {
            return Ok(slot);
        }
        if self.constants.len() + value.len() > MAX_CONSTANT_WORDS {
            refuse!("program needs more than {MAX_CONSTANT_WORDS} words of constants");
        }
        let slot = self.constant_base + self.constants.len() as u32;
        self.constants.extend_from_slice(value);
        self.constant_slots.insert(value.to_vec(), slot);
        Ok(slot)
    }
}
