//! The egress queues of a port, between `pacer.v1` and the words of the port's option.

use std::collections::BTreeMap;

use port_settings::{OneQueue, QueueSettings};
use traffic_manager::{Buffer, QUEUES_MAX};

use crate::proto::pacer::v1 as pacer;

/// Longest text of a scheduler or of active queue management.
const WORDS_BYTES_MAX: usize = 4_096;

/// The settings that a controller gives.
///
/// # Errors
/// A value is wrong; the text names field, value and what is expected. The switch checks words and rates.
pub(crate) fn settings(given: &pacer::EgressQueues) -> Result<QueueSettings, String> {
    let queues = usize::try_from(given.queues).unwrap_or(usize::MAX);
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(format!(
            "egress_queues.queues: {} given, 1 to {QUEUES_MAX} expected",
            given.queues
        ));
    }
    let buffer = buffer(given)?;
    let strict = QueueSettings::strict(queues);
    let mut of = BTreeMap::new();
    for queue in &given.settings {
        let number = queue.queue as usize;
        if number >= queues {
            return Err(format!(
                "q{number}: the port has queues 0 to {}",
                queues - 1
            ));
        }
        for (name, depth) in [
            ("fifo_bytes", queue.fifo_bytes),
            ("fifo_packets", queue.fifo_packets),
        ] {
            if depth == Some(0) {
                return Err(format!(
                    "q{number}: {name}: 0 given, at least 1 expected: a depth of 0 takes no packet"
                ));
            }
        }
        let settings = OneQueue {
            fifo_bytes: queue.fifo_bytes,
            fifo_packets: queue.fifo_packets,
            rate_bps: queue.rate_bps,
            burst_bytes: queue.burst_bytes,
            rate_pps: queue.rate_pps,
            min_rate_bps: queue.min_rate_bps,
            buffer_share_ppm: queue.buffer_share_ppm,
            aqm: queue.aqm.clone(),
        };
        if of.insert(number, settings).is_some() {
            return Err(format!("q{number}: given twice"));
        }
    }
    let own = given.settings.iter().filter_map(|queue| queue.aqm.as_ref());
    let longest = own
        .chain([&given.scheduler, &given.aqm])
        .map(String::len)
        .max();
    if longest > Some(WORDS_BYTES_MAX) {
        return Err(format!(
            "scheduler, aqm: at most {WORDS_BYTES_MAX} characters expected"
        ));
    }
    let word = |given: &str, default: String| match given {
        "" => default,
        given => given.to_owned(),
    };
    Ok(QueueSettings {
        scheduler: word(&given.scheduler, strict.scheduler),
        aqm: word(&given.aqm, strict.aqm),
        of,
        buffer,
        ..strict
    })
}

fn buffer(given: &pacer::EgressQueues) -> Result<Option<Buffer>, String> {
    match (given.buffer_bytes, given.switch_buffer) {
        (None, false) => Ok(None),
        (None, true) => Ok(Some(Buffer::OfSwitch)),
        (Some(0), false) => {
            Err("egress_queues.buffer_bytes: 0 given, at least 1 expected".to_owned())
        }
        (Some(bytes), false) => Ok(Some(Buffer::OfPort(bytes))),
        (Some(_), true) => Err(
            "egress_queues: buffer_bytes and switch_buffer given, only one of them expected"
                .to_owned(),
        ),
    }
}

/// The settings of a port, as they were given.
pub(crate) fn message(settings: &QueueSettings) -> pacer::EgressQueues {
    let of = settings
        .of
        .iter()
        .map(|(number, queue)| pacer::EgressQueue {
            // Both numbers are at most 64.
            queue: *number as u32,
            fifo_bytes: queue.fifo_bytes,
            fifo_packets: queue.fifo_packets,
            rate_bps: queue.rate_bps,
            burst_bytes: queue.burst_bytes,
            aqm: queue.aqm.clone(),
            rate_pps: queue.rate_pps,
            min_rate_bps: queue.min_rate_bps,
            buffer_share_ppm: queue.buffer_share_ppm,
        });
    pacer::EgressQueues {
        queues: settings.queues as u32,
        scheduler: settings.scheduler.clone(),
        aqm: settings.aqm.clone(),
        buffer_bytes: match settings.buffer {
            Some(Buffer::OfPort(bytes)) => Some(bytes),
            Some(Buffer::OfSwitch) | None => None,
        },
        switch_buffer: settings.buffer == Some(Buffer::OfSwitch),
        settings: of.collect(),
    }
}
