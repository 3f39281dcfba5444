//! The flat code that expressions, actions and parser states compile to.
//!
//! Operands are slots of the packet's word array, where fields, temporaries, action arguments
//! and constants all live, so an operation names its operands directly. `d` is a destination,
//! `a`/`b` are sources, `n` is a number of words. Jumps go to higher addresses, except
//! [`Op::JumpBack`], whose number in a run is limited: every run ends.

use crate::slot::{Changes, Slot};
use crate::wide::limbs;

/// Most loop iterations in one run of code, all its loops together.
pub(crate) const MAX_LOOP_ITERATIONS: u32 = 1 << 16;

/// A half-open range of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Code {
    pub start: u32,
    pub end: u32,
    /// Headers that it may change. Headers that become valid or invalid are noted when it runs.
    pub changes: Changes,
}

impl Code {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// The destination of an operation, as far as it may be part of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing, or headers that become valid or invalid.
    Nothing,
    /// Words from a slot on, and their number.
    Words(Slot, u32),
    /// The words of a cell of this register array.
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
    /// `d = a`.
    Copy { d: Slot, a: Slot },
    /// `d = a`.
    CopyW { d: Slot, a: Slot, n: u16 },
    /// `d = a + b`.
    Add { d: Slot, a: Slot, b: Slot },
    /// `d = a - b`.
    Sub { d: Slot, a: Slot, b: Slot },
    /// `d = a * b`.
    Mul { d: Slot, a: Slot, b: Slot },
    /// `d = a & b`.
    And { d: Slot, a: Slot, b: Slot },
    /// `d = a | b`.
    Or { d: Slot, a: Slot, b: Slot },
    /// `d = a ^ b`.
    Xor { d: Slot, a: Slot, b: Slot },
    /// `d = !a`.
    Not { d: Slot, a: Slot },
    /// `d = a << b`; zero from 64 on.
    Shl { d: Slot, a: Slot, b: Slot },
    /// `d = a >> b`; zero from 64 on.
    Shr { d: Slot, a: Slot, b: Slot },
    /// Arithmetic shift right.
    Sar { d: Slot, a: Slot, b: Slot },
    /// `d = a / b`; zero if `b` is zero.
    Div { d: Slot, a: Slot, b: Slot },
    /// `d = a % b`; zero if `b` is zero.
    Rem { d: Slot, a: Slot, b: Slot },
    /// Extends the sign of the low `bits` bits.
    Sext { d: Slot, a: Slot, bits: u16 },
    /// `d = a == b`.
    Eq { d: Slot, a: Slot, b: Slot },
    /// `d = a != b`.
    Ne { d: Slot, a: Slot, b: Slot },
    /// `d = a < b`.
    Lt { d: Slot, a: Slot, b: Slot },
    /// `d = a <= b`.
    Le { d: Slot, a: Slot, b: Slot },
    /// `d = a < b`; both sides are `i64`.
    LtS { d: Slot, a: Slot, b: Slot },
    /// `d = a <= b`; both sides are `i64`.
    LeS { d: Slot, a: Slot, b: Slot },
    /// `d = a == 0`.
    IsZero { d: Slot, a: Slot },
    /// `d = a != 0`.
    NonZero { d: Slot, a: Slot },
    /// `d = if c { a } else { b }`.
    Select { d: Slot, c: Slot, a: Slot, b: Slot },

