//! The packet replication engine: multicast groups and clone sessions (specification, section
//! "PacketReplicationEngineEntry").

use super::{Kind, Planned, Result, SideChange, cookie};
use crate::operation::{Change, Operation};
use crate::proto::p4::v1 as p4;
use crate::shared::Limits;
use crate::state::GroupCookie;
use crate::translate::{self, nonzero};

/// A multicast group.
pub(super) fn multicast_group(
    limits: &Limits,
    kind: Kind,
    entry: &p4::MulticastGroupEntry,
) -> Result<Planned> {
    let group = nonzero(
        entry.multicast_group_id,
        "multicast_group_entry",
        "multicast_group_id",
    )?;
    let object = format!("multicast group {group}");
    let mut side = SideChange::GroupGone(group);
    let change: Change<_> = kind.change(|| {
        let (replicas, deprecated_ports) = translate::replicas(&object, &entry.replicas)?;
        let cookie = cookie(limits, &object, 0, &entry.metadata)?;
        side = SideChange::Group(
            group,
            GroupCookie {
                metadata: cookie.metadata,
                deprecated_ports,
            },
        );
        Ok(replicas)
    })?;
    Ok(Planned {
        operation: Operation::Multicast { group, change },
        side,
        object,
    })
}

/// A clone session.
pub(super) fn clone_session(kind: Kind, entry: &p4::CloneSessionEntry) -> Result<Planned> {
    let session = nonzero(entry.session_id, "clone_session_entry", "session_id")?;
    let object = format!("clone session {session}");
    let mut side = SideChange::SessionGone(session);
    let change: Change<_> = kind.change(|| {
        let (to, deprecated_ports) = translate::clone_session(&object, entry)?;
        side = SideChange::Session(session, deprecated_ports);
        Ok(to)
    })?;
    Ok(Planned {
        operation: Operation::Clones { session, change },
        side,
        object,
    })
}
