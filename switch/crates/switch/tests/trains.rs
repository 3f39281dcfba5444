//! A train through a switch comes to the same as its segments one by one, in every compiled program.
//!
//! `make trains SEGMENTS=1000000` sends more.

mod common;
#[path = "../../v1model/tests/common/draw.rs"]
mod draw;
#[path = "../../ports/tests/common/trains.rs"]
mod trains;

use std::path::Path;

use common::{CPU_PORT, Sent, pipeline, program};
use draw::{Random, fill, frame, programs};
use switch::{Batch, CloneSession, Replica, Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};
use trains::{Given, Numbers, damage, joined, taken_apart};
use v1model::Pipeline;
use v1model::entries::ArrayInfo;

/// Segments through all programs, unless `SEGMENTS` says how many.
const SEGMENTS: u64 = 20_000;
/// Line rate and delay of each port.
const PORTS: [(Option<u64>, u64); 4] = [
    (Some(1_000_000_000), 0),
    (None, 2_000),
    (Some(10_000_000), 0),
    (Some(100_000_000), 50_000),
];
const FIFO_BYTES: u64 = 40_000;
/// Longest time between two trains, ns.
const PAUSE_NS: u64 = 2_000_000;
/// Most events in this time, since a packet may recirculate for ever.
const EVENTS_MAX: usize = 100;
/// Trains between two fillings of the tables.
const TRAINS_PER_FILL: u64 = 20;
/// More entries than a table gets.
const ENTRIES_MAX: usize = 100_000;

/// A switch with a program, groups and sessions; `None`: it is no program.
fn loaded(json: &[u8]) -> Option<Switch> {
    let config = SwitchConfig {
        cpu_port: Some(CPU_PORT),
        max_packets: 4_096,
        ..SwitchConfig::default()
    };
    // With the packets that recirculate, fewer than the switch may have.
    let limits = Limits {
        max_held_packets: 1_024,
        max_delay_line_packets: 1_024,
        ..Limits::default()
    };
    let mut switch = Switch::new(config, limits);
    for (port, (line_rate_bps, delay_ns)) in (0..).zip(PORTS) {
        let config = PortConfig {
            line_rate_bps,
            counts: RateCounts::Wire,
            fifo_bytes: FIFO_BYTES,
            delay_ns,
            gaps: Gaps::Accounted,
        };
        switch.add_port(port, "port", config).expect("a new port");
    }
    switch.load(json).ok()?;
    let ports = (0..PORTS.len() as u32).chain([CPU_PORT.into()]);
    let replicas: Vec<Replica> = ports.map(|port| Replica { port, rid: 1 }).collect();
    for number in 1..4 {
        let program = program(&mut switch);
        program
            .multicast_insert(number, replicas.clone())
            .expect("a new group");
        let session = CloneSession {
            replicas: replicas.clone(),
            packet_length_bytes: 20 * (number - 1),
            ..CloneSession::default()
        };
        program
            .clone_session_insert(number, session)
            .expect("a new session");
    }
    Some(switch)
}

/// Goes from event to event until a time. Returns the time that it came to.
fn run_until(switch: &mut Switch, sent: &mut Sent, mut now_ns: u64, until_ns: u64) -> u64 {
    for _ in 0..EVENTS_MAX {
        let Some(next_ns) = switch.poll_at_ns().filter(|next_ns| *next_ns < until_ns) else {
            return until_ns;
        };
        now_ns = next_ns;
        switch.poll(now_ns, sent);
    }
    now_ns
}

/// Two switches of a program: one gets trains, the other their segments one by one.
struct Run {
    whole: Switch,
    alone: Switch,
    /// What each sent.
    sent: [Sent; 2],
    now_ns: u64,
    random: Random,
    numbers: Numbers,
    trains: u64,
    segments: u64,
}

impl Run {
    fn new(json: &[u8], seed: u64) -> Option<Self> {
        Some(Self {
            whole: loaded(json)?,
            alone: loaded(json)?,
            sent: Default::default(),
            now_ns: 0,
            random: Random(seed),
            numbers: Numbers(seed | 1 << 32),
            trains: 0,
            segments: 0,
        })
    }

    /// The segments of a train, as if others had dropped or changed some, or a single frame.
    fn next_frames(&mut self) -> Vec<Vec<u8>> {
        if self.random.below(4) == 0 {
            return vec![frame(&mut self.random)];
        }
        let mut given = Given::random(&mut self.numbers, true);
        // Few addresses, so that entries match.
        for byte in &mut given.frame[..12] {
            *byte = self.random.below(3) as u8;
        }
        let mut segments = given.taken_apart();
        damage(&mut segments, &mut self.numbers);
        segments
    }

    /// A train, or a single frame, comes to both switches.
    fn receive(&mut self) {
        if self.trains.is_multiple_of(TRAINS_PER_FILL) {
            let [whole, alone] = [&mut self.whole, &mut self.alone].map(program);
            let both = [whole.pipeline_mut(), alone.pipeline_mut()];
            fill(&mut self.random, both);
        }
        let frames = self.next_frames();
        self.trains += 1;
        self.segments += frames.len() as u64;
        let port = self.random.below(PORTS.len() as u64) as u16;
        // Packets may leave while others of the train still wait for ingress.
        let polls = self.random.below(2) == 0;
        let now_ns = self.now_ns;
        let [sent, sent_alone] = &mut self.sent;
        let mut batch = Batch::new(&mut self.whole);
        for frame in &frames {
            if frames.len() > 1 {
                batch.receive_segment(port, frame, now_ns, now_ns);
            } else {
                batch.receive(port, frame, now_ns, now_ns);
            }
            if polls {
                batch.poll(now_ns, sent);
            }
        }
        drop(batch);
        self.whole.poll(now_ns, sent);
        for frame in &frames {
            self.alone.receive(port, frame, now_ns, now_ns);
            if polls {
                self.alone.poll(now_ns, sent_alone);
            }
        }
        self.alone.poll(now_ns, sent_alone);
        let until_ns = now_ns + self.random.below(PAUSE_NS);
        let times = [
            run_until(&mut self.whole, sent, now_ns, until_ns),
            run_until(&mut self.alone, sent_alone, now_ns, until_ns),
        ];
        assert_eq!(times[0], times[1], "events come at the same times");
        self.now_ns = times[0];
    }

