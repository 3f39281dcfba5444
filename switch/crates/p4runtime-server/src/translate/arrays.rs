//! Counters, meters and registers.

use v1model::entries::{Bits, ColourCounts, CounterValue, MeterConfig};

use super::shape::Shape;
use super::{Array, Cell, MeterKind, Result};
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

    /// How a register's cells are shown.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: not a register; `UNIMPLEMENTED`: a type that this switch does not have.
    pub(crate) fn register_shape(&self) -> Result<&Shape> {
        match &self.cell {
            Cell::Register(Some(shape)) => Ok(shape),
            Cell::Register(None) => Err(UpdateError::unimplemented(format!(
                "{}: registers of this type are not implemented",
                self.name
            ))),
            _ => Err(UpdateError::invalid(format!(
                "{}: not a register",
                self.name
            ))),
        }
    }

    /// Reads a register's value.
    pub(crate) fn register_value(&self, data: Option<&p4::P4Data>) -> Result<Bits> {
        let shape = self.register_shape()?;
        shape.parse_one(data, self.bits, &self.name)
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
    if kind.0 != Type::SingleRateThreeColor && config.eburst != 0 {
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
        eburst: rate(config.eburst, "eburst")?,
    };
    if kind.0 != Type::TwoRateThreeColor
        && (result.pir != result.cir || result.pburst != result.cburst)
    {
        return Err(UpdateError::invalid(format!(
            "{object}: pir {} and pburst {} given, cir {} and cburst {} expected (a single-rate \
             meter)",
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
        eburst: rate(config.eburst),
    }
}

/// What a meter has coloured as a controller sees it.
pub(crate) fn meter_counts_message([green, yellow, red]: ColourCounts) -> p4::MeterCounterData {
    let count = |value| Some(counter_message(value));
    p4::MeterCounterData {
        green: count(green),
        yellow: count(yellow),
        red: count(red),
    }
}
