//! The whole switch with the project's own programs: replication, limits, replacement of the
//! program, links, and packets that recirculate endlessly.

mod common;

use common::*;
use switch::notification::{Notification, NotificationBody};
use v1model::entries::digest::{DigestConfig, DigestList, IdleEntry};
use v1model::entries::{ActionCall, ControlError, EntryKey, MatchField};

use switch::{Batch, CloneSession, Switch, SwitchConfig};
use traffic_manager::{DropCause, Gaps, Limits, PortConfig, RateCounts};

/// A port that sends without a line rate.
const AT_ONCE: PortConfig = PortConfig {
    line_rate_bps: None,
    counts: RateCounts::Layer2,
    fifo_bytes: 1 << 20,
    delay_ns: 0,
    gaps: Gaps::Accounted,
};

#[test]
fn an_unknown_source_is_flooded_and_told_to_the_controller() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let mut sent = Sent::default();
    switch.receive(1, &frame(), 5_000, 5_000);
    switch.poll(1_000_000, &mut sent);
    let ports: Vec<u16> = sent.frames.iter().map(|(port, ..)| *port).collect();
    assert_eq!(ports, [2, 3], "not back where it came from");
    assert!(sent.frames.iter().all(|(_, _, bytes)| *bytes == frame()));
    assert_eq!(sent.to_controller.len(), 1);
    assert_eq!(switch.poll_at_ns(), None);
}

#[test]
fn sent_and_received_bytes_of_a_forwarded_frame_agree() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    switch.receive(1, &frame(), 0, 0);
    switch.poll(1_000_000, &mut Sent::default());
    let ports: Vec<_> = switch.port_statistics().collect();
    assert_eq!(ports[0].1.bytes, FRAME_BYTES as u64);
    assert_eq!(ports[1].2.tx_frame_bytes(), FRAME_BYTES as u64);
}

#[test]
fn without_buffers_packets_are_dropped_and_counted_and_buffers_come_back() {
    let config = SwitchConfig {
        max_packets: 4,
        ..with_cpu_port()
    };
    let mut switch = switch("pacing_switch", config);
    for round in 0..50 {
        let mut sent = Sent::default();
        let now_ns = round * 1_000_000;
        switch.receive(1, &frame(), now_ns, now_ns);
        switch.receive(1, &frame(), now_ns, now_ns);
        switch.poll(now_ns + 900_000, &mut sent);
        // The first takes all four buffers with its copies, so the second finds none.
        assert_eq!(sent.frames.len(), 2, "round {round}");
    }
    assert_eq!(drops(&switch, 1, DropCause::HoldLimit), 50);
}

#[test]
fn a_new_program_drops_and_counts_what_was_in_flight() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    pace_everything(&mut switch);
    for at in 0..10 {
        switch.receive(1, &frame(), at, at);
    }
    let mut sent = Sent::default();
    switch.poll(10, &mut sent);
    switch
        .load(&compiled("pacing_switch", "pacer"))
        .expect("it loads again");
    assert_eq!(switch.poll_at_ns(), None, "nothing is left");
    let swapped: u64 = (1..=3)
        .map(|port| drops(&switch, port, DropCause::PipelineSwap))
        .sum();
    // Ten packets to three ports; the copies back to port 1 count among them.
    assert_eq!(swapped + drops(&switch, 1, DropCause::Pruned), 30);
    assert!(sent.frames.is_empty());
    assert!(
        program(&mut switch)
            .multicast_groups()
            .page(0, 9)
            .items
            .is_empty()
    );
    flood_everywhere(&mut switch);
    switch.receive(1, &frame(), 20, 20);
    switch.poll(1_000_000, &mut sent);
    assert_eq!(sent.frames.len(), 2);
}

#[test]
fn a_port_whose_interface_is_down_refuses_packets_until_it_is_up() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let mut sent = Sent::default();
    switch.set_port_up(2, false);
    assert!(!switch.traffic_manager().is_port_up(2));
    switch.receive(1, &frame(), 0, 0);
    switch.poll(1_000_000, &mut sent);
    assert_eq!(sent.frames.len(), 1);
    assert_eq!(drops(&switch, 2, DropCause::PortDown), 1);
    switch.set_port_up(2, true);
    switch.receive(1, &frame(), 2_000_000, 2_000_000);
    switch.poll(3_000_000, &mut sent);
    assert_eq!(sent.frames.len(), 3);
}

