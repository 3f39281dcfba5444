//! The control plane's view of the switch: everything of the program goes to the packet
//! engine, groups and packet-out are the switch's own.

use crate::replication::{CloneSession, Replica};
use v1model::Pipeline;
use v1model::entries::digest::{DigestConfig, DigestInfo};
use v1model::entries::profile::{
    IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, ProfileRules, WatchPort,
};
use v1model::entries::{
    ActionCall, ActionInfo, ArrayInfo, Bits, CellValue, ControlError, ControlResult, CounterValue,
    DefaultEntry, EntryKey, MatchField, MeterState, MeterUnit, MeterWrite, Page, TableEntry,
    TableInfo, ValueSetInfo,
};
use v1model::{SavedArray, SavedEntry, SavedMeter};

use crate::loading::{Compiler, Retired};
use crate::program::Program;
use crate::switch::Switch;

fn no_program() -> ControlError {
    ControlError::FailedPrecondition(
        "no program is loaded: set a forwarding pipeline first".to_owned(),
    )
}

impl Switch {
    /// The program that the control plane reads and writes: the staged one, if there is one.
    fn program(&self) -> ControlResult<&Program> {
        let program = self.staged.as_ref().or(self.running.as_ref());
        program.ok_or_else(no_program)
    }

    fn program_mut(&mut self) -> ControlResult<&mut Program> {
        let program = self.staged.as_mut().or(self.running.as_mut());
        program.ok_or_else(no_program)
    }

    fn pipeline(&self) -> ControlResult<&Pipeline> {
        Ok(&self.program()?.pipeline)
    }

    fn pipeline_mut(&mut self) -> ControlResult<&mut Pipeline> {
        Ok(&mut self.program_mut()?.pipeline)
    }

    fn digest(&self, digest: usize) -> ControlResult<()> {
        if digest < self.pipeline()?.digests().len() {
            return Ok(());
        }
        Err(ControlError::NotFound(format!("no digest number {digest}")))
    }

    /// Compiles programs for this switch, on any thread.
    pub fn compiler(&self) -> Compiler {
        Compiler::new(self.load_options())
    }

    /// Compiles a program (BMv2 JSON) and puts it in place of the running one, all in this call:
    /// for a switch that has no packets to forward meanwhile.
    ///
    /// # Errors
    /// The program cannot be run; the error says why. The running one stays.
    pub fn load(&mut self, bmv2_json: &[u8]) -> ControlResult<()> {
        let pipeline = self.compiler().compile(bmv2_json)?;
        let prepared = self.prepare(pipeline);
        self.staged = None;
        drop(self.replace(prepared));
        Ok(())
    }

    /// `what` is for the error.
    fn check_ports(&self, what: &str, ports: impl Iterator<Item = u32>) -> ControlResult<()> {
        for number in ports {
            let known = u16::try_from(number)
                .is_ok_and(|port| self.traffic_manager().port_config(port).is_some());
            if !known {
                return Err(ControlError::InvalidArgument(format!(
                    "{what}: this switch has no port {number}"
                )));
            }
        }
        Ok(())
    }

    fn check_replicas(&self, what: &str, replicas: &[Replica]) -> ControlResult<()> {
        self.check_ports(what, replicas.iter().map(|replica| replica.port))
    }

    fn check_watched(
        &self,
        what: &str,
        watched: impl Iterator<Item = Option<WatchPort>>,
    ) -> ControlResult<()> {
        self.check_ports(what, watched.flatten().map(|watch| watch.port))
    }

    fn check_indirect(&self, action: &IndirectAction) -> ControlResult<()> {
        match action {
            IndirectAction::OneShot(set) => {
                self.check_watched("watch_port", set.iter().map(|action| action.watch))
            }
            IndirectAction::Member(_) | IndirectAction::Group(_) => Ok(()),
        }
    }

