//! The open streams and which controllers are primary.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tonic::Status;

use crate::arbitration::{Arbitration, Notification, SessionId};
use crate::controller_queue::Fate;
use crate::proto::p4::v1 as p4;
use crate::standing::Standing;
use crate::writers::Writers;

/// Places in a stream's queue that packet-ins and notifications leave free for arbitration and errors.
pub(crate) const RESERVED_PLACES: usize = 16;

/// A message of a stream, or the status that ends it.
pub(crate) type Response = Result<p4::StreamMessageResponse, Status>;

/// The open streams and their arbitration. One lock guards both, so that each stream gets
/// notifications in the order of the decisions.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) arbitration: Arbitration,
    pub(crate) open: HashMap<SessionId, OpenStream>,
    pub(crate) next: SessionId,
    pub(crate) writers: Writers,
}

#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) standing: Standing,
    pub(crate) responses: mpsc::Sender<Response>,
    /// Ends the stream, because its client does not read it.
    pub(crate) stuck: Arc<Notify>,
}

impl Sessions {
    pub(crate) fn new(arbitration: Arbitration) -> Self {
        Self {
            arbitration,
            open: HashMap::new(),
            next: 0,
            writers: Writers::default(),
        }
    }

    /// Sends notifications. A stream without room for one ends, because a controller that has missed a
    /// change of primary must not continue.
    pub(crate) fn notify(&self, notifications: Vec<Notification>) {
        for (session, update) in notifications {
            let Some(stream) = self.open.get(&session) else {
                continue;
            };
            let response = p4::StreamMessageResponse {
                update: Some(p4::stream_message_response::Update::Arbitration(update)),
            };
            if stream.responses.try_send(Ok(response)).is_err() {
                stream.stuck.notify_one();
            }
        }
    }

    /// Sends a packet-in or notification to the primary controllers. Each gets the part that belongs
    /// to its role. A controller that is too slow to take it counts as a loss, even if another one
    /// has it.
    pub(crate) fn send_to_primaries(&self, update: &p4::stream_message_response::Update) -> Fate {
        let (mut delivered, mut slow) = (0, 0);
        for session in self.arbitration.primaries() {
            let Some(stream) = self.open.get(&session) else {
                continue;
            };
            let Some(update) = self.arbitration.scope_of(session).narrow(update) else {
                continue;
            };
            let response = p4::StreamMessageResponse {
                update: Some(update),
            };
            if stream.responses.capacity() > RESERVED_PLACES
                && stream.responses.try_send(Ok(response)).is_ok()
            {
                delivered += 1;
            } else {
                slow += 1;
            }
        }
        Fate::Offered { delivered, slow }
    }
}
