//! A program reads egress queues and chooses one: the values and the queue, in virtual time and on both
//! engines: exact to the packet, the byte and the nanosecond.

mod common;

use common::{Sent, drops, small_program, with_slow_ports};
use port_settings::QueueSettings;
use switch::{Switch, SwitchConfig};
use traffic_manager::DropCause;
use v1model::Engine;

/// The port by which all packets leave.
const OUT: u16 = 1;

/// Time of a frame of 1,000 bytes at 100 Mbit/s.
const FRAME_NS: u64 = 80_320;

/// Such a frame in a queue.
const FRAME_BYTES: u32 = 1_004;

/// The arrival of the first frame.
const FIRST_NS: u64 = 1_000_000;

/// A packet's reading of a queue: bytes, packets, sojourn.
type Reading = (u32, u32, u64);

/// A switch with `queues.p4` and a port of 100 Mbit/s with `queues` egress queues; 0: with a FIFO. Its
/// program writes the number of the packet's queue in place of `deq_timedelta`.
fn switch(engine: Engine, queues: usize) -> Switch {
    let config = SwitchConfig {
        engine,
        ..SwitchConfig::default()
    };
    let mut switch = with_slow_ports(config, None);
    let settings = (queues > 0).then(|| QueueSettings::strict(queues));
    switch.set_queues(OUT, settings).expect("in range");
    let program = String::from_utf8(small_program("queues")).expect("text");
    let (before, after) = ("queueing_metadata.deq_timedelta", "queueing_metadata.qid");
    assert_eq!(program.matches(before).count(), 1);
    let program = program.replace(before, after);
    switch.load(program.as_bytes()).expect("it loads");
    switch
}

/// A frame that comes `after_ns` after the first one, chooses a queue, and reads another one.
#[derive(Clone, Copy)]
struct Packet {
    after_ns: u64,
    choice: Option<u8>,
    priority: u8,
    reads: (u16, u8),
}

impl Packet {
    /// It chooses and reads the same queue of the port.
    fn in_queue(queue: u8, after_ns: u64) -> Self {
        Self {
            after_ns,
            choice: Some(queue),
            priority: 0,
            reads: (OUT, queue),
        }
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0xff; 1_000];
        frame[0] = u8::from(self.choice.is_some()) << 7 | self.priority;
        frame[1] = self.choice.unwrap_or(0);
        frame[2..4].copy_from_slice(&self.reads.0.to_be_bytes());
        frame[4] = self.reads.1;
        frame
    }
}

/// A packet that left.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    start_ns: u64,
    queue: u32,
    ingress: Reading,
    egress: Reading,
}

/// Sends packets through; returns those that left, in order.
fn run(switch: &mut Switch, packets: &[Packet]) -> Vec<Left> {
    let mut sent = Sent::default();
    for packet in packets {
        let now_ns = FIRST_NS + packet.after_ns;
        while let Some(at_ns) = switch.poll_at_ns().filter(|at_ns| *at_ns <= now_ns) {
            switch.poll(at_ns, &mut sent);
        }
        switch.receive(2, &packet.frame(), now_ns, now_ns);
    }
    while let Some(at_ns) = switch.poll_at_ns() {
        switch.poll(at_ns, &mut sent);
    }
    let left = sent.frames.iter().map(|(_, start_ns, frame)| {
        let word = |at| u32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes"));
        let reading = |at: usize| {
            let sojourn = frame[at + 8..at + 16].try_into().expect("8 bytes");
            (word(at), word(at + 4), u64::from_be_bytes(sojourn))
        };
        Left {
            start_ns: start_ns - FIRST_NS,
            queue: word(37),
            ingress: reading(5),
            egress: reading(21),
        }
    });
    left.collect()
}

fn engines(queues: usize) -> [Switch; 2] {
    [Engine::Machine, Engine::Interpreter].map(|engine| switch(engine, queues))
}

