//! Registers. A value is a signed number of 64 bits on the wire. A greater one is told as the greatest of these,
//! as BMv2 does.

use bmv2_thrift::standard::{InvalidRegisterOperation, RegisterOperationErrorCode as Code};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::{ArrayInfo, Bits, CellValue};

use super::counters::CELLS_PER_PIECE;
use super::lookup::named;
use super::values::{bytes_of, fit};

type Result<T> = std::result::Result<T, InvalidRegisterOperation>;

fn refused(code: Code) -> InvalidRegisterOperation {
    InvalidRegisterOperation::new(code)
}

fn array<'a>(pipeline: &'a Pipeline, name: &str) -> Result<(usize, &'a ArrayInfo)> {
    let found = named(pipeline.registers(), name, |info| &info.name);
    found.ok_or_else(|| refused(Code::INVALID_REGISTER_NAME))
}

/// A number of a cell, up to and including `end`.
fn index(given: i32, end: usize) -> Result<usize> {
    let index = usize::try_from(given).ok().filter(|index| *index <= end);
    index.ok_or_else(|| refused(Code::INVALID_INDEX))
}

/// A cell's value: a negative number's bits in two's complement.
fn value(given: i64, bits: u32) -> Bits {
    let sign = if given < 0 { 0xFF } else { 0 };
    let mut bytes = vec![sign; bytes_of(bits)];
    bytes.extend_from_slice(&given.to_be_bytes());
    fit(&bytes, bits)
}

/// A cell's value, as near as the wire can have it.
fn told(value: &[u8]) -> i64 {
    let mut bytes = value.iter();
    let number = bytes.try_fold(0_i64, |number, byte| {
        number.checked_mul(1 << 8)?.checked_add(i64::from(*byte))
    });
    number.unwrap_or(i64::MAX)
}

pub(super) fn read(program: &Program, name: &str, at: i32) -> Result<i64> {
    let pipeline = program.pipeline();
    let (number, info) = array(pipeline, name)?;
    let at = index(at, info.size.wrapping_sub(1))?;
    let value = pipeline.register_read(number, at);
    value
        .map(|value| told(&value))
        .map_err(|_| refused(Code::INVALID_INDEX))
}

/// Number of cells.
pub(super) fn size(program: &Program, name: &str) -> Result<usize> {
    array(program.pipeline(), name).map(|(_, info)| info.size)
}

/// Some cells. Returns where to go on; `None`: these were the last.
pub(super) fn read_piece(
    program: &Program,
    name: &str,
    from: usize,
    cells: &mut Vec<i64>,
) -> Result<Option<usize>> {
    let pipeline = program.pipeline();
    let (number, info) = array(pipeline, name)?;
    let end = info.size.min(from + CELLS_PER_PIECE);
    for cell in from..end {
        let value = pipeline.register_read(number, cell);
        cells.push(told(&value.map_err(|_| refused(Code::ERROR))?));
    }
    Ok((end < info.size).then_some(end))
}

pub(super) fn write(program: &mut Program, name: &str, at: i32, given: i64) -> Result<()> {
    let pipeline = program.pipeline_mut();
    let (number, info) = array(pipeline, name)?;
    let at = index(at, info.size.wrapping_sub(1))?;
    let value = value(given, info.bits);
    let written = pipeline.register_write(number, at, &value);
    written.map_err(|_| refused(Code::INVALID_INDEX))
}

/// Cells from the first number up to, but not including, the second one.
pub(super) fn range(program: &Program, name: &str, start: i32, end: i32) -> Result<(usize, usize)> {
    let (_, info) = array(program.pipeline(), name)?;
    let end = index(end, info.size)?;
    Ok((index(start, end)?, end))
}

/// Sets some cells of those up to, but not including, `end`. Returns where to go on; `None`: all are
/// set.
pub(super) fn write_piece(
    program: &mut Program,
    name: &str,
    (from, end): (usize, usize),
    given: i64,
) -> Result<Option<usize>> {
    let pipeline = program.pipeline_mut();
    let (number, info) = array(pipeline, name)?;
    let to = end.min(from + CELLS_PER_PIECE);
    let value = CellValue::Register(value(given, info.bits));
    let filled = pipeline.array_fill(number, from..to, &value);
    filled.map_err(|_| refused(Code::ERROR))?;
    Ok((to < end).then_some(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_width_of_the_register() {
        assert_eq!(*value(0x1_23, 8), [0x23]);
        assert_eq!(*value(-1, 12), [0x0F, 0xFF]);
        assert_eq!(*value(-1, 72), [0xFF; 9]);
        assert_eq!(*value(5, 72), [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(told(&[0x80, 0x01]), 0x8001);
    }

    #[test]
    fn a_value_too_great_for_the_wire_is_told_as_the_greatest() {
        assert_eq!(told(&[0; 12]), 0);
        assert_eq!(told(&i64::MAX.to_be_bytes()), i64::MAX);
        assert_eq!(told(&[0x80, 0, 0, 0, 0, 0, 0, 0]), i64::MAX);
        assert_eq!(told(&[1, 0, 0, 0, 0, 0, 0, 0, 7]), i64::MAX);
        assert_eq!(
            told(&[0, 0x12, 0x34, 0, 0, 0, 0, 0, 7]),
            0x1234_0000_0000_0007
        );
    }
}
