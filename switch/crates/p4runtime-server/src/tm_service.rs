//! The service `pacer.v1.TrafficManager`: ports and statistics of the switch.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::controller_queue::ControllerCounters;
use crate::error::control_status;
use crate::executor::{self, Executor};
use crate::proto::pacer::v1 as pacer;

pub use switch::ports::*;

/// The gRPC service.
pub(crate) struct TrafficManagerService {
    executor: Arc<dyn Executor>,
    counters: Arc<ControllerCounters>,
}

impl TrafficManagerService {
    pub(crate) fn new(executor: Arc<dyn Executor>, counters: Arc<ControllerCounters>) -> Self {
        Self { executor, counters }
    }
}

#[tonic::async_trait]
impl pacer::traffic_manager_server::TrafficManager for TrafficManagerService {
    async fn list_ports(
        &self,
        _request: Request<pacer::ListPortsRequest>,
    ) -> Result<Response<pacer::ListPortsResponse>, Status> {
        let ports = executor::with(&*self.executor, |switch| switch.ports()).await?;
        Ok(Response::new(pacer::ListPortsResponse {
            ports: ports.into_iter().map(port_message).collect(),
        }))
    }

    async fn set_port(
        &self,
        request: Request<pacer::SetPortRequest>,
    ) -> Result<Response<pacer::SetPortResponse>, Status> {
        let request = request.into_inner();
        let change = checked_change(&request)?;
        let port = request.port;
        let settings = executor::with(&*self.executor, move |switch| {
            switch.set_port(port, &change)
        })
        .await?
        .map_err(|error| control_status(&error))?;
        Ok(Response::new(pacer::SetPortResponse {
            port: Some(port_message(settings)),
        }))
    }

    async fn get_statistics(
        &self,
        request: Request<pacer::GetStatisticsRequest>,
    ) -> Result<Response<pacer::GetStatisticsResponse>, Status> {
        let classes = request.into_inner().class_ids;
        if classes.len() > CLASSES_PER_REQUEST_MAX {
            return Err(Status::invalid_argument(format!(
                "class_ids: {} classes given, at most {CLASSES_PER_REQUEST_MAX} expected in one \
                 request",
                classes.len()
            )));
        }
        let statistics =
            executor::with(&*self.executor, move |switch| switch.statistics(&classes)).await?;
        Ok(Response::new(statistics_message(
            statistics,
            &self.counters,
        )))
    }
}

/// Checks the ranges of a `SetPort` request.
fn checked_change(request: &pacer::SetPortRequest) -> Result<PortChange, Status> {
    let port = request.port;
    let line_rate = match (request.line_rate_bps, request.remove_line_rate) {
        (Some(_), true) => {
            return Err(Status::invalid_argument(format!(
                "port {port}: line_rate_bps and remove_line_rate given, only one of them expected"
            )));
        }
        (Some(rate), false) => {
            if !(LINE_RATE_MIN_BPS..=LINE_RATE_MAX_BPS).contains(&rate) {
                return Err(Status::invalid_argument(format!(
                    "port {port}: line_rate_bps: {rate} given, {LINE_RATE_MIN_BPS} to \
                     {LINE_RATE_MAX_BPS} bit/s expected"
                )));
            }
            Some(LineRate::BitsPerSecond(rate))
        }
        (None, true) => Some(LineRate::Unlimited),
        (None, false) => None,
    };
    let counts = match request.counts {
        None => None,
        Some(value) => match pacer::LineCounting::try_from(value) {
            Ok(pacer::LineCounting::Layer2) => Some(LineCounting::Layer2),
            Ok(pacer::LineCounting::Wire) => Some(LineCounting::Wire),
            Ok(pacer::LineCounting::Unspecified) | Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "port {port}: counts: {value} given, LINE_COUNTING_LAYER2 (1) or \
                     LINE_COUNTING_WIRE (2) expected"
                )));
            }
        },
    };
    if request.fifo_bytes == Some(0) {
        return Err(Status::invalid_argument(format!(
            "port {port}: fifo_bytes: 0 given, at least 1 byte expected"
        )));
    }
    if let Some(delay_ns) = request.delay_ns.filter(|delay| *delay > DELAY_MAX_NS) {
        return Err(Status::invalid_argument(format!(
            "port {port}: delay_ns: {delay_ns} given, at most {DELAY_MAX_NS} ns expected"
        )));
    }
    let gap_mode = checked_gap_mode(request)?;
    Ok(PortChange {
        line_rate,
        counts,
        fifo_bytes: request.fifo_bytes,
        delay_ns: request.delay_ns,
        gap_mode,
    })
}

