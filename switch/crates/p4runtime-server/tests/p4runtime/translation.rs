//! Types that have other values for controllers (`@p4runtime_translation`), with mappings given at start.

use p4::action_profile_action::WatchKind as ActionWatch;
use p4::action_profile_group::member::WatchKind as MemberWatch;
use p4::entity::Entity;
use p4::p4_data::Data;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::replica::PortKind;
use p4::stream_message_request::Update as ToSwitch;
use p4::stream_message_response::Update as FromSwitch;
use p4::update::Type;
use p4_new_type_translation::SdnType;
use p4info::{p4_data_type_spec, p4_new_type_spec, p4_new_type_translation};
use p4runtime_server::proto::p4::config::v1 as p4info;
use p4runtime_server::proto::p4::v1 as p4;
use tonic::Code;

use crate::support::{Controller, Push, Server, config, exact, lpm, optional, range, ternary};

const MAC: &[u8] = &[2, 0, 0, 0, 0, 1];

/// A frame to [`MAC`] with an EtherType.
fn frame(ether_type: u16) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend([0xaa; 46]);
    frame
}

/// Ports and EtherTypes as strings.
const STRINGS: &str = r#"{
    "port_t": {"bits": 9, "values": {"eth1": 1, "eth2": 2, "cpu": "0x1fe"}},
    "example.org/types": {"bits": 16, "values": {"qinq": "0x9000", "ipv4": 2048}}
}"#;

/// As [`STRINGS`], and ports where P4Info names no type are of `port_t`, too.
const PORTS: &str = r#"{
    "port_t": {"bits": 9, "values": {"eth1": 1, "eth2": 2, "cpu": "0x1fe"}, "ports": true},
    "example.org/types": {"bits": 16, "values": {}}
}"#;

/// The same as numbers, ports of 32 bits and EtherTypes of 8.
const NUMBERS: &str = r#"{
    "port_t": {"bits": 9, "values": {"0x10000001": 1, "0x10000002": 2, "4294967293": 510}},
    "example.org/types": {"bits": 16, "values": {"1": "0x9000", "2": 2048}}
}"#;

fn named(name: &str) -> Option<p4info::P4NamedType> {
    Some(p4info::P4NamedType {
        name: name.to_owned(),
    })
}

/// `kinds` with a type `port_t` for ports, `type_t` for EtherTypes and `mark_t` for a register's cells.
fn translated(port: &SdnType, ether_type: &SdnType) -> p4::ForwardingPipelineConfig {
    let mut config = config("kinds");
    let info = config.p4info.as_mut().expect("P4Info");
    let port_bits = match port {
        SdnType::SdnBitwidth(bits) => *bits,
        SdnType::SdnString(_) => 0,
    };
    let type_bits = match ether_type {
        SdnType::SdnBitwidth(bits) => *bits,
        SdnType::SdnString(_) => 0,
    };
    for field in info.tables.iter_mut().flat_map(|t| &mut t.match_fields) {
        if field.bitwidth == 9 {
            (field.type_name, field.bitwidth) = (named("port_t"), port_bits);
        } else if field.bitwidth == 16 {
            (field.type_name, field.bitwidth) = (named("type_t"), type_bits);
        }
    }
    for param in info.actions.iter_mut().flat_map(|a| &mut a.params) {
        if param.bitwidth == 9 {
            (param.type_name, param.bitwidth) = (named("port_t"), port_bits);
        }
    }
    let headers = info.controller_packet_metadata.iter_mut();
    for field in headers.flat_map(|header| &mut header.metadata) {
        if field.bitwidth == 9 {
            (field.type_name, field.bitwidth) = (named("port_t"), port_bits);
        }
    }
    for field in info.value_sets.iter_mut().flat_map(|set| &mut set.r#match) {
        if field.bitwidth == 16 {
            (field.type_name, field.bitwidth) = (named("type_t"), type_bits);
        }
    }
    let types = info.type_info.get_or_insert_default();
    let of_type = |name: &str| {
        Some(p4info::P4DataTypeSpec {
            type_spec: Some(p4_data_type_spec::TypeSpec::NewType(
                named(name).expect("a name"),
            )),
        })
    };
    let seen = types.structs.get_mut("seen_t").expect("a struct");
    seen.members.last_mut().expect("the port").type_spec = of_type("port_t");
    for (name, uri, sdn_type) in [
        ("port_t", "example.org/ports", port),
        ("type_t", "example.org/types", ether_type),
    ] {
        let translation = p4info::P4NewTypeTranslation {
            uri: uri.to_owned(),
            sdn_type: Some(*sdn_type),
        };
        let new_type = p4info::P4NewTypeSpec {
            representation: Some(p4_new_type_spec::Representation::TranslatedType(
                translation,
            )),
            ..Default::default()
        };
        types.new_types.insert(name.to_owned(), new_type);
    }
    config
}

