//! Machine code beside the interpreter: the time of a packet through `router.p4` and `pacer.p4`, ingress
//! and egress, and the time to load a program.
//!
//! Batches of the two engines take turns, and the least time of each counts, since other work of the
//! machine makes batches slower, never faster.
//!
//! `cargo bench -p v1model --bench engines -- count ENGINE PROGRAM PACKETS` only sends packets, for
//! a tool that counts instructions (`fn packets`). `... -- load` loads every compiled program of the
//! repository, and of the folders that `PROGRAMS` names, and fails if one takes longer than it may.

#[path = "../tests/common/draw.rs"]
mod draw;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use v1model::entries::{ActionCall, Bits, EntryAction, EntryKey, MatchField};
use v1model::{
    Context, EgressInput, Engine, EngineInUse, IngressInput, LoadOptions, NoTrafficManager,
    Pipeline,
};

/// Packets that are timed together.
const BATCH: u64 = 1_000;
/// Batches go on for so long.
const PERIOD: Duration = Duration::from_secs(4);
/// Flows of `pacer.p4`, each with a class of its own; routes of `router.p4`.
const FLOWS: u64 = 100;

/// Longest time to load a program.
const LOAD_LIMIT: Duration = Duration::from_millis(200);
/// The least of so many loads counts.
const LOADS: usize = 5;
/// Programs that are listed: those that take longest.
const LISTED: usize = 10;

const ENGINES: [(&str, Engine); 2] = [
    ("machine", Engine::Machine),
    ("interpreter", Engine::Interpreter),
];

/// A program with its entries, and a packet for it.
struct Case {
    name: &'static str,
    path: &'static str,
    fill: fn(&mut Pipeline),
    frame: fn() -> Vec<u8>,
    /// The byte of the frame that chooses the flow.
    flow_at: usize,
}

const CASES: [Case; 2] = [
    Case {
        name: "router.p4",
        path: "tests/bench/programs/compiled/v1model/router.json",
        fill: routes,
        frame: with_checksum,
        flow_at: 0,
    },
    Case {
        name: "pacer.p4",
        path: "p4src/compiled/pacing_switch/pacer.json",
        fill: classes,
        frame: udp,
        flow_at: 29,
    },
];

fn bits(value: u64, bytes: usize) -> Bits {
    value.to_be_bytes()[8 - bytes..].into()
}

fn load(path: &str, engine: Engine) -> Pipeline {
    let path = format!("{}/../../../{path}", env!("CARGO_MANIFEST_DIR"));
    let json = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let options = LoadOptions {
        engine,
        ..LoadOptions::default()
    };
    Pipeline::load(&json, &options).expect("it loads")
}

fn insert(
    p: &mut Pipeline,
    table: &str,
    fields: Vec<MatchField>,
    priority: i32,
    (action, args): (&str, Vec<Bits>),
) {
    let mut tables = p.tables().iter();
    let table = tables.position(|t| t.name == table).expect("table");
    let mut actions = p.actions().iter();
    let action = actions.position(|a| a.name == action).expect("action");
    let call = EntryAction::from(ActionCall { action, args });
    let key = EntryKey { fields, priority };
    p.table_insert(table, &key, &call).expect("room");
}

/// Flows that are paced.
fn classes(p: &mut Pipeline) {
    let exact = |value, bytes| MatchField::Exact(bits(value, bytes));
    let any = |bytes: usize| MatchField::Ternary {
        value: vec![0; bytes].into(),
        mask: vec![0; bytes].into(),
    };
    let to = ("PacerIngress.forward_to", vec![bits(2, 2)]);
    insert(p, "PacerIngress.forward", vec![exact(1, 6)], 0, to);
    let source = vec![exact(0xff, 6), exact(1, 2)];
    let known = ("PacerIngress.known", Vec::new());
    insert(p, "PacerIngress.sources", source, 0, known);
    for class in 0..FLOWS {
        let mut value = [0; 16];
        value[10..12].fill(0xff);
        value[12..].copy_from_slice(&(0x0a00_0000 + class as u32).to_be_bytes());
        let mut fields = [2, 2, 2, 16, 16, 1, 1, 2, 2].map(any).to_vec();
        fields[3] = MatchField::Ternary {
            value: value.as_slice().into(),
            mask: [0xff; 16].as_slice().into(),
        };
        let args = [4, 1, 1, 1, 1].map(|bytes| bits(if bytes == 4 { class } else { 0 }, bytes));
        let classify = ("PacerIngress.classify", args.to_vec());
        insert(p, "PacerIngress.flows", fields, 1, classify);
        // 100 Gbit/s, 1 MB, one frame's time.
        let rate = vec![bits(1_342_177, 8), bits(1 << 20, 4), bits(1_000, 8)];
        let paced = ("PacerIngress.paced_static", rate);
        insert(p, "PacerIngress.classes", vec![exact(class, 4)], 0, paced);
    }
}

/// Routes of 24 bits.
fn routes(p: &mut Pipeline) {
    for route in 0..FLOWS {
        let fields = vec![MatchField::Lpm {
            value: bits(0x0a00_0000 + (route << 8), 4),
            prefix_bits: 24,
        }];
        let args = vec![bits(2, 2), bits(1, 6), bits(2, 6)];
        let next_hop = ("RouterIngress.next_hop", args);
        insert(p, "RouterIngress.routes", fields, 0, next_hop);
    }
}

