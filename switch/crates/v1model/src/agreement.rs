//! Tests that machine code and interpreter do the same.
//!
//! `PACKETS=1000000 cargo test --release -p v1model agreement` sends more packets.

use crate::entries::profile::{IndirectAction, ProfileMember};
use crate::entries::{ActionCall, Bits, EntryAction, EntryKey, MatchField, MatchKind};
use crate::ops::{Code, Op};
use crate::program::{END, Node};
use crate::slot::Slot;
use crate::{
    Context, EgressInput, Engine, EngineInUse, Externs, IngressInput, InstanceType, LoadOptions,
    Pipeline,
};
use std::path::{Path, PathBuf};
use traffic_manager::Waiting;

/// Packets for each program, unless `PACKETS` says how many.
const PACKETS: u64 = 400;

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.word() % n.max(1)
    }

    /// Words as programs have them: small ones, single bits, borders.
    fn value(&mut self) -> u64 {
        let bit = 1 << self.below(64);
        match self.below(6) {
            0 => self.below(4),
            1 => bit,
            2 => bit - 1,
            3 => u64::MAX - self.below(3),
            4 => self.below(1 << 16),
            _ => self.word(),
        }
    }

    fn bits(&mut self, bits: u32) -> Bits {
        let bytes = bits.div_ceil(8) as usize;
        let mut all: Vec<u8> = (0..bytes).map(|_| self.word() as u8).collect();
        // Mostly small values, so that packets match.
        if self.below(3) > 0 {
            let keep = bytes.saturating_sub(1);
            all[..keep].fill(0);
            if let Some(last) = all.last_mut() {
                *last &= 7;
            }
        }
        if !bits.is_multiple_of(8)
            && let Some(first) = all.first_mut()
        {
            *first &= (1 << (bits % 8)) - 1;
        }
        all.into()
    }
}

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

/// All compiled programs of the repository.
fn programs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut found = Vec::new();
    for folder in [
        "switch/crates/v1model/tests/programs",
        "tests/conformance/compiled",
        "tests/bench/programs/compiled/v1model",
        "p4src/compiled/pacing_switch",
        "p4src/compiled/bmv2",
    ] {
        let files = std::fs::read_dir(root.join(folder)).expect("the folder is there");
        let files = files.map(|file| file.expect("it can be read").path());
        found.extend(files.filter(|file| file.extension().is_some_and(|e| e == "json")));
    }
    found.sort();
    found
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

/// A random match of a field.
fn match_field(random: &mut Random, kind: MatchKind, bits: u32) -> MatchField {
    let value = random.bits(bits);
    match kind {
        MatchKind::Exact => MatchField::Exact(value),
        MatchKind::Lpm => {
            let prefix_bits = random.below(u64::from(bits) + 1) as u32;
            let mut value = value;
            // Fields begin in the middle of their first byte.
            let unused = 8 * value.len() as u32 - bits;
            for bit in prefix_bits..bits {
                let at = (unused + bit) as usize;
                value[at / 8] &= !(0x80 >> (at % 8));
            }
            MatchField::Lpm { value, prefix_bits }
        }
        MatchKind::Ternary => {
            let mask = random.bits(bits);
            let value = value.iter().zip(&mask).map(|(v, m)| v & m).collect();
            MatchField::Ternary { value, mask }
        }
        MatchKind::Range => {
            let other = random.bits(bits);
            let (low, high) = if value < other {
                (value, other)
            } else {
                (other, value)
            };
            MatchField::Range { low, high }
        }
        MatchKind::Optional => MatchField::Optional((random.below(2) == 0).then_some(value)),
    }
}

fn call(random: &mut Random, p: &Pipeline, actions: &[usize]) -> Option<ActionCall> {
    let &action = actions.get(random.below(actions.len() as u64) as usize)?;
    let params = &p.actions()[action].params;
    let args = params.iter().map(|(_, bits)| random.bits(*bits)).collect();
    Some(ActionCall { action, args })
}

