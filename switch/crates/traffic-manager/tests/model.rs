//! The traffic manager against a second implementation of the same rules, written to be obvious:
//! lists searched from end to end, nothing cached. Several ports, polls that are late or too
//! early, packets cancelled or changed in length by egress, ports changed while they run.

use proptest::prelude::*;
use traffic_manager::hold::{FRACTION_BITS, Hold, time_per_byte_q24};
use traffic_manager::{
    DropCause, Frame, Gaps, HeaderFields, Limits, PortConfig, Queued, RateCounts, TrafficManager,
};

const PORTS: [u16; 3] = [1, 4, 511];
const LIMITS: Limits = Limits {
    max_ports: 3,
    max_held_packets: 40,
    max_delay_line_packets: 25,
    max_classes: 1 << 20,
    max_queues: 1 << 20,
    buffer_bytes: None,
};

#[derive(Clone)]
struct Waiting {
    payload: u32,
    length_bytes: u32,
    arrival_ns: u64,
    sequence: usize,
    hold: Option<Hold>,
}

impl Waiting {
    fn departure_ns(&self) -> u64 {
        self.hold.map_or(self.arrival_ns, |hold| {
            hold.departure_ns.max(self.arrival_ns)
        })
    }

    fn frame_bytes(&self) -> u64 {
        u64::from(self.length_bytes) + 4
    }
}

struct NaivePort {
    number: u16,
    config: PortConfig,
    free_q24: u128,
    waiting: Vec<Waiting>,
    release_q24: std::collections::BTreeMap<u32, u128>,
    /// S by class, of those that are catching up with spaced packets; `None`: they do not.
    spaced_q24: Option<std::collections::BTreeMap<u32, u128>>,
    /// The low 32 bits of the departure time of the last packet that left, by class.
    last_departure: std::collections::BTreeMap<u32, u32>,
    late_poll_ns: u64,
    on_the_way: Vec<(u64, u32)>,
    last_delivery_ns: u64,
}

fn q24(ns: u64) -> u128 {
    u128::from(ns) << FRACTION_BITS
}

fn ceil_ns(instant_q24: u128) -> u64 {
    u64::try_from(instant_q24.div_ceil(1 << FRACTION_BITS)).expect("in range")
}

impl NaivePort {
    /// E of `packet` as the head of its queue, but for the distance to the packet before.
    fn unspaced_q24(&self, packet: &Waiting, class: u32) -> u128 {
        let release = self.release_q24.get(&class).copied().unwrap_or(0);
        q24(packet.departure_ns()).max(release)
    }

    /// S of a class.
    fn spaced_q24(&self, class: u32) -> u128 {
        let spaced = self.spaced_q24.as_ref();
        spaced.and_then(|all| all.get(&class)).copied().unwrap_or(0)
    }

    /// Forgets S of an empty queue for a packet with the departure time of the one that left last.
    fn leave_together(&mut self, packet: &Waiting) {
        let Some(hold) = packet.hold else { return };
        let is_empty = !self
            .waiting
            .iter()
            .any(|waiting| waiting.hold.is_some_and(|other| other.class == hold.class));
        let departure = packet.departure_ns() as u32;
        if is_empty && self.last_departure.get(&hold.class) == Some(&departure) {
            self.spaced_q24
                .as_mut()
                .and_then(|spaced| spaced.remove(&hold.class));
        }
    }

    /// E of `packet` as the head of its queue.
    fn eligible_q24(&self, packet: &Waiting, class: u32) -> u128 {
        self.unspaced_q24(packet, class).max(self.spaced_q24(class))
    }

    /// First packet of every class queue.
    fn heads(&self) -> Vec<(usize, u32)> {
        let mut heads: Vec<(usize, u32)> = Vec::new();
        for (at, packet) in self.waiting.iter().enumerate() {
            if let Some(hold) = packet.hold
                && heads.iter().all(|(_, class)| *class != hold.class)
            {
                heads.push((at, hold.class));
            }
        }
        heads
    }

    /// Instant and kind of the next decision.
    fn decision(&self) -> Option<(u128, bool)> {
        let paced = self
            .heads()
            .iter()
            .map(|(at, class)| self.eligible_q24(&self.waiting[*at], *class))
            .min()
            .map(|e| e.max(self.free_q24));
        let unpaced = self
            .waiting
            .iter()
            .find(|packet| packet.hold.is_none())
            .map(|packet| q24(packet.arrival_ns).max(self.free_q24));
        match (paced, unpaced) {
            (Some(p), Some(u)) => Some(if p <= u { (p, true) } else { (u, false) }),
            (Some(p), None) => Some((p, true)),
            (None, Some(u)) => Some((u, false)),
            (None, None) => None,
        }
    }

