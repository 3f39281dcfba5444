//! Egress queues: what the reference model of `tests/model/queueing_model.py` does not cover. Paced
//! packets beside queues, refusals, changes while packets wait.

use traffic_manager::hold::Hold;
use traffic_manager::{
    AqmConfig, Below, Buffer, CodelConfig, Discipline, DropCause, DualPi2Config, Ecn,
    FqCodelConfig, Gaps, HeaderFields, Limits, MaxRate, PortConfig, PortError, Queued,
    QueueingConfig, QueueingError, RateCounts, Scheduler, SchedulerChild, SchedulerNode,
    TrafficManager, Waiting,
};

/// Time of a frame of 1514 bytes on the line.
const FRAME_NS: u64 = 12_304;

const CODEL: CodelConfig = CodelConfig {
    target_ns: 1_000,
    interval_ns: 10_000,
    ecn: false,
};

const FQ_CODEL: FqCodelConfig = FqCodelConfig {
    codel: CODEL,
    flows: 4,
    quantum_bytes: 1_514,
    limit_packets: 100,
};

const FLOWS: AqmConfig = AqmConfig::FqCodel(FQ_CODEL);

const CONFIG: PortConfig = PortConfig {
    line_rate_bps: Some(1_000_000_000),
    counts: RateCounts::Wire,
    fifo_bytes: 65_536,
    delay_ns: 0,
    gaps: Gaps::Accounted,
};

fn manager(queues: usize) -> TrafficManager<u32> {
    let mut tm = TrafficManager::new(Limits::default());
    tm.add_port(1, CONFIG).expect("a new port");
    tm.set_queues(1, Some(QueueingConfig::strict(queues)))
        .expect("queues");
    tm
}

fn packet(payload: u32, queue: u8, arrival_ns: u64) -> Queued<u32> {
    Queued {
        payload,
        length_bytes: 1514,
        arrival_ns,
        hold: None,
        queue,
        header: HeaderFields::default(),
    }
}

fn paced(payload: u32, departure_ns: u64) -> Queued<u32> {
    Queued {
        hold: Some(Hold {
            class: 9,
            counts_to: None,
            departure_ns,
            cost_q24: 1,
            allowance_ns: 0,
        }),
        ..packet(payload, 0, 0)
    }
}

fn take(tm: &mut TrafficManager<u32>, packet: Queued<u32>) {
    tm.enqueue(1, packet).expect("there is room");
}

/// The packets that start until the end: payload, start, depth of the queue before and after them.
fn starts(tm: &mut TrafficManager<u32>) -> Vec<(u32, u64, u32, u32)> {
    let mut all = Vec::new();
    while let Some(now_ns) = tm.next_dequeue_ns() {
        let start = tm.dequeue(now_ns, now_ns).expect("it is due");
        all.push((
            start.payload,
            start.start_ns,
            start.enqueued_behind_packets,
            start.left_behind_packets,
        ));
        tm.transmit(start.token, start.length_bytes, start.payload)
            .expect("there is room");
        while tm.deliver(now_ns, now_ns).is_some() {}
    }
    all
}

#[test]
fn the_highest_queue_goes_first_and_depths_are_those_of_the_queue() {
    let mut tm = manager(8);
    for (payload, queue) in [(0, 0), (1, 0), (2, 7), (3, 3), (4, 7)] {
        take(&mut tm, packet(payload, queue, 0));
    }
    let expected = [(2, 0, 1), (4, 1, 0), (3, 0, 0), (0, 0, 1), (1, 1, 0)];
    let starts = starts(&mut tm);
    for (at, (payload, before, behind)) in (0..).zip(expected) {
        assert_eq!(
            starts[at as usize],
            (payload, at * FRAME_NS, before, behind)
        );
    }
    let last = tm.queue_statistics(1).nth(7).expect("queue 7");
    assert_eq!((last.tx_packets, last.tx_bytes), (2, 2 * 1518));
    assert_eq!((last.packets, last.packets_max), (0, 2));
    assert_eq!(last.sojourn.max_ns(), FRAME_NS);
}

/// A FIFO is queue 0 of its port. Held packets are in no queue.
#[test]
fn what_waits_is_that_of_the_port_and_the_queue() {
    let mut tm = manager(64);
    tm.add_port(2, CONFIG).expect("a new port");
    for port in [1, 2] {
        for arrival_ns in [5, 7, 9] {
            let packet = packet(0, 63, arrival_ns);
            tm.enqueue(port, packet).expect("there is room");
        }
        let held = paced(1, 1_000_000);
        tm.enqueue(port, held).expect("there is room");
    }
    let waiting = |packets, head_arrival_ns| {
        Some(Waiting {
            packets,
            bytes: packets * 1_518,
            head_arrival_ns,
        })
    };
    for (port, queue) in [(1, 63), (2, 0)] {
        assert_eq!(tm.waiting(port, queue), waiting(3, Some(5)));
        assert_eq!(tm.dequeue(5, 5).map(|start| start.port), Some(port));
        assert_eq!(tm.waiting(port, queue), waiting(2, Some(7)));
    }
    assert_eq!(tm.waiting(1, 62), waiting(0, None));
    for (port, queue) in [(1, 64), (1, 255), (2, 1), (3, 0)] {
        assert_eq!(
            tm.waiting(port, queue),
            None,
            "queue {queue} of port {port}"
        );
    }
}

