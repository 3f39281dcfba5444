//! The service `pacer.v1.TrafficManager`: ports and statistics of the switch.

use std::sync::Arc;

use switch::{Polling, Switch};
use tonic::{Request, Response, Status};
use traffic_manager::{
    DELAY_MAX_NS, DropCount, GAP_FRAME_DEFAULT_BYTES, Gaps, LINE_RATE_MAX_BPS, LINE_RATE_MIN_BPS,
    PortConfig, RateCounts, TimeHistogram,
};

use crate::arbitration::election_message;
use crate::egress_queues;
use crate::executor;
use crate::intake::caller;
use crate::proto::p4::v1 as p4;
use crate::proto::pacer::v1 as pacer;
use crate::roles::Scope;
use crate::shared::Shared;
use crate::writers::Span;

/// Most classes whose state one request may ask for.
const CLASSES_PER_REQUEST_MAX: usize = 4_096;

/// Egress queues whose statistics are read between two looks at the end of the visit: a few
/// microseconds of work.
const QUEUES_PER_LOOK: usize = 8;
/// Ports at which a class's queue is looked for between two such looks.
const PORTS_PER_LOOK: usize = 64;

/// The gRPC service.
pub(crate) struct TrafficManagerService {
    shared: Arc<Shared>,
}

impl TrafficManagerService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl pacer::traffic_manager_server::TrafficManager for TrafficManagerService {
    async fn list_ports(
        &self,
        _request: Request<pacer::ListPortsRequest>,
    ) -> Result<Response<pacer::ListPortsResponse>, Status> {
        let mut ports = Vec::new();
        let listed = executor::reading_in_visits(&*self.shared.executor, move |visit| {
            loop {
                let switch = &*visit.switch;
                // A port that is gone meanwhile is not listed, and one that is new is.
                let after = ports.last().map(|port: &pacer::Port| port.port);
                let next = switch
                    .lines()
                    .find(|(port, _)| after.is_none_or(|after| u32::from(*port) > after));
                let Some((port, config)) = next else {
                    return Some(std::mem::take(&mut ports));
                };
                ports.push(port_message(switch, port, config));
                if visit.is_over() {
                    return None;
                }
            }
        });
        let ports = listed.await?;
        Ok(Response::new(pacer::ListPortsResponse { ports }))
    }

    async fn set_port(
        &self,
        request: Request<pacer::SetPortRequest>,
    ) -> Result<Response<pacer::SetPortResponse>, Status> {
        let client = caller(&request)?.client;
        let request = request.into_inner();
        let shared = Arc::clone(&self.shared);
        let election_id = request
            .election_id
            .map(|pacer::ElectionId { high, low }| p4::Uint128 { high, low });
        shared.check_primary(
            client.standing,
            request.device_id,
            &request.role,
            election_id.as_ref(),
        )?;
        // A task of its own, as for a write, so that it completes even if the client disconnects.
        let task = tokio::spawn(async move {
            // Changes of one controller come one after another, as it sends them.
            let _state = shared.pipeline.write().await;
            let _changing = shared.begin(
                client,
                request.device_id,
                &request.role,
                election_id.as_ref(),
            )?;
            let what = "change the settings of ports";
            shared.check_role(&request.role, Scope::may_set_ports, what)?;
            shared.note_writer(client, &request.role, election_id.as_ref());
            executor::with(&*shared.executor, move |switch| set_port(switch, &request)).await?
        });
        let port = task
            .await
            .map_err(|error| Status::internal(format!("the change was cut short: {error}")))??;
        Ok(Response::new(pacer::SetPortResponse { port: Some(port) }))
    }

    async fn list_writers(
        &self,
        _request: Request<pacer::ListWritersRequest>,
    ) -> Result<Response<pacer::ListWritersResponse>, Status> {
        let sessions = self.shared.sessions();
        let writers = sessions.writers.spans().map(writer_message).collect();
        Ok(Response::new(pacer::ListWritersResponse { writers }))
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
        let shared = Arc::clone(&self.shared);
        let mut reading = Reading::new(classes);
        let statistics = executor::reading_in_visits(&*self.shared.executor, move |visit| {
            while reading.read_piece(visit.switch, |switch| totals_message(switch, &shared)) {
                if visit.is_over() {
                    return None;
                }
            }
            reading.answer.take()
        });
        Ok(Response::new(statistics.await?))
    }
}

