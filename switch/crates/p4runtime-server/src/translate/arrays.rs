//! Counters, meters and registers.

use dataplane::control::{Bits, CounterValue, MeterConfig};

use super::{Array, Cell, MeterKind, RegisterType, Result};
use crate::bytestring;
use crate::error::UpdateError;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

impl Array {
    /// The cell an index names; `None`: all cells.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: negative; `OUT_OF_RANGE`: beyond the array.
    pub(crate) fn index(&self, index: Option<&p4::Index>) -> Result<Option<usize>> {
        index.map(|index| self.cell_at(index)).transpose()
    }

    /// The cell at an index.
    pub(crate) fn cell_at(&self, index: &p4::Index) -> Result<usize> {
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
        Ok(value)
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
