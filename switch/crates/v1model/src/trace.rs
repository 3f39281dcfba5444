//! Steps of a packet through a program, as [`crate::Externs::step`] gets them, and the names that the
//! steps show.

use crate::clone_request::CloneRequest;
use crate::entries::EntryKey;
use crate::json_ids::JsonIds;
use crate::layout::{FieldType, Layout};
use crate::slot::Slot;
use crate::source_info::SourceInfo;
use crate::table::{Entry, KeyPart};
use crate::wide::limbs;
use std::fmt;
use std::sync::Arc;
use traffic_manager::hold::Hold;

/// A part of a v1model program that packets go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The parser.
    Parser,
    /// The ingress control.
    Ingress,
    /// The egress control.
    Egress,
    /// The deparser.
    Deparser,
}

impl Stage {
    /// Name of the stage, as BMv2 JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parser => "parser",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::Deparser => "deparser",
        }
    }
}

/// A step of a packet. It names objects by their indices: those that the control plane knows as
/// [`crate::Pipeline::tables`] and the like have them, the others as [`Labels`] has them.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// The packet enters a stage.
    Enter(Stage),
    /// The packet leaves a stage.
    Leave(Stage),
    /// The parser is in a state.
    State(usize),
    /// The parser extracts a header.
    Extract {
        /// Index of the header.
        header: usize,
        /// Length of the header.
        bytes: usize,
        /// Names and values of the fields.
        fields: HeaderValues<'a>,
    },
    /// The parser ends with an error.
    ParserError(usize),
    /// A checksum that the program verifies is wrong.
    ChecksumError,
    /// A condition of a control.
    Condition {
        /// Index of its node.
        node: usize,
        /// Whether it holds.
        holds: bool,
    },
    /// A table is applied.
    Table {
        /// Index of the table.
        table: usize,
        /// The packet's values of the key fields.
        key: KeyValues<'a>,
        /// The entry that matches; `None`: a miss.
        entry: Option<MatchingEntry<'a>>,
        /// BMv2's handle of the entry, if the table keeps handles.
        handle: Option<u32>,
    },
    /// The direct meter of the entry, or of the default entry, measures the packet.
    DirectMeter {
        /// Index of the table.
        table: usize,
        /// 0 green, 1 yellow, 2 red.
        colour: u64,
    },
    /// The member of an action profile whose action runs.
    Member {
        /// Index of the profile.
        profile: usize,
        /// The group that it is chosen from; `None`: the entry names the member itself.
        group: Option<u32>,
        /// Its id.
        member: u32,
    },
    /// The action of the entry's one-shot set that runs.
    OneShot {
        /// Index of the profile.
        profile: usize,
        /// Its place in the set, from 0.
        action: u32,
    },
    /// The group or one-shot set of the entry has no member whose port is up.
    EmptyGroup,
    /// An action runs.
    Action {
        /// Index of the action.
        action: usize,
        /// The arguments.
        args: ArgumentValues<'a>,
    },
    /// A primitive begins: a statement of an action or of a parser state. Those that need no operation
    /// have no step.
    Primitive(usize),
    /// A register cell is read.
    RegisterRead {
        /// Index of the array.
        register: usize,
        /// Index of the cell.
        index: u64,
        /// The cell's value; `None`: the array has no such cell.
        value: Option<Value<'a>>,
    },
    /// A register cell is written.
    RegisterWrite {
        /// Index of the array.
        register: usize,
        /// Index of the cell.
        index: u64,
        /// The new value; `None`: the array has no such cell.
        value: Option<Value<'a>>,
    },
    /// A counter counts the packet.
    Count {
        /// Index of the array.
        counter: usize,
        /// Index of the cell.
        index: u64,
    },
    /// A meter measures the packet.
    Meter {
        /// Index of the array.
        meter: usize,
        /// Index of the cell.
        index: u64,
        /// 0 green, 1 yellow, 2 red; `None`: the array has no such cell.
        colour: Option<u64>,
    },
    /// The program reads an egress queue.
    ReadQueue(QueueRead),
    /// The program chooses the packet's egress queue.
    ChooseQueue(u8),
    /// The program marks the packet to be dropped.
    MarkToDrop,
    /// The program sets a departure time.
    Hold(Hold),
    /// The program cuts the packet to so many bytes.
    Truncate(u64),
    /// The program requests a clone.
    Clone(CloneRequest),
    /// The program requests the digest of this number.
    Digest(u64),
    /// The program requests a resubmission with this field list.
    Resubmit(u64),
    /// The program requests a recirculation with this field list.
    Recirculate(u64),
    /// The program executes `exit`.
    Exit,
    /// An `assert` or `assume` fails.
    AssertFailed,
    /// The deparser emits a header.
    Emit {
        /// Index of the header.
        header: usize,
        /// Length of the header.
        bytes: usize,
    },
}

