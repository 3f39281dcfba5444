//! Values in messages to values of the data plane, and back.

use dataplane::control::{
    ActionCall, Bits, CounterValue, EntryKey, MatchField, MatchKind, MeterConfig, Replica,
};
use tonic::Code;

use super::bind::kind_name;
use super::{Array, Cell, Key, MeterKind, RegisterType, Result, Table, TableAction};
use crate::bytestring;
use crate::error::UpdateError;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

impl Key {
    /// An optional field as the data plane has it.
    fn optional(&self, value: Option<Bits>) -> MatchField {
        match (value, self.masked_optional) {
            (value, false) => MatchField::Optional(value),
            (Some(value), true) => MatchField::Ternary {
                value,
                mask: bytestring::ones(self.bits),
            },
            (None, true) => MatchField::Ternary {
                value: bytestring::zero(self.bits),
                mask: bytestring::zero(self.bits),
            },
        }
    }
}

impl Table {
    /// Whether entries have priorities (specification, section "TableEntry").
    pub(crate) fn has_priorities(&self) -> bool {
        self.keys.iter().any(|key| {
            matches!(
                key.kind,
                MatchKind::Ternary | MatchKind::Range | MatchKind::Optional
            )
        })
    }

    /// Reads match fields; fields that are left out match everything (section "Match Format").
    pub(crate) fn match_fields(&self, given: &[p4::FieldMatch]) -> Result<Vec<MatchField>> {
        for (position, field) in given.iter().enumerate() {
            let Some(key) = self.keys.iter().find(|key| key.id == field.field_id) else {
                return Err(UpdateError::invalid(format!(
                    "{}: match: field id {} given, {} expected",
                    self.name,
                    field.field_id,
                    self.field_ids()
                )));
            };
            let earlier = given.get(..position).unwrap_or(&[]);
            if earlier.iter().any(|other| other.field_id == field.field_id) {
                return Err(UpdateError::invalid(format!(
                    "{}: field {}: given twice",
                    self.name, key.name
                )));
            }
        }
        self.keys
            .iter()
            .map(|key| {
                let field = given.iter().find(|field| field.field_id == key.id);
                match field {
                    Some(field) => self.match_field(key, field),
                    None => self.dont_care(key),
                }
            })
            .collect()
    }

    /// Reads what identifies an entry: match fields and priority.
    pub(crate) fn entry_key(&self, entry: &p4::TableEntry) -> Result<EntryKey> {
        if self.has_priorities() {
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
            fields: self.match_fields(&entry.r#match)?,
            priority: entry.priority,
        })
    }

    fn field_ids(&self) -> String {
        if self.keys.is_empty() {
            return "no field".to_owned();
        }
        let ids: Vec<String> = self
            .keys
            .iter()
            .map(|key| format!("{} ({})", key.id, key.name))
            .collect();
        ids.join(", ")
    }

    fn dont_care(&self, key: &Key) -> Result<MatchField> {
        Ok(match key.kind {
            MatchKind::Exact => {
                return Err(UpdateError::invalid(format!(
                    "{}: field {}: not given, but an exact field must be ({} bits)",
                    self.name, key.name, key.bits
                )));
            }
            MatchKind::Lpm => MatchField::Lpm {
                value: bytestring::zero(key.bits),
                prefix_bits: 0,
            },
            MatchKind::Ternary => MatchField::Ternary {
                value: bytestring::zero(key.bits),
                mask: bytestring::zero(key.bits),
            },
            MatchKind::Range => MatchField::Range {
                low: bytestring::zero(key.bits),
                high: bytestring::ones(key.bits),
            },
            MatchKind::Optional => key.optional(None),
        })
    }

