//! Tests that machine code and interpreter do the same.
//!
//! `make engines PACKETS=10000000` sends more packets.

#[path = "../tests/common/draw.rs"]
mod draw;

use crate::ops::{Code, Op};
use crate::program::{END, Node};
use crate::slot::Slot;
use crate::{
    Context, EgressInput, Engine, EngineInUse, Externs, IngressInput, InstanceType, LoadOptions,
    Pipeline,
};
use draw::{Random, fill, frame, programs};
use std::path::Path;
use traffic_manager::Waiting;

/// Packets for all programs, unless `PACKETS` says how many.
const PACKETS: u64 = 30_000;

/// Every class holds some bytes, and ports below 300 have two queues each with some packets.
struct Backlog;

impl Externs for Backlog {
    fn backlog_bytes(&self, class: u32) -> u64 {
        u64::from(class) * 1_000
    }

    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        let packets = u64::from(port) << queue;
        (port < 300 && queue < 2).then_some(Waiting {
            packets,
            bytes: packets << 24,
            head_arrival_ns: (packets > 0).then_some(packets * 100),
        })
    }
}

/// The program with either engine; none if the file is no program.
fn load(file: &Path) -> Option<[Pipeline; 2]> {
    let json = std::fs::read(file).expect("it can be read");
    let load = |engine| {
        let options = LoadOptions {
            engine,
            ..LoadOptions::default()
        };
        Pipeline::load(&json, &options).ok()
    };
    let both = [load(Engine::Machine)?, load(Engine::Interpreter)?];
    let used = both[0].engine();
    assert!(
        matches!(used, EngineInUse::Machine { code_bytes } if code_bytes > 0),
        "{}: {used:?}",
        file.display()
    );
    Some(both)
}

/// Everything of a context that a packet leaves there.
fn state(p: &Pipeline, ctx: &Context) -> String {
    let fields = &ctx.phv[..p.program.field_words as usize];
    format!(
        "{fields:?} {:?} {} {} {} {} {} {:?} {} {:?} {:?}",
        ctx.requests,
        ctx.parsed,
        ctx.packet_length,
        ctx.truncate,
        ctx.parser_error,
        ctx.checksum_error,
        (ctx.assertion_failed, ctx.internal_error),
        ctx.frame_len(),
        ctx.output(),
        ctx.frame(),
    )
}

/// Sends one packet through a pipeline, and describes all that came of it.
fn send(
    p: &mut Pipeline,
    ctx: &mut [Context; 2],
    frame: &[u8],
    port: u16,
    now_ns: u64,
) -> Vec<String> {
    let mut seen = Vec::new();
    let [ctx, clone] = ctx;
    ctx.set_frame(frame);
    let mut input = IngressInput {
        port,
        now_ns,
        ..IngressInput::default()
    };
    // A packet that recirculates comes again, a few times.
    for _ in 0..4 {
        let verdict = p.ingress(ctx, &input, &Backlog);
        seen.push(format!("{verdict:?} {}", state(p, ctx)));
        if let Some(request) = verdict.clone {
            p.clone_from_ingress(ctx, clone, request.field_list);
            seen.push(state(p, clone));
            let output = EgressInput {
                port: 3,
                now_ns,
                instance_type: InstanceType::IngressClone,
                ..EgressInput::default()
            };
            let verdict = p.egress(clone, &output, &Backlog);
            seen.push(format!("{verdict:?} {}", state(p, clone)));
        }
        if let Some(list) = verdict.resubmit {
            p.resubmit(ctx, list);
            input.instance_type = InstanceType::Resubmit;
            continue;
        }
        if verdict.drop {
            break;
        }
        let output = EgressInput {
            port: verdict.egress_port,
            now_ns: now_ns + 5_000,
            enqueued_ns: now_ns,
            ..EgressInput::default()
        };
        let mut verdict = p.egress_control(ctx, &output, &Backlog);
        if let Some(request) = verdict.clone {
            p.clone_from_egress(ctx, clone, request.field_list);
            seen.push(state(p, clone));
        }
        if !verdict.drop {
            p.deparse(ctx, output.now_ns, &Backlog, &mut verdict);
        }
        seen.push(format!("{verdict:?} {}", state(p, ctx)));
        match verdict.recirculate {
            Some(list) if !verdict.drop && p.recirculate(ctx, list) => {
                input.instance_type = InstanceType::Recirculated;
            }
            _ => break,
        }
    }
    seen
}

