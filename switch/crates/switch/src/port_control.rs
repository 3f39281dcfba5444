//! The ports as a control server sees them.

use crate::ports::{
    ClassQueue, ClassState, DropCount, GapMode, Lateness, LineCounting, LineRate, PortChange,
    PortSettings, PortStatistics, Statistics, SwitchStatistics,
};
use traffic_manager::{
    DropCounters, GAP_FRAME_DEFAULT_BYTES, Gaps, PortConfig, RateCounts, TimeHistogram,
};
use v1model::entries::{ControlError, ControlResult};

use crate::switch::Switch;

/// Frame check sequence.
const FCS_BYTES: u64 = 4;

fn drop_counts(counters: &DropCounters) -> Vec<DropCount> {
    counters
        .iter()
        .filter(|(_, packets)| *packets > 0)
        .map(|(cause, packets)| DropCount {
            cause: cause.as_str(),
            packets,
        })
        .collect()
}

fn lateness(paced: &TimeHistogram, unpaced: &TimeHistogram) -> Lateness {
    Lateness {
        buckets: paced
            .buckets()
            .iter()
            .zip(unpaced.buckets())
            .map(|(paced, unpaced)| paced + unpaced)
            .collect(),
        max_ns: paced.max_ns().max(unpaced.max_ns()),
    }
}

impl Switch {
    fn settings(&self, port: u16, config: &PortConfig) -> PortSettings {
        PortSettings {
            port: u32::from(port),
            interface: self.interface(port).to_owned(),
            up: self.traffic_manager().is_port_up(port),
            line_rate: config
                .line_rate_bps
                .map_or(LineRate::Unlimited, LineRate::BitsPerSecond),
            counts: match config.counts {
                RateCounts::Layer2 => LineCounting::Layer2,
                RateCounts::Wire => LineCounting::Wire,
            },
            fifo_bytes: config.fifo_bytes,
            delay_ns: config.delay_ns,
            gap_mode: match config.gaps {
                Gaps::Accounted => GapMode::Accounted,
                Gaps::PauseFrames { longest_bytes } => GapMode::PauseFrames {
                    longest_bytes: Some(longest_bytes),
                },
            },
        }
    }

    fn class_state(&self, class: u32) -> ClassState {
        let queues: Vec<ClassQueue> = self
            .traffic_manager()
            .ports()
            .filter_map(|(port, _)| {
                let queue = self.traffic_manager().queue(port, class)?;
                Some(ClassQueue {
                    port: u32::from(port),
                    backlog_bytes: queue.bytes,
                    held_packets: u64::from(queue.packets),
                    release_ns: queue.release_ns,
                    release_frac: queue.release_fraction,
                })
            })
            .collect();
        ClassState {
            class_id: class,
            backlog_bytes: self.traffic_manager().class_backlog_bytes(class),
            held_packets: queues.iter().map(|queue| queue.held_packets).sum(),
            queues,
        }
    }
}

impl Switch {
    /// All ports with their settings, by port number.
    pub fn ports(&self) -> Vec<PortSettings> {
        self.traffic_manager()
            .ports()
            .filter(|(port, _)| self.config().cpu_port != Some(*port))
            .map(|(port, config)| self.settings(port, config))
            .collect()
    }

    /// Changes a port's settings and returns them. All or nothing.
    ///
    /// # Errors
    /// `NotFound`: no such port. `InvalidArgument`: values that do not go together.
    pub fn set_port(&mut self, port: u32, change: &PortChange) -> ControlResult<PortSettings> {
        let unknown = || ControlError::NotFound(format!("this switch has no port {port}"));
        let number = u16::try_from(port)
            .ok()
            .filter(|number| self.config().cpu_port != Some(*number))
            .ok_or_else(unknown)?;
        let mut config = *self
            .traffic_manager()
            .port_config(number)
            .ok_or_else(unknown)?;
        match change.line_rate {
            Some(LineRate::Unlimited) => config.line_rate_bps = None,
            Some(LineRate::BitsPerSecond(rate_bps)) => config.line_rate_bps = Some(rate_bps),
            None => {}
        }
        match change.counts {
            Some(LineCounting::Layer2) => config.counts = RateCounts::Layer2,
            Some(LineCounting::Wire) => config.counts = RateCounts::Wire,
            None => {}
        }
        config.fifo_bytes = change.fifo_bytes.unwrap_or(config.fifo_bytes);
        config.delay_ns = change.delay_ns.unwrap_or(config.delay_ns);
        config.gaps = match (change.gap_mode, config.gaps) {
            (None, before) => before,
            (Some(GapMode::Accounted), _) => Gaps::Accounted,
            (Some(GapMode::PauseFrames { longest_bytes }), before) => Gaps::PauseFrames {
                longest_bytes: longest_bytes.unwrap_or(match before {
                    Gaps::PauseFrames { longest_bytes } => longest_bytes,
                    Gaps::Accounted => GAP_FRAME_DEFAULT_BYTES,
                }),
            },
        };
        self.change_port(number, config)
            .map_err(|error| ControlError::InvalidArgument(error.to_string()))?;
        Ok(self.settings(number, &config))
    }

    /// Statistics of the switch, its ports and the given classes (at most
    /// [`CLASSES_PER_REQUEST_MAX`](crate::ports::CLASSES_PER_REQUEST_MAX); a class that never held a
    /// packet has all zeros).
    pub fn statistics(&self, class_ids: &[u32]) -> Statistics {
        let manager = self.traffic_manager();
        let whole = manager.statistics();
        let ports: Vec<PortStatistics> = manager
            .ports()
            .filter_map(|(port, _)| {
                let statistics = manager.port_statistics(port)?;
                let received = self.received(port);
                Some(PortStatistics {
                    port: u32::from(port),
                    rx_packets: received.packets,
                    rx_bytes: received.bytes,
                    tx_packets: statistics.tx_packets,
                    // The traffic manager counts frames with FCS, this interface without.
                    tx_bytes: statistics
                        .tx_bytes
                        .saturating_sub(FCS_BYTES * statistics.tx_packets),
                    fifo_backlog_bytes: statistics.fifo_bytes,
                    fifo_backlog_max_bytes: statistics.fifo_bytes_max,
                    paced_backlog_bytes: statistics.paced_bytes,
                    queued_packets: statistics.queued_packets,
                    in_flight_packets: statistics.delay_line_packets,
                    drops: drop_counts(&statistics.drops),
                    lateness: lateness(&statistics.paced_lateness, &statistics.unpaced_lateness),
                    gap_frames: statistics.gap_frames,
                    gap_bytes: statistics
                        .gap_bytes
                        .saturating_sub(FCS_BYTES * statistics.gap_frames),
                    gap_buckets: statistics.gaps.buckets().to_vec(),
                })
            })
            .collect();
        Statistics {
            switch: SwitchStatistics {
                now_ns: self.now_ns(),
                rx_packets: ports.iter().map(|port| port.rx_packets).sum(),
                tx_packets: ports.iter().map(|port| port.tx_packets).sum(),
                held_packets: whole.held_packets,
                held_packets_limit: manager.limits().max_held_packets as u64,
                drops: drop_counts(&whole.drops),
                attention: self.attention().clone(),
            },
            ports,
            classes: class_ids
                .iter()
                .map(|class| self.class_state(*class))
                .collect(),
        }
    }
}
