//! Primitives of actions and parser states.

use super::Names;
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::{Compiler, Dest, HeaderNode, Node, hex_limbs, text, type_value};
use crate::layout::{Field, pair};
use crate::model::{self, Primitive, TypeValue};
use crate::ops::{Code, Op};
use crate::wide::limbs;
use serde_json::Value;

/// The header whose `egress_spec` and `mcast_grp` the switch looks at.
const STANDARD_METADATA: &str = "standard_metadata";

/// A compiled action.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub name: String,
    pub params: Vec<(String, u32)>,
    pub code: Code,
    /// Calls `TrafficManager.hold`, which is possible in ingress only.
    pub holds: bool,
}

/// Words that one action's arguments take.
pub(crate) fn param_words(action: &model::Action) -> u32 {
    action
        .runtime_data
        .iter()
        .map(|p| limbs(p.bitwidth.min(crate::layout::MAX_FIELD_BITS)).max(1))
        .sum()
}

/// Compiles one action.
pub(crate) fn action(
    c: &mut Compiler<'_>,
    names: &Names,
    action: &model::Action,
) -> LoadResult<Action> {
    let mut slot = c.param_base();
    c.params.clear();
    for p in &action.runtime_data {
        if !(1..=crate::layout::MAX_FIELD_BITS).contains(&p.bitwidth) {
            refuse!("parameter '{}': width {} bits", p.name, p.bitwidth);
        }
        c.params.push(Field {
            slot,
            bits: p.bitwidth,
            signed: false,
        });
        slot += limbs(p.bitwidth);
    }
    let holds = action
        .primitives
        .iter()
        .any(|p| p.op == "_TrafficManager_hold");
    let code = primitives(c, names, &action.primitives);
    c.params.clear();
    Ok(Action {
        name: action.name.clone(),
        params: action
            .runtime_data
            .iter()
            .map(|p| (p.name.clone(), p.bitwidth))
            .collect(),
        code: code?,
        holds,
    })
}

/// Compiles a list of primitives.
pub(crate) fn primitives(
    c: &mut Compiler<'_>,
    names: &Names,
    list: &[Primitive],
) -> LoadResult<Code> {
    let start = c.here();
    let branches = list.iter().any(|p| p.op.starts_with("_jump"));
    let mut starts = Vec::with_capacity(list.len() + 1);
    let mut jumps = Vec::new();
    for (i, p) in list.iter().enumerate() {
        starts.push(c.here());
        // Any of them may be where a jump goes to.
        if i == 0 || branches {
            c.free_temps();
        } else {
            c.next_statement();
        }
        primitive(c, names, p, &starts, &mut jumps).at(|| format!("primitive {i} ('{}')", p.op))?;
    }
    starts.push(c.here());
    for jump in jumps {
        let Some(&to) = starts.get(jump.target) else {
            refuse!("jump to primitive {}, which does not exist", jump.target);
        };
        match c.ops.get_mut(jump.at as usize) {
            Some(Op::Jump { to: t } | Op::JumpIfZero { to: t, .. }) => *t = to,
            _ => refuse!("jump cannot be resolved"),
        }
    }
    Ok(c.since(start))
}

/// A jump forward, to be resolved: its address and the primitive it goes to.
struct Jump {
    at: u32,
    target: usize,
}

/// The parameters of one primitive.
struct Params<'p>(&'p [TypeValue]);

impl<'p> Params<'p> {
    fn get(&self, i: usize) -> LoadResult<&'p TypeValue> {
        self.0
            .get(i)
            .ok_or_else(|| LoadError::new(format!("parameter {i} is missing")))
    }

    fn count(&self, n: usize) -> LoadResult<()> {
        if self.0.len() == n {
            Ok(())
        } else {
            refuse!("takes {n} parameters, has {}", self.0.len())
        }
    }

    fn node(&self, c: &Compiler<'_>, i: usize) -> LoadResult<Node> {
        let p = self.get(i)?;
        c.node(&p.kind, &p.value).at(|| format!("parameter {i}"))
    }

    fn dest(&self, c: &Compiler<'_>, i: usize) -> LoadResult<Dest> {
        let p = self.get(i)?;
        c.dest(&p.kind, &p.value).at(|| format!("parameter {i}"))
    }

    fn named(&self, i: usize, kind: &str) -> LoadResult<&'p str> {
        let p = self.get(i)?;
        if p.kind != kind {
            refuse!("parameter {i} is of type '{}', not '{kind}'", p.kind);
        }
        text(&p.value).at(|| format!("parameter {i}"))
    }
}