/// Strict, non-preemptive: a held packet whose time has come goes before every queue.
#[test]
fn paced_packets_go_before_all_queues() {
    let mut tm = manager(8);
    for payload in 0..3 {
        take(&mut tm, packet(payload, 7, 0));
    }
    take(&mut tm, paced(10, FRAME_NS + 1));
    let order: Vec<_> = starts(&mut tm).into_iter().map(|start| start.0).collect();
    // Its time comes while the second packet is on the line.
    assert_eq!(order, [0, 1, 10, 2]);
}

fn leaves(discipline: Discipline, children: Vec<(u32, Below)>) -> Option<QueueingConfig> {
    let queue = |(_, below): &&(u32, Below)| matches!(below, Below::Queue(_));
    let queues = children.iter().filter(queue).count();
    Some(QueueingConfig {
        scheduler: Scheduler::Tree(node(discipline, children)),
        ..QueueingConfig::strict(queues)
    })
}

/// Two queues in strict order, with the held packets between them.
fn paced_between() -> Option<QueueingConfig> {
    let children = [Below::Queue(1), Below::Paced, Below::Queue(0)];
    leaves(Discipline::Strict, children.map(|below| (1, below)).into())
}

#[test]
fn paced_packets_go_where_the_scheduler_has_them() {
    let mut tm = manager(2);
    tm.set_queues(1, paced_between()).expect("in range");
    for (payload, queue) in [(0, 0), (1, 0), (3, 1), (4, 1)] {
        take(&mut tm, packet(payload, queue, 0));
    }
    take(&mut tm, paced(2, FRAME_NS + 1));
    let order: Vec<_> = starts(&mut tm).into_iter().map(|start| start.0).collect();
    // Its time comes while the second packet is on the line.
    assert_eq!(order, [3, 4, 2, 0, 1]);
}

/// A class at the line's rate has the share of its place, and what it leaves is the others'.
#[test]
fn paced_packets_share_by_weight() {
    for discipline in [Discipline::Drr, Discipline::Wfq] {
        let mut tm = manager(1);
        let shares = vec![(1, Below::Paced), (3, Below::Queue(0))];
        tm.set_queues(1, leaves(discipline, shares))
            .expect("in range");
        for payload in 0..40 {
            take(&mut tm, packet(payload, 0, 0));
            take(&mut tm, paced(100 + payload, 0));
        }
        let order: Vec<_> = starts(&mut tm).into_iter().map(|start| start.0).collect();
        let held = order.iter().take(20).filter(|packet| **packet >= 100);
        assert_eq!(held.count(), 5, "{discipline:?}");
        assert_eq!(order.len(), 80);
    }
}

/// In real time, a queue that goes before held packets has started its packets in their time, and one
/// that goes after them has not.
#[test]
fn a_late_poll_keeps_the_order_of_the_tree() {
    let start_until = |tm: &mut TrafficManager<u32>, until_ns| {
        let start = tm.dequeue_unpaced(until_ns, 30_000)?;
        tm.transmit(start.token, start.length_bytes, start.payload)
            .expect("there is room");
        Some((start.payload, start.start_ns))
    };
    for (queue, early) in [(1, Some((8, FRAME_NS))), (0, None)] {
        let mut tm = manager(2);
        tm.set_queues(1, paced_between()).expect("in range");
        take(&mut tm, packet(7, 1, 0));
        assert_eq!(start_until(&mut tm, 0), Some((7, 0)));
        take(&mut tm, paced(9, 100));
        take(&mut tm, packet(8, queue, 200));
        assert_eq!(start_until(&mut tm, 20_000), early, "queue {queue}");
        assert_eq!(start_until(&mut tm, 25_000), None);
        let start = tm.dequeue(30_000, 30_000).expect("it is due");
        let frames_before = if early.is_some() { 2 } else { 1 };
        assert_eq!((start.payload, start.start_ns), (9, 30_000));
        assert_eq!(start.scheduled_ns, frames_before * FRAME_NS);
    }
}

