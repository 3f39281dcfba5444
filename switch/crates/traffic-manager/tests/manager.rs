//! Limits, refusals, ports at run time, statistics: the parts that vectors and model do not cover.

use traffic_manager::hold::Hold;
use traffic_manager::{
    Dequeued, DropCause, Frame, Gaps, HeaderFields, Limits, PortConfig, PortError, Queued,
    RateCounts, Refused, TrafficManager,
};

const CONFIG: PortConfig = PortConfig {
    line_rate_bps: Some(1_000_000_000),
    counts: RateCounts::Wire,
    fifo_bytes: 65_536,
    delay_ns: 0,
    gaps: Gaps::Accounted,
};

const SMALL: Limits = Limits {
    max_ports: 2,
    // Three in one queue, the next ones in others.
    max_held_packets: 5,
    max_delay_line_packets: 2,
    max_classes: 1_000,
    max_queues: 128,
    buffer_bytes: None,
};

fn manager(limits: Limits) -> TrafficManager<u32> {
    let mut tm = TrafficManager::new(limits);
    tm.add_port(1, CONFIG).expect("a new port");
    tm
}

fn unpaced(payload: u32, arrival_ns: u64) -> Queued<u32> {
    Queued {
        queue: 0,
        header: HeaderFields::default(),
        payload,
        length_bytes: 1514,
        arrival_ns,
        hold: None,
    }
}

fn paced(payload: u32, class: u32, departure_ns: u64) -> Queued<u32> {
    Queued {
        hold: Some(Hold {
            class,
            counts_to: None,
            departure_ns,
            cost_q24: 24_288 << 24,
            allowance_ns: 0,
        }),
        ..unpaced(payload, 0)
    }
}

fn transmit(tm: &mut TrafficManager<u32>, start: Dequeued<u32>) -> Result<(), Refused<u32>> {
    tm.transmit(start.token, start.length_bytes, start.payload)
}

fn refusal(cause: DropCause, payload: u32) -> Result<(), Refused<u32>> {
    Err(Refused { cause, payload })
}

#[test]
fn ports_are_checked() {
    let mut tm = manager(SMALL);
    let slow = PortConfig {
        line_rate_bps: Some(7_999),
        ..CONFIG
    };
    assert_eq!(tm.add_port(1, CONFIG), Err(PortError::Exists(1)));
    assert_eq!(tm.add_port(2, slow), Err(PortError::LineRate(7_999)));
    assert_eq!(tm.set_port(1, slow), Err(PortError::LineRate(7_999)));
    assert_eq!(tm.port_config(1), Some(&CONFIG));
    assert_eq!(tm.set_port(2, CONFIG), Err(PortError::NoSuchPort(2)));
    assert_eq!(tm.set_port_up(2, true), Err(PortError::NoSuchPort(2)));
    assert_eq!(tm.remove_port(2), Err(PortError::NoSuchPort(2)));
    assert_eq!(tm.add_port(0, CONFIG), Ok(()));
    assert_eq!(tm.add_port(7, CONFIG), Err(PortError::TooManyPorts(2)));
    assert_eq!(tm.ports().map(|p| p.0).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn refusals_give_the_payload_back_and_are_counted() {
    let mut tm = manager(SMALL);
    assert_eq!(
        tm.enqueue(9, unpaced(1, 0)),
        refusal(DropCause::NoSuchPort, 1)
    );
    assert_eq!(
        tm.enqueue(1, paced(2, 1_000, 0)),
        refusal(DropCause::HoldLimit, 2)
    );
    tm.set_port_up(1, false).expect("the port");
    assert_eq!(
        tm.enqueue(1, unpaced(3, 0)),
        refusal(DropCause::PortDown, 3)
    );
    tm.set_port_up(1, true).expect("the port");
    for payload in 10..13 {
        assert_eq!(tm.enqueue(1, unpaced(payload, 0)), Ok(()));
    }
    assert_eq!(
        tm.enqueue(1, unpaced(4, 0)),
        refusal(DropCause::HoldLimit, 4)
    );
    tm.count_drop(1, DropCause::ParserError);
    tm.count_drop(8, DropCause::RxRingFull);

    let statistics = tm.statistics();
    assert_eq!(
        (statistics.held_packets, statistics.held_packets_max),
        (3, 3)
    );
    assert_eq!(statistics.drops.get(DropCause::NoSuchPort), 1);
    assert_eq!(statistics.drops.get(DropCause::RxRingFull), 1);
    assert_eq!(statistics.drops.total(), 2);
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.drops.get(DropCause::HoldLimit), 2);
    assert_eq!(port.drops.get(DropCause::PortDown), 1);
    assert_eq!(port.drops.get(DropCause::ParserError), 1);
}

#[test]
fn packets_wait_while_the_line_is_held() {
    let mut tm = manager(Limits::default());
    let at_once = PortConfig {
        line_rate_bps: None,
        fifo_bytes: 2 * 1518,
        ..CONFIG
    };
    tm.set_port(1, at_once).expect("the port");
    let unknown = tm.limit_starts(2, Some(0), 0);
    assert_eq!(unknown, Err(PortError::NoSuchPort(2)));
    tm.limit_starts(1, Some(0), 0).expect("the port");
    tm.enqueue(1, unpaced(1, 10)).expect("there is room");
    tm.enqueue(1, paced(2, 7, 20)).expect("there is room");
    assert_eq!(tm.next_dequeue_ns(), None);
    assert!(tm.dequeue(1_000, 1_000).is_none());
    assert!(tm.dequeue_unpaced(1_000, 1_000).is_none());
    tm.enqueue(1, unpaced(3, 30)).expect("there is room");
    // Beyond the FIFO's limit.
    assert_eq!(
        tm.enqueue(1, unpaced(4, 40)),
        refusal(DropCause::FifoFull, 4)
    );
    tm.limit_starts(1, Some(2), 5_000).expect("the port");
    assert_eq!(tm.next_dequeue_ns(), Some(5_000));
    // The paced packet goes first, and none starts before the line was free.
    let starts = |tm: &mut TrafficManager<u32>, payload, now_ns| {
        let start = tm.dequeue(now_ns, now_ns).expect("it waited");
        assert_eq!((start.payload, start.start_ns), (payload, now_ns));
        transmit(tm, start).expect("there is room");
    };
    starts(&mut tm, 2, 5_000);
    starts(&mut tm, 1, 5_000);
    assert_eq!(tm.next_dequeue_ns(), None);
    tm.limit_starts(1, None, 9_000).expect("the port");
    starts(&mut tm, 3, 9_000);
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.queued_packets, 0);
    assert_eq!(port.unpaced_lateness.max_ns(), 0);
}