/// Checks what a `SetPort` request says of gaps.
fn checked_gap_mode(request: &pacer::SetPortRequest) -> Result<Option<GapMode>, Status> {
    let port = request.port;
    let longest_bytes = request.gap_frame_max_bytes;
    let gap_mode = match request.gap_mode {
        None => None,
        Some(value) => match pacer::GapMode::try_from(value) {
            Ok(pacer::GapMode::Accounted) => Some(GapMode::Accounted),
            Ok(pacer::GapMode::PauseFrames) => Some(GapMode::PauseFrames { longest_bytes }),
            Ok(pacer::GapMode::Unspecified) | Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "port {port}: gap_mode: {value} given, GAP_MODE_ACCOUNTED (1) or \
                     GAP_MODE_PAUSE_FRAMES (2) expected"
                )));
            }
        },
    };
    match (longest_bytes, gap_mode) {
        (Some(_), None | Some(GapMode::Accounted)) => Err(Status::invalid_argument(format!(
            "port {port}: gap_frame_max_bytes given, which needs GAP_MODE_PAUSE_FRAMES"
        ))),
        _ => Ok(gap_mode),
    }
}

fn port_message(settings: PortSettings) -> pacer::Port {
    pacer::Port {
        port: settings.port,
        interface: settings.interface,
        up: settings.up,
        line_rate_bps: match settings.line_rate {
            LineRate::Unlimited => None,
            LineRate::BitsPerSecond(rate) => Some(rate),
        },
        counts: match settings.counts {
            LineCounting::Layer2 => pacer::LineCounting::Layer2,
            LineCounting::Wire => pacer::LineCounting::Wire,
        }
        .into(),
        fifo_bytes: settings.fifo_bytes,
        delay_ns: settings.delay_ns,
        gap_mode: match settings.gap_mode {
            GapMode::Accounted => pacer::GapMode::Accounted,
            GapMode::PauseFrames { .. } => pacer::GapMode::PauseFrames,
        }
        .into(),
        gap_frame_max_bytes: match settings.gap_mode {
            GapMode::Accounted => 0,
            GapMode::PauseFrames { longest_bytes } => longest_bytes.unwrap_or(0),
        },
    }
}

fn drop_messages(drops: Vec<DropCount>) -> Vec<pacer::DropCount> {
    drops
        .into_iter()
        .map(|drop| pacer::DropCount {
            cause: drop.cause.to_owned(),
            packets: drop.packets,
        })
        .collect()
}

fn lateness_message(lateness: Lateness) -> pacer::Lateness {
    pacer::Lateness {
        buckets: lateness.buckets,
        max_ns: lateness.max_ns,
    }
}

fn attention_message(attention: Attention) -> pacer::Attention {
    pacer::Attention {
        gaps: Some(lateness_message(attention.gaps)),
        control_max_ns: attention.control_max_ns,
        stalls: attention.stalls.count,
        stalled_ns: attention.stalls.total_ns,
        stall_max_ns: attention.stalls.max_ns,
    }
}