/// Fills the tables of both with the same random entries. Some are refused, by both.
fn fill(random: &mut Random, both: &mut [Pipeline; 2]) {
    for index in 0..both[0].tables().len() {
        let info = both[0].tables()[index].clone();
        if let Some(profile) = info.profile {
            for id in 1..4 {
                if let Some(call) = call(random, &both[0], &info.actions) {
                    let member = ProfileMember { id, call };
                    let results = both
                        .each_mut()
                        .map(|p| p.member_insert(profile, &member).is_ok());
                    assert_eq!(results[0], results[1]);
                }
            }
        }
        for _ in 0..random.below(12) {
            let fields = info.key.iter();
            let fields = fields
                .map(|key| match_field(random, key.kind, key.bits))
                .collect();
            let priority = i32::from(info.key.iter().any(|key| key.kind.needs_priority()));
            let key = EntryKey {
                fields,
                priority: priority * (1 + random.below(9) as i32),
            };
            let Some(call) = call(random, &both[0], &info.actions) else {
                continue;
            };
            let action = match info.profile {
                Some(_) => IndirectAction::Member(1 + random.below(3) as u32).into(),
                None => EntryAction::Call(call),
            };
            let results = both
                .each_mut()
                .map(|p| p.table_insert(index, &key, &action).is_ok());
            assert_eq!(results[0], results[1]);
        }
    }
}

/// A random frame: headers that parsers know, wrong bits, cut anywhere.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..14).map(|_| random.below(3) as u8).collect();
    let types = [0x0800u16, 0x86dd, 0x8100, 0x1234, 0, 1, 2];
    let mut kind = types[random.below(7) as usize];
    if kind == 0x8100 {
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        kind = types[random.below(2) as usize];
        frame.extend_from_slice(&[0, random.below(4) as u8]);
        frame.extend_from_slice(&kind.to_be_bytes());
    } else {
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
    }
    let protocol = [6, 17, 1, 0][random.below(4) as usize];
    if kind == 0x0800 {
        let options = [0, 0, 0, 1, 5, 10][random.below(6) as usize];
        let length = 20 + 4 * options;
        let mut header = vec![0u8; length];
        header[0] = 0x40 | (length / 4) as u8;
        header[8] = random.below(3) as u8;
        header[9] = protocol;
        header[15] = random.below(8) as u8;
        header[19] = random.below(8) as u8;
        let sum: u32 = header
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
    } else if kind == 0x86dd {
        frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 40, protocol, 3]);
        frame.extend((0..32).map(|_| random.below(3) as u8));
    }
    if protocol == 6 {
        let words = 5 + random.below(11) as u8;
        frame.extend((0..12).map(|_| random.below(4) as u8));
        frame.extend_from_slice(&[words << 4, random.word() as u8, 1, 0, 0, 0, 0, 0]);
        for _ in 5..words {
            let option = [[2, 4, 5, 180], [1, 1, 1, 1], [3, 3, 7, 0], [4, 2, 5, 10]];
            frame.extend_from_slice(&option[random.below(4) as usize]);
        }
    }
    frame.extend((0..random.below(80)).map(|i| (i * i) as u8));
    for _ in 0..random.below(3) {
        let at = random.below(frame.len() as u64) as usize;
        frame[at] ^= 1 << random.below(8);
    }
    if random.below(5) == 0 {
        frame.truncate(random.below(frame.len() as u64 + 1) as usize);
    }
    frame
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
    let mut tried = 0;
    for file in programs() {
        let Some(mut both) = load(&file) else {
            continue;
        };
        tried += 1;
        let mut random = Random(7);
        let mut contexts = both.each_ref().map(|p| [p.new_context(), p.new_context()]);
        for packet in 0..packets {
            if packet % 200 == 0 {
                fill(&mut random, &mut both);
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