/// UDP over IPv4 in 64 bytes.
fn udp() -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[5] = 1;
    frame[11] = 0xff;
    frame[12] = 8;
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 0, 10, 0, 0, 2,
    ]);
    frame
}

/// The same with a checksum.
fn with_checksum() -> Vec<u8> {
    let mut frame = udp();
    let words = frame[14..34].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A pipeline with what its packets need.
struct Run {
    pipeline: Pipeline,
    ctx: Context,
    frame: Vec<u8>,
    flow_at: usize,
    now_ns: u64,
}

impl Run {
    fn new(case: &Case, engine: Engine) -> Self {
        let mut pipeline = load(case.path, engine);
        (case.fill)(&mut pipeline);
        Self {
            ctx: pipeline.new_context(),
            pipeline,
            frame: (case.frame)(),
            flow_at: case.flow_at,
            now_ns: 0,
        }
    }

    #[inline(never)]
    fn packets(&mut self, n: u64) {
        let (p, ctx) = (&mut self.pipeline, &mut self.ctx);
        for i in 0..n {
            self.now_ns += 1_000;
            if self.flow_at > 0 {
                self.frame[self.flow_at] = (i * 37 % FLOWS) as u8;
            }
            ctx.set_frame(&self.frame);
            let input = IngressInput {
                port: 1,
                now_ns: self.now_ns,
                ..IngressInput::default()
            };
            let verdict = p.ingress(ctx, &input, &NoTrafficManager);
            assert!(!verdict.drop && verdict.egress_port == 2);
            let output = EgressInput {
                port: 2,
                now_ns: self.now_ns,
                ..EgressInput::default()
            };
            p.egress(ctx, &output, &NoTrafficManager);
            black_box((verdict, ctx.output().len()));
        }
    }
}

fn compare(case: &Case) {
    let mut runs = ENGINES.map(|(_, engine)| Run::new(case, engine));
    let mut least = [Duration::MAX; 2];
    let begin = Instant::now();
    while begin.elapsed() < PERIOD {
        for (run, least) in runs.iter_mut().zip(&mut least) {
            let start = Instant::now();
            run.packets(BATCH);
            *least = start.elapsed().min(*least);
        }
    }
    let [machine, interpreter] = least.map(|time| time.as_nanos() as f64 / BATCH as f64);
    let ratio = interpreter / machine;
    println!(
        "{}: machine {machine:.1} ns, interpreter {interpreter:.1} ns, ratio {ratio:.2}",
        case.name
    );
    let mut loads = [Duration::MAX; 2];
    for _ in 0..LOADS {
        for ((_, engine), least) in ENGINES.iter().zip(&mut loads) {
            let start = Instant::now();
            black_box(load(case.path, *engine));
            *least = start.elapsed().min(*least);
        }
    }
    let [machine, interpreter] = loads.map(|time| time.as_secs_f64() * 1e3);
    let code_bytes = code_bytes(&runs[0].pipeline);
    assert!(code_bytes > 0, "no machine code");
    println!(
        "{}: loaded in {machine:.1} ms, without machine code in {interpreter:.1} ms; {code_bytes} bytes of code",
        case.name
    );
}

/// The time to load each program, with machine code. Whether each is within the limit.
fn load_times() -> bool {
    let mut times = Vec::new();
    let mut refused = 0;
    for file in draw::programs() {
        let json = std::fs::read(&file).expect("it can be read");
        let loads = (0..LOADS).map(|_| {
            let start = Instant::now();
            let pipeline = Pipeline::load(&json, &LoadOptions::default());
            let time = start.elapsed();
            pipeline.ok().map(|pipeline| (time, code_bytes(&pipeline)))
        });
        match loads.min().flatten() {
            Some((time, bytes)) => times.push((time, bytes, file)),
            None => refused += 1,
        }
    }
    times.sort();
    for (time, bytes, file) in times.iter().rev().take(LISTED) {
        let ms = time.as_secs_f64() * 1e3;
        println!("{ms:.1} ms, {bytes} bytes of code: {}", file.display());
    }
    let is_slow = |time: &Duration| *time > LOAD_LIMIT;
    let slow = times.iter().filter(|(time, ..)| is_slow(time)).count();
    println!(
        "{} programs loaded, {slow} in more than {LOAD_LIMIT:?}; {refused} refused",
        times.len()
    );
    slow == 0 && !times.is_empty()
}

/// Bytes of machine code; 0 without.
fn code_bytes(pipeline: &Pipeline) -> usize {
    match pipeline.engine() {
        EngineInUse::Machine { code_bytes } => code_bytes,
        _ => 0,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["count", engine, program, packets, ..] = words[..] {
        let engine = ENGINES.iter().find(|(name, _)| *name == engine);
        let case = CASES.iter().find(|case| case.name == program);
        let (case, (_, engine)) = case.zip(engine).expect("a program and an engine");
        Run::new(case, *engine).packets(packets.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if words.first() == Some(&"load") {
        return ExitCode::from(u8::from(!load_times()));
    }
    CASES.iter().for_each(compare);
    ExitCode::SUCCESS
}
