//! Cost of one packet through ingress and egress.

// criterion's macros generate public items without comments.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use v1model::entries::{ActionCall, EntryKey, MatchField};
use v1model::{EgressInput, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

fn load(name: &str) -> Pipeline {
    let path = format!("{}/tests/programs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let json = std::fs::read(path).expect("the compiled test program is in the tree");
    Pipeline::load(&json, &LoadOptions::default()).expect("it loads")
}

fn action(p: &Pipeline, name: &str, args: &[&[u8]]) -> ActionCall {
    ActionCall {
        action: (p.actions().iter().position(|a| a.name == name)).expect("known action"),
        args: args.iter().map(|&a| a.into()).collect(),
    }
}

fn table(p: &Pipeline, name: &str) -> usize {
    (p.tables().iter().position(|t| t.name == name)).expect("known table")
}

/// `flows` with `n` exact source addresses (one mask), the packet's among them, paced.
fn paced(n: u32) -> Pipeline {
    let mut p = load("flows");
    let any = |bytes: usize| MatchField::Ternary {
        value: vec![0; bytes].into(),
        mask: vec![0; bytes].into(),
    };
    let flows = table(&p, "FlowIngress.flows");
    for i in 0..n {
        let mut src = [0; 16];
        src[10..12].fill(0xff);
        src[12..].copy_from_slice(&(0x0a00_0001 + i).to_be_bytes());
        let src = MatchField::Ternary {
            value: src.as_slice().into(),
            mask: [0xff; 16].as_slice().into(),
        };
        let key = EntryKey {
            fields: vec![
                any(2),
                any(2),
                any(2),
                src,
                any(16),
                any(1),
                any(1),
                any(2),
                any(2),
            ],
            priority: 1,
        };
        let class = action(&p, "FlowIngress.classify", &[&(i + 1).to_be_bytes(), &[0]]);
        p.table_insert(flows, &key, &class.clone().into())
            .expect("room in the table");
    }
    let classes = table(&p, "FlowIngress.classes");
    let key = EntryKey {
        fields: vec![MatchField::Exact(1u32.to_be_bytes().as_slice().into())],
        priority: 0,
    };
    let rate = action(
        &p,
        "FlowIngress.paced_static",
        &[
            &(16u64 << 24).to_be_bytes(),
            &u32::MAX.to_be_bytes(),
            &24_000u64.to_be_bytes(),
        ],
    );
    p.table_insert(classes, &key, &rate.clone().into())
        .expect("room in the table");
    p
}

/// UDP over IPv4, `length` bytes in all.
fn frame(length: usize) -> Vec<u8> {
    let mut f = vec![0; length];
    f[5] = 2;
    f[11] = 1;
    f[12] = 8;
    f[14..34].copy_from_slice(&[
        0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    f
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    group.throughput(Throughput::Elements(1));
    for (name, flows, length) in [
        ("unclassified_64", 0, 64),
        ("paced_64", 1, 64),
        ("paced_1514", 1, 1_514),
        ("paced_of_4096_flows_64", 4_096, 64),
    ] {
        let mut p = paced(flows);
        let mut ctx = p.new_context();
        let f = frame(length);
        let mut now_ns = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                now_ns += 1_000;
                ctx.set_frame(&f);
                let input = IngressInput {
                    port: 1,
                    now_ns,
                    ..IngressInput::default()
                };
                let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
                debug_assert!(!v.parser_error && !v.checksum_error);
                let out = EgressInput {
                    port: 2,
                    now_ns,
                    ..EgressInput::default()
                };
                p.egress(&mut ctx, &out, &NoTrafficManager);
                black_box((v, ctx.output().len()))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
