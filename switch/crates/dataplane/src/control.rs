//! What a control server may ask of a running switch: the P4 objects by their compiled index.
//!
//! Values cross this boundary as big-endian byte strings of exactly `(bits + 7) / 8` bytes
//! ([`Bits`]); the P4Runtime server converts to and from canonical form. Objects are named by
//! the fully qualified P4 name that p4c writes in both BMv2 JSON and P4Info (for example
//! `PacerIngress.flows`); an implementation resolves names once and hands out indices.

use std::any::Any;

use crate::notify::{DigestConfig, DigestInfo, IdleTimeout};
use crate::profile::{IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, ProfileRules};

/// A value of known width, big-endian, `(bits + 7) / 8` bytes, unused high bits zero.
pub type Bits = Box<[u8]>;

/// How a key field is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// Equal.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value under mask.
    Ternary,
    /// Inclusive range.
    Range,
    /// Equal or don't care.
    Optional,
}

/// One field of a table's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    /// Name as p4c writes it (`hdr.ipv4.src_addr`).
    pub name: String,
    /// How it is matched.
    pub kind: MatchKind,
    /// Width in bits.
    pub bits: u32,
}

/// One field of an entry's match key, in the order of [`TableInfo::key`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MatchField {
    /// Equal to the value.
    Exact(Bits),
    /// The `prefix_bits` most significant bits are equal; 0 matches everything.
    Lpm {
        /// Value; bits beyond the prefix are zero.
        value: Bits,
        /// Prefix length in bits.
        prefix_bits: u32,
    },
    /// `key & mask == value`; `value & !mask` is zero; an all-zero mask matches everything.
    Ternary {
        /// Value.
        value: Bits,
        /// Mask.
        mask: Bits,
    },
    /// `low <= key <= high`.
    Range {
        /// Lowest value that matches.
        low: Bits,
        /// Highest value that matches.
        high: Bits,
    },
    /// Equal, or `None`: matches everything.
    Optional(Option<Bits>),
}

/// An action with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionCall {
    /// Index into [`DataPlane::actions`].
    pub action: usize,
    /// Arguments in declaration order, each as wide as its parameter.
    pub args: Vec<Bits>,
}

/// What identifies an entry: its match fields and, where the table has ternary, range or
/// optional keys, its priority (greater wins; 0 where the table has no priorities).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// One per key field.
    pub fields: Vec<MatchField>,
    /// P4Runtime priority.
    pub priority: i32,
}

/// A table's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Key fields in order; empty for a keyless table.
    pub key: Vec<KeyField>,
    /// Actions that entries may use (indices into [`DataPlane::actions`]).
    pub actions: Vec<usize>,
    /// Most entries the table takes.
    pub size: usize,
    /// Entries are fixed by the program (`const entries`; as long as nobody has told
    /// otherwise, any that it has).
    pub const_entries: bool,
    /// The default action is fixed by the program (`const default_action`).
    pub const_default: bool,
    /// The table has a direct counter.
    pub direct_counter: bool,
    /// Unit of the direct meter, if the table has one.
    pub direct_meter: Option<MeterUnit>,
    /// Action profile whose members its entries name (index into [`DataPlane::profiles`]).
    pub profile: Option<usize>,
    /// Entries may have idle timeouts.
    pub idle_timeout: bool,
}

/// An action's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Parameter names and widths in bits.
    pub params: Vec<(String, u32)>,
}

/// A counter, meter or register array's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Number of cells.
    pub size: usize,
    /// Width of a cell in bits (registers; 0 otherwise).
    pub bits: u32,
}

/// What a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// Rates and bursts of a meter, in the meter's unit per second and units: a two-rate three-colour
/// marker (RFC 2698), or, with an excess burst, a single-rate one (RFC 2697).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed information rate, units per second.
    pub cir: u64,
    /// Committed burst size, units.
    pub cburst: u64,
    /// Peak information rate, units per second; at least `cir`.
    pub pir: u64,
    /// Peak burst size, units.
    pub pburst: u64,
    /// Excess burst size, units; 0 for a two-rate marker. With another value `pir` and `pburst`
    /// are `cir` and `cburst`. (A single-rate marker with no excess burst is the two-rate marker
    /// whose rates and bursts are equal.)
    pub eburst: u64,
}

/// What a meter has coloured: green, yellow, red.
pub type ColourCounts = [CounterValue; 3];