/// Those that have become eligible before the change, too.
#[test]
fn the_place_of_paced_packets_changes_while_they_wait() {
    let mut tm = manager(2);
    let of_class = |class, payload| {
        let mut packet = paced(payload, 0);
        packet.hold = packet.hold.map(|hold| Hold { class, ..hold });
        packet
    };
    for payload in 0..3 {
        take(&mut tm, of_class(payload, payload));
    }
    for (payload, queue) in [(10, 0), (11, 1), (12, 1)] {
        take(&mut tm, packet(payload, queue, 0));
    }
    let mut next = |change: Option<Option<QueueingConfig>>| {
        if let Some(config) = change {
            tm.set_queues(1, config).expect("in range");
        }
        let now_ns = tm.next_dequeue_ns().expect("packets wait");
        let start = tm.dequeue(now_ns, now_ns).expect("it is due");
        tm.transmit(start.token, start.length_bytes, start.payload)
            .expect("there is room");
        start.payload
    };
    assert_eq!(next(None), 0);
    assert_eq!(next(Some(paced_between())), 11);
    assert_eq!(next(Some(Some(QueueingConfig::strict(2)))), 1);
    assert_eq!(next(Some(paced_between())), 12);
    assert_eq!(next(None), 2);
    assert_eq!(next(None), 10);
}

/// PAUSE frames fill the time until a held packet's departure, wherever its place is.
#[test]
fn gaps_of_paced_packets_in_the_tree_are_filled() {
    let mut tm = manager(2);
    let config = PortConfig {
        gaps: Gaps::PauseFrames {
            longest_bytes: 1_514,
        },
        ..CONFIG
    };
    tm.set_port(1, config).expect("in range");
    tm.set_queues(1, paced_between()).expect("in range");
    take(&mut tm, paced(1, 50_000));
    let mut started = Vec::new();
    while let Some(now_ns) = tm.next_dequeue_ns() {
        if let Some(start) = tm.dequeue(now_ns, now_ns) {
            started.push((start.payload, start.start_ns));
            tm.transmit(start.token, start.length_bytes, start.payload)
                .expect("there is room");
        }
        while tm.deliver(now_ns, now_ns).is_some() {}
    }
    assert_eq!(started, [(1, 50_000)]);
    let statistics = tm.port_statistics(1).expect("a port");
    assert_eq!(statistics.gap_frames, 5);
}

#[test]
fn a_rate_in_packets_is_the_schedule_of_simple_switch() {
    let mut tm = manager(2);
    let mut config = QueueingConfig::strict(2);
    config.queues[1].max_rate = Some(MaxRate::Packets(1_000));
    tm.set_queues(1, Some(config)).expect("in range");
    for payload in 0..3 {
        take(&mut tm, packet(payload, 1, 500));
    }
    take(&mut tm, packet(9, 0, 500));
    let order: Vec<_> = starts(&mut tm)
        .into_iter()
        .map(|start| (start.0, start.1))
        .collect();
    let expected = [(0, 500), (9, 12_804), (1, 1_000_500), (2, 2_000_500)];
    assert_eq!(order, expected);
}

/// Also where that was sent before the rate was set, with or without egress queues.
#[test]
fn the_interval_of_a_rate_in_packets_begins_with_the_packet_before() {
    for queues_before in [false, true] {
        let mut tm = manager(1);
        let mut config = QueueingConfig::strict(1);
        let before = queues_before.then(|| config.clone());
        tm.set_queues(1, before).expect("in range");
        take(&mut tm, packet(0, 0, 500));
        let [(0, first_ns, ..)] = starts(&mut tm)[..] else {
            panic!("one packet starts");
        };
        config.queues[0].max_rate = Some(MaxRate::Packets(1_000));
        tm.set_queues(1, Some(config.clone())).expect("in range");
        take(&mut tm, packet(1, 0, 20_000));
        config.queues[0].max_rate = Some(MaxRate::Packets(100));
        tm.set_queues(1, Some(config)).expect("in range");
        take(&mut tm, packet(2, 0, 30_000));
        let starts: Vec<_> = starts(&mut tm).iter().map(|start| start.1).collect();
        // The FIFO remembers when its packet has left the line.
        let since_ns = first_ns + if queues_before { 0 } else { FRAME_NS };
        assert_eq!(starts, [since_ns + 1_000_000, since_ns + 11_000_000]);
    }
}

#[test]
fn what_does_not_fit_is_counted_at_the_queue_and_at_the_port() {
    let mut tm = manager(2);
    let mut config = QueueingConfig::strict(2);
    config.queues[0].depth_packets = Some(1);
    config.queues[1].depth_bytes = Some(1_600);
    tm.set_queues(1, Some(config)).expect("in range");
    for queue in [0, 1] {
        take(&mut tm, packet(0, queue, 0));
        let refused = tm.enqueue(1, packet(7, queue, 0)).expect_err("full");
        assert_eq!((refused.cause, refused.payload), (DropCause::QueueFull, 7));
    }
    let refused = tm.enqueue(1, packet(8, 2, 0)).expect_err("no queue 2");
    assert_eq!(refused.cause, DropCause::NoSuchQueue);
    let drops = &tm.port_statistics(1).expect("port 1").drops;
    assert_eq!(drops.get(DropCause::QueueFull), 2);
    assert_eq!(drops.get(DropCause::NoSuchQueue), 1);
    for queue in tm.queue_statistics(1) {
        assert_eq!(queue.drops.get(DropCause::QueueFull), 1);
    }
}

