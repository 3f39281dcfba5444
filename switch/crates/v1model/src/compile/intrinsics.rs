//! The fields of a packet that the switch itself reads and writes, and the parser's error codes.

use super::objects::Objects;
use crate::error::{LoadResult, refuse};
use crate::layout::{Field, Layout};
use crate::model::Root;
use crate::program::{ErrorCodes, Intrinsics};
use crate::slot::Changes;

/// Finds the metadata fields that the switch itself reads and writes.
pub(super) fn intrinsics(layout: &Layout) -> LoadResult<Intrinsics> {
    let standard = |name: &str| -> LoadResult<Field> {
        match layout.intrinsic("standard_metadata", name)? {
            Some(f) if f.bits <= 64 => Ok(f),
            Some(_) => refuse!("field 'standard_metadata.{name}' is wider than 64 bits"),
            None => refuse!("field 'standard_metadata.{name}' is required by v1model"),
        }
    };
    let optional = |header: &str, name: &str| layout.intrinsic(header, name);
    Ok(Intrinsics {
        ingress_port: standard("ingress_port")?,
        packet_length: standard("packet_length")?,
        instance_type: standard("instance_type")?,
        egress_spec: standard("egress_spec")?,
        egress_port: standard("egress_port")?,
        parser_error: optional("standard_metadata", "parser_error")?,
        checksum_error: optional("standard_metadata", "checksum_error")?,
        ingress_global_timestamp: optional("intrinsic_metadata", "ingress_global_timestamp")?,
        egress_global_timestamp: optional("intrinsic_metadata", "egress_global_timestamp")?,
        mcast_grp: optional("intrinsic_metadata", "mcast_grp")?,
        egress_rid: optional("intrinsic_metadata", "egress_rid")?,
        enq_timestamp: optional("queueing_metadata", "enq_timestamp")?,
        enq_qdepth: optional("queueing_metadata", "enq_qdepth")?,
        deq_timedelta: optional("queueing_metadata", "deq_timedelta")?,
        deq_qdepth: optional("queueing_metadata", "deq_qdepth")?,
        qid: optional("queueing_metadata", "qid")?,
        priority: optional("intrinsic_metadata", "priority")?,
    })
}

/// The headers that the switch itself writes to: none, of a program that p4c made.
pub(super) fn always_changed(layout: &Layout, mut i: Intrinsics, objects: &Objects) -> Changes {
    let required = [
        i.ingress_port,
        i.packet_length,
        i.instance_type,
        i.egress_spec,
        i.egress_port,
    ];
    let optional = i.reported().map(|field| *field).into_iter().flatten();
    let meters = objects.direct_meters.values().map(|meter| meter.target);
    let all = required.into_iter().chain(optional).chain(i.mcast_grp);
    all.chain(meters).fold(0, |all, field| {
        all | layout.changes(field.slot, field.limbs())
    })
}

/// The parser's error codes. A program that lists none has the numbers that p4c gives the errors
/// of core.p4.
pub(super) fn error_codes(root: &Root) -> ErrorCodes {
    let code = |name: &str, otherwise: u64| {
        root.errors
            .iter()
            .find(|(n, _)| n == name)
            .map_or(otherwise, |&(_, code)| u64::from(code))
    };
    ErrorCodes {
        none: code("NoError", 0),
        packet_too_short: code("PacketTooShort", 1),
        stack_out_of_bounds: code("StackOutOfBounds", 3),
        header_too_short: code("HeaderTooShort", 4),
        parser_timeout: code("ParserTimeout", 5),
        parser_invalid_argument: code("ParserInvalidArgument", 6),
    }
}