/// Queues that are flooded share the memory, and never have all of it: a class without a limit
/// of its own, a FIFO of any size.
#[test]
fn flooded_queues_leave_room_for_the_others() {
    let mut tm = manager(Limits {
        max_held_packets: 90,
        ..Limits::default()
    });
    let endless = PortConfig {
        fifo_bytes: u64::MAX / 2,
        ..CONFIG
    };
    tm.set_port(1, endless).expect("the port");
    tm.add_port(2, endless).expect("a new port");
    let far_ns = 1_000_000_000;
    let flood = |tm: &mut TrafficManager<u32>, port, packet| {
        let taken = (0..200).take_while(|_| tm.enqueue(port, packet) == Ok(()));
        taken.count()
    };
    // Alone, a queue gets half.
    assert_eq!(flood(&mut tm, 1, paced(0, 7, far_ns)), 45);
    assert_eq!(
        tm.enqueue(1, paced(0, 7, far_ns)),
        refusal(DropCause::HoldLimit, 0)
    );
    // The same port's FIFO, another port, another class: all have room, flooded or not.
    assert_eq!(flood(&mut tm, 1, unpaced(1, far_ns)), 23);
    assert_eq!(tm.enqueue(2, unpaced(2, far_ns)), Ok(()));
    assert_eq!(tm.enqueue(1, paced(3, 8, far_ns)), Ok(()));
    assert_eq!(flood(&mut tm, 2, paced(4, 7, far_ns)), 10);
    assert_eq!(tm.enqueue(1, paced(5, 9, far_ns)), Ok(()));
    let held = |class| tm.queue(1, class).map(|queue| queue.packets);
    assert_eq!((held(7), held(8), held(9)), (Some(45), Some(1), Some(1)));
    assert_eq!(tm.statistics().held_packets, 45 + 23 + 1 + 1 + 10 + 1);
    // A packet that leaves makes room again.
    let start = tm.dequeue(far_ns, far_ns).expect("due");
    assert_eq!(start.class, Some(7));
    transmit(&mut tm, start).expect("room");
    assert_eq!(tm.enqueue(2, unpaced(6, far_ns)), Ok(()));
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 81);
    assert_eq!(flood(&mut tm, 1, unpaced(1, far_ns)), 45);
}

#[test]
fn the_delay_line_is_bounded_and_keeps_its_order() {
    let mut tm = manager(SMALL);
    let far = PortConfig {
        delay_ns: 1_000_000,
        ..CONFIG
    };
    tm.set_port(1, far).expect("the port");
    for payload in 0..3 {
        tm.enqueue(1, unpaced(payload, 0)).expect("room");
    }
    let start = tm.dequeue(0, 0).expect("due");
    assert_eq!(transmit(&mut tm, start), Ok(()));
    // The delay shrinks while a frame is on its way: the next one does not overtake it.
    tm.set_port(1, CONFIG).expect("the port");
    let start = tm.dequeue(12_304, 12_304).expect("due");
    assert_eq!(transmit(&mut tm, start), Ok(()));
    let start = tm.dequeue(24_608, 24_608).expect("due");
    assert_eq!(
        transmit(&mut tm, start),
        refusal(DropCause::DelayLineFull, 2)
    );
    assert_eq!(tm.next_delivery_ns(), Some(1_000_000));
    assert!(tm.deliver(999_999, 999_999).is_none());
    let delivered: Vec<_> = std::iter::from_fn(|| tm.deliver(1_000_000, 1_000_000))
        .map(|d| (d.frame, d.delivery_ns))
        .collect();
    assert_eq!(
        delivered,
        [(Frame::Packet(0), 1_000_000), (Frame::Packet(1), 1_000_000)]
    );
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(
        (port.delay_line_packets, port.delay_line_packets_max),
        (0, 2)
    );
    assert_eq!((port.tx_packets, port.tx_bytes), (3, 3 * 1518));
    assert_eq!(port.tx_line_bytes, 3 * 1538);
}

