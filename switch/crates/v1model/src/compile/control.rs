//! Controls: tables, conditionals and their graph.

use super::DirectMeterInfo;
use super::action::Action;
use super::condition::comparisons;
use crate::calculation::Calculation;
use crate::entries::profile::ProfileInfo;
use crate::entries::{ActionInfo, Bits, EntryKey, KeyField, MatchField, MatchKind, TableInfo};
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::{Compiler, hex_limbs, text};
use crate::layout::Field;
use crate::model::{self, Root};
use crate::profile::Profile;
use crate::program::{Node, Relation};
use crate::table::pack::insert_checked;
use crate::table::{Call, DirectMeter, END, KeyPart, Table, TableAction, TableSpec, Target};
use crate::wide::{limbs, mask64};
use std::collections::HashMap;

/// Members of an action profile whose size the program leaves open.
const DEFAULT_PROFILE_SIZE: usize = 1_024;
/// Widest key in words.
const MAX_KEY_WORDS: usize = 1 << 10;

/// Both controls of a program.
pub(crate) struct Controls {
    pub nodes: Vec<Node>,
    pub ingress: u32,
    pub egress: u32,
    pub tables: Vec<Table>,
    pub table_infos: Vec<TableInfo>,
    pub action_infos: Vec<ActionInfo>,
    pub profiles: Vec<Profile>,
    pub profile_infos: Vec<ProfileInfo>,
}

struct Builder<'a, 'l> {
    c: &'a mut Compiler<'l>,
    root: &'a Root,
    actions: &'a HashMap<u32, Action>,
    direct_meters: &'a HashMap<String, DirectMeterInfo>,
    /// Action id to public index.
    public: HashMap<u32, usize>,
    profile_names: HashMap<String, usize>,
    /// The program's calculations; selectors add theirs.
    calculations: &'a mut Vec<Calculation>,
    out: Controls,
}

/// Compiles the pipelines `ingress` and `egress`.
pub(crate) fn controls(
    c: &mut Compiler<'_>,
    root: &Root,
    actions: &HashMap<u32, Action>,
    direct_meters: &HashMap<String, DirectMeterInfo>,
    calculations: &mut Vec<Calculation>,
) -> LoadResult<Controls> {
    // p4c writes one copy of an action per place that uses it, all under one name; towards the
    // control plane they are one action.
    let mut action_infos: Vec<ActionInfo> = Vec::new();
    let mut public = HashMap::new();
    let mut seen = HashMap::new();
    for a in &root.actions {
        let Some(compiled) = actions.get(&a.id) else {
            continue;
        };
        let key = (compiled.name.as_str(), compiled.params.as_slice());
        let index = *seen.entry(key).or_insert_with(|| {
            action_infos.push(ActionInfo {
                name: compiled.name.clone(),
                params: compiled.params.clone(),
            });
            action_infos.len() - 1
        });
        public.insert(a.id, index);
    }
    let mut b = Builder {
        c,
        root,
        actions,
        direct_meters,
        public,
        profile_names: HashMap::new(),
        calculations,
        out: Controls {
            nodes: Vec::new(),
            ingress: END,
            egress: END,
            tables: Vec::new(),
            table_infos: Vec::new(),
            action_infos,
            profiles: Vec::new(),
            profile_infos: Vec::new(),
        },
    };
    b.out.ingress = b.pipeline("ingress")?;
    b.out.egress = b.pipeline("egress")?;
    for p in &b.root.pipelines {
        if p.name != "ingress" && p.name != "egress" {
            refuse!("pipeline '{}' is not known in v1model", p.name);
        }
    }
    Ok(b.out)
}

impl Builder<'_, '_> {
    fn pipeline(&mut self, name: &str) -> LoadResult<u32> {
        let root = self.root;
        let p = super::by_name(&root.pipelines, name, |p| &p.name)?;
        self.pipeline_inner(p).at(|| format!("pipeline '{name}'"))
    }