#[test]
fn a_removed_port_carries_no_packet_until_it_is_restored() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let mut sent = Sent::default();
    let of_port_2 = |switch: &Switch| drops(switch, 2, DropCause::PortDown);
    // The packet waits at ports 2 and 3.
    switch.receive(1, &frame(), 0, 0);
    assert!(switch.remove_port(2));
    switch.poll(1_000_000, &mut sent);
    assert_eq!((sent.frames.len(), of_port_2(&switch)), (1, 1));
    switch.receive(2, &frame(), 2_000_000, 2_000_000);
    switch.poll(3_000_000, &mut sent);
    assert_eq!((sent.frames.len(), of_port_2(&switch)), (1, 2));
    switch.receive(1, &frame(), 4_000_000, 4_000_000);
    switch.poll(5_000_000, &mut sent);
    assert_eq!((sent.frames.len(), of_port_2(&switch)), (2, 3));
    // Its interface does not bring it back.
    switch.set_port_up(2, false);
    switch.set_port_up(2, true);
    assert!(!switch.is_port_up(2));
    for (done, what) in [
        (switch.remove_port(2), "it is removed already"),
        (switch.remove_port(9), "there is none"),
        (switch.remove_port(CPU_PORT), "it has no line"),
        (switch.restore_port(3), "it is there"),
        (switch.restore_port(9), "there is none"),
    ] {
        assert!(!done, "{what}");
    }
    assert!(switch.restore_port(2));
    assert!(switch.is_port_up(2));
    assert!(switch.take_restored().into_iter().eq([2]));
    assert!(switch.take_restored().is_empty());
    switch.receive(1, &frame(), 6_000_000, 6_000_000);
    switch.poll(7_000_000, &mut sent);
    assert_eq!((sent.frames.len(), of_port_2(&switch)), (4, 3));
}

#[test]
fn packets_that_go_round_do_not_hold_up_a_driver_that_is_late() {
    // The flavour for stock BMv2 holds packets by recirculation.
    let mut switch = switch("bmv2", with_cpu_port());
    pace_everything(&mut switch);
    for at in 0..20 {
        switch.receive(1, &frame(), at, at);
    }
    let mut sent = Sent::default();
    // One call a second late: it must end, and soon, although each packet could have gone
    // round a million times.
    switch.poll(1_000_000_000, &mut sent);
    assert!(switch.poll_at_ns().is_some_and(|ns| ns > 1_000_000_000));
}

/// A program of the engine's tests.
#[test]
fn drops_are_counted_by_their_origin() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let all = |switch: &Switch| -> Vec<(u16, &str, u64)> {
        let ports = switch.port_statistics();
        ports
            .flat_map(|(port, _, counted)| {
                let counts = counted.drops.counts().into_iter();
                counts.map(move |count| (port, count.cause, count.packets))
            })
            .collect()
    };
    // Flooded: the copy back to port 1 is not a loss, even if the class is paced.
    pace_everything(&mut switch);
    switch.receive(1, &frame(), 0, 0);
    switch.poll(1_000_000, &mut Sent::default());
    assert_eq!(all(&switch), [(1, "pruned", 1)]);
    // The program drops frames that it cannot parse.
    switch.receive(2, &frame()[..13], 2_000_000, 2_000_000);
    switch.poll(3_000_000, &mut Sent::default());
    assert_eq!(all(&switch), [(1, "pruned", 1), (2, "ingress-drop", 1)]);
    // This one never chooses a port.
    switch.load(&small_program("reject")).expect("it loads");
    switch.receive(3, &frame(), 4_000_000, 4_000_000);
    switch.poll(5_000_000, &mut Sent::default());
    assert_eq!(drops(&switch, 3, DropCause::NoRoute), 1);
    assert_eq!(drops(&switch, 3, DropCause::IngressDrop), 0);
    // An action of this one loops endlessly where the type is 0xffff, which ends like a failed
    // assertion.
    switch.load(&small_program("loops")).expect("it loads");
    let mut endless = frame();
    endless[12..14].fill(0xff);
    switch.receive(3, &endless, 6_000_000, 6_000_000);
    switch.poll(7_000_000, &mut Sent::default());
    assert_eq!(drops(&switch, 3, DropCause::Assertion), 1);
    assert_eq!(drops(&switch, 3, DropCause::IngressDrop), 0);
}