/// A program's read of an egress queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRead {
    /// Number of the port.
    pub port: u64,
    /// Number of the queue.
    pub queue: u64,
    /// The reading; `None`: no such port or queue, so it reads zeros.
    pub reading: Option<QueueReading>,
}

/// A program's reading of an egress queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueReading {
    /// Bytes that wait, layer 2 + FCS; 2^32 - 1 stands for more, too.
    pub bytes: u32,
    /// Packets that wait.
    pub packets: u32,
    /// How long the packet at the head has waited; 0: the queue is empty.
    pub sojourn_ns: u64,
}

/// A value where it is, so that nothing is copied for a reader that does not want it.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    /// The lowest word first.
    words: &'a [u64],
    /// Bits of the words that count.
    mask: Option<&'a [u64]>,
    bits: u32,
}

impl<'a> Value<'a> {
    pub(crate) fn new(words: &'a [u64], bits: u32) -> Self {
        Self {
            words,
            mask: None,
            bits,
        }
    }

    /// Width in bits.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The words, lowest first; one of 0 if the value has no bits.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let (words, mask) = (self.words, self.mask);
        (0..limbs(self.bits) as usize).map(move |at| {
            let word = words.get(at).copied().unwrap_or(0);
            word & mask.map_or(u64::MAX, |mask| mask.get(at).copied().unwrap_or(0))
        })
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<u64> = self.words().collect();
        let bytes = (0..self.bits.div_ceil(8) as usize).rev();
        let byte = |at: usize| (words[at / 8] >> (8 * (at % 8))) as u8;
        f.debug_list().entries(bytes.map(byte)).finish()
    }
}

/// A header's fields with their values.
#[derive(Debug, Clone, Copy)]
pub struct HeaderValues<'a> {
    label: &'a HeaderLabel,
    phv: &'a [u64],
}

impl<'a> HeaderValues<'a> {
    /// Whether a field has no fixed width.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        self.label.is_variable()
    }

    /// The words of all values, in order, as [`Value::words`] has them, if each has a fixed width.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &'a [u64] {
        let fields = &self.label.fields;
        let begin = fields.first().map_or(0, |first| first.offset);
        let end = (fields.last()).map_or(begin, |last| last.offset + limbs(last.bits));
        let range = (self.label.base + begin) as usize..(self.label.base + end) as usize;
        self.phv.get(range).unwrap_or(&[])
    }

    /// Names and values.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let (label, phv) = (self.label, self.phv);
        let word = move |offset: u32| phv.get((label.base + offset) as usize).copied();
        label.fields.iter().enumerate().map(move |(at, field)| {
            let from = (label.base + field.offset) as usize;
            let words = phv.get(from..from + limbs(field.bits) as usize);
            let bits = match label.variable {
                Some((variable, length)) if variable == at => word(length).unwrap_or(0) as u32,
                _ => field.bits,
            };
            (field.name.as_str(), Value::new(words.unwrap_or(&[]), bits))
        })
    }
}

/// A packet's values of a table's key fields.
#[derive(Clone, Copy)]
pub struct KeyValues<'a> {
    parts: &'a [KeyPart],
    phv: &'a [u64],
}

impl<'a> KeyValues<'a> {
    pub(crate) fn new(parts: &'a [KeyPart], phv: &'a [u64]) -> Self {
        Self { parts, phv }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The values, in the order of the fields.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> {
        let phv = self.phv;
        self.parts.iter().map(move |part| {
            let from = part.slot as usize;
            let words = phv.get(from..from + limbs(part.bits) as usize);
            let valid = part.validity.is_none_or(|slot| phv[slot as usize] != 0);
            Value {
                words: words.filter(|_| valid).unwrap_or(&[]),
                mask: part.mask.as_deref(),
                bits: part.bits,
            }
        })
    }
}

impl fmt::Debug for KeyValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The arguments of an action.
#[derive(Clone, Copy)]
pub struct ArgumentValues<'a> {
    words: &'a [u64],
    widths: &'a [u32],
}

impl<'a> ArgumentValues<'a> {
    pub(crate) fn new(words: &'a [u64], widths: &'a [u32]) -> Self {
        Self { words, widths }
    }

    /// The values, in the order of the parameters.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.words;
        self.widths.iter().map(move |bits| {
            let count = limbs(*bits) as usize;
            let (now, later) = rest.split_at(count.min(rest.len()));
            rest = later;
            Value::new(now, *bits)
        })
    }
}