    /// Takes the packet of the next decision; returns it with its start.
    fn start(&mut self, now_ns: u64) -> (Waiting, u128) {
        let (instant, paced) = self.decision().expect("due");
        let (at, start) = if paced {
            let late = ceil_ns(instant) < now_ns;
            let start = if late { q24(now_ns) } else { instant };
            let at = self
                .heads()
                .into_iter()
                .filter(|(at, class)| self.eligible_q24(&self.waiting[*at], *class) <= start)
                .map(|(at, _)| at)
                .min_by_key(|at| (self.waiting[*at].departure_ns(), self.waiting[*at].sequence))
                .expect("due");
            (at, start)
        } else {
            let at = self.waiting.iter().position(|p| p.hold.is_none());
            (at.expect("due"), instant)
        };
        let poll_lateness = if !paced {
            0
        } else if ceil_ns(instant) < now_ns {
            self.late_poll_ns = now_ns;
            q24(now_ns) - instant
        } else if self.late_poll_ns == now_ns {
            u128::MAX
        } else {
            0
        };
        let packet = self.waiting.remove(at);
        if let Some(hold) = packet.hold {
            let eligible = self.unspaced_q24(&packet, hold.class);
            let waited_for = self.spaced_q24(hold.class);
            let late = start.saturating_sub(eligible).min(poll_lateness);
            let release = self.release_q24.entry(hold.class).or_default();
            *release = (*release).max(start.saturating_sub(q24(hold.allowance_ns)))
                + u128::from(hold.cost_q24);
            if let Some(spaced) = &mut self.spaced_q24 {
                spaced.remove(&hold.class);
                let gain = u128::from(hold.cost_q24) / 8;
                if waited_for > eligible || late > gain {
                    let from = if waited_for > eligible {
                        waited_for
                    } else {
                        start
                    };
                    let next = from + u128::from(hold.cost_q24) - gain;
                    let is_class = |p: &Waiting| p.hold.is_some_and(|h| h.class == hold.class);
                    match self.waiting.iter().find(|waiting| is_class(waiting)) {
                        Some(head) if head.departure_ns() == packet.departure_ns() => {}
                        Some(_) => {
                            spaced.insert(hold.class, next);
                        }
                        // An empty queue keeps S in whole nanoseconds after R, up to 32 bits of them.
                        None => {
                            let after_ns = ceil_ns(next.saturating_sub(*release));
                            let after_ns = after_ns.min(u32::MAX.into());
                            spaced.insert(hold.class, *release + q24(after_ns));
                            let departure = packet.departure_ns() as u32;
                            self.last_departure.insert(hold.class, departure);
                        }
                    }
                }
            }
        }
        self.free_q24 = start;
        (packet, start)
    }

