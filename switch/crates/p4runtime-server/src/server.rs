//! The gRPC server: binding, limits, and the P4Runtime service itself.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use switch::Compiler;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::arbitration::Arbitration;
use crate::controller_queue::{ControllerCounters, ControllerReceiver};
use crate::executor::Executor;
use crate::pipeline_config::{self, Current, PipelineState};
use crate::proto::p4::v1 as p4;
use crate::proto::p4::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use crate::proto::pacer::v1::traffic_manager_server::TrafficManagerServer;
use crate::roles::Scope;
use crate::stream::{self, Sessions};
use crate::tls::Tls;
use crate::tm_service::TrafficManagerService;
use crate::{notifications, read, write};

/// The version of the P4Runtime API served: 1.4.1. (1.5.0 adds backup replicas and forbids
/// device id 0, which is this switch's default.)
pub const P4RUNTIME_API_VERSION: &str = "1.4.1";

/// Requests that one connection may have under way; further ones wait in the client.
const REQUESTS_PER_CONNECTION: u32 = 128;
/// How long the server waits for running requests when it shuts down.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// A controller's connection that answers no ping for this long is closed, and its session with
/// it.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Limits of the server; every one has an error text that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
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
    /// Messages that may wait for one controller; further packet-ins are dropped and counted.
    pub messages_per_stream: usize,
    /// Longest `metadata` of an entity, in bytes.
    pub metadata_bytes: usize,
    /// Longest payload of a packet-out, in bytes.
    pub packet_out_bytes: usize,
    /// Most memory for what arrays held that an atomic batch writes whole, in bytes.
    pub rollback_bytes: usize,
}

impl Default for Limits {
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

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// P4Runtime device id; requests for another are refused with `NOT_FOUND`.
    pub device_id: u64,
    /// Where to listen; port 0 lets the kernel choose ([`BoundServer::local_addr`] tells).
    pub addr: SocketAddr,
    /// The port that packets to and from the controller use; `None`: packet-outs are refused.
    pub cpu_port: Option<u32>,
    /// TLS; `None`: connections are plain.
    pub tls: Option<Tls>,
    /// Limits.
    pub limits: Limits,
}

/// Why the server did not come up or ended.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be bound.
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Certificates or key are of no use.
    Tls(String),
    /// The transport failed.
    Transport(tonic::transport::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind { addr, source } => write!(f, "gRPC server address {addr}: {source}"),
            Self::Tls(error) => write!(f, "gRPC server: TLS: {error}"),
            Self::Transport(error) => write!(f, "gRPC server: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } => Some(source),
            Self::Tls(_) => None,
            Self::Transport(error) => Some(error),
        }
    }
}

