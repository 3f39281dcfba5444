//! Nothing a wire or a file can hold may panic, hang or grow.

mod common;

use common::{program, v4, v6};
use proptest::prelude::*;
use v1model::{
    Context, EgressInput, IngressInput, InstanceType, LoadOptions, NoTrafficManager, Pipeline,
};

const PROGRAMS: [&str; 3] = ["flows", "arith", "misc"];

fn drive(p: &mut Pipeline, ctx: &mut Context, other: &mut Context, f: &[u8], port: u16) {
    ctx.set_frame(f);
    let mut kind = InstanceType::Normal;
    for _ in 0..5 {
        let input = IngressInput {
            port,
            now_ns: u64::MAX - 7,
            instance_type: kind,
        };
        let v = p.ingress(ctx, &input, &NoTrafficManager);
        if let Some(c) = v.clone {
            p.clone_from_ingress(ctx, other, c.field_list);
            p.egress(other, &EgressInput::default(), &NoTrafficManager);
        }
        if let Some(list) = v.resubmit {
            p.resubmit(ctx, list);
            kind = InstanceType::Resubmit;
            continue;
        }
        if v.drop {
            return;
        }
        other.copy_from(ctx);
        let out = EgressInput {
            port: v.egress_port,
            now_ns: 3,
            enqueued_ns: 5,
            ..EgressInput::default()
        };
        let e = p.egress(ctx, &out, &NoTrafficManager);
        p.egress(other, &out, &NoTrafficManager);
        assert_eq!(ctx.output(), other.output());
        match e.recirculate {
            Some(list) if p.recirculate(ctx, list) => {}
            _ => return,
        }
        kind = InstanceType::Recirculated;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_frame_is_survived(
        frames in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), any::<u16>(), 0usize..8), 1..20),
    ) {
        for name in PROGRAMS {
            let mut p = common::load(name);
            let (mut ctx, mut other) = (p.new_context(), p.new_context());
            for (noise, port, kind) in &frames {
                // Pure noise seldom gets past the first header: graft it onto real ones.
                let mut f = match kind {
                    0 => v4(6, 40),
                    1 => v4(17, 40),
                    2 => v6(6, 40),
                    3 => common::vlan(1, 7, &v4(6, 3)),
                    4 => common::frame(0x8847, noise),
                    5 => common::frame(0x1230, noise),
                    6 => common::frame(0x5555, noise),
                    _ => noise.clone(),
                };
                if let Some(&first) = noise.first() {
                    let at = usize::from(first) % f.len().max(1);
                    for (byte, noise) in f[at..].iter_mut().zip(noise) {
                        *byte ^= noise;
                    }
                }
                for cut in [f.len(), f.len() / 2, f.len().saturating_sub(1)] {
                    drive(&mut p, &mut ctx, &mut other, &f[..cut], *port);
                    drive(&mut p, &mut ctx, &mut other, &f[..cut], 510);
                }
            }
        }
    }

    #[test]
    fn any_change_to_a_program_loads_or_is_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for name in PROGRAMS {
            let mut text = program(name);
            for (at, byte) in &edits {
                let at = at.index(text.len());
                text[at] = *byte;
            }
            try_load(&text);
        }
    }
}

/// Loads with small limits and, if that works, runs a few packets.
fn try_load(text: &[u8]) -> bool {
    let options = LoadOptions {
        max_state_bytes: 64 << 20,
        ..LoadOptions::default()
    };
    let mut p = match Pipeline::load(text, &options) {
        Ok(p) => p,
        Err(e) => {
            // The loader's thread panicked.
            assert!(!e.to_string().contains("defect"), "{e}");
            return false;
        }
    };
    let (mut ctx, mut other) = (p.new_context(), p.new_context());
    for f in [
        v4(6, 40),
        v6(17, 4),
        vec![1, 200, 100],
        common::frame(0x8847, &[0; 40]),
    ] {
        drive(&mut p, &mut ctx, &mut other, &f, 1);
    }
    true
}