    /// `d = a + b`.
    AddW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a - b`.
    SubW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a * b`.
    MulW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a & b`.
    AndW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a | b`.
    OrW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a ^ b`.
    XorW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = !a`.
    NotW { d: Slot, a: Slot, n: u16 },
    /// `d = a << b`; `b` is one word.
    ShlW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a >> b`; `b` is one word.
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
    /// Extends `from` limbs to `n` limbs.
    ExtendW {
        d: Slot,
        a: Slot,
        from: u16,
        n: u16,
        signed: bool,
    },
    /// Clears the bits of `d` from `bits` on.
    MaskW { d: Slot, n: u16, bits: u16 },
    /// Extends the sign of the low `bits` bits of `d`.
    SextW { d: Slot, n: u16, bits: u16 },
    /// Saturates `d` to the range of `bits` bits.
    ClampW {
        d: Slot,
        n: u16,
        bits: u16,
        signed: bool,
        to_signed: bool,
    },
    /// `d = a == b`, one word.
    EqW { d: Slot, a: Slot, b: Slot, n: u16 },
    /// `d = a < b`, one word.
    LtW {
        d: Slot,
        a: Slot,
        b: Slot,
        n: u16,
        signed: bool,
    },
    /// `d = a != 0`, one word.
    NonZeroW { d: Slot, a: Slot, n: u16 },
    /// `d = if c { a } else { b }`; `c` is one word.
    SelectW {
        d: Slot,
        c: Slot,
        a: Slot,
        b: Slot,
        n: u16,
    },
    /// One word of `n` limbs: all ones if the value does not fit.
    Saturate { d: Slot, a: Slot, n: u16 },

    /// Loads a field at `offset` of a stack element; zero past the end.
    LoadElement {
        d: Slot,
        stack: u16,
        index: Slot,
        offset: u16,
        n: u16,
    },
    /// Stores a field at `offset` of a stack element; nothing past the end.
    StoreElement {
        a: Slot,
        stack: u16,
        index: Slot,
        offset: u16,
        n: u16,
    },
    /// Index of the last element; -1 (64 bits) in an empty stack.
    LastIndex { d: Slot, stack: u16 },

    /// Makes a header valid, and clears its fields if it was not.
    SetValid { h: HeaderRef, words: u16, kind: u16 },
    /// Makes a header invalid.
    SetInvalid { h: HeaderRef, kind: u16 },
    /// If the header at `base`, a member of `union`, is valid, makes the other members invalid.
    Claim { union: u16, base: Slot },
    /// Does the same for a member in an element of a stack of unions.
    ClaimElement { stack: u16, index: Slot },
    /// Copies a header: its validity always, its `words` words of fields if it is valid.
    CopyHeader {
        d: HeaderRef,
        a: HeaderRef,
        words: u16,
    },
    /// Whether both headers are valid and all their fields are equal.
    EqHeader {
        d: Slot,
        a: HeaderRef,
        b: HeaderRef,
        words: u16,
    },
    /// Copies a header stack.
    CopyStack { d: u16, a: u16, words: u16 },
    /// Moves the elements of a stack: pushes elements to its front, or pops them. A stack of unions
    /// moves member by member; only the `first` moves the counter.
    MoveStack {
        stack: u16,
        count: Slot,
        words: u16,
        first: bool,
        push: bool,
    },

    /// Goes to a higher address.
    Jump { to: u32 },
    /// Goes to a higher address if `a` is zero.
    JumpIfZero { a: Slot, to: u32 },
    /// Goes to a lower address, in a loop.
    JumpBack { to: u32 },
    /// Ends the control.
    Exit,
    /// Ends the control if `a` is zero.
    Assert { a: Slot },

    /// Reads a register cell to `d`. An index out of range skips the next `skip` operations, too.
    RegisterRead {
        d: Slot,
        array: u16,
        index: Slot,
        skip: u8,
    },
    /// Writes a register cell; nothing if the index is out of range.
    RegisterWrite { array: u16, index: Slot, a: Slot },
    /// Counts the packet; nothing if the index is out of range.
    Count { array: u16, index: Slot },
    /// Meters the packet, and puts its colour under `mask` into `d`. An index out of range skips the
    /// next `skip` operations, too.
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
    /// A number from `low` to `high`. If `low > high`, skips the next `skip` operations, too.
    Random {
        d: Slot,
        low: Slot,
        high: Slot,
        skip: u8,
    },
    /// Marks the packet to be dropped.
    MarkToDrop,
    /// Does the same on a copy of the standard metadata, which counts if the program copies it back.
    MarkCopyToDrop { egress_spec: Slot, mcast_grp: Slot },
    /// Cuts the packet to `a` bytes when it is sent.
    Truncate { a: Slot },
    /// Asks for a clone to a mirror session, with a field list.
    Clone { session: Slot, list: Slot },
    /// Asks for a digest of a list's fields at the end of ingress.
    Digest { list: Slot },
    /// Logs message number `message` with its arguments.
    Log { message: u16 },
    /// Asks for a resubmission with a field list.
    Resubmit { list: Slot },
    /// Asks for a recirculation with a field list.
    Recirculate { list: Slot },
    /// The time in nanoseconds.
    Now { d: Slot },
    /// The bytes that a class holds.
    Backlog { d: Slot, class: Slot },
    /// Reads the egress queue `queue` of `port`: bytes, packets and sojourn go to three consecutive slots, zeros
    /// if it does not exist.
    ReadQueue { d: Slot, port: Slot, queue: Slot },
    /// Chooses the packet's egress queue.
    ChooseQueue { queue: Slot },
    /// Holds the packet: queue, departure, cost, allowance, and the class to which the queue counts
    /// or [`Op::COUNTS_TO_NONE`] stand in five consecutive slots.
    Hold { args: Slot },

    /// Extracts a header.
    Extract { header: u16 },
    /// Extracts the next element of a stack.
    ExtractNext { stack: u16 },
    /// Extracts a header with a variable field; the slot `bits` holds its length.
    ExtractVariable { header: u16, bits: Slot },
    /// Extracts the next element of a stack with a variable field; the slot `bits` holds its length.
    ExtractNextVariable { stack: u16, bits: Slot },
    /// Skips bits, which must be a multiple of 8.
    Advance { a: Slot },
    /// Reads bits ahead of the next header.
    Lookahead { d: Slot, skip_bits: u32, bits: u16 },
    /// Ends the parser with `error` if `a` is zero.
    Verify { a: Slot, error: Slot },
    /// Ends the parser with StackOutOfBounds if no element was extracted yet.
    NeedLast { stack: u16 },
}

/// A pattern for the operations that make one word of one word, with these of their fields.
macro_rules! on_one_word {
    ($($field:ident),+) => {
        Op::Not { $($field),+, .. }
            | Op::Sext { $($field),+, .. }
            | Op::IsZero { $($field),+, .. }
            | Op::NonZero { $($field),+, .. }
    };
}

/// A pattern for the operations that make one word of two words, with these of their fields.
macro_rules! on_two_words {
    ($($field:ident),+) => {
        Op::Add { $($field),+, .. }
            | Op::Sub { $($field),+, .. }
            | Op::Mul { $($field),+, .. }
            | Op::And { $($field),+, .. }
            | Op::Or { $($field),+, .. }
            | Op::Xor { $($field),+, .. }
            | Op::Shl { $($field),+, .. }
            | Op::Shr { $($field),+, .. }
            | Op::Sar { $($field),+, .. }
            | Op::Div { $($field),+, .. }
            | Op::Rem { $($field),+, .. }
            | Op::Eq { $($field),+, .. }
            | Op::Ne { $($field),+, .. }
            | Op::Lt { $($field),+, .. }
            | Op::Le { $($field),+, .. }
            | Op::LtS { $($field),+, .. }
            | Op::LeS { $($field),+, .. }
    };
}

impl Op {
    /// In the place of a class to which a queue counts: none. No class has a number of 64 bits.
    pub const COUNTS_TO_NONE: u64 = u64::MAX;

    /// The destination of the operation.
    pub fn written(&self) -> Written {
        match *self {
            on_one_word!(d)
            | on_two_words!(d)
            | Op::Copy { d, .. }
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
            Op::ReadQueue { d, .. } => Written::Words(d, 3),
            Op::Lookahead { d, bits, .. } => Written::Words(d, limbs(bits.into())),
            Op::StoreElement { stack, .. } => Written::Elements(stack),
            Op::RegisterRead { d, array, .. } => Written::Cell(d, array),
            Op::MarkCopyToDrop {
                egress_spec,
                mcast_grp,
            } => Written::Two(egress_spec, mcast_grp),
            // Noted when they run.
            Op::SetValid { .. }
            | Op::SetInvalid { .. }
            | Op::Claim { .. }
            | Op::ClaimElement { .. }
            | Op::CopyHeader { .. }
            | Op::CopyStack { .. }
            | Op::MoveStack { .. }
            | Op::Extract { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVariable { .. }
            | Op::ExtractNextVariable { .. } => Written::Nothing,
            // The program's `always_changed` has the fields that the switch itself writes.
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
            | Op::ChooseQueue { .. }
            | Op::Hold { .. }
            | Op::Advance { .. }
            | Op::Verify { .. }
            | Op::NeedLast { .. } => Written::Nothing,
        }
    }

    /// The operands of an operation that only makes one word of single words. If it has fewer than three
    /// operands, one is repeated.
    pub fn operands(&self) -> Option<[Slot; 3]> {
        match *self {
            on_one_word!(a) => Some([a; 3]),
            on_two_words!(a, b) => Some([a, b, b]),
            Op::Select { c, a, b, .. } => Some([c, a, b]),
            _ => None,
        }
    }

    /// Whether the operation certainly leaves the packet's words unchanged and continues with the
    /// next operation.
    pub fn leaves_words(&self) -> bool {
        matches!(
            self,
            Op::RegisterWrite { .. }
                | Op::Count { .. }
                | Op::ChooseQueue { .. }
                | Op::Hold { .. }
                | Op::Truncate { .. }
        )
    }

    /// Redirects a one-word result from `from` to `to`; false if the operation has another result.
    pub fn retarget(&mut self, from: Slot, to: Slot) -> bool {
        match self {
            on_one_word!(d)
            | on_two_words!(d)
            | Op::Copy { d, .. }
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