/// A long path whose frames are many leaves room for those of other ports.
#[test]
fn flooded_delay_lines_leave_room_for_the_others() {
    let mut tm = manager(Limits {
        max_delay_line_packets: 90,
        ..Limits::default()
    });
    for port in 1..=3 {
        let far = PortConfig {
            line_rate_bps: None,
            delay_ns: 1_000_000_000,
            ..CONFIG
        };
        if port > 1 {
            tm.add_port(port, far).expect("a new port");
        }
        tm.set_port(port, far).expect("the port");
    }
    let mut send = |port, packets: u64| {
        (0..packets)
            .filter(|_| {
                tm.enqueue(port, unpaced(0, 0)).expect("room");
                let start = tm.dequeue(0, 0).expect("due");
                transmit(&mut tm, start).is_ok()
            })
            .count()
    };
    assert_eq!(send(1, 100), 72);
    assert_eq!(send(2, 100), 15);
    assert_eq!(send(3, 2), 2);
    let drops = |port| {
        let statistics = tm.port_statistics(port).expect("the port");
        statistics.drops.get(DropCause::DelayLineFull)
    };
    assert_eq!((drops(1), drops(2), drops(3)), (28, 85, 0));
}

/// A class that leaves by two ports has a queue on each, and its backlog is the sum of both.
#[test]
fn a_class_on_several_ports_has_a_backlog_and_clocks_of_its_own() {
    let mut tm = manager(Limits::default());
    tm.add_port(2, CONFIG).expect("a new port");
    for port in [1, 2, 2] {
        tm.enqueue(port, paced(u32::from(port), 7, 50))
            .expect("room");
    }
    let packets = |tm: &TrafficManager<u32>, port| tm.queue(port, 7).map(|queue| queue.packets);
    assert_eq!((packets(&tm, 1), packets(&tm, 2)), (Some(1), Some(2)));
    assert_eq!(tm.class_backlog_bytes(7), 3 * 1518);
    for (port, left) in [(1, 2), (2, 1)] {
        let start = tm.dequeue(50, 50).expect("due");
        assert_eq!(start.port, port);
        transmit(&mut tm, start).expect("room");
        assert_eq!(tm.class_backlog_bytes(7), left * 1518);
    }
    let clock = tm.queue(2, 7).map(|queue| queue.release_ns);
    assert_eq!(clock, Some(50 + 24_288));
    // Without the port that had it first the class goes on.
    assert_eq!(tm.remove_port(1), Ok(vec![1]));
    tm.enqueue(2, paced(3, 7, 50)).expect("room");
    assert_eq!(tm.class_backlog_bytes(7), 2 * 1518);
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 2);
    assert_eq!(tm.class_backlog_bytes(7), 0);
    assert_eq!(tm.statistics().queues, 0);
}

/// A flow's queue, which has a number of its own, counts to the flow's class.
#[test]
fn queues_of_flows_count_to_their_class() {
    let mut tm = manager(Limits::default());
    tm.add_port(2, CONFIG).expect("a new port");
    let of_flow = |payload, queue, class| {
        let mut packet = paced(payload, queue, 50);
        if let Some(hold) = &mut packet.hold {
            hold.counts_to = Some(class);
        }
        packet
    };
    let held = |tm: &TrafficManager<u32>, class| {
        let held = tm.class_held(class);
        (held.packets, held.bytes)
    };
    // Queues 500 and 501 are of flows of class 7, which has a packet in its own queue, too.
    for (port, payload, queue) in [(1, 0, 500), (2, 1, 500), (1, 2, 501), (1, 3, 7)] {
        tm.enqueue(port, of_flow(payload, queue, 7)).expect("room");
    }
    assert_eq!(held(&tm, 7), (4, 4 * 1518));
    assert_eq!(held(&tm, 500), (2, 2 * 1518));
    assert_eq!(tm.class_backlog_bytes(7), 1518);
    // The flow of queue 500 becomes one of class 8: all that it holds is that class's.
    tm.enqueue(1, of_flow(4, 500, 8)).expect("room");
    assert_eq!((held(&tm, 7), held(&tm, 8)), ((2, 2 * 1518), (3, 3 * 1518)));
    // A packet that names no class counts where its queue does.
    tm.enqueue(1, paced(5, 500, 50)).expect("room");
    assert_eq!(held(&tm, 8), (4, 4 * 1518));

    assert_eq!(tm.remove_port(2), Ok(vec![1]));
    assert_eq!(held(&tm, 8), (3, 3 * 1518));
    let start = tm.dequeue(50, 50).expect("due");
    assert_eq!(start.payload, 0);
    transmit(&mut tm, start).expect("room");
    assert_eq!((held(&tm, 7), held(&tm, 8)), ((2, 2 * 1518), (2, 2 * 1518)));
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 4);
    assert_eq!((held(&tm, 7), held(&tm, 8)), ((0, 0), (0, 0)));
    tm.enqueue(1, of_flow(6, 500, 8)).expect("room");
    assert_eq!((held(&tm, 7), held(&tm, 8)), ((0, 0), (1, 1518)));

    let refused = tm.enqueue(1, of_flow(7, 500, u32::MAX));
    assert_eq!(refused, refusal(DropCause::HoldLimit, 7));
}

