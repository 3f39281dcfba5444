//! Binds P4Info to the program. Every object that P4Info names must be in the program with the same
//! widths, so that a stale P4Info is refused, with the object's name, before anything is written.

use std::collections::HashMap;
use std::sync::Arc;

use v1model::Pipeline;
use v1model::entries::profile::{ProfileRules, SizeSemantics};
use v1model::entries::{ArrayInfo, KeyField, MatchKind, MeterUnit, TableInfo};

use super::arrays::{Array, Cell, MeterKind};
use super::digest::Digest;
use super::keys::{Key, Keys, kind_name};
use super::pipeline::{BoundPipeline, ValueSet};
use super::ports::Ports;
use super::profile::Profile;
use super::shape::{Shape, Widths};
use super::table::{BoundAction, BoundTable, Param};
use super::translation::{Mappings, Translation, Types};
use crate::error::{UpdateError, UpdateResult};
use crate::packet_io::ControllerHeader;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

impl BoundPipeline {
    /// Checks `config`'s P4Info against the program and builds the translation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the object in which P4Info and program differ.
    pub(crate) fn new(
        config: p4::ForwardingPipelineConfig,
        program: &Pipeline,
        mappings: &Mappings,
    ) -> UpdateResult<Self> {
        let empty = p4info::P4Info::default();
        let info = config.p4info.as_ref().unwrap_or(&empty);
        let no_types = p4info::P4TypeInfo::default();
        let types = Types::new(info.type_info.as_ref().unwrap_or(&no_types), mappings)?;
        let mut binder = Binder {
            info,
            types: &types,
            program,
            names: HashMap::new(),
        };
        let mut tables = binder.tables()?;
        let counters = binder.counters()?;
        let meters = binder.meters()?;
        let registers = binder.registers()?;
        let profiles = binder.profiles(&mut tables)?;
        let value_sets = binder.value_sets()?;
        let digests = binder.digests()?;
        let [packet_in, packet_out] = controller_headers(info, &types)?;
        let ports = Ports::new(&types);
        let table_by_id = tables
            .iter()
            .enumerate()
            .map(|(position, table)| (table.id, position))
            .collect();
        Ok(Self {
            config,
            tables,
            counters,
            meters,
            registers,
            profiles,
            value_sets,
            digests,
            packet_in,
            packet_out,
            ports,
            table_by_id,
        })
    }
}

/// Binds the objects of P4Info one kind after the other.
struct Binder<'a> {
    info: &'a p4info::P4Info,
    types: &'a Types<'a>,
    program: &'a Pipeline,
    /// Names by P4Info id so far. Each id names one object.
    names: HashMap<u32, String>,
}

impl<'a> Binder<'a> {
    /// The id and name of an object.
    fn take(
        &mut self,
        preamble: Option<&p4info::Preamble>,
        what: &str,
    ) -> UpdateResult<(u32, String)> {
        let Some(preamble) = preamble else {
            return Err(UpdateError::invalid(format!(
                "P4Info: a {what} has no preamble (id and name)"
            )));
        };
        if preamble.id == 0 || preamble.name.is_empty() {
            return Err(UpdateError::invalid(format!(
                "P4Info: {what} {:?}: id {} given, an id other than 0 and a name expected",
                preamble.name, preamble.id
            )));
        }
        if let Some(other) = self.names.insert(preamble.id, preamble.name.clone()) {
            return Err(UpdateError::invalid(format!(
                "P4Info: {what} {}: id {} belongs to {other} already",
                preamble.name, preamble.id
            )));
        }
        Ok((preamble.id, preamble.name.clone()))
    }

    fn tables(&mut self) -> UpdateResult<Vec<BoundTable>> {
        let actions = self.actions()?;
        let tables = self.info.tables.iter();
        tables.map(|table| self.table(table, &actions)).collect()
    }

