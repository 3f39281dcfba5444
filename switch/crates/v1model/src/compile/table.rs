//! Tables, their keys and action profiles.

use super::action::{Action, Actions};
use super::calculations::calculation;
use super::entry;
use super::objects::Objects;
use crate::bits::{prefix_mask, to_bits};
use crate::entries::profile::ProfileInfo;
use crate::entries::{Bits, DirectMeterInfo, KeyField, MatchKind, TableInfo};
use crate::error::{At, LoadResult, refuse};
use crate::expr::{hex_limbs, text};
use crate::layout::{Field, Layout, pair};
use crate::model;
use crate::names::Names;
use crate::profile::Profile;
use crate::program::{END, Node};
use crate::slot::Slot;
use crate::table::{DirectMeter, KeyPart, Table, TableAction, TableSpec};
use crate::wide::mask64;

/// Members of an action profile whose size the program leaves open.
const DEFAULT_PROFILE_SIZE: usize = 1_024;
/// Widest key in words.
const MAX_KEY_WORDS: usize = 1 << 10;

/// The nodes of a pipeline by name.
pub(super) struct Scope {
    names: Names,
    /// The number of the first node.
    first: u32,
    /// Whether the pipeline is egress.
    pub egress: bool,
}

impl Scope {
    /// A pipeline whose nodes have numbers from `first` on.
    pub fn new(first: u32, egress: bool) -> Self {
        Self {
            names: Names::default(),
            first,
            egress,
        }
    }

    /// Adds the next node.
    pub fn add(&mut self, name: &str) -> LoadResult<()> {
        self.names.add(name).map(|_| ())
    }

    /// Finds the node that comes next; none: the pipeline ends.
    pub fn node(&self, name: &Option<String>) -> LoadResult<u32> {
        match name {
            None => Ok(END),
            Some(name) => Ok(self.first + self.names.find("next node", name)? as u32),
        }
    }

    /// The name of a node.
    pub fn name_of(&self, node: u32) -> &str {
        let mut names = self.names.iter();
        let found = names.find(|(_, index)| self.first + *index as u32 == node);
        found.map_or("?", |(name, _)| name)
    }
}

/// The tables of a program.
#[derive(Default)]
pub(super) struct Tables {
    pub actions: Actions,
    pub tables: Vec<Table>,
    pub infos: Vec<TableInfo>,
    profile_names: Names,
    pub profiles: Vec<Profile>,
    pub profile_infos: Vec<ProfileInfo>,
}

impl Tables {
    /// No tables yet; they will use `actions`.
    pub fn new(actions: Actions) -> Self {
        Self {
            actions,
            ..Self::default()
        }
    }

    /// Adds an action profile.
    pub fn add_profile(
        &mut self,
        layout: &Layout,
        objects: &mut Objects,
        profile: &model::ActionProfile,
    ) -> LoadResult<()> {
        let selector = match &profile.selector {
            None => None,
            Some(s) => {
                let built = calculation(&s.algo, &s.input, layout)?;
                objects.calculations.push(built);
                Some(objects.calculations.len() - 1)
            }
        };
        self.profile_names.add(&profile.name)?;
        self.profiles.push(Profile::new(selector));
        self.profile_infos.push(ProfileInfo {
            name: profile.name.clone(),
            // p4c writes no size if the program gives none.
            size: profile.max_size.unwrap_or(DEFAULT_PROFILE_SIZE),
            selector: selector.is_some(),
            tables: Vec::new(),
        });
        Ok(())
    }

    /// Finds the profile of the next table, if it is of type `indirect` or `indirect_ws`.
    fn profile_of(&mut self, t: &model::Table) -> LoadResult<Option<usize>> {
        match (t.kind.as_str(), &t.action_profile) {
            ("simple", _) => Ok(None),
            ("indirect" | "indirect_ws", Some(name)) => {
                let profile = self.profile_names.find("action profile", name)?;
                self.profile_infos[profile].tables.push(self.tables.len());
                Ok(Some(profile))
            }
            ("indirect" | "indirect_ws", None) => refuse!("has no action profile"),
            (other, _) => refuse!("table type '{other}' is not known"),
        }
    }

    /// Adds a table; returns the node that applies it.
    pub fn add(
        &mut self,
        layout: &Layout,
        objects: &Objects,
        t: &model::Table,
        scope: &Scope,
    ) -> LoadResult<Node> {
        let profile = self.profile_of(t)?;
        let (key, parts, key_words) = key(layout, t)?;
        let next = |name: &str| {
            let next = t.next_tables.get(name);
            next.map(|next| scope.node(next)).transpose()
        };
        let (next_hit, next_miss) = (next("__HIT__")?, next("__MISS__")?);
        let base_next = scope
            .node(&t.base_default_next)
            .at(|| "base_default_next")?;
        let mut actions = Vec::new();
        for &id in &t.action_ids {
            let action: &Action = self.actions.find(id, scope.egress)?;
            actions.push(TableAction {
                public: action.public,
                code: action.code,
                // The plain next is unused where hit and miss decide.
                next: next(&action.name)?.unwrap_or(base_next),
                params: action.params.iter().map(|p| p.1).collect(),
                prefetches: Box::default(),
            });
        }
        let meter = match &t.direct_meters {
            None => None,
            Some(name) => match objects.direct_meters.get(name) {
                Some(m) => Some(*m),
                None => refuse!("unknown direct meter '{name}'"),
            },
        };
        let default = t.default_entry.as_ref();
        let entries = t.entries.as_deref().unwrap_or_default();
        let info = TableInfo {
            name: t.name.clone(),
            json_id: t.id,
            key,
            actions: actions.iter().map(|a| a.public).collect(),
            size: t.max_size.max(entries.len()),
            const_entries: t.entries.is_some(),
            program_priority_max: entries.iter().filter_map(|e| e.priority).max().unwrap_or(0),
            const_default: default.is_some_and(|d| d.action_const || d.action_entry_const),
            direct_counter: t.with_counters,
            direct_meter: meter
                .zip(t.direct_meters.clone())
                .map(|(m, name)| DirectMeterInfo { name, unit: m.unit }),
            profile,
            idle_timeout: t.support_timeout,
        };
        let default = default.map(|d| {
            entry::call(&self.actions, t, d.action_id, &d.action_data).at(|| "default_entry")
        });
        let spec = TableSpec {
            parts: parts.into(),
            key_words,
            actions: actions.into(),
            counters: t.with_counters,
            meter: meter.map(|m| DirectMeter {
                unit: m.unit,
                slot: m.target.slot,
                mask: mask64(m.target.bits),
            }),
            ageing: t.support_timeout,
            profile,
            next_hit,
            next_miss,
            base_next,
            default: default.transpose()?,
            size: info.size,
        };
        let index = self.tables.len() as u32;
        let node = fixed_action(&spec, &info).unwrap_or(Node::Table(index));
        let mut table = Table::new(spec);
        entry::insert_constant_entries(&mut table, &info, &self.actions, t)?;
        self.tables.push(table);
        self.infos.push(info);
        Ok(node)
    }
}

