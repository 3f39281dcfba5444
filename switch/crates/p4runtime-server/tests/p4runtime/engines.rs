//! The objects of a program beside tables and arrays: action profiles, clone sessions, value sets,
//! digests, idle timeouts. Each is written, read back, and applied to packets.

use p4::entity::Entity;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::stream_message_request::Update as ToSwitch;
use p4::stream_message_response::Update as FromSwitch;
use p4::update::Type;
use p4runtime_server::proto::p4::config::v1 as p4info;
use p4runtime_server::proto::p4::v1 as p4;
use tonic::Code;

use crate::support::{Controller, Push, Server, config, details, exact, ternary};

/// The destination of a frame of the tests; `n` is its last byte.
const DST: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A frame from the station `src` with an EtherType.
fn frame(src: u8, ether_type: u16) -> Vec<u8> {
    let mut frame = DST.to_vec();
    frame.extend([2, 0, 0, 0, 0, src]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend([0xaa; 46]);
    frame
}

/// An entry of `KindsIngress.special` for these frames.
fn special(controller: &Controller, action: &str, argument: &[u8]) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("KindsIngress.special"),
        r#match: vec![exact(1, &DST)],
        action: controller.call(action, &[argument]),
        ..Default::default()
    }
}

fn send(controller: &Controller, port: u8) -> Option<p4::Action> {
    let Some(p4::table_action::Type::Action(action)) = controller
        .call("KindsIngress.send", &[&[port]])
        .and_then(|action| action.r#type)
    else {
        panic!("an action");
    };
    Some(action)
}

fn clone_session(entry: p4::CloneSessionEntry) -> Entity {
    Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
        r#type: Some(Replication::CloneSessionEntry(entry)),
    })
}

fn replica(port: u8) -> p4::Replica {
    p4::Replica {
        port_kind: Some(p4::replica::PortKind::Port(vec![port])),
        ..Default::default()
    }
}

#[tokio::test]
async fn clone_sessions_copy_cut_and_come_back_as_written() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    controller
        .insert(special(&controller, "KindsIngress.mirror", &[1]))
        .await
        .expect("inserted");
    #[allow(deprecated)]
    let session = p4::CloneSessionEntry {
        session_id: 7,
        replicas: vec![
            replica(2),
            p4::Replica {
                port_kind: Some(p4::replica::PortKind::EgressPort(1)),
                instance: 5,
                ..Default::default()
            },
        ],
        class_of_service: 3,
        packet_length_bytes: 20,
    };
    let entity = clone_session(session.clone());
    controller
        .write(Type::Insert, entity.clone())
        .await
        .expect("inserted");
    for id in [0, 7] {
        let filter = clone_session(p4::CloneSessionEntry {
            session_id: id,
            ..Default::default()
        });
        assert_eq!(controller.read(filter).await, std::slice::from_ref(&entity));
    }
    let sent = frame(1, 0x9000);
    server.arrive(2, &sent);
    let mut left = Vec::new();
    for _ in 0..3 {
        left.push(server.leave().await);
    }
    left.sort();
    let cut = sent[..20].to_vec();
    assert_eq!(left, [(1, cut.clone()), (1, sent.clone()), (2, cut)]);

    let whole = p4::CloneSessionEntry {
        replicas: vec![replica(2)],
        packet_length_bytes: 0,
        ..session
    };
    controller
        .write(Type::Modify, clone_session(whole))
        .await
        .expect("modified");
    server.arrive(2, &sent);
    let mut left = [server.leave().await, server.leave().await];
    left.sort();
    assert_eq!(left, [(1, sent.clone()), (2, sent.clone())]);
    let key = clone_session(p4::CloneSessionEntry {
        session_id: 7,
        ..Default::default()
    });
    controller
        .write(Type::Delete, key.clone())
        .await
        .expect("deleted");
    let (_, _, status) = controller.read_all(vec![key]).await;
    let missing = details(&status.expect_err("gone"));
    assert_eq!(missing[0].0, Code::NotFound);
    server.stop().await;
}

fn member(controller: &Controller, profile: &str, member_id: u32, port: u8) -> Entity {
    Entity::ActionProfileMember(p4::ActionProfileMember {
        action_profile_id: controller.profile(profile),
        member_id,
        action: send(controller, port),
    })
}

