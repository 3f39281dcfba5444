//! Indirect counters.

use bmv2_thrift::standard::{
    BmCounterValue, CounterOperationErrorCode as Code, InvalidCounterOperation,
};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::{CellValue, CounterValue};

use super::lookup::named;

/// Cells set between two looks at whether a visit is over.
pub(super) const CELLS_PER_PIECE: usize = 256;

type Result<T> = std::result::Result<T, InvalidCounterOperation>;

fn refused(code: Code) -> InvalidCounterOperation {
    InvalidCounterOperation::new(code)
}

pub(super) fn told(value: CounterValue) -> BmCounterValue {
    BmCounterValue::new(value.bytes.cast_signed(), value.packets.cast_signed())
}

pub(super) fn given(value: &BmCounterValue) -> CounterValue {
    CounterValue {
        packets: value.packets.unwrap_or(0).cast_unsigned(),
        bytes: value.bytes.unwrap_or(0).cast_unsigned(),
    }
}

/// The number of an array and its size.
fn array(pipeline: &Pipeline, name: &str) -> Result<(usize, usize)> {
    let found = named(pipeline.counters(), name, |info| &info.name);
    let found = found.map(|(number, info)| (number, info.size));
    found.ok_or_else(|| refused(Code::INVALID_COUNTER_NAME))
}

/// The number of an array and of one of its cells.
fn cell(pipeline: &Pipeline, name: &str, index: i32) -> Result<(usize, usize)> {
    let (number, size) = array(pipeline, name)?;
    let index = usize::try_from(index).ok().filter(|index| *index < size);
    Ok((number, index.ok_or_else(|| refused(Code::INVALID_INDEX))?))
}

pub(super) fn read(program: &Program, name: &str, index: i32) -> Result<BmCounterValue> {
    let pipeline = program.pipeline();
    let (number, index) = cell(pipeline, name, index)?;
    let value = pipeline.counter_read(number, index);
    value.map(told).map_err(|_| refused(Code::ERROR))
}

pub(super) fn write(
    program: &mut Program,
    name: &str,
    index: i32,
    value: &BmCounterValue,
) -> Result<()> {
    let pipeline = program.pipeline_mut();
    let (number, index) = cell(pipeline, name, index)?;
    let written = pipeline.counter_write(number, index, given(value));
    written.map_err(|_| refused(Code::ERROR))
}

/// Sets some cells to 0. Returns where to go on; `None`: all are.
pub(super) fn reset_piece(program: &mut Program, name: &str, from: usize) -> Result<Option<usize>> {
    let pipeline = program.pipeline_mut();
    let (number, size) = array(pipeline, name)?;
    let end = size.min(from + CELLS_PER_PIECE);
    let zero = CellValue::Counter(CounterValue::default());
    let filled = pipeline.array_fill(number, from..end, &zero);
    filled.map_err(|_| refused(Code::ERROR))?;
    Ok((end < size).then_some(end))
}
