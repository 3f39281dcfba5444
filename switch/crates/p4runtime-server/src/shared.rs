//! State that the server's tasks share, and the server's settings.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use switch::Compiler;
use tokio::sync::{Semaphore, watch};
use tonic::Status;

use crate::arbitration::Arbitration;
use crate::controller_queue::ControllerCounters;
use crate::executor::Executor;
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::sessions::Sessions;
use crate::state::{ForwardingPipeline, PipelineState};
use crate::tls::Tls;

/// Limits of the server. Each has an error text that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Largest message received, in bytes (a pipeline config is the largest).
    pub message_bytes: usize,
    /// Most updates in one `WriteRequest`.
    pub updates_per_write: usize,
    /// Most reads under way at once.
    pub reads: usize,
    /// Most open `StreamChannel`s.
    pub streams: usize,
    /// Most live controllers of one role.
    pub controllers_per_role: usize,
    /// Most messages that wait for one controller. Further packet-ins are dropped and counted.
    pub messages_per_stream: usize,
    /// Longest `metadata` of an entity, in bytes.
    pub metadata_bytes: usize,
    /// Longest payload of a packet-out, in bytes.
    pub packet_out_bytes: usize,
    /// Most bytes of memory for the old values of arrays that an atomic batch writes whole.
    pub rollback_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            updates_per_write: 65_536,
            reads: 64,
            streams: 64,
            controllers_per_role: 16,
            messages_per_stream: 1_024,
            metadata_bytes: 1_024,
            packet_out_bytes: 16_384,
            rollback_bytes: 64 << 20,
        }
    }
}

/// Settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// P4Runtime device id. Requests for another are refused with `NOT_FOUND`.
    pub device_id: u64,
    /// Address to listen on. With port 0 the kernel chooses a port, which
    /// [`crate::BoundServer::local_addr`] returns.
    pub addr: SocketAddr,
    /// The port that packets to and from the controller use. `None`: packet-outs are refused.
    pub cpu_port: Option<u32>,
    /// TLS. `None`: connections are plain.
    pub tls: Option<Tls>,
    /// Limits.
    pub limits: ServerLimits,
}

/// State that the server's tasks share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) compiler: Compiler,
    /// Held while an arbitration update is handled, waiting for writes included.
    pub(crate) deciding: tokio::sync::Mutex<()>,
    /// Reads share it, writes have it alone: a read sees each write done or not begun.
    pub(crate) pipeline: tokio::sync::RwLock<PipelineState>,
    /// The role whose `Write` or `SetForwardingPipelineConfig` is carried out. Requests that wait for
    /// the pipeline are checked again when their turn comes ([`Shared::begin`]).
    changing: watch::Sender<Option<String>>,
    /// A permit per read under way.
    pub(crate) reads: Arc<Semaphore>,
    /// Never held across an await.
    sessions: Mutex<Sessions>,
    /// The committed pipeline, for the streams.
    pub(crate) forwarding: watch::Sender<Option<ForwardingPipeline>>,
    pub(crate) counters: Arc<ControllerCounters>,
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
            reads: Arc::new(Semaphore::new(limits.reads.min(Semaphore::MAX_PERMITS))),
            sessions: Mutex::new(Sessions::new(arbitration)),
            forwarding: watch::Sender::new(None),
            counters,
            shutdown,
            config,
        }
    }

    /// The streams and their arbitration. A panic elsewhere leaves them consistent, because every
    /// change under the lock is completed by small infallible steps.
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_primary(
        &self,
        device_id: u64,
        role: &str,
        election_id: Option<&p4::Uint128>,
    ) -> Result<(), Status> {
        self.sessions()
            .arbitration
            .check_primary(device_id, role, election_id)
    }

    /// Begins a primary's change, with the pipeline's lock held. The role's next primary waits until
    /// the guard is gone.
    ///
    /// # Errors
    /// Those of [`Arbitration::check_primary`]. Another controller may have become primary since the
    /// request came.
    pub(crate) fn begin(
        &self,
        device_id: u64,
        role: &str,
        election_id: Option<&p4::Uint128>,
    ) -> Result<Changing<'_>, Status> {
        let sessions = self.sessions();
        sessions
            .arbitration
            .check_primary(device_id, role, election_id)?;
        // Set under the lock of the sessions, so that a primary chosen from now on sees it.
        self.changing.send_replace(Some(role.to_owned()));
        Ok(Changing(&self.changing))
    }

    /// Waits until no change is under way that a primary of this role has begun.
    pub(crate) async fn unchanging(&self, role: &str) {
        let mut changing = self.changing.subscribe();
        // The sender belongs to `self`, so it cannot be gone.
        let _ = changing
            .wait_for(|busy| busy.as_deref() != Some(role))
            .await;
    }

    /// The permissions of a role.
    pub(crate) fn scope(&self, role: &str) -> Arc<Scope> {
        self.sessions().arbitration.scope(role)
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
