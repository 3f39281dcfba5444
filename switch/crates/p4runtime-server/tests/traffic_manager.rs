//! The traffic manager's service over loopback.

#![allow(
    clippy::too_many_lines,
    reason = "a test is one conversation with the server, read from top to bottom"
)]

#[allow(dead_code)]
mod support;

use p4runtime_server::executor;
use p4runtime_server::proto::p4::v1 as p4;
use p4runtime_server::proto::pacer::v1 as pacer;
use pacer::traffic_manager_client::TrafficManagerClient;
use prost::Message;
use support::{Controller, DEVICE, Server};
use switch::Switch;
use tonic::Code;
use traffic_manager::DropCount;

/// A change of port 1 by the primary controller of the default role.
fn change() -> pacer::SetPortRequest {
    pacer::SetPortRequest {
        port: 1,
        device_id: DEVICE,
        election_id: Some(pacer::ElectionId { high: 0, low: 1 }),
        ..Default::default()
    }
}

/// The number of refusals of the server for this cause.
async fn refusals(
    client: &mut TrafficManagerClient<tonic::transport::Channel>,
    cause: &str,
) -> u64 {
    let request = pacer::GetStatisticsRequest::default();
    let statistics = client.get_statistics(request).await.expect("read");
    let totals = statistics.into_inner().switch.expect("totals");
    let refusal = totals
        .refusals
        .iter()
        .find(|refusal| refusal.cause == cause);
    refusal.expect("a cause").count
}

#[tokio::test]
async fn only_a_primary_controller_changes_a_port() {
    let server = Server::start().await;
    let mut client = TrafficManagerClient::new(server.channel().await);
    let rate = |request| pacer::SetPortRequest {
        line_rate_bps: Some(8_000),
        ..request
    };
    let refused = client
        .set_port(rate(change()))
        .await
        .expect_err("nobody is");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut primary = Controller::open(&server).await;
    primary.arbitrate(1).await.expect("open");
    for (wrong, expected) in [
        (
            pacer::SetPortRequest {
                election_id: None,
                ..change()
            },
            Code::PermissionDenied,
        ),
        (
            pacer::SetPortRequest {
                election_id: Some(pacer::ElectionId { high: 1, low: 1 }),
                ..change()
            },
            Code::PermissionDenied,
        ),
        (
            pacer::SetPortRequest {
                device_id: DEVICE + 1,
                ..change()
            },
            Code::NotFound,
        ),
        (
            pacer::SetPortRequest {
                role: "nobody".to_owned(),
                ..change()
            },
            Code::NotFound,
        ),
    ] {
        let refused = client.set_port(rate(wrong)).await.expect_err("refused");
        assert_eq!(refused.code(), expected, "{refused:?}");
    }
    assert_eq!(refusals(&mut client, "not-primary").await, 5);
    let ports = client.list_ports(pacer::ListPortsRequest {}).await;
    let ports = ports.expect("listed").into_inner().ports;
    assert_eq!(ports[0].line_rate_bps, None);
    client.set_port(rate(change())).await.expect("changed");
    // A deposed controller changes nothing any more.
    let mut next = Controller::open(&server).await;
    next.arbitrate(2).await.expect("open");
    let refused = client.set_port(rate(change())).await.expect_err("deposed");
    assert_eq!(refused.code(), Code::PermissionDenied);
    server.stop().await;
}

#[tokio::test]
async fn the_switch_tells_whose_changes_it_accepted() {
    let server = Server::start().await;
    let mut client = TrafficManagerClient::new(server.channel().await);
    let mut first = Controller::open(&server).await;
    first.arbitrate(1).await.expect("open");
    client.set_port(change()).await.expect("changed");
    client.set_port(change()).await.expect("changed");
    let mut second = Controller::open(&server).await;
    second.arbitrate(2).await.expect("open");
    let refused = client.set_port(change()).await.expect_err("deposed");
    assert_eq!(refused.code(), Code::PermissionDenied);
    // Accepted from its sender, even if there is no program to write to.
    let refused = second.client.write(second.request(Vec::new())).await;
    let refused = refused.expect_err("no program");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let listed = client.list_writers(pacer::ListWritersRequest {}).await;
    let writer = |number, low, changes| pacer::Writer {
        number,
        role: String::new(),
        election_id: Some(pacer::ElectionId { high: 0, low }),
        address: "127.0.0.1".to_owned(),
        changes,
    };
    assert_eq!(
        listed.expect("listed").into_inner().writers,
        [writer(0, 1, 2), writer(1, 2, 1)]
    );
    server.stop().await;
}

