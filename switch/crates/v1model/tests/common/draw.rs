//! Random numbers, entries and frames for every compiled program.

#![allow(dead_code)] // each test binary uses a part of it

use std::path::{Path, PathBuf};

use v1model::Pipeline;
use v1model::entries::profile::{IndirectAction, ProfileMember};
use v1model::entries::{ActionCall, Bits, EntryAction, EntryKey, MatchField, MatchKind};

/// Random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n.max(1)
    }

    /// Words as programs have them: small ones, single bits, borders.
    pub fn value(&mut self) -> u64 {
        let bit = 1 << self.below(64);
        match self.below(6) {
            0 => self.below(4),
            1 => bit,
            2 => bit - 1,
            3 => u64::MAX - self.below(3),
            4 => self.below(1 << 16),
            _ => self.word(),
        }
    }

    pub fn bits(&mut self, bits: u32) -> Bits {
        let bytes = bits.div_ceil(8) as usize;
        let mut all: Vec<u8> = (0..bytes).map(|_| self.word() as u8).collect();
        // Mostly small values, so that packets match.
        if self.below(3) > 0 {
            let keep = bytes.saturating_sub(1);
            all[..keep].fill(0);
            if let Some(last) = all.last_mut() {
                *last &= 7;
            }
        }
        if !bits.is_multiple_of(8)
            && let Some(first) = all.first_mut()
        {
            *first &= (1 << (bits % 8)) - 1;
        }
        all.into()
    }
}

/// All compiled programs of the repository, and those in the folders that `PROGRAMS` names, with spaces
/// between them.
pub fn programs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut folders: Vec<PathBuf> = [
        "switch/crates/v1model/tests/programs",
        "tests/conformance/compiled",
        "tests/bench/programs/compiled/v1model",
        "p4src/compiled/pacing_switch",
        "p4src/compiled/bmv2",
        "examples/queues/compiled/pacing_switch",
    ]
    .map(|folder| root.join(folder))
    .to_vec();
    let more = std::env::var("PROGRAMS").unwrap_or_default();
    folders.extend(more.split_whitespace().map(PathBuf::from));
    let mut found = Vec::new();
    for folder in folders {
        let files = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let files = files.map(|file| file.expect("it can be read").path());
        // The manifest has the digests of the programs beside it.
        found.extend(files.filter(|file| {
            file.extension().is_some_and(|e| e == "json")
                && file.file_stem().is_some_and(|stem| stem != "manifest")
        }));
    }
    found.sort();
    found
}

/// A random match of a field.
fn match_field(random: &mut Random, kind: MatchKind, bits: u32) -> MatchField {
    let value = random.bits(bits);
    match kind {
        MatchKind::Exact => MatchField::Exact(value),
        MatchKind::Lpm => {
            let prefix_bits = random.below(u64::from(bits) + 1) as u32;
            let mut value = value;
            // Fields begin in the middle of their first byte.
            let unused = 8 * value.len() as u32 - bits;
            for bit in prefix_bits..bits {
                let at = (unused + bit) as usize;
                value[at / 8] &= !(0x80 >> (at % 8));
            }
            MatchField::Lpm { value, prefix_bits }
        }
        MatchKind::Ternary => {
            let mask = random.bits(bits);
            let value = value.iter().zip(&mask).map(|(v, m)| v & m).collect();
            MatchField::Ternary { value, mask }
        }
        MatchKind::Range => {
            let other = random.bits(bits);
            let (low, high) = if value < other {
                (value, other)
            } else {
                (other, value)
            };
            MatchField::Range { low, high }
        }
        MatchKind::Optional => MatchField::Optional((random.below(2) == 0).then_some(value)),
    }
}

fn call(random: &mut Random, p: &Pipeline, actions: &[usize]) -> Option<ActionCall> {
    let &action = actions.get(random.below(actions.len() as u64) as usize)?;
    let params = &p.actions()[action].params;
    let args = params.iter().map(|(_, bits)| random.bits(*bits)).collect();
    Some(ActionCall { action, args })
}

/// Fills the tables of both with the same random entries. Some are refused, by both.
pub fn fill(random: &mut Random, mut both: [&mut Pipeline; 2]) {
    for index in 0..both[0].tables().len() {
        let info = both[0].tables()[index].clone();
        if let Some(profile) = info.profile {
            for id in 1..4 {
                if let Some(call) = call(random, both[0], &info.actions) {
                    let member = ProfileMember { id, call };
                    let results = both
                        .each_mut()
                        .map(|p| p.member_insert(profile, &member).is_ok());
                    assert_eq!(results[0], results[1]);
                }
            }
        }
        for _ in 0..random.below(12) {
            let fields = info.key.iter();
            let fields = fields
                .map(|key| match_field(random, key.kind, key.bits))
                .collect();
            let priority = i32::from(info.key.iter().any(|key| key.kind.needs_priority()));
            let key = EntryKey {
                fields,
                priority: priority * (1 + random.below(9) as i32),
            };
            let Some(call) = call(random, both[0], &info.actions) else {
                continue;
            };
            let action = match info.profile {
                Some(_) => IndirectAction::Member(1 + random.below(3) as u32).into(),
                None => EntryAction::Call(call),
            };
            let results = both
                .each_mut()
                .map(|p| p.table_insert(index, &key, &action).is_ok());
            assert_eq!(results[0], results[1]);
        }
    }
}

/// A random frame: headers that parsers know, wrong bits, cut anywhere.
pub fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..14).map(|_| random.below(3) as u8).collect();
    let types = [0x0800u16, 0x86dd, 0x8100, 0x1234, 0, 1, 2];
    let mut kind = types[random.below(7) as usize];
    if kind == 0x8100 {
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        kind = types[random.below(2) as usize];
        frame.extend_from_slice(&[0, random.below(4) as u8]);
        frame.extend_from_slice(&kind.to_be_bytes());
    } else {
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
    }
    let protocol = [6, 17, 1, 0][random.below(4) as usize];
    if kind == 0x0800 {
        let options = [0, 0, 0, 1, 5, 10][random.below(6) as usize];
        let length = 20 + 4 * options;
        let mut header = vec![0u8; length];
        header[0] = 0x40 | (length / 4) as u8;
        header[8] = random.below(3) as u8;
        header[9] = protocol;
        header[15] = random.below(8) as u8;
        header[19] = random.below(8) as u8;
        let sum: u32 = header
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
    } else if kind == 0x86dd {
        frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 40, protocol, 3]);
        frame.extend((0..32).map(|_| random.below(3) as u8));
    }
    if protocol == 6 {
        let words = 5 + random.below(11) as u8;
        frame.extend((0..12).map(|_| random.below(4) as u8));
        frame.extend_from_slice(&[words << 4, random.word() as u8, 1, 0, 0, 0, 0, 0]);
        for _ in 5..words {
            let option = [[2, 4, 5, 180], [1, 1, 1, 1], [3, 3, 7, 0], [4, 2, 5, 10]];
            frame.extend_from_slice(&option[random.below(4) as usize]);
        }
    }
    frame.extend((0..random.below(80)).map(|i| (i * i) as u8));
    for _ in 0..random.below(3) {
        let at = random.below(frame.len() as u64) as usize;
        frame[at] ^= 1 << random.below(8);
    }
    if random.below(5) == 0 {
        frame.truncate(random.below(frame.len() as u64 + 1) as usize);
    }
    frame
}
