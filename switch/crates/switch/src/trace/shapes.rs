//! Messages `TraceEvent` of packet_trace.proto, prepared for the events of a program: the names and the
//! text of the program are in them. An event takes a copy of its shape, and its values go into the holes.

use std::sync::OnceLock;

use v1model::{HeaderLabel, NodeLabel, Pipeline, SourceInfo, Stage};

use super::names::Names;
use super::record::{Events, Kind, NAME, VALUE};
use super::writer::{Field, Form, Prepared, Writer, field};

const EVENTS: Field = field!(1, "events");
const METER: Field = field!(1, "meter");

const STAGES: [Stage; 4] = [
    Stage::Parser,
    Stage::Ingress,
    Stage::Egress,
    Stage::Deparser,
];

/// Fields whose number of words is not fixed, and numbers, which may be left out. They follow the prepared
/// fields of a message, as long as there are values.
#[derive(Debug, Clone, Copy)]
enum Tail {
    Number(Field),
    /// Also if it is 0.
    Optional(Field),
    /// Not 0.
    Flag(Field),
    Choice(Field, &'static [&'static str]),
    /// The width, then the words.
    Hex(Field),
    Message(Field, &'static [Tail]),
    /// The number of an extra.
    Extra,
}

const PORT: Tail = Tail::Number(field!(1, "port"));
const AT: Tail = Tail::Number(field!(2, "at_ns"));
const INDEX: Tail = Tail::Number(field!(2, "index"));
const QID: Tail = Tail::Number(field!(4, "qid"));
const PACKETS: Tail = Tail::Number(field!(5, "enq_qdepth"));
const BYTES: Tail = Tail::Number(field!(6, "backlog_bytes"));
const MEMBER: Tail = Tail::Optional(field!(2, "member_id"));
const ID: &[Tail] = &[Tail::Number(field!(1, "id"))];
const ACCESS: &[Tail] = &[INDEX, Tail::Hex(field!(3, "value"))];
const HELD: Tail = Tail::Message(field!(3, "hold"), HOLD);
const HOLD: &[Tail] = &[
    Tail::Number(field!(1, "class_id")),
    Tail::Number(field!(2, "departure_ns")),
    Tail::Number(field!(3, "cost_q24")),
    Tail::Number(field!(4, "allowance_ns")),
];

/// A program's names, and the shapes of its events once somebody needs them.
#[derive(Debug)]
pub struct Vocabulary {
    pub(super) names: Names,
    shapes: [OnceLock<Shapes>; Form::ALL.len()],
}

impl Vocabulary {
    pub(crate) fn new(pipeline: &Pipeline) -> Self {
        Self {
            names: Names::new(pipeline),
            shapes: Default::default(),
        }
    }

    pub(super) fn shapes(&self, form: Form) -> &Shapes {
        self.shapes[form as usize].get_or_init(|| Shapes::new(form, &self.names))
    }
}

impl PartialEq for Vocabulary {
    /// A program has one.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Vocabulary {}

/// The shapes of a program's events in one form.
#[derive(Debug)]
pub(super) struct Shapes {
    form: Form,
    /// By kind.
    groups: Vec<Group>,
}

/// The shapes of a kind of events.
#[derive(Debug, Default)]
struct Group {
    field: Field,
    tail: &'static [Tail],
    shapes: Vec<Shape>,
}

#[derive(Debug)]
struct Shape {
    /// The event without a tail.
    event: Prepared,
    /// The fields of its message, in front of a tail.
    fields: Prepared,
}

impl Shapes {
    fn new(form: Form, names: &Names) -> Self {
        let mut shapes = Self {
            form,
            groups: Vec::new(),
        };
        shapes.add_parser(names);
        shapes.add_controls(names);
        shapes.add_tables(names);
        shapes.add_primitives(names);
        shapes.add_queues();
        shapes
    }

    /// Writes the events of a branch.
    pub(super) fn put(&self, events: &Events, tree: &mut Writer<'_>) {
        tree.list(EVENTS, |list| {
            for (kind, index, values) in events.iter() {
                let put = self.put_event(list, events, (kind, index), values);
                debug_assert!(put.is_some(), "event {kind} of index {index} has no shape");
            }
        });
    }

