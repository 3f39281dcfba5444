//! The control plane's access to a switch and to its programs.
//!
//! A controller reads and writes one [`Program`]: the staged one if there is one, the running one
//! otherwise ([`Switch::program`]). Tables, arrays, action profiles and value sets are those of its
//! [`Pipeline`]; multicast groups, mirror sessions and digests are the program's own. A refused
//! call changes nothing.

use v1model::entries::digest::DigestConfig;
use v1model::entries::{ControlError, ControlResult, EntryKey};
use v1model::{Pipeline, SavedEntry};

use crate::loading::{Compiler, Retired};
use crate::program::Program;
use crate::replica_store::{CloneSession, Replica, ReplicaStore};
use crate::switch::Switch;

fn no_program() -> ControlError {
    ControlError::FailedPrecondition(
        "no program is loaded: set a forwarding pipeline first".to_owned(),
    )
}

impl Switch {
    /// The program that the control plane reads: the staged one if there is one, the running one
    /// otherwise.
    ///
    /// # Errors
    /// [`FailedPrecondition`](ControlError::FailedPrecondition): there is none.
    pub fn program(&self) -> ControlResult<&Program> {
        let program = self.staged.as_ref().or(self.running.as_ref());
        program.ok_or_else(no_program)
    }

    /// Whether a program runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// As [`Self::program`], for changes. Also sets the program's time to the latest one.
    ///
    /// # Errors
    /// As [`Self::program`].
    pub fn program_mut(&mut self) -> ControlResult<&mut Program> {
        let program = self.staged.as_mut().or(self.running.as_mut());
        let program = program.ok_or_else(no_program)?;
        program.pipeline.set_time(self.env.now_ns);
        Ok(program)
    }

    /// Compiles programs for this switch, on any thread.
    pub fn compiler(&self) -> Compiler {
        Compiler::new(self.load_options())
    }

    /// Compiles a program (BMv2 JSON) and puts it in place of the running one. All of it happens
    /// in this call, so it is for a switch that forwards no packets meanwhile.
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

    /// Keeps a compiled program beside the running one. Controllers then read and write the staged
    /// program, with tables, groups and sessions of its own, while packets go through the running
    /// one. Returns the program that was staged before. It may be large; drop it where that delays
    /// no packet.
    pub fn stage(&mut self, pipeline: Pipeline) -> Retired {
        let staged = self.prepare(pipeline);
        Retired::new(self.staged.replace(staged))
    }

    /// Puts the staged program, with all that was written to it, in place of the running one,
    /// between two packets. Packets in flight of the old program are dropped and counted
    /// (`pipeline-swap`). Returns the old program, as [`Self::stage`].
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

    /// Removes the staged program, if there is one, and returns it as [`Self::stage`].
    pub fn unstage(&mut self) -> Retired {
        Retired::new(self.staged.take())
    }

    /// A packet from the controller. `frame` begins with the program's packet-out header and
    /// enters the running program's pipeline on the CPU port.
    ///
    /// # Errors
    /// No program runs, the switch has no CPU port, or the frame is too long.
    pub fn packet_out(&mut self, frame: &[u8]) -> ControlResult<()> {
        if self.running.is_none() {
            return Err(no_program());
        }
        let Some(port) = self.config().cpu_port else {
            return Err(ControlError::FailedPrecondition(
                "this switch has no CPU port: start it with --cpu-port".to_owned(),
            ));
        };
        let most = self.config().max_frame_bytes;
        if frame.len() > most {
            return Err(ControlError::InvalidArgument(format!(
                "packet-out: {} bytes given, at most {most} expected",
                frame.len()
            )));
        }
        self.packet_from_controller(port, frame);
        Ok(())
    }

    /// A controller has received a list of digest messages of the running program (also while
    /// another one is staged). From now on, a message of that list is sent again when it recurs. A
    /// list that is unknown, or no longer known, is not an error.
    pub fn digest_acknowledge(&mut self, digest: usize, list_id: u64) {
        if let Some(program) = &mut self.running {
            program.learning.acknowledge(digest, list_id);
        }
    }
}

impl Program {
    /// Tables, arrays, action profiles and value sets.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// As [`Self::pipeline`], for changes. For idle timeouts use [`Self::idle_timeout_set`] and
    /// [`Self::table_restore`], which also schedule the search for idle entries.
    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Forgets a digest's messages, so that each is sent when it recurs. Its settings stay.
    pub fn digest_reset(&mut self, digest: usize) {
        self.learning.reset(digest);
    }

