//! The P4Runtime service as a controller meets it: a tonic client over loopback, a switch on
//! its own thread, real compiled programs.

#![allow(
    clippy::too_many_lines,
    reason = "a test is one conversation with the server, read from top to bottom"
)]

mod arbitration;
mod budgets;
mod engines;
mod mutations;
mod resources;
mod roles;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod translation;

use p4::entity::Entity;
use p4::stream_message_request::Update as ToSwitch;
use p4::stream_message_response::Update as FromSwitch;
use p4::update::Type;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::{ServerLimits, executor};
use support::{
    Controller, DEVICE, Push, Server, code, config, details, election, exact, lpm, optional, range,
    ternary,
};
use switch::Switch;
use tonic::Code;

const MAC: &[u8] = &[2, 0, 0, 0, 0, 1];

/// An entry of `KindsIngress.routes`.
fn route(controller: &Controller, prefix: &[u8], bits: i32, ingress: u8) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("KindsIngress.routes"),
        r#match: vec![lpm(1, prefix, bits), exact(2, &[ingress])],
        action: controller.call("KindsIngress.set_dst", &[MAC, &[1, 0xff]]),
        ..Default::default()
    }
}

fn forward(controller: &Controller, mac: &[u8], port: &[u8]) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("PacerIngress.forward"),
        r#match: vec![exact(1, mac)],
        action: controller.call("PacerIngress.forward_to", &[port]),
        ..Default::default()
    }
}

// ---------------------------------------------------------------------------------------------
// Arbitration

#[tokio::test]
async fn primary_and_backup_hear_of_each_change() {
    let server = Server::start().await;
    let mut first = Controller::open(&server).await;
    assert_eq!(code(&first.arbitrate(5).await.expect("open")), Code::Ok);
    let mut second = Controller::open(&server).await;
    let answer = second.arbitrate(4).await.expect("open");
    assert_eq!(code(&answer), Code::AlreadyExists);
    assert_eq!(answer.election_id, Some(election(5)));
    assert_eq!(answer.role, None);

    // The second takes over.
    assert_eq!(code(&second.arbitrate(6).await.expect("open")), Code::Ok);
    let told = first.arbitration().await.expect("open");
    assert_eq!(
        (code(&told), told.election_id),
        (Code::AlreadyExists, Some(election(6)))
    );

    // The second one leaves, so there is no primary.
    drop(second);
    let told = first.arbitration().await.expect("open");
    assert_eq!(
        (code(&told), told.election_id),
        (Code::NotFound, Some(election(6)))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_taken_election_id_ends_the_stream() {
    let server = Server::start().await;
    let mut first = Controller::open(&server).await;
    first.arbitrate(5).await.expect("open");
    let mut second = Controller::open(&server).await;
    let status = second.arbitrate(5).await.expect_err("stream ends");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("election_id: 5"), "{status:?}");
    // The first is primary still.
    first
        .push(config("pacer"), Push::Verify)
        .await
        .expect("still primary");
    server.stop().await;
}

#[tokio::test]
async fn a_wrong_device_is_not_found_everywhere() {
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller
        .send(ToSwitch::Arbitration(p4::MasterArbitrationUpdate {
            device_id: DEVICE + 1,
            ..Default::default()
        }))
        .await;
    let status = controller.arbitration().await.expect_err("stream ends");
    assert_eq!(status.code(), Code::NotFound);
    let device_id = DEVICE + 1;
    let client = &mut controller.client;
    let write = client
        .write(p4::WriteRequest {
            device_id,
            ..Default::default()
        })
        .await;
    assert_eq!(write.expect_err("refused").code(), Code::NotFound);
    let read = client
        .read(p4::ReadRequest {
            device_id,
            ..Default::default()
        })
        .await;
    assert_eq!(read.expect_err("refused").code(), Code::NotFound);
    let get = client
        .get_forwarding_pipeline_config(p4::GetForwardingPipelineConfigRequest {
            device_id,
            ..Default::default()
        })
        .await;
    assert_eq!(get.expect_err("refused").code(), Code::NotFound);
    let capabilities = client
        .capabilities(p4::CapabilitiesRequest { device_id })
        .await;
    assert_eq!(capabilities.expect_err("refused").code(), Code::NotFound);
    let capabilities = client
        .capabilities(p4::CapabilitiesRequest { device_id: 0 })
        .await
        .expect("server-wide");
    assert_eq!(capabilities.into_inner().p4runtime_api_version, "1.4.1");
    server.stop().await;
}

#[tokio::test]
async fn only_the_primary_writes() {
    let server = Server::start().await;
    let mut primary = server.controller("pacer").await;
    let mut backup = Controller::open(&server).await;
    backup.arbitrate(0).await.expect("open");
    backup.info = primary.info.clone();
    let entry = forward(&primary, MAC, &[2]);
    let request = backup.request(vec![(Type::Insert, Entity::TableEntry(entry.clone()))]);
    let status = backup.client.write(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.details().is_empty());
    let refused = backup.push(config("pacer"), Push::VerifyAndCommit).await;
    assert_eq!(refused.expect_err("refused").code(), Code::PermissionDenied);
    // It may read.
    assert!(backup.written().await.is_empty());

    primary.insert(entry).await.expect("written");
    // No election id at all is refused too, and an unknown role is not found.
    let mut request = primary.request(Vec::new());
    request.election_id = None;
    let status = primary.client.write(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::PermissionDenied);
    let mut request = primary.request(Vec::new());
    request.role = "nobody".to_owned();
    let status = primary.client.write(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    server.stop().await;
}

/// A write that has begun, and waits for the switch, which stands still until it is released.
async fn write_that_waits(
    server: &Server,
    writer: &Controller,
    request: p4::WriteRequest,
) -> (
    std::sync::mpsc::Sender<()>,
    tokio::task::JoinHandle<Result<tonic::Response<p4::WriteResponse>, tonic::Status>>,
) {
    let mut jobs = server.jobs.clone();
    let before = *jobs.borrow_and_update();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let stand_still = executor::once(move |_: &mut Switch| {
        let _ = released.recv();
    });
    server.executor.execute(stand_still).expect("queued");
    let mut client = writer.client.clone();
    let write = tokio::spawn(async move { client.write(request).await });
    jobs.wait_for(|jobs| *jobs >= before + 2)
        .await
        .expect("runs");
    (release, write)
}

#[tokio::test]
async fn a_new_primary_waits_for_the_writes_of_the_one_before() {
    let server = Server::start().await;
    let mut first = server.controller("pacer").await;
    let mut second = Controller::open(&server).await;
    let entry = |port| Entity::TableEntry(forward(&first, &[port], &[port]));
    let request = first.request(vec![(Type::Insert, entry(1))]);
    let late = first.request(vec![(Type::Insert, entry(2))]);
    let (release, write) = write_that_waits(&server, &first, request).await;

    second.election_id = 2;
    second
        .send(ToSwitch::Arbitration(p4::MasterArbitrationUpdate {
            device_id: DEVICE,
            election_id: Some(election(2)),
            ..Default::default()
        }))
        .await;
    let told = first.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::AlreadyExists);
    // Neither may begin a write now.
    let refused = first.client.write(late).await.expect_err("deposed");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = second
        .client
        .write(second.request(Vec::new()))
        .await
        .expect_err("not yet accepted");
    assert_eq!(refused.code(), Code::PermissionDenied);

    release.send(()).expect("the switch waits");
    write.await.expect("no panic").expect("finished");
    let told = second.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::Ok);
    second
        .client
        .write(second.request(Vec::new()))
        .await
        .expect("primary");
    assert_eq!(second.written().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn the_primary_of_a_role_does_not_wait_for_the_writes_of_another() {
    let server = Server::start().await;
    let first = server.controller("pacer").await;
    let mut other = Controller::open(&server).await;
    let entry = Entity::TableEntry(forward(&first, MAC, &[2]));
    let request = first.request(vec![(Type::Insert, entry)]);
    let (release, write) = write_that_waits(&server, &first, request).await;

    roles::bid(&mut other, "other", None).await;
    let told = other.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::Ok);

    release.send(()).expect("the switch waits");
    write.await.expect("no panic").expect("finished");
    server.stop().await;
}

#[tokio::test]
async fn the_number_of_streams_is_limited() {
    let server = Server::with_limits(ServerLimits {
        streams: 1,
        ..ServerLimits::default()
    })
    .await;
    let mut first = Controller::open(&server).await;
    first.arbitrate(1).await.expect("open");
    let mut client = p4::p4_runtime_client::P4RuntimeClient::new(server.channel().await);
    let status = client
        .stream_channel(tokio_stream::pending())
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.stop().await;
}

#[tokio::test]
async fn shutdown_ends_streams_with_unavailable() {
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let (end, ()) = tokio::join!(controller.receive(), server.stop());
    assert_eq!(end.expect_err("ended").code(), Code::Unavailable);
}

// ---------------------------------------------------------------------------------------------
// Pipeline config

#[tokio::test]
async fn the_config_of_a_program_that_p4runtime_did_not_set_is_refused() {
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let pushed = config("pacer");
    let program = pushed.p4_device_config.clone();
    let loaded = executor::with(&*server.executor, move |switch| switch.load(&program)).await;
    loaded.expect("runs").expect("a program");
    let request = p4::GetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        ..Default::default()
    };
    let get = controller.client.get_forwarding_pipeline_config(request);
    let refused = get.await.expect_err("its P4Info is not known");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    // finsy and others look for these words of BMv2's.
    let message = refused.message();
    assert!(
        message.contains("no forwarding pipeline config"),
        "{message}"
    );

    controller
        .push(pushed.clone(), Push::VerifyAndCommit)
        .await
        .expect("valid");
    let get = controller.client.get_forwarding_pipeline_config(request);
    assert_eq!(get.await.expect("set").into_inner().config, Some(pushed));
    server.stop().await;
}

