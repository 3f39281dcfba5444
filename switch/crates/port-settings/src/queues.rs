//! The egress queues of a port, as `-i` gives them: `queues=8,scheduler=strict,q7.rate=10mbit`.

use std::collections::BTreeMap;

use traffic_manager::{
    AqmConfig, BUFFER_SHARE_MAX_PPM, BUFFER_SHARE_ONE_PPM, Buffer, MaxRate, QUEUES_MAX,
    QueueConfig, QueueingConfig,
};

use crate::queue_number::queue_number;
use crate::scheduler::scheduler;
use crate::{aqm, units};

/// The word for no active queue management.
const NO_AQM: &str = "none";

/// The word for the buffer of the switch.
const SWITCH_BUFFER: &str = "switch";

/// The settings of a port's egress queues, in the words in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many there are.
    pub queues: usize,
    /// The order in which they send: `scheduler=`.
    pub scheduler: String,
    /// Active queue management of the queues that have none of their own: `aqm=`.
    pub aqm: String,
    /// The buffer that all queues have in common: `buffer=`.
    pub buffer: Option<Buffer>,
    /// Settings of single queues, by number.
    pub of: BTreeMap<usize, OneQueue>,
}

/// The settings of one queue; those that are not given have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OneQueue {
    /// Room in bytes: `fifo=`.
    pub fifo_bytes: Option<u64>,
    /// Room in packets, at most 2^32: `packets=`. Thrift may set 0, for a queue that takes none.
    pub fifo_packets: Option<u64>,
    /// Alpha in millionths: its share of the common buffer: `share=`.
    pub buffer_share_ppm: Option<u32>,
    /// Highest rate in bit/s: `rate=`.
    pub rate_bps: Option<u64>,
    /// Bytes that it may make up, with `rate_bps`: `burst=`.
    pub burst_bytes: Option<u64>,
    /// Minimum rate in bit/s: `min=`.
    pub min_rate_bps: Option<u64>,
    /// Highest rate in packets per second, instead of `rate_bps`. Thrift sets it.
    pub rate_pps: Option<u64>,
    /// Active queue management of its own: `aqm=`.
    pub aqm: Option<String>,
}

impl QueueSettings {
    /// `queues` equal queues in strict order.
    pub fn strict(queues: usize) -> Self {
        Self {
            queues,
            scheduler: "strict".to_owned(),
            aqm: NO_AQM.to_owned(),
            buffer: None,
            of: BTreeMap::new(),
        }
    }

    /// # Errors
    /// As [`Self::config`].
    pub fn check(&self, line_rate_bps: Option<u64>) -> Result<(), String> {
        self.config(line_rate_bps).map(|_| ())
    }

    /// The queues of a port of this line rate.
    ///
    /// # Errors
    /// A setting is wrong, or does not fit the others or the line; the text says which.
    pub fn config(&self, line_rate_bps: Option<u64>) -> Result<QueueingConfig, String> {
        let mut config = QueueingConfig::strict(self.queues);
        config.buffer = self.buffer;
        config.scheduler = scheduler(&self.scheduler, line_rate_bps)
            .map_err(|error| format!("scheduler: {error}"))?;
        let all = aqm_of(&self.aqm, line_rate_bps).map_err(|error| format!("aqm: {error}"))?;
        for queue in &mut config.queues {
            queue.aqm = all;
        }
        for (number, given) in &self.of {
            let Some(queue) = config.queues.get_mut(*number) else {
                let last = self.queues.saturating_sub(1);
                return Err(format!("q{number}: the port has queues 0 to {last}"));
            };
            *queue = given
                .config(all, line_rate_bps)
                .map_err(|error| format!("q{number}: {error}"))?;
        }
        config.check().map_err(|error| error.to_string())?;
        units::within_line(config.min_rates_bps(), line_rate_bps)
            .map_err(|error| format!("minimum rates together: {error}"))?;
        Ok(config)
    }
}

