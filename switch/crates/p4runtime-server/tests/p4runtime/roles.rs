//! Roles with a definition of their permissions (`pacer.v1.RoleConfig`).

use p4::entity::Entity;
use p4::stream_message_request::Update as ToSwitch;
use p4::stream_message_response::Update as FromSwitch;
use p4::update::Type;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::pacer::v1 as pacer;
use prost::Message;
use tonic::Code;

use crate::support::{
    CPU_PORT, Controller, DEVICE, Push, Server, code, config, details, election, exact,
};
use crate::write_that_waits;

const DST: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn frame(src: u8) -> Vec<u8> {
    let mut frame = DST.to_vec();
    frame.extend([2, 0, 0, 0, 0, src, 0x90, 0]);
    frame.extend([0xaa; 46]);
    frame
}

/// Asks to be primary of a role; `None`: one without a definition.
pub(crate) async fn bid(
    controller: &mut Controller,
    name: &str,
    limits: Option<&pacer::RoleConfig>,
) {
    controller.election_id = 1;
    let update = p4::MasterArbitrationUpdate {
        device_id: DEVICE,
        role: Some(p4::Role {
            name: name.to_owned(),
            config: limits.map(|limits| prost_types::Any {
                type_url: "type.googleapis.com/pacer.v1.RoleConfig".to_owned(),
                value: limits.encode_to_vec(),
            }),
            ..Default::default()
        }),
        election_id: Some(election(1)),
        status: None,
    };
    controller.send(ToSwitch::Arbitration(update)).await;
}

/// Becomes primary of a role with a definition; returns the notification.
async fn join(
    controller: &mut Controller,
    name: &str,
    limits: &pacer::RoleConfig,
) -> p4::MasterArbitrationUpdate {
    bid(controller, name, Some(limits)).await;
    controller.arbitration().await.expect("open")
}

fn special(controller: &Controller, action: &str, argument: &[u8]) -> Entity {
    Entity::TableEntry(p4::TableEntry {
        table_id: controller.table("KindsIngress.special"),
        r#match: vec![exact(1, &DST)],
        action: controller.call(action, &[argument]),
        ..Default::default()
    })
}

