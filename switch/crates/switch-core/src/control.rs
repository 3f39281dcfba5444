//! The control plane's view of the switch: everything of the program goes to the packet
//! engine, groups and packet-out are the switch's own.

use dataplane::control::{
    ActionCall, ActionInfo, ArrayInfo, Bits, CellValue, CloneSession, ControlError, ControlResult,
    CounterValue, DataPlane, DefaultEntry, EntryKey, MatchField, MeterState, MeterUnit, MeterWrite,
    Page, Replica, SavedArray, SavedEntry, SavedMeter, TableEntry, TableInfo, ValueSetInfo,
};
use dataplane::notify::{DigestConfig, DigestInfo};
use dataplane::profile::{
    IndirectAction, ProfileGroup, ProfileInfo, ProfileMember, ProfileRules, WatchPort,
};
use std::any::Any;

use dataplane::switch::{CompiledProgram, ProgramInfo};
use v1model::{LoadOptions, Pipeline};

use crate::switch::{Engines, Switch};

fn no_program() -> ControlError {
    ControlError::FailedPrecondition(
        "no program is loaded: set a forwarding pipeline first".to_owned(),
    )
}

impl Switch {
    /// The program that the control plane means: the staged one, if there is one.
    fn pipeline(&self) -> ControlResult<&Pipeline> {
        let staged = self.staged.as_ref().map(|staged| &staged.pipeline);
        let running = self.running.as_ref().map(|running| &running.pipeline);
        staged.or(running).ok_or_else(no_program)
    }

    fn pipeline_mut(&mut self) -> ControlResult<&mut Pipeline> {
        let staged = self.staged.as_mut().map(|staged| &mut staged.pipeline);
        let running = self.running.as_mut().map(|running| &mut running.pipeline);
        staged.or(running).ok_or_else(no_program)
    }

    /// What belongs to that program.
    fn meant(&self) -> &Engines {
        let staged = self.staged.as_ref().map(|staged| &staged.engines);
        staged.unwrap_or(&self.engines)
    }

    fn meant_mut(&mut self) -> &mut Engines {
        let staged = self.staged.as_mut().map(|staged| &mut staged.engines);
        staged.unwrap_or(&mut self.engines)
    }

    fn digest(&self, digest: usize) -> ControlResult<()> {
        if digest < self.pipeline()?.digests().len() {
            return Ok(());
        }
        Err(ControlError::NotFound(format!("no digest number {digest}")))
    }

    /// Compiles programs for this switch, on any thread.
    pub fn compiler(&self) -> Compiler {
        Compiler {
            options: self.load_options(),
        }
    }

    /// Compiles a program (BMv2 JSON) and puts it in place of the running one, all in this call:
    /// for a switch that has no packets to forward meanwhile.
    ///
    /// # Errors
    /// The program cannot be run; the error says why. The running one stays.
    pub fn load(&mut self, bmv2_json: &[u8]) -> ControlResult<()> {
        let pipeline = self.compiler().pipeline(bmv2_json)?;
        let prepared = self.prepared(pipeline);
        self.staged = None;
        let _ = self.replace(prepared);
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

impl DataPlane for Switch {
    fn tables(&self) -> &[TableInfo] {
        self.pipeline().map_or(&[], Pipeline::tables)
    }

    fn actions(&self) -> &[ActionInfo] {
        self.pipeline().map_or(&[], Pipeline::actions)
    }

    fn counters(&self) -> &[ArrayInfo] {
        self.pipeline().map_or(&[], Pipeline::counters)
    }

    fn meters(&self) -> &[(ArrayInfo, MeterUnit)] {
        self.pipeline().map_or(&[], Pipeline::meters)
    }

    fn registers(&self) -> &[ArrayInfo] {
        self.pipeline().map_or(&[], Pipeline::registers)
    }

    fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_insert(table, key, action)
    }

    fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_modify(table, key, action)
    }

    fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<SavedEntry> {
        self.pipeline_mut()?.table_delete(table, key)
    }

    fn table_save(&self, table: usize, key: Option<&EntryKey>) -> ControlResult<SavedEntry> {
        self.pipeline()?.table_save(table, key)
    }

    fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()> {
        self.pipeline_mut()?.table_restore(table, saved)?;
        self.look_for_idle();
        Ok(())
    }

    fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry> {
        self.pipeline()?.table_entry(table, key)
    }

    fn table_entries(&self, table: usize, from: u64, most: usize) -> Page<TableEntry> {
        self.pipeline()
            .map(|pipeline| pipeline.table_entries(table, from, most))
            .unwrap_or_default()
    }

    fn table_default(&self, table: usize) -> ControlResult<DefaultEntry> {
        self.pipeline()?.table_default(table)
    }

