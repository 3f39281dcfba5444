//! The tests' harness: a switch on its own thread, in virtual time, behind a server on the loopback
//! interface; clients of it; and the compiled programs with their P4Info.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use p4runtime_server::proto::google::rpc;
use p4runtime_server::proto::p4::config::v1 as p4info;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::p4::v1::p4_runtime_client::P4RuntimeClient;

use p4runtime_server::{
    ControllerSender, Executor, Mappings, ServeError, ServerConfig, ServerLimits, Token, bind,
    controller_queues, executor, listen,
};
use prost::Message;
use switch::notification::Notification;
use switch::{Leaving, Sink, Switch, SwitchConfig};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};

/// Device id of the switch under test.
pub const DEVICE: u64 = 3;

/// The token of the switch under test.
pub const TOKEN: &str = "a-token-for-tests-0123456789abcdef";

/// Port of the controller.
pub const CPU_PORT: u16 = 510;

/// An event of the switch.
enum Event {
    /// Jobs of the server wait.
    Jobs,
    /// A frame arrives at a port.
    Frame(u16, Vec<u8>),
    /// A port's interface can carry frames, or cannot.
    Link(u16, bool),
    /// Time advances to this number of nanoseconds.
    Time(u64),
}

/// The receiver of the switch's frames and notifications.
struct Outside {
    controllers: ControllerSender,
    sent: mpsc::UnboundedSender<(u16, Vec<u8>)>,
}

impl Sink for Outside {
    fn transmit(&mut self, frame: &[u8], leaving: Leaving) {
        // A test may have dropped the receiver.
        let _ = self.sent.send((leaving.port, frame.to_vec()));
    }

    fn to_controller(&mut self, frame: &[u8]) {
        self.controllers.packet_in(frame);
    }

    fn notify(&mut self, notification: Notification) -> bool {
        self.controllers.notify(notification)
    }
}

/// A switch with ports 1 and 2 that send at once.
fn new_switch() -> Switch {
    let config = SwitchConfig {
        cpu_port: Some(CPU_PORT),
        max_packets: 1 << 10,
        ..SwitchConfig::default()
    };
    let limits = Limits {
        buffer_bytes: Some(1 << 20),
        ..Limits::default()
    };
    let mut switch = Switch::new(config, limits);
    for port in 1..=2 {
        let config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Wire,
            fifo_bytes: 65_536,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        switch
            .add_port(port, &format!("veth{port}"), config)
            .expect("a new port");
    }
    switch
}

/// A running server.
pub struct Server {
    pub uri: String,
    /// The way to the switch's thread.
    pub executor: Arc<dyn Executor>,
    /// Jobs given to the switch so far.
    pub jobs: watch::Receiver<usize>,
    /// Visits of jobs to the switch so far.
    pub visits: Arc<AtomicUsize>,
    /// The frames that have left the switch, by port.
    pub sent: mpsc::UnboundedReceiver<(u16, Vec<u8>)>,
    events: std::sync::mpsc::Sender<Event>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
    switch: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Self {
        Self::with_limits(ServerLimits::default()).await
    }

    pub async fn with_limits(limits: ServerLimits) -> Self {
        Self::with(limits, None, Mappings::default()).await
    }

    /// A server that has these mappings of translated types.
    pub async fn with_mappings(json: &str) -> Self {
        let mappings = Mappings::from_json(json.as_bytes()).expect("mappings");
        Self::with(ServerLimits::default(), None, mappings).await
    }

    /// A server to which every client is a stranger that does not show [`TOKEN`].
    pub async fn among_strangers(limits: ServerLimits) -> Self {
        Self::with(limits, Some(Vec::new()), Mappings::default()).await
    }