    fn actions(&mut self) -> UpdateResult<HashMap<u32, &'a p4info::Action>> {
        let (info, program) = (self.info, self.program);
        let mut actions = HashMap::with_capacity(info.actions.len());
        for action in &info.actions {
            let (id, name) = self.take(action.preamble.as_ref(), "action")?;
            if !program.actions().iter().any(|known| known.name == name) {
                return Err(missing("action", &name));
            }
            actions.insert(id, action);
        }
        Ok(actions)
    }

    fn table(
        &mut self,
        table: &p4info::Table,
        actions: &HashMap<u32, &p4info::Action>,
    ) -> UpdateResult<BoundTable> {
        let program = self.program;
        let (id, name) = self.take(table.preamble.as_ref(), "table")?;
        let (index, known) = named(program.tables(), |known| &known.name, "table", &name)?;
        let keys = bind_keys(&name, &table.match_fields, &known.key, self.types)?;
        let mut bound = Vec::with_capacity(table.action_refs.len());
        for reference in &table.action_refs {
            let Some(action) = actions.get(&reference.id) else {
                return Err(UpdateError::invalid(format!(
                    "P4Info: table {name}: action id {} is not among P4Info's actions",
                    reference.id
                )));
            };
            let (scope, types) = (reference.scope(), self.types);
            bound.push(bind_action(&name, action, scope, known, program, types)?);
        }
        let (direct_counter, direct_meter) = self.direct_resources(table, known)?;
        let supports = p4info::table::IdleTimeoutBehavior::NotifyControl;
        let idle_timeout = table.idle_timeout_behavior() == supports;
        if idle_timeout && !known.idle_timeout {
            return Err(missing("idle timeout", &format!("of table {name}")));
        }
        Ok(BoundTable {
            id,
            keys: Keys {
                object: name.clone(),
                fields: keys,
            },
            name,
            index,
            actions: bound,
            // BMv2 JSON does not distinguish `const entries` from entries that may be changed.
            const_entries: table.is_const_table,
            size: known.size.max(usize::try_from(table.size).unwrap_or(0)),
            const_default: table.const_default_action_id != 0 || known.const_default,
            direct_counter,
            direct_meter,
            profile: None,
            idle_timeout,
        })
    }

    /// Whether a table has a direct counter, and the kind of its direct meter.
    fn direct_resources(
        &mut self,
        table: &p4info::Table,
        known: &TableInfo,
    ) -> UpdateResult<(bool, Option<MeterKind>)> {
        let info = self.info;
        let mut direct_counter = false;
        let mut direct_meter = None;
        for id in &table.direct_resource_ids {
            let counter = info
                .direct_counters
                .iter()
                .find(|c| c.preamble.as_ref().is_some_and(|p| p.id == *id));
            let meter = info
                .direct_meters
                .iter()
                .find(|m| m.preamble.as_ref().is_some_and(|p| p.id == *id));
            if let Some(counter) = counter {
                let (_, resource) = self.take(counter.preamble.as_ref(), "direct counter")?;
                if !known.direct_counter {
                    return Err(missing(
                        "direct counter",
                        &format!("{resource} of table {}", known.name),
                    ));
                }
                direct_counter = true;
            } else if let Some(meter) = meter {
                let (_, resource) = self.take(meter.preamble.as_ref(), "direct meter")?;
                let Some(unit) = known.direct_meter.as_ref().map(|meter| meter.unit) else {
                    return Err(missing(
                        "direct meter",
                        &format!("{resource} of table {}", known.name),
                    ));
                };
                check_meter_unit(&resource, meter.spec.as_ref(), unit)?;
                direct_meter = Some(meter_kind(meter.spec.as_ref()));
            } else {
                return Err(UpdateError::invalid(format!(
                    "P4Info: table {}: direct resource id {id} is neither a direct counter \
                     nor a direct meter of P4Info",
                    known.name
                )));
            }
        }
        Ok((direct_counter, direct_meter))
    }

    fn counters(&mut self) -> UpdateResult<Vec<Array>> {
        let (info, program) = (self.info, self.program);
        let bind = |counter: &p4info::Counter| {
            let named = self.take(counter.preamble.as_ref(), "counter")?;
            let index = self
                .types
                .index(&named.1, counter.index_type_name.as_ref())?;
            let known = program.counters().iter();
            bind_array(
                named,
                "counter",
                counter.size,
                (Cell::Counter, index),
                known,
            )
        };
        info.counters.iter().map(bind).collect()
    }

    fn meters(&mut self) -> UpdateResult<Vec<Array>> {
        let (info, program) = (self.info, self.program);
        let bind = |meter: &p4info::Meter| {
            let named = self.take(meter.preamble.as_ref(), "meter")?;
            let index = self.types.index(&named.1, meter.index_type_name.as_ref())?;
            let cell = Cell::Meter(meter_kind(meter.spec.as_ref()));
            let known = program.meters().iter().map(|(array, _)| array);
            let array = bind_array(named, "meter", meter.size, (cell, index), known)?;
            if let Some((_, unit)) = program.meters().get(array.index) {
                check_meter_unit(&array.name, meter.spec.as_ref(), *unit)?;
            }
            Ok(array)
        };
        info.meters.iter().map(bind).collect()
    }

    fn registers(&mut self) -> UpdateResult<Vec<Array>> {
        let (info, program) = (self.info, self.program);
        let bind = |register: &p4info::Register| {
            let named = self.take(register.preamble.as_ref(), "register")?;
            let index = self
                .types
                .index(&named.1, register.index_type_name.as_ref())?;
            let shape = Shape::new(register.type_spec.as_ref(), self.types, 1);
            let cell = Cell::Register(shape.clone());
            let known = program.registers().iter();
            let array = bind_array(
                named,
                "register",
                register.size.into(),
                (cell, index),
                known,
            )?;
            // A type that is not implemented has no width to compare.
            if shape.is_some_and(|shape| !shape.is_made_of(Widths::one(&array.bits))) {
                return Err(UpdateError::invalid(format!(
                    "P4Info: register {}: its type in P4Info is not of the {} bits that it has in the \
                     program",
                    array.name, array.bits
                )));
            }
            Ok(array)
        };
        info.registers.iter().map(bind).collect()
    }

    /// Binds action profiles, and tables to them.
    fn profiles(&mut self, tables: &mut [BoundTable]) -> UpdateResult<Vec<Profile>> {
        let (info, program) = (self.info, self.program);
        use p4info::action_profile::SelectorSizeSemantics;
        let mut profiles = Vec::with_capacity(info.action_profiles.len());
        for given in &info.action_profiles {
            let (id, name) = self.take(given.preamble.as_ref(), "action profile")?;
            let (index, known) = named(program.profiles(), |p| &p.name, "action profile", &name)?;
            if known.selector != given.with_selector {
                return Err(UpdateError::invalid(format!(
                    "P4Info: action profile {name}: with_selector: {} in P4Info, {} in the program",
                    given.with_selector, known.selector
                )));
            }
            let most = u32::try_from(given.max_group_size)
                .ok()
                .filter(|most| i64::from(*most) <= given.size && (known.selector || *most == 0));
            let Some(max_group_size) = most else {
                return Err(UpdateError::invalid(format!(
                    "P4Info: action profile {name}: max_group_size: {} given, 0 to {} expected",
                    given.max_group_size,
                    if known.selector { given.size } else { 0 }
                )));
            };
            let (semantics, max_member_weight) = match &given.selector_size_semantics {
                None | Some(SelectorSizeSemantics::SumOfWeights(_)) => {
                    (SizeSemantics::SumOfWeights, 0)
                }
                Some(SelectorSizeSemantics::SumOfMembers(members)) => {
                    (SizeSemantics::SumOfMembers, members.max_member_weight)
                }
            };
            profiles.push(Profile {
                id,
                name,
                index,
                selector: known.selector,
                rules: ProfileRules {
                    max_group_size,
                    semantics,
                },
                max_member_weight: u32::try_from(max_member_weight).unwrap_or(0),
                weights_disallowed: given.weights_disallowed,
                ports: Ports::new(self.types),
                table: None,
            });
        }
        self.assign_profiles(&mut profiles, tables)?;
        Ok(profiles)
    }

    /// Binds tables to the profiles that they use.
    fn assign_profiles(
        &self,
        profiles: &mut [Profile],
        tables: &mut [BoundTable],
    ) -> UpdateResult<()> {
        for (place, (table, given)) in tables.iter_mut().zip(&self.info.tables).enumerate() {
            let known = self
                .program
                .tables()
                .get(table.index)
                .and_then(|t| t.profile);
            if given.implementation_id == 0 && known.is_none() {
                continue;
            }
            let mut all = profiles.iter_mut().enumerate();
            let found = all.find(|(_, profile)| profile.id == given.implementation_id);
            let Some((position, profile)) = found.filter(|(_, p)| Some(p.index) == known) else {
                return Err(UpdateError::invalid(format!(
                    "P4Info: table {}: implementation_id {} is not the action profile that the table \
                     has in the program",
                    table.name, given.implementation_id
                )));
            };
            table.profile = Some(position);
            profile.table.get_or_insert(place);
        }
        Ok(())
    }

    fn value_sets(&mut self) -> UpdateResult<Vec<ValueSet>> {
        let (info, program) = (self.info, self.program);
        let mut sets = Vec::with_capacity(info.value_sets.len());
        for given in &info.value_sets {
            let (id, name) = self.take(given.preamble.as_ref(), "value set")?;
            let (index, known) = named(program.value_sets(), |set| &set.name, "value set", &name)?;
            if given.r#match.len() != known.widths.len() {
                return Err(UpdateError::invalid(format!(
                    "P4Info: value set {name}: {} match fields in P4Info, {} fields in the program",
                    given.r#match.len(),
                    known.widths.len()
                )));
            }
            let mut fields: Vec<Key> = Vec::with_capacity(known.widths.len());
            for (field, bits) in given.r#match.iter().zip(&known.widths) {
                // A value set of a plain bit<W> has one field without a name.
                let field_name = if field.name.is_empty() {
                    "value"
                } else {
                    &field.name
                };
                let what = format!("value set {name}: field {field_name}");
                let named = field.type_name.as_ref();
                let value = self
                    .types
                    .value(&what, named, field.bitwidth, Some(*bits))?;
                let Some(kind) = info_match_kind(field) else {
                    return Err(UpdateError::unimplemented(format!(
                        "P4Info: {what}: match types other than exact, lpm, ternary, range and \
                         optional are not implemented"
                    )));
                };
                check_field_id(&what, field.id, &fields)?;
                fields.push(Key {
                    id: field.id,
                    name: field_name.to_owned(),
                    kind,
                    value,
                    masked_optional: false,
                    mask: None,
                });
            }
            sets.push(ValueSet {
                id,
                index,
                keys: Keys {
                    object: name.clone(),
                    fields,
                },
                name,
            });
        }
        Ok(sets)
    }

    fn digests(&mut self) -> UpdateResult<Vec<Digest>> {
        let (info, program) = (self.info, self.program);
        let mut digests = Vec::with_capacity(info.digests.len());
        for given in &info.digests {
            let (id, name) = self.take(given.preamble.as_ref(), "digest")?;
            let (index, known) = named(program.digests(), |known| &known.name, "digest", &name)?;
            digests.push(Digest::new(
                (id, name),
                index,
                given.type_spec.as_ref(),
                self.types,
                known,
            )?);
        }
        Ok(digests)
    }
}

