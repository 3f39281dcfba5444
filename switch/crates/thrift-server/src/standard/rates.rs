//! Rates of meters: units in a microsecond, and bursts in units; the committed one first.

use bmv2_thrift::standard::{BmMeterRateConfig, MeterOperationErrorCode as Code};
use thrift::OrderedFloat;
use v1model::entries::{MeterConfig, MeterState, MeterWrite};

/// Units in a second for a unit in a microsecond.
const PER_SECOND: f64 = 1_000_000.0;

/// A rate in units per second and a burst.
fn rate(given: &BmMeterRateConfig) -> Result<(u64, u64), Code> {
    let units_per_micros = given.units_per_micros.unwrap_or_default().into_inner();
    let per_second = (units_per_micros * PER_SECOND).round();
    // Also refuses NaN. Below 2^63, the conversion is exact enough.
    if !(0.0..=i64::MAX as f64).contains(&per_second) {
        return Err(Code::INVALID_INFO_RATE_VALUE);
    }
    let burst = u64::try_from(given.burst_size.unwrap_or(0));
    let burst = burst.map_err(|_| Code::INVALID_BURST_SIZE_VALUE)?;
    Ok((per_second as u64, burst))
}

/// The settings of a meter.
pub(super) fn write(rates: &[BmMeterRateConfig]) -> Result<MeterWrite, Code> {
    let [committed, peak] = rates else {
        return Err(Code::BAD_RATES_LIST);
    };
    let ((cir, cburst), (pir, pburst)) = (rate(committed)?, rate(peak)?);
    if pir < cir {
        return Err(Code::INVALID_INFO_RATE_VALUE);
    }
    Ok(MeterWrite {
        config: Some(MeterConfig {
            cir,
            cburst,
            pir,
            pburst,
            eburst: 0,
        }),
        clear_counts: false,
    })
}

/// Rates as a client sees them; none of a meter without a configuration.
pub(super) fn told(state: &MeterState) -> Vec<BmMeterRateConfig> {
    let Some(config) = &state.config else {
        return Vec::new();
    };
    let told = |rate: u64, burst: u64| {
        BmMeterRateConfig::new(
            OrderedFloat(rate as f64 / PER_SECOND),
            i32::try_from(burst).unwrap_or(i32::MAX),
        )
    };
    vec![
        told(config.cir, config.cburst),
        told(config.pir, config.pburst),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rate: f64, burst: i32) -> BmMeterRateConfig {
        BmMeterRateConfig::new(OrderedFloat(rate), burst)
    }

    #[test]
    fn rates_come_back_as_they_were_set() {
        let given = [config(0.000_5, 10), config(12.5, 3_000)];
        let write = write(&given).expect("valid");
        let set = write.config.expect("configured");
        assert_eq!((set.cir, set.pir, set.pburst), (500, 12_500_000, 3_000));
        let state = MeterState {
            config: Some(set),
            ..MeterState::default()
        };
        assert_eq!(told(&state), given);
        assert!(told(&MeterState::default()).is_empty());
    }

    #[test]
    fn wrong_rates_are_refused_by_kind() {
        let one = config(1.0, 1);
        for (rates, code) in [
            (vec![one.clone()], Code::BAD_RATES_LIST),
            (
                vec![config(2.0, 1), one.clone()],
                Code::INVALID_INFO_RATE_VALUE,
            ),
            (
                vec![config(-1.0, 1), one.clone()],
                Code::INVALID_INFO_RATE_VALUE,
            ),
            (
                vec![config(f64::NAN, 1), one.clone()],
                Code::INVALID_INFO_RATE_VALUE,
            ),
            (vec![config(1.0, -1), one], Code::INVALID_BURST_SIZE_VALUE),
        ] {
            assert_eq!(write(&rates), Err(code), "{rates:?}");
        }
    }
}
