//! The checks before every call: the caller's credentials, the size of the message, and the limits of
//! all calls together. A message is decoded only after these checks.
//!
//! A decoded message takes many times more memory than its encoding. So the fields that identify the
//! sender are read first, without the rest ([`Claims`]), and repeated fields are counted.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_service::Service;

use crate::answer;
use crate::connections::Peer;
use crate::proto::p4::v1 as p4;
use crate::refusals::Refusal;
use crate::shared::Shared;
use crate::standing::{Client, Standing, refused_beside_holders};

/// Bytes before a message: the compression flag, and the length.
const PREFIX_BYTES: usize = 5;
/// Longest time for a client to send the message of a call.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for a client to send a pipeline config.
const PIPELINE_LIMIT: Duration = Duration::from_secs(60);
/// Largest message of the other calls: a request for statistics names at most 4,096 classes.
const SMALL_BYTES: usize = 64 << 10;

/// The limits of a method's requests.
#[derive(Debug, Clone, Copy)]
struct Method {
    /// Longest request, in bytes.
    most_bytes: usize,
    /// Longest time for the request to arrive.
    limit: Duration,
    /// Whether the request changes something, and so has claims.
    has_claims: bool,
    /// A repeated field: its number, its name, and the largest number of its values.
    repeated: Option<(u64, &'static str, usize)>,
}

/// The fields of a request for a change that identify its sender. Other fields are left out.
#[derive(Clone, PartialEq, Message)]
struct Claims {
    #[prost(uint64, tag = "1")]
    device_id: u64,
    #[prost(message, optional, tag = "3")]
    election_id: Option<p4::Uint128>,
    #[prost(string, tag = "6")]
    role: String,
}

/// The shares of the server's limits that a call holds until its client has taken the answer.
#[derive(Debug)]
pub(crate) struct Taken {
    _call: OwnedSemaphorePermit,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// The caller of a call, for its handler.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    /// Kept as long as the request. `None`: a stream, which has limits of its own.
    pub(crate) taken: Option<Arc<Taken>>,
}

/// The caller of a call, from the intake.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    debug_assert!(caller.is_some(), "every call goes through the intake");
    caller.ok_or_else(|| Status::internal("the call did not go through the intake"))
}

/// The limits of all calls of one standing together.
#[derive(Debug, Clone)]
struct Pool {
    calls: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl Pool {
    fn new(calls: usize, bytes: usize) -> Self {
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            calls: semaphore(calls),
            bytes: semaphore(bytes),
        }
    }
}

/// The pools of holders and of strangers. A stranger's call never counts against the holders' pool.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    holders: Pool,
    strangers: Pool,
}

impl Pools {
    pub(crate) fn new(limits: &crate::shared::ServerLimits) -> Self {
        Self {
            holders: Pool::new(limits.calls, limits.bytes),
            strangers: Pool::new(limits.stranger_calls, limits.stranger_bytes),
        }
    }
}

/// A gRPC service with its intake. `unary` serves calls whose whole message has arrived and has been
/// checked; `streams` serves streams, message by message.
#[derive(Clone)]
pub(crate) struct Intake<U, S> {
    shared: Arc<Shared>,
    pools: Pools,
    unary: U,
    streams: S,
}

impl<U, S> Intake<U, S> {
    pub(crate) fn new(shared: Arc<Shared>, pools: Pools, unary: U, streams: S) -> Self {
        Self {
            shared,
            pools,
            unary,
            streams,
        }
    }
}

impl<U: NamedService, S> NamedService for Intake<U, S> {
    const NAME: &'static str = U::NAME;
}

