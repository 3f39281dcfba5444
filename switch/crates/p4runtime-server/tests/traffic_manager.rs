//! The traffic manager's service over loopback.

#![allow(
    clippy::too_many_lines,
    reason = "a test is one conversation with the server, read from top to bottom"
)]

#[allow(dead_code)]
mod support;

use p4runtime_server::proto::pacer::v1 as pacer;
use pacer::traffic_manager_client::TrafficManagerClient;
use support::Server;
use tonic::Code;

#[tokio::test]
async fn ports_are_listed_changed_and_counted() {
    let server = Server::start().await;
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
            port: 1,
            line_rate_bps: Some(500_000_000),
            counts: Some(pacer::LineCounting::Layer2.into()),
            delay_ns: Some(100_000_000),
            ..Default::default()
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
            port: 1,
            remove_line_rate: true,
            ..Default::default()
        })
        .await
        .expect("changed")
        .into_inner();
    assert_eq!(unlimited.port.and_then(|port| port.line_rate_bps), None);

    // PAUSE frames in the gaps need a line rate; out of range or without one nothing changes.
    let pause = pacer::SetPortRequest {
        port: 1,
        gap_mode: Some(pacer::GapMode::PauseFrames.into()),
        ..Default::default()
    };
    let with_rate = pacer::SetPortRequest {
        line_rate_bps: Some(500_000_000),
        ..pause
    };
    for wrong in [
        pause,
        pacer::SetPortRequest {
            gap_frame_max_bytes: Some(59),
            ..with_rate
        },
        pacer::SetPortRequest {
            gap_frame_max_bytes: Some(9_217),
            ..with_rate
        },
    ] {
        let refused = client.set_port(wrong).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    for (longest, expected) in [(None, 1_514), (Some(60), 60), (None, 60)] {
        let changed = client
            .set_port(pacer::SetPortRequest {
                gap_frame_max_bytes: longest,
                ..with_rate
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
            port: 1,
            remove_line_rate: true,
            ..Default::default()
        })
        .await
        .expect_err("the gaps need it");
    assert_eq!(refused.code(), Code::InvalidArgument);

    let refused = client
        .set_port(pacer::SetPortRequest {
            port: 9,
            ..Default::default()
        })
        .await
        .expect_err("no such port");
    assert_eq!(refused.code(), Code::NotFound);
    let refused = client
        .set_port(pacer::SetPortRequest {
            port: 1,
            line_rate_bps: Some(0),
            ..Default::default()
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
