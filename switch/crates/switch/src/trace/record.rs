//! Events of packets while they happen: words that say which event it is and what its values are. `shapes`
//! makes messages of them.

use std::sync::Arc;

use foldhash::HashMap;
use v1model::entries::{EntryKey, MatchField};
use v1model::{
    ArgumentValues, HeaderValues, InstanceType, MatchingEntry, QueueRead, Stage, Step, Value,
};

use super::event::Event;
use super::names::{Named, Names};
use super::writer::{Field, Form, Prepared, Writer, field};

/// Most entries whose matches are remembered.
const MATCHES_MAX: usize = 16_384;

/// Bits of an event's first word: its kind, its index, the number of words that follow.
const INDEX_SHIFT: u32 = 8;
const COUNT_SHIFT: u32 = 40;

/// The fields of the message `NamedValue`.
pub(super) const NAME: Field = field!(1, "name");
pub(super) const VALUE: Field = field!(2, "value");

/// Kinds of events. Those of a kind differ by their index and values.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Kind {
    /// By stage: entered, left.
    Stage,
    State,
    Extract,
    ParserError,
    ChecksumError,
    /// By node: it does not hold, it holds.
    Condition,
    Table,
    /// A look-up that reads no key.
    KeylessTable,
    DirectMeter,
    Member,
    GroupMember,
    OneShot,
    EmptyGroup,
    Action,
    Primitive,
    RegisterRead,
    RegisterWrite,
    Count,
    Meter,
    ReadQueue,
    ChooseQueue,
    MarkToDrop,
    Hold,
    Truncate,
    Clone,
    Digest,
    Resubmit,
    Recirculate,
    Exit,
    AssertFailed,
    Emit,
    Enqueue,
    HeldEnqueue,
    Dequeue,
    EcnMark,
    Reenter,
}

/// The events of a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    words: Vec<u64>,
    /// Parts without a fixed number of words.
    extras: Vec<Arc<Extra>>,
}

/// Fields of a message in each form.
pub(super) type Extra = [Prepared; Form::ALL.len()];

impl Events {
    /// No events, with room for so many words and extras.
    pub(super) fn with_room((words, extras): (usize, usize)) -> Self {
        Self {
            words: Vec::with_capacity(words),
            extras: Vec::with_capacity(extras),
        }
    }

    /// The room that the events take.
    pub(super) fn room(&self) -> (usize, usize) {
        (self.words.len(), self.extras.len())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Kinds, indices and values.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, &[u64])> {
        let mut rest = self.words.as_slice();
        std::iter::from_fn(move || {
            let head = *rest.split_off_first()?;
            let values = rest.split_off(..(head >> COUNT_SHIFT) as usize)?;
            let (kind, index) = (usize::from(head as u8), (head >> INDEX_SHIFT) as u32);
            Some((kind, index as usize, values))
        })
    }

    /// A part of this number.
    pub(super) fn extra(&self, number: u64) -> Option<&Extra> {
        let number = usize::try_from(number).ok()?;
        self.extras.get(number).map(AsRef::as_ref)
    }

    /// Takes an event outside the program.
    pub(super) fn put_event(&mut self, event: &Event) {
        match *event {
            Event::Enqueue {
                port,
                at_ns,
                hold,
                depth,
            } => {
                let port = port.into();
                let (qid, packets) = (depth.qid.into(), depth.enq_qdepth.into());
                let bytes = depth.backlog_bytes;
                match hold.map(|hold| hold_values(&hold)) {
                    None => self.put(Kind::Enqueue, 0, [port, at_ns, qid, packets, bytes]),
                    Some([class, departure_ns, cost_q24, allowance_ns]) => self.put(
                        Kind::HeldEnqueue,
                        0,
                        [
                            port,
                            at_ns,
                            class,
                            departure_ns,
                            cost_q24,
                            allowance_ns,
                            qid,
                            packets,
                            bytes,
                        ],
                    ),
                }
            }
            Event::Dequeue {
                port,
                start_ns,
                enqueued_ns,
                gap_ns,
            } => self.put_with(Kind::Dequeue, 0, |events| {
                events.words.extend([port.into(), start_ns, enqueued_ns]);
                events.words.extend(gap_ns);
            }),
            Event::EcnMark => self.put(Kind::EcnMark, 0, []),
            Event::Reenter {
                instance_type,
                at_ns,
            } => {
                let is_resubmitted = instance_type == InstanceType::Resubmit;
                let how = if is_resubmitted { 1 } else { 2 };
                self.put(Kind::Reenter, 0, [how, at_ns]);
            }
        }
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, kind: Kind, index: usize, values: [u64; N]) {
        self.words
            .push(head(kind, index) | (N as u64) << COUNT_SHIFT);
        self.words.extend_from_slice(&values);
    }

