//! The limits of clients that have not identified themselves, and of strangers.

use http_body_util::{BodyExt, Full, StreamBody};
use p4::entity::Entity;
use p4runtime_server::ServerLimits;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_server::proto::pacer::v1 as pacer;
use pacer::packet_tracing_client::PacketTracingClient;
use pacer::traffic_manager_client::TrafficManagerClient;
use prost::Message;
use switch::trace::WATCHES_MAX;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower_service::Service;

use crate::roles::bid;
use crate::support::{Controller, DEVICE, Server, TOKEN, election};

/// A request with the token of the switch.
fn with_token<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer {TOKEN}").parse().expect("a header");
    request.metadata_mut().insert("authorization", token);
    request
}

/// The two ends of the stream of a holder that is primary of the default role.
async fn holder(
    server: &Server,
) -> (
    tokio::sync::mpsc::Sender<p4::StreamMessageRequest>,
    tonic::Streaming<p4::StreamMessageResponse>,
) {
    let mut client = P4RuntimeClient::new(server.channel().await);
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let stream = with_token(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let opened = client.stream_channel(stream).await.expect("opens");
    let mut responses = opened.into_inner();
    let update = p4::MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: Some(election(1)),
        ..Default::default()
    };
    let arbitration = p4::StreamMessageRequest {
        update: Some(p4::stream_message_request::Update::Arbitration(update)),
    };
    requests.send(arbitration).await.expect("open");
    responses.message().await.expect("open").expect("an answer");
    (requests, responses)
}

/// The number of refusals of the server for this cause.
async fn refusals(server: &Server, cause: &str) -> u64 {
    let mut client = TrafficManagerClient::new(server.channel().await);
    let request = with_token(pacer::GetStatisticsRequest::default());
    let statistics = client.get_statistics(request).await.expect("read");
    let totals = statistics.into_inner().switch.expect("totals");
    let refusal = totals
        .refusals
        .iter()
        .find(|refusal| refusal.cause == cause);
    refusal.expect("a cause").count
}

/// Calls a method with this body. Nothing of the answer's body is read.
async fn post(channel: &Channel, method: &str, body: Body) -> http::Response<Body> {
    let request = http::Request::post(format!("http://switch/p4.v1.P4Runtime/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request");
    let mut channel = channel.clone();
    std::future::poll_fn(|cx| channel.poll_ready(cx))
        .await
        .expect("connected");
    channel.call(request).await.expect("answered")
}

/// Calls a method with these bytes as its body; they are all of it if it `ends`.
async fn call(channel: &Channel, method: &str, bytes: Vec<u8>, ends: bool) -> Code {
    let mut held = None;
    let body = if ends {
        Body::new(Full::new(bytes.into()))
    } else {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let frame = http_body::Frame::data(bytes::Bytes::from(bytes));
        sender
            .send(Ok::<_, Status>(frame))
            .await
            .expect("the receiver lives");
        // The sender lives on with the call, so that the body does not end.
        held = Some(sender);
        Body::new(StreamBody::new(
            tokio_stream::wrappers::ReceiverStream::new(receiver),
        ))
    };
    let response = post(channel, method, body).await;
    let status = response.headers().get("grpc-status").cloned();
    let status = match status {
        Some(status) => Some(status),
        None => {
            let collected = response.into_body().collect().await.expect("a body");
            let trailers = collected.trailers().cloned().unwrap_or_default();
            trailers.get("grpc-status").cloned()
        }
    };
    let status = status.expect("a status");
    drop(held);
    Code::from_bytes(status.as_bytes())
}

/// A message in the envelope of gRPC.
fn enveloped(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).expect("short");
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

/// Kilobytes of address space that this process uses.
fn address_space_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmSize:"));
    let words = line.expect("in the file").split_ascii_whitespace().nth(1);
    words.expect("a number").parse().expect("a number")
}