fn strings() -> SdnType {
    SdnType::SdnString(p4_new_type_translation::SdnString {})
}

/// A primary controller of a switch with these mappings, which has pushed the program.
async fn started(mappings: &str, config: p4::ForwardingPipelineConfig) -> (Server, Controller) {
    let server = Server::with_mappings(mappings).await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let pushed = controller.push(config, Push::VerifyAndCommit).await;
    pushed.expect("accepted");
    (server, controller)
}

/// An entry of `KindsIngress.special`, which comes last.
fn special(controller: &Controller, action: &str, argument: &[u8]) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("KindsIngress.special"),
        r#match: vec![exact(1, MAC)],
        action: controller.call(action, &[argument]),
        ..Default::default()
    }
}

/// An entry of `KindsIngress.filters`.
fn filter(controller: &Controller, fields: Vec<p4::FieldMatch>) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("KindsIngress.filters"),
        r#match: fields,
        priority: 7,
        action: controller.call("KindsIngress.drop", &[]),
        ..Default::default()
    }
}

fn set(id: u32, values: &[&[u8]]) -> Entity {
    let members = values.iter().map(|value| p4::ValueSetMember {
        r#match: vec![exact(1, value)],
    });
    Entity::ValueSetEntry(p4::ValueSetEntry {
        value_set_id: id,
        members: members.collect(),
    })
}

fn packet_out(port: &[u8]) -> ToSwitch {
    ToSwitch::Packet(p4::PacketOut {
        payload: frame(0x9000),
        metadata: vec![p4::PacketMetadata {
            metadata_id: 1,
            value: port.to_vec(),
        }],
    })
}

async fn packet_in(controller: &mut Controller) -> p4::PacketIn {
    match controller.receive().await.expect("open") {
        FromSwitch::Packet(packet) => packet,
        other => panic!("a packet-in expected: {other:?}"),
    }
}