    /// Puts an event with values, of which `put` puts the words.
    #[inline(always)]
    fn put_with(&mut self, kind: Kind, index: usize, put: impl FnOnce(&mut Self)) {
        let place = self.words.len();
        self.words.push(head(kind, index));
        put(self);
        let count = self.words.len() - place - 1;
        if let Some(head) = self.words.get_mut(place) {
            *head |= (count as u64) << COUNT_SHIFT;
        }
    }

    #[inline(always)]
    fn put_value(&mut self, value: &Value<'_>) {
        self.words.extend(value.words());
    }

    fn put_extra(&mut self, extra: Arc<Extra>) {
        self.words.push(self.extras.len() as u64);
        self.extras.push(extra);
    }

    /// Puts a cell and its value, if there is such a cell.
    fn put_access(&mut self, kind: Kind, register: usize, index: u64, value: Option<&Value<'_>>) {
        self.put_with(kind, register, |events| {
            events.words.push(index);
            if let Some(value) = value {
                events.words.push(value.bits().into());
                events.put_value(value);
            }
        });
    }

    fn put_extract(&mut self, header: usize, bytes: usize, fields: &HeaderValues<'_>) {
        self.put_with(Kind::Extract, header, |events| {
            if fields.is_variable() {
                events.put_extra(extracted(bytes, fields));
            } else {
                events.words.extend_from_slice(fields.words());
            }
        });
    }

    fn put_action(&mut self, action: usize, args: &ArgumentValues<'_>) {
        self.put_with(Kind::Action, action, |events| {
            for value in args.iter() {
                events.put_value(&value);
            }
        });
    }
}

fn head(kind: Kind, index: usize) -> u64 {
    kind as u64 | u64::from(index as u32) << INDEX_SHIFT
}

fn hold_values(hold: &traffic_manager::hold::Hold) -> [u64; 4] {
    let class = hold.class.into();
    [class, hold.departure_ns, hold.cost_q24, hold.allowance_ns]
}

/// Takes the steps of a program.
pub(super) struct Recorder<'a> {
    pub(super) names: &'a Names,
    pub(super) matches: &'a mut Matches,
    pub(super) events: &'a mut Events,
}

impl Recorder<'_> {
    #[inline(always)]
    pub(super) fn step(&mut self, step: &Step<'_>) {
        let events = &mut *self.events;
        match step {
            Step::Enter(stage) => events.put(Kind::Stage, stage_index(*stage), []),
            Step::Leave(stage) => events.put(Kind::Stage, stage_index(*stage) + 1, []),
            Step::State(state) => events.put(Kind::State, *state, []),
            Step::Extract {
                header,
                bytes,
                fields,
            } => events.put_extract(*header, *bytes, fields),
            Step::ParserError(error) => events.put(Kind::ParserError, *error, []),
            Step::ChecksumError => events.put(Kind::ChecksumError, 0, []),
            Step::Condition { node, holds } => {
                events.put(Kind::Condition, 2 * node + usize::from(*holds), []);
            }
            Step::Table { .. } => self.look_up(step),
            Step::DirectMeter { table, colour } => {
                events.put(Kind::DirectMeter, *table, [*colour]);
            }
            Step::Member {
                profile,
                group: None,
                member,
            } => events.put(Kind::Member, *profile, [(*member).into()]),
            Step::Member {
                profile,
                group: Some(group),
                member,
            } => {
                let ids = [(*member).into(), (*group).into()];
                events.put(Kind::GroupMember, *profile, ids);
            }
            Step::OneShot { profile, action } => {
                events.put(Kind::OneShot, *profile, [(*action).into()]);
            }
            Step::EmptyGroup => events.put(Kind::EmptyGroup, 0, []),
            Step::Action { action, args } => events.put_action(*action, args),
            Step::Primitive(primitive) => events.put(Kind::Primitive, *primitive, []),
            Step::RegisterRead {
                register,
                index,
                value,
            } => events.put_access(Kind::RegisterRead, *register, *index, value.as_ref()),
            Step::RegisterWrite {
                register,
                index,
                value,
            } => events.put_access(Kind::RegisterWrite, *register, *index, value.as_ref()),
            Step::Count { counter, index } => events.put(Kind::Count, *counter, [*index]),
            Step::Meter {
                meter,
                index,
                colour: None,
            } => events.put(Kind::Meter, *meter, [*index]),
            Step::Meter {
                meter,
                index,
                colour: Some(colour),
            } => events.put(Kind::Meter, *meter, [*index, *colour]),
            Step::ReadQueue(QueueRead {
                port,
                queue,
                reading: None,
            }) => events.put(Kind::ReadQueue, 0, [*port, *queue]),
            Step::ReadQueue(QueueRead {
                port,
                queue,
                reading: Some(read),
            }) => {
                let (packets, bytes) = (read.packets.into(), read.bytes.into());
                let values = [*port, *queue, 1, packets, bytes, read.sojourn_ns];
                events.put(Kind::ReadQueue, 0, values);
            }
            Step::ChooseQueue(queue) => events.put(Kind::ChooseQueue, 0, [(*queue).into()]),
            Step::MarkToDrop => events.put(Kind::MarkToDrop, 0, []),
            Step::Hold(hold) => events.put(Kind::Hold, 0, hold_values(hold)),
            Step::Truncate(bytes) => events.put(Kind::Truncate, 0, [*bytes]),
            Step::Clone(request) => {
                let request = [request.session.into(), request.field_list.into()];
                events.put(Kind::Clone, 0, request);
            }
            Step::Digest(id) => events.put(Kind::Digest, 0, [*id]),
            Step::Resubmit(id) => events.put(Kind::Resubmit, 0, [*id]),
            Step::Recirculate(id) => events.put(Kind::Recirculate, 0, [*id]),
            Step::Exit => events.put(Kind::Exit, 0, []),
            Step::AssertFailed => events.put(Kind::AssertFailed, 0, []),
            Step::Emit { header, bytes } => self.emit(*header, *bytes),
        }
    }

    fn emit(&mut self, header: usize, bytes: usize) {
        let label = self.names.labels.headers.get(header);
        if label.is_some_and(v1model::HeaderLabel::is_variable) {
            self.events.put(Kind::Emit, header, [bytes as u64]);
        } else {
            self.events.put(Kind::Emit, header, []);
        }
    }

    fn look_up(&mut self, step: &Step<'_>) {
        let Step::Table {
            table,
            key,
            entry,
            handle,
        } = step
        else {
            return;
        };
        let kind = if key.is_empty() {
            Kind::KeylessTable
        } else {
            Kind::Table
        };
        let matches = &mut *self.matches;
        let named = self.names.tables.get(*table);
        self.events.put_with(kind, *table, |events| {
            for value in key.iter() {
                events.put_value(&value);
            }
            if let Some(entry) = entry
                && let Some(named) = named
            {
                events.put_extra(matches.of(*table, named, entry));
                events.words.extend(handle.map(u64::from));
            }
        });
    }
}

