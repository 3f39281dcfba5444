//! Stores the cells of registers and counters so that cells of the same index lie together.
//!
//! A program has an array for each value that it stores per class. If the arrays were apart, a
//! packet of one of a million classes would read one cache line for each. So large arrays of about
//! the same size are columns of one table, whose rows are in one cache line if they fit.

use std::ops::Range;

/// Fewest cells of a large array. Smaller arrays stay in the caches.
const ROWS_MIN: usize = 4_096;

/// Words of a cache line.
const LINE: usize = 8;

/// The places of an array's cells. Cell `i` begins at word `first + i * stride`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Column {
    pub first: usize,
    pub stride: usize,
    /// Words of a cell.
    pub words: usize,
    pub cells: usize,
}

/// Arrays of cells, all zero at first. The system gives them memory when they are used.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<Column>,
    words: Vec<u64>,
    /// Words before the first cache line begins.
    skipped: usize,
}

impl Rows {
    /// Arrays of (cells, words of a cell) each.
    pub fn new(shapes: &[(usize, usize)]) -> Self {
        let (columns, total) = lay_out(shapes);
        let words = vec![0u64; total + LINE];
        // Rows that are not aligned to lines only cost speed.
        let skipped = words.as_ptr().align_offset(LINE * size_of::<u64>());
        Self {
            columns,
            words,
            skipped: skipped.min(LINE),
        }
    }

    /// The places of an array's cells, counted from [`Self::first_word`].
    pub fn column(&self, array: usize) -> Option<Column> {
        self.columns.get(array).copied()
    }

    /// The address of the first word, where [`Self::column`] counts from, for machine code.
    pub fn first_word(&mut self) -> *mut u64 {
        self.words.as_mut_ptr().wrapping_add(self.skipped)
    }

    /// The words of all cells.
    #[cfg(test)]
    pub fn all(&self) -> &[u64] {
        let end = self.words.len() - LINE;
        &self.words[self.skipped..self.skipped + end]
    }

    /// The places of a cell's words.
    #[inline]
    fn range(&self, array: usize, cell: usize) -> Option<Range<usize>> {
        let column = self.columns.get(array)?;
        if cell >= column.cells {
            return None;
        }
        let begin = self.skipped + column.first + cell * column.stride;
        Some(begin..begin + column.words)
    }

    /// The words of a cell; `None` if it is out of range.
    #[inline]
    pub fn get(&self, array: usize, cell: usize) -> Option<&[u64]> {
        self.words.get(self.range(array, cell)?)
    }

    /// The words of a cell, to be changed; `None` if it is out of range.
    #[inline]
    pub fn get_mut(&mut self, array: usize, cell: usize) -> Option<&mut [u64]> {
        let range = self.range(array, cell)?;
        self.words.get_mut(range)
    }

    /// Sets some cells of an array; returns their words as they were. `None` if the array does not
    /// have them all, or they are not as wide as the value.
    pub fn fill(&mut self, array: usize, cells: Range<usize>, value: &[u64]) -> Option<Vec<u64>> {
        let column = *self.columns.get(array)?;
        if value.len() != column.words || cells.end > column.cells {
            return None;
        }
        let mut before = Vec::with_capacity(cells.len() * column.words);
        for cell in cells {
            if let Some(words) = self.get_mut(array, cell) {
                before.extend_from_slice(words);
                // A write of zeros would only make the system allocate the memory.
                if words != value {
                    words.copy_from_slice(value);
                }
            }
        }
        Some(before)
    }

    /// Puts the cells from `first` on back to what [`Self::fill`] returned; false if that does not fit
    /// the array.
    pub fn restore(&mut self, array: usize, first: usize, before: &[u64]) -> bool {
        let Some(&column) = self.columns.get(array).filter(|column| column.words > 0) else {
            return false;
        };
        let cells = before.chunks_exact(column.words);
        if !cells.remainder().is_empty() || first.saturating_add(cells.len()) > column.cells {
            return false;
        }
        for (cell, before) in cells.enumerate() {
            if let Some(words) = self.get_mut(array, first + cell)
                && words != before
            {
                words.copy_from_slice(before);
            }
        }
        true
    }