/// All queues share the memory: none may have more packets than are free.
#[test]
fn an_overloaded_queue_leaves_room_for_the_others() {
    let mut tm = TrafficManager::new(Limits {
        max_held_packets: 9,
        ..Limits::default()
    });
    tm.add_port(1, CONFIG).expect("a new port");
    let queues = Some(QueueingConfig::strict(2));
    tm.set_queues(1, queues).expect("in range");
    let fill = |tm: &mut TrafficManager<u32>, queue| {
        (0..9).find_map(|payload| tm.enqueue(1, packet(payload, queue, 0)).err())
    };
    for (queue, packets) in [(0, 5), (1, 2)] {
        let refused = fill(&mut tm, queue).expect("refused");
        assert_eq!(refused.cause, DropCause::HoldLimit);
        let waiting = tm.queue_statistics(1).nth(queue.into()).expect("a queue");
        assert_eq!(waiting.packets, packets);
    }
}

#[test]
fn settings_out_of_range_are_refused_and_change_nothing() {
    let mut tm = manager(8);
    let set = |tm: &mut TrafficManager<u32>, config| tm.set_queues(1, Some(config));
    for queues in [0, 65] {
        let refused = set(&mut tm, QueueingConfig::strict(queues));
        let expected = PortError::Queueing(QueueingError::Queues(queues));
        assert_eq!(refused, Err(expected));
    }
    for rate in [MaxRate::bits(7_999), MaxRate::Packets(0)] {
        let mut config = QueueingConfig::strict(8);
        config.queues[3].max_rate = Some(rate);
        assert!(matches!(set(&mut tm, config), Err(PortError::Queueing(_))));
    }
    assert_eq!(tm.queues(1), Some(&QueueingConfig::strict(8)));
    let missing = tm.set_queues(2, Some(QueueingConfig::strict(8)));
    assert_eq!(missing, Err(PortError::NoSuchPort(2)));
}

/// The settings change a thousand times while packets come and go: FIFO and queues, fewer and more of
/// them, with rates and without, with active queue management and without.
#[test]
fn changes_under_traffic_lose_nothing_but_what_is_counted() {
    let mut tm = manager(8);
    let (mut sent, mut dropped, mut taken) = (Vec::new(), Vec::new(), 0);
    let mut now_ns = 0;
    for change in 0..1_000_usize {
        for _ in 0..3 {
            take(&mut tm, packet(taken, (change % 2) as u8, now_ns));
            taken += 1;
        }
        let queues = [2, 64, 0, 8][change % 4];
        let config = (queues > 0).then(|| {
            let mut config = QueueingConfig::strict(queues);
            let rate = [None, Some(MaxRate::Packets(100_000))][change / 4 % 2];
            config.queues[0].max_rate = rate;
            config.queues[1].aqm = [None, Some(AqmConfig::Codel(CODEL)), Some(FLOWS)][change % 3];
            config
        });
        tm.set_queues(1, config).expect("in range");
        // A rate that begins may keep the line idle for one of its intervals.
        now_ns += 3 * FRAME_NS + 2_000;
        while let Some(start) = tm.dequeue(now_ns, now_ns) {
            sent.push(start.payload);
            tm.transmit(start.token, start.length_bytes, start.payload)
                .expect("there is room");
        }
        while tm.deliver(now_ns, now_ns).is_some() {}
        dropped.extend(std::iter::from_fn(|| tm.take_dropped()).map(|drop| drop.payload));
    }
    sent.extend(starts(&mut tm).into_iter().map(|start| start.0));
    dropped.extend(std::iter::from_fn(|| tm.take_dropped()).map(|drop| drop.payload));
    let statistics = tm.port_statistics(1).expect("port 1");
    assert_eq!((statistics.fifo_bytes, statistics.queued_packets), (0, 0));
    assert_eq!(statistics.drops.total(), dropped.len() as u64);
    assert_eq!(statistics.drops.get(DropCause::Aqm), dropped.len() as u64);
    sent.extend(dropped);
    sent.sort_unstable();
    assert_eq!(sent, (0..taken).collect::<Vec<_>>());
}

/// FQ-CoDel takes over more packets than it may hold, and the queues go before a packet comes or leaves.
#[test]
fn what_is_too_much_for_a_new_aqm_is_counted_at_once() {
    let mut tm = manager(2);
    let mut config = QueueingConfig::strict(2);
    config.queues[1].depth_bytes = Some(u64::MAX);
    tm.set_queues(1, Some(config.clone())).expect("in range");
    for payload in 0..150 {
        take(&mut tm, packet(payload, 1, 0));
    }
    config.queues[1].aqm = Some(FLOWS);
    tm.set_queues(1, Some(config)).expect("in range");
    let dropped = tm.port_statistics(1).expect("port 1").drops.total();
    assert!(dropped >= 50, "{dropped} dropped");
    tm.set_queues(1, None).expect("in range");
    let mut seen: Vec<_> = std::iter::from_fn(|| tm.take_dropped())
        .map(|drop| drop.payload)
        .collect();
    assert_eq!(seen.len() as u64, dropped);
    seen.extend(starts(&mut tm).into_iter().map(|start| start.0));
    seen.sort_unstable();
    assert_eq!(seen, (0..150).collect::<Vec<_>>());
}

