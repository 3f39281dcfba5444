//! Events of packets as messages `TraceEvent` of switch/proto/packet_trace.proto.

use std::collections::HashMap;

use traffic_manager::hold::Hold;
use v1model::entries::{EntryKey, MatchField};
use v1model::{
    InstanceType, KeyValues, MatchingEntry, Pipeline, QueueRead, SourceInfo, Stage, Step, Value,
};

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
    /// By table; empty: it has none.
    direct_meters: Box<[String]>,
    profiles: Box<[String]>,
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

/// Fields of the message `ReadQueue`.
fn put_read(message: &mut Message<'_>, read: &QueueRead) {
    message.number(1, read.port);
    message.number(2, read.queue);
    if let Some(reading) = &read.reading {
        message.number(3, 1);
        message.number(4, reading.packets.into());
        message.number(5, reading.bytes.into());
        message.number(6, reading.sojourn_ns);
    }
}

/// A message `NamedValue`.
fn put_named(message: &mut Message<'_>, field: u32, name: &str, value: &Value<'_>) {
    message.message(field, |named| {
        named.text(1, name);
        named.hex(2, value.bytes());
    });
}

/// A name, and the values of its parts.
fn put_parts<'v>(
    message: &mut Message<'_>,
    named: &Named,
    values: impl Iterator<Item = Value<'v>>,
) {
    message.text(1, &named.name);
    for (name, value) in named.parts.iter().zip(values) {
        put_named(message, 2, name, &value);
    }
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
        let direct_meters = pipeline.tables().iter().map(|table| {
            let meter = table.direct_meter.as_ref();
            meter.map_or_else(String::new, |meter| meter.name.clone())
        });
        let profiles = pipeline.profiles().iter();
        Self {
            tables: tables.collect(),
            actions: actions.collect(),
            registers: registers.collect(),
            counters: counters.collect(),
            meters: meters.map(|(array, _)| array.name.clone()).collect(),
            direct_meters: direct_meters.collect(),
            profiles: profiles.map(|profile| profile.name.clone()).collect(),
            matches: HashMap::new(),
        }
    }

    /// Writes an event of the switch.
    pub(super) fn event(out: &mut Vec<u8>, event: &Event) {
        let mut tree = Message::new(out);
        tree.message(EVENTS, |of| match event {
            Event::Enqueue {
                port,
                at_ns,
                hold,
                depth,
            } => of.message(24, |m| {
                m.number(1, (*port).into());
                m.number(2, *at_ns);
                if let Some(hold) = hold {
                    m.message(3, |m| put_hold(m, hold));
                }
                m.number(4, depth.qid.into());
                m.number(5, depth.enq_qdepth.into());
                m.number(6, depth.backlog_bytes);
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
            Event::EcnMark => of.message(30, |_| {}),
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
            Step::Condition {
                name,
                source,
                holds,
            } => of.message(6, |m| {
                m.text(1, name);
                m.number(2, (*holds).into());
                put_source(m, 3, *source);
            }),
            Step::Table {
                table,
                key,
                entry,
                handle,
            } => of.message(7, |m| {
                self.put_lookup(m, *table, key, entry.as_ref(), *handle)
            }),
            Step::DirectMeter { table, colour } => of.message(29, |m| {
                m.text(1, name(&self.direct_meters, *table));
                m.optional_number(2, *colour);
            }),
            Step::Member {
                profile,
                group,
                member,
            } => self.put_member(of, *profile, [Some(*member), *group, None]),
            Step::OneShot { profile, action } => {
                self.put_member(of, *profile, [None, None, Some(*action)]);
            }
            Step::EmptyGroup => of.message(8, |_| {}),
            Step::Action { action, args } => of.message(9, |m| match self.actions.get(*action) {
                Some(named) => put_parts(m, named, args.iter()),
                None => debug_assert!(false, "no name of action {action}"),
            }),
            Step::Primitive { op, source } => of.message(27, |m| {
                m.text(1, op);
                put_source(m, 2, *source);
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
            Step::ReadQueue(read) => of.message(31, |m| put_read(m, read)),
            Step::ChooseQueue(queue) => of.message(32, |m| m.number(1, (*queue).into())),
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

    fn put_lookup(
        &mut self,
        message: &mut Message<'_>,
        table: usize,
        key: &KeyValues<'_>,
        entry: Option<&MatchingEntry<'_>>,
        handle: Option<u32>,
    ) {
        let Some(named) = self.tables.get(table) else {
            return debug_assert!(false, "no name of table {table}");
        };
        put_parts(message, named, key.iter());
        if let Some(entry) = entry {
            message.number(3, 1);
            message.encoded(matches(&mut self.matches, table, &named.parts, entry));
        }
        if let Some(handle) = handle {
            message.optional_number(6, handle.into());
        }
    }

    /// A message `ChosenMember`: the ids of the member and of its group, or a place in a one-shot set.
    fn put_member(&self, event: &mut Message<'_>, profile: usize, chosen: [Option<u32>; 3]) {
        event.message(28, |m| {
            m.text(1, name(&self.profiles, profile));
            for (field, number) in (2..).zip(chosen) {
                if let Some(number) = number {
                    m.optional_number(field, number.into());
                }
            }
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

/// A message `SourceInfo`, if the program has the place.
fn put_source(message: &mut Message<'_>, field: u32, source: Option<&SourceInfo>) {
    if let Some(source) = source {
        message.message(field, |m| {
            m.text(1, &source.filename);
            m.number(2, source.line.into());
            m.text(3, &source.source_fragment);
        });
    }
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
