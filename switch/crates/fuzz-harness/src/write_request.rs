//! P4Runtime writes: through a server, to a switch that runs a program with every kind of table.

use std::cell::OnceCell;

use p4runtime_server::proto::p4::config::v1 as p4info;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_server::{
    Mappings, ServerConfig, ServerLimits, bind, controller_queues, executor, listen,
};
use prost::Message;
use switch::{Switch, SwitchConfig};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const DEVICE: u64 = 1;
const ELECTION: p4::Uint128 = p4::Uint128 { high: 0, low: 1 };

thread_local! {
    /// A server and its controller; inputs follow each other on it, each on a fresh program.
    static RIG: OnceCell<Rig> = const { OnceCell::new() };
}

struct Rig {
    runtime: tokio::runtime::Runtime,
    client: P4RuntimeClient<Channel>,
    config: p4::ForwardingPipelineConfig,
    _stream: Stream,
}

/// Decodes a `WriteRequest` and writes it as the primary controller, then reads all back.
pub fn write_request(bytes: &[u8]) {
    let Ok(request) = p4::WriteRequest::decode(bytes) else {
        return;
    };
    RIG.with(|rig| rig.get_or_init(Rig::new).run(request));
}

/// A panic in the server (internal) or the switch (unavailable) would be answered so.
fn check<T>(result: Result<T, Status>) {
    if let Err(status) = result {
        let broken = matches!(status.code(), Code::Internal | Code::Unavailable);
        assert!(!broken, "{status:?}");
    }
}

impl Rig {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (_, client, stream) = runtime.block_on(serve());
        let program = "crates/p4runtime-server/tests/programs/kinds";
        let info = crate::files::read(&format!("{program}.p4info.txtpb"));
        Self {
            runtime,
            client,
            config: p4::ForwardingPipelineConfig {
                p4info: Some(parse_p4info(&String::from_utf8_lossy(&info))),
                p4_device_config: crate::files::read(&format!("{program}.json")),
                cookie: None,
            },
            _stream: stream,
        }
    }

    fn run(&self, mut request: p4::WriteRequest) {
        request.device_id = DEVICE;
        request.election_id = Some(ELECTION);
        request.role.clear();
        let mut client = self.client.clone();
        self.runtime.block_on(async {
            use p4::set_forwarding_pipeline_config_request::Action;
            let config = p4::SetForwardingPipelineConfigRequest {
                device_id: DEVICE,
                election_id: Some(ELECTION),
                action: Action::VerifyAndCommit.into(),
                config: Some(self.config.clone()),
                ..Default::default()
            };
            client
                .set_forwarding_pipeline_config(config)
                .await
                .expect("the project's own");
            check(client.write(request).await);
            // Everything that was written can be read.
            let everything = p4::ReadRequest {
                device_id: DEVICE,
                entities: vec![p4::Entity {
                    entity: Some(p4::entity::Entity::TableEntry(p4::TableEntry::default())),
                }],
                ..Default::default()
            };
            let mut responses = client.read(everything).await.expect("read").into_inner();
            while responses.message().await.expect("a response").is_some() {}
        });
    }
}

/// The stream of a primary controller. Being open it keeps the controller primary.
pub(crate) type Stream = (
    mpsc::Sender<p4::StreamMessageRequest>,
    Streaming<p4::StreamMessageResponse>,
);

/// Starts a switch and a server; returns a connection, and on it a client that is the primary
/// controller, with its stream.
pub(crate) async fn serve() -> (Channel, P4RuntimeClient<Channel>, Stream) {
    let (executor, mut jobs) = executor::channel(64, || ());
    let (_, receiver) = controller_queues(64, 64);
    let mut switch = Switch::new(
        SwitchConfig {
            cpu_port: Some(510),
            ..SwitchConfig::default()
        },
        traffic_manager::Limits::default(),
    );
    let compiler = switch.compiler();
    std::thread::spawn(move || while jobs.run_next(&mut switch) {});
    let config = ServerConfig {
        device_id: DEVICE,
        cpu_port: Some(510),
        tls: None,
        only_tls: false,
        token: None,
        holders: None,
        mappings: Mappings::default(),
        limits: ServerLimits::default(),
    };
    let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let server = bind(config, listener, executor, compiler, receiver).expect("binds");
    let uri = format!("http://{}", server.local_addr());
    tokio::spawn(server.run(std::future::pending()));
    let endpoint = Channel::from_shared(uri).expect("an address");
    let channel = endpoint.connect().await.expect("connects");
    let mut client = P4RuntimeClient::new(channel.clone());
    let (requests, asked) = mpsc::channel(4);
    let mut responses = client
        .stream_channel(ReceiverStream::new(asked))
        .await
        .expect("a stream")
        .into_inner();
    let arbitration = p4::MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: Some(ELECTION),
        ..Default::default()
    };
    let update = p4::stream_message_request::Update::Arbitration(arbitration);
    let request = p4::StreamMessageRequest {
        update: Some(update),
    };
    requests.send(request).await.expect("open");
    responses.message().await.expect("primary");
    (channel, client, (requests, responses))
}

/// P4Info in protobuf's text format.
fn parse_p4info(text: &str) -> p4info::P4Info {
    let descriptors = match std::env::var_os("P4RUNTIME_DESCRIPTORS") {
        Some(path) => std::fs::read(path).expect("descriptors"),
        None => crate::files::read("../build/p4runtime.binpb"),
    };
    let pool = prost_reflect::DescriptorPool::decode(descriptors.as_slice()).expect("descriptors");
    let message = pool
        .get_message_by_name("p4.config.v1.P4Info")
        .expect("P4Info");
    let parsed = prost_reflect::DynamicMessage::parse_text_format(message, text).expect("P4Info");
    p4info::P4Info::decode(parsed.encode_to_vec().as_slice()).expect("P4Info")
}