#[allow(clippy::too_many_lines)]
fn primitive(
    c: &mut Compiler<'_>,
    names: &Names,
    p: &Primitive,
    starts: &[u32],
    jumps: &mut Vec<Jump>,
) -> LoadResult<()> {
    let params = Params(&p.parameters);
    match p.op.as_str() {
        "assign" => {
            params.count(2)?;
            let (dest, node) = (params.dest(c, 0)?, params.node(c, 1)?);
            c.assign(&dest, &node)?;
        }
        "assign_header" | "copy_header" => {
            params.count(2)?;
            let (d, a) = (params.get(0)?, params.get(1)?);
            let d = c.header(&d.kind, &d.value)?;
            assign_header(c, &d, &a.kind, &a.value)?;
        }
        "assign_VL" => {
            params.count(2)?;
            let to = variable_field(c, params.get(0)?).at(|| "parameter 0")?;
            let from = variable_field(c, params.get(1)?).at(|| "parameter 1")?;
            copy_variable(c, to, from)?;
        }
        "assign_header_stack" => {
            params.count(2)?;
            let d = c.layout.stack(params.named(0, "header_stack")?)?;
            let a = c.layout.stack(params.named(1, "header_stack")?)?;
            copy_stack(c, d, a)?;
        }
        "assign_union" => {
            params.count(2)?;
            let (d, a) = (params.get(0)?, params.get(1)?);
            let to = c.union_members(&d.kind, &d.value)?;
            let from = c.union_members(&a.kind, &a.value)?;
            if to.len() != from.len() {
                refuse!("header unions are of different types");
            }
            for (d, a) in to.iter().zip(&from) {
                copy_header(c, d, a)?;
            }
        }
        "assign_union_stack" => {
            params.count(2)?;
            let d = c
                .layout
                .union_stack(params.named(0, "header_union_stack")?)?;
            let a = c
                .layout
                .union_stack(params.named(1, "header_union_stack")?)?;
            let (to, from) = (&c.layout.union_stacks[d], &c.layout.union_stacks[a]);
            if to.stacks.len() != from.stacks.len() {
                refuse!("header union stacks are of different types");
            }
            for (&d, &a) in to.stacks.iter().zip(&from.stacks) {
                copy_stack(c, d, a)?;
            }
        }
        "add_header" | "remove_header" => {
            params.count(1)?;
            let h = params.get(0)?;
            let node = c.header(&h.kind, &h.value)?;
            let kind = c.header_kind(&node);
            let words = c.layout.types[kind].words as u16;
            let h = c.header_ref(&node)?;
            let kind = kind as u16;
            if p.op == "add_header" {
                c.emit(Op::SetValid { h, words, kind });
                c.claim(&node, h);
            } else {
                c.emit(Op::SetInvalid { h, kind });
            }
        }
        "push" | "pop" => {
            params.count(2)?;
            let h = params.get(0)?;
            let stacks = match h.kind.as_str() {
                "header_union_stack" => {
                    let stack = c.layout.union_stack(text(&h.value)?)?;
                    c.layout.union_stacks[stack].stacks.clone()
                }
                _ => vec![c.layout.stack(params.named(0, "header_stack")?)?],
            };
            let count = params.node(c, 1)?;
            let count = c.word(&count)?;
            for (i, stack) in stacks.into_iter().enumerate() {
                let words = c.layout.types[c.layout.stacks[stack].kind].words as u16;
                let (stack, first) = (stack as u16, i == 0);
                c.emit(if p.op == "push" {
                    Op::Push {
                        stack,
                        count,
                        words,
                        first,
                    }
                } else {
                    Op::Pop {
                        stack,
                        count,
                        words,
                        first,
                    }
                });
            }
        }
        "mark_to_drop" | "drop" => match p.parameters.first() {
            Some(h) if h.kind == "header" && text(&h.value)? != STANDARD_METADATA => {
                let name = text(&h.value)?;
                let own = c.layout.header(STANDARD_METADATA)?;
                let copy = c.layout.header(name)?;
                if c.layout.headers[copy].kind != c.layout.headers[own].kind {
                    refuse!("'{name}' is no copy of the standard metadata");
                }
                c.emit(Op::MarkCopyToDrop {
                    egress_spec: c.layout.field(name, "egress_spec")?.slot,
                    mcast_grp: c.layout.field(name, "mcast_grp")?.slot,
                });
            }
            _ => c.emit(Op::MarkToDrop),
        },
        "no_op" => {}
        "log_msg" => {
            let format = params.named(0, "string")?;
            let arguments = match p.parameters.get(1) {
                None => &[],
                Some(v) if v.kind == "parameters_vector" => match v.value.as_array() {
                    Some(list) => list.as_slice(),
                    None => refuse!("parameter 1 is not a list"),
                },
                Some(v) => refuse!("parameter 1 is of type '{}'", v.kind),
            };
            c.log(format, arguments)?;
        }
        "exit" => c.emit(Op::Exit),
        "assert" | "assume" => {
            params.count(1)?;
            let node = params.node(c, 0)?;
            let a = c.condition(node)?;
            c.emit(Op::Assert { a });
        }
        "_jump" => {
            params.count(1)?;
            let target = jump_target(params.get(0)?)?;
            match starts.get(target) {
                // The end of a loop.
                Some(&to) => c.emit(Op::JumpBack { to }),
                None => {
                    jumps.push(Jump {
                        at: c.here(),
                        target,
                    });
                    c.emit(Op::Jump { to: 0 });
                }
            }
        }
        "_jump_if_zero" => {
            params.count(2)?;
            let node = params.node(c, 0)?;
            let a = c.condition(node)?;
            let target = jump_target(params.get(1)?)?;
            let at = c.here();
            c.emit(Op::JumpIfZero { a, to: 0 });
            match starts.get(target) {
                Some(&to) => {
                    let otherwise = c.here();
                    c.emit(Op::Jump { to: 0 });
                    c.land(at);
                    c.emit(Op::JumpBack { to });
                    c.land(otherwise);
                }
                None => jumps.push(Jump { at, target }),
            }
        }
        "register_read" => {
            params.count(3)?;
            let dest = params.dest(c, 0)?;
            let array = names.register(params.named(1, "register_array")?)?;
            let index = params.node(c, 2)?;
            let index = c.word(&index)?;
            let bits = names.register_bits[array];
            let array = array as u16;
            match dest {
                Dest::Field(f) if bits <= f.bits && limbs(bits) == f.limbs() => {
                    c.emit(Op::RegisterRead {
                        d: f.slot,
                        array,
                        index,
                        skip: 0,
                    });
                }
                dest => {
                    let d = c.temp(limbs(bits))?;
                    let at = c.here();
                    c.emit(Op::RegisterRead {
                        d,
                        array,
                        index,
                        skip: 0,
                    });
                    c.store_words(&dest, d, bits)?;
                    set_skip(c, at)?;
                }
            }
        }
        "register_write" => {
            params.count(3)?;
            let array = names.register(params.named(0, "register_array")?)?;
            let (index, value) = (params.node(c, 1)?, params.node(c, 2)?);
            let index = c.word(&index)?;
            let a = c.low_words(&value, names.register_bits[array])?;
            c.emit(Op::RegisterWrite {
                array: array as u16,
                index,
                a,
            });
        }
        "count" => {
            params.count(2)?;
            let array = names.counter(params.named(0, "counter_array")?)? as u16;
            let index = params.node(c, 1)?;
            let index = c.word(&index)?;
            c.emit(Op::Count { array, index });
        }
        "execute_meter" => {
            params.count(3)?;
            let array = names.meter(params.named(0, "meter_array")?)? as u16;
            let index = params.node(c, 1)?;
            let index = c.word(&index)?;
            match params.dest(c, 2)? {
                Dest::Field(f) if f.bits <= 64 => c.emit(Op::Meter {
                    d: f.slot,
                    mask: if f.bits == 1 { 1 } else { 3 },
                    array,
                    index,
                    skip: 0,
                }),
                dest => {
                    let d = c.temp(1)?;
                    let at = c.here();
                    c.emit(Op::Meter {
                        d,
                        mask: 3,
                        array,
                        index,
                        skip: 0,
                    });
                    c.store_word(&dest, d, 2)?;
                    set_skip(c, at)?;
                }
            }
        }
        "modify_field_with_hash_based_offset" => {
            params.count(4)?;
            let dest = params.dest(c, 0)?;
            let calculation = names.calculation(params.named(2, "calculation")?)? as u16;
            let (base, size) = (params.node(c, 1)?, params.node(c, 3)?);
            let (base, size) = (c.low_word(&base, 64)?, c.low_word(&size, 64)?);
            let d = c.temp(1)?;
            c.emit(Op::Hash {
                d,
                base,
                size,
                calculation,
            });
            c.store_word(&dest, d, 64)?;
        }
        "modify_field_rng_uniform" => {
            params.count(3)?;
            let dest = params.dest(c, 0)?;
            let (low, high) = (params.node(c, 1)?, params.node(c, 2)?);
            let (low, high) = (c.low_word(&low, 64)?, c.low_word(&high, 64)?);
            let d = c.temp(1)?;
            let at = c.here();
            c.emit(Op::Random {
                d,
                low,
                high,
                skip: 0,
            });
            c.store_word(&dest, d, 64)?;
            set_skip(c, at)?;
        }
        "truncate" => {
            params.count(1)?;
            let node = params.node(c, 0)?;
            let a = c.word(&node)?;
            c.emit(Op::Truncate { a });
        }
        "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => {
            params.count(2)?;
            let (session, list) = (params.node(c, 0)?, params.node(c, 1)?);
            let (session, list) = (c.word(&session)?, c.word(&list)?);
            c.emit(Op::Clone { session, list });
        }
        "resubmit" | "recirculate" => {
            params.count(1)?;
            let list = params.node(c, 0)?;
            let list = c.word(&list)?;
            c.emit(if p.op == "resubmit" {
                Op::Resubmit { list }
            } else {
                Op::Recirculate { list }
            });
        }
        "generate_digest" => {
            params.count(2)?;
            let list = params.node(c, 1)?;
            let list = c.word(&list)?;
            c.emit(Op::Digest { list });
        }
        _ => match p.parameters.first() {
            Some(first) if first.kind == "extern" => {
                extern_method(c, names, &p.op, text(&first.value)?, &params)?;
            }
            _ => refuse!("unknown primitive"),
        },
    }
    Ok(())
}