    fn transmit(&mut self, start: u128, length_bytes: u32, payload: u32) -> (u64, u32) {
        let overhead = match self.config.counts {
            RateCounts::Layer2 => 4,
            RateCounts::Wire => 24,
        };
        let per_byte = self
            .config
            .line_rate_bps
            .map_or(0, |rate| time_per_byte_q24(rate).expect("in range"));
        self.free_q24 = start + (u128::from(length_bytes) + overhead) * u128::from(per_byte);
        let delivery_ns = (ceil_ns(start) + self.config.delay_ns).max(self.last_delivery_ns);
        (delivery_ns, payload)
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Time passes.
    Wait(u64),
    /// A packet; it arrived so long ago.
    Enqueue {
        port: usize,
        length_bytes: u32,
        age_ns: u64,
        hold: Option<(u32, i64, u64, u64)>,
    },
    /// Everything due is started. `late`: at the present; otherwise at the instants due.
    Start { late: bool, egress: Vec<u8> },
    /// Unpaced packets due so long ago are started.
    StartUnpaced { ago_ns: u64 },
    /// Everything that arrived by now is delivered.
    Deliver,
    /// A port changes.
    SetPort { port: usize, config: usize },
    /// All packets come out.
    Drain,
}

fn configs() -> Vec<PortConfig> {
    let config = |line_rate_bps, counts, fifo_bytes, delay_ns| PortConfig {
        line_rate_bps,
        counts,
        fifo_bytes,
        delay_ns,
        gaps: Gaps::Accounted,
    };
    vec![
        config(Some(1_000_000_000), RateCounts::Wire, 65_536, 0),
        config(Some(500_000_000), RateCounts::Layer2, 4_000, 100_000_000),
        config(Some(333_333_333), RateCounts::Layer2, 20_000, 5_000),
        config(Some(100_000_000_000), RateCounts::Wire, 20_000, 1),
        config(None, RateCounts::Wire, 20_000, 77),
    ]
}

fn hold() -> impl Strategy<Value = (u32, i64, u64, u64)> {
    let class = prop_oneof![0..4u32, Just(1_000_000)];
    let departure = prop_oneof![Just(0), -2_000..2_000i64, 0..100_000i64];
    let cost = prop_oneof![Just(0), 0..(40_000u64 << 24), Just(1), Just(12_345_678_901)];
    let allowance = prop_oneof![Just(0), Just(1), 0..50_000u64, Just(u64::MAX)];
    (class, departure, cost, allowance)
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS.len();
    let length = prop_oneof![Just(60), Just(1514), 14..9_000u32];
    prop_oneof![
        3 => prop_oneof![Just(1), 0..50u64, 0..30_000u64, 0..1_000_000u64].prop_map(Step::Wait),
        8 => (port.clone(), length, prop_oneof![Just(0), 0..5_000u64], proptest::option::of(hold()))
            .prop_map(|(port, length_bytes, age_ns, hold)| Step::Enqueue {
                port,
                length_bytes,
                age_ns,
                hold,
            }),
        4 => (any::<bool>(), proptest::collection::vec(any::<u8>(), 1..4))
            .prop_map(|(late, egress)| Step::Start { late, egress }),
        1 => (0..5_000u64).prop_map(|ago_ns| Step::StartUnpaced { ago_ns }),
        1 => Just(Step::Deliver),
        1 => (port, 0..configs().len()).prop_map(|(port, config)| Step::SetPort { port, config }),
    ]
}

/// Mostly steps as above; now and then a drain.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![60 => step(), 1 => Just(Step::Drain)];
    proptest::collection::vec(step, 1..120)
}

struct Pair {
    tm: TrafficManager<u32>,
    naive: Vec<NaivePort>,
    now_ns: u64,
    next_payload: u32,
    sequence: usize,
}

impl Pair {
    fn new(begin_ns: u64, spaces_catch_up: bool) -> Self {
        let mut tm = TrafficManager::new(LIMITS);
        if spaces_catch_up {
            tm.space_catch_up();
        }
        let config = configs()[0];
        for port in PORTS {
            tm.add_port(port, config).expect("a new port");
        }
        let naive = PORTS.map(|number| NaivePort {
            number,
            config,
            free_q24: 0,
            waiting: Vec::new(),
            release_q24: Default::default(),
            spaced_q24: spaces_catch_up.then(Default::default),
            last_departure: Default::default(),
            late_poll_ns: 0,
            on_the_way: Vec::new(),
            last_delivery_ns: 0,
        });
        Self {
            tm,
            naive: naive.into(),
            now_ns: begin_ns,
            next_payload: 0,
            sequence: 0,
        }
    }

    fn held(&self) -> usize {
        self.naive.iter().map(|port| port.waiting.len()).sum()
    }

    fn enqueue(&mut self, port: usize, length_bytes: u32, arrival_ns: u64, hold: Option<Hold>) {
        let payload = self.next_payload;
        self.next_payload += 1;
        let queued = Queued {
            queue: 0,
            header: HeaderFields::default(),
            payload,
            length_bytes,
            arrival_ns,
            hold,
        };
        let held = self.held();
        let naive = &mut self.naive[port];
        let fifo_bytes: u64 = naive
            .waiting
            .iter()
            .filter(|p| p.hold.is_none())
            .map(Waiting::frame_bytes)
            .sum();
        let got = self.tm.enqueue(naive.number, queued);
        // No queue holds more than are free.
        let class = hold.map(|hold| hold.class);
        let of_queue = |p: &&Waiting| p.hold.map(|hold| hold.class) == class;
        let in_queue = naive.waiting.iter().filter(of_queue).count();
        let expected = if in_queue >= LIMITS.max_held_packets - held {
            Err(DropCause::HoldLimit)
        } else if hold.is_none()
            && fifo_bytes + u64::from(length_bytes) + 4 > naive.config.fifo_bytes
        {
            Err(DropCause::FifoFull)
        } else {
            let packet = Waiting {
                payload,
                length_bytes,
                arrival_ns,
                sequence: self.sequence,
                hold,
            };
            naive.leave_together(&packet);
            naive.waiting.push(packet);
            self.sequence += 1;
            Ok(())
        };
        assert_eq!(got.map_err(|refused| refused.cause), expected);
        if let Err(refused) = got {
            assert_eq!(refused.payload, payload);
        }
    }

