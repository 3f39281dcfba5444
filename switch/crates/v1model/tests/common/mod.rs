//! Frames and shorthands shared by the tests.
#![allow(dead_code)]

use v1model::entries::Bits;
use v1model::{Externs, LoadOptions, Pipeline};

/// Every class holds this many bytes.
pub struct Backlog(pub u64);

impl Externs for Backlog {
    fn backlog_bytes(&self, _class: u32) -> u64 {
        self.0
    }
}

pub fn program(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/programs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub fn load(name: &str) -> Pipeline {
    Pipeline::load(&program(name), &LoadOptions::default())
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub fn bits(value: u128, width: u32) -> Bits {
    let bytes = width.div_ceil(8) as usize;
    value.to_be_bytes()[16 - bytes..].into()
}

pub fn table(p: &Pipeline, name: &str) -> usize {
    p.tables().iter().position(|t| t.name == name).unwrap()
}

pub fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    f.extend_from_slice(&ether_type.to_be_bytes());
    f.extend_from_slice(payload);
    f
}

/// Puts an 802.1Q tag into an untagged frame.
pub fn vlan(pcp: u16, vid: u16, f: &[u8]) -> Vec<u8> {
    let mut out = f[..12].to_vec();
    out.extend_from_slice(&[0x81, 0x00]);
    out.extend_from_slice(&(pcp << 13 | vid).to_be_bytes());
    out.extend_from_slice(&f[12..]);
    out
}

/// Payload of `n` bytes: 0, 1, 2, ...
fn payload(n: usize) -> impl Iterator<Item = u8> {
    (0..n).map(|i| i as u8)
}

pub fn ipv4_checksum_ok(header: &[u8]) -> bool {
    let sum: u32 = header
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// IPv4 from 10.0.0.1 to 10.0.0.2 with `n` bytes after the IP header and 8 (UDP) or 20 (TCP).
pub fn v4(protocol: u8, n: usize) -> Vec<u8> {
    let l4 = transport(protocol, n);
    let total = (20 + l4.len()) as u16;
    let mut h = vec![0x45, 0xb8];
    h.extend_from_slice(&total.to_be_bytes());
    h.extend_from_slice(&[0x12, 0x34, 0x40, 0x00, 64, protocol, 0, 0]);
    h.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = h
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    h.extend_from_slice(&l4);
    frame(0x0800, &h)
}

/// IPv6 from 2001:db8::1 to 2001:db8::2.
pub fn v6(protocol: u8, n: usize) -> Vec<u8> {
    let l4 = transport(protocol, n);
    let mut h = vec![0x6b, 0x81, 0x23, 0x45];
    h.extend_from_slice(&(l4.len() as u16).to_be_bytes());
    h.extend_from_slice(&[protocol, 63]);
    for last in [1, 2] {
        h.extend_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    h.extend_from_slice(&l4);
    frame(0x86dd, &h)
}

fn transport(protocol: u8, n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        6 => {
            out.extend_from_slice(&[0x12, 0x34, 0x00, 0x50, 1, 2, 3, 4, 5, 6, 7, 8]);
            out.extend_from_slice(&[0x50, 0x18, 0xff, 0xff, 0xab, 0xcd, 0, 0]);
        }
        17 => out.extend_from_slice(&[0x12, 0x34, 0x14, 0x51, 0x00, 0x10, 0xbe, 0xef]),
        _ => {}
    }
    out.extend(payload(n));
    out
}
