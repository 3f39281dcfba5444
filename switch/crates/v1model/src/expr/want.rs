//! The required part of a value, and the place of a computed value.

use super::node::{MAX_BITS, Range};
use crate::error::{LoadResult, refuse};
use crate::ops::Op;
use crate::slot::Slot;
use crate::wide::limbs;

/// The place of a computed value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Val {
    pub slot: Slot,
    pub limbs: u32,
    /// `Some`: the limbs hold exactly a value of this range, extended over all of them.
    /// `None`: only the low bits that were asked for are meaningful.
    pub exact: Option<Range>,
}

impl Val {
    /// An exact value.
    pub fn exact(slot: Slot, limbs: u32, range: Range) -> Self {
        Self {
            slot,
            limbs,
            exact: Some(range),
        }
    }

    /// The operation that extends the value to `n` limbs, which are more than it has, at `d`.
    pub fn extension(self, d: Slot, n: u32) -> Op {
        Op::ExtendW {
            d,
            a: self.slot,
            from: self.limbs as u16,
            n: n as u16,
            signed: self.exact.is_some_and(|r| r.neg),
        }
    }
}

/// The part of a value that is needed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    All,
    Low(u32),
}

/// The result that an operation must deliver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub need: Need,
    /// Bits to compute on.
    pub bits: u32,
    /// `Some`: the result must be exact, and has this range.
    pub exact: Option<Range>,
}

impl Want {
    /// The part of a value in `range` that must be computed if `need` of it is needed.
    pub fn new(range: Range, need: Need) -> LoadResult<Self> {
        let storage = range.storage();
        let want = match need {
            Need::Low(k) if storage > k => Self {
                need,
                bits: k,
                exact: None,
            },
            // The exact value costs no more where all of it fits in the needed words.
            _ => Self {
                need: Need::All,
                bits: storage,
                exact: Some(range),
            },
        };
        if want.bits > MAX_BITS {
            refuse!(
                "a value of {} bits is needed; the limit is {MAX_BITS}",
                want.bits
            );
        }
        Ok(want)
    }

    /// Limbs to compute on.
    pub fn limbs(self) -> u32 {
        limbs(self.bits)
    }

    /// The result, which stands at `slot`.
    pub fn result(self, slot: Slot) -> Val {
        Val {
            slot,
            limbs: self.limbs(),
            exact: self.exact,
        }
    }

    /// The part of the operands that is needed.
    pub fn of_operand(self) -> Need {
        match self.need {
            Need::All => Need::All,
            Need::Low(_) => Need::Low(self.bits),
        }
    }
}
