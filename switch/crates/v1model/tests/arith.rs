//! Every operator p4c writes, at 8, 64, 128 and 256 bits, against Rust's own arithmetic.

mod common;

use common::load;
use v1model::{Context, EgressInput, IngressInput, NoTrafficManager, Pipeline};

fn run(p: &mut Pipeline, ctx: &mut Context, f: &[u8]) -> Vec<u8> {
    ctx.set_frame(f);
    let v = p.ingress(ctx, &IngressInput::default(), &NoTrafficManager);
    assert!(!v.drop && !v.parser_error);
    let e = p.egress(ctx, &EgressInput::default(), &NoTrafficManager);
    assert!(!e.drop);
    ctx.output().to_vec()
}

fn expect8(a: u8, b: u8) -> Vec<u8> {
    let (ia, ib) = (a as i8, b as i8);
    let shift = u32::from(b);
    let mut out = vec![
        a.wrapping_add(b),
        a.wrapping_sub(b),
        a.wrapping_mul(b),
        a & b,
        a | b,
        a ^ b,
        !a,
        a.wrapping_neg(),
        a.checked_shl(shift).unwrap_or(0),
        a.checked_shr(shift).unwrap_or(0),
        a.saturating_add(b),
        a.saturating_sub(b),
        u8::from(a < b),
        u8::from(a <= b),
        (a >> 3) & 0xf,
        a,
        b,
        if a == b { a } else { b },
        ia.wrapping_add(ib) as u8,
        ia.wrapping_sub(ib) as u8,
        (ia >> shift.min(7)) as u8,
        ia.saturating_add(ib) as u8,
        ia.saturating_sub(ib) as u8,
        u8::from(ia < ib),
    ];
    out.extend_from_slice(&i16::from(ia).to_be_bytes());
    out.push(u8::from(a != 0 && b != 0));
    out.push(u8::from(a > 0 || b < 1));
    out
}

#[test]
fn eight_bits_exhaustively() {
    let mut p = load("arith");
    let mut ctx = p.new_context();
    for a in 0..=255 {
        for b in 0..=255 {
            let out = run(&mut p, &mut ctx, &[0, a, b]);
            assert_eq!(out, expect8(a, b), "a {a} b {b}");
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Numbers with long runs of zeros and ones are more telling than uniform ones.
    fn wide(&mut self) -> u128 {
        let full = u128::from(self.next()) << 64 | u128::from(self.next());
        match self.next() % 5 {
            0 => full,
            1 => full >> (self.next() % 128),
            2 => !(full >> (self.next() % 128)),
            3 => full << (self.next() % 128),
            _ => [
                0,
                1,
                u128::MAX,
                1 << 127,
                (1 << 127) - 1,
                1 << 64,
                u64::MAX.into(),
            ][(self.next() % 7) as usize],
        }
    }
}

#[test]
fn sixty_four_bits() {
    let mut p = load("arith");
    let mut ctx = p.new_context();
    let mut r = Random(1);
    for _ in 0..3_000 {
        let (a, b, n) = (r.wide() as u64, r.wide() as u64, r.next() as u8);
        let mut f = vec![1, 9, 4];
        f.extend_from_slice(&a.to_be_bytes());
        f.extend_from_slice(&b.to_be_bytes());
        f.push(n);
        f.extend_from_slice(b"payload");
        let shift = u32::from(n);
        let mut want = expect8(9, 4);
        for v in [
            a.wrapping_add(b),
            a.wrapping_sub(b),
            a.wrapping_mul(b),
            a.checked_shl(shift).unwrap_or(0),
            a.checked_shr(shift).unwrap_or(0),
            a.saturating_add(b),
            a.saturating_sub(b),
            !a,
        ] {
            want.extend_from_slice(&v.to_be_bytes());
        }
        want.push(u8::from(a < b));
        want.extend_from_slice(&((a as i64) >> shift.min(63)).to_be_bytes());
        want.extend_from_slice(&(a >> 32).to_be_bytes());
        want.extend_from_slice(&(u128::from(a) * u128::from(b)).to_be_bytes());
        let mid = b & !0x0000_ffff_ffff_0000 | (a & 0xffff_ffff) << 16;
        want.extend_from_slice(&mid.to_be_bytes());
        want.extend_from_slice(b"payload");
        assert_eq!(run(&mut p, &mut ctx, &f), want, "a {a:#x} b {b:#x} n {n}");
    }
}

#[test]
fn a_hundred_and_twenty_eight_bits() {
    let mut p = load("arith");
    let mut ctx = p.new_context();
    let mut r = Random(2);
    for i in 0..3_000 {
        let a = r.wide();
        let b = if i % 50 == 0 { a } else { r.wide() };
        let n = r.next() as u8;
        let mut f = vec![2, 1, 1];
        f.extend_from_slice(&a.to_be_bytes());
        f.extend_from_slice(&b.to_be_bytes());
        f.push(n);
        let shift = u32::from(n);
        let mut want = expect8(1, 1);
        for v in [
            a.wrapping_add(b),
            a.wrapping_sub(b),
            a.wrapping_mul(b),
            a & b,
            a | b,
            a ^ b,
            !a,
            a.checked_shl(shift).unwrap_or(0),
            a.checked_shr(shift).unwrap_or(0),
        ] {
            want.extend_from_slice(&v.to_be_bytes());
        }
        want.push(u8::from(a < b));
        want.push(u8::from(a == b));
        want.extend_from_slice(&(a as u64).to_be_bytes());
        want.extend_from_slice(&((a >> 64) as u64).to_be_bytes());
        want.extend_from_slice(&a.to_be_bytes());
        want.extend_from_slice(&b.to_be_bytes());
        want.extend_from_slice(&a.saturating_add(b).to_be_bytes());
        want.extend_from_slice(&a.saturating_sub(b).to_be_bytes());
        want.extend_from_slice(&((a >> 32) as u64).to_be_bytes());
        let field = u128::from(u64::MAX) << 36;
        let ins = b & !field | u128::from(a as u64) << 36;
        want.extend_from_slice(&ins.to_be_bytes());
        want.extend_from_slice(&((a as i128) >> shift.min(127)).to_be_bytes());
        want.push(u8::from((a as i128) < b as i128));
        assert_eq!(run(&mut p, &mut ctx, &f), want, "a {a:#x} b {b:#x} n {n}");
    }
}