impl fmt::Debug for ArgumentValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An entry that a packet matches.
#[derive(Clone, Copy)]
pub struct MatchingEntry<'a>(pub(crate) &'a Entry);

impl MatchingEntry<'_> {
    /// The entry's number in the order of insertion into its table, which no other entry of the table gets.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.order
    }

    /// Its match fields and priority.
    #[must_use]
    pub fn key(&self) -> EntryKey {
        self.0.key()
    }
}

impl fmt::Debug for MatchingEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

/// No primitive begins at an address.
const NO_PRIMITIVE: u32 = u32::MAX;

/// The names of a program's parts that the control plane does not know, by index.
#[derive(Debug, Default)]
pub struct Labels {
    /// Of the parser's states.
    pub states: Box<[String]>,
    /// Of all headers.
    pub headers: Box<[HeaderLabel]>,
    /// The headers that the deparser emits, in its order.
    pub(crate) emitted: Box<[u16]>,
    /// Of the nodes of both controls.
    pub nodes: Box<[NodeLabel]>,
    /// Of the primitives, in the order of their addresses.
    pub primitives: Box<[PrimitiveLabel]>,
    /// By address, the primitive that begins there.
    pub(crate) primitive_at: Box<[u32]>,
    /// Of parser errors, with their codes.
    pub errors: Box<[(String, u64)]>,
    /// The numbers of the objects in the JSON.
    pub ids: Arc<JsonIds>,
}

impl Labels {
    /// By address, the primitive that begins there, in code of so many operations.
    pub(crate) fn primitives_at(primitives: &[PrimitiveLabel], ops: usize) -> Box<[u32]> {
        let mut primitive_at = vec![NO_PRIMITIVE; ops];
        for (index, primitive) in (0..).zip(primitives) {
            if let Some(place) = primitive_at.get_mut(primitive.start as usize) {
                *place = index;
            }
        }
        primitive_at.into()
    }

    /// The primitive that begins at an address.
    #[inline]
    pub(crate) fn primitive_at(&self, address: u32) -> Option<usize> {
        let index = self.primitive_at.get(address as usize).copied();
        index
            .filter(|index| *index != NO_PRIMITIVE)
            .map(|index| index as usize)
    }

    /// The index of a parser error; that behind the last if the program does not name it.
    pub(crate) fn error(&self, code: u64) -> usize {
        let found = self.errors.iter().position(|(_, of)| *of == code);
        found.unwrap_or(self.errors.len())
    }
}

/// A node of a control.
#[derive(Debug)]
pub enum NodeLabel {
    /// A table, by index.
    Table(usize),
    /// A condition.
    Condition {
        /// Name that p4c gives it.
        name: String,
        /// Where the program has it; `None`: p4c does not say.
        source: Option<SourceInfo>,
        /// The node tests the opposite.
        is_inverted: bool,
    },
    /// A call of an action, by index.
    Action(usize),
}

/// A primitive.
#[derive(Debug)]
pub struct PrimitiveLabel {
    /// Address of its first operation.
    pub(crate) start: u32,
    /// BMv2's name of it.
    pub op: String,
    /// Where the program has it; `None`: p4c made it.
    pub source: Option<SourceInfo>,
}

/// A header's names.
#[derive(Debug)]
pub struct HeaderLabel {
    /// The header's name.
    pub name: String,
    base: Slot,
    fields: Box<[FieldType]>,
    /// Index of the variable field, and its length's offset from `base`.
    variable: Option<(usize, u32)>,
}

impl HeaderLabel {
    /// The labels of all headers.
    pub(crate) fn all(layout: &Layout) -> Box<[Self]> {
        let headers = layout.headers.iter().map(|header| {
            let kind = &layout.types[header.kind];
            Self {
                name: header.name.clone(),
                base: header.base,
                fields: kind.fields.clone().into(),
                variable: kind.variable.map(|v| (v.field, v.length)),
            }
        });
        headers.collect()
    }

    /// Names and widths in bits of the fields; of a variable field, the largest width.
    pub fn fields(&self) -> impl Iterator<Item = (&str, u32)> {
        self.fields
            .iter()
            .map(|field| (field.name.as_str(), field.bits))
    }

    /// Whether a field has no fixed width.
    #[must_use]
    pub fn is_variable(&self) -> bool {
        self.variable.is_some()
    }

    /// The fields with their values in a packet.
    pub(crate) fn values<'a>(&'a self, phv: &'a [u64]) -> HeaderValues<'a> {
        HeaderValues { label: self, phv }
    }
}
