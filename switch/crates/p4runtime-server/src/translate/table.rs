//! Tables: keys and actions of their entries.

use v1model::entries::{ActionCall, Bits, EntryKey};

use super::arrays::MeterKind;
use super::keys::Keys;
use super::translation::ValueType;
use crate::error::{UpdateError, UpdateResult};
use crate::ids;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

/// An action as one table uses it.
#[derive(Debug, Clone)]
pub(crate) struct BoundAction {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program, where several actions may have the same name.
    pub(crate) index: usize,
    pub(crate) scope: p4info::action_ref::Scope,
    /// In the program's order.
    pub(super) params: Vec<Param>,
}

/// A parameter of an action.
#[derive(Debug, Clone)]
pub(super) struct Param {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) value: ValueType,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct BoundTable {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program.
    pub(crate) index: usize,
    pub(crate) keys: Keys,
    pub(crate) actions: Vec<BoundAction>,
    pub(crate) const_entries: bool,
    /// Most entries: P4Info's, or the program's where that is more.
    pub(crate) size: usize,
    pub(crate) const_default: bool,
    pub(crate) direct_counter: bool,
    pub(crate) direct_meter: Option<MeterKind>,
    /// Position of its action profile or selector in [`super::BoundPipeline::profiles`].
    pub(crate) profile: Option<usize>,
    /// Entries may have idle timeouts.
    pub(crate) idle_timeout: bool,
}

impl BoundTable {
    /// Reads the key of an entry: match fields and priority.
    pub(crate) fn entry_key(&self, entry: &p4::TableEntry) -> UpdateResult<EntryKey> {
        if self.keys.have_priorities() {
            if entry.priority <= 0 {
                return Err(UpdateError::invalid(format!(
                    "{}: priority: {} given, greater than 0 expected (the table has ternary, \
                     range or optional fields)",
                    self.name, entry.priority
                )));
            }
        } else if entry.priority != 0 {
            return Err(UpdateError::invalid(format!(
                "{}: priority: {} given, 0 expected (the table has no ternary, range or optional \
                 field)",
                self.name, entry.priority
            )));
        }
        Ok(EntryKey {
            fields: self.keys.match_fields(&entry.r#match)?,
            priority: entry.priority,
        })
    }

    /// "When this flag is set to true, the repeated match field must be empty and the priority field
    /// must be set to zero."
    pub(crate) fn check_default_key(&self, entry: &p4::TableEntry) -> UpdateResult<()> {
        if entry.r#match.is_empty() && entry.priority == 0 {
            return Ok(());
        }
        Err(UpdateError::invalid(format!(
            "{}: is_default_action: true given with a match or a priority; the default entry has \
             neither",
            self.name
        )))
    }

    /// The action of this P4Info id.
    pub(crate) fn action(&self, id: u32) -> UpdateResult<&BoundAction> {
        self.actions
            .iter()
            .find(|action| action.id == id)
            .ok_or_else(|| {
                let known: Vec<String> = self
                    .actions
                    .iter()
                    .map(|action| format!("{} ({})", action.id, action.name))
                    .collect();
                UpdateError::invalid(format!(
                    "{}: action: id {id} given, one of this table's actions expected: {}",
                    self.name,
                    known.join(", ")
                ))
            })
    }

    /// Reads an action with its arguments (section "Action Specification"), for the default
    /// entry or for another one.
    pub(crate) fn action_call(
        &self,
        given: &p4::Action,
        for_default: bool,
    ) -> UpdateResult<ActionCall> {
        use p4info::action_ref::Scope;
        let action = self.action(given.action_id)?;
        let allowed = match action.scope {
            Scope::TableAndDefault => true,
            Scope::TableOnly => !for_default,
            Scope::DefaultOnly => for_default,
            Scope::GroupAction => false,
        };
        if !allowed {
            return Err(UpdateError::permission_denied(format!(
                "{}: action {}: not allowed for {} (its scope is {})",
                self.name,
                action.name,
                if for_default {
                    "the default entry"
                } else {
                    "an entry with a match"
                },
                action.scope.as_str_name()
            )));
        }
        let object = format!("{}: action {}", self.name, action.name);
        let known = action.params.iter();
        let known = known.map(|param| (param.id, param.name.as_str()));
        let ids = given.params.iter().map(|param| param.param_id);
        ids::check(&object, "parameter", ids, known)?;
        let args = action
            .params
            .iter()
            .map(|param| {
                let value = given
                    .params
                    .iter()
                    .find(|other| other.param_id == param.id)
                    .ok_or_else(|| {
                        UpdateError::invalid(format!(
                            "{}: parameter {} (id {}, {}) is missing",
                            object,
                            param.name,
                            param.id,
                            param.value.expected()
                        ))
                    })?;
                let parsed = param.value.parse(&value.value, &object, &param.name);
                parsed.map_err(UpdateError::as_invalid)
            })
            .collect::<UpdateResult<Vec<Bits>>>()?;
        Ok(ActionCall {
            action: action.index,
            args,
        })
    }

    /// An action as a controller sees it; `None` for one that P4Info does not give this table.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: an argument that no controller's value stands for.
    pub(crate) fn action_message(&self, call: &ActionCall) -> UpdateResult<Option<p4::Action>> {
        let mut actions = self.actions.iter();
        let Some(action) = actions.find(|action| action.index == call.action) else {
            return Ok(None);
        };
        let mut params = Vec::with_capacity(call.args.len());
        for (param, value) in action.params.iter().zip(&call.args) {
            params.push(p4::action::Param {
                param_id: param.id,
                value: param.value.tell(value, &action.name, &param.name)?,
            });
        }
        Ok(Some(p4::Action {
            action_id: action.id,
            params,
        }))
    }
}

/// The deprecated cookie of an entry, which must still be kept.
pub(crate) fn controller_metadata(entry: &p4::TableEntry) -> u64 {
    #[allow(deprecated)]
    let value = entry.controller_metadata;
    value
}