fn stage_index(stage: Stage) -> usize {
    2 * stage as usize
}

/// The matches of entries that packets have hit. A key never changes.
#[derive(Debug, Default)]
pub(super) struct Matches(HashMap<(usize, u64), Arc<Extra>>);

impl Matches {
    /// The fields `hit`, `matches` and `priority` of an entry that a packet hits.
    fn of(&mut self, table: usize, named: &Named, entry: &MatchingEntry<'_>) -> Arc<Extra> {
        let place = (table, entry.number());
        if let Some(known) = self.0.get(&place) {
            return Arc::clone(known);
        }
        if self.0.len() >= MATCHES_MAX {
            // Many flows: the next ones are as likely to come again as these.
            self.0.clear();
        }
        let EntryKey { fields, priority } = entry.key();
        let made = extra(|m| {
            m.flag(field!(3, "hit"), true);
            let matches = field!(4, "matches");
            m.list(matches, |list| {
                for ((name, _), field) in named.parts().zip(&fields) {
                    if let Some(text) = match_text(field) {
                        list.item(matches, |m| {
                            m.text(NAME, name);
                            m.text(VALUE, &text);
                        });
                    }
                }
            });
            m.number(field!(5, "priority"), u64::from(priority.unsigned_abs()));
        });
        self.0.insert(place, Arc::clone(&made));
        made
    }
}

/// A match as simple_switch_CLI takes it; `None`: any value matches.
fn match_text(field: &MatchField) -> Option<String> {
    let hex = |bytes: &[u8]| {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        format!("0x{}", digits.collect::<String>())
    };
    match field {
        MatchField::Lpm { prefix_bits: 0, .. } | MatchField::Optional(None) => None,
        MatchField::Ternary { mask, .. } if mask.iter().all(|byte| *byte == 0) => None,
        MatchField::Exact(value) | MatchField::Optional(Some(value)) => Some(hex(value)),
        MatchField::Lpm { value, prefix_bits } => Some(format!("{}/{prefix_bits}", hex(value))),
        MatchField::Ternary { value, mask } => Some(format!("{}&&&{}", hex(value), hex(mask))),
        MatchField::Range { low, high } => Some(format!("{}->{}", hex(low), hex(high))),
    }
}

/// The fields `bytes` and `fields` of a header with a variable field.
fn extracted(bytes: usize, fields: &HeaderValues<'_>) -> Arc<Extra> {
    extra(|m| {
        m.number(field!(2, "bytes"), bytes as u64);
        let list = field!(3, "fields");
        m.list(list, |m| {
            for (name, value) in fields.iter() {
                let words: Vec<u64> = value.words().collect();
                m.item(list, |m| {
                    m.text(NAME, name);
                    m.hex(VALUE, value.bits(), &words);
                });
            }
        });
    })
}

fn extra(write: impl Fn(&mut Writer<'_>)) -> Arc<Extra> {
    Arc::new(Form::ALL.map(|form| Prepared::new(form, &write)))
}
