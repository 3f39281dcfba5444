//! The time of a packet through the whole switch without the interfaces, for growing numbers of
//! classes, table entries and frames.
//!
//! Every figure is the least of many short batches, since other work of the machine makes batches
//! slower, never faster. `cargo bench -p switch --bench engine -- OUT.json [WORD[=N]]` writes
//! the figures as JSON (WORD: only those groups whose name contains it; N: of them only that
//! point); without OUT.json they are only printed.

use std::time::{Duration, Instant};

use switch::notification::Notification;
use switch::{Batch, Leaving, Sink, Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};
use v1model::Pipeline;
use v1model::entries::{ActionCall, Bits, EntryAction, EntryKey, MatchField};

/// As in `pacing_switch`.
#[global_allocator]
static ALLOCATOR: ports::HugePages = ports::HugePages;

/// Packets that are timed together.
const BATCH: u64 = 1_000;
/// Operations of many microseconds that are timed together: a batch ends before the system gives
/// the processor to another process, after 3 ms or so on a busy machine.
const SLOW_BATCH: u64 = 100;
/// Batches go on for so long.
const PERIOD: Duration = Duration::from_millis(1_500);

/// Counts frames that leave.
#[derive(Default)]
struct Counted {
    frames: u64,
}

impl Sink for Counted {
    fn transmit(&mut self, _frame: &[u8], _leaving: Leaving) {
        self.frames += 1;
    }

    fn to_controller(&mut self, _frame: &[u8]) {}

    fn notify(&mut self, _notification: Notification) -> bool {
        true
    }
}

/// A sequence that visits memory in no order (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// One figure: a point of a curve.
struct Figure {
    group: &'static str,
    series: String,
    x: u64,
    ns: f64,
}

/// All figures, and which groups are wanted.
struct Results {
    figures: Vec<Figure>,
    wanted: String,
}

impl Results {
    fn wants(&self, group: &str) -> bool {
        let word = self.wanted.split_once('=');
        group.contains(word.map_or(&*self.wanted, |(word, _)| word))
    }

    /// Whether a point of a wanted group is wanted.
    fn wants_point(&self, x: u64) -> bool {
        let only = self.wanted.split_once('=');
        only.is_none_or(|(_, only)| only == x.to_string())
    }

    fn add(&mut self, group: &'static str, series: &str, x: u64, ns: f64) {
        println!("{group:12} {series:24} {x:>8} {ns:9.1} ns");
        self.figures.push(Figure {
            group,
            series: series.to_owned(),
            x,
            ns,
        });
    }

    fn to_json(&self) -> String {
        let rows: Vec<String> = self
            .figures
            .iter()
            .map(|f| {
                let (group, series, x, ns) = (f.group, &f.series, f.x, f.ns);
                format!(
                    r#"  {{"group": "{group}", "series": "{series}", "x": {x}, "ns": {ns:.1}}}"#
                )
            })
            .collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }
}

/// The least time of one operation over many batches; `batch` makes the given number of operations.
fn least_ns(operations: u64, mut batch: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut least = Duration::MAX;
    while begin.elapsed() < PERIOD {
        let start = Instant::now();
        batch();
        least = least.min(start.elapsed());
    }
    least.as_nanos() as f64 / operations as f64
}

