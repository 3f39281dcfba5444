//! Active queue management, as `-i` gives it: `q0.aqm=codel:5ms:100ms:ecn`.

use traffic_manager::{
    AqmConfig, CodelConfig, DualPi2Config, FqCodelConfig, PieConfig, RedConfig, RedProfile,
};

use crate::units;

/// CoDel's TARGET and INTERVAL (RFC 8289).
const CODEL_TARGET_NS: u64 = 5_000_000;
const CODEL_INTERVAL_NS: u64 = 100_000_000;
/// FQ-CoDel's queues, quantum and limit (RFC 8290, section 5.2).
const FQ_FLOWS: u32 = 1_024;
/// The RFC counts a frame without FCS, 1,514 bytes.
const FQ_QUANTUM_BYTES: u32 = 1_518;
const FQ_LIMIT_PACKETS: u32 = 10_240;
/// PIE's QDELAY_REF (RFC 8033), and DualPI2's target.
const PIE_TARGET_NS: u64 = 15_000_000;
/// RED's weight is 2^-9, as Floyd and Jacobson's 0.002.
const RED_WEIGHT_SHIFT: u32 = 9;
/// A full-sized frame, in bits.
const FRAME_BITS: u64 = 1_518 * 8;
const NS_PER_S: u64 = 1_000_000_000;
/// The rate that RED's idle time counts on a port without a line rate.
const RATE_BPS: u64 = 1_000_000_000;

/// An algorithm. RED counts an idle line's time in frames of `line_rate_bps`.
///
/// # Errors
/// It is none, and the text says which there are; or a parameter is wrong.
pub(crate) fn aqm(value: &str, line_rate_bps: Option<u64>) -> Result<AqmConfig, String> {
    let (settings, ecn) = match value.strip_suffix(":ecn") {
        Some(settings) => (settings, true),
        None => (value, false),
    };
    let (name, parameters) = settings.split_once(':').unwrap_or((settings, ""));
    let target_ns = || {
        let [target_ns] = times(value, parameters, [("TARGET", PIE_TARGET_NS)])?;
        Ok::<_, String>(target_ns)
    };
    let config = match name {
        "codel" => AqmConfig::Codel(codel(value, parameters, ecn)?),
        "fq_codel" => AqmConfig::FqCodel(FqCodelConfig {
            // As in RFC 8290, whose CoDel marks.
            codel: codel(value, parameters, true)?,
            flows: FQ_FLOWS,
            quantum_bytes: FQ_QUANTUM_BYTES,
            limit_packets: FQ_LIMIT_PACKETS,
        }),
        "pie" => AqmConfig::Pie(PieConfig {
            target_ns: target_ns()?,
            ecn,
        }),
        "dualpi2" => AqmConfig::DualPi2(DualPi2Config {
            target_ns: target_ns()?,
        }),
        "red" | "wred" => {
            let profiles: Vec<_> = parameters
                .split('/')
                .map(profile)
                .collect::<Result<_, _>>()?;
            let profiles = match profiles[..] {
                [all] => [all; 3],
                [green, yellow, red] if name == "wred" => [green, yellow, red],
                _ => return Err(format!("'{value}': red has one profile, wred one or three")),
            };
            AqmConfig::Red(RedConfig {
                profiles,
                weight_shift: RED_WEIGHT_SHIFT,
                packet_ns: frame_ns(line_rate_bps),
                ecn,
            })
        }
        _ => {
            return Err(format!(
                "'{value}' is not codel[:TARGET[:INTERVAL]], fq_codel[:TARGET[:INTERVAL]], pie[:TARGET], \
                 dualpi2[:TARGET], red:MIN:MAX:P or wred:MIN:MAX:P/MIN:MAX:P/MIN:MAX:P, each with \
                 :ecn or without"
            ));
        }
    };
    config
        .check()
        .map_err(|error| format!("'{value}': {error}"))?;
    Ok(config)
}

/// The time of a full-sized frame.
fn frame_ns(line_rate_bps: Option<u64>) -> u64 {
    let rate_bps = line_rate_bps.unwrap_or(RATE_BPS).max(1);
    (FRAME_BITS * NS_PER_S / rate_bps).max(1)
}

/// `TARGET:INTERVAL`, or less.
fn codel(value: &str, parameters: &str, ecn: bool) -> Result<CodelConfig, String> {
    let known = [("TARGET", CODEL_TARGET_NS), ("INTERVAL", CODEL_INTERVAL_NS)];
    let [target_ns, interval_ns] = times(value, parameters, known)?;
    Ok(CodelConfig {
        target_ns,
        interval_ns,
        ecn,
    })
}

/// Times separated by colons. Those that are left out have the values of `known`.
fn times<const N: usize>(
    value: &str,
    parameters: &str,
    known: [(&str, u64); N],
) -> Result<[u64; N], String> {
    let mut times = known.map(|(_, default_ns)| default_ns);
    let given = parameters.split(':').filter(|_| !parameters.is_empty());
    for (place, text) in given.enumerate() {
        let Some(time) = times.get_mut(place) else {
            let names = known.map(|(name, _)| name).join(" and ");
            return Err(format!("'{value}': at most {names} expected"));
        };
        *time = units::duration_ns(text)?;
    }
    Ok(times)
}