fn group(controller: &Controller, members: &[(u32, i32)]) -> p4::ActionProfileGroup {
    use p4::action_profile_group::{Member, member::WatchKind};
    p4::ActionProfileGroup {
        action_profile_id: controller.profile("KindsIngress.paths"),
        group_id: 3,
        members: members
            .iter()
            .map(|(member_id, weight)| Member {
                member_id: *member_id,
                weight: *weight,
                watch_kind: Some(WatchKind::WatchPort(vec![
                    u8::try_from(*member_id).expect("a port"),
                ])),
            })
            .collect(),
        max_size: 6,
    }
}

/// An entry of a table with an action profile.
fn indirect(
    controller: &Controller,
    table: &str,
    action: p4::table_action::Type,
) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table(table),
        r#match: vec![exact(1, &DST)],
        action: Some(p4::TableAction {
            r#type: Some(action),
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn members_of_a_profile_act_for_the_entries_that_name_them() {
    use p4::table_action::Type as Action;
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let entry = indirect(
        &controller,
        "KindsIngress.indirect",
        Action::ActionProfileMemberId(5),
    );
    let early = controller.insert(entry.clone()).await;
    assert_eq!(early.expect_err("no member yet").0, Code::NotFound);
    let first = member(&controller, "KindsIngress.shared", 5, 1);
    controller
        .write(Type::Insert, first.clone())
        .await
        .expect("inserted");
    controller.insert(entry.clone()).await.expect("inserted");
    let filter = p4::TableEntry {
        table_id: entry.table_id,
        ..Default::default()
    };
    assert_eq!(
        controller.entries(filter).await,
        std::slice::from_ref(&entry)
    );
    let sent = frame(1, 0x9000);
    server.arrive(2, &sent);
    assert_eq!(server.leave().await, (1, sent.clone()));
    let changed = member(&controller, "KindsIngress.shared", 5, 2);
    controller
        .write(Type::Modify, changed.clone())
        .await
        .expect("modified");
    server.arrive(2, &sent);
    assert_eq!(server.leave().await, (2, sent));
    // Read by profile and id, by profile, and all.
    let profile = controller.profile("KindsIngress.shared");
    for (action_profile_id, member_id) in [(profile, 5), (profile, 0), (0, 0)] {
        let filter = Entity::ActionProfileMember(p4::ActionProfileMember {
            action_profile_id,
            member_id,
            action: None,
        });
        assert_eq!(
            controller.read(filter).await,
            std::slice::from_ref(&changed)
        );
    }
    let used = controller.write(Type::Delete, changed.clone()).await;
    assert_eq!(used.expect_err("in use").0, Code::FailedPrecondition);
    controller.delete(entry).await.expect("deleted");
    controller
        .write(Type::Delete, changed)
        .await
        .expect("deleted");
    // Room for four.
    for id in 1..=4 {
        let one = member(&controller, "KindsIngress.shared", id, 1);
        controller.write(Type::Insert, one).await.expect("inserted");
    }
    let fifth = member(&controller, "KindsIngress.shared", 5, 1);
    let full = controller.write(Type::Insert, fifth).await;
    assert_eq!(full.expect_err("full").0, Code::ResourceExhausted);
    server.stop().await;
}

/// Ports that a hundred frames of different stations leave by.
async fn ports(server: &mut Server) -> Vec<u16> {
    let mut ports = Vec::new();
    for src in 0..100 {
        server.arrive(2, &frame(src, 0x9000));
        ports.push(server.leave().await.0);
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[tokio::test]
async fn groups_of_a_selector_choose_among_members_whose_port_is_up() {
    use p4::table_action::Type as Action;
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    for id in 1..=2u8 {
        let one = member(&controller, "KindsIngress.paths", id.into(), id);
        controller.write(Type::Insert, one).await.expect("inserted");
    }
    let both = group(&controller, &[(1, 2), (2, 4)]);
    let entity = Entity::ActionProfileGroup(both.clone());
    controller
        .write(Type::Insert, entity.clone())
        .await
        .expect("inserted");
    let filter = Entity::ActionProfileGroup(p4::ActionProfileGroup::default());
    assert_eq!(
        controller.read(filter.clone()).await,
        std::slice::from_ref(&entity)
    );
    let entry = indirect(
        &controller,
        "KindsIngress.spread",
        Action::ActionProfileGroupId(3),
    );
    controller.insert(entry.clone()).await.expect("inserted");
    assert_eq!(
        controller
            .entries(p4::TableEntry {
                table_id: entry.table_id,
                ..Default::default()
            })
            .await,
        std::slice::from_ref(&entry)
    );
    assert_eq!(ports(&mut server).await, [1, 2]);
    server.link(1, false);
    assert_eq!(ports(&mut server).await, [2]);
    server.link(1, true);
    assert_eq!(ports(&mut server).await, [1, 2]);
    let one = group(&controller, &[(2, 1)]);
    controller
        .modify(Entity::ActionProfileGroup(one))
        .await
        .expect("modified");
    assert_eq!(ports(&mut server).await, [2]);

    // A batch that fails leaves the group as it was, and so does one that deletes all.
    let batch = vec![
        (
            Type::Delete,
            Entity::TableEntry(p4::TableEntry {
                action: None,
                ..entry.clone()
            }),
        ),
        (Type::Delete, Entity::ActionProfileGroup(both.clone())),
        (
            Type::Delete,
            member(&controller, "KindsIngress.paths", 2, 2),
        ),
        (
            Type::Insert,
            member(&controller, "KindsIngress.paths", 1, 2),
        ),
    ];
    let before = controller.read(filter.clone()).await;
    let mut request = controller.request(batch);
    request.atomicity = p4::write_request::Atomicity::RollbackOnError.into();
    let status = controller.client.write(request).await.expect_err("fails");
    assert_eq!(details(&status)[3].0, Code::AlreadyExists);
    assert_eq!(controller.read(filter).await, before);
    assert_eq!(ports(&mut server).await, [2]);
    server.stop().await;
}

fn one_shot(controller: &Controller, actions: &[(u8, i32)]) -> p4::TableEntry {
    use p4::action_profile_action::WatchKind;
    let set = p4::ActionProfileActionSet {
        action_profile_actions: actions
            .iter()
            .map(|(port, weight)| p4::ActionProfileAction {
                action: send(controller, *port),
                weight: *weight,
                #[allow(deprecated)]
                watch_kind: Some(WatchKind::Watch((*port).into())),
            })
            .collect(),
        ..Default::default()
    };
    indirect(
        controller,
        "KindsIngress.spread",
        p4::table_action::Type::ActionProfileActionSet(set),
    )
}

#[tokio::test]
async fn one_shot_sets_come_back_as_written() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    // The same action twice is not merged.
    let entry = one_shot(&controller, &[(1, 1), (1, 1), (2, 4)]);
    controller.insert(entry.clone()).await.expect("inserted");
    let filter = p4::TableEntry {
        table_id: entry.table_id,
        ..Default::default()
    };
    assert_eq!(
        controller.entries(filter.clone()).await,
        std::slice::from_ref(&entry)
    );
    assert_eq!(ports(&mut server).await, [1, 2]);
    server.link(2, false);
    assert_eq!(ports(&mut server).await, [1]);
    server.link(2, true);
    for (bad, text) in [
        (one_shot(&controller, &[(1, 7)]), "max_group_size"),
        (one_shot(&controller, &[(1, 0)]), "weight: 0 given"),
        (one_shot(&controller, &[(1, -1)]), "weight: -1 given"),
        (one_shot(&controller, &[(9, 1)]), "no port 9"),
    ] {
        let refused = controller.modify(Entity::TableEntry(bad)).await;
        let (code, message) = refused.expect_err(text);
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(text), "{message}");
    }
    // Not beside members.
    let one = member(&controller, "KindsIngress.paths", 1, 1);
    let (code, message) = controller
        .write(Type::Insert, one.clone())
        .await
        .expect_err("one-shot sets are there");
    assert_eq!(code, Code::InvalidArgument, "{message}");
    controller.delete(entry.clone()).await.expect("deleted");
    controller.write(Type::Insert, one).await.expect("inserted");
    let (code, _) = controller.insert(entry).await.expect_err("a member");
    assert_eq!(code, Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn value_sets_steer_the_parser() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    controller
        .insert(special(&controller, "KindsIngress.send", &[1]))
        .await
        .expect("inserted");
    let types = controller.value_set("KindsParser.types");
    let set = |id, members: &[Vec<p4::FieldMatch>]| {
        Entity::ValueSetEntry(p4::ValueSetEntry {
            value_set_id: id,
            members: members
                .iter()
                .map(|fields| p4::ValueSetMember {
                    r#match: fields.clone(),
                })
                .collect(),
        })
    };
    let two = set(types, &[vec![exact(1, &[0x90, 0])], vec![exact(1, &[5])]]);
    // Values that are not in the set leave by port 1, the others by port 2.
    server.arrive(1, &frame(1, 0x9000));
    assert_eq!(server.leave().await.0, 1);
    controller.modify(two.clone()).await.expect("modified");
    server.arrive(1, &frame(1, 0x9000));
    assert_eq!(server.leave().await.0, 2);
    server.arrive(1, &frame(1, 0x9001));
    assert_eq!(server.leave().await.0, 1);
    assert_eq!(
        controller.read(set(types, &[])).await,
        std::slice::from_ref(&two)
    );
    // Fields of any kind.
    let tags = controller.value_set("KindsParser.tags");
    let masked = set(
        tags,
        &[vec![
            ternary(1, &[0x90, 1], &[0xff, 0xff]),
            exact(2, &[2, 0, 0, 0, 0, 7]),
        ]],
    );
    controller.modify(masked.clone()).await.expect("modified");
    server.arrive(1, &frame(7, 0x9001));
    assert_eq!(server.leave().await.0, 2);
    assert_eq!(controller.read(set(0, &[])).await, [two, masked]);

    let value = |byte| vec![exact(1, &[byte])];
    let many: Vec<_> = (1..=5).map(value).collect();
    for (kind, bad, wanted) in [
        (Type::Insert, set(types, &[]), Code::InvalidArgument),
        (Type::Delete, set(types, &[]), Code::InvalidArgument),
        (Type::Modify, set(types, &many), Code::ResourceExhausted),
        (
            Type::Modify,
            set(types, &[value(1), value(1)]),
            Code::AlreadyExists,
        ),
        (
            Type::Modify,
            set(types, &[vec![exact(2, &[1])]]),
            Code::InvalidArgument,
        ),
        (
            Type::Modify,
            set(types, &[vec![exact(1, &[1, 0, 0])]]),
            Code::InvalidArgument,
        ),
        (Type::Modify, set(types, &[vec![]]), Code::InvalidArgument),
        (Type::Modify, set(0x0300_0001, &[]), Code::NotFound),
    ] {
        let (code, message) = controller.write(kind, bad).await.expect_err("refused");
        assert_eq!(code, wanted, "{message}");
    }
    // Empty again.
    controller.modify(set(types, &[])).await.expect("modified");
    server.arrive(1, &frame(1, 0x9000));
    assert_eq!(server.leave().await.0, 1);
    server.stop().await;
}

fn digest(controller: &Controller, config: p4::digest_entry::Config) -> Entity {
    Entity::DigestEntry(p4::DigestEntry {
        digest_id: controller.digest("seen_t"),
        config: Some(config),
    })
}

async fn digest_list(controller: &mut Controller) -> p4::DigestList {
    match controller.receive().await.expect("open") {
        FromSwitch::Digest(list) => list,
        other => panic!("a digest list expected: {other:?}"),
    }
}

/// The stations in a list.
fn stations(list: &p4::DigestList) -> Vec<u8> {
    use p4::p4_data::Data;
    let station = |data: &p4::P4Data| match &data.data {
        Some(Data::Struct(fields)) => match fields.members.first().map(|field| &field.data) {
            Some(Some(Data::Bitstring(value))) => *value.last().expect("a byte"),
            other => panic!("a station expected: {other:?}"),
        },
        other => panic!("a struct expected: {other:?}"),
    };
    list.data.iter().map(station).collect()
}

#[tokio::test]
async fn digests_come_in_lists_and_once_until_acknowledged() {
    use p4::p4_data::Data;
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let mut backup = Controller::open(&server).await;
    backup.arbitrate(0).await.expect("open");
    controller
        .insert(special(&controller, "KindsIngress.learn", &[1]))
        .await
        .expect("inserted");
    let timed = p4::digest_entry::Config {
        max_timeout_ns: 1_000,
        max_list_size: 2,
        ack_timeout_ns: 1_000_000,
    };
    let enable = digest(&controller, timed);
    controller
        .write(Type::Insert, enable.clone())
        .await
        .expect("enabled");
    let filter = Entity::DigestEntry(p4::DigestEntry::default());
    assert_eq!(
        controller.read(filter.clone()).await,
        std::slice::from_ref(&enable)
    );
    // Two distinct messages make a list; a third waits for its time.
    for src in [1, 1, 2, 2, 3] {
        server.arrive(1, &frame(src, 0x9000));
        server.leave().await;
    }
    let first = digest_list(&mut controller).await;
    assert_eq!(stations(&first), [1, 2]);
    let Some(Data::Struct(fields)) = &first.data[0].data else {
        panic!("a struct");
    };
    let fields: Vec<_> = fields
        .members
        .iter()
        .map(|data| data.data.clone())
        .collect();
    assert_eq!(
        fields,
        [
            Some(Data::Bitstring(vec![2, 0, 0, 0, 0, 1])),
            // -2 in the fewest bytes.
            Some(Data::Bitstring(vec![0xfe])),
            Some(Data::Bool(false)),
            Some(Data::EnumValue(vec![1])),
            Some(Data::Bitstring(vec![1])),
        ]
    );
    server.time(2_000);
    let second = digest_list(&mut controller).await;
    assert_eq!((stations(&second), second.timestamp), (vec![3], 2_000));
    assert_ne!(first.list_id, second.list_id);

    // Only a message that the primary acknowledged is sent again.
    let ack = |list: &p4::DigestList, digest_id| {
        ToSwitch::DigestAck(p4::DigestListAck {
            digest_id,
            list_id: list.list_id,
        })
    };
    backup.send(ack(&second, second.digest_id)).await;
    let FromSwitch::Error(error) = backup.receive().await.expect("open") else {
        panic!("an error");
    };
    assert_eq!(Code::from(error.canonical_code), Code::PermissionDenied);
    controller.send(ack(&first, 7)).await;
    let FromSwitch::Error(error) = controller.receive().await.expect("open") else {
        panic!("an error");
    };
    assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument);
    assert!(matches!(
        error.details,
        Some(p4::stream_error::Details::DigestListAck(_))
    ));
    controller.send(ack(&first, first.digest_id)).await;
    // Handled in order: an error's answer comes after the acknowledgement took effect.
    controller.send(ack(&first, 7)).await;
    let FromSwitch::Error(_) = controller.receive().await.expect("open") else {
        panic!("an error");
    };
    for src in [3, 2, 1] {
        server.arrive(1, &frame(src, 0x9000));
        server.leave().await;
    }
    assert_eq!(stations(&digest_list(&mut controller).await), [2, 1]);
    // The third station was not acknowledged, so its time runs out.
    server.time(1_002_000);
    server.arrive(1, &frame(3, 0x9000));
    server.leave().await;
    server.time(1_003_000);
    assert_eq!(stations(&digest_list(&mut controller).await), [3]);

    // At once, and nothing remembered.
    let at_once = digest(&controller, p4::digest_entry::Config::default());
    controller.modify(at_once.clone()).await.expect("modified");
    for _ in 0..2 {
        server.arrive(1, &frame(4, 0x9000));
        assert_eq!(stations(&digest_list(&mut controller).await), [4]);
    }
    for (kind, entity, wanted) in [
        (Type::Insert, at_once.clone(), Code::AlreadyExists),
        (
            Type::Modify,
            digest(
                &controller,
                p4::digest_entry::Config {
                    ack_timeout_ns: -1,
                    ..Default::default()
                },
            ),
            Code::InvalidArgument,
        ),
        (
            Type::Modify,
            Entity::DigestEntry(p4::DigestEntry {
                digest_id: 9,
                config: None,
            }),
            Code::NotFound,
        ),
    ] {
        let (code, message) = controller.write(kind, entity).await.expect_err("refused");
        assert_eq!(code, wanted, "{message}");
    }
    let disable = Entity::DigestEntry(p4::DigestEntry {
        digest_id: controller.digest("seen_t"),
        config: None,
    });
    controller
        .write(Type::Delete, disable.clone())
        .await
        .expect("disabled");
    assert_eq!(controller.read(filter).await, []);
    let (code, _) = controller
        .write(Type::Delete, disable)
        .await
        .expect_err("disabled already");
    assert_eq!(code, Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn idle_entries_are_told_and_show_their_time() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    server.time(1_000_000);
    let entry = p4::TableEntry {
        idle_timeout_ns: 5_000_000,
        metadata: b"mine".to_vec(),
        ..special(&controller, "KindsIngress.send", &[1])
    };
    controller.insert(entry.clone()).await.expect("inserted");
    let filter = p4::TableEntry {
        table_id: entry.table_id,
        time_since_last_hit: Some(p4::table_entry::IdleTimeout::default()),
        ..Default::default()
    };
    // Only where it is asked for.
    let plain = p4::TableEntry {
        time_since_last_hit: None,
        ..filter.clone()
    };
    assert_eq!(
        controller.entries(plain).await,
        std::slice::from_ref(&entry)
    );
    server.time(2_000_000);
    server.arrive(2, &frame(1, 0x9000));
    server.leave().await;
    server.time(4_000_000);
    let read = controller.entries(filter.clone()).await;
    let elapsed = |read: &[p4::TableEntry]| {
        let since = read.first().and_then(|entry| entry.time_since_last_hit);
        since.map(|since| since.elapsed_ns)
    };
    assert_eq!(elapsed(&read), Some(2_000_000));
    for at_ns in [7_000_000, 12_000_000] {
        server.time(at_ns);
        let FromSwitch::IdleTimeoutNotification(told) = controller.receive().await.expect("open")
        else {
            panic!("an idle notification");
        };
        assert_eq!(told.timestamp, at_ns as i64);
        let key = p4::TableEntry {
            action: None,
            ..entry.clone()
        };
        assert_eq!(told.table_entry, [key]);
    }
    // Without a timeout there is no notification, but the time is still shown.
    let forever = p4::TableEntry {
        idle_timeout_ns: 0,
        ..entry.clone()
    };
    controller
        .modify(Entity::TableEntry(forever))
        .await
        .expect("modified");
    server.time(30_000_000);
    assert_eq!(elapsed(&controller.entries(filter).await), Some(28_000_000));
    for (bad, text) in [
        (
            p4::TableEntry {
                idle_timeout_ns: -1,
                ..entry.clone()
            },
            "idle_timeout_ns: -1",
        ),
        (
            p4::TableEntry {
                time_since_last_hit: Some(p4::table_entry::IdleTimeout::default()),
                ..entry.clone()
            },
            "time_since_last_hit",
        ),
        (
            p4::TableEntry {
                is_default_action: true,
                r#match: Vec::new(),
                ..entry.clone()
            },
            "no idle timeout",
        ),
        (
            p4::TableEntry {
                table_id: controller.table("KindsIngress.fixed"),
                idle_timeout_ns: 1,
                r#match: vec![exact(1, &[1])],
                action: None,
                ..Default::default()
            },
            "no idle timeout",
        ),
    ] {
        let refused = controller.modify(Entity::TableEntry(bad)).await;
        let (code, message) = refused.expect_err(text);
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(text), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_saved_config_takes_writes_until_it_is_committed() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let to_one = special(&controller, "KindsIngress.send", &[1]);
    let to_two = special(&controller, "KindsIngress.send", &[2]);
    controller.insert(to_one.clone()).await.expect("inserted");
    controller
        .push(config("kinds"), Push::VerifyAndSave)
        .await
        .expect("saved");
    // Reads and writes mean the saved one, packets meet the running one.
    assert!(controller.entries(p4::TableEntry::default()).await.len() == 2);
    controller.insert(to_two.clone()).await.expect("inserted");
    server.arrive(1, &frame(1, 0x9000));
    assert_eq!(server.leave().await.0, 1);
    controller
        .push_request(None, Push::Commit)
        .await
        .expect("committed");
    server.arrive(1, &frame(1, 0x9000));
    assert_eq!(server.leave().await.0, 2);
    let filter = p4::TableEntry {
        table_id: to_two.table_id,
        ..Default::default()
    };
    assert_eq!(controller.entries(filter).await, [to_two]);
    let again = controller.push_request(None, Push::Commit).await;
    assert_eq!(again.expect_err("none saved").code(), Code::NotFound);
    server.stop().await;
}

#[tokio::test]
async fn a_saved_config_outlives_a_refused_reconciliation() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let mut other = config("kinds");
    other.p4_device_config.push(b' ');
    controller
        .push(other, Push::VerifyAndSave)
        .await
        .expect("saved");
    let entry = special(&controller, "KindsIngress.send", &[2]);
    controller.insert(entry.clone()).await.expect("inserted");
    let mut third = config("kinds");
    third.p4_device_config.extend(b"  ");
    let refused = controller
        .push_request(Some(third), Push::ReconcileAndCommit)
        .await;
    assert_eq!(
        refused.expect_err("one is saved").code(),
        Code::FailedPrecondition
    );
    controller
        .push_request(None, Push::Commit)
        .await
        .expect("committed");
    let filter = p4::TableEntry {
        table_id: entry.table_id,
        ..Default::default()
    };
    assert_eq!(controller.entries(filter).await, [entry]);
    server.stop().await;
}

#[tokio::test]
async fn entries_of_the_program_may_be_changed_unless_p4info_says_constant() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let table_id = controller.table("KindsIngress.fixed");
    let fixed = |controller: &Controller, port: u8| p4::TableEntry {
        table_id,
        r#match: vec![exact(1, &[port])],
        action: controller.call("KindsIngress.send", &[&[1]]),
        ..Default::default()
    };
    let entry = fixed(&controller, 3);
    let refused = controller.insert(entry).await.expect_err("constant");
    assert_eq!(refused.0, Code::PermissionDenied);

    let mut preset = config("kinds");
    let info = preset.p4info.as_mut().expect("P4Info");
    for table in &mut info.tables {
        table.is_const_table = false;
    }
    controller
        .push(preset.clone(), Push::VerifyAndCommit)
        .await
        .expect("accepted");
    let filter = p4::TableEntry {
        table_id,
        ..Default::default()
    };
    let own = controller.entries(filter.clone()).await;
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|entry| !entry.is_const), "{own:?}");
    for port in 3..=5 {
        let entry = fixed(&controller, port);
        controller
            .insert(entry)
            .await
            .expect("room by P4Info's size");
    }
    controller.delete(own[0].clone()).await.expect("deleted");
    let left = controller.entries(filter.clone()).await;
    assert_eq!(left.len(), 4);
    // It is state, too, that an entry of the program's is gone.
    preset.p4_device_config.push(b' ');
    controller
        .push(preset, Push::ReconcileAndCommit)
        .await
        .expect("reconciled");
    assert_eq!(controller.entries(filter).await, left);
    server.stop().await;
}