type Request = http::Request<Body>;
type Response = http::Response<Body>;
type Answer = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl<U, S> Service<Request> for Intake<U, S>
where
    U: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    U::Future: Send,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The generated services are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request) -> Answer {
        let Self {
            shared,
            pools,
            mut unary,
            mut streams,
        } = self.clone();
        Box::pin(async move {
            let client = match identify(&shared, &request) {
                Ok(client) => client,
                Err(status) => return Ok(status.into_http()),
            };
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            if name == "StreamChannel" {
                let caller = Caller {
                    client,
                    taken: None,
                };
                request.extensions_mut().insert(caller);
                return streams.call(request).await;
            }
            let method = method(&shared, name);
            match take_in(&shared, &pools, client, method, request).await {
                Ok((request, taken)) => {
                    let response = unary.call(request).await?;
                    Ok(response.map(|body| answer::holding(body, taken)))
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

/// The limits of a method's requests.
fn method(shared: &Shared, name: &str) -> Method {
    let limits = &shared.config.limits;
    let plain = Method {
        most_bytes: SMALL_BYTES,
        limit: MESSAGE_LIMIT,
        has_claims: false,
        repeated: None,
    };
    match name {
        "Write" => Method {
            most_bytes: limits.message_bytes,
            has_claims: true,
            repeated: Some((4, "updates", limits.updates_per_write)),
            ..plain
        },
        "Read" => Method {
            most_bytes: limits.read_bytes,
            repeated: Some((2, "entities", limits.entities_per_read)),
            ..plain
        },
        "SetForwardingPipelineConfig" => Method {
            most_bytes: limits.pipeline_bytes,
            limit: PIPELINE_LIMIT,
            has_claims: true,
            ..plain
        },
        _ => plain,
    }
}

/// The client of a call, from its token and its connection.
fn identify(shared: &Shared, request: &Request) -> Result<Client, Status> {
    let Some(peer) = request.extensions().get::<Peer>() else {
        debug_assert!(false, "every connection has a client");
        return Err(Status::internal("the connection has no client"));
    };
    let refuse = |text: &str| {
        shared.refusals.count(Refusal::NoCredentials);
        Err(Status::unauthenticated(text.to_owned()))
    };
    let of = |standing| {
        Ok(Client {
            standing,
            address: peer.address,
        })
    };
    let given = request.headers().get(http::header::AUTHORIZATION);
    if let (Some(given), Some(token)) = (given, &shared.config.token) {
        let given = given.as_bytes().strip_prefix(b"Bearer ");
        if !given.is_some_and(|given| token.is(given)) {
            return refuse(
                "authorization: \"Bearer\" and the token of this switch expected (the file \"token\" \
                 in its state folder)",
            );
        }
        if peer.is_private {
            peer.become_holder();
            return of(Standing::Holder);
        }
        return refuse(
            "authorization: a token without TLS can be read on the way; connect with TLS, and make a \
             new token",
        );
    }
    if let Some(standing) = peer.standing {
        return of(standing);
    }
    refuse(
        "a client on another machine needs TLS with a client certificate or token of this switch; they \
         are in its state folder (client.pem, client-key.pem, authority.pem, token)",
    )
}

/// Receives the message of a call within all limits, and checks its sender. Returns the call with its
/// message in one piece.
async fn take_in(
    shared: &Shared,
    pools: &Pools,
    client: Client,
    method: Method,
    request: Request,
) -> Result<(Request, Arc<Taken>), Status> {
    let pool = match client.standing {
        Standing::Holder => &pools.holders,
        Standing::Stranger => &pools.strangers,
    };
    let refuse = |refusal, status| {
        shared.refusals.count(refusal);
        Err(status)
    };
    // Before its message comes: a pipeline config has megabytes, and memory for them takes time from the
    // thread that paces.
    if method.has_claims && !shared.may_act(client.standing) {
        return refuse(Refusal::NotPrimary, refused_beside_holders("change it"));
    }
    let Ok(call) = Arc::clone(&pool.calls).try_acquire_owned() else {
        return refuse(
            Refusal::CallsFull,
            Status::resource_exhausted("the limit of calls at once is reached; try again"),
        );
    };
    let (mut head, body) = request.into_parts();
    let collecting = collect(shared, pool, method, body);
    let collected = tokio::time::timeout(method.limit, collecting).await;
    let Ok(collected) = collected else {
        let text = format!(
            "the request did not come within {} s",
            method.limit.as_secs()
        );
        return refuse(Refusal::RequestSlow, Status::deadline_exceeded(text));
    };
    let (message, bytes) = collected?;
    check(shared, client.standing, method, &message)?;
    let taken = Arc::new(Taken {
        _call: call,
        _bytes: bytes,
    });
    head.extensions.insert(Caller {
        client,
        taken: Some(Arc::clone(&taken)),
    });
    let body = Body::new(Full::new(message));
    Ok((http::Request::from_parts(head, body), taken))
}

/// Reads a body as it arrives. No memory is reserved for an announced length.
async fn collect(
    shared: &Shared,
    pool: &Pool,
    method: Method,
    mut body: Body,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Status> {
    let mut message = BytesMut::new();
    let mut taken: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        // The client has disconnected, or has violated the protocol.
        let frame = frame.map_err(|status| Status::new(Code::Cancelled, status.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let more = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&pool.bytes).try_acquire_many_owned(more) else {
            shared.refusals.count(Refusal::BytesFull);
            return Err(Status::resource_exhausted(
                "the limit of bytes of all calls together is reached; try again",
            ));
        };
        match &mut taken {
            Some(taken) => taken.merge(more),
            None => taken = Some(more),
        }
        message.extend_from_slice(&data);
        let announced = announced(&message).unwrap_or(0);
        if message.len().max(announced) > method.most_bytes.saturating_add(PREFIX_BYTES) {
            shared.refusals.count(Refusal::MessageTooLong);
            return Err(Status::out_of_range(format!(
                "a message of more than {} bytes, the limit of this call",
                method.most_bytes
            )));
        }
    }
    Ok((message.freeze(), taken))
}

/// The length of a body of one message, from its prefix.
fn announced(body: &[u8]) -> Option<usize> {
    let length = body.get(1..PREFIX_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length))
        .ok()?
        .checked_add(PREFIX_BYTES)
}

/// Checks the length, the repeated field and the claims of a message before it is decoded.
fn check(shared: &Shared, standing: Standing, method: Method, body: &Bytes) -> Result<(), Status> {
    if announced(body) != Some(body.len()) {
        return Err(Status::invalid_argument(format!(
            "one message expected; its length is {} bytes and {:?} are announced",
            body.len(),
            announced(body)
        )));
    }
    let message = body.slice(PREFIX_BYTES..);
    if let Some((number, name, most)) = method.repeated {
        let count = count_field(&message, number)?;
        if count > most {
            return Err(Status::invalid_argument(format!(
                "{name}: {count} given, at most {most} expected in one request"
            )));
        }
    }
    if method.has_claims {
        let claims = Claims::decode(message).map_err(malformed)?;
        shared.check_primary(
            standing,
            claims.device_id,
            &claims.role,
            claims.election_id.as_ref(),
        )?;
    }
    Ok(())
}

fn malformed(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("not the message of this call: {error}"))
}

/// The number of occurrences of a field in a message. In the encoding of Protocol Buffers, a field is
/// a number and a type, then a value that implies its length.
fn count_field(message: &[u8], wanted: u64) -> Result<usize, Status> {
    let mut rest = message;
    let mut count = 0;
    while rest.has_remaining() {
        let key = varint(&mut rest)?;
        count += usize::from(key >> 3 == wanted);
        let bytes = match key & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => varint(&mut rest)?,
            5 => 4,
            other => return Err(malformed(format!("wire type {other}"))),
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        rest = rest
            .get(bytes..)
            .ok_or_else(|| malformed("a field ends after the message"))?;
    }
    Ok(count)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Status> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        if !rest.has_remaining() {
            break;
        }
        let byte = rest.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed("a number without an end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_fields_are_counted_without_decoding() {
        let request = p4::WriteRequest {
            device_id: 1 << 40,
            role: "role".to_owned(),
            election_id: Some(p4::Uint128 { high: 1, low: 2 }),
            updates: vec![p4::Update::default(); 300],
            atomicity: 1,
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        assert_eq!(count_field(&bytes, 4).expect("well formed"), 300);
        assert_eq!(count_field(&bytes, 5).expect("well formed"), 1);
        assert_eq!(count_field(&bytes, 9).expect("well formed"), 0);
        let claims = Claims::decode(bytes.as_slice()).expect("well formed");
        assert_eq!(
            (claims.device_id, claims.role, claims.election_id),
            (request.device_id, request.role, request.election_id)
        );
        for end in 0..bytes.len() {
            // A truncated message must not cause a panic.
            let _ = count_field(&bytes[..end], 4);
        }
        assert!(count_field(&[0x22, 0xff, 0xff, 0xff, 0xff, 0x0f], 4).is_err());
        assert!(count_field(&[0xff; 11], 4).is_err());
        assert!(count_field(&[0x0b], 1).is_err(), "groups are not served");
    }

    #[test]
    fn the_announced_length_includes_its_prefix() {
        assert_eq!(announced(&[0, 0, 0, 1, 2, 9]), Some(0x102 + 5));
        assert_eq!(announced(&[0, 0, 0, 1]), None);
    }
}
