//! Dry runs and watches: what they say is what happens, and they change nothing.

mod common;

use std::sync::mpsc;

use common::{
    CPU_PORT, Sent, frame, misc, operation, pace_everything, pace_everything_at, pipeline, program,
    replica, switch, with_cpu_port,
};
use switch::trace::{
    Instruction, Outcome, PacketFilter, PacketTrace, WATCH_BURST, WATCHES_MAX, WatchOptions,
};
use switch::{CloneSession, DryRun, DryRunError, Switch, SwitchConfig};
use traffic_manager::DropCause;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Everything of the program's state that a controller can read.
fn state(switch: &Switch) -> String {
    let pipeline = pipeline(switch);
    let mut text = String::new();
    for (at, array) in pipeline.registers().iter().enumerate() {
        for cell in 0..array.size.min(64) {
            text += &format!("{:?} ", pipeline.register_read(at, cell));
        }
    }
    for (at, array) in pipeline.counters().iter().enumerate() {
        for cell in 0..array.size.min(64) {
            text += &format!("{:?} ", pipeline.counter_read(at, cell));
        }
    }
    for (at, (array, _)) in pipeline.meters().iter().enumerate() {
        for cell in 0..array.size.min(64) {
            text += &format!("{:?} ", pipeline.meter_read(at, cell));
        }
    }
    for at in 0..pipeline.tables().len() {
        text += &format!("{:?} ", pipeline.table_entries(at, 0, 1_000));
    }
    for (port, received, counted) in switch.port_statistics() {
        text += &format!("{port} {received:?} {counted:?} ");
    }
    let manager = switch.traffic_manager();
    format!("{text} {:?} {:?}", manager.statistics(), switch.totals())
}

fn random_frame(random: &mut Random) -> Vec<u8> {
    if random.below(3) == 0 {
        let (op, x) = (random.below(40) as u8, random.below(256) as u8);
        return operation(op, x, random.below(8) as u16, random.below(1 << 32) as u32);
    }
    let mut frame = frame();
    frame.resize(60 + random.below(900) as usize, 0);
    frame[5] = random.below(4) as u8;
    frame[11] = random.below(4) as u8;
    frame
}

/// Lets packets leave, except for those that recirculate for ever.
fn settle(switch: &mut Switch, sent: &mut Sent) {
    for _ in 0..2_000 {
        let Some(next_ns) = switch.poll_at_ns() else {
            break;
        };
        switch.poll(next_ns, sent);
    }
}

/// The same random frames go to two switches; one of them makes dry runs in between, and steps of a dry
/// run that goes on meanwhile.
fn dry_runs_change_nothing(make: fn() -> Switch) {
    let (mut plain, mut tried) = (make(), make());
    let (mut sent, mut sent_tried) = (Sent::default(), Sent::default());
    let mut random = Random(7);
    let (mut now_ns, mut dry_runs, mut in_steps) = (0, 0, 0);
    let mut goes_on: Option<DryRun> = None;
    for _ in 0..2_000 {
        now_ns += random.below(4_000);
        let (port, frame) = (1 + random.below(3) as u16, random_frame(&mut random));
        for (switch, sent) in [(&mut plain, &mut sent), (&mut tried, &mut sent_tried)] {
            switch.receive(port, &frame, now_ns, now_ns);
            switch.poll(now_ns, sent);
        }
        for _ in 0..random.below(3) {
            let (port, frame) = (1 + random.below(3) as u16, random_frame(&mut random));
            tried.dry_run(port, &frame).expect("a trace");
            dry_runs += 1;
        }
        let (port, frame) = (1 + random.below(3) as u16, random_frame(&mut random));
        let run = goes_on.get_or_insert_with(|| DryRun::new(port, frame));
        if let Some(ended) = run.go_on(&mut tried, &mut || true) {
            ended.expect("a trace");
            goes_on = None;
            in_steps += 1;
        }
        assert_eq!(plain.poll_at_ns(), tried.poll_at_ns());
    }
    settle(&mut plain, &mut sent);
    settle(&mut tried, &mut sent_tried);
    assert!(dry_runs > 1_000);
    assert!(in_steps > 10, "{in_steps}");
    assert!(sent.frames.len() > 100, "{}", sent.frames.len());
    assert_eq!(sent.frames, sent_tried.frames);
    assert_eq!(sent.to_controller, sent_tried.to_controller);
    assert_eq!(
        format!("{:?}", sent.notified),
        format!("{:?}", sent_tried.notified)
    );
    assert_eq!(state(&plain), state(&tried));
}