#[tokio::test]
async fn strings_stand_for_ports_everywhere() {
    let (mut server, mut controller) = started(STRINGS, translated(&strings(), &strings())).await;
    // Entries and action arguments, read back as they were written.
    let sending = special(&controller, "KindsIngress.send", b"eth2");
    let route = p4::TableEntry {
        table_id: controller.table("KindsIngress.routes"),
        r#match: vec![lpm(1, MAC, 48), exact(2, b"eth1")],
        action: controller.call("KindsIngress.set_dst", &[MAC, b"cpu"]),
        ..Default::default()
    };
    let filtering = filter(
        &controller,
        vec![range(1, b"ipv4", b"ipv4"), optional(2, MAC)],
    );
    for entry in [&sending, &route, &filtering] {
        controller.insert(entry.clone()).await.expect("inserted");
        let again = controller.insert(entry.clone()).await;
        assert_eq!(again.expect_err("exists").0, Code::AlreadyExists);
    }
    let read = controller.written().await;
    for entry in [&sending, &route, &filtering] {
        assert!(read.contains(entry), "{entry:?} in {read:?}");
    }
    // Constant entries of the program: 1 sends to 2, 2 to 1.
    let fixed = p4::TableEntry {
        table_id: controller.table("KindsIngress.fixed"),
        ..Default::default()
    };
    let fixed = controller.entries(fixed).await;
    assert_eq!(fixed[0].r#match, [exact(1, b"eth1")]);
    assert_eq!(
        fixed[0].action,
        controller.call("KindsIngress.send", &[b"eth2"])
    );
    // Packets see the switch's values.
    server.arrive(1, &frame(0x1234));
    assert_eq!(server.leave().await.0, 2);
    // Action profiles.
    let Some(p4::table_action::Type::Action(action)) = controller
        .call("KindsIngress.send", &[b"eth1"])
        .and_then(|action| action.r#type)
    else {
        panic!("an action");
    };
    let member = Entity::ActionProfileMember(p4::ActionProfileMember {
        action_profile_id: controller.profile("KindsIngress.shared"),
        member_id: 5,
        action: Some(action.clone()),
    });
    controller
        .write(Type::Insert, member.clone())
        .await
        .expect("inserted");
    let all = Entity::ActionProfileMember(p4::ActionProfileMember::default());
    assert_eq!(controller.read(all).await, [member]);
    let one_shot = p4::ActionProfileActionSet {
        action_profile_actions: vec![p4::ActionProfileAction {
            action: Some(action),
            weight: 2,
            ..Default::default()
        }],
        ..Default::default()
    };
    let spread = p4::TableEntry {
        table_id: controller.table("KindsIngress.spread"),
        r#match: vec![exact(1, MAC)],
        action: Some(p4::TableAction {
            r#type: Some(p4::table_action::Type::ActionProfileActionSet(one_shot)),
        }),
        ..Default::default()
    };
    controller.insert(spread.clone()).await.expect("inserted");
    assert!(controller.written().await.contains(&spread));
    // Value sets: values in the set leave by port 2.
    controller
        .modify(Entity::TableEntry(special(
            &controller,
            "KindsIngress.send",
            b"eth1",
        )))
        .await
        .expect("modified");
    let types = controller.value_set("KindsParser.types");
    let tagged = set(types, &[b"qinq"]);
    controller.modify(tagged.clone()).await.expect("modified");
    assert_eq!(controller.read(set(types, &[])).await, [tagged]);
    server.arrive(1, &frame(0x9000));
    assert_eq!(server.leave().await.0, 2);
    server.arrive(1, &frame(0x9001));
    assert_eq!(server.leave().await.0, 1);
    // Packets from and to the controller.
    controller.send(packet_out(b"eth2")).await;
    let (port, out) = server.leave().await;
    assert_eq!((port, out), (2, frame(0x9000)));
    controller
        .modify(Entity::TableEntry(special(
            &controller,
            "KindsIngress.send",
            b"cpu",
        )))
        .await
        .expect("modified");
    server.arrive(1, &frame(0x9001));
    let packet = packet_in(&mut controller).await;
    assert_eq!(packet.metadata[0].value, b"eth1");
    server.stop().await;
}

fn replicas(ports: &[PortKind]) -> Vec<p4::Replica> {
    let ports = ports.iter().cloned();
    let replica = |port| p4::Replica {
        port_kind: Some(port),
        ..Default::default()
    };
    ports.map(replica).collect()
}

fn group(ports: &[PortKind]) -> Entity {
    Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
        r#type: Some(Replication::MulticastGroupEntry(p4::MulticastGroupEntry {
            multicast_group_id: 1,
            replicas: replicas(ports),
            ..Default::default()
        })),
    })
}

fn session(ports: &[PortKind]) -> Entity {
    Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
        r#type: Some(Replication::CloneSessionEntry(p4::CloneSessionEntry {
            session_id: 7,
            replicas: replicas(ports),
            ..Default::default()
        })),
    })
}

/// An entry of `KindsIngress.spread`.
fn spread(controller: &Controller, action: p4::table_action::Type) -> p4::TableEntry {
    p4::TableEntry {
        table_id: controller.table("KindsIngress.spread"),
        r#match: vec![exact(1, MAC)],
        action: Some(p4::TableAction {
            r#type: Some(action),
        }),
        ..Default::default()
    }
}

