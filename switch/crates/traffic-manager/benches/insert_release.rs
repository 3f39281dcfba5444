//! Cost of one insert and one release with 100, 10,000 and 1,000,000 packets held.
//!
//! `one-class`: all packets in one queue. `spread`: each packet in a class of its own, which is
//! the worst case for the heap and the caches. Every iteration releases one packet and inserts
//! its successor, so the number held is steady; the time is for the pair. `insert` and
//! `release` measure the halves, in turns of at most a tenth of the packets held; `insert/announced`
//! is `spread` with the classes of sixteen packets asked for together before they are inserted, as
//! the engine asks for a packet's class as soon as it knows it.
//!
//! A time is that of the quickest of many turns: other load of the machine makes turns slower, never
//! faster.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use traffic_manager::hold::Hold;
use traffic_manager::{Gaps, HeaderFields, Limits, PortConfig, Queued, RateCounts, TrafficManager};

/// As in `pacing_switch`.
#[global_allocator]
static ALLOCATOR: ports::HugePages = ports::HugePages;

/// 1 Gbit/s at 1514 + 4 bytes, in nanoseconds.
const FRAME_NS: u64 = 12_144;

/// Pairs that are timed together.
const TURN: u64 = 4_096;

const CONFIG: PortConfig = PortConfig {
    line_rate_bps: None,
    counts: RateCounts::Wire,
    fifo_bytes: 1 << 16,
    delay_ns: 0,
    gaps: Gaps::Accounted,
};

fn manager() -> TrafficManager<u32> {
    let mut tm = TrafficManager::new(Limits {
        max_held_packets: 1 << 21,
        ..Limits::default()
    });
    tm.add_port(1, CONFIG).expect("the port is new");
    tm
}

fn insert(tm: &mut TrafficManager<u32>, class: u32, departure_ns: u64) {
    let packet = Queued {
        queue: 0,
        header: HeaderFields::default(),
        payload: class,
        length_bytes: 1514,
        arrival_ns: 0,
        hold: Some(Hold {
            class,
            counts_to: None,
            departure_ns,
            cost_q24: 1,
            allowance_ns: 0,
        }),
    };
    tm.enqueue(1, packet).expect("there is room");
}

fn release(tm: &mut TrafficManager<u32>) -> u64 {
    let now_ns = tm.next_dequeue_ns().expect("packets wait");
    let start = tm.dequeue(now_ns, now_ns).expect("it is due");
    tm.transmit(start.token, start.length_bytes, start.payload)
        .expect("there is room");
    black_box(tm.deliver(now_ns, now_ns).map(|d| d.frame));
    start.departure_ns
}

/// Classes in an order that is not the order of memory.
fn class_of(packet: u64, classes: u64) -> u32 {
    (packet.wrapping_mul(0x9E37_79B9_7F4A_7C15) % classes) as u32
}

fn filled(held: u64, classes: u64) -> TrafficManager<u32> {
    let mut tm = manager();
    for packet in 0..held {
        insert(&mut tm, class_of(packet, classes), packet * FRAME_NS);
    }
    tm
}

fn bench(c: &mut Criterion) {
    for (name, spread) in [("one-class", false), ("spread", true)] {
        let mut group = c.benchmark_group(format!("pair/{name}"));
        group.throughput(Throughput::Elements(1));
        for held in [100u64, 10_000, 1_000_000] {
            let classes = if spread { held } else { 1 };
            let mut tm = filled(held, classes);
            let mut packet = held;
            group.bench_function(BenchmarkId::from_parameter(held), |b| {
                b.iter_custom(|iterations| {
                    let mut least = Duration::MAX;
                    for _ in 0..iterations.div_ceil(TURN) {
                        let begin = Instant::now();
                        for _ in 0..TURN {
                            release(&mut tm);
                            insert(&mut tm, class_of(packet, classes), packet * FRAME_NS);
                            packet += 1;
                        }
                        least = least.min(begin.elapsed());
                    }
                    scaled(least, TURN, iterations)
                });
            });
        }
        group.finish();
    }
    for (half, name, announced) in [
        (Half::Insert, "insert/one-class", 1),
        (Half::Insert, "insert/spread", 1),
        (Half::Insert, "insert/announced", 16),
        (Half::Release, "release/one-class", 1),
        (Half::Release, "release/spread", 1),
    ] {
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        for held in [100u64, 10_000, 1_000_000] {
            let classes = if name.ends_with("one-class") { 1 } else { held };
            let mut level = Level::new(held, classes, announced);
            group.bench_function(BenchmarkId::from_parameter(held), |b| {
                b.iter_custom(|iterations| level.time(half, iterations));
            });
        }
        group.finish();
    }
}

/// The timed operation.
#[derive(Clone, Copy)]
enum Half {
    Insert,
    Release,
}

/// A traffic manager that holds a level of packets.
struct Level {
    tm: TrafficManager<u32>,
    held: u64,
    classes: u64,
    packet: u64,
    /// Number of packets whose classes are prefetched together.
    announced: u64,
}

impl Level {
    fn new(held: u64, classes: u64, announced: u64) -> Self {
        Self {
            tm: filled(held, classes),
            held,
            classes,
            packet: held,
            announced,
        }
    }

    /// Time of `iterations` inserts or releases, done in turns down and up again.
    fn time(&mut self, half: Half, iterations: u64) -> Duration {
        let turn = (self.held / 10).clamp(1, TURN);
        let (mut inserting, mut releasing) = (Duration::MAX, Duration::MAX);
        for _ in 0..iterations.div_ceil(turn) {
            let begin = Instant::now();
            for _ in 0..turn {
                release(&mut self.tm);
            }
            releasing = releasing.min(begin.elapsed());
            let begin = Instant::now();
            for _ in 0..turn {
                if self.packet.is_multiple_of(self.announced) && self.announced > 1 {
                    self.announce();
                }
                let class = class_of(self.packet, self.classes);
                insert(&mut self.tm, class, self.packet * FRAME_NS);
                self.packet += 1;
            }
            inserting = inserting.min(begin.elapsed());
        }
        let least = match half {
            Half::Insert => inserting,
            Half::Release => releasing,
        };
        scaled(least, turn, iterations)
    }

    /// Asks for the classes of the next packets.
    fn announce(&self) {
        let packets = self.packet..self.packet + self.announced;
        let classes = packets.map(|packet| class_of(packet, self.classes));
        let bytes = classes.map(|class| self.tm.class_backlog_bytes(class));
        black_box(bytes.fold(0, u64::wrapping_add));
    }
}

/// The time of `iterations` if `turn` of them take as long as given.
fn scaled(time: Duration, turn: u64, iterations: u64) -> Duration {
    time.mul_f64(iterations as f64 / turn as f64)
}

criterion_group!(benches, bench);
criterion_main!(benches);