#[test]
fn truncated_programs_are_refused() {
    for name in PROGRAMS {
        let text = program(name);
        let whole = text.trim_ascii_end().len();
        for cut in (0..whole).step_by(997) {
            assert!(!try_load(&text[..cut]), "{name} cut at {cut}");
        }
        assert!(try_load(&text));
    }
}

/// Replaces every scalar and empties every container of the JSON, one at a time (a sample of
/// them): wrong types, dangling names and ids, cycles, absurd sizes.
#[test]
fn tampered_programs_do_not_panic() {
    use serde_json::Value;
    fn count(v: &Value) -> usize {
        1 + match v {
            Value::Array(a) => a.iter().map(count).sum(),
            Value::Object(o) => o.values().map(count).sum(),
            _ => 0,
        }
    }
    fn replace(v: &mut Value, left: &mut usize, with: &Value) -> bool {
        if *left == 0 {
            *v = with.clone();
            return true;
        }
        *left -= 1;
        match v {
            Value::Array(a) => a.iter_mut().any(|x| replace(x, left, with)),
            Value::Object(o) => o.values_mut().any(|x| replace(x, left, with)),
            _ => false,
        }
    }
    // Positions in the source file are of no interest here.
    fn strip(v: &mut Value) {
        match v {
            Value::Array(a) => a.iter_mut().for_each(strip),
            Value::Object(o) => {
                o.remove("source_info");
                o.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    // More, when asked for: V1MODEL_TAMPER_CASES=20000 cargo test ...
    let cases: usize = std::env::var("V1MODEL_TAMPER_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(400);
    let values = [
        Value::Null,
        Value::from(-1),
        Value::from(u64::MAX),
        Value::from(4_000_000_000u64),
        Value::from(2),
        Value::from("0x-1"),
        Value::from("0xffffffffffffffffffffffffffffffff"),
        Value::from("node_5"),
        Value::from("*"),
        Value::Array(vec![]),
        Value::Bool(true),
    ];
    for name in PROGRAMS {
        let mut root: Value = serde_json::from_slice(&program(name)).unwrap();
        strip(&mut root);
        let n = count(&root);
        for i in 0..cases {
            let mut changed = root.clone();
            let mut at = i * 7_919 % n;
            replace(&mut changed, &mut at, &values[i % values.len()]);
            try_load(changed.to_string().as_bytes());
        }
    }
}

#[test]
fn deep_nesting_is_refused_or_survived() {
    for depth in [1_000, 100_000] {
        let text = "[".repeat(depth);
        assert!(!try_load(text.as_bytes()));
    }
    // A deep but legal expression.
    let text = String::from_utf8(program("misc")).unwrap();
    let condition = |depth: usize| {
        let mut e = r#"{"type":"field","value":["op","op"]}"#.to_owned();
        for _ in 0..depth {
            e = format!(
                r#"{{"type":"expression","value":{{"op":"+","left":{e},"right":{{"type":"hexstr","value":"0x1"}}}}}}"#
            );
        }
        let mut root: serde_json::Value = serde_json::from_str(&text).unwrap();
        root["pipelines"][0]["conditionals"][0]["expression"] = serde_json::Value::Null;
        root.to_string().replacen(
            r#""expression":null"#,
            &format!(
                r#""expression":{{"type":"expression","value":{{"op":"==","left":{e},"right":{{"type":"hexstr","value":"0x0"}}}}}}"#
            ),
            1,
        )
    };
    assert!(try_load(condition(500).as_bytes()));
    assert!(!try_load(condition(5_000).as_bytes()));
}

#[test]
fn long_frames_are_cut_and_reported() {
    let mut p = common::load("flows");
    let mut ctx = p.new_context();
    let most = ctx.capacity();
    assert_eq!(most, LoadOptions::default().max_frame_bytes);
    assert!(ctx.set_frame(&vec![0; most]));
    assert!(!ctx.set_frame(&vec![0; most + 1]));
    assert_eq!(ctx.frame_len(), most);
    p.ingress(&mut ctx, &IngressInput::default(), &NoTrafficManager);
    let out = EgressInput {
        port: 1,
        ..EgressInput::default()
    };
    p.egress(&mut ctx, &out, &NoTrafficManager);
    assert_eq!(ctx.output().len(), most);
}