#[tokio::test]
async fn pipeline_config_is_verified_committed_and_read_back() {
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let get = |response_type: p4::get_forwarding_pipeline_config_request::ResponseType| {
        p4::GetForwardingPipelineConfigRequest {
            device_id: DEVICE,
            response_type: response_type.into(),
        }
    };
    use p4::get_forwarding_pipeline_config_request::ResponseType;
    let none = controller
        .client
        .get_forwarding_pipeline_config(get(ResponseType::All))
        .await
        .expect("answered");
    assert_eq!(none.into_inner().config, None);
    let (_, _, status) = controller
        .read_all(vec![Entity::TableEntry(p4::TableEntry::default())])
        .await;
    assert_eq!(
        status.expect_err("before a pipeline").code(),
        Code::FailedPrecondition
    );

    let pushed = config("pacer");
    controller
        .push(pushed.clone(), Push::Verify)
        .await
        .expect("valid");
    let refused = controller.push_request(None, Push::Commit).await;
    assert_eq!(refused.expect_err("nothing saved").code(), Code::NotFound);
    controller
        .push(pushed.clone(), Push::VerifyAndSave)
        .await
        .expect("valid");
    // Nothing runs yet.
    let saved = controller
        .client
        .get_forwarding_pipeline_config(get(ResponseType::All))
        .await
        .expect("answered");
    assert_eq!(saved.into_inner().config, None);
    let refused = controller
        .push_request(Some(pushed.clone()), Push::Commit)
        .await;
    assert_eq!(
        refused.expect_err("config with COMMIT").code(),
        Code::InvalidArgument
    );
    controller
        .push_request(None, Push::Commit)
        .await
        .expect("committed");
    let read = |response_type| {
        let mut client = controller.client.clone();
        async move {
            client
                .get_forwarding_pipeline_config(get(response_type))
                .await
                .expect("answered")
                .into_inner()
                .config
                .expect("config")
        }
    };
    assert_eq!(read(ResponseType::All).await, pushed);
    let cookie = read(ResponseType::CookieOnly).await;
    assert_eq!(cookie.cookie, pushed.cookie);
    assert!(cookie.p4info.is_none() && cookie.p4_device_config.is_empty());
    let info = read(ResponseType::P4infoAndCookie).await;
    assert!(info.p4info == pushed.p4info && info.p4_device_config.is_empty());
    let device = read(ResponseType::DeviceConfigAndCookie).await;
    assert!(device.p4info.is_none() && device.p4_device_config == pushed.p4_device_config);
    server.stop().await;
}

/// Packets pass while a program is checked and compiled: only its installation is work for the
/// thread that owns the switch.
#[tokio::test]
async fn a_program_is_compiled_while_the_switch_is_busy() {
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let before = *server.jobs.borrow();
    // The switch carries out no jobs meanwhile.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let stand_still = executor::once(move |_: &mut Switch| {
        let _ = released.recv();
    });
    server.executor.execute(stand_still).expect("queued");
    let verified = controller.push(config("pacer"), Push::Verify).await;
    verified.expect("compiled all the same");
    let mut broken = config("pacer");
    broken.p4_device_config.truncate(1_000);
    let refused = controller.push(broken, Push::VerifyAndCommit).await;
    let refused = refused.expect_err("cut off");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(*server.jobs.borrow(), before + 1, "nothing for the switch");
    release.send(()).expect("the switch waits");

    let committed = controller
        .push(config("pacer"), Push::VerifyAndCommit)
        .await;
    committed.expect("committed");
    assert_eq!(*server.jobs.borrow(), before + 3, "two short visits");
    server.stop().await;
}