impl OneQueue {
    fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "fifo" => self.fifo_bytes = Some(at_least_one(units::bytes(value)?)?),
            "packets" => {
                let packets = value.parse().map_err(|_| format!("'{value}' is no number"));
                self.fifo_packets = Some(at_least_one(packets?)?);
            }
            "share" => self.buffer_share_ppm = Some(share_ppm(value)?),
            "rate" => self.rate_bps = Some(units::rate_bps(value)?),
            "min" => self.min_rate_bps = Some(units::rate_bps(value)?),
            "burst" => self.burst_bytes = Some(units::bytes(value)?),
            "aqm" => self.aqm = Some(known_aqm(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `all`: the active queue management of queues without their own.
    fn config(
        &self,
        all: Option<AqmConfig>,
        line_rate_bps: Option<u64>,
    ) -> Result<QueueConfig, String> {
        let aqm = match self.aqm.as_deref() {
            None => all,
            Some(own) => aqm_of(own, line_rate_bps).map_err(|error| format!("aqm: {error}"))?,
        };
        Ok(QueueConfig {
            depth_bytes: self.fifo_bytes,
            depth_packets: self.fifo_packets,
            buffer_share_ppm: self.buffer_share_ppm,
            max_rate: self.max_rate(line_rate_bps)?,
            min_rate_bps: self.min_rate_bps,
            aqm,
        })
    }

    fn max_rate(&self, line_rate_bps: Option<u64>) -> Result<Option<MaxRate>, String> {
        match (self.rate_bps, self.burst_bytes, self.rate_pps) {
            (Some(_), _, Some(_)) => Err(
                "a rate in bit/s and one in packets/s given, only one of them expected".to_owned(),
            ),
            (None, Some(_), _) => Err("burst needs a rate".to_owned()),
            (None, None, pps) => Ok(pps.map(MaxRate::Packets)),
            (Some(rate_bps), burst_bytes, None) => {
                let rate_bps = units::within_line(rate_bps, line_rate_bps)?;
                Ok(Some(match burst_bytes {
                    None => MaxRate::bits(rate_bps),
                    Some(burst_bytes) => MaxRate::Bits {
                        rate_bps,
                        burst_bytes,
                    },
                }))
            }
        }
    }
}

/// The settings that a port's option has for its egress queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueOptions {
    count: Option<usize>,
    scheduler: Option<String>,
    aqm: Option<String>,
    buffer: Option<Buffer>,
    of: BTreeMap<usize, OneQueue>,
}

impl QueueOptions {
    /// Takes a setting; false if `key` is none of these.
    ///
    /// # Errors
    /// The value is wrong; the text says how.
    pub fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "queues" => self.count = Some(count(value)?),
            "scheduler" => {
                scheduler(value, None)?;
                self.scheduler = Some(value.to_owned());
            }
            "aqm" => self.aqm = Some(known_aqm(value)?),
            "buffer" => self.buffer = Some(buffer(value)?),
            _ => {
                let Some((word, key)) = key.split_once('.') else {
                    return Ok(false);
                };
                let Some(queue) = queue_number(word)? else {
                    return Ok(false);
                };
                return self.of.entry(queue).or_default().take(key, value);
            }
        }
        Ok(true)
    }

    /// The queues of the port, where `--priority-queues` gives each port `default` queues. `None`: the
    /// port has a FIFO.
    ///
    /// # Errors
    /// Settings of queues, and no queues; the text says which.
    pub fn settings(&self, default: Option<usize>) -> Result<Option<QueueSettings>, String> {
        let Some(count) = self.count.or(default) else {
            let queue = self.of.keys().next().map(|queue| format!("q{queue}"));
            let scheduler = self.scheduler.as_ref().map(|_| "scheduler".to_owned());
            let aqm = self.aqm.as_ref().map(|_| "aqm".to_owned());
            let buffer = self.buffer.map(|_| "buffer".to_owned());
            return match queue.or(scheduler).or(aqm).or(buffer) {
                Some(key) => Err(format!("{key}: needs queues=N or --priority-queues")),
                None => Ok(None),
            };
        };
        let strict = QueueSettings::strict(count);
        Ok(Some(QueueSettings {
            scheduler: self.scheduler.clone().unwrap_or(strict.scheduler),
            aqm: self.aqm.clone().unwrap_or(strict.aqm),
            buffer: self.buffer,
            of: self.of.clone(),
            ..strict
        }))
    }
}

/// The algorithm that a text names; `None` for `none`.
fn aqm_of(text: &str, line_rate_bps: Option<u64>) -> Result<Option<AqmConfig>, String> {
    match text {
        NO_AQM => Ok(None),
        algorithm => aqm::aqm(algorithm, line_rate_bps).map(Some),
    }
}

