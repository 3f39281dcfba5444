//! Steps: in the order in which the engine does them, with names and values; and a packet that is
//! followed fares as one that is not.

mod common;

use common::{bits, frame, load, table, v4, v6};
use std::cell::RefCell;
use std::sync::Arc;
use v1model::entries::profile::{
    GroupMember, IndirectAction, ProfileGroup, ProfileMember, WeightedAction,
};
use v1model::entries::{ActionCall, EntryKey, MatchField, MeterConfig, MeterWrite};
use v1model::{
    EgressInput, Externs, IngressInput, Labels, NoTrafficManager, NodeLabel, Pipeline,
    PrimitiveLabel, Stage, Step,
};

/// Keeps steps as text.
struct Steps {
    tables: Vec<String>,
    labels: Arc<Labels>,
    seen: RefCell<Vec<String>>,
}

impl Steps {
    fn of(p: &Pipeline) -> Self {
        Self {
            tables: p.tables().iter().map(|t| t.name.clone()).collect(),
            labels: Arc::clone(p.labels()),
            seen: RefCell::default(),
        }
    }
}

impl Externs for Steps {
    const STEPS: bool = true;

    fn backlog_bytes(&self, _class: u32) -> u64 {
        7
    }

    fn step(&self, step: Step<'_>) {
        let labels = &self.labels;
        let text = match step {
            Step::State(state) => format!("state {}", labels.states[state]),
            Step::Extract { header, bytes, .. } => {
                format!("extract {} {bytes}", labels.headers[header].name)
            }
            Step::Table {
                table, key, entry, ..
            } => {
                let name = &self.tables[table];
                let found = if entry.is_some() { "hit" } else { "miss" };
                format!("table {name} {key:x?} {found}")
            }
            Step::Emit { header, bytes } => {
                format!("emit {} {bytes}", labels.headers[header].name)
            }
            Step::Condition { holds, .. } => format!("condition {holds}"),
            Step::Action { args, .. } => format!("action {args:x?}"),
            Step::Primitive(primitive) => {
                let PrimitiveLabel { op, source, .. } = &labels.primitives[primitive];
                match source {
                    Some(at) => format!("{op} {}:{} {}", at.filename, at.line, at.source_fragment),
                    None => op.clone(),
                }
            }
            other => format!("{other:?}"),
        };
        self.seen.borrow_mut().push(text);
    }
}

/// The steps of a packet in the parser and in ingress, as text.
fn ingress_steps(p: &mut Pipeline, frame: &[u8]) -> Vec<String> {
    let steps = Steps::of(p);
    let mut ctx = p.new_context();
    assert!(ctx.set_frame(frame));
    p.ingress(&mut ctx, &IngressInput::default(), &steps);
    steps.seen.into_inner()
}

fn forward(p: &mut Pipeline) {
    let t = table(p, "FlowIngress.forward");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(0x0200_0000_0002, 48))],
        priority: 0,
    };
    let action = p
        .actions()
        .iter()
        .position(|a| a.name == "FlowIngress.forward_to");
    let call = ActionCall {
        action: action.expect("it is there"),
        args: vec![bits(7, 9)],
    };
    p.table_insert(t, &key, &call.into())
        .expect("there is room");
}

#[test]
fn a_packet_s_way_is_reported_in_order() {
    let mut p = load("flows");
    forward(&mut p);
    let steps = Steps::of(&p);
    let mut ctx = p.new_context();
    assert!(ctx.set_frame(&v4(17, 10)));
    let input = IngressInput {
        port: 3,
        now_ns: 5_000,
        ..IngressInput::default()
    };
    let verdict = p.ingress(&mut ctx, &input, &steps);
    assert_eq!(verdict.egress_port, 7);
    p.egress(
        &mut ctx,
        &EgressInput {
            port: 7,
            ..EgressInput::default()
        },
        &steps,
    );
    let seen = steps.seen.into_inner();
    let parsed = [
        "Enter(Parser)",
        "state start",
        "state parse_ethernet",
        "extract ethernet 14",
        "state parse_ipv4",
        "extract ipv4 20",
        "state parse_udp",
        "extract udp 8",
        "Leave(Parser)",
        "Enter(Ingress)",
    ];
    assert_eq!(seen[..parsed.len()], parsed);
    let at = |text: &str| {
        let found = seen.iter().position(|step| step == text);
        found.unwrap_or_else(|| panic!("no {text:?} in {seen:#?}"))
    };
    let hit = at("table FlowIngress.forward [[2, 0, 0, 0, 0, 2]] hit");
    assert_eq!(seen[hit + 1], "action [[0, 7]]");
    assert_eq!(seen[hit + 2], "assign flows.p4:198 sm.egress_spec = port");
    assert!(at("Leave(Ingress)") < at("Enter(Egress)"));
    let emitted = [
        "emit ethernet 14",
        "emit ipv4 20",
        "emit udp 8",
        "Leave(Deparser)",
    ];
    assert_eq!(seen[seen.len() - emitted.len()..], emitted);
}

