//! Primitives: the statements of actions, parser states and the deparser.
//!
//! * `assign`: assignments, of values and of whole headers, stacks and unions.
//! * `header`: headers that become valid or invalid, stacks that move.
//! * `jump`: conditions and loops in actions.
//! * `stateful`: registers, counters, meters, hashes, random numbers.
//! * `packet`: operations on the whole packet: drop, clone, digest, truncate and the like.
//! * `externs`: calls of the methods of externs, which are in `traffic_manager` and `egress_queues`.

pub(super) mod assign;
mod egress_queues;
mod externs;
mod header;
mod jump;
mod packet;
mod params;
mod stateful;
mod traffic_manager;

use super::objects::Objects;
use crate::error::{At, LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::Primitive;
use crate::ops::{Code, Op};
use crate::trace::PrimitiveLabel;
use jump::Jumps;
use params::Params;

pub(super) use externs::refuse_calls;

/// Compiles a list of primitives.
pub(super) fn primitives(
    c: &mut Compiler<'_>,
    objects: &Objects,
    list: &[Primitive],
) -> LoadResult<Code> {
    let start = c.here();
    let branches = list.iter().any(|p| p.op.starts_with("_jump"));
    let mut jumps = Jumps::default();
    for (i, p) in list.iter().enumerate() {
        let first = c.here();
        jumps.begin_primitive(first);
        // Any of them may be where a jump goes to.
        if i == 0 || branches {
            c.free_temps();
        } else {
            c.next_statement();
        }
        primitive(c, objects, p, &mut jumps).at(|| format!("primitive {i} ('{}')", p.op))?;
        if c.here() > first {
            c.primitives.push(PrimitiveLabel {
                start: first,
                op: p.op.clone(),
                source: p.source_info.clone(),
            });
        }
    }
    jumps.resolve(c)?;
    Ok(c.since(start))
}

/// Compiles one primitive.
fn primitive(
    c: &mut Compiler<'_>,
    objects: &Objects,
    p: &Primitive,
    jumps: &mut Jumps,
) -> LoadResult<()> {
    let params = Params(&p.parameters);
    match p.op.as_str() {
        "assign" => assign::value(c, params),
        "assign_header" | "copy_header" => assign::header(c, params),
        "assign_VL" => assign::variable_field(c, params),
        "assign_header_stack" => assign::stack(c, params),
        "assign_union" => assign::union(c, params),
        "assign_union_stack" => assign::union_stack(c, params),
        "add_header" => header::set_valid(c, params),
        "remove_header" => header::set_invalid(c, params),
        "push" => header::move_stack(c, params, true),
        "pop" => header::move_stack(c, params, false),
        "_jump" => jumps.jump(c, params),
        "_jump_if_zero" => jumps.jump_if_zero(c, params),
        "register_read" => stateful::register_read(c, objects, params),
        "register_write" => stateful::register_write(c, objects, params),
        "count" => stateful::count(c, objects, params),
        "execute_meter" => stateful::meter(c, objects, params),
        "modify_field_with_hash_based_offset" => stateful::hash(c, objects, params),
        "modify_field_rng_uniform" => stateful::random(c, params),
        "mark_to_drop" | "drop" => packet::mark_to_drop(c, params),
        "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress" => packet::clone(c, params),
        "resubmit" => packet::with_word(c, params, |list| Op::Resubmit { list }),
        "recirculate" => packet::with_word(c, params, |list| Op::Recirculate { list }),
        "truncate" => packet::with_word(c, params, |a| Op::Truncate { a }),
        "generate_digest" => packet::digest(c, params),
        "log_msg" => packet::log(c, params),
        "assert" | "assume" => packet::assert(c, params),
        "exit" => {
            c.emit(Op::Exit);
            Ok(())
        }
        "no_op" => Ok(()),
        op => match params.extern_instance()? {
            Some(instance) => externs::method(c, objects, op, instance, params),
            None => refuse!("unknown primitive"),
        },
    }
}