fn program(path: &str) -> Vec<u8> {
    let path = format!("{}/../../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn bits(value: u64, bytes: usize) -> Bits {
    value.to_be_bytes()[8 - bytes..].into()
}

fn pipeline(switch: &Switch) -> &Pipeline {
    switch.program().expect("one is loaded").pipeline()
}

fn pipeline_mut(switch: &mut Switch) -> &mut Pipeline {
    switch.program_mut().expect("one is loaded").pipeline_mut()
}

fn insert(switch: &mut Switch, table: usize, key: &EntryKey, action: &EntryAction) {
    let inserted = pipeline_mut(switch).table_insert(table, key, action);
    inserted.expect("room");
}

fn table(switch: &Switch, name: &str) -> usize {
    let position = pipeline(switch)
        .tables()
        .iter()
        .position(|table| table.name == name);
    position.expect(name)
}

fn action(switch: &Switch, name: &str, args: Vec<Bits>) -> ActionCall {
    let position = pipeline(switch)
        .actions()
        .iter()
        .position(|action| action.name == name);
    ActionCall {
        action: position.expect(name),
        args,
    }
}

fn switch(program_path: &str, ports: u16) -> Switch {
    let limits = Limits {
        max_held_packets: 1 << 16,
        ..Limits::default()
    };
    let mut switch = Switch::new(SwitchConfig::default(), limits);
    for port in 1..=ports {
        let config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Wire,
            fifo_bytes: 1 << 20,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        switch.add_port(port, "port", config).expect("a new port");
    }
    switch.load(&program(program_path)).expect("it loads");
    switch
}

/// Address of a flow's source.
fn source(class: u64) -> [u8; 4] {
    (0x0a00_0000 + class as u32).to_be_bytes()
}

/// `pacer.p4` that forwards station `p` to port `p`, with as many flows, each of a class of its
/// own that is paced.
fn pacer(classes: u64, ports: u16) -> Switch {
    let mut switch = switch("p4src/compiled/pacing_switch/pacer.json", ports);
    let forward = table(&switch, "PacerIngress.forward");
    for port in 1..=ports {
        let call = action(
            &switch,
            "PacerIngress.forward_to",
            vec![bits(port.into(), 2)],
        );
        let key = EntryKey {
            fields: vec![MatchField::Exact(bits(port.into(), 6))],
            priority: 0,
        };
        insert(&mut switch, forward, &key, &call.into());
    }
    let known = action(&switch, "PacerIngress.known", Vec::new());
    let key = EntryKey {
        fields: vec![
            MatchField::Exact(bits(0xff, 6)),
            MatchField::Exact(bits(1, 2)),
        ],
        priority: 0,
    };
    let sources = table(&switch, "PacerIngress.sources");
    insert(&mut switch, sources, &key, &known.into());

    let (flows, paced) = (
        table(&switch, "PacerIngress.flows"),
        table(&switch, "PacerIngress.classes"),
    );
    let any = |bytes: usize| MatchField::Ternary {
        value: vec![0; bytes].into(),
        mask: vec![0; bytes].into(),
    };
    let zero = || bits(0, 1);
    let mut classify = action(
        &switch,
        "PacerIngress.classify",
        vec![bits(0, 4), zero(), zero(), zero(), zero()],
    );
    // 100 Gbit/s, 1 MB, one frame's time.
    let rate = vec![bits(1_342_177, 8), bits(1 << 20, 4), bits(1_000, 8)];
    let rate = action(&switch, "PacerIngress.paced_static", rate).into();
    for class in 0..classes {
        let mut value = [0; 16];
        value[10..12].fill(0xff);
        value[12..].copy_from_slice(&source(class));
        let address = MatchField::Ternary {
            value: value.as_slice().into(),
            mask: [0xff; 16].as_slice().into(),
        };
        let mut fields = [2, 2, 2, 16, 16, 1, 1, 2, 2].map(any).to_vec();
        fields[3] = address;
        let key = EntryKey {
            fields,
            priority: 1,
        };
        classify.args[0] = bits(class, 4);
        insert(&mut switch, flows, &key, &classify.clone().into());
        let key = EntryKey {
            fields: vec![MatchField::Exact(bits(class, 4))],
            priority: 0,
        };
        insert(&mut switch, paced, &key, &rate);
    }
    switch
}

/// UDP over IPv4 to station 1.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[5] = 1;
    frame[11] = 0xff;
    frame[12] = 8;
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 0, 10, 0, 0, 2,
    ]);
    frame
}

/// The order of arriving packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coming {
    /// Each when the one before has left.
    Alone,
    /// Many wait, as in a busy port's ring.
    Waiting,
}

