//! Events of packets as messages `TraceEvent` of switch/proto/packet_trace.proto.

use std::collections::HashMap;

use traffic_manager::hold::Hold;
use v1model::entries::{EntryKey, MatchField};
use v1model::{InstanceType, MatchingEntry, Pipeline, Stage, Step, Value};

use super::event::Event;
use super::protobuf::Message;

/// Most entries whose matches are remembered.
const MATCHES_MAX: usize = 16_384;

/// `TraceTree.events`.
const EVENTS: u32 = 1;

/// Turns events into messages, with the names that the control plane knows by index.
#[derive(Debug)]
pub(super) struct Encoder {
    tables: Box<[Named]>,
    actions: Box<[Named]>,
    registers: Box<[String]>,
    counters: Box<[String]>,
    meters: Box<[String]>,
    /// The matches of entries that packets have hit, encoded, by table and entry. A key never changes.
    matches: HashMap<(usize, u64), Box<[u8]>>,
}

/// A name, and the names of key fields or parameters.
#[derive(Debug)]
struct Named {
    name: String,
    parts: Box<[String]>,
}

/// Fields of the message `Hold`, and of `Enqueue` before it.
fn put_hold(message: &mut Message<'_>, hold: &Hold) {
    message.number(1, hold.class.into());
    message.number(2, hold.departure_ns);
    message.number(3, hold.cost_q24);
    message.number(4, hold.allowance_ns);
}

/// A message `NamedValue`.
fn put_named(message: &mut Message<'_>, field: u32, name: &str, value: &Value<'_>) {
    message.message(field, |named| {
        named.text(1, name);
        named.hex(2, value.bytes());
    });
}

/// A match as simple_switch_CLI takes it; nothing for any value.
fn put_match(message: &mut Message<'_>, name: &str, field: &MatchField) {
    let is_any = match field {
        MatchField::Lpm { prefix_bits: 0, .. } | MatchField::Optional(None) => true,
        MatchField::Ternary { mask, .. } => mask.iter().all(|byte| *byte == 0),
        _ => false,
    };
    if is_any {
        return;
    }
    message.message(4, |named| {
        named.text(1, name);
        named.message(2, |text| {
            let (value, separator, end) = match field {
                MatchField::Exact(value) | MatchField::Optional(Some(value)) => (value, "", None),
                MatchField::Ternary { value, mask } => (value, "&&&", Some(mask)),
                MatchField::Range { low, high } => (low, "->", Some(high)),
                MatchField::Lpm { value, prefix_bits } => {
                    text.put_hex(value.iter().copied());
                    return text.put(&format!("/{prefix_bits}"));
                }
                MatchField::Optional(None) => return,
            };
            text.put_hex(value.iter().copied());
            text.put(separator);
            if let Some(end) = end {
                text.put_hex(end.iter().copied());
            }
        });
    });
}

impl Encoder {
    pub(super) fn new(pipeline: &Pipeline) -> Self {
        let tables = pipeline.tables().iter().map(|table| Named {
            name: table.name.clone(),
            parts: table.key.iter().map(|field| field.name.clone()).collect(),
        });
        let actions = pipeline.actions().iter().map(|action| Named {
            name: action.name.clone(),
            parts: action.params.iter().map(|(name, _)| name.clone()).collect(),
        });
        let registers = pipeline.registers().iter().map(|array| array.name.clone());
        let counters = pipeline.counters().iter().map(|array| array.name.clone());
        let meters = pipeline.meters().iter();
        Self {
            tables: tables.collect(),
            actions: actions.collect(),
            registers: registers.collect(),
            counters: counters.collect(),
            meters: meters.map(|(array, _)| array.name.clone()).collect(),
            matches: HashMap::new(),
        }
    }

    /// Writes an event of the switch.
    pub(super) fn event(out: &mut Vec<u8>, event: &Event) {
        let mut tree = Message::new(out);
        tree.message(EVENTS, |of| match event {
            Event::Enqueue { port, at_ns, hold } => of.message(24, |m| {
                m.number(1, (*port).into());
                m.number(2, *at_ns);
                if let Some(hold) = hold {
                    m.message(3, |m| put_hold(m, hold));
                }
            }),
            Event::Dequeue {
                port,
                start_ns,
                enqueued_ns,
            } => of.message(25, |m| {
                m.number(1, (*port).into());
                m.number(2, *start_ns);
                m.number(3, *enqueued_ns);
            }),
            Event::Reenter {
                instance_type,
                at_ns,
            } => of.message(26, |m| {
                let is_resubmitted = *instance_type == InstanceType::Resubmit;
                m.number(1, if is_resubmitted { 1 } else { 2 });
                m.number(2, *at_ns);
            }),
        });
    }