#[test]
fn a_port_starts_nothing_while_it_waits_for_egress() {
    let mut tm = manager(SMALL);
    tm.add_port(2, CONFIG).expect("a new port");
    tm.enqueue(1, unpaced(0, 5)).expect("room");
    tm.enqueue(1, unpaced(1, 5)).expect("room");
    tm.enqueue(2, unpaced(2, 5)).expect("room");
    let first = tm.dequeue(5, 5).expect("due");
    assert_eq!((first.port, first.payload), (1, 0));
    let other = tm.dequeue(5, 5).expect("due on the other port");
    assert_eq!((other.port, other.payload), (2, 2));
    assert!(tm.dequeue(u64::MAX, u64::MAX).is_none());
    assert_eq!(tm.next_dequeue_ns(), None);
    // Dropped by egress: no line time, the next one starts at the same instant.
    assert_eq!(first.token.port(), 1);
    tm.cancel(first.token, DropCause::EgressDrop);
    let second = tm.dequeue(5, 5).expect("due");
    assert_eq!((second.payload, second.start_ns), (1, 5));
    assert_eq!(transmit(&mut tm, second), Ok(()));
    assert_eq!(transmit(&mut tm, other), Ok(()));
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.drops.get(DropCause::EgressDrop), 1);
    assert_eq!(port.tx_packets, 1);
}

#[test]
fn a_removed_port_returns_everything_and_voids_its_token() {
    let mut tm = manager(Limits::default());
    tm.add_port(2, CONFIG).expect("a new port");
    for payload in 0..2 {
        tm.enqueue(1, unpaced(payload, 0)).expect("room");
    }
    tm.enqueue(1, paced(2, 77, 50_000)).expect("room");
    tm.enqueue(2, paced(3, 77, 50_000)).expect("room");
    let sent = tm.dequeue(0, 0).expect("due");
    transmit(&mut tm, sent).expect("room");
    let pending = tm.dequeue(12_304, 12_304).expect("due");
    assert_eq!(tm.class_backlog_bytes(77), 2 * 1518);

    let mut returned = tm.remove_port(1).expect("the port");
    returned.sort_unstable();
    assert_eq!(returned, [0, 2]);
    assert_eq!(tm.class_backlog_bytes(77), 1518);
    assert_eq!(tm.statistics().delay_line_packets, 0);
    // The same number again is another port.
    tm.add_port(1, CONFIG).expect("a new port");
    assert_eq!(transmit(&mut tm, pending), refusal(DropCause::PortDown, 1));
    assert_eq!(tm.statistics().drops.get(DropCause::PortDown), 3);
    assert_eq!(tm.next_dequeue_ns(), Some(50_000));
    assert_eq!(tm.next_delivery_ns(), None);
}

#[test]
fn drained_packets_are_counted_and_frames_on_their_way_stay() {
    let mut tm = manager(Limits::default());
    for payload in 0..2 {
        tm.enqueue(1, unpaced(payload, 0)).expect("room");
    }
    for payload in 2..4 {
        tm.enqueue(1, paced(payload, 5, 0)).expect("room");
    }
    let start = tm.dequeue(0, 0).expect("due");
    assert_eq!(start.payload, 2);
    transmit(&mut tm, start).expect("room");
    assert_eq!(
        tm.drain(DropCause::PipelineSwap).collect::<Vec<_>>(),
        [0, 1, 3]
    );
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.drops.get(DropCause::PipelineSwap), 3);
    assert_eq!(
        (port.queued_packets, port.fifo_bytes, port.paced_bytes),
        (0, 0, 0)
    );
    assert_eq!(tm.class_backlog_bytes(5), 0);
    assert_eq!(tm.next_dequeue_ns(), None);
    assert_eq!(tm.deliver(0, 0).map(|d| d.frame), Some(Frame::Packet(2)));
    // R is forgotten, the line is not.
    tm.enqueue(1, paced(9, 5, 0)).expect("room");
    assert_eq!(tm.next_dequeue_ns(), Some(12_304));
}

