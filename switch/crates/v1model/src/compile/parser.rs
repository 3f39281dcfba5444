//! Parser states.

use super::Names;
use super::action::{copy_variable, primitives, variable};
use crate::entries::ValueSetInfo;
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::{Compiler, Dest, hex_limbs, text, type_value};
use crate::layout::Field;
use crate::model::{self, Primitive, TypeValue};
use crate::ops::Op;
use crate::program::{Case, State, Test, ValueSetUse};
use crate::table::END;
use crate::wide::{limbs, mask64};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// The value sets of a program and the places that use them.
#[derive(Debug, Default)]
pub(crate) struct ValueSets {
    names: HashMap<String, usize>,
    pub infos: Vec<ValueSetInfo>,
    pub uses: Vec<ValueSetUse>,
    used: Vec<bool>,
}

impl ValueSets {
    /// The sets that the program declares.
    pub fn new(declared: &[model::ParseVset]) -> LoadResult<Self> {
        let mut sets = Self::default();
        for set in declared {
            if sets
                .names
                .insert(set.name.clone(), sets.infos.len())
                .is_some()
            {
                refuse!("value set '{}' is defined twice", set.name);
            }
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

    /// A place where the components `key` of a select are looked up in the set called `name`.
    fn add(&mut self, name: &str, key: &[(u32, u32)]) -> LoadResult<u16> {
        let Some(&set) = self.names.get(name) else {
            refuse!("unknown value set '{name}'");
        };
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

/// Compiles the parser; gives its states and the first one.
pub(crate) fn parser(
    c: &mut Compiler<'_>,
    names: &Names,
    parser: &model::Parser,
    sets: &mut ValueSets,
) -> LoadResult<(Vec<State>, u32)> {
    let mut ids = HashMap::new();
    for (i, s) in parser.parse_states.iter().enumerate() {
        if ids.insert(s.name.as_str(), i as u32).is_some() {
            refuse!("state '{}' is defined twice", s.name);
        }
    }
    let mut states = Vec::new();
    for s in &parser.parse_states {
        states.push(state(c, names, s, &ids, sets).at(|| format!("state '{}'", s.name))?);
    }
    let start = find(&ids, parser.init_state.as_deref()).at(|| "init_state")?;
    Ok((states, start))
}

fn find(ids: &HashMap<&str, u32>, name: Option<&str>) -> LoadResult<u32> {
    match name {
        None => Ok(END),
        Some(name) => ids
            .get(name)
            .copied()
            .ok_or_else(|| LoadError::new(format!("unknown state '{name}'"))),
    }
}

fn state(
    c: &mut Compiler<'_>,
    names: &Names,
    s: &model::ParseState,
    ids: &HashMap<&str, u32>,
    sets: &mut ValueSets,
) -> LoadResult<State> {
    let start = c.here();
    for (i, op) in s.parser_ops.iter().enumerate() {
        c.free_temps();
        parser_op(c, names, op).at(|| format!("operation {i} ('{}')", op.op))?;
    }
    c.free_temps();
    let mut key = Vec::new();
    for (i, part) in s.transition_key.iter().enumerate() {
        key.push(key_part(c, part).at(|| format!("transition key {i}"))?);
    }
    let mut cases = Vec::new();
    let mut default = END;
    for (i, t) in s.transitions.iter().enumerate() {
        let place = || format!("transition {i}");
        let next = find(ids, t.next_state.as_deref()).at(place)?;
        match t.kind.as_str() {
            "default" => default = next,
            "hexstr" => {
                let value = t.value.as_deref().unwrap_or_default();
                if let Some(tests) = tests(&key, value, t.mask.as_deref()).at(place)? {
                    cases.push(Case {
                        tests,
                        value_set: None,
                        next,
                    });
                }
            }
            "parse_vset" => {
                if t.mask.is_some() {
                    return Err(LoadError::new("a value set under a mask is not supported"))
                        .at(place);
                }
                let name = t.value.as_deref().unwrap_or_default();
                let value_set = sets.add(name, &key).at(place)?;
                cases.push(Case {
                    tests: Box::default(),
                    value_set: Some(value_set),
                    next,
                });
            }
            other => refuse!("transition type '{other}' is not supported"),
        }
    }
    Ok(State {
        code: c.since(start),
        cases: cases.into(),
        default,
    })
}

fn parser_op(c: &mut Compiler<'_>, names: &Names, op: &model::ParserOp) -> LoadResult<()> {
    let param = |i: usize| {
        op.parameters
            .get(i)
            .ok_or_else(|| LoadError::new(format!("parameter {i} is missing")))
    };
    match op.op.as_str() {
        "extract" => extract(c, param(0)?, None)?,
        "extract_VL" => {
            let (kind, value) = type_value(param(1)?)?;
            let node = c.node(kind, value).at(|| "parameter 1")?;
            let bits = c.word(&node)?;
            extract(c, param(0)?, Some(bits))?;
        }
        "set" => {
            let (kind, value) = type_value(param(0)?)?;
            let (from_kind, from) = type_value(param(1)?)?;
            // p4c has a varbit assigned like any other field here.
            if let (Some(to), Some(from)) =
                (variable(c, kind, value)?, variable(c, from_kind, from)?)
            {
                return copy_variable(c, to, from);
            }
            let dest = c.dest(kind, value).at(|| "parameter 0")?;
            set(c, &dest, param(1)?).at(|| "parameter 1")?;
        }
        "verify" => {
            let (kind, value) = type_value(param(0)?)?;
            let node = c.node(kind, value).at(|| "parameter 0")?;
            let a = c.condition(node)?;
            let (kind, value) = type_value(param(1)?)?;
            let error = c.node(kind, value).at(|| "parameter 1")?;
            let error = c.low_word(&error, 32)?;
            c.emit(Op::Verify { a, error });
        }
        "shift" => match param(0)?.as_u64() {
            Some(bytes) => {
                let a = c.constant(&[bytes.saturating_mul(8)])?;
                c.emit(Op::Advance { a });
            }
            None => refuse!("parameter 0 is not a number of bytes"),
        },
        "advance" => {
            let (kind, value) = type_value(param(0)?)?;
            let node = c.node(kind, value).at(|| "parameter 0")?;
            let a = c.word(&node)?;
            c.emit(Op::Advance { a });
        }
        "primitive" => {
            let call = Primitive::deserialize(param(0)?)
                .map_err(|e| LoadError::new(format!("parameter 0: {e}")))?;
            if call.op.starts_with("_TrafficManager_") {
                refuse!("the traffic manager cannot be called from a parser");
            }
            primitives(c, names, std::slice::from_ref(&call))?;
        }
        other => refuse!("parser operation '{other}' is not supported"),
    }
    Ok(())
}

/// Extracts a header, the next element of a stack, or a member of the next element of a stack
/// of unions. `bits`: the slot with the length of its variable field.
fn extract(c: &mut Compiler<'_>, what: &Value, bits: Option<u32>) -> LoadResult<()> {
    let (kind, value) = type_value(what)?;
    let stack = match kind {
        "regular" => {
            let header = c.layout.header(text(value)?)?;
            let h = &c.layout.headers[header];
            if h.metadata {
                refuse!("'{}' is metadata", h.name);
            }
            check_variable(c, h.kind, bits)?;
            let (union, base) = (h.union, h.base);
            let header = header as u16;
            c.emit(match bits {
                None => Op::Extract { header },
                Some(bits) => Op::ExtractVariable { header, bits },
            });
            if let Some(union) = union {
                let union = union as u16;
                c.emit(Op::Claim { union, base });
            }
            return Ok(());
        }
        "stack" => c.layout.stack(text(value)?)?,
        "union_stack" => {
            let (stack, member) = crate::layout::pair(value)?;
            c.layout.member_stack(stack, member)?
        }
        other => refuse!("extract to '{other}' is not supported"),
    };
    check_variable(c, c.layout.stacks[stack].kind, bits)?;
    let stack = stack as u16;
    c.emit(match bits {
        None => Op::ExtractNext { stack },
        Some(bits) => Op::ExtractNextVariable { stack, bits },
    });
    Ok(())
}

fn check_variable(c: &Compiler<'_>, kind: usize, bits: Option<u32>) -> LoadResult<()> {
    let kind = &c.layout.types[kind];
    match (kind.variable, bits) {
        (None, Some(_)) => refuse!("header type '{}' has no variable-length field", kind.name),
        (Some(_), None) => refuse!("the length of the variable-length field is missing"),
        _ => Ok(()),
    }
}

fn set(c: &mut Compiler<'_>, dest: &Dest, source: &Value) -> LoadResult<()> {
    let (kind, value) = type_value(source)?;
    match kind {
        "lookahead" => {
            let (slot, bits) = lookahead(c, value)?;
            c.store_words(dest, slot, bits)
        }
        _ => {
            if matches!(kind, "stack_field" | "union_stack_field") {
                need_last(c, value)?;
            }
            let node = c.node(kind, value)?;
            c.assign(dest, &node)
        }
    }
}

/// The stack and field of a `stack_field` or `union_stack_field`.
fn last(c: &Compiler<'_>, value: &Value) -> LoadResult<(usize, Field)> {
    let name = |i: usize| text(value.get(i).unwrap_or(&Value::Null));
    let (stack, field) = if value.get(2).is_some() {
        (c.layout.member_stack(name(0)?, name(1)?)?, name(2)?)
    } else {
        (c.layout.stack(name(0)?)?, name(1)?)
    };
    match c.layout.field_of(c.layout.stacks[stack].kind, 0, field) {
        Some(f) => Ok((stack, f)),
        None => refuse!("header stack has no field '{field}'"),
    }
}

fn need_last(c: &mut Compiler<'_>, value: &Value) -> LoadResult<()> {
    let (stack, _) = last(c, value)?;
    let stack = stack as u16;
    c.emit(Op::NeedLast { stack });
    Ok(())
}

/// Reads `[offset, width]` bits ahead into a temporary; gives its slot and width.
fn lookahead(c: &mut Compiler<'_>, value: &Value) -> LoadResult<(u32, u32)> {
    let number = |i: usize| value.get(i).and_then(Value::as_u64);
    let (Some(skip), Some(bits)) = (number(0), number(1)) else {
        refuse!("lookahead is not a pair of numbers");
    };
    let most = u64::from(crate::layout::MAX_FIELD_BITS);
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

/// One component of the key: slot and width.
fn key_part(c: &mut Compiler<'_>, part: &TypeValue) -> LoadResult<(u32, u32)> {
    match part.kind.as_str() {
        "field" => {
            let f = c.layout.field_value(&part.value)?;
            Ok((f.slot, f.bits))
        }
        "stack_field" | "union_stack_field" => {
            need_last(c, &part.value)?;
            let (_, f) = last(c, &part.value)?;
            let node = c.node(&part.kind, &part.value)?;
            Ok((c.low_words(&node, f.bits)?, f.bits))
        }
        "lookahead" => lookahead(c, &part.value),
        other => refuse!("key of type '{other}' is not supported"),
    }
}

/// The tests of a case. The value (and mask) is the concatenation of the components, each
/// padded to whole bytes. `None`: the case can never match.
fn tests(key: &[(u32, u32)], value: &str, mask: Option<&str>) -> LoadResult<Option<Box<[Test]>>> {
    let bytes: usize = key.iter().map(|&(_, bits)| bits.div_ceil(8) as usize).sum();
    let load = |hex: &str| -> LoadResult<Vec<u8>> {
        let limbs = hex_limbs(hex)?;
        let mut all = vec![0; bytes];
        for (i, limb) in limbs.iter().enumerate() {
            for (j, byte) in limb.to_le_bytes().into_iter().enumerate() {
                match (8 * i + j)
                    .checked_add(1)
                    .and_then(|n| bytes.checked_sub(n))
                {
                    Some(at) => all[at] = byte,
                    None if byte != 0 => refuse!("'{hex}' is wider than the key"),
                    None => {}
                }
            }
        }
        Ok(all)
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
