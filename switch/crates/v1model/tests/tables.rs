//! Tables of every match kind against a list that is searched from its beginning: whatever was
//! inserted, changed, deleted and put back, a packet finds the same entry in both.

mod common;

use common::{bits, load, program, table};
use proptest::prelude::*;
use v1model::entries::{ActionCall, Bits, ControlError, EntryKey, MatchField};
use v1model::{Context, EgressInput, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

/// Tables of `scale.p4`, in the order of the numbers that packets ask for them by.
const KINDS: [&str; 5] = ["exact", "lpm", "ternary", "range", "optional"];

/// `address`, `other`, `port` and `other_port` of a query.
type Query = [u32; 4];

/// The random values for a key; each match kind uses some of them.
#[derive(Debug, Clone)]
struct Draw {
    query: Query,
    prefix_bits: u32,
    masks: [u32; 3],
    ends: [u32; 2],
    given: [bool; 2],
    priority: i32,
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(Draw),
    /// Of an entry there is, by its place in the list modulo their number.
    Modify(usize),
    Delete(usize),
    /// Deletes and inserts it: now it is the latest.
    Again(usize),
    /// Deletes it and puts it back where it was.
    Restore(usize),
}

/// Few values at both ends of the fields, so that keys meet.
fn query() -> impl Strategy<Value = Query> {
    let address = (0..8u32, 0..8u32).prop_map(|(high, low)| high << 29 | low);
    let port = || prop_oneof![0..16u32, Just(0xffff)];
    (address, 0..3u32, port(), port())
        .prop_map(|(address, other, port, other_port)| [address, other, port, other_port])
}

fn draw() -> impl Strategy<Value = Draw> {
    let prefix_bits = prop_oneof![0..4u32, 29..=32u32];
    let masks = (
        prop::sample::select(vec![0, 5, 7, 0xe000_0000, 0xe000_0007, u32::MAX]),
        prop::sample::select(vec![0, 3, u32::MAX]),
        prop::sample::select(vec![0, 0xf, 0xffff]),
    );
    (
        query(),
        prefix_bits,
        masks,
        query(),
        any::<[bool; 2]>(),
        1..4,
    )
        .prop_map(|(query, prefix_bits, masks, ends, given, priority)| Draw {
            query,
            prefix_bits,
            masks: masks.into(),
            ends: [ends[2], ends[3]],
            given,
            priority,
        })
}

fn operation() -> impl Strategy<Value = Operation> {
    let any_place = any::<usize>;
    prop_oneof![
        5 => draw().prop_map(Operation::Insert),
        1 => any_place().prop_map(Operation::Modify),
        2 => any_place().prop_map(Operation::Delete),
        1 => any_place().prop_map(Operation::Again),
        1 => any_place().prop_map(Operation::Restore),
    ]
}

fn wide(value: u32) -> Bits {
    bits(value.into(), 32)
}

fn narrow(value: u32) -> Bits {
    bits(value.into(), 16)
}

fn key(kind: &str, draw: &Draw) -> EntryKey {
    let [address, other, port, other_port] = draw.query;
    let range = |one: u32, end: u32| MatchField::Range {
        low: narrow(one.min(end)),
        high: narrow(one.max(end)),
    };
    let fields = match kind {
        "exact" => vec![
            MatchField::Exact(wide(address)),
            MatchField::Exact(wide(other)),
        ],
        "lpm" => {
            let mask = u32::MAX.checked_shl(32 - draw.prefix_bits).unwrap_or(0);
            vec![MatchField::Lpm {
                value: wide(address & mask),
                prefix_bits: draw.prefix_bits,
            }]
        }
        "ternary" => {
            let ternary = |value: u32, mask: u32, bits: fn(u32) -> Bits| MatchField::Ternary {
                value: bits(value & mask),
                mask: bits(mask),
            };
            let [first, second, third] = draw.masks;
            vec![
                ternary(address, first, wide),
                ternary(other, second, wide),
                ternary(port, third, narrow),
            ]
        }
        "range" => vec![
            MatchField::Exact(wide(address & 1)),
            range(port, draw.ends[0]),
            range(other_port, draw.ends[1]),
        ],
        _ => vec![
            MatchField::Optional(draw.given[0].then(|| wide(address))),
            MatchField::Optional(draw.given[1].then(|| wide(other))),
        ],
    };
    let has_priority = !matches!(kind, "exact" | "lpm");
    EntryKey {
        fields,
        priority: if has_priority { draw.priority } else { 0 },
    }
}

fn number(bits: &[u8]) -> u32 {
    bits.iter().fold(0, |all, &byte| all << 8 | u32::from(byte))
}

fn matches(field: &MatchField, value: u32) -> bool {
    match field {
        MatchField::Exact(wanted) | MatchField::Optional(Some(wanted)) => number(wanted) == value,
        MatchField::Lpm {
            value: wanted,
            prefix_bits,
        } => {
            let rest = 32 - prefix_bits;
            u64::from(number(wanted)) >> rest == u64::from(value) >> rest
        }
        MatchField::Ternary {
            value: wanted,
            mask,
        } => value & number(mask) == number(wanted),
        MatchField::Range { low, high } => (number(low)..=number(high)).contains(&value),
        MatchField::Optional(None) => true,
    }
}

/// The masks of the program's keys, by width. They leave some bits of the random values.
const WIDE_MASK: u32 = 0xc000_0005;
const NARROW_MASK: u32 = 0xfff6;

/// The program with a mask in every key, as p4c writes P4_14's.
fn load_masked() -> Pipeline {
    let mut json: serde_json::Value = serde_json::from_slice(&program("scale")).unwrap();
    let pipelines = json["pipelines"].as_array_mut().unwrap();
    let tables = pipelines
        .iter_mut()
        .flat_map(|p| p["tables"].as_array_mut().unwrap());
    for key in tables.flat_map(|table| table["key"].as_array_mut().unwrap()) {
        let wide = !key["target"][1].as_str().unwrap().contains("port");
        key["mask"] = if wide {
            format!("{WIDE_MASK:#x}")
        } else {
            format!("{NARROW_MASK:#x}")
        }
        .into();
    }
    Pipeline::load(json.to_string().as_bytes(), &LoadOptions::default()).unwrap()
}

/// An entry's key as `simple_switch` stores it: values are masked, a range's end and a ternary mask are not.
fn under_masks(key: &EntryKey) -> EntryKey {
    let masked = |value: &Bits| -> Bits {
        match value.len() {
            4 => wide(number(value) & WIDE_MASK),
            _ => narrow(number(value) & NARROW_MASK),
        }
    };
    let fields = key.fields.iter().cloned().map(|field| match field {
        MatchField::Exact(value) => MatchField::Exact(masked(&value)),
        MatchField::Lpm { value, prefix_bits } => MatchField::Lpm {
            value: masked(&value),
            prefix_bits,
        },
        MatchField::Ternary { value, mask } => MatchField::Ternary {
            value: masked(&value),
            mask,
        },
        MatchField::Range { low, high } => MatchField::Range {
            low: masked(&low),
            high,
        },
        MatchField::Optional(value) => MatchField::Optional(value.as_ref().map(masked)),
    });
    EntryKey {
        fields: fields.collect(),
        priority: key.priority,
    }
}

/// A key as the program lists it: p4c writes optional fields as ternary ones.
fn as_ternary(mut key: EntryKey) -> EntryKey {
    for field in &mut key.fields {
        if let MatchField::Optional(value) = field {
            *field = MatchField::Ternary {
                value: value.clone().unwrap_or_else(|| wide(0)),
                mask: wide(value.as_ref().map_or(0, |_| u32::MAX)),
            };
        }
    }
    key
}

/// The expected entry of the list: the greatest priority or longest prefix, of equals the first one.
fn listed(list: &[(EntryKey, u32)], kind: &str, query: Query) -> u32 {
    let [address, other, port, other_port] = query;
    let values = match kind {
        "range" => [address, port, other_port],
        _ => [address, other, port],
    };
    let mut best: Option<((i32, u32), u32)> = None;
    for (key, answer) in list {
        let rank = match key.fields.first() {
            Some(MatchField::Lpm { prefix_bits, .. }) => (0, *prefix_bits),
            _ => (key.priority, 0),
        };
        let all = key.fields.iter().zip(values).all(|(f, v)| matches(f, v));
        if all && best.is_none_or(|(before, _)| rank > before) {
            best = Some((rank, *answer));
        }
    }
    best.map_or(0, |(_, answer)| answer)
}

/// The answer to a packet; 0 if no entry matches.
fn answered(p: &mut Pipeline, context: &mut Context, which: usize, query: Query) -> u32 {
    let [address, other, port, other_port] = query;
    let mut frame = vec![which as u8];
    frame.extend_from_slice(&wide(address));
    frame.extend_from_slice(&wide(other));
    frame.extend_from_slice(&narrow(port));
    frame.extend_from_slice(&narrow(other_port));
    frame.extend_from_slice(&[0; 2]);
    assert!(context.set_frame(&frame));
    p.ingress(context, &IngressInput::default(), &NoTrafficManager);
    p.egress(context, &EgressInput::default(), &NoTrafficManager);
    number(&context.output()[13..15])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tables_answer_as_a_list_does(
        which in 0..KINDS.len(),
        is_masked in any::<bool>(),
        operations in prop::collection::vec((operation(), query()), 1..300),
    ) {
        let kind = KINDS[which];
        let mut p = if is_masked { load_masked() } else { load("scale") };
        let stored = |key: &EntryKey| if is_masked { under_masks(key) } else { key.clone() };
        let mut context = p.new_context();
        let at = table(&p, &format!("ScaleIngress.by_{kind}"));
        let action = p.actions().iter().position(|a| a.name == "ScaleIngress.answer").unwrap();
        let call = |answer: u32| ActionCall { action, args: vec![narrow(answer)] };
        let mut list: Vec<(EntryKey, u32)> = Vec::new();
        for (answer, (operation, query)) in (1..).zip(operations) {
            let place = |n: usize| n.checked_rem(list.len());
            match operation {
                Operation::Insert(draw) => {
                    let key = key(kind, &draw);
                    let made = p.table_insert(at, &key, &call(answer).into());
                    if list.iter().any(|(other, _)| stored(other) == stored(&key)) {
                        prop_assert!(matches!(made, Err(ControlError::AlreadyExists(_))));
                    } else {
                        prop_assert!(made.is_ok());
                        list.push((key, answer));
                    }
                }
                Operation::Modify(n) => if let Some(n) = place(n) {
                    let (key, now) = &mut list[n];
                    *now = answer;
                    prop_assert!(p.table_modify(at, key, &call(answer).into()).is_ok());
                },
                Operation::Delete(n) => if let Some(n) = place(n) {
                    let (key, _) = list.remove(n);
                    prop_assert!(p.table_delete(at, &key).is_ok());
                    prop_assert!(matches!(p.table_delete(at, &key), Err(ControlError::NotFound(_))));
                },
                Operation::Again(n) => if let Some(n) = place(n) {
                    let (key, _) = list.remove(n);
                    prop_assert!(p.table_delete(at, &key).is_ok());
                    prop_assert!(p.table_insert(at, &key, &call(answer).into()).is_ok());
                    list.push((key, answer));
                },
                Operation::Restore(n) => if let Some(n) = place(n) {
                    let saved = p.table_delete(at, &list[n].0).unwrap();
                    prop_assert!(p.table_restore(at, saved).is_ok());
                },
            }
            // And one that more entries match.
            for query in [query, query.map(|value| value & 1)] {
                let seen = match is_masked {
                    true => {
                        let [address, other, port, other_port] = query;
                        let [address, other] = [address, other].map(|value| value & WIDE_MASK);
                        let [port, other_port] = [port, other_port].map(|value| value & NARROW_MASK);
                        [address, other, port, other_port]
                    }
                    false => query,
                };
                let stored: Vec<_> = list.iter().map(|(key, answer)| (stored(key), *answer)).collect();
                prop_assert_eq!(
                    answered(&mut p, &mut context, which, query),
                    listed(&stored, kind, seen)
                );
            }
        }
        let kept = p.table_entries(at, 0, 1_000).items;
        let kept: Vec<_> = kept.into_iter().map(|entry| (entry.key, entry.action)).collect();
        let expected = list.iter().map(|(key, answer)| (as_ternary(stored(key)), call(*answer)));
        let expected: Vec<(EntryKey, ActionCall)> = expected.collect();
        prop_assert_eq!(kept, expected);
        for (key, _) in list {
            prop_assert!(p.table_delete(at, &key).is_ok());
        }
        prop_assert!(p.table_entries(at, 0, 1).items.is_empty());
        prop_assert_eq!(answered(&mut p, &mut context, which, [0; 4]), 0);
    }
}
