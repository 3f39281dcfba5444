//! Table entries: keys and actions.

use v1model::entries::profile::IndirectAction;
use v1model::entries::{ActionCall, Bits, EntryKey, TableEntry};

use super::profile::Profile;
use super::{EntryAction, Result, Table, TableAction, nonzero};
use crate::bytestring;
use crate::error::UpdateError;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

impl Table {
    /// Reads what identifies an entry: match fields and priority.
    pub(crate) fn entry_key(&self, entry: &p4::TableEntry) -> Result<EntryKey> {
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

    /// The action of this P4Info id.
    pub(crate) fn action(&self, id: u32) -> Result<&TableAction> {
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

    /// Reads what an entry with a match does (section "Action Specification"). `profile`: the
    /// table's, if it has one.
    pub(crate) fn entry_action(
        &self,
        given: &p4::TableAction,
        profile: Option<&Profile>,
    ) -> Result<EntryAction> {
        use p4::table_action::Type;
        let refuse = |given: &str, expected: &str| {
            Err(UpdateError::invalid(format!(
                "{}: action: {given} given, {expected} expected",
                self.name
            )))
        };
        let indirect = match (&given.r#type, profile) {
            (None, _) => return refuse("nothing", "an action, a member, a group or a set"),
            (Some(Type::Action(action)), None) => {
                return self.action_call(action, false).map(EntryAction::Call);
            }
            (Some(_), None) => {
                return refuse(
                    "a member, group or action set",
                    "an action (the table has no action profile)",
                );
            }
            (Some(Type::Action(_)), Some(profile)) => {
                return refuse("an action", profile.expected());
            }
            (Some(Type::ActionProfileMemberId(id)), Some(_)) => {
                IndirectAction::Member(nonzero(*id, &self.name, "action_profile_member_id")?)
            }
            (Some(Type::ActionProfileGroupId(id)), Some(profile)) => {
                if !profile.selector {
                    return refuse("a group", profile.expected());
                }
                IndirectAction::Group(nonzero(*id, &self.name, "action_profile_group_id")?)
            }
            (Some(Type::ActionProfileActionSet(set)), Some(profile)) => {
                if !profile.selector {
                    return refuse("an action set", profile.expected());
                }
                IndirectAction::OneShot(profile.one_shot(self, set)?)
            }
        };
        Ok(EntryAction::Indirect(indirect))
    }

    /// Reads an action with its arguments (section "Action Specification"), for the default
    /// entry or for another one.
    pub(crate) fn action_call(&self, given: &p4::Action, for_default: bool) -> Result<ActionCall> {
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
        let object = || format!("{}: action {}", self.name, action.name);
        for (position, param) in given.params.iter().enumerate() {
            if !action.params.iter().any(|known| known.id == param.param_id) {
                return Err(UpdateError::invalid(format!(
                    "{}: parameter id {} given, {} expected",
                    object(),
                    param.param_id,
                    action.param_ids()
                )));
            }
            let earlier = given.params.get(..position).unwrap_or(&[]);
            if earlier.iter().any(|other| other.param_id == param.param_id) {
                return Err(UpdateError::invalid(format!(
                    "{}: parameter id {} is given twice",
                    object(),
                    param.param_id
                )));
            }
        }
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
                            "{}: parameter {} (id {}, {} bits) is missing",
                            object(),
                            param.name,
                            param.id,
                            param.bits
                        ))
                    })?;
                bytestring::parse(&value.value, param.bits, &object(), &param.name)
                    .map_err(UpdateError::as_invalid)
            })
            .collect::<Result<Vec<Bits>>>()?;
        Ok(ActionCall {
            action: action.index,
            args,
        })
    }

    /// An action as a controller sees it; `None` for one that P4Info does not give this table.
    pub(crate) fn action_message(&self, call: &ActionCall) -> Option<p4::Action> {
        let action = self
            .actions
            .iter()
            .find(|action| action.index == call.action)?;
        let params = action.params.iter().zip(&call.args);
        Some(p4::Action {
            action_id: action.id,
            params: params
                .map(|(param, value)| p4::action::Param {
                    param_id: param.id,
                    value: bytestring::canonical(value),
                })
                .collect(),
        })
    }

    /// What an entry does as a controller sees it. `profile`: the table's, if it has one.
    pub(crate) fn entry_message(
        &self,
        entry: &TableEntry,
        profile: Option<&Profile>,
    ) -> Option<p4::TableAction> {
        use p4::table_action::Type;
        let action = match &entry.indirect {
            None => Type::Action(self.action_message(&entry.action)?),
            Some(IndirectAction::Member(id)) => Type::ActionProfileMemberId(*id),
            Some(IndirectAction::Group(id)) => Type::ActionProfileGroupId(*id),
            Some(IndirectAction::OneShot(set)) => {
                Type::ActionProfileActionSet(profile?.one_shot_message(self, set)?)
            }
        };
        Some(p4::TableAction {
            r#type: Some(action),
        })
    }
}

impl TableAction {
    fn param_ids(&self) -> String {
        if self.params.is_empty() {
            return "no parameter".to_owned();
        }
        let ids: Vec<String> = self
            .params
            .iter()
            .map(|param| format!("{} ({})", param.id, param.name))
            .collect();
        ids.join(", ")
    }
}
