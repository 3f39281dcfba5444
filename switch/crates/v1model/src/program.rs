//! Defines the compiled program, which does not change while packets flow.

use crate::calculation::Calculation;
use crate::entries::digest::DigestInfo;
use crate::entries::profile::ProfileInfo;
use crate::entries::{ActionInfo, ArrayInfo, MeterUnit, TableInfo, ValueSetInfo};
use crate::header_io::HeaderIo;
use crate::layout::Field;
use crate::message::Message;
use crate::ops::{Code, Op};
use crate::slot::{Changes, Slot};
use crate::trace::Labels;
use std::sync::Arc;

/// No next node or parser state: the end.
pub(crate) const END: u32 = u32::MAX;

/// The collection that a value is an index of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Indexed {
    /// Cells of this array and of those whose cells lie beside it ([`crate::rows`]).
    Rows(usize),
    /// Entries of this table.
    Table(usize),
    /// Queues of the traffic manager.
    Queue,
}

/// The comparison of two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    /// Both are `i64`.
    LtS,
    LeS,
}

/// A comparison of two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub relation: Relation,
    pub a: Slot,
    pub b: Slot,
}

impl Comparison {
    /// Whether the comparison holds for a packet.
    #[inline]
    pub fn holds(&self, phv: &[u64]) -> bool {
        let (a, b) = (phv[self.a as usize], phv[self.b as usize]);
        match self.relation {
            Relation::Eq => a == b,
            Relation::Ne => a != b,
            Relation::Lt => a < b,
            Relation::Le => a <= b,
            Relation::LtS => (a as i64) < b as i64,
            Relation::LeS => a as i64 <= b as i64,
        }
    }
}

/// A node of a control's graph. Graphs are checked at load to have no cycles.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    /// Applies a table.
    Table(u32),
    /// Runs an action of no table, or of a table that can run no other.
    Action { code: Code, next: u32 },
    /// Branches on a word.
    Branch {
        code: Code,
        slot: Slot,
        yes: u32,
        no: u32,
    },
    /// Branches on whether two words are equal, as most do: no code to run.
    IfEqual { a: Slot, b: Slot, yes: u32, no: u32 },
    /// Branches on a comparison: no code to run.
    If { test: Comparison, yes: u32, no: u32 },
    /// Branches on whether both hold.
    IfBoth {
        tests: [Comparison; 2],
        yes: u32,
        no: u32,
    },
}

/// A test of a component of a parser's select key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    /// The word's slot.
    pub slot: Slot,
    /// Bits that are compared.
    pub mask: u64,
    /// The value that the masked word must equal.
    pub value: u64,
}

/// One case of a select: constants, or a value set.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Tests that must all succeed.
    pub tests: Box<[Test]>,
    /// Index into [`Program::value_set_uses`].
    pub value_set: Option<u16>,
    /// The next state.
    pub next: u32,
}

/// A select that looks its key up in a value set.
#[derive(Debug, Clone)]
pub(crate) struct ValueSetUse {
    pub set: usize,
    /// Slots of the components of the key.
    pub slots: Box<[Slot]>,
}

/// A parser state.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// The code of its extractions and assignments.
    pub code: Code,
    /// The cases of its select, in order.
    pub cases: Box<[Case]>,
    /// The next state if no case matches.
    pub default: u32,
}

/// A header the parser, deparser or actions handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderInfo {
    /// Slot of its validity; its fields follow.
    pub base: Slot,
    /// Index into [`Program::kinds`].
    pub kind: usize,
    /// Its position in the deparser's order, or [`NO_POSITION`](crate::unchanged::NO_POSITION).
    pub position: u32,
    /// The bit that stands for a change of it.
    pub change: Changes,
}

/// A header stack.
#[derive(Debug, Clone)]
pub(crate) struct StackInfo {
    /// Base of each element.
    pub bases: Box<[Slot]>,
    /// The elements, as indices into [`Program::headers`].
    pub elements: Box<[u16]>,
    /// Slot of the index of the next element.
    pub next: Slot,
    /// The stacks of the members of the same stack of unions, this one included; none for a
    /// stack of headers.
    pub siblings: Box<[u16]>,
}

/// A checksum to verify after parsing or to update before deparsing.
#[derive(Debug, Clone)]
pub(crate) struct Checksum {
    /// Index into [`Program::calculations`].
    pub calculation: usize,
    /// The field with the checksum.
    pub target: Field,
    /// Validity slot of the target's header.
    pub valid: Slot,
    /// The bit that stands for a change of the target's header.
    pub change: Changes,
    /// Code that computes the condition, and the slot of the result.
    pub condition: Option<(Code, Slot)>,
}

/// A field list: metadata that resubmit, recirculate and clone preserve.
#[derive(Debug, Clone)]
pub(crate) struct FieldList {
    pub id: u16,
    pub fields: Box<[Field]>,
}

impl FieldList {
    /// Words that the fields take.
    pub fn words(&self) -> usize {
        self.fields.iter().map(|f| f.limbs() as usize).sum()
    }
}

/// The fields of a digest's message.
#[derive(Debug, Clone)]
pub(crate) struct DigestFields {
    pub id: u16,
    /// The fields, each with its header's place in `validities`, if it is in a header. Fields of an
    /// invalid header are sent as 0.
    pub fields: Box<[(Field, Option<usize>)]>,
    /// Validity slots of the headers that have fields here. Validities follow the fields in a
    /// message.
    pub validities: Box<[Slot]>,
}