/// `MIN:MAX:P`, such as `30KB:90KB:0.1`.
fn profile(text: &str) -> Result<RedProfile, String> {
    let parts: Vec<_> = text.split(':').collect();
    let [min, max, probability] = parts[..] else {
        return Err(format!("'{text}' is not MIN:MAX:P, such as 30KB:90KB:0.1"));
    };
    let share: Option<f64> = probability.parse().ok();
    let share = share.filter(|share| (1e-6..=1.0).contains(share));
    let share =
        share.ok_or_else(|| format!("'{probability}' is not a probability from 0.000001 to 1"))?;
    Ok(RedProfile {
        min_bytes: units::bytes(min)?,
        max_bytes: units::bytes(max)?,
        // Below 2^20.
        max_p_ppm: (share * 1e6).round() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_the_defaults_of_its_rfc() {
        let codel = CodelConfig {
            target_ns: 5_000_000,
            interval_ns: 100_000_000,
            ecn: false,
        };
        assert_eq!(aqm("codel", None), Ok(AqmConfig::Codel(codel)));
        let marking = CodelConfig {
            target_ns: 1_000_000,
            interval_ns: 20_000_000,
            ecn: true,
        };
        let given = aqm("codel:1ms:20ms:ecn", None);
        assert_eq!(given, Ok(AqmConfig::Codel(marking)));
        let pie = PieConfig {
            target_ns: 15_000_000,
            ecn: true,
        };
        assert_eq!(aqm("pie:ecn", None), Ok(AqmConfig::Pie(pie)));
        let dual = |target_ns| Ok(AqmConfig::DualPi2(DualPi2Config { target_ns }));
        assert_eq!(aqm("dualpi2", None), dual(15_000_000));
        assert_eq!(aqm("dualpi2:20ms", None), dual(20_000_000));
        let flows = FqCodelConfig {
            codel: CodelConfig { ecn: true, ..codel },
            flows: 1_024,
            quantum_bytes: 1_518,
            limit_packets: 10_240,
        };
        assert_eq!(aqm("fq_codel", None), Ok(AqmConfig::FqCodel(flows)));
        assert!(aqm("codel:100ms", None).is_ok(), "as long as the interval");
    }

    #[test]
    fn red_has_a_profile_or_one_for_each_colour() {
        let profile = |min_bytes, max_bytes, max_p_ppm| RedProfile {
            min_bytes,
            max_bytes,
            max_p_ppm,
        };
        let red = |profiles| {
            Ok(AqmConfig::Red(RedConfig {
                profiles,
                weight_shift: 9,
                packet_ns: 121_440,
                ecn: false,
            }))
        };
        let line = Some(100_000_000);
        let one = profile(30_720, 92_160, 100_000);
        assert_eq!(aqm("red:30KB:90KB:0.1", line), red([one; 3]));
        let three = [
            one,
            profile(20_480, 61_440, 200_000),
            profile(0, 1_000, 1_000_000),
        ];
        let text = "wred:30KB:90KB:0.1/20KB:60KB:0.2/0:1000:1";
        assert_eq!(aqm(text, line), red(three));
    }

    #[test]
    fn errors_say_what_is_expected() {
        for (text, expected) in [
            ("cake", "is not codel"),
            ("codel:soon", "a time such as"),
            ("red", "is not MIN:MAX:P"),
            ("codel:0ns", "'codel:0ns': time 0 ns is not between 1 and"),
            (
                "pie:11s",
                "time 11000000000 ns is not between 1 and 10000000000",
            ),
            ("dualpi2:999us", "time 999000 ns is not between 1000000 and"),
            (
                "codel:101ms",
                "target 101000000 ns is above the interval of 100000000",
            ),
            (
                "fq_codel:2ms:1ms",
                "target 2000000 ns is above the interval of 1000000",
            ),
            (
                "codel:1ms:2ms:3ms",
                "'codel:1ms:2ms:3ms': at most TARGET and INTERVAL expected",
            ),
            ("pie:1ms:2ms", "at most TARGET expected"),
            ("dualpi2:1ms:2ms", "at most TARGET expected"),
            ("red:2:2:0.1", "MIN of 2 bytes is not below MAX of 2"),
            (
                "red:1:4GB:0.1",
                "MAX of 4294967296 bytes is above 4294967295",
            ),
            ("red:1:2:0", "'0' is not a probability from 0.000001 to 1"),
            ("red:1:2:3", "'3' is not a probability from 0.000001 to 1"),
            ("red:1:2:0.1/1:2:0.1/1:2:0.1", "red has one profile"),
            ("pie:15", "a time such as"),
        ] {
            let error = aqm(text, None).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