/// A port with one queue of FQ-CoDel that has a depth of eight packets, with a flood of flow 0 in it. CoDel
/// itself drops nothing.
fn flooded() -> (TrafficManager<u32>, QueueingConfig) {
    let mut tm = manager(1);
    let mut config = QueueingConfig::strict(1);
    let patient = CodelConfig {
        target_ns: 1_000_000_000,
        interval_ns: 1_000_000_000,
        ..CODEL
    };
    config.queues[0].aqm = Some(AqmConfig::FqCodel(FqCodelConfig {
        codel: patient,
        ..FQ_CODEL
    }));
    config.queues[0].depth_bytes = Some(8 * 1_518);
    tm.set_queues(1, Some(config.clone())).expect("in range");
    for payload in 0..100 {
        take(&mut tm, packet(payload, 0, 0));
    }
    (tm, config)
}

/// RFC 8290, section 5.2.3: no packet is refused; the longest flow loses packets at its head.
#[test]
fn a_flood_leaves_room_for_other_flows() {
    let (mut tm, _) = flooded();
    let mut sparse = packet(200, 0, 0);
    sparse.header.flow = 1;
    take(&mut tm, sparse);
    let queue = tm.queue_statistics(1).next().expect("a queue");
    assert!(queue.bytes <= 8 * 1_518, "{} bytes", queue.bytes);
    let dropped: Vec<_> = std::iter::from_fn(|| tm.take_dropped()).collect();
    assert_eq!(queue_drops(&tm, DropCause::Aqm), dropped.len() as u64);
    assert_eq!(queue_drops(&tm, DropCause::QueueFull), 0);
    let mut seen: Vec<_> = dropped.iter().map(|drop| drop.payload).collect();
    seen.sort_unstable();
    let kept = 101 - seen.len() as u32;
    assert_eq!(seen, (0..100 - (kept - 1)).collect::<Vec<_>>());
    let sent: Vec<_> = starts(&mut tm).into_iter().map(|start| start.0).collect();
    assert_eq!(sent.len(), kept as usize);
    assert!(sent.contains(&200));
}

fn queue_drops(tm: &TrafficManager<u32>, cause: DropCause) -> u64 {
    let queues = tm.queue_statistics(1);
    queues.map(|queue| queue.drops.get(cause)).sum()
}

#[test]
fn another_depth_applies_to_the_next_packet_and_leaves_one() {
    let (mut tm, mut config) = flooded();
    let waiting = |tm: &TrafficManager<u32>| {
        let queue = tm.queue_statistics(1).next().expect("a queue");
        queue.packets
    };
    let before = waiting(&tm);
    for (depth_bytes, depth_packets, left) in
        [(4 * 1_518, None, 4), (1 << 20, Some(3), 3), (100, None, 1)]
    {
        config.queues[0].depth_bytes = Some(depth_bytes);
        config.queues[0].depth_packets = depth_packets;
        tm.set_queues(1, Some(config.clone())).expect("in range");
        take(&mut tm, packet(300, 0, 0));
        let now = waiting(&tm);
        assert!((1..=left).contains(&now), "{now} of {before}");
    }
    // The dry run's packet has room, too.
    take(&mut tm.stand_in(4), packet(9, 0, 0));
    assert_eq!(queue_drops(&tm, DropCause::QueueFull), 0);
}

/// The depth of the queue, and that of the port for a queue without one, apply when FQ-CoDel begins.
#[test]
fn fq_codel_begins_with_what_its_depth_allows() {
    for depth_bytes in [None, Some(20 * 1_518)] {
        let mut tm = manager(1);
        let mut config = QueueingConfig::strict(1);
        config.queues[0].depth_bytes = Some(u64::MAX);
        tm.set_queues(1, Some(config.clone())).expect("in range");
        for payload in 0..60 {
            take(&mut tm, packet(payload, 0, 0));
        }
        config.queues[0].aqm = Some(FLOWS);
        config.queues[0].depth_bytes = depth_bytes;
        tm.set_queues(1, Some(config)).expect("in range");
        let queue = tm.queue_statistics(1).next().expect("a queue");
        let most = depth_bytes.unwrap_or(CONFIG.fifo_bytes);
        assert!((1..=most).contains(&queue.bytes), "{} bytes", queue.bytes);
    }
}

#[test]
fn what_waits_is_drained_and_the_queues_stay() {
    let mut tm = manager(8);
    for queue in 0..8 {
        take(&mut tm, packet(queue.into(), queue, 0));
    }
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 8);
    assert_eq!(tm.next_dequeue_ns(), None);
    take(&mut tm, packet(8, 5, 0));
    assert_eq!(starts(&mut tm).len(), 1);
    assert_eq!(
        tm.queues(1).map(|config| &config.scheduler),
        Some(&Scheduler::Strict)
    );
    take(&mut tm, packet(9, 5, 0));
    assert_eq!(tm.remove_port(1), Ok(vec![9]));
}