/// The action of a table that can only ever run this one, without arguments, and has nothing to
/// count: it needs no look-up.
fn fixed_action(spec: &TableSpec, info: &TableInfo) -> Option<Node> {
    let plain = spec.parts.is_empty() && !spec.counters && spec.meter.is_none();
    let call = spec.default.as_ref()?;
    if !plain || !info.const_default || !call.args().is_empty() {
        return None;
    }
    let action = spec.actions.get(call.local())?;
    Some(Node::Action {
        code: action.code,
        next: spec.next_miss.unwrap_or(action.next),
    })
}

/// The key of a table as the control plane sees it, the same as parts, and its number of words.
fn key(layout: &Layout, t: &model::Table) -> LoadResult<(Vec<KeyField>, Vec<KeyPart>, usize)> {
    let mut infos = Vec::new();
    let mut fields = Vec::new();
    for (i, k) in t.key.iter().enumerate() {
        // Not part of the match: the selector's calculation has it as an input.
        if k.match_type == "selector" {
            continue;
        }
        let named = || match &k.name {
            Some(name) => format!("key '{name}'"),
            None => format!("key {i}"),
        };
        let (mut info, field) = key_field(layout, k).at(named)?;
        let mask = static_mask(k, field).at(named)?;
        info.mask = mask.as_deref().map(|mask| mask_of_entries(mask, info.bits));
        infos.push(info);
        fields.push((field, mask, validity(layout, k)?));
    }
    if infos.iter().filter(|f| f.kind == MatchKind::Lpm).count() > 1 {
        refuse!("has more than one lpm key");
    }
    let widths: Vec<u32> = infos.iter().map(|f| f.bits).collect();
    let (places, words) = KeyPart::pack(&widths);
    if words > MAX_KEY_WORDS {
        refuse!("key is wider than {MAX_KEY_WORDS} words");
    }
    let mut parts = Vec::new();
    for ((info, (field, mask, validity)), (word, shift)) in infos.iter().zip(fields).zip(places) {
        parts.push(KeyPart {
            slot: field.slot,
            validity,
            bits: field.bits,
            kind: info.kind,
            word,
            shift,
            mask,
        });
    }
    Ok((infos, parts, words))
}

fn key_field(layout: &Layout, k: &model::TableKey) -> LoadResult<(KeyField, Field)> {
    let kind = match k.match_type.as_str() {
        "exact" | "valid" => MatchKind::Exact,
        "lpm" => MatchKind::Lpm,
        "ternary" => MatchKind::Ternary,
        "range" => MatchKind::Range,
        "optional" => MatchKind::Optional,
        other => refuse!("unknown match type '{other}'"),
    };
    let (field, target) = if k.match_type == "valid" {
        let header = text(&k.target)?;
        (layout.field(header, "$valid$")?, header.to_owned())
    } else {
        let (h, f) = pair(&k.target)?;
        (layout.field(h, f)?, format!("{h}.{f}"))
    };
    let info = KeyField {
        name: k.name.clone().unwrap_or(target),
        kind,
        bits: field.bits,
        mask: None,
    };
    Ok((info, field))
}

/// [`KeyPart::validity`] of a key.
fn validity(layout: &Layout, k: &model::TableKey) -> LoadResult<Option<Slot>> {
    if k.match_type == "valid" {
        return Ok(None);
    }
    let (header, field) = pair(&k.target)?;
    if field == "$valid$" {
        return Ok(None);
    }
    layout.validity(header)
}

/// The program's mask of a key's field, for packets.
fn static_mask(k: &model::TableKey, field: Field) -> LoadResult<Option<Box<[u64]>>> {
    let Some(hex) = &k.mask else {
        return Ok(None);
    };
    let mut mask = hex_limbs(hex)?;
    mask.resize(field.limbs() as usize, 0);
    Ok(Some(mask.into_boxed_slice()))
}

/// The mask of [`KeyField`]: ones above the width, so that a value that is too wide is still seen to be.
fn mask_of_entries(mask: &[u64], bits: u32) -> Bits {
    let used = to_bits(&prefix_mask(bits, bits), bits);
    let mask = to_bits(mask, bits);
    mask.iter().zip(used).map(|(m, used)| m | !used).collect()
}