fn statistics_message(
    statistics: Statistics,
    counters: &ControllerCounters,
) -> pacer::GetStatisticsResponse {
    let totals = statistics.switch;
    let losses = counters.losses();
    pacer::GetStatisticsResponse {
        switch: Some(pacer::SwitchStatistics {
            now_ns: totals.now_ns,
            rx_packets: totals.rx_packets,
            tx_packets: totals.tx_packets,
            held_packets: totals.held_packets,
            held_packets_limit: totals.held_packets_limit,
            drops: drop_messages(totals.drops),
            packet_in_drops: drop_messages(losses.packet_ins),
            packet_ins: counters.packet_ins(),
            notification_drops: drop_messages(losses.notifications),
            notifications: counters.notifications(),
            attention: Some(attention_message(totals.attention)),
        }),
        ports: statistics
            .ports
            .into_iter()
            .map(|port| pacer::PortStatistics {
                port: port.port,
                rx_packets: port.rx_packets,
                rx_bytes: port.rx_bytes,
                tx_packets: port.tx_packets,
                tx_bytes: port.tx_bytes,
                fifo_backlog_bytes: port.fifo_backlog_bytes,
                fifo_backlog_max_bytes: port.fifo_backlog_max_bytes,
                paced_backlog_bytes: port.paced_backlog_bytes,
                queued_packets: port.queued_packets,
                in_flight_packets: port.in_flight_packets,
                drops: drop_messages(port.drops),
                lateness: Some(lateness_message(port.lateness)),
                gaps: Some(pacer::Gaps {
                    buckets: port.gap_buckets,
                }),
                gap_frames: port.gap_frames,
                gap_bytes: port.gap_bytes,
            })
            .collect(),
        classes: statistics
            .classes
            .into_iter()
            .map(|class| pacer::ClassState {
                class_id: class.class_id,
                backlog_bytes: class.backlog_bytes,
                held_packets: class.held_packets,
                queues: class
                    .queues
                    .into_iter()
                    .map(|queue| pacer::ClassQueue {
                        port: queue.port,
                        backlog_bytes: queue.backlog_bytes,
                        held_packets: queue.held_packets,
                        release_ns: queue.release_ns,
                        release_frac: queue.release_frac,
                    })
                    .collect(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(request: pacer::SetPortRequest) -> String {
        let status = checked_change(&request).expect_err("refused");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        status.message().to_owned()
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let base = pacer::SetPortRequest {
            port: 3,
            ..Default::default()
        };
        for rate in [0, 7_999, 100_000_000_001] {
            let text = refusal(pacer::SetPortRequest {
                line_rate_bps: Some(rate),
                ..base
            });
            assert_eq!(
                text,
                format!("port 3: line_rate_bps: {rate} given, 8000 to 100000000000 bit/s expected")
            );
        }
        assert!(
            refusal(pacer::SetPortRequest {
                fifo_bytes: Some(0),
                ..base
            })
            .contains("fifo_bytes: 0 given")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                delay_ns: Some(DELAY_MAX_NS + 1),
                ..base
            })
            .contains("delay_ns")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                counts: Some(0),
                ..base
            })
            .contains("counts")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                line_rate_bps: Some(8_000),
                remove_line_rate: true,
                ..base
            })
            .contains("only one")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                gap_mode: Some(3),
                ..base
            })
            .contains("gap_mode: 3 given")
        );
        for gap_mode in [None, Some(pacer::GapMode::Accounted.into())] {
            assert!(
                refusal(pacer::SetPortRequest {
                    gap_mode,
                    gap_frame_max_bytes: Some(60),
                    ..base
                })
                .contains("needs GAP_MODE_PAUSE_FRAMES")
            );
        }
    }

    #[test]
    fn fields_that_are_not_given_change_nothing() {
        let change = checked_change(&pacer::SetPortRequest::default()).expect("accepted");
        assert_eq!(change, PortChange::default());
        let change = checked_change(&pacer::SetPortRequest {
            line_rate_bps: Some(LINE_RATE_MAX_BPS),
            delay_ns: Some(DELAY_MAX_NS),
            ..Default::default()
        })
        .expect("accepted");
        assert_eq!(
            change.line_rate,
            Some(LineRate::BitsPerSecond(LINE_RATE_MAX_BPS))
        );
        assert_eq!(change.delay_ns, Some(DELAY_MAX_NS));
    }
}
