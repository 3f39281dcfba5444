//! P4Info against the program: whatever P4Info names must be in the program with the same
//! widths, so that a stale P4Info is refused by name before anything is written wrongly.

use std::collections::HashMap;

use v1model::entries::profile::{ProfileRules, SizeSemantics};
use v1model::entries::{ArrayInfo, KeyField, MatchKind, MeterUnit, TableInfo};

use super::digest::Digest;
use super::keys::{Key, Keys, kind_name};
use super::profile::Profile;
use super::shape::{Shape, Widths};
use super::{Array, Cell, MeterKind, Param, Pipeline, Result, Table, TableAction, ValueSet};
use v1model::Pipeline as Program;

use crate::error::UpdateError;
use crate::packet_io::ControllerHeader;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

impl Pipeline {
    /// Checks `config`'s P4Info against the program and makes the translation.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names what P4Info has and the program has not, or has otherwise.
    pub(crate) fn new(config: p4::ForwardingPipelineConfig, program: &Program) -> Result<Self> {
        let empty = p4info::P4Info::default();
        let info = config.p4info.as_ref().unwrap_or(&empty);
        let mut ids = Ids::default();
        let actions = actions_by_id(info, program, &mut ids)?;
        let mut tables = Vec::with_capacity(info.tables.len());
        for table in &info.tables {
            tables.push(bind_table(table, info, &actions, program, &mut ids)?);
        }
        let counters = info
            .counters
            .iter()
            .map(|counter| {
                let (id, name) = ids.take(counter.preamble.as_ref(), "counter")?;
                bind_array(
                    (id, name),
                    "counter",
                    counter.size,
                    Cell::Counter,
                    program.counters().iter(),
                )
            })
            .collect::<Result<Vec<_>>>()?;
        let meters = info
            .meters
            .iter()
            .map(|meter| {
                let (id, name) = ids.take(meter.preamble.as_ref(), "meter")?;
                let array = bind_array(
                    (id, name),
                    "meter",
                    meter.size,
                    Cell::Meter(meter_kind(meter.spec.as_ref())),
                    program.meters().iter().map(|(array, _)| array),
                )?;
                if let Some((_, unit)) = program.meters().get(array.index) {
                    check_meter_unit(&array.name, meter.spec.as_ref(), *unit)?;
                }
                Ok(array)
            })
            .collect::<Result<Vec<_>>>()?;
        let registers = info
            .registers
            .iter()
            .map(|register| {
                let (id, name) = ids.take(register.preamble.as_ref(), "register")?;
                let shape = Shape::new(register.type_spec.as_ref(), info.type_info.as_ref(), 1);
                let array = bind_array(
                    (id, name),
                    "register",
                    i64::from(register.size),
                    Cell::Register(shape.clone()),
                    program.registers().iter(),
                )?;
                // A type that is not implemented has no width to compare.
                if shape.is_some_and(|shape| !shape.is_made_of(Widths::one(&array.bits))) {
                    return Err(UpdateError::invalid(format!(
                        "P4Info: register {}: its type in P4Info is not of the {} bits that it has \
                         in the program",
                        array.name, array.bits
                    )));
                }
                Ok(array)
            })
            .collect::<Result<Vec<_>>>()?;
        let profiles = bind_profiles(info, &mut tables, program, &mut ids)?;
        let value_sets = bind_value_sets(info, program, &mut ids)?;
        let digests = bind_digests(info, program, &mut ids)?;
        let mut packet_in = ControllerHeader::default();
        let mut packet_out = ControllerHeader::default();
        for metadata in &info.controller_packet_metadata {
            match metadata.preamble.as_ref().map(|p| p.name.as_str()) {
                Some("packet_in") => packet_in = ControllerHeader::from_p4info(metadata)?,
                Some("packet_out") => packet_out = ControllerHeader::from_p4info(metadata)?,
                other => {
                    return Err(UpdateError::invalid(format!(
                        "P4Info: controller_packet_metadata {:?} given, packet_in or packet_out \
                         expected",
                        other.unwrap_or("")
                    )));
                }
            }
        }
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
            table_by_id,
        })
    }
}

