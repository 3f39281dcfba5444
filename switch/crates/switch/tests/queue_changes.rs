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

/// A port of 100 Mbit/s, and a program whose frames have their priority in the first byte.
fn prioritized() -> Switch {
    let mut switch = with_slow_ports(SwitchConfig::default());
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
    frame[20..24].copy_from_slice(&number.to_be_bytes());
    frame
}

fn numbers(sent: &Sent) -> Vec<u32> {
    let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[20..24].try_into().expect("4 bytes"));
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

/// More packets come than the line takes, while queues, schedulers, rates, depths and active queue
/// management change, in all combinations, and wrong settings are refused in between.
#[test]
fn a_thousand_changes_under_traffic_lose_nothing_but_what_is_counted() {
    let mut switch = prioritized();
    let mut sent = Sent::default();
    let schedulers = ["strict", "drr:4:2:1", "wfq:1:2:3"];
    let aqms = [
        "none",
        "codel:100us:1ms",
        "fq_codel:100us:1ms",
        "pie:100us",
        "red:100:4KB:1",
    ];
    let mut number = 0;
    for change in 0..1_000_usize {
        let now_ns = change as u64 * 5 * FRAME_NS;
        for _ in 0..9 {
            let frame = numbered((number % 4) as u8, number);
            switch.receive(2, &frame, now_ns, now_ns);
            number += 1;
        }
        let mut settings = queues(3, schedulers[change % 3], aqms[change / 50 % 5]);
        settings.of.insert(
            change % 3,
            OneQueue {
                fifo_bytes: (change % 2 == 0).then_some(30_000),
                fifo_packets: (change % 7 == 0).then_some(9),
                rate_bps: (change % 11 < 5).then_some(20_000_000),
                aqm: (change % 13 == 0).then(|| "none".to_owned()),
                ..OneQueue::default()
            },
        );
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
        switch.poll(now_ns + 2 * FRAME_NS, &mut sent);
    }
    finish(&mut switch, &mut sent);
    let lost = lost(&switch);
    let causes: Vec<_> = lost.iter().map(|(cause, _)| *cause).collect();
    assert_eq!(causes, ["fifo-full", "queue-full", "aqm", "no-such-queue"]);
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
    let changes = [
        queues(3, "strict", "codel"),
        queues(4, "strict", "codel"),
        queues(3, "drr:1:1:1", "none"),
        queues(3, "wfq:1:1:1", "pie"),
        queues(3, "strict", "none"),
    ];
    for change in &changes {
        let mut switch = prioritized();
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

/// An average that has grown is forgotten: the queue that was dropping all does not any more.
#[test]
fn an_aqm_that_changes_starts_anew() {
    let mut switch = prioritized();
    let red = queues(1, "strict", "red:1:2000:1");
    switch.set_queues(OUT, Some(red.clone())).expect("set");
    let mut number = 0;
    let mut burst = |switch: &mut Switch| {
        for _ in 0..90 {
            switch.receive(2, &numbered(0, number), 0, 0);
            number += 1;
        }
        switch
            .traffic_manager()
            .queue_statistics(OUT)
            .next()
            .expect("a queue")
            .drops
            .get(DropCause::Aqm)
    };
    burst(&mut switch);
    let dropped = burst(&mut switch);
    let full = burst(&mut switch) - dropped;
    assert!(full > 80, "{full} of 90 dropped");
    // Another queue, scheduler and rate leave the average as it is.
    let mut more = queues(2, "drr:1:1", "red:1:2000:1");
    let rate_bps = Some(50_000_000);
    more.of.insert(
        0,
        OneQueue {
            rate_bps,
            ..OneQueue::default()
        },
    );
    switch.set_queues(OUT, Some(more)).expect("set");
    let dropped = dropped + full;
    let kept = burst(&mut switch) - dropped;
    assert!(kept > 80, "{kept} of 90 dropped");
    let other = queues(1, "strict", "red:1:2001:1");
    switch.set_queues(OUT, Some(other)).expect("set");
    let dropped = dropped + kept;
    let fresh = burst(&mut switch) - dropped;
    assert!(fresh < full, "{fresh} of 90 dropped");
}

#[test]
fn settings_that_do_not_fit_are_named_and_change_nothing() {
    let mut switch = prioritized();
    let before = queues(3, "wfq:4:2:1", "codel");
    switch.set_queues(OUT, Some(before.clone())).expect("set");
    let one = |queue, of: OneQueue| QueueSettings {
        of: [(queue, of)].into(),
        ..before.clone()
    };
    let rate = |rate_bps| OneQueue {
        rate_bps: Some(rate_bps),
        ..OneQueue::default()
    };
    for (wrong, expected) in [
        (queues(0, "strict", "none"), "0 queues; a port has 1 to 64"),
        (
            queues(65, "strict", "none"),
            "65 queues; a port has 1 to 64",
        ),
        (queues(3, "wfq:1:0:1", "none"), "queue 1: weight 0 is not"),
        (queues(3, "wfq:1:1", "none"), "2 weights for 3 queues"),
        (queues(3, "fair", "none"), "scheduler: 'fair' is not strict"),
        (queues(3, "strict", "cake"), "aqm: 'cake' is not codel"),
        (
            QueueSettings {
                buffer: Some(Buffer::OfSwitch),
                ..before.clone()
            },
            "buffer: the switch has no buffer that ports share",
        ),
        (one(3, rate(8_000)), "q3: the port has queues 0 to 2"),
        (one(1, rate(7_999)), "queue 1: rate 7999 bit/s is not"),
        (
            one(1, rate(100_000_001)),
            "q1: rate 100000001bit is above the port's line rate of 100mbit",
        ),
    ] {
        let refused = switch.set_queues(OUT, Some(wrong)).expect_err(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(switch.queues(OUT), Some(&before));
    }
    // A line that becomes slower than a queue is refused with the queue's name.
    let settings = one(2, rate(50_000_000));
    switch.set_queues(OUT, Some(settings.clone())).expect("set");
    let config = *switch.traffic_manager().port_config(OUT).expect("a port");
    let slower = PortConfig {
        line_rate_bps: Some(40_000_000),
        ..config
    };
    let refused = switch.change_port(OUT, slower).expect_err("too slow");
    assert!(
        refused.to_string().starts_with("q2: rate 50mbit"),
        "{refused}"
    );
    let config = switch.traffic_manager().port_config(OUT);
    assert_eq!(
        config.and_then(|config| config.line_rate_bps),
        Some(100_000_000)
    );
    // Both together fit.
    switch
        .configure_port(OUT, slower, Some(one(2, rate(40_000_000))))
        .expect("set");
    let missing = switch.set_queues(9, Some(settings));
    assert_eq!(missing.expect_err("no port").to_string(), "no port 9");
}
