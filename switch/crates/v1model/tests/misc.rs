//! Clone, resubmit, recirculate, truncate, hashes, constant entries, header copies, lookahead,
//! advance, header stacks, parser errors.

mod common;

use common::{bits, frame, load, program, table};
use v1model::entries::{ActionCall, ControlError, EntryKey, MatchField, MeterConfig, MeterWrite};
use v1model::{
    CloneRequest, Context, CrcParameters, EgressInput, EgressVerdict, IngressInput, IngressVerdict,
    InstanceType, LoadOptions, NoTrafficManager, Pipeline,
};

fn ingress(p: &mut Pipeline, ctx: &mut Context, instance_type: InstanceType) -> IngressVerdict {
    let input = IngressInput {
        port: 4,
        now_ns: 0,
        instance_type,
    };
    p.ingress(ctx, &input, &NoTrafficManager)
}

fn egress(p: &mut Pipeline, ctx: &mut Context, instance_type: InstanceType) -> EgressVerdict {
    let input = EgressInput {
        port: 1,
        instance_type,
        ..EgressInput::default()
    };
    p.egress(ctx, &input, &NoTrafficManager)
}

fn op(op: u8, x: u8, y: u16, z: u32) -> Vec<u8> {
    let mut payload = vec![op, x];
    payload.extend_from_slice(&y.to_be_bytes());
    payload.extend_from_slice(&z.to_be_bytes());
    payload.extend_from_slice(b"rest of the packet");
    frame(0x1235, &payload)
}

/// Ingress and egress of a packet that is neither cloned nor sent round again.
fn through(p: &mut Pipeline, f: &[u8]) -> (IngressVerdict, Vec<u8>) {
    let mut ctx = p.new_context();
    ctx.set_frame(f);
    let v = ingress(p, &mut ctx, InstanceType::Normal);
    if v.drop {
        return (v, Vec::new());
    }
    egress(p, &mut ctx, InstanceType::Normal);
    (v, ctx.output().to_vec())
}

#[test]
fn constant_entries_match_in_program_order() {
    let mut p = load("misc");
    let mut port = |op_: u8, x: u8, y: u16| {
        let (v, _) = through(&mut p, &op(op_, x, y, 0));
        (!v.drop).then_some(v.egress_port)
    };
    assert_eq!(port(1, 0, 0), Some(1));
    assert_eq!(port(1, 15, 77), Some(1));
    assert_eq!(port(2, 10, 77), Some(2));
    assert_eq!(port(3, 20, 0), Some(2));
    assert_eq!(port(3, 21, 0), None);
    assert_eq!(port(3, 21, 77), Some(3));
    assert_eq!(port(9, 100, 0), Some(4));
    assert_eq!(port(9, 255, 76), Some(4));
    assert_eq!(port(9, 99, 76), None);

    let t = table(&p, "I.fixed");
    let entries = p.table_entries(t, 0, 100).items;
    let priorities: Vec<i32> = entries.iter().map(|e| e.key.priority).collect();
    assert_eq!(priorities, [4, 3, 2, 1]);
    assert!(p.tables()[t].const_entries && p.tables()[t].const_default);
    let refused = p.table_delete(t, &entries[0].key);
    assert!(matches!(refused, Err(ControlError::PermissionDenied(_))));
    let to = ActionCall {
        action: p.actions().iter().position(|a| a.name == "I.to").unwrap(),
        args: vec![bits(1, 9)],
    };
    let refused = p.table_set_default(t, Some(&to));
    assert!(matches!(refused, Err(ControlError::PermissionDenied(_))));
    assert_eq!(p.table_set_default(t, None), Ok(()));
}

