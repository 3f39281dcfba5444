//! Frames through a whole switch.

use captures::CaptureReader;
use switch::notification::Notification;
use switch::{CloneSession, Leaving, Program, Replica, Sink, Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};
use v1model::Engine;
use v1model::entries::{ActionCall, EntryKey, KeyField, MatchField, MatchKind};

/// Programs by the first byte of the input. New ones go at the end; otherwise the corpus changes its
/// meaning.
const PROGRAMS: [&str; 16] = [
    "../p4src/compiled/pacing_switch/pacer.json",
    "../p4src/compiled/pacing_switch/gtrcnet.json",
    "crates/v1model/tests/programs/arith.json",
    "crates/v1model/tests/programs/misc.json",
    "crates/v1model/tests/programs/flows.json",
    "crates/v1model/tests/programs/stacks.json",
    "crates/v1model/tests/programs/stackcopy.json",
    "crates/v1model/tests/programs/payload.json",
    "crates/v1model/tests/programs/endless.json",
    "crates/v1model/tests/programs/random.json",
    "crates/v1model/tests/programs/selector.json",
    "crates/v1model/tests/programs/digest.json",
    "crates/v1model/tests/programs/union.json",
    "crates/v1model/tests/programs/varbit.json",
    "crates/v1model/tests/programs/vset.json",
    "crates/v1model/tests/programs/queues.json",
];

/// Ports 0 to 3 and the controller's.
const PORTS: u16 = 4;
const CPU_PORT: u16 = 510;

/// Most events of an input, since a packet may recirculate for ever.
const EVENTS_MAX: usize = 2_000;

/// Keeps the frames that leave, with their ports and times, and checks their length.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sent {
    frames: Vec<(u16, u64, Vec<u8>)>,
}

impl Sink for Sent {
    fn transmit(&mut self, frame: &[u8], leaving: Leaving) {
        let Leaving {
            port, delivery_ns, ..
        } = leaving;
        assert!(port < PORTS, "sent to port {port}");
        assert!(frame.len() < 1 << 16, "sent {} bytes", frame.len());
        self.frames.push((port, delivery_ns, frame.to_vec()));
    }

    fn to_controller(&mut self, frame: &[u8]) {
        self.frames.push((CPU_PORT, 0, frame.to_vec()));
    }

    fn notify(&mut self, _notification: Notification) -> bool {
        true
    }
}

/// The first two bytes choose the program and its entries; then come frames: a byte for the
/// port, one for the time since the frame before (in 1,024 ns), two for the length.
pub fn packets(bytes: &[u8]) {
    let [machine, interpreter] = [Engine::Machine, Engine::Interpreter];
    let sent = packets_through(machine, bytes);
    assert_eq!(
        sent,
        packets_through(interpreter, bytes),
        "the engines differ"
    );
}

/// The frames that leave a switch with an engine, and the times that it sends them.
fn packets_through(engine: Engine, bytes: &[u8]) -> Option<Sent> {
    let [program, entries, frames @ ..] = bytes else {
        return None;
    };
    let mut run = Run::new(*program, *entries, frames.len() % 2 == 1, engine);
    let mut now_ns = 0;
    let mut rest = frames;
    while let [port, gap, low, high, later @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(later.len());
        let frame;
        (frame, rest) = later.split_at(length);
        now_ns += u64::from(*gap) << 10;
        run.receive(u16::from(*port), frame, now_ns);
    }
    run.finish();
    Some(run.sent)
}

/// The first two bytes choose the program and its entries; then comes a capture file, whose frames
/// come to port 0 at their times.
pub fn capture(bytes: &[u8]) {
    let [program, entries, file @ ..] = bytes else {
        return;
    };
    let Ok(mut capture) = CaptureReader::new(file, "capture".to_owned()) else {
        return;
    };
    let mut run = Run::new(*program, *entries, file.len() % 2 == 1, Engine::Auto);
    while let Ok(Some((at_ns, frame))) = capture.next_frame() {
        assert!(
            frame.len() <= file.len(),
            "a frame of {} bytes",
            frame.len()
        );
        if !run.events_until(at_ns) {
            return;
        }
        run.receive(0, &frame, at_ns);
    }
    run.finish();
}

/// A switch that frames come to.
struct Run {
    switch: Switch,
    sent: Sent,
    now_ns: u64,
    events: usize,
    traced: bool,
}

