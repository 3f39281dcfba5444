//! Egress queues that change while packets wait in them.

mod common;

use std::collections::BTreeSet;

use common::*;
use port_settings::{OneQueue, QueueSettings};
use switch::{Switch, SwitchConfig};
use traffic_manager::{Buffer, DropCause, PortConfig};

/// The port by which all packets leave.
const OUT: u16 = 1;

/// Time of a frame of 1,000 bytes at 100 Mbit/s.
const FRAME_NS: u64 = 80_320;

/// A buffer that ports may share: with half of it, a queue has more than a port's FIFO takes.
const SWITCH_BUFFER_BYTES: u64 = 150_000;

/// A port of 100 Mbit/s, and a program whose frames have their priority in the first byte.
fn prioritized(buffer_bytes: Option<u64>) -> Switch {
    let mut switch = with_slow_ports(SwitchConfig::default(), buffer_bytes);
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/conformance/compiled/priorities.json"
    );
    let program = std::fs::read(program).expect("readable");
    switch.load(&program).expect("it loads");
    switch
}

/// A frame of 1,000 bytes with this priority and number.
fn numbered(priority: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 1_000];
    frame[0] = priority;
    frame[40..44].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The same as an IP packet: of its number come one of five flows, the ECN field and the colour. Egress overwrites the
/// header, so that what a queue marks is dropped.
fn ip_packet(priority: u8, number: u32) -> Vec<u8> {
    let mut frame = numbered(priority, number);
    let part = |from: u32, count: u32| (number / from % count) as u8;
    let dscp = 10 + 2 * part(16, 3);
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, dscp << 2 | part(4, 4)]);
    frame[29] = part(1, 5);
    frame
}

fn numbers(sent: &Sent) -> Vec<u32> {
    let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[40..44].try_into().expect("4 bytes"));
    sent.frames
        .iter()
        .map(|(_, _, frame)| number(frame))
        .collect()
}

fn queues(queues: usize, scheduler: &str, aqm: &str) -> QueueSettings {
    QueueSettings {
        scheduler: scheduler.to_owned(),
        aqm: aqm.to_owned(),
        ..QueueSettings::strict(queues)
    }
}

fn with_rate(rate_bps: u64) -> OneQueue {
    OneQueue {
        rate_bps: Some(rate_bps),
        ..OneQueue::default()
    }
}

fn with_minimum(min_rate_bps: u64) -> OneQueue {
    OneQueue {
        min_rate_bps: Some(min_rate_bps),
        ..OneQueue::default()
    }
}

/// In millionths.
fn with_share(buffer_share_ppm: u32) -> OneQueue {
    OneQueue {
        buffer_share_ppm: Some(buffer_share_ppm),
        ..OneQueue::default()
    }
}

/// Polls until nothing is left to do.
fn finish(switch: &mut Switch, sent: &mut Sent) {
    while let Some(at_ns) = switch.poll_at_ns() {
        switch.poll(at_ns, sent);
    }
}

fn lost(switch: &Switch) -> Vec<(&'static str, u64)> {
    let port = switch.traffic_manager().port_statistics(OUT);
    let counts = port.expect("a port").drops.counts();
    counts
        .iter()
        .map(|count| (count.cause, count.packets))
        .collect()
}

/// Settings that change one after the other, each at a pace of its own.
fn changed(change: usize) -> QueueSettings {
    const SCHEDULERS: [&str; 7] = [
        "strict",
        "drr:4:2:1",
        "wfq:1:2:3",
        "strict{q2+paced+wfq{q1:3+q0}}",
        "wfq{drr{q0:2+q1}:3:rate=60mbit:burst=3KB+q2}",
        "drr{strict{q1+q0}:min=10mbit+q2:2}",
        "strict{wfq{q1+drr{q2}:rate=30mbit:min=8mbit}+q0}",
    ];
    const AQMS: [&str; 7] = [
        "none",
        "codel:100us:1ms",
        "fq_codel:100us:1ms",
        "pie:100us:ecn",
        "red:100:4KB:1",
        "dualpi2:1ms",
        "wred:100:4KB:1/100:2KB:1/100:1KB:1:ecn",
    ];
    let buffers = [None, Some(Buffer::OfPort(150_000)), Some(Buffer::OfSwitch)];
    let buffer = buffers[change / 5 % 3];
    let one = OneQueue {
        fifo_bytes: change.is_multiple_of(2).then_some(30_000),
        fifo_packets: change.is_multiple_of(7).then_some(9),
        buffer_share_ppm: buffer.is_some().then_some(500_000),
        rate_bps: (change % 11 < 5).then_some(20_000_000),
        min_rate_bps: change.is_multiple_of(4).then_some(5_000_000),
        aqm: change.is_multiple_of(13).then(|| "none".to_owned()),
        ..OneQueue::default()
    };
    QueueSettings {
        buffer,
        of: [(change % 3, one)].into(),
        ..queues(3, SCHEDULERS[change / 2 % 7], AQMS[change / 50 % 7])
    }
}