/// `KindsIngress.send` to a port.
fn sending_to(controller: &Controller, port: &[u8]) -> Option<p4::Action> {
    match controller.call("KindsIngress.send", &[port])?.r#type? {
        p4::table_action::Type::Action(action) => Some(action),
        _ => None,
    }
}

/// The ports that the copies of a frame leave by.
async fn copies(server: &mut Server, count: usize) -> Vec<u16> {
    server.arrive(1, &frame(0x1234));
    let mut ports = Vec::new();
    for _ in 0..count {
        ports.push(server.leave().await.0);
    }
    ports.sort_unstable();
    ports
}

/// The ports that frames of fifty stations leave by.
async fn paths(server: &mut Server) -> Vec<u16> {
    let mut ports = Vec::new();
    for station in 0..50 {
        let mut frame = frame(0x1234);
        frame[11] = station;
        server.arrive(1, &frame);
        ports.push(server.leave().await.0);
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[tokio::test]
async fn strings_stand_for_the_ports_of_replicas() {
    let (mut server, mut controller) = started(PORTS, translated(&strings(), &strings())).await;
    let port = |name: &str| PortKind::Port(name.as_bytes().to_vec());
    for entity in [
        group(&[port("eth1"), port("eth2")]),
        session(&[port("eth2")]),
    ] {
        let inserted = controller.write(Type::Insert, entity.clone()).await;
        inserted.expect("inserted");
        assert_eq!(controller.read(entity.clone()).await, [entity]);
    }
    let replicating = special(&controller, "KindsIngress.replicate", &[1]);
    controller.insert(replicating).await.expect("inserted");
    assert_eq!(copies(&mut server, 2).await, [1, 2]);
    let mirroring = special(&controller, "KindsIngress.mirror", b"eth1");
    let modified = controller.modify(Entity::TableEntry(mirroring)).await;
    modified.expect("modified");
    assert_eq!(copies(&mut server, 2).await, [1, 2]);
    #[allow(deprecated)]
    let number = PortKind::EgressPort(2);
    for (ports, text) in [
        (
            port("eth7"),
            "\"eth7\" given, a value that the mapping of port_t",
        ),
        (
            number,
            "egress_port: a number given, a string of the mapping expected",
        ),
    ] {
        let ports = [ports];
        for entity in [group(&ports), session(&ports)] {
            let (code, message) = controller.modify(entity).await.expect_err("refused");
            assert_eq!(code, Code::InvalidArgument, "{message}");
            assert!(message.contains(text), "{message}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn strings_stand_for_watched_ports() {
    let (mut server, mut controller) = started(PORTS, translated(&strings(), &strings())).await;
    let paths_id = controller.profile("KindsIngress.paths");
    for (member_id, port) in [(1, b"eth1"), (2, b"eth2")] {
        let member = Entity::ActionProfileMember(p4::ActionProfileMember {
            action_profile_id: paths_id,
            member_id,
            action: sending_to(&controller, port),
        });
        let inserted = controller.write(Type::Insert, member).await;
        inserted.expect("inserted");
    }
    let watching = |ports: [&[u8]; 2]| {
        let members = ports.into_iter().zip(1..);
        let member = |(port, member_id): (&[u8], _)| p4::action_profile_group::Member {
            member_id,
            weight: 1,
            watch_kind: Some(MemberWatch::WatchPort(port.to_vec())),
        };
        Entity::ActionProfileGroup(p4::ActionProfileGroup {
            action_profile_id: paths_id,
            group_id: 3,
            members: members.map(member).collect(),
            max_size: 6,
        })
    };
    let both = watching([b"eth1", b"eth2"]);
    let inserted = controller.write(Type::Insert, both.clone()).await;
    inserted.expect("inserted");
    let all = Entity::ActionProfileGroup(p4::ActionProfileGroup::default());
    assert_eq!(controller.read(all).await, [both]);
    let entry = spread(&controller, p4::table_action::Type::ActionProfileGroupId(3));
    controller.insert(entry).await.expect("inserted");
    assert_eq!(paths(&mut server).await, [1, 2]);
    server.link(1, false);
    assert_eq!(paths(&mut server).await, [2]);
    let unknown = controller.modify(watching([b"eth1", b"eth7"])).await;
    let (code, message) = unknown.expect_err("refused");
    assert_eq!(code, Code::InvalidArgument, "{message}");
    assert!(message.contains("watch_port: \"eth7\" given"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn numbers_of_the_type_of_ports_of_psa_stand_for_ports_in_deprecated_fields_too() {
    const PSA: &str = "p4.org/psa/v1/PortId_t";
    let mappings = NUMBERS.replace("\"port_t\"", &format!("{PSA:?}"));
    let widths = (SdnType::SdnBitwidth(32), SdnType::SdnBitwidth(8));
    let mut config = translated(&widths.0, &widths.1);
    let types = config
        .p4info
        .as_mut()
        .and_then(|info| info.type_info.as_mut());
    let ports = types.and_then(|types| types.new_types.get_mut("port_t"));
    let ports = ports.and_then(|ports| ports.representation.as_mut());
    let Some(p4_new_type_spec::Representation::TranslatedType(translation)) = ports else {
        panic!("a translated type");
    };
    translation.uri = PSA.to_owned();
    let (mut server, mut controller) = started(&mappings, config).await;
    #[allow(deprecated)]
    let group = group(&[
        PortKind::Port(vec![0x10, 0, 0, 1]),
        PortKind::EgressPort(0x1000_0002),
    ]);
    let inserted = controller.write(Type::Insert, group.clone()).await;
    inserted.expect("inserted");
    assert_eq!(controller.read(group.clone()).await, [group]);
    let replicating = special(&controller, "KindsIngress.replicate", &[1]);
    controller
        .insert(replicating.clone())
        .await
        .expect("inserted");
    assert_eq!(copies(&mut server, 2).await, [1, 2]);
    controller.delete(replicating).await.expect("deleted");
    let action = |port: u8| {
        let port = [0x10, 0, 0, port];
        #[allow(deprecated)]
        let watch_kind = ActionWatch::Watch(i32::from_be_bytes(port));
        p4::ActionProfileAction {
            action: sending_to(&controller, &port),
            weight: 1,
            watch_kind: Some(watch_kind),
        }
    };
    let set = p4::ActionProfileActionSet {
        action_profile_actions: vec![action(1), action(2)],
        ..Default::default()
    };
    let entry = spread(
        &controller,
        p4::table_action::Type::ActionProfileActionSet(set),
    );
    controller.insert(entry.clone()).await.expect("inserted");
    assert!(controller.written().await.contains(&entry));
    assert_eq!(paths(&mut server).await, [1, 2]);
    server.link(2, false);
    assert_eq!(paths(&mut server).await, [1]);
    server.stop().await;
}

#[tokio::test]
async fn digests_tell_strings_and_leave_out_what_has_none() {
    let only_one = r#"{
        "port_t": {"bits": 9, "values": {"eth1": 1, "eth9": 9}},
        "type_t": {"bits": 16, "values": {}}
    }"#;
    let (mut server, mut controller) = started(only_one, translated(&strings(), &strings())).await;
    controller
        .insert(special(&controller, "KindsIngress.learn", b"eth1"))
        .await
        .expect("inserted");
    let digest = Entity::DigestEntry(p4::DigestEntry {
        digest_id: controller.digest("seen_t"),
        config: Some(p4::digest_entry::Config {
            max_timeout_ns: 0,
            max_list_size: 1,
            ack_timeout_ns: 0,
        }),
    });
    controller
        .write(Type::Insert, digest)
        .await
        .expect("enabled");
    // From port 2, for which there is no string: lost. From port 1: told.
    for port in [2, 1] {
        server.arrive(port, &frame(0x1234));
        assert_eq!(server.leave().await.0, 1);
    }
    let FromSwitch::Digest(list) = controller.receive().await.expect("open") else {
        panic!("a digest list");
    };
    assert_eq!(list.data.len(), 1);
    let Some(Data::Struct(seen)) = &list.data[0].data else {
        panic!("a struct");
    };
    let port = seen.members.last().and_then(|port| port.data.clone());
    assert_eq!(port, Some(Data::Bitstring(b"eth1".to_vec())));
    server.stop().await;
}

#[tokio::test]
async fn numbers_of_other_widths_stand_for_values() {
    let widths = (SdnType::SdnBitwidth(32), SdnType::SdnBitwidth(8));
    let mut config = translated(&widths.0, &widths.1);
    // And for the index of a counter.
    let info = config.p4info.as_mut().expect("P4Info");
    let counter = info.counters.first_mut().expect("a counter");
    counter.index_type_name = named("port_t");
    let (mut server, mut controller) = started(NUMBERS, config).await;
    let first = &[0x10, 0, 0, 1];
    let sending = special(&controller, "KindsIngress.send", &[0x10, 0, 0, 2]);
    // A whole mask, and a range of one value.
    let filtering = filter(
        &controller,
        vec![range(1, &[1], &[1]), ternary(3, first, &[0xff; 4])],
    );
    for entry in [&sending, &filtering] {
        controller.insert(entry.clone()).await.expect("inserted");
    }
    let read = controller.written().await;
    for entry in [&sending, &filtering] {
        assert!(read.contains(entry), "{entry:?} in {read:?}");
    }
    server.arrive(1, &frame(0x1234));
    assert_eq!(server.leave().await.0, 2);
    let cell = |index| p4::CounterEntry {
        counter_id: controller.counter("KindsIngress.seen"),
        index,
        data: None,
    };
    let index = |index| Some(p4::Index { index });
    let one = Entity::CounterEntry(cell(index(0x1000_0001)));
    let all = Entity::CounterEntry(cell(None));
    let unknown = Entity::CounterEntry(cell(index(1)));
    let packets = |entity: &Entity| match entity {
        Entity::CounterEntry(cell) => (
            cell.index.expect("an index").index,
            cell.data.expect("counted").packet_count,
        ),
        other => panic!("a counter expected: {other:?}"),
    };
    let read = controller.read(one).await;
    assert_eq!(
        read.iter().map(packets).collect::<Vec<_>>(),
        [(0x1000_0001, 1)]
    );
    // Cells without an index for controllers are not theirs.
    let read = controller.read(all).await;
    let read: Vec<_> = read.iter().map(packets).collect();
    assert_eq!(read, [(0x1000_0001, 1), (0x1000_0002, 0)]);
    let (_, _, status) = controller.read_all(vec![unknown]).await;
    let status = status.expect_err("refused");
    let (code, message) = &crate::support::details(&status)[0];
    assert_eq!(*code, Code::InvalidArgument, "{message}");
    assert!(message.contains("index: 0x01 given"), "{message}");
    controller.send(packet_out(&[0x10, 0, 0, 2])).await;
    assert_eq!(server.leave().await, (2, frame(0x9000)));
    server.stop().await;
}

#[tokio::test]
async fn values_without_a_mapping_are_refused_by_name() {
    let (server, mut controller) = started(STRINGS, translated(&strings(), &strings())).await;
    let expected =
        "a value that the mapping of port_t (--translation) has expected: eth1, eth2, cpu";
    for (entry, text) in [
        (
            special(&controller, "KindsIngress.send", b"eth7"),
            "action KindsIngress.send: field port: \"eth7\" given",
        ),
        (
            special(&controller, "KindsIngress.send", &[0, 1]),
            "field port: \"\\0\\u{1}\" given",
        ),
    ] {
        let (code, message) = controller.insert(entry).await.expect_err("refused");
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(text), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    for (field, text) in [
        (
            range(1, b"ipv4", b"qinq"),
            "a range of several values given",
        ),
        (
            ternary(3, b"eth1", &[0xff]),
            "a match on a part of the value given",
        ),
        (ternary(3, b"eth7", &[0xff]), "\"eth7\" given"),
    ] {
        let entry = filter(&controller, vec![field]);
        let (code, message) = controller.insert(entry).await.expect_err("refused");
        assert_eq!(code, Code::InvalidArgument, "{message}");
        assert!(message.contains(text), "{message}");
    }
    controller.send(packet_out(b"eth7")).await;
    let FromSwitch::Error(error) = controller.receive().await.expect("open") else {
        panic!("an error");
    };
    assert!(
        error.message.contains("\"eth7\" given"),
        "{}",
        error.message
    );
    // The program's default action sends to port 3, which has no string.
    let default = |table: &str| {
        Entity::TableEntry(p4::TableEntry {
            table_id: controller.table(table),
            is_default_action: true,
            ..Default::default()
        })
    };
    let asked = vec![
        default("KindsIngress.everything"),
        default("KindsIngress.routes"),
    ];
    let (read, _, status) = controller.read_all(asked).await;
    assert_eq!(read.len(), 1);
    let status = status.expect_err("one cannot be told");
    let (code, message) = &crate::support::details(&status)[0];
    assert_eq!(*code, Code::FailedPrecondition, "{message}");
    assert!(message.contains("the switch has 0x0003"), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn programs_whose_types_have_no_fitting_mapping_are_refused_by_name() {
    let numbers = SdnType::SdnBitwidth(32);
    let same = SdnType::SdnBitwidth(16);
    let wrong_bits = r#"{"port_t": {"bits": 10, "values": {}}}"#;
    let too_wide = r#"{"port_t": {"bits": 9, "values": {"0x100000000": 1}}}"#;
    let twice = r#"{"port_t": {"bits": 9, "values": {"1": 1, "0x1": 2}}}"#;
    let two_for_ports = r#"{
        "port_t": {"bits": 9, "values": {}, "ports": true},
        "type_t": {"bits": 16, "values": {}, "ports": true}
    }"#;
    let wide_ports = r#"{"port_t": {"bits": 33, "values": {}, "ports": true}}"#;
    for (mappings, port, text) in [
        (
            "{}",
            strings(),
            "its type port_t has other values for controllers (@p4runtime_translation), and there is no \
             mapping of them: start the switch with --translation FILE.json that has \"port_t\"",
        ),
        ("{}", numbers, "there is no mapping of them"),
        (
            wrong_bits,
            strings(),
            "has 10 bits in the mapping (--translation), 9 bits in the program",
        ),
        (STRINGS, numbers, "\"eth1\" given, a number expected"),
        (too_wide, numbers, "5 bytes given, 32 bits"),
        (twice, numbers, "the number 0x1 is given twice"),
        (
            two_for_ports,
            numbers,
            "types port_t and type_t are both those of ports",
        ),
        (wide_ports, numbers, "ports of 33 bits, at most 32 expected"),
    ] {
        let server = Server::with_mappings(mappings).await;
        let mut controller = Controller::open(&server).await;
        controller.arbitrate(1).await.expect("open");
        // Types of one width for both need no mapping.
        let refused = controller
            .push(translated(&port, &same), Push::VerifyAndCommit)
            .await
            .expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(text), "{}", refused.message());
        server.stop().await;
    }
    let server = Server::start().await;
    let mut controller = Controller::open(&server).await;
    controller.arbitrate(1).await.expect("open");
    let equal = translated(&SdnType::SdnBitwidth(9), &same);
    let pushed = controller.push(equal, Push::VerifyAndCommit).await;
    pushed.expect("the same width needs no mapping");
    let sending = special(&controller, "KindsIngress.send", &[2]);
    controller.insert(sending.clone()).await.expect("inserted");
    assert!(controller.written().await.contains(&sending));
    server.stop().await;
}
