//! Strict priority: the first child goes first.
//!
//! A rank that is the child's number never changes, so a bitmap is the whole PIFO. Without a tree, the queue
//! with the highest number is the first child (as simple_switch's priority queues: priority 0 is the lowest).

use super::bits::bit;

/// The children that may send: bit `k` is child `k`.
#[derive(Debug, Default)]
pub(super) struct Strict(u64);

impl Strict {
    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }

    pub(super) fn enter(&mut self, child: u8) {
        self.0 |= bit(child);
    }

    pub(super) fn front(&self) -> Option<u8> {
        // At most 63.
        (self.0 != 0).then_some(self.0.trailing_zeros() as u8)
    }

    /// A child may no longer send.
    pub(super) fn leave(&mut self, child: u8) {
        self.0 &= !bit(child);
    }
}

#[cfg(test)]
mod tests {
    use super::Strict;

    #[test]
    fn the_first_child_goes_first() {
        let mut strict = Strict::default();
        for child in [3, 63, 0] {
            strict.enter(child);
        }
        for child in [0, 3, 63] {
            assert_eq!(strict.front(), Some(child));
            strict.leave(child);
        }
        assert!(strict.is_empty());
    }
}
