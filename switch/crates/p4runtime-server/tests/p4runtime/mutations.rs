//! Writes that are right but for one thing, each with the code that the specification names.

use p4::entity::Entity;
use p4::update::Type;
use p4runtime_server::proto::p4::v1 as p4;
use tonic::Code;

use crate::support::{Controller, Server, exact, lpm, optional, range, ternary};

fn action(controller: &Controller, name: &str, arguments: &[&[u8]]) -> p4::Action {
    match controller
        .call(name, arguments)
        .and_then(|action| action.r#type)
    {
        Some(p4::table_action::Type::Action(action)) => action,
        other => panic!("an action expected: {other:?}"),
    }
}

/// One mutated write: its fault, the update, the code, and the names in the text.
type Mutation = (&'static str, Type, Entity, Code, &'static str);

fn table_mutations(controller: &Controller) -> Vec<Mutation> {
    let mac: &[u8] = &[2, 0, 0, 0, 0, 1];
    let good = p4::TableEntry {
        table_id: controller.table("KindsIngress.routes"),
        r#match: vec![lpm(1, mac, 48), exact(2, &[1])],
        action: controller.call("KindsIngress.set_dst", &[mac, &[1]]),
        ..Default::default()
    };
    let ordered = p4::TableEntry {
        table_id: controller.table("KindsIngress.filters"),
        r#match: vec![range(1, &[1], &[2])],
        action: controller.call("KindsIngress.send", &[&[1]]),
        priority: 7,
        ..Default::default()
    };
    let with = |change: &dyn Fn(&mut p4::TableEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        Entity::TableEntry(entry)
    };
    let filter = |change: &dyn Fn(&mut p4::TableEntry)| {
        let mut entry = ordered.clone();
        change(&mut entry);
        Entity::TableEntry(entry)
    };
    let matching = |fields: Vec<p4::FieldMatch>| with(&move |e| e.r#match = fields.clone());
    let filtering = |fields: Vec<p4::FieldMatch>| filter(&move |e| e.r#match = fields.clone());
    let acting = |name: &str, arguments: &[&[u8]]| {
        let call = controller.call(name, arguments);
        with(&move |e| e.action = call.clone())
    };
    let fixed = |action: Option<p4::TableAction>| {
        Entity::TableEntry(p4::TableEntry {
            table_id: controller.table("KindsIngress.fixed"),
            r#match: vec![exact(1, &[1])],
            action,
            ..Default::default()
        })
    };
    let send = || controller.call("KindsIngress.send", &[&[1]]);
    let invalid = Code::InvalidArgument;
    let mut unknown_parameter = good.clone();
    if let Some(p4::table_action::Type::Action(action)) = unknown_parameter
        .action
        .as_mut()
        .and_then(|action| action.r#type.as_mut())
    {
        action.params[0].param_id = 9;
    }
    vec![
        (
            "unknown table",
            Type::Insert,
            with(&|e| e.table_id = 0x0200_0001),
            Code::NotFound,
            "table_id",
        ),
        (
            "table id of an action",
            Type::Insert,
            with(&|e| e.table_id = controller.action("KindsIngress.send")),
            Code::NotFound,
            "table_id",
        ),
        (
            "no table id",
            Type::Insert,
            with(&|e| e.table_id = 0),
            invalid,
            "table_id",
        ),
        (
            "value too wide",
            Type::Insert,
            matching(vec![lpm(1, mac, 48), exact(2, &[4, 0])]),
            invalid,
            "9 bits expected",
        ),
        (
            "more bytes than the field",
            Type::Insert,
            matching(vec![lpm(1, &[1, 0, 0, 0, 0, 0, 0], 48), exact(2, &[1])]),
            invalid,
            "7 bytes given",
        ),
        (
            "empty value",
            Type::Insert,
            matching(vec![lpm(1, mac, 48), exact(2, &[])]),
            invalid,
            "empty",
        ),
        (
            "missing exact field",
            Type::Insert,
            matching(vec![lpm(1, mac, 48)]),
            invalid,
            "must be",
        ),
        (
            "unknown field",
            Type::Insert,
            matching(vec![lpm(9, mac, 48), exact(2, &[1])]),
            invalid,
            "field id 9",
        ),
        (
            "field given twice",
            Type::Insert,
            matching(vec![exact(2, &[1]), exact(2, &[1])]),
            invalid,
            "twice",
        ),
        (
            "another match kind",
            Type::Insert,
            matching(vec![ternary(1, mac, mac), exact(2, &[1])]),
            invalid,
            "lpm expected",
        ),
        (
            "prefix of no bits",
            Type::Insert,
            matching(vec![lpm(1, &[0], 0), exact(2, &[1])]),
            invalid,
            "prefix length 0",
        ),
        (
            "prefix too long",
            Type::Insert,
            matching(vec![lpm(1, mac, 49), exact(2, &[1])]),
            invalid,
            "prefix length 49",
        ),
        (
            "prefix negative",
            Type::Insert,
            matching(vec![lpm(1, mac, -1), exact(2, &[1])]),
            invalid,
            "prefix length -1",
        ),
        (
            "bits beyond the prefix",
            Type::Insert,
            matching(vec![lpm(1, mac, 40), exact(2, &[1])]),
            invalid,
            "beyond its prefix",
        ),
        (
            "mask of no bits",
            Type::Insert,
            filtering(vec![ternary(3, &[0], &[0])]),
            invalid,
            "mask 0",
        ),
        (
            "bits outside the mask",
            Type::Insert,
            filtering(vec![ternary(3, &[3], &[1])]),
            invalid,
            "outside its mask",
        ),
        (
            "range upside down",
            Type::Insert,
            filtering(vec![range(1, &[2], &[1])]),
            invalid,
            "greater than high",
        ),
        (
            "range of everything",
            Type::Insert,
            filtering(vec![range(1, &[0], &[0xff, 0xff])]),
            invalid,
            "every value",
        ),
        (
            "optional too wide",
            Type::Insert,
            filtering(vec![optional(2, &[1; 7])]),
            invalid,
            "48 bits",
        ),
        (
            "no priority",
            Type::Insert,
            filter(&|e| e.priority = 0),
            invalid,
            "priority: 0",
        ),
        (
            "priority negative",
            Type::Insert,
            filter(&|e| e.priority = -1),
            invalid,
            "priority: -1",
        ),
        (
            "priority where there is none",
            Type::Insert,
            with(&|e| e.priority = 1),
            invalid,
            "priority: 1",
        ),
        (
            "no action",
            Type::Insert,
            with(&|e| e.action = None),
            invalid,
            "action: not given",
        ),
        (
            "empty action",
            Type::Insert,
            with(&|e| e.action = Some(p4::TableAction { r#type: None })),
            invalid,
            "action",
        ),
        (
            "another table's action",
            Type::Insert,
            acting("KindsIngress.replicate", &[&[1]]),
            invalid,
            "action",
        ),
        (
            "action for defaults only",
            Type::Insert,
            acting("KindsIngress.drop", &[]),
            Code::PermissionDenied,
            "DEFAULT_ONLY",
        ),
        (
            "action for entries only as default",
            Type::Modify,
            with(&|e| {
                e.r#match.clear();
                e.is_default_action = true;
                e.action = send();
            }),
            Code::PermissionDenied,
            "TABLE_ONLY",
        ),
        (
            "missing parameter",
            Type::Insert,
            acting("KindsIngress.set_dst", &[mac]),
            invalid,
            "is missing",
        ),
        (
            "parameter too many",
            Type::Insert,
            acting("KindsIngress.set_dst", &[mac, &[1], &[1]]),
            invalid,
            "parameter id 3",
        ),
        (
            "unknown parameter",
            Type::Insert,
            Entity::TableEntry(unknown_parameter),
            invalid,
            "parameter id 9",
        ),
        (
            "parameter too wide",
            Type::Insert,
            acting("KindsIngress.set_dst", &[mac, &[2, 0]]),
            invalid,
            "9 bits",
        ),
        (
            "empty parameter",
            Type::Insert,
            acting("KindsIngress.set_dst", &[mac, &[]]),
            invalid,
            "empty",
        ),
        (
            "member for a direct table",
            Type::Insert,
            with(&|e| {
                e.action = Some(p4::TableAction {
                    r#type: Some(p4::table_action::Type::ActionProfileMemberId(1)),
                })
            }),
            invalid,
            "no action profile",
        ),
        (
            "entry marked constant",
            Type::Insert,
            with(&|e| e.is_const = true),
            invalid,
            "is_const",
        ),
        (
            "delete marked constant",
            Type::Delete,
            with(&|e| e.is_const = true),
            invalid,
            "is_const",
        ),
        (
            "modify what is not there",
            Type::Modify,
            with(&|_| {}),
            Code::NotFound,
            "routes",
        ),
        (
            "delete what is not there",
            Type::Delete,
            with(&|_| {}),
            Code::NotFound,
            "routes",
        ),
        (
            "insert into constant entries",
            Type::Insert,
            fixed(send()),
            Code::PermissionDenied,
            "constant",
        ),
        (
            "delete a constant entry",
            Type::Delete,
            fixed(None),
            Code::PermissionDenied,
            "constant",
        ),
        (
            "action of a constant entry",
            Type::Modify,
            fixed(send()),
            Code::PermissionDenied,
            "constant",
        ),
        (
            "insert a default entry",
            Type::Insert,
            with(&|e| {
                e.r#match.clear();
                e.is_default_action = true;
            }),
            invalid,
            "default entry",
        ),
        (
            "default entry with a match",
            Type::Modify,
            with(&|e| e.is_default_action = true),
            invalid,
            "is_default_action",
        ),
        (
            "constant default",
            Type::Modify,
            Entity::TableEntry(p4::TableEntry {
                table_id: controller.table("KindsIngress.fixed"),
                is_default_action: true,
                action: send(),
                ..Default::default()
            }),
            Code::PermissionDenied,
            "constant",
        ),
        (
            "entry of a table without key",
            Type::Insert,
            Entity::TableEntry(p4::TableEntry {
                table_id: controller.table("KindsIngress.everything"),
                action: send(),
                ..Default::default()
            }),
            invalid,
            "no key",
        ),
        (
            "counter of a table without",
            Type::Insert,
            filter(&|e| e.counter_data = Some(p4::CounterData::default())),
            invalid,
            "counter_data",
        ),
        (
            "counter negative",
            Type::Insert,
            with(&|e| {
                e.counter_data = Some(p4::CounterData {
                    byte_count: -1,
                    packet_count: 0,
                })
            }),
            invalid,
            "byte_count: -1",
        ),
        (
            "meter of a table without",
            Type::Insert,
            filter(&|e| e.meter_config = Some(p4::MeterConfig::default())),
            invalid,
            "meter_config",
        ),
        (
            "peak rate below committed",
            Type::Insert,
            with(&|e| {
                e.meter_config = Some(p4::MeterConfig {
                    cir: 2,
                    pir: 1,
                    ..Default::default()
                })
            }),
            invalid,
            "pir",
        ),
        (
            "metadata too long",
            Type::Insert,
            with(&|e| e.metadata = vec![1; 2_000]),
            Code::ResourceExhausted,
            "metadata",
        ),
        (
            "no kind of update",
            Type::Unspecified,
            with(&|_| {}),
            invalid,
            "type",
        ),
    ]
}

fn other_mutations(controller: &Controller) -> Vec<Mutation> {
    use p4::packet_replication_engine_entry::Type as Replication;
    let invalid = Code::InvalidArgument;
    let register = |id: u32, index: i64, value: &[u8]| {
        Entity::RegisterEntry(p4::RegisterEntry {
            register_id: id,
            index: Some(p4::Index { index }),
            data: Some(p4::P4Data {
                data: Some(p4::p4_data::Data::Bitstring(value.to_vec())),
            }),
        })
    };
    let marks = controller.register("KindsIngress.marks");
    let counter = |index: i64| {
        Entity::CounterEntry(p4::CounterEntry {
            counter_id: controller.counter("KindsIngress.seen"),
            index: Some(p4::Index { index }),
            data: Some(p4::CounterData::default()),
        })
    };
    let paths = controller.profile("KindsIngress.paths");
    let shared = controller.profile("KindsIngress.shared");
    let send = || Some(action(controller, "KindsIngress.send", &[&[1]]));
    let member = |profile, member_id, action| {
        Entity::ActionProfileMember(p4::ActionProfileMember {
            action_profile_id: profile,
            member_id,
            action,
        })
    };
    let group = |profile, group_id, max_size, members: &[(u32, i32)]| {
        Entity::ActionProfileGroup(p4::ActionProfileGroup {
            action_profile_id: profile,
            group_id,
            max_size,
            members: members
                .iter()
                .map(|(member_id, weight)| p4::action_profile_group::Member {
                    member_id: *member_id,
                    weight: *weight,
                    watch_kind: None,
                })
                .collect(),
        })
    };
    let spread = |action| {
        Entity::TableEntry(p4::TableEntry {
            table_id: controller.table("KindsIngress.spread"),
            r#match: vec![exact(1, &[1])],
            action: Some(p4::TableAction { r#type: action }),
            ..Default::default()
        })
    };
    let session = |session_id, change: &dyn Fn(&mut p4::CloneSessionEntry)| {
        let mut entry = p4::CloneSessionEntry {
            session_id,
            ..Default::default()
        };
        change(&mut entry);
        Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
            r#type: Some(Replication::CloneSessionEntry(entry)),
        })
    };
    let replica = |port: &[u8]| p4::Replica {
        port_kind: Some(p4::replica::PortKind::Port(port.to_vec())),
        ..Default::default()
    };
    use p4::table_action::Type as Action;
    vec![
        (
            "unknown register",
            Type::Modify,
            register(1, 0, &[1]),
            Code::NotFound,
            "register_id",
        ),
        (
            "register index negative",
            Type::Modify,
            register(marks, -1, &[1]),
            invalid,
            "index: -1",
        ),
        (
            "register index too large",
            Type::Modify,
            register(marks, 10_000, &[1]),
            Code::OutOfRange,
            "index: 10000",
        ),
        (
            "register value too wide",
            Type::Modify,
            register(marks, 0, &[0x10, 0]),
            Code::OutOfRange,
            "12 bits",
        ),
        (
            "register inserted",
            Type::Insert,
            register(marks, 0, &[1]),
            invalid,
            "MODIFY",
        ),
        (
            "counter index negative",
            Type::Modify,
            counter(-1),
            invalid,
            "index: -1",
        ),
        (
            "counter index too large",
            Type::Modify,
            counter(16),
            Code::OutOfRange,
            "index: 16",
        ),
        (
            "counter deleted",
            Type::Delete,
            counter(0),
            invalid,
            "MODIFY",
        ),
        (
            "unknown profile",
            Type::Insert,
            member(1, 1, send()),
            Code::NotFound,
            "action_profile_id",
        ),
        (
            "member 0",
            Type::Insert,
            member(shared, 0, send()),
            invalid,
            "member_id: 0",
        ),
        (
            "member without action",
            Type::Insert,
            member(shared, 1, None),
            invalid,
            "action: not given",
        ),
        (
            "member with another table's action",
            Type::Insert,
            member(
                shared,
                1,
                Some(action(controller, "KindsIngress.drop", &[])),
            ),
            invalid,
            "action",
        ),
        (
            "member that is there",
            Type::Insert,
            member(paths, 1, send()),
            Code::AlreadyExists,
            "member 1",
        ),
        (
            "member modified that is not there",
            Type::Modify,
            member(paths, 9, send()),
            Code::NotFound,
            "member 9",
        ),
        (
            "member deleted that is not there",
            Type::Delete,
            member(paths, 9, None),
            Code::NotFound,
            "member 9",
        ),
        (
            "group of a profile without selector",
            Type::Insert,
            group(shared, 1, 0, &[]),
            invalid,
            "no selector",
        ),
        (
            "group 0",
            Type::Insert,
            group(paths, 0, 6, &[]),
            invalid,
            "group_id: 0",
        ),
        (
            "group with an unknown member",
            Type::Insert,
            group(paths, 1, 6, &[(9, 1)]),
            Code::NotFound,
            "member 9",
        ),
        (
            "group with a member twice",
            Type::Insert,
            group(paths, 1, 6, &[(1, 1), (1, 1)]),
            invalid,
            "twice",
        ),
        (
            "group with weight 0",
            Type::Insert,
            group(paths, 1, 6, &[(1, 0)]),
            invalid,
            "weight: 0",
        ),
        (
            "group without max_size",
            Type::Insert,
            group(paths, 1, 0, &[(1, 1)]),
            invalid,
            "max_size: 0",
        ),
        (
            "group with max_size too large",
            Type::Insert,
            group(paths, 1, 7, &[(1, 1)]),
            invalid,
            "max_size: 7",
        ),
        (
            "group larger than max_size",
            Type::Insert,
            group(paths, 1, 2, &[(1, 3)]),
            Code::ResourceExhausted,
            "room for 2",
        ),
        (
            "group modified that is not there",
            Type::Modify,
            group(paths, 9, 6, &[]),
            Code::NotFound,
            "group 9",
        ),
        (
            "group deleted that is not there",
            Type::Delete,
            group(paths, 9, 6, &[]),
            Code::NotFound,
            "group 9",
        ),
        (
            "action for an indirect table",
            Type::Insert,
            spread(send().map(Action::Action)),
            invalid,
            "action selector",
        ),
        (
            "unknown member in an entry",
            Type::Insert,
            spread(Some(Action::ActionProfileMemberId(9))),
            Code::NotFound,
            "member 9",
        ),
        (
            "unknown group in an entry",
            Type::Insert,
            spread(Some(Action::ActionProfileGroupId(9))),
            Code::NotFound,
            "group 9",
        ),
        (
            "default entry of an indirect table",
            Type::Modify,
            Entity::TableEntry(p4::TableEntry {
                table_id: controller.table("KindsIngress.spread"),
                is_default_action: true,
                action: controller.call("KindsIngress.send", &[&[1]]),
                ..Default::default()
            }),
            Code::PermissionDenied,
            "constant",
        ),
        (
            "clone session 0",
            Type::Insert,
            session(0, &|_| {}),
            invalid,
            "session_id: 0",
        ),
        (
            "clone session beyond the field",
            Type::Insert,
            session(0x8000, &|_| {}),
            invalid,
            "32767",
        ),
        (
            "clone session to an unknown port",
            Type::Insert,
            session(1, &|s| s.replicas = vec![replica(&[9])]),
            invalid,
            "no port 9",
        ),
        (
            "clone session without port",
            Type::Insert,
            session(1, &|s| s.replicas = vec![p4::Replica::default()]),
            invalid,
            "no port",
        ),
        (
            "clone session with a copy twice",
            Type::Insert,
            session(1, &|s| s.replicas = vec![replica(&[1]), replica(&[0, 1])]),
            invalid,
            "twice",
        ),
        (
            "clone session with an instance too large",
            Type::Insert,
            session(1, &|s| {
                s.replicas = vec![p4::Replica {
                    instance: 65_536,
                    ..replica(&[1])
                }]
            }),
            invalid,
            "instance: 65536",
        ),
        (
            "clone session of negative length",
            Type::Insert,
            session(1, &|s| s.packet_length_bytes = -1),
            invalid,
            "packet_length_bytes: -1",
        ),
        (
            "clone session of an unknown class",
            Type::Insert,
            session(1, &|s| s.class_of_service = 256),
            invalid,
            "class_of_service: 256",
        ),
        (
            "clone session modified that is not there",
            Type::Modify,
            session(9, &|_| {}),
            Code::NotFound,
            "clone session 9",
        ),
        (
            "clone session deleted that is not there",
            Type::Delete,
            session(9, &|_| {}),
            Code::NotFound,
            "clone session 9",
        ),
        (
            "replication of nothing",
            Type::Insert,
            Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry { r#type: None }),
            invalid,
            "empty",
        ),
        (
            "extern",
            Type::Insert,
            Entity::ExternEntry(p4::ExternEntry::default()),
            Code::Unimplemented,
            "extern_entry",
        ),
    ]
}

#[tokio::test]
async fn each_mutated_write_is_refused_with_its_code() {
    let server = Server::start().await;
    let mut controller = server.controller("kinds").await;
    let one = p4::ActionProfileMember {
        action_profile_id: controller.profile("KindsIngress.paths"),
        member_id: 1,
        action: Some(action(&controller, "KindsIngress.send", &[&[1]])),
    };
    controller
        .write(Type::Insert, Entity::ActionProfileMember(one))
        .await
        .expect("inserted");
    let before = controller.entries(p4::TableEntry::default()).await;
    let mut mutations = table_mutations(&controller);
    mutations.extend(other_mutations(&controller));
    for (name, kind, entity, wanted, text) in mutations {
        match controller.write(kind, entity).await {
            Ok(()) => panic!("{name}: accepted"),
            Err((code, message)) => {
                assert_eq!(code, wanted, "{name}: {message}");
                assert!(
                    message.contains(text),
                    "{name}: {message:?} names no {text:?}"
                );
            }
        }
    }
    // Nothing of it has left a trace.
    assert_eq!(controller.entries(p4::TableEntry::default()).await, before);
    server.stop().await;
}