    fn pipeline_inner(&mut self, p: &model::Pipeline) -> LoadResult<u32> {
        self.action_profiles(p)?;
        let first = self.out.nodes.len() as u32;
        let mut names: HashMap<&str, u32> = HashMap::new();
        let all = (p.tables.iter().map(|t| t.name.as_str()))
            .chain(p.conditionals.iter().map(|t| t.name.as_str()))
            .chain(p.action_calls.iter().map(|t| t.name.as_str()));
        for (i, name) in all.enumerate() {
            if names.insert(name, first + i as u32).is_some() {
                refuse!("node '{name}' is defined twice");
            }
        }
        let find = |name: &Option<String>| match name {
            None => Ok(END),
            Some(name) => names
                .get(name.as_str())
                .copied()
                .ok_or_else(|| LoadError::new(format!("unknown next node '{name}'"))),
        };
        for t in &p.tables {
            let node = self
                .table(t, &find, p.name == "egress")
                .at(|| format!("table '{}'", t.name))?;
            self.out.nodes.push(node);
        }
        for k in &p.conditionals {
            let node = self
                .conditional(k, &find)
                .at(|| format!("conditional '{}'", k.name))?;
            self.out.nodes.push(node);
        }
        for k in &p.action_calls {
            let place = || format!("action call '{}'", k.name);
            let Some(action) = self.actions.get(&k.action_id) else {
                return Err(unknown_action(k.action_id)).at(place);
            };
            if !action.params.is_empty() {
                return Err(LoadError::new(format!(
                    "action '{}' takes parameters",
                    action.name
                )))
                .at(place);
            }
            check_hold(action, p.name == "egress").at(place)?;
            let next = find(&k.next_node).at(place)?;
            self.out.nodes.push(Node::Action {
                code: action.code,
                next,
            });
        }
        let start = find(&p.init_table).at(|| "init_table")?;
        self.refuse_cycles(start, &names)?;
        Ok(start)
    }

    fn action_profiles(&mut self, p: &model::Pipeline) -> LoadResult<()> {
        for profile in &p.action_profiles {
            let place = || format!("action profile '{}'", profile.name);
            let calculation = match &profile.selector {
                None => None,
                Some(s) => {
                    let built = super::calculation(&s.algo, &s.input, self.c.layout).at(place)?;
                    self.calculations.push(built);
                    Some(self.calculations.len() - 1)
                }
            };
            if self.profile_names.contains_key(&profile.name) {
                return Err(LoadError::new("is defined twice")).at(place);
            }
            self.profile_names
                .insert(profile.name.clone(), self.out.profiles.len());
            self.out.profiles.push(Profile::new(calculation));
            self.out.profile_infos.push(ProfileInfo {
                name: profile.name.clone(),
                // p4c writes none where the program gives none.
                size: profile.max_size.unwrap_or(DEFAULT_PROFILE_SIZE),
                selector: calculation.is_some(),
                tables: Vec::new(),
            });
        }
        Ok(())
    }

    /// The profile of a table of type `indirect` or `indirect_ws`.
    fn profile_of(&mut self, t: &model::Table) -> LoadResult<Option<usize>> {
        match (t.kind.as_str(), &t.action_profile) {
            ("simple", _) => Ok(None),
            ("indirect" | "indirect_ws", Some(name)) => match self.profile_names.get(name) {
                Some(&profile) => {
                    let table = self.out.tables.len();
                    self.out.profile_infos[profile].tables.push(table);
                    Ok(Some(profile))
                }
                None => refuse!("unknown action profile '{name}'"),
            },
            ("indirect" | "indirect_ws", None) => refuse!("has no action profile"),
            (other, _) => refuse!("table type '{other}' is not known"),
        }
    }

    fn conditional(
        &mut self,
        k: &model::Conditional,
        find: &dyn Fn(&Option<String>) -> LoadResult<u32>,
    ) -> LoadResult<Node> {
        self.c.free_temps();
        let start = self.c.here();
        let node = self.c.node(&k.expression.kind, &k.expression.value)?;
        let slot = self.c.condition(node)?;
        let yes = find(&k.true_next).at(|| "true_next")?;
        let no = find(&k.false_next).at(|| "false_next")?;
        Ok(match comparisons(self.c, start, slot)?.as_deref() {
            Some(&[test]) => match (test.relation, test.a, test.b) {
                (Relation::Eq, a, b) => Node::IfEqual { a, b, yes, no },
                (Relation::Ne, a, b) => Node::IfEqual {
                    a,
                    b,
                    yes: no,
                    no: yes,
                },
                _ => Node::If { test, yes, no },
            },
            Some(&[first, second]) => Node::IfBoth {
                tests: [first, second],
                yes,
                no,
            },
            _ => Node::Branch {
                code: self.c.since(start),
                slot,
                yes,
                no,
            },
        })
    }