/// A packet of a random class from port 1 to another, from its arrival until it has left.
fn through(switch: &mut Switch, classes: u64, ports: u16, length: usize, coming: Coming) -> f64 {
    let mut frame = frame(length);
    let mut random = Random(7);
    let mut sent = Counted::default();
    let (mut now_ns, mut received) = (switch.now_ns(), 0);
    // The first packet of a class is given memory by the system, page by page.
    for class in 0..classes {
        now_ns += 1_000;
        frame[26..30].copy_from_slice(&source(class));
        frame[5] = 2;
        switch.receive(1, &frame, now_ns, now_ns);
        switch.poll(now_ns, &mut sent);
        received += 1;
    }
    let ns = least_ns(BATCH, || {
        let mut batch = Batch::new(switch);
        for _ in 0..BATCH {
            now_ns += 1_000;
            frame[26..30].copy_from_slice(&source(random.below(classes)));
            frame[5] = 2 + random.below(u64::from(ports) - 1) as u8;
            batch.receive(1, &frame, now_ns, now_ns);
            if coming == Coming::Alone {
                drop(batch);
                batch = Batch::new(switch);
            }
            batch.poll(now_ns, &mut sent);
        }
        drop(batch);
        switch.poll(now_ns, &mut sent);
        received += BATCH;
    });
    // Packets for port 1 would go back where they came from.
    assert!(
        sent.frames * 2 + 2 * BATCH >= received,
        "{} left",
        sent.frames
    );
    ns
}

fn whole_switch(results: &mut Results) {
    if results.wants("classes") {
        for classes in [1, 100, 10_000, 100_000, 1_000_000] {
            if !results.wants_point(classes) {
                continue;
            }
            let begin = Instant::now();
            let mut switch = pacer(classes, 2);
            let each = begin.elapsed().as_nanos() as f64 / classes as f64;
            for (series, coming) in [
                ("packets one by one", Coming::Alone),
                ("packets that wait", Coming::Waiting),
            ] {
                let ns = through(&mut switch, classes, 2, 64, coming);
                results.add("classes", series, classes, ns);
            }
            results.add("set up", "flow and class", classes, each);
        }
    }
    if results.wants("ports") {
        for ports in [2, 4, 16, 64] {
            let ns = through(&mut pacer(100, ports), 100, ports, 64, Coming::Waiting);
            results.add("ports", "packet", ports.into(), ns);
        }
    }
    if results.wants("bytes") {
        for length in [64, 256, 512, 1_024, 1_514, 9_014] {
            let ns = through(&mut pacer(100, 2), 100, 2, length, Coming::Waiting);
            results.add("bytes", "packet", length as u64, ns);
        }
    }
}

/// One entry of a table of `scale.p4`.
type Entry = fn(u64) -> EntryKey;

/// A query that an entry answers.
type Query = fn(u64) -> [u8; 12];

/// `address`, `other`, `port`, `other_port` of a query.
fn query(address: u64, other: u64, port: u64, other_port: u64) -> [u8; 12] {
    let mut query = [0; 12];
    query[..4].copy_from_slice(&bits(address, 4));
    query[4..8].copy_from_slice(&bits(other, 4));
    query[8..10].copy_from_slice(&bits(port, 2));
    query[10..].copy_from_slice(&bits(other_port, 2));
    query
}

/// Numbers in no order, all different: an odd factor modulo 2^32.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b1) & 0xffff_ffff
}

fn exact_entry(n: u64) -> EntryKey {
    let fields = vec![
        MatchField::Exact(bits(scattered(n), 4)),
        MatchField::Exact(bits(n, 4)),
    ];
    EntryKey {
        fields,
        priority: 0,
    }
}

fn exact_query(n: u64) -> [u8; 12] {
    query(scattered(n), n, 0, 0)
}

/// Prefixes of 13 to 32 bits, twenty within each other.
fn lpm_entry(n: u64) -> EntryKey {
    let (prefix_bits, address) = prefix(n);
    EntryKey {
        fields: vec![MatchField::Lpm {
            value: bits(address, 4),
            prefix_bits,
        }],
        priority: 0,
    }
}