#[tokio::test]
async fn a_p4info_of_another_program_is_refused_by_name_and_changes_nothing() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    controller
        .insert(forward(&controller, MAC, &[2]))
        .await
        .expect("written");

    let good = config("pacer");
    let refuse = async |controller: &mut Controller, bad: p4::ForwardingPipelineConfig| {
        let status = controller
            .push_request(Some(bad), Push::VerifyAndCommit)
            .await
            .expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        status.message().to_owned()
    };
    let mut other = good.clone();
    other.p4info = config("gtrcnet").p4info;
    let text = refuse(&mut controller, other).await;
    assert!(
        text.contains("Gtrcnet") && text.contains("is not in the program"),
        "{text}"
    );

    let mut wider = good.clone();
    let field = wider
        .p4info
        .as_mut()
        .and_then(|info| {
            info.tables.iter_mut().find(|t| {
                t.preamble
                    .as_ref()
                    .is_some_and(|p| p.name == "PacerIngress.forward")
            })
        })
        .and_then(|table| table.match_fields.first_mut())
        .expect("field");
    field.bitwidth = 47;
    assert_eq!(
        refuse(&mut controller, wider).await,
        "P4Info: table PacerIngress.forward: field dst_mac: 47 bits in P4Info, 48 bits in the \
         program"
    );
    let mut longer = good.clone();
    if let Some(info) = &mut longer.p4info {
        info.registers[0].size += 1;
    }
    assert!(
        refuse(&mut controller, longer)
            .await
            .contains("cells in P4Info")
    );
    let mut malformed = good.clone();
    malformed.p4_device_config = b"{".to_vec();
    assert!(
        refuse(&mut controller, malformed)
            .await
            .contains("p4_device_config")
    );
    let mut empty = good;
    empty.p4_device_config.clear();
    assert!(
        refuse(&mut controller, empty)
            .await
            .contains("p4_device_config")
    );

    // The entry is still there.
    assert_eq!(controller.written().await.len(), 1);
    // A new commit starts afresh.
    controller
        .push(config("pacer"), Push::VerifyAndCommit)
        .await
        .expect("committed");
    assert!(controller.written().await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn every_committed_program_binds_to_its_p4info() {
    let server = Server::start().await;
    for (election_id, program) in [(1, "pacer"), (2, "gtrcnet"), (3, "kinds")] {
        let mut controller = Controller::open(&server).await;
        controller.arbitrate(election_id).await.expect("open");
        controller
            .push(config(program), Push::VerifyAndCommit)
            .await
            .unwrap_or_else(|status| panic!("{program}: {status:?}"));
    }
    server.stop().await;
}

// ---------------------------------------------------------------------------------------------
// Table entries

#[tokio::test]
async fn what_is_written_is_read_back_the_same() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let filters = controller.table("KindsIngress.filters");
    let mut written = vec![
        route(&controller, &[2, 0, 0, 0, 0, 0], 40, 1),
        p4::TableEntry {
            // "Don't care" prefix is left out.
            r#match: vec![exact(2, &[1])],
            metadata: b"cookie".to_vec(),
            action: controller.call("KindsIngress.send", &[&[0]]),
            ..route(&controller, MAC, 48, 1)
        },
    ];
    for (priority, fields) in [
        (
            1,
            vec![
                range(1, &[8, 0], &[8, 6]),
                optional(2, MAC),
                ternary(3, &[1], &[1, 1]),
            ],
        ),
        (1, vec![optional(2, &[7])]),
        (2, vec![]),
        (i32::MAX, vec![range(1, &[0], &[0x80, 0])]),
    ] {
        written.push(p4::TableEntry {
            table_id: filters,
            r#match: fields,
            priority,
            action: controller.call("KindsIngress.drop", &[]),
            ..Default::default()
        });
    }
    for entry in &written {
        controller.insert(entry.clone()).await.expect("inserted");
    }
    let all = controller.entries(p4::TableEntry::default()).await;
    for entry in &written {
        assert!(all.contains(entry), "{entry:?} in {all:?}");
    }
    // Two constant entries come with the program.
    assert_eq!(all.iter().filter(|entry| entry.is_const).count(), 2);
    assert_eq!(all.len(), written.len() + 2);

    for entry in &written {
        let one = controller
            .entries(p4::TableEntry {
                table_id: entry.table_id,
                r#match: entry.r#match.clone(),
                priority: entry.priority,
                ..Default::default()
            })
            .await;
        assert_eq!(one, std::slice::from_ref(entry));
    }
    for entry in &written {
        let again = controller.insert(entry.clone()).await;
        assert_eq!(again.expect_err("exists").0, Code::AlreadyExists);
        controller.delete(entry.clone()).await.expect("deleted");
        let again = controller.delete(entry.clone()).await;
        assert_eq!(again.expect_err("gone").0, Code::NotFound);
    }
    assert_eq!(controller.entries(p4::TableEntry::default()).await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn wide_encodings_are_accepted_and_come_back_canonical() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let entry = forward(&controller, &[0, 0, 0, 0, 0, 0, 0, 9], &[0, 0, 2]);
    controller.insert(entry).await.expect("inserted");
    let read = controller.written().await;
    assert_eq!(read, [forward(&controller, &[9], &[2])]);
    server.stop().await;
}

#[tokio::test]
async fn values_under_a_mask_of_the_program_come_back_masked() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let mut masked = config("kinds");
    let json = std::str::from_utf8(&masked.p4_device_config).expect("JSON");
    // The lowest byte of `routes`' first field does not count, as with a mask of P4_14.
    let key = r#""match_type" : "lpm",
              "name" : "hdr.ethernet.dst",
              "target" : ["ethernet", "dst"],
              "mask" : "#;
    assert_eq!(json.matches(key).count(), 1);
    let with_mask = format!("{key}\"0xffffffffff00\"");
    masked.p4_device_config = json.replace(&format!("{key}null"), &with_mask).into();
    controller
        .push(masked, Push::VerifyAndCommit)
        .await
        .expect("accepted");
    let given = p4::TableEntry {
        metadata: b"cookie".to_vec(),
        ..route(&controller, MAC, 48, 1)
    };
    controller.insert(given.clone()).await.expect("inserted");
    let read = controller.written().await;
    let expected = p4::TableEntry {
        metadata: b"cookie".to_vec(),
        ..route(&controller, &[2, 0, 0, 0, 0, 0], 48, 1)
    };
    assert_eq!(read, std::slice::from_ref(&expected));
    let again = controller.insert(expected).await;
    assert_eq!(again.expect_err("exists").0, Code::AlreadyExists);
    controller.delete(given.clone()).await.expect("deleted");
    // Nothing of the metadata is left.
    let bare = p4::TableEntry {
        metadata: Vec::new(),
        ..given
    };
    controller.insert(bare).await.expect("inserted");
    assert!(controller.written().await[0].metadata.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn reads_filter_by_action_priority_and_metadata() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let table_id = controller.table("KindsIngress.filters");
    for (priority, action, metadata) in [
        (1, "KindsIngress.drop", "a"),
        (2, "KindsIngress.drop", "b"),
        (3, "NoAction", "b"),
    ] {
        controller
            .insert(p4::TableEntry {
                table_id,
                priority,
                metadata: metadata.into(),
                action: controller.call(action, &[]),
                ..Default::default()
            })
            .await
            .expect("inserted");
    }
    let filter = p4::TableEntry {
        table_id,
        ..Default::default()
    };
    let priorities = async |controller: &mut Controller, filter: p4::TableEntry| {
        let entries = controller.entries(filter).await;
        entries
            .iter()
            .map(|entry| entry.priority)
            .collect::<Vec<_>>()
    };
    assert_eq!(priorities(&mut controller, filter.clone()).await, [1, 2, 3]);
    let by_priority = p4::TableEntry {
        priority: 2,
        ..filter.clone()
    };
    assert_eq!(priorities(&mut controller, by_priority).await, [2]);
    let by_metadata = p4::TableEntry {
        metadata: b"b".to_vec(),
        ..filter.clone()
    };
    assert_eq!(priorities(&mut controller, by_metadata).await, [2, 3]);
    let by_action = p4::TableEntry {
        action: controller.call("KindsIngress.drop", &[]),
        ..filter
    };
    assert_eq!(priorities(&mut controller, by_action).await, [1, 2]);
    server.stop().await;
}

#[tokio::test]
async fn malformed_entries_are_refused_by_name_and_field() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let routes = route(&controller, MAC, 48, 1);
    let filter = p4::TableEntry {
        table_id: controller.table("KindsIngress.filters"),
        priority: 1,
        action: controller.call("KindsIngress.drop", &[]),
        ..Default::default()
    };
    let with_match = |entry: &p4::TableEntry, fields: Vec<p4::FieldMatch>| p4::TableEntry {
        r#match: fields,
        ..entry.clone()
    };
    let with_action = |action: Option<p4::TableAction>| p4::TableEntry {
        action,
        ..routes.clone()
    };
    let name = "KindsIngress.routes: ";
    let invalid = Code::InvalidArgument;
    let cases: Vec<(p4::TableEntry, Code, String)> = vec![
        (
            with_match(&routes, vec![lpm(1, MAC, 47), exact(2, &[1])]),
            invalid,
            format!("{name}field hdr.ethernet.dst: value 0x020000000001 has bits set beyond"),
        ),
        (
            with_match(&routes, vec![lpm(1, &[0], 0), exact(2, &[1])]),
            invalid,
            format!("{name}field hdr.ethernet.dst: prefix length 0 given"),
        ),
        (
            with_match(&routes, vec![lpm(1, &[0], 49), exact(2, &[1])]),
            invalid,
            format!("{name}field hdr.ethernet.dst: prefix length 49 given, 1 to 48"),
        ),
        (
            with_match(&routes, vec![lpm(1, &[1; 7], 48), exact(2, &[1])]),
            invalid,
            format!(
                "{name}field hdr.ethernet.dst: 7 bytes given, 48 bits (at most 6 bytes) expected"
            ),
        ),
        (
            with_match(&routes, vec![lpm(1, MAC, 48)]),
            invalid,
            format!("{name}field std.ingress_port: not given, but an exact field"),
        ),
        (
            with_match(&routes, vec![exact(2, &[])]),
            invalid,
            format!("{name}field std.ingress_port: empty value"),
        ),
        (
            with_match(&routes, vec![exact(2, &[1]), exact(2, &[1])]),
            invalid,
            format!("{name}match: field std.ingress_port: given twice"),
        ),
        (
            with_match(&routes, vec![exact(9, &[1])]),
            invalid,
            format!("{name}match: field id 9 given, 1 (hdr.ethernet.dst)"),
        ),
        (
            with_match(&routes, vec![exact(1, MAC), exact(2, &[1])]),
            invalid,
            format!("{name}field hdr.ethernet.dst: exact given, lpm expected"),
        ),
        (
            with_match(&filter, vec![ternary(3, &[3], &[1])]),
            invalid,
            "KindsIngress.filters: field port: value 0x0003 has bits set outside".to_owned(),
        ),
        (
            with_match(&filter, vec![ternary(3, &[0], &[0])]),
            invalid,
            "KindsIngress.filters: field port: mask 0 given".to_owned(),
        ),
        (
            with_match(&filter, vec![range(1, &[2], &[1])]),
            invalid,
            "KindsIngress.filters: field type: low 0x0002 is greater".to_owned(),
        ),
        (
            with_match(&filter, vec![range(1, &[0], &[0xff, 0xff])]),
            invalid,
            "KindsIngress.filters: field type: the range includes every value".to_owned(),
        ),
        (
            p4::TableEntry {
                priority: 0,
                ..filter.clone()
            },
            invalid,
            "KindsIngress.filters: priority: 0 given, greater than 0".to_owned(),
        ),
        (
            p4::TableEntry {
                priority: 1,
                ..routes.clone()
            },
            invalid,
            format!("{name}priority: 1 given, 0 expected"),
        ),
        (
            with_action(None),
            invalid,
            format!("{name}action: not given"),
        ),
        (
            with_action(controller.call("NoAction", &[])),
            invalid,
            format!("{name}action: id {} given", controller.action("NoAction")),
        ),
        (
            with_action(controller.call("KindsIngress.drop", &[])),
            Code::PermissionDenied,
            format!("{name}action KindsIngress.drop: not allowed for an entry"),
        ),
        (
            with_action(controller.call("KindsIngress.set_dst", &[MAC])),
            invalid,
            format!("{name}action KindsIngress.set_dst: parameter port (id 2, 9 bits) is missing"),
        ),
        (
            with_action(controller.call("KindsIngress.set_dst", &[MAC, &[2, 0]])),
            invalid,
            format!("{name}action KindsIngress.set_dst: field port: value 0x0200 needs 10 bits"),
        ),
        (
            with_action(controller.call("KindsIngress.send", &[&[1], &[1]])),
            invalid,
            format!("{name}action KindsIngress.send: parameter id 2 given, 1 (port) expected"),
        ),
        (
            p4::TableEntry {
                table_id: 77,
                ..routes.clone()
            },
            Code::NotFound,
            "table_id: 77".to_owned(),
        ),
        (
            p4::TableEntry {
                is_const: true,
                ..routes.clone()
            },
            invalid,
            format!("{name}is_const"),
        ),
        (
            p4::TableEntry {
                idle_timeout_ns: 1,
                ..routes.clone()
            },
            invalid,
            format!("{name}idle_timeout_ns"),
        ),
        (
            p4::TableEntry {
                counter_data: Some(p4::CounterData::default()),
                ..filter.clone()
            },
            invalid,
            "KindsIngress.filters: counter_data: given, but the table has no".to_owned(),
        ),
        (
            p4::TableEntry {
                meter_config: Some(p4::MeterConfig {
                    cir: 2,
                    pir: 1,
                    ..Default::default()
                }),
                ..routes.clone()
            },
            invalid,
            format!("{name}pir: 1 given, at least cir (2)"),
        ),
        (
            p4::TableEntry {
                meter_config: Some(p4::MeterConfig {
                    cir: -1,
                    ..Default::default()
                }),
                ..routes.clone()
            },
            invalid,
            format!("{name}cir: -1 given"),
        ),
        (
            p4::TableEntry {
                table_id: controller.table("KindsIngress.fixed"),
                r#match: vec![exact(1, &[3])],
                action: controller.call("KindsIngress.drop", &[]),
                ..Default::default()
            },
            Code::PermissionDenied,
            "KindsIngress.fixed: its entries are constant".to_owned(),
        ),
        (
            p4::TableEntry {
                table_id: controller.table("KindsIngress.everything"),
                action: controller.call("KindsIngress.drop", &[]),
                ..Default::default()
            },
            invalid,
            "KindsIngress.everything: the table has no key".to_owned(),
        ),
    ];
    for (entry, code, text) in cases {
        let (given, message) = controller.insert(entry).await.expect_err(&text);
        assert_eq!(given, code, "{message}");
        assert!(
            message.starts_with(&text),
            "{message:?} does not start with {text:?}"
        );
    }
    // A full table names itself and its size.
    for port in 0..4 {
        let entry = route(&controller, MAC, 48, port);
        controller.insert(entry).await.expect("inserted");
    }
    let full = controller.insert(route(&controller, MAC, 48, 4)).await;
    let (given, message) = full.expect_err("full");
    assert_eq!(given, Code::ResourceExhausted);
    assert!(message.contains("KindsIngress.routes"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn default_entries_are_modified_and_reset() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let table_id = controller.table("KindsIngress.everything");
    let default = |action| p4::TableEntry {
        table_id,
        is_default_action: true,
        action,
        ..Default::default()
    };
    let original = default(controller.call("KindsIngress.send", &[&[3]]));
    assert_eq!(
        controller.entries(default(None)).await,
        std::slice::from_ref(&original)
    );
    let changed = default(controller.call("KindsIngress.drop", &[]));
    controller
        .modify(Entity::TableEntry(changed.clone()))
        .await
        .expect("modified");
    assert_eq!(
        controller.entries(default(None)).await,
        std::slice::from_ref(&changed)
    );
    controller
        .modify(Entity::TableEntry(default(None)))
        .await
        .expect("reset");
    assert_eq!(controller.entries(default(None)).await, [original]);

    let refused = controller.insert(changed.clone()).await;
    assert_eq!(refused.expect_err("not inserted").0, Code::InvalidArgument);
    let refused = controller.delete(changed).await;
    assert_eq!(refused.expect_err("not deleted").0, Code::InvalidArgument);
    let constant = p4::TableEntry {
        table_id: controller.table("KindsIngress.fixed"),
        is_default_action: true,
        ..Default::default()
    };
    let refused = controller.modify(Entity::TableEntry(constant)).await;
    assert_eq!(refused.expect_err("constant").0, Code::PermissionDenied);
    let with_match = p4::TableEntry {
        table_id: controller.table("KindsIngress.routes"),
        is_default_action: true,
        r#match: vec![exact(2, &[1])],
        ..Default::default()
    };
    let refused = controller.modify(Entity::TableEntry(with_match)).await;
    assert_eq!(refused.expect_err("match").0, Code::InvalidArgument);
    // One default entry per table, when all are asked for.
    let all = controller
        .entries(p4::TableEntry {
            is_default_action: true,
            ..Default::default()
        })
        .await;
    assert_eq!(all.len(), 7);
    server.stop().await;
}

#[tokio::test]
async fn direct_resources_follow_the_entry() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let meter = p4::MeterConfig {
        cir: 10,
        cburst: 1,
        pir: 20,
        pburst: 2,
        eburst: 0,
    };
    let counted = p4::CounterData {
        byte_count: 640,
        packet_count: 10,
    };
    let entry = p4::TableEntry {
        meter_config: Some(meter),
        counter_data: Some(counted),
        ..route(&controller, MAC, 48, 1)
    };
    controller.insert(entry.clone()).await.expect("inserted");
    let all = p4::TableEntry {
        table_id: entry.table_id,
        ..Default::default()
    };
    let plain = p4::TableEntry {
        meter_config: None,
        counter_data: None,
        ..entry.clone()
    };
    assert_eq!(
        controller.entries(all.clone()).await,
        std::slice::from_ref(&plain)
    );
    let with_resources = p4::TableEntry {
        meter_config: Some(p4::MeterConfig::default()),
        counter_data: Some(p4::CounterData::default()),
        ..all.clone()
    };
    assert_eq!(
        controller.entries(with_resources.clone()).await,
        std::slice::from_ref(&entry)
    );

    // MODIFY without meter_config resets the meter and keeps the counter.
    controller
        .modify(Entity::TableEntry(plain.clone()))
        .await
        .expect("modified");
    let read = controller.entries(with_resources).await;
    assert_eq!(read[0].meter_config, None);
    assert_eq!(read[0].counter_data, Some(counted));

    let key = p4::TableEntry {
        action: None,
        ..plain
    };
    let set_counter = p4::DirectCounterEntry {
        table_entry: Some(key.clone()),
        data: Some(p4::CounterData::default()),
    };
    controller
        .modify(Entity::DirectCounterEntry(set_counter.clone()))
        .await
        .expect("set");
    let set_meter = p4::DirectMeterEntry {
        table_entry: Some(key.clone()),
        config: Some(meter),
        counter_data: None,
    };
    controller
        .modify(Entity::DirectMeterEntry(set_meter.clone()))
        .await
        .expect("set");
    // By key, by table, and all.
    for filter in [Some(key), Some(all), None] {
        let counters = controller
            .read(Entity::DirectCounterEntry(p4::DirectCounterEntry {
                table_entry: filter.clone(),
                data: None,
            }))
            .await;
        assert_eq!(counters, [Entity::DirectCounterEntry(set_counter.clone())]);
        let meters = controller
            .read(Entity::DirectMeterEntry(p4::DirectMeterEntry {
                table_entry: filter,
                ..Default::default()
            }))
            .await;
        assert_eq!(meters, [Entity::DirectMeterEntry(set_meter.clone())]);
    }
    let missing = p4::DirectCounterEntry {
        table_entry: Some(route(&controller, MAC, 48, 2)),
        data: Some(counted),
    };
    let refused = controller.modify(Entity::DirectCounterEntry(missing)).await;
    assert_eq!(refused.expect_err("no entry").0, Code::NotFound);
    let refused = controller
        .write(Type::Insert, Entity::DirectMeterEntry(set_meter))
        .await;
    assert_eq!(refused.expect_err("not inserted").0, Code::InvalidArgument);
    server.stop().await;
}

// ---------------------------------------------------------------------------------------------
// Batches

#[tokio::test]
async fn a_batch_reports_each_update_and_goes_on() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let good = Entity::TableEntry(forward(&controller, MAC, &[2]));
    let request = controller.request(vec![
        (
            Type::Insert,
            Entity::TableEntry(forward(&controller, &[1; 7], &[2])),
        ),
        (Type::Insert, good.clone()),
        (Type::Insert, good.clone()),
        (
            Type::Modify,
            Entity::ExternEntry(p4::ExternEntry::default()),
        ),
        (Type::Unspecified, good),
    ]);
    let status = controller
        .client
        .write(request)
        .await
        .expect_err("some failed");
    assert_eq!(status.code(), Code::Unknown);
    let results = details(&status);
    let codes: Vec<Code> = results.iter().map(|(code, _)| *code).collect();
    assert_eq!(
        codes,
        [
            Code::InvalidArgument,
            Code::Ok,
            Code::AlreadyExists,
            Code::Unimplemented,
            Code::InvalidArgument
        ]
    );
    assert_eq!(
        results[0].1,
        "PacerIngress.forward: field dst_mac: 7 bytes given, 48 bits (at most 6 bytes) expected"
    );
    assert!(results[3].1.starts_with("extern_entry"));
    assert_eq!(controller.written().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn an_atomic_batch_is_applied_whole_or_not_at_all() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let kept = p4::TableEntry {
        counter_data: Some(p4::CounterData {
            byte_count: 9,
            packet_count: 1,
        }),
        ..route(&controller, MAC, 48, 1)
    };
    controller.insert(kept.clone()).await.expect("inserted");
    let tags = controller.register("KindsIngress.marks");
    let register = |value: &[u8]| p4::RegisterEntry {
        register_id: tags,
        index: Some(p4::Index { index: 5 }),
        data: Some(p4::P4Data {
            data: Some(p4::p4_data::Data::Bitstring(value.to_vec())),
        }),
    };
    let batch = |controller: &Controller, last: p4::TableEntry| {
        let changed = p4::TableEntry {
            action: controller.call("KindsIngress.send", &[&[1]]),
            ..route(controller, MAC, 48, 1)
        };
        vec![
            (Type::Modify, Entity::TableEntry(changed.clone())),
            (Type::Modify, Entity::RegisterEntry(register(&[7]))),
            (
                Type::Insert,
                Entity::TableEntry(route(controller, MAC, 48, 2)),
            ),
            (Type::Delete, Entity::TableEntry(changed)),
            (Type::Insert, Entity::TableEntry(last)),
        ]
    };
    let filter = p4::TableEntry {
        table_id: kept.table_id,
        counter_data: Some(p4::CounterData::default()),
        ..Default::default()
    };
    use p4::write_request::Atomicity;
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        // The last one exists by then.
        let mut request = controller.request(batch(&controller, route(&controller, MAC, 48, 2)));
        request.atomicity = atomicity.into();
        let status = controller.client.write(request).await.expect_err("fails");
        let codes: Vec<Code> = details(&status).iter().map(|(code, _)| *code).collect();
        assert_eq!(codes[..4], [Code::Aborted; 4]);
        assert_eq!(codes[4], Code::AlreadyExists);
        assert_eq!(
            controller.entries(filter.clone()).await,
            std::slice::from_ref(&kept)
        );
        let read = controller.read(Entity::RegisterEntry(register(&[]))).await;
        assert_eq!(read, [Entity::RegisterEntry(register(&[0]))]);
    }
    let mut request = controller.request(batch(&controller, route(&controller, MAC, 48, 3)));
    request.atomicity = Atomicity::DataplaneAtomic.into();
    controller.client.write(request).await.expect("applied");
    assert_eq!(controller.entries(filter.clone()).await.len(), 2);
    // An entry that was deleted is put back where it was, not behind the others.
    let all = controller.entries(filter.clone()).await;
    let batch = all
        .iter()
        .map(|entry| (Type::Delete, Entity::TableEntry(entry.clone())))
        .chain([(Type::Delete, Entity::TableEntry(all[0].clone()))])
        .collect();
    let mut request = controller.request(batch);
    request.atomicity = Atomicity::RollbackOnError.into();
    controller.client.write(request).await.expect_err("fails");
    assert_eq!(controller.entries(filter).await, all);
    // Whole arrays, where they are small.
    let counters = |packet_count| p4::CounterEntry {
        counter_id: controller.counter("KindsIngress.seen"),
        index: None,
        data: Some(p4::CounterData {
            byte_count: 0,
            packet_count,
        }),
    };
    let (some, more) = (counters(3), counters(4));
    let cells = |value: &p4::CounterEntry| -> Vec<Entity> {
        let cell = |index| p4::CounterEntry {
            index: Some(p4::Index { index }),
            ..*value
        };
        (0..16).map(cell).map(Entity::CounterEntry).collect()
    };
    let wanted = cells(&some);
    let filled = (Type::Modify, Entity::CounterEntry(some));
    let mut request = controller.request(vec![filled]);
    request.atomicity = Atomicity::DataplaneAtomic.into();
    controller.client.write(request).await.expect("applied");
    let mut request = controller.request(vec![
        (Type::Modify, Entity::CounterEntry(more)),
        (Type::Insert, Entity::TableEntry(all[0].clone())),
    ]);
    request.atomicity = Atomicity::RollbackOnError.into();
    controller.client.write(request).await.expect_err("fails");
    let filter = p4::CounterEntry { data: None, ..more };
    assert_eq!(controller.read(Entity::CounterEntry(filter)).await, wanted);
    server.stop().await;
}

