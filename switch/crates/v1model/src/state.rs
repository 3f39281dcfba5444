//! The state of a program that outlives a packet, besides table entries: registers, indirect
//! counters and meters, and the random number generator.

use crate::entries::{CounterValue, MeterState, MeterUnit, MeterWrite};
use crate::meter::{Count, GREEN, Meter, Metered, count};
use crate::rows::Rows;
use prefetch::prefetch;
use slab::Slab;

/// A copy of a cell of a meter array: its meter and its counts.
#[derive(Debug, Clone)]
pub(crate) struct MeterCell {
    green: Count,
    meter: Option<Meter>,
}

/// An array of meters. Most cells of a large array are never configured, so a meter takes memory only
/// where it is.
#[derive(Debug)]
pub(crate) struct MeterArray {
    unit: MeterUnit,
    /// By cell: 0 if it has no meter, otherwise 1 + the meter's place in `meters`.
    index: Vec<u32>,
    meters: Slab<Meter>,
    /// The green count of each cell.
    green: Vec<Count>,
}

impl MeterArray {
    /// An array of cells without meters.
    pub fn new(size: usize, unit: MeterUnit) -> Self {
        Self {
            unit,
            index: vec![0; size],
            meters: Slab::new(),
            green: vec![[0; 2]; size],
        }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    fn get(&self, cell: usize) -> Option<&Meter> {
        let at = self.index.get(cell)?.checked_sub(1)?;
        self.meters.get(at as usize)
    }

    /// Runs a packet through a cell, which must be in range, and returns its colour.
    #[inline]
    pub fn run(&mut self, cell: usize, packet: Metered) -> u64 {
        let at = self.index.get(cell).and_then(|at| at.checked_sub(1));
        let meter = at.and_then(|at| self.meters.get_mut(at as usize));
        let colour = meter.map_or(GREEN, |meter| meter.mark(self.unit, packet));
        if colour == GREEN
            && let Some(green) = self.green.get_mut(cell)
        {
            count(green, packet.bytes);
        }
        colour
    }

    /// A cell's configuration and counts. A cell out of range has those of a new cell.
    pub fn state(&self, cell: usize) -> MeterState {
        meter_state(
            self.green.get(cell).copied().unwrap_or_default(),
            self.get(cell),
        )
    }

    /// Sets a cell. One out of range is ignored.
    pub fn write(&mut self, cell: usize, write: MeterWrite) {
        let meter = Meter::written(self.get(cell), write);
        self.put_meter(cell, meter);
        if write.clear_counts
            && let Some(green) = self.green.get_mut(cell)
        {
            *green = [0; 2];
        }
    }

    /// A copy of a cell.
    pub fn cell(&self, cell: usize) -> MeterCell {
        MeterCell {
            green: self.green.get(cell).copied().unwrap_or_default(),
            meter: self.get(cell).cloned(),
        }
    }

    /// Puts a cell back as it was. One out of range is ignored.
    pub fn put(&mut self, cell: usize, saved: MeterCell) {
        self.put_meter(cell, saved.meter);
        if let Some(green) = self.green.get_mut(cell) {
            *green = saved.green;
        }
    }

    /// Puts a meter into a cell, or clears it. A cell out of range is ignored.
    fn put_meter(&mut self, cell: usize, meter: Option<Meter>) {
        let Some(index) = self.index.get_mut(cell) else {
            return;
        };
        if let Some(at) = index.checked_sub(1) {
            *index = 0;
            self.meters.try_remove(at as usize);
        }
        if let Some(meter) = meter {
            // An array has fewer than 2^32 cells.
            *index = self.meters.insert(meter) as u32 + 1;
        }
    }
}

/// A count as the control plane sees it.
pub(crate) fn counter_value([packets, bytes]: Count) -> CounterValue {
    CounterValue { packets, bytes }
}

/// A meter as the control plane sees it. `green`: the packets and bytes it coloured green.
pub(crate) fn meter_state(green: Count, meter: Option<&Meter>) -> MeterState {
    let of = |count: fn(&Meter) -> Count| counter_value(meter.map_or([0; 2], count));
    MeterState {
        config: meter.and_then(|meter| meter.config),
        counts: [counter_value(green), of(|m| m.yellow), of(|m| m.red)],
    }
}

/// Registers, counters, meters, random numbers.
#[derive(Debug)]
pub(crate) struct State {
    /// Registers, then counters ([`State::counter_array`]).
    pub cells: Rows,
    registers: usize,
    pub meters: Vec<MeterArray>,
    pub(crate) random: u64,
    /// Scratch for the text of a log message.
    pub message: String,
}

impl State {
    /// Registers of (cells, words of a cell) each, counters of these numbers of cells.
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

    /// The number in `cells` of a counter array; register arrays have their own numbers.
    #[inline]
    pub fn counter_array(&self, array: usize) -> usize {
        self.registers + array
    }

    /// The words of a register cell; `None` if it is out of range.
    #[inline]
    pub fn register(&self, array: usize, cell: usize) -> Option<&[u64]> {
        self.cells.get(array, cell)
    }

    /// The words of a register cell, to be changed; `None` if it is out of range.
    #[inline]
    pub fn register_mut(&mut self, array: usize, cell: usize) -> Option<&mut [u64]> {
        self.cells.get_mut(array, cell)
    }

    /// Packets and bytes of a counter cell; `None` if it is out of range.
    #[inline]
    pub fn counter(&self, array: usize, cell: usize) -> Option<&Count> {
        self.cells
            .get(self.counter_array(array), cell)?
            .try_into()
            .ok()
    }

    /// Packets and bytes of a counter cell, to be changed; `None` if it is out of range.
    #[inline]
    pub fn counter_mut(&mut self, array: usize, cell: usize) -> Option<&mut Count> {
        let array = self.counter_array(array);
        self.cells.get_mut(array, cell)?.try_into().ok()
    }

    /// Prefetches the cells of an index in an array and in those that share its rows.
    #[inline]
    pub fn prefetch(&self, rows: usize, index: u64) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(words) = self.cells.get(rows, index) {
            prefetch(words);
        }
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
