//! Counters, meters and registers.

use std::sync::Arc;

use tonic::Code;
use v1model::entries::{Bits, ColourCounts, CounterValue, MeterConfig, MeterWrite};

use super::shape::Shape;
use super::translation::Translation;
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

/// The kind of configuration that a meter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MeterKind(pub(super) p4info::meter_spec::Type);

/// The kind of an array's cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Counter,
    Meter(MeterKind),
    /// `None`: a type that is not implemented. (p4c has none such for v1model.)
    Register(Option<Shape>),
}

/// An indirect counter, meter or register.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the program.
    pub(crate) index: usize,
    pub(crate) size: usize,
    pub(crate) bits: u32,
    pub(crate) cell: Cell,
    /// The index for controllers, where it is another.
    pub(super) index_type: Option<Arc<Translation>>,
}

impl Array {
    /// The cell that an index names. `None`: all cells.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: negative; `OUT_OF_RANGE`: beyond the array.
    pub(crate) fn index(&self, index: Option<&p4::Index>) -> UpdateResult<Option<usize>> {
        index.map(|index| self.cell_at(index)).transpose()
    }

    /// The cell at an index.
    pub(crate) fn cell_at(&self, index: &p4::Index) -> UpdateResult<usize> {
        if let Some(translation) = &self.index_type {
            let given = unsigned(index.index, &self.name, "index")?.to_be_bytes();
            let cell = translation.to_switch(&given, &self.name, "index")?;
            let cell = number(&cell).and_then(|cell| usize::try_from(cell).ok());
            return cell.filter(|cell| *cell < self.size).ok_or_else(|| {
                UpdateError::out_of_range(format!(
                    "{}: index: {} stands for a cell beyond the {} that there are",
                    self.name, index.index, self.size
                ))
            });
        }
        let code = match usize::try_from(index.index) {
            Ok(value) if value < self.size => return Ok(value),
            Ok(_) => Code::OutOfRange,
            Err(_) => Code::InvalidArgument,
        };
        let text = format!(
            "{}: index: {} given, 0 to {} expected",
            self.name,
            index.index,
            self.size.saturating_sub(1)
        );
        Err(UpdateError::new(code, text))
    }

    /// The index of a cell as a controller sees it; `None`: the mapping of the index has none for it.
    pub(crate) fn index_message(&self, cell: usize) -> Option<p4::Index> {
        let index = match &self.index_type {
            None => i64::try_from(cell).ok()?,
            Some(translation) => {
                let bits = translation.bits();
                let cell = bytestring::parse(&cell.to_be_bytes(), bits, &self.name, "index");
                let told = translation.to_controller(&cell.ok()?, &self.name, "index");
                i64::try_from(number(&told.ok()?)?).ok()?
            }
        };
        Some(p4::Index { index })
    }

    /// The configurations that a meter takes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: not a meter.
    pub(crate) fn meter_kind(&self) -> UpdateResult<MeterKind> {
        match self.cell {
            Cell::Meter(kind) => Ok(kind),
            _ => Err(UpdateError::invalid(format!("{}: not a meter", self.name))),
        }
    }

    /// The type of a register's cells.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: not a register; `UNIMPLEMENTED`: a type that this switch does not have.
    pub(crate) fn register_shape(&self) -> UpdateResult<&Shape> {
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
    pub(crate) fn register_value(&self, data: Option<&p4::P4Data>) -> UpdateResult<Bits> {
        let shape = self.register_shape()?;
        shape.parse_one(data, self.bits, &self.name)
    }
}

/// The number that big-endian bytes have, if it is one of 64 bits.
fn number(bytes: &[u8]) -> Option<u64> {
    let all = bytestring::canonical(bytes);
    let fits = all.len() <= size_of::<u64>();
    fits.then(|| {
        all.iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    })
}

/// Reads counter data.
pub(crate) fn counter_value(data: &p4::CounterData, object: &str) -> UpdateResult<CounterValue> {
    Ok(CounterValue {
        packets: unsigned(data.packet_count, object, "packet_count")?,
        bytes: unsigned(data.byte_count, object, "byte_count")?,
    })
}

/// A count or a rate.
fn unsigned(value: i64, object: &str, field: &str) -> UpdateResult<u64> {
    u64::try_from(value).map_err(|_| {
        UpdateError::invalid(format!(
            "{object}: {field}: {value} given, at least 0 expected"
        ))
    })
}

/// Counter data as a controller sees it.
pub(crate) fn counter_message(value: CounterValue) -> p4::CounterData {
    p4::CounterData {
        byte_count: i64::try_from(value.bytes).unwrap_or(i64::MAX),
        packet_count: i64::try_from(value.packets).unwrap_or(i64::MAX),
    }
}

/// Reads a write of a meter.
pub(crate) fn meter_write(
    config: Option<&p4::MeterConfig>,
    counts: Option<&p4::MeterCounterData>,
    kind: MeterKind,
    object: &str,
) -> UpdateResult<MeterWrite> {
    let config = config.map(|config| meter_config(config, kind, object));
    Ok(MeterWrite {
        config: config.transpose()?,
        clear_counts: clears_counts(counts, object)?,
    })
}

/// Whether a write clears the counts of a meter's colours (section "DirectMeterEntry"): "If the field
/// is set, targets supporting these counters should reset all the color counters to (0), if any of
/// the sub-fields are set to a non-zero value, then an INVALID_ARGUMENT error should be returned."
fn clears_counts(data: Option<&p4::MeterCounterData>, object: &str) -> UpdateResult<bool> {
    let Some(data) = data else {
        return Ok(false);
    };
    let given = [&data.green, &data.yellow, &data.red];
    let counted = |count: &&p4::CounterData| **count != p4::CounterData::default();
    if given.into_iter().flatten().any(|count| counted(&count)) {
        return Err(UpdateError::invalid(format!(
            "{object}: counts of a meter's colours: other than 0 given; a write can only reset them"
        )));
    }
    Ok(true)
}

/// Reads a meter's configuration (section "MeterEntry & DirectMeterEntry").
fn meter_config(
    config: &p4::MeterConfig,
    kind: MeterKind,
    object: &str,
) -> UpdateResult<MeterConfig> {
    use p4info::meter_spec::Type;
    let rate = |value, field| unsigned(value, object, field);
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

/// The counts of a meter's colours as a controller sees them.
pub(crate) fn meter_counts_message([green, yellow, red]: ColourCounts) -> p4::MeterCounterData {
    let count = |value| Some(counter_message(value));
    p4::MeterCounterData {
        green: count(green),
        yellow: count(yellow),
        red: count(red),
    }
}