#[tokio::test]
async fn the_size_of_a_batch_is_limited() {
    let server = Server::with_limits(ServerLimits {
        updates_per_write: 2,
        ..ServerLimits::default()
    })
    .await;
    let mut controller = server.controller("pacer").await;
    let update = (
        Type::Insert,
        Entity::TableEntry(forward(&controller, MAC, &[1])),
    );
    let request = controller.request(vec![update; 3]);
    let status = controller.client.write(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "updates: 3 given, at most 2 expected in one request"
    );
    server.stop().await;
}

// ---------------------------------------------------------------------------------------------
// Arrays

#[tokio::test]
async fn counters_meters_and_registers_are_read_and_written() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let at = |index| Some(p4::Index { index });
    let counter = p4::CounterEntry {
        counter_id: controller.counter("KindsIngress.seen"),
        index: at(3),
        data: Some(p4::CounterData {
            byte_count: 1,
            packet_count: 2,
        }),
    };
    controller
        .modify(Entity::CounterEntry(counter))
        .await
        .expect("written");
    let read = controller.read(Entity::CounterEntry(counter)).await;
    assert_eq!(read, [Entity::CounterEntry(counter)]);
    let all = controller
        .read(Entity::CounterEntry(p4::CounterEntry::default()))
        .await;
    assert_eq!(all.len(), 16);
    assert_eq!(all[3], Entity::CounterEntry(counter));

    let meter = p4::MeterEntry {
        meter_id: controller.meter("KindsIngress.limits"),
        index: at(7),
        config: Some(p4::MeterConfig {
            cir: 1,
            cburst: 2,
            pir: 3,
            pburst: 4,
            eburst: 0,
        }),
        counter_data: None,
    };
    controller
        .modify(Entity::MeterEntry(meter))
        .await
        .expect("written");
    let read = controller.read(Entity::MeterEntry(meter)).await;
    assert_eq!(read, [Entity::MeterEntry(meter)]);
    // Without index: all cells; without config: back to the default.
    controller
        .modify(Entity::MeterEntry(p4::MeterEntry {
            index: None,
            config: None,
            ..meter
        }))
        .await
        .expect("reset");
    let all = controller
        .read(Entity::MeterEntry(p4::MeterEntry::default()))
        .await;
    assert_eq!(all.len(), 8);
    assert_eq!(
        all[7],
        Entity::MeterEntry(p4::MeterEntry {
            config: None,
            ..meter
        })
    );

    let mode = p4::RegisterEntry {
        register_id: controller.register("KindsIngress.modes"),
        index: at(1),
        data: Some(p4::P4Data {
            data: Some(p4::p4_data::Data::EnumValue(vec![1])),
        }),
    };
    controller
        .modify(Entity::RegisterEntry(mode.clone()))
        .await
        .expect("written");
    let read = controller.read(Entity::RegisterEntry(mode.clone())).await;
    assert_eq!(read, [Entity::RegisterEntry(mode.clone())]);

    for (entity, code, text) in [
        (
            Entity::CounterEntry(p4::CounterEntry {
                index: at(16),
                ..counter
            }),
            Code::OutOfRange,
            "KindsIngress.seen: index: 16 given, 0 to 15 expected",
        ),
        (
            Entity::CounterEntry(p4::CounterEntry {
                index: at(-1),
                ..counter
            }),
            Code::InvalidArgument,
            "KindsIngress.seen: index: -1 given, 0 to 15 expected",
        ),
        (
            Entity::RegisterEntry(p4::RegisterEntry {
                data: Some(p4::P4Data {
                    data: Some(p4::p4_data::Data::Bitstring(vec![1])),
                }),
                ..mode.clone()
            }),
            Code::InvalidArgument,
            "KindsIngress.modes: data: another kind of value given",
        ),
        (
            Entity::RegisterEntry(p4::RegisterEntry {
                data: Some(p4::P4Data {
                    data: Some(p4::p4_data::Data::EnumValue(vec![1, 0])),
                }),
                ..mode
            }),
            Code::OutOfRange,
            "KindsIngress.modes: field data: 2 bytes given, 8 bits (at most 1 bytes) expected",
        ),
        (
            Entity::MeterEntry(p4::MeterEntry {
                config: Some(p4::MeterConfig {
                    eburst: 1,
                    ..Default::default()
                }),
                ..meter
            }),
            Code::InvalidArgument,
            "KindsIngress.limits: eburst: 1 given",
        ),
        (
            Entity::MeterEntry(p4::MeterEntry {
                counter_data: Some(p4::MeterCounterData {
                    red: Some(p4::CounterData {
                        byte_count: 0,
                        packet_count: 1,
                    }),
                    ..Default::default()
                }),
                ..meter
            }),
            Code::InvalidArgument,
            "KindsIngress.limits: counts of a meter's colours: other than 0 given",
        ),
    ] {
        let (given, message) = controller.modify(entity).await.expect_err(text);
        assert_eq!(given, code, "{message}");
        assert!(
            message.starts_with(text),
            "{message:?} does not start with {text:?}"
        );
    }
    server.stop().await;
}

