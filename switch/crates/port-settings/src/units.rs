//! Rates, sizes and times in the forms of a command line.

/// A rate in bit/s: an integer, or a decimal number with a unit as tc(8) and Mininet write it:
/// `bit`, `kbit`, `mbit`, `gbit`, `tbit` (powers of 1000), any case.
///
/// # Errors
/// Not a number, an unknown unit, not a whole number of bit/s, out of 64 bits.
pub fn rate_bps(text: &str) -> Result<u64, String> {
    if let Some(error) = bytes_a_second(text) {
        return Err(error);
    }
    scaled(
        text,
        &[
            ("", 1),
            ("bit", 1),
            ("kbit", 1_000),
            ("mbit", 1_000_000),
            ("gbit", 1_000_000_000),
            ("tbit", 1_000_000_000_000),
        ],
        "a rate such as 500mbit or 500000000 (units bit, kbit, mbit, gbit, tbit: bit/s)",
    )
}

/// A rate as [`rate_bps`] takes it, in the largest unit that needs no fraction.
pub fn rate_text(rate_bps: u64) -> String {
    let units = [
        (1_000_000_000, "gbit"),
        (1_000_000, "mbit"),
        (1_000, "kbit"),
    ];
    let whole = units
        .iter()
        .find(|(factor, _)| rate_bps > 0 && rate_bps.is_multiple_of(*factor));
    match whole {
        Some((factor, unit)) => format!("{}{unit}", rate_bps / factor),
        None => format!("{rate_bps}bit"),
    }
}

/// The error for a rate in `bps`, `kbps`, `mbps` or `gbps`; `None` if it has another unit. By these
/// units tc(8) means bytes per second and others mean bits, so they are refused.
fn bytes_a_second(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.strip_suffix("bps")?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, prefix) = number.split_at(end.unwrap_or(number.len()));
    let factor = match prefix {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        _ => return None,
    };
    let bytes = scaled(number, &[("", factor)], "").ok()?;
    let bits = bytes.checked_mul(8)?;
    Some(format!(
        "'{text}' may mean bits or bytes a second: write {number}{prefix}bit for bits; tc means bytes, \
         which are {bits}bit"
    ))
}

/// A rate on a port of this line rate.
///
/// # Errors
/// It is above the line's.
pub fn within_line(rate_bps: u64, line_rate_bps: Option<u64>) -> Result<u64, String> {
    match line_rate_bps.filter(|line_bps| rate_bps > *line_bps) {
        None => Ok(rate_bps),
        Some(line_bps) => Err(format!(
            "rate {} is above the port's line rate of {}",
            rate_text(rate_bps),
            rate_text(line_bps)
        )),
    }
}

/// A size in bytes: an integer, or with `b`, `kb`, `mb`, `gb` (powers of 1024, as the papers
/// count FIFOs and tc(8) counts bytes).
///
/// # Errors
/// As [`rate_bps`].
pub fn bytes(text: &str) -> Result<u64, String> {
    scaled(
        text,
        &[
            ("", 1),
            ("b", 1),
            ("kb", 1 << 10),
            ("kib", 1 << 10),
            ("mb", 1 << 20),
            ("mib", 1 << 20),
            ("gb", 1 << 30),
            ("gib", 1 << 30),
        ],
        "a size such as 64KB or 65536 (bytes)",
    )
}

/// A time in nanoseconds, with a unit: `ns`, `us`, `ms`, `s`.
///
/// # Errors
/// As [`rate_bps`]; also a number without unit other than 0.
pub fn duration_ns(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    scaled(
        text,
        &[
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ],
        "a time such as 100ms (ns, us, ms, s)",
    )
}

/// Parses `number[unit]` exactly: no floating point, so `0.1gbit` is 100,000,000.
fn scaled(text: &str, units: &[(&str, u64)], expected: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not {expected}");
    let lower = text.trim().to_ascii_lowercase();
    let end = lower
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, factor)| *factor)
        .ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let value: u128 = digits.parse().map_err(|_| wrong())?;
    let scale = 10u128
        .checked_pow(u32::try_from(fraction.len()).map_err(|_| wrong())?)
        .ok_or_else(wrong)?;
    let product = value.checked_mul(u128::from(factor)).ok_or_else(wrong)?;
    if product % scale != 0 {
        return Err(wrong());
    }
    u64::try_from(product / scale).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact() {
        assert_eq!(rate_bps("500Mbit"), Ok(500_000_000));
        assert_eq!(rate_bps("0.1gbit"), Ok(100_000_000));
        assert_eq!(rate_bps("8000"), Ok(8_000));
        assert_eq!(bytes("64KB"), Ok(65_536));
        assert_eq!(bytes("1.5kb"), Ok(1_536));
        assert_eq!(duration_ns("100ms"), Ok(100_000_000));
        assert_eq!(duration_ns("0"), Ok(0));
    }

    #[test]
    fn a_rate_is_shown_as_it_is_read() {
        for rate in ["8kbit", "500mbit", "1500mbit", "100gbit", "1234567bit"] {
            assert_eq!(rate_bps(rate).map(rate_text), Ok(rate.to_owned()));
        }
    }

    #[test]
    fn a_rate_that_tc_takes_for_bytes_is_refused_with_both_meanings() {
        for (text, bits, tcs) in [
            ("500mbps", "500mbit", "4000000000bit"),
            ("1.5Gbps", "1.5gbit", "12000000000bit"),
            ("8000bps", "8000bit", "64000bit"),
        ] {
            let refused = rate_bps(text).expect_err(text);
            assert!(
                refused.contains(&format!("write {bits} for bits")),
                "{refused}"
            );
            assert!(refused.ends_with(&format!("which are {tcs}")), "{refused}");
            let known = |rate| rate_bps(rate).expect("a rate");
            assert_eq!(known(tcs), 8 * known(bits));
        }
        let refused = rate_bps("500m").expect_err("no unit");
        assert!(refused.contains("kbit, mbit, gbit"), "{refused}");
        assert!(rate_bps("fastbps").is_err());
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "",
            "fast",
            "-1",
            "1..5mbit",
            "5 furlongs",
            "0.3bit",
            "1e9",
            "٣mbit",
        ] {
            let refused = rate_bps(text).expect_err(text);
            assert!(refused.contains("500mbit"), "{refused}");
        }
        assert!(duration_ns("100").is_err());
        assert!(bytes("99999999999999999999gb").is_err());
    }
}
