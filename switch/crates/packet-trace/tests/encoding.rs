//! Traces are what protobuf's own libraries make of them: random frames through the programs of
//! tests/conformance, traced.

use std::collections::BTreeSet;
use std::path::Path;

use packet_trace::{PacketTrace, to_delimited, to_lines};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use switch::trace::{self, Outcome};
use switch::{CloneSession, Replica, Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};
use v1model::entries::{ActionCall, EntryKey, MatchField};

mod support;

use support::Nowhere;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A switch with four ports, of which the last has a line rate.
fn switch(program: &[u8]) -> Switch {
    let config = SwitchConfig {
        entry_handles: true,
        cpu_port: Some(510),
        ..SwitchConfig::default()
    };
    let mut switch = Switch::new(config, Limits::default());
    for port in 0..4 {
        let config = PortConfig {
            line_rate_bps: (port == 3).then_some(1_000_000_000),
            counts: RateCounts::Wire,
            fifo_bytes: 65_536,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        let added = switch.add_port(port, &format!("veth{port}"), config);
        added.expect("a new port");
    }
    switch.load(program).expect("a program");
    let replicas: Vec<Replica> = [1, 2].map(|port| Replica { port, rid: 0 }).into();
    let loaded = switch.program_mut().expect("it is loaded");
    for group in 1..4 {
        let inserted = loaded.multicast_insert(group, replicas.clone());
        inserted.expect("a new group");
        let session = CloneSession {
            replicas: replicas.clone(),
            ..CloneSession::default()
        };
        let inserted = loaded.clone_session_insert(group, session);
        inserted.expect("a new session");
    }
    switch.set_tracing(true);
    switch
}

/// Paces the packets of class 0, if the program is `pacer.p4`: those of no flow.
fn pace(switch: &mut Switch) {
    let pipeline = switch.program_mut().expect("it is loaded").pipeline_mut();
    let table = |table: &v1model::entries::TableInfo| table.name == "PacerIngress.classes";
    let Some(classes) = pipeline.tables().iter().position(table) else {
        return;
    };
    let action = |action: &v1model::entries::ActionInfo| action.name == "PacerIngress.paced_static";
    let action = pipeline.actions().iter().position(action);
    let key = EntryKey {
        fields: vec![MatchField::Exact([0; 4].into())],
        priority: 0,
    };
    let call = ActionCall {
        action: action.expect("the action"),
        args: vec![
            (1_u64 << 24).to_be_bytes().into(),
            (1_u32 << 20).to_be_bytes().into(),
            [0; 8].into(),
        ],
    };
    let inserted = pipeline.table_insert(classes, &key, &call.into());
    inserted.expect("an entry");
}

fn traces(program: &Path, frames: usize) -> Vec<trace::PacketTrace> {
    // Shown if the test fails.
    println!("{}", program.display());
    let mut switch = switch(&std::fs::read(program).expect("a file"));
    pace(&mut switch);
    let mut random = Random(frames as u64);
    let mut traces = Vec::new();
    for number in 0..frames as u64 {
        let length = 14 + random.below(120) as usize;
        // Small bytes, so that selects and entries are met.
        let frame: Vec<u8> = (0..length).map(|_| random.below(9) as u8).collect();
        let now_ns = 1_000 * number;
        switch.receive(random.below(4) as u16, &frame, now_ns, now_ns);
        switch.poll(now_ns, &mut Nowhere);
        for _ in 0..64 {
            let Some(next_ns) = switch.poll_at_ns() else {
                break;
            };
            switch.poll(next_ns, &mut Nowhere);
        }
        traces.extend(std::iter::from_fn(|| switch.take_trace()));
    }
    traces
}

fn programs() -> Vec<std::path::PathBuf> {
    let compiled = repository().join("tests/conformance/compiled");
    let files = std::fs::read_dir(compiled).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let is_program = |file: &std::path::PathBuf| {
        file.extension().is_some_and(|end| end == "json") && !file.ends_with("manifest.json")
    };
    let mut programs: Vec<_> = files.filter(is_program).collect();
    programs.push(repository().join("p4src/compiled/pacing_switch/pacer.json"));
    programs.push(repository().join("switch/crates/v1model/tests/programs/queues.json"));
    programs
}

#[test]
fn traces_are_the_bytes_and_the_json_that_protobufs_libraries_write() {
    let files = include_bytes!(concat!(env!("OUT_DIR"), "/packet_trace.binpb"));
    let pool = DescriptorPool::decode(files.as_slice()).expect("descriptors");
    let descriptor = pool.get_message_by_name("pacer.v1.PacketTrace");
    let descriptor = descriptor.expect("the message");
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false);
    let (mut compared, mut forked) = (0, 0);
    let mut kinds = BTreeSet::new();
    for program in programs() {
        for trace in traces(&program, 60) {
            let mut bytes = Vec::new();
            trace.to_message(&mut bytes);
            let message = PacketTrace::decode(bytes.as_slice()).expect("a message");
            assert_eq!(message, PacketTrace::from(&trace));
            assert_eq!(message.encode_to_vec(), bytes, "{message:?}");
            let mut delimited = vec![7];
            to_delimited(&trace, &mut delimited);
            assert_eq!(delimited[1..], message.encode_length_delimited_to_vec());
            let mut json = b"[".to_vec();
            trace.to_json(&mut json);
            let dynamic = DynamicMessage::decode(descriptor.clone(), bytes.as_slice());
            let dynamic = dynamic.expect("a message");
            let mut expected = b"[".to_vec();
            let mut serializer = serde_json::Serializer::new(&mut expected);
            let serialized = dynamic.serialize_with_options(&mut serializer, &options);
            serialized.expect("JSON");
            let text = |bytes| String::from_utf8(bytes).expect("text");
            assert_eq!(text(json), text(expected));
            assert!(!to_lines(&trace).is_empty());
            kinds.extend(kinds_of(&message.root.unwrap_or_default()));
            compared += 1;
            forked += usize::from(matches!(trace.root.outcome, Outcome::Fork { .. }));
        }
    }
    assert!(compared > 1_000, "{compared}");
    assert!(forked > 10, "{forked}");
    for kind in [
        "Action",
        "Clone",
        "Count",
        "Dequeue",
        "Enqueue",
        "Extract",
        "Hold",
        "TableLookup",
    ] {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
}

/// The kinds of a branch's events, as `Condition`.
fn kinds_of(branch: &packet_trace::proto::TraceTree) -> BTreeSet<String> {
    let events = branch
        .events
        .iter()
        .filter_map(|event| event.event.as_ref());
    let name = |event| {
        let text = format!("{event:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    };
    let mut kinds: BTreeSet<_> = events.map(name).collect();
    if let Some(packet_trace::proto::trace_tree::Outcome::Fork(fork)) = &branch.outcome {
        kinds.extend(fork.branches.iter().flat_map(kinds_of));
    }
    kinds
}

/// A clone of egress is cloned again, without end.
#[test]
fn a_trace_is_no_deeper_than_protobufs_libraries_read() {
    let file = repository().join("switch/crates/v1model/tests/programs/misc.json");
    let json = std::fs::read(file).expect("a program");
    let mut json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    // Of operation 18: `sm.instance_type == 0`.
    let condition = "/pipelines/1/conditionals/3/expression/value/right/value/op";
    let condition = json.pointer_mut(condition).expect("a condition");
    assert_eq!(*condition, "==");
    *condition = ">=".into();
    let mut switch = switch(&serde_json::to_vec(&json).expect("JSON"));
    let session = CloneSession {
        replicas: vec![Replica { port: 3, rid: 0 }],
        ..CloneSession::default()
    };
    let loaded = switch.program_mut().expect("it is loaded");
    let inserted = loaded.clone_session_insert(7, session);
    inserted.expect("a new session");
    // Operation 18, for port 3, whose line takes time for each clone.
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x12, 0x35, 18, 0, 0, 77];
    frame.resize(60, 0);
    switch.receive(1, &frame, 0, 0);
    let mut ended = None;
    for _ in 0..10_000 {
        let next_ns = switch.poll_at_ns().expect("another clone");
        switch.poll(next_ns, &mut Nowhere);
        ended = switch.take_trace();
        if ended.is_some() {
            break;
        }
    }
    let trace = ended.expect("a trace");
    assert!(trace.left_out > 0);
    let mut bytes = Vec::new();
    trace.to_message(&mut bytes);
    let message = PacketTrace::decode(bytes.as_slice()).expect("a message");
    assert_eq!(message, PacketTrace::from(&trace));
}
