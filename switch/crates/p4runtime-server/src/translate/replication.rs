//! The packet replication engine: multicast groups and clone sessions.

use std::collections::HashSet;

use switch::{CloneSession, Replica};

use super::ports::Ports;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::v1 as p4;

/// Largest class of service that is kept: PSA's `ClassOfService_t` as BMv2 has it, 8 bits.
const CLASS_OF_SERVICE_MAX: u32 = 255;

/// Reads the replicas of a group or session (sections "MulticastGroupEntry" and
/// "CloneSessionEntry"). Also returns for each whether its port is in the field that 1.4.0 deprecated.
pub(crate) fn replicas(
    object: &str,
    ports: &Ports,
    given: &[p4::Replica],
) -> UpdateResult<(Vec<Replica>, Vec<bool>)> {
    use p4::replica::PortKind;
    let mut result = Vec::with_capacity(given.len());
    let mut deprecated = Vec::with_capacity(given.len());
    let mut seen = HashSet::with_capacity(given.len());
    for replica in given {
        if !replica.backup_replicas.is_empty() {
            return Err(UpdateError::unimplemented(format!(
                "{object}: backup_replicas are not implemented"
            )));
        }
        #[allow(deprecated)]
        let (port, in_deprecated) = match &replica.port_kind {
            Some(PortKind::EgressPort(port)) => {
                (ports.read_number(*port, object, "egress_port")?, true)
            }
            Some(PortKind::Port(value)) => (ports.read(value, object, "port")?, false),
            None => {
                return Err(UpdateError::invalid(format!(
                    "{object}: a replica has no port"
                )));
            }
        };
        let rid = u16::try_from(replica.instance).map_err(|_| {
            UpdateError::invalid(format!(
                "{object}: instance: {} given, at most {} expected",
                replica.instance,
                u16::MAX
            ))
        })?;
        let replica = Replica { port, rid };
        if !seen.insert(replica) {
            return Err(UpdateError::invalid(format!(
                "{object}: port {port}, instance {rid} is given twice"
            )));
        }
        result.push(replica);
        deprecated.push(in_deprecated);
    }
    Ok((result, deprecated))
}

/// Replicas as a controller sees them; `deprecated`: for each, whether its port is in the field that
/// 1.4.0 deprecated.
///
/// # Errors
/// `FAILED_PRECONDITION`: the mapping of ports does not have one.
pub(crate) fn replica_messages(
    object: &str,
    ports: &Ports,
    replicas: &[Replica],
    deprecated: &[bool],
) -> UpdateResult<Vec<p4::Replica>> {
    use p4::replica::PortKind;
    let replicas = replicas.iter().enumerate();
    replicas
        .map(|(position, replica)| {
            let in_deprecated = deprecated.get(position).copied().unwrap_or(false);
            #[allow(deprecated)]
            let port_kind = if in_deprecated {
                PortKind::EgressPort(ports.tell_number(replica.port, object, "egress_port")?)
            } else {
                PortKind::Port(ports.tell(replica.port, object, "port")?)
            };
            Ok(p4::Replica {
                port_kind: Some(port_kind),
                instance: replica.rid.into(),
                backup_replicas: Vec::new(),
            })
        })
        .collect()
}

/// Reads a clone session. Also returns for each replica whether its port is in the deprecated field.
pub(crate) fn clone_session(
    object: &str,
    ports: &Ports,
    entry: &p4::CloneSessionEntry,
) -> UpdateResult<(CloneSession, Vec<bool>)> {
    if entry.class_of_service > CLASS_OF_SERVICE_MAX {
        return Err(UpdateError::invalid(format!(
            "{object}: class_of_service: {} given, at most {CLASS_OF_SERVICE_MAX} expected",
            entry.class_of_service
        )));
    }
    let packet_length_bytes = u32::try_from(entry.packet_length_bytes).map_err(|_| {
        UpdateError::invalid(format!(
            "{object}: packet_length_bytes: {} given, at least 0 expected (0: all of the packet)",
            entry.packet_length_bytes
        ))
    })?;
    let (replicas, deprecated) = replicas(object, ports, &entry.replicas)?;
    let session = CloneSession {
        replicas,
        class_of_service: entry.class_of_service,
        packet_length_bytes,
    };
    Ok((session, deprecated))
}

/// A clone session as a controller sees it.
///
/// # Errors
/// As [`replica_messages`].
pub(crate) fn clone_session_message(
    session_id: u32,
    ports: &Ports,
    session: &CloneSession,
    deprecated: &[bool],
) -> UpdateResult<p4::CloneSessionEntry> {
    let object = format!("clone session {session_id}");
    Ok(p4::CloneSessionEntry {
        session_id,
        replicas: replica_messages(&object, ports, &session.replicas, deprecated)?,
        class_of_service: session.class_of_service,
        packet_length_bytes: i32::try_from(session.packet_length_bytes).unwrap_or(i32::MAX),
    })
}
