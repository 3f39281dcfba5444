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
        let (fate, told) = tokio::select! {
            passed = pass_one(&shared, notification) => passed,
            // A write that still runs may hold the pipeline's lock.
            _ = shutdown.wait_for(|down| *down) => return,
        };
        shared.counters.count_notification(fate, told);
        let untold = items.saturating_sub(told);
        shared.counters.count_notification(Fate::Malformed, untold);
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

/// Sends a notification. Also returns how many of its items its fate is that of; the others cannot be told.
async fn pass_one(shared: &Shared, notification: Numbered<Notification>) -> (Fate, usize) {
    let items = notification.item.body.len();
    // With this lock held, the forwarding pipeline is the committed one.
    let state = shared.pipeline.read().await;
    let first = shared.forwarding.borrow().as_ref().map(|it| it.first);
    let Some(active) = &state.committed else {
        // The program came with the start or over Thrift, so no controller knows its digests.
        let fate = Fate::Offered {
            delivered: 0,
            slow: 0,
        };
        return (fate, items);
    };
    let Some(first) = first else {
        return (Fate::PipelineSwap, items);
    };
    if notification.number < first.notifications {
        return (Fate::PipelineSwap, items);
    }
    match update(active, notification.item) {
        Some((update, told)) => (shared.sessions().send_to_primaries(&update), told),
        None => (Fate::Malformed, items),
    }
}

/// The message of a notification, and how many items it has. An item is left out if P4Info does not have its
/// object or no controller's value stands for one of its values. `None`: all are.
fn update(active: &InstalledPipeline, notification: Notification) -> Option<(Update, usize)> {
    let timestamp = i64::try_from(notification.at_ns).unwrap_or(i64::MAX);
    match notification.body {
        NotificationBody::Digests(list) => {
            let mut digests = active.pipeline.digests.iter();
            let digest = digests.find(|digest| digest.index == list.digest)?;
            let messages = list.messages.iter();
            let data: Vec<p4::P4Data> = messages
                .filter_map(|fields| digest.message(fields).ok())
                .collect();
            let told = data.len();
            (told > 0).then_some((
                Update::Digest(p4::DigestList {
                    digest_id: digest.id,
                    list_id: list.list_id,
                    data,
                    timestamp,
                }),
                told,
            ))
        }
        NotificationBody::Idle(entries) => {
            let entries = entries.iter().filter_map(|entry| idle_entry(active, entry));
            let table_entry: Vec<p4::TableEntry> = entries.collect();
            // "The P4Runtime server must not send an IdleTimeoutNotification message with an
            // empty table_entry repeated field."
            let told = table_entry.len();
            (told > 0).then_some((
                Update::IdleTimeoutNotification(p4::IdleTimeoutNotification {
                    table_entry,
                    timestamp,
                }),
                told,
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
        r#match: table.keys.match_messages(&entry.key.fields).ok()?,
        priority: entry.key.priority,
        controller_metadata: annotation.controller_metadata,
        metadata: annotation.metadata,
        idle_timeout_ns: i64::try_from(entry.timeout_ns).unwrap_or(i64::MAX),
        ..p4::TableEntry::default()
    })
}