#[test]
fn ingress_clone_is_the_packet_as_it_came_in() {
    let mut p = load("misc");
    let f = op(11, 3, 500, 1);
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    let v = ingress(&mut p, &mut ctx, InstanceType::Normal);
    let wanted = CloneRequest {
        session: 6,
        field_list: 2,
    };
    assert_eq!(v.clone, Some(wanted));
    assert!(!v.drop);
    let mut clone = p.new_context();
    p.clone_from_ingress(&ctx, &mut clone, wanted.field_list);
    egress(&mut p, &mut ctx, InstanceType::Normal);
    assert_eq!(ctx.output(), f);
    egress(&mut p, &mut clone, InstanceType::IngressClone);
    // y = meta.kept (in list 2) = 501, z = meta.lost (not in it) = 0.
    assert_eq!(clone.output(), op(11, 3, 501, 0));
    // Without a list nothing is kept.
    ctx.set_frame(&op(10, 3, 500, 1));
    let v = ingress(&mut p, &mut ctx, InstanceType::Normal);
    let request = v.clone.unwrap();
    assert_eq!(request.session, 5);
    p.clone_from_ingress(&ctx, &mut clone, request.field_list);
    egress(&mut p, &mut clone, InstanceType::IngressClone);
    assert_eq!(clone.output(), op(10, 3, 0, 0));
}

#[test]
fn resubmit_keeps_the_frame_and_the_listed_metadata() {
    let mut p = load("misc");
    let f = op(12, 0, 77, 1);
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    let mut v = ingress(&mut p, &mut ctx, InstanceType::Normal);
    let mut times = 0;
    while let Some(list) = v.resubmit {
        times += 1;
        assert!(times <= 3 && !v.drop);
        p.resubmit(&mut ctx, list);
        v = ingress(&mut p, &mut ctx, InstanceType::Resubmit);
    }
    assert_eq!((times, v.egress_port), (3, 3));
    egress(&mut p, &mut ctx, InstanceType::Normal);
    assert_eq!(ctx.output(), f);
    // A new packet starts afresh.
    ctx.set_frame(&f);
    assert!(
        ingress(&mut p, &mut ctx, InstanceType::Normal)
            .resubmit
            .is_some()
    );
}

#[test]
fn recirculation_goes_round_with_the_changed_packet() {
    let mut p = load("misc");
    let mut ctx = p.new_context();
    ctx.set_frame(&op(13, 1, 0, 0));
    ingress(&mut p, &mut ctx, InstanceType::Normal);
    let e = egress(&mut p, &mut ctx, InstanceType::Normal);
    assert_eq!(e.recirculate, Some(2));
    assert_eq!(ctx.output(), op(13, 2, 0, 0));
    p.recirculate(&mut ctx, 2);
    let v = ingress(&mut p, &mut ctx, InstanceType::Recirculated);
    assert_eq!((v.drop, v.egress_port), (false, 1));
    let e = egress(&mut p, &mut ctx, InstanceType::Recirculated);
    assert_eq!(e.recirculate, None);
    assert_eq!(ctx.output(), op(13, 2, 0, 0));
}

#[test]
fn egress_clone() {
    let mut p = load("misc");
    let f = op(18, 100, 9, 9);
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    assert_eq!(
        ingress(&mut p, &mut ctx, InstanceType::Normal).egress_port,
        4
    );
    let e = egress(&mut p, &mut ctx, InstanceType::Normal);
    let request = e.clone.unwrap();
    assert_eq!(request.session, 7);
    let mut clone = p.new_context();
    p.clone_from_egress(&ctx, &mut clone, request.field_list);
    let e = egress(&mut p, &mut clone, InstanceType::EgressClone);
    assert_eq!(e.clone, None);
    assert_eq!(clone.output(), f);
    assert_eq!(ctx.output(), f);
}