#[test]
fn fields_have_the_values_of_the_frame() {
    struct Fields(RefCell<Vec<(usize, String, String)>>);
    impl Externs for Fields {
        const STEPS: bool = true;
        fn backlog_bytes(&self, _class: u32) -> u64 {
            0
        }
        fn step(&self, step: Step<'_>) {
            if let Step::Extract { header, fields, .. } = step {
                let fields = fields.iter();
                let fields =
                    fields.map(|(name, value)| (header, name.into(), format!("{value:x?}")));
                self.0.borrow_mut().extend(fields);
            }
        }
    }
    let mut p = load("flows");
    let mut ctx = p.new_context();
    assert!(ctx.set_frame(&v4(6, 0)));
    let fields = Fields(RefCell::default());
    p.ingress(&mut ctx, &IngressInput::default(), &fields);
    let fields = fields.0.into_inner();
    let headers = &p.labels().headers;
    let value = |header: &str, field: &str| {
        let mut fields = fields.iter();
        let found = fields.find(|(h, f, _)| headers[*h].name == header && f == field);
        found.map(|(_, _, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(value("ethernet", "ether_type"), "[8, 0]");
    assert_eq!(value("ipv4", "version"), "[4]");
    assert_eq!(value("ipv4", "dscp"), "[2e]");
    assert_eq!(value("ipv4", "src"), "[a, 0, 0, 1]");
    assert_eq!(value("tcp", "seq"), "[1, 2, 3, 4]");
}

#[test]
fn conditions_hold_as_the_program_writes_them() {
    // A node whose condition is "not equal" or "valid" tests the opposite.
    struct Conditions(RefCell<Vec<(usize, bool)>>);
    impl Externs for Conditions {
        const STEPS: bool = true;
        fn backlog_bytes(&self, _class: u32) -> u64 {
            0
        }
        fn step(&self, step: Step<'_>) {
            if let Step::Condition { node, holds } = step {
                self.0.borrow_mut().push((node, holds));
            }
        }
    }
    let mut p = load("flows");
    // `hdr.ipv4.isValid()`.
    for (frame, is_ipv4) in [(v4(17, 10), true), (v6(17, 10), false)] {
        let conditions = Conditions(RefCell::default());
        let mut ctx = p.new_context();
        assert!(ctx.set_frame(&frame));
        p.ingress(&mut ctx, &IngressInput::default(), &conditions);
        let seen = conditions.0.into_inner();
        let found = seen.iter().find(|(node, _)| {
            let label = &p.labels().nodes[*node];
            matches!(label, NodeLabel::Condition { name, source: Some(source), .. }
                if name == "node_9" && source.source_fragment == "hdr.ipv4.isValid()")
        });
        assert_eq!(found.map(|(_, holds)| *holds), Some(is_ipv4), "{seen:?}");
    }
}

#[test]
fn primitives_are_reported_each_time_that_they_run() {
    let mut p = load("loops");
    // The loop over i runs twice, and the one in it once and twice.
    let seen = ingress_steps(&mut p, &frame(2, &[]));
    let times = |text: &str| seen.iter().filter(|step| step.ends_with(text)).count();
    assert_eq!(times("loops.p4:17 sum = sum + (bit<48>) (i + 1)"), 2);
    assert_eq!(
        times("loops.p4:19 squares = squares + (bit<48>) (i + 1)"),
        3
    );
    assert_eq!(times("loops.p4:22 hdr.e.dst = sum"), 1);
    assert_eq!(times("continue"), 0);
}

#[test]
fn a_direct_meter_reports_its_colour() {
    let mut p = load("flows");
    let flows = table(&p, "FlowIngress.flows");
    let colours = |p: &mut Pipeline| {
        let mut steps = ingress_steps(p, &v4(17, 86));
        steps.retain(|step| step.starts_with("DirectMeter"));
        steps
    };
    // A default entry's meter that is not configured gives no colour.
    assert!(colours(&mut p).is_empty());
    let config = MeterConfig {
        cir: 1,
        cburst: 128,
        pir: 1,
        pburst: 128,
        eburst: 0,
    };
    let write = MeterWrite {
        config: Some(config),
        clear_counts: false,
    };
    p.direct_meter_set(flows, None, write).expect("a meter");
    for colour in [0, 2] {
        let wanted = format!("DirectMeter {{ table: {flows}, colour: {colour} }}");
        assert_eq!(colours(&mut p), [wanted]);
    }
}

#[test]
fn the_choice_of_a_member_is_reported() {
    let mut p = load("selector");
    let t = table(&p, "I.t");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(5, 16))],
        priority: 0,
    };
    let action = p.actions().iter().position(|a| a.name == "I.a");
    let to = |port: u32| ActionCall {
        action: action.expect("it is there"),
        args: vec![bits(port.into(), 9)],
    };
    let group = |members: &[u32]| ProfileGroup {
        id: 7,
        max_size: 0,
        members: members
            .iter()
            .map(|&member| GroupMember {
                member,
                weight: 1,
                watch: None,
            })
            .collect(),
    };
    let chosen = |p: &mut Pipeline| {
        let mut steps = ingress_steps(p, &frame(5, &[]));
        steps.retain(|step| {
            ["Member", "OneShot", "EmptyGroup"]
                .iter()
                .any(|kind| step.starts_with(kind))
        });
        steps
    };
    for id in [3, 9] {
        let member = ProfileMember { id, call: to(id) };
        p.member_insert(0, &member).expect("a member");
    }
    let member = IndirectAction::Member(9);
    p.table_insert(t, &key, &member.into()).expect("an entry");
    assert_eq!(
        chosen(&mut p),
        ["Member { profile: 0, group: None, member: 9 }"]
    );
    p.group_insert(0, &group(&[3])).expect("a group");
    let of_group = IndirectAction::Group(7);
    p.table_modify(t, &key, &of_group.into()).expect("an entry");
    assert_eq!(
        chosen(&mut p),
        ["Member { profile: 0, group: Some(7), member: 3 }"]
    );
    p.group_modify(0, &group(&[])).expect("an empty group");
    assert_eq!(chosen(&mut p), ["EmptyGroup"]);

    p.table_delete(t, &key).expect("the entry");
    p.group_delete(0, 7).expect("the group");
    for id in [3, 9] {
        p.member_delete(0, id).expect("the member");
    }
    let set = IndirectAction::OneShot(vec![WeightedAction {
        call: to(4),
        weight: 1,
        watch: None,
    }]);
    p.table_insert(t, &key, &set.into()).expect("an entry");
    assert_eq!(chosen(&mut p), ["OneShot { profile: 0, action: 0 }"]);
}