    fn table(
        &mut self,
        t: &model::Table,
        find: &dyn Fn(&Option<String>) -> LoadResult<u32>,
        egress: bool,
    ) -> LoadResult<Node> {
        let profile = self.profile_of(t)?;
        let (key, parts, key_words) = self.key(t)?;
        let choose = |name: &str| match t.next_tables.get(name) {
            Some(next) => find(next).map(Some),
            None => Ok(None),
        };
        let next_hit = choose("__HIT__")?;
        let next_miss = choose("__MISS__")?;
        let base_next = find(&t.base_default_next).at(|| "base_default_next")?;
        let mut actions = Vec::new();
        for id in &t.action_ids {
            let Some(action) = self.actions.get(id) else {
                return Err(unknown_action(*id));
            };
            check_hold(action, egress)?;
            let next = match choose(&action.name)? {
                Some(next) => next,
                // Unused where hit and miss decide; otherwise the plain next.
                None => base_next,
            };
            actions.push(TableAction {
                public: self.public.get(id).copied().unwrap_or(0),
                code: action.code,
                next,
                params: action.params.iter().map(|p| p.1).collect(),
                prefetches: Box::default(),
            });
        }
        let default = match &t.default_entry {
            None => None,
            Some(d) => Some(
                self.call(t, d.action_id, &d.action_data)
                    .at(|| "default_entry")?,
            ),
        };
        let meter = match &t.direct_meters {
            None => None,
            Some(name) => match self.direct_meters.get(name) {
                Some(m) => Some(*m),
                None => refuse!("unknown direct meter '{name}'"),
            },
        };
        let const_default = t
            .default_entry
            .as_ref()
            .is_some_and(|d| d.action_const || d.action_entry_const);
        let entries = t.entries.as_deref().unwrap_or_default();
        let info = TableInfo {
            name: t.name.clone(),
            key,
            actions: actions.iter().map(|a| a.public).collect(),
            size: t.max_size.max(entries.len()),
            const_entries: t.entries.is_some(),
            const_default,
            direct_counter: t.with_counters,
            direct_meter: meter.map(|m| m.unit),
            profile,
            idle_timeout: t.support_timeout,
        };
        // A table that can only ever run one action without arguments needs no look-up, if it
        // has nothing to count.
        let plain = parts.is_empty() && !t.with_counters && meter.is_none();
        let shortcut = match &default {
            Some(call) if plain && const_default && call.args().is_empty() => {
                actions.get(call.local()).map(|a| Node::Action {
                    code: a.code,
                    next: next_miss.unwrap_or(a.next),
                })
            }
            _ => None,
        };
        let mut table = Table::new(TableSpec {
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
            default,
            size: info.size,
        });
        // BMv2 JSON: the lowest number wins. P4Runtime: the greatest. Mirrored, so that the
        // program's last entry has priority 1.
        let most = entries.iter().filter_map(|e| e.priority).max().unwrap_or(0);
        for (i, e) in entries.iter().enumerate() {
            self.const_entry(&mut table, &info, t, e, most)
                .at(|| format!("entry {i}"))?;
        }
        let index = self.out.tables.len() as u32;
        self.out.tables.push(table);
        self.out.table_infos.push(info);
        Ok(shortcut.unwrap_or(Node::Table(index)))
    }