/// The switch's buffer has what waits in queues that share it, and nothing else.
fn check_switch_buffer(switch: &Switch) {
    let manager = switch.traffic_manager();
    let shares = switch.queues(OUT).and_then(|queues| queues.buffer) == Some(Buffer::OfSwitch);
    let waiting: u64 = manager.queue_statistics(OUT).map(|queue| queue.bytes).sum();
    let buffer = manager.statistics().buffer.expect("a buffer");
    assert_eq!(buffer.bytes, if shares { waiting } else { 0 });
}

/// More packets come than the line takes, while queues, schedulers, rates, depths, buffers and active queue
/// management change, and wrong settings are refused in between.
#[test]
fn a_thousand_changes_under_traffic_lose_nothing_but_what_is_counted() {
    let mut switch = prioritized(Some(SWITCH_BUFFER_BYTES));
    let mut sent = Sent::default();
    let mut number = 0;
    for change in 0..1_000_usize {
        let now_ns = change as u64 * 5 * FRAME_NS;
        for _ in 0..12 {
            let frame = ip_packet((number % 4) as u8, number);
            switch.receive(2, &frame, now_ns, now_ns);
            number += 1;
        }
        let settings = changed(change);
        let wrong = QueueSettings {
            scheduler: "wfq:1:0:1".to_owned(),
            ..settings.clone()
        };
        let before = switch.queues(OUT).cloned();
        let refused = switch.set_queues(OUT, Some(wrong)).expect_err("refused");
        assert!(refused.to_string().contains("weight 0"), "{refused}");
        assert_eq!(switch.queues(OUT), before.as_ref());
        let settings = (change % 17 != 0).then_some(settings);
        switch.set_queues(OUT, settings.clone()).expect("set");
        assert_eq!(switch.queues(OUT), settings.as_ref());
        check_switch_buffer(&switch);
        switch.poll(now_ns + 2 * FRAME_NS, &mut sent);
        check_switch_buffer(&switch);
    }
    finish(&mut switch, &mut sent);
    check_switch_buffer(&switch);
    let lost = lost(&switch);
    let causes: Vec<_> = lost.iter().map(|(cause, _)| *cause).collect();
    let expected = [
        "fifo-full",
        "queue-full",
        "aqm",
        "no-such-queue",
        "buffer-share",
        "switch-buffer",
    ];
    assert_eq!(causes, expected);
    let lost: u64 = lost.iter().map(|(_, packets)| packets).sum();
    let left: BTreeSet<_> = numbers(&sent).into_iter().collect();
    assert_eq!(left.len(), sent.frames.len(), "none leaves twice");
    assert_eq!(left.len() as u64 + lost, u64::from(number));
    let port = switch
        .traffic_manager()
        .port_statistics(OUT)
        .expect("a port");
    assert_eq!((port.queued_packets, port.fifo_bytes), (0, 0));
    assert_eq!(switch.traffic_manager().statistics().held_packets, 0);
}