    async fn with(limits: ServerLimits, holders: Option<Vec<u32>>, mappings: Mappings) -> Self {
        let (count, counted) = watch::channel(0);
        let (events, happening) = std::sync::mpsc::channel();
        let waker = events.clone();
        let (executor, mut jobs) = executor::channel(64, move || {
            count.send_modify(|jobs| *jobs += 1);
            // At the end the switch may have gone before.
            let _ = waker.send(Event::Jobs);
        });
        let (controllers, receiver) = controller_queues(64, 64);
        let (out, sent) = mpsc::unbounded_channel();
        let mut switch = new_switch();
        let compiler = switch.compiler();
        let visits = Arc::new(AtomicUsize::new(0));
        let visited = Arc::clone(&visits);
        let mut outside = Outside {
            controllers,
            sent: out,
        };
        let switch = std::thread::spawn(move || {
            let mut now_ns = 0;
            for event in happening {
                switch.poll(now_ns, &mut outside);
                match event {
                    // Every visit is over at the job's first look, as on a busy switch.
                    Event::Jobs => {
                        while jobs.visit(&mut switch, &mut || true) {
                            visited.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Event::Frame(port, frame) => switch.receive(port, &frame, now_ns, now_ns),
                    Event::Link(port, up) => switch.set_port_up(port, up),
                    Event::Time(ns) => now_ns = ns,
                }
                switch.poll(now_ns, &mut outside);
            }
        });
        let config = ServerConfig {
            device_id: DEVICE,
            cpu_port: Some(CPU_PORT.into()),
            tls: None,
            only_tls: false,
            token: Some(Token::new(TOKEN).expect("a token")),
            holders,
            mappings,
            limits,
        };
        let listener = listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let server = bind(config, listener, Arc::clone(&executor), compiler, receiver);
        let server = server.expect("binds");
        let uri = format!("http://{}", server.local_addr());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            uri,
            executor,
            jobs: counted,
            visits,
            sent,
            events,
            stop,
            serving,
            switch,
        }
    }

    /// Visits of jobs to the switch so far.
    pub fn visits(&self) -> usize {
        self.visits.load(Ordering::Relaxed)
    }

    pub async fn channel(&self) -> Channel {
        Channel::from_shared(self.uri.clone())
            .expect("uri")
            .connect()
            .await
            .expect("connects")
    }

    fn happen(&self, event: Event) {
        self.events.send(event).expect("the switch runs");
    }

    /// A frame arrives at a port.
    pub fn arrive(&self, port: u16, frame: &[u8]) {
        self.happen(Event::Frame(port, frame.to_vec()));
    }

    /// A port's interface can carry frames, or cannot.
    pub fn link(&self, port: u16, up: bool) {
        self.happen(Event::Link(port, up));
    }

    /// Advances time to `ns`, which is not before the present.
    pub fn time(&self, ns: u64) {
        self.happen(Event::Time(ns));
    }

    /// The next frame that leaves, with its port.
    pub async fn leave(&mut self) -> (u16, Vec<u8>) {
        self.sent.recv().await.expect("the switch runs")
    }

    /// Ends the server and the switch, and checks that both end well.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.serving.await.expect("no panic").expect("no error");
        drop(self.executor);
        drop(self.events);
        tokio::task::spawn_blocking(move || self.switch.join().expect("no panic"))
            .await
            .expect("no panic");
    }

    /// A primary controller that has pushed `program`.
    pub async fn controller(&self, program: &str) -> Controller {
        let mut controller = Controller::open(self).await;
        controller.arbitrate(1).await.expect("stream open");
        controller
            .push(config(program), Push::VerifyAndCommit)
            .await
            .expect("pipeline accepted");
        controller
    }
}

pub use p4::set_forwarding_pipeline_config_request::Action as Push;

/// A controller with an open stream.
pub struct Controller {
    pub client: P4RuntimeClient<Channel>,
    pub requests: mpsc::Sender<p4::StreamMessageRequest>,
    pub responses: Streaming<p4::StreamMessageResponse>,
    pub election_id: u64,
    pub info: p4info::P4Info,
}