/// Parser error codes of this program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ErrorCodes {
    pub none: u64,
    pub packet_too_short: u64,
    pub stack_out_of_bounds: u64,
    pub header_too_short: u64,
    pub parser_timeout: u64,
    pub parser_invalid_argument: u64,
}

/// Metadata fields that the switch itself reads and writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intrinsics {
    pub ingress_port: Field,
    pub packet_length: Field,
    pub instance_type: Field,
    pub egress_spec: Field,
    pub egress_port: Field,
    pub parser_error: Option<Field>,
    pub checksum_error: Option<Field>,
    pub ingress_global_timestamp: Option<Field>,
    pub egress_global_timestamp: Option<Field>,
    pub mcast_grp: Option<Field>,
    pub egress_rid: Option<Field>,
    pub enq_timestamp: Option<Field>,
    pub enq_qdepth: Option<Field>,
    pub deq_timedelta: Option<Field>,
    pub deq_qdepth: Option<Field>,
    pub qid: Option<Field>,
    pub priority: Option<Field>,
}

impl Intrinsics {
    /// The fields that the switch writes and only the program reads.
    pub fn reported(&mut self) -> [&mut Option<Field>; 10] {
        [
            &mut self.parser_error,
            &mut self.checksum_error,
            &mut self.ingress_global_timestamp,
            &mut self.egress_global_timestamp,
            &mut self.egress_rid,
            &mut self.enq_timestamp,
            &mut self.enq_qdepth,
            &mut self.deq_timedelta,
            &mut self.deq_qdepth,
            &mut self.qid,
        ]
    }
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct Program {
    /// The code of everything.
    pub ops: Box<[Op]>,
    /// Constants of the code, which end the PHV.
    pub constants: Box<[u64]>,
    /// Slot of the first constant.
    pub constant_base: Slot,
    /// Slot of the first action argument.
    pub param_base: Slot,
    /// Words of headers and metadata, which begin the PHV.
    pub field_words: u32,
    /// Header types on the wire.
    pub kinds: Box<[HeaderIo]>,
    /// Header instances that the parser extracts.
    pub headers: Box<[HeaderInfo]>,
    /// Header stacks.
    pub stacks: Box<[StackInfo]>,
    /// Bases of the members of each header union.
    pub unions: Box<[Box<[Slot]>]>,
    /// Validity slots of metadata, which is always valid.
    pub metadata: Box<[Slot]>,
    /// Word ranges of metadata, validity excluded.
    pub metadata_ranges: Box<[(u32, u32)]>,
    /// Parser states.
    pub states: Box<[State]>,
    /// The parser's first state.
    pub start_state: u32,
    /// The nodes of both controls.
    pub nodes: Box<[Node]>,
    /// The first node of ingress.
    pub ingress: u32,
    /// The first node of egress.
    pub egress: u32,
    /// Headers in the order in which the deparser writes them.
    pub deparse_order: Box<[HeaderInfo]>,
    /// Calculations of checksums, hashes and selectors.
    pub calculations: Box<[Calculation]>,
    /// Checksums to verify after parsing.
    pub verify: Box<[Checksum]>,
    /// Checksums to update before deparsing.
    pub update: Box<[Checksum]>,
    /// Field lists that resubmit, recirculate and clone name.
    pub field_lists: Box<[FieldList]>,
    /// Digests that the program can send.
    pub digests: Box<[DigestFields]>,
    /// Uses of value sets by the parser.
    pub value_set_uses: Box<[ValueSetUse]>,
    /// Messages of `log_msg`.
    pub messages: Box<[Message]>,
    /// Externs called by the deparser.
    pub deparser_code: Code,
    /// Headers that the switch itself may write to.
    pub always_changed: Changes,
    /// Codes of parser errors.
    pub errors: ErrorCodes,
    /// Metadata fields that the switch reads and writes.
    pub intrinsics: Intrinsics,
    /// Most bytes of headers the deparser can emit.
    pub deparsed_bytes: usize,
    /// Most bytes of input of a calculation, without payload.
    pub scratch_bytes: usize,
    /// Scratch words for keys: twice the widest key.
    pub key_words: usize,
    /// Most words a field list preserves.
    pub preserved_words: usize,
    /// Tables as the control plane sees them, as are the following.
    pub table_infos: Vec<TableInfo>,
    pub action_infos: Vec<ActionInfo>,
    pub counter_infos: Vec<ArrayInfo>,
    pub meter_infos: Vec<(ArrayInfo, MeterUnit)>,
    pub register_infos: Vec<ArrayInfo>,
    pub value_set_infos: Vec<ValueSetInfo>,
    pub digest_infos: Vec<DigestInfo>,
    pub profile_infos: Vec<ProfileInfo>,
    /// Names for reports of steps.
    pub labels: Arc<Labels>,
}

impl Program {
    /// A digest's index by its id; none for an unknown id.
    pub fn digest(&self, id: u16) -> Option<usize> {
        self.digests.iter().position(|l| l.id == id)
    }

    /// A field list by its id; none for an unknown id.
    pub fn field_list(&self, id: u16) -> Option<&FieldList> {
        self.field_lists.iter().find(|l| l.id == id)
    }
}
