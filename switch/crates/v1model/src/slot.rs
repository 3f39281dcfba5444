//! The operands of code: slots of the packet header vector (PHV), and sets of headers that code may
//! change.

/// A slot of the PHV: the index of one 64-bit word.
pub(crate) type Slot = u32;

/// A set of headers that may have changed: a bit for each of the first [`OTHERS`] headers, one
/// bit for all others, and [`RESHAPED`].
pub(crate) type Changes = u64;

/// Headers were added or removed, or are not where the deparser would write them: it writes all of
/// them.
pub(crate) const RESHAPED: Changes = 1 << 63;

/// The bit of all headers that have none of their own.
pub(crate) const OTHERS: u32 = 62;
