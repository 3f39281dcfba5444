//! From the switch's trace to the message.

use prost::Message;
use switch::trace::{self, Branch, Event, ForkReason, Outcome};
use v1model::entries::{EntryKey, MatchField};
use v1model::{InstanceType, Stage};

use crate::proto;
use proto::pipeline_stage_event::{Direction, StageKind};
use proto::trace_event::Event as EventMessage;
use proto::trace_tree::Outcome as OutcomeMessage;

impl From<&trace::PacketTrace> for proto::PacketTrace {
    fn from(trace: &trace::PacketTrace) -> Self {
        Self {
            input: Some(proto::InputPacket {
                packet_id: trace.packet_id,
                ingress_port: trace.ingress_port.into(),
                arrival_ns: trace.arrival_ns,
                packet_size: size(trace.frame_bytes),
            }),
            root: Some(tree(&trace.root)),
            left_out: trace.left_out,
        }
    }
}

/// A trace as a message with its length in front, so that one can follow the other in a file.
#[must_use]
pub fn to_delimited(trace: &trace::PacketTrace) -> Vec<u8> {
    proto::PacketTrace::from(trace).encode_length_delimited_to_vec()
}

fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn tree(branch: &Branch) -> proto::TraceTree {
    let events = branch.events.iter();
    proto::TraceTree {
        events: events
            .map(|event| proto::TraceEvent {
                event: event_message(event),
            })
            .collect(),
        outcome: Some(outcome(&branch.outcome)),
    }
}

fn outcome(outcome: &Outcome) -> OutcomeMessage {
    match outcome {
        Outcome::Transmit {
            port,
            frame_bytes,
            delivery_ns,
        } => OutcomeMessage::Transmit(proto::Transmit {
            egress_port: (*port).into(),
            packet_size: size(*frame_bytes),
            delivery_ns: *delivery_ns,
        }),
        Outcome::PacketIn { frame_bytes } => OutcomeMessage::PacketIn(proto::PacketIn {
            packet_size: size(*frame_bytes),
        }),
        Outcome::Drop { port, cause } => OutcomeMessage::Drop(proto::Drop {
            port: (*port).into(),
            cause: cause.as_str().to_owned(),
        }),
        Outcome::Fork { reason, branches } => OutcomeMessage::Fork(proto::Fork {
            reason: match reason {
                ForkReason::Clone => proto::fork::Reason::Clone,
                ForkReason::Multicast => proto::fork::Reason::Multicast,
            }
            .into(),
            branches: branches.iter().map(tree).collect(),
        }),
        Outcome::Unfinished => OutcomeMessage::Unfinished(proto::Unfinished {}),
    }
}

fn event_message(event: &Event) -> Option<EventMessage> {
    let message = match event {
        Event::Enter(stage) => stage_message(*stage, Direction::Enter),
        Event::Leave(stage) => stage_message(*stage, Direction::Exit),
        Event::State(name) => EventMessage::ParserState(proto::ParserState { name: name.clone() }),
        Event::Extract {
            header,
            bytes,
            fields,
        } => EventMessage::Extract(proto::Extract {
            header: header.clone(),
            bytes: size(*bytes),
            fields: named(fields),
        }),
        Event::ParserError(name) => {
            EventMessage::ParserError(proto::ParserError { name: name.clone() })
        }
        Event::ChecksumError => EventMessage::ChecksumError(proto::ChecksumError {}),
        Event::Condition { name, holds } => EventMessage::Condition(proto::Condition {
            name: name.clone(),
            holds: *holds,
        }),
        Event::Table {
            table,
            key,
            entry,
            handle,
        } => EventMessage::TableLookup(proto::TableLookup {
            table: table.to_string(),
            key: named(key),
            hit: entry.is_some(),
            matches: entry
                .as_ref()
                .map_or_else(Vec::new, |entry| matches_of(key, entry)),
            priority: entry.as_ref().map_or(0, |entry| entry.priority),
            handle: *handle,
        }),
        Event::EmptyGroup => EventMessage::EmptyGroup(proto::EmptyGroup {}),
        Event::Action { action, args } => EventMessage::Action(proto::Action {
            name: action.to_string(),
            args: named(args),
        }),
        Event::RegisterRead {
            register,
            index,
            value,
        } => EventMessage::RegisterRead(access(register, *index, value.as_deref())),
        Event::RegisterWrite {
            register,
            index,
            value,
        } => EventMessage::RegisterWrite(access(register, *index, value.as_deref())),
        Event::Count { counter, index } => EventMessage::Count(proto::Count {
            counter: counter.to_string(),
            index: *index,
        }),
        Event::Meter {
            meter,
            index,
            colour,
        } => EventMessage::Meter(proto::Meter {
            meter: meter.to_string(),
            index: *index,
            colour: colour.and_then(|colour| u32::try_from(colour).ok()),
        }),
        other => return decision(other),
    };
    Some(message)
}