/// Ids seen so far: one P4Info id names one object.
#[derive(Default)]
struct Ids {
    seen: HashMap<u32, String>,
}

impl Ids {
    fn take(&mut self, preamble: Option<&p4info::Preamble>, what: &str) -> Result<(u32, String)> {
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
        if let Some(other) = self.seen.insert(preamble.id, preamble.name.clone()) {
            return Err(UpdateError::invalid(format!(
                "P4Info: {what} {}: id {} belongs to {other} already",
                preamble.name, preamble.id
            )));
        }
        Ok((preamble.id, preamble.name.clone()))
    }
}

/// The object of this name in the program, with its index there.
fn named<'a, T>(
    all: &'a [T],
    name_of: impl Fn(&T) -> &String,
    what: &str,
    name: &str,
) -> Result<(usize, &'a T)> {
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

fn widths_differ(what: &str, info_bits: i64, program_bits: u32) -> UpdateError {
    UpdateError::invalid(format!(
        "P4Info: {what}: {info_bits} bits in P4Info, {program_bits} bits in the program"
    ))
}

fn actions_by_id<'a>(
    info: &'a p4info::P4Info,
    program: &Program,
    ids: &mut Ids,
) -> Result<HashMap<u32, &'a p4info::Action>> {
    let mut actions = HashMap::with_capacity(info.actions.len());
    for action in &info.actions {
        let (id, name) = ids.take(action.preamble.as_ref(), "action")?;
        if !program.actions().iter().any(|known| known.name == name) {
            return Err(missing("action", &name));
        }
        actions.insert(id, action);
    }
    Ok(actions)
}

fn bind_table(
    table: &p4info::Table,
    info: &p4info::P4Info,
    actions: &HashMap<u32, &p4info::Action>,
    program: &Program,
    ids: &mut Ids,
) -> Result<Table> {
    let (id, name) = ids.take(table.preamble.as_ref(), "table")?;
    let (index, known) = named(program.tables(), |known| &known.name, "table", &name)?;
    let keys = bind_keys(&name, &table.match_fields, &known.key)?;
    let mut bound = Vec::with_capacity(table.action_refs.len());
    for reference in &table.action_refs {
        let Some(action) = actions.get(&reference.id) else {
            return Err(UpdateError::invalid(format!(
                "P4Info: table {name}: action id {} is not among P4Info's actions",
                reference.id
            )));
        };
        bound.push(bind_action(
            &name,
            action,
            reference.scope(),
            known,
            program,
        )?);
    }
    let mut direct_counter = false;
    let mut direct_meter = None;
    for resource in &table.direct_resource_ids {
        let counter = info
            .direct_counters
            .iter()
            .find(|c| c.preamble.as_ref().is_some_and(|p| p.id == *resource));
        let meter = info
            .direct_meters
            .iter()
            .find(|m| m.preamble.as_ref().is_some_and(|p| p.id == *resource));
        if let Some(counter) = counter {
            let (_, resource_name) = ids.take(counter.preamble.as_ref(), "direct counter")?;
            if !known.direct_counter {
                return Err(missing(
                    "direct counter",
                    &format!("{resource_name} of table {name}"),
                ));
            }
            direct_counter = true;
        } else if let Some(meter) = meter {
            let (_, resource_name) = ids.take(meter.preamble.as_ref(), "direct meter")?;
            let Some(unit) = known.direct_meter else {
                return Err(missing(
                    "direct meter",
                    &format!("{resource_name} of table {name}"),
                ));
            };
            check_meter_unit(&resource_name, meter.spec.as_ref(), unit)?;
            direct_meter = Some(meter_kind(meter.spec.as_ref()));
        } else {
            return Err(UpdateError::invalid(format!(
                "P4Info: table {name}: direct resource id {resource} is neither a direct counter \
                 nor a direct meter of P4Info"
            )));
        }
    }
    let supports = p4info::table::IdleTimeoutBehavior::NotifyControl;
    let idle_timeout = table.idle_timeout_behavior() == supports;
    if idle_timeout && !known.idle_timeout {
        return Err(missing("idle timeout", &format!("of table {name}")));
    }
    Ok(Table {
        id,
        keys: Keys {
            object: name.clone(),
            fields: keys,
        },
        name,
        index,
        actions: bound,
        // BMv2 JSON does not tell `const entries` from entries that may be changed.
        const_entries: table.is_const_table,
        size: known.size.max(usize::try_from(table.size).unwrap_or(0)),
        const_default: table.const_default_action_id != 0 || known.const_default,
        direct_counter,
        direct_meter,
        profile: None,
        idle_timeout,
    })
}