#[test]
fn lateness_is_measured_for_each_kind() {
    let mut tm = manager(Limits::default());
    tm.enqueue(1, paced(0, 5, 1_000)).expect("room");
    let start = tm.dequeue(6_000, 6_000).expect("due");
    assert_eq!((start.scheduled_ns, start.start_ns), (1_000, 6_000));
    transmit(&mut tm, start).expect("room");
    tm.enqueue(1, unpaced(1, 7_000)).expect("room");
    let start = tm.dequeue_unpaced(18_304, 20_000).expect("due");
    assert_eq!((start.scheduled_ns, start.start_ns), (18_304, 18_304));
    transmit(&mut tm, start).expect("room");
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.paced_lateness.max_ns(), 5_000);
    assert_eq!(port.paced_lateness.buckets()[13], 1);
    assert_eq!(port.unpaced_lateness.max_ns(), 1_696);
    assert_eq!(port.unpaced_lateness.count(), 1);
}

/// The starts of packets if the first poll is late, at `late_ns`, and the others are on time.
fn starts(tm: &mut TrafficManager<u32>, late_ns: u64) -> Vec<u64> {
    let mut started = Vec::new();
    while let Some(next_ns) = tm.next_dequeue_ns() {
        let start = tm
            .dequeue(next_ns.max(late_ns), next_ns.max(late_ns))
            .expect("due");
        started.push(start.start_ns);
        transmit(tm, start).expect("room");
    }
    started
}

/// Class 5 with ten packets, 24,288 ns each, due from 0 on; one packet's time is made up.
fn backlogged_class() -> TrafficManager<u32> {
    let mut tm = manager(Limits::default());
    for number in 0..10 {
        let mut packet = paced(number, 5, u64::from(number) * 24_288);
        if let Some(hold) = &mut packet.hold {
            hold.allowance_ns = 24_288;
        }
        tm.enqueue(1, packet).expect("room");
    }
    tm
}

#[test]
fn a_late_class_catches_up_with_spaced_packets() {
    let mut tm = backlogged_class();
    tm.space_catch_up();
    let started = starts(&mut tm, 20_000);
    // 20 us late, 3,036 ns of which each packet gains: after seven it is back.
    let gaps: Vec<u64> = started.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        gaps.iter().all(|ns| (21_252..=24_288).contains(ns)),
        "{gaps:?}"
    );
    assert_eq!(started.last(), Some(&218_592));
}

#[test]
fn what_is_late_beyond_the_allowance_stays_so_when_spaced() {
    let mut tm = backlogged_class();
    tm.space_catch_up();
    let started = starts(&mut tm, 124_288);
    // 100 us of the 124,288 ns are lost.
    assert_eq!(started.last(), Some(&(218_592 + 100_000)));
}

#[test]
fn polls_that_are_always_late_cost_a_spaced_class_no_rate() {
    let mut tm = backlogged_class();
    tm.space_catch_up();
    let mut started = Vec::new();
    while let Some(next_ns) = tm.next_dequeue_ns() {
        let start = tm.dequeue(next_ns + 5_000, next_ns + 5_000).expect("due");
        started.push(start.start_ns);
        transmit(&mut tm, start).expect("room");
    }
    // The last is due at 218,592; with 5 us added to each gap it would go after 236,268.
    let late_ns: Vec<u64> = (0..).zip(&started).map(|(i, ns)| ns - i * 24_288).collect();
    assert!(late_ns.iter().all(|ns| *ns < 8_036), "{late_ns:?}");
}

/// Port 2 without a line rate, whose classes catch up with spaced packets.
fn spaced_port() -> TrafficManager<u32> {
    let mut tm = manager(Limits::default());
    tm.space_catch_up();
    let no_line = PortConfig {
        line_rate_bps: None,
        ..CONFIG
    };
    tm.add_port(2, no_line).expect("a new port");
    tm
}

/// A packet of class 5, of which three leave each 72,864 ns.
fn in_quantum(number: u32) -> Queued<u32> {
    let mut packet = paced(number, 5, 1_000_000 + u64::from(number / 3) * 72_864);
    if let Some(hold) = &mut packet.hold {
        hold.allowance_ns = 72_864 + 24_288;
    }
    packet
}

/// Sends all packets that are due at `now_ns`, and notes their starts.
fn send_due(tm: &mut TrafficManager<u32>, now_ns: u64, started: &mut Vec<u64>) {
    while let Some(start) = tm.dequeue(now_ns, now_ns) {
        started.push(start.start_ns);
        transmit(tm, start).expect("room");
    }
}

/// Whether the packets of each quantum started together.
fn leave_together(started: &[u64]) -> bool {
    started.chunks(3).all(|quantum| quantum[0] == quantum[2])
}