/// What a meter is set to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterWrite {
    /// Configured so, with full buckets; `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// What it has counted becomes 0; otherwise it stays.
    pub clear_counts: bool,
}

/// A meter as read back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterState {
    /// `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// What it has coloured, configured or not.
    pub counts: ColourCounts,
}

/// Packets and bytes counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes (layer 2, without FCS, as BMv2 counts).
    pub bytes: u64,
}

/// An entry as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// Match fields and priority.
    pub key: EntryKey,
    /// Action with arguments; in a table with an action profile, that of the member (of a
    /// group: of its first member).
    pub action: ActionCall,
    /// What the entry names, in a table with an action profile.
    pub indirect: Option<IndirectAction>,
    /// Direct counter, where the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, where the table has one.
    pub meter: Option<MeterState>,
    /// Idle timeout, where the table has them.
    pub idle: Option<IdleTimeout>,
}

/// A table's default entry: what happens to packets that no other entry matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultEntry {
    /// `None`: no action, a miss does nothing.
    pub action: Option<ActionCall>,
    /// Direct counter, where the table has one.
    pub counter: Option<CounterValue>,
    /// Direct meter, where the table has one.
    pub meter: Option<MeterState>,
}

/// A parser value set's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSetInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Widths of the fields of a member in bits, in order.
    pub widths: Vec<u32>,
    /// Most members.
    pub size: usize,
}

/// Some of many objects, so that no call takes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, in their order.
    pub items: Vec<T>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<u64>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

impl<T> Page<T> {
    /// The first `most` (at least 1) of `items`, which are in order of their numbers; the next page
    /// begins at the number after.
    pub fn of(items: impl Iterator<Item = (u64, T)>, most: usize) -> Self {
        let mut items = items;
        let mut page = Self::default();
        for (number, item) in items.by_ref() {
            if page.items.len() >= most.max(1) {
                page.next = Some(number);
                break;
            }
            page.items.push(item);
        }
        page
    }
}

/// An entry as a table has or had it, whole; only the switch that it comes from understands it.
#[derive(Debug)]
pub struct SavedEntry(pub Box<dyn Any + Send>);

/// A meter's configuration with what its buckets hold and what it has counted; only the switch that
/// it comes from understands it.
#[derive(Debug)]
pub struct SavedMeter(pub Box<dyn Any + Send>);

/// All cells of an array as they were; only the switch that it comes from understands it.
#[derive(Debug)]
pub struct SavedArray(pub Box<dyn Any + Send>);

/// What a cell of an array is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellValue {
    /// Of an indirect counter.
    Counter(CounterValue),
    /// Of an indirect meter.
    Meter(MeterWrite),
    /// Of a register; as wide as the register.
    Register(Bits),
}

/// A replica of a multicast group: one copy to `port`, with replication id `rid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Replica {
    /// Egress port.
    pub port: u32,
    /// Seen by the program as `standard_metadata.egress_rid`.
    pub rid: u16,
}

/// What happens to a clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloneSession {
    /// One copy each.
    pub replicas: Vec<Replica>,
    /// Class of service, kept for the controller.
    pub class_of_service: u32,
    /// Most bytes of a copy; 0 for all.
    pub packet_length_bytes: u32,
}

/// Why a control request was refused; each maps to one gRPC status code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// An argument is wrong by itself; the text names it and says what would be right.
    InvalidArgument(String),
    /// The object or entry does not exist.
    NotFound(String),
    /// The entry exists already.
    AlreadyExists(String),
    /// A limit is reached (table full, too many groups); names the limit.
    ResourceExhausted(String),
    /// The program forbids it (const entries, const default action).
    PermissionDenied(String),
    /// Not before a program is loaded.
    FailedPrecondition(String),
    /// The program has no such feature, or this target does not do it.
    Unimplemented(String),
}

impl ControlError {
    /// The explanation, as shown to the user.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidArgument(m)
            | Self::NotFound(m)
            | Self::AlreadyExists(m)
            | Self::ResourceExhausted(m)
            | Self::PermissionDenied(m)
            | Self::FailedPrecondition(m)
            | Self::Unimplemented(m) => m,
        }
    }
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for ControlError {}

/// Result of a control request.
pub type ControlResult<T> = Result<T, ControlError>;