    fn table_set_default(
        &mut self,
        table: usize,
        action: Option<&ActionCall>,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.table_set_default(table, action)
    }

    fn direct_counter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        value: CounterValue,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.direct_counter_set(table, key, value)
    }

    fn direct_meter_set(
        &mut self,
        table: usize,
        key: Option<&EntryKey>,
        meter: MeterWrite,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.direct_meter_set(table, key, meter)
    }

    fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue> {
        self.pipeline()?.counter_read(counter, index)
    }

    fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.counter_write(counter, index, value)
    }

    fn meter_read(&self, meter: usize, index: usize) -> ControlResult<MeterState> {
        self.pipeline()?.meter_read(meter, index)
    }

    fn meter_write(&mut self, meter: usize, index: usize, write: MeterWrite) -> ControlResult<()> {
        self.pipeline_mut()?.meter_write(meter, index, write)
    }

    fn meter_save(&self, meter: usize, index: usize) -> ControlResult<SavedMeter> {
        self.pipeline()?.meter_save(meter, index)
    }

    fn meter_restore(
        &mut self,
        meter: usize,
        index: usize,
        saved: SavedMeter,
    ) -> ControlResult<()> {
        self.pipeline_mut()?.meter_restore(meter, index, saved)
    }

    fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits> {
        self.pipeline()?.register_read(register, index)
    }

    fn register_write(&mut self, register: usize, index: usize, value: &[u8]) -> ControlResult<()> {
        self.pipeline_mut()?.register_write(register, index, value)
    }

    fn array_fill(&mut self, array: usize, value: &CellValue) -> ControlResult<SavedArray> {
        self.pipeline_mut()?.array_fill(array, value)
    }

    fn array_restore(&mut self, array: usize, saved: SavedArray) -> ControlResult<()> {
        self.pipeline_mut()?.array_restore(array, saved)
    }

    fn multicast_insert(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("multicast group {group}"), replicas)?;
        self.meant_mut().groups.insert(group, replicas)
    }

    fn multicast_modify(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("multicast group {group}"), replicas)?;
        self.meant_mut().groups.modify(group, replicas)
    }

    fn multicast_delete(&mut self, group: u32) -> ControlResult<()> {
        self.meant_mut().groups.delete(group)
    }

    fn multicast_group(&self, group: u32) -> ControlResult<Vec<Replica>> {
        self.meant().groups.group(group)
    }

    fn multicast_groups(&self, from: u64, most: usize) -> Page<(u32, Vec<Replica>)> {
        self.meant().groups.page(from, most)
    }

    fn profiles(&self) -> &[ProfileInfo] {
        self.pipeline().map_or(&[], Pipeline::profiles)
    }

    fn table_rules(&mut self, table: usize, const_entries: bool, size: usize) -> ControlResult<()> {
        self.pipeline_mut()?.table_rules(table, const_entries, size)
    }

    fn profile_rules(&mut self, profile: usize, rules: ProfileRules) -> ControlResult<()> {
        self.pipeline_mut()?.profile_rules(profile, rules)
    }

    fn table_insert_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.check_indirect(action)?;
        self.pipeline_mut()?
            .table_insert_indirect(table, key, action)
    }

    fn table_modify_indirect(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &IndirectAction,
    ) -> ControlResult<()> {
        self.check_indirect(action)?;
        self.pipeline_mut()?
            .table_modify_indirect(table, key, action)
    }

    fn member_insert(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        self.pipeline_mut()?.member_insert(profile, member)
    }

    fn member_modify(&mut self, profile: usize, member: &ProfileMember) -> ControlResult<()> {
        self.pipeline_mut()?.member_modify(profile, member)
    }

    fn member_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        self.pipeline_mut()?.member_delete(profile, id)
    }

    fn member(&self, profile: usize, id: u32) -> ControlResult<ProfileMember> {
        self.pipeline()?.member(profile, id)
    }

    fn members(&self, profile: usize, from: u64, most: usize) -> Page<ProfileMember> {
        self.pipeline()
            .map(|pipeline| pipeline.members(profile, from, most))
            .unwrap_or_default()
    }

    fn group_insert(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group(group)?;
        self.pipeline_mut()?.group_insert(profile, group)
    }

    fn group_modify(&mut self, profile: usize, group: &ProfileGroup) -> ControlResult<()> {
        self.check_group(group)?;
        self.pipeline_mut()?.group_modify(profile, group)
    }

    fn group_delete(&mut self, profile: usize, id: u32) -> ControlResult<()> {
        self.pipeline_mut()?.group_delete(profile, id)
    }

    fn group(&self, profile: usize, id: u32) -> ControlResult<ProfileGroup> {
        self.pipeline()?.group(profile, id)
    }

    fn groups(&self, profile: usize, from: u64, most: usize) -> Page<ProfileGroup> {
        self.pipeline()
            .map(|pipeline| pipeline.groups(profile, from, most))
            .unwrap_or_default()
    }

    fn value_sets(&self) -> &[ValueSetInfo] {
        self.pipeline().map_or(&[], Pipeline::value_sets)
    }

    fn value_set_members(&self, set: usize) -> ControlResult<Vec<Vec<MatchField>>> {
        self.pipeline()?.value_set_members(set)
    }

    fn value_set_write(&mut self, set: usize, members: &[Vec<MatchField>]) -> ControlResult<()> {
        self.pipeline_mut()?.value_set_write(set, members)
    }

    fn digests(&self) -> &[DigestInfo] {
        self.pipeline().map_or(&[], Pipeline::digests)
    }

    fn digest_config(&self, digest: usize) -> ControlResult<Option<DigestConfig>> {
        self.digest(digest)?;
        Ok(self.meant().learning.config(digest))
    }

    fn digest_configure(
        &mut self,
        digest: usize,
        config: Option<DigestConfig>,
    ) -> ControlResult<()> {
        self.digest(digest)?;
        let now_ns = self.now_ns();
        self.meant_mut().learning.configure(digest, config, now_ns);
        Ok(())
    }

    fn digest_acknowledge(&mut self, digest: usize, list_id: u64) -> ControlResult<()> {
        self.engines.learning.acknowledge(digest, list_id);
        Ok(())
    }

    fn idle_timeout_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        timeout_ns: u64,
    ) -> ControlResult<()> {
        let now_ns = self.now_ns();
        let pipeline = self.pipeline_mut()?;
        pipeline.tell_time(now_ns);
        pipeline.idle_timeout_set(table, key, timeout_ns)?;
        self.look_for_idle();
        Ok(())
    }

    fn clone_session_insert(&mut self, session: u32, to: &CloneSession) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("clone session {session}"), &to.replicas)?;
        self.meant_mut().sessions.insert(session, to)
    }

    fn clone_session_modify(&mut self, session: u32, to: &CloneSession) -> ControlResult<()> {
        self.pipeline()?;
        self.check_replicas(&format!("clone session {session}"), &to.replicas)?;
        self.meant_mut().sessions.modify(session, to)
    }

    fn clone_session_delete(&mut self, session: u32) -> ControlResult<()> {
        self.meant_mut().sessions.delete(session)
    }

    fn clone_session(&self, session: u32) -> ControlResult<CloneSession> {
        self.meant().sessions.session(session)
    }

    fn clone_sessions(&self, from: u64, most: usize) -> Page<(u32, CloneSession)> {
        self.meant().sessions.page(from, most)
    }

    fn packet_out(&mut self, frame: &[u8]) -> ControlResult<()> {
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

impl dataplane::switch::Switch for Switch {
    fn stage(&mut self, program: CompiledProgram) -> ControlResult<Box<dyn Any + Send>> {
        let pipeline = program.code.downcast::<Pipeline>().map_err(|_| {
            ControlError::InvalidArgument("compiled for another kind of switch".to_owned())
        })?;
        let staged = self.prepared(*pipeline);
        Ok(Box::new(self.staged.replace(staged)))
    }

    fn commit_staged(&mut self) -> ControlResult<Box<dyn Any + Send>> {
        let Some(staged) = self.staged.take() else {
            return Err(ControlError::FailedPrecondition(
                "no program is staged".to_owned(),
            ));
        };
        Ok(Box::new(self.replace(staged)))
    }

    fn unstage(&mut self) -> Box<dyn Any + Send> {
        Box::new(self.staged.take())
    }
}

/// Compiles programs for one [`Switch`].
#[derive(Debug, Clone)]
pub struct Compiler {
    options: LoadOptions,
}

impl Compiler {
    fn pipeline(&self, bmv2_json: &[u8]) -> ControlResult<Pipeline> {
        Pipeline::load(bmv2_json, &self.options)
            .map_err(|error| ControlError::InvalidArgument(error.to_string()))
    }
}

impl dataplane::switch::Compiler for Compiler {
    fn compile(&self, bmv2_json: &[u8]) -> ControlResult<CompiledProgram> {
        let pipeline = self.pipeline(bmv2_json)?;
        Ok(CompiledProgram {
            info: ProgramInfo {
                tables: pipeline.tables().to_vec(),
                actions: pipeline.actions().to_vec(),
                counters: pipeline.counters().to_vec(),
                meters: pipeline.meters().to_vec(),
                registers: pipeline.registers().to_vec(),
                profiles: pipeline.profiles().to_vec(),
                value_sets: pipeline.value_sets().to_vec(),
                digests: pipeline.digests().to_vec(),
            },
            code: Box::new(pipeline),
        })
    }
}
