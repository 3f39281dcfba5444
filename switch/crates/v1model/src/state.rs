//! What a program keeps from packet to packet besides table entries: registers, indirect
//! counters and meters, and the random number generator.

use crate::meter::Meter;
use crate::rows::Rows;
use dataplane::control::{MeterConfig, MeterUnit};

/// An array of meters; most cells of a large one are never configured.
#[derive(Debug)]
pub(crate) struct MeterArray {
    pub unit: MeterUnit,
    /// 0: not configured; otherwise 1 + index into `meters`.
    index: Vec<u32>,
    meters: Vec<Option<Meter>>,
    free: Vec<u32>,
}

impl MeterArray {
    pub fn new(size: usize, unit: MeterUnit) -> Self {
        Self {
            unit,
            index: vec![0; size],
            meters: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn get(&self, cell: usize) -> Option<&Meter> {
        let at = self.index.get(cell)?.checked_sub(1)?;
        self.meters.get(at as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, cell: usize) -> Option<&mut Meter> {
        let at = self.index.get(cell)?.checked_sub(1)?;
        self.meters.get_mut(at as usize)?.as_mut()
    }

    /// Configures a cell with full buckets, or clears it. A cell out of range is ignored.
    pub fn set(&mut self, cell: usize, config: Option<MeterConfig>) {
        self.put(cell, config.map(Meter::new));
    }

    /// Puts a meter into a cell, or clears it. A cell out of range is ignored.
    pub fn put(&mut self, cell: usize, meter: Option<Meter>) {
        let Some(index) = self.index.get_mut(cell) else {
            return;
        };
        match (meter, index.checked_sub(1)) {
            (Some(meter), Some(at)) => self.meters[at as usize] = Some(meter),
            (Some(meter), None) => {
                let at = self.free.pop().unwrap_or_else(|| {
                    self.meters.push(None);
                    self.meters.len() as u32 - 1
                });
                self.meters[at as usize] = Some(meter);
                *index = at + 1;
            }
            (None, Some(at)) => {
                self.meters[at as usize] = None;
                self.free.push(at);
                *index = 0;
            }
            (None, None) => {}
        }
    }
}

/// Registers, counters, meters, random numbers.
#[derive(Debug)]
pub(crate) struct State {
    /// Registers, then counters.
    cells: Rows,
    registers: usize,
    pub meters: Vec<MeterArray>,
    random: u64,
    /// The message being written.
    pub message: String,
}

impl State {
    /// Registers of (cells, words of a cell) each, counters of so many cells.
    pub fn new(
        registers: &[(usize, usize)],
        counters: &[usize],
        meters: Vec<MeterArray>,
        seed: u64,
    ) -> Self {
        let mut shapes = registers.to_vec();
        // Packets and bytes.
        shapes.extend(counters.iter().map(|&cells| (cells, 2)));
        Self {
            cells: Rows::new(&shapes),
            registers: registers.len(),
            meters,
            random: seed,
            message: String::new(),
        }
    }

    /// The words of a register cell; `None` if it is out of range.
    #[inline]
    pub fn register(&self, array: usize, cell: usize) -> Option<&[u64]> {
        self.cells.get(array, cell)
    }

    #[inline]
    pub fn register_mut(&mut self, array: usize, cell: usize) -> Option<&mut [u64]> {
        self.cells.get_mut(array, cell)
    }

    /// Packets and bytes of a counter cell; `None` if it is out of range.
    #[inline]
    pub fn counter(&self, array: usize, cell: usize) -> Option<&[u64; 2]> {
        self.cells
            .get(self.registers + array, cell)?
            .try_into()
            .ok()
    }

    #[inline]
    pub fn counter_mut(&mut self, array: usize, cell: usize) -> Option<&mut [u64; 2]> {
        self.cells
            .get_mut(self.registers + array, cell)?
            .try_into()
            .ok()
    }

    /// The rows, by one of their arrays, that cells of a large register array are in.
    pub fn register_rows(&self, array: usize) -> Option<usize> {
        self.cells.neighbours(array)
    }

    /// The same of a counter.
    pub fn counter_rows(&self, array: usize) -> Option<usize> {
        self.cells.neighbours(self.registers + array)
    }

    /// Brings the cells of an index into the caches; returns a word of them.
    #[inline]
    pub fn look_at(&self, rows: usize, index: u64) -> u64 {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let cell = self.cells.get(rows, index);
        cell.and_then(|words| words.first()).copied().unwrap_or(0)
    }

    /// The next number of a SplitMix64 sequence (Steele, Lea, Flood 2014).
    fn random_word(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `low..=high`, which must not be empty. (Multiply-shift; the bias is below
    /// 2^-64 times the size of the range.)
    pub fn random_between(&mut self, low: u64, high: u64) -> u64 {
        let word = u128::from(self.random_word());
        let size = u128::from(high.wrapping_sub(low)) + 1;
        low.wrapping_add(((word * size) >> 64) as u64)
    }
}
