//! Cost of a packet through a port: one enqueue, start and delivery, with a hundred packets waiting.
//!
//! `fifo` is a port without egress queues. The others have eight queues that packets use in turn.
//! `fq_codel` has a flow for each packet, the worst case for the caches.
//!
//! A time is that of the quickest of many turns: other load of the machine makes turns slower, never
//! faster.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use traffic_manager::{
    AqmConfig, Below, Buffer, CodelConfig, Discipline, DualPi2Config, FqCodelConfig, Gaps,
    HeaderFields, Limits, MaxRate, PieConfig, PortConfig, QueueConfig, Queued, QueueingConfig,
    RateCounts, RedConfig, RedProfile, Scheduler, SchedulerChild, SchedulerNode, TrafficManager,
};

/// A frame of 1514 bytes at 1 Gbit/s, in nanoseconds.
const FRAME_NS: u64 = 12_304;

/// Packets that are timed together.
const TURN: u64 = 4_096;

const QUEUES: usize = 8;

const WAITING: u32 = 100;

const CODEL: CodelConfig = CodelConfig {
    target_ns: 5_000_000,
    interval_ns: 100_000_000,
    ecn: true,
};

fn manager(queues: Option<QueueingConfig>) -> TrafficManager<u32> {
    let mut tm = TrafficManager::new(Limits::default());
    let config = PortConfig {
        line_rate_bps: Some(1_000_000_000),
        counts: RateCounts::Wire,
        fifo_bytes: 1 << 20,
        delay_ns: 0,
        gaps: Gaps::Accounted,
    };
    tm.add_port(1, config).expect("the port is new");
    tm.set_queues(1, queues).expect("in range");
    for packet in 0..WAITING {
        enqueue(&mut tm, packet, 0);
    }
    tm
}

fn enqueue(tm: &mut TrafficManager<u32>, number: u32, arrival_ns: u64) {
    let packet = Queued {
        payload: number,
        length_bytes: 1514,
        arrival_ns,
        hold: None,
        queue: (number as usize % QUEUES) as u8,
        header: HeaderFields {
            flow: number,
            ..HeaderFields::default()
        },
    };
    tm.enqueue(1, packet).expect("there is room");
}

/// A node with children of equal weight.
fn node(discipline: Discipline, children: impl IntoIterator<Item = Below>) -> SchedulerNode {
    let child = |below| SchedulerChild { weight: 1, below };
    SchedulerNode {
        discipline,
        children: children.into_iter().map(child).collect(),
        max_rate: None,
        min_rate_bps: None,
    }
}

/// Two nodes with half of the queues each.
fn tree() -> Scheduler {
    let half = |queues: std::ops::Range<u8>| {
        let queues = queues.map(Below::Queue);
        Below::Node(node(Discipline::Wfq, queues))
    };
    let queues = QUEUES as u8;
    let halves = [half(0..queues / 2), half(queues / 2..queues)];
    Scheduler::Tree(node(Discipline::Wfq, halves))
}

/// Time of a turn that begins at `now_ns`.
fn turn(tm: &mut TrafficManager<u32>, now_ns: &mut u64) -> Duration {
    let begin = Instant::now();
    for number in 0..TURN as u32 {
        *now_ns += FRAME_NS;
        enqueue(tm, number, *now_ns);
        while let Some(start) = tm.dequeue(*now_ns, *now_ns) {
            tm.transmit(start.token, start.length_bytes, start.payload)
                .expect("there is room");
        }
        while let Some(delivery) = tm.deliver(*now_ns, *now_ns) {
            black_box(delivery.frame);
        }
    }
    begin.elapsed()
}

fn bench(c: &mut Criterion) {
    let of = |scheduler, queue| QueueingConfig {
        queues: vec![queue; QUEUES],
        scheduler,
        buffer: None,
    };
    let plain = QueueConfig::default();
    let flows = FqCodelConfig {
        codel: CODEL,
        flows: 1_024,
        quantum_bytes: 1_518,
        limit_packets: 10_240,
    };
    let pie = PieConfig {
        target_ns: 15_000_000,
        ecn: true,
    };
    let dual = DualPi2Config {
        target_ns: 15_000_000,
    };
    // Thresholds that the average never reaches: no packet is dropped.
    let profile = RedProfile {
        min_bytes: 1 << 20,
        max_bytes: 2 << 20,
        max_p_ppm: 100_000,
    };
    let red = RedConfig {
        profiles: [profile; 3],
        weight_shift: 9,
        packet_ns: FRAME_NS,
        ecn: true,
    };
    let weights = vec![1; QUEUES];
    let strict = |queue| of(Scheduler::Strict, queue);
    let managed = |aqm| {
        strict(QueueConfig {
            aqm: Some(aqm),
            ..plain
        })
    };
    let limited = QueueConfig {
        max_rate: Some(MaxRate::bits(200_000_000)),
        ..plain
    };
    let assured = QueueConfig {
        min_rate_bps: Some(10_000_000),
        ..plain
    };
    let shared = QueueingConfig {
        buffer: Some(Buffer::OfPort(4 << 20)),
        ..strict(plain)
    };
    for (name, queues) in [
        ("fifo", None),
        ("strict", Some(strict(plain))),
        ("drr", Some(of(Scheduler::Drr(weights.clone()), plain))),
        ("wfq", Some(of(Scheduler::Wfq(weights), plain))),
        ("tree", Some(of(tree(), plain))),
        ("max_rate", Some(strict(limited))),
        ("min_rate", Some(strict(assured))),
        ("buffer", Some(shared)),
        ("codel", Some(managed(AqmConfig::Codel(CODEL)))),
        ("red", Some(managed(AqmConfig::Red(red)))),
        ("pie", Some(managed(AqmConfig::Pie(pie)))),
        ("dualpi2", Some(managed(AqmConfig::DualPi2(dual)))),
        ("fq_codel", Some(managed(AqmConfig::FqCodel(flows)))),
    ] {
        let mut tm = manager(queues);
        let mut now_ns = 0;
        c.bench_function(&format!("packet/{name}"), |b| {
            b.iter_custom(|iterations| {
                let turns = 0..iterations.div_ceil(TURN);
                let least = turns.map(|_| turn(&mut tm, &mut now_ns)).min();
                let least = least.unwrap_or_default();
                least.mul_f64(iterations as f64 / TURN as f64)
            });
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