/// No visit to the switch copies a whole table: packets pass between the pages.
#[tokio::test]
async fn a_large_table_is_read_in_bounded_visits() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let entries: Vec<_> = (1_000..3_500u16)
        .map(|n| forward(&controller, &n.to_be_bytes(), &[1]))
        .collect();
    let inserts = entries.iter().cloned();
    let inserts = inserts.map(|entry| (Type::Insert, Entity::TableEntry(entry)));
    let request = controller.request(inserts.collect());
    controller.client.write(request).await.expect("written");
    let filter = p4::TableEntry {
        table_id: entries[0].table_id,
        ..Default::default()
    };
    let before = *server.jobs.borrow();
    let read = controller.entries(filter).await;
    assert_eq!(*server.jobs.borrow() - before, 3);
    let keys = |entries: &[p4::TableEntry]| -> Vec<_> {
        entries.iter().map(|entry| entry.r#match.clone()).collect()
    };
    assert_eq!(keys(&read), keys(&entries));
    server.stop().await;
}

#[tokio::test]
async fn a_register_of_a_million_cells_comes_in_bounded_messages() {
    // A clock for each class and for each TCP flow that is followed.
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let register_id = controller.register("PacerIngress.clock_frac");
    let cells = controller.register_size("PacerIngress.clock_frac");
    assert!(cells >= 1_048_576);
    let last = p4::RegisterEntry {
        register_id,
        index: Some(p4::Index {
            index: i64::from(cells - 1),
        }),
        data: Some(p4::P4Data {
            data: Some(p4::p4_data::Data::Bitstring(vec![0xff, 0, 1])),
        }),
    };
    controller
        .modify(Entity::RegisterEntry(last.clone()))
        .await
        .expect("written");
    let (all, messages, status) = controller
        .read_all(vec![Entity::RegisterEntry(p4::RegisterEntry {
            register_id,
            ..Default::default()
        })])
        .await;
    status.expect("read");
    assert_eq!(i32::try_from(all.len()), Ok(cells));
    assert_eq!(all.last(), Some(&Entity::RegisterEntry(last)));
    assert!(messages >= 1_048_576 / 4_096, "{messages} messages");
    server.stop().await;
}

