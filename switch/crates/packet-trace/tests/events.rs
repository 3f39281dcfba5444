//! The event log of packets through a program, with the numbers of its BMv2 JSON.

use packet_trace::EventLog;
use serde_json::Value;
use switch::{Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};

mod support;

use support::Nowhere;

const KINDS: &[u8] = include_bytes!("../../p4runtime-server/tests/programs/kinds.json");
const RESOURCES: &[u8] = include_bytes!("../../p4runtime-server/tests/programs/resources.json");

/// A switch with ports 1 to 3.
fn switch(program: &[u8]) -> Switch {
    let config = SwitchConfig {
        entry_handles: true,
        ..SwitchConfig::default()
    };
    let mut switch = Switch::new(config, Limits::default());
    for port in 1..=3 {
        let config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Wire,
            fifo_bytes: 65_536,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        let added = switch.add_port(port, &format!("veth{port}"), config);
        added.expect("a new port");
    }
    switch.load(program).expect("a program");
    switch.set_tracing(true);
    switch
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: u32,
    packet: u64,
    numbers: Vec<u32>,
}

/// The messages of a frame that comes in at port 1. Checks what they have in common.
fn messages(switch: &mut Switch, log: &mut EventLog) -> Vec<Message> {
    let number = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    switch.receive(1, &[0; 60], 0, 0);
    switch.poll(0, &mut Nowhere);
    let trace = switch.take_trace().expect("a trace");
    let mut messages = Vec::new();
    log.put(&trace, |message| {
        assert_eq!(message[4..12], 7_u64.to_ne_bytes(), "the device");
        // Context, signature; one copy.
        assert_eq!(message[12..24], [0; 12]);
        assert_eq!(message[32..40], [0; 8]);
        messages.push(Message {
            kind: number(&message[..4]),
            packet: u64::from_ne_bytes(message[24..32].try_into().expect("eight bytes")),
            numbers: message[40..].chunks_exact(4).map(number).collect(),
        });
    });
    messages
}

/// The object of a name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter();
    let mut found = found.filter(|object| object["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

fn id(object: &Value) -> u32 {
    let id = object["id"].as_u64().expect("an id");
    id.try_into().expect("a small number")
}

#[test]
fn a_packets_events_have_the_numbers_of_the_programs_json() {
    let mut log = EventLog::new(7, None);
    let mut switch = switch(KINDS);
    let first = messages(&mut switch, &mut log);
    let second = messages(&mut switch, &mut log);
    assert!(first.iter().all(|message| message.packet == 0));
    assert!(second.iter().all(|message| message.packet == 1));
    let kinds: Vec<(u32, &[u32])> = first
        .iter()
        .map(|message| (message.kind, message.numbers.as_slice()))
        .collect();
    let json: Value = serde_json::from_slice(KINDS).expect("JSON");
    let ingress = named(&json["pipelines"], "ingress");
    let egress = id(named(&json["pipelines"], "egress"));
    let parser = id(named(&json["parsers"], "parser"));
    let deparser = id(named(&json["deparsers"], "deparser"));
    let ethernet = id(named(&json["headers"], "ethernet"));
    assert_eq!(
        kinds[..5],
        [
            (0, &[1][..]),
            (2, &[parser]),
            (4, &[ethernet]),
            (3, &[parser]),
            (9, &[id(ingress)]),
        ]
    );
    let after_ingress = kinds.iter().position(|(kind, _)| *kind == 10);
    let after_ingress = after_ingress.expect("ingress ends");
    assert_eq!(kinds[after_ingress], (10, &[id(ingress)][..]));
    let in_egress = &kinds[after_ingress + 1..];
    assert_eq!(in_egress[0], (9, &[egress][..]));
    assert!(in_egress.ends_with(&[
        (10, &[egress][..]),
        (5, &[deparser]),
        (7, &[ethernet]),
        (6, &[deparser]),
        (1, &[3]),
    ]));
    // The table with an entry for port 1, which runs its own copy of the action.
    let fixed = named(&ingress["tables"], "KindsIngress.fixed");
    let hit = kinds.iter().position(|(kind, _)| *kind == 12);
    let hit = hit.expect("an entry matches");
    assert_eq!(kinds[hit], (12, &[id(fixed), 0][..]));
    let (kind, action) = kinds[hit + 1];
    assert_eq!((kind, action.len()), (14, 1));
    let actions = json["actions"].as_array().expect("a list");
    let of_id = actions.iter().find(|of| id(of) == action[0]);
    assert_eq!(of_id.expect("an action")["name"], "KindsIngress.send");
    let own = fixed["action_ids"].as_array().expect("a list");
    assert!(own.contains(&action[0].into()));
    // No entry of the first table matches; a condition has its number and its result.
    let routes = id(named(&ingress["tables"], "KindsIngress.routes"));
    assert!(kinds.contains(&(13, &[routes])));
    let conditions = ingress["conditionals"].as_array().expect("a list");
    let condition = kinds.iter().find(|(kind, _)| *kind == 11);
    let (_, condition) = condition.expect("a condition");
    assert!(conditions.iter().any(|of| id(of) == condition[0]));
    assert!(matches!(condition[1..], [0 | 1]));
}

#[test]
fn another_program_is_told_before_its_first_packet() {
    let mut log = EventLog::new(7, None);
    let (mut before, mut after) = (switch(KINDS), switch(RESOURCES));
    let changes = |messages: &[Message]| {
        let changes = messages.iter().filter(|message| message.kind == 999);
        changes.count()
    };
    assert_eq!(changes(&messages(&mut before, &mut log)), 0);
    assert_eq!(changes(&messages(&mut before, &mut log)), 0);
    let first = messages(&mut after, &mut log);
    assert_eq!(changes(&first), 1);
    let told = Message {
        kind: 999,
        packet: 0,
        numbers: Vec::new(),
    };
    assert_eq!(first[0], told);
    assert_eq!(changes(&messages(&mut after, &mut log)), 0);
}