/// The object of this name in the program, with its index there.
fn named<'a, T>(
    all: &'a [T],
    name_of: impl Fn(&T) -> &String,
    what: &str,
    name: &str,
) -> UpdateResult<(usize, &'a T)> {
    let mut all = all.iter().enumerate();
    all.find(|(_, known)| name_of(known) == name)
        .ok_or_else(|| missing(what, name))
}

fn missing(what: &str, name: &str) -> UpdateError {
    UpdateError::invalid(format!(
        "P4Info: {what} {name} is not in the program (p4_device_config); P4Info and program must \
         come from one compilation"
    ))
}

/// Binds key fields, in the program's order. They are found by name or, where names differ (P4Info
/// and BMv2 JSON write some expressions differently), by position.
fn bind_keys(
    table: &str,
    fields: &[p4info::MatchField],
    known: &[KeyField],
    types: &Types<'_>,
) -> UpdateResult<Vec<Key>> {
    if fields.len() != known.len() {
        return Err(UpdateError::invalid(format!(
            "P4Info: table {table}: {} match fields in P4Info, {} key fields in the program",
            fields.len(),
            known.len()
        )));
    }
    let by_name = known
        .iter()
        .all(|key| fields.iter().filter(|f| f.name == key.name).count() == 1);
    let mut keys: Vec<Key> = Vec::with_capacity(known.len());
    for (position, key) in known.iter().enumerate() {
        let field = if by_name {
            fields.iter().find(|field| field.name == key.name)
        } else {
            fields.get(position)
        };
        let Some(field) = field else {
            return Err(missing("match field", &format!("{table}.{}", key.name)));
        };
        let what = format!("table {table}: field {}", field.name);
        let named = field.type_name.as_ref();
        let value = types.value(&what, named, field.bitwidth, Some(key.bits))?;
        let kind = info_match_kind(field);
        let masked_optional = kind == Some(MatchKind::Optional) && key.kind == MatchKind::Ternary;
        if kind != Some(key.kind) && !masked_optional {
            return Err(UpdateError::invalid(format!(
                "P4Info: {what}: match type {} in P4Info, {} in the program",
                kind.map_or("unknown", kind_name),
                kind_name(key.kind)
            )));
        }
        check_field_id(&what, field.id, &keys)?;
        keys.push(Key {
            id: field.id,
            name: field.name.clone(),
            kind: if masked_optional {
                MatchKind::Optional
            } else {
                key.kind
            },
            value,
            masked_optional,
            mask: key.mask.clone(),
        });
    }
    Ok(keys)
}