/// Copies a header that may be chosen by a condition (`?`).
fn assign_header(
    c: &mut Compiler<'_>,
    d: &HeaderNode,
    kind: &str,
    value: &Value,
) -> LoadResult<()> {
    if kind == "expression" {
        if value.get("op").is_none() {
            let (kind, value) = type_value(value)?;
            return assign_header(c, d, kind, value);
        }
        if value.get("op").and_then(Value::as_str) == Some("?") {
            let side = |name: &str| type_value(value.get(name).unwrap_or(&Value::Null));
            let (kind, cond) = side("cond")?;
            let node = c.node(kind, cond)?;
            let a = c.condition(node)?;
            let otherwise = c.here();
            c.emit(Op::JumpIfZero { a, to: 0 });
            let (kind, left) = side("left")?;
            assign_header(c, d, kind, left)?;
            let end = c.here();
            c.emit(Op::Jump { to: 0 });
            c.land(otherwise);
            let (kind, right) = side("right")?;
            assign_header(c, d, kind, right)?;
            c.land(end);
            return Ok(());
        }
    }
    let a = c.header(kind, value)?;
    copy_header(c, d, &a)
}

/// Copies a header: validity always, fields if the source is valid.
fn copy_header(c: &mut Compiler<'_>, d: &HeaderNode, a: &HeaderNode) -> LoadResult<()> {
    let kind = c.header_kind(d);
    if kind != c.header_kind(a) {
        refuse!("headers are of different types");
    }
    let words = c.layout.types[kind].words as u16;
    let (to, from) = (c.header_ref(d)?, c.header_ref(a)?);
    c.emit(Op::CopyHeader {
        d: to,
        a: from,
        words,
    });
    c.claim(d, to);
    Ok(())
}