/// Five packets come a microsecond apart, on a port with 64 queues and on one with a FIFO.
#[test]
fn depth_and_sojourn_are_those_of_the_instant() {
    for (queues, queue) in [(64, 40), (0, 0)] {
        for mut switch in engines(queues) {
            let packets: Vec<Packet> = (0..5)
                .map(|number| Packet::in_queue(queue, 1_000 * number))
                .collect();
            let left = run(&mut switch, &packets);
            let waiting = |packets: u32, sojourn_ns| (packets * FRAME_BYTES, packets, sojourn_ns);
            // The first one leaves at once. Behind it, the head is the second, which came at 1,000 ns.
            let ingress = [
                waiting(0, 0),
                waiting(0, 0),
                waiting(1, 1_000),
                waiting(2, 2_000),
                waiting(3, 3_000),
            ];
            // When a packet leaves, the head is the one behind it.
            let egress = [
                waiting(0, 0),
                waiting(3, FRAME_NS - 2_000),
                waiting(2, 2 * FRAME_NS - 3_000),
                waiting(1, 3 * FRAME_NS - 4_000),
                waiting(0, 0),
            ];
            let expected = (0..).zip(ingress).zip(egress);
            let expected = expected.map(|((number, ingress), egress)| Left {
                start_ns: number * FRAME_NS,
                queue: queue.into(),
                ingress,
                egress,
            });
            assert_eq!(left, expected.collect::<Vec<_>>());
        }
    }
}

/// At the same instant, starts come before arrivals.
#[test]
fn a_packet_that_comes_as_another_one_starts_does_not_count_it() {
    for mut switch in engines(16) {
        let arrivals = [0, 1_000, FRAME_NS - 1, FRAME_NS];
        let left = run(
            &mut switch,
            &arrivals.map(|at_ns| Packet::in_queue(9, at_ns)),
        );
        let read: Vec<Reading> = left.iter().map(|left| left.ingress).collect();
        let second = (FRAME_BYTES, 1, FRAME_NS - 1 - 1_000);
        let third = (FRAME_BYTES, 1, 1);
        assert_eq!(read, [(0, 0, 0), (0, 0, 0), second, third]);
    }
}

/// Each queue that a port may have can be chosen and read; the priority counts where none is chosen.
#[test]
fn every_queue_can_be_chosen() {
    for mut switch in engines(64) {
        let packets: Vec<Packet> = (0..64)
            .map(|queue| Packet::in_queue(queue, u64::from(queue)))
            .chain([Packet {
                after_ns: 64,
                choice: None,
                priority: 5,
                reads: (OUT, 63),
            }])
            .collect();
        let left = run(&mut switch, &packets);
        let queues: Vec<u32> = left.iter().map(|left| left.queue).collect();
        // Queue 0 has the line when the others come; strict priority serves the highest first.
        let expected = std::iter::once(0)
            .chain((6..64).rev())
            .chain([5, 5, 4, 3, 2, 1]);
        assert_eq!(queues, expected.collect::<Vec<_>>());
        let unchosen = left.iter().find(|left| left.ingress.1 == 1);
        assert_eq!(unchosen.map(|left| left.queue), Some(5), "queue 63 had one");
    }
}

#[test]
fn what_does_not_exist_reads_zeros_and_is_not_chosen() {
    for mut switch in engines(16) {
        let reads = [(OUT, 16), (OUT, 255), (3, 0), (511, 0), (2, 1)];
        let packets = reads.map(|reads| Packet {
            reads,
            ..Packet::in_queue(15, 0)
        });
        let left = run(&mut switch, &packets);
        assert_eq!(left.len(), reads.len());
        for left in left {
            assert_eq!((left.ingress, left.egress), ((0, 0, 0), (0, 0, 0)));
        }
        let later = [16, 64, 255].map(|queue| Packet::in_queue(queue, 10 * FRAME_NS));
        assert!(run(&mut switch, &later).is_empty());
        assert_eq!(drops(&switch, OUT, DropCause::NoSuchQueue), 3);
    }
}