/// The frames that leave, by port in order.
fn after(switch: &mut Switch, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let now_ns = switch.now_ns();
    switch.receive(3, frame, now_ns, now_ns);
    let mut sent = Sent::default();
    switch.poll(now_ns + 1_000_000, &mut sent);
    let mut frames: Vec<_> = sent.frames.into_iter().map(|(p, _, f)| (p, f)).collect();
    frames.sort();
    frames
}

#[test]
fn clones_go_where_their_session_says() {
    let mut switch = misc();
    let frame = operation(11, 0, 500, 1);
    // No session, no clone.
    assert_eq!(after(&mut switch, &frame), [(1, frame.clone())]);
    let to = CloneSession {
        replicas: vec![replica(2, 0), replica(3, 5)],
        ..CloneSession::default()
    };
    program(&mut switch)
        .clone_session_insert(6, to)
        .expect("a new session");
    let clone = operation(11, 0, 501, 0);
    let wanted = [(1, frame.clone()), (2, clone.clone()), (3, clone.clone())];
    assert_eq!(after(&mut switch, &frame), wanted);
    // Cut short.
    let to = CloneSession {
        replicas: vec![replica(2, 0)],
        packet_length_bytes: 20,
        ..CloneSession::default()
    };
    program(&mut switch)
        .clone_session_modify(6, to.clone())
        .expect("it exists");
    let sessions = program(&mut switch).clone_sessions();
    assert_eq!(sessions.page(0, 9).items, [(6, to.clone())]);
    assert_eq!(sessions.get(6).expect("it exists"), &to);
    let wanted = [(1, frame.clone()), (2, clone[..20].to_vec())];
    assert_eq!(after(&mut switch, &frame), wanted);
    program(&mut switch)
        .clone_session_delete(6)
        .expect("it exists");
    assert_eq!(after(&mut switch, &frame), [(1, frame)]);
}

/// The program, of which each packet of egress makes a clone, and the clone another one.
fn with_endless_clones() -> Vec<u8> {
    let program = String::from_utf8(small_program("misc")).expect("it is text");
    let (before, after) = program
        .rsplit_once("\"instance_type\"]")
        .expect("the condition");
    let (start, rest) = before.rsplit_once("\"==\"").expect("its operator");
    format!("{start}\">=\"{rest}\"instance_type\"]{after}").into_bytes()
}

#[test]
fn endless_clones_of_clones_take_time_and_leave_the_rest_of_the_switch_running() {
    let mut switch = misc();
    switch.load(&with_endless_clones()).expect("it loads");
    switch.change_port(2, AT_ONCE).expect("a port");
    let to = CloneSession {
        replicas: vec![replica(2, 0)],
        ..CloneSession::default()
    };
    program(&mut switch)
        .clone_session_insert(7, to)
        .expect("a new session");
    let now_ns = switch.now_ns();
    switch.receive(3, &operation(18, 100, 0, 0), now_ns, now_ns);
    let mut sent = Sent::default();
    for step in 1..=100 {
        switch.poll(now_ns + step * 1_000, &mut sent);
    }
    let clones = sent.frames.iter().filter(|(port, ..)| *port == 2).count();
    assert!((50..=100).contains(&clones), "{clones} in 100 us");
    let forwarded = operation(13, 9, 0, 0);
    assert!(
        after(&mut switch, &forwarded)
            .iter()
            .any(|(port, _)| *port == 1)
    );
}

#[test]
fn wrong_clone_sessions_are_refused() {
    let mut switch = misc();
    let session = |replicas| CloneSession {
        replicas,
        ..CloneSession::default()
    };
    for (id, replicas) in [
        (0x8000, vec![]),
        (1, vec![replica(9, 0)]),
        (1, vec![replica(1, 0), replica(1, 0)]),
    ] {
        let refused = program(&mut switch).clone_session_insert(id, session(replicas));
        assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    }
    let unknown = program(&mut switch).clone_session_modify(1, session(vec![]));
    assert!(matches!(unknown, Err(ControlError::NotFound(_))));
    program(&mut switch)
        .clone_session_insert(1, session(vec![]))
        .expect("a new session");
    let again = program(&mut switch).clone_session_insert(1, session(vec![]));
    assert!(matches!(again, Err(ControlError::AlreadyExists(_))));
}

