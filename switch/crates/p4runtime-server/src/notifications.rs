//! Sends digest lists and idle entries from the switch to the primary controllers
//! (specification, sections "Digest Messages" and "Table Idle Timeout Notification").

use std::sync::Arc;

use switch::notification::{Notification, NotificationBody};
use tokio::sync::mpsc;
use v1model::entries::digest::IdleEntry;

use crate::controller_queue::{Fate, Numbered};
use crate::executor;
use crate::proto::p4::v1 as p4;
use crate::proto::p4::v1::stream_message_response::Update;
use crate::shared::Shared;
use crate::state::InstalledPipeline;

/// Sends notifications until the switch or the server ends.
pub(crate) async fn pass(shared: Arc<Shared>, mut queue: mpsc::Receiver<Numbered<Notification>>) {
    let mut shutdown = shared.shutdown.clone();
    loop {
        let notification = tokio::select! {
            notification = queue.recv() => notification,
            _ = shutdown.wait_for(|down| *down) => None,
        };
        let Some(notification) = notification else {
            return;
        };
        let items = notification.item.body.len();
        let list = match &notification.item.body {
            NotificationBody::Digests(list) => Some((list.digest, list.list_id)),
            NotificationBody::Idle(_) => None,
        };
        let fate = tokio::select! {
            fate = pass_one(&shared, notification) => fate,
            // A write that still runs may hold the pipeline's lock.
            _ = shutdown.wait_for(|down| *down) => return,
        };
        shared.counters.count_notification(fate, items);
        let is_delivered = matches!(fate, Fate::Offered { delivered: 1.., .. });
        // A list of an earlier program no longer exists.
        if let Some((digest, list_id)) = list
            && !is_delivered
            && fate != Fate::PipelineSwap
        {
            // "The cache ... of messages that have been sent": this list was not sent, so its
            // messages must be sent when they recur.
            let _ = executor::with(&*shared.executor, move |switch| {
                switch.digest_acknowledge(digest, list_id)
            })
            .await;
        }
    }
}

async fn pass_one(shared: &Shared, notification: Numbered<Notification>) -> Fate {
    // With this lock held, the forwarding pipeline is the committed one.
    let state = shared.pipeline.read().await;
    let first = shared.forwarding.borrow().as_ref().map(|it| it.first);
    let (Some(active), Some(first)) = (&state.committed, first) else {
        return Fate::PipelineSwap;
    };
    if notification.number < first.notifications {
        return Fate::PipelineSwap;
    }
    match update(active, notification.item) {
        Some(update) => shared.sessions().send_to_primaries(&update),
        None => Fate::Malformed,
    }
}

/// The message of a notification. `None`: P4Info does not have its object.
fn update(active: &InstalledPipeline, notification: Notification) -> Option<Update> {
    let timestamp = i64::try_from(notification.at_ns).unwrap_or(i64::MAX);
    match notification.body {
        NotificationBody::Digests(list) => {
            let mut digests = active.pipeline.digests.iter();
            let digest = digests.find(|digest| digest.index == list.digest)?;
            let messages = list.messages.iter();
            Some(Update::Digest(p4::DigestList {
                digest_id: digest.id,
                list_id: list.list_id,
                data: messages.map(|fields| digest.message(fields)).collect(),
                timestamp,
            }))
        }
        NotificationBody::Idle(entries) => {
            let entries = entries.iter().filter_map(|entry| idle_entry(active, entry));
            let table_entry: Vec<p4::TableEntry> = entries.collect();
            // "The P4Runtime server must not send an IdleTimeoutNotification message with an
            // empty table_entry repeated field."
            (!table_entry.is_empty()).then_some(Update::IdleTimeoutNotification(
                p4::IdleTimeoutNotification {
                    table_entry,
                    timestamp,
                },
            ))
        }
    }
}

fn idle_entry(active: &InstalledPipeline, entry: &IdleEntry) -> Option<p4::TableEntry> {
    let table = active.pipeline.table_at(entry.table)?;
    let annotation = active.annotations.of_entry(entry.table, &entry.key);
    #[allow(deprecated)]
    Some(p4::TableEntry {
        table_id: table.id,
        r#match: table.keys.match_messages(&entry.key.fields),
        priority: entry.key.priority,
        controller_metadata: annotation.controller_metadata,
        metadata: annotation.metadata,
        idle_timeout_ns: i64::try_from(entry.timeout_ns).unwrap_or(i64::MAX),
        ..p4::TableEntry::default()
    })
}
