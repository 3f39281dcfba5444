//! Calls with any body, as a client without rights may send them: through the intake of a server.

use std::cell::OnceCell;

use http_body_util::{BodyExt, Full};
use tonic::Code;
use tonic::body::Body;
use tonic::transport::Channel;
use tower_service::Service;

use crate::write_request::{Stream, serve};

/// The calls, by the first byte of the input.
const CALLS: [&str; 11] = [
    "p4.v1.P4Runtime/Write",
    "p4.v1.P4Runtime/Read",
    "p4.v1.P4Runtime/SetForwardingPipelineConfig",
    "p4.v1.P4Runtime/GetForwardingPipelineConfig",
    "p4.v1.P4Runtime/Capabilities",
    "p4.v1.P4Runtime/StreamChannel",
    "pacer.v1.TrafficManager/SetPort",
    "pacer.v1.TrafficManager/GetStatistics",
    "pacer.v1.TrafficManager/ListPorts",
    "pacer.v1.TrafficManager/ListWriters",
    "pacer.v1.PacketTracing/DryRun",
];

thread_local! {
    /// A server with a primary controller and without a program; inputs follow each other on it.
    static RIG: OnceCell<Rig> = const { OnceCell::new() };
}

struct Rig {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    _primary: Stream,
}

/// Sends the bytes after the first one as the body of a call, with the envelope of gRPC in them.
pub fn call(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else {
        return;
    };
    let method = CALLS[usize::from(*which) % CALLS.len()];
    RIG.with(|rig| rig.get_or_init(Rig::new).run(method, body));
}

impl Rig {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (channel, _, primary) = runtime.block_on(serve());
        Self {
            runtime,
            channel,
            _primary: primary,
        }
    }

    fn run(&self, method: &str, body: &[u8]) {
        let mut channel = self.channel.clone();
        let body_is_plain = body.first().is_none_or(|flag| *flag == 0);
        let body = Body::new(Full::new(bytes::Bytes::copy_from_slice(body)));
        let request = http::Request::post(format!("http://switch/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body)
            .expect("a request");
        let status = self.runtime.block_on(async {
            std::future::poll_fn(|cx| channel.poll_ready(cx))
                .await
                .expect("the server lives");
            let response = channel.call(request).await.expect("an answer");
            let status = response.headers().get("grpc-status").cloned();
            let rest = response.into_body().collect().await;
            status.or_else(|| {
                let trailers = rest.ok()?.trailers().cloned()?;
                trailers.get("grpc-status").cloned()
            })
        });
        // A stream that the server ends has a status, too; one that the client ends may have none.
        let code = status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()));
        let broken = match code {
            // gRPC's answer to a compressed message in a call that does not announce compression.
            Code::Internal => body_is_plain,
            Code::Unavailable | Code::Unknown => true,
            _ => false,
        };
        assert!(
            !broken || method.ends_with("StreamChannel"),
            "{method}: {code:?}"
        );
    }
}
