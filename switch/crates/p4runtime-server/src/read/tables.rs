//! Entries of tables (specification, section "TableEntry").

use v1model::entries::{self, EntryKey};

use super::direct::{counter_data, meter_config, meter_counts};
use super::{Emitter, Reader, Stop};
use crate::error::UpdateError;
use crate::executor;
use crate::plan::{check_default_key, controller_metadata};
use crate::proto::p4::v1 as p4;
use crate::state::Cookie;
use crate::translate::Table;

/// Entries of a table read in one visit. (A switch of 64-byte frames has some 2,000 a millisecond
/// to forward; copying these takes a fraction of one.)
const ENTRIES_PER_VISIT: usize = 1_024;

impl Reader<'_> {
    /// Specification, section "TableEntry", "Wildcard Reads".
    pub(super) async fn table_entries(
        &self,
        filter: &p4::TableEntry,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        if filter.table_id != 0 {
            let table = self.pipeline.table(filter.table_id)?;
            return self.entries_of(table, filter, emitter).await;
        }
        if !filter.r#match.is_empty() || filter.action.is_some() {
            return Err(UpdateError::invalid(
                "table_entry: match or action given without table_id; the ids in them belong to \
                 one table",
            )
            .into());
        }
        for table in &self.pipeline.tables {
            self.entries_of(table, filter, emitter).await?;
        }
        Ok(())
    }

    async fn entries_of(
        &self,
        table: &Table,
        filter: &p4::TableEntry,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        use p4::table_action::Type;
        let action = match filter.action.as_ref().map(|action| &action.r#type) {
            None => None,
            // "The client ... cannot filter indirect table entries based on ...".
            Some(Some(Type::Action(action))) if table.profile.is_none() => {
                Some(table.action(action.action_id)?.index)
            }
            Some(_) => {
                return Err(UpdateError::invalid(format!(
                    "{}: action: an action with its id expected as a filter, and only where the \
                     table has no action profile",
                    table.name
                ))
                .into());
            }
        };
        if filter.table_id != 0 && filter.time_since_last_hit.is_some() && !table.idle_timeout {
            return Err(UpdateError::invalid(format!(
                "{}: time_since_last_hit: given, but the table has no idle timeout",
                table.name
            ))
            .into());
        }
        let fields = if filter.r#match.is_empty() {
            None
        } else {
            Some(table.keys.match_fields(&filter.r#match)?)
        };
        if filter.is_default_action {
            if filter.idle_timeout_ns != 0 || filter.time_since_last_hit.is_some() {
                return Err(UpdateError::invalid(format!(
                    "{}: idle_timeout_ns or time_since_last_hit given; the default entry has no \
                     idle timeout",
                    table.name
                ))
                .into());
            }
            check_default_key(table, filter)?;
            return self.default_of(table, filter, action, emitter).await;
        }
        let index = table.index;
        let exact_key = fields
            .clone()
            .filter(|_| filter.priority != 0 || !table.keys.have_priorities())
            .map(|fields| EntryKey {
                fields,
                priority: filter.priority,
            });
        if let Some(key) = exact_key {
            let entry = executor::with(&*self.shared.executor, move |switch| {
                switch.table_entry(index, &key)
            })
            .await?;
            return match entry {
                // A key that is not there filters everything out, as any other filter does.
                Err(entries::ControlError::NotFound(_)) => Ok(()),
                Err(error) => Err(UpdateError::from_control(error, &table.name).into()),
                Ok(entry) => self.entry(table, filter, action, entry, emitter).await,
            };
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let page = self.page(index, at).await?;
            from = page.next;
            for entry in page.items {
                if fields
                    .as_ref()
                    .is_none_or(|fields| *fields == entry.key.fields)
                {
                    self.entry(table, filter, action, entry, emitter).await?;
                }
            }
        }
        Ok(())
    }

    /// Some of a table's entries: as many as one visit to the data plane may copy.
    pub(super) async fn page(
        &self,
        table: usize,
        from: u64,
    ) -> Result<entries::Page<entries::TableEntry>, Stop> {
        Ok(executor::with(&*self.shared.executor, move |switch| {
            switch.table_entries(table, from, ENTRIES_PER_VISIT)
        })
        .await?)
    }

    /// Emits an entry, if the filter, beside its match, lets it pass.
    async fn entry(
        &self,
        table: &Table,
        filter: &p4::TableEntry,
        action: Option<usize>,
        entry: entries::TableEntry,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let cookie = self
            .side
            .cookies
            .get(&(table.index, entry.key.clone()))
            .cloned()
            .unwrap_or_default();
        let wanted = action.is_none_or(|action| action == entry.action.action)
            && (filter.priority == 0 || filter.priority == entry.key.priority)
            && cookie_wanted(filter, &cookie);
        if !wanted {
            return Ok(());
        }
        let idle = entry.idle.filter(|_| table.idle_timeout);
        #[allow(deprecated)]
        let message = p4::TableEntry {
            table_id: table.id,
            r#match: table.keys.match_messages(&entry.key.fields),
            action: table.entry_message(&entry, self.pipeline.profile_of(table)),
            priority: entry.key.priority,
            idle_timeout_ns: idle.map_or(0, |idle| nanoseconds(idle.timeout_ns)),
            time_since_last_hit: filter.time_since_last_hit.and(idle).map(|idle| {
                p4::table_entry::IdleTimeout {
                    elapsed_ns: nanoseconds(idle.since_hit_ns),
                }
            }),
            controller_metadata: cookie.controller_metadata,
            metadata: cookie.metadata,
            meter_config: filter.meter_config.and(meter_config(table, entry.meter)),
            counter_data: filter.counter_data.and(counter_data(table, entry.counter)),
            meter_counter_data: filter
                .meter_counter_data
                .and(meter_counts(table, entry.meter)),
            is_const: table.const_entries,
            ..p4::TableEntry::default()
        };
        emitter
            .entity(p4::entity::Entity::TableEntry(message))
            .await
    }

    async fn default_of(
        &self,
        table: &Table,
        filter: &p4::TableEntry,
        action: Option<usize>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let index = table.index;
        let default = executor::with(&*self.shared.executor, move |switch| {
            switch.table_default(index)
        })
        .await?
        .map_err(|error| UpdateError::from_control(error, &table.name))?;
        let call = default.action;
        let cookie = self
            .side
            .default_cookies
            .get(&table.index)
            .cloned()
            .unwrap_or_default();
        let wanted = action
            .is_none_or(|action| call.as_ref().is_some_and(|call| call.action == action))
            && cookie_wanted(filter, &cookie);
        if !wanted {
            return Ok(());
        }
        #[allow(deprecated)]
        let message = p4::TableEntry {
            table_id: table.id,
            action: call
                .and_then(|call| table.action_message(&call))
                .map(|action| p4::TableAction {
                    r#type: Some(p4::table_action::Type::Action(action)),
                }),
            is_default_action: true,
            controller_metadata: cookie.controller_metadata,
            metadata: cookie.metadata,
            meter_config: filter.meter_config.and(meter_config(table, default.meter)),
            counter_data: filter
                .counter_data
                .and(counter_data(table, default.counter)),
            meter_counter_data: filter
                .meter_counter_data
                .and(meter_counts(table, default.meter)),
            is_const: table.const_default || table.profile.is_some(),
            ..p4::TableEntry::default()
        };
        emitter
            .entity(p4::entity::Entity::TableEntry(message))
            .await
    }
}

/// Nanoseconds as the protocol has them.
fn nanoseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Whether a read with this filter asks for entries with this cookie: what the filter leaves empty,
/// any will do.
fn cookie_wanted(filter: &p4::TableEntry, cookie: &Cookie) -> bool {
    let wanted = controller_metadata(filter);
    (filter.metadata.is_empty() || filter.metadata == cookie.metadata)
        && (wanted == 0 || wanted == cookie.controller_metadata)
}
