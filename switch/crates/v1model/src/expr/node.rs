//! Typed expression trees.

use crate::error::{LoadResult, refuse};
use crate::layout::Field;
use crate::wide::mask64;

/// Widest intermediate value in bits.
pub(super) const MAX_BITS: u32 = 8_192;

/// Range of a value: `0 <= v < 2^bits`, or `-2^bits <= v < 2^bits` if `neg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub neg: bool,
    pub bits: u32,
}

impl Range {
    pub const BOOL: Self = Self::unsigned(1);

    pub const fn unsigned(bits: u32) -> Self {
        Self { neg: false, bits }
    }

    pub const fn signed(bits: u32) -> Self {
        Self { neg: true, bits }
    }

    pub const fn of_field(f: Field) -> Self {
        if f.signed {
            Self::signed(f.bits - 1)
        } else {
            Self::unsigned(f.bits)
        }
    }

    /// Bits that hold any value of the range, including the sign bit if there is one.
    pub fn storage(self) -> u32 {
        (self.bits + u32::from(self.neg)).max(1)
    }
}

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinOp {
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

impl BinOp {
    /// The operator that BMv2 JSON writes as `op`.
    pub fn from_json(op: &str) -> Option<Self> {
        Some(match op {
            "+" => Self::Add,
            "-" => Self::Sub,
            "*" => Self::Mul,
            "/" => Self::Div,
            "%" => Self::Rem,
            "&" => Self::And,
            "|" => Self::Or,
            "^" => Self::Xor,
            "<<" => Self::Shl,
            ">>" => Self::Shr,
            "==" => Self::Eq,
            "!=" => Self::Ne,
            "<" => Self::Lt,
            "<=" => Self::Le,
            ">" => Self::Gt,
            ">=" => Self::Ge,
            "and" => Self::LAnd,
            "or" => Self::LOr,
            _ => return None,
        })
    }
}

/// The value that a node computes.
#[derive(Debug)]
pub(super) enum Kind {
    /// Two's complement limbs.
    Const(Vec<u64>),
    Slot(Field),
    /// A field (its slot is an offset) of a stack element.
    Element {
        stack: usize,
        index: Box<Node>,
        field: Field,
    },
    /// A field (its slot is an offset) of the last element of a stack.
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
    /// Whether two headers are equal (or, if true, differ).
    HeaderEq(HeaderNode, HeaderNode, bool),
    Valid(HeaderNode),
    /// A cell of a register: array, index, width.
    Register(u16, Box<Node>, u32),
}

/// A typed expression.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) kind: Kind,
    pub(super) range: Range,
}

/// A header named by an expression.
#[derive(Debug)]
pub(crate) enum HeaderNode {
    Fixed(usize),
    Element(usize, Box<Node>),
}

/// A header union named by an expression: itself, or an element of a stack of unions.
#[derive(Debug)]
pub(super) enum UnionNode {
    Fixed(usize),
    Element(usize, Box<Node>),
}

/// The destination of an assignment.
#[derive(Debug)]
pub(crate) enum Dest {
    Field(Field),
    /// A field (its slot is an offset) of a stack element.
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

impl Node {
    /// A field, an action parameter, or anything else that has a slot.
    pub(super) fn field(f: Field) -> Self {
        Self {
            range: Range::of_field(f),
            kind: Kind::Slot(f),
        }
    }

    /// The index of the last element of a stack. That of an empty stack is 2^64 - 1, because BMv2
    /// subtracts from an unsigned 0.
    pub(super) fn last_index(stack: usize) -> Self {
        Self {
            kind: Kind::LastIndex(stack),
            range: Range::unsigned(64),
        }
    }

    pub(super) fn zero() -> Self {
        Self {
            kind: Kind::Const(vec![0]),
            range: Range::unsigned(0),
        }
    }

    /// A node whose value is 0 or 1.
    pub(super) fn bool(kind: Kind) -> Self {
        Self {
            kind,
            range: Range::BOOL,
        }
    }

    /// The truth of a value: 0 or 1.
    pub(super) fn truth(self) -> Self {
        if self.range == Range::BOOL {
            return self;
        }
        Self::bool(Kind::Truth(Box::new(self)))
    }

    /// The logical negation of a truth value.
    pub(super) fn not(self) -> Self {
        Self::bool(Kind::Not(Box::new(self)))
    }

    /// True if any of the truth values is.
    pub(super) fn any(mut all: impl Iterator<Item = LoadResult<Self>>) -> LoadResult<Self> {
        let Some(first) = all.next() else {
            return Ok(Self::zero());
        };
        all.try_fold(first?, |a, b| Self::binary(BinOp::LOr, a, b?))
    }

    /// The value of a constant of at most 64 bits that is not negative.
    fn small_constant(&self) -> Option<u64> {
        match &self.kind {
            Kind::Const(v) if !self.range.neg && v.iter().skip(1).all(|&x| x == 0) => {
                Some(v.first().copied().unwrap_or(0))
            }
            _ => None,
        }
    }

    /// Applies a binary operator.
    pub(super) fn binary(op: BinOp, l: Self, r: Self) -> LoadResult<Self> {
        let (l, r) = match op {
            BinOp::LAnd | BinOp::LOr => (l.truth(), r.truth()),
            _ => (l, r),
        };
        let (a, b) = (l.range, r.range);
        let neg = a.neg || b.neg;
        let most = a.bits.max(b.bits);
        let bits = match op {
            BinOp::Add | BinOp::Sub => most + 1,
            BinOp::Mul => a.bits + b.bits + u32::from(neg),
            BinOp::Div => a.bits + u32::from(a.neg && b.neg),
            // The sign of the dividend; the size of the divisor at most.
            BinOp::Rem if b.neg => a.bits,
            BinOp::Rem => b.bits,
            BinOp::And => match (a.neg, b.neg) {
                (false, false) => a.bits.min(b.bits),
                (false, true) => a.bits,
                (true, false) => b.bits,
                (true, true) => most,
            },
            BinOp::Or | BinOp::Xor => most,
            BinOp::Shl => {
                // The largest amount that can occur; a constant is known exactly.
                let amount = r.small_constant().unwrap_or(mask64(b.bits));
                let amount = u32::try_from(amount).unwrap_or(u32::MAX / 4);
                a.bits.saturating_add(amount).min(u32::MAX / 4)
            }
            BinOp::Shr => {
                let amount = r.small_constant().unwrap_or(0);
                a.bits
                    .saturating_sub(u32::try_from(amount).unwrap_or(u32::MAX))
            }
            _ => 1,
        };
        if bits > u32::MAX / 4 {
            refuse!("the result can be wider than any limit");
        }
        let neg = match op {
            BinOp::Add | BinOp::Mul | BinOp::Div | BinOp::Or | BinOp::Xor => neg,
            BinOp::Sub => true,
            BinOp::Rem | BinOp::Shl | BinOp::Shr => a.neg,
            BinOp::And => a.neg && b.neg,
            _ => false,
        };
        Ok(Self {
            kind: Kind::Bin(op, Box::new(l), Box::new(r)),
            range: Range { neg, bits },
        })
    }
}