#[tokio::test]
async fn a_length_that_is_only_announced_takes_nothing() {
    let server = Server::among_strangers(ServerLimits::default()).await;
    let channel = server.channel().await;
    // A message that is too long for the call is refused at once.
    let announced = [&[0, 3, 0, 0, 0][..], &[0; 64]].concat();
    for method in [
        "Write",
        "Read",
        "GetForwardingPipelineConfig",
        "Capabilities",
    ] {
        let code = call(&channel, method, announced.clone(), false).await;
        assert_eq!(code, Code::OutOfRange, "{method}");
    }
    assert_eq!(refusals(&server, "message-too-long").await, 4);
    // A message with the length of a pipeline config: no memory is reserved for it.
    let before_kb = address_space_kb();
    let mut waiting = Vec::new();
    // The calls are there when no place for another one is left.
    while refusals(&server, "calls-full").await == 0 {
        let (channel, announced) = (channel.clone(), announced.clone());
        waiting.push(tokio::spawn(async move {
            call(&channel, "SetForwardingPipelineConfig", announced, false).await
        }));
    }
    let more_kb = address_space_kb().saturating_sub(before_kb);
    assert!(more_kb < 1_000_000, "{more_kb} KB more");
    for call in waiting {
        call.abort();
    }
    drop(channel);
    server.stop().await;
}