#[test]
fn digests_are_sent_in_lists_at_their_time() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    switch.load(&small_program("digest")).expect("it loads");
    assert_eq!(pipeline(&switch).digests().len(), 1);
    let mut sent = Sent::default();
    // The messages are not collected yet.
    switch.receive(1, &frame(), 5, 5);
    switch.poll(5, &mut sent);
    assert!(sent.notified.is_empty());
    let config = DigestConfig {
        max_timeout_ns: 1_000,
        max_list_size: 10,
        ack_timeout_ns: 1_000_000,
    };
    program(&mut switch)
        .digest_configure(0, Some(config))
        .expect("the program's");
    assert!(
        program(&mut switch)
            .digest_configure(1, Some(config))
            .is_err()
    );
    for at_ns in [20_000, 20_100] {
        switch.receive(1, &frame(), at_ns, at_ns);
    }
    switch.poll(20_999, &mut sent);
    assert!(sent.notified.is_empty());
    assert_eq!(switch.poll_at_ns(), Some(21_000));
    switch.poll(21_000, &mut sent);
    let list = DigestList {
        digest: 0,
        json_id: 1,
        headers: 0,
        list_id: 1,
        messages: vec![vec![frame()[6..12].into()]],
    };
    assert_eq!(
        sent.notified,
        [Notification {
            at_ns: 21_000,
            body: NotificationBody::Digests(list)
        }]
    );
}

#[test]
fn idle_entries_are_sent_at_their_time() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    switch.load(&small_program("timeout")).expect("it loads");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(0x9000, 16))],
        priority: 0,
    };
    let (table, info) = table(&switch, "I.t");
    let action = *info
        .actions
        .iter()
        .find(|action| pipeline(&switch).actions()[**action].name == "I.a")
        .expect("the action");
    let call = ActionCall {
        action,
        args: vec![bits(1, 9)],
    };
    let mut sent = Sent::default();
    switch.poll(1_000_000, &mut sent);
    insert(&mut switch, table, &key, call);
    program(&mut switch)
        .idle_timeout_set(table, &key, 5_000_000)
        .expect("a timeout");
    assert_eq!(switch.poll_at_ns(), Some(6_000_000));
    switch.receive(1, &frame(), 2_000_000, 2_000_000);
    switch.poll(6_000_000, &mut sent);
    assert!(sent.notified.is_empty());
    switch.poll(7_000_000, &mut sent);
    let idle = |at_ns| Notification {
        at_ns,
        body: NotificationBody::Idle(vec![IdleEntry {
            table,
            json_id: 0,
            key: key.clone(),
            handle: None,
            timeout_ns: 5_000_000,
        }]),
    };
    assert_eq!(sent.notified, [idle(7_000_000)]);
    switch.poll(12_000_000, &mut sent);
    assert_eq!(sent.notified, [idle(7_000_000), idle(12_000_000)]);
}

#[test]
fn a_staged_program_takes_writes_while_the_running_one_forwards() {
    let mut switch = misc();
    let before = operation(11, 0, 500, 1);
    let wanted = [(1, before.clone())];
    assert_eq!(after(&mut switch, &before), wanted);
    let digest = switch
        .compiler()
        .compile(&small_program("digest"))
        .expect("it compiles");
    drop(switch.stage(digest));
    // The control plane means the new one, packets go through the old one.
    assert_eq!(pipeline(&switch).digests().len(), 1);
    let config = Some(DigestConfig::default());
    program(&mut switch)
        .digest_configure(0, config)
        .expect("the new one's");
    program(&mut switch)
        .multicast_insert(3, vec![replica(2, 0)])
        .expect("the new one's");
    assert_eq!(after(&mut switch, &before), wanted);
    drop(switch.commit_staged().expect("one is staged"));
    assert!(switch.commit_staged().is_err());
    assert_eq!(
        program(&mut switch).digest_config(0).expect("there"),
        config
    );
    let groups = program(&mut switch).multicast_groups();
    assert_eq!(groups.get(3).expect("there"), &[replica(2, 0)]);
    assert!(after(&mut switch, &before) != wanted);
}