/// Length and value.
fn prefix(n: u64) -> (u32, u64) {
    let first_bits = (n / 20) as u32;
    (13 + (n % 20) as u32, first_bits.reverse_bits().into())
}

/// An address of the prefix that is of no longer one.
fn lpm_query(n: u64) -> [u8; 12] {
    let (length, address) = prefix(n);
    query(address | (0xffff_ffffu64 >> length), 0, 0, 0)
}

fn ternary_mask(n: u64) -> u64 {
    0xffff_fff0 | (n % 16)
}

/// 32 different masks, priorities in no order.
fn ternary_entry(n: u64) -> EntryKey {
    let mask = ternary_mask(n);
    let address = scattered(n) & mask;
    let other_mask = if n % 32 < 16 { 0 } else { 0xffff_ffff };
    let ternary = |value: u64, mask: u64, bytes| MatchField::Ternary {
        value: bits(value & mask, bytes),
        mask: bits(mask, bytes),
    };
    let fields = vec![
        ternary(address, mask, 4),
        ternary(n, other_mask, 4),
        ternary(80, 0xffff, 2),
    ];
    EntryKey {
        fields,
        priority: 1 + (scattered(n) % 1_000_000) as i32,
    }
}

fn ternary_query(n: u64) -> [u8; 12] {
    query(scattered(n) & ternary_mask(n), n, 80, 0)
}

/// Sixteen overlapping ranges of the one port and a hundred of the other for each address.
fn range_entry(n: u64) -> EntryKey {
    let address = scattered(n / 16);
    let low = 1_000 + n % 16 * 100;
    let range = |low: u64, high: u64| MatchField::Range {
        low: bits(low, 2),
        high: bits(high, 2),
    };
    let fields = vec![
        MatchField::Exact(bits(address, 4)),
        range(low, low + 250),
        range(5, 60_000),
    ];
    EntryKey {
        fields,
        priority: 1 + (n % 16) as i32,
    }
}

fn range_query(n: u64) -> [u8; 12] {
    query(scattered(n / 16), 0, 1_000 + n % 16 * 100 + 200, 100)
}

/// With and without the second field.
fn optional_entry(n: u64) -> EntryKey {
    let fields = vec![
        MatchField::Optional(Some(bits(scattered(n), 4))),
        MatchField::Optional((n.is_multiple_of(2)).then(|| bits(n, 4))),
    ];
    EntryKey {
        fields,
        priority: 1 + (n % 1_000) as i32,
    }
}

fn optional_query(n: u64) -> [u8; 12] {
    query(scattered(n), n, 0, 0)
}

const KINDS: [(&str, Entry, Query); 5] = [
    ("exact", exact_entry, exact_query),
    ("lpm", lpm_entry, lpm_query),
    ("ternary", ternary_entry, ternary_query),
    ("range", range_entry, range_query),
    ("optional", optional_entry, optional_query),
];

/// As many masks as entries; only the entry of least priority matches.
fn masks_entry(n: u64) -> EntryKey {
    let ternary = |value: u64, mask: u64, bytes| MatchField::Ternary {
        value: bits(value & mask, bytes),
        mask: bits(mask, bytes),
    };
    let fields = vec![
        ternary(u64::from(n > 0), n << 1 | 1, 4),
        ternary(0, 0, 4),
        ternary(0, 0, 2),
    ];
    EntryKey {
        fields,
        priority: 1 + n as i32,
    }
}

/// Ranges of two fields that all overlap; only the entry of least priority matches.
fn ranges_entry(n: u64) -> EntryKey {
    let range = |low: u64, high: u64| MatchField::Range {
        low: bits(low, 2),
        high: bits(high, 2),
    };
    let fields = vec![
        MatchField::Exact(bits(1, 4)),
        range(1, 65_534),
        range(if n == 0 { 1 } else { 3 + n % 1_000 }, 65_533),
    ];
    EntryKey {
        fields,
        priority: 1 + n as i32,
    }
}