#[test]
fn packets_of_a_quantum_leave_together_however_late() {
    let mut tm = spaced_port();
    for number in 0..9 {
        tm.enqueue(2, in_quantum(number)).expect("room");
    }
    let mut started = Vec::new();
    while let Some(next_ns) = tm.next_dequeue_ns() {
        send_due(&mut tm, next_ns + 20_000, &mut started);
    }
    assert!(
        leave_together(&started) && started.len() == 9,
        "{started:?}"
    );
}

#[test]
fn packets_of_a_quantum_leave_together_when_each_finds_its_queue_empty() {
    let mut tm = spaced_port();
    let mut started = Vec::new();
    for number in 0..9 {
        let packet = in_quantum(number);
        // The poll is 20 us late for the first of a quantum, and takes the others as they come.
        let now_ns = packet.hold.expect("paced").departure_ns + 20_000;
        tm.enqueue(2, packet).expect("room");
        send_due(&mut tm, now_ns, &mut started);
    }
    assert!(
        leave_together(&started) && started.len() == 9,
        "{started:?}"
    );
}

#[test]
fn a_packet_with_another_departure_is_spaced_from_one_that_left_an_empty_queue() {
    let mut tm = spaced_port();
    let mut allowed = |number: u32, departure_ns: u64| {
        let mut packet = paced(number, 5, departure_ns);
        if let Some(hold) = &mut packet.hold {
            hold.allowance_ns = 100_000;
        }
        tm.enqueue(2, packet).expect("room");
        let now_ns = tm.next_dequeue_ns().expect("queued").max(1_020_000);
        let start = tm.dequeue(now_ns, now_ns).expect("due");
        let start_ns = start.start_ns;
        transmit(&mut tm, start).expect("room");
        start_ns
    };
    assert_eq!(allowed(0, 1_000_000), 1_020_000);
    // It gains an eighth of the 24,288 ns of a packet.
    assert_eq!(allowed(1, 1_000_001), 1_041_252);
}

#[test]
fn unless_asked_a_late_class_catches_up_at_once() {
    let mut tm = backlogged_class();
    let started = starts(&mut tm, 20_000);
    // The second waits for the line only.
    assert_eq!(started[..3], [20_000, 32_304, 48_576]);
}

#[test]
fn gaps_are_measured_from_the_end_of_a_frame_to_the_start_of_the_next() {
    // 1,538 bytes on the wire at 1 Gbit/s.
    const FRAME_NS: u64 = 12_304;
    let mut tm = manager(Limits::default());
    let mut departure_ns = 0;
    for (class, gap_ns) in [(1, 5_000), (2, 0), (3, 1), (4, 1_000), (5, 1_024)] {
        departure_ns += gap_ns;
        tm.enqueue(1, paced(0, class, departure_ns)).expect("room");
        let start = tm.dequeue(departure_ns, departure_ns).expect("due");
        assert_eq!(start.start_ns, departure_ns);
        transmit(&mut tm, start).expect("room");
        departure_ns += FRAME_NS;
    }
    // A packet that egress drops takes no time of the line, and ends no gap.
    tm.enqueue(1, unpaced(0, departure_ns)).expect("room");
    let start = tm.dequeue(departure_ns, departure_ns).expect("due");
    tm.cancel(start.token, DropCause::EgressDrop);
    tm.enqueue(1, unpaced(0, departure_ns + 100)).expect("room");
    let start = tm
        .dequeue(departure_ns + 100, departure_ns + 100)
        .expect("due");
    transmit(&mut tm, start).expect("room");
    let gaps = &tm.port_statistics(1).expect("the port").gaps;
    assert_eq!((gaps.count(), gaps.max_ns()), (5, 1_024));
    assert_eq!(gaps.buckets()[0..2], [1, 1]);
    assert_eq!(
        (gaps.buckets()[7], gaps.buckets()[10], gaps.buckets()[11]),
        (1, 1, 1)
    );
}

#[test]
fn unpaced_polls_release_no_paced_packet_and_nothing_behind_one() {
    let mut tm = manager(Limits::default());
    tm.enqueue(1, paced(0, 5, 100)).expect("room");
    tm.enqueue(1, unpaced(1, 200)).expect("room");
    assert!(tm.dequeue_unpaced(1_000, 1_000).is_none());
    let start = tm.dequeue(1_000, 1_000).expect("due");
    assert_eq!((start.payload, start.start_ns), (0, 1_000));
    transmit(&mut tm, start).expect("room");
    assert_eq!(tm.next_dequeue_ns(), Some(13_304));
}