/// A measuring wire between two ports of 1 Gbit/s, a FIFO of six frames and 1 ms of delay.
fn delayed_wire() -> Switch {
    let mut switch = Switch::new(with_cpu_port(), Limits::default());
    let line = PortConfig {
        line_rate_bps: Some(1_000_000_000),
        counts: RateCounts::Layer2,
        fifo_bytes: 6 * (FRAME_BYTES as u64 + 4),
        delay_ns: 1_000_000,
        gaps: Gaps::Accounted,
    };
    for port in [1, 2] {
        let name = format!("p{port}");
        switch.add_port(port, &name, line).expect("a new port");
    }
    switch
        .load(&compiled("pacing_switch", "gtrcnet"))
        .expect("it loads");
    let (wire, info) = table(&switch, "GtrcnetIngress.wire");
    let action = info.actions[0];
    for (from, to) in [(1, 2), (2, 1)] {
        let key = EntryKey {
            fields: vec![MatchField::Exact(bits(from, 9))],
            priority: 0,
        };
        let call = ActionCall {
            action,
            args: vec![bits(to, 9)],
        };
        insert(&mut switch, wire, &key, call);
    }
    switch
}

/// Bursts that overflow the FIFO, from both sides: port and time.
fn bursts() -> Vec<(u16, u64)> {
    let frames = (0..40u64).flat_map(|burst| {
        let length = 1 + burst % 29;
        let at_ns = burst * 40_000;
        (0..length).flat_map(move |n| [(1, at_ns + n * 300), (2, at_ns + n * 500)])
    });
    let mut frames: Vec<_> = frames.collect();
    frames.sort_by_key(|&(port, at_ns)| (at_ns, port));
    frames
}

/// Sends the bursts through a switch that polls as late as it may, and compares its output with that
/// of a switch that polls at once. `early`: frames are handed over before they leave.
fn looks_late(early: bool) {
    let mut prompt = delayed_wire();
    let mut expected = Sent::default();
    for (port, at_ns) in bursts() {
        prompt.poll(at_ns, &mut expected);
        prompt.receive(port, &frame(), at_ns, at_ns);
        prompt.poll(at_ns, &mut expected);
    }
    prompt.poll(10_000_000, &mut expected);

    let mut late = delayed_wire();
    late.hand_over_early(early);
    let moderation_ns = late.moderation_ns();
    assert_eq!(moderation_ns, if early { 500_000 } else { 250_000 });
    let (mut sent, mut ahead) = (Sent::default(), false);
    let mut lying = bursts().into_iter().peekable();
    while let Some(&(_, first_ns)) = lying.peek() {
        // The latest time that arrivals or departures allow.
        let due_ns = late.poll_at_ns().unwrap_or(u64::MAX);
        let now_ns = due_ns.min(first_ns + moderation_ns);
        while let Some((port, at_ns)) = lying.next_if(|&(_, at_ns)| at_ns <= now_ns) {
            late.receive(port, &frame(), at_ns, now_ns);
        }
        let before = sent.frames.len();
        late.poll(now_ns, &mut sent);
        for (_, delivery_ns, _) in &sent.frames[before..] {
            let latest_ns = now_ns + if early { moderation_ns } else { 0 };
            assert!((now_ns..=latest_ns).contains(delivery_ns), "{delivery_ns}");
            ahead |= *delivery_ns > now_ns;
        }
    }
    assert_eq!(ahead, early);
    late.poll(10_000_000, &mut sent);

    assert_eq!(sent.frames, expected.frames);
    for port in [1, 2] {
        let lost = drops(&prompt, port, DropCause::FifoFull);
        assert!(lost > 0, "the bursts overflow the FIFO");
        assert_eq!(drops(&late, port, DropCause::FifoFull), lost);
    }
}

/// How frames are handed to the switch.
#[derive(Clone, Copy, PartialEq)]
enum Handed {
    OneByOne,
    InBatches,
    /// In batches, as segments of trains.
    Segments,
}

/// Bursts of unknown stations, some frames PAUSE or too long, received as a driver does.
fn receives_bursts(handed: Handed) -> (Sent, Switch) {
    let config = SwitchConfig {
        max_frame_bytes: 200,
        ..with_cpu_port()
    };
    let mut switch = switch("pacing_switch", config);
    pace_everything_at(&mut switch, 20);
    let mut sent = Sent::default();
    for burst in 0..30u64 {
        let now_ns = burst * 40_000;
        let mut batch = Batch::new(&mut switch);
        for n in 0..=burst {
            let mut frame = frame();
            frame.resize(60 + n as usize * 10, 0);
            frame[11] = n as u8;
            if n == 7 {
                frame[..14].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8]);
                frame[14..16].copy_from_slice(&[0, 1]);
            }
            let at_ns = now_ns.saturating_sub((burst - n) * 300);
            let port = 1 + (n % 3) as u16;
            if handed == Handed::Segments {
                batch.receive_segment(port, &frame, at_ns, now_ns);
            } else {
                batch.receive(port, &frame, at_ns, now_ns);
            }
            if handed == Handed::OneByOne {
                drop(batch);
                batch = Batch::new(&mut switch);
            }
            batch.poll(now_ns, &mut sent);
        }
        drop(batch);
        switch.poll(now_ns, &mut sent);
    }
    while let Some(next_ns) = switch.poll_at_ns() {
        switch.poll(next_ns, &mut sent);
    }
    (sent, switch)
}