#[test]
fn what_happens_to_a_packet_does_not_depend_on_who_looks() {
    let (mut plain, mut followed) = (load("flows"), load("flows"));
    for p in [&mut plain, &mut followed] {
        forward(p);
    }
    for (number, frame) in [v4(17, 10), v4(6, 0), vec![0; 14], vec![2; 5]]
        .iter()
        .enumerate()
    {
        let input = IngressInput {
            port: 1,
            now_ns: 1_000 * number as u64,
            ..IngressInput::default()
        };
        let (mut a, mut b) = (plain.new_context(), followed.new_context());
        assert!(a.set_frame(frame) && b.set_frame(frame));
        let steps = Steps::of(&followed);
        let verdicts = (
            plain.ingress(&mut a, &input, &common::Backlog(7)),
            followed.ingress(&mut b, &input, &steps),
        );
        assert_eq!(verdicts.0, verdicts.1);
        let input = EgressInput {
            port: 1,
            ..EgressInput::default()
        };
        plain.egress(&mut a, &input, &NoTrafficManager);
        followed.egress(&mut b, &input, &steps);
        assert_eq!(a.output(), b.output());
        let seen = steps.seen.into_inner();
        assert_eq!(seen.first().map(String::as_str), Some("Enter(Parser)"));
        assert!(seen.contains(&format!("{:?}", Step::Leave(Stage::Ingress))));
    }
}