    fn key(&self, t: &model::Table) -> LoadResult<(Vec<KeyField>, Vec<KeyPart>, usize)> {
        let mut infos = Vec::new();
        let mut fields: Vec<(Field, MatchKind, Option<&str>)> = Vec::new();
        for (i, k) in t.key.iter().enumerate() {
            let place = || match &k.name {
                Some(name) => format!("key '{name}'"),
                None => format!("key {i}"),
            };
            let kind = match k.match_type.as_str() {
                "exact" | "valid" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" => MatchKind::Ternary,
                "range" => MatchKind::Range,
                "optional" => MatchKind::Optional,
                // Not part of the match: the selector's calculation has it as an input.
                "selector" => continue,
                other => {
                    return Err(LoadError::new(format!("unknown match type '{other}'"))).at(place);
                }
            };
            let (field, target) = if k.match_type == "valid" {
                let header = text(&k.target).at(place)?;
                (
                    self.c.layout.field(header, "$valid$").at(place)?,
                    header.to_owned(),
                )
            } else {
                let (h, f) = crate::layout::pair(&k.target).at(place)?;
                (self.c.layout.field(h, f).at(place)?, format!("{h}.{f}"))
            };
            infos.push(KeyField {
                name: k.name.clone().unwrap_or(target),
                kind,
                bits: field.bits,
            });
            fields.push((field, kind, k.mask.as_deref()));
        }
        if fields.iter().filter(|f| f.1 == MatchKind::Lpm).count() > 1 {
            refuse!("has more than one lpm key");
        }
        let widths: Vec<u32> = fields.iter().map(|f| f.0.bits).collect();
        let (places, words) = KeyPart::pack(&widths);
        if words > MAX_KEY_WORDS {
            refuse!("key is wider than {MAX_KEY_WORDS} words");
        }
        let mut parts = Vec::new();
        for ((field, kind, mask), (word, shift)) in fields.into_iter().zip(places) {
            let mask = match mask {
                None => None,
                Some(hex) => {
                    let mut mask = hex_limbs(hex)?;
                    mask.resize(field.limbs() as usize, 0);
                    Some(mask.into_boxed_slice())
                }
            };
            parts.push(KeyPart {
                slot: field.slot,
                bits: field.bits,
                kind,
                word,
                shift,
                mask,
            });
        }
        Ok((infos, parts, words))
    }