fn writer_message(span: &Span) -> pacer::Writer {
    let p4::Uint128 { high, low } = election_message(span.election_id);
    pacer::Writer {
        number: span.number,
        role: span.role.clone(),
        election_id: Some(pacer::ElectionId { high, low }),
        address: span.address.to_string(),
        changes: span.changes,
    }
}

fn set_port(switch: &mut Switch, request: &pacer::SetPortRequest) -> Result<pacer::Port, Status> {
    let line = switch
        .lines()
        .find(|(port, _)| u32::from(*port) == request.port);
    let Some((port, before)) = line else {
        return Err(Status::not_found(format!(
            "this switch has no port {}",
            request.port
        )));
    };
    let config = changed(request, *before)?;
    let refuse = |error: String| Status::invalid_argument(format!("port {port}: {error}"));
    let queues = match (&request.egress_queues, request.remove_egress_queues) {
        (Some(_), true) => {
            return Err(refuse(
                "egress_queues and remove_egress_queues given, only one of them expected"
                    .to_owned(),
            ));
        }
        (Some(given), false) => Some(egress_queues::settings(given).map_err(refuse)?),
        (None, true) => None,
        (None, false) => switch.queues(port).cloned(),
    };
    switch
        .configure_port(port, config, queues)
        .map_err(|error| refuse(error.to_string()))?;
    Ok(port_message(switch, port, &config))
}

/// A port's settings after a `SetPort` request; its values are checked.
fn changed(request: &pacer::SetPortRequest, mut config: PortConfig) -> Result<PortConfig, Status> {
    let port = request.port;
    let refuse = |what: String| Err(Status::invalid_argument(format!("port {port}: {what}")));
    match (request.line_rate_bps, request.remove_line_rate) {
        (Some(_), true) => {
            return refuse(
                "line_rate_bps and remove_line_rate given, only one of them expected".to_owned(),
            );
        }
        (Some(rate_bps), false) if !(LINE_RATE_MIN_BPS..=LINE_RATE_MAX_BPS).contains(&rate_bps) => {
            return refuse(format!(
                "line_rate_bps: {rate_bps} given, {LINE_RATE_MIN_BPS} to {LINE_RATE_MAX_BPS} \
                 bit/s expected"
            ));
        }
        (Some(rate_bps), false) => config.line_rate_bps = Some(rate_bps),
        (None, true) => config.line_rate_bps = None,
        (None, false) => {}
    }
    if let Some(counts) = request.counts {
        config.counts = match pacer::LineCounting::try_from(counts) {
            Ok(pacer::LineCounting::Layer2) => RateCounts::Layer2,
            Ok(pacer::LineCounting::Wire) => RateCounts::Wire,
            Ok(pacer::LineCounting::Unspecified) | Err(_) => {
                return refuse(format!(
                    "counts: {counts} given, LINE_COUNTING_LAYER2 (1) or LINE_COUNTING_WIRE (2) \
                     expected"
                ));
            }
        };
    }
    config.fifo_bytes = match request.fifo_bytes {
        Some(0) => return refuse("fifo_bytes: 0 given, at least 1 byte expected".to_owned()),
        given => given.unwrap_or(config.fifo_bytes),
    };
    config.delay_ns = match request.delay_ns {
        Some(delay_ns) if delay_ns > DELAY_MAX_NS => {
            return refuse(format!(
                "delay_ns: {delay_ns} given, at most {DELAY_MAX_NS} ns expected"
            ));
        }
        given => given.unwrap_or(config.delay_ns),
    };
    let gap_mode = request.gap_mode.map(pacer::GapMode::try_from);
    let longest_bytes = request.gap_frame_max_bytes;
    config.gaps = match (gap_mode, longest_bytes, config.gaps) {
        (Some(Ok(pacer::GapMode::Unspecified) | Err(_)), _, _) => {
            return refuse(format!(
                "gap_mode: {} given, GAP_MODE_ACCOUNTED (1) or GAP_MODE_PAUSE_FRAMES (2) expected",
                request.gap_mode.unwrap_or_default()
            ));
        }
        (None | Some(Ok(pacer::GapMode::Accounted)), Some(_), _) => {
            return refuse(
                "gap_frame_max_bytes given, which needs GAP_MODE_PAUSE_FRAMES".to_owned(),
            );
        }
        (None, None, before) => before,
        (Some(Ok(pacer::GapMode::Accounted)), None, _) => Gaps::Accounted,
        (Some(Ok(pacer::GapMode::PauseFrames)), given, before) => Gaps::PauseFrames {
            longest_bytes: given.unwrap_or(match before {
                Gaps::PauseFrames { longest_bytes } => longest_bytes,
                Gaps::Accounted => GAP_FRAME_DEFAULT_BYTES,
            }),
        },
    };
    Ok(config)
}