#[tokio::test]
async fn a_role_with_a_config_needs_the_right_to_change_ports() {
    let server = Server::start().await;
    let mut client = TrafficManagerClient::new(server.channel().await);
    for ports in [false, true] {
        let controller = Controller::open(&server).await;
        let name = format!("ports-{ports}");
        let limits = pacer::RoleConfig {
            ports,
            ..Default::default()
        };
        let update = p4::MasterArbitrationUpdate {
            device_id: DEVICE,
            role: Some(p4::Role {
                name: name.clone(),
                config: Some(prost_types::Any {
                    type_url: "type.googleapis.com/pacer.v1.RoleConfig".to_owned(),
                    value: limits.encode_to_vec(),
                }),
                ..Default::default()
            }),
            election_id: Some(support::election(1)),
            status: None,
        };
        let mut controller = controller;
        controller
            .send(p4::stream_message_request::Update::Arbitration(update))
            .await;
        controller.arbitration().await.expect("open");
        let request = pacer::SetPortRequest {
            role: name,
            fifo_bytes: Some(9_000),
            ..change()
        };
        let changed = client.set_port(request).await;
        assert_eq!(changed.is_ok(), ports, "{changed:?}");
    }
    assert_eq!(refusals(&mut client, "role").await, 1);
    server.stop().await;
}