impl Controller {
    pub async fn open(server: &Server) -> Self {
        let mut client = P4RuntimeClient::new(server.channel().await);
        let (requests, receiver) = mpsc::channel(16);
        let responses = client
            .stream_channel(ReceiverStream::new(receiver))
            .await
            .expect("stream opens")
            .into_inner();
        Self {
            client,
            requests,
            responses,
            election_id: 0,
            info: p4info::P4Info::default(),
        }
    }

    /// Sends an arbitration update for the default role and returns the first answer.
    pub async fn arbitrate(
        &mut self,
        election_id: u64,
    ) -> Result<p4::MasterArbitrationUpdate, Status> {
        self.election_id = election_id;
        let update = p4::MasterArbitrationUpdate {
            device_id: DEVICE,
            election_id: Some(election(election_id)),
            ..Default::default()
        };
        self.send(p4::stream_message_request::Update::Arbitration(update))
            .await;
        self.arbitration().await
    }

    pub async fn send(&self, update: p4::stream_message_request::Update) {
        let request = p4::StreamMessageRequest {
            update: Some(update),
        };
        self.requests.send(request).await.expect("stream open");
    }

    pub async fn receive(&mut self) -> Result<p4::stream_message_response::Update, Status> {
        let response = self.responses.message().await?;
        response
            .and_then(|response| response.update)
            .ok_or_else(|| Status::cancelled("stream ended"))
    }

    /// The next message, which is an arbitration update.
    pub async fn arbitration(&mut self) -> Result<p4::MasterArbitrationUpdate, Status> {
        match self.receive().await? {
            p4::stream_message_response::Update::Arbitration(update) => Ok(update),
            other => panic!("an arbitration update expected: {other:?}"),
        }
    }

    pub async fn push(
        &mut self,
        config: p4::ForwardingPipelineConfig,
        action: Push,
    ) -> Result<(), Status> {
        let info = config.p4info.clone().unwrap_or_default();
        self.push_request(Some(config), action).await?;
        self.info = info;
        Ok(())
    }

