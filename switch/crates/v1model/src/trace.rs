//! Steps of a packet through a program, as [`crate::Externs::step`] gets them, and the names that the
//! steps show.

use crate::bits::to_bits;
use crate::clone_request::CloneRequest;
use crate::entries::{Bits, EntryKey};
use crate::layout::{FieldType, Layout};
use crate::slot::Slot;
use crate::wide::limbs;
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

/// A step of a packet. Objects that the control plane knows have their indices
/// ([`crate::Pipeline::tables`] and so on).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// The packet enters a stage.
    Enter(Stage),
    /// The packet leaves a stage.
    Leave(Stage),
    /// The parser is in a state.
    State(&'a str),
    /// The parser extracts a header.
    Extract {
        /// The header.
        header: &'a str,
        /// Length of the header.
        bytes: usize,
        /// Names and values of the fields.
        fields: Vec<(&'a str, Bits)>,
    },
    /// The parser ends with an error.
    ParserError(&'a str),
    /// A checksum that the program verifies is wrong.
    ChecksumError,
    /// A condition of a control.
    Condition {
        /// Name that p4c gives it.
        name: &'a str,
        /// Whether it holds.
        holds: bool,
    },
    /// A table is applied.
    Table {
        /// Index of the table.
        table: usize,
        /// The packet's values of the key fields.
        key: Vec<Bits>,
        /// The entry that matches; `None`: a miss.
        entry: Option<EntryKey>,
        /// BMv2's handle of the entry, if the table keeps handles.
        handle: Option<u32>,
    },
    /// The group or one-shot set of the matching entry has no member whose port is up.
    EmptyGroup,
    /// An action runs.
    Action {
        /// Index of the action.
        action: usize,
        /// The arguments.
        args: Vec<Bits>,
    },
    /// A register cell is read.
    RegisterRead {
        /// Index of the array.
        register: usize,
        /// Index of the cell.
        index: u64,
        /// The cell's value; `None`: the array has no such cell.
        value: Option<Bits>,
    },
    /// A register cell is written.
    RegisterWrite {
        /// Index of the array.
        register: usize,
        /// Index of the cell.
        index: u64,
        /// The new value; `None`: the array has no such cell.
        value: Option<Bits>,
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
        /// The header.
        header: &'a str,
        /// Length of the header.
        bytes: usize,
    },
}

/// The names of a program's parts that the control plane does not know.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// Of the parser's states, by index.
    pub states: Box<[String]>,
    /// Of all headers, by index.
    pub headers: Box<[HeaderLabel]>,
    /// Of the nodes of both controls, by index.
    pub nodes: Box<[NodeLabel]>,
    /// Of parser errors, with their codes.
    pub errors: Box<[(String, u64)]>,
}

impl Labels {
    /// The name of a parser error.
    pub fn error(&self, code: u64) -> &str {
        let found = self.errors.iter().find(|(_, of)| *of == code);
        found.map_or("", |(name, _)| name)
    }

    /// The header whose words begin at `base`.
    pub fn header_at(&self, base: Slot) -> Option<&HeaderLabel> {
        self.headers.iter().find(|header| header.base == base)
    }
}

/// A node of a control.
#[derive(Debug)]
pub(crate) enum NodeLabel {
    /// A table, by index.
    Table(usize),
    /// A condition's name.
    Condition(String),
    /// A call of an action, by index.
    Action(usize),
}

/// A header's names.
#[derive(Debug)]
pub(crate) struct HeaderLabel {
    pub name: String,
    base: Slot,
    fields: Box<[FieldType]>,
    /// Index of the variable field, and its length's offset from `base`.
    variable: Option<(usize, u32)>,
}

impl HeaderLabel {
    /// The labels of all headers.
    pub fn all(layout: &Layout) -> Box<[Self]> {
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

    /// The fields with their values in a packet.
    pub fn values(&self, phv: &[u64]) -> Vec<(&str, Bits)> {
        let word = |offset: u32| phv.get((self.base + offset) as usize).copied().unwrap_or(0);
        let fields = self.fields.iter().enumerate().map(|(at, field)| {
            let from = (self.base + field.offset) as usize;
            let words = phv.get(from..from + limbs(field.bits) as usize);
            let bits = match self.variable {
                Some((variable, length)) if variable == at => word(length) as u32,
                _ => field.bits,
            };
            (field.name.as_str(), to_bits(words.unwrap_or(&[]), bits))
        });
        fields.collect()
    }
}