fn port_message(switch: &Switch, port: u16, config: &PortConfig) -> pacer::Port {
    let (gap_mode, gap_frame_max_bytes) = match config.gaps {
        Gaps::Accounted => (pacer::GapMode::Accounted, 0),
        Gaps::PauseFrames { longest_bytes } => (pacer::GapMode::PauseFrames, longest_bytes),
    };
    pacer::Port {
        port: port.into(),
        interface: switch.interface(port).to_owned(),
        up: switch.traffic_manager().is_port_up(port),
        line_rate_bps: config.line_rate_bps,
        counts: match config.counts {
            RateCounts::Layer2 => pacer::LineCounting::Layer2,
            RateCounts::Wire => pacer::LineCounting::Wire,
        }
        .into(),
        fifo_bytes: config.fifo_bytes,
        delay_ns: config.delay_ns,
        gap_mode: gap_mode.into(),
        gap_frame_max_bytes,
        egress_queues: switch.queues(port).map(egress_queues::message),
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

fn lateness_message(times: &TimeHistogram) -> pacer::Lateness {
    pacer::Lateness {
        buckets: times.buckets().to_vec(),
        max_ns: times.max_ns(),
    }
}

fn polling_message(polling: &Polling) -> pacer::Polling {
    pacer::Polling {
        intervals: Some(lateness_message(&polling.intervals)),
        control_max_ns: polling.control_max_ns,
        stalls: polling.stalls.count,
        stalled_ns: polling.stalls.total_ns,
        stall_max_ns: polling.stalls.max_ns,
    }
}

/// Statistics that are read in pieces of a few microseconds of work.
struct Reading {
    /// The classes whose state is still to be read.
    classes: std::vec::IntoIter<u32>,
    /// `None`: nothing is read yet.
    answer: Option<pacer::GetStatisticsResponse>,
    has_ports: bool,
    /// Whether the last class of the answer has its queues at all ports.
    has_class: bool,
    /// The last port at which its queue was looked for.
    class_port: Option<u16>,
}

impl Reading {
    fn new(classes: Vec<u32>) -> Self {
        Self {
            classes: classes.into_iter(),
            answer: None,
            has_ports: false,
            has_class: true,
            class_port: None,
        }
    }

    /// Reads the next piece; false: the answer is complete. The first piece is `totals`, without ports and
    /// classes. A port that is gone between two pieces is not in the answer.
    fn read_piece(
        &mut self,
        switch: &Switch,
        totals: impl FnOnce(&Switch) -> pacer::GetStatisticsResponse,
    ) -> bool {
        let Some(answer) = &mut self.answer else {
            let mut answer = totals(switch);
            // Here, because a copy of what is read so far would take longer than a piece.
            answer
                .ports
                .reserve(switch.traffic_manager().ports().count());
            answer.classes.reserve(self.classes.len());
            self.answer = Some(answer);
            return true;
        };
        if !self.has_ports {
            self.has_ports = !add_port(switch, answer);
            if !self.has_ports {
                return true;
            }
        }
        let manager = switch.traffic_manager();
        if self.has_class {
            let Some(class) = self.classes.next() else {
                return false;
            };
            let held = manager.class_held(class);
            answer.classes.push(pacer::ClassState {
                class_id: class,
                backlog_bytes: held.bytes,
                held_packets: held.packets,
                queues: Vec::new(),
            });
            self.class_port = None;
        }
        let Some(class) = answer.classes.last_mut() else {
            return false;
        };
        let after = self.class_port;
        let ports = manager.ports().map(|(port, _)| port);
        let ports = ports.filter(|port| after.is_none_or(|after| *port > after));
        let mut looked = 0;
        for port in ports.take(PORTS_PER_LOOK) {
            looked += 1;
            self.class_port = Some(port);
            let queue = manager.queue(port, class.class_id);
            class.queues.extend(queue.map(|queue| pacer::ClassQueue {
                port: port.into(),
                backlog_bytes: queue.bytes,
                held_packets: queue.packets.into(),
                release_ns: queue.release_ns,
                release_frac: queue.release_fraction,
            }));
        }
        self.has_class = looked < PORTS_PER_LOOK;
        true
    }
}

/// Adds the next few queues of the answer's last port, or the next port; false: there are no more.
fn add_port(switch: &Switch, answer: &mut pacer::GetStatisticsResponse) -> bool {
    let last = answer.ports.last_mut();
    let after = last.as_ref().map(|port| port.port);
    if last.is_some_and(|port| add_queues(switch, port)) {
        return true;
    }
    let mut ports = port_messages(switch, after);
    let Some(port) = ports.next() else {
        return false;
    };
    if let Some(totals) = &mut answer.switch {
        totals.rx_packets += port.rx_packets;
        totals.tx_packets += port.tx_packets;
    }
    answer.ports.push(port);
    true
}

/// The statistics of the switch, without ports and classes.
fn totals_message(switch: &Switch, shared: &Shared) -> pacer::GetStatisticsResponse {
    let manager = switch.traffic_manager();
    let whole = manager.statistics();
    let counters = &shared.counters;
    let losses = counters.losses();
    let refusals = shared.refusals.counts().into_iter();
    pacer::GetStatisticsResponse {
        switch: Some(pacer::SwitchStatistics {
            now_ns: switch.now_ns(),
            // The sums of the ports in the answer, added with them.
            rx_packets: 0,
            tx_packets: 0,
            held_packets: whole.held_packets,
            held_packets_limit: manager.limits().max_held_packets as u64,
            buffer: whole.buffer.map(|buffer| pacer::BufferStatistics {
                size_bytes: buffer.size_bytes,
                backlog_bytes: buffer.bytes,
                backlog_max_bytes: buffer.bytes_max,
            }),
            drops: drop_messages(whole.drops.counts()),
            packet_in_drops: drop_messages(losses.packet_ins),
            packet_ins: counters.packet_ins(),
            notification_drops: drop_messages(losses.notifications),
            notifications: counters.notifications(),
            polling: Some(polling_message(switch.polling())),
            refusals: refusals
                .map(|refusal| pacer::RefusalCount {
                    cause: refusal.cause.to_owned(),
                    count: refusal.count,
                })
                .collect(),
            trace_drops: drop_messages(switch.lost_traces()),
        }),
        ports: Vec::new(),
        classes: Vec::new(),
    }
}

/// The statistics of the ports after one, without queues.
fn port_messages(
    switch: &Switch,
    after: Option<u32>,
) -> impl Iterator<Item = pacer::PortStatistics> {
    switch
        .port_statistics()
        .filter(move |(port, ..)| after.is_none_or(|after| u32::from(*port) > after))
        .map(|(port, received, counted)| pacer::PortStatistics {
            port: port.into(),
            rx_packets: received.packets,
            rx_bytes: received.bytes,
            tx_packets: counted.tx_packets,
            tx_bytes: counted.tx_frame_bytes(),
            fifo_backlog_bytes: counted.fifo_bytes,
            fifo_backlog_max_bytes: counted.fifo_bytes_max,
            paced_backlog_bytes: counted.paced_bytes,
            queued_packets: counted.queued_packets,
            in_flight_packets: counted.delay_line_packets,
            drops: drop_messages(counted.drops.counts()),
            lateness: Some(lateness_message(&counted.lateness())),
            gaps: Some(pacer::Gaps {
                buckets: counted.gaps.buckets().to_vec(),
            }),
            gap_frames: counted.gap_frames,
            gap_bytes: counted.gap_frame_bytes(),
            queues: Vec::new(),
        })
}

/// Adds the statistics of the next few egress queues of a port; false: there are no more.
fn add_queues(switch: &Switch, port: &mut pacer::PortStatistics) -> bool {
    let Ok(number) = u16::try_from(port.port) else {
        return false;
    };
    let known = port.queues.len();
    let queues = switch.traffic_manager().queue_statistics(number);
    port.queues
        .extend(
            (0..)
                .zip(queues)
                .skip(known)
                .take(QUEUES_PER_LOOK)
                .map(|(number, queue)| pacer::QueueStatistics {
                    queue: number,
                    backlog_packets: queue.packets,
                    backlog_max_packets: queue.packets_max,
                    backlog_bytes: queue.bytes,
                    backlog_max_bytes: queue.bytes_max,
                    tx_packets: queue.tx_packets,
                    tx_bytes: queue.tx_bytes,
                    drops: drop_messages(queue.drops.counts()),
                    sojourn: Some(pacer::Sojourn {
                        buckets: queue.sojourn.buckets().to_vec(),
                        max_ns: queue.sojourn.max_ns(),
                    }),
                    marked_packets: queue.marked_packets,
                }),
        );
    port.queues.len() > known
}

#[cfg(test)]
mod tests {
    use switch::SwitchConfig;
    use traffic_manager::Limits;

    use super::*;

    const BEFORE: PortConfig = PortConfig {
        line_rate_bps: Some(1_000_000),
        counts: RateCounts::Wire,
        fifo_bytes: 1,
        delay_ns: 2,
        gaps: Gaps::PauseFrames { longest_bytes: 99 },
    };

    fn refusal(request: pacer::SetPortRequest) -> String {
        let status = changed(&request, BEFORE).expect_err("refused");
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
                ..base.clone()
            });
            assert_eq!(
                text,
                format!("port 3: line_rate_bps: {rate} given, 8000 to 100000000000 bit/s expected")
            );
        }
        assert!(
            refusal(pacer::SetPortRequest {
                fifo_bytes: Some(0),
                ..base.clone()
            })
            .contains("fifo_bytes: 0 given")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                delay_ns: Some(DELAY_MAX_NS + 1),
                ..base.clone()
            })
            .contains("delay_ns")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                counts: Some(0),
                ..base.clone()
            })
            .contains("counts")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                line_rate_bps: Some(8_000),
                remove_line_rate: true,
                ..base.clone()
            })
            .contains("only one")
        );
        assert!(
            refusal(pacer::SetPortRequest {
                gap_mode: Some(3),
                ..base.clone()
            })
            .contains("gap_mode: 3 given")
        );
        for gap_mode in [None, Some(pacer::GapMode::Accounted.into())] {
            assert!(
                refusal(pacer::SetPortRequest {
                    gap_mode,
                    gap_frame_max_bytes: Some(60),
                    ..base.clone()
                })
                .contains("needs GAP_MODE_PAUSE_FRAMES")
            );
        }
    }

    #[test]
    fn statistics_of_many_ports_are_read_port_by_port() {
        let mut switch = Switch::new(SwitchConfig::default(), Limits::default());
        for port in 1..=200 {
            let added = switch.add_port(port, &format!("veth{port}"), BEFORE);
            added.expect("a new port");
        }
        let totals = |_: &Switch| pacer::GetStatisticsResponse::default();
        let mut reading = Reading::new(vec![7, 3]);
        let mut pieces = 0;
        while reading.read_piece(&switch, totals) {
            let answer = reading.answer.as_ref().expect("begun");
            assert_eq!(answer.ports.len(), pieces.min(200));
            pieces += 1;
        }
        let answer = reading.answer.expect("complete");
        assert!(answer.ports.iter().map(|port| port.port).eq(1..=200));
        let classes = answer.classes.iter().map(|class| class.class_id);
        assert!(classes.eq([7, 3]));
        // The totals, the ports, and each class at 64 ports at a time.
        assert_eq!(pieces, 1 + 200 + 2 * 4);
    }

    #[test]
    fn fields_that_are_not_given_change_nothing() {
        let config = changed(&pacer::SetPortRequest::default(), BEFORE).expect("accepted");
        assert_eq!(config, BEFORE);
        let request = pacer::SetPortRequest {
            line_rate_bps: Some(LINE_RATE_MAX_BPS),
            delay_ns: Some(DELAY_MAX_NS),
            gap_mode: Some(pacer::GapMode::PauseFrames.into()),
            ..Default::default()
        };
        let expected = PortConfig {
            line_rate_bps: Some(LINE_RATE_MAX_BPS),
            delay_ns: DELAY_MAX_NS,
            ..BEFORE
        };
        assert_eq!(changed(&request, BEFORE).expect("accepted"), expected);
    }
}