/// The running switch as a control server sees it. Implemented by `switch-core`'s `Switch`;
/// called only on the thread that owns the switch, between packets, so each call is atomic
/// with respect to traffic. A refused call changes nothing.
///
/// Indices (`table`, `action`, `counter`, `meter`, `register`) are positions in the slices
/// that the matching `*s()` method returns; they are valid until the next program is installed.
pub trait DataPlane {
    /// All tables of the program, in program order.
    fn tables(&self) -> &[TableInfo];
    /// All actions of the program, in program order.
    fn actions(&self) -> &[ActionInfo];
    /// Indirect counters.
    fn counters(&self) -> &[ArrayInfo];
    /// Indirect meters with their unit.
    fn meters(&self) -> &[(ArrayInfo, MeterUnit)];
    /// Registers.
    fn registers(&self) -> &[ArrayInfo];

    /// Sets what BMv2 JSON does not tell of a table: whether its entries are constant (it has
    /// `entries` and `const entries` alike), and its size (of a table with entries it has their
    /// number). A table has room for at least the entries of the program.
    fn table_rules(&mut self, table: usize, const_entries: bool, size: usize) -> ControlResult<()>;
    /// Inserts an entry. Errors: exists already, table full, const table, action not of this
    /// table, wrong widths.
    fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()>;
    /// Changes the action of an existing entry; keeps its direct meter, resets nothing.
    fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()>;
    /// Removes an entry; returns it for [`Self::table_restore`].
    fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<SavedEntry>;
    /// A copy of an entry (`None`: the default entry) as it is now, for [`Self::table_restore`].
    fn table_save(&self, table: usize, key: Option<&EntryKey>) -> ControlResult<SavedEntry>;
    /// Puts an entry back as it was when it was removed from this table or saved: its action,
    /// counter, idle timeout, and meter with what the meter had left, and its place in the order
    /// of insertion, which decides among entries of one priority. Takes the place of an entry of
    /// the same key. Errors: table full, the member or group it names is gone.
    fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()>;
    /// Looks one entry up by its key.
    fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry>;
    /// Entries in insertion order, at most `most` of them, so that no call takes long: `from`
    /// is 0 for the first page, then the [`Page::next`] of the page before. An entry that is
    /// inserted or removed between two pages is in a later page or not. Other pages work alike.
    fn table_entries(&self, table: usize, from: u64, most: usize) -> Page<TableEntry>;
    /// The default entry.
    fn table_default(&self, table: usize) -> ControlResult<DefaultEntry>;
    /// Sets the default action; `None` restores the program's own.
    fn table_set_default(&mut self, table: usize, action: Option<&ActionCall>)
    -> ControlResult<()>;
    /// Sets the direct counter of an entry (`None`: of the default entry).
    fn direct_counter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        value: CounterValue,
    ) -> ControlResult<()>;
    /// Sets the direct meter of an entry (`None`: of the default entry).
    fn direct_meter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        meter: MeterWrite,
    ) -> ControlResult<()>;

    /// Reads a cell of an indirect counter.
    fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue>;
    /// Sets a cell of an indirect counter.
    fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()>;
    /// Reads a cell of an indirect meter.
    fn meter_read(&self, meter: usize, index: usize) -> ControlResult<MeterState>;
    /// Sets a cell of an indirect meter.
    fn meter_write(&mut self, meter: usize, index: usize, write: MeterWrite) -> ControlResult<()>;
    /// A copy of a cell of an indirect meter as it is now, for [`Self::meter_restore`].
    fn meter_save(&self, meter: usize, index: usize) -> ControlResult<SavedMeter>;
    /// Puts a cell of an indirect meter back as it was, with what its buckets held and what it
    /// had counted.
    fn meter_restore(&mut self, meter: usize, index: usize, saved: SavedMeter)
    -> ControlResult<()>;
    /// Reads a register cell.
    fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits>;
    /// Writes a register cell; the value is as wide as the register.
    fn register_write(&mut self, register: usize, index: usize, value: &[u8]) -> ControlResult<()>;
    /// Sets all cells of an array of the value's kind; gives them as they were.
    fn array_fill(&mut self, array: usize, value: &CellValue) -> ControlResult<SavedArray>;
    /// Puts all cells of an array back as they were.
    fn array_restore(&mut self, array: usize, saved: SavedArray) -> ControlResult<()>;

    /// Creates a multicast group (ids 1 to 65535). Errors: exists, no such port, too many
    /// replicas, duplicate replica.
    fn multicast_insert(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()>;
    /// Replaces a group's replicas.
    fn multicast_modify(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()>;
    /// Deletes a group.
    fn multicast_delete(&mut self, group: u32) -> ControlResult<()>;
    /// A group's replicas.
    fn multicast_group(&self, group: u32) -> ControlResult<Vec<Replica>>;
    /// Groups by id, paged like table entries.
    fn multicast_groups(&self, from: u64, most: usize) -> Page<(u32, Vec<Replica>)>;

    /// Creates a clone session (ids 1 to 32767). Errors: exists, no such port, too many or
    /// duplicate replicas.
    fn clone_session_insert(&mut self, session: u32, to: &CloneSession) -> ControlResult<()>;
    /// Replaces a clone session.
    fn clone_session_modify(&mut self, session: u32, to: &CloneSession) -> ControlResult<()>;
    /// Deletes a clone session.
    fn clone_session_delete(&mut self, session: u32) -> ControlResult<()>;
    /// One clone session.
    fn clone_session(&self, session: u32) -> ControlResult<CloneSession>;
    /// Clone sessions by id, paged like table entries.
    fn clone_sessions(&self, from: u64, most: usize) -> Page<(u32, CloneSession)>;

    /// Action profiles.
    fn profiles(&self) -> &[ProfileInfo];
    /// Sets what a profile's sizes count; for a profile that is still empty.
    fn profile_rules(&mut self, profile: usize, rules: ProfileRules) -> ControlResult<()>;
    /// Inserts an entry that names a member, group or one-shot set. Errors: as
    /// [`Self::table_insert`]; no such member or group; the table has no action profile; a
    /// one-shot set beside members, or the reverse.
    fn table_insert_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()>;
    /// Changes what an existing entry names.
    fn table_modify_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()>;
    /// Adds a member. Errors: exists, profile full, not an action of the profile's tables.
    fn member_insert(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()>;
    /// Changes a member's action.
    fn member_modify(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()>;
    /// Removes a member. Errors: unknown; an entry or group uses it.
    fn member_delete(&mut self, profile: usize, id: u32) -> ControlResult<()>;
    /// One member.
    fn member(&self, profile: usize, id: u32) -> ControlResult<ProfileMember>;
    /// Members by id, paged like table entries.
    fn members(&self, profile: usize, from: u64, most: usize) -> Page<ProfileMember>;
    /// Adds a group. Errors: exists, unknown or repeated member, weight 0, no such port to
    /// watch, too large, no selector.
    fn group_insert(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()>;
    /// Replaces a group's members; its `max_size` must be what it was.
    fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()>;
    /// Removes a group. Errors: unknown; an entry uses it.
    fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()>;
    /// One group.
    fn group(&self, profile: usize, id: u32) -> ControlResult<ProfileGroup>;
    /// Groups by id, paged like table entries.
    fn groups(&self, profile: usize, from: u64, most: usize) -> Page<ProfileGroup>;

    /// Parser value sets.
    fn value_sets(&self) -> &[ValueSetInfo];
    /// The members of a value set: one match per field.
    fn value_set_members(&self, set: usize) -> ControlResult<Vec<Vec<MatchField>>>;
    /// Replaces the members of a value set. Errors: too many, wrong number or width of fields.
    fn value_set_write(&mut self, set: usize, members: &[Vec<MatchField>]) -> ControlResult<()>;

    /// Digests that the program can send.
    fn digests(&self) -> &[DigestInfo];
    /// How a digest's messages are collected; `None`: they are not.
    fn digest_config(&self, digest: usize) -> ControlResult<Option<DigestConfig>>;
    /// Collects a digest's messages from now on, otherwise than before, or no more.
    fn digest_configure(
        &mut self,
        digest: usize,
        config: Option<DigestConfig>,
    ) -> ControlResult<()>;
    /// The controller has got a list of digest messages: those of its messages that come again
    /// are told again. A list that is not known (any more) is no error. Lists are the running
    /// program's, also while another one is staged.
    fn digest_acknowledge(&mut self, digest: usize, list_id: u64) -> ControlResult<()>;

    /// Sets an entry's idle timeout in nanoseconds (0: none); it counts from the entry's last
    /// packet, or from when the entry was made.
    fn idle_timeout_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        timeout_ns: u64,
    ) -> ControlResult<()>;

    /// A packet from the controller: `frame` begins with the program's packet-out header and
    /// enters the pipeline on the CPU port.
    fn packet_out(&mut self, frame: &[u8]) -> ControlResult<()>;
}