/// Everything that packets change in a pipeline.
fn lasting(p: &Pipeline) -> String {
    let entries = |table| p.table_entries(table, 0, 100).items;
    let tables = (0..p.tables().len()).map(|table| (entries(table), p.table_default(table)));
    let tables: Vec<_> = tables.collect();
    format!("{tables:?} {}", p.state.random)
}

#[test]
fn engines_agree_on_all_programs() {
    let given = std::env::var("PACKETS").ok();
    let packets = given.map_or(PACKETS, |given| given.parse().expect("a number"));
    let files = programs();
    let packets = packets.div_ceil(files.len() as u64);
    let mut tried = 0;
    for file in &files {
        let Some(mut both) = load(file) else {
            println!("{}: not loaded", file.display());
            continue;
        };
        tried += 1;
        let mut random = Random(7);
        let mut contexts = both.each_ref().map(|p| [p.new_context(), p.new_context()]);
        for packet in 0..packets {
            if packet % 200 == 0 {
                fill(&mut random, both.each_mut());
            }
            let frame = frame(&mut random);
            let port = random.below(4) as u16;
            let now_ns = packet * 1_000;
            let [machine, interpreter] = &mut both;
            let [first, second] = &mut contexts;
            let found = send(machine, first, &frame, port, now_ns);
            let expected = send(interpreter, second, &frame, port, now_ns);
            assert_eq!(
                found,
                expected,
                "{}, packet {packet}: {frame:02x?}",
                file.display()
            );
        }
        let [machine, interpreter] = &both;
        assert_eq!(lasting(machine), lasting(interpreter), "{}", file.display());
        let cells = [machine, interpreter].map(|p| p.state.cells.all());
        assert!(cells[0] == cells[1], "cells of {}", file.display());
    }
    assert!(tried >= 40, "{tried} programs");
    println!(
        "no difference in {} packets over {tried} programs",
        packets * tried
    );
}

/// Slots that random operations work on: so many from the first field on.
const SLOTS: u64 = 24;

/// A random operation on words or a jump to an operation before `end`.
fn random_op(random: &mut Random, at: u32, end: u32, constants: (Slot, u64)) -> Op {
    let d = random.below(SLOTS) as Slot;
    let mut operand = || match random.below(4) {
        0 => constants.0 + random.below(constants.1) as Slot,
        _ => random.below(SLOTS) as Slot,
    };
    let (a, b, c) = (operand(), operand(), operand());
    let to = at + 1 + random.below(u64::from(end - at)) as u32;
    match random.below(25) {
        0 => Op::Copy { d, a },
        1 => Op::Add { d, a, b },
        2 => Op::Sub { d, a, b },
        3 => Op::Mul { d, a, b },
        4 => Op::And { d, a, b },
        5 => Op::Or { d, a, b },
        6 => Op::Xor { d, a, b },
        7 => Op::Not { d, a },
        8 => Op::Shl { d, a, b },
        9 => Op::Shr { d, a, b },
        10 => Op::Sar { d, a, b },
        11 => Op::Div { d, a, b },
        12 => Op::Rem { d, a, b },
        13 => Op::Sext {
            d,
            a,
            bits: 1 + random.below(64) as u16,
        },
        14 => Op::Eq { d, a, b },
        15 => Op::Ne { d, a, b },
        16 => Op::Lt { d, a, b },
        17 => Op::Le { d, a, b },
        18 => Op::LtS { d, a, b },
        19 => Op::LeS { d, a, b },
        20 => Op::IsZero { d, a },
        21 => Op::NonZero { d, a },
        22 => Op::Select { d, c, a, b },
        23 => Op::JumpIfZero { a, to },
        _ => Op::Jump { to },
    }
}