    fn match_field(&self, key: &Key, field: &p4::FieldMatch) -> Result<MatchField> {
        use p4::field_match::FieldMatchType as Given;
        let parse = |value: &[u8], part: &str| {
            let name = if part.is_empty() {
                key.name.clone()
            } else {
                format!("{} ({part})", key.name)
            };
            bytestring::parse(value, key.bits, &self.name, &name).map_err(UpdateError::as_invalid)
        };
        let refuse = |text: String| {
            Err(UpdateError::invalid(format!(
                "{}: field {}: {text}",
                self.name, key.name
            )))
        };
        match (key.kind, &field.field_match_type) {
            (MatchKind::Exact, Some(Given::Exact(exact))) => {
                Ok(MatchField::Exact(parse(&exact.value, "")?))
            }
            (MatchKind::Optional, Some(Given::Optional(optional))) => {
                Ok(key.optional(Some(parse(&optional.value, "")?)))
            }
            (MatchKind::Lpm, Some(Given::Lpm(lpm))) => {
                let value = parse(&lpm.value, "")?;
                let prefix_bits = match u32::try_from(lpm.prefix_len) {
                    Ok(0) => {
                        return refuse(
                            "prefix length 0 given; leave the field out to match everything"
                                .to_owned(),
                        );
                    }
                    Ok(prefix) if prefix <= key.bits => prefix,
                    _ => {
                        return refuse(format!(
                            "prefix length {} given, 1 to {} expected",
                            lpm.prefix_len, key.bits
                        ));
                    }
                };
                if !bytestring::within_mask(&value, &bytestring::prefix_mask(key.bits, prefix_bits))
                {
                    return refuse(format!(
                        "value 0x{} has bits set beyond its prefix of {prefix_bits} bits; they \
                         must be 0",
                        bytestring::hex(&value)
                    ));
                }
                Ok(MatchField::Lpm { value, prefix_bits })
            }
            (MatchKind::Ternary, Some(Given::Ternary(ternary))) => {
                let value = parse(&ternary.value, "value")?;
                let mask = parse(&ternary.mask, "mask")?;
                if bytestring::is_zero(&mask) {
                    return refuse(
                        "mask 0 given; leave the field out to match everything".to_owned(),
                    );
                }
                if !bytestring::within_mask(&value, &mask) {
                    return refuse(format!(
                        "value 0x{} has bits set outside its mask 0x{}; they must be 0",
                        bytestring::hex(&value),
                        bytestring::hex(&mask)
                    ));
                }
                Ok(MatchField::Ternary { value, mask })
            }
            (MatchKind::Range, Some(Given::Range(range))) => {
                let low = parse(&range.low, "low")?;
                let high = parse(&range.high, "high")?;
                // Equally long and big-endian: byte order is number order.
                if low > high {
                    return refuse(format!(
                        "low 0x{} is greater than high 0x{}",
                        bytestring::hex(&low),
                        bytestring::hex(&high)
                    ));
                }
                if bytestring::is_zero(&low) && high == bytestring::ones(key.bits) {
                    return refuse(
                        "the range takes in every value; leave the field out to match everything"
                            .to_owned(),
                    );
                }
                Ok(MatchField::Range { low, high })
            }
            (kind, given) => refuse(format!(
                "{} given, {} expected",
                match given {
                    None => "no match",
                    Some(Given::Exact(_)) => "exact",
                    Some(Given::Ternary(_)) => "ternary",
                    Some(Given::Lpm(_)) => "lpm",
                    Some(Given::Range(_)) => "range",
                    Some(Given::Optional(_)) => "optional",
                    Some(Given::Other(_)) => "other",
                },
                kind_name(kind)
            )),
        }
    }