fn bind_action(
    table: &str,
    action: &p4info::Action,
    scope: p4info::action_ref::Scope,
    known_table: &TableInfo,
    program: &Pipeline,
    types: &Types<'_>,
) -> UpdateResult<BoundAction> {
    let (id, name) = action
        .preamble
        .as_ref()
        .map(|preamble| (preamble.id, preamble.name.clone()))
        .unwrap_or_default();
    let found = known_table
        .actions
        .iter()
        .filter_map(|index| Some((*index, program.actions().get(*index)?)))
        .find(|(_, known)| known.name == name);
    let Some((index, known)) = found else {
        return Err(missing("action", &format!("{name} of table {table}")));
    };
    if action.params.len() != known.params.len() {
        return Err(UpdateError::invalid(format!(
            "P4Info: action {name}: {} parameters in P4Info, {} in the program",
            action.params.len(),
            known.params.len()
        )));
    }
    let mut params = Vec::with_capacity(known.params.len());
    for (param_name, bits) in &known.params {
        let Some(param) = action.params.iter().find(|p| p.name == *param_name) else {
            return Err(missing(
                "parameter",
                &format!("{param_name} of action {name}"),
            ));
        };
        let what = format!("action {name}: parameter {param_name}");
        let named = param.type_name.as_ref();
        params.push(Param {
            id: param.id,
            name: param.name.clone(),
            value: types.value(&what, named, param.bitwidth, Some(*bits))?,
        });
    }
    Ok(BoundAction {
        id,
        name,
        index,
        scope,
        params,
    })
}

