//! Variable-length fields, header unions, action profiles and selectors, digests, idle timeouts,
//! value sets.

mod common;

use common::{bits, load, table};
use v1model::entries::profile::{
    GroupMember, IndirectAction, ProfileGroup, ProfileMember, ProfileRules, SizeSemantics,
    WatchPort, WeightedAction,
};
use v1model::entries::{ActionCall, ControlError, EntryKey, MatchField};
use v1model::{EgressInput, IngressInput, IngressVerdict, NoTrafficManager, Pipeline};

/// The verdict of ingress and the bytes after egress.
fn through(p: &mut Pipeline, f: &[u8], now_ns: u64) -> (IngressVerdict, Vec<u8>) {
    let mut ctx = p.new_context();
    ctx.set_frame(f);
    let input = IngressInput {
        now_ns,
        ..IngressInput::default()
    };
    let v = p.ingress(&mut ctx, &input, &NoTrafficManager);
    p.egress(&mut ctx, &EgressInput::default(), &NoTrafficManager);
    (v, ctx.output().to_vec())
}

/// The 14-byte header of the programs.
fn e(src: u64, t: u16) -> Vec<u8> {
    let mut f = vec![1, 2, 3, 4, 5, 6];
    f.extend_from_slice(&src.to_be_bytes()[2..]);
    f.extend_from_slice(&t.to_be_bytes());
    f
}

fn to(p: &Pipeline, port: u128) -> ActionCall {
    ActionCall {
        action: p.actions().iter().position(|a| a.name == "I.a").unwrap(),
        args: vec![bits(port, 9)],
    }
}

fn key(t: u16) -> EntryKey {
    EntryKey {
        fields: vec![MatchField::Exact(bits(u128::from(t), 16))],
        priority: 0,
    }
}

#[test]
fn a_variable_field_is_parsed_and_written_back() {
    let mut p = load("varbit");
    let f = [e(1, 0), vec![7, 0xaa, 0xbb], b"payload".to_vec()].concat();
    let (v, out) = through(&mut p, &f, 0);
    assert!(!v.parser_error);
    assert_eq!(out, f);
    // 16 bits are extracted: with 8 there the packet is too short and the header not valid.
    let f = [e(1, 0), vec![7, 0xaa]].concat();
    let (v, out) = through(&mut p, &f, 0);
    assert!(v.parser_error);
    assert_eq!(out, f);
}

#[test]
fn one_member_of_a_union_is_valid() {
    let mut p = load("union");
    for t in [1, 2] {
        let f = [e(1, t), vec![1, 2, 3, 4]].concat();
        let (v, out) = through(&mut p, &f, 0);
        assert!(!v.parser_error);
        assert_eq!(out, f);
    }
}

#[test]
fn entries_name_members_of_a_profile() {
    let mut p = load("profile");
    let t = table(&p, "I.t");
    let member = |p: &Pipeline, id, port| ProfileMember {
        id,
        call: to(p, port),
    };
    assert_eq!(p.tables()[t].profile, Some(0));
    let direct = p.table_insert(t, &key(5), &to(&p, 3).into());
    assert!(matches!(direct, Err(ControlError::InvalidArgument(_))));
    let unknown = p.table_insert(t, &key(5), &IndirectAction::Member(9).into());
    assert!(matches!(unknown, Err(ControlError::NotFound(_))));
    let m = member(&p, 9, 3);
    p.member_insert(0, &m).unwrap();
    let again = p.member_insert(0, &m);
    assert!(matches!(again, Err(ControlError::AlreadyExists(_))));
    p.table_insert(t, &key(5), &IndirectAction::Member(9).into())
        .unwrap();
    assert_eq!(through(&mut p, &e(1, 5), 0).0.egress_port, 3);
    // The member changes, the entry with it.
    let m = member(&p, 9, 4);
    p.member_modify(0, &m).unwrap();
    assert_eq!(through(&mut p, &e(1, 5), 0).0.egress_port, 4);
    let entry = p.table_entry(t, &key(5)).unwrap();
    assert_eq!(entry.indirect, Some(IndirectAction::Member(9)));
    assert_eq!(entry.action, to(&p, 4));
    assert_eq!(p.members(0, 0, 10).items, [member(&p, 9, 4)]);
    assert_eq!(p.member(0, 9).unwrap(), member(&p, 9, 4));
    // A profile without selector has no groups.
    let group = ProfileGroup {
        id: 1,
        max_size: 0,
        members: Vec::new(),
    };
    let refused = p.group_insert(0, &group);
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    // Used members stay, and the profile holds four.
    let used = p.member_delete(0, 9);
    assert!(matches!(used, Err(ControlError::FailedPrecondition(_))));
    for id in [1, 2, 3] {
        let m = member(&p, id, 1);
        p.member_insert(0, &m).unwrap();
    }
    let m = member(&p, 4, 1);
    let full = p.member_insert(0, &m);
    assert!(matches!(full, Err(ControlError::ResourceExhausted(_))));
    p.table_delete(t, &key(5)).unwrap();
    p.member_delete(0, 9).unwrap();
    assert_eq!(through(&mut p, &e(1, 5), 0).0.egress_port, 0);
}

