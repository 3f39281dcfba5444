//! The control plane's access to counters, meters and registers.

use std::ops::Range;

use crate::bits::{from_bits, to_bits};
use crate::entries::error::{internal, invalid, not_found};
use crate::entries::{
    ArrayInfo, Bits, CellValue, ControlResult, CounterValue, MeterState, MeterUnit, MeterWrite,
};
use crate::pipeline::Pipeline;
use crate::saved::{SavedArray, SavedCells, SavedMeter};
use crate::state::{MeterArray, counter_value};

/// Checks that an array and a cell exist.
fn cell<'i>(
    list: &'i [ArrayInfo],
    what: &str,
    array: usize,
    index: usize,
) -> ControlResult<&'i ArrayInfo> {
    let Some(info) = list.get(array) else {
        return not_found(format!("no {what} number {array}"));
    };
    if index >= info.size {
        return invalid(format!(
            "{what} '{}' has {} cells, index {index} given",
            info.name, info.size
        ));
    }
    Ok(info)
}

impl Pipeline {
    /// The indirect counters of the program.
    pub fn counters(&self) -> &[ArrayInfo] {
        &self.program.counter_infos
    }

    /// The indirect meters of the program, with their units.
    pub fn meters(&self) -> &[(ArrayInfo, MeterUnit)] {
        &self.program.meter_infos
    }

    /// The registers of the program.
    pub fn registers(&self) -> &[ArrayInfo] {
        &self.program.register_infos
    }

    /// Reads a cell of an indirect counter.
    pub fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue> {
        cell(self.counters(), "counter", counter, index)?;
        match self.state.counter(counter, index) {
            Some(value) => Ok(counter_value(*value)),
            None => internal("a counter's cell is missing"),
        }
    }

    /// Sets a cell of an indirect counter.
    pub fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()> {
        cell(self.counters(), "counter", counter, index)?;
        let Some(cell) = self.state.counter_mut(counter, index) else {
            return internal("a counter's cell is missing");
        };
        *cell = [value.packets, value.bytes];
        Ok(())
    }

    /// The array of an indirect meter that has a cell `index`.
    fn meter_array(&self, meter: usize, index: usize) -> ControlResult<&MeterArray> {
        let (Some((info, _)), Some(array)) =
            (self.meters().get(meter), self.state.meters.get(meter))
        else {
            return not_found(format!("no meter number {meter}"));
        };
        cell(std::slice::from_ref(info), "meter", 0, index)?;
        Ok(array)
    }

    fn meter_array_mut(&mut self, meter: usize, index: usize) -> ControlResult<&mut MeterArray> {
        self.meter_array(meter, index)?;
        match self.state.meters.get_mut(meter) {
            Some(array) => Ok(array),
            None => internal("a meter's array is missing"),
        }
    }

    /// Reads a cell of an indirect meter.
    pub fn meter_read(&self, meter: usize, index: usize) -> ControlResult<MeterState> {
        Ok(self.meter_array(meter, index)?.state(index))
    }

    /// Sets a cell of an indirect meter; its buckets start full.
    pub fn meter_write(
        &mut self,
        meter: usize,
        index: usize,
        write: MeterWrite,
    ) -> ControlResult<()> {
        write.check()?;
        self.meter_array_mut(meter, index)?.write(index, write);
        Ok(())
    }

    /// A copy of the present state of an indirect meter's cell, for [`Self::meter_restore`].
    pub fn meter_save(&self, meter: usize, index: usize) -> ControlResult<SavedMeter> {
        Ok(SavedMeter(self.meter_array(meter, index)?.cell(index)))
    }

    /// Puts a cell of an indirect meter back as it was, with the contents of its buckets and its
    /// counts.
    pub fn meter_restore(
        &mut self,
        meter: usize,
        index: usize,
        saved: SavedMeter,
    ) -> ControlResult<()> {
        self.meter_array_mut(meter, index)?.put(index, saved.0);
        Ok(())
    }

    /// Sets some cells of an array of the value's kind. Returns them as they were.
    pub fn array_fill(
        &mut self,
        array: usize,
        cells: Range<usize>,
        value: &CellValue,
    ) -> ControlResult<SavedArray> {
        let first = cells.start;
        let before = match value {
            CellValue::Counter(value) => {
                let value = [value.packets, value.bytes];
                let array = self.state.counter_array(array);
                let before = self.state.cells.fill(array, cells, &value);
                before.map(SavedCells::Counters)
            }
            CellValue::Meter(write) => {
                write.check()?;
                let meters = self.state.meters.get_mut(array);
                let meters = meters.filter(|meters| cells.end <= meters.len());
                meters.map(|meters| {
                    let before = cells.clone().map(|cell| meters.cell(cell)).collect();
                    cells.for_each(|cell| meters.write(cell, *write));
                    SavedCells::Meters(before)
                })
            }
            CellValue::Register(value) => {
                let Some(info) = self.program.register_infos.get(array) else {
                    return not_found(format!("no register number {array}"));
                };
                let value = from_bits(value, info.bits, || format!("register '{}'", info.name))?;
                let before = self.state.cells.fill(array, cells, &value);
                before.map(SavedCells::Register)
            }
        };
        match before {
            Some(cells) => Ok(SavedArray { first, cells }),
            None => not_found(format!(
                "no array number {array} of this kind with these cells"
            )),
        }
    }

    /// Puts cells of an array back as they were.
    pub fn array_restore(&mut self, array: usize, saved: SavedArray) -> ControlResult<()> {
        let state = &mut self.state;
        let first = saved.first;
        let fits = match saved.cells {
            SavedCells::Counters(before) => {
                let array = state.counter_array(array);
                state.cells.restore(array, first, &before)
            }
            SavedCells::Meters(before) => {
                let end = first.saturating_add(before.len());
                let meters = state.meters.get_mut(array);
                match meters.filter(|meters| end <= meters.len()) {
                    Some(meters) => {
                        let cells = before.into_iter().zip(first..);
                        cells.for_each(|(saved, cell)| meters.put(cell, saved));
                        true
                    }
                    None => false,
                }
            }
            SavedCells::Register(before) => state.cells.restore(array, first, &before),
        };
        if fits {
            return Ok(());
        }
        not_found(format!("no array number {array} of this kind and size"))
    }

    /// Reads a register cell.
    pub fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits> {
        let info = cell(self.registers(), "register", register, index)?;
        match self.state.register(register, index) {
            Some(value) => Ok(to_bits(value, info.bits)),
            None => internal("a register's cell is missing"),
        }
    }

    /// Writes a register cell; the value is as wide as the register.
    pub fn register_write(
        &mut self,
        register: usize,
        index: usize,
        value: &[u8],
    ) -> ControlResult<()> {
        let info = cell(self.registers(), "register", register, index)?;
        let value = from_bits(value, info.bits, || format!("register '{}'", info.name))?;
        let Some(cell) = self.state.register_mut(register, index) else {
            return internal("a register's cell is missing");
        };
        cell.copy_from_slice(&value);
        Ok(())
    }
}
