//! BMv2's exceptions, also for refusals whose reasons BMv2 does not have.

use bmv2_thrift::standard::{
    CounterOperationErrorCode, CrcErrorCode, InvalidCounterOperation, InvalidCrcOperation,
    InvalidLearnOperation, InvalidMeterOperation, InvalidParseVSetOperation,
    InvalidRegisterOperation, InvalidTableOperation, InvalidToeplitzHashOperation,
    LearnOperationErrorCode, MeterOperationErrorCode, ParseVSetOperationErrorCode,
    RegisterOperationErrorCode, TableOperationErrorCode, ToeplitzHashErrorCode,
};
use thrift::{ApplicationError, ApplicationErrorKind};

/// An exception of a service.
pub(crate) trait Exception: Into<thrift::Error> + Send + 'static {
    /// What BMv2 says when there is no program: no object has this name.
    fn no_program() -> Self;
}

macro_rules! exception {
    ($exception:ty, $code:expr) => {
        impl Exception for $exception {
            fn no_program() -> Self {
                Self::new($code)
            }
        }
    };
}

exception!(
    InvalidTableOperation,
    TableOperationErrorCode::INVALID_TABLE_NAME
);
exception!(
    InvalidCounterOperation,
    CounterOperationErrorCode::INVALID_COUNTER_NAME
);
exception!(
    InvalidMeterOperation,
    MeterOperationErrorCode::INVALID_METER_NAME
);
exception!(
    InvalidRegisterOperation,
    RegisterOperationErrorCode::INVALID_REGISTER_NAME
);
exception!(
    InvalidParseVSetOperation,
    ParseVSetOperationErrorCode::INVALID_PARSE_VSET_NAME
);
exception!(
    InvalidLearnOperation,
    LearnOperationErrorCode::INVALID_LIST_ID
);
exception!(InvalidCrcOperation, CrcErrorCode::INVALID_CALCULATION_NAME);
exception!(
    InvalidToeplitzHashOperation,
    ToeplitzHashErrorCode::INVALID_CALCULATION_NAME
);
/// Ends a call without an exception of the service: Thrift's `TApplicationException` with a text.
pub(crate) fn application(message: impl Into<String>) -> thrift::Error {
    let error = ApplicationError::new(ApplicationErrorKind::InternalError, message.into());
    thrift::Error::Application(error)
}

/// Refuses contexts that the switch does not have.
pub(crate) fn context(number: i32) -> thrift::Result<()> {
    if number == 0 {
        return Ok(());
    }
    Err(application(format!(
        "cxt_id: {number} given, 0 expected: the switch has one context"
    )))
}