fn copy_stack(c: &mut Compiler<'_>, d: usize, a: usize) -> LoadResult<()> {
    let (to, from) = (&c.layout.stacks[d], &c.layout.stacks[a]);
    if to.kind != from.kind || to.bases.len() != from.bases.len() {
        refuse!("header stacks are of different types");
    }
    let words = c.layout.types[to.kind].words as u16;
    c.emit(Op::CopyStack {
        d: d as u16,
        a: a as u16,
        words,
    });
    Ok(())
}

/// A parameter that is a variable-length field, with the slot of its length.
fn variable_field(c: &Compiler<'_>, p: &TypeValue) -> LoadResult<(Field, u32)> {
    match variable(c, &p.kind, &p.value)? {
        Some(found) => Ok(found),
        None => refuse!("expected a variable-length field, found '{}'", p.kind),
    }
}

/// A variable-length field and the slot of its length; `None`: an operand of another kind.
pub(super) fn variable(
    c: &Compiler<'_>,
    kind: &str,
    value: &Value,
) -> LoadResult<Option<(Field, u32)>> {
    let value = match kind {
        "field" => value,
        "expression" => match type_value(value) {
            Ok(("field", inner)) => inner,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let (header, field) = pair(value)?;
    c.layout.variable(header, field)
}

/// Copies a variable-length field, with its length.
pub(super) fn copy_variable(
    c: &mut Compiler<'_>,
    (to, to_length): (Field, u32),
    (from, from_length): (Field, u32),
) -> LoadResult<()> {
    if to.bits != from.bits {
        refuse!(
            "variable-length fields of {} and {} bits at most",
            to.bits,
            from.bits
        );
    }
    c.emit(Op::CopyW {
        d: to.slot,
        a: from.slot,
        n: to.limbs() as u16,
    });
    c.emit(Op::Copy {
        d: to_length,
        a: from_length,
    });
    Ok(())
}

/// The extern types and methods of this target.
fn extern_method(
    c: &mut Compiler<'_>,
    names: &Names,
    op: &str,
    instance: &str,
    params: &Params<'_>,
) -> LoadResult<()> {
    let Some(kind) = names.externs.get(instance) else {
        refuse!("unknown extern instance '{instance}'");
    };
    let method = op
        .strip_prefix('_')
        .and_then(|rest| rest.strip_prefix(kind.as_str()))
        .and_then(|rest| rest.strip_prefix('_'));
    let Some(method) = method else {
        refuse!("is no method of extern instance '{instance}' of type '{kind}'");
    };
    match (kind.as_str(), method) {
        ("TrafficManager", "now") => {
            params.count(2)?;
            let dest = params.dest(c, 1)?;
            let d = c.temp(1)?;
            c.emit(Op::Now { d });
            c.store_word(&dest, d, 64)?;
        }
        ("TrafficManager", "backlog") => {
            params.count(3)?;
            let (class, dest) = (params.node(c, 1)?, params.dest(c, 2)?);
            let class = c.low_word(&class, 32)?;
            let d = c.temp(1)?;
            c.emit(Op::Backlog { d, class });
            // The parameter is bit<32>: a larger backlog must not wrap to a small one.
            let most = c.constant(&[u64::from(u32::MAX)])?;
            let over = c.temp(1)?;
            c.emit(Op::Lt {
                d: over,
                a: most,
                b: d,
            });
            c.emit(Op::Select {
                d,
                c: over,
                a: most,
                b: d,
            });
            c.store_word(&dest, d, 32)?;
        }
        ("TrafficManager", "hold") => {
            params.count(5)?;
            let args = c.temp(4)?;
            for (i, bits) in [(0, 32), (1, 64), (2, 64), (3, 64)] {
                let node = params.node(c, i + 1)?;
                let a = c.low_word(&node, bits)?;
                c.emit(Op::Copy {
                    d: args + i as u32,
                    a,
                });
            }
            c.emit(Op::Hold { args });
        }
        ("TrafficManager", other) => {
            refuse!("extern type 'TrafficManager' has no method '{other}'")
        }
        (other, _) => {
            refuse!("extern type '{other}' (instance '{instance}') is not supported")
        }
    }
    Ok(())
}

fn jump_target(p: &TypeValue) -> LoadResult<usize> {
    let limbs = hex_limbs(text(&p.value)?)?;
    match limbs.as_slice() {
        [one] => Ok(usize::try_from(*one).unwrap_or(usize::MAX)),
        _ => refuse!("jump target is too large"),
    }
}

/// Makes the operation at `at` skip everything emitted after it when it has no result.
fn set_skip(c: &mut Compiler<'_>, at: u32) -> LoadResult<()> {
    let after = c.here() - at - 1;
    c.forget();
    match (c.ops.get_mut(at as usize), u8::try_from(after)) {
        (
            Some(Op::RegisterRead { skip, .. } | Op::Random { skip, .. } | Op::Meter { skip, .. }),
            Ok(after),
        ) => {
            *skip = after;
            Ok(())
        }
        _ => refuse!("result cannot be stored"),
    }
}
