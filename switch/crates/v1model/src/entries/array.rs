//! Counters, meters and registers.

use super::action::Bits;
use super::error::{ControlResult, invalid};

/// A counter, meter or register array's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Number of cells.
    pub size: usize,
    /// Width of a cell in bits (registers; 0 otherwise).
    pub bits: u32,
}

/// The unit of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// Rates and bursts of a meter, in the meter's unit per second and units: a two-rate three-colour
/// marker (RFC 2698), or, with an excess burst, a single-rate one (RFC 2697).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterConfig {
    /// Committed information rate, units per second.
    pub cir: u64,
    /// Committed burst size, units.
    pub cburst: u64,
    /// Peak information rate, units per second; at least `cir`.
    pub pir: u64,
    /// Peak burst size, units.
    pub pburst: u64,
    /// Excess burst size, units; 0 for a two-rate marker. With another value `pir` and `pburst`
    /// are `cir` and `cburst`. (A single-rate marker with no excess burst is the two-rate marker
    /// whose rates and bursts are equal.)
    pub eburst: u64,
}

impl MeterConfig {
    /// Refuses rates and bursts that make no meter of RFC 2697 or 2698.
    fn check(&self) -> ControlResult<()> {
        if self.pir < self.cir {
            return invalid(format!(
                "peak rate {} is below committed rate {} (RFC 2698)",
                self.pir, self.cir
            ));
        }
        if self.eburst > 0 && (self.pir, self.pburst) != (self.cir, self.cburst) {
            return invalid(format!(
                "excess burst {} with a peak rate or burst of its own (RFC 2697 has none)",
                self.eburst
            ));
        }
        Ok(())
    }
}

/// The packets that a meter has coloured green, yellow and red.
pub type ColourCounts = [CounterValue; 3];

/// A new configuration of a meter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterWrite {
    /// The new configuration, with full buckets; `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// Whether to reset the counts to 0.
    pub clear_counts: bool,
}

impl MeterWrite {
    pub(crate) fn check(&self) -> ControlResult<()> {
        self.config.as_ref().map_or(Ok(()), MeterConfig::check)
    }
}

/// A meter as read back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeterState {
    /// `None`: not configured, every packet is green.
    pub config: Option<MeterConfig>,
    /// The packets that it has coloured, configured or not.
    pub counts: ColourCounts,
}

/// Packets and bytes counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Packets.
    pub packets: u64,
    /// Bytes (layer 2, without FCS, as BMv2 counts).
    pub bytes: u64,
}

/// A new value of a cell of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellValue {
    /// A cell of an indirect counter.
    Counter(CounterValue),
    /// A cell of an indirect meter.
    Meter(MeterWrite),
    /// A cell of a register; the value is as wide as the register.
    Register(Bits),
}