/// A dry run's packet leaves behind all that wait, and has room where the real one would.
#[test]
fn a_stand_in_is_as_full() {
    let mut tm = manager(2);
    let mut config = QueueingConfig::strict(2);
    config.queues[1].depth_packets = Some(3);
    tm.set_queues(1, Some(config)).expect("in range");
    for payload in 0..3 {
        take(&mut tm, packet(payload, 1, 0));
    }
    let mut other = tm.stand_in(4);
    let refused = other.enqueue(1, packet(9, 1, 0)).expect_err("full");
    assert_eq!(refused.cause, DropCause::QueueFull);
    take(&mut other, packet(9, 0, 0));
    assert_eq!(starts(&mut other), [(9, 3 * FRAME_NS, 0, 0)]);
}

fn node(discipline: Discipline, children: Vec<(u32, Below)>) -> SchedulerNode {
    let child = |(weight, below)| SchedulerChild { weight, below };
    SchedulerNode {
        discipline,
        children: children.into_iter().map(child).collect(),
        max_rate: None,
        min_rate_bps: None,
    }
}

/// The shares of a line of 1 Gbit/s that queues have which always have packets, in Mbit/s: what each sent in
/// a second.
fn shares(config: QueueingConfig, lengths_bytes: &[u32]) -> Vec<f64> {
    let mut tm = manager(1);
    tm.set_port(
        1,
        PortConfig {
            counts: RateCounts::Layer2,
            ..CONFIG
        },
    )
    .expect("in range");
    tm.set_queues(1, Some(config)).expect("in range");
    let fill = |tm: &mut TrafficManager<u32>, queue: u8, now_ns| {
        let length_bytes = lengths_bytes[usize::from(queue)];
        let packet = packet(0, queue, now_ns);
        let refused = tm.enqueue(
            1,
            Queued {
                length_bytes,
                ..packet
            },
        );
        refused.expect("there is room");
    };
    let mut now_ns = 0;
    for queue in 0..lengths_bytes.len() as u8 {
        (0..10).for_each(|_| fill(&mut tm, queue, now_ns));
    }
    while now_ns < 1_000_000_000 {
        now_ns = tm.next_dequeue_ns().expect("packets wait");
        let Some(start) = tm.dequeue(now_ns, now_ns) else {
            continue;
        };
        fill(&mut tm, start.queue, now_ns);
        tm.transmit(start.token, start.length_bytes, start.payload)
            .expect("there is room");
        while tm.deliver(now_ns, now_ns).is_some() {}
    }
    let sent = tm.queue_statistics(1).map(|queue| queue.tx_bytes);
    sent.map(|bytes| bytes as f64 * 8.0 / 1e6).collect()
}

fn assert_within_one_percent(shares: &[f64], expected: &[f64]) {
    for (queue, (is, expected)) in shares.iter().zip(expected).enumerate() {
        let off = (is - expected).abs();
        assert!(off <= expected / 100.0, "queue {queue}: {shares:?}");
    }
}

/// Queue 4 goes first, at most at 100 Mbit/s. The rest is for two nodes by 3 to 1, of which the first has
/// at most 600 Mbit/s.
#[test]
fn shares_in_a_tree_are_those_of_its_nodes() {
    let mut limited = node(
        Discipline::Drr,
        vec![(1, Below::Queue(0)), (2, Below::Queue(1))],
    );
    let other = node(
        Discipline::Wfq,
        vec![(1, Below::Queue(2)), (4, Below::Queue(3))],
    );
    let mut config = QueueingConfig::strict(5);
    config.queues[4].max_rate = Some(MaxRate::bits(100_000_000));
    let scheduler = |limited: &SchedulerNode| {
        let nodes = vec![
            (3, Below::Node(limited.clone())),
            (1, Below::Node(other.clone())),
        ];
        let rest = node(Discipline::Wfq, nodes);
        Scheduler::Tree(node(
            Discipline::Strict,
            vec![(1, Below::Queue(4)), (1, Below::Node(rest))],
        ))
    };
    let lengths_bytes = [1_514, 300, 60, 1_000, 1_514];
    config.scheduler = scheduler(&limited);
    let by_weight = shares(config.clone(), &lengths_bytes);
    assert_within_one_percent(&by_weight, &[225.0, 450.0, 45.0, 180.0, 100.0]);
    limited.max_rate = Some(MaxRate::bits(600_000_000));
    config.scheduler = scheduler(&limited);
    let with_rate = shares(config, &lengths_bytes);
    assert_within_one_percent(&with_rate, &[200.0, 400.0, 60.0, 240.0, 100.0]);
}