#[tokio::test]
async fn a_role_writes_reads_and_hears_what_is_its_own() {
    let mut server = Server::start().await;
    let mut admin = server.controller("kinds").await;
    let mut learner = Controller::open(&server).await;
    learner.info = admin.info.clone();
    let limits = pacer::RoleConfig {
        p4_ids: vec![admin.table("KindsIngress.special"), admin.digest("seen_t")],
        packet_ins: true,
        packet_in_filters: vec![pacer::MetadataFilter {
            metadata_id: 1,
            value: vec![0, 2],
        }],
        packet_outs: true,
        packet_out_filters: vec![pacer::MetadataFilter {
            metadata_id: 1,
            value: CPU_PORT.to_be_bytes().to_vec(),
        }],
        ..Default::default()
    };
    let told = join(&mut learner, "learner", &limits).await;
    assert_eq!(code(&told), Code::Ok);
    let echoed = told.role.and_then(|role| role.config).expect("a config");
    assert_eq!(
        pacer::RoleConfig::decode(echoed.value.as_slice()).expect("a role config"),
        limits
    );

    // Writes: its table and digest, nothing else.
    let digest = Entity::DigestEntry(p4::DigestEntry {
        digest_id: admin.digest("seen_t"),
        config: Some(p4::digest_entry::Config::default()),
    });
    let foreign = Entity::RegisterEntry(p4::RegisterEntry {
        register_id: admin.register("KindsIngress.marks"),
        ..Default::default()
    });
    let group = Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry::default());
    let mut request = learner.request(vec![
        (Type::Insert, special(&admin, "KindsIngress.learn", &[1])),
        (Type::Insert, digest),
        (Type::Modify, foreign.clone()),
        (Type::Insert, group),
    ]);
    request.role = "learner".to_owned();
    let status = learner.client.write(request).await.expect_err("not all");
    let codes: Vec<Code> = details(&status).iter().map(|(code, _)| *code).collect();
    let denied = Code::PermissionDenied;
    assert_eq!(codes, [Code::Ok, Code::Ok, denied, denied]);
    let pushed = p4::SetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        role: "learner".to_owned(),
        election_id: Some(election(1)),
        action: Push::Verify.into(),
        config: Some(config("kinds")),
        ..Default::default()
    };
    let refused = learner.client.set_forwarding_pipeline_config(pushed).await;
    assert_eq!(refused.expect_err("not its own").code(), denied);

    // Reads with the role's name show the role's entities, reads without it all entities.
    let mut read = p4::ReadRequest {
        device_id: DEVICE,
        entities: [Entity::TableEntry(p4::TableEntry::default()), foreign]
            .into_iter()
            .map(|entity| p4::Entity {
                entity: Some(entity),
            })
            .collect(),
        role: "learner".to_owned(),
    };
    for (role, entities) in [("learner", 1), ("", 10_003)] {
        read.role = role.to_owned();
        let mut responses = learner
            .client
            .read(read.clone())
            .await
            .expect("answered")
            .into_inner();
        let mut count = 0;
        while let Some(response) = responses.message().await.expect("read") {
            count += response.entities.len();
        }
        assert_eq!(count, entities, "role {role:?}");
    }

    // Its digests; the default role hears everything.
    server.arrive(1, &frame(1));
    server.leave().await;
    for controller in [&mut learner, &mut admin] {
        assert!(matches!(
            controller.receive().await.expect("open"),
            FromSwitch::Digest(_)
        ));
    }
    // Packet-ins that its filter fits: those of port 2.
    let to_controller = special(&admin, "KindsIngress.send", &CPU_PORT.to_be_bytes());
    admin.modify(to_controller).await.expect("modified");
    for port in [1, 2] {
        server.arrive(port, &frame(1));
        let received = admin.receive().await.expect("open");
        assert!(matches!(received, FromSwitch::Packet(_)), "{received:?}");
    }
    let FromSwitch::Packet(packet) = learner.receive().await.expect("open") else {
        panic!("a packet-in");
    };
    assert_eq!(packet.metadata[0].value, [2]);

    // Packet-outs likewise.
    let out = |port: u16| {
        ToSwitch::Packet(p4::PacketOut {
            payload: frame(1),
            metadata: vec![p4::PacketMetadata {
                metadata_id: 1,
                value: port.to_be_bytes().to_vec(),
            }],
        })
    };
    learner.send(out(1)).await;
    let FromSwitch::Error(error) = learner.receive().await.expect("open") else {
        panic!("an error");
    };
    assert_eq!(Code::from(error.canonical_code), denied);
    learner.send(out(CPU_PORT)).await;
    let received = admin.receive().await.expect("open");
    assert!(matches!(received, FromSwitch::Packet(_)), "{received:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_from_a_role_without_one_even_while_that_writes() {
    let server = Server::start().await;
    let admin = server.controller("kinds").await;
    let mut plain = Controller::open(&server).await;
    bid(&mut plain, "plain", None).await;
    let told = plain.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::Ok);
    let entry = special(&admin, "KindsIngress.learn", &[1]);
    let write = |kind| p4::WriteRequest {
        role: "plain".to_owned(),
        ..plain.request(vec![(kind, entry.clone())])
    };
    let (release, begun) = write_that_waits(&server, &plain, write(Type::Insert)).await;

    // Not primary before that write has ended.
    let mut owner = Controller::open(&server).await;
    let limits = pacer::RoleConfig {
        p4_ids: vec![admin.table("KindsIngress.special")],
        ..Default::default()
    };
    bid(&mut owner, "owner", Some(&limits)).await;
    let mut client = owner.client.clone();
    let early = p4::WriteRequest {
        role: "owner".to_owned(),
        ..owner.request(Vec::new())
    };
    let refused = async {
        loop {
            let refused = client.write(early.clone()).await.expect_err("too early");
            // The switch has not read the bid yet.
            if refused.code() != Code::NotFound {
                return refused.code();
            }
        }
    };
    tokio::select! {
        told = owner.arbitration() => panic!("primary beside another's write: {told:?}"),
        code = refused => assert_eq!(code, Code::PermissionDenied),
    }
    release.send(()).expect("the switch waits");
    begun.await.expect("no panic").expect("finished");
    let told = owner.arbitration().await.expect("open");
    assert_eq!(code(&told), Code::Ok);

    // The primary of before stays, and no longer writes the table.
    let denied = plain.client.clone().write(write(Type::Delete)).await;
    let status = denied.expect_err("the owner's table");
    assert_eq!(details(&status)[0].0, Code::PermissionDenied);
    let owned = p4::WriteRequest {
        role: "owner".to_owned(),
        ..owner.request(vec![(Type::Delete, entry.clone())])
    };
    owner.client.write(owned).await.expect("its own table");
    server.stop().await;
}
