//! The gRPC server: binding, limits, and the P4Runtime service itself.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use switch::Compiler;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::beside::Beside;
use crate::connections::{self, Gate, Transports};
use crate::controller_queue::ControllerReceiver;
use crate::executor::Executor;
use crate::intake::{Intake, Pools, caller};
use crate::pipeline_config;
use crate::proto::p4::v1 as p4;
use crate::proto::p4::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use crate::proto::pacer::v1::packet_tracing_server::PacketTracingServer;
use crate::proto::pacer::v1::traffic_manager_server::TrafficManagerServer;
use crate::refusals::Refusals;
use crate::roles::Scope;
use crate::sessions;
use crate::shared::{ServerConfig, Shared};
use crate::stream;
use crate::tls::Tls;
use crate::tm_service::TrafficManagerService;
use crate::tracing_service::PacketTracingService;
use crate::{notifications, read, write};

/// The version of the P4Runtime API served: 1.4.1. (1.5.0 adds backup replicas and forbids
/// device id 0, which is this switch's default.)
pub const P4RUNTIME_API_VERSION: &str = "1.4.1";

/// Most requests of one connection at once. Further ones wait in the client.
const REQUESTS_PER_CONNECTION: u32 = 128;
/// Flow-control window of a connection, in bytes.
const WINDOW_BYTES: u32 = 256 << 10;
/// Longest headers of a request, in bytes.
const HEADER_BYTES: u32 = 16 << 10;
/// Most connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1_024;
/// Most established connections that wait to be served.
const ESTABLISHED_QUEUE: usize = 8;
/// Longest wait for running requests at a shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// Longest time without an answer to a ping, after which a controller's connection is closed and its
/// session ends.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The error with which the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("{}", bind_failed(*addr, error))]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// The socket cannot be used.
    #[error("gRPC server: {0}")]
    Listen(#[source] io::Error),
    /// Certificates or key are invalid.
    #[error("gRPC server: TLS: {0}")]
    Tls(String),
    /// The transport failed.
    #[error("gRPC server: {0}")]
    Transport(#[source] tonic::transport::Error),
}

fn bind_failed(addr: SocketAddr, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse {
        format!("another program listens on {addr}; choose another address with --grpc-server-addr")
    } else {
        format!("gRPC server address {addr}: {error}")
    }
}

/// Opens the address. Clients can connect from then on.
///
/// # Errors
/// [`ServeError::Bind`].
pub fn listen(addr: SocketAddr) -> Result<std::net::TcpListener, ServeError> {
    let open = || {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        SockRef::from(&listener).listen(BACKLOG)?;
        Ok(listener)
    };
    open().map_err(|error| ServeError::Bind { addr, error })
}

/// Prepares a server on `listener` ([`listen`]); [`BoundServer::run`] then answers clients. `executor`
/// runs work on the switch's thread, `compiler` compiles programs for the switch, and `controllers` is
/// the server's end of the queues that the switch fills. Called within a runtime.
///
/// # Errors
/// [`ServeError::Tls`].
pub fn bind(
    config: ServerConfig,
    listener: std::net::TcpListener,
    executor: Arc<dyn Executor>,
    compiler: Compiler,
    controllers: ControllerReceiver,
) -> Result<BoundServer, ServeError> {
    let transport = Server::builder()
        .max_concurrent_streams(Some(REQUESTS_PER_CONNECTION))
        .initial_connection_window_size(Some(WINDOW_BYTES))
        .initial_stream_window_size(Some(WINDOW_BYTES))
        .http2_max_header_list_size(Some(HEADER_BYTES))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    let tls = config.tls.as_ref().map(Tls::acceptor).transpose();
    let transports = Transports {
        tls: tls.map_err(ServeError::Tls)?,
        only_tls: config.only_tls,
        users: config.holders.clone(),
    };
    let listener = TcpListener::from_std(listener).map_err(ServeError::Listen)?;
    let local_addr = listener.local_addr().map_err(ServeError::Listen)?;
    let (shutdown, down) = watch::channel(false);
    let shared = Arc::new(Shared::new(
        config,
        executor,
        compiler,
        controllers.counters(),
        down,
    ));
    Ok(BoundServer {
        shared,
        transport,
        transports,
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
    transports: Transports,
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

    /// For another control server on the same switch.
    pub fn beside(&self) -> Beside {
        Beside::new(Arc::clone(&self.shared))
    }

    /// Counters of the server's refusals.
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.shared.refusals)
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
            transports,
            listener,
            controllers,
            shutdown: down,
            ..
        } = self;
        let limits = &shared.config.limits;
        let service = || {
            P4RuntimeServer::new(Service {
                shared: Arc::clone(&shared),
            })
            .max_encoding_message_size(usize::MAX)
        };
        let pools = Pools::new(limits);
        // The intake bounds the messages of single calls, each by its own limit.
        let unary = service().max_decoding_message_size(usize::MAX);
        let streams = service().max_decoding_message_size(limits.stream_message_bytes);
        let p4runtime = Intake::new(Arc::clone(&shared), pools.clone(), unary, streams);
        let traffic_manager =
            TrafficManagerServer::new(TrafficManagerService::new(Arc::clone(&shared)));
        let traffic_manager = Intake::new(
            Arc::clone(&shared),
            pools.clone(),
            traffic_manager.clone(),
            traffic_manager,
        );
        let packet_tracing =
            PacketTracingServer::new(PacketTracingService::new(Arc::clone(&shared)));
        let packet_tracing = Intake::new(
            Arc::clone(&shared),
            pools,
            packet_tracing.clone(),
            packet_tracing,
        );
        let (established, connections) = mpsc::channel(ESTABLISHED_QUEUE);
        let gate = Gate::new(transports, limits, Arc::clone(&shared.refusals));
        let accepting = tokio::spawn(connections::accept(listener, gate, established));
        let mut going_down = shared.shutdown.clone();
        let ControllerReceiver {
            packet_ins,
            notifications: notification_queue,
            ..
        } = controllers;
        let packets = tokio::spawn(stream::pass_packet_ins(Arc::clone(&shared), packet_ins));
        let notifications =
            tokio::spawn(notifications::pass(Arc::clone(&shared), notification_queue));
        let serving = transport
            .add_service(p4runtime)
            .add_service(traffic_manager)
            .add_service(packet_tracing)
            .serve_with_incoming_shutdown(ReceiverStream::new(connections), async move {
                // An error means the sender is gone, which is a shutdown too.
                let _ = going_down.wait_for(|down| *down).await;
            });
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
        accepting.abort();
        // These tasks watch the shutdown too, and end at once.
        let _ = packets.await;
        let _ = notifications.await;
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
        let caller = caller(&request)?;
        write::run(Arc::clone(&self.shared), caller, request.into_inner()).await?;
        Ok(Response::new(p4::WriteResponse {}))
    }

    type ReadStream = ReceiverStream<Result<p4::ReadResponse, Status>>;

    async fn read(
        &self,
        request: Request<p4::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        self.shared.check_device(request.device_id)?;
        let places = self.shared.enter_read(caller.client.standing)?;
        let (sender, receiver) = mpsc::channel(2);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            read::run(shared, request, sender, places).await;
            drop(caller.taken);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        let client = caller(&request)?.client;
        let request = request.into_inner();
        let shared = Arc::clone(&self.shared);
        shared.check_primary(
            client.standing,
            request.device_id,
            &request.role,
            request.election_id.as_ref(),
        )?;
        // A task of its own, as for a write, so that it completes even if the client disconnects.
        let task = tokio::spawn(async move {
            let mut state = shared.pipeline.write().await;
            let _changing = shared.begin(
                client,
                request.device_id,
                &request.role,
                request.election_id.as_ref(),
            )?;
            let what = "set the forwarding pipeline config";
            shared.check_role(&request.role, Scope::may_set_pipeline, what)?;
            shared.note_writer(client, &request.role, request.election_id.as_ref());
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
        pipeline_config::get(&self.shared, &state, request.response_type)
            .await
            .map(Response::new)
    }

    type StreamChannelStream = ReceiverStream<sessions::Response>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let standing = caller(&request)?.client.standing;
        let receiver = stream::open(Arc::clone(&self.shared), standing, request.into_inner())?;
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
