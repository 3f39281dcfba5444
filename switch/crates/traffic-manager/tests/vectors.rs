//! Every file in `tests/vectors`, bit for bit: packet order, start times, departure times, drops,
//! and the PAUSE frames where those fill the gaps; and how far such frames move packets.
//!
//! The classes' clocks and limits are the P4 program's work; here a few lines stand in for it.
//! More files (from `make_vectors.py --random`) are read from the directory that the environment
//! variable `PACING_VECTORS_DIR` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use traffic_manager::hold::{FRACTION_BITS, Hold, time_per_byte_q24};
use traffic_manager::{
    DropCause, Frame, GAP_FRAME_DEFAULT_BYTES, GAP_FRAME_MIN_BYTES, Gaps, HeaderFields, Limits,
    PortConfig, Queued, RateCounts, TrafficManager,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    #[serde(rename = "description")]
    _description: String,
    port: VectorPort,
    classes: Vec<Class>,
    events: Vec<Event>,
    expected: Vec<Outcome>,
    /// Start in nanoseconds and length in bytes.
    #[serde(default)]
    gap_frames: Vec<(u64, u32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorPort {
    line_rate_bps: u64,
    counts: String,
    line_time_per_byte_q24: u64,
    fifo_bytes: u64,
    gap_frame_max_bytes: Option<u32>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Class {
    class: u32,
    mode: String,
    rate_bps: u64,
    time_per_byte_q24: u64,
    limit_bytes: u64,
    allowance_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    at_ns: u64,
    packet: Option<Packet>,
    set_class: Option<Class>,
    stall_until_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Packet {
    id: u32,
    class: u32,
    length_bytes: u32,
}

#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Outcome {
    id: u32,
    departure_ns: Option<u64>,
    start_ns: Option<u64>,
    drop: Option<String>,
}

const PORT: u16 = 3;

struct Harness {
    tm: TrafficManager<u32>,
    classes: BTreeMap<u32, (Class, u128)>,
    stalled_until_ns: u64,
    departures: Vec<Outcome>,
    drops: Vec<Outcome>,
    gap_frames: Vec<(u64, u32)>,
}

impl Harness {
    fn new(vector: &Vector, gap_frame_max_bytes: Option<u32>) -> Self {
        let mut tm = TrafficManager::new(Limits::default());
        let line_rate_bps = Some(vector.port.line_rate_bps).filter(|rate| *rate != 0);
        assert_eq!(
            line_rate_bps.map_or(Some(0), time_per_byte_q24),
            Some(vector.port.line_time_per_byte_q24)
        );
        let counts = match vector.port.counts.as_str() {
            "layer2" => RateCounts::Layer2,
            "wire" => RateCounts::Wire,
            other => panic!("counts {other:?}"),
        };
        tm.add_port(
            PORT,
            PortConfig {
                line_rate_bps,
                counts,
                fifo_bytes: vector.port.fifo_bytes,
                delay_ns: 0,
                gaps: gap_frame_max_bytes.map_or(Gaps::Accounted, |longest_bytes| {
                    Gaps::PauseFrames { longest_bytes }
                }),
            },
        )
        .expect("a new port");
        let classes = vector.classes.iter().map(|c| (c.class, (c.clone(), 0)));
        Self {
            tm,
            classes: classes.collect(),
            stalled_until_ns: 0,
            departures: Vec::new(),
            drops: Vec::new(),
            gap_frames: Vec::new(),
        }
    }

    /// All starts up to and including `limit_ns`.
    fn advance(&mut self, limit_ns: u64) {
        let until_ns = limit_ns.min(self.stalled_until_ns);
        while let Some(start) = self.tm.dequeue_unpaced(until_ns, until_ns) {
            self.transmit(start);
        }
        if limit_ns < self.stalled_until_ns {
            return;
        }
        while let Some(next_ns) = self.tm.next_dequeue_ns().filter(|ns| *ns <= limit_ns) {
            let now_ns = next_ns.max(self.stalled_until_ns);
            if let Some(start) = self.tm.dequeue(now_ns, now_ns) {
                self.transmit(start);
            } else {
                self.deliver();
            }
        }
    }

    fn transmit(&mut self, start: traffic_manager::Dequeued<u32>) {
        self.departures.push(Outcome {
            id: start.payload,
            departure_ns: Some(start.departure_ns),
            start_ns: Some(start.start_ns),
            drop: None,
        });
        self.tm
            .transmit(start.token, start.length_bytes, start.payload)
            .expect("room in the delay line");
        let sent = self.deliver();
        assert_eq!(sent, Some((start.start_ns, start.payload)));
    }

    /// The frames that have reached the interface: gap frames, then a packet if one was just sent.
    fn deliver(&mut self) -> Option<(u64, u32)> {
        while let Some(delivery) = self.tm.deliver(u64::MAX, u64::MAX) {
            match delivery.frame {
                Frame::Packet(id) => return Some((delivery.delivery_ns, id)),
                Frame::Gap { length_bytes } => {
                    self.gap_frames.push((delivery.delivery_ns, length_bytes));
                }
            }
        }
        None
    }

    fn arrive(&mut self, now_ns: u64, packet: &Packet) {
        let (class, clock_q24) = self.classes.get_mut(&packet.class).expect("a known class");
        let frame_bytes = u64::from(packet.length_bytes) + 4;
        let hold = if class.mode == "static" {
            let backlog_bytes = self.tm.class_backlog_bytes(packet.class);
            if backlog_bytes + frame_bytes > class.limit_bytes {
                self.drop(packet.id, DropCause::ClassLimit);
                return;
            }
            assert_eq!(
                time_per_byte_q24(class.rate_bps),
                Some(class.time_per_byte_q24)
            );
            let departure_q24 = (u128::from(now_ns) << FRACTION_BITS).max(*clock_q24);
            let cost_q24 = frame_bytes * class.time_per_byte_q24;
            *clock_q24 = departure_q24 + u128::from(cost_q24);
            let departure_ns = departure_q24.div_ceil(1 << FRACTION_BITS) as u64;
            Some(Hold {
                class: packet.class,
                counts_to: None,
                departure_ns,
                cost_q24,
                allowance_ns: class.allowance_ns,
            })
        } else {
            None
        };
        let queued = Queued {
            queue: 0,
            header: HeaderFields::default(),
            payload: packet.id,
            length_bytes: packet.length_bytes,
            arrival_ns: now_ns,
            hold,
        };
        if let Err(refused) = self.tm.enqueue(PORT, queued) {
            assert_eq!(refused.payload, packet.id);
            self.drop(packet.id, refused.cause);
        }
    }

    fn drop(&mut self, id: u32, cause: DropCause) {
        self.drops.push(Outcome {
            id,
            departure_ns: None,
            start_ns: None,
            drop: Some(cause.as_str().to_owned()),
        });
    }
}

fn read(path: &Path) -> Vector {
    let text = std::fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The whole case: all events, then everything that waits.
fn run(vector: &Vector, gap_frame_max_bytes: Option<u32>) -> Harness {
    let mut harness = Harness::new(vector, gap_frame_max_bytes);
    for event in &vector.events {
        harness.advance(event.at_ns);
        if let Some(packet) = &event.packet {
            harness.arrive(event.at_ns, packet);
        }
        if let Some(class) = &event.set_class {
            let clock_q24 = harness.classes.get(&class.class).map_or(0, |c| c.1);
            harness
                .classes
                .insert(class.class, (class.clone(), clock_q24));
        }
        if let Some(until_ns) = event.stall_until_ns {
            harness.stalled_until_ns = harness.stalled_until_ns.max(until_ns);
        }
    }
    harness.advance(u64::MAX - 1);
    assert_eq!(harness.tm.statistics().held_packets, 0, "{}", vector.name);
    harness
}

fn check(path: &Path) {
    let vector = read(path);
    let harness = run(&vector, vector.port.gap_frame_max_bytes);
    let statistics = harness.tm.port_statistics(PORT).expect("the port");
    assert_eq!(
        statistics.gap_frames,
        harness.gap_frames.len() as u64,
        "{}",
        vector.name
    );
    assert_eq!(harness.gap_frames, vector.gap_frames, "{}", vector.name);
    let mut got = harness.departures;
    got.extend(harness.drops);
    for (at, (got, expected)) in got.iter().zip(&vector.expected).enumerate() {
        assert_eq!(got, expected, "{}: result {at}", vector.name);
    }
    assert_eq!(got.len(), vector.expected.len(), "{}", vector.name);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files
}

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/vectors")
}

#[test]
fn committed_vectors() {
    let files = files(&committed());
    assert!(files.len() > 40, "only {} vectors", files.len());
    for path in files {
        check(&path);
    }
}

#[test]
fn committed_vectors_of_gap_frames() {
    let files = files(&committed().join("pause-frames"));
    assert!(files.len() > 10, "only {} vectors", files.len());
    for path in files {
        check(&path);
    }
}

/// The nanoseconds that a whole case's gap frames may take in this test: some hundred thousand of
/// the shortest.
const GAPS_MAX_NS: u64 = 200_000_000;

/// PAUSE frames of the published and of the shortest size have the effect of accounted gaps, to within
/// the time of a shortest frame: never earlier, in the same order, with the same drops. A packet that
/// comes unforeseen while one is on the line waits for its end, so unpaced packets and stalls have tests
/// of their own.
#[test]
fn gap_frames_move_no_packet_by_more_than_a_shortest_frame() {
    let mut compared = 0;
    for path in files(&committed()) {
        let vector = read(&path);
        let unpaced_or_late = vector.events.iter().any(|event| {
            event.stall_until_ns.is_some()
                || event.packet.as_ref().is_some_and(|packet| {
                    let class = vector.classes.iter().find(|c| c.class == packet.class);
                    class.is_none_or(|class| class.mode == "unpaced")
                })
                || event
                    .set_class
                    .as_ref()
                    .is_some_and(|class| class.mode == "unpaced")
        });
        let first_ns = vector.events.first().map_or(0, |event| event.at_ns);
        let last_ns = vector
            .expected
            .iter()
            .filter_map(|outcome| outcome.start_ns)
            .max();
        if unpaced_or_late
            || vector.port.line_rate_bps == 0
            || last_ns.is_none_or(|last_ns| last_ns - first_ns > GAPS_MAX_NS)
        {
            continue;
        }
        let accounted = run(&vector, None);
        assert!(accounted.gap_frames.is_empty());
        let overhead_bytes = if vector.port.counts == "wire" { 24 } else { 4 };
        let shortest_ns = (u64::from(GAP_FRAME_MIN_BYTES + overhead_bytes)
            * vector.port.line_time_per_byte_q24)
            .div_ceil(1 << FRACTION_BITS);
        for longest_bytes in [GAP_FRAME_DEFAULT_BYTES, GAP_FRAME_MIN_BYTES] {
            let filled = run(&vector, Some(longest_bytes));
            assert_eq!(filled.drops, accounted.drops, "{}", vector.name);
            assert_eq!(filled.departures.len(), accounted.departures.len());
            for (filled, accounted) in filled.departures.iter().zip(&accounted.departures) {
                assert_eq!(
                    (filled.id, filled.departure_ns),
                    (accounted.id, accounted.departure_ns),
                    "{}",
                    vector.name
                );
                let later_ns = filled.start_ns.zip(accounted.start_ns);
                let later_ns = later_ns.and_then(|(filled, other)| filled.checked_sub(other));
                assert!(
                    later_ns.is_some_and(|later_ns| later_ns <= shortest_ns),
                    "{}: packet {}, frames of up to {longest_bytes} bytes: {later_ns:?} ns later",
                    vector.name,
                    filled.id
                );
            }
            compared += 1;
        }
    }
    assert!(compared >= 30, "only {compared} comparisons");
}

#[test]
fn further_vectors() {
    if let Ok(dir) = std::env::var("PACING_VECTORS_DIR") {
        for path in files(Path::new(&dir)) {
            check(&path);
        }
    }
}
