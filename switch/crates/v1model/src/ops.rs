//! The flat code that expressions, actions and parser states compile to.
//!
//! Operands are slots of the packet's word array, where fields, temporaries, action arguments
//! and constants all live, so an operation names its operands directly. `d` is a destination,
//! `a`/`b` are sources, `n` is a number of words. Jumps go to higher addresses but for
//! [`Op::JumpBack`], of which a run takes so many and no more: every run ends.

use crate::slot::{Changes, Slot};
use crate::wide::limbs;

/// A half-open range of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Code {
    pub start: u32,
    pub end: u32,
    /// Headers that it may change, but for those that come and go, which is noted as it happens.
    pub changes: Changes,
}

impl Code {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// What an operation writes, of what may be a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing, or headers that come and go.
    Nothing,
    Words(Slot, u32),
    /// As many words as a cell of this register array has.
    Cell(Slot, u16),
    /// Fields of any element.
    Elements(u16),
    /// One word each.
    Two(Slot, Slot),
}

/// A header named by the program: fixed, or an element of a stack chosen at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderRef {
    /// Base slot.
    Fixed(Slot),
    /// Stack and the slot of the index.
    Element(u16, Slot),
}

/// One operation. Arithmetic without suffix is on one word, modulo 2^64; `W` works on `n`
/// limbs, two's complement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// A plain tag: `run` looks at one for each operation.
#[repr(u8)]
pub(crate) enum Op {
    Copy {
        d: Slot,
        a: Slot,
    },
    CopyW {
        d: Slot,
        a: Slot,
        n: u16,
    },
    Add {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Sub {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Mul {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    And {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Or {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Xor {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Not {
        d: Slot,
        a: Slot,
    },
    Shl {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Shr {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// Arithmetic shift right.
    Sar {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Div {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Rem {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Sext {
        d: Slot,
        a: Slot,
        bits: u16,
    },
    Eq {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Ne {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Lt {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Le {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// Both sides are `i64`.
    LtS {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    LeS {
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// `a == 0`.
    IsZero {
        d: Slot,
        a: Slot,
    },
    /// `a != 0`.
    NonZero {
        d: Slot,
        a: Slot,
    },
    Select {
        d: Slot,
        c: Slot,
        a: Slot,
        b: Slot,
    },

    AddW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    SubW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    MulW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    AndW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    OrW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    XorW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    NotW {
        d: Slot,
        a: Slot,
        n: u16,
    },
    ShlW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    ShrW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
        signed: bool,
    },
    /// Quotient, or with `rest` the remainder.
    DivW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
        signed: bool,
        rest: bool,
    },
    /// `from` limbs to `n` limbs.
    ExtendW {
        d: Slot,
        a: Slot,
        from: u16,
        n: u16,
        signed: bool,
    },
    MaskW {
        d: Slot,
        n: u16,
        bits: u16,
    },
    SextW {
        d: Slot,
        n: u16,
        bits: u16,
    },
    ClampW {
        d: Slot,
        n: u16,
        bits: u16,
        signed: bool,
        to_signed: bool,
    },
    EqW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    LtW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
        signed: bool,
    },
    NonZeroW {
        d: Slot,
        a: Slot,
        n: u16,
    },
    SelectW {
        d: Slot,
        c: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    /// One word from `n` limbs: all ones if the value does not fit.
    Saturate {
        d: Slot,
        a: Slot,
        n: u16,
    },

    /// Field at `offset` of a stack element, zero past the end.
    LoadElement {
        d: Slot,
        stack: u16,
        index: Slot,
        offset: u16,
        n: u16,
    },
    /// Stores to a field of a stack element; nothing past the end.
    StoreElement {
        a: Slot,
        stack: u16,
        index: Slot,
        offset: u16,
        n: u16,
    },
    /// Index of the last element; -1 (64 bits) in an empty stack.
    LastIndex {
        d: Slot,
        stack: u16,
    },

    SetValid {
        h: HeaderRef,
        words: u16,
        kind: u16,
    },
    SetInvalid {
        h: HeaderRef,
        kind: u16,
    },
    /// If the header at `base`, a member of `union`, is valid, no other member is.
    Claim {
        union: u16,
        base: Slot,
    },
    /// The same for a member in an element of a stack of unions.
    ClaimElement {
        stack: u16,
        index: Slot,
    },
    CopyHeader {
        d: HeaderRef,
        a: HeaderRef,
        words: u16,
    },
    /// Both valid and all `words` fields words equal.
    EqHeader {
        d: Slot,
        a: HeaderRef,
        b: HeaderRef,
        words: u16,
    },
    CopyStack {
        d: u16,
        a: u16,
        words: u16,
    },
    /// A stack of unions is pushed member by member; only the `first` moves the counter.
    Push {
        stack: u16,
        count: Slot,
        words: u16,
        first: bool,
    },
    Pop {
        stack: u16,
        count: Slot,
        words: u16,
        first: bool,
    },

    Jump {
        to: u32,
    },
    JumpIfZero {
        a: Slot,
        to: u32,
    },
    /// To a lower address, in a loop.
    JumpBack {
        to: u32,
    },
    /// Ends the control.
    Exit,
    /// Ends the control if `a` is zero.
    Assert {
        a: Slot,
    },

    /// Reads a register cell to `d`; out of range, skips the next `skip` operations too.
    RegisterRead {
        d: Slot,
        array: u16,
        index: Slot,
        skip: u8,
    },
    RegisterWrite {
        array: u16,
        index: Slot,
        a: Slot,
    },
    Count {
        array: u16,
        index: Slot,
    },
    /// Out of range, skips the next `skip` operations too.
    Meter {
        d: Slot,
        mask: u8,
        array: u16,
        index: Slot,
        skip: u8,
    },
    /// `d = base + hash % size`, in one word.
    Hash {
        d: Slot,
        base: Slot,
        size: Slot,
        calculation: u16,
    },
    /// Uniform in `low..=high`; nothing when `low > high` (skips the next `skip` operations).
    Random {
        d: Slot,
        low: Slot,
        high: Slot,
        skip: u8,
    },
    MarkToDrop,
    /// The same on a copy of the standard metadata: what of it counts is what the program copies
    /// back.
    MarkCopyToDrop {
        egress_spec: Slot,
        mcast_grp: Slot,
    },
    Truncate {
        a: Slot,
    },
    Clone {
        session: Slot,
        list: Slot,
    },
    /// Digest of a list's fields at the end of ingress.
    Digest {
        list: Slot,
    },
    /// Message number `message` with its arguments.
    Log {
        message: u16,
    },
    Resubmit {
        list: Slot,
    },
    Recirculate {
        list: Slot,
    },
    Now {
        d: Slot,
    },
    Backlog {
        d: Slot,
        class: Slot,
    },
    /// Class, departure, cost and allowance stand in four consecutive slots.
    Hold {
        args: Slot,
    },

    Extract {
        header: u16,
    },
    ExtractNext {
        stack: u16,
    },
    /// With a variable field of so many bits.
    ExtractVariable {
        header: u16,
        bits: Slot,
    },
    ExtractNextVariable {
        stack: u16,
        bits: Slot,
    },
    /// Bits; must be a multiple of 8.
    Advance {
        a: Slot,
    },
    Lookahead {
        d: Slot,
        skip_bits: u32,
        bits: u16,
    },
    Verify {
        a: Slot,
        error: Slot,
    },
    /// Parser error StackOutOfBounds when no element was extracted yet.
    NeedLast {
        stack: u16,
    },
}

impl Op {
    /// What it writes.
    pub fn written(&self) -> Written {
        match *self {
            Op::Copy { d, .. }
            | Op::Add { d, .. }
            | Op::Sub { d, .. }
            | Op::Mul { d, .. }
            | Op::And { d, .. }
            | Op::Or { d, .. }
            | Op::Xor { d, .. }
            | Op::Not { d, .. }
            | Op::Shl { d, .. }
            | Op::Shr { d, .. }
            | Op::Sar { d, .. }
            | Op::Div { d, .. }
            | Op::Rem { d, .. }
            | Op::Sext { d, .. }
            | Op::Eq { d, .. }
            | Op::Ne { d, .. }
            | Op::Lt { d, .. }
            | Op::Le { d, .. }
            | Op::LtS { d, .. }
            | Op::LeS { d, .. }
            | Op::IsZero { d, .. }
            | Op::NonZero { d, .. }
            | Op::Select { d, .. }
            | Op::EqW { d, .. }
            | Op::LtW { d, .. }
            | Op::NonZeroW { d, .. }
            | Op::Saturate { d, .. }
            | Op::LastIndex { d, .. }
            | Op::EqHeader { d, .. }
            | Op::Meter { d, .. }
            | Op::Hash { d, .. }
            | Op::Random { d, .. }
            | Op::Now { d }
            | Op::Backlog { d, .. } => Written::Words(d, 1),
            Op::CopyW { d, n, .. }
            | Op::AddW { d, n, .. }
            | Op::SubW { d, n, .. }
            | Op::MulW { d, n, .. }
            | Op::AndW { d, n, .. }
            | Op::OrW { d, n, .. }
            | Op::XorW { d, n, .. }
            | Op::NotW { d, n, .. }
            | Op::ShlW { d, n, .. }
            | Op::ShrW { d, n, .. }
            | Op::DivW { d, n, .. }
            | Op::ExtendW { d, n, .. }
            | Op::MaskW { d, n, .. }
            | Op::SextW { d, n, .. }
            | Op::ClampW { d, n, .. }
            | Op::SelectW { d, n, .. }
            | Op::LoadElement { d, n, .. } => Written::Words(d, n.into()),
            Op::Lookahead { d, bits, .. } => Written::Words(d, limbs(bits.into())),
            Op::StoreElement { stack, .. } => Written::Elements(stack),
            Op::RegisterRead { d, array, .. } => Written::Cell(d, array),
            Op::MarkCopyToDrop {
                egress_spec,
                mcast_grp,
            } => Written::Two(egress_spec, mcast_grp),
            // Noted as they happen.
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Claim { .. }
            | Op::ClaimElement { .. }
            | Op::CopyHeader { .. }
            | Op::CopyStack { .. }
            | Op::Push { .. }
            | Op::Pop { .. }
            | Op::Extract { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVariable { .. }
            | Op::ExtractNextVariable { .. } => Written::Nothing,
            // The program's `always_changed` has what the switch itself writes.
            Op::MarkToDrop => Written::Nothing,
            Op::Jump { .. }
            | Op::JumpIfZero { .. }
            | Op::JumpBack { .. }
            | Op::Exit
            | Op::Assert { .. }
            | Op::RegisterWrite { .. }
            | Op::Count { .. }
            | Op::Truncate { .. }
            | Op::Clone { .. }
            | Op::Digest { .. }
            | Op::Log { .. }
            | Op::Resubmit { .. }
            | Op::Recirculate { .. }
            | Op::Hold { .. }
            | Op::Advance { .. }
            | Op::Verify { .. }
            | Op::NeedLast { .. } => Written::Nothing,
        }
    }

    /// What an operation reads that makes one word of single words and does nothing else; `None` of
    /// others. One that reads fewer than three names the same several times.
    pub fn operands(&self) -> Option<[Slot; 3]> {
        match *self {
            Op::Not { a, .. }
            | Op::Sext { a, .. }
            | Op::IsZero { a, .. }
            | Op::NonZero { a, .. } => Some([a; 3]),
            Op::Add { a, b, .. }
            | Op::Sub { a, b, .. }
            | Op::Mul { a, b, .. }
            | Op::And { a, b, .. }
            | Op::Or { a, b, .. }
            | Op::Xor { a, b, .. }
            | Op::Shl { a, b, .. }
            | Op::Shr { a, b, .. }
            | Op::Sar { a, b, .. }
            | Op::Div { a, b, .. }
            | Op::Rem { a, b, .. }
            | Op::Eq { a, b, .. }
            | Op::Ne { a, b, .. }
            | Op::Lt { a, b, .. }
            | Op::Le { a, b, .. }
            | Op::LtS { a, b, .. }
            | Op::LeS { a, b, .. } => Some([a, b, b]),
            Op::Select { c, a, b, .. } => Some([c, a, b]),
            _ => None,
        }
    }

    /// Whether the packet's words are after it what they were before, and what follows is always
    /// what comes next. False where that is not certain.
    pub fn leaves_words(&self) -> bool {
        matches!(
            self,
            Op::RegisterWrite { .. } | Op::Count { .. } | Op::Hold { .. } | Op::Truncate { .. }
        )
    }

    /// Redirects a one-word result from `from` to `to`; false if this operation's result is
    /// something else.
    pub fn retarget(&mut self, from: Slot, to: Slot) -> bool {
        match self {
            Op::Copy { d, .. }
            | Op::Add { d, .. }
            | Op::Sub { d, .. }
            | Op::Mul { d, .. }
            | Op::And { d, .. }
            | Op::Or { d, .. }
            | Op::Xor { d, .. }
            | Op::Not { d, .. }
            | Op::Shl { d, .. }
            | Op::Shr { d, .. }
            | Op::Sar { d, .. }
            | Op::Div { d, .. }
            | Op::Rem { d, .. }
            | Op::Eq { d, .. }
            | Op::Ne { d, .. }
            | Op::Lt { d, .. }
            | Op::Le { d, .. }
            | Op::LtS { d, .. }
            | Op::LeS { d, .. }
            | Op::IsZero { d, .. }
            | Op::NonZero { d, .. }
            | Op::Select { d, .. }
            | Op::NonZeroW { d, .. }
            | Op::EqW { d, .. }
            | Op::LtW { d, .. }
            | Op::Now { d }
                if *d == from =>
            {
                *d = to;
                true
            }
            _ => false,
        }
    }
}
