//! A whole pacing program: parser, every table kind, registers, meters, counters, the traffic
//! manager extern, checksums, deparser.

mod common;

use common::{Backlog, bits, frame, ipv4_checksum_ok, load, table, v4, v6};
use traffic_manager::hold::Hold;
use v1model::entries::{
    ActionCall, CounterValue, EntryKey, MatchField, MeterConfig, MeterState, MeterWrite,
};
use v1model::{EgressInput, IngressInput, InstanceType, NoTrafficManager, Pipeline};

fn action(p: &Pipeline, name: &str, args: &[(u128, u32)]) -> ActionCall {
    ActionCall {
        action: p.actions().iter().position(|a| a.name == name).unwrap(),
        args: args.iter().map(|&(v, n)| bits(v, n)).collect(),
    }
}

fn forward(p: &mut Pipeline, mac: u128, port: u128) {
    let t = table(p, "FlowIngress.forward");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(mac, 48))],
        priority: 0,
    };
    let a = action(p, "FlowIngress.forward_to", &[(port, 9)]);
    p.table_insert(t, &key, &a.clone().into()).unwrap();
}

/// A flow key with everything wild except the source address.
fn flow_key(src: u128, mask: u128, priority: i32) -> EntryKey {
    let any = |n| MatchField::Ternary {
        value: bits(0, n),
        mask: bits(0, n),
    };
    EntryKey {
        fields: vec![
            any(9),
            any(16),
            any(12),
            MatchField::Ternary {
                value: bits(src & mask, 128),
                mask: bits(mask, 128),
            },
            any(128),
            any(6),
            any(8),
            any(16),
            any(16),
        ],
        priority,
    }
}

const SRC: u128 = 0xffff_0a00_0001;

fn send(p: &mut Pipeline, f: &[u8], port: u16, now_ns: u64) -> v1model::IngressVerdict {
    let mut ctx = p.new_context();
    assert!(ctx.set_frame(f));
    let input = IngressInput {
        port,
        now_ns,
        ..IngressInput::default()
    };
    p.ingress(&mut ctx, &input, &NoTrafficManager)
}

#[test]
fn forwards_floods_and_leaves_bytes_alone() {
    let mut p = load("flows");
    forward(&mut p, 0x0200_0000_0002, 7);
    for f in [
        v4(17, 100),
        v4(6, 100),
        v4(1, 33),
        v6(6, 60),
        v6(17, 60),
        frame(0x88cc, &[1, 2, 3]),
        common::vlan(5, 100, &v4(17, 80)),
        common::vlan(5, 100, &v6(6, 80)),
    ] {
        let mut ctx = p.new_context();
        ctx.set_frame(&f);
        let input = IngressInput {
            port: 3,
            now_ns: 1_000,
            ..IngressInput::default()
        };
        let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
        assert!(!v.drop && !v.parser_error && !v.checksum_error, "{v:?}");
        assert_eq!((v.egress_port, v.mcast_group), (7, 0));
        let out = EgressInput {
            port: 7,
            now_ns: 2_000,
            ..EgressInput::default()
        };
        let e = p.egress(&mut ctx, &out, &NoTrafficManager);
        assert!(!e.drop);
        assert_eq!(ctx.output(), f);
    }
    // Unknown destination: flooded; the egress prunes the port of arrival.
    let mut f = v4(17, 60);
    f[0] = 0xfe;
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    let input = IngressInput {
        port: 3,
        ..IngressInput::default()
    };
    let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
    assert_eq!((v.drop, v.mcast_group), (false, 1));
    for (port, dropped) in [(1, false), (3, true), (4, false)] {
        let mut copy = p.new_context();
        copy.copy_from(&ctx);
        let out = EgressInput {
            port,
            rid: 1,
            instance_type: InstanceType::Replication,
            ..EgressInput::default()
        };
        let e = p.egress(&mut copy, &out, &NoTrafficManager);
        assert_eq!(e.drop, dropped);
        assert_eq!(copy.output(), if dropped { &[][..] } else { &f[..] });
    }
}

#[test]
fn parser_errors_and_bad_checksums_drop() {
    let mut p = load("flows");
    forward(&mut p, 0x0200_0000_0002, 7);
    let good = v4(17, 100);
    for cut in 0..good.len() {
        let v = send(&mut p, &good[..cut], 1, 0);
        // Ethernet 14, IPv4 20, UDP 8.
        assert_eq!(v.parser_error, cut < 42, "cut at {cut}");
        assert_eq!(v.drop, cut < 42, "cut at {cut}");
    }
    let mut bad = good.clone();
    bad[25] ^= 1;
    let v = send(&mut p, &bad, 1, 0);
    assert!(v.checksum_error && v.drop && !v.parser_error);
    // verify(version == 4).
    let mut bad = good;
    bad[14] = 0x65;
    assert!(send(&mut p, &bad, 1, 0).parser_error);
}