/// An algorithm by its text, or `none`.
fn known_aqm(value: &str) -> Result<String, String> {
    aqm_of(value, None)?;
    Ok(value.to_owned())
}

/// The size of a buffer, or `switch`.
fn buffer(value: &str) -> Result<Buffer, String> {
    match value {
        SWITCH_BUFFER => Ok(Buffer::OfSwitch),
        size => Ok(Buffer::OfPort(at_least_one(units::bytes(size)?)?)),
    }
}

fn at_least_one(depth: u64) -> Result<u64, String> {
    if depth == 0 {
        return Err("a depth of 0 takes no packet".to_owned());
    }
    Ok(depth)
}

/// A share of the common buffer, in millionths: `2`, or `0.5`.
fn share_ppm(value: &str) -> Result<u32, String> {
    let share: Option<f64> = value.parse().ok();
    let most = f64::from(BUFFER_SHARE_MAX_PPM / BUFFER_SHARE_ONE_PPM);
    let share = share.filter(|share| (1e-6..=most).contains(share));
    let share =
        share.ok_or_else(|| format!("share '{value}' is not a number above 0, at most {most}"))?;
    // Within 32 bits.
    Ok((share * f64::from(BUFFER_SHARE_ONE_PPM)).round() as u32)
}

/// A number of queues.
///
/// # Errors
/// It is out of range.
pub fn count(value: &str) -> Result<usize, String> {
    let count = value.parse().ok();
    count
        .filter(|count| (1..=QUEUES_MAX).contains(count))
        .ok_or_else(|| format!("'{value}' is not 1 to {QUEUES_MAX} queues"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use traffic_manager::Scheduler;

    fn given(settings: &[(&str, &str)]) -> Result<QueueOptions, String> {
        let mut options = QueueOptions::default();
        for (key, value) in settings {
            assert!(options.take(key, value)?, "{key} is known");
        }
        Ok(options)
    }

    /// The queues of a port of 100 Mbit/s.
    fn config(options: Result<QueueOptions, String>) -> Result<QueueingConfig, String> {
        let settings = options?.settings(None)?;
        settings.expect("queues").config(Some(100_000_000))
    }

    #[test]
    fn each_queue_has_its_settings() {
        let options = given(&[
            ("q1.rate", "10mbit"),
            ("queues", "3"),
            ("q1.burst", "3KB"),
            ("q2.packets", "4294967296"),
            ("q2.fifo", "64KB"),
            ("q2.min", "2mbit"),
            ("q2.share", "0.5"),
            ("buffer", "1MB"),
        ]);
        let config = config(options).expect("valid");
        let rate = MaxRate::Bits {
            rate_bps: 10_000_000,
            burst_bytes: 3_072,
        };
        let expected = [
            QueueConfig::default(),
            QueueConfig {
                max_rate: Some(rate),
                ..QueueConfig::default()
            },
            QueueConfig {
                depth_bytes: Some(65_536),
                depth_packets: Some(1 << 32),
                min_rate_bps: Some(2_000_000),
                buffer_share_ppm: Some(500_000),
                ..QueueConfig::default()
            },
        ];
        assert_eq!(config.queues, expected);
        assert_eq!(config.buffer, Some(Buffer::OfPort(1 << 20)));
        assert_eq!(config.scheduler, Scheduler::Strict);
    }

    #[test]
    fn queues_have_shares_of_the_buffer_of_the_switch() {
        let options = given(&[("queues", "2"), ("buffer", "switch"), ("q1.share", "2")]);
        let config = config(options).expect("valid");
        assert_eq!(config.buffer, Some(Buffer::OfSwitch));
        assert_eq!(config.queues[1].buffer_share_ppm, Some(2_000_000));
    }

    #[test]
    fn a_queue_has_the_aqm_of_the_port_or_its_own() {
        let options = given(&[
            ("queues", "3"),
            ("aqm", "codel"),
            ("q1.aqm", "none"),
            ("q2.aqm", "pie:20ms"),
        ]);
        let config = config(options).expect("valid");
        let aqms: Vec<_> = config.queues.iter().map(|queue| queue.aqm).collect();
        let aqm = |text| Some(aqm::aqm(text, None).expect("valid"));
        assert_eq!(aqms, [aqm("codel"), None, aqm("pie:20ms")]);
    }

    #[test]
    fn the_option_of_the_switch_is_for_ports_that_say_nothing() {
        let queues = |settings: &[(&str, &str)], default| {
            let settings = given(settings).and_then(|options| options.settings(default));
            settings.expect("valid").map(|settings| settings.queues)
        };
        assert_eq!(queues(&[], None), None);
        assert_eq!(queues(&[], Some(8)), Some(8));
        assert_eq!(queues(&[("queues", "2")], Some(8)), Some(2));
    }

    #[test]
    fn errors_name_the_setting() {
        for (settings, expected) in [
            (&[("queues", "0")][..], "'0' is not 1 to 64 queues"),
            (&[("queues", "65")], "'65' is not 1 to 64 queues"),
            (&[("scheduler", "strict")], "scheduler: needs queues=N"),
            (&[("scheduler", "fair")], "'fair' is not strict, drr"),
            (
                &[("queues", "2"), ("scheduler", "wfq:1")],
                "1 weights for 2 queues, one for each expected",
            ),
            (
                &[("queues", "2"), ("scheduler", "drr:1:0")],
                "queue 1: weight 0 is not between 1 and 65536",
            ),
            (
                &[("queues", "3"), ("scheduler", "strict{q0+q2}")],
                "queue 1 is not in the scheduler; each queue of the port is there once",
            ),
            (
                &[("queues", "2"), ("scheduler", "wfq{q0+q1+q0}")],
                "queue 0 is in the scheduler twice; each queue of the port is there once",
            ),
            (
                &[("queues", "1"), ("scheduler", "wfq{q0+paced+paced}")],
                "paced is in the scheduler twice",
            ),
            (
                &[("queues", "1"), ("scheduler", "wfq{q0+paced:0}")],
                "paced: weight 0 is not between 1 and 65536",
            ),
            (
                &[("queues", "2"), ("scheduler", "wfq{q0+q1+q2}")],
                "the scheduler has queue 2; the port has queues 0 to 1",
            ),
            (
                &[("queues", "2"), ("scheduler", "wfq{q0+drr{q1}:0}")],
                "scheduler node 1: weight 0 is not between 1 and 65536",
            ),
            (&[("q1.rate", "1mbit")], "q1: needs queues=N"),
            (&[("q01.rate", "1mbit")], "'q01': write q1"),
            (&[("q+1.rate", "1mbit")], "'q+1': write q1"),
            (&[("queues", "2"), ("q2.rate", "1mbit")], "queues 0 to 1"),
            (&[("queues", "2"), ("q1.rate", "1kbit")], "queue 1: rate"),
            (
                &[("queues", "2"), ("q1.burst", "9KB")],
                "burst needs a rate",
            ),
            (
                &[("queues", "2"), ("q1.rate", "101mbit")],
                "q1: rate 101mbit is above the port's line rate of 100mbit",
            ),
            (
                &[("queues", "2"), ("q0.min", "60mbit"), ("q1.min", "60mbit")],
                "minimum rates together: rate 120mbit is above the port's line rate of 100mbit",
            ),
            (
                &[("queues", "2"), ("q0.min", "2mbit"), ("q0.rate", "1mbit")],
                "queue 0: minimum rate 2000000 bit/s is above its highest of 1000000",
            ),
            (&[("q1.share", "0")], "share '0' is not a number above 0"),
            (&[("buffer", "0")], "takes no packet"),
            (&[("buffer", "all")], "'all' is not a size"),
            (&[("buffer", "1MB")], "buffer: needs queues=N"),
            (
                &[("queues", "2"), ("q1.share", "2")],
                "queue 1: share: the port has no common buffer",
            ),
            (&[("q1.packets", "0")], "takes no packet"),
            (&[("q1.packets", "many")], "'many' is no number"),
            (
                &[("queues", "2"), ("q1.packets", "4294967297")],
                "queue 1: depth of 4294967297 packets is above 4294967296",
            ),
            (&[("aqm", "codel")], "aqm: needs queues=N"),
            (&[("q1.aqm", "cake")], "'cake' is not codel"),
            (&[("q1.aqm", "red:9:3:1")], "MIN of 9 bytes is not below"),
        ] {
            let error = config(given(settings)).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            given(&[]).expect("nothing").take("q1.colour", "red"),
            Ok(false)
        );
        assert_eq!(
            given(&[]).expect("nothing").take("colour", "red"),
            Ok(false)
        );
    }
}