#[tokio::test]
async fn ports_are_listed_changed_and_counted() {
    let server = Server::start().await;
    let mut primary = Controller::open(&server).await;
    primary.arbitrate(1).await.expect("open");
    let mut client = TrafficManagerClient::new(server.channel().await);
    let ports = client
        .list_ports(pacer::ListPortsRequest {})
        .await
        .expect("listed")
        .into_inner()
        .ports;
    assert_eq!(
        ports.iter().map(|port| port.port).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(ports[0].line_rate_bps, None);

    let changed = client
        .set_port(pacer::SetPortRequest {
            line_rate_bps: Some(500_000_000),
            counts: Some(pacer::LineCounting::Layer2.into()),
            delay_ns: Some(100_000_000),
            ..change()
        })
        .await
        .expect("changed")
        .into_inner()
        .port
        .expect("port");
    assert_eq!(
        changed,
        pacer::Port {
            line_rate_bps: Some(500_000_000),
            counts: pacer::LineCounting::Layer2.into(),
            delay_ns: 100_000_000,
            ..ports[0].clone()
        }
    );
    let unlimited = client
        .set_port(pacer::SetPortRequest {
            remove_line_rate: true,
            ..change()
        })
        .await
        .expect("changed")
        .into_inner();
    assert_eq!(unlimited.port.and_then(|port| port.line_rate_bps), None);

    // PAUSE frames in the gaps need a line rate; out of range or without one nothing changes.
    let pause = pacer::SetPortRequest {
        gap_mode: Some(pacer::GapMode::PauseFrames.into()),
        ..change()
    };
    let with_rate = pacer::SetPortRequest {
        line_rate_bps: Some(500_000_000),
        ..pause.clone()
    };
    for wrong in [
        pause,
        pacer::SetPortRequest {
            gap_frame_max_bytes: Some(59),
            ..with_rate.clone()
        },
        pacer::SetPortRequest {
            gap_frame_max_bytes: Some(9_217),
            ..with_rate.clone()
        },
    ] {
        let refused = client.set_port(wrong).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    for (longest, expected) in [(None, 1_514), (Some(60), 60), (None, 60)] {
        let changed = client
            .set_port(pacer::SetPortRequest {
                gap_frame_max_bytes: longest,
                ..with_rate.clone()
            })
            .await
            .expect("changed")
            .into_inner()
            .port
            .expect("port");
        assert_eq!(changed.gap_mode(), pacer::GapMode::PauseFrames);
        assert_eq!(changed.gap_frame_max_bytes, expected);
    }
    let refused = client
        .set_port(pacer::SetPortRequest {
            remove_line_rate: true,
            ..change()
        })
        .await
        .expect_err("the gaps need it");
    assert_eq!(refused.code(), Code::InvalidArgument);

    let refused = client
        .set_port(pacer::SetPortRequest {
            port: 9,
            ..change()
        })
        .await
        .expect_err("no such port");
    assert_eq!(refused.code(), Code::NotFound);
    let refused = client
        .set_port(pacer::SetPortRequest {
            line_rate_bps: Some(0),
            ..change()
        })
        .await
        .expect_err("rate 0");
    assert_eq!(refused.code(), Code::InvalidArgument);

    let statistics = client
        .get_statistics(pacer::GetStatisticsRequest {
            class_ids: vec![7, 3],
        })
        .await
        .expect("read")
        .into_inner();
    // The controller's port, too.
    assert_eq!(statistics.ports.len(), 3);
    let classes: Vec<u32> = statistics.classes.iter().map(|c| c.class_id).collect();
    assert_eq!(classes, [7, 3]);
    let causes: Vec<String> = statistics
        .switch
        .expect("totals")
        .packet_in_drops
        .into_iter()
        .map(|drop| drop.cause)
        .collect();
    assert!(causes.contains(&"no-controller".to_owned()));
    let refused = client
        .get_statistics(pacer::GetStatisticsRequest {
            class_ids: vec![0; 4_097],
        })
        .await
        .expect_err("too many");
    assert_eq!(refused.code(), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test]
async fn egress_queues_are_set_read_and_removed() {
    let server = Server::start().await;
    let mut primary = Controller::open(&server).await;
    primary.arbitrate(1).await.expect("open");
    let mut client = TrafficManagerClient::new(server.channel().await);
    let queues = pacer::EgressQueues {
        queues: 3,
        scheduler: "wfq:4:2:1".to_owned(),
        aqm: "codel:5ms:100ms:ecn".to_owned(),
        buffer_bytes: Some(1_000_000),
        switch_buffer: false,
        settings: vec![pacer::EgressQueue {
            queue: 1,
            fifo_bytes: Some(65_536),
            fifo_packets: Some(64),
            rate_bps: Some(10_000_000),
            burst_bytes: Some(3_000),
            aqm: Some("none".to_owned()),
            rate_pps: None,
            min_rate_bps: Some(1_000_000),
            buffer_share_ppm: Some(500_000),
        }],
    };
    let set = |queues: &pacer::EgressQueues| pacer::SetPortRequest {
        egress_queues: Some(queues.clone()),
        ..change()
    };
    let request = pacer::SetPortRequest {
        line_rate_bps: Some(100_000_000),
        ..set(&queues)
    };
    let changed = client.set_port(request).await.expect("set").into_inner();
    let changed = changed.port.expect("a port");
    assert_eq!(changed.egress_queues.as_ref(), Some(&queues));
    let listed = client.list_ports(pacer::ListPortsRequest {}).await;
    let listed = listed.expect("listed").into_inner().ports;
    assert_eq!(listed[0], changed);
    assert_eq!(listed[1].egress_queues, None);
    // Other settings leave the queues.
    let request = pacer::SetPortRequest {
        fifo_bytes: Some(9_000),
        ..change()
    };
    let other = client.set_port(request).await.expect("set").into_inner();
    assert_eq!(
        other.port.and_then(|port| port.egress_queues).as_ref(),
        Some(&queues)
    );
    let one = |settings| pacer::EgressQueues {
        settings,
        ..queues.clone()
    };
    let first = queues.settings[0].clone();
    for (wrong, expected) in [
        (
            pacer::EgressQueues::default(),
            "port 1: egress_queues.queues: 0 given, 1 to 64 expected",
        ),
        (
            pacer::EgressQueues {
                scheduler: "drr:1:0:1".to_owned(),
                ..queues.clone()
            },
            "port 1: queue 1: weight 0 is not between 1 and 65536",
        ),
        (
            pacer::EgressQueues {
                aqm: "x".repeat(5_000),
                ..queues.clone()
            },
            "port 1: scheduler, aqm: at most 4096 characters expected",
        ),
        (
            pacer::EgressQueues {
                switch_buffer: true,
                ..queues.clone()
            },
            "port 1: egress_queues: buffer_bytes and switch_buffer given, only one of them expected",
        ),
        (
            one(vec![first.clone(), first.clone()]),
            "port 1: q1: given twice",
        ),
        (
            one(vec![pacer::EgressQueue {
                queue: 3,
                ..first.clone()
            }]),
            "port 1: q3: the port has queues 0 to 2",
        ),
        (
            one(vec![pacer::EgressQueue {
                fifo_packets: Some(0),
                ..first.clone()
            }]),
            "port 1: q1: fifo_packets: 0 given, at least 1 expected: a depth of 0 takes no packet",
        ),
        (
            one(vec![pacer::EgressQueue {
                fifo_packets: Some((1 << 32) + 1),
                ..first.clone()
            }]),
            "port 1: queue 1: depth of 4294967297 packets is above 4294967296",
        ),
        (
            one(vec![pacer::EgressQueue {
                rate_bps: Some(200_000_000),
                ..first.clone()
            }]),
            "port 1: q1: rate 200mbit is above the port's line rate of 100mbit",
        ),
        (
            one(vec![pacer::EgressQueue {
                rate_pps: Some(9),
                ..first.clone()
            }]),
            "port 1: q1: a rate in bit/s and one in packets/s given, only one of them expected",
        ),
    ] {
        let refused = client.set_port(set(&wrong)).await.expect_err(expected);
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(refused.message(), expected);
    }
    let shared = pacer::EgressQueues {
        buffer_bytes: None,
        switch_buffer: true,
        ..queues.clone()
    };
    let changed = client
        .set_port(set(&shared))
        .await
        .expect("set")
        .into_inner();
    assert_eq!(changed.port.expect("a port").egress_queues, Some(shared));
    let statistics = client.get_statistics(pacer::GetStatisticsRequest::default());
    let statistics = statistics.await.expect("read").into_inner();
    let buffer = statistics.switch.and_then(|switch| switch.buffer);
    assert_eq!(buffer.expect("a buffer").size_bytes, 1 << 20);
    client.set_port(set(&queues)).await.expect("set");
    let request = pacer::SetPortRequest {
        remove_egress_queues: true,
        ..set(&queues)
    };
    let refused = client.set_port(request).await.expect_err("both");
    assert!(refused.message().contains("only one of them expected"));
    let listed = client.list_ports(pacer::ListPortsRequest {}).await;
    let listed = listed.expect("listed").into_inner().ports;
    assert_eq!(listed[0].egress_queues.as_ref(), Some(&queues));
    let request = pacer::SetPortRequest {
        remove_egress_queues: true,
        ..change()
    };
    let without = client.set_port(request).await.expect("set").into_inner();
    assert_eq!(without.port.expect("a port").egress_queues, None);
    server.stop().await;
}

#[tokio::test]
async fn statistics_of_many_queues_let_other_jobs_pass() {
    let server = Server::start().await;
    let mut primary = Controller::open(&server).await;
    primary.arbitrate(1).await.expect("open");
    let mut client = TrafficManagerClient::new(server.channel().await);
    for port in [1, 2] {
        let queues = pacer::EgressQueues {
            queues: 64,
            ..Default::default()
        };
        let set = client.set_port(pacer::SetPortRequest {
            port,
            egress_queues: Some(queues),
            device_id: DEVICE,
            election_id: Some(pacer::ElectionId { high: 0, low: 1 }),
            ..Default::default()
        });
        set.await.expect("set");
    }
    let before = server.visits();
    let statistics = client.get_statistics(pacer::GetStatisticsRequest::default());
    let statistics = statistics.await.expect("read").into_inner();
    let queues: Vec<_> = statistics
        .ports
        .iter()
        .map(|port| port.queues.len())
        .collect();
    // The last is the controller's port.
    assert_eq!(queues, [64, 64, 0]);
    let numbers = statistics.ports[1].queues.iter().map(|queue| queue.queue);
    assert!(numbers.eq(0..64));
    // Eight queues in each visit where time is short.
    assert!(server.visits() - before >= 16, "{}", server.visits());
    let before = server.visits();
    let ports = client.list_ports(pacer::ListPortsRequest {});
    assert_eq!(ports.await.expect("listed").into_inner().ports.len(), 2);
    assert!(server.visits() - before >= 2, "{}", server.visits());
    server.stop().await;
}

#[tokio::test]
async fn statistics_have_the_traces_that_the_driver_lost() {
    let server = Server::start().await;
    let mut client = TrafficManagerClient::new(server.channel().await);
    let report = executor::once(|switch: &mut Switch| {
        let count = |cause, packets| DropCount { cause, packets };
        switch.report_lost_traces(vec![count("none", 0), count("trace-not-written", 3)]);
    });
    server.executor.execute(report).expect("queued");
    let statistics = client.get_statistics(pacer::GetStatisticsRequest::default());
    let statistics = statistics.await.expect("read").into_inner();
    let drops = statistics.switch.expect("totals").trace_drops;
    let lost = pacer::DropCount {
        cause: "trace-not-written".to_owned(),
        packets: 3,
    };
    assert_eq!(drops, [lost]);
    server.stop().await;
}
