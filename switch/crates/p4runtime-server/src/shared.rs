//! State that the server's tasks share, and the server's settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use switch::Compiler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::Status;

use crate::arbitration::{Arbitration, election_value};
use crate::controller_queue::ControllerCounters;
use crate::executor::Executor;
use crate::proto::p4::v1 as p4;
use crate::refusals::{Refusal, Refusals};
use crate::roles::Scope;
use crate::sessions::Sessions;
use crate::standing::{Client, Standing};
use crate::state::{ForwardingPipeline, PipelineState};
use crate::tls::Tls;
use crate::token::Token;
use crate::translate::Mappings;

/// Limits of the server. Each has an error text that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Largest pipeline config received, in bytes.
    pub pipeline_bytes: usize,
    /// Largest `WriteRequest` received, in bytes.
    pub message_bytes: usize,
    /// Largest `ReadRequest` received, in bytes.
    pub read_bytes: usize,
    /// Most entities named in one `ReadRequest`.
    pub entities_per_read: usize,
    /// Largest message of a stream received, in bytes.
    pub stream_message_bytes: usize,
    /// Most connections of holders ([`Standing::Holder`]).
    pub connections: usize,
    /// Most connections of strangers, which are on this machine.
    pub stranger_connections: usize,
    /// Most connections from other machines before their handshake ends.
    pub handshakes: usize,
    /// Most of these from one address.
    pub handshakes_per_address: usize,
    /// Most connections from other machines without a certificate, until a call shows the token.
    pub remote_connections: usize,
    /// Most of these from one address.
    pub remote_connections_per_address: usize,
    /// Most calls of holders under way at once, each until its answer is taken; streams do not count.
    pub calls: usize,
    /// Most calls of strangers under way at once.
    pub stranger_calls: usize,
    /// Most bytes of requests of holders that are held at once.
    pub bytes: usize,
    /// Most bytes of requests of strangers that are held at once.
    pub stranger_bytes: usize,
    /// Most updates in one `WriteRequest`.
    pub updates_per_write: usize,
    /// Most reads under way at once. Strangers may have half of them.
    pub reads: usize,
    /// Most open `StreamChannel`s. Strangers may have half of them.
    pub streams: usize,
    /// Most live controllers of one role. Strangers may be half of them.
    pub controllers_per_role: usize,
    /// Most messages that wait for one controller. Further packet-ins are dropped and counted.
    pub messages_per_stream: usize,
    /// Longest `metadata` of an entity, in bytes.
    pub metadata_bytes: usize,
    /// Longest payload of a packet-out, in bytes.
    pub packet_out_bytes: usize,
    /// Most bytes of memory for the old values of arrays that an atomic batch writes whole.
    pub rollback_bytes: usize,
    /// Most work of a batch that is carried out between two packets (`DATAPLANE_ATOMIC`), in units
    /// of some microseconds: an update is one; a whole array is one for each 256 cells, of a meter
    /// for each cell.
    pub atomic_work: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            pipeline_bytes: 64 << 20,
            message_bytes: 4 << 20,
            read_bytes: 512 << 10,
            entities_per_read: 16_384,
            stream_message_bytes: 256 << 10,
            connections: 256,
            stranger_connections: 64,
            handshakes: 32,
            handshakes_per_address: 8,
            remote_connections: 64,
            remote_connections_per_address: 32,
            calls: 512,
            stranger_calls: 32,
            bytes: 256 << 20,
            stranger_bytes: 72 << 20,
            updates_per_write: 65_536,
            reads: 64,
            streams: 64,
            controllers_per_role: 16,
            messages_per_stream: 1_024,
            metadata_bytes: 1_024,
            packet_out_bytes: 16_384,
            rollback_bytes: 64 << 20,
            atomic_work: 256,
        }
    }
}

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// P4Runtime device id. Requests for another are refused with `NOT_FOUND`.
    pub device_id: u64,
    /// The port that packets to and from the controller use. `None`: packet-outs are refused.
    pub cpu_port: Option<u32>,
    /// TLS. `None`: connections are plain.
    pub tls: Option<Tls>,
    /// Refuse plain connections. Otherwise clients may use both, at the same port; those on other
    /// machines need TLS.
    pub only_tls: bool,
    /// The token that a client may give instead of a certificate, over TLS or on this machine.
    pub token: Option<Token>,
    /// The users whose processes on this machine are holders. `None`: all users.
    pub holders: Option<Vec<u32>>,
    /// The values of translated types.
    pub mappings: Mappings,
    /// Limits.
    pub limits: ServerLimits,
}

/// Shares of limits, which are held until they are dropped.
pub(crate) type Places = Vec<OwnedSemaphorePermit>;