    #[inline]
    fn put_event(
        &self,
        list: &mut Writer<'_>,
        events: &Events,
        (kind, index): (usize, usize),
        values: &[u64],
    ) -> Option<()> {
        let group = self.groups.get(kind)?;
        let shape = group.shapes.get(index)?;
        let (values, mut tail) = values.split_at_checked(shape.event.words())?;
        if tail.is_empty() {
            list.prepared(&shape.event, values);
        } else {
            list.item(EVENTS, |event| {
                event.message(group.field, |m| {
                    m.prepared(&shape.fields, values);
                    self.put_tail(m, group.tail, &mut tail, events);
                });
            });
        }
        Some(())
    }

    /// Writes a tail as far as there are values.
    fn put_tail(
        &self,
        m: &mut Writer<'_>,
        tail: &[Tail],
        values: &mut &[u64],
        events: &Events,
    ) -> Option<()> {
        for part in tail {
            match *part {
                Tail::Number(field) => m.number(field, *values.split_off_first()?),
                Tail::Optional(field) => m.optional_number(field, *values.split_off_first()?),
                Tail::Flag(field) => m.flag(field, *values.split_off_first()? != 0),
                Tail::Choice(field, names) => {
                    m.choice(field, *values.split_off_first()? as usize, names);
                }
                Tail::Hex(field) => {
                    let bits = *values.split_off_first()?;
                    m.hex(field, bits as u32, values);
                    *values = &[];
                }
                Tail::Message(field, tail) => m.message(field, |m| {
                    self.put_tail(m, tail, values, events);
                }),
                Tail::Extra => {
                    let extra = events.extra(*values.split_off_first()?)?;
                    m.prepared(&extra[self.form as usize], &[]);
                }
            }
        }
        Some(())
    }

    /// Adds the events of a kind, in the order of their indices.
    fn add<T: Copy>(
        &mut self,
        kind: Kind,
        field: Field,
        tail: &'static [Tail],
        all: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Writer<'_>, T),
    ) {
        let form = self.form;
        let shapes = all.into_iter().map(|one| Shape {
            event: Prepared::new(form, |list| {
                list.item(EVENTS, |event| event.message(field, |m| write(m, one)));
            }),
            fields: Prepared::new(form, |m| {
                if !tail.is_empty() {
                    write(m, one);
                }
            }),
        });
        let shapes = shapes.collect();
        let place = kind as usize;
        if self.groups.len() <= place {
            self.groups.resize_with(place + 1, Group::default);
        }
        self.groups[place] = Group {
            field,
            tail,
            shapes,
        };
    }

    /// Adds events that have one name.
    fn add_named(
        &mut self,
        kind: Kind,
        field: Field,
        tail: &'static [Tail],
        name: Field,
        names: &[String],
    ) {
        self.add(kind, field, tail, names, |m, text| m.text(name, text));
    }

    /// Adds an event without a name.
    fn add_nameless(&mut self, kind: Kind, field: Field, tail: &'static [Tail]) {
        self.add(kind, field, tail, [()], |_, ()| {});
    }

    fn add_parser(&mut self, names: &Names) {
        let labels = &names.labels;
        let state = field!(2, "parser_state");
        self.add_named(Kind::State, state, &[], NAME, &labels.states);
        let header = field!(1, "header");
        let bytes = field!(2, "bytes");
        let extract = field!(3, "extract");
        let headers = labels.headers.iter();
        self.add(
            Kind::Extract,
            extract,
            &[Tail::Extra],
            headers,
            |m, label| {
                m.text(header, &label.name);
                if !label.is_variable() {
                    m.number(bytes, bytes_of(label));
                    put_holes(m, field!(3, "fields"), label.fields());
                }
            },
        );
        let emit = field!(23, "emit");
        let tail = &[Tail::Number(field!(2, "bytes"))];
        self.add(Kind::Emit, emit, tail, labels.headers.iter(), |m, label| {
            m.text(header, &label.name);
            if !label.is_variable() {
                m.number(bytes, bytes_of(label));
            }
        });
        let error = field!(4, "parser_error");
        let errors = labels.errors.iter().map(|(name, _)| name.as_str());
        // The last is that of an error that the program does not name.
        let errors = errors.chain([""]);
        self.add(Kind::ParserError, error, &[], errors, |m, name| {
            m.text(NAME, name);
        });
        self.add_nameless(Kind::ChecksumError, field!(5, "checksum_error"), &[]);
    }

