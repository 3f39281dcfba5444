//! Functions for BMv2's Thrift interface: handles of entries, members and groups as default entries.

mod common;

use common::{bits, load, program};
use v1model::entries::profile::{IndirectAction, ProfileMember};
use v1model::entries::{ActionCall, ControlError, EntryAction, EntryKey, MatchField};
use v1model::{IngressInput, InstanceType, LoadOptions, NoTrafficManager, Pipeline};

/// `profile.p4` with member 1, which sends to port 2.
fn with_member(options: &LoadOptions) -> Pipeline {
    let mut p = Pipeline::load(&program("profile"), options).expect("it loads");
    let action = p.actions().iter().position(|action| action.name == "I.a");
    let call = ActionCall {
        action: action.expect("action I.a"),
        args: vec![bits(2, 9)],
    };
    p.member_insert(0, &ProfileMember { id: 1, call })
        .expect("there is room");
    p
}

fn key(value: u128) -> EntryKey {
    EntryKey {
        fields: vec![MatchField::Exact(bits(value, 16))],
        priority: 0,
    }
}

/// The port that a packet of a type without an entry is sent to.
fn missed(p: &mut Pipeline) -> u16 {
    let mut ctx = p.new_context();
    assert!(ctx.set_frame(&[0xFF; 60]));
    let input = IngressInput {
        port: 1,
        now_ns: 0,
        instance_type: InstanceType::Normal,
    };
    p.ingress(&mut ctx, &input, &NoTrafficManager).egress_port
}

#[test]
fn a_member_is_run_where_no_entry_matches() {
    let mut p = with_member(&LoadOptions::default());
    assert_eq!(missed(&mut p), 0);
    let member = IndirectAction::Member(1);
    let before = p.table_save(0, None).expect("a table");
    p.table_set_default_indirect(0, &member).expect("a member");
    assert_eq!(missed(&mut p), 2);
    assert_eq!(p.table_default(0).expect("a table").indirect, Some(member));
    // The default entry uses the member until it names another one or none.
    let used = p.member_delete(0, 1);
    assert!(matches!(used, Err(ControlError::FailedPrecondition(_))));
    p.table_restore(0, before)
        .expect("the default entry as it was");
    assert_eq!(missed(&mut p), 0);
    p.member_delete(0, 1).expect("nothing uses it");
    let unknown = p.table_set_default_indirect(0, &IndirectAction::Member(1));
    assert!(matches!(unknown, Err(ControlError::NotFound(_))));
    let one_shot = IndirectAction::OneShot(Vec::new());
    let refused = p.table_set_default_indirect(0, &one_shot);
    assert!(matches!(refused, Err(ControlError::InvalidArgument(_))));
}

#[test]
fn entries_have_handles_where_they_are_asked_for() {
    let mut p = with_member(&LoadOptions {
        entry_handles: true,
        ..LoadOptions::default()
    });
    let action: EntryAction = IndirectAction::Member(1).into();
    for value in 0..3 {
        p.table_insert(0, &key(value), &action)
            .expect("there is room");
    }
    let removed = p.table_delete(0, &key(1)).expect("it exists");
    p.table_insert(0, &key(9), &action).expect("there is room");
    let again = 1 << 24 | 1;
    assert_eq!(p.entry_handle(0, &key(9)), Ok(again));
    let first = p.handled_entries(0, 0, 2);
    let handles: Vec<u32> = first.items.iter().map(|handled| handled.handle).collect();
    assert_eq!(handles, [0, again]);
    assert_eq!(first.next, Some(2));
    // The entry at the index is found with any version, and has its own handle.
    let at = p.handled_entry(0, 1).expect("an entry");
    assert_eq!((at.handle, at.entry.key), (again, key(9)));
    assert!(p.handled_entry(0, 3).is_none());
    // An entry that is put back gets a handle as a new one.
    p.table_restore(0, removed).expect("there is room");
    assert_eq!(p.entry_handle(0, &key(1)), Ok(3));
    assert_eq!(p.table_len(0), Ok(4));
    let mut without = load("profile");
    without
        .table_insert(0, &key(0), &EntryAction::Indirect(IndirectAction::Group(1)))
        .expect_err("no group");
    assert!(without.handled_entries(0, 0, 9).items.is_empty());
}
