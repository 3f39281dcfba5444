//! The two-rate three-colour marker of RFC 2698, colour-blind mode, in exact integers.
//!
//! Tokens are kept in billionths of a unit, so that `rate * elapsed_ns` needs no rounding.

use dataplane::control::MeterConfig;

/// Colour numbers of v1model.
pub(crate) const GREEN: u64 = 0;
const YELLOW: u64 = 1;
const RED: u64 = 2;

const NANO: u128 = 1_000_000_000;

/// State of one configured meter.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    pub config: MeterConfig,
    /// Billionths of a unit.
    committed: u128,
    peak: u128,
    /// Time of the last packet; `None` before the first, which finds full buckets
    /// (RFC 2698 section 3: "initially (at time 0) full").
    last_ns: Option<u64>,
}

impl Meter {
    /// A meter with full buckets.
    pub fn new(config: MeterConfig) -> Self {
        Self {
            config,
            committed: u128::from(config.cburst) * NANO,
            peak: u128::from(config.pburst) * NANO,
            last_ns: None,
        }
    }

    /// Colours a packet of `units` (bytes or 1) at `now_ns`. A clock that goes back adds no
    /// tokens.
    pub fn mark(&mut self, units: u64, now_ns: u64) -> u64 {
        let elapsed = u128::from(self.last_ns.map_or(0, |last| now_ns.saturating_sub(last)));
        self.last_ns = Some(self.last_ns.map_or(now_ns, |last| last.max(now_ns)));
        let c = &self.config;
        self.committed =
            (self.committed + u128::from(c.cir) * elapsed).min(u128::from(c.cburst) * NANO);
        self.peak = (self.peak + u128::from(c.pir) * elapsed).min(u128::from(c.pburst) * NANO);
        // RFC 2698 section 3, colour-blind: Tp < B is red, else Tc < B is yellow and Tp pays,
        // else green and both pay.
        let need = u128::from(units) * NANO;
        if self.peak < need {
            RED
        } else if self.committed < need {
            self.peak -= need;
            YELLOW
        } else {
            self.peak -= need;
            self.committed -= need;
            GREEN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_rfc_2698() {
        let mut m = Meter::new(MeterConfig {
            cir: 1_000,
            cburst: 1_000,
            pir: 2_000,
            pburst: 1_500,
        });
        assert_eq!(m.mark(1_000, 5), GREEN);
        assert_eq!(m.mark(500, 5), YELLOW);
        assert_eq!(m.mark(1, 5), RED);
        // 1 ms later: one committed and two peak units more.
        assert_eq!(m.mark(1, 1_000_005), GREEN);
        assert_eq!(m.mark(1, 1_000_005), YELLOW);
        assert_eq!(m.mark(1, 1_000_005), RED);
        // Exactly on the nanosecond: one peak unit takes 500 us.
        assert_eq!(m.mark(1, 1_500_004), RED);
        assert_eq!(m.mark(1, 1_500_005), YELLOW);
        // Time never runs backwards.
        assert_eq!(m.mark(1, 0), RED);
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let most = u64::MAX;
        let mut m = Meter::new(MeterConfig {
            cir: most,
            cburst: most,
            pir: most,
            pburst: most,
        });
        assert_eq!(m.mark(most, 0), GREEN);
        assert_eq!(m.mark(most, most), GREEN);
    }
}