#[test]
fn idle_queues_are_forgotten_when_memory_is_needed_and_their_clock_has_passed() {
    let mut tm = manager(SMALL);
    let mut now_ns = 0;
    for class in [1, 65] {
        tm.enqueue(1, paced(class, class, 0)).expect("room");
        now_ns = tm.next_dequeue_ns().expect("it waits");
        let start = tm.dequeue(now_ns, now_ns).expect("due");
        transmit(&mut tm, start).expect("room");
        tm.deliver(now_ns, now_ns).expect("no delay");
    }
    assert_eq!((tm.statistics().queues, now_ns), (128, 12_304));
    // Both clocks are still ahead (24,288 and 36,592 ns): nothing may be forgotten.
    let early = Queued {
        arrival_ns: 13_000,
        ..paced(2, 129, 0)
    };
    assert_eq!(tm.enqueue(1, early), refusal(DropCause::HoldLimit, 2));
    // Searched at most once a second.
    let soon = Queued {
        arrival_ns: 1_000_000,
        ..early
    };
    assert_eq!(tm.enqueue(1, soon), refusal(DropCause::HoldLimit, 2));
    assert!(tm.dequeue(2_000_000_000, 2_000_000_000).is_none());
    let later = Queued {
        arrival_ns: 2_000_000_000,
        ..early
    };
    assert_eq!(tm.enqueue(1, later), Ok(()));
    assert_eq!(tm.statistics().queues, 64);
    assert_eq!(tm.queue(1, 1), None);
    let queue = tm.queue(1, 129).expect("it waits");
    assert_eq!((queue.packets, queue.bytes), (1, 1518));
    assert_eq!(queue.head_departure_ns, Some(2_000_000_000));
}

/// Drained and removed ports leave their memory to others: the limit holds, however often.
#[test]
fn queues_of_drained_and_removed_ports_are_free_again() {
    let mut tm = manager(SMALL);
    for _ in 0..3 {
        tm.add_port(2, CONFIG).expect("a new port");
        tm.enqueue(1, paced(0, 1, 0)).expect("room");
        tm.enqueue(1, paced(1, 2, 0)).expect("the same memory");
        tm.enqueue(2, paced(2, 1, 0)).expect("room");
        assert_eq!(tm.statistics().queues, 128);
        tm.remove_port(2).expect("it exists");
        assert_eq!(tm.statistics().queues, 64);
        tm.enqueue(1, paced(3, 65, 0)).expect("room again");
        assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 3);
        assert_eq!(tm.statistics().queues, 0);
    }
}

#[test]
fn extreme_values_neither_panic_nor_wrap() {
    let mut tm = manager(Limits::default());
    let mut packet = paced(0, u32::MAX, u64::MAX);
    packet.length_bytes = u32::MAX;
    assert_eq!(tm.enqueue(1, packet), refusal(DropCause::HoldLimit, 0));
    packet.hold = packet.hold.map(|hold| Hold {
        class: 0,
        cost_q24: u64::MAX,
        allowance_ns: u64::MAX,
        ..hold
    });
    tm.enqueue(1, packet).expect("room");
    packet.arrival_ns = u64::MAX - 1;
    tm.enqueue(1, packet).expect("room");
    // Such a departure time never comes.
    assert_eq!(tm.next_dequeue_ns(), None);
    assert!(tm.dequeue(u64::MAX, u64::MAX).is_none());
    tm.enqueue(1, unpaced(2, u64::MAX - 1)).expect("room");
    let start = tm.dequeue(u64::MAX, u64::MAX).expect("due");
    assert_eq!(start.payload, 2);
    tm.transmit(start.token, u32::MAX, 2).expect("room");
    let delivery = tm.deliver(u64::MAX, u64::MAX).expect("no delay");
    assert_eq!(delivery.delivery_ns, u64::MAX - 1);
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 2);
}

const FILLED: PortConfig = PortConfig {
    gaps: Gaps::PauseFrames {
        longest_bytes: 1_514,
    },
    ..CONFIG
};

/// The gap frames that reach the interface by `now_ns`: when, and of which length.
fn gap_frames(tm: &mut TrafficManager<u32>, now_ns: u64) -> Vec<(u64, u32)> {
    assert!(tm.dequeue(now_ns, now_ns).is_none());
    std::iter::from_fn(|| tm.deliver(now_ns, now_ns))
        .map(|sent| match sent.frame {
            Frame::Gap { length_bytes } => (sent.delivery_ns, length_bytes),
            Frame::Packet(payload) => panic!("packet {payload} left"),
        })
        .collect()
}

#[test]
fn gap_frames_are_checked_before_anything_changes() {
    let mut tm = manager(SMALL);
    for (longest_bytes, line_rate_bps, refused) in [
        (59, CONFIG.line_rate_bps, PortError::GapFrame(59)),
        (9_217, CONFIG.line_rate_bps, PortError::GapFrame(9_217)),
        (60, None, PortError::GapsWithoutRate),
    ] {
        let wrong = PortConfig {
            line_rate_bps,
            gaps: Gaps::PauseFrames { longest_bytes },
            ..CONFIG
        };
        assert_eq!(tm.set_port(1, wrong), Err(refused));
        assert_eq!(tm.add_port(2, wrong), Err(refused));
    }
    assert_eq!(tm.port_config(1), Some(&CONFIG));
    assert_eq!(tm.set_port(1, FILLED), Ok(()));
}

