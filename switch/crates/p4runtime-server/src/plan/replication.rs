//! The packet replication engine: multicast groups and clone sessions (specification, section
//! "PacketReplicationEngineEntry").

use super::planned::{Kind, Planned, annotation};
use crate::error::UpdateResult;
use crate::ids::nonzero;
use crate::operation::{Change, Operation};
use crate::proto::p4::v1 as p4;
use crate::shared::ServerLimits;
use crate::state::{AnnotationChange, GroupAnnotation};
use crate::translate::{self, BoundPipeline};

/// A multicast group or a clone session.
pub(super) fn entry(
    pipeline: &BoundPipeline,
    limits: &ServerLimits,
    kind: Kind,
    entry: &p4::PacketReplicationEngineEntry,
) -> UpdateResult<Planned> {
    use p4::packet_replication_engine_entry::Type;
    match &entry.r#type {
        Some(Type::MulticastGroupEntry(group)) => multicast_group(pipeline, limits, kind, group),
        Some(Type::CloneSessionEntry(session)) => clone_session(pipeline, kind, session),
        None => Err(translate::empty_replication_entry()),
    }
}

fn multicast_group(
    pipeline: &BoundPipeline,
    limits: &ServerLimits,
    kind: Kind,
    entry: &p4::MulticastGroupEntry,
) -> UpdateResult<Planned> {
    let group = nonzero(
        entry.multicast_group_id,
        "multicast_group_entry",
        "multicast_group_id",
    )?;
    let object = format!("multicast group {group}");
    let mut kept = None;
    let change: Change<_> = kind.change(|| {
        let (replicas, deprecated_ports) =
            translate::replicas(&object, &pipeline.ports, &entry.replicas)?;
        kept = Some(GroupAnnotation {
            metadata: annotation(limits, &object, 0, &entry.metadata)?.metadata,
            deprecated_ports,
        });
        Ok(replicas)
    })?;
    Ok(Planned {
        operation: Operation::Multicast { group, change },
        annotation: AnnotationChange::Group(group, kept),
        object,
    })
}

fn clone_session(
    pipeline: &BoundPipeline,
    kind: Kind,
    entry: &p4::CloneSessionEntry,
) -> UpdateResult<Planned> {
    let session = nonzero(entry.session_id, "clone_session_entry", "session_id")?;
    let object = format!("clone session {session}");
    let mut kept = None;
    let change: Change<_> = kind.change(|| {
        let (to, deprecated_ports) = translate::clone_session(&object, &pipeline.ports, entry)?;
        kept = Some(deprecated_ports);
        Ok(to)
    })?;
    Ok(Planned {
        operation: Operation::Clones { session, change },
        annotation: AnnotationChange::Session(session, kept),
        object,
    })
}
