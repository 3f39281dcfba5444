//! The statistics that end a run: for people on stderr, for programs as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use p4runtime_server::ControllerLosses;
use serde_json::{Map, Value, json};
use switch::Switch;
use switch::ports::{Attention, DropCount, Lateness, PortStatistics};

use crate::attention::STALL_NS;

/// For `--stats-file`. `losses`: what was for a controller and lost after the program sent it.
pub fn as_json(switch: &Switch, losses: &ControllerLosses) -> Value {
    let statistics = switch.statistics(&[]);
    let counters = switch.totals();
    json!({
        "now_ns": statistics.switch.now_ns,
        "rx_packets": statistics.switch.rx_packets,
        "tx_packets": statistics.switch.tx_packets,
        "parser_errors": counters.parser_errors,
        "packets_to_controller": counters.packets_to_controller,
        "packet_in_drops": drops(&lost(&losses.packet_ins)),
        "notification_drops": drops(&lost(&lost_notifications(switch, losses))),
        "packets_from_controller": counters.packets_from_controller,
        "drops": drops(&statistics.switch.drops),
        "attention": attention_json(&statistics.switch.attention),
        "ports": statistics
            .ports
            .iter()
            .map(|port| port_json(switch, port))
            .collect::<Vec<_>>(),
    })
}

fn attention_json(attention: &Attention) -> Value {
    json!({
        "gap_max_ns": attention.gaps.max_ns,
        "gap_buckets": attention.gaps.buckets,
        "control_max_ns": attention.control_max_ns,
        "stall_threshold_ns": STALL_NS,
        "stalls": attention.stalls.count,
        "stalled_ns": attention.stalls.total_ns,
        "stall_max_ns": attention.stalls.max_ns,
    })
}

fn port_json(switch: &Switch, port: &PortStatistics) -> Value {
    json!({
        "port": port.port,
        "interface": interface(switch, port),
        "rx_packets": port.rx_packets,
        "rx_bytes": port.rx_bytes,
        "tx_packets": port.tx_packets,
        "tx_bytes": port.tx_bytes,
        "drops": drops(&port.drops),
        "gap_frames": port.gap_frames,
        "gap_bytes": port.gap_bytes,
        "fifo_backlog_max_bytes": port.fifo_backlog_max_bytes,
        "lateness_max_ns": port.lateness.max_ns,
        "lateness_buckets": port.lateness.buckets,
        "gap_buckets": port.gap_buckets,
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
fn lost_notifications(switch: &Switch, losses: &ControllerLosses) -> Vec<DropCount> {
    let mut counts = losses.notifications.clone();
    counts.push(DropCount {
        cause: "digest-lists-full",
        packets: switch.totals().digests_lost,
    });
    counts
}

/// Without the causes for which nothing was lost.
fn lost(counts: &[DropCount]) -> Vec<DropCount> {
    counts
        .iter()
        .filter(|count| count.packets > 0)
        .cloned()
        .collect()
}

fn interface<'a>(switch: &'a Switch, port: &PortStatistics) -> &'a str {
    u16::try_from(port.port).map_or("", |number| match switch.interface(number) {
        "" => "controller",
        name => name,
    })
}

/// For people.
pub fn as_text(switch: &Switch, losses: &ControllerLosses) -> String {
    let statistics = switch.statistics(&[]);
    let mut text = String::from("pacing_switch: statistics\n");
    for port in &statistics.ports {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  port {:>3} {:<16} in {:>10} packets {:>14} bytes, out {:>10} packets {:>14} bytes, \
             FIFO at most {} bytes{}{}{}",
            port.port,
            interface(switch, port),
            port.rx_packets,
            port.rx_bytes,
            port.tx_packets,
            port.tx_bytes,
            port.fifo_backlog_max_bytes,
            gap_text(port),
            drop_text(&port.drops),
            lateness_text(&port.lateness),
        );
    }
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    let at_ports = statistics.ports.iter().flat_map(|port| &port.drops);
    for count in at_ports.chain(&statistics.switch.drops) {
        *all.entry(count.cause).or_default() += count.packets;
    }
    let all: Vec<DropCount> = all
        .into_iter()
        .map(|(cause, packets)| DropCount { cause, packets })
        .collect();
    let _ = writeln!(
        text,
        "  all      in {} packets, out {} packets{}",
        statistics.switch.rx_packets,
        statistics.switch.tx_packets,
        drop_text(&all)
    );
    text.push_str(&attention_text(&statistics.switch.attention));
    let counters = switch.totals();
    let lost_packets = lost(&losses.packet_ins);
    if counters.packets_to_controller > 0 || !lost_packets.is_empty() {
        let _ = writeln!(
            text,
            "  controller: {} packets for it{}",
            counters.packets_to_controller,
            drop_text(&lost_packets)
        );
    }
    let lost_notifications = lost(&lost_notifications(switch, losses));
    if !lost_notifications.is_empty() {
        let _ = writeln!(
            text,
            "  notifications (digest messages, idle entries){}",
            drop_text(&lost_notifications)
        );
    }
    text
}

/// PAUSE frames in the gaps, if there were any.
fn gap_text(port: &PortStatistics) -> String {
    if port.gap_frames == 0 {
        return String::new();
    }
    format!(
        ", {} PAUSE frames of {} bytes in all",
        port.gap_frames, port.gap_bytes
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

/// How closely departures were watched for; nothing where none were to come.
fn attention_text(attention: &Attention) -> String {
    let stalls = attention.stalls;
    if attention.gaps.max_ns == 0 && stalls.count == 0 {
        return String::new();
    }
    format!(
        "  time     between two looks at what is due: at most {} ns (control work: {} ns); the \
         machine stalled it {} times for {} us and more: {} us in all, at most {} us\n",
        attention.gaps.max_ns,
        attention.control_max_ns,
        stalls.count,
        STALL_NS / 1_000,
        stalls.total_ns / 1_000,
        stalls.max_ns / 1_000,
    )
}

/// Median and maximum; the histogram's buckets are powers of two.
fn lateness_text(lateness: &Lateness) -> String {
    let total: u64 = lateness.buckets.iter().sum();
    if total == 0 || lateness.max_ns == 0 {
        return String::new();
    }
    let mut seen = 0;
    let median = lateness
        .buckets
        .iter()
        .position(|count| {
            seen += count;
            seen * 2 >= total
        })
        .unwrap_or(0);
    let bound_ns = 1u64
        .checked_shl(u32::try_from(median).unwrap_or(63))
        .unwrap_or(u64::MAX);
    format!(
        ", late: median under {bound_ns} ns, at most {} ns",
        lateness.max_ns
    )
}

#[cfg(test)]
mod tests {
    use switch::SwitchConfig;
    use traffic_manager::Limits;

    use super::*;

    #[test]
    fn lost_packet_ins_are_reported_by_cause() {
        let switch = Switch::new(SwitchConfig::default(), Limits::default());
        let count = |cause, packets| DropCount { cause, packets };
        let counts = [count("no-controller", 3), count("controller-slow", 0)];
        let losses = ControllerLosses {
            packet_ins: counts.to_vec(),
            notifications: vec![count("queue-full", 2)],
        };
        let json = as_json(&switch, &losses);
        assert_eq!(json["packet_in_drops"], json!({"no-controller": 3}));
        assert_eq!(json["notification_drops"], json!({"queue-full": 2}));
        assert!(as_text(&switch, &losses).contains("drops: no-controller 3\n"));
        // Without a controller's port there is nothing to say.
        let nothing = ControllerLosses::default();
        assert!(!as_text(&switch, &nothing).contains("controller"));
    }
}