/// What the server's tasks share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) compiler: Compiler,
    /// Held while an arbitration update is handled, waiting for writes included.
    pub(crate) deciding: tokio::sync::Mutex<()>,
    /// Reads share it, writes have it alone: a read sees each write done or not begun.
    pub(crate) pipeline: tokio::sync::RwLock<PipelineState>,
    /// The role whose `Write` or `SetForwardingPipelineConfig` is carried out; those that wait for
    /// the pipeline are checked again when their turn comes ([`Shared::begin`]).
    changing: watch::Sender<Option<String>>,
    /// A permit per read under way.
    reads: Arc<Semaphore>,
    /// Never held across an await.
    sessions: Mutex<Sessions>,
    /// The committed pipeline, for the streams.
    pub(crate) current: watch::Sender<Option<Current>>,
    pub(crate) counters: Arc<ControllerCounters>,
    /// Becomes true when the server is to end.
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl Shared {
    /// The streams and their arbitration. A panic elsewhere leaves them consistent: every
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

    /// Begins what only the primary may do, with the pipeline's lock held: its role's next primary
    /// waits until the guard is gone.
    ///
    /// # Errors
    /// Those of [`Arbitration::check_primary`]: since the request came, another controller may have
    /// become primary.
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
        // Under the lock of the sessions: whoever is chosen from now on finds it.
        self.changing.send_replace(Some(role.to_owned()));
        Ok(Changing(&self.changing))
    }

    /// Waits until nothing is under way that a primary of this role has begun.
    pub(crate) async fn unchanging(&self, role: &str) {
        let mut changing = self.changing.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = changing
            .wait_for(|busy| busy.as_deref() != Some(role))
            .await;
    }

    /// What a role may do.
    pub(crate) fn scope(&self, role: &str) -> Arc<Scope> {
        self.sessions().arbitration.scope(role)
    }

    fn check_device(&self, device_id: u64) -> Result<(), Status> {
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

/// Binds the address, so that clients can connect from here on; [`BoundServer::run`] answers
/// them. `executor` leads to the switch, `compiler` compiles for it; `controllers` is the server's
/// end of the queues that the data plane fills.
///
/// # Errors
/// [`ServeError::Bind`], [`ServeError::Tls`].
pub async fn bind(
    config: ServerConfig,
    executor: Arc<dyn Executor>,
    compiler: Compiler,
    controllers: ControllerReceiver,
) -> Result<BoundServer, ServeError> {
    let addr = config.addr;
    let bind_error = |source| ServeError::Bind { addr, source };
    let mut transport = Server::builder()
        .max_concurrent_streams(Some(REQUESTS_PER_CONNECTION))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    if let Some(tls) = &config.tls {
        transport = tls.applied_to(transport).map_err(ServeError::Tls)?;
    }
    let listener = TcpListener::bind(addr).await.map_err(bind_error)?;
    let local_addr = listener.local_addr().map_err(bind_error)?;
    let (shutdown, down) = watch::channel(false);
    let reads = Arc::new(Semaphore::new(
        config.limits.reads.min(Semaphore::MAX_PERMITS),
    ));
    let arbitration = Arbitration::new(config.device_id, config.limits.controllers_per_role);
    let shared = Arc::new(Shared {
        config,
        executor,
        compiler,
        deciding: tokio::sync::Mutex::new(()),
        pipeline: tokio::sync::RwLock::new(PipelineState::default()),
        changing: watch::Sender::new(None),
        reads,
        sessions: Mutex::new(Sessions::new(arbitration)),
        current: watch::Sender::new(None),
        counters: controllers.counters(),
        shutdown: down,
    });
    Ok(BoundServer {
        shared,
        transport,
        listener,
        local_addr,
        controllers,
        shutdown,
    })
}

/// A server that is bound and not yet running.
pub struct BoundServer {
    shared: Arc<Shared>,
    transport: Server,
    listener: TcpListener,
    local_addr: SocketAddr,
    controllers: ControllerReceiver,
    shutdown: watch::Sender<bool>,
}

impl BoundServer {
    /// The address bound, with the port the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until `shutdown` is ready; then open streams end with `UNAVAILABLE`, running
    /// requests get 2 s to end, and it returns.
    ///
    /// # Errors
    /// [`ServeError::Transport`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self {
            shared,
            mut transport,
            listener,
            controllers,
            shutdown: down,
            ..
        } = self;
        let most = shared.config.limits.message_bytes;
        let p4runtime = P4RuntimeServer::new(Service {
            shared: Arc::clone(&shared),
        })
        .max_decoding_message_size(most)
        .max_encoding_message_size(usize::MAX);
        let traffic_manager = TrafficManagerServer::new(TrafficManagerService::new(
            Arc::clone(&shared.executor),
            Arc::clone(&shared.counters),
        ));
        let mut going_down = shared.shutdown.clone();
        let ControllerReceiver {
            packet_ins,
            notifications,
            ..
        } = controllers;
        let packets = tokio::spawn(stream::pass_packet_ins(Arc::clone(&shared), packet_ins));
        let telling = tokio::spawn(notifications::pass(Arc::clone(&shared), notifications));
        let serving = transport
            .add_service(p4runtime)
            .add_service(traffic_manager)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                async move {
                    // An error means the sender is gone, which is a shutdown too.
                    let _ = going_down.wait_for(|down| *down).await;
                },
            );
        tokio::pin!(serving);
        let result = tokio::select! {
            result = &mut serving => result,
            () = shutdown => {
                down.send_replace(true);
                tokio::time::timeout(SHUTDOWN_LIMIT, &mut serving)
                    .await
                    .unwrap_or(Ok(()))
            }
        };
        down.send_replace(true);
        // They watch the shutdown too, and end at once.
        let _ = packets.await;
        let _ = telling.await;
        result.map_err(ServeError::Transport)
    }
}

/// The P4Runtime service.
struct Service {
    shared: Arc<Shared>,
}

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(
        &self,
        request: Request<p4::WriteRequest>,
    ) -> Result<Response<p4::WriteResponse>, Status> {
        write::run(Arc::clone(&self.shared), request.into_inner()).await?;
        Ok(Response::new(p4::WriteResponse {}))
    }

    type ReadStream = ReceiverStream<Result<p4::ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<p4::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        self.shared.check_device(request.device_id)?;
        let permit = Arc::clone(&self.shared.reads)
            .try_acquire_owned()
            .map_err(|_| {
                Status::resource_exhausted(format!(
                    "the limit of {} reads at once is reached",
                    self.shared.config.limits.reads
                ))
            })?;
        let (sender, receiver) = mpsc::channel(2);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            read::run(shared, request, sender, permit).await;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let shared = Arc::clone(&self.shared);
        shared.check_primary(
            request.device_id,
            &request.role,
            request.election_id.as_ref(),
        )?;
        if !shared.scope(&request.role).may_set_pipeline() {
            return Err(Status::permission_denied(format!(
                "role {:?} may not set the forwarding pipeline config",
                request.role
            )));
        }
        // On a task of its own, for the same reason as a write.
        let task = tokio::spawn(async move {
            let mut state = shared.pipeline.write().await;
            let _changing = shared.begin(
                request.device_id,
                &request.role,
                request.election_id.as_ref(),
            )?;
            pipeline_config::set(&shared, &mut state, request.action, request.config).await
        });
        task.await
            .map_err(|error| Status::internal(format!("the request was cut short: {error}")))??;
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.shared.check_device(request.device_id)?;
        let state = self.shared.pipeline.read().await;
        pipeline_config::get(&state, request.response_type).map(Response::new)
    }

    type StreamChannelStream = ReceiverStream<stream::Response>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let receiver = stream::open(Arc::clone(&self.shared), request.into_inner())?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn capabilities(
        &self,
        request: Request<p4::CapabilitiesRequest>,
    ) -> Result<Response<p4::CapabilitiesResponse>, Status> {
        let device_id = request.into_inner().device_id;
        if device_id != 0 {
            self.shared.check_device(device_id)?;
        }
        Ok(Response::new(p4::CapabilitiesResponse {
            p4runtime_api_version: P4RUNTIME_API_VERSION.to_owned(),
            experimental: None,
        }))
    }
}