    /// Match fields as a controller sees them: canonical, "don't care" left out.
    pub(crate) fn match_messages(&self, fields: &[MatchField]) -> Vec<p4::FieldMatch> {
        use p4::field_match as m;
        let canonical = bytestring::canonical;
        self.keys
            .iter()
            .zip(fields)
            .filter_map(|(key, field)| {
                let given = match field {
                    MatchField::Exact(value) => m::FieldMatchType::Exact(m::Exact {
                        value: canonical(value),
                    }),
                    MatchField::Lpm { prefix_bits: 0, .. } => return None,
                    MatchField::Lpm { value, prefix_bits } => m::FieldMatchType::Lpm(m::Lpm {
                        value: canonical(value),
                        prefix_len: i32::try_from(*prefix_bits).unwrap_or(i32::MAX),
                    }),
                    MatchField::Ternary { mask, .. } if bytestring::is_zero(mask) => return None,
                    MatchField::Ternary { value, .. } if key.masked_optional => {
                        m::FieldMatchType::Optional(m::Optional {
                            value: canonical(value),
                        })
                    }
                    MatchField::Ternary { value, mask } => m::FieldMatchType::Ternary(m::Ternary {
                        value: canonical(value),
                        mask: canonical(mask),
                    }),
                    MatchField::Range { low, high }
                        if bytestring::is_zero(low) && *high == bytestring::ones(key.bits) =>
                    {
                        return None;
                    }
                    MatchField::Range { low, high } => m::FieldMatchType::Range(m::Range {
                        low: canonical(low),
                        high: canonical(high),
                    }),
                    MatchField::Optional(None) => return None,
                    MatchField::Optional(Some(value)) => m::FieldMatchType::Optional(m::Optional {
                        value: canonical(value),
                    }),
                };
                Some(p4::FieldMatch {
                    field_id: key.id,
                    field_match_type: Some(given),
                })
            })
            .collect()
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

    /// Reads an action with its arguments (section "Action Specification"), for the default
    /// entry or for another one.
    pub(crate) fn action_call(
        &self,
        given: &p4::TableAction,
        for_default: bool,
    ) -> Result<ActionCall> {
        use p4::table_action::Type;
        use p4info::action_ref::Scope;
        let given = match &given.r#type {
            Some(Type::Action(action)) => action,
            None => {
                return Err(UpdateError::invalid(format!(
                    "{}: action: no action given inside it",
                    self.name
                )));
            }
            Some(_) if self.indirect => {
                return Err(UpdateError::unimplemented(format!(
                    "{}: action profiles are not implemented",
                    self.name
                )));
            }
            Some(_) => {
                return Err(UpdateError::invalid(format!(
                    "{}: action: a member, group or action set given, an action expected (the \
                     table has no action profile)",
                    self.name
                )));
            }
        };
        if self.indirect {
            return Err(UpdateError::unimplemented(format!(
                "{}: tables with an action profile are not implemented",
                self.name
            )));
        }
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
    pub(crate) fn action_message(&self, call: &ActionCall) -> Option<p4::TableAction> {
        let action = self
            .actions
            .iter()
            .find(|action| action.index == call.action)?;
        Some(p4::TableAction {
            r#type: Some(p4::table_action::Type::Action(p4::Action {
                action_id: action.id,
                params: action
                    .params
                    .iter()
                    .zip(&call.args)
                    .map(|(param, value)| p4::action::Param {
                        param_id: param.id,
                        value: bytestring::canonical(value),
                    })
                    .collect(),
            })),
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

impl Array {
    /// The cell an index names; `None`: all cells.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: negative; `OUT_OF_RANGE`: beyond the array.
    pub(crate) fn index(&self, index: Option<&p4::Index>) -> Result<Option<usize>> {
        let Some(index) = index else {
            return Ok(None);
        };
        let value = usize::try_from(index.index).map_err(|_| {
            UpdateError::invalid(format!(
                "{}: index: {} given, 0 to {} expected",
                self.name,
                index.index,
                self.size.saturating_sub(1)
            ))
        })?;
        if value >= self.size {
            return Err(UpdateError::out_of_range(format!(
                "{}: index: {value} given, 0 to {} expected",
                self.name,
                self.size.saturating_sub(1)
            )));
        }
        Ok(Some(value))
    }

    /// Reads a register's value.
    pub(crate) fn register_value(&self, data: Option<&p4::P4Data>) -> Result<Bits> {
        use p4::p4_data::Data;
        let Cell::Register(register) = self.cell else {
            return Err(UpdateError::invalid(format!(
                "{}: not a register",
                self.name
            )));
        };
        let expected = match register {
            RegisterType::Bits => "a bitstring",
            RegisterType::SerializableEnum => "an enum_value",
            RegisterType::Other => return Err(self.not_implemented()),
        };
        match (register, data.and_then(|data| data.data.as_ref())) {
            (RegisterType::Bits, Some(Data::Bitstring(value)))
            | (RegisterType::SerializableEnum, Some(Data::EnumValue(value))) => {
                bytestring::parse(value, self.bits, &self.name, "data")
            }
            (_, given) => Err(UpdateError::invalid(format!(
                "{}: data: {} given, {expected} of {} bits expected",
                self.name,
                if given.is_some() {
                    "another kind of value"
                } else {
                    "nothing"
                },
                self.bits
            ))),
        }
    }

    /// A register's value as a controller sees it.
    pub(crate) fn register_message(&self, value: &[u8]) -> p4::P4Data {
        use p4::p4_data::Data;
        p4::P4Data {
            data: Some(match self.cell {
                Cell::Register(RegisterType::SerializableEnum) => {
                    Data::EnumValue(bytestring::canonical(value))
                }
                _ => Data::Bitstring(bytestring::canonical(value)),
            }),
        }
    }

    /// The refusal of a register whose cells are not plain values.
    pub(crate) fn not_implemented(&self) -> UpdateError {
        UpdateError::unimplemented(format!(
            "{}: registers of this type are not implemented; bit<W> and serializable enums \
             are",
            self.name
        ))
    }
}

/// Reads counter data.
pub(crate) fn counter_value(data: &p4::CounterData, object: &str) -> Result<CounterValue> {
    let count = |value: i64, field: &str| {
        u64::try_from(value).map_err(|_| {
            UpdateError::invalid(format!(
                "{object}: {field}: {value} given, at least 0 expected"
            ))
        })
    };
    Ok(CounterValue {
        packets: count(data.packet_count, "packet_count")?,
        bytes: count(data.byte_count, "byte_count")?,
    })
}

/// Counter data as a controller sees it.
pub(crate) fn counter_message(value: CounterValue) -> p4::CounterData {
    p4::CounterData {
        byte_count: i64::try_from(value.bytes).unwrap_or(i64::MAX),
        packet_count: i64::try_from(value.packets).unwrap_or(i64::MAX),
    }
}

/// Reads a meter's configuration (section "MeterEntry & DirectMeterEntry").
pub(crate) fn meter_config(
    config: &p4::MeterConfig,
    kind: MeterKind,
    object: &str,
) -> Result<MeterConfig> {
    use p4info::meter_spec::Type;
    let rate = |value: i64, field: &str| {
        u64::try_from(value).map_err(|_| {
            UpdateError::invalid(format!(
                "{object}: {field}: {value} given, at least 0 expected"
            ))
        })
    };
    if kind.0 == Type::SingleRateThreeColor {
        return Err(UpdateError::unimplemented(format!(
            "{object}: single-rate three-colour meters (RFC 2697) are not implemented; two-rate \
             ones (RFC 2698) are"
        )));
    }
    if config.eburst != 0 {
        return Err(UpdateError::invalid(format!(
            "{object}: eburst: {} given, 0 expected (it belongs to single-rate three-colour \
             meters)",
            config.eburst
        )));
    }
    let result = MeterConfig {
        cir: rate(config.cir, "cir")?,
        cburst: rate(config.cburst, "cburst")?,
        pir: rate(config.pir, "pir")?,
        pburst: rate(config.pburst, "pburst")?,
    };
    if kind.0 == Type::SingleRateTwoColor
        && (result.pir != result.cir || result.pburst != result.cburst)
    {
        return Err(UpdateError::invalid(format!(
            "{object}: pir {} and pburst {} given, cir {} and cburst {} expected (a single-rate \
             two-colour meter)",
            result.pir, result.pburst, result.cir, result.cburst
        )));
    }
    if result.pir < result.cir {
        return Err(UpdateError::invalid(format!(
            "{object}: pir: {} given, at least cir ({}) expected (RFC 2698)",
            result.pir, result.cir
        )));
    }
    Ok(result)
}

/// A meter's configuration as a controller sees it.
pub(crate) fn meter_message(config: MeterConfig) -> p4::MeterConfig {
    let rate = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    p4::MeterConfig {
        cir: rate(config.cir),
        cburst: rate(config.cburst),
        pir: rate(config.pir),
        pburst: rate(config.pburst),
        eburst: 0,
    }
}

/// Reads a multicast group's replicas (section "MulticastGroupEntry").
pub(crate) fn replicas(group: &p4::MulticastGroupEntry) -> Result<Vec<Replica>> {
    use p4::replica::PortKind;
    let object = format!("multicast group {}", group.multicast_group_id);
    let mut result: Vec<Replica> = Vec::with_capacity(group.replicas.len());
    for replica in &group.replicas {
        if !replica.backup_replicas.is_empty() {
            return Err(UpdateError::unimplemented(format!(
                "{object}: backup_replicas are not implemented"
            )));
        }
        #[allow(deprecated)]
        let port = match &replica.port_kind {
            Some(PortKind::EgressPort(port)) => *port,
            Some(PortKind::Port(value)) => {
                let wide = bytestring::parse(value, 32, &object, "port")
                    .map_err(UpdateError::as_invalid)?;
                wide.iter()
                    .fold(0, |number, byte| (number << 8) | u32::from(*byte))
            }
            None => {
                return Err(UpdateError::invalid(format!(
                    "{object}: a replica has no port"
                )));
            }
        };
        let rid = u16::try_from(replica.instance).map_err(|_| {
            UpdateError::invalid(format!(
                "{object}: instance: {} given, at most {} expected",
                replica.instance,
                u16::MAX
            ))
        })?;
        let replica = Replica { port, rid };
        if result.contains(&replica) {
            return Err(UpdateError::invalid(format!(
                "{object}: port {port}, instance {rid} is given twice"
            )));
        }
        result.push(replica);
    }
    Ok(result)
}

/// A replica as a controller sees it; `deprecated_port`: in the field that 1.4.0 deprecated.
pub(crate) fn replica_message(replica: &Replica, deprecated_port: bool) -> p4::Replica {
    use p4::replica::PortKind;
    #[allow(deprecated)]
    let port_kind = if deprecated_port {
        PortKind::EgressPort(replica.port)
    } else {
        PortKind::Port(bytestring::canonical(&replica.port.to_be_bytes()))
    };
    p4::Replica {
        port_kind: Some(port_kind),
        instance: replica.rid.into(),
        backup_replicas: Vec::new(),
    }
}

/// Refuses what only a later version could do with this entry.
pub(crate) fn unimplemented_entity(name: &str) -> UpdateError {
    UpdateError::new(
        Code::Unimplemented,
        format!("{name}: this entity is not implemented by this switch"),
    )
}
