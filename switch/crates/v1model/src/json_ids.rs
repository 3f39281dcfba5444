//! The numbers that a program's objects have in its BMv2 JSON, by name. BMv2's event log has them.

use std::collections::HashMap;

use crate::model::Root;

/// The numbers of a program's objects in its BMv2 JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonIds {
    stages: HashMap<String, u32>,
    headers: HashMap<String, u32>,
    conditions: HashMap<String, u32>,
    tables: HashMap<String, TableIds>,
    /// Of actions that no table runs. Of copies with the same name, the first.
    actions: HashMap<String, u32>,
}

/// The numbers of a table and of its copies of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TableIds {
    id: u32,
    actions: HashMap<String, u32>,
}

impl JsonIds {
    pub(crate) fn new(root: &Root) -> Self {
        let mut ids = Self::default();
        let parsers = root.parsers.iter().map(|it| (&it.name, it.id));
        let deparsers = root.deparsers.iter().map(|it| (&it.name, it.id));
        let pipelines = root.pipelines.iter().map(|it| (&it.name, it.id));
        let stages = parsers.chain(deparsers).chain(pipelines);
        ids.stages
            .extend(stages.map(|(name, id)| (name.clone(), id)));
        let headers = root.headers.iter();
        ids.headers
            .extend(headers.map(|header| (header.name.clone(), header.id)));
        // The first is the last to be put in.
        let actions = root.actions.iter().rev();
        ids.actions
            .extend(actions.map(|action| (action.name.clone(), action.id)));
        let names: HashMap<u32, &String> = root
            .actions
            .iter()
            .map(|action| (action.id, &action.name))
            .collect();
        let named = |id: &u32| Some(((*names.get(id)?).clone(), *id));
        for pipeline in &root.pipelines {
            let conditions = pipeline.conditionals.iter();
            ids.conditions
                .extend(conditions.map(|it| (it.name.clone(), it.id)));
            for table in &pipeline.tables {
                let actions = table.action_ids.iter().filter_map(named).collect();
                let id = table.id;
                ids.tables
                    .insert(table.name.clone(), TableIds { id, actions });
            }
            let calls = pipeline.action_calls.iter().map(|call| &call.action_id);
            ids.actions.extend(calls.filter_map(named));
        }
        ids
    }

    /// A parser, deparser or pipeline, by its name in the JSON ([`Stage::name`](crate::Stage::name)).
    #[must_use]
    pub fn stage(&self, name: &str) -> Option<u32> {
        self.stages.get(name).copied()
    }

    /// A header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<u32> {
        self.headers.get(name).copied()
    }

    /// A condition of a control.
    #[must_use]
    pub fn condition(&self, name: &str) -> Option<u32> {
        self.conditions.get(name).copied()
    }

    /// A table.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<u32> {
        self.tables.get(name).map(|table| table.id)
    }

    /// An action: the copy of a table that runs it, or one that is called.
    #[must_use]
    pub fn action(&self, table: Option<&str>, name: &str) -> Option<u32> {
        let table = table.and_then(|table| self.tables.get(table));
        let of_table = table.and_then(|table| table.actions.get(name));
        of_table.or_else(|| self.actions.get(name)).copied()
    }
}