/// Decisions of the program about the packet, and steps of the switch.
fn decision(event: &Event) -> Option<EventMessage> {
    let message = match event {
        Event::MarkToDrop => EventMessage::MarkToDrop(proto::MarkToDrop {}),
        Event::Hold(hold) => EventMessage::Hold(hold_message(hold)),
        Event::Truncate(bytes) => EventMessage::Truncate(proto::Truncate { bytes: *bytes }),
        Event::Clone(request) => EventMessage::Clone(proto::CloneRequest {
            session: request.session.into(),
            field_list: request.field_list.into(),
        }),
        Event::Digest(id) => EventMessage::Digest(proto::Request { id: *id }),
        Event::Resubmit(id) => EventMessage::Resubmit(proto::Request { id: *id }),
        Event::Recirculate(id) => EventMessage::Recirculate(proto::Request { id: *id }),
        Event::Exit => EventMessage::Exit(proto::Exit {}),
        Event::AssertFailed => EventMessage::AssertFailed(proto::AssertFailed {}),
        Event::Emit { header, bytes } => EventMessage::Emit(proto::Emit {
            header: header.clone(),
            bytes: size(*bytes),
        }),
        Event::Enqueue { port, at_ns, hold } => EventMessage::Enqueue(proto::Enqueue {
            port: (*port).into(),
            at_ns: *at_ns,
            hold: hold.as_ref().map(hold_message),
        }),
        Event::Dequeue {
            port,
            start_ns,
            enqueued_ns,
        } => EventMessage::Dequeue(proto::Dequeue {
            port: (*port).into(),
            start_ns: *start_ns,
            enqueued_ns: *enqueued_ns,
        }),
        Event::Reenter {
            instance_type,
            at_ns,
        } => EventMessage::Reenter(proto::Reenter {
            kind: match instance_type {
                InstanceType::Resubmit => proto::reenter::Kind::Resubmitted,
                _ => proto::reenter::Kind::Recirculated,
            }
            .into(),
            at_ns: *at_ns,
        }),
        other => {
            debug_assert!(false, "{other:?} is an event of the engine");
            return None;
        }
    };
    Some(message)
}

fn stage_message(stage: Stage, direction: Direction) -> EventMessage {
    let kind = match stage {
        Stage::Parser => StageKind::Parser,
        Stage::Ingress | Stage::Egress => StageKind::Control,
        Stage::Deparser => StageKind::Deparser,
    };
    EventMessage::PipelineStage(proto::PipelineStageEvent {
        stage_name: stage.name().to_owned(),
        stage_kind: kind.into(),
        direction: direction.into(),
    })
}

fn hold_message(hold: &traffic_manager::hold::Hold) -> proto::Hold {
    proto::Hold {
        class_id: hold.class,
        departure_ns: hold.departure_ns,
        cost_q24: hold.cost_q24,
        allowance_ns: hold.allowance_ns,
    }
}

fn access(register: &str, index: u64, value: Option<&[u8]>) -> proto::RegisterAccess {
    proto::RegisterAccess {
        register: register.to_owned(),
        index,
        value: value.map(hex),
    }
}

fn named<N: AsRef<str>, V: AsRef<[u8]>>(values: &[(N, V)]) -> Vec<proto::NamedValue> {
    let values = values.iter().map(|(name, value)| proto::NamedValue {
        name: name.as_ref().to_owned(),
        value: hex(value.as_ref()),
    });
    values.collect()
}

/// Hexadecimal with all digits of the bytes.
pub(crate) fn hex(value: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut out = String::with_capacity(2 + 2 * value.len());
    out.push_str("0x");
    for byte in value {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out
}

/// Matches of an entry by the names of the key's fields, without those that match any value.
fn matches_of<N: AsRef<str>, V>(key: &[(N, V)], entry: &EntryKey) -> Vec<proto::NamedValue> {
    let fields = key.iter().zip(&entry.fields);
    let matches = fields.filter_map(|((name, _), field)| {
        Some(proto::NamedValue {
            name: name.as_ref().to_owned(),
            value: match_text(field)?,
        })
    });
    matches.collect()
}

/// A match as simple_switch_CLI takes it; `None`: any value.
fn match_text(field: &MatchField) -> Option<String> {
    match field {
        MatchField::Exact(value) | MatchField::Optional(Some(value)) => Some(hex(value)),
        MatchField::Lpm { prefix_bits: 0, .. } | MatchField::Optional(None) => None,
        MatchField::Lpm { value, prefix_bits } => Some(format!("{}/{prefix_bits}", hex(value))),
        MatchField::Ternary { mask, .. } if mask.iter().all(|byte| *byte == 0) => None,
        MatchField::Ternary { value, mask } => Some(format!("{}&&&{}", hex(value), hex(mask))),
        MatchField::Range { low, high } => Some(format!("{}->{}", hex(low), hex(high))),
    }
}
