//! Rates and depths of egress queues, in packets as BMv2 counts them.

use port_settings::{OneQueue, QueueSettings};
use switch::Switch;

/// A packet at this rate takes no time that BMv2 counts.
const NS_PER_S: u64 = 1_000_000_000;

/// A setting of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Packets in a second; 0 for no limit.
    RatePps(u64),
    /// Packets that wait.
    DepthPackets(u64),
}

impl Setting {
    fn of_queue(self, queue: &mut OneQueue) {
        match self {
            Self::RatePps(pps) => {
                queue.rate_pps = (1..=NS_PER_S).contains(&pps).then_some(pps);
                queue.rate_bps = None;
                queue.burst_bytes = None;
            }
            Self::DepthPackets(packets) => {
                queue.fifo_bytes = Some(u64::MAX);
                queue.fifo_packets = Some(packets);
            }
        }
    }
}

/// The number of queues of a port.
fn count_of(switch: &Switch, port: u16) -> usize {
    switch.queues(port).map_or(1, |queues| queues.queues)
}

/// Sets a queue of a port, or of all ports (`None`); without a priority, all queues of the port. A port
/// that the switch does not have is ignored, as in BMv2, whose queues exist without ports. It has as
/// many as the port with the most.
///
/// # Errors
/// The port has no such queue: the text says which it has. Or the setting does not fit its others.
pub(crate) fn set(
    switch: &mut Switch,
    port: Option<i32>,
    priority: Option<i32>,
    setting: Setting,
) -> Result<(), String> {
    let ports = switch.lines().map(|(number, _)| number);
    let of: Vec<_> = ports
        .filter(|number| port.is_none_or(|port| port == i32::from(*number)))
        .collect();
    if let (Some(port), Some(priority), true) = (port, priority, of.is_empty()) {
        let counts = switch.lines().map(|(number, _)| count_of(switch, number));
        queue_of(port, priority, counts.max().unwrap_or(1))?;
    }
    for number in of {
        let count = count_of(switch, number);
        let queue = priority.map(|priority| queue_of(number.into(), priority, count));
        let queue = queue.transpose()?;
        // The FIFO of a port without queues counts bytes.
        let queues = switch.queues(number).cloned();
        let mut queues = queues.unwrap_or_else(|| QueueSettings::strict(1));
        for at in (0..count).filter(|at| queue.is_none_or(|queue| queue == *at)) {
            setting.of_queue(queues.of.entry(at).or_default());
        }
        let changed = switch.set_queues(number, Some(queues));
        changed.map_err(|error| format!("port {number}: {error}"))?;
    }
    Ok(())
}

/// The queue of a priority, among so many.
fn queue_of(port: i32, priority: i32, count: usize) -> Result<usize, String> {
    let queue = usize::try_from(priority).ok();
    queue
        .filter(|queue| *queue < count)
        .ok_or_else(|| match count {
            1 => format!("priority: {priority} given, 0 expected: port {port} has one queue"),
            _ => format!(
                "priority: {priority} given, 0 to {} expected: port {port} has {count} queues",
                count - 1
            ),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_a_queue_is_a_packet() {
        let mut queue = OneQueue {
            rate_bps: Some(8_000),
            ..OneQueue::default()
        };
        Setting::RatePps(1_000).of_queue(&mut queue);
        assert_eq!((queue.rate_pps, queue.rate_bps), (Some(1_000), None));
        for unlimited in [0, u64::MAX] {
            Setting::RatePps(unlimited).of_queue(&mut queue);
            assert_eq!(queue, OneQueue::default());
        }
        Setting::DepthPackets(64).of_queue(&mut queue);
        assert_eq!(queue.fifo_bytes, Some(u64::MAX));
        assert_eq!(queue.fifo_packets, Some(64));
    }
}