    fn check_group(&self, group: &ProfileGroup) -> ControlResult<()> {
        self.check_watched(
            &format!("group {}: watch_port", group.id),
            group.members.iter().map(|member| member.watch),
        )
    }
}

/// The program as the control plane sees it: the staged one, if there is one.
///
/// Indices (`table`, `action`, `counter`, `meter`, `register`) are positions in the slices that the
/// method of that name returns; they are valid until the next program is installed. A refused call
/// changes nothing.
impl Switch {
    /// All tables of the program, in program order.
    pub fn tables(&self) -> &[TableInfo] {
        self.pipeline().map_or(&[], Pipeline::tables)
    }

    /// All actions of the program, in program order.
    pub fn actions(&self) -> &[ActionInfo] {
        self.pipeline().map_or(&[], Pipeline::actions)
    }

    /// Indirect counters.
    pub fn counters(&self) -> &[ArrayInfo] {
        self.pipeline().map_or(&[], Pipeline::counters)
    }

    /// Indirect meters with their unit.
    pub fn meters(&self) -> &[(ArrayInfo, MeterUnit)] {
        self.pipeline().map_or(&[], Pipeline::meters)
    }

    /// Registers.
    pub fn registers(&self) -> &[ArrayInfo] {
        self.pipeline().map_or(&[], Pipeline::registers)
    }

