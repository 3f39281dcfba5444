//! Counters and meters of entries.

use bmv2_thrift::standard::{
    BmCounterValue, BmMeterRateConfig, MeterOperationErrorCode as MeterCode,
    TableOperationErrorCode as Code,
};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::{ControlResult, CounterValue, EntryKey, MeterWrite, TableEntry, TableInfo};

use super::counters;
use super::lookup::{self, TableResult, refused};
use super::rates;

/// Entries changed between two looks at whether a visit is over.
const ENTRIES_PER_PIECE: usize = 16;

fn counted<'a>(pipeline: &'a Pipeline, table: &str) -> TableResult<(usize, &'a TableInfo)> {
    let found = lookup::table(pipeline, table)?;
    match found.1.direct_counter {
        true => Ok(found),
        false => Err(refused(Code::COUNTERS_DISABLED)),
    }
}

fn metered(pipeline: &Pipeline, table: &str, handle: i32) -> TableResult<(usize, TableEntry)> {
    let (table, info) = lookup::table(pipeline, table)?;
    if info.direct_meter.is_none() {
        return Err(refused(Code::METERS_DISABLED));
    }
    let handled = lookup::entry_at(pipeline, table, handle)?;
    Ok((table, handled.entry))
}

pub(super) fn read_counter(
    program: &Program,
    table: &str,
    handle: i32,
) -> TableResult<BmCounterValue> {
    let pipeline = program.pipeline();
    let (table, _) = counted(pipeline, table)?;
    let handled = lookup::entry_at(pipeline, table, handle)?;
    let counter = handled.entry.counter;
    Ok(counters::told(counter.unwrap_or_default()))
}

pub(super) fn write_counter(
    program: &mut Program,
    table: &str,
    handle: i32,
    value: &BmCounterValue,
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (table, _) = counted(pipeline, table)?;
    let key = lookup::entry_at(pipeline, table, handle)?.entry.key;
    let set = pipeline.direct_counter_set(table, Some(&key), counters::given(value));
    set.map_err(|error| lookup::of_entry(&error))
}

/// Sets the counters of some entries to 0. Returns where to go on; `None`: all are.
pub(super) fn reset_piece(
    program: &mut Program,
    table: &str,
    from: u32,
) -> TableResult<Option<u32>> {
    let pipeline = program.pipeline_mut();
    let (table, _) = counted(pipeline, table)?;
    let page = pipeline.handled_entries(table, from, ENTRIES_PER_PIECE);
    for handled in &page.items {
        let key = Some(&handled.entry.key);
        let set = pipeline.direct_counter_set(table, key, CounterValue::default());
        set.map_err(|error| lookup::of_entry(&error))?;
    }
    Ok(page.next.and_then(|next| u32::try_from(next).ok()))
}

/// Sets the meter of an index, and of the entry there.
pub(super) fn set_meter(
    pipeline: &mut Pipeline,
    table: usize,
    handle: u32,
    entry: Option<&EntryKey>,
    write: MeterWrite,
) -> ControlResult<()> {
    if entry.is_some() {
        pipeline.direct_meter_set(table, entry, write)?;
    }
    pipeline.index_meter_set(table, Some(handle), write)
}

pub(super) fn set_rates(
    program: &mut Program,
    table: &str,
    handle: i32,
    rates: &[BmMeterRateConfig],
) -> TableResult<()> {
    let pipeline = program.pipeline_mut();
    let (table, entry) = metered(pipeline, table, handle)?;
    let write = rates::write(rates).map_err(|_| refused(Code::ERROR))?;
    let handle = handle.cast_unsigned();
    let set = set_meter(pipeline, table, handle, Some(&entry.key), write);
    set.map_err(|error| lookup::of_entry(&error))
}

pub(super) fn get_rates(
    program: &Program,
    table: &str,
    handle: i32,
) -> TableResult<Vec<BmMeterRateConfig>> {
    let (_, entry) = metered(program.pipeline(), table, handle)?;
    Ok(rates::told(&entry.meter.unwrap_or_default()))
}

/// The table whose direct meter has this name, and the table's size.
fn metered_by(pipeline: &Pipeline, meter: &str) -> Option<(usize, usize)> {
    let is_it = |info: &TableInfo| {
        info.direct_meter
            .as_ref()
            .is_some_and(|it| it.name == meter)
    };
    let table = pipeline.tables().iter().position(is_it)?;
    Some((table, pipeline.tables().get(table)?.size))
}

/// Sets the meters of all indices of the table that has this direct meter, then those of some entries. Returns
/// where to go on; `None`: all are set.
pub(super) fn set_meters_piece(
    program: &mut Program,
    meter: &str,
    rates: &[BmMeterRateConfig],
    from: u32,
) -> Result<Option<u32>, MeterCode> {
    let pipeline = program.pipeline_mut();
    let (table, _) = metered_by(pipeline, meter).ok_or(MeterCode::INVALID_METER_NAME)?;
    let write = rates::write(rates)?;
    let set = pipeline.index_meter_set(table, None, write);
    set.map_err(|_| MeterCode::ERROR)?;
    let page = pipeline.handled_entries(table, from, ENTRIES_PER_PIECE);
    for handled in &page.items {
        let set = pipeline.direct_meter_set(table, Some(&handled.entry.key), write);
        set.map_err(|_| MeterCode::ERROR)?;
    }
    Ok(page.next.and_then(|next| u32::try_from(next).ok()))
}

/// The entry at an index of a direct meter, and its table; no entry if the index is free.
pub(super) fn metered_at(
    pipeline: &Pipeline,
    meter: &str,
    index: i32,
) -> Result<(usize, Option<TableEntry>), MeterCode> {
    let (table, size) = metered_by(pipeline, meter).ok_or(MeterCode::INVALID_METER_NAME)?;
    let handle = u32::try_from(index).ok();
    let handle = handle.filter(|index| (*index as usize) < size);
    let handle = handle.ok_or(MeterCode::INVALID_INDEX)?;
    let entry = pipeline.handled_entry(table, handle);
    Ok((table, entry.map(|handled| handled.entry)))
}
