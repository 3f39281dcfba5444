//! Steps: in the order in which the engine does them, with names and values; and a packet that is
//! followed fares as one that is not.

mod common;

use common::{bits, load, table, v4, v6};
use std::cell::RefCell;
use v1model::entries::{ActionCall, EntryKey, MatchField};
use v1model::{EgressInput, Externs, IngressInput, NoTrafficManager, Pipeline, Stage, Step};

/// Keeps steps as text.
struct Steps<'p> {
    names: Vec<(&'p str, &'p str)>,
    seen: RefCell<Vec<String>>,
}

impl Externs for Steps<'_> {
    const STEPS: bool = true;

    fn backlog_bytes(&self, _class: u32) -> u64 {
        7
    }

    fn step(&self, step: Step<'_>) {
        let text = match step {
            Step::State(name) => format!("state {name}"),
            Step::Extract { header, bytes, .. } => format!("extract {header} {bytes}"),
            Step::Table {
                table, key, entry, ..
            } => {
                let (name, _) = self.names.get(table).copied().unwrap_or_default();
                let found = if entry.is_some() { "hit" } else { "miss" };
                format!("table {name} {key:x?} {found}")
            }
            Step::Emit { header, bytes } => format!("emit {header} {bytes}"),
            Step::Condition { holds, .. } => format!("condition {holds}"),
            Step::Action { args, .. } => format!("action {args:x?}"),
            other => format!("{other:?}"),
        };
        self.seen.borrow_mut().push(text);
    }
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
    let tables: Vec<String> = p.tables().iter().map(|t| t.name.clone()).collect();
    let steps = Steps {
        names: tables.iter().map(|name| (name.as_str(), "")).collect(),
        seen: RefCell::default(),
    };
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
    struct Fields(RefCell<Vec<(String, String, Vec<u8>)>>);
    impl Externs for Fields {
        const STEPS: bool = true;
        fn backlog_bytes(&self, _class: u32) -> u64 {
            0
        }
        fn step(&self, step: Step<'_>) {
            if let Step::Extract { header, fields, .. } = step {
                let fields = fields.iter();
                let fields = fields
                    .map(|(name, value)| (header.into(), name.into(), value.bytes().collect()));
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
    let value = |header: &str, field: &str| {
        let found = fields.iter().find(|(h, f, _)| h == header && f == field);
        found.map(|(_, _, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!(value("ethernet", "ether_type"), [0x08, 0x00]);
    assert_eq!(value("ipv4", "version"), [4]);
    assert_eq!(value("ipv4", "dscp"), [0x2e]);
    assert_eq!(value("ipv4", "src"), [10, 0, 0, 1]);
    assert_eq!(value("tcp", "seq"), [1, 2, 3, 4]);
}

#[test]
fn conditions_hold_as_the_program_writes_them() {
    // A node whose condition is "not equal" or "valid" tests the opposite.
    struct Conditions(RefCell<Vec<(String, bool)>>);
    impl Externs for Conditions {
        const STEPS: bool = true;
        fn backlog_bytes(&self, _class: u32) -> u64 {
            0
        }
        fn step(&self, step: Step<'_>) {
            if let Step::Condition { name, holds } = step {
                self.0.borrow_mut().push((name.to_owned(), holds));
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
        assert!(seen.contains(&("node_9".to_owned(), is_ipv4)), "{seen:?}");
    }
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
        let steps = Steps {
            names: Vec::new(),
            seen: RefCell::default(),
        };
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