#[test]
fn controller_headers() {
    let mut p = load("flows");
    // packet_out with a port: bypasses the tables and loses the header.
    let inner = v4(17, 70);
    let mut f = vec![0x02, 0x80];
    f.extend_from_slice(&inner);
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    let input = IngressInput {
        port: 510,
        ..IngressInput::default()
    };
    let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
    assert_eq!((v.drop, v.egress_port, v.mcast_group), (false, 5, 0));
    let out = EgressInput {
        port: 5,
        ..EgressInput::default()
    };
    p.egress(&mut ctx, &out, &NoTrafficManager);
    assert_eq!(ctx.output(), inner);
    // To the CPU port: packet_in in front, cut to 64 bytes.
    let f = v4(17, 200);
    ctx.set_frame(&f);
    let input = IngressInput {
        port: 3,
        ..IngressInput::default()
    };
    p.ingress(&mut ctx, &input, &NoTrafficManager);
    let out = EgressInput {
        port: 510,
        ..EgressInput::default()
    };
    let e = p.egress(&mut ctx, &out, &NoTrafficManager);
    assert!(e.truncated);
    assert_eq!(&ctx.output()[..2], &[0x01, 0x81]); // port 3 in 9 bits, reason 1 in 7
    assert_eq!(&ctx.output()[2..], &f[..62]);
}

#[test]
fn paced_class_holds_packets_at_exact_times() {
    let mut p = load("flows");
    forward(&mut p, 0x0200_0000_0002, 7);
    let flows = table(&p, "FlowIngress.flows");
    let classify = action(&p, "FlowIngress.classify", &[(9, 32), (0, 1)]);
    p.table_insert(
        flows,
        &flow_key(SRC, u128::MAX, 10),
        &classify.clone().into(),
    )
    .unwrap();
    let classes = table(&p, "FlowIngress.classes");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(9, 32))],
        priority: 0,
    };
    // 1/3 ns more than 16 ns per byte, so that fractions show.
    let per_byte = (16u64 << 24) + 5_592_405;
    let paced = action(
        &p,
        "FlowIngress.paced_static",
        &[(per_byte.into(), 64), (5_000, 32), (24_000, 64)],
    );
    p.table_insert(classes, &key, &paced.clone().into())
        .unwrap();

    let f = v4(17, 1_000);
    let mut clock = 0u128;
    for i in 0..50u64 {
        let now_ns = 1_000_000 + i * 5_000 + if i > 25 { 1_000_000 } else { 0 };
        let v = send(&mut p, &f, 1, now_ns);
        let start = clock.max(u128::from(now_ns) << 24);
        let cost = (f.len() as u64 + 4) * per_byte;
        clock = start + u128::from(cost);
        let expect = Hold {
            class: 9,
            counts_to: None,
            departure_ns: (start.div_ceil(1 << 24)) as u64,
            cost_q24: cost,
            allowance_ns: 24_000,
        };
        assert_eq!(v.hold, Some(expect), "packet {i}");
        assert_eq!((v.drop, v.egress_port), (false, 7));
    }
    let read = |p: &Pipeline, name: &str| {
        let r = p.registers().iter().position(|r| r.name == name).unwrap();
        let cell = p.register_read(r, 9).unwrap();
        cell.iter().fold(0u128, |v, &b| (v << 8) | u128::from(b))
    };
    assert_eq!(read(&p, "FlowIngress.clock_ns"), clock >> 24);
    assert_eq!(read(&p, "FlowIngress.clock_frac"), clock & 0xff_ffff);

    // Backlog over the limit: dropped and counted.
    let mut ctx = p.new_context();
    ctx.set_frame(&f);
    let input = IngressInput {
        port: 1,
        now_ns: 9_000_000,
        ..IngressInput::default()
    };
    let over = 5_001 - (f.len() as u64 + 4);
    assert!(p.ingress(&mut ctx, &input, &Backlog(over)).drop);
    let v = p.ingress(&mut ctx, &input, &Backlog(over - 1));
    assert!(!v.drop && v.hold.is_some());
    let counter = |p: &Pipeline, name: &str| {
        let c = p.counters().iter().position(|c| c.name == name).unwrap();
        p.counter_read(c, 9).unwrap()
    };
    let bytes = f.len() as u64;
    assert_eq!(
        counter(&p, "FlowIngress.class_accepted"),
        CounterValue {
            packets: 51,
            bytes: 51 * bytes
        }
    );
    assert_eq!(
        counter(&p, "FlowIngress.class_limit_drops"),
        CounterValue { packets: 1, bytes }
    );
    let entry = p.table_entry(flows, &flow_key(SRC, u128::MAX, 10)).unwrap();
    assert_eq!(entry.counter.unwrap().packets, 52);
}

