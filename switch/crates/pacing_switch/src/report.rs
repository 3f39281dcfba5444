//! The statistics at the end of a run: for people on stderr, for programs as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use p4runtime_server::{ControllerLosses, RefusalCount};
use serde_json::{Map, Value, json};
use switch::{Polling, Received, Switch, Trains};
use traffic_manager::{DropCount, PortStatistics, QueueStatistics, TimeHistogram};

use crate::real_time::STALL_NS;

/// The losses on the way to controllers, and the refusals on the way from them.
#[derive(Debug, Default)]
pub struct Losses {
    /// Messages of the program to a controller that were lost on the way.
    pub controllers: ControllerLosses,
    /// Refusals of the control servers.
    pub refusals: Vec<RefusalCount>,
}

/// For `--stats-file`.
pub fn as_json(switch: &Switch, losses: &Losses) -> Value {
    let counters = switch.totals();
    let (rx_packets, tx_packets) = packets(switch);
    let whole = switch.traffic_manager().statistics();
    json!({
        "now_ns": switch.now_ns(),
        "rx_packets": rx_packets,
        "tx_packets": tx_packets,
        "parser_errors": counters.parser_errors,
        "packets_to_controller": counters.packets_to_controller,
        "packet_in_drops": drops(&lost(&losses.controllers.packet_ins)),
        "notification_drops": drops(&lost(&lost_notifications(switch, losses))),
        "trace_drops": drops(&switch.lost_traces()),
        "refusals": losses
            .refusals
            .iter()
            .filter(|refusal| refusal.count > 0)
            .map(|refusal| (refusal.cause.to_owned(), json!(refusal.count)))
            .collect::<Map<_, _>>(),
        "packets_from_controller": counters.packets_from_controller,
        "drops": drops(&whole.drops.counts()),
        "buffer": whole.buffer.map(|buffer| json!({
            "size_bytes": buffer.size_bytes,
            "backlog_max_bytes": buffer.bytes_max,
        })),
        "polling": polling_json(switch.polling()),
        "ports": switch
            .port_statistics()
            .map(|(port, received, counted)| port_json(switch, port, received, counted))
            .collect::<Vec<_>>(),
    })
}

/// Packets that came in and went out, on all ports.
fn packets(switch: &Switch) -> (u64, u64) {
    switch
        .port_statistics()
        .fold((0, 0), |(rx, tx), (_, received, counted)| {
            (rx + received.packets, tx + counted.tx_packets)
        })
}

fn polling_json(polling: &Polling) -> Value {
    json!({
        "interval_max_ns": polling.intervals.max_ns(),
        "interval_buckets": polling.intervals.buckets().to_vec(),
        "control_max_ns": polling.control_max_ns,
        "stall_threshold_ns": STALL_NS,
        "stalls": polling.stalls.count,
        "stalled_ns": polling.stalls.total_ns,
        "stall_max_ns": polling.stalls.max_ns,
    })
}

fn port_json(switch: &Switch, port: u16, received: Received, counted: &PortStatistics) -> Value {
    let lateness = counted.lateness();
    let trains = switch.trains(port);
    json!({
        "port": port,
        "interface": interface(switch, port),
        "rx_packets": received.packets,
        "rx_bytes": received.bytes,
        "rx_trains": trains.received,
        "tx_packets": counted.tx_packets,
        "tx_bytes": counted.tx_frame_bytes(),
        "tx_trains": trains.sent,
        "drops": drops(&counted.drops.counts()),
        "gap_frames": counted.gap_frames,
        "gap_bytes": counted.gap_frame_bytes(),
        "fifo_backlog_max_bytes": counted.fifo_bytes_max,
        "lateness_max_ns": lateness.max_ns(),
        "lateness_buckets": lateness.buckets().to_vec(),
        "gap_buckets": counted.gaps.buckets().to_vec(),
        "queues": (0..)
            .zip(switch.traffic_manager().queue_statistics(port))
            .map(|(number, queue)| queue_json(number, queue))
            .collect::<Vec<_>>(),
    })
}

