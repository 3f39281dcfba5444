//! The names of a program's objects, as traces show them.

use std::sync::Arc;

use v1model::{Labels, Pipeline};

/// The names of a program's objects: by the indices of the control plane, and by those of [`Labels`].
#[derive(Debug)]
pub(super) struct Names {
    pub(super) labels: Arc<Labels>,
    pub(super) tables: Box<[Named]>,
    pub(super) actions: Box<[Named]>,
    pub(super) registers: Box<[String]>,
    pub(super) counters: Box<[String]>,
    pub(super) meters: Box<[String]>,
    /// By table; empty: it has none.
    pub(super) direct_meters: Box<[String]>,
    pub(super) profiles: Box<[String]>,
}

/// A name, and the names and widths of key fields or parameters.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    parts: Box<[(String, u32)]>,
}

impl Named {
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parts.iter().map(|(name, bits)| (name.as_str(), *bits))
    }
}

impl Names {
    pub(super) fn new(pipeline: &Pipeline) -> Self {
        let tables = pipeline.tables().iter().map(|table| Named {
            name: table.name.clone(),
            parts: (table.key.iter())
                .map(|field| (field.name.clone(), field.bits))
                .collect(),
        });
        let actions = pipeline.actions().iter().map(|action| Named {
            name: action.name.clone(),
            parts: action.params.clone().into(),
        });
        let registers = pipeline.registers().iter().map(|array| array.name.clone());
        let counters = pipeline.counters().iter().map(|array| array.name.clone());
        let meters = pipeline.meters().iter();
        let direct_meters = pipeline.tables().iter().map(|table| {
            let meter = table.direct_meter.as_ref();
            meter.map_or_else(String::new, |meter| meter.name.clone())
        });
        let profiles = pipeline.profiles().iter();
        Self {
            labels: Arc::clone(pipeline.labels()),
            tables: tables.collect(),
            actions: actions.collect(),
            registers: registers.collect(),
            counters: counters.collect(),
            meters: meters.map(|(array, _)| array.name.clone()).collect(),
            direct_meters: direct_meters.collect(),
            profiles: profiles.map(|profile| profile.name.clone()).collect(),
        }
    }
}