#[tokio::test]
async fn types_that_grow_without_bound_are_refused() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let named = |name: String| p4info::P4DataTypeSpec {
        type_spec: Some(p4info::p4_data_type_spec::TypeSpec::Struct(
            p4info::P4NamedType { name },
        )),
    };
    let mut grown = config("kinds");
    let info = grown.p4info.as_mut().expect("P4Info");
    let types = info.type_info.get_or_insert_default();
    for level in 0..15 {
        let member = |n: u8| p4info::p4_struct_type_spec::Member {
            name: format!("m{n}"),
            type_spec: Some(named(format!("s{}", level + 1))),
        };
        let members = (0..8).map(member).collect();
        let spec = p4info::P4StructTypeSpec {
            members,
            ..Default::default()
        };
        types.structs.insert(format!("s{level}"), spec);
    }
    let digest = info.digests.first_mut().expect("a digest");
    digest.type_spec = Some(named("s0".to_owned()));
    // A type that is not implemented: its values cannot be had, but nothing else is held up.
    controller
        .push(grown, Push::Verify)
        .await
        .expect("looked at no further than its fields go");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_taken_back_leaves_meters_as_empty_as_they_were() {
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    controller
        .insert(special(&controller, "KindsIngress.send", &[1]))
        .await
        .expect("inserted");
    let burst = i64::try_from(frame(1, 0x9000).len()).expect("short");
    let meter = |cburst| {
        Entity::MeterEntry(p4::MeterEntry {
            meter_id: controller.meter("KindsIngress.limits"),
            index: Some(p4::Index { index: 1 }),
            config: Some(p4::MeterConfig {
                cir: 1,
                cburst,
                pir: 1,
                pburst: cburst,
                ..Default::default()
            }),
            counter_data: None,
        })
    };
    let (configure, other) = (meter(burst), meter(10 * burst));
    controller.modify(configure).await.expect("configured");
    // The program keeps the colour in a register.
    let mark = Entity::RegisterEntry(p4::RegisterEntry {
        register_id: controller.register("KindsIngress.marks"),
        index: Some(p4::Index { index: 1 }),
        data: None,
    });
    let mut colours = Vec::new();
    for _ in 0..2 {
        server.arrive(1, &frame(1, 0x9000));
        server.leave().await;
        let read = controller.read(mark.clone()).await;
        let Some(Entity::RegisterEntry(cell)) = read.into_iter().next() else {
            panic!("a register");
        };
        let Some(p4::p4_data::Data::Bitstring(colour)) = cell.data.and_then(|data| data.data)
        else {
            panic!("a colour");
        };
        colours.push(colour);
        // Refused as a whole before anything is done; then one that fails in the switch.
        for last in [
            (
                Type::Insert,
                Entity::ExternEntry(p4::ExternEntry::default()),
            ),
            (
                Type::Insert,
                Entity::TableEntry(special(&controller, "KindsIngress.send", &[1])),
            ),
        ] {
            let mut request = controller.request(vec![(Type::Modify, other.clone()), last]);
            request.atomicity = p4::write_request::Atomicity::RollbackOnError.into();
            controller.client.write(request).await.expect_err("fails");
        }
    }
    // Green while the bucket was full, red when it is empty.
    assert_eq!(colours, [vec![0], vec![2]]);
    server.stop().await;
}

