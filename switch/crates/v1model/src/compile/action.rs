//! Actions.

use super::extern_type::ExternType;
use super::objects::Objects;
use super::primitives::primitives;
use crate::entries::ActionInfo;
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::Compiler;
use crate::layout::{Field, MAX_FIELD_BITS};
use crate::model::{self, Root};
use crate::ops::Code;
use crate::wide::limbs;
use std::collections::HashMap;

/// Most words that the arguments of an action take.
const MAX_PARAM_WORDS: u32 = 1 << 15;

/// A compiled action.
#[derive(Debug, Clone)]
pub(super) struct Action {
    pub name: String,
    /// Index into [`Actions::infos`].
    pub public: usize,
    /// Names and widths.
    pub params: Vec<(String, u32)>,
    pub code: Code,
    /// A method of an extern that it calls and that can be called in ingress only: `Type.method`.
    pub ingress_only: Option<String>,
}

/// The most words that the arguments of one action take.
pub(super) fn param_words(root: &Root) -> LoadResult<u32> {
    let words = |action: &model::Action| -> u32 {
        let params = action.runtime_data.iter();
        let words = params.map(|p| limbs(p.bitwidth.min(MAX_FIELD_BITS)));
        words.sum()
    };
    let most = root.actions.iter().map(words).max().unwrap_or(0);
    if most > MAX_PARAM_WORDS {
        refuse!("an action has more than {MAX_PARAM_WORDS} words of parameters");
    }
    Ok(most)
}

/// The actions of a program.
#[derive(Debug, Default)]
pub(super) struct Actions {
    by_id: HashMap<u32, Action>,
    /// The actions as the control plane sees them.
    pub infos: Vec<ActionInfo>,
}

impl Actions {
    /// Compiles all actions.
    pub fn compile(c: &mut Compiler<'_>, objects: &Objects, root: &Root) -> LoadResult<Self> {
        let mut all = Self::default();
        // p4c writes one copy of an action per place that uses it, all under one name. The
        // control plane sees them as one action.
        let mut publics = HashMap::new();
        for a in &root.actions {
            let place = || format!("action '{}' (id {})", a.name, a.id);
            let mut compiled = action(c, objects, a).at(place)?;
            let info = ActionInfo {
                name: compiled.name.clone(),
                params: compiled.params.clone(),
            };
            let key = (info.name.clone(), info.params.clone());
            compiled.public = *publics.entry(key).or_insert_with(|| {
                all.infos.push(info);
                all.infos.len() - 1
            });
            if all.by_id.insert(a.id, compiled).is_some() {
                return Err(LoadError::new("id is used twice")).at(place);
            }
        }
        Ok(all)
    }

    /// Finds an action by its id, for ingress or egress.
    pub fn find(&self, id: u32, egress: bool) -> LoadResult<&Action> {
        let Some(action) = self.by_id.get(&id) else {
            refuse!("unknown action id {id}");
        };
        match &action.ingress_only {
            Some(method) if egress => refuse!(
                "action '{}': {method} can be called in ingress only",
                action.name
            ),
            _ => Ok(action),
        }
    }
}

fn action(c: &mut Compiler<'_>, objects: &Objects, action: &model::Action) -> LoadResult<Action> {
    let mut slot = c.param_base();
    c.params.clear();
    for p in &action.runtime_data {
        if p.bitwidth > MAX_FIELD_BITS {
            refuse!(
                "parameter '{}': a width of {} bits; at most {MAX_FIELD_BITS} are possible",
                p.name,
                p.bitwidth
            );
        }
        c.params.push(Field {
            slot,
            bits: p.bitwidth,
            signed: false,
        });
        slot += limbs(p.bitwidth);
    }
    let mut calls = (action.primitives.iter()).filter_map(|p| ExternType::of_call(&p.op));
    let ingress_only = calls.find(|(of, method)| of.is_ingress_only(method));
    let code = primitives(c, objects, &action.primitives);
    c.params.clear();
    let params = action.runtime_data.iter();
    Ok(Action {
        name: action.name.clone(),
        public: 0,
        params: params.map(|p| (p.name.clone(), p.bitwidth)).collect(),
        code: code?,
        ingress_only: ingress_only.map(|(of, method)| format!("{}.{method}", of.name())),
    })
}