/// A random operation on values of several words. They have places of their own, which do not overlap
/// in part. `a`, `b` and `d` are single words.
#[rustfmt::skip]
fn random_wide_op(random: &mut Random) -> Op {
    let [d, a, b] = [(); 3].map(|()| random.below(SLOTS) as Slot);
    let n = 1 + random.below(4) as u16;
    let (dw, aw, bw) = (SLOTS as Slot, SLOTS as Slot + 8, SLOTS as Slot + 16);
    let bits = (1 + random.below(64 * u64::from(n))) as u16;
    let (signed, to_signed) = (random.below(2) == 0, random.below(2) == 0);
    match random.below(20) {
        0 => Op::CopyW { d: dw, a: aw, n },
        1 => Op::AddW { d: dw, a: aw, b: bw, n },
        2 => Op::SubW { d: dw, a: aw, b: bw, n },
        3 => Op::MulW { d: dw, a: aw, b: bw, n },
        4 => Op::AndW { d: aw, a: aw, b: bw, n },
        5 => Op::OrW { d: aw, a: dw, b: bw, n },
        6 => Op::XorW { d: dw, a: aw, b: bw, n },
        7 => Op::NotW { d: bw, a: bw, n },
        8 => Op::ShlW { d: dw, a: aw, b, n },
        9 => Op::ShrW { d: dw, a: aw, b, n, signed },
        10 => Op::DivW { d: dw, a: aw, b: bw, n, signed, rest: to_signed },
        11 => Op::ExtendW { d: aw, a, from: 1, n, signed },
        12 => Op::MaskW { d: dw, n, bits },
        13 => Op::SextW { d: aw, n, bits },
        14 => Op::ClampW { d: dw, n, bits, signed, to_signed },
        15 => Op::EqW { d, a: aw, b: bw, n },
        16 => Op::LtW { d, a: aw, b: bw, n, signed },
        17 => Op::NonZeroW { d, a: aw, n },
        18 => Op::SelectW { d: dw, c: b, a: aw, b: bw, n },
        _ => Op::Saturate { d, a: aw, n: n + 1 },
    }
}

#[test]
fn engines_agree_on_random_operations() {
    let file = programs()
        .into_iter()
        .find(|file| file.ends_with("flows.json"));
    let [mut machine, mut interpreter] = load(&file.expect("flows.json")).expect("it loads");
    let options = machine.options().clone();
    let mut random = Random(3);
    let fields = u64::from(machine.program.field_words);
    assert!(fields > SLOTS + 24, "slots for values of several words");
    let base = machine.program.constant_base;
    let constants = machine.program.constants.len() as u64;
    for round in 0..400 {
        let end = 1 + random.below(60) as u32;
        let values = (0..constants).map(|_| random.value());
        let values: Vec<u64> = values.collect();
        let ops = (0..end).map(|at| match random.below(3) {
            0 => random_wide_op(&mut random),
            _ => random_op(&mut random, at, end, (base, constants)),
        });
        let ops: Box<[Op]> = ops.collect();
        let code = Code {
            start: 0,
            end,
            changes: 0,
        };
        for p in [&mut machine, &mut interpreter] {
            p.program.constants = values.clone().into();
            p.program.ops = ops.clone();
            p.program.nodes = [Node::Action { code, next: END }].into();
            (p.program.ingress, p.program.egress) = (0, END);
            p.program.states = [].into();
            p.program.update = [].into();
            p.program.verify = [].into();
            p.program.deparser_code = Code::default();
        }
        machine.translate(&options).expect("it is translated");
        let words: Vec<u64> = (0..fields).map(|_| random.value()).collect();
        let results = [&mut machine, &mut interpreter].map(|p| {
            let mut ctx = p.new_context();
            ctx.phv[..fields as usize].copy_from_slice(&words);
            p.ingress_control(&mut ctx, &IngressInput::default(), &Backlog);
            ctx.phv[..fields as usize].to_vec()
        });
        assert_eq!(results[0], results[1], "round {round}: {ops:?} {values:x?}");
    }
}
