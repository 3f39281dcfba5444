//! Meters by the names of their arrays. Those of entries are an array, too, whose indices are the entries'.

use bmv2_thrift::standard::{
    BmMeterRateConfig, InvalidMeterOperation, MeterOperationErrorCode as Code,
};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::{CellValue, MeterState};

use super::direct;
use super::lookup::named;
use super::rates;

/// Cells set between two looks at whether a visit is over: each takes an allocation.
const CELLS_PER_PIECE: usize = 32;

type Result<T> = std::result::Result<T, InvalidMeterOperation>;

fn refused(code: Code) -> InvalidMeterOperation {
    InvalidMeterOperation::new(code)
}

/// The number of an array and its size; `None`: it may be a direct meter.
fn array(pipeline: &Pipeline, name: &str) -> Option<(usize, usize)> {
    let found = named(pipeline.meters(), name, |(info, _)| &info.name);
    found.map(|(number, (info, _))| (number, info.size))
}

/// A cell of an array of this size.
fn cell(size: usize, index: i32) -> Result<usize> {
    let index = usize::try_from(index).ok().filter(|index| *index < size);
    index.ok_or_else(|| refused(Code::INVALID_INDEX))
}

pub(super) fn set(
    program: &mut Program,
    name: &str,
    index: i32,
    rates: &[BmMeterRateConfig],
) -> Result<()> {
    let pipeline = program.pipeline_mut();
    let write = || rates::write(rates).map_err(refused);
    let written = match array(pipeline, name) {
        Some((number, size)) => pipeline.meter_write(number, cell(size, index)?, write()?),
        None => {
            let (table, entry) = direct::metered_at(pipeline, name, index).map_err(refused)?;
            let (handle, key) = (index.cast_unsigned(), entry.map(|entry| entry.key));
            direct::set_meter(pipeline, table, handle, key.as_ref(), write()?)
        }
    };
    written.map_err(|_| refused(Code::ERROR))
}

/// Sets some cells of an array, or the meters of some entries. Returns where to go on; `None`: all are set.
pub(super) fn set_piece(
    program: &mut Program,
    name: &str,
    rates: &[BmMeterRateConfig],
    from: u32,
) -> Result<Option<u32>> {
    let pipeline = program.pipeline_mut();
    let write = || rates::write(rates).map_err(refused);
    let Some((number, size)) = array(pipeline, name) else {
        return direct::set_meters_piece(program, name, rates, from).map_err(refused);
    };
    let write = write()?;
    let start = from as usize;
    let end = size.min(start + CELLS_PER_PIECE);
    let filled = pipeline.array_fill(number, start..end, &CellValue::Meter(write));
    filled.map_err(|_| refused(Code::ERROR))?;
    Ok(u32::try_from(end).ok().filter(|_| end < size))
}

pub(super) fn get(program: &Program, name: &str, index: i32) -> Result<Vec<BmMeterRateConfig>> {
    let pipeline = program.pipeline();
    let state = match array(pipeline, name) {
        Some((number, size)) => {
            let state = pipeline.meter_read(number, cell(size, index)?);
            state.map_err(|_| refused(Code::ERROR))?
        }
        None => {
            let (table, entry) = direct::metered_at(pipeline, name, index).map_err(refused)?;
            match entry {
                Some(entry) => entry.meter.unwrap_or_default(),
                None => MeterState {
                    config: pipeline.index_meter(table, index.cast_unsigned()),
                    ..MeterState::default()
                },
            }
        }
    };
    Ok(rates::told(&state))
}