fn queue_json(number: u32, queue: &QueueStatistics) -> Value {
    json!({
        "queue": number,
        "tx_packets": queue.tx_packets,
        "tx_bytes": queue.tx_bytes,
        "drops": drops(&queue.drops.counts()),
        "marked_packets": queue.marked_packets,
        "backlog_max_packets": queue.packets_max,
        "backlog_max_bytes": queue.bytes_max,
        "sojourn_max_ns": queue.sojourn.max_ns(),
        "sojourn_buckets": queue.sojourn.buckets().to_vec(),
    })
}

fn drops(counts: &[DropCount]) -> Value {
    Value::Object(
        counts
            .iter()
            .map(|count| (count.cause.to_owned(), json!(count.packets)))
            .collect::<Map<_, _>>(),
    )
}

/// Digest messages and idle entries lost, in the switch and after it.
fn lost_notifications(switch: &Switch, losses: &Losses) -> Vec<DropCount> {
    let mut counts = losses.controllers.notifications.clone();
    counts.push(DropCount {
        cause: "digest-lists-full",
        packets: switch.totals().digests_lost,
    });
    counts
}

/// The causes of losses.
fn lost(counts: &[DropCount]) -> Vec<DropCount> {
    counts
        .iter()
        .filter(|count| count.packets > 0)
        .cloned()
        .collect()
}

fn interface(switch: &Switch, port: u16) -> &str {
    match switch.interface(port) {
        "" => "controller",
        name => name,
    }
}

/// For people.
pub fn as_text(switch: &Switch, losses: &Losses) -> String {
    let mut text = String::from("pacing_switch: statistics\n");
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    let mut count_all = |counts: &[DropCount]| {
        for count in counts {
            *all.entry(count.cause).or_default() += count.packets;
        }
    };
    for (port, received, counted) in switch.port_statistics() {
        let drops = counted.drops.counts();
        count_all(&drops);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  port {port:>3} {:<16} in {:>10} packets {:>14} bytes, out {:>10} packets {:>14} \
             bytes, FIFO at most {} bytes{}{}{}{}",
            interface(switch, port),
            received.packets,
            received.bytes,
            counted.tx_packets,
            counted.tx_frame_bytes(),
            counted.fifo_bytes_max,
            train_text(switch.trains(port)),
            gap_text(counted),
            drop_text(&drops),
            lateness_text(&counted.lateness()),
        );
    }
    let whole = switch.traffic_manager().statistics();
    count_all(&whole.drops.counts());
    let all: Vec<DropCount> = all
        .into_iter()
        .map(|(cause, packets)| DropCount { cause, packets })
        .collect();
    let (rx_packets, tx_packets) = packets(switch);
    let _ = writeln!(
        text,
        "  all      in {rx_packets} packets, out {tx_packets} packets{}",
        drop_text(&all)
    );
    if let Some(buffer) = whole.buffer {
        let _ = writeln!(
            text,
            "  buffer of the switch: at most {} of {} bytes",
            buffer.bytes_max, buffer.size_bytes
        );
    }
    text.push_str(&polling_text(switch.polling()));
    let counters = switch.totals();
    let lost_packets = lost(&losses.controllers.packet_ins);
    if counters.packets_to_controller > 0 || !lost_packets.is_empty() {
        let _ = writeln!(
            text,
            "  controller: {} packets to it{}",
            counters.packets_to_controller,
            drop_text(&lost_packets)
        );
    }
    let refused: Vec<String> = losses
        .refusals
        .iter()
        .filter(|refusal| refusal.count > 0)
        .map(|refusal| format!("{} {}", refusal.cause, refusal.count))
        .collect();
    if !refused.is_empty() {
        let _ = writeln!(text, "  refused control: {}", refused.join(", "));
    }
    let lost_notifications = lost(&lost_notifications(switch, losses));
    if !lost_notifications.is_empty() {
        let _ = writeln!(
            text,
            "  notifications (digest messages, idle entries){}",
            drop_text(&lost_notifications)
        );
    }
    let lost_traces = switch.lost_traces();
    if !lost_traces.is_empty() {
        let _ = writeln!(text, "  packet traces{}", drop_text(&lost_traces));
    }
    text
}