#[test]
fn meters_colour_and_drop() {
    let mut p = load("flows");
    forward(&mut p, 0x0200_0000_0002, 7);
    let flows = table(&p, "FlowIngress.flows");
    let key = flow_key(SRC, u128::MAX, 10);
    let classify = action(&p, "FlowIngress.classify", &[(2, 32), (1, 1)]);
    p.table_insert(flows, &key, &classify.clone().into())
        .unwrap();
    let f = v4(17, 86); // 128 bytes in all
    assert_eq!(f.len(), 128);
    // Not configured: green.
    for _ in 0..100 {
        assert!(!send(&mut p, &f, 1, 0).drop);
    }
    let config = MeterConfig {
        cir: 128_000,
        cburst: 256,
        pir: 128_000,
        pburst: 256,
        eburst: 0,
    };
    let meter = |p: &Pipeline| p.table_entry(flows, &key).unwrap().meter.unwrap();
    let green = |packets| CounterValue {
        packets,
        bytes: 128 * packets,
    };
    assert_eq!(meter(&p).counts[0], green(100));
    p.direct_meter_set(flows, Some(&key), set_to(config))
        .unwrap();
    assert_eq!(meter(&p).config, Some(config));
    let dropped: Vec<bool> = [0, 0, 0, 999_999, 1_000_000, 1_000_000]
        .iter()
        .map(|&now| send(&mut p, &f, 1, now).drop)
        .collect();
    assert_eq!(dropped, [false, false, true, true, false, true]);
    p.direct_meter_set(flows, Some(&key), MeterWrite::default())
        .unwrap();
    assert!(!send(&mut p, &f, 1, 1_000_000).drop);
    // The counts stay.
    assert_eq!(
        (meter(&p).config, meter(&p).counts),
        (None, [green(104), green(0), green(3)])
    );
    // The indirect meter, by class.
    p.meter_write(0, 2, set_to(config)).unwrap();
    let before = p.meter_read(0, 2).unwrap().counts[0].packets;
    let dropped: Vec<bool> = (0..3).map(|_| send(&mut p, &f, 1, 5).drop).collect();
    assert_eq!(dropped, [false, false, true]);
    let state = p.meter_read(0, 2).unwrap();
    assert_eq!(state.config, Some(config));
    assert_eq!(state.counts.map(|c| c.packets), [before + 2, 0, 1]);
    let clear = MeterWrite {
        config: None,
        clear_counts: true,
    };
    p.meter_write(0, 2, clear).unwrap();
    assert_eq!(p.meter_read(0, 2).unwrap(), MeterState::default());
}

fn set_to(config: MeterConfig) -> MeterWrite {
    MeterWrite {
        config: Some(config),
        clear_counts: false,
    }
}

/// Among equal priorities the first wins: one that is taken out and put back is still the first,
/// and its meter has not been filled up.
#[test]
fn a_restored_entry_is_as_it_was() {
    let mut p = load("flows");
    forward(&mut p, 0x0200_0000_0002, 7);
    let flows = table(&p, "FlowIngress.flows");
    let keys = [u128::MAX, !0xff, 0].map(|mask| flow_key(SRC, mask, 5));
    for (key, class) in keys.iter().zip(1u128..) {
        let classify = action(&p, "FlowIngress.classify", &[(class, 32), (1, 1)]);
        p.table_insert(flows, key, &classify.clone().into())
            .unwrap();
    }
    let config = MeterConfig {
        cir: 1,
        cburst: 256,
        pir: 1,
        pburst: 256,
        eburst: 0,
    };
    p.direct_meter_set(flows, Some(&keys[0]), set_to(config))
        .unwrap();
    let f = v4(17, 86);
    let dropped: Vec<bool> = (0..3).map(|_| send(&mut p, &f, 1, 0).drop).collect();
    assert_eq!(dropped, [false, false, true]);
    let before = p.table_entries(flows, 0, 10);

    let removed = p.table_delete(flows, &keys[0]).unwrap();
    assert!(!send(&mut p, &f, 1, 0).drop, "the second has no meter");
    p.table_restore(flows, removed).unwrap();
    assert_eq!(p.table_entries(flows, 0, 10).items[0], before.items[0]);
    assert!(send(&mut p, &f, 1, 0).drop, "the first, and still red");
    let hits = |p: &Pipeline| {
        let entries = p.table_entries(flows, 0, 10).items;
        entries.iter().map(|e| e.counter.unwrap().packets).collect()
    };
    let hits: Vec<u64> = hits(&p);
    assert_eq!(hits, [4, 1, 0]);

    // One whose key has been given away meanwhile takes its place again.
    let before = p.table_entry(flows, &keys[2]).unwrap();
    let removed = p.table_delete(flows, &keys[2]).unwrap();
    let classify = action(&p, "FlowIngress.classify", &[(9, 32), (0, 1)]);
    p.table_insert(flows, &keys[2], &classify.clone().into())
        .unwrap();
    p.table_restore(flows, removed).unwrap();
    assert_eq!(p.table_entry(flows, &keys[2]).unwrap(), before);
}