#[test]
fn header_copy_truncate_and_new_headers() {
    let mut p = load("misc");
    let f = op(14, 0, 0, 0);
    let mut want = f[..14].to_vec();
    want[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    want.extend_from_slice(&f);
    assert_eq!(through(&mut p, &f).1, want);
    let f = op(15, 0, 0, 0);
    assert_eq!(through(&mut p, &f).1, f[..20]);
    // setInvalid and setValid again: fields are zero.
    let out = through(&mut p, &op(17, 5, 6, 7)).1;
    assert_eq!(out[14..22], [0, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn hashes() {
    let mut p = load("misc");
    let f = op(16, 0, 0, 0x0102_0304);
    let out = through(&mut p, &f).1;
    let input = &f[..12];
    let crc16 = input.iter().fold(0u16, |mut crc, &b| {
        crc ^= u16::from(b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xa001 * (crc & 1));
        }
        crc
    });
    let crc32 = !input.iter().fold(u32::MAX, |mut crc, &b| {
        crc ^= u32::from(b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
        }
        crc
    });
    let word = |i: usize| u32::from(input[2 * i]) << 8 | u32::from(input[2 * i + 1]);
    let xor = (0..6).fold(0, |x, i| x ^ word(i));
    let sum: u32 = (0..6).map(word).sum();
    let csum = !((sum & 0xffff) + (sum >> 16)) as u16;
    assert_eq!(out[16..18], crc16.to_be_bytes());
    assert_eq!(out[18..22], crc32.to_be_bytes());
    assert_eq!(out[12..14], ((xor % 100 + 5) as u16).to_be_bytes());
    assert_eq!(out[..6], [0, 0, 1, 2, 3, 4]);
    assert_eq!(out[6..12], u64::from(csum).to_be_bytes()[2..]);
}

#[test]
fn the_parameters_of_a_custom_crc_are_set() {
    let json = String::from_utf8(program("misc")).expect("text");
    let custom = json.replace("\"crc16\"", "\"crc16_custom\"");
    assert_ne!(custom, json);
    let mut p = Pipeline::load(custom.as_bytes(), &LoadOptions::default()).expect("it loads");
    let f = op(16, 0, 0, 0x0102_0304);
    // It starts as CRC-16.
    assert_eq!(through(&mut p, &f).1, through(&mut load("misc"), &f).1);
    // CRC-16/XMODEM.
    let parameters = CrcParameters {
        polynomial: 0x1021,
        initial_remainder: 0,
        final_xor_value: 0,
        data_reflected: false,
        remainder_reflected: false,
    };
    let custom: Vec<usize> = (0..99)
        .filter(|calculation| p.crc_set(*calculation, 16, parameters).is_ok())
        .collect();
    assert_eq!(custom.len(), 1);
    let xmodem = f[..12].iter().fold(0u16, |mut crc, &b| {
        crc ^= u16::from(b) << 8;
        for _ in 0..8 {
            crc = (crc << 1) ^ (0x1021 * (crc >> 15));
        }
        crc
    });
    assert_eq!(through(&mut p, &f).1[16..18], xmodem.to_be_bytes());
    let refused = p.crc_set(custom[0], 32, parameters);
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    let unknown = p.crc_set(99, 16, parameters);
    assert!(matches!(unknown, Err(ControlError::NotFound(_))));
}

/// A label of the test program's stack.
fn label(value: u32, bottom: bool, ttl: u8) -> [u8; 4] {
    (value << 12 | u32::from(bottom) << 8 | u32::from(ttl)).to_be_bytes()
}

#[test]
fn header_stacks_push_and_pop() {
    let mut p = load("misc");
    let stack = |labels: &[[u8; 4]]| frame(0x8847, &[labels.concat(), vec![0xaa; 9]].concat());
    // One label: pushed down, a new one in front.
    let (v, out) = through(&mut p, &stack(&[label(7, true, 64)]));
    assert_eq!(v.egress_port, 2);
    assert_eq!(out, stack(&[label(99, false, 0), label(7, true, 63)]));
    // Several: the first is popped.
    let deep = [label(1, false, 9), label(2, false, 8), label(3, true, 7)];
    assert_eq!(through(&mut p, &stack(&deep)).1, stack(&deep[1..]));
    // Five labels do not fit in a stack of four.
    let five = [label(1, false, 1); 5];
    let (v, _) = through(&mut p, &stack(&five));
    assert!(v.parser_error);
    // Cut in the middle of a label.
    let cut = stack(&[label(1, false, 1)]);
    assert!(through(&mut p, &cut[..17]).0.parser_error);
}

#[test]
fn lookahead_and_advance() {
    let mut p = load("misc");
    let mut payload = vec![0xbe, 0xef, 1, 2];
    payload.extend_from_slice(&op(20, 1, 2, 3)[14..]);
    let (v, out) = through(&mut p, &frame(0x5555, &payload));
    assert_eq!((v.egress_port, v.parser_error), (3, false));
    assert_eq!(out[14..18], [20, 1, 0xbe, 0xef]);
    for n in 0..payload.len() {
        let (v, _) = through(&mut p, &frame(0x5555, &payload[..n]));
        assert_eq!(v.parser_error, n < 12, "{n} bytes");
    }
    // verify(op != 255, error.BadOp)
    assert!(through(&mut p, &op(255, 0, 0, 0)).0.parser_error);
}

#[test]
fn control_requests_are_checked() {
    let mut p = load("flows");
    let t = table(&p, "FlowIngress.forward");
    let key = |value: u128, width| EntryKey {
        fields: vec![MatchField::Exact(bits(value, width))],
        priority: 0,
    };
    let id = |p: &Pipeline, name: &str| p.actions().iter().position(|a| a.name == name).unwrap();
    let go = ActionCall {
        action: id(&p, "FlowIngress.forward_to"),
        args: vec![bits(3, 9)],
    };
    p.table_insert(t, &key(1, 48), &go.clone().into()).unwrap();
    let refused = p.table_insert(t, &key(1, 48), &go.clone().into());
    assert!(matches!(refused, Err(ControlError::AlreadyExists(_))));
    let refused = p.table_insert(t, &key(1, 40), &go.clone().into());
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    let mut with_priority = key(2, 48);
    with_priority.priority = 1;
    let refused = p.table_insert(t, &with_priority, &go.clone().into());
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    let refused = p.table_delete(t, &key(9, 48));
    assert!(matches!(refused, Err(ControlError::NotFound(_))));
    let foreign = ActionCall {
        action: id(&p, "FlowIngress.classify"),
        args: vec![bits(3, 32), bits(0, 1)],
    };
    assert!(
        p.table_insert(t, &key(5, 48), &foreign.clone().into())
            .is_err()
    );
    let wide = ActionCall {
        args: vec![vec![2, 0].into()],
        ..go.clone()
    };
    assert!(
        p.table_insert(t, &key(5, 48), &wide.clone().into())
            .is_err()
    );
    assert!(
        p.table_insert(999, &key(5, 48), &go.clone().into())
            .is_err()
    );
    let other = ActionCall {
        args: vec![bits(4, 9)],
        ..go.clone()
    };
    p.table_modify(t, &key(1, 48), &other.clone().into())
        .unwrap();
    assert_eq!(p.table_entry(t, &key(1, 48)).unwrap().action, other);
    let size = p.tables()[t].size;
    for i in 0..size as u128 - 1 {
        p.table_insert(t, &key(100 + i, 48), &go.clone().into())
            .unwrap();
    }
    let refused = p.table_insert(t, &key(7, 48), &go.clone().into());
    assert!(matches!(refused, Err(ControlError::ResourceExhausted(_))));
    assert_eq!(p.table_entries(t, 0, usize::MAX).items.len(), size);
    for i in 0..size as u128 - 1 {
        p.table_delete(t, &key(100 + i, 48)).unwrap();
    }
    assert_eq!(p.table_entries(t, 0, usize::MAX).items.len(), 1);
    // Default action: changed and restored.
    let default = |p: &Pipeline| p.table_default(t).unwrap().action;
    let before = default(&p);
    p.table_set_default(t, Some(&go)).unwrap();
    assert_eq!(default(&p), Some(go));
    p.table_set_default(t, None).unwrap();
    assert_eq!(default(&p), before);
    // Registers.
    assert!(p.register_write(0, 1_048_576, &[0; 8]).is_err());
    assert!(p.register_write(0, 0, &[0; 7]).is_err());
    p.register_write(0, 1_048_575, &[1, 2, 3, 4, 5, 6, 7, 8])
        .unwrap();
    assert_eq!(
        *p.register_read(0, 1_048_575).unwrap(),
        [1, 2, 3, 4, 5, 6, 7, 8]
    );
    assert!(p.counter_read(0, 64).is_err());
    let meter = MeterConfig {
        cir: 2,
        cburst: 1,
        pir: 1,
        pburst: 1,
        eburst: 0,
    };
    // A peak rate below the committed one; an excess burst beside a peak rate of its own.
    for meter in [
        meter,
        MeterConfig {
            pir: 3,
            eburst: 1,
            ..meter
        },
    ] {
        let write = MeterWrite {
            config: Some(meter),
            clear_counts: false,
        };
        assert!(p.meter_write(0, 0, write).is_err());
    }
}

#[test]
fn programs_with_missing_features_are_refused_by_name() {
    let text = String::from_utf8(program("misc")).unwrap();
    let refused = |from: &str, to: &str, expect: &str| {
        assert!(text.contains(from), "{from}");
        let changed = text.replacen(from, to, 1);
        let e = Pipeline::load(changed.as_bytes(), &LoadOptions::default()).unwrap_err();
        let said = e.to_string();
        assert!(said.contains(expect), "{said}");
    };
    refused(
        "\"header_union_types\" : []",
        "\"header_union_types\" : [{}]",
        "JSON path header_union_types[0]",
    );
    refused(
        "\"op\" : \"assign_header\"",
        "\"op\" : \"frobnicate\"",
        "primitive 0 ('frobnicate')",
    );
    refused(
        "\"algo\" : \"crc32\"",
        "\"algo\" : \"md5\"",
        "calculation 'calc_0': hash algorithm 'md5'",
    );
    refused(
        "\"false_next\" : \"node_7\"",
        "\"false_next\" : \"nowhere\"",
        "pipeline 'ingress': conditional 'node_5': false_next: unknown next node 'nowhere'",
    );
    refused(
        "\"false_next\" : \"node_7\"",
        "\"false_next\" : \"node_5\"",
        "comes back to 'node_5'",
    );
    refused(
        "\"action_ids\" : [0, 1]",
        "\"action_ids\" : [0, 99]",
        "pipeline 'ingress': table 'I.fixed': unknown action id 99",
    );
    refused(
        "\"max_size\" : 4",
        "\"max_size\" : \"four\"",
        "JSON path pipelines[0].tables[1].max_size",
    );
    refused(
        "\"type\" : \"simple\"",
        "\"type\" : \"indirect\"",
        "has no action profile",
    );
    refused(
        "\"version\" : [2, 23]",
        "\"version\" : [3, 0]",
        "format 3.0 is not supported",
    );
}

/// The program of the tests, whose parser asserts first that a constant is true.
fn asserting_in_the_parser(holds: bool) -> Pipeline {
    let mut root: serde_json::Value = serde_json::from_slice(&program("misc")).unwrap();
    let condition = serde_json::json!({"type": "bool", "value": holds});
    let expression = serde_json::json!({"op": "b2d", "left": null, "right": condition});
    let expression = serde_json::json!({"type": "expression", "value": expression});
    let parameter = serde_json::json!({"type": "expression", "value": expression});
    let assert = serde_json::json!({"op": "assert", "parameters": [parameter]});
    let operation = serde_json::json!({"op": "primitive", "parameters": [assert]});
    let states = root["parsers"][0]["parse_states"].as_array_mut().unwrap();
    for state in states {
        let operations = state["parser_ops"].as_array_mut().unwrap();
        operations.insert(0, operation.clone());
    }
    Pipeline::load(root.to_string().as_bytes(), &LoadOptions::default()).unwrap()
}

#[test]
fn a_failed_assertion_of_the_parser_drops_the_packet() {
    let packet = op(1, 0, 0, 0);
    let (verdict, _) = through(&mut asserting_in_the_parser(true), &packet);
    assert!(!verdict.assertion_failed && !verdict.drop);
    let (verdict, _) = through(&mut asserting_in_the_parser(false), &packet);
    assert!(verdict.assertion_failed && verdict.drop && !verdict.parser_error);
}
