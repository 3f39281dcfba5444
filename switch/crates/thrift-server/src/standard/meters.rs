//! Indirect meters.

use bmv2_thrift::standard::{
    BmMeterRateConfig, InvalidMeterOperation, MeterOperationErrorCode as Code,
};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::CellValue;

use super::lookup::named;
use super::rates;

/// Cells set between two looks at whether a visit is over: each takes an allocation.
const CELLS_PER_PIECE: usize = 32;

type Result<T> = std::result::Result<T, InvalidMeterOperation>;

fn refused(code: Code) -> InvalidMeterOperation {
    InvalidMeterOperation::new(code)
}

/// The number of an array and its size.
fn array(pipeline: &Pipeline, name: &str) -> Result<(usize, usize)> {
    let found = named(pipeline.meters(), name, |(info, _)| &info.name);
    let found = found.map(|(number, (info, _))| (number, info.size));
    found.ok_or_else(|| refused(Code::INVALID_METER_NAME))
}

/// The number of an array and of one of its cells.
fn cell(pipeline: &Pipeline, name: &str, index: i32) -> Result<(usize, usize)> {
    let (number, size) = array(pipeline, name)?;
    let index = usize::try_from(index).ok().filter(|index| *index < size);
    Ok((number, index.ok_or_else(|| refused(Code::INVALID_INDEX))?))
}

pub(super) fn set(
    program: &mut Program,
    name: &str,
    index: i32,
    rates: &[BmMeterRateConfig],
) -> Result<()> {
    let pipeline = program.pipeline_mut();
    let (number, index) = cell(pipeline, name, index)?;
    let write = rates::write(rates).map_err(refused)?;
    let written = pipeline.meter_write(number, index, write);
    written.map_err(|_| refused(Code::ERROR))
}

/// Sets some cells of an array. Returns where to go on; `None`: all are set.
pub(super) fn set_piece(
    program: &mut Program,
    name: &str,
    rates: &[BmMeterRateConfig],
    from: usize,
) -> Result<Option<usize>> {
    let pipeline = program.pipeline_mut();
    let (number, size) = array(pipeline, name)?;
    let write = rates::write(rates).map_err(refused)?;
    let end = size.min(from + CELLS_PER_PIECE);
    let filled = pipeline.array_fill(number, from..end, &CellValue::Meter(write));
    filled.map_err(|_| refused(Code::ERROR))?;
    Ok((end < size).then_some(end))
}

pub(super) fn get(program: &Program, name: &str, index: i32) -> Result<Vec<BmMeterRateConfig>> {
    let pipeline = program.pipeline();
    let (number, index) = cell(pipeline, name, index)?;
    let state = pipeline.meter_read(number, index);
    let state = state.map_err(|_| refused(Code::ERROR))?;
    Ok(rates::told(&state))
}