/// A group of members with weights.
fn group(id: u32, max_size: u32, members: &[(u32, u32)]) -> ProfileGroup {
    let members = members.iter().map(|&(member, weight)| GroupMember {
        member,
        weight,
        watch: None,
    });
    ProfileGroup {
        id,
        max_size,
        members: members.collect(),
    }
}

#[test]
fn a_selector_spreads_flows_over_a_group() {
    let mut p = load("selector");
    let t = table(&p, "I.t");
    for (id, port) in [(1, 1), (2, 2), (3, 3)] {
        let call = to(&p, port);
        p.member_insert(0, &ProfileMember { id, call }).unwrap();
    }
    let group = |members: &[(u32, u32)]| group(7, 16, members);
    p.group_insert(0, &group(&[])).unwrap();
    p.table_insert(t, &key(5), &IndirectAction::Group(7).into())
        .unwrap();
    // An empty group does nothing.
    assert_eq!(through(&mut p, &e(1, 5), 0).0.egress_port, 0);
    p.group_modify(0, &group(&[(1, 1), (2, 2)])).unwrap();
    let ports = |p: &mut Pipeline| {
        let mut count = [0; 5];
        for src in 0..300 {
            let port = through(p, &e(src * 77, 5), 0).0.egress_port;
            assert_eq!(through(p, &e(src * 77, 5), 0).0.egress_port, port);
            count[usize::from(port)] += 1;
        }
        count
    };
    let count = ports(&mut p);
    assert_eq!(count[1] + count[2], 300);
    assert!((60..140).contains(&count[1]), "{count:?}");
    let busy = p.member_delete(0, 1);
    assert!(matches!(busy, Err(ControlError::FailedPrecondition(_))));
    for (bad, many) in [
        (vec![(8, 1)], false),
        (vec![(1, 0)], false),
        (vec![(1, 17)], true),
    ] {
        let refused = p.group_modify(0, &group(&bad));
        assert!(refused.is_err(), "{bad:?}");
        let exhausted = matches!(refused, Err(ControlError::ResourceExhausted(_)));
        assert_eq!(exhausted, many);
    }
    assert_eq!(p.groups(0, 0, 10).items, [group(&[(1, 1), (2, 2)])]);
    p.group_modify(0, &group(&[(3, 1)])).unwrap();
    p.member_delete(0, 1).unwrap();
    assert_eq!(ports(&mut p)[3], 300);
}