fn paced() -> Switch {
    let mut switch = switch("pacing_switch", with_cpu_port());
    pace_everything_at(&mut switch, 20);
    switch
}

fn paced_by_recirculation() -> Switch {
    let mut switch = switch("bmv2", with_cpu_port());
    pace_everything_at(&mut switch, 20);
    switch
}

/// `misc` has registers, counters, meters, random numbers, clones, digests and resubmissions.
fn with_sessions() -> Switch {
    let mut switch = misc();
    for session in [6, 7] {
        let clones = CloneSession {
            replicas: vec![replica(1, 0), replica(2, 5)],
            ..CloneSession::default()
        };
        program(&mut switch)
            .clone_session_insert(session, clones)
            .expect("a session");
    }
    switch
}

#[test]
fn dry_runs_change_neither_a_pacer_nor_what_leaves_it() {
    dry_runs_change_nothing(paced);
}

#[test]
fn dry_runs_change_nothing_where_packets_recirculate() {
    dry_runs_change_nothing(paced_by_recirculation);
}

#[test]
fn dry_runs_change_no_state_that_a_program_may_have() {
    dry_runs_change_nothing(with_sessions);
}

/// The trace of a frame that an idle switch receives now.
fn received(switch: &mut Switch, port: u16, frame: &[u8]) -> PacketTrace {
    let now_ns = switch.now_ns();
    switch.set_tracing(true);
    switch.receive(port, frame, now_ns, now_ns);
    settle(switch, &mut Sent::default());
    switch.take_trace().expect("the packet has left")
}

#[test]
fn a_dry_run_says_what_happens() {
    for make in [paced, with_sessions] {
        let mut switch = make();
        let mut random = Random(11);
        for number in 0..300 {
            let (port, frame) = (1 + random.below(3) as u16, random_frame(&mut random));
            let said = switch.dry_run(port, &frame).expect("a trace");
            let happened = received(&mut switch, port, &frame);
            assert_eq!(
                (said.arrival_ns, said.ingress_port),
                (happened.arrival_ns, port)
            );
            assert_eq!(said.root, happened.root, "frame {number}");
        }
    }
}

#[test]
fn a_dry_run_says_the_same_in_many_visits() {
    for make in [paced, paced_by_recirculation, with_sessions] {
        let mut switch = make();
        let mut random = Random(13);
        let mut visits_most = 0;
        for number in 0..100 {
            let (port, frame) = (1 + random.below(3) as u16, random_frame(&mut random));
            let at_once = switch.dry_run(port, &frame).expect("a trace");
            let mut run = DryRun::new(port, frame.clone());
            let mut visits = 1;
            let in_steps = loop {
                if let Some(ended) = run.go_on(&mut switch, &mut || true) {
                    break ended.expect("a trace");
                }
                visits += 1;
            };
            assert_eq!(in_steps, at_once, "frame {number}");
            visits_most = visits.max(visits_most);
            received(&mut switch, port, &frame);
        }
        // Ingress, egress and delivery.
        assert!(visits_most >= 3, "{visits_most}");
    }
}

#[test]
fn a_dry_run_of_a_packet_that_recirculates_for_long_takes_many_short_visits() {
    let mut switch = switch("bmv2", with_cpu_port());
    pace_everything(&mut switch);
    // The next packet of the class departs 100 ms later. Until then it recirculates.
    switch.receive(1, &frame(), 0, 0);
    switch.poll(0, &mut Sent::default());
    let before = state(&switch);
    let mut run = DryRun::new(1, frame());
    let mut visits = 1;
    let trace = loop {
        if let Some(ended) = run.go_on(&mut switch, &mut || true) {
            break ended.expect("a trace");
        }
        visits += 1;
        assert_eq!(state(&switch), before);
    };
    assert!((100..1_000).contains(&visits), "{visits}");
    let text = format!("{:?}", trace.root);
    assert!(text.contains("Unfinished"), "{text}");
}