#[tokio::test]
async fn who_is_not_primary_has_no_message_decoded() {
    let server = Server::start().await;
    let channel = server.channel().await;
    // It claims to be primary and is not; the rest of it is no message at all.
    let claims = p4::WriteRequest {
        device_id: DEVICE,
        election_id: Some(election(1)),
        ..Default::default()
    };
    let mut message = claims.encode_to_vec();
    message.extend([0x22, 3, 0xff, 0xff, 0xff]);
    let length = u32::try_from(message.len()).expect("short");
    let body = [&[0], &length.to_be_bytes()[..], &message].concat();
    let code = call(&channel, "Write", body.clone(), true).await;
    assert_eq!(code, Code::PermissionDenied);
    let mut primary = Controller::open(&server).await;
    primary.arbitrate(1).await.expect("open");
    let code = call(&channel, "Write", body, true).await;
    assert_ne!(code, Code::PermissionDenied);
    // Many small parts are counted before they become large.
    let entities = vec![p4::Entity::default(); ServerLimits::default().entities_per_read + 1];
    let request = p4::ReadRequest {
        device_id: DEVICE,
        entities,
        ..Default::default()
    };
    let code = call(&channel, "Read", enveloped(&request), true).await;
    assert_eq!(code, Code::InvalidArgument);
    // A body that is not one message.
    for body in [vec![], vec![0; 4], vec![0, 0, 0, 0, 9], vec![0; 10]] {
        let code = call(&channel, "Write", body, true).await;
        assert_eq!(code, Code::InvalidArgument);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_beside_a_holder_gives_the_switch_no_job() {
    let server = Server::among_strangers(ServerLimits::default()).await;
    let mut stranger = Controller::open(&server).await;
    let _holder = holder(&server).await;
    let channel = server.channel().await;
    let before = *server.jobs.borrow();
    // Refused before the message has come: only its length does.
    for method in ["Write", "SetForwardingPipelineConfig"] {
        let code = call(&channel, method, vec![0, 0, 0, 0, 9], false).await;
        assert_eq!(code, Code::PermissionDenied, "{method}");
    }
    let change = pacer::SetPortRequest {
        port: 1,
        device_id: DEVICE,
        election_id: Some(pacer::ElectionId { high: 0, low: 1 }),
        ..Default::default()
    };
    let mut client = TrafficManagerClient::new(channel.clone());
    let refused = client.set_port(change).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut client = PacketTracingClient::new(channel);
    let dry_run = pacer::DryRunRequest {
        port: 1,
        ..Default::default()
    };
    let refused = client.dry_run(dry_run).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let packet = p4::stream_message_request::Update::Packet(p4::PacketOut::default());
    stranger.send(packet).await;
    let told = stranger.receive().await.expect("open");
    let p4::stream_message_response::Update::Error(refused) = told else {
        panic!("an error expected: {told:?}");
    };
    assert_eq!(Code::from(refused.canonical_code), Code::PermissionDenied);
    assert_eq!(*server.jobs.borrow(), before);
    assert_eq!(refusals(&server, "not-primary").await, 3);
    server.stop().await;
}

#[tokio::test]
async fn what_strangers_take_holders_do_not_miss() {
    let server = Server::among_strangers(ServerLimits {
        stranger_calls: 2,
        stranger_bytes: 1_000,
        ..ServerLimits::default()
    })
    .await;
    let channel = server.channel().await;
    let mut client = P4RuntimeClient::new(channel.clone());
    // More bytes than all strangers together may have.
    let request = p4::ReadRequest {
        device_id: DEVICE,
        entities: vec![p4::Entity::default(); 600],
        ..Default::default()
    };
    let refused = client.read(request.clone()).await.expect_err("too much");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refusals(&server, "bytes-full").await, 1);
    // Holders have a limit of their own, so a holder's read is served.
    let read = client.read(with_token(request)).await.expect("taken in");
    let status = read.into_inner().message().await.expect_err("no program");
    assert_eq!(status.code(), Code::FailedPrecondition);

    // Requests that do not end use up the strangers' limit.
    let mut waiting = Vec::new();
    while refusals(&server, "calls-full").await == 0 {
        let channel = channel.clone();
        waiting.push(tokio::spawn(async move {
            call(&channel, "Write", vec![0, 0, 0, 0, 9], false).await
        }));
    }
    let holder = client.capabilities(with_token(p4::CapabilitiesRequest::default()));
    holder.await.expect("answered");
    for call in waiting {
        call.abort();
    }
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_not_taken_counts_as_a_call() {
    let server = Server::among_strangers(ServerLimits {
        stranger_calls: 2,
        ..ServerLimits::default()
    })
    .await;
    let _controller = server.controller("kinds").await;
    let channel = Channel::from_shared(server.uri.clone()).expect("uri");
    let channel = channel.initial_stream_window_size(1_000).connect().await;
    let channel = channel.expect("connects");
    let request = enveloped(&p4::GetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        ..Default::default()
    });
    let mut answers = Vec::new();
    for _ in 0..2 {
        let body = Body::new(Full::new(request.clone().into()));
        answers.push(post(&channel, "GetForwardingPipelineConfig", body).await);
    }
    let mut client = P4RuntimeClient::new(channel);
    let capabilities = p4::CapabilitiesRequest::default();
    let refused = client.capabilities(capabilities).await;
    let refused = refused.expect_err("two answers are there");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refusals(&server, "calls-full").await, 1);
    for answer in answers {
        let taken = answer.into_body().collect().await.expect("a body");
        assert!(taken.to_bytes().len() > 50_000);
    }
    let another = client.capabilities(capabilities).await;
    another.expect("the answers are taken");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_a_stranger_is_no_primary_beside_a_holder() {
    let server = Server::among_strangers(ServerLimits::default()).await;
    let mut client = P4RuntimeClient::new(server.channel().await);
    let mut request = Request::new(p4::CapabilitiesRequest::default());
    let wrong = "Bearer a-token-of-somebody-else-0123456789".parse();
    request
        .metadata_mut()
        .insert("authorization", wrong.expect("a header"));
    let refused = client.capabilities(request).await.expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(refusals(&server, "no-credentials").await, 1);

    // A stranger alone may do everything, as before.
    let mut stranger = Controller::open(&server).await;
    stranger.arbitrate(u64::MAX).await.expect("open");
    let _holder = holder(&server).await;
    // It is primary with the lower id, and the stranger may not use that id.
    let told = stranger.arbitration().await.expect("open");
    assert_eq!(crate::support::code(&told), Code::AlreadyExists);
    let write = p4::WriteRequest {
        device_id: DEVICE,
        election_id: Some(election(1)),
        updates: vec![p4::Update {
            entity: Some(p4::Entity {
                entity: Some(Entity::TableEntry(p4::TableEntry::default())),
            }),
            ..Default::default()
        }],
        ..Default::default()
    };
    let refused = client.write(write.clone()).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let status = client
        .write(with_token(write))
        .await
        .expect_err("no program");
    assert_eq!(status.code(), Code::FailedPrecondition);
    // No bid makes it primary again.
    let refused = stranger.arbitrate(u64::MAX).await.expect_err("refused");
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refusals(&server, "outbid").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_that_is_primary_of_another_role_changes_nothing_beside_a_holder() {
    let server = Server::among_strangers(ServerLimits::default()).await;
    let mut stranger = Controller::open(&server).await;
    bid(&mut stranger, "other", None).await;
    stranger.arbitration().await.expect("open");
    let mut client = TrafficManagerClient::new(server.channel().await);
    let change = pacer::SetPortRequest {
        port: 1,
        device_id: DEVICE,
        role: "other".to_owned(),
        election_id: Some(pacer::ElectionId { high: 0, low: 1 }),
        fifo_bytes: Some(9_000),
        ..Default::default()
    };
    let alone = client.set_port(change.clone()).await;
    alone.expect("nobody else is there");
    let _holder = holder(&server).await;
    let refused = client.set_port(change).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let told = stranger.arbitration().await.expect("open");
    assert_eq!(crate::support::code(&told), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn a_stranger_traces_no_packets_beside_a_holder() {
    let server = Server::among_strangers(ServerLimits::default()).await;
    let mut client = PacketTracingClient::new(server.channel().await);
    let watch = pacer::WatchRequest {
        count: 1,
        ..Default::default()
    };
    let mut alone = Vec::new();
    for _ in 0..WATCHES_MAX {
        let watched = client.watch(watch.clone()).await;
        alone.push(watched.expect("nobody else is there").into_inner());
    }
    let _holder = holder(&server).await;
    // The watches that strangers have begun before end.
    for mut traces in alone {
        let ended = traces.message().await.expect_err("a stranger");
        assert_eq!(ended.code(), Code::PermissionDenied);
        assert!(ended.message().contains("only they may trace packets"));
        assert_eq!(traces.message().await.expect("the end"), None);
    }
    let refused = client.watch(watch.clone()).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let dry_run = pacer::DryRunRequest {
        port: 1,
        ..Default::default()
    };
    let refused = client.dry_run(dry_run).await.expect_err("a stranger");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut watched = Vec::new();
    for _ in 0..WATCHES_MAX {
        let of_holder = client.watch(with_token(watch.clone())).await;
        watched.push(of_holder.expect("a holder, and all places are free"));
    }
    let refused = refusals(&server, "trace-of-stranger").await;
    assert_eq!(refused, 2 + WATCHES_MAX as u64);
    // The switch runs as long as a watch may end.
    drop(watched);
    server.stop().await;
}

#[tokio::test]
async fn connections_of_strangers_are_limited() {
    let server = Server::among_strangers(ServerLimits {
        stranger_connections: 3,
        ..ServerLimits::default()
    })
    .await;
    let address = server.uri.trim_start_matches("http://").to_owned();
    let first = server.channel().await;
    let silent: Vec<_> = [
        tokio::net::TcpStream::connect(&address)
            .await
            .expect("connects"),
        tokio::net::TcpStream::connect(&address)
            .await
            .expect("connects"),
    ]
    .into();
    let mut third = tokio::net::TcpStream::connect(&address)
        .await
        .expect("connects");
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut third, &mut byte).await;
    assert!(matches!(read, Ok(0) | Err(_)), "closed at once");
    let mut client = TrafficManagerClient::new(first);
    let statistics = client
        .get_statistics(pacer::GetStatisticsRequest::default())
        .await
        .expect("its connection stays");
    let totals = statistics.into_inner().switch.expect("totals");
    let full = totals.refusals.iter();
    let full = full.filter(|r| r.cause == "connections-of-strangers-full");
    assert_eq!(full.map(|r| r.count).sum::<u64>(), 1);
    drop(silent);
    server.stop().await;
}