    pub async fn push_request(
        &mut self,
        config: Option<p4::ForwardingPipelineConfig>,
        action: Push,
    ) -> Result<(), Status> {
        let request = p4::SetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            election_id: Some(election(self.election_id)),
            action: action.into(),
            config,
            ..Default::default()
        };
        self.client.set_forwarding_pipeline_config(request).await?;
        Ok(())
    }

    pub fn request(
        &self,
        updates: Vec<(p4::update::Type, p4::entity::Entity)>,
    ) -> p4::WriteRequest {
        p4::WriteRequest {
            device_id: DEVICE,
            election_id: Some(election(self.election_id)),
            updates: updates
                .into_iter()
                .map(|(kind, entity)| p4::Update {
                    r#type: kind.into(),
                    entity: Some(p4::Entity {
                        entity: Some(entity),
                    }),
                })
                .collect(),
            ..Default::default()
        }
    }

    /// Writes one update; an error is that of the update.
    pub async fn write(
        &mut self,
        kind: p4::update::Type,
        entity: p4::entity::Entity,
    ) -> Result<(), (Code, String)> {
        let request = self.request(vec![(kind, entity)]);
        match self.client.write(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(details(&status).remove(0)),
        }
    }

    pub async fn insert(&mut self, entry: p4::TableEntry) -> Result<(), (Code, String)> {
        self.write(
            p4::update::Type::Insert,
            p4::entity::Entity::TableEntry(entry),
        )
        .await
    }

    pub async fn modify(&mut self, entity: p4::entity::Entity) -> Result<(), (Code, String)> {
        self.write(p4::update::Type::Modify, entity).await
    }

    pub async fn delete(&mut self, entry: p4::TableEntry) -> Result<(), (Code, String)> {
        self.write(
            p4::update::Type::Delete,
            p4::entity::Entity::TableEntry(entry),
        )
        .await
    }

    /// Reads entities; also returns how many messages they came in, and the final status.
    pub async fn read_all(
        &mut self,
        entities: Vec<p4::entity::Entity>,
    ) -> (Vec<p4::entity::Entity>, usize, Result<(), Status>) {
        let request = p4::ReadRequest {
            device_id: DEVICE,
            entities: entities
                .into_iter()
                .map(|entity| p4::Entity {
                    entity: Some(entity),
                })
                .collect(),
            ..Default::default()
        };
        let mut responses = match self.client.read(request).await {
            Ok(responses) => responses.into_inner(),
            Err(status) => return (Vec::new(), 0, Err(status)),
        };
        let mut read = Vec::new();
        let mut messages = 0;
        loop {
            match responses.message().await {
                Ok(Some(response)) => {
                    messages += 1;
                    read.extend(response.entities.into_iter().filter_map(|e| e.entity));
                }
                Ok(None) => return (read, messages, Ok(())),
                Err(status) => return (read, messages, Err(status)),
            }
        }
    }

    pub async fn read(&mut self, entity: p4::entity::Entity) -> Vec<p4::entity::Entity> {
        let (read, _, status) = self.read_all(vec![entity]).await;
        status.expect("read succeeds");
        read
    }

    /// Reads table entries.
    pub async fn entries(&mut self, filter: p4::TableEntry) -> Vec<p4::TableEntry> {
        self.read(p4::entity::Entity::TableEntry(filter))
            .await
            .into_iter()
            .map(|entity| match entity {
                p4::entity::Entity::TableEntry(entry) => entry,
                other => panic!("a table entry expected: {other:?}"),
            })
            .collect()
    }

    /// Reads the entries of all tables but those that stand in the program.
    pub async fn written(&mut self) -> Vec<p4::TableEntry> {
        let mut entries = self.entries(p4::TableEntry::default()).await;
        entries.retain(|entry| !entry.is_const);
        entries
    }

    pub fn table(&self, name: &str) -> u32 {
        id(self.info.tables.iter().map(|t| &t.preamble), name)
    }

    pub fn action(&self, name: &str) -> u32 {
        id(self.info.actions.iter().map(|a| &a.preamble), name)
    }

    pub fn counter(&self, name: &str) -> u32 {
        id(self.info.counters.iter().map(|c| &c.preamble), name)
    }

    pub fn meter(&self, name: &str) -> u32 {
        id(self.info.meters.iter().map(|m| &m.preamble), name)
    }

    pub fn register(&self, name: &str) -> u32 {
        id(self.info.registers.iter().map(|r| &r.preamble), name)
    }

    pub fn register_size(&self, name: &str) -> i32 {
        let wanted = self.register(name);
        let found = |r: &&p4info::Register| r.preamble.as_ref().is_some_and(|p| p.id == wanted);
        self.info.registers.iter().find(found).map_or(0, |r| r.size)
    }

    pub fn profile(&self, name: &str) -> u32 {
        id(self.info.action_profiles.iter().map(|p| &p.preamble), name)
    }

    pub fn value_set(&self, name: &str) -> u32 {
        id(self.info.value_sets.iter().map(|v| &v.preamble), name)
    }

    pub fn digest(&self, name: &str) -> u32 {
        id(self.info.digests.iter().map(|d| &d.preamble), name)
    }

    /// An action with its arguments in order.
    pub fn call(&self, name: &str, arguments: &[&[u8]]) -> Option<p4::TableAction> {
        let params = arguments
            .iter()
            .zip(1..)
            .map(|(value, param_id)| p4::action::Param {
                param_id,
                value: value.to_vec(),
            })
            .collect();
        Some(p4::TableAction {
            r#type: Some(p4::table_action::Type::Action(p4::Action {
                action_id: self.action(name),
                params,
            })),
        })
    }
}

fn id<'a>(preambles: impl Iterator<Item = &'a Option<p4info::Preamble>>, name: &str) -> u32 {
    preambles
        .flatten()
        .find(|preamble| preamble.name == name)
        .unwrap_or_else(|| panic!("{name} is not in P4Info"))
        .id
}