#[test]
fn one_shot_sets_are_chosen_among_and_not_beside_members() {
    let mut p = load("selector");
    let t = table(&p, "I.t");
    let set = |p: &Pipeline, ports: &[(u16, u32)]| {
        let actions = ports.iter().map(|&(port, weight)| WeightedAction {
            call: to(p, port.into()),
            weight,
            watch: Some(WatchPort {
                port: port.into(),
                numeric: false,
            }),
        });
        IndirectAction::OneShot(actions.collect())
    };
    let one = set(&p, &[(3, 1), (4, 2)]);
    for port in 1..4 {
        p.port_changed(port, true);
    }
    let unknown = p.table_insert(t, &key(5), &one.clone().into());
    let no_port = "watch_port: this switch has no port 4".to_owned();
    assert_eq!(unknown, Err(ControlError::InvalidArgument(no_port)));
    p.port_changed(4, true);
    p.table_insert(t, &key(5), &one.clone().into()).unwrap();
    assert_eq!(p.table_entry(t, &key(5)).unwrap().indirect, Some(one));
    let chosen = |p: &mut Pipeline| {
        let mut ports: Vec<u16> = (0..100)
            .map(|src| through(p, &e(src * 77, 5), 0).0.egress_port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    };
    assert_eq!(chosen(&mut p), [3, 4]);
    // A port that is down is not chosen; with all of them down nothing is done.
    p.port_changed(4, false);
    assert_eq!(chosen(&mut p), [3]);
    p.port_changed(3, false);
    assert_eq!(chosen(&mut p), [0]);
    p.port_changed(4, true);
    p.port_changed(3, true);
    assert_eq!(chosen(&mut p), [3, 4]);
    let m = ProfileMember {
        id: 1,
        call: to(&p, 1),
    };
    let refused = p.member_insert(0, &m);
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
    // The profile has room for 4 weights in all; a replaced action makes room.
    let large = set(&p, &[(1, 3)]);
    let full = p.table_insert(t, &key(6), &large.clone().into());
    assert!(matches!(full, Err(ControlError::ResourceExhausted(_))));
    p.table_modify(t, &key(5), &large.clone().into()).unwrap();
    let two = set(&p, &[(2, 1)]);
    p.table_insert(t, &key(6), &two.clone().into()).unwrap();
    // An entry that is put back takes its room again.
    let saved = p.table_delete(t, &key(5)).unwrap();
    p.table_restore(t, saved).unwrap();
    assert_eq!(p.table_entry(t, &key(5)).unwrap().indirect, Some(large));
    let saved = p.table_save(t, Some(&key(5))).unwrap();
    let small = set(&p, &[(1, 1)]);
    p.table_modify(t, &key(5), &small.clone().into()).unwrap();
    p.table_restore(t, saved).unwrap();
    let full = p.table_insert(t, &key(7), &two.clone().into());
    assert!(matches!(full, Err(ControlError::ResourceExhausted(_))));
    p.table_delete(t, &key(5)).unwrap();
    p.table_delete(t, &key(6)).unwrap();
    p.member_insert(0, &m).unwrap();
    let refused = p.table_insert(t, &key(5), &small.clone().into());
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
}

#[test]
fn sizes_of_groups_count_weights_or_members() {
    let mut p = load("selector");
    for id in 1..=4 {
        let call = to(&p, u128::from(id));
        p.member_insert(0, &ProfileMember { id, call }).unwrap();
    }
    let exhausted = |refused| matches!(refused, Err(ControlError::ResourceExhausted(_)));
    p.group_insert(0, &group(1, 0, &[(1, 2)])).unwrap();
    assert!(exhausted(p.group_insert(0, &group(2, 0, &[(2, 3)]))));
    p.group_insert(0, &group(2, 0, &[(2, 2)])).unwrap();
    let changed = p.group_modify(0, &group(2, 3, &[(2, 1)]));
    assert!(matches!(changed, Err(ControlError::InvalidArgument(_))));
    p.group_delete(0, 2).unwrap();
    p.group_delete(0, 1).unwrap();
    let rules = ProfileRules {
        max_group_size: 2,
        semantics: SizeSemantics::SumOfMembers,
    };
    p.profile_rules(0, rules).unwrap();
    p.group_insert(0, &group(1, 0, &[(1, 1_000), (2, 1)]))
        .unwrap();
    let three = [(1, 1), (2, 1), (3, 1)];
    assert!(exhausted(p.group_modify(0, &group(1, 0, &three))));
    assert!(exhausted(
        p.group_insert(0, &group(2, 1, &[(1, 1), (2, 1)]))
    ));
}

#[test]
fn a_digest_carries_its_fields() {
    let mut p = load("digest");
    assert_eq!(p.digests()[0].widths, [48]);
    let mut ctx = p.new_context();
    ctx.set_frame(&e(0x0a0b_0c0d, 5));
    let v = p.ingress(&mut ctx, &IngressInput::default(), &NoTrafficManager);
    assert_eq!(v.digest, Some(0));
    let words: Vec<u64> = p.digest(&ctx, 0).collect();
    assert_eq!(p.digest_fields(0, &words), [bits(0x0a0b_0c0d, 48)]);
}

#[test]
fn no_entry_is_idle_before_packets_come() {
    let mut p = load("timeout");
    let t = table(&p, "I.t");
    p.set_time(1_000);
    p.table_insert(t, &key(5), &to(&p, 3).into()).unwrap();
    p.idle_timeout_set(t, &key(5), 500).unwrap();
    // It has waited beside another program that runs.
    p.start(10_000);
    assert!(p.take_idle_entries(9).is_empty());
    let idle = p.table_entry(t, &key(5)).unwrap().idle.unwrap();
    assert_eq!(idle.since_hit_ns, 0);
    p.set_time(10_499);
    assert!(p.take_idle_entries(9).is_empty());
    p.set_time(10_500);
    assert_eq!(p.take_idle_entries(9).len(), 1);
}

#[test]
fn entries_of_the_program_may_be_changed_where_they_are_not_constant() {
    let mut p = load("entries");
    let t = table(&p, "I.t");
    let own = p.table_entries(t, 0, 9).items;
    let refused = p.table_delete(t, &own[0].key);
    assert!(matches!(refused, Err(ControlError::PermissionDenied(_))));
    p.table_rules(t, false, 2).unwrap();
    p.table_insert(t, &key(7), &to(&p, 3).into()).unwrap();
    let full = p.table_insert(t, &key(8), &to(&p, 3).into());
    assert!(matches!(full, Err(ControlError::ResourceExhausted(_))));
    p.table_delete(t, &own[0].key).unwrap();
    p.table_insert(t, &key(8), &to(&p, 3).into()).unwrap();
    // Never less than there is.
    p.table_rules(t, true, 0).unwrap();
    assert_eq!((p.tables()[t].size, p.tables()[t].const_entries), (2, true));
}

#[test]
fn an_entry_without_packets_is_idle_once_per_timeout() {
    let mut p = load("timeout");
    let t = table(&p, "I.t");
    p.set_time(1_000);
    p.table_insert(t, &key(5), &to(&p, 3).into()).unwrap();
    p.table_insert(t, &key(6), &to(&p, 3).into()).unwrap();
    assert_eq!(p.next_idle_ns(), None);
    p.idle_timeout_set(t, &key(5), 500).unwrap();
    assert_eq!(p.next_idle_ns(), Some(1_500));
    through(&mut p, &e(1, 5), 1_499);
    p.set_time(1_500);
    assert!(p.take_idle_entries(9).is_empty());
    p.set_time(1_998);
    assert_eq!(p.next_idle_ns(), Some(1_999));
    let idle = p.table_entry(t, &key(5)).unwrap().idle.unwrap();
    assert_eq!((idle.timeout_ns, idle.since_hit_ns), (500, 499));
    p.set_time(1_999);
    let entries = p.take_idle_entries(9);
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].table, &entries[0].key), (t, &key(5)));
    // Again after another timeout, for as long as no packet comes.
    assert!(p.take_idle_entries(9).is_empty());
    p.set_time(2_499);
    assert_eq!(p.take_idle_entries(9).len(), 1);
    // The same timeout set again puts nothing forward.
    p.set_time(2_550);
    p.idle_timeout_set(t, &key(5), 500).unwrap();
    assert!(p.take_idle_entries(9).is_empty());
    through(&mut p, &e(1, 5), 2_600);
    p.set_time(3_099);
    assert!(p.take_idle_entries(9).is_empty());
    // Few looks at a time.
    p.idle_timeout_set(t, &key(6), 1).unwrap();
    p.set_time(10_000);
    assert_eq!(p.take_idle_entries(1).len(), 1);
    assert_eq!(p.take_idle_entries(1).len(), 1);
    assert!(p.take_idle_entries(1).is_empty());
    // A removed entry is reported no more; one that is put back is.
    let saved = p.table_delete(t, &key(6)).unwrap();
    p.idle_timeout_set(t, &key(5), 0).unwrap();
    assert_eq!(p.next_idle_ns(), None);
    p.table_restore(t, saved).unwrap();
    assert!(p.take_idle_entries(9).is_empty(), "it was told just now");
    p.set_time(10_001);
    assert_eq!(p.take_idle_entries(9).len(), 1);
}

#[test]
fn value_set_members_are_checked() {
    let mut p = load("vset");
    assert_eq!(p.value_sets()[0].widths, [16]);
    let member = |value, width| vec![MatchField::Exact(bits(value, width))];
    p.value_set_write(0, &[member(5, 16), member(6, 16)])
        .unwrap();
    assert_eq!(
        p.value_set_members(0).unwrap(),
        [member(5, 16), member(6, 16)]
    );
    let wide = p.value_set_write(0, &[member(5, 24)]);
    assert!(matches!(wide, Err(ControlError::InvalidArgument(_))));
    let many: Vec<_> = (0..5).map(|v| member(v, 16)).collect();
    let refused = p.value_set_write(0, &many);
    assert!(matches!(refused, Err(ControlError::ResourceExhausted(_))));
    let refused = p.value_set_write(1, &[]);
    assert!(matches!(refused, Err(ControlError::NotFound(_))));
    assert_eq!(p.value_set_members(0).unwrap().len(), 2);
}
