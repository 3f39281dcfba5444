//! The project's own programs load and survive anything.

mod common;

use common::{v4, v6};
use std::path::PathBuf;
use v1model::{EgressInput, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

fn compiled(target: &str) -> Vec<PathBuf> {
    let dir = format!(
        "{}/../../../p4src/compiled/{target}",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut all: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{dir}: {e}"))
        .map(|f| f.unwrap().path())
        .filter(|f| f.extension().is_some_and(|e| e == "json"))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

#[test]
fn programs_of_both_targets_load_and_run() {
    for target in ["pacing_switch", "bmv2"] {
        for file in compiled(target) {
            let json = std::fs::read(&file).unwrap();
            let mut p = Pipeline::load(&json, &LoadOptions::default())
                .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let mut ctx = p.new_context();
            let mut now_ns = 0;
            for whole in [
                v4(6, 40),
                v4(17, 1_000),
                v6(6, 9),
                v6(17, 40),
                common::vlan(1, 2, &v4(6, 0)),
            ] {
                for cut in 0..=whole.len().min(100) {
                    for port in [0, 1, 255, 511] {
                        now_ns += 1_000;
                        ctx.set_frame(&whole[cut..]);
                        let input = IngressInput {
                            port,
                            now_ns,
                            ..IngressInput::default()
                        };
                        let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
                        if !v.drop {
                            let out = EgressInput {
                                port: v.egress_port,
                                now_ns,
                                ..EgressInput::default()
                            };
                            p.egress(&mut ctx, &out, &NoTrafficManager);
                        }
                    }
                }
            }
        }
    }
}