fn permits(most: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

/// State that the server's tasks share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) compiler: Compiler,
    /// Held while an arbitration update is handled, including the wait for writes.
    pub(crate) deciding: tokio::sync::Mutex<()>,
    /// Reads share the lock and writes hold it alone, so a read sees each write as a whole or not at
    /// all.
    pub(crate) pipeline: tokio::sync::RwLock<PipelineState>,
    /// The role whose `Write` or `SetForwardingPipelineConfig` is under way. Requests that wait for the
    /// pipeline are checked again when they get it ([`Shared::begin`]).
    changing: watch::Sender<Option<String>>,
    /// A permit per read under way, and one per read of a stranger.
    reads: Arc<Semaphore>,
    stranger_reads: Arc<Semaphore>,
    /// Never held across an await.
    sessions: Mutex<Sessions>,
    /// Becomes true when a holder has bid to be primary for the first time.
    pub(crate) has_holder: watch::Sender<bool>,
    /// The committed pipeline, for the streams.
    pub(crate) forwarding: watch::Sender<Option<ForwardingPipeline>>,
    pub(crate) counters: Arc<ControllerCounters>,
    pub(crate) refusals: Arc<Refusals>,
    /// Becomes true when the server is to end.
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl Shared {
    pub(crate) fn new(
        config: ServerConfig,
        executor: Arc<dyn Executor>,
        compiler: Compiler,
        counters: Arc<ControllerCounters>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let limits = &config.limits;
        let arbitration = Arbitration::new(config.device_id, limits.controllers_per_role);
        Self {
            executor,
            compiler,
            deciding: tokio::sync::Mutex::new(()),
            pipeline: tokio::sync::RwLock::new(PipelineState::default()),
            changing: watch::Sender::new(None),
            reads: permits(limits.reads),
            stranger_reads: permits(limits.reads / 2),
            sessions: Mutex::new(Sessions::new(arbitration)),
            has_holder: watch::Sender::new(false),
            forwarding: watch::Sender::new(None),
            counters,
            refusals: Arc::default(),
            shutdown,
            config,
        }
    }

    /// The shares of the limits for a read.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: a limit is reached.
    pub(crate) fn enter_read(&self, standing: Standing) -> Result<Places, Status> {
        let strangers = (standing == Standing::Stranger).then_some(&self.stranger_reads);
        let wanted = [Some(&self.reads), strangers];
        let places = wanted.into_iter().flatten().map(|permits| {
            Arc::clone(permits).try_acquire_owned().map_err(|_| {
                self.refusals.count(Refusal::ReadsFull);
                Status::resource_exhausted(format!(
                    "the limit of {} reads at once is reached",
                    self.config.limits.reads
                ))
            })
        });
        places.collect()
    }

    /// The streams and their arbitration. A panic elsewhere leaves them consistent, because every
    /// change under the lock is completed by small infallible steps.
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_primary(
        &self,
        standing: Standing,
        device_id: u64,
        role: &str,
        election_id: Option<&p4::Uint128>,
    ) -> Result<(), Status> {
        let sessions = self.sessions();
        self.counted(
            sessions
                .arbitration
                .check_primary(standing, device_id, role, election_id),
        )
    }

    /// Counts a refusal of a call that did not come from a primary controller.
    fn counted(&self, checked: Result<(), Status>) -> Result<(), Status> {
        checked.inspect_err(|_| self.refusals.count(Refusal::NotPrimary))
    }

    /// Begins a primary's change, with the pipeline's lock held. The role's next primary waits until
    /// the guard is gone, and so does a primary that takes rights from the role.
    ///
    /// # Errors
    /// Those of [`Arbitration::check_primary`]. Another controller may have become primary since the
    /// request came.
    pub(crate) fn begin(
        &self,
        client: Client,
        device_id: u64,
        role: &str,
        election_id: Option<&p4::Uint128>,
    ) -> Result<Changing<'_>, Status> {
        let sessions = self.sessions();
        let standing = client.standing;
        self.counted(
            sessions
                .arbitration
                .check_primary(standing, device_id, role, election_id),
        )?;
        // Set under the lock of the sessions, so that a primary chosen from now on sees it.
        self.changing.send_replace(Some(role.to_owned()));
        Ok(Changing(&self.changing))
    }

    /// Notes whose change was accepted, once it has begun and its role may make it.
    pub(crate) fn note_writer(
        &self,
        client: Client,
        role: &str,
        election_id: Option<&p4::Uint128>,
    ) {
        // A primary has an election id.
        let election_id = election_id.map_or(0, election_value);
        let mut sessions = self.sessions();
        sessions.writers.note(role, election_id, client.address);
    }

    /// Waits until the change that is under way has ended, if it is by a primary of a role that is
    /// `concerned`.
    pub(crate) async fn unchanging(&self, concerned: impl FnOnce(&str) -> bool) {
        let mut changing = self.changing.subscribe();
        let is_under_way = changing
            .borrow_and_update()
            .as_deref()
            .is_some_and(concerned);
        if is_under_way {
            // The sender belongs to `self`, so it cannot be gone.
            let _ = changing.changed().await;
        }
    }

    /// Whether a client may do more than read: a stranger may, as long as no holder has ever bid to be
    /// primary.
    pub(crate) fn may_act(&self, standing: Standing) -> bool {
        standing == Standing::Holder || !self.sessions().arbitration.has_holder()
    }

    /// The permissions of a role.
    pub(crate) fn scope(&self, role: &str) -> Arc<Scope> {
        self.sessions().arbitration.scope(role)
    }

    /// Checks a permission of a role, for a change that has begun ([`Shared::begin`]): until then another
    /// role's config may take it. `what` is for the error.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn check_role(
        &self,
        role: &str,
        may: impl FnOnce(&Scope) -> bool,
        what: &str,
    ) -> Result<(), Status> {
        if may(&self.scope(role)) {
            return Ok(());
        }
        self.refusals.count(Refusal::Role);
        Err(Status::permission_denied(format!(
            "role {role:?} may not {what}"
        )))
    }

    pub(crate) fn check_device(&self, device_id: u64) -> Result<(), Status> {
        self.sessions().arbitration.check_device(device_id)
    }
}

/// A primary's change is under way as long as this lives.
pub(crate) struct Changing<'a>(&'a watch::Sender<Option<String>>);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}