/// Trains, if there were any.
fn train_text(trains: Trains) -> String {
    if trains == Trains::default() {
        return String::new();
    }
    let Trains { received, sent } = trains;
    format!(", trains in {received}, out {sent}")
}

/// PAUSE frames in the gaps, if there were any.
fn gap_text(port: &PortStatistics) -> String {
    if port.gap_frames == 0 {
        return String::new();
    }
    format!(
        ", {} PAUSE frames ({} bytes)",
        port.gap_frames,
        port.gap_frame_bytes()
    )
}

fn drop_text(counts: &[DropCount]) -> String {
    if counts.is_empty() {
        return ", no drops".to_owned();
    }
    let causes: Vec<String> = counts
        .iter()
        .map(|count| format!("{} {}", count.cause, count.packets))
        .collect();
    format!(", drops: {}", causes.join(", "))
}

/// The measurements of polling; empty if no packet waited for its departure.
fn polling_text(polling: &Polling) -> String {
    let stalls = polling.stalls;
    let longest_ns = polling.intervals.max_ns();
    if longest_ns == 0 && stalls.count == 0 {
        return String::new();
    }
    format!(
        "  polling  at most {longest_ns} ns between two polls ({} ns for control work); the machine \
         stalled the switch {} times for {} us or more: {} us in all, at most {} us\n",
        polling.control_max_ns,
        stalls.count,
        STALL_NS / 1_000,
        stalls.total_ns / 1_000,
        stalls.max_ns / 1_000,
    )
}

/// Median and maximum; the histogram's buckets are powers of two.
fn lateness_text(lateness: &TimeHistogram) -> String {
    let (total, max_ns) = (lateness.count(), lateness.max_ns());
    if max_ns == 0 {
        return String::new();
    }
    let mut seen = 0;
    let buckets = lateness.buckets();
    let median = buckets.iter().position(|count| {
        seen += count;
        seen * 2 >= total
    });
    let bound_ns = median.and_then(TimeHistogram::bucket_end_ns);
    format!(
        ", late: median under {} ns, at most {max_ns} ns",
        bound_ns.unwrap_or(u64::MAX)
    )
}

#[cfg(test)]
mod tests {
    use switch::SwitchConfig;
    use traffic_manager::Limits;

    use super::*;

    #[test]
    fn lost_packet_ins_are_reported_by_cause() {
        let mut switch = Switch::new(SwitchConfig::default(), Limits::default());
        let count = |cause, packets| DropCount { cause, packets };
        switch.report_lost_traces(vec![
            count("trace-not-written", 5),
            count("trace-writer-slow", 0),
        ]);
        let counts = [count("no-controller", 3), count("controller-slow", 0)];
        let refused = |cause, count| RefusalCount { cause, count };
        let losses = Losses {
            controllers: ControllerLosses {
                packet_ins: counts.to_vec(),
                notifications: vec![count("queue-full", 2)],
            },
            refusals: vec![refused("not-primary", 4), refused("role", 0)],
        };
        let json = as_json(&switch, &losses);
        assert_eq!(json["packet_in_drops"], json!({"no-controller": 3}));
        assert_eq!(json["notification_drops"], json!({"queue-full": 2}));
        assert!(as_text(&switch, &losses).contains("drops: no-controller 3\n"));
        assert_eq!(json["refusals"], json!({"not-primary": 4}));
        assert!(as_text(&switch, &losses).contains("refused control: not-primary 4\n"));
        assert_eq!(json["trace_drops"], json!({"trace-not-written": 5}));
        assert!(as_text(&switch, &losses).contains("packet traces, drops: trace-not-written 5\n"));
        // Without a controller's port there is no such line.
        let nothing = Losses::default();
        assert!(!as_text(&switch, &nothing).contains("controller"));
    }
}