    /// An action of this table with constant arguments.
    fn call(&self, t: &model::Table, id: u32, data: &[String]) -> LoadResult<Call> {
        let Some(action) = self.actions.get(&id) else {
            return Err(unknown_action(id));
        };
        let Some(local) = t.action_ids.iter().position(|&a| a == id) else {
            refuse!(
                "action '{}' (id {id}) is not one of the table's",
                action.name
            );
        };
        if action.params.len() != data.len() {
            refuse!(
                "action '{}' takes {} arguments, has {}",
                action.name,
                action.params.len(),
                data.len()
            );
        }
        let mut args = Vec::new();
        for ((name, bits), hex) in action.params.iter().zip(data) {
            let (negative, digits) = match hex.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, hex.as_str()),
            };
            let mut value = hex_limbs(digits).at(|| format!("argument '{name}'"))?;
            value.resize(limbs(*bits) as usize, 0);
            if negative {
                crate::wide::negate(&mut value);
            }
            for (i, limb) in value.iter_mut().enumerate() {
                *limb &= mask64(bits - 64 * i as u32);
            }
            args.extend(value);
        }
        Ok(Call::new(local, &args))
    }

    fn const_entry(
        &self,
        table: &mut Table,
        info: &TableInfo,
        t: &model::Table,
        e: &model::ConstEntry,
        most: i32,
    ) -> LoadResult<()> {
        let call = self.call(t, e.action_entry.action_id, &e.action_entry.action_data)?;
        if e.match_key.len() != info.key.len() {
            refuse!(
                "has {} match fields, the table has {}",
                e.match_key.len(),
                info.key.len()
            );
        }
        let mut fields = Vec::new();
        for (field, m) in info.key.iter().zip(&e.match_key) {
            fields.push(match_field(field, m).at(|| format!("match field '{}'", field.name))?);
        }
        let priority = if table.has_priorities() {
            most.saturating_sub(e.priority.unwrap_or(most))
                .saturating_add(1)
        } else {
            0
        };
        let key = EntryKey { fields, priority };
        let target = Target::Call(call);
        insert_checked(table, info, &key, target, 0)
            .map_err(|error| LoadError::new(error.to_string()))
    }

    /// A graph with a cycle would let a packet run forever.
    fn refuse_cycles(&self, start: u32, names: &HashMap<&str, u32>) -> LoadResult<()> {
        // 0: new, 1: on the current path, 2: done.
        let mut mark = vec![0u8; self.out.nodes.len()];
        let mut path = vec![(start, 0usize)];
        while let Some(&mut (node, ref mut edge)) = path.last_mut() {
            let Some(current) = self.out.nodes.get(node as usize) else {
                path.pop();
                continue;
            };
            mark[node as usize] = 1;
            let edges = self.edges(current);
            let Some(&next) = edges.get(*edge) else {
                mark[node as usize] = 2;
                path.pop();
                continue;
            };
            *edge += 1;
            match mark.get(next as usize) {
                Some(0) => path.push((next, 0)),
                Some(1) => {
                    let name = names
                        .iter()
                        .find(|&(_, &index)| index == next)
                        .map_or("?", |(name, _)| name);
                    refuse!("control flow comes back to '{name}': loops are not possible in P4");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn edges(&self, node: &Node) -> Vec<u32> {
        match *node {
            Node::Action { next, .. } => vec![next],
            Node::Branch { yes, no, .. }
            | Node::IfEqual { yes, no, .. }
            | Node::If { yes, no, .. }
            | Node::IfBoth { yes, no, .. } => vec![yes, no],
            Node::Table(index) => {
                let t = &self.out.tables[index as usize];
                let mut edges: Vec<u32> = t.actions.iter().map(|a| a.next).collect();
                edges.extend(t.next_hit);
                edges.extend(t.next_miss);
                edges.push(t.base_next);
                edges
            }
        }
    }
}

fn unknown_action(id: u32) -> LoadError {
    LoadError::new(format!("unknown action id {id}"))
}

fn check_hold(action: &Action, egress: bool) -> LoadResult<()> {
    if egress && action.holds {
        refuse!(
            "action '{}': TrafficManager.hold can be called in ingress only",
            action.name
        );
    }
    Ok(())
}

/// A hexadecimal string as bits of a field.
fn bits_of(hex: Option<&str>, bits: u32) -> LoadResult<Vec<u64>> {
    let Some(hex) = hex else {
        refuse!("value is missing");
    };
    let mut value = hex_limbs(hex)?;
    let n = limbs(bits) as usize;
    if value.iter().skip(n).any(|&limb| limb != 0) {
        refuse!("'{hex}' is wider than {bits} bits");
    }
    value.resize(n, 0);
    if let Some(top) = value.last()
        && top & !mask64(bits - 64 * (n as u32 - 1)) != 0
    {
        refuse!("'{hex}' is wider than {bits} bits");
    }
    Ok(value)
}

fn match_field(field: &KeyField, m: &model::ConstMatch) -> LoadResult<MatchField> {
    let bits = field.bits;
    let key = m.key.as_ref().and_then(serde_json::Value::as_str);
    let out = |limbs: &[u64]| -> Bits { crate::bits::to_bits(limbs, bits) };
    Ok(match (field.kind, m.match_type.as_str()) {
        (MatchKind::Exact, "exact") => MatchField::Exact(out(&bits_of(key, bits)?)),
        (MatchKind::Exact, "valid") => match m.key.as_ref().and_then(serde_json::Value::as_bool) {
            Some(b) => MatchField::Exact(out(&[u64::from(b)])),
            None => refuse!("key is not a boolean"),
        },
        (MatchKind::Lpm, "lpm") => {
            let prefix_bits = m.prefix_length.unwrap_or(bits);
            if prefix_bits > bits {
                refuse!("prefix length {prefix_bits} of a {bits}-bit field");
            }
            let mut value = bits_of(key, bits)?;
            for (limb, mask) in value
                .iter_mut()
                .zip(crate::bits::prefix_mask(bits, prefix_bits))
            {
                *limb &= mask;
            }
            MatchField::Lpm {
                value: out(&value),
                prefix_bits,
            }
        }
        (MatchKind::Ternary, "ternary") | (MatchKind::Optional, "ternary" | "optional") => {
            let mask = bits_of(m.mask.as_deref(), bits)?;
            let mut value = bits_of(key, bits)?;
            for (limb, mask) in value.iter_mut().zip(&mask) {
                *limb &= mask;
            }
            if field.kind == MatchKind::Optional {
                let any = mask.iter().all(|&m| m == 0);
                MatchField::Optional((!any).then(|| out(&value)))
            } else {
                MatchField::Ternary {
                    value: out(&value),
                    mask: out(&mask),
                }
            }
        }
        (MatchKind::Range, "range") => MatchField::Range {
            low: out(&bits_of(m.start.as_deref(), bits)?),
            high: out(&bits_of(m.end.as_deref(), bits)?),
        },
        (_, other) => refuse!("match type '{other}' does not fit the table's key"),
    })
}