#[test]
fn a_dry_run_ends_with_the_program_that_it_began_with() {
    let mut switch = paced();
    let mut run = DryRun::new(1, frame());
    assert!(run.go_on(&mut switch, &mut || true).is_none());
    switch
        .load(&common::compiled("pacing_switch", "pacer"))
        .expect("it loads");
    assert_eq!(
        run.go_on(&mut switch, &mut || true),
        Some(Err(DryRunError::ProgramReplaced))
    );
    assert!(switch.dry_run(1, &frame()).is_ok());
}

#[test]
fn a_dry_run_waits_behind_the_packets_of_the_fifo() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let burst = 20;
    let mut long = frame();
    long.resize(1_500, 0);
    for _ in 0..burst {
        switch.receive(1, &long, 0, 0);
    }
    switch.poll(0, &mut Sent::default());
    let said = switch.dry_run(1, &frame()).expect("a trace");
    let now_ns = switch.now_ns();
    switch.set_tracing(true);
    switch.receive(1, &frame(), now_ns, now_ns);
    settle(&mut switch, &mut Sent::default());
    let happened = switch.take_trace().expect("a trace");
    assert_eq!(said.root, happened.root);
}

#[test]
fn a_dry_run_names_a_full_fifo() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    for port in 1..=3 {
        let (_, config) = switch.lines().find(|(at, _)| *at == port).expect("a port");
        let config = traffic_manager::PortConfig {
            fifo_bytes: 200,
            line_rate_bps: Some(8_000),
            ..*config
        };
        switch.change_port(port, config).expect("a port");
    }
    for _ in 0..3 {
        switch.receive(1, &frame(), 0, 0);
    }
    let said = switch.dry_run(1, &frame()).expect("a trace");
    let text = format!("{:?}", said.root);
    assert!(
        text.contains(&format!("{:?}", DropCause::FifoFull)),
        "{text}"
    );
}

#[test]
fn frames_that_no_program_sees_are_refused_by_name() {
    let mut without = Switch::new(SwitchConfig::default(), traffic_manager::Limits::default());
    assert_eq!(without.dry_run(1, &frame()), Err(DryRunError::NoProgram));
    let mut switch = paced();
    assert_eq!(switch.dry_run(9, &frame()), Err(DryRunError::NoSuchPort(9)));
    let longest = switch.config().max_frame_bytes;
    assert_eq!(
        switch.dry_run(1, &vec![0; longest + 1]),
        Err(DryRunError::Oversize(longest + 1, longest))
    );
    let mut pause = frame();
    pause[..16].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8, 0, 1]);
    assert_eq!(switch.dry_run(1, &pause), Err(DryRunError::PauseFrame));
    assert!(switch.dry_run(CPU_PORT, &frame()).is_ok());
}

/// Accepts frames whose twelfth byte, the last of the source address, is this one.
fn from_station(station: u8) -> PacketFilter {
    let instruction = |code, jump_true, jump_false, k| Instruction {
        code,
        jump_true,
        jump_false,
        k,
    };
    PacketFilter::new(&[
        instruction(0x30, 0, 0, 11),
        instruction(0x15, 0, 1, station.into()),
        instruction(0x06, 0, 0, 1),
        instruction(0x06, 0, 0, 0),
    ])
    .expect("a filter")
}

fn watch(switch: &mut Switch, options: WatchOptions) -> mpsc::Receiver<(PacketTrace, u64)> {
    let (sender, receiver) = mpsc::channel();
    let receive = move |trace, skipped| sender.send((trace, skipped)).is_ok();
    switch.watch(options, Box::new(receive)).expect("a watch");
    receiver
}

fn send(switch: &mut Switch, port: u16, station: u8, now_ns: u64) {
    let mut frame = frame();
    frame[11] = station;
    switch.receive(port, &frame, now_ns, now_ns);
    settle(switch, &mut Sent::default());
}