    fn add_controls(&mut self, names: &Names) {
        let stages = STAGES.iter().flat_map(|stage| [(*stage, 1), (*stage, 2)]);
        let stage = field!(1, "pipeline_stage");
        self.add(Kind::Stage, stage, &[], stages, |m, (stage, direction)| {
            m.text(field!(1, "stage_name"), stage.name());
            let kind = match stage {
                Stage::Parser => 1,
                Stage::Ingress | Stage::Egress => 2,
                Stage::Deparser => 3,
            };
            let kinds = &["PARSER", "CONTROL", "DEPARSER"];
            m.choice(field!(2, "stage_kind"), kind, kinds);
            m.choice(field!(3, "direction"), direction, &["ENTER", "EXIT"]);
        });
        let nodes = names.labels.nodes.iter();
        let nodes = nodes.flat_map(|node| [(node, false), (node, true)]);
        let condition = field!(6, "condition");
        self.add(
            Kind::Condition,
            condition,
            &[],
            nodes,
            |m, (node, holds)| {
                if let NodeLabel::Condition { name, source, .. } = node {
                    m.text(NAME, name);
                    m.flag(field!(2, "holds"), holds);
                    put_source(m, field!(3, "source_info"), source.as_ref());
                }
            },
        );
        let primitive = field!(27, "primitive");
        let primitives = names.labels.primitives.iter();
        self.add(Kind::Primitive, primitive, &[], primitives, |m, label| {
            m.text(field!(1, "op"), &label.op);
            put_source(m, field!(2, "source_info"), label.source.as_ref());
        });
        self.add_nameless(Kind::Exit, field!(21, "exit"), &[]);
        self.add_nameless(Kind::AssertFailed, field!(22, "assert_failed"), &[]);
    }

    fn add_tables(&mut self, names: &Names) {
        let lookup = field!(7, "table_lookup");
        let table = field!(1, "table");
        let entry = &[Tail::Extra, Tail::Optional(field!(6, "handle"))];
        let tables = &names.tables;
        self.add(Kind::Table, lookup, entry, tables.iter(), |m, named| {
            m.text(table, &named.name);
            put_holes(m, field!(2, "key"), named.parts());
        });
        self.add(
            Kind::KeylessTable,
            lookup,
            entry,
            tables.iter(),
            |m, named| {
                m.text(table, &named.name);
            },
        );
        let action = field!(9, "action");
        self.add(
            Kind::Action,
            action,
            &[],
            names.actions.iter(),
            |m, named| {
                m.text(NAME, &named.name);
                put_holes(m, field!(2, "args"), named.parts());
            },
        );
        let direct = field!(29, "direct_meter");
        let colour = &[Tail::Optional(field!(2, "colour"))];
        let meters = &names.direct_meters;
        self.add_named(Kind::DirectMeter, direct, colour, METER, meters);
        self.add_nameless(Kind::EmptyGroup, field!(8, "empty_group"), &[]);
        let member = field!(28, "chosen_member");
        let of_group = &[MEMBER, Tail::Optional(field!(3, "group_id"))];
        let of_set = &[Tail::Optional(field!(4, "one_shot_index"))];
        let (profile, profiles) = (field!(1, "action_profile"), &names.profiles);
        self.add_named(Kind::Member, member, &[MEMBER], profile, profiles);
        self.add_named(Kind::GroupMember, member, of_group, profile, profiles);
        self.add_named(Kind::OneShot, member, of_set, profile, profiles);
    }

