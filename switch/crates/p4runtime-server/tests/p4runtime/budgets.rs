//! The limits of a request's work and time: jobs share the switch's thread with packets, and reads
//! share the pipeline with writes.

use p4::entity::Entity;
use p4::update::Type;
use p4::write_request::Atomicity;
use p4runtime_server::ServerLimits;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::p4::v1::p4_runtime_client::P4RuntimeClient;
use p4runtime_server::proto::pacer::v1 as pacer;
use pacer::packet_tracing_client::PacketTracingClient;
use pacer::traffic_manager_client::TrafficManagerClient;
use tonic::Code;

use crate::support::{Controller, DEVICE, Push, Server, code, config, details, exact};
use crate::{MAC, forward};

/// Entries for `count` stations.
fn stations(controller: &Controller, count: u16) -> Vec<(Type, Entity)> {
    (1_000..1_000 + count)
        .map(|n| {
            let entry = forward(controller, &n.to_be_bytes(), &[1]);
            (Type::Insert, Entity::TableEntry(entry))
        })
        .collect()
}

/// A read of all registers, which are more than fits on the way to the reader.
fn all_registers() -> p4::ReadRequest {
    p4::ReadRequest {
        device_id: DEVICE,
        entities: vec![p4::Entity {
            entity: Some(Entity::RegisterEntry(p4::RegisterEntry::default())),
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_batch_that_rolls_back_takes_many_visits_and_leaves_nothing() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let before = server.visits();
    // As many updates as there is room in a client's status for an error of each.
    let mut updates = stations(&controller, 100);
    updates.push(updates[0].clone());
    let mut request = controller.request(updates);
    request.atomicity = Atomicity::RollbackOnError.into();
    let status = controller.client.write(request).await.expect_err("fails");
    let codes = details(&status);
    assert_eq!(codes[100].0, Code::AlreadyExists);
    assert!(codes[..100].iter().all(|(code, _)| *code == Code::Aborted));
    // Each operation, and each that is taken back, is a visit where time is short.
    assert!(server.visits() - before > 200, "{}", server.visits());
    assert!(controller.written().await.is_empty());

    let before = server.visits();
    let updates = stations(&controller, 1_000);
    let mut request = controller.request(updates);
    request.atomicity = Atomicity::RollbackOnError.into();
    controller.client.write(request).await.expect("applied");
    assert!(server.visits() - before >= 1_000);
    assert_eq!(controller.written().await.len(), 1_000);
    server.stop().await;
}

#[tokio::test]
async fn what_happens_between_two_packets_is_limited() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let most = u16::try_from(ServerLimits::default().atomic_work).expect("small");
    let mut request = controller.request(stations(&controller, most + 1));
    request.atomicity = Atomicity::DataplaneAtomic.into();
    let status = controller
        .client
        .write(request)
        .await
        .expect_err("too much");
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(
        status.message().contains("ROLLBACK_ON_ERROR"),
        "{}",
        status.message()
    );
    assert!(controller.written().await.is_empty());
    // A whole array counts for its size.
    let counters = p4::CounterEntry {
        counter_id: controller.counter("PacerIngress.class_accepted"),
        index: None,
        data: Some(p4::CounterData::default()),
    };
    let mut request = controller.request(vec![(Type::Modify, Entity::CounterEntry(counters))]);
    request.atomicity = Atomicity::DataplaneAtomic.into();
    let status = controller
        .client
        .write(request)
        .await
        .expect_err("too much");
    assert_eq!(status.code(), Code::Unimplemented);

    let before = server.visits();
    let mut request = controller.request(stations(&controller, most));
    request.atomicity = Atomicity::DataplaneAtomic.into();
    controller.client.write(request).await.expect("applied");
    assert_eq!(server.visits() - before, 1);
    server.stop().await;
}

#[tokio::test]
async fn statistics_of_many_classes_let_other_jobs_pass() {
    let server = Server::start().await;
    let mut client = TrafficManagerClient::new(server.channel().await);
    let before = server.visits();
    let statistics = client.get_statistics(pacer::GetStatisticsRequest {
        class_ids: (0..4_096).collect(),
    });
    let statistics = statistics.await.expect("read").into_inner();
    assert_eq!(statistics.classes.len(), 4_096);
    assert!(server.visits() - before >= 4_096, "{}", server.visits());
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_lets_packets_and_other_jobs_pass() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let entry = forward(&controller, MAC, &[2]);
    controller.insert(entry).await.expect("inserted");
    let known = p4::TableEntry {
        table_id: controller.table("PacerIngress.sources"),
        r#match: vec![exact(1, &[2, 0, 0, 0, 0, 2]), exact(2, &[1])],
        action: controller.call("PacerIngress.known", &[]),
        ..Default::default()
    };
    controller.insert(known).await.expect("inserted");
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x90, 0]);
    let mut client = PacketTracingClient::new(server.channel().await);
    let before = server.visits();
    let request = pacer::DryRunRequest { port: 1, frame };
    let traced = client.dry_run(request).await.expect("a trace").into_inner();
    let root = traced.trace.and_then(|trace| trace.root).expect("a way");
    assert!(format!("{root:?}").contains("Transmit"), "{root:?}");
    // Ingress, egress and the delivery are a visit each where time is short.
    assert_eq!(server.visits() - before, 3);
    server.stop().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_keeps_nobody_waiting() {
    let server = Server::start().await;
    let mut first = server.controller("pacer").await;
    let mut second = Controller::open(&server).await;
    // On a connection of its own, which it blocks.
    let mut reader = P4RuntimeClient::new(server.channel().await);
    let read = reader.read(all_registers()).await.expect("read");
    let mut unread = read.into_inner();
    unread.message().await.expect("open").expect("registers");

    let entry = forward(&first, MAC, &[2]);
    first.insert(entry).await.expect("written meanwhile");
    second.info = first.info.clone();
    second.arbitrate(2).await.expect("open");
    let told = first.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::AlreadyExists);
    let entry = forward(&second, &[9], &[1]);
    second.insert(entry).await.expect("written meanwhile");
    drop(unread);
    server.stop().await;
}

#[tokio::test]
async fn a_read_ends_when_the_program_it_reads_is_replaced() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    // On a connection of its own, which it blocks.
    let mut reader = P4RuntimeClient::new(server.channel().await);
    let read = reader.read(all_registers()).await.expect("read");
    let mut responses = read.into_inner();
    responses.message().await.expect("open").expect("registers");
    controller
        .push(config("gtrcnet"), Push::VerifyAndCommit)
        .await
        .expect("not kept waiting");
    let status = loop {
        match responses.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("an end without a status looks like success"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("replaced"), "{status:?}");
    server.stop().await;
}