/// A pipeline's state as the controller reads it back, without the arrays.
async fn state(controller: &mut Controller) -> Vec<Entity> {
    let mut all = Vec::new();
    for entity in [
        Entity::TableEntry(p4::TableEntry {
            meter_config: Some(p4::MeterConfig::default()),
            counter_data: Some(p4::CounterData::default()),
            ..Default::default()
        }),
        Entity::TableEntry(p4::TableEntry {
            is_default_action: true,
            ..Default::default()
        }),
        Entity::ActionProfileMember(p4::ActionProfileMember::default()),
        Entity::ActionProfileGroup(p4::ActionProfileGroup::default()),
        clone_session(p4::CloneSessionEntry::default()),
        Entity::ValueSetEntry(p4::ValueSetEntry::default()),
        Entity::DigestEntry(p4::DigestEntry::default()),
        Entity::MeterEntry(p4::MeterEntry::default()),
    ] {
        all.extend(controller.read(entity).await);
    }
    all
}

#[tokio::test]
async fn reconciling_keeps_what_was_written() {
    use p4::table_action::Type as Action;
    let mut server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let entry = p4::TableEntry {
        idle_timeout_ns: 9_000,
        metadata: b"kept".to_vec(),
        ..special(&controller, "KindsIngress.send", &[2])
    };
    let route = p4::TableEntry {
        table_id: controller.table("KindsIngress.routes"),
        r#match: vec![exact(2, &[1])],
        action: controller.call("KindsIngress.send", &[&[1]]),
        counter_data: Some(p4::CounterData {
            byte_count: 7,
            packet_count: 1,
        }),
        meter_config: Some(p4::MeterConfig {
            cir: 1,
            pir: 2,
            ..Default::default()
        }),
        ..Default::default()
    };
    let default = p4::TableEntry {
        table_id: controller.table("KindsIngress.everything"),
        is_default_action: true,
        action: controller.call("KindsIngress.send", &[&[1]]),
        ..Default::default()
    };
    let mark = Entity::RegisterEntry(p4::RegisterEntry {
        register_id: controller.register("KindsIngress.marks"),
        index: Some(p4::Index { index: 9_999 }),
        data: Some(p4::P4Data {
            data: Some(p4::p4_data::Data::Bitstring(vec![3])),
        }),
    });
    let batch = vec![
        (Type::Insert, Entity::TableEntry(entry)),
        (Type::Insert, Entity::TableEntry(route)),
        (Type::Modify, Entity::TableEntry(default)),
        (
            Type::Insert,
            member(&controller, "KindsIngress.paths", 1, 1),
        ),
        (
            Type::Insert,
            Entity::ActionProfileGroup(group(&controller, &[(1, 2)])),
        ),
        (
            Type::Insert,
            Entity::TableEntry(indirect(
                &controller,
                "KindsIngress.spread",
                Action::ActionProfileGroupId(3),
            )),
        ),
        (
            Type::Insert,
            clone_session(p4::CloneSessionEntry {
                session_id: 7,
                replicas: vec![replica(2)],
                ..Default::default()
            }),
        ),
        (
            Type::Insert,
            digest(&controller, p4::digest_entry::Config::default()),
        ),
        (Type::Modify, mark.clone()),
    ];
    let request = controller.request(batch);
    controller.client.write(request).await.expect("written");
    let before = state(&mut controller).await;
    assert!(before.len() > 12, "{before:?}");

    // The same program, then one whose text is another.
    let mut other = config("kinds");
    other.p4_device_config.push(b' ');
    other.cookie = None;
    for config in [config("kinds"), other.clone()] {
        controller
            .push(config.clone(), Push::ReconcileAndCommit)
            .await
            .expect("reconciled");
        assert_eq!(state(&mut controller).await, before);
        assert_eq!(
            controller.read(mark.clone()).await,
            std::slice::from_ref(&mark)
        );
        let read = controller
            .client
            .get_forwarding_pipeline_config(p4::GetForwardingPipelineConfigRequest {
                device_id: crate::support::DEVICE,
                ..Default::default()
            })
            .await
            .expect("answered");
        assert_eq!(read.into_inner().config, Some(config));
        server.arrive(2, &frame(1, 0x9000));
        assert_eq!(server.leave().await.0, 2);
    }
    // One without these tables cannot keep their entries; the running one stays.
    let refused = controller
        .push_request(Some(config("pacer")), Push::ReconcileAndCommit)
        .await;
    let refused = refused.expect_err("other tables");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("cannot be preserved"),
        "{refused:?}"
    );
    let without = controller
        .push_request(None, Push::ReconcileAndCommit)
        .await;
    assert_eq!(
        without.expect_err("no config").code(),
        Code::InvalidArgument
    );
    let read = state(&mut controller).await;
    assert_eq!(read.len(), before.len());
    server.stop().await;
}