    fn add_primitives(&mut self, names: &Names) {
        let (register, registers) = (field!(1, "register"), &names.registers);
        let (read, write) = (field!(10, "register_read"), field!(11, "register_write"));
        self.add_named(Kind::RegisterRead, read, ACCESS, register, registers);
        self.add_named(Kind::RegisterWrite, write, ACCESS, register, registers);
        let (count, counter) = (field!(12, "count"), field!(1, "counter"));
        self.add_named(Kind::Count, count, &[INDEX], counter, &names.counters);
        let meter = field!(13, "meter");
        let colour = &[INDEX, Tail::Optional(field!(3, "colour"))];
        self.add_named(Kind::Meter, meter, colour, METER, &names.meters);
        self.add_nameless(Kind::MarkToDrop, field!(14, "mark_to_drop"), &[]);
        self.add_nameless(Kind::Hold, field!(15, "hold"), HOLD);
        let bytes = &[Tail::Number(field!(1, "bytes"))];
        self.add_nameless(Kind::Truncate, field!(16, "truncate"), bytes);
        let session = &[
            Tail::Number(field!(1, "session")),
            Tail::Number(field!(2, "field_list")),
        ];
        self.add_nameless(Kind::Clone, field!(17, "clone"), session);
        self.add_nameless(Kind::Digest, field!(18, "digest"), ID);
        self.add_nameless(Kind::Resubmit, field!(19, "resubmit"), ID);
        self.add_nameless(Kind::Recirculate, field!(20, "recirculate"), ID);
    }

    fn add_queues(&mut self) {
        let enqueue = field!(24, "enqueue");
        let unheld = &[PORT, AT, QID, PACKETS, BYTES];
        self.add_nameless(Kind::Enqueue, enqueue, unheld);
        let held = &[PORT, AT, HELD, QID, PACKETS, BYTES];
        self.add_nameless(Kind::HeldEnqueue, enqueue, held);
        let dequeue = &[
            PORT,
            Tail::Number(field!(2, "start_ns")),
            Tail::Number(field!(3, "enqueued_ns")),
            Tail::Optional(field!(4, "gap_ns")),
        ];
        self.add_nameless(Kind::Dequeue, field!(25, "dequeue"), dequeue);
        let read = &[
            PORT,
            Tail::Number(field!(2, "queue")),
            Tail::Flag(field!(3, "exists")),
            Tail::Number(field!(4, "packets")),
            Tail::Number(field!(5, "bytes")),
            Tail::Number(field!(6, "sojourn_ns")),
        ];
        self.add_nameless(Kind::ReadQueue, field!(31, "read_queue"), read);
        let chosen = &[Tail::Number(field!(1, "queue"))];
        self.add_nameless(Kind::ChooseQueue, field!(32, "choose_queue"), chosen);
        self.add_nameless(Kind::EcnMark, field!(30, "ecn_mark"), &[]);
        let reenter = &[
            Tail::Choice(field!(1, "kind"), &["RESUBMITTED", "RECIRCULATED"]),
            AT,
        ];
        self.add_nameless(Kind::Reenter, field!(26, "reenter"), reenter);
    }
}

/// Length of a header without a variable field.
fn bytes_of(label: &HeaderLabel) -> u64 {
    label.fields().map(|(_, bits)| u64::from(bits)).sum::<u64>() / 8
}

/// Values of these names and widths that are not known yet.
fn put_holes<'n>(
    message: &mut Writer<'_>,
    field: Field,
    parts: impl Iterator<Item = (&'n str, u32)>,
) {
    message.list(field, |list| {
        for (name, bits) in parts {
            list.item(field, |m| {
                m.text(NAME, name);
                m.hole(VALUE, bits);
            });
        }
    });
}

/// A message `SourceInfo`, if the program has the place.
fn put_source(message: &mut Writer<'_>, field: Field, source: Option<&SourceInfo>) {
    if let Some(source) = source {
        message.message(field, |m| {
            m.text(field!(1, "filename"), &source.filename);
            m.number(field!(2, "line"), source.line.into());
            m.text(field!(3, "source_fragment"), &source.source_fragment);
        });
    }
}