impl Run {
    /// A switch with the program and the entries that the bytes choose. `traced`: its packets are, and each comes after a
    /// dry run of it.
    fn new(program: u8, entries: u8, traced: bool, engine: Engine) -> Self {
        let mut switch = Switch::new(
            SwitchConfig {
                cpu_port: Some(CPU_PORT),
                max_packets: 256,
                engine,
                ..SwitchConfig::default()
            },
            Limits {
                max_held_packets: 64,
                max_delay_line_packets: 64,
                ..Limits::default()
            },
        );
        for port in 0..PORTS {
            let config = PortConfig {
                line_rate_bps: (port % 2 == 0).then_some(10_000_000),
                counts: RateCounts::Wire,
                fifo_bytes: 10_000,
                delay_ns: u64::from(port) * 1_000,
                // Port 0 has a line rate.
                gaps: match port {
                    0 => Gaps::PauseFrames {
                        longest_bytes: 1_514,
                    },
                    _ => Gaps::Accounted,
                },
            };
            switch.add_port(port, "port", config).expect("a new port");
        }
        let path = PROGRAMS[usize::from(program) % PROGRAMS.len()];
        switch
            .load(&crate::files::read(path))
            .expect("the project's own");
        let program = switch.program_mut().expect("it is loaded");
        fill(program, usize::from(entries));
        switch.set_tracing(traced);
        Self {
            switch,
            sent: Sent::default(),
            now_ns: 0,
            events: 0,
            traced,
        }
    }

    /// Handles the events that are due before a frame, then its arrival at a port.
    fn receive(&mut self, port: u16, frame: &[u8], at_ns: u64) {
        self.now_ns = at_ns;
        self.switch.poll(at_ns, &mut self.sent);
        if self.traced {
            let next_ns = self.switch.poll_at_ns();
            // It may be a PAUSE frame, or too long.
            let _ = self.switch.dry_run(port % PORTS, frame);
            assert_eq!(self.switch.poll_at_ns(), next_ns, "a dry run has an effect");
        }
        self.switch.receive(port % PORTS, frame, at_ns, at_ns);
        self.switch.poll(at_ns, &mut self.sent);
    }

    /// Goes from event to event until a time. False: there are too many.
    fn events_until(&mut self, until_ns: u64) -> bool {
        while let Some(next_ns) = self
            .switch
            .poll_at_ns()
            .filter(|next_ns| *next_ns < until_ns)
        {
            if self.events == EVENTS_MAX {
                return false;
            }
            self.events += 1;
            let now_ns = self.now_ns;
            assert!(next_ns >= now_ns, "{next_ns} ns is before {now_ns} ns");
            self.now_ns = next_ns;
            self.switch.poll(next_ns, &mut self.sent);
        }
        true
    }

    /// Goes from event to event until there is none, or there have been too many.
    fn finish(&mut self) {
        self.events = 0;
        self.events_until(u64::MAX);
        while let Some(trace) = self.switch.take_trace() {
            let (mut message, mut text) = (Vec::new(), Vec::new());
            trace.to_json(&mut text);
            assert!(text.ends_with(b"}"));
            packet_trace::to_delimited(&trace, &mut message);
            assert!(!message.is_empty());
            assert!(!packet_trace::to_lines(&trace).is_empty());
        }
    }
}

/// Groups 1 and 2, clone sessions 1 to 3, and in each table an entry that matches everything, or
/// zero, whose action is the `choice`th.
fn fill(program: &mut Program, choice: usize) {
    let replicas: Vec<Replica> = (0..u32::from(PORTS))
        .chain([CPU_PORT.into()])
        .map(|port| Replica { port, rid: 1 })
        .collect();
    for number in 1..4 {
        program
            .multicast_insert(number, replicas.clone())
            .expect("new");
        let session = CloneSession {
            replicas: replicas.clone(),
            packet_length_bytes: 20 * (number - 1),
            ..CloneSession::default()
        };
        program.clone_session_insert(number, session).expect("new");
    }
    let pipeline = program.pipeline_mut();
    for table in 0..pipeline.tables().len() {
        let Some(info) = pipeline.tables().get(table) else {
            continue;
        };
        let Some(&action) = info.actions.get(choice % info.actions.len().max(1)) else {
            continue;
        };
        let priorities = info.key.iter().any(|field| field.kind.needs_priority());
        let key = EntryKey {
            fields: info.key.iter().map(everything).collect(),
            priority: i32::from(priorities),
        };
        let parameters = pipeline.actions().get(action);
        let args = parameters.map_or_else(Vec::new, |action| {
            let values = action.params.iter().map(|(_, bits)| {
                let mut value = zeros(*bits);
                if let Some(last) = value.last_mut() {
                    *last = (choice % 2) as u8;
                }
                value
            });
            values.collect()
        });
        // Tables without a key or with constant entries refuse.
        let _ = pipeline.table_insert(table, &key, &ActionCall { action, args }.into());
    }
}

fn zeros(bits: u32) -> Box<[u8]> {
    vec![0; bits.div_ceil(8) as usize].into()
}

/// Matches everything, or zero where the kind has no such match.
fn everything(field: &KeyField) -> MatchField {
    let value = zeros(field.bits);
    match field.kind {
        MatchKind::Exact => MatchField::Exact(value),
        MatchKind::Lpm => MatchField::Lpm {
            value,
            prefix_bits: 0,
        },
        MatchKind::Ternary => MatchField::Ternary {
            mask: value.clone(),
            value,
        },
        MatchKind::Range => MatchField::Range {
            low: value.clone(),
            high: value,
        },
        MatchKind::Optional => MatchField::Optional(None),
    }
}