/// The code in an arbitration update's status.
pub fn code(update: &p4::MasterArbitrationUpdate) -> Code {
    Code::from(update.status.as_ref().expect("status").code)
}

pub fn election(low: u64) -> p4::Uint128 {
    p4::Uint128 { high: 0, low }
}

/// The errors inside a status.
pub fn details(status: &Status) -> Vec<(Code, String)> {
    let inner = rpc::Status::decode(status.details()).expect("google.rpc.Status");
    assert_eq!(inner.code, status.code() as i32, "{status:?}");
    inner
        .details
        .iter()
        .map(|any| {
            assert_eq!(any.type_url, "type.googleapis.com/p4.v1.Error");
            let error = p4::Error::decode(any.value.as_slice()).expect("p4.v1.Error");
            (Code::from(error.canonical_code), error.message)
        })
        .collect()
}

pub fn exact(field_id: u32, value: &[u8]) -> p4::FieldMatch {
    field(
        field_id,
        p4::field_match::FieldMatchType::Exact(p4::field_match::Exact {
            value: value.to_vec(),
        }),
    )
}

pub fn lpm(field_id: u32, value: &[u8], prefix_len: i32) -> p4::FieldMatch {
    field(
        field_id,
        p4::field_match::FieldMatchType::Lpm(p4::field_match::Lpm {
            value: value.to_vec(),
            prefix_len,
        }),
    )
}

pub fn ternary(field_id: u32, value: &[u8], mask: &[u8]) -> p4::FieldMatch {
    field(
        field_id,
        p4::field_match::FieldMatchType::Ternary(p4::field_match::Ternary {
            value: value.to_vec(),
            mask: mask.to_vec(),
        }),
    )
}

pub fn range(field_id: u32, low: &[u8], high: &[u8]) -> p4::FieldMatch {
    field(
        field_id,
        p4::field_match::FieldMatchType::Range(p4::field_match::Range {
            low: low.to_vec(),
            high: high.to_vec(),
        }),
    )
}

pub fn optional(field_id: u32, value: &[u8]) -> p4::FieldMatch {
    field(
        field_id,
        p4::field_match::FieldMatchType::Optional(p4::field_match::Optional {
            value: value.to_vec(),
        }),
    )
}

fn field(field_id: u32, given: p4::field_match::FieldMatchType) -> p4::FieldMatch {
    p4::FieldMatch {
        field_id,
        field_match_type: Some(given),
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A compiled program with its P4Info: `pacer`, `gtrcnet` (p4src/compiled), `kinds` or `resources`
/// (tests/programs).
pub fn config(program: &str) -> p4::ForwardingPipelineConfig {
    let folder = match program {
        "kinds" | "resources" => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs"),
        _ => repository().join("p4src/compiled/pacing_switch"),
    };
    let json = std::fs::read(folder.join(format!("{program}.json"))).expect("compiled program");
    let text = std::fs::read_to_string(folder.join(format!("{program}.p4info.txtpb")))
        .expect("compiled program");
    p4::ForwardingPipelineConfig {
        p4info: Some(parse_p4info(&text)),
        p4_device_config: json,
        cookie: Some(p4::forwarding_pipeline_config::Cookie { cookie: 42 }),
    }
}

/// P4Info in protobuf's text format.
fn parse_p4info(text: &str) -> p4info::P4Info {
    let descriptors = std::env::var_os("P4RUNTIME_DESCRIPTORS")
        .map_or_else(|| repository().join("build/p4runtime.binpb"), PathBuf::from);
    let descriptors = std::fs::read(descriptors).expect("descriptors");
    let pool = prost_reflect::DescriptorPool::decode(descriptors.as_slice()).expect("descriptors");
    let message = pool
        .get_message_by_name("p4.config.v1.P4Info")
        .expect("P4Info");
    prost_reflect::DynamicMessage::parse_text_format(message, text)
        .expect("P4Info")
        .transcode_to()
        .expect("P4Info")
}