#[tokio::test]
async fn single_cells_of_one_read_come_in_the_order_asked_for() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let cell = |register_id, index, value: u8| {
        Entity::RegisterEntry(p4::RegisterEntry {
            register_id,
            index: Some(p4::Index { index }),
            data: Some(p4::P4Data {
                data: Some(p4::p4_data::Data::Bitstring(vec![value])),
            }),
        })
    };
    let clock = controller.register("PacerIngress.clock_frac");
    let followed = controller.register("flows_followed");
    let cells = i64::from(controller.register_size("PacerIngress.clock_frac"));
    let ours = [(clock, 5_000, 1), (clock, 7, 2), (followed, 0, 1)];
    for (register, index, value) in ours {
        let written = controller.modify(cell(register, index, value)).await;
        written.expect("written");
    }
    // As many as take two visits to the data plane.
    let asked = (0..6_000).map(|index| cell(clock, index, 0)).collect();
    let (read, _, status) = controller.read_all(asked).await;
    status.expect("read");
    let mut expected: Vec<Entity> = (0..6_000).map(|index| cell(clock, index, 0)).collect();
    expected[7] = cell(clock, 7, 2);
    expected[5_000] = cell(clock, 5_000, 1);
    assert!(read == expected, "{} cells", read.len());
    // One of another register, and two that do not exist.
    let asked = vec![
        cell(clock, cells, 0),
        cell(clock, 7, 0),
        cell(followed, 0, 0),
        cell(1, 0, 0),
        cell(clock, 5_000, 0),
    ];
    let (read, _, status) = controller.read_all(asked).await;
    let ours = [(clock, 7, 2), (followed, 0, 1), (clock, 5_000, 1)];
    assert_eq!(read, ours.map(|(id, index, value)| cell(id, index, value)));
    let codes = details(&status.expect_err("two are wrong")).into_iter();
    assert_eq!(
        codes.map(|(code, _)| code).collect::<Vec<_>>(),
        [
            Code::OutOfRange,
            Code::Ok,
            Code::Ok,
            Code::NotFound,
            Code::Ok
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn a_read_with_bad_requests_answers_the_good_ones() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let seen = p4::CounterEntry {
        counter_id: controller.counter("KindsIngress.seen"),
        ..Default::default()
    };
    let (read, _, status) = controller
        .read_all(vec![
            Entity::CounterEntry(seen),
            Entity::CounterEntry(p4::CounterEntry {
                counter_id: 1,
                ..Default::default()
            }),
            Entity::ExternEntry(p4::ExternEntry {
                extern_type_id: 1,
                ..Default::default()
            }),
        ])
        .await;
    assert_eq!(read.len(), 16);
    let status = status.expect_err("two failed");
    assert_eq!(status.code(), Code::Unknown);
    let codes: Vec<Code> = details(&status).iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Code::Ok, Code::NotFound, Code::Unimplemented]);
    server.stop().await;
}

