//! Field lists: the fields that resubmit, recirculate and clone preserve, and those that digests send.

use crate::error::{At, LoadResult, refuse};
use crate::layout::Layout;
use crate::model;
use crate::program::FieldList;
use std::collections::HashSet;

/// Resolves field lists; `what` names them in errors.
pub(super) fn field_lists(
    all: &[model::FieldList],
    what: &str,
    layout: &Layout,
) -> LoadResult<Vec<FieldList>> {
    let mut ids = HashSet::new();
    let mut list = |l: &model::FieldList| {
        let Ok(id) = u16::try_from(l.id) else {
            refuse!("id {} is too large", l.id);
        };
        if !ids.insert(id) {
            refuse!("id {id} is used twice");
        }
        let mut fields = Vec::new();
        for e in &l.elements {
            match e.kind.as_str() {
                "field" => fields.push(layout.field_value(&e.value)?),
                // Nothing of a constant is preserved.
                "hexstr" => {}
                other => refuse!("element of type '{other}' is not supported"),
            }
        }
        Ok(FieldList {
            id,
            fields: fields.into(),
        })
    };
    all.iter()
        .map(|l| list(l).at(|| format!("{what} '{}'", l.name)))
        .collect()
}
