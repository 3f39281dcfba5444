//! One feature per program.

mod common;

use common::{load, program};
use v1model::{EgressInput, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

/// Port and output bytes; `None` when dropped at ingress.
fn through(p: &mut Pipeline, f: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut ctx = p.new_context();
    ctx.set_frame(f);
    let v = p.ingress(&mut ctx, &IngressInput::default(), &NoTrafficManager);
    if v.drop {
        return None;
    }
    p.egress(&mut ctx, &EgressInput::default(), &NoTrafficManager);
    Some((v.egress_port, ctx.output().to_vec()))
}

/// A 14-byte header of the small programs.
fn e(dst: u64, src: u64, t: u16) -> Vec<u8> {
    let mut f = dst.to_be_bytes()[2..].to_vec();
    f.extend_from_slice(&src.to_be_bytes()[2..]);
    f.extend_from_slice(&t.to_be_bytes());
    f
}

#[test]
fn reject_goes_on_without_the_rest() {
    // p4c compiles reject to the end of the parser without an error, and so BMv2 runs it.
    let mut p = load("reject");
    for t in [1, 2, 3, 4] {
        let f = [e(1, 2, t), vec![9; 5]].concat();
        assert_eq!(through(&mut p, &f), Some((0, f)));
    }
}

#[test]
fn entries_of_the_program() {
    let mut p = load("entries");
    assert_eq!(through(&mut p, &e(0, 0, 5)).unwrap().0, 1);
    assert_eq!(through(&mut p, &e(0, 0, 13)).unwrap().0, 1);
    assert_eq!(through(&mut p, &e(0, 0, 3)).unwrap().0, 2);
    assert_eq!(through(&mut p, &e(0, 0, 11)).unwrap().0, 0);
}

#[test]
fn loops_go_round_as_often_as_they_say_but_not_for_ever() {
    let mut p = load("loops");
    for t in [0u64, 1, 3, 4, 9, 99, 100, 101, 500] {
        let rounds = (0..t.min(100)).filter(|i| *i != 3).map(|i| i + 1);
        let (sum, squares) = rounds.fold((0, 0), |(sum, squares), i| (sum + i, squares + i * i));
        let left = through(&mut p, &e(7, 7, t as u16));
        assert_eq!(left, Some((1, e(sum, squares, t as u16))), "{t}");
    }
    // Dropped; the next packet is as good as any.
    assert_eq!(through(&mut p, &e(7, 7, 0xffff)), None);
    assert_eq!(through(&mut p, &e(7, 7, 1)), Some((1, e(1, 1, 1))));
}

#[test]
fn random_is_in_range_and_repeatable() {
    let draw = || -> Vec<u16> {
        let mut p = load("random");
        (0..200)
            .map(|_| through(&mut p, &e(0, 0, 0)).unwrap().0)
            .collect()
    };
    let first = draw();
    assert_eq!(first, draw());
    assert!((5..=9).all(|n| first.contains(&n)));
    assert!(first.iter().all(|n| (5..=9).contains(n)));
}

#[test]
fn stacks_by_index_and_header_comparison() {
    let mut p = load("stacks");
    let (a, b) = (e(0x11, 0x22, 0), e(0x33, 0x44, 5));
    let (s0, s1) = (e(0xaaa, 0xbbb, 1), e(0xccc, 0xddd, 2));
    // e == f: port 7; s[0].t = 77; e.src = s[0].dst; s[2] = e; then e != f.
    let f = [a.clone(), a.clone(), s0.clone(), s1.clone()].concat();
    let changed = e(0x11, 0xaaa, 0);
    let want = [
        changed.clone(),
        e(0x11, 1, 0),
        e(0xaaa, 0xbbb, 77),
        s1.clone(),
        changed,
    ]
    .concat();
    assert_eq!(through(&mut p, &f), Some((7, want)));
    // An index past the end: nothing stored, nothing read.
    let a9 = e(0x11, 0x22, 9);
    let f = [a9.clone(), b, s0.clone(), s1.clone()].concat();
    let want = [a9.clone(), e(0x33, 1, 5), s0, s1, a9].concat();
    assert_eq!(through(&mut p, &f), Some((0, want)));
}

#[test]
fn whole_stacks_are_copied() {
    let mut p = load("stackcopy");
    let (a, s0, s1) = (e(1, 2, 3), e(4, 5, 6), e(7, 8, 9));
    let f = [a, s0.clone(), s1.clone()].concat();
    let want = [s0.clone(), s1.clone(), s0, s1].concat();
    assert_eq!(through(&mut p, &f), Some((0, want)));
}

#[test]
fn a_parser_that_never_ends_is_stopped() {
    let mut p = load("endless");
    let mut ctx = p.new_context();
    ctx.set_frame(&e(0, 0, 1));
    let v = p.ingress(&mut ctx, &IngressInput::default(), &NoTrafficManager);
    assert!(v.parser_error);
    assert_eq!(through(&mut p, &e(0, 0, 2)).unwrap().0, 1);
}

#[test]
fn conditional_expressions_and_booleans() {
    let mut p = load("branch");
    assert_eq!(through(&mut p, &e(0, 0, 5)).unwrap().0, 1);
    assert_eq!(through(&mut p, &e(0, 0, 6)).unwrap().0, 2);
    let mut p = load("boolmeta");
    assert_eq!(through(&mut p, &e(0, 0, 7)).unwrap().0, 3);
    assert_eq!(through(&mut p, &e(0, 0, 8)).unwrap().0, 0);
    assert_eq!(through(&mut p, &[1, 2, 3]).unwrap().0, 0);
}

#[test]
fn checksums_over_the_payload() {
    let csum = |parts: &[u8]| {
        let sum: u32 = parts
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)))
            .sum();
        (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
    };
    let mut p = load("payload");
    for payload in [&b"even"[..], b"odd", b""] {
        let head = e(0x0102_0304, 0x1111_2222_3333, 1);
        let right = csum(&[&head[6..12], &[0, 9], payload].concat());
        let f = [&head[..], &[0, 9], &right, payload].concat();
        assert_eq!(through(&mut p, &f), Some((1, f.clone())));
        let wrong = [&head[..], &[0, 9], &[1, 1], payload].concat();
        assert_eq!(through(&mut p, &wrong), Some((2, f)));
    }
}

#[test]
fn missing_features_are_refused_by_name() {
    let text = program("refused/extern");
    let e = Pipeline::load(&text, &LoadOptions::default()).unwrap_err();
    let expect = "extern instance 'I.f': extern type 'Foo' is not supported";
    assert!(e.to_string().ends_with(expect), "{e}");
}