// ---------------------------------------------------------------------------------------------
// Multicast groups

#[tokio::test]
async fn multicast_groups_are_kept_with_their_metadata() {
    let server = Server::start().await;
    let mut controller = server.controller("pacer").await;
    let group = |id: u32, ports: &[u8]| p4::MulticastGroupEntry {
        multicast_group_id: id,
        replicas: ports
            .iter()
            .map(|port| p4::Replica {
                port_kind: Some(p4::replica::PortKind::Port(vec![*port])),
                instance: 1,
                backup_replicas: Vec::new(),
            })
            .collect(),
        metadata: b"flood".to_vec(),
    };
    let entity = |group: &p4::MulticastGroupEntry| {
        Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
            r#type: Some(
                p4::packet_replication_engine_entry::Type::MulticastGroupEntry(group.clone()),
            ),
        })
    };
    let first = group(1, &[1, 2]);
    controller
        .write(Type::Insert, entity(&first))
        .await
        .expect("inserted");
    let changed = group(1, &[2]);
    controller.modify(entity(&changed)).await.expect("modified");
    assert_eq!(
        controller.read(entity(&group(0, &[]))).await,
        [entity(&changed)]
    );
    // Ports given in the deprecated field are read from it.
    #[allow(deprecated)]
    let old = p4::MulticastGroupEntry {
        multicast_group_id: 2,
        replicas: vec![p4::Replica {
            port_kind: Some(p4::replica::PortKind::EgressPort(2)),
            ..Default::default()
        }],
        metadata: Vec::new(),
    };
    controller
        .write(Type::Insert, entity(&old))
        .await
        .expect("inserted");
    assert_eq!(
        controller.read(entity(&group(2, &[]))).await,
        [entity(&old)]
    );
    controller
        .write(Type::Delete, entity(&group(1, &[])))
        .await
        .expect("deleted");
    let mut backups = group(3, &[1]);
    backups.replicas[0].backup_replicas = vec![p4::BackupReplica::default()];
    for (bad, code, text) in [
        (
            group(0, &[1]),
            Code::InvalidArgument,
            "multicast_group_id: 0",
        ),
        (group(3, &[1, 1]), Code::InvalidArgument, "given twice"),
        (
            group(3, &[9]),
            Code::InvalidArgument,
            "multicast group 3: this switch has no port 9",
        ),
        (group(2, &[1]), Code::AlreadyExists, "multicast group 2"),
        (backups, Code::Unimplemented, "backup_replicas"),
    ] {
        let refused = controller.write(Type::Insert, entity(&bad)).await;
        let (given, message) = refused.expect_err(text);
        assert_eq!(given, code, "{message}");
        assert!(
            message.contains(text),
            "{message:?} does not contain {text:?}"
        );
    }
    server.stop().await;
}