/// What HTB's users expect: a class has its minimum, and its share of what the minima of all leave, up to its
/// highest rate.
#[test]
fn shares_with_minima_are_those_of_a_class_tree() {
    let lengths_bytes = [1_514, 1_514, 300, 1_000];
    for discipline in [Discipline::Wfq, Discipline::Drr] {
        let below = node(discipline, vec![(1, Below::Queue(0)), (1, Below::Queue(1))]);
        let nodes = vec![
            (1, Below::Node(below)),
            (2, Below::Queue(2)),
            (1, Below::Queue(3)),
        ];
        let mut config = QueueingConfig::strict(4);
        config.scheduler = Scheduler::Tree(node(discipline, nodes));
        config.queues[0].min_rate_bps = Some(300_000_000);
        config.queues[2].min_rate_bps = Some(100_000_000);
        // 600 are left: by weight 150, 300 and 150. The node below has 450, its queue 0 300 of them first.
        let with_minima = shares(config.clone(), &lengths_bytes);
        assert_within_one_percent(&with_minima, &[375.0, 75.0, 400.0, 150.0]);
        // Queue 2 leaves 150 more, for the others by 1 to 1.
        config.queues[2].max_rate = Some(MaxRate::bits(250_000_000));
        let with_rate = shares(config, &lengths_bytes);
        assert_within_one_percent(&with_rate, &[412.5, 112.5, 250.0, 225.0]);
    }
}

/// Strict priority: the lower queues have their minima, and the highest has the rest.
#[test]
fn a_minimum_is_kept_below_strict_priority() {
    let mut config = QueueingConfig::strict(3);
    config.queues[0].min_rate_bps = Some(50_000_000);
    config.queues[1].min_rate_bps = Some(8_000_000);
    let shares = shares(config, &[1_514, 300, 1_514]);
    assert_within_one_percent(&shares, &[50.0, 8.0, 942.0]);
}

#[test]
fn minima_that_do_not_add_up_are_refused() {
    let mut tm = manager(2);
    let mut refused = |config: &QueueingConfig| {
        let error = tm.set_queues(1, Some(config.clone()));
        error.expect_err("refused").to_string()
    };
    let mut config = QueueingConfig::strict(2);
    config.queues[1].min_rate_bps = Some(20_000_000);
    config.queues[1].max_rate = Some(MaxRate::bits(10_000_000));
    let expected = "queue 1: minimum rate 20000000 bit/s is above its highest of 10000000";
    assert_eq!(refused(&config), expected);
    config.queues[1].max_rate = None;
    let leaves = vec![(1, Below::Queue(0)), (1, Below::Queue(1))];
    let mut below = node(Discipline::Wfq, leaves);
    below.max_rate = Some(MaxRate::bits(10_000_000));
    let tree = |below: &SchedulerNode| {
        let children = vec![(1, Below::Node(below.clone()))];
        Scheduler::Tree(node(Discipline::Strict, children))
    };
    config.scheduler = tree(&below);
    let expected = "scheduler node 1: minimum rate 20000000 bit/s is above its highest of 10000000";
    assert_eq!(refused(&config), expected);
    below.max_rate = None;
    below.min_rate_bps = Some(10_000_000);
    config.scheduler = tree(&below);
    let expected = "scheduler node 1: minimum rate 10000000 bit/s is below the 20000000 of its children together";
    assert_eq!(refused(&config), expected);
}

/// Choudhury and Hahne: S queues that overflow hold alpha / (1 + alpha S) of the buffer each, and a queue
/// that comes later has the same.
#[test]
fn a_queue_holds_its_share_of_the_common_buffer() {
    let mut tm = manager(3);
    let mut config = QueueingConfig::strict(3);
    config.buffer = Some(Buffer::OfPort(1_518 * 60));
    tm.set_queues(1, Some(config.clone())).expect("in range");
    let fill = |tm: &mut TrafficManager<u32>, queue| {
        let refused = (0..100).find_map(|payload| tm.enqueue(1, packet(payload, queue, 0)).err());
        assert_eq!(refused.expect("full").cause, DropCause::BufferShare);
        let packets = tm.queue_statistics(1).map(|queue| queue.packets);
        packets.collect::<Vec<_>>()
    };
    assert_eq!(fill(&mut tm, 0), [30, 0, 0]);
    assert_eq!(fill(&mut tm, 1), [30, 15, 0]);
    config.queues[2].buffer_share_ppm = Some(500_000);
    tm.set_queues(1, Some(config.clone())).expect("in range");
    assert_eq!(fill(&mut tm, 2), [30, 15, 5]);
    for queue in tm.queue_statistics(1) {
        assert_eq!(queue.drops.get(DropCause::BufferShare), 1);
    }
    config.buffer = None;
    let refused = tm.set_queues(1, Some(config)).expect_err("no buffer");
    assert_eq!(
        refused.to_string(),
        "queue 2: share: the port has no common buffer"
    );
}

/// A switch whose ports 1 and 2 have two queues each, which share a buffer of 60 frames.
fn shared() -> TrafficManager<u32> {
    let mut tm = TrafficManager::new(Limits {
        buffer_bytes: Some(1_518 * 60),
        ..Limits::default()
    });
    let config = QueueingConfig {
        buffer: Some(Buffer::OfSwitch),
        ..QueueingConfig::strict(2)
    };
    for port in [1, 2] {
        tm.add_port(port, CONFIG).expect("a new port");
        tm.set_queues(port, Some(config.clone())).expect("queues");
    }
    tm
}