    /// Asserts that both have sent the same since the last time. Returns the numbers of frames and of
    /// trains.
    fn compare_sent(&mut self, what: &str) -> (u64, u64) {
        let [sent, expected] = std::mem::take(&mut self.sent);
        let first = sent.frames.iter().zip(&expected.frames);
        if let Some(((port, at_ns, got), wanted)) = first.into_iter().find(|(a, b)| a != b) {
            panic!("{what}: port {port}, {at_ns} ns: {got:02x?}, expected {wanted:02x?}");
        }
        assert_eq!(sent.frames.len(), expected.frames.len(), "{what}");
        assert!(sent.to_controller == expected.to_controller, "{what}");
        assert!(sent.notified == expected.notified, "{what}");
        assert_eq!(expected.segments(), 0);
        let mut trains = 0;
        for port in 0..PORTS.len() as u16 {
            let of_port = sent.frames.iter().zip(&sent.in_train);
            let of_port: Vec<_> = of_port.filter(|((to, ..), _)| *to == port).collect();
            for together in of_port.chunk_by(|(_, one), (_, other)| one == other) {
                if *together[0].1 {
                    let segments = together.iter().map(|((.., frame), _)| frame.clone());
                    trains += leave_together(&segments.collect::<Vec<_>>(), what);
                }
            }
        }
        (sent.frames.len() as u64, trains)
    }

    /// Asserts that both have the same state: tables with their counters and meters, arrays, statistics.
    fn compare_state(&self, what: &str) {
        let [whole, alone] = [&self.whole, &self.alone];
        assert_eq!(whole.totals(), alone.totals(), "{what}");
        let statistics = [whole, alone].map(|switch| switch.port_statistics().collect::<Vec<_>>());
        assert_eq!(statistics[0], statistics[1], "{what}");
        let [whole, alone] = [whole, alone].map(pipeline);
        for (index, table) in whole.tables().iter().enumerate() {
            let same = whole.table_entries(index, 0, ENTRIES_MAX)
                == alone.table_entries(index, 0, ENTRIES_MAX)
                && whole.table_default(index).ok() == alone.table_default(index).ok();
            assert!(same, "{what}: table {}", table.name);
        }
        let both = [whole, alone];
        for (index, array) in whole.registers().iter().enumerate() {
            compare_cells(both, array, what, |p, cell| {
                p.register_read(index, cell).ok()
            });
        }
        for (index, array) in whole.counters().iter().enumerate() {
            compare_cells(both, array, what, |p, cell| {
                p.counter_read(index, cell).ok()
            });
        }
        for (index, (array, _)) in whole.meters().iter().enumerate() {
            compare_cells(both, array, what, |p, cell| p.meter_read(index, cell).ok());
        }
    }
}

/// Asserts that each cell of an array is the same in both.
fn compare_cells<T: PartialEq>(
    both: [&Pipeline; 2],
    array: &ArrayInfo,
    what: &str,
    read: impl Fn(&Pipeline, usize) -> Option<T>,
) {
    for cell in 0..array.size {
        let [one, other] = both.map(|p| read(p, cell));
        assert!(one == other, "{what}: {}[{cell}]", array.name);
    }
}

/// Joins segments that leave one after the other, as a port does, and asserts that the trains stand for
/// exactly these segments. Returns the number of trains.
fn leave_together(segments: &[Vec<u8>], what: &str) -> u64 {
    let mut trains = 0;
    let mut sent = segments.iter();
    for left in joined(segments) {
        match left.train {
            Some((segmentation, train)) if left.segments > 1 => {
                trains += 1;
                for segment in taken_apart(&train, segmentation) {
                    assert_eq!(sent.next(), Some(&segment), "{what}");
                }
            }
            _ => {
                sent.next();
            }
        }
    }
    assert_eq!(sent.next(), None, "{what}");
    trains
}

fn given(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn a_train_comes_to_the_same_as_its_segments_one_by_one() {
    let (segments, seed) = (given("SEGMENTS", SEGMENTS), given("SEED", 1));
    let files = programs();
    let each = segments.div_ceil(files.len() as u64);
    let (mut tried, mut came, mut trains_came, mut left, mut trains_left) = (0, 0, 0, 0, 0);
    for file in &files {
        let name = file.file_stem().map_or(Path::new(""), Path::new);
        let json = std::fs::read(file).expect("it can be read");
        let Some(mut run) = Run::new(&json, seed) else {
            println!("{}: not loaded", name.display());
            continue;
        };
        while run.segments < each {
            run.receive();
            let what = format!("{}, seed {seed}, train {}", name.display(), run.trains);
            let (frames, trains) = run.compare_sent(&what);
            left += frames;
            trains_left += trains;
        }
        run.compare_state(&name.display().to_string());
        tried += 1;
        came += run.segments;
        trains_came += run.trains;
    }
    println!(
        "no difference in {came} segments of {trains_came} trains and single frames over {tried} \
         programs; {left} packets left, {trains_left} trains among them"
    );
    assert!(tried >= 40, "{tried} programs");
    assert!(left > came / 4 && trains_left > trains_came / 4);
}