    /// Puts an entry back as [`Pipeline::table_restore`] does.
    ///
    /// # Errors
    /// As [`Pipeline::table_restore`].
    pub fn table_restore(&mut self, table: usize, saved: SavedEntry) -> ControlResult<()> {
        self.pipeline.table_restore(table, saved)?;
        self.schedule_idle_search();
        Ok(())
    }

    /// Sets an entry's idle timeout as [`Pipeline::idle_timeout_set`] does.
    ///
    /// # Errors
    /// As [`Pipeline::idle_timeout_set`].
    pub fn idle_timeout_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        timeout_ns: u64,
    ) -> ControlResult<()> {
        self.pipeline.idle_timeout_set(table, key, timeout_ns)?;
        self.schedule_idle_search();
        Ok(())
    }

    /// Multicast groups.
    pub fn multicast_groups(&self) -> &ReplicaStore<Vec<Replica>> {
        &self.replication.groups
    }

    /// Creates a multicast group. Ids are 1 to 65535.
    ///
    /// # Errors
    /// The group exists, the switch has no such port, a replica is given twice, or there are too
    /// many groups or replicas.
    pub fn multicast_insert(&mut self, group: u32, replicas: Vec<Replica>) -> ControlResult<()> {
        self.check_replicas("multicast group", group, &replicas)?;
        self.replication.groups.insert(group, replicas)
    }

    /// Replaces a group's replicas.
    ///
    /// # Errors
    /// As [`Self::multicast_insert`]; there is no such group.
    pub fn multicast_modify(&mut self, group: u32, replicas: Vec<Replica>) -> ControlResult<()> {
        self.check_replicas("multicast group", group, &replicas)?;
        self.replication.groups.modify(group, replicas)
    }

    /// Deletes a group.
    ///
    /// # Errors
    /// There is no such group.
    pub fn multicast_delete(&mut self, group: u32) -> ControlResult<()> {
        self.replication.groups.delete(group)
    }

    /// Mirror sessions (P4Runtime's clone sessions).
    pub fn clone_sessions(&self) -> &ReplicaStore<CloneSession> {
        &self.replication.mirrors
    }

    /// Creates a mirror session. Ids are 0 to 32767.
    ///
    /// # Errors
    /// As [`Self::multicast_insert`].
    pub fn clone_session_insert(&mut self, id: u32, session: CloneSession) -> ControlResult<()> {
        self.check_replicas("clone session", id, &session.replicas)?;
        self.replication.mirrors.insert(id, session)
    }

    /// Replaces a mirror session.
    ///
    /// # Errors
    /// As [`Self::multicast_insert`]; there is no such session.
    pub fn clone_session_modify(&mut self, id: u32, session: CloneSession) -> ControlResult<()> {
        self.check_replicas("clone session", id, &session.replicas)?;
        self.replication.mirrors.modify(id, session)
    }

    /// Deletes a mirror session.
    ///
    /// # Errors
    /// There is no such session.
    pub fn clone_session_delete(&mut self, id: u32) -> ControlResult<()> {
        self.replication.mirrors.delete(id)
    }

    fn check_replicas(&self, object: &str, id: u32, replicas: &[Replica]) -> ControlResult<()> {
        let ports = replicas.iter().map(|replica| replica.port);
        self.pipeline.check_ports(&format!("{object} {id}"), ports)
    }

    /// The settings for collecting a digest's messages. `None`: they are not collected.
    ///
    /// # Errors
    /// There is no such digest.
    pub fn digest_config(&self, digest: usize) -> ControlResult<Option<DigestConfig>> {
        self.check_digest(digest)?;
        Ok(self.learning.config(digest))
    }

    /// Starts collecting a digest's messages, changes how, or stops (`None`).
    ///
    /// # Errors
    /// There is no such digest.
    pub fn digest_configure(
        &mut self,
        digest: usize,
        config: Option<DigestConfig>,
    ) -> ControlResult<()> {
        self.check_digest(digest)?;
        let now_ns = self.pipeline.now_ns();
        self.learning.configure(digest, config, now_ns);
        Ok(())
    }

    fn check_digest(&self, digest: usize) -> ControlResult<()> {
        if digest < self.pipeline.digests().len() {
            return Ok(());
        }
        Err(ControlError::NotFound(format!("no digest number {digest}")))
    }
}