// ---------------------------------------------------------------------------------------------
// Packets

fn packet_out(fields: &[(u32, &[u8])]) -> ToSwitch {
    ToSwitch::Packet(p4::PacketOut {
        payload: b"payload".to_vec(),
        metadata: fields
            .iter()
            .map(|(metadata_id, value)| p4::PacketMetadata {
                metadata_id: *metadata_id,
                value: value.to_vec(),
            })
            .collect(),
    })
}

#[tokio::test]
async fn packets_go_out_and_come_in_at_the_primary_only() {
    let server = Server::start().await;
    let mut primary = server.controller("kinds").await;
    let mut backup = Controller::open(&server).await;
    backup.arbitrate(0).await.expect("open");
    // Out at the controller's own port, and so back in.
    primary
        .send(packet_out(&[(1, &[1, 0xfe]), (2, &[0x7f])]))
        .await;
    let FromSwitch::Packet(packet) = primary.receive().await.expect("open") else {
        panic!("a packet-in");
    };
    assert_eq!(packet.payload, b"payload");
    let values: Vec<_> = packet
        .metadata
        .iter()
        .map(|metadata| (metadata.metadata_id, metadata.value.clone()))
        .collect();
    assert_eq!(values, [(1, vec![1, 0xfe]), (2, vec![0])]);

    // The backup's packet-out is refused and reported, and it has seen no packet-in.
    let refused = packet_out(&[(1, &[1]), (2, &[0])]);
    backup.send(refused.clone()).await;
    let FromSwitch::Error(error) = backup.receive().await.expect("open") else {
        panic!("an error");
    };
    assert_eq!(Code::from(error.canonical_code), Code::PermissionDenied);
    let Some(p4::stream_error::Details::PacketOut(details)) = error.details else {
        panic!("details of a packet-out");
    };
    assert_eq!(details.packet_out.map(ToSwitch::Packet), Some(refused));
    server.stop().await;
}

#[tokio::test]
async fn malformed_stream_messages_are_reported_and_the_stream_goes_on() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    for (message, code, text) in [
        (
            packet_out(&[(2, &[0])]),
            Code::InvalidArgument,
            "packet_out: field egress_port (id 1, 9 bits) is missing",
        ),
        (
            packet_out(&[(1, &[2, 0]), (2, &[0])]),
            Code::InvalidArgument,
            "packet_out: field egress_port: value 0x0200 needs 10 bits, 9 bits expected",
        ),
        (
            ToSwitch::Packet(p4::PacketOut {
                payload: vec![0; 20_000],
                metadata: Vec::new(),
            }),
            Code::InvalidArgument,
            "packet_out: payload: 20000 bytes given, at most 16384 expected",
        ),
        (
            ToSwitch::DigestAck(p4::DigestListAck::default()),
            Code::InvalidArgument,
            "digest_id: not given",
        ),
        (
            ToSwitch::Other(prost_types::Any::default()),
            Code::Unimplemented,
            "other",
        ),
    ] {
        controller.send(message).await;
        let FromSwitch::Error(error) = controller.receive().await.expect("open") else {
            panic!("an error");
        };
        assert_eq!(Code::from(error.canonical_code), code);
        assert!(error.message.starts_with(text), "{:?}", error.message);
    }
    controller.send(packet_out(&[(1, &[1, 0xfe])])).await;
    assert!(matches!(
        controller.receive().await,
        Ok(FromSwitch::Packet(_))
    ));
    server.stop().await;
}
