//! The two-rate three-colour marker of RFC 2698 and the single-rate one of RFC 2697, colour-blind
//! mode, in exact integers, with counts of yellow and red packets.
//!
//! Tokens are kept in billionths of a unit, so that `rate * elapsed_ns` needs no rounding.

use crate::entries::{MeterConfig, MeterUnit, MeterWrite};

/// Colour numbers of v1model.
pub(crate) const GREEN: u64 = 0;
const YELLOW: u64 = 1;
const RED: u64 = 2;

const NANO: u128 = 1_000_000_000;

/// A packet, as a meter sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metered {
    /// Length of its frame.
    pub bytes: u64,
    pub now_ns: u64,
}

/// Packets and bytes.
pub(crate) type Count = [u64; 2];

/// Counts a packet.
#[inline]
pub(crate) fn count(count: &mut Count, bytes: u64) {
    count[0] = count[0].wrapping_add(1);
    count[1] = count[1].wrapping_add(bytes);
}

/// A meter that is configured, or that has counts from when it was. Green packets are counted beside
/// it, because meters that were never configured colour, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    /// `None`: all packets are green.
    pub config: Option<MeterConfig>,
    /// Billionths of a unit, as is the next one.
    committed: u128,
    /// The peak bucket of a two-rate marker, the excess bucket of a single-rate one.
    second: u128,
    /// Time of the last packet; `None` before the first, which finds full buckets
    /// (RFC 2697 and RFC 2698, section 3: "initially (at time 0) full").
    last_ns: Option<u64>,
    /// Yellow packets.
    pub yellow: Count,
    /// Red packets.
    pub red: Count,
}

impl Meter {
    /// A meter with full buckets.
    pub fn new(config: MeterConfig) -> Self {
        let second = if config.eburst > 0 {
            config.eburst
        } else {
            config.pburst
        };
        Self {
            config: Some(config),
            committed: u128::from(config.cburst) * NANO,
            second: u128::from(second) * NANO,
            ..Self::default()
        }
    }

    /// The meter after a write; `None` if it has neither a configuration nor counts.
    pub fn written(before: Option<&Self>, write: MeterWrite) -> Option<Self> {
        let counted = before.filter(|_| !write.clear_counts);
        let (yellow, red) = counted.map_or_else(Default::default, |m| (m.yellow, m.red));
        if write.config.is_none() && yellow[0] == 0 && red[0] == 0 {
            return None;
        }
        Some(Self {
            yellow,
            red,
            ..write.config.map_or_else(Self::default, Self::new)
        })
    }

    /// Colours a packet, and counts it if it is yellow or red.
    pub fn mark(&mut self, unit: MeterUnit, packet: Metered) -> u64 {
        let Some(config) = self.config else {
            return GREEN;
        };
        let units = match unit {
            MeterUnit::Bytes => packet.bytes,
            MeterUnit::Packets => 1,
        };
        let colour = self.colour(&config, units, packet.now_ns);
        match colour {
            YELLOW => count(&mut self.yellow, packet.bytes),
            RED => count(&mut self.red, packet.bytes),
            _ => {}
        }
        colour
    }

