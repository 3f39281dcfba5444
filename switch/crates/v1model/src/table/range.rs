//! Tables with range keys: a scan in order of priority.

use std::cmp::Reverse;

/// Inclusive bounds on the bits `shift..shift + width` of one key word, or, where they are wider
/// than a word, on whole words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub word: usize,
    pub shift: u32,
    pub mask: u64,
    pub low: Box<[u64]>,
    pub high: Box<[u64]>,
}

impl Bounds {
    #[inline]
    fn contain(&self, key: &[u64]) -> bool {
        match (&*self.low, &*self.high) {
            (&[low], &[high]) => {
                let k = (key[self.word] >> self.shift) & self.mask;
                (low..=high).contains(&k)
            }
            (low, high) => {
                let k = &key[self.word..self.word + low.len()];
                k.iter().rev().ge(low.iter().rev()) && k.iter().rev().le(high.iter().rev())
            }
        }
    }
}

#[derive(Debug)]
struct Row {
    rank: (i64, Reverse<u64>),
    id: u32,
    value: Box<[u64]>,
    mask: Box<[u64]>,
    bounds: Box<[Bounds]>,
}

/// Entries with value, mask and bounds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Best first.
    rows: Vec<Row>,
}

impl Scan {
    pub fn insert(
        &mut self,
        value: &[u64],
        mask: &[u64],
        bounds: &[Bounds],
        priority: i64,
        order: u64,
        id: u32,
    ) {
        let rank = (priority, Reverse(order));
        let at = self.rows.partition_point(|r| r.rank > rank);
        let row = Row {
            rank,
            id,
            value: value.into(),
            mask: mask.into(),
            bounds: bounds.into(),
        };
        self.rows.insert(at, row);
    }

    pub fn remove(&mut self, id: u32) {
        self.rows.retain(|r| r.id != id);
    }

    pub fn find(&self, key: &[u64]) -> Option<u32> {
        let matches = |r: &&Row| {
            key.iter()
                .zip(&r.mask)
                .zip(&r.value)
                .all(|((k, m), v)| k & m == *v)
                && r.bounds.iter().all(|b| b.contain(key))
        };
        self.rows.iter().find(matches).map(|r| r.id)
    }
}
