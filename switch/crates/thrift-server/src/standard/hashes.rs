//! Parameters of hashes, which the switch fixes when it loads a program.

use bmv2_thrift::standard::{
    CrcErrorCode, InvalidCrcOperation, InvalidToeplitzHashOperation, ToeplitzHashErrorCode,
};

use crate::programs::{Calculation, Text};

fn find<'a>(text: Option<&'a Text>, name: &str) -> Option<&'a Calculation> {
    let calculations = &text?.objects().calculations;
    calculations.iter().find(|other| other.name == name)
}

/// What is said to new parameters of a CRC: `algorithm` is that of the call.
pub(super) fn crc(text: Option<&Text>, name: &str, algorithm: &str) -> InvalidCrcOperation {
    let code = match find(text, name) {
        None => CrcErrorCode::INVALID_CALCULATION_NAME,
        Some(calculation) if calculation.algo != algorithm => CrcErrorCode::WRONG_TYPE_CALCULATION,
        Some(_) => CrcErrorCode::INVALID_CONFIG,
    };
    InvalidCrcOperation::new(code)
}

/// What is said to a new key. The switch loads no program with a Toeplitz hash.
pub(super) fn toeplitz(text: Option<&Text>, name: &str) -> InvalidToeplitzHashOperation {
    let code = match find(text, name) {
        None => ToeplitzHashErrorCode::INVALID_CALCULATION_NAME,
        Some(_) => ToeplitzHashErrorCode::WRONG_TYPE_CALCULATION,
    };
    InvalidToeplitzHashOperation::new(code)
}