    /// Compares one start; `None`: neither has one.
    fn start(&mut self, now_ns: u64, unpaced_until_ns: Option<u64>, egress: u8) -> bool {
        let limit_ns = unpaced_until_ns.unwrap_or(now_ns);
        let chosen = self
            .naive
            .iter()
            .enumerate()
            .filter_map(|(at, port)| Some((at, port.decision()?)))
            .filter(|(_, (instant, paced))| {
                ceil_ns(*instant) <= limit_ns && !(*paced && unpaced_until_ns.is_some())
            })
            .min_by_key(|(_, (instant, _))| ceil_ns(*instant));
        let got = match unpaced_until_ns {
            Some(until_ns) => self.tm.dequeue_unpaced(until_ns, now_ns),
            None => self.tm.dequeue(now_ns, now_ns),
        };
        let Some((at, (instant, _))) = chosen else {
            assert!(got.is_none(), "{got:?}");
            return false;
        };
        let got = got.expect("a start is due");
        let on_the_way = self.naive.iter().map(|p| p.on_the_way.len()).sum::<usize>();
        let room =
            self.naive[at].on_the_way.len() < 4 * (LIMITS.max_delay_line_packets - on_the_way);
        let port = &mut self.naive[at];
        let (packet, start) = port.start(now_ns);
        assert_eq!(got.port, port.number);
        assert_eq!(got.payload, packet.payload);
        assert_eq!(got.class, packet.hold.map(|hold| hold.class));
        assert_eq!(got.start_ns, ceil_ns(start));
        assert_eq!(got.scheduled_ns, ceil_ns(instant));
        assert_eq!(got.enqueued_ns, packet.arrival_ns);
        assert_eq!(got.departure_ns, packet.departure_ns());
        assert_eq!(got.length_bytes, packet.length_bytes);
        if egress.is_multiple_of(4) {
            self.tm.cancel(got.token, DropCause::EgressDrop);
        } else {
            let length_bytes = packet.length_bytes + u32::from(egress % 3) * 4;
            let (delivery_ns, payload) = port.transmit(start, length_bytes, packet.payload);
            let result = self.tm.transmit(got.token, length_bytes, payload);
            if room {
                port.last_delivery_ns = delivery_ns;
                port.on_the_way.push((delivery_ns, payload));
                assert_eq!(result, Ok(()));
            } else {
                let refused = result.expect_err("the delay line is full");
                assert_eq!(
                    (refused.cause, refused.payload),
                    (DropCause::DelayLineFull, payload)
                );
            }
        }
        true
    }

    fn deliver(&mut self) {
        loop {
            let due = self
                .naive
                .iter_mut()
                .filter(|port| port.on_the_way.first().is_some_and(|f| f.0 <= self.now_ns))
                .min_by_key(|port| port.on_the_way[0].0);
            let got = self.tm.deliver(self.now_ns, self.now_ns);
            let Some(port) = due else {
                assert_eq!(got, None);
                return;
            };
            let (delivery_ns, payload) = port.on_the_way.remove(0);
            let got = got.expect("a delivery is due");
            assert_eq!(
                (got.port, got.delivery_ns, got.frame),
                (port.number, delivery_ns, Frame::Packet(payload))
            );
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(ns) => self.now_ns += ns,
            Step::Enqueue {
                port,
                length_bytes,
                age_ns,
                hold,
            } => {
                let hold = hold.map(|(class, after_ns, cost_q24, allowance_ns)| Hold {
                    class,
                    counts_to: None,
                    departure_ns: self.now_ns.saturating_add_signed(after_ns),
                    cost_q24,
                    allowance_ns,
                });
                let arrival_ns = self.now_ns.saturating_sub(age_ns);
                self.enqueue(port, length_bytes, arrival_ns, hold);
            }
            Step::Start { late, egress } => {
                let mut egress = egress.into_iter().cycle();
                loop {
                    let now_ns = if late {
                        self.now_ns
                    } else {
                        self.now_ns.min(self.tm.next_dequeue_ns().unwrap_or(0))
                    };
                    if !self.start(now_ns, None, egress.next().unwrap_or(1)) {
                        break;
                    }
                }
            }
            Step::StartUnpaced { ago_ns } => {
                let until_ns = self.now_ns.saturating_sub(ago_ns);
                while self.start(self.now_ns, Some(until_ns), 1) {}
            }
            Step::Deliver => self.deliver(),
            Step::SetPort { port, config } => {
                let config = configs()[config];
                self.naive[port].config = config;
                let number = self.naive[port].number;
                assert_eq!(self.tm.set_port(number, config), Ok(()));
            }
            Step::Drain => {
                let mut got: Vec<u32> = self.tm.drain(DropCause::PipelineSwap).collect();
                got.sort_unstable();
                let mut expected: Vec<u32> = Vec::new();
                for port in &mut self.naive {
                    expected.extend(port.waiting.drain(..).map(|p| p.payload));
                    port.release_q24.clear();
                    if let Some(spaced) = &mut port.spaced_q24 {
                        spaced.clear();
                    }
                }
                expected.sort_unstable();
                assert_eq!(got, expected);
            }
        }
        self.compare();
    }

