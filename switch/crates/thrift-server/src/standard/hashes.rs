//! Parameters of hashes.

use bmv2_thrift::standard::{
    BmCrc16Config, BmCrc32Config, CrcErrorCode, InvalidCrcOperation, InvalidToeplitzHashOperation,
    ToeplitzHashErrorCode,
};
use switch::Program;
use v1model::CrcParameters;

use crate::programs::Text;

fn refused(code: CrcErrorCode) -> InvalidCrcOperation {
    InvalidCrcOperation::new(code)
}

/// The number of a calculation.
pub(super) fn number(text: Option<&Text>, name: &str) -> Result<usize, InvalidCrcOperation> {
    let calculations = text.map(|text| text.objects().calculations.iter());
    let mut calculations = calculations.into_iter().flatten();
    let number = calculations.position(|other| other.name == name);
    number.ok_or_else(|| refused(CrcErrorCode::INVALID_CALCULATION_NAME))
}

/// A CRC of 16 bits. Numbers without sign come as numbers with one.
pub(super) fn crc16(config: &BmCrc16Config) -> CrcParameters {
    let number = |given: Option<i16>| given.unwrap_or(0).cast_unsigned().into();
    CrcParameters {
        polynomial: number(config.polynomial),
        initial_remainder: number(config.initial_remainder),
        final_xor_value: number(config.final_xor_value),
        data_reflected: config.data_reflected.unwrap_or(false),
        remainder_reflected: config.remainder_reflected.unwrap_or(false),
    }
}

/// A CRC of 32 bits.
pub(super) fn crc32(config: &BmCrc32Config) -> CrcParameters {
    let number = |given: Option<i32>| given.unwrap_or(0).cast_unsigned();
    CrcParameters {
        polynomial: number(config.polynomial),
        initial_remainder: number(config.initial_remainder),
        final_xor_value: number(config.final_xor_value),
        data_reflected: config.data_reflected.unwrap_or(false),
        remainder_reflected: config.remainder_reflected.unwrap_or(false),
    }
}

pub(super) fn set(
    program: &mut Program,
    calculation: usize,
    bits: u32,
    parameters: CrcParameters,
) -> Result<(), InvalidCrcOperation> {
    let set = program
        .pipeline_mut()
        .crc_set(calculation, bits, parameters);
    set.map_err(|_| refused(CrcErrorCode::WRONG_TYPE_CALCULATION))
}

/// The answer to a new key. The switch loads no program with a Toeplitz hash.
pub(super) fn toeplitz(text: Option<&Text>, name: &str) -> InvalidToeplitzHashOperation {
    InvalidToeplitzHashOperation::new(match number(text, name) {
        Err(_) => ToeplitzHashErrorCode::INVALID_CALCULATION_NAME,
        Ok(_) => ToeplitzHashErrorCode::WRONG_TYPE_CALCULATION,
    })
}