    /// Inserts an entry. Errors: exists already, table full, const table, action not of this
    /// table, wrong widths.
    pub fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_insert(table, key, action)
    }

    /// Changes the action of an existing entry; keeps its direct meter, resets nothing.
    pub fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_modify(table, key, action)
    }

    /// Removes an entry; returns it for [`Self::table_restore`].
    pub fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<SavedEntry> {
        self.pipeline_mut()?.table_delete(table, key)
    }

    /// A copy of an entry (`None`: the default entry) as it is now, for [`Self::table_restore`].
    pub fn table_save(&self, table: usize, key: Option<&EntryKey>) -> ControlResult<SavedEntry> {
        self.pipeline()?.table_save(table, key)
    }

    /// Puts an entry back as it was when it was removed from this table or saved: its action,
    /// counter, idle timeout, and meter with what the meter had left, and its place in the order
    /// of insertion, which decides among entries of one priority. Takes the place of an entry of
    /// the same key. Errors: table full, the member or group it names is gone.
    pub fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()> {
        let program = self.program_mut()?;
        program.pipeline.table_restore(table, saved)?;
        program.schedule_idle_search();
        Ok(())
    }

    /// Looks one entry up by its key.
    pub fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry> {
        self.pipeline()?.table_entry(table, key)
    }

    /// Entries in insertion order, at most `most` of them, so that no call takes long: `from`
    /// is 0 for the first page, then the [`Page::next`] of the page before. An entry that is
    /// inserted or removed between two pages is in a later page or not. Other pages work alike.
    pub fn table_entries(&self, table: usize, from: u64, most: usize) -> Page<TableEntry> {
        self.pipeline()
            .map(|pipeline| pipeline.table_entries(table, from, most))
            .unwrap_or_default()
    }

    /// The default entry.
    pub fn table_default(&self, table: usize) -> ControlResult<DefaultEntry> {
        self.pipeline()?.table_default(table)
    }

    /// Sets the default action; `None` restores the program's own.
    pub fn table_set_default(
        &mut self,
        table: usize,
        action: Option<&ActionCall>,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_set_default(table, action)
    }

    /// Sets the direct counter of an entry (`None`: of the default entry).
    pub fn direct_counter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        value: CounterValue,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.direct_counter_set(table, key, value)
    }

    /// Sets the direct meter of an entry (`None`: of the default entry).
    pub fn direct_meter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        meter: MeterWrite,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.direct_meter_set(table, key, meter)
    }

    /// Reads a cell of an indirect counter.
    pub fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue> {
        self.pipeline()?.counter_read(counter, index)
    }

    /// Sets a cell of an indirect counter.
    pub fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.counter_write(counter, index, value)
    }

    /// Reads a cell of an indirect meter.
    pub fn meter_read(&self, meter: usize, index: usize) -> ControlResult<MeterState> {
        self.pipeline()?.meter_read(meter, index)
    }

    /// Sets a cell of an indirect meter.
    pub fn meter_write(
        &mut self,
        meter: usize,
        index: usize,
        write: MeterWrite,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.meter_write(meter, index, write)
    }

    /// A copy of a cell of an indirect meter as it is now, for [`Self::meter_restore`].
    pub fn meter_save(&self, meter: usize, index: usize) -> ControlResult<SavedMeter> {
        self.pipeline()?.meter_save(meter, index)
    }

    /// Puts a cell of an indirect meter back as it was, with what its buckets held and what it
    /// had counted.
    pub fn meter_restore(
        &mut self,
        meter: usize,
        index: usize,
        saved: SavedMeter,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.meter_restore(meter, index, saved)
    }

    /// Reads a register cell.
    pub fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits> {
        self.pipeline()?.register_read(register, index)
    }

    /// Writes a register cell; the value is as wide as the register.
    pub fn register_write(
        &mut self,
        register: usize,
        index: usize,
        value: &[u8],
    ) -> ControlResult<()> {
        self.pipeline_mut()?.register_write(register, index, value)
    }

    /// Sets all cells of an array of the value's kind; gives them as they were.
    pub fn array_fill(&mut self, array: usize, value: &CellValue) -> ControlResult<SavedArray> {
        self.pipeline_mut()?.array_fill(array, value)
    }

    /// Puts all cells of an array back as they were.
    pub fn array_restore(&mut self, array: usize, saved: SavedArray) -> ControlResult<()> {
        self.pipeline_mut()?.array_restore(array, saved)
    }

    /// Creates a multicast group (ids 1 to 65535). Errors: exists, no such port, too many
    /// replicas, duplicate replica.
    pub fn multicast_insert(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("multicast group {group}"), replicas)?;
        self.program_mut()?
            .replication
            .groups
            .insert(group, replicas)
    }

    /// Replaces a group's replicas.
    pub fn multicast_modify(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("multicast group {group}"), replicas)?;
        self.program_mut()?
            .replication
            .groups
            .modify(group, replicas)
    }

    /// Deletes a group.
    pub fn multicast_delete(&mut self, group: u32) -> ControlResult<()> {
        self.program_mut()?.replication.groups.delete(group)
    }

    /// A group's replicas.
    pub fn multicast_group(&self, group: u32) -> ControlResult<Vec<Replica>> {
        self.program()?.replication.groups.group(group)
    }

    /// Groups by id, paged like table entries.
    pub fn multicast_groups(&self, from: u64, most: usize) -> Page<(u32, Vec<Replica>)> {
        self.program().map_or_else(
            |_| Page::default(),
            |program| program.replication.groups.page(from, most),
        )
    }

    /// Action profiles.
    pub fn profiles(&self) -> &[ProfileInfo] {
        self.pipeline().map_or(&[], Pipeline::profiles)
    }

    /// Sets what BMv2 JSON does not tell of a table: whether its entries are constant (it has
    /// `entries` and `const entries` alike), and its size (of a table with entries it has their
    /// number). A table has room for at least the entries of the program.
    pub fn table_rules(
        &mut self,
        table: usize,
        const_entries: bool,
        size: usize,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_rules(table, const_entries, size)
    }

    /// Sets what a profile's sizes count; for a profile that is still empty.
    pub fn profile_rules(&mut self, profile: usize, rules: ProfileRules) -> ControlResult<()> {
        self.pipeline_mut()?.profile_rules(profile, rules)
    }

    /// Inserts an entry that names a member, group or one-shot set. Errors: as
    /// [`Self::table_insert`]; no such member or group; the table has no action profile; a
    /// one-shot set beside members, or the reverse.
    pub fn table_insert_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.check_indirect(action)?;
        self.pipeline_mut()?
            .table_insert_indirect(table, key, action)
    }

    /// Changes what an existing entry names.
    pub fn table_modify_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.check_indirect(action)?;
        self.pipeline_mut()?
            .table_modify_indirect(table, key, action)
    }

    /// Adds a member. Errors: exists, profile full, not an action of the profile's tables.
    pub fn member_insert(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        self.pipeline_mut()?.member_insert(profile, member)
    }

    /// Changes a member's action.
    pub fn member_modify(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        self.pipeline_mut()?.member_modify(profile, member)
    }

    /// Removes a member. Errors: unknown; an entry or group uses it.
    pub fn member_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        self.pipeline_mut()?.member_delete(profile, id)
    }

    /// One member.
    pub fn member(&self, profile: usize, id: u32) -> ControlResult<ProfileMember> {
        self.pipeline()?.member(profile, id)
    }

    /// Members by id, paged like table entries.
    pub fn members(&self, profile: usize, from: u64, most: usize) -> Page<ProfileMember> {
        self.pipeline()
            .map(|pipeline| pipeline.members(profile, from, most))
            .unwrap_or_default()
    }

    /// Adds a group. Errors: exists, unknown or repeated member, weight 0, no such port to
    /// watch, too large, no selector.
    pub fn group_insert(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group(group)?;
        self.pipeline_mut()?.group_insert(profile, group)
    }

    /// Replaces a group's members; its `max_size` must be what it was.
    pub fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group(group)?;
        self.pipeline_mut()?.group_modify(profile, group)
    }

    /// Removes a group. Errors: unknown; an entry uses it.
    pub fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        self.pipeline_mut()?.group_delete(profile, id)
    }

    /// One group.
    pub fn group(&self, profile: usize, id: u32) -> ControlResult<ProfileGroup> {
        self.pipeline()?.group(profile, id)
    }

    /// Groups by id, paged like table entries.
    pub fn groups(&self, profile: usize, from: u64, most: usize) -> Page<ProfileGroup> {
        self.pipeline()
            .map(|pipeline| pipeline.groups(profile, from, most))
            .unwrap_or_default()
    }

    /// Parser value sets.
    pub fn value_sets(&self) -> &[ValueSetInfo] {
        self.pipeline().map_or(&[], Pipeline::value_sets)
    }

    /// The members of a value set: one match per field.
    pub fn value_set_members(&self, set: usize) -> ControlResult<Vec<Vec<MatchField>>> {
        self.pipeline()?.value_set_members(set)
    }

    /// Replaces the members of a value set. Errors: too many, wrong number or width of fields.
    pub fn value_set_write(
        &mut self,
        set: usize,
        members: &[Vec<MatchField>],
    ) -> ControlResult<()> {
        self.pipeline_mut()?.value_set_write(set, members)
    }

    /// Digests that the program can send.
    pub fn digests(&self) -> &[DigestInfo] {
        self.pipeline().map_or(&[], Pipeline::digests)
    }

    /// How a digest's messages are collected; `None`: they are not.
    pub fn digest_config(&self, digest: usize) -> ControlResult<Option<DigestConfig>> {
        self.digest(digest)?;
        Ok(self.program()?.learning.config(digest))
    }

    /// Collects a digest's messages from now on, otherwise than before, or no more.
    pub fn digest_configure(
        &mut self,
        digest: usize,
        config: Option<DigestConfig>,
    ) -> ControlResult<()> {
        self.digest(digest)?;
        let now_ns = self.now_ns();
        self.program_mut()?
            .learning
            .configure(digest, config, now_ns);
        Ok(())
    }

    /// The controller has got a list of digest messages: those of its messages that come again
    /// are told again. A list that is not known (any more) is no error. Lists are the running
    /// program's, also while another one is staged.
    pub fn digest_acknowledge(&mut self, digest: usize, list_id: u64) -> ControlResult<()> {
        if let Some(program) = &mut self.running {
            program.learning.acknowledge(digest, list_id);
        }
        Ok(())
    }

    /// Sets an entry's idle timeout in nanoseconds (0: none); it counts from the entry's last
    /// packet, or from when the entry was made.
    pub fn idle_timeout_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        timeout_ns: u64,
    ) -> ControlResult<()> {
        let now_ns = self.now_ns();
        let program = self.program_mut()?;
        program.pipeline.tell_time(now_ns);
        program.pipeline.idle_timeout_set(table, key, timeout_ns)?;
        program.schedule_idle_search();
        Ok(())
    }

    /// Creates a clone session (ids 1 to 32767). Errors: exists, no such port, too many or
    /// duplicate replicas.
    pub fn clone_session_insert(&mut self, session: u32, to: &CloneSession) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("clone session {session}"), &to.replicas)?;
        self.program_mut()?.replication.mirrors.insert(session, to)
    }

    /// Replaces a clone session.
    pub fn clone_session_modify(&mut self, session: u32, to: &CloneSession) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("clone session {session}"), &to.replicas)?;
        self.program_mut()?.replication.mirrors.modify(session, to)
    }

    /// Deletes a clone session.
    pub fn clone_session_delete(&mut self, session: u32) -> ControlResult<()> {
        self.program_mut()?.replication.mirrors.delete(session)
    }

    /// One clone session.
    pub fn clone_session(&self, session: u32) -> ControlResult<CloneSession> {
        self.program()?.replication.mirrors.session(session)
    }

    /// Clone sessions by id, paged like table entries.
    pub fn clone_sessions(&self, from: u64, most: usize) -> Page<(u32, CloneSession)> {
        self.program().map_or_else(
            |_| Page::default(),
            |program| program.replication.mirrors.page(from, most),
        )
    }

    /// A packet from the controller: `frame` begins with the program's packet-out header and
    /// enters the pipeline on the CPU port.
    pub fn packet_out(&mut self, frame: &[u8]) -> ControlResult<()> {
        if self.running.is_none() {
            return Err(no_program());
        }
        let Some(port) = self.config().cpu_port else {
            return Err(ControlError::FailedPrecondition(
                "this switch has no CPU port: start it with --cpu-port".to_owned(),
            ));
        };
        if frame.len() > self.config().max_frame_bytes {
            return Err(ControlError::InvalidArgument(format!(
                "packet-out of {} bytes: {} at most",
                frame.len(),
                self.config().max_frame_bytes
            )));
        }
        self.packet_from_controller(port, frame);
        Ok(())
    }
}

impl Switch {
    /// Keeps a compiled program beside the running one. From now on every method of the control
    /// plane but packet-outs and acknowledgements refers to it, whose tables, groups and sessions
    /// are its own, while packets go through the running one. Returns what was staged before, for
    /// the caller to drop where that delays no packet: it may be large.
    pub fn stage(&mut self, pipeline: Pipeline) -> Retired {
        let staged = self.prepare(pipeline);
        Retired::new(self.staged.replace(staged))
    }

    /// Puts the staged program, with all that was written to it, in place of the running one,
    /// between two packets. Packets in flight of the old program are dropped and counted
    /// (`pipeline-swap`). Returns what ran before, as [`Self::stage`].
    ///
    /// # Errors
    /// [`FailedPrecondition`](ControlError::FailedPrecondition): none is staged.
    pub fn commit_staged(&mut self) -> ControlResult<Retired> {
        let Some(staged) = self.staged.take() else {
            return Err(ControlError::FailedPrecondition(
                "no program is staged".to_owned(),
            ));
        };
        Ok(Retired::new(self.replace(staged)))
    }

    /// Removes the staged program, if there is one; returns it as [`Self::stage`].
    pub fn unstage(&mut self) -> Retired {
        Retired::new(self.staged.take())
    }
}