/// Fills a queue; returns how many packets it holds then.
fn fill_of_switch_buffer(tm: &mut TrafficManager<u32>, port: u16, queue: u8) -> u64 {
    let refused = (0..100).find_map(|payload| tm.enqueue(port, packet(payload, queue, 0)).err());
    assert_eq!(refused.expect("full").cause, DropCause::SwitchBuffer);
    let of_queue = tm.queue_statistics(port).nth(queue.into());
    of_queue.expect("a queue").packets
}

fn buffered_frames(tm: &TrafficManager<u32>) -> (u64, u64) {
    let buffer = tm.statistics().buffer.expect("a buffer");
    assert_eq!(buffer.size_bytes, 1_518 * 60);
    (buffer.bytes / 1_518, buffer.bytes_max / 1_518)
}

/// Queues of several ports have one threshold, and a packet frees its bytes when it starts.
#[test]
fn queues_of_all_ports_share_the_buffer_of_the_switch() {
    let mut tm = shared();
    assert_eq!(fill_of_switch_buffer(&mut tm, 1, 0), 30);
    assert_eq!(fill_of_switch_buffer(&mut tm, 2, 0), 15);
    assert_eq!(fill_of_switch_buffer(&mut tm, 2, 1), 8);
    assert_eq!(buffered_frames(&tm), (53, 53));
    for port in [1, 2] {
        let drops = &tm.port_statistics(port).expect("a port").drops;
        assert_eq!(drops.get(DropCause::SwitchBuffer), u64::from(port));
    }
    assert_eq!(starts(&mut tm).len(), 53);
    assert_eq!(buffered_frames(&tm), (0, 53));
}

/// Packets that wait count as long as their port shares the buffer.
#[test]
fn the_buffer_of_the_switch_knows_who_shares_it() {
    let mut tm = shared();
    fill_of_switch_buffer(&mut tm, 1, 0);
    fill_of_switch_buffer(&mut tm, 2, 0);
    tm.set_queues(1, Some(QueueingConfig::strict(2)))
        .expect("in range");
    assert_eq!(buffered_frames(&tm).0, 15);
    let other = tm.stand_in(4);
    assert_eq!(buffered_frames(&other).0, 15);
    tm.set_queues(2, None).expect("a FIFO");
    assert_eq!(buffered_frames(&tm).0, 0);
    let config = QueueingConfig {
        buffer: Some(Buffer::OfSwitch),
        ..QueueingConfig::strict(2)
    };
    tm.set_queues(1, Some(config.clone())).expect("in range");
    tm.set_queues(2, Some(config)).expect("in range");
    assert_eq!(buffered_frames(&tm).0, 45);
    assert_eq!(tm.remove_port(2).expect("a port").len(), 15);
    assert_eq!(buffered_frames(&tm).0, 30);
    assert_eq!(tm.drain(DropCause::PipelineSwap).count(), 30);
    assert_eq!(buffered_frames(&tm), (0, 45));
}

#[test]
fn without_a_buffer_of_the_switch_no_port_shares_it() {
    let mut tm = manager(2);
    let config = QueueingConfig {
        buffer: Some(Buffer::OfSwitch),
        ..QueueingConfig::strict(1)
    };
    let refused = tm.set_queues(1, Some(config)).expect_err("no buffer");
    let expected = "buffer: the switch has no buffer that ports share";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(tm.queues(1), Some(&QueueingConfig::strict(2)));
    assert_eq!(tm.statistics().buffer, None);
}

/// L4S packets go before classic ones that wait, which keep a tenth of the line.
#[test]
fn l4s_packets_go_first_and_classic_ones_keep_a_tenth() {
    let mut tm = manager(1);
    let mut config = QueueingConfig::strict(1);
    config.queues[0].aqm = Some(AqmConfig::DualPi2(DualPi2Config {
        target_ns: 15_000_000,
    }));
    tm.set_queues(1, Some(config)).expect("in range");
    for payload in 0..40 {
        let mut packet = packet(payload, 0, 0);
        // The classic ones come first.
        if payload >= 10 {
            packet.header.ecn = Ecn::Capable1;
        }
        take(&mut tm, packet);
    }
    let order: Vec<_> = starts(&mut tm).into_iter().map(|start| start.0).collect();
    let classic = order.iter().enumerate().filter(|(_, packet)| **packet < 10);
    let classic: Vec<_> = classic.map(|(place, _)| place).collect();
    // One after the first packet, one more after each nine. When only they are left, the rest of them.
    assert_eq!(classic, [1, 11, 21, 31, 34, 35, 36, 37, 38, 39]);
    let waiting = tm.queue_statistics(1).next().expect("a queue");
    assert_eq!((waiting.tx_packets, waiting.marked_packets), (40, 0));
}
