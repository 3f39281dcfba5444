//! Time and memory of a packet's way through 64 ports, for growing numbers of egress queues and of classes.
//!
//! `cargo bench -p traffic-manager --bench scale -- OUT.json` writes the figures as JSON; without OUT.json they
//! are only printed. Each point has a process of its own, so that no memory is left from another. A time is that
//! of the quickest of many batches, since other work of the machine makes batches slower, never faster. Memory is
//! what the process has more than before it made the ports.
//!
//! * `queues`: each port of 1 Gbit/s has so many queues, and 128 packets that wait in them.
//! * `classes`: a packet of each class waits for its departure time. All packets are held, or every other one goes by
//!   the 64 queues of each port.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use traffic_manager::hold::Hold;
use traffic_manager::{
    Gaps, HeaderFields, Limits, PortConfig, Queued, QueueingConfig, RateCounts, Scheduler,
    TrafficManager,
};

/// As in `pacing_switch`.
#[global_allocator]
static ALLOCATOR: ports::HugePages = ports::HugePages;

const PORTS: u16 = 64;

/// A frame of 1514 bytes at 1 Gbit/s, in nanoseconds.
const FRAME_NS: u64 = 12_304;

/// Packets that wait in the queues of a port.
const WAITING: u64 = 128;

/// Packets that are timed together: a batch ends before the system gives the processor to another process.
const BATCH: u64 = 512;

/// Batches go on for so long.
const PERIOD: Duration = Duration::from_millis(2_000);

/// Comes first on the command line of a process for one point.
const POINT: &str = "point";

const SCHEDULERS: [&str; 3] = ["strict", "drr", "wfq"];
const QUEUES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

const HELD_ALONE: &str = "held packets alone";
const WITH_QUEUES: &str = "every other packet by 64 queues";
const CLASSES: [u32; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

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

/// Packets through a traffic manager.
struct Load {
    tm: TrafficManager<u32>,
    random: Random,
    /// Of each port; 0: a FIFO.
    queues: usize,
    /// 0: no packet is held.
    classes: u32,
    /// Packets so far.
    packets: u64,
    /// Time between two packets of all ports together, in 2^-10 ns.
    interval: u64,
}

impl Load {
    fn new(queues: usize, scheduler: Scheduler, classes: u32) -> Self {
        let mut tm = TrafficManager::new(Limits {
            max_held_packets: 1 << 21,
            ..Limits::default()
        });
        for port in 0..PORTS {
            let config = PortConfig {
                line_rate_bps: Some(1_000_000_000),
                counts: RateCounts::Wire,
                fifo_bytes: 1 << 30,
                delay_ns: 0,
                gaps: Gaps::Accounted,
            };
            tm.add_port(port, config).expect("a new port");
            if queues > 0 {
                let config = QueueingConfig {
                    scheduler: scheduler.clone(),
                    ..QueueingConfig::strict(queues)
                };
                tm.set_queues(port, Some(config)).expect("in range");
            }
        }
        let of_line = (FRAME_NS << 10) / u64::from(PORTS);
        Self {
            tm,
            random: Random(5),
            queues,
            classes,
            packets: 0,
            // Classes choose ports at random, so that lines need some time of their own.
            interval: if classes > 0 {
                of_line * 10 / 9
            } else {
                of_line
            },
        }
    }

    fn now_ns(&self) -> u64 {
        (self.packets * self.interval) >> 10
    }

    /// The packet with this number comes for an egress queue.
    fn enqueue_unpaced(&mut self, number: u64) {
        // Each port has its turn, in an order that is not that of memory.
        let port = number.wrapping_mul(37) % u64::from(PORTS);
        let queue = self.random.below(self.queues.max(1) as u64);
        self.enqueue(port as u16, queue as u8, None);
    }

    /// A packet comes that leaves when one of each class has come.
    fn enqueue_paced(&mut self, class: u32) {
        let ahead_ns = (u64::from(self.classes) * self.interval) >> 10;
        let hold = Hold {
            class,
            counts_to: None,
            departure_ns: self.now_ns() + ahead_ns,
            cost_q24: 1,
            allowance_ns: 0,
        };
        let port = class % u32::from(PORTS);
        self.enqueue(port as u16, 0, Some(hold));
    }

    fn enqueue(&mut self, port: u16, queue: u8, hold: Option<Hold>) {
        let packet = Queued {
            payload: self.packets as u32,
            length_bytes: 1_514,
            arrival_ns: self.now_ns(),
            hold,
            queue,
            header: HeaderFields::default(),
        };
        self.tm.enqueue(port, packet).expect("there is room");
    }

    /// A packet comes, and those that are due leave.
    fn step(&mut self) {
        self.packets += 1;
        let is_held = self.classes > 0 && (self.queues == 0 || self.packets.is_multiple_of(2));
        if is_held {
            let class = self.random.below(self.classes.into()) as u32;
            self.enqueue_paced(class);
        } else {
            let of_queues = if self.classes > 0 { 2 } else { 1 };
            self.enqueue_unpaced(self.packets / of_queues);
        }
        let now_ns = self.now_ns();
        while let Some(start) = self.tm.dequeue(now_ns, now_ns) {
            let sent = self
                .tm
                .transmit(start.token, start.length_bytes, start.payload);
            sent.expect("there is room");
        }
        while let Some(delivery) = self.tm.deliver(now_ns, now_ns) {
            black_box(delivery.frame);
        }
    }

    /// The packets that wait from the start on.
    fn fill(&mut self) {
        if self.classes == 0 {
            for number in 0..WAITING * u64::from(PORTS) {
                self.enqueue_unpaced(number);
            }
        }
        for number in 0..self.classes {
            self.packets += 1;
            // A prime, so that each class has its turn.
            let class = u64::from(number) * 0x9e37_79b1 % u64::from(self.classes);
            self.enqueue_paced(class as u32);
        }
    }
}

fn scheduler(name: &str, queues: usize) -> Scheduler {
    let weights = vec![1; queues];
    match name {
        "drr" => Scheduler::Drr(weights),
        "wfq" => Scheduler::Wfq(weights),
        _ => Scheduler::Strict,
    }
}

/// Bytes of memory that the process has written to.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.expect("RssAnon").parse().expect("a number");
    kilobytes * 1024
}

