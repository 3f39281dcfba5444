//! Events of a packet's trace, with the names of what they are about.

use std::sync::Arc;

use traffic_manager::hold::Hold;
use v1model::entries::{Bits, EntryKey};
use v1model::{CloneRequest, InstanceType, Pipeline, Stage, Step};

/// A name that many events share.
pub type Name = Arc<str>;

/// A step of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The packet enters a stage of the program.
    Enter(Stage),
    /// The packet leaves a stage of the program.
    Leave(Stage),
    /// The parser is in a state.
    State(String),
    /// The parser extracts a header.
    Extract {
        /// The header.
        header: String,
        /// Its length.
        bytes: usize,
        /// Names and values of its fields.
        fields: Vec<(String, Bits)>,
    },
    /// The parser ends with an error.
    ParserError(String),
    /// A checksum that the program verifies is wrong.
    ChecksumError,
    /// A condition of a control.
    Condition {
        /// Name that p4c gives it.
        name: String,
        /// Whether it holds.
        holds: bool,
    },
    /// A table is applied.
    Table {
        /// The table.
        table: Name,
        /// Names of the key fields, and the packet's values.
        key: Vec<(Name, Bits)>,
        /// The entry that matches; `None`: a miss.
        entry: Option<EntryKey>,
        /// BMv2's handle of the entry, if the table keeps handles (Thrift is on).
        handle: Option<u32>,
    },
    /// The group or one-shot set of the matching entry has no member whose port is up.
    EmptyGroup,
    /// An action runs.
    Action {
        /// The action.
        action: Name,
        /// Names and values of its parameters.
        args: Vec<(Name, Bits)>,
    },
    /// A register cell is read; no value: the array has no such cell.
    RegisterRead {
        /// The array.
        register: Name,
        /// The cell.
        index: u64,
        /// Its value.
        value: Option<Bits>,
    },
    /// A register cell is written; no value: the array has no such cell.
    RegisterWrite {
        /// The array.
        register: Name,
        /// The cell.
        index: u64,
        /// Its new value.
        value: Option<Bits>,
    },
    /// A counter counts the packet.
    Count {
        /// The array.
        counter: Name,
        /// The cell.
        index: u64,
    },
    /// A meter measures the packet; no colour: the array has no such cell.
    Meter {
        /// The array.
        meter: Name,
        /// The cell.
        index: u64,
        /// 0 green, 1 yellow, 2 red.
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
    /// The program requests a digest.
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
        header: String,
        /// Its length.
        bytes: usize,
    },
    /// The packet goes to the queue of a port.
    Enqueue {
        /// The port.
        port: u16,
        /// When.
        at_ns: u64,
        /// The departure time that the traffic manager keeps.
        hold: Option<Hold>,
    },
    /// The packet's turn at its port has come.
    Dequeue {
        /// The port.
        port: u16,
        /// When its transmission starts.
        start_ns: u64,
        /// When it was queued.
        enqueued_ns: u64,
    },
    /// The packet enters ingress again.
    Reenter {
        /// As what.
        instance_type: InstanceType,
        /// When.
        at_ns: u64,
    },
}

/// The names of what the control plane knows by index.
#[derive(Debug)]
pub(super) struct Names {
    tables: Vec<Named>,
    actions: Vec<Named>,
    registers: Vec<Name>,
    counters: Vec<Name>,
    meters: Vec<Name>,
}

/// A name, and the names of key fields or parameters.
#[derive(Debug)]
struct Named {
    name: Name,
    parts: Vec<Name>,
}

impl Names {
    pub(super) fn of(pipeline: &Pipeline) -> Self {
        let tables = pipeline.tables().iter().map(|table| Named {
            name: table.name.as_str().into(),
            parts: table
                .key
                .iter()
                .map(|field| field.name.as_str().into())
                .collect(),
        });
        let actions = pipeline.actions().iter().map(|action| Named {
            name: action.name.as_str().into(),
            parts: action
                .params
                .iter()
                .map(|(name, _)| name.as_str().into())
                .collect(),
        });
        Self {
            tables: tables.collect(),
            actions: actions.collect(),
            registers: pipeline
                .registers()
                .iter()
                .map(|r| r.name.as_str().into())
                .collect(),
            counters: pipeline
                .counters()
                .iter()
                .map(|c| c.name.as_str().into())
                .collect(),
            meters: pipeline
                .meters()
                .iter()
                .map(|(m, _)| m.name.as_str().into())
                .collect(),
        }
    }

    /// A step of the engine as an event.
    pub(super) fn event(&self, step: Step<'_>) -> Event {
        match step {
            Step::Enter(stage) => Event::Enter(stage),
            Step::Leave(stage) => Event::Leave(stage),
            Step::State(name) => Event::State(name.to_owned()),
            Step::Extract {
                header,
                bytes,
                fields,
            } => {
                let fields = fields.into_iter();
                Event::Extract {
                    header: header.to_owned(),
                    bytes,
                    fields: fields
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                }
            }
            Step::ParserError(name) => Event::ParserError(name.to_owned()),
            Step::ChecksumError => Event::ChecksumError,
            Step::Condition { name, holds } => Event::Condition {
                name: name.to_owned(),
                holds,
            },
            Step::Table {
                table,
                key,
                entry,
                handle,
            } => {
                let (table, key) = named(&self.tables, table, key);
                Event::Table {
                    table,
                    key,
                    entry,
                    handle,
                }
            }
            Step::EmptyGroup => Event::EmptyGroup,
            Step::Action { action, args } => {
                let (action, args) = named(&self.actions, action, args);
                Event::Action { action, args }
            }
            Step::RegisterRead {
                register,
                index,
                value,
            } => Event::RegisterRead {
                register: name(&self.registers, register),
                index,
                value,
            },
            Step::RegisterWrite {
                register,
                index,
                value,
            } => Event::RegisterWrite {
                register: name(&self.registers, register),
                index,
                value,
            },
            Step::Count { counter, index } => Event::Count {
                counter: name(&self.counters, counter),
                index,
            },
            Step::Meter {
                meter,
                index,
                colour,
            } => Event::Meter {
                meter: name(&self.meters, meter),
                index,
                colour,
            },
            Step::MarkToDrop => Event::MarkToDrop,
            Step::Hold(hold) => Event::Hold(hold),
            Step::Truncate(bytes) => Event::Truncate(bytes),
            Step::Clone(request) => Event::Clone(request),
            Step::Digest(id) => Event::Digest(id),
            Step::Resubmit(list) => Event::Resubmit(list),
            Step::Recirculate(list) => Event::Recirculate(list),
            Step::Exit => Event::Exit,
            Step::AssertFailed => Event::AssertFailed,
            Step::Emit { header, bytes } => Event::Emit {
                header: header.to_owned(),
                bytes,
            },
        }
    }
}

fn name(names: &[Name], index: usize) -> Name {
    let found = names.get(index);
    debug_assert!(found.is_some(), "an object of the program has no name");
    found.map_or_else(|| "".into(), Arc::clone)
}

/// An object's name, and its values with their names.
fn named(names: &[Named], index: usize, values: Vec<Bits>) -> (Name, Vec<(Name, Bits)>) {
    let Some(named) = names.get(index) else {
        debug_assert!(false, "an object of the program has no name");
        return ("".into(), Vec::new());
    };
    let values = named.parts.iter().map(Arc::clone).zip(values);
    (Arc::clone(&named.name), values.collect())
}