/// Queue 2 stays, so its packets do, in their order and before those of lower queues.
#[test]
fn a_queue_that_stays_keeps_its_packets() {
    let tree = "strict{wfq{q0:3+drr{q2}:rate=50mbit:min=20mbit}+q1}";
    let changes = [
        queues(3, "strict", "codel"),
        queues(4, "strict", "codel"),
        queues(3, "drr:1:1:1", "none"),
        queues(3, "wfq:1:1:1", "pie"),
        queues(3, "strict", "none"),
        queues(3, "strict", "fq_codel"),
        queues(3, tree, "none"),
        queues(3, tree, "dualpi2"),
        queues(3, "drr:1:1:1", "wred:1KB:3KB:1/1KB:2KB:1/100:1KB:1"),
        QueueSettings {
            of: [(2, with_minimum(10_000_000))].into(),
            ..queues(3, "strict", "none")
        },
        // The buffers have less room than what waits in the queue, and its share is smaller yet.
        QueueSettings {
            buffer: Some(Buffer::OfPort(3_000)),
            ..queues(3, tree, "dualpi2")
        },
        QueueSettings {
            buffer: Some(Buffer::OfSwitch),
            of: [(2, with_share(10_000))].into(),
            ..queues(3, "strict", "none")
        },
    ];
    for change in &changes {
        let mut switch = prioritized(Some(3_000));
        let strict = queues(3, "strict", "none");
        switch.set_queues(OUT, Some(strict.clone())).expect("set");
        for number in 0..10 {
            switch.receive(2, &numbered(2, number), 0, 0);
        }
        switch.set_queues(OUT, Some(change.clone())).expect("set");
        switch.set_queues(OUT, Some(strict)).expect("set");
        switch.receive(2, &numbered(1, 10), 1, 1);
        let mut sent = Sent::default();
        finish(&mut switch, &mut sent);
        assert_eq!(numbers(&sent), Vec::from_iter(0..=10), "{change:?}");
        assert_eq!(lost(&switch), []);
        let counted: Vec<_> = switch.traffic_manager().queue_statistics(OUT).collect();
        assert_eq!(counted[2].tx_packets, 10);
    }
}

/// Sends 90 packets to queue 0 at once. Returns how many of them active queue management drops.
fn dropped_of_90(switch: &mut Switch) -> u64 {
    let dropped = |switch: &Switch| {
        let queue = switch.traffic_manager().queue_statistics(OUT).next();
        queue.expect("a queue").drops.get(DropCause::Aqm)
    };
    let before = dropped(switch);
    for number in 0..90 {
        switch.receive(2, &numbered(0, number), 0, 0);
    }
    dropped(switch) - before
}

/// An average that has grown is forgotten: the queue that was dropping all does not any more.
#[test]
fn an_aqm_that_changes_starts_anew() {
    for (aqm, other) in [
        ("red:1:2000:1", "red:1:2001:1"),
        (
            "wred:1:2000:1/1:1000:1/1:500:1",
            "wred:1:2000:1/1:1000:1/1:501:1",
        ),
    ] {
        let mut switch = prioritized(Some(SWITCH_BUFFER_BYTES));
        let set = |switch: &mut Switch, settings| {
            switch.set_queues(OUT, Some(settings)).expect("set");
        };
        set(&mut switch, queues(1, "strict", aqm));
        dropped_of_90(&mut switch);
        let full = dropped_of_90(&mut switch);
        assert!(full > 80, "{aqm}: {full} of 90 dropped");
        // Another queue, scheduler, rate or buffer leave the average as it is.
        for more in [
            QueueSettings {
                of: [(0, with_rate(50_000_000))].into(),
                ..queues(2, "drr:1:1", aqm)
            },
            QueueSettings {
                of: [(0, with_minimum(10_000_000))].into(),
                ..queues(2, "strict{q1+wfq{q0}:rate=50mbit}", aqm)
            },
            QueueSettings {
                buffer: Some(Buffer::OfSwitch),
                of: [(0, with_share(2_000_000))].into(),
                ..queues(1, "strict", aqm)
            },
        ] {
            set(&mut switch, more.clone());
            let kept = dropped_of_90(&mut switch);
            assert!(kept > 80, "{more:?}: {kept} of 90 dropped");
        }
        set(&mut switch, queues(1, "strict", other));
        let fresh = dropped_of_90(&mut switch);
        assert!(fresh < full, "{other}: {fresh} of 90 dropped");
    }
}

/// Settings that fit: three queues with weights and CoDel.
fn fitting() -> QueueSettings {
    queues(3, "wfq:4:2:1", "codel")
}

/// The same, with settings of one queue.
fn one(queue: usize, of: OneQueue) -> QueueSettings {
    QueueSettings {
        of: [(queue, of)].into(),
        ..fitting()
    }
}