#[test]
fn gap_frames_begin_and_end_with_the_setting() {
    let mut tm = manager(Limits::default());
    // Due after three times 1,538 bytes of the wire.
    tm.enqueue(1, paced(0, 5, 3 * 12_304)).expect("room");
    assert_eq!(tm.next_dequeue_ns(), Some(3 * 12_304));
    assert_eq!(gap_frames(&mut tm, 10_000), []);
    tm.set_port(1, FILLED).expect("the port");
    // The rest of the gap from now on is 26,912 ns, or 3,364 bytes of the wire.
    assert_eq!(gap_frames(&mut tm, 10_000), [(10_000, 1_122 - 24)]);
    assert_eq!(gap_frames(&mut tm, 10_000 + 8_976), [(18_976, 1_121 - 24)]);
    tm.set_port(1, CONFIG).expect("the port");
    assert_eq!(gap_frames(&mut tm, 30_000), []);
    let start = tm.dequeue(3 * 12_304, 3 * 12_304).expect("due");
    assert_eq!(start.start_ns, 3 * 12_304);
    transmit(&mut tm, start).expect("room");
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!((port.gap_frames, port.gap_bytes), (2, 1_102 + 1_101));
    assert_eq!((port.tx_packets, port.tx_line_bytes), (1, 1_538));
}

#[test]
fn a_late_poll_fills_what_is_left_of_a_gap_and_no_more() {
    let mut tm = manager(Limits::default());
    tm.set_port(1, FILLED).expect("the port");
    tm.enqueue(1, paced(0, 5, 20_000)).expect("room");
    assert_eq!(gap_frames(&mut tm, 19_500), [(19_500, 60)]);
    // The shortest frame is too long by 172 ns, which the packet waits.
    let start = tm.dequeue(20_172, 20_172).expect("due");
    assert_eq!((start.start_ns, start.scheduled_ns), (20_172, 20_172));
    transmit(&mut tm, start).expect("room");
    // ... and which its class is not charged for, though it has no allowance.
    assert_eq!(
        tm.queue(1, 5).map(|queue| queue.release_ns),
        Some(20_000 + 24_288)
    );
    tm.enqueue(1, paced(1, 6, 60_000)).expect("room");
    let start = tm.dequeue(70_000, 70_000).expect("due, and the gap over");
    assert_eq!((start.start_ns, start.scheduled_ns), (70_000, 60_000));
    transmit(&mut tm, start).expect("room");
    assert_eq!(tm.port_statistics(1).expect("the port").gap_frames, 1);
}

/// A packet that is never to leave has no gap: nothing is sent for ever.
#[test]
fn no_gap_frames_towards_the_end_of_time() {
    let mut tm = manager(Limits::default());
    tm.set_port(1, FILLED).expect("the port");
    tm.enqueue(1, paced(0, 5, u64::MAX)).expect("room");
    assert_eq!(tm.next_dequeue_ns(), None);
}

/// Gap frames give way to packets where delay lines have little room, and no packet is lost for
/// them; a removed port does not give them back either.
#[test]
fn gap_frames_leave_the_delay_line_to_packets() {
    let mut tm = manager(Limits {
        max_delay_line_packets: 10,
        ..Limits::default()
    });
    let far = PortConfig {
        delay_ns: 1_000_000_000,
        ..FILLED
    };
    tm.set_port(1, far).expect("the port");
    tm.enqueue(1, paced(7, 5, 20 * 12_304)).expect("room");
    while let Some(next_ns) = tm.next_dequeue_ns().filter(|ns| *ns < 20 * 12_304) {
        assert!(tm.dequeue(next_ns, next_ns).is_none());
    }
    let start = tm.dequeue(20 * 12_304, 20 * 12_304).expect("due");
    transmit(&mut tm, start).expect("room");
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!((port.gap_frames, port.delay_line_packets), (20, 6));
    assert_eq!(port.drops.get(DropCause::GapFrame), 15);
    assert_eq!(port.drops.total(), 15);
    assert_eq!(tm.remove_port(1), Ok(vec![7]));
    assert_eq!(tm.statistics().delay_line_packets, 0);
}

#[test]
fn what_starts_before_its_time_starts_at_its_time() {
    let mut tm = manager(Limits::default());
    tm.enqueue(1, paced(0, 5, 1_000)).expect("room");
    assert!(tm.dequeue(999, 0).is_none());
    let start = tm.dequeue(6_000, 0).expect("due by then");
    assert_eq!((start.scheduled_ns, start.start_ns), (1_000, 1_000));
    transmit(&mut tm, start).expect("room");
    // A packet that comes now finds the line taken.
    tm.enqueue(1, unpaced(1, 500)).expect("room");
    let start = tm.dequeue(20_000, 500).expect("due by then");
    assert_eq!(start.start_ns, 13_304);
    transmit(&mut tm, start).expect("room");
    let port = tm.port_statistics(1).expect("the port");
    assert_eq!(port.paced_lateness.max_ns(), 0);
    assert_eq!(port.unpaced_lateness.max_ns(), 0);
}