/// Key fields in the program's order. They are found by name; where names differ (P4Info and
/// BMv2 JSON write some expressions differently) by position.
fn bind_keys(table: &str, fields: &[p4info::MatchField], known: &[KeyField]) -> Result<Vec<Key>> {
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
        if i64::from(field.bitwidth) != i64::from(key.bits) {
            return Err(widths_differ(&what, field.bitwidth.into(), key.bits));
        }
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
            bits: key.bits,
            masked_optional,
        });
    }
    Ok(keys)
}

fn bind_action(
    table: &str,
    action: &p4info::Action,
    scope: p4info::action_ref::Scope,
    known_table: &TableInfo,
    program: &Program,
) -> Result<TableAction> {
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
        if i64::from(param.bitwidth) != i64::from(*bits) {
            return Err(widths_differ(
                &format!("action {name}: parameter {param_name}"),
                param.bitwidth.into(),
                *bits,
            ));
        }
        params.push(Param {
            id: param.id,
            name: param.name.clone(),
            bits: *bits,
        });
    }
    Ok(TableAction {
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
    cell: Cell,
    mut known: impl Iterator<Item = &'a ArrayInfo>,
) -> Result<Array> {
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
    })
}

/// Action profiles, and which tables use them.
fn bind_profiles(
    info: &p4info::P4Info,
    tables: &mut [Table],
    program: &Program,
    ids: &mut Ids,
) -> Result<Vec<Profile>> {
    use p4info::action_profile::SelectorSizeSemantics;
    let mut profiles = Vec::with_capacity(info.action_profiles.len());
    for given in &info.action_profiles {
        let (id, name) = ids.take(given.preamble.as_ref(), "action profile")?;
        let (index, known) = named(
            program.profiles(),
            |known| &known.name,
            "action profile",
            &name,
        )?;
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
            None | Some(SelectorSizeSemantics::SumOfWeights(_)) => (SizeSemantics::SumOfWeights, 0),
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
            table: None,
        });
    }
    for (place, (table, given)) in tables.iter_mut().zip(&info.tables).enumerate() {
        let known = program.tables().get(table.index).and_then(|t| t.profile);
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
    Ok(profiles)
}

fn bind_value_sets(
    info: &p4info::P4Info,
    program: &Program,
    ids: &mut Ids,
) -> Result<Vec<ValueSet>> {
    let mut sets = Vec::with_capacity(info.value_sets.len());
    for given in &info.value_sets {
        let (id, name) = ids.take(given.preamble.as_ref(), "value set")?;
        let (index, known) = named(
            program.value_sets(),
            |known| &known.name,
            "value set",
            &name,
        )?;
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
            if i64::from(field.bitwidth) != i64::from(*bits) {
                return Err(widths_differ(&what, field.bitwidth.into(), *bits));
            }
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
                bits: *bits,
                masked_optional: false,
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

fn bind_digests(info: &p4info::P4Info, program: &Program, ids: &mut Ids) -> Result<Vec<Digest>> {
    let mut digests = Vec::with_capacity(info.digests.len());
    for given in &info.digests {
        let (id, name) = ids.take(given.preamble.as_ref(), "digest")?;
        let (index, known) = named(program.digests(), |known| &known.name, "digest", &name)?;
        digests.push(Digest::new(
            (id, name),
            index,
            given.type_spec.as_ref(),
            info.type_info.as_ref(),
            known,
        )?);
    }
    Ok(digests)
}

fn check_field_id(what: &str, id: u32, others: &[Key]) -> Result<()> {
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
) -> Result<()> {
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