#[test]
fn a_watch_gets_the_packets_it_names_and_ends_with_its_count() {
    let mut switch = paced();
    let options = WatchOptions {
        port: Some(2),
        filter: Some(from_station(5)),
        count: 3,
    };
    let traces = watch(&mut switch, options);
    for round in 0..5 {
        for (port, station) in [(1, 5), (2, 4), (2, 5), (3, 5)] {
            send(&mut switch, port, station, round * 100_000_000);
        }
    }
    let traces: Vec<_> = traces.try_iter().collect();
    assert_eq!(traces.len(), 3);
    for (trace, skipped) in traces {
        assert_eq!((trace.ingress_port, skipped), (2, 0));
        assert!(!trace.root.events.is_empty());
        assert_ne!(trace.root.outcome, Outcome::Unfinished);
    }
    // The driver, which wants none, gets none.
    assert_eq!(switch.take_trace(), None);
}

#[test]
fn a_watch_of_too_many_packets_skips_and_counts_them() {
    let mut switch = paced();
    let options = WatchOptions {
        port: None,
        filter: None,
        count: 1_000,
    };
    let traces = watch(&mut switch, options);
    for _ in 0..WATCH_BURST + 50 {
        send(&mut switch, 1, 1, 0);
    }
    send(&mut switch, 1, 1, 1_000_000_000);
    let skipped: Vec<_> = traces.try_iter().map(|(_, skipped)| skipped).collect();
    assert_eq!(skipped.len() as u64, WATCH_BURST + 1);
    assert_eq!(skipped.iter().sum::<u64>(), 50);
}

#[test]
fn watches_are_bounded_and_their_places_come_back() {
    let mut switch = paced();
    let all = WatchOptions {
        port: None,
        filter: None,
        count: 1,
    };
    let nobody = || Box::new(|_, _| false);
    let ids: Vec<_> = (0..WATCHES_MAX)
        .map(|_| switch.watch(all.clone(), nobody()).expect("a watch"))
        .collect();
    assert!(switch.watch(all.clone(), nobody()).is_err());
    switch.unwatch(ids[3]);
    let again = switch.watch(all.clone(), nobody()).expect("a watch");
    switch.unwatch(ids[3]);
    assert!(
        switch.watch(all.clone(), nobody()).is_err(),
        "{again:?} is there"
    );
    // One packet ends them all.
    send(&mut switch, 1, 1, 0);
    for _ in 0..WATCHES_MAX {
        switch.watch(all.clone(), nobody()).expect("a watch");
    }
}

#[test]
fn a_watch_gets_no_trace_that_another_one_has_begun() {
    let mut switch = switch("pacing_switch", with_cpu_port());
    let all = WatchOptions {
        port: None,
        filter: None,
        count: 1,
    };
    // As long as somebody watches, open traces are kept.
    let _kept = watch(
        &mut switch,
        WatchOptions {
            count: 9,
            ..all.clone()
        },
    );
    let first = switch
        .watch(all.clone(), Box::new(|_, _| panic!("it has ended")))
        .expect("a watch");
    switch.receive(1, &frame(), 0, 0);
    switch.unwatch(first);
    // The packet is in the switch still, and traces of the next one go to the same place.
    let traces = watch(&mut switch, all);
    let mut other = frame();
    other[11] = 9;
    switch.receive(2, &other, 100, 100);
    settle(&mut switch, &mut Sent::default());
    let ports: Vec<_> = traces.try_iter().map(|(t, _)| t.ingress_port).collect();
    assert_eq!(ports, [2]);
}

#[test]
fn a_watch_gets_its_count_although_the_program_is_replaced() {
    let mut switch = paced();
    let all = WatchOptions {
        port: None,
        filter: None,
        count: 2,
    };
    let traces = watch(&mut switch, all);
    switch.receive(1, &frame(), 0, 0);
    switch
        .load(&common::compiled("pacing_switch", "pacer"))
        .expect("it loads");
    common::flood_everywhere(&mut switch);
    for round in 1..4 {
        send(&mut switch, 1, round, u64::from(round) * 1_000_000);
    }
    assert_eq!(traces.try_iter().count(), 2);
}