#[test]
fn a_batch_of_frames_comes_to_the_same_as_frame_by_frame() {
    let (expected, one_by_one) = receives_bursts(Handed::OneByOne);
    let (sent, batches) = receives_bursts(Handed::InBatches);
    let count = expected.frames.len();
    assert!(count > 500, "{count} frames left");
    assert_eq!(sent.frames, expected.frames);
    assert_eq!(sent.to_controller, expected.to_controller);
    let [expected, seen] =
        [&one_by_one, &batches].map(|switch| switch.port_statistics().collect::<Vec<_>>());
    assert_eq!(seen, expected);
    for cause in [DropCause::PauseFrame, DropCause::Oversize] {
        assert!(drops(&batches, 2, cause) > 0, "{cause:?}");
    }
}

#[test]
fn segments_of_trains_come_to_the_same_as_frames() {
    let (expected, by_frames) = receives_bursts(Handed::InBatches);
    let (sent, by_segments) = receives_bursts(Handed::Segments);
    assert_eq!(sent.frames, expected.frames);
    assert_eq!(sent.to_controller, expected.to_controller);
    let [expected, seen] =
        [&by_frames, &by_segments].map(|switch| switch.port_statistics().collect::<Vec<_>>());
    assert_eq!(seen, expected);
    // The copies of a flooded segment, too, may leave in trains.
    assert_eq!(
        (sent.segments(), sent.frames.len() > 500),
        (sent.frames.len(), true)
    );
    assert_eq!(receives_bursts(Handed::InBatches).0.segments(), 0);
}

#[test]
fn a_switch_that_looks_late_behind_a_delay_does_the_same() {
    looks_late(false);
}

#[test]
fn a_switch_that_hands_frames_over_early_does_the_same() {
    looks_late(true);
}

#[test]
fn frames_may_lie_only_where_every_port_has_a_delay_and_nothing_is_paced() {
    let mut switch = delayed_wire();
    assert!(switch.moderation_ns() > 0);
    switch
        .load(&compiled("pacing_switch", "pacer"))
        .expect("it loads");
    assert_eq!(switch.moderation_ns(), 0, "departure times are exact");
    switch
        .load(&compiled("pacing_switch", "gtrcnet"))
        .expect("it loads");
    assert!(switch.moderation_ns() > 0);
    switch.change_port(2, AT_ONCE).expect("a port");
    assert_eq!(
        switch.moderation_ns(),
        0,
        "what port 2 sends leaves at once"
    );
}

#[test]
fn paced_packets_are_handed_over_with_the_times_they_leave_at() {
    let sent = |early: bool| {
        let mut switch = switch("pacing_switch", with_cpu_port());
        pace_everything(&mut switch);
        switch.hand_over_early(early);
        let mut sent = Sent::default();
        let mut handed = Vec::new();
        for number in 0..50u64 {
            let at_ns = number * 90_000_000;
            while let Some(due_ns) = switch.poll_at_ns().filter(|due_ns| *due_ns < at_ns) {
                switch.poll(due_ns, &mut sent);
                handed.resize(sent.frames.len(), due_ns);
            }
            switch.receive(1, &frame(), at_ns, at_ns);
            switch.poll(at_ns, &mut sent);
            handed.resize(sent.frames.len(), at_ns);
        }
        let mut ahead = false;
        for ((_, delivery_ns, _), handed_ns) in sent.frames.iter().zip(handed) {
            let lead_ns = if early { 400_000 } else { 0 };
            assert!((handed_ns..=handed_ns + lead_ns).contains(delivery_ns));
            ahead |= *delivery_ns > handed_ns;
        }
        assert_eq!(ahead, early);
        while let Some(due_ns) = switch.poll_at_ns() {
            switch.poll(due_ns, &mut sent);
        }
        sent.frames
    };
    let (on_time, early) = (sent(false), sent(true));
    assert!(on_time.len() > 20);
    assert_eq!(early, on_time);
}