    /// The first of the arrays that share the rows of this one; `None` if the array is small.
    pub fn first_of_rows(&self, array: usize) -> Option<usize> {
        let column = self.columns.get(array).filter(|c| c.cells >= ROWS_MIN)?;
        let mut columns = self.columns.iter();
        columns.position(|other| {
            other.stride == column.stride && other.first.abs_diff(column.first) < column.stride
        })
    }
}

/// Places for arrays of (cells, words of a cell), and the words they take.
fn lay_out(shapes: &[(usize, usize)]) -> (Vec<Column>, usize) {
    let mut order: Vec<usize> = (0..shapes.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(shapes[at].0));
    let mut columns = vec![Column::default(); shapes.len()];
    let mut total = 0;
    let mut rest = &order[..];
    while let Some(&largest) = rest.first() {
        let rows = shapes[largest].0;
        let together = if rows < ROWS_MIN {
            1
        } else {
            // Shorter arrays leave at most an eighth of the rows empty.
            rest.partition_point(|&at| shapes[at].0 >= rows - rows / 8)
        };
        let (group, others) = rest.split_at(together);
        rest = others;
        let used: usize = group.iter().map(|&at| shapes[at].1).sum();
        let stride = match group {
            [_] => used,
            _ if used <= LINE => used.next_power_of_two(),
            _ => used,
        };
        let mut first = total;
        for &at in group {
            let (cells, words) = shapes[at];
            columns[at] = Column {
                first,
                stride,
                words,
                cells,
            };
            first += words;
        }
        total = (total + rows * stride).next_multiple_of(LINE);
    }
    (columns, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_of_a_class_share_a_cache_line() {
        let rows = Rows::new(&[
            (1_114_112, 1),
            (16, 2),
            (1 << 20, 2),
            (1_114_112, 1),
            (1 << 20, 2),
        ]);
        let line = |array| {
            rows.get(array, 777_777)
                .map(|cell| cell.as_ptr().addr() / 64)
        };
        assert!(line(0).is_some());
        assert_eq!([line(2), line(3), line(4)], [line(0); 3]);
        assert_eq!(
            [0, 2, 3, 4].map(|array| rows.first_of_rows(array)),
            [Some(0); 4]
        );
        assert_eq!(rows.first_of_rows(1), None);
    }

    proptest! {
        #[test]
        fn cells_are_apart_and_keep_what_is_written(
            shapes in proptest::collection::vec(
                (prop_oneof![0..40usize, 4_000..4_800usize], 1..12usize),
                0..8,
            ),
        ) {
            let mut rows = Rows::new(&shapes);
            let cells = |shapes: &[(usize, usize)]| -> Vec<(usize, usize, usize)> {
                let arrays = shapes.iter().enumerate();
                arrays
                    .flat_map(|(array, &(cells, words))| (0..cells).map(move |c| (array, c, words)))
                    .collect()
            };
            for (array, cell, words) in cells(&shapes) {
                let place = rows.get_mut(array, cell).expect("in range");
                prop_assert_eq!(&*place, &vec![0; words]);
                place.fill((array * 10_000 + cell + 1) as u64);
            }
            for (array, cell, words) in cells(&shapes) {
                let value = (array * 10_000 + cell + 1) as u64;
                prop_assert_eq!(rows.get(array, cell), Some(&*vec![value; words]));
            }
            for (array, &(cells, _)) in shapes.iter().enumerate() {
                prop_assert_eq!(rows.get(array, cells), None);
                prop_assert_eq!(rows.get(array, usize::MAX), None);
            }
            prop_assert_eq!(rows.get(shapes.len(), 0), None);
        }
    }
}
