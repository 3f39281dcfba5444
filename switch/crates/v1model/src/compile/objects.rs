//! The objects that primitives refer to: arrays, calculations and externs.

use super::calculations::calculation;
use super::extern_type::ExternType;
use crate::api::LoadOptions;
use crate::calculation::Calculation;
use crate::entries::{ArrayInfo, MeterUnit};
use crate::error::{At, LoadResult, refuse};
use crate::layout::{Field, Layout, MAX_FIELD_BITS};
use crate::model::{self, Root};
use crate::names::{MAX_OBJECTS, Names};
use crate::state::{MeterArray, State};
use crate::wide::limbs;
use std::collections::HashMap;

/// A direct meter array: unit and result field.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectMeterInfo {
    pub unit: MeterUnit,
    pub target: Field,
}

/// The objects of a program.
#[derive(Default)]
pub(super) struct Objects {
    pub registers: Vec<ArrayInfo>,
    pub counters: Vec<ArrayInfo>,
    pub meters: Vec<(ArrayInfo, MeterUnit)>,
    pub direct_meters: HashMap<String, DirectMeterInfo>,
    /// The program's calculations; selectors add theirs.
    pub calculations: Vec<Calculation>,
    register_names: Names,
    counter_names: Names,
    meter_names: Names,
    calculation_names: Names,
    /// Of the instances, by name.
    extern_types: HashMap<String, ExternType>,
    max_state_bytes: usize,
    state_bytes_left: usize,
}

impl Objects {
    /// Declares the objects of a program.
    pub fn declare(root: &Root, layout: &Layout, options: &LoadOptions) -> LoadResult<Self> {
        let counts = [
            root.register_arrays.len(),
            root.counter_arrays.len(),
            root.meter_arrays.len(),
            root.calculations.len(),
        ];
        if counts.iter().any(|&n| n > MAX_OBJECTS) {
            refuse!(
                "program has more than {MAX_OBJECTS} registers, counters, meters or calculations"
            );
        }
        let mut objects = Self {
            max_state_bytes: options.max_state_bytes,
            state_bytes_left: options.max_state_bytes,
            ..Self::default()
        };
        for e in &root.extern_instances {
            let name = &e.name;
            let Some(of) = ExternType::named(&e.kind) else {
                let kind = &e.kind;
                refuse!("extern instance '{name}': extern type '{kind}' is not supported");
            };
            objects.extern_types.insert(name.clone(), of);
        }
        for r in &root.register_arrays {
            let place = || format!("register '{}'", r.name);
            objects.add_register(r).at(place)?;
        }
        for k in root.counter_arrays.iter().filter(|k| !k.is_direct) {
            let place = || format!("counter '{}'", k.name);
            objects.add_counter(k).at(place)?;
        }
        for m in &root.meter_arrays {
            let place = || format!("meter '{}'", m.name);
            objects.add_meter(m, layout).at(place)?;
        }
        for k in &root.calculations {
            let place = || format!("calculation '{}'", k.name);
            objects.calculation_names.add(&k.name).at(place)?;
            let built = calculation(&k.algo, &k.input, layout).at(place)?;
            objects.calculations.push(built);
        }
        Ok(objects)
    }

    /// Reserves memory for cells.
    fn reserve(&mut self, cells: usize, bytes: usize) -> LoadResult<()> {
        let wanted = cells.checked_mul(bytes);
        match wanted.and_then(|b| self.state_bytes_left.checked_sub(b)) {
            Some(left) => self.state_bytes_left = left,
            None => refuse!(
                "{cells} cells do not fit in the limit of {} bytes for all state",
                self.max_state_bytes
            ),
        }
        Ok(())
    }

    fn add_register(&mut self, r: &model::RegisterArray) -> LoadResult<()> {
        if !(1..=MAX_FIELD_BITS).contains(&r.bitwidth) {
            refuse!("width {} bits", r.bitwidth);
        }
        self.reserve(r.size, 8 * limbs(r.bitwidth) as usize)?;
        self.register_names.add(&r.name)?;
        self.registers.push(ArrayInfo {
            name: r.name.clone(),
            size: r.size,
            bits: r.bitwidth,
        });
        Ok(())
    }

    fn add_counter(&mut self, k: &model::CounterArray) -> LoadResult<()> {
        let size = k.size.unwrap_or(0);
        self.reserve(size, 16)?;
        self.counter_names.add(&k.name)?;
        self.counters.push(ArrayInfo {
            name: k.name.clone(),
            size,
            bits: 0,
        });
        Ok(())
    }

    fn add_meter(&mut self, m: &model::MeterArray, layout: &Layout) -> LoadResult<()> {
        let unit = match m.unit.as_str() {
            "bytes" => MeterUnit::Bytes,
            "packets" => MeterUnit::Packets,
            other => refuse!("unknown unit '{other}'"),
        };
        if m.rate_count.is_some_and(|n| n != 2) {
            refuse!("only meters with two rates are supported");
        }
        if m.is_direct {
            let Some((header, field)) = &m.result_target else {
                refuse!("direct meter without result_target");
            };
            let target = layout.field(header, field)?;
            if target.bits > 64 {
                refuse!("result is wider than 64 bits");
            }
            let info = DirectMeterInfo { unit, target };
            self.direct_meters.insert(m.name.clone(), info);
            return Ok(());
        }
        let size = m.size.unwrap_or(0);
        self.reserve(size, 20)?;
        self.meter_names.add(&m.name)?;
        let info = ArrayInfo {
            name: m.name.clone(),
            size,
            bits: 0,
        };
        self.meters.push((info, unit));
        Ok(())
    }

    /// The state of all arrays, before the first packet.
    pub fn state(&self, random_seed: u64) -> State {
        let registers = self.registers.iter();
        let registers: Vec<(usize, usize)> = registers
            .map(|r| (r.size, limbs(r.bits) as usize))
            .collect();
        let counters: Vec<usize> = self.counters.iter().map(|k| k.size).collect();
        let meters = self.meters.iter();
        let meters = meters.map(|(m, unit)| MeterArray::new(m.size, *unit));
        State::new(&registers, &counters, meters.collect(), random_seed)
    }

    /// Finds a register array: its index and width.
    pub fn register(&self, name: &str) -> LoadResult<(u16, u32)> {
        let index = self.register_names.find("register array", name)?;
        Ok((index as u16, self.registers[index].bits))
    }

    /// Finds an indirect counter array.
    pub fn counter(&self, name: &str) -> LoadResult<u16> {
        let index = self.counter_names.find("indirect counter array", name)?;
        Ok(index as u16)
    }

    /// Finds an indirect meter array.
    pub fn meter(&self, name: &str) -> LoadResult<u16> {
        let index = self.meter_names.find("indirect meter array", name)?;
        Ok(index as u16)
    }

    /// Finds a calculation.
    pub fn calculation(&self, name: &str) -> LoadResult<usize> {
        self.calculation_names.find("calculation", name)
    }

    /// The type of an extern instance.
    pub fn extern_type(&self, name: &str) -> Option<ExternType> {
        self.extern_types.get(name).copied()
    }
}
