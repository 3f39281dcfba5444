//! Every file in `tests/vectors/queues` and `tests/vectors/switch-buffer`, bit for bit: the order of the packets
//! that leave, their times and queue depths, and the drops.
//!
//! More files (from `make_queue_vectors.py --random`) are read from the directory that the environment
//! variable `QUEUE_VECTORS_DIR` names.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use traffic_manager::hold::Hold;
use traffic_manager::{
    AqmConfig, Below, Buffer, CodelConfig, Colour, Discipline, DualPi2Config, Ecn, FqCodelConfig,
    Gaps, HeaderFields, Limits, MaxRate, PieConfig, PortConfig, QueueConfig, Queued,
    QueueingConfig, RateCounts, RedConfig, RedProfile, Scheduler, SchedulerChild, SchedulerNode,
    TrafficManager,
};

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Switch(SwitchVector),
    Port(Box<Vector>),
}

/// Ports that share a buffer, each as in a file of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchVector {
    switch_buffer_bytes: u64,
    ports: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    line_rate_bps: u64,
    counts: String,
    scheduler: String,
    weights: Vec<u32>,
    /// Of the scheduler `tree`.
    tree: Option<VectorNode>,
    buffer_bytes: Option<u64>,
    /// The queues share the buffer of the switch.
    #[serde(default)]
    switch_buffer: bool,
    queues: Vec<VectorQueue>,
    /// Arrival, queue, length, ECN field, colour, flow.
    packets: Vec<(u64, u8, u32, u8, usize, u32)>,
    /// Held packets: number, class, departure, cost, allowance.
    #[serde(default)]
    holds: Vec<(u32, u32, u64, u64, u64)>,
    starts: Vec<Start>,
    drops: Vec<(u32, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorNode {
    discipline: String,
    /// With their weights.
    children: Vec<(u32, VectorBelow)>,
    rate_bps: Option<u64>,
    burst_bytes: u64,
    min_rate_bps: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum VectorBelow {
    Queue(u8),
    Paced(Paced),
    Node(VectorNode),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Paced {
    Paced,
}

impl VectorNode {
    fn config(&self) -> SchedulerNode {
        let child = |(weight, below): &(u32, VectorBelow)| SchedulerChild {
            weight: *weight,
            below: match below {
                VectorBelow::Queue(queue) => Below::Queue(*queue),
                VectorBelow::Paced(Paced::Paced) => Below::Paced,
                VectorBelow::Node(node) => Below::Node(node.config()),
            },
        };
        SchedulerNode {
            discipline: match self.discipline.as_str() {
                "strict" => Discipline::Strict,
                "drr" => Discipline::Drr,
                "wfq" => Discipline::Wfq,
                other => panic!("discipline {other:?}"),
            },
            children: self.children.iter().map(child).collect(),
            max_rate: self.rate_bps.map(|rate_bps| MaxRate::Bits {
                rate_bps,
                burst_bytes: self.burst_bytes,
            }),
            min_rate_bps: self.min_rate_bps,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorQueue {
    depth_bytes: u64,
    depth_packets: Option<u64>,
    rate_bps: Option<u64>,
    burst_bytes: u64,
    rate_pps: Option<u64>,
    min_rate_bps: Option<u64>,
    buffer_share_ppm: Option<u32>,
    aqm: Option<VectorAqm>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum VectorAqm {
    Codel(VectorCodel),
    Red {
        profiles: [(u64, u64, u32); 3],
        weight_shift: u32,
        packet_ns: u64,
        ecn: bool,
    },
    Pie {
        target_ns: u64,
        ecn: bool,
    },
    DualPi2 {
        target_ns: u64,
    },
    FqCodel {
        codel: VectorCodel,
        flows: u32,
        quantum_bytes: u32,
        limit_packets: u32,
    },
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct VectorCodel {
    target_ns: u64,
    interval_ns: u64,
    ecn: bool,
}

impl VectorCodel {
    fn config(self) -> CodelConfig {
        CodelConfig {
            target_ns: self.target_ns,
            interval_ns: self.interval_ns,
            ecn: self.ecn,
        }
    }
}

impl VectorAqm {
    fn config(self) -> AqmConfig {
        match self {
            Self::Codel(codel) => AqmConfig::Codel(codel.config()),
            Self::Red {
                profiles,
                weight_shift,
                packet_ns,
                ecn,
            } => AqmConfig::Red(RedConfig {
                profiles: profiles.map(|(min_bytes, max_bytes, max_p_ppm)| RedProfile {
                    min_bytes,
                    max_bytes,
                    max_p_ppm,
                }),
                weight_shift,
                packet_ns,
                ecn,
            }),
            Self::DualPi2 { target_ns } => AqmConfig::DualPi2(DualPi2Config { target_ns }),
            Self::FqCodel {
                codel,
                flows,
                quantum_bytes,
                limit_packets,
            } => AqmConfig::FqCodel(FqCodelConfig {
                codel: codel.config(),
                flows,
                quantum_bytes,
                limit_packets,
            }),
            Self::Pie { target_ns, ecn } => AqmConfig::Pie(PieConfig { target_ns, ecn }),
        }
    }
}

/// Number of the packet, start, packets in its queue when it came and when it left, whether it is
/// marked.
type Start = (u32, u64, u32, u32, bool);

/// Of a packet: its port, and its number there.
type Payload = (u16, u32);

impl Vector {
    fn hold(&self, number: u32) -> Option<Hold> {
        let hold = self.holds.iter().find(|hold| hold.0 == number)?;
        let (_, class, departure_ns, cost_q24, allowance_ns) = *hold;
        Some(Hold {
            class,
            counts_to: None,
            departure_ns,
            cost_q24,
            allowance_ns,
        })
    }

    /// Adds the port with its queues.
    fn add_to(&self, tm: &mut TrafficManager<Payload>, number: u16) {
        let port = PortConfig {
            line_rate_bps: Some(self.line_rate_bps).filter(|rate| *rate > 0),
            counts: match self.counts.as_str() {
                "layer2" => RateCounts::Layer2,
                "wire" => RateCounts::Wire,
                other => panic!("counts {other:?}"),
            },
            fifo_bytes: 1,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        tm.add_port(number, port).expect("a new port");
        let of_port = self.buffer_bytes.map(Buffer::OfPort);
        let queues = QueueingConfig {
            buffer: of_port.or(self.switch_buffer.then_some(Buffer::OfSwitch)),
            queues: self.queues.iter().map(VectorQueue::config).collect(),
            scheduler: match self.scheduler.as_str() {
                "strict" => Scheduler::Strict,
                "drr" => Scheduler::Drr(self.weights.clone()),
                "wfq" => Scheduler::Wfq(self.weights.clone()),
                "tree" => Scheduler::Tree(self.tree.as_ref().expect("a tree").config()),
                other => panic!("scheduler {other:?}"),
            },
        };
        tm.set_queues(number, Some(queues)).expect("in range");
    }
}

impl VectorQueue {
    fn config(&self) -> QueueConfig {
        let bits = self.rate_bps.map(|rate_bps| MaxRate::Bits {
            rate_bps,
            burst_bytes: self.burst_bytes,
        });
        QueueConfig {
            depth_bytes: Some(self.depth_bytes),
            depth_packets: self.depth_packets,
            max_rate: bits.or(self.rate_pps.map(MaxRate::Packets)),
            min_rate_bps: self.min_rate_bps,
            buffer_share_ppm: self.buffer_share_ppm,
            aqm: self.aqm.map(VectorAqm::config),
        }
    }
}

/// Packets that have left the queues of a port.
#[derive(Default, Clone)]
struct Left {
    starts: Vec<Start>,
    drops: Vec<(u32, String)>,
}

/// Starts everything that is due.
fn start_until(tm: &mut TrafficManager<Payload>, now_ns: u64, left: &mut [Left]) {
    loop {
        let start = tm.dequeue(now_ns, now_ns);
        while let Some(dropped) = tm.take_dropped() {
            let (port, number) = dropped.payload;
            let drops = &mut left[usize::from(port)].drops;
            drops.push((number, dropped.cause.as_str().to_owned()));
        }
        let Some(start) = start else {
            break;
        };
        let (port, number) = start.payload;
        left[usize::from(port)].starts.push((
            number,
            start.start_ns,
            start.enqueued_behind_packets,
            start.left_behind_packets,
            start.marked,
        ));
        tm.transmit(start.token, start.length_bytes, start.payload)
            .expect("there is room");
    }
    while tm.deliver(now_ns, now_ns).is_some() {}
}

/// Replays the packets of all ports, in order of arrival.
fn replay(ports: &[Vector], buffer_bytes: Option<u64>) {
    let mut tm = TrafficManager::new(Limits {
        buffer_bytes,
        ..Limits::default()
    });
    let mut left = vec![Left::default(); ports.len()];
    let mut arrivals = Vec::new();
    for (port, vector) in (0..).zip(ports) {
        vector.add_to(&mut tm, port);
        let packets = (0..).zip(&vector.packets);
        arrivals.extend(packets.map(|(number, packet)| (port, number, packet)));
    }
    arrivals.sort_by_key(|(port, _, packet)| (packet.0, *port));
    for (port, number, packet) in arrivals {
        let (at_ns, queue, length_bytes, ecn, colour, flow) = *packet;
        // Time passes from event to event, as in virtual time.
        while let Some(next_ns) = tm.next_dequeue_ns().filter(|next_ns| *next_ns <= at_ns) {
            start_until(&mut tm, next_ns, &mut left);
        }
        let packet = Queued {
            payload: (port, number),
            length_bytes,
            arrival_ns: at_ns,
            hold: ports[usize::from(port)].hold(number),
            queue,
            header: HeaderFields {
                ecn: Ecn::of_bits(ecn),
                colour: [Colour::Green, Colour::Yellow, Colour::Red][colour],
                flow,
            },
        };
        if let Err(refused) = tm.enqueue(port, packet) {
            let drops = &mut left[usize::from(port)].drops;
            drops.push((number, refused.cause.as_str().to_owned()));
        }
        start_until(&mut tm, at_ns, &mut left);
    }
    while let Some(next_ns) = tm.next_dequeue_ns() {
        start_until(&mut tm, next_ns, &mut left);
    }
    for (vector, left) in ports.iter().zip(&left) {
        compare(vector, left);
    }
}

fn compare(vector: &Vector, left: &Left) {
    let Left { starts, drops } = left;
    let differs = (starts.iter().zip(&vector.starts)).position(|(is, expected)| is != expected);
    if let Some(at) = differs {
        let (is, expected) = (starts[at], vector.starts[at]);
        panic!("{}: start {at}: {is:?}, expected {expected:?}", vector.name);
    }
    assert_eq!(starts.len(), vector.starts.len(), "{}", vector.name);
    assert_eq!(drops, &vector.drops, "{}", vector.name);
}

fn folders() -> Vec<PathBuf> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/vectors");
    let committed = ["queues", "switch-buffer"].map(|folder| vectors.join(folder));
    let more = std::env::var_os("QUEUE_VECTORS_DIR").map(PathBuf::from);
    committed.into_iter().chain(more).collect()
}

#[test]
fn every_vector_is_met() {
    let (mut files, mut packets) = (0, 0);
    for folder in folders() {
        let entries = std::fs::read_dir(&folder).expect("the vectors are there");
        for path in entries.map(|entry| entry.expect("readable").path()) {
            let text = std::fs::read_to_string(&path).expect("readable");
            let (ports, buffer_bytes) = match serde_json::from_str(&text).expect("the format") {
                File::Port(vector) => (vec![*vector], None),
                File::Switch(vector) => (vector.ports, Some(vector.switch_buffer_bytes)),
            };
            replay(&ports, buffer_bytes);
            files += 1;
            packets += ports.iter().map(|port| port.packets.len()).sum::<usize>();
        }
    }
    println!("{files} files, {packets} packets");
    assert!(files > 0, "no vectors");
}