    /// Writes a step of the program.
    pub(super) fn step(&mut self, out: &mut Vec<u8>, step: &Step<'_>) {
        let mut tree = Message::new(out);
        tree.message(EVENTS, |of| match step {
            Step::Enter(stage) => put_stage(of, *stage, 1),
            Step::Leave(stage) => put_stage(of, *stage, 2),
            Step::State(name) => of.message(2, |m| m.text(1, name)),
            Step::Extract {
                header,
                bytes,
                fields,
            } => of.message(3, |m| {
                m.text(1, header);
                m.number(2, *bytes as u64);
                for (name, value) in fields.iter() {
                    put_named(m, 3, name, &value);
                }
            }),
            Step::ParserError(name) => of.message(4, |m| m.text(1, name)),
            Step::ChecksumError => of.message(5, |_| {}),
            Step::Condition { name, holds } => of.message(6, |m| {
                m.text(1, name);
                m.number(2, (*holds).into());
            }),
            Step::Table {
                table,
                key,
                entry,
                handle,
            } => of.message(7, |m| {
                let Some(named) = self.tables.get(*table) else {
                    return debug_assert!(false, "no name of table {table}");
                };
                m.text(1, &named.name);
                for (name, value) in named.parts.iter().zip(key.iter()) {
                    put_named(m, 2, name, &value);
                }
                if let Some(entry) = entry {
                    m.number(3, 1);
                    m.encoded(matches(&mut self.matches, *table, &named.parts, entry));
                }
                if let Some(handle) = handle {
                    m.optional_number(6, (*handle).into());
                }
            }),
            Step::EmptyGroup => of.message(8, |_| {}),
            Step::Action { action, args } => of.message(9, |m| {
                let Some(named) = self.actions.get(*action) else {
                    return debug_assert!(false, "no name of action {action}");
                };
                m.text(1, &named.name);
                for (name, value) in named.parts.iter().zip(args.iter()) {
                    put_named(m, 2, name, &value);
                }
            }),
            Step::RegisterRead {
                register,
                index,
                value,
            } => of.message(10, |m| self.put_access(m, *register, *index, value)),
            Step::RegisterWrite {
                register,
                index,
                value,
            } => of.message(11, |m| self.put_access(m, *register, *index, value)),
            Step::Count { counter, index } => of.message(12, |m| {
                m.text(1, name(&self.counters, *counter));
                m.number(2, *index);
            }),
            Step::Meter {
                meter,
                index,
                colour,
            } => of.message(13, |m| {
                m.text(1, name(&self.meters, *meter));
                m.number(2, *index);
                if let Some(colour) = colour {
                    m.optional_number(3, *colour);
                }
            }),
            Step::MarkToDrop => of.message(14, |_| {}),
            Step::Hold(hold) => of.message(15, |m| put_hold(m, hold)),
            Step::Truncate(bytes) => of.message(16, |m| m.number(1, *bytes)),
            Step::Clone(request) => of.message(17, |m| {
                m.number(1, request.session.into());
                m.number(2, request.field_list.into());
            }),
            Step::Digest(id) => of.message(18, |m| m.number(1, *id)),
            Step::Resubmit(id) => of.message(19, |m| m.number(1, *id)),
            Step::Recirculate(id) => of.message(20, |m| m.number(1, *id)),
            Step::Exit => of.message(21, |_| {}),
            Step::AssertFailed => of.message(22, |_| {}),
            Step::Emit { header, bytes } => of.message(23, |m| {
                m.text(1, header);
                m.number(2, *bytes as u64);
            }),
        });
    }

    fn put_access(
        &self,
        message: &mut Message<'_>,
        register: usize,
        index: u64,
        value: &Option<Value<'_>>,
    ) {
        message.text(1, name(&self.registers, register));
        message.number(2, index);
        if let Some(value) = value {
            message.hex(3, value.bytes());
        }
    }
}

/// The fields `matches` and `priority` of an entry that a packet hits.
fn matches<'m>(
    remembered: &'m mut HashMap<(usize, u64), Box<[u8]>>,
    table: usize,
    names: &[String],
    entry: &MatchingEntry<'_>,
) -> &'m [u8] {
    let place = (table, entry.number());
    if remembered.len() >= MATCHES_MAX && !remembered.contains_key(&place) {
        // Many flows: the next ones are as likely to come again as these.
        remembered.clear();
    }
    remembered.entry(place).or_insert_with(|| {
        let EntryKey { fields, priority } = entry.key();
        let mut out = Vec::new();
        let mut message = Message::new(&mut out);
        for (name, field) in names.iter().zip(&fields) {
            put_match(&mut message, name, field);
        }
        message.number(5, u64::from(priority.unsigned_abs()));
        out.into()
    })
}

fn put_stage(message: &mut Message<'_>, stage: Stage, direction: u64) {
    message.message(1, |m| {
        m.text(1, stage.name());
        let kind = match stage {
            Stage::Parser => 1,
            Stage::Ingress | Stage::Egress => 2,
            Stage::Deparser => 3,
        };
        m.number(2, kind);
        m.number(3, direction);
    });
}

fn name(names: &[String], index: usize) -> &str {
    let found = names.get(index);
    debug_assert!(found.is_some(), "an object of the program has no name");
    found.map_or("", String::as_str)
}
