//! Cells of counters, meters and registers.

use v1model::entries::CellValue;

use super::planned::{Kind, Planned, only_modify};
use crate::error::UpdateResult;
use crate::operation::Operation;
use crate::proto::p4::v1 as p4;
use crate::translate::{self, Array, BoundPipeline};

/// Specification, section "CounterEntry & DirectCounterEntry".
pub(super) fn counter(
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::CounterEntry,
) -> UpdateResult<Planned> {
    let array = pipeline.counter(entry.counter_id)?;
    only_modify(kind, &array.name, "a counter")?;
    let value = match &entry.data {
        Some(data) => Some(CellValue::Counter(translate::counter_value(
            data,
            &array.name,
        )?)),
        None => None,
    };
    cell(array, entry.index.as_ref(), value)
}

/// Specification, section "MeterEntry & DirectMeterEntry".
pub(super) fn meter(
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::MeterEntry,
) -> UpdateResult<Planned> {
    let array = pipeline.meter(entry.meter_id)?;
    only_modify(kind, &array.name, "a meter")?;
    let write = translate::meter_write(
        entry.config.as_ref(),
        entry.counter_data.as_ref(),
        array.meter_kind()?,
        &array.name,
    )?;
    cell(array, entry.index.as_ref(), Some(CellValue::Meter(write)))
}

/// Specification, section "RegisterEntry".
pub(super) fn register(
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::RegisterEntry,
) -> UpdateResult<Planned> {
    let array = pipeline.register(entry.register_id)?;
    only_modify(kind, &array.name, "a register")?;
    let value = array.register_value(entry.data.as_ref())?;
    let value = Some(CellValue::Register(value));
    cell(array, entry.index.as_ref(), value)
}

fn cell(
    array: &Array,
    index: Option<&p4::Index>,
    value: Option<CellValue>,
) -> UpdateResult<Planned> {
    let index = array.index(index)?;
    let operation = match (index, value) {
        // "The counter value is not modified if this Protobuf field is not set."
        (_, None) => Operation::Nothing,
        (Some(index), Some(value)) => Operation::CellSet {
            array: array.index,
            index,
            value,
        },
        (None, Some(value)) => Operation::Fill {
            array: array.index,
            size: array.size,
            value,
        },
    };
    Ok(Planned::only(operation, &array.name))
}
