//! A PIFO of the children of nodes: push in by rank, first out (Sivaraman et al. 2016).
//!
//! There are at most 128 queues and nodes, so a sorted array is quicker than a heap: to insert moves a few
//! neighbouring entries.

/// Children by rank; of equal ranks, the one that was pushed first goes first.
#[derive(Debug)]
pub(super) struct Pifo<R, C> {
    /// In descending order: the first to go is the last.
    entries: Vec<(R, C)>,
}

impl<R, C> Default for Pifo<R, C> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
        }
    }
}

impl<R: Ord + Copy, C> Pifo<R, C> {
    pub(super) fn push(&mut self, rank: R, child: C) {
        let at = self.entries.partition_point(|entry| entry.0 > rank);
        self.entries.insert(at, (rank, child));
    }

    pub(super) fn first_rank(&self) -> Option<R> {
        self.entries.last().map(|entry| entry.0)
    }

    pub(super) fn pop(&mut self) -> Option<C> {
        self.entries.pop().map(|entry| entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::Pifo;

    #[test]
    fn the_smallest_rank_goes_first_and_of_equal_ones_the_first_pushed() {
        let mut pifo = Pifo::default();
        for (rank, child) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            pifo.push(rank, child);
        }
        assert_eq!(pifo.first_rank(), Some(3));
        let order: Vec<u8> = std::iter::from_fn(|| pifo.pop()).collect();
        assert_eq!(order, [1, 3, 4, 0, 2]);
        assert_eq!(pifo.first_rank(), None);
    }
}