    /// Everything that can be read.
    fn compare(&self) {
        let next = self.naive.iter().filter_map(|port| port.decision());
        assert_eq!(
            self.tm.next_dequeue_ns(),
            next.map(|(instant, _)| ceil_ns(instant)).min()
        );
        let next = self.naive.iter().filter_map(|port| port.on_the_way.first());
        assert_eq!(self.tm.next_delivery_ns(), next.map(|f| f.0).min());
        for class in [0, 1, 2, 3, 1_000_000, 7] {
            let of_class = |p: &&Waiting| p.hold.is_some_and(|hold| hold.class == class);
            let all = self.naive.iter().flat_map(|port| &port.waiting);
            assert_eq!(
                self.tm.class_backlog_bytes(class),
                all.filter(of_class).map(Waiting::frame_bytes).sum::<u64>()
            );
            for port in &self.naive {
                let mine: Vec<_> = port.waiting.iter().filter(of_class).collect();
                let release = port.release_q24.get(&class).copied().unwrap_or(0);
                if let Some(queue) = self.tm.queue(port.number, class) {
                    assert_eq!(queue.packets as usize, mine.len());
                    assert_eq!(
                        queue.bytes,
                        mine.iter().map(|p| p.frame_bytes()).sum::<u64>()
                    );
                    assert_eq!(
                        queue.head_departure_ns,
                        mine.first().map(|p| p.departure_ns())
                    );
                    assert_eq!(
                        u128::from(queue.release_ns) << 24 | u128::from(queue.release_fraction),
                        release
                    );
                } else {
                    assert_eq!((mine.len(), release), (0, 0));
                }
            }
        }
        for port in &self.naive {
            let statistics = self.tm.port_statistics(port.number).expect("the port");
            let bytes = |paced: bool| -> u64 {
                let of_kind = port.waiting.iter().filter(|p| p.hold.is_some() == paced);
                of_kind.map(Waiting::frame_bytes).sum()
            };
            assert_eq!(statistics.fifo_bytes, bytes(false));
            assert_eq!(statistics.paced_bytes, bytes(true));
            assert_eq!(statistics.queued_packets, port.waiting.len() as u64);
            assert_eq!(statistics.delay_line_packets, port.on_the_way.len() as u64);
        }
        assert_eq!(self.tm.statistics().held_packets, self.held() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_naive_one_does(
        begin_ns in prop_oneof![Just(0u64), Just(1 << 55), 0..1_000_000_000u64],
        spaces_catch_up in any::<bool>(),
        steps in steps(),
    ) {
        let mut pair = Pair::new(begin_ns, spaces_catch_up);
        for step in steps {
            pair.step(step);
        }
        // Everything leaves in the end.
        while let Some(next_ns) = pair.tm.next_dequeue_ns() {
            pair.now_ns = pair.now_ns.max(next_ns);
            prop_assert!(pair.start(pair.now_ns, None, 1));
            pair.compare();
        }
        while let Some(next_ns) = pair.tm.next_delivery_ns() {
            pair.now_ns = pair.now_ns.max(next_ns);
            pair.deliver();
        }
        prop_assert_eq!(pair.held(), 0);
    }
}