    /// Colours a packet of `units` (bytes or 1) at `now_ns`. A clock that goes back adds no
    /// tokens.
    fn colour(&mut self, c: &MeterConfig, units: u64, now_ns: u64) -> u64 {
        let elapsed = u128::from(self.last_ns.map_or(0, |last| now_ns.saturating_sub(last)));
        self.last_ns = Some(self.last_ns.map_or(now_ns, |last| last.max(now_ns)));
        let need = u128::from(units) * NANO;
        let cburst = u128::from(c.cburst) * NANO;
        let committed = self.committed.saturating_add(u128::from(c.cir) * elapsed);
        self.committed = committed.min(cburst);
        if c.eburst > 0 {
            // RFC 2697 section 3: "the token counts Tc and Te are updated CIR times per second as
            // follows: If Tc is less than CBS, Tc is incremented by one, else if Te is less than
            // EBS, Te is incremented by one, else neither Tc nor Te is incremented."
            let over = committed - self.committed;
            let eburst = u128::from(c.eburst) * NANO;
            self.second = self.second.saturating_add(over).min(eburst);
            // "If Tc(t)-B >= 0, the packet is green and Tc is decremented by B down to the minimum
            // value of 0, else if Te(t)-B >= 0, the packets is yellow and Te is decremented by B
            // down to the minimum value of 0, else the packet is red and neither Tc nor Te is
            // decremented."
            return if self.committed >= need {
                self.committed -= need;
                GREEN
            } else if self.second >= need {
                self.second -= need;
                YELLOW
            } else {
                RED
            };
        }
        let peak = self.second.saturating_add(u128::from(c.pir) * elapsed);
        self.second = peak.min(u128::from(c.pburst) * NANO);
        // RFC 2698 section 3, colour-blind: Tp < B is red, else Tc < B is yellow and Tp pays,
        // else green and both pay.
        if self.second < need {
            RED
        } else if self.committed < need {
            self.second -= need;
            YELLOW
        } else {
            self.second -= need;
            self.committed -= need;
            GREEN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter, which colours packets of a length at a time.
    struct Marker(Meter);

    impl Marker {
        fn new(config: MeterConfig) -> Self {
            Self(Meter::new(config))
        }

        fn mark(&mut self, bytes: u64, now_ns: u64) -> u64 {
            self.0.mark(MeterUnit::Bytes, Metered { bytes, now_ns })
        }
    }

    #[test]
    fn colours_follow_rfc_2698() {
        let mut m = Marker::new(MeterConfig {
            cir: 1_000,
            cburst: 1_000,
            pir: 2_000,
            pburst: 1_500,
            eburst: 0,
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
        assert_eq!((m.0.yellow, m.0.red), ([3, 502], [4, 4]));
    }

    #[test]
    fn colours_follow_rfc_2697() {
        let mut m = Marker::new(MeterConfig {
            cir: 1_000,
            cburst: 1_000,
            pir: 1_000,
            pburst: 1_000,
            eburst: 500,
        });
        // Both buckets are full at first.
        assert_eq!(m.mark(1_000, 5), GREEN);
        assert_eq!(m.mark(499, 5), YELLOW);
        assert_eq!(m.mark(2, 5), RED);
        assert_eq!(m.mark(1, 5), YELLOW);
        // Tokens go to the committed bucket while it is not full: 3 ms are three.
        assert_eq!(m.mark(3, 3_000_004), RED);
        assert_eq!(m.mark(3, 3_000_005), GREEN);
        // 1,001 ms fill it and leave one for the excess bucket.
        assert_eq!(m.mark(1_000, 1_004_000_005), GREEN);
        assert_eq!(m.mark(1, 1_004_000_005), YELLOW);
        assert_eq!(m.mark(1, 1_004_000_005), RED);
        // A packet that the committed bucket cannot pay takes all from the excess bucket, and the
        // committed bucket keeps its tokens: after 1.4 s, 1,000 and 400.
        assert_eq!(m.mark(1_001, 2_404_000_005), RED);
        assert_eq!(m.mark(900, 2_404_000_005), GREEN);
        assert_eq!(m.mark(400, 2_404_000_005), YELLOW);
        assert_eq!(m.mark(100, 2_404_000_005), GREEN);
    }

    #[test]
    fn what_a_two_colour_meter_takes_colours_alike_with_each_type() {
        // P4Runtime specification, section "MeterEntry & DirectMeterEntry", the note.
        let config = MeterConfig {
            cir: 1_000,
            cburst: 1_000,
            pir: 1_000,
            pburst: 1_000,
            eburst: 0,
        };
        let mut m = Marker::new(config);
        let mut single = Marker(Meter {
            // The single-rate way, with an excess bucket too small for any packet.
            config: Some(MeterConfig {
                eburst: 1,
                ..config
            }),
            second: 0,
            ..m.0.clone()
        });
        for (bytes, now_ns) in [(999, 0), (2, 0), (1, 0), (2, 1_999_999), (2, 2_000_000)] {
            assert_eq!(
                m.mark(bytes, now_ns),
                single.mark(bytes, now_ns),
                "{now_ns}"
            );
        }
        assert_eq!((m.0.yellow, m.0.red), ([0, 0], [2, 4]));
    }

    #[test]
    fn a_write_keeps_counts_unless_it_clears_them() {
        let mut m = Meter::new(MeterConfig::default());
        let packet = Metered {
            bytes: 60,
            now_ns: 0,
        };
        assert_eq!(m.mark(MeterUnit::Packets, packet), RED);
        let mut write = MeterWrite::default();
        let kept = Meter::written(Some(&m), write).expect("its counts");
        assert_eq!((kept.config, kept.red), (None, [1, 60]));
        write.clear_counts = true;
        assert!(Meter::written(Some(&kept), write).is_none());
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let most = u64::MAX;
        for eburst in [0, most] {
            let mut m = Marker::new(MeterConfig {
                cir: most,
                cburst: most,
                pir: most,
                pburst: most,
                eburst,
            });
            assert_eq!(m.mark(1, 0), GREEN);
            assert_eq!(m.mark(most, most), GREEN);
        }
    }
}
