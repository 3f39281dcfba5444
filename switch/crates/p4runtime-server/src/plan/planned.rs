//! An update that has been checked, and checks that several entities share.

use tonic::Code;

use crate::error::{UpdateError, UpdateResult};
use crate::operation::{Change, Operation};
use crate::proto::p4::v1 as p4;
use crate::shared::ServerLimits;
use crate::state::{AnnotationChange, EntryAnnotation};

/// An update, checked and translated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) operation: Operation,
    pub(crate) annotation: AnnotationChange,
    /// P4 name, for errors of the program.
    pub(crate) object: String,
}

impl Planned {
    /// An operation without an annotation.
    pub(super) fn only(operation: Operation, object: impl Into<String>) -> Self {
        Self {
            operation,
            annotation: AnnotationChange::Nothing,
            object: object.into(),
        }
    }
}

/// The type of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Modify,
    Delete,
}

impl Kind {
    pub(super) fn of(update: &p4::Update) -> UpdateResult<Self> {
        use p4::update::Type;
        match Type::try_from(update.r#type) {
            Ok(Type::Insert) => Ok(Self::Insert),
            Ok(Type::Modify) => Ok(Self::Modify),
            Ok(Type::Delete) => Ok(Self::Delete),
            Ok(Type::Unspecified) | Err(_) => Err(UpdateError::invalid(format!(
                "type: {} given, INSERT, MODIFY or DELETE expected",
                update.r#type
            ))),
        }
    }

    /// A change of an object with a key. A `DELETE` reads nothing but the key.
    pub(super) fn change<T>(
        self,
        content: impl FnOnce() -> UpdateResult<T>,
    ) -> UpdateResult<Change<T>> {
        Ok(match self {
            Self::Insert => Change::Insert(content()?),
            Self::Modify => Change::Modify(content()?),
            Self::Delete => Change::Delete,
        })
    }
}

/// Refuses an update that is not a `MODIFY`. `what` is the kind of object.
pub(super) fn only_modify(kind: Kind, object: &str, what: &str) -> UpdateResult<()> {
    if kind == Kind::Modify {
        return Ok(());
    }
    Err(UpdateError::invalid(format!(
        "{object}: type: {kind:?} given, {what} can only be modified (MODIFY)"
    )))
}

/// The values that a controller attaches to an entry or group, checked.
pub(super) fn annotation(
    limits: &ServerLimits,
    object: &str,
    controller_metadata: u64,
    metadata: &[u8],
) -> UpdateResult<EntryAnnotation> {
    if metadata.len() > limits.metadata_bytes {
        return Err(UpdateError::new(
            Code::ResourceExhausted,
            format!(
                "{object}: metadata: {} bytes given, at most {} are kept",
                metadata.len(),
                limits.metadata_bytes
            ),
        ));
    }
    Ok(EntryAnnotation {
        controller_metadata,
        metadata: metadata.to_vec(),
    })
}