fn bind_array<'a>(
    (id, name): (u32, String),
    what: &str,
    size: i64,
    (cell, index_type): (Cell, Option<Arc<Translation>>),
    mut known: impl Iterator<Item = &'a ArrayInfo>,
) -> UpdateResult<Array> {
    let mut index = 0;
    let found = known.find(|array| {
        let same = array.name == name;
        index += usize::from(!same);
        same
    });
    let Some(array) = found else {
        return Err(missing(what, &name));
    };
    if usize::try_from(size).ok() != Some(array.size) {
        return Err(UpdateError::invalid(format!(
            "P4Info: {what} {name}: {size} cells in P4Info, {} in the program",
            array.size
        )));
    }
    Ok(Array {
        id,
        name,
        index,
        size: array.size,
        bits: array.bits,
        cell,
        index_type,
    })
}

/// The packet-in and the packet-out header. One that P4Info does not have is empty.
fn controller_headers(
    info: &p4info::P4Info,
    types: &Types<'_>,
) -> UpdateResult<[ControllerHeader; 2]> {
    let mut headers = [ControllerHeader::default(), ControllerHeader::default()];
    let [packet_in, packet_out] = &mut headers;
    for metadata in &info.controller_packet_metadata {
        let name = metadata.preamble.as_ref().map_or("", |p| p.name.as_str());
        let header = match name {
            "packet_in" => &mut *packet_in,
            "packet_out" => &mut *packet_out,
            _ => {
                return Err(UpdateError::invalid(format!(
                    "P4Info: controller_packet_metadata {name:?} given, packet_in or packet_out \
                     expected"
                )));
            }
        };
        *header = ControllerHeader::from_p4info(metadata, types)?;
    }
    Ok(headers)
}