/// With the query that only their entry 0 answers.
const WORST: [(&str, &str, u8, Entry, [u8; 12]); 2] = [
    ("a mask each", "ternary", 2, masks_entry, [0; 12]),
    (
        "overlapping pairs of ranges",
        "range",
        3,
        ranges_entry,
        [0, 0, 0, 1, 0, 0, 0, 0, 0x07, 0xd0, 0, 2],
    ),
];

/// The look-ups that cost as much as there are entries.
fn worst(results: &mut Results) {
    for (series, kind, which, entry, found) in WORST {
        if !results.wants("worst") {
            return;
        }
        let mut switch = switch("switch/crates/v1model/tests/programs/scale.json", 1);
        let table = table(&switch, &format!("ScaleIngress.by_{kind}"));
        let call = action(&switch, "ScaleIngress.answer", vec![bits(9, 2)]).into();
        let mut entries = 0;
        // Goes on from point to point: a port's time does not go back.
        let mut now_ns = 0;
        for wanted in [1, 10, 100, 1_000] {
            while entries < wanted {
                let key = entry(entries);
                insert(&mut switch, table, &key, &call);
                entries += 1;
            }
            let mut sent = Counted::default();
            let mut frame = [0; 60];
            frame[0] = which;
            frame[1..13].copy_from_slice(&found);
            let lookup = least_ns(SLOW_BATCH, || {
                for _ in 0..SLOW_BATCH {
                    now_ns += 1_000;
                    switch.receive(1, &frame, now_ns, now_ns);
                    switch.poll(now_ns, &mut sent);
                }
            });
            assert!(sent.frames > 0, "{series}: none left");
            results.add("worst", series, entries, lookup);
        }
    }
}

/// A packet that is looked up, and an entry deleted and put in again.
fn tables(results: &mut Results) {
    for (which, (kind, entry, query)) in KINDS.into_iter().enumerate() {
        if !results.wants("entries") && !results.wants(kind) {
            continue;
        }
        let mut switch = switch("switch/crates/v1model/tests/programs/scale.json", 1);
        let table = table(&switch, &format!("ScaleIngress.by_{kind}"));
        let call = action(&switch, "ScaleIngress.answer", vec![bits(9, 2)]).into();
        let mut entries = 0;
        // Goes on from point to point: a port's time does not go back.
        let mut now_ns = 0;
        for wanted in [1, 100, 1_000, 10_000, 100_000] {
            while entries < wanted {
                let key = entry(entries);
                insert(&mut switch, table, &key, &call);
                entries += 1;
            }
            let mut random = Random(5);
            let mut sent = Counted::default();
            let mut frame = [0; 60];
            frame[0] = which as u8;
            let mut received = 0;
            let lookup = least_ns(BATCH, || {
                received += BATCH;
                for _ in 0..BATCH {
                    now_ns += 1_000;
                    frame[1..13].copy_from_slice(&query(random.below(entries)));
                    switch.receive(1, &frame, now_ns, now_ns);
                    switch.poll(now_ns, &mut sent);
                }
            });
            assert_eq!(sent.frames, received, "{kind}: some did not leave");
            results.add("entries", kind, entries, lookup);
            let change = least_ns(SLOW_BATCH, || {
                for _ in 0..SLOW_BATCH {
                    let key = entry(random.below(entries));
                    let pipeline = pipeline_mut(&mut switch);
                    pipeline.table_delete(table, &key).expect("it is there");
                    insert(&mut switch, table, &key, &call);
                }
            });
            results.add("changes", kind, entries, change);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let out = arguments.next();
    let mut results = Results {
        figures: Vec::new(),
        wanted: arguments.next().unwrap_or_default(),
    };
    whole_switch(&mut results);
    tables(&mut results);
    worst(&mut results);
    if let Some(out) = out {
        std::fs::write(&out, results.to_json()).expect("the file can be written");
    }
}