/// Each is refused by a switch without a common buffer, and changes nothing.
fn check_refused(wrong: impl IntoIterator<Item = (QueueSettings, &'static str)>) {
    let mut switch = prioritized(None);
    switch.set_queues(OUT, Some(fitting())).expect("set");
    for (wrong, expected) in wrong {
        let refused = switch.set_queues(OUT, Some(wrong)).expect_err(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(switch.queues(OUT), Some(&fitting()));
    }
}

#[test]
fn words_that_do_not_fit_are_named_and_change_nothing() {
    let scheduler = |words| queues(3, words, "none");
    let aqm = |words| queues(3, "strict", words);
    check_refused([
        (queues(0, "strict", "none"), "0 queues; a port has 1 to 64"),
        (
            queues(65, "strict", "none"),
            "65 queues; a port has 1 to 64",
        ),
        (scheduler("wfq:1:0:1"), "queue 1: weight 0 is not"),
        (scheduler("wfq:1:1"), "2 weights for 3 queues"),
        (scheduler("fair"), "scheduler: 'fair' is not strict"),
        (
            scheduler("strict{q2+q1}"),
            "queue 0 is not in the scheduler",
        ),
        (
            scheduler("wfq{q0+drr{q1+q2+q0}}"),
            "queue 0 is in the scheduler twice",
        ),
        (
            scheduler("strict{q2+wfq{q1+q0}:rate=101mbit}"),
            "scheduler: rate 101mbit is above the port's line rate of 100mbit",
        ),
        (
            scheduler("strict{q2+wfq{q1+q0}:rate=5mbit:min=6mbit}"),
            "scheduler node 1: minimum rate 6000000 bit/s is above its highest of 5000000",
        ),
        (aqm("cake"), "aqm: 'cake' is not codel"),
        (
            aqm("dualpi2:999us"),
            "aqm: 'dualpi2:999us': time 999000 ns is not between 1000000 and 10000000000",
        ),
        (
            aqm("wred:1KB:2KB:1/1KB:2KB:1"),
            "red has one profile, wred one or three",
        ),
    ]);
}

#[test]
fn rates_and_buffers_that_do_not_fit_are_named_and_change_nothing() {
    let buffer = |buffer| QueueSettings {
        buffer: Some(buffer),
        ..fitting()
    };
    let minimum_above_rate = OneQueue {
        min_rate_bps: Some(20_000_000),
        ..with_rate(10_000_000)
    };
    check_refused([
        (one(3, with_rate(8_000)), "q3: the port has queues 0 to 2"),
        (one(1, with_rate(7_999)), "queue 1: rate 7999 bit/s is not"),
        (
            one(1, with_rate(100_000_001)),
            "q1: rate 100000001bit is above the port's line rate of 100mbit",
        ),
        (
            one(1, with_minimum(7_999)),
            "queue 1: rate 7999 bit/s is not",
        ),
        (
            one(1, with_minimum(100_000_001)),
            "minimum rates together: rate 100000001bit is above the port's line rate of 100mbit",
        ),
        (
            one(1, minimum_above_rate),
            "queue 1: minimum rate 20000000 bit/s is above its highest of 10000000",
        ),
        (
            one(1, with_share(500_000)),
            "queue 1: share: the port has no common buffer",
        ),
        (
            buffer(Buffer::OfSwitch),
            "buffer: the switch has no buffer that ports share",
        ),
        (
            buffer(Buffer::OfPort(0)),
            "a common buffer of 0 bytes takes no packet",
        ),
    ]);
}

#[test]
fn a_line_slower_than_a_rate_is_refused_with_its_name() {
    let mut switch = prioritized(None);
    let config = *switch.traffic_manager().port_config(OUT).expect("a port");
    let slower = PortConfig {
        line_rate_bps: Some(40_000_000),
        ..config
    };
    for (settings, expected) in [
        (one(2, with_rate(50_000_000)), "q2: rate 50mbit"),
        (
            one(2, with_minimum(50_000_000)),
            "minimum rates together: rate 50mbit",
        ),
        (
            queues(3, "strict{q2+wfq{q1+q0}:rate=50mbit}", "none"),
            "scheduler: rate 50mbit",
        ),
    ] {
        switch.set_queues(OUT, Some(settings)).expect("set");
        let refused = switch.change_port(OUT, slower).expect_err("too slow");
        assert!(refused.to_string().starts_with(expected), "{refused}");
        assert_eq!(switch.traffic_manager().port_config(OUT), Some(&config));
    }
    // Both together fit.
    let settings = one(2, with_rate(40_000_000));
    switch
        .configure_port(OUT, slower, Some(settings.clone()))
        .expect("set");
    let missing = switch.set_queues(9, Some(settings));
    assert_eq!(missing.expect_err("no port").to_string(), "no port 9");
}