fn check_field_id(what: &str, id: u32, others: &[Key]) -> UpdateResult<()> {
    if id == 0 || others.iter().any(|other| other.id == id) {
        return Err(UpdateError::invalid(format!(
            "P4Info: {what}: id {id} given, an id of its own other than 0 expected"
        )));
    }
    Ok(())
}

fn info_match_kind(field: &p4info::MatchField) -> Option<MatchKind> {
    match &field.r#match {
        Some(p4info::match_field::Match::MatchType(kind)) => match_kind(*kind),
        _ => None,
    }
}

fn match_kind(kind: i32) -> Option<MatchKind> {
    use p4info::match_field::MatchType;
    match MatchType::try_from(kind).ok()? {
        MatchType::Unspecified => None,
        MatchType::Exact => Some(MatchKind::Exact),
        MatchType::Lpm => Some(MatchKind::Lpm),
        MatchType::Ternary => Some(MatchKind::Ternary),
        MatchType::Range => Some(MatchKind::Range),
        MatchType::Optional => Some(MatchKind::Optional),
    }
}

fn meter_kind(spec: Option<&p4info::MeterSpec>) -> MeterKind {
    MeterKind(spec.map_or(
        p4info::meter_spec::Type::TwoRateThreeColor,
        p4info::MeterSpec::r#type,
    ))
}

fn check_meter_unit(
    name: &str,
    spec: Option<&p4info::MeterSpec>,
    program: MeterUnit,
) -> UpdateResult<()> {
    use p4info::meter_spec::Unit;
    let info = spec.map_or(Unit::Unspecified, p4info::MeterSpec::unit);
    match (info, program) {
        (Unit::Unspecified, _)
        | (Unit::Bytes, MeterUnit::Bytes)
        | (Unit::Packets, MeterUnit::Packets) => Ok(()),
        _ => Err(UpdateError::invalid(format!(
            "P4Info: meter {name}: unit {} in P4Info, {program:?} in the program",
            info.as_str_name()
        ))),
    }
}
