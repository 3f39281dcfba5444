//! Calls of the methods of externs.

use super::params::Params;
use super::{egress_queues, traffic_manager};
use crate::compile::extern_type::ExternType;
use crate::compile::objects::Objects;
use crate::error::{LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::Primitive;

/// Refuses primitives that call a method of an extern, which `place` cannot.
pub(in crate::compile) fn refuse_calls(list: &[Primitive], place: &str) -> LoadResult<()> {
    for primitive in list {
        if let Some((of, method)) = ExternType::of_call(&primitive.op) {
            refuse!("{}.{method} cannot be called from {place}", of.name());
        }
    }
    Ok(())
}

/// Compiles the call of a method of `instance`, which is the first parameter.
pub(super) fn method(
    c: &mut Compiler<'_>,
    objects: &Objects,
    op: &str,
    instance: &str,
    params: Params<'_>,
) -> LoadResult<()> {
    let Some(of) = objects.extern_type(instance) else {
        refuse!("unknown extern instance '{instance}'");
    };
    let Some(name) = of.method(op) else {
        refuse!(
            "is no method of extern instance '{instance}' of type '{}'",
            of.name()
        );
    };
    match of {
        ExternType::TrafficManager => traffic_manager::method(c, name, params),
        ExternType::EgressQueues => egress_queues::method(c, name, params),
    }
}