/// Pages are in insertion order and complete, even if entries come and go behind them.
#[test]
fn a_table_is_read_in_pages() {
    let mut p = load("flows");
    let flows = table(&p, "FlowIngress.flows");
    let classify = action(&p, "FlowIngress.classify", &[(1, 32), (0, 1)]);
    let key = |n: u128| flow_key(n, u128::MAX, 1);
    for n in 0..5 {
        p.table_insert(flows, &key(n), &classify.clone().into())
            .unwrap();
    }
    let first = p.table_entries(flows, 0, 2);
    let keys: Vec<_> = first.items.iter().map(|e| e.key.clone()).collect();
    assert_eq!(keys, [key(0), key(1)]);
    p.table_delete(flows, &key(1)).unwrap();
    p.table_delete(flows, &key(2)).unwrap();
    p.table_insert(flows, &key(5), &classify.clone().into())
        .unwrap();
    let second = p.table_entries(flows, first.next.unwrap(), 2);
    let keys: Vec<_> = second.items.iter().map(|e| e.key.clone()).collect();
    assert_eq!(keys, [key(3), key(4)]);
    let last = p.table_entries(flows, second.next.unwrap(), 2);
    assert_eq!((last.items.len(), last.next), (1, None));
    assert_eq!(last.items[0].key, key(5));
}

#[test]
fn greater_priority_wins_and_routes_take_the_longest_prefix() {
    let mut p = load("flows");
    let flows = table(&p, "FlowIngress.flows");
    for (mask, class, priority) in [(0u128, 1u128, 1), (!0xff, 2, 5), (u128::MAX, 3, 3)] {
        let a = action(&p, "FlowIngress.classify", &[(class, 32), (0, 1)]);
        p.table_insert(flows, &flow_key(SRC, mask, priority), &a.clone().into())
            .unwrap();
    }
    send(&mut p, &v4(17, 60), 1, 0);
    let hits: Vec<u64> = p
        .table_entries(flows, 0, 10)
        .items
        .iter()
        .map(|e| e.counter.unwrap().packets)
        .collect();
    assert_eq!(hits, [0, 1, 0]);

    let routes = table(&p, "FlowIngress.routes");
    let route = |value: u128, prefix_bits| EntryKey {
        fields: vec![MatchField::Lpm {
            value: bits(value, 32),
            prefix_bits,
        }],
        priority: 0,
    };
    let ttl = action(&p, "FlowIngress.set_ttl", &[]);
    let drop = action(&p, "FlowIngress.drop", &[]);
    p.table_insert(routes, &route(0, 0), &drop.clone().into())
        .unwrap();
    p.table_insert(routes, &route(0x0a00_0000, 8), &ttl.clone().into())
        .unwrap();
    let mut ctx = p.new_context();
    let f = v4(17, 60);
    ctx.set_frame(&f);
    let v = p.ingress(&mut ctx, &IngressInput::default(), &NoTrafficManager);
    assert!(!v.drop);
    p.egress(
        &mut ctx,
        &EgressInput {
            port: 9,
            ..EgressInput::default()
        },
        &NoTrafficManager,
    );
    assert_eq!(ctx.output()[22], f[22] - 1);
    assert!(ipv4_checksum_ok(&ctx.output()[14..34]));
    p.table_insert(routes, &route(0x0a00_0002, 32), &drop.clone().into())
        .unwrap();
    // mark_to_drop clears the multicast group that the flood chose.
    assert!(send(&mut p, &f, 1, 0).drop);
    p.table_delete(routes, &route(0x0a00_0002, 32)).unwrap();
    assert!(!send(&mut p, &f, 1, 0).drop);
}
