//! `StreamChannel`: a task for each controller that reads its messages, and the task that sends
//! packet-ins. Notifications are sent by `notifications.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tonic::{Code, Status, Streaming};

use crate::arbitration::{Outcome, SessionId};
use crate::controller_queue::{Fate, Numbered};
use crate::error::UpdateError;
use crate::executor;
use crate::proto::p4::v1 as p4;
use crate::refusals::Refusal;
use crate::roles::Scope;
use crate::sessions::{OpenStream, RESERVED_PLACES, Response};
use crate::shared::Shared;
use crate::standing::Standing;
use crate::translate::BoundPipeline;

/// Longest wait of a stream that ends with an error, until its client has taken the messages before
/// the error.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Opens a stream: registers it and starts its task.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`: the limit of open streams is reached.
pub(crate) fn open(
    shared: Arc<Shared>,
    standing: Standing,
    requests: Streaming<p4::StreamMessageRequest>,
) -> Result<mpsc::Receiver<Response>, Status> {
    let limits = &shared.config.limits;
    let (sender, receiver) = mpsc::channel(limits.messages_per_stream.max(2 * RESERVED_PLACES));
    let stuck = Arc::new(Notify::new());
    let session = {
        let mut sessions = shared.sessions();
        let strangers = sessions.open.values();
        let strangers = strangers.filter(|stream| stream.standing == Standing::Stranger);
        let is_full = sessions.open.len() >= limits.streams
            || standing == Standing::Stranger && strangers.count() >= limits.streams / 2;
        if is_full {
            shared.refusals.count(Refusal::StreamsFull);
            return Err(Status::resource_exhausted(format!(
                "the limit of {} open streams is reached",
                limits.streams
            )));
        }
        let session = sessions.next;
        sessions.next += 1;
        sessions.open.insert(
            session,
            OpenStream {
                standing,
                responses: sender.clone(),
                stuck: Arc::clone(&stuck),
            },
        );
        session
    };
    tokio::spawn(async move {
        let end = serve(&shared, session, requests, &sender, &stuck).await;
        {
            let mut sessions = shared.sessions();
            sessions.open.remove(&session);
            let notifications = sessions.arbitration.close(session);
            sessions.notify(notifications);
        }
        if let Err(status) = end {
            let _ = tokio::time::timeout(END_LIMIT, sender.send(Err(status))).await;
        }
    });
    Ok(receiver)
}

/// Reads a stream's messages until it ends.
async fn serve(
    shared: &Arc<Shared>,
    session: SessionId,
    mut requests: Streaming<p4::StreamMessageRequest>,
    responses: &mpsc::Sender<Response>,
    stuck: &Notify,
) -> Result<(), Status> {
    let mut shutdown = shared.shutdown.clone();
    loop {
        let message = tokio::select! {
            message = requests.message() => message,
            () = responses.closed() => return Ok(()),
            () = stuck.notified() => {
                return Err(Status::resource_exhausted(
                    "the controller does not read its stream: its queue is full",
                ));
            }
            _ = shutdown.wait_for(|down| *down) => {
                return Err(Status::unavailable("the switch is shutting down"));
            }
        };
        let request = match message {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            // The connection broke, so there is no client to report to.
            Err(_) => return Ok(()),
        };
        use p4::stream_message_request::Update;
        match request.update {
            Some(Update::Arbitration(update)) => arbitrate(shared, session, &update).await?,
            Some(Update::Packet(packet)) => {
                if let Err(error) = packet_out(shared, session, &packet).await {
                    let details = p4::stream_error::Details::PacketOut(p4::PacketOutError {
                        packet_out: Some(packet),
                    });
                    report(responses, error, details);
                }
            }
            Some(Update::DigestAck(ack)) => {
                if let Err(error) = digest_ack(shared, session, &ack).await {
                    let details =
                        p4::stream_error::Details::DigestListAck(p4::DigestListAckError {
                            digest_list_ack: Some(ack),
                        });
                    report(responses, error, details);
                }
            }
            Some(Update::Other(other)) => {
                let error = UpdateError::unimplemented(format!(
                    "other: {:?} given, but this switch has no messages of its own",
                    other.type_url
                ));
                let details =
                    p4::stream_error::Details::Other(p4::StreamOtherError { other: Some(other) });
                report(responses, error, details);
            }
            None => {
                let error = UpdateError::invalid("update: not given");
                let details =
                    p4::stream_error::Details::Other(p4::StreamOtherError { other: None });
                report(responses, error, details);
            }
        }
    }
}

/// Handles a `MasterArbitrationUpdate`; an error ends the stream.
async fn arbitrate(
    shared: &Arc<Shared>,
    session: SessionId,
    update: &p4::MasterArbitrationUpdate,
) -> Result<(), Status> {
    // The lock is held until the writes of the previous primary have ended, so that no other one is
    // chosen before.
    let _deciding = shared.deciding.lock().await;
    let is_first_holder = {
        let mut sessions = shared.sessions();
        let standing = sessions.open.get(&session).map(|stream| stream.standing);
        let standing = standing.unwrap_or(Standing::Stranger);
        let had_holder = sessions.arbitration.has_holder();
        let updated = sessions.arbitration.update(session, standing, update);
        let updated = updated.inspect_err(|status| {
            if status.code() == Code::PermissionDenied {
                shared.refusals.count(Refusal::Outbid);
            }
        });
        let updated = updated?;
        let is_first_holder = sessions.arbitration.has_holder() != had_holder;
        if is_first_holder {
            shared.has_holder.send_replace(true);
        }
        match updated {
            Outcome::Notify(notifications) => {
                sessions.notify(notifications);
                return Ok(());
            }
            Outcome::NewPrimary(notifications) => sessions.notify(notifications),
        }
        is_first_holder
    };
    // From here on, the previous primary's writes are refused. A config takes what it names from roles
    // without one, and the first holder's bid takes everything from strangers. Wait for a write that has
    // begun.
    let role = update.role.clone().unwrap_or_default();
    let takes_rights = is_first_holder || role.config.is_some();
    shared
        .unchanging(|busy| takes_rights || busy == role.name)
        .await;
    let mut sessions = shared.sessions();
    let notification = sessions.arbitration.accept_primary(session);
    sessions.notify(notification.into_iter().collect());
    Ok(())
}

