//! Selects: the key of a parser state's transition, and the next states.

use crate::bits::to_bits;
use crate::entries::{Bits, ValueSetInfo};
use crate::error::{At, LoadResult, refuse};
use crate::expr::{Compiler, hex_limbs, text};
use crate::layout::MAX_FIELD_BITS;
use crate::model::{ParseState, ParseVset, Transition, TypeValue};
use crate::names::Names;
use crate::ops::{Code, Op};
use crate::program::{Case, END, State, Test, ValueSetUse};
use crate::wide::{bit_length, limbs, mask64};
use serde_json::Value;

/// A component of a select's key: its slot and width.
type KeyPart = (u32, u32);

/// The value sets of a program and the places that use them.
#[derive(Debug, Default)]
pub(super) struct ValueSets {
    names: Names,
    pub infos: Vec<ValueSetInfo>,
    pub uses: Vec<ValueSetUse>,
    used: Vec<bool>,
}

impl ValueSets {
    /// The sets that the program declares.
    pub fn declare(declared: &[ParseVset]) -> LoadResult<Self> {
        let mut sets = Self::default();
        for set in declared {
            let place = || format!("value set '{}'", set.name);
            sets.names.add(&set.name).at(place)?;
            sets.infos.push(ValueSetInfo {
                name: set.name.clone(),
                // Until a select says how the bits are divided.
                widths: vec![set.compressed_bitwidth],
                size: set.max_size.unwrap_or(usize::MAX),
            });
            sets.used.push(false);
        }
        Ok(sets)
    }

    /// Adds a place where the components `key` of a select are looked up in the set `name`.
    fn add_use(&mut self, name: &str, key: &[KeyPart]) -> LoadResult<u16> {
        let set = self.names.find("value set", name)?;
        let widths: Vec<u32> = key.iter().map(|&(_, bits)| bits).collect();
        if self.used[set] && self.infos[set].widths != widths {
            refuse!("value set '{name}' is used with different keys");
        }
        self.used[set] = true;
        self.infos[set].widths = widths;
        let Ok(index) = u16::try_from(self.uses.len()) else {
            refuse!("value sets are used too often");
        };
        self.uses.push(ValueSetUse {
            set,
            slots: key.iter().map(|&(slot, _)| slot).collect(),
        });
        Ok(index)
    }
}

/// Finds the state that comes next; none: the parser ends.
pub(super) fn next_state(names: &Names, name: Option<&str>) -> LoadResult<u32> {
    match name {
        None => Ok(END),
        Some(name) => Ok(names.find("state", name)? as u32),
    }
}

/// Compiles the select of a state whose code begins at `start`.
pub(super) fn select(
    c: &mut Compiler<'_>,
    start: u32,
    s: &ParseState,
    names: &Names,
    sets: &mut ValueSets,
) -> LoadResult<State> {
    c.free_temps();
    let mut key = Vec::new();
    for (i, part) in s.transition_key.iter().enumerate() {
        key.push(key_part(c, part).at(|| format!("transition key {i}"))?);
    }
    let mut state = State {
        code: Code::default(),
        cases: Box::default(),
        default: END,
    };
    let mut cases = Vec::new();
    for (i, t) in s.transitions.iter().enumerate() {
        let place = || format!("transition {i}");
        let next = next_state(names, t.next_state.as_deref()).at(place)?;
        if t.kind == "default" {
            state.default = next;
        } else {
            cases.extend(case(t, next, &key, sets).at(place)?);
        }
    }
    state.code = c.since(start);
    state.cases = cases.into();
    Ok(state)
}

/// Compiles a transition that has a condition; `None`: it can never match.
fn case(
    t: &Transition,
    next: u32,
    key: &[KeyPart],
    sets: &mut ValueSets,
) -> LoadResult<Option<Case>> {
    let value = t.value.as_deref().unwrap_or_default();
    match t.kind.as_str() {
        "hexstr" => Ok(tests(key, value, t.mask.as_deref())?.map(|tests| Case {
            tests,
            value_set: None,
            next,
        })),
        "parse_vset" if t.mask.is_some() => refuse!("a value set under a mask is not supported"),
        "parse_vset" => Ok(Some(Case {
            tests: Box::default(),
            value_set: Some(sets.add_use(value, key)?),
            next,
        })),
        other => refuse!("transition type '{other}' is not supported"),
    }
}