/// Measures one point; returns it as JSON.
fn measure(group: &str, series: &str, x: u64) -> String {
    let before = memory_bytes();
    let mut load = match group {
        "queues" => Load::new(x as usize, scheduler(series, x as usize), 0),
        _ => {
            let queues = if series == WITH_QUEUES { 64 } else { 0 };
            Load::new(queues, Scheduler::Strict, x as u32)
        }
    };
    load.fill();
    let mut least = Duration::MAX;
    let begin = Instant::now();
    while begin.elapsed() < PERIOD {
        let start = Instant::now();
        for _ in 0..BATCH {
            load.step();
        }
        least = least.min(start.elapsed());
    }
    let ns = least.as_nanos() as f64 / BATCH as f64;
    let bytes = memory_bytes().saturating_sub(before);
    format!(
        r#"{{"group": "{group}", "series": "{series}", "x": {x}, "ns": {ns:.1}, "bytes": {bytes}}}"#
    )
}

/// The figures of all points, one line each.
fn measure_all() -> Vec<String> {
    let of_queues = SCHEDULERS
        .into_iter()
        .flat_map(|series| QUEUES.map(|x| ("queues", series, x as u64)));
    let of_classes = [HELD_ALONE, WITH_QUEUES]
        .into_iter()
        .flat_map(|series| CLASSES.map(|x| ("classes", series, u64::from(x))));
    let program = std::env::current_exe().expect("a program");
    let mut figures = Vec::new();
    for (group, series, x) in of_queues.chain(of_classes) {
        let x = x.to_string();
        let mut point = Command::new(&program);
        let output = point.args([POINT, group, series, &x]).output();
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{group} {series} {x}: {said}");
        let figure = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        println!("{figure}");
        figures.push(figure);
    }
    figures
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [first, group, series, x] = arguments.as_slice()
        && first == POINT
    {
        let x = x.parse().expect("a number");
        println!("{}", measure(group, series, x));
        return;
    }
    let figures = measure_all();
    if let Some(out) = arguments.iter().find(|word| !word.starts_with("--")) {
        let text = format!("[\n  {}\n]\n", figures.join(",\n  "));
        std::fs::write(out, text).expect("the file can be written");
    }
}