/// Hands a packet-out to the switch.
async fn packet_out(
    shared: &Arc<Shared>,
    session: SessionId,
    packet: &p4::PacketOut,
) -> Result<(), UpdateError> {
    let scope = primary_scope(
        shared,
        session,
        "packet_out: only the primary controller may send packets",
    )?;
    if !scope.may_send(packet) {
        return Err(UpdateError::permission_denied(
            "packet_out: not allowed to the controller's role",
        ));
    }
    if shared.config.cpu_port.is_none() {
        return Err(UpdateError::new(
            Code::FailedPrecondition,
            "packet_out: the switch has no CPU port; start it with --cpu-port",
        ));
    }
    let most = shared.config.limits.packet_out_bytes;
    if packet.payload.len() > most {
        return Err(UpdateError::invalid(format!(
            "packet_out: payload: {} bytes given, at most {most} expected",
            packet.payload.len()
        )));
    }
    let pipeline = forwarding_pipeline(shared, "packet_out")?;
    let frame = pipeline.packet_out.assemble(packet)?;
    executor::with(&*shared.executor, move |switch| switch.packet_out(&frame))
        .await
        .map_err(|error| UpdateError::new(Code::Unavailable, error.to_string()))?
        .map_err(|error| UpdateError::from_control(error, "packet_out"))
}

/// The permissions of a primary controller's role. `refusal` is the error text for a controller that
/// is not primary.
fn primary_scope(
    shared: &Shared,
    session: SessionId,
    refusal: &str,
) -> Result<Arc<Scope>, UpdateError> {
    let sessions = shared.sessions();
    if !sessions.arbitration.is_primary(session) {
        return Err(UpdateError::permission_denied(refusal));
    }
    Ok(sessions.arbitration.scope_of(session))
}

/// The pipeline that a stream message refers to. `object` is for the error.
fn forwarding_pipeline(shared: &Shared, object: &str) -> Result<Arc<BoundPipeline>, UpdateError> {
    let forwarding = shared.forwarding.borrow();
    let pipeline = forwarding.as_ref().map(|it| Arc::clone(&it.pipeline));
    pipeline.ok_or_else(|| {
        UpdateError::new(
            Code::FailedPrecondition,
            format!("{object}: no forwarding pipeline config yet"),
        )
    })
}

/// Handles the acknowledgement of a digest list.
async fn digest_ack(
    shared: &Arc<Shared>,
    session: SessionId,
    ack: &p4::DigestListAck,
) -> Result<(), UpdateError> {
    let scope = primary_scope(
        shared,
        session,
        "digest_ack: only the primary controller may acknowledge digests",
    )?;
    let pipeline = forwarding_pipeline(shared, "digest_ack")?;
    // "If the digest_id field in DigestListAck does not match any Digest entry in P4Info, the
    // code should be set to INVALID_ARGUMENT."
    let digest = pipeline
        .digest(ack.digest_id)
        .map_err(UpdateError::as_invalid)?;
    if !scope.has(digest.id) {
        return Err(UpdateError::permission_denied(format!(
            "digest_ack: {} is not of the controller's role",
            digest.name
        )));
    }
    let (index, list_id) = (digest.index, ack.list_id);
    executor::with(&*shared.executor, move |switch| {
        switch.digest_acknowledge(index, list_id)
    })
    .await
    .map_err(|error| UpdateError::new(Code::Unavailable, error.to_string()))
}

/// Sends a `StreamError` if there is room. All other messages go before reports (specification,
/// section "Stream Error Reporting").
fn report(
    responses: &mpsc::Sender<Response>,
    error: UpdateError,
    details: p4::stream_error::Details,
) {
    let response = p4::StreamMessageResponse {
        update: Some(p4::stream_message_response::Update::Error(
            p4::StreamError {
                canonical_code: error.code as i32,
                message: error.message,
                details: Some(details),
                ..p4::StreamError::default()
            },
        )),
    };
    if responses.capacity() > 1 {
        let _ = responses.try_send(Ok(response));
    }
}

/// Sends frames from the switch to the primary controllers until the switch or the server ends.
pub(crate) async fn pass_packet_ins(
    shared: Arc<Shared>,
    mut frames: mpsc::Receiver<Numbered<Box<[u8]>>>,
) {
    let mut shutdown = shared.shutdown.clone();
    loop {
        let frame = tokio::select! {
            frame = frames.recv() => frame,
            _ = shutdown.wait_for(|down| *down) => None,
        };
        let Some(frame) = frame else {
            return;
        };
        let fate = pass(&shared, &frame);
        shared.counters.count_packet_in(fate);
    }
}

fn pass(shared: &Shared, frame: &Numbered<Box<[u8]>>) -> Fate {
    let forwarding = shared.forwarding.borrow().clone();
    let Some(forwarding) = forwarding.filter(|it| frame.number >= it.first.packet_ins) else {
        return Fate::PipelineSwap;
    };
    match forwarding.pipeline.packet_in.split(&frame.item) {
        Some(packet) => {
            let update = p4::stream_message_response::Update::Packet(packet);
            shared.sessions().send_to_primaries(&update)
        }
        None => Fate::Malformed,
    }
}