/// The stack and the name of the field of a `stack_field` or `union_stack_field`.
fn last<'a>(c: &Compiler<'_>, value: &'a Value) -> LoadResult<(usize, &'a str)> {
    let name = |i: usize| text(&value[i]);
    Ok(if value.get(2).is_some() {
        (c.layout.member_stack(name(0)?, name(1)?)?, name(2)?)
    } else {
        (c.layout.stack(name(0)?)?, name(1)?)
    })
}

/// Emits a check that the stack of a `stack_field` or `union_stack_field` has a last element.
fn need_last(c: &mut Compiler<'_>, value: &Value) -> LoadResult<()> {
    let (stack, _) = last(c, value)?;
    let stack = stack as u16;
    c.emit(Op::NeedLast { stack });
    Ok(())
}

/// Emits a check for each last element that is used anywhere in `value`.
pub(super) fn need_each_last(c: &mut Compiler<'_>, value: &Value) -> LoadResult<()> {
    match value {
        Value::Object(members) => match members.get("type").and_then(Value::as_str) {
            Some("stack_field" | "union_stack_field") => need_last(c, &value["value"]),
            _ => members.values().try_for_each(|v| need_each_last(c, v)),
        },
        Value::Array(list) => list.iter().try_for_each(|v| need_each_last(c, v)),
        _ => Ok(()),
    }
}

/// Reads `[offset, width]` bits ahead into a temporary; returns its slot and width.
pub(super) fn lookahead(c: &mut Compiler<'_>, value: &Value) -> LoadResult<KeyPart> {
    let (Some(skip), Some(bits)) = (value[0].as_u64(), value[1].as_u64()) else {
        refuse!("lookahead is not a pair of numbers");
    };
    let most = u64::from(MAX_FIELD_BITS);
    if skip > 1 << 20 || bits == 0 || bits > most {
        refuse!("lookahead of {bits} bits at {skip} is out of range");
    }
    let d = c.temp(limbs(bits as u32))?;
    c.emit(Op::Lookahead {
        d,
        skip_bits: skip as u32,
        bits: bits as u16,
    });
    Ok((d, bits as u32))
}

fn key_part(c: &mut Compiler<'_>, part: &TypeValue) -> LoadResult<KeyPart> {
    match part.kind.as_str() {
        "field" => {
            let f = c.layout.field_value(&part.value)?;
            Ok((f.slot, f.bits))
        }
        "stack_field" | "union_stack_field" => {
            need_last(c, &part.value)?;
            let (stack, field) = last(c, &part.value)?;
            let f = c.layout.stack_field(stack, field)?;
            let node = c.node(&part.kind, &part.value)?;
            Ok((c.low_words(&node, f.bits)?, f.bits))
        }
        "lookahead" => lookahead(c, &part.value),
        other => refuse!("key of type '{other}' is not supported"),
    }
}

/// The tests of a case. The value (and mask) is the concatenation of the components, each
/// padded to whole bytes. `None`: the case can never match.
fn tests(key: &[KeyPart], value: &str, mask: Option<&str>) -> LoadResult<Option<Box<[Test]>>> {
    let bytes: u32 = key.iter().map(|&(_, bits)| bits.div_ceil(8)).sum();
    let load = |hex: &str| -> LoadResult<Bits> {
        let limbs = hex_limbs(hex)?;
        if bit_length(&limbs) > 8 * bytes {
            refuse!("'{hex}' is wider than the key");
        }
        Ok(to_bits(&limbs, 8 * bytes))
    };
    let value = load(value)?;
    let mask = mask.map(load).transpose()?;
    let mut tests = Vec::new();
    let mut at = 0;
    for &(slot, bits) in key {
        let length = bits.div_ceil(8) as usize;
        for i in 0..limbs(bits) as usize {
            let end = at + length - 8 * i;
            let begin = end.saturating_sub(8).max(at);
            let fold = |all: &[u8]| {
                all[begin..end]
                    .iter()
                    .fold(0u64, |v, &b| (v << 8) | u64::from(b))
            };
            let width = mask64(bits - 64 * i as u32);
            let mask = mask.as_ref().map_or(u64::MAX, |m| fold(m));
            let value = fold(&value) & mask;
            if value & !width != 0 {
                return Ok(None);
            }
            let mask = mask & width;
            if mask != 0 {
                tests.push(Test {
                    slot: slot + i as u32,
                    mask,
                    value,
                });
            }
        }
        at += length;
    }
    Ok(Some(tests.into()))
}
