//! Expressions: from BMv2 JSON trees to flat code.
//!
//! BMv2 evaluates with unbounded integers and truncates on assignment. To get the same result
//! in fixed width, every node carries the range its value can take. Where only the low bits of
//! a result matter (an assignment, a mask), operations that respect truncation run on just
//! those bits; where the whole value matters (comparison, right shift, saturation), they run
//! on as many limbs as the range needs. Most code ends up on single words.
//!
//! `tree` makes typed trees of JSON, `emit` and `arith` make code of trees, `store` assigns.

mod arith;
mod emit;
mod known;
mod literal;
mod store;
mod tree;

use crate::error::{LoadResult, refuse};
use crate::layout::{Field, Layout};
use crate::message::Message;
use crate::ops::{Code, Op, Written};
use crate::slot::{Changes, RESHAPED, Slot};
use crate::wide::limbs;
use known::Known;
use std::collections::HashMap;

pub(crate) use literal::{hex_limbs, text, type_value};

/// Most words of temporaries of one primitive, and of what is kept for it of those before.
pub(crate) const MAX_TEMP_WORDS: u32 = 8_192;
/// Widest intermediate value in bits.
const MAX_BITS: u32 = 8_192;
/// Deepest expression tree.
const MAX_DEPTH: u32 = 1_024;
/// Most operations of a program.
const MAX_OPS: usize = 4 << 20;
/// Most words of constants.
const MAX_CONSTANT_WORDS: usize = 1 << 20;

/// Range of a value: `0 <= v < 2^bits`, or `-2^bits <= v < 2^bits` where `neg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    neg: bool,
    bits: u32,
}

impl Range {
    const BOOL: Self = Self::unsigned(1);

    const fn unsigned(bits: u32) -> Self {
        Self { neg: false, bits }
    }

    const fn signed(bits: u32) -> Self {
        Self { neg: true, bits }
    }

    /// Bits that hold any such value, with its sign bit if it needs one.
    fn storage(self) -> u32 {
        (self.bits + u32::from(self.neg)).max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LAnd,
    LOr,
}

#[derive(Debug)]
enum Kind {
    /// Two's complement limbs.
    Const(Vec<u64>),
    Slot(Field),
    Element {
        stack: usize,
        index: Box<Node>,
        field: Field,
    },
    Last {
        stack: usize,
        field: Field,
    },
    LastIndex(usize),
    Size(usize),
    Invert(Box<Node>),
    Not(Box<Node>),
    Truth(Box<Node>),
    Bin(BinOp, Box<Node>, Box<Node>),
    Select(Box<Node>, Box<Node>, Box<Node>),
    TwoComp(Box<Node>, u32),
    USat(Box<Node>, u32),
    SSat(Box<Node>, u32),
    HeaderEq(HeaderNode, HeaderNode, bool),
    Valid(HeaderNode),
    /// A cell of a register: array, index, width.
    Register(u16, Box<Node>, u32),
}

/// A typed expression.
#[derive(Debug)]
pub(crate) struct Node {
    kind: Kind,
    range: Range,
    depth: u32,
}

impl Node {
    /// Is the value certainly 0 or 1?
    fn is_bool(&self) -> bool {
        self.range == Range::BOOL
    }
}

/// A header named by an expression.
#[derive(Debug)]
pub(crate) enum HeaderNode {
    Fixed(usize),
    Element(usize, Box<Node>),
}

/// A header union named by an expression: itself, or an element of a stack of unions.
#[derive(Debug)]
enum UnionNode {
    Fixed(usize),
    Element(usize, Box<Node>),
}

/// Where a computed value stands.
#[derive(Debug, Clone, Copy)]
struct Val {
    slot: Slot,
    limbs: u32,
    /// `Some`: the limbs hold exactly a value of this range, extended over all of them.
    /// `None`: only the low bits that were asked for are meaningful.
    exact: Option<Range>,
}

/// What of a value is needed.
#[derive(Debug, Clone, Copy)]
enum Need {
    All,
    Low(u32),
}

/// Where an assignment goes.
#[derive(Debug)]
pub(crate) enum Dest {
    Field(Field),
    /// Field (offset in `slot`) of a stack element.
    Element(usize, Node, Field),
}

impl Dest {
    /// Width of the destination.
    pub fn bits(&self) -> u32 {
        match self {
            Dest::Field(f) | Dest::Element(_, _, f) => f.bits,
        }
    }
}

/// Compiles expressions against a layout; owns the growing code and constants.
pub(crate) struct Compiler<'a> {
    pub layout: &'a Layout,
    pub ops: Vec<Op>,
    /// Values of the constant slots, from `constant_base` on.
    pub constants: Vec<u64>,
    constant_base: Slot,
    constant_slots: HashMap<Vec<u64>, Slot>,
    temp_base: Slot,
    temp_words: u32,
    temp_next: Slot,
    /// Most words of temporaries that were in use at once.
    pub temps_used: u32,
    /// Parameters of the action being compiled.
    pub params: Vec<Field>,
    /// Index and width of each register array.
    pub registers: HashMap<String, (u16, u32)>,
    /// Messages that the program logs.
    pub messages: Vec<Message>,
    known: Known,
}

impl<'a> Compiler<'a> {
    /// `param_words`: the most words that one action's arguments take; `temp_words`: words set
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
            temp_words,
            temp_next: temp_base,
            temps_used: 0,
            params: Vec::new(),
            registers: HashMap::new(),
            messages: Vec::new(),
            known: Known::default(),
        }
    }

    /// First slot of action arguments.
    pub fn param_base(&self) -> Slot {
        self.layout.words
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

    /// Makes the jump at `jump` go to the next operation.
    pub fn land(&mut self, jump: u32) {
        self.forget();
        let here = self.here();
        if let Some(Op::Jump { to } | Op::JumpIfZero { to, .. }) = self.ops.get_mut(jump as usize) {
            *to = here;
        }
    }

    /// `n` fresh temporary words.
    pub fn temp(&mut self, n: u32) -> LoadResult<Slot> {
        let slot = self.temp_next;
        if slot + n > self.temp_base + self.temp_words {
            refuse!("expression needs more than {MAX_TEMP_WORDS} words of temporaries");
        }
        if self.ops.len() > MAX_OPS {
            refuse!("program needs more than {MAX_OPS} operations");
        }
        self.temp_next += n;
        self.temps_used = self.temps_used.max(self.temp_next - self.temp_base);
        Ok(slot)
    }

    /// The slot of a constant.
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
