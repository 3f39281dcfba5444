//! Errors as P4Runtime reports them (specification, section "Error Reporting Messages").

use prost::Message;
use tonic::{Code, Status};
use v1model::entries::ControlError;

use crate::proto::google::rpc;
use crate::proto::p4::v1 as p4;

/// Bytes of serialised status that fit into the trailer a gRPC client accepts by default
/// (8 KiB, of which base64 takes a quarter and the other trailers a little).
const STATUS_DETAILS_BUDGET_BYTES: usize = 5_500;

/// The error of one update, one read request or one stream message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// Canonical gRPC code.
    pub code: Code,
    /// The object's P4 name, the field, the value given and the value expected.
    pub message: String,
}

/// The result of one update, one read request or one stream message.
pub(crate) type UpdateResult<T> = Result<T, UpdateError>;

impl UpdateError {
    /// An error of any code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The request is invalid in any state of the switch.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// A value or an index does not fit.
    pub fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    /// The object or entry does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// This switch does not support it.
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// The program or the arbitration forbids it.
    pub fn permission_denied(message: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// An error of the switch about `object`, which the text names.
    pub fn from_control(error: ControlError, object: &str) -> Self {
        let code = control_code(&error);
        let text = error.message();
        let message = if object.is_empty() || text.contains(object) {
            text.to_owned()
        } else {
            format!("{object}: {text}")
        };
        Self { code, message }
    }

    /// The same error with the code `INVALID_ARGUMENT`, which the specification demands in some
    /// places for every fault of a byte string.
    #[must_use]
    pub fn as_invalid(mut self) -> Self {
        self.code = Code::InvalidArgument;
        self
    }
}

impl From<UpdateError> for Status {
    fn from(error: UpdateError) -> Self {
        Status::new(error.code, error.message)
    }
}

/// The gRPC code of a switch's error.
pub fn control_code(error: &ControlError) -> Code {
    match error {
        ControlError::InvalidArgument(_) => Code::InvalidArgument,
        ControlError::NotFound(_) => Code::NotFound,
        ControlError::AlreadyExists(_) => Code::AlreadyExists,
        ControlError::ResourceExhausted(_) => Code::ResourceExhausted,
        ControlError::PermissionDenied(_) => Code::PermissionDenied,
        ControlError::FailedPrecondition(_) => Code::FailedPrecondition,
        ControlError::Unimplemented(_) => Code::Unimplemented,
        ControlError::Internal(_) => Code::Internal,
    }
}

/// The gRPC status of a switch's error.
pub fn control_status(error: &ControlError) -> Status {
    Status::new(control_code(error), error.message())
}

/// The status of a `Write` of which some updates failed: `UNKNOWN`, with one `p4.v1.Error` per
/// update, in order, in a `google.rpc.Status` (specification, section "Write RPC", "Error
/// Reporting"). Returns `Ok` when all succeeded.
///
/// Texts that exceed a client's default trailer limit are left out. Codes are always there.
pub fn write_status(results: &[Result<(), UpdateError>]) -> Result<(), Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} updates failed", results.len());
    let mut room = STATUS_DETAILS_BUDGET_BYTES.saturating_sub(results.len() * 40);
    let details = results
        .iter()
        .map(|result| {
            let error = match result {
                Ok(()) => p4::Error::default(),
                Err(error) => {
                    let text = if error.message.len() <= room {
                        room -= error.message.len();
                        error.message.clone()
                    } else {
                        String::new()
                    };
                    p4::Error {
                        canonical_code: error.code as i32,
                        message: text,
                        ..p4::Error::default()
                    }
                }
            };
            prost_types::Any {
                type_url: "type.googleapis.com/p4.v1.Error".to_owned(),
                value: error.encode_to_vec(),
            }
        })
        .collect();
    let status = rpc::Status {
        code: Code::Unknown as i32,
        message: message.clone(),
        details,
    };
    Err(Status::with_details(
        Code::Unknown,
        message,
        status.encode_to_vec().into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_status_has_one_detail_per_update_in_order() {
        let results = [
            Ok(()),
            Err(UpdateError::not_found("T: no such entry")),
            Ok(()),
        ];
        let status = write_status(&results).expect_err("one failed");
        assert_eq!(status.code(), Code::Unknown);
        let decoded = rpc::Status::decode(status.details()).expect("google.rpc.Status");
        assert_eq!(decoded.code, Code::Unknown as i32);
        assert_eq!(decoded.message, status.message());
        let codes: Vec<i32> = decoded
            .details
            .iter()
            .map(|any| p4::Error::decode(any.value.as_slice()).expect("p4.v1.Error"))
            .map(|error| error.canonical_code)
            .collect();
        assert_eq!(codes, [0, Code::NotFound as i32, 0]);
    }

    #[test]
    fn long_texts_give_way_to_codes() {
        let results: Vec<_> = (0..100)
            .map(|_| Err(UpdateError::invalid("x".repeat(200))))
            .collect();
        let status = write_status(&results).expect_err("all failed");
        assert!(
            status.details().len() <= 6_000,
            "{}",
            status.details().len()
        );
        let decoded = rpc::Status::decode(status.details()).expect("google.rpc.Status");
        assert_eq!(decoded.details.len(), 100);
    }
}
