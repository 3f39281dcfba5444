//! Entries of tables (specification, section "TableEntry").

use tonic::Code;
use v1model::entries::{self, EntryKey};

use super::direct::{counter_data, meter_config, meter_counts};
use super::{Emitter, Reader, Stop, View};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::v1 as p4;
use crate::state::EntryAnnotation;
use crate::translate::{BoundTable, controller_metadata};

/// Entries of a table in one page.
const ENTRIES_PER_PAGE: usize = 1_024;
/// Entries read between two checks of whether the visit is over.
const ENTRIES_PER_LOOK: usize = 32;

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
        table: &BoundTable,
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
            table.check_default_key(filter)?;
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
            let view = self.view().await?;
            let entry = self.visit(&view, &table.name, move |program| {
                program.pipeline().table_entry(index, &key)
            });
            match entry.await {
                // As with any other filter, a key that does not exist matches nothing.
                Err(Stop::Request(error)) if error.code == Code::NotFound => {}
                Err(stop) => return Err(stop),
                Ok(entry) => self.entry(&view, table, filter, action, entry, emitter),
            }
            drop(view);
            return emitter.send().await;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let view = self.view().await?;
            let page = self.page(&view, table, at).await?;
            from = page.next;
            for entry in page.items {
                if fields
                    .as_ref()
                    .is_none_or(|fields| *fields == entry.key.fields)
                {
                    self.entry(&view, table, filter, action, entry, emitter);
                }
            }
            drop(view);
            emitter.send().await?;
        }
        Ok(())
    }

    /// A page of a table's entries.
    pub(super) async fn page(
        &self,
        view: &View<'_>,
        table: &BoundTable,
        from: u64,
    ) -> Result<entries::Page<entries::TableEntry>, Stop> {
        let index = table.index;
        let sizes = [ENTRIES_PER_PAGE, ENTRIES_PER_LOOK];
        self.page_of(
            view,
            &table.name,
            from,
            sizes,
            move |program, from, most| program.pipeline().table_entries(index, from, most),
        )
        .await
    }

    /// Emits an entry, if the filter, beside its match, lets it pass.
    fn entry(
        &self,
        view: &View<'_>,
        table: &BoundTable,
        filter: &p4::TableEntry,
        action: Option<usize>,
        entry: entries::TableEntry,
        emitter: &mut Emitter,
    ) {
        let annotation = view.annotations().of_entry(table.index, &entry.key);
        let wanted = action.is_none_or(|action| action == entry.action.action)
            && (filter.priority == 0 || filter.priority == entry.key.priority)
            && annotation_wanted(filter, &annotation);
        if !wanted {
            return;
        }
        emitter.entity(self.entry_message(table, filter, &entry, annotation));
    }

    fn entry_message(
        &self,
        table: &BoundTable,
        filter: &p4::TableEntry,
        entry: &entries::TableEntry,
        annotation: EntryAnnotation,
    ) -> UpdateResult<p4::entity::Entity> {
        let idle = entry.idle.filter(|_| table.idle_timeout);
        #[allow(deprecated)]
        Ok(p4::entity::Entity::TableEntry(p4::TableEntry {
            table_id: table.id,
            r#match: table.keys.match_messages(&entry.key.fields)?,
            action: table.entry_message(entry, self.pipeline.profile_of(table))?,
            priority: entry.key.priority,
            idle_timeout_ns: idle.map_or(0, |idle| nanoseconds(idle.timeout_ns)),
            time_since_last_hit: filter.time_since_last_hit.and(idle).map(|idle| {
                p4::table_entry::IdleTimeout {
                    elapsed_ns: nanoseconds(idle.since_hit_ns),
                }
            }),
            controller_metadata: annotation.controller_metadata,
            metadata: annotation.metadata,
            meter_config: filter.meter_config.and(meter_config(table, entry.meter)),
            counter_data: filter.counter_data.and(counter_data(table, entry.counter)),
            meter_counter_data: filter
                .meter_counter_data
                .and(meter_counts(table, entry.meter)),
            is_const: table.const_entries,
            ..p4::TableEntry::default()
        }))
    }

    async fn default_of(
        &self,
        table: &BoundTable,
        filter: &p4::TableEntry,
        action: Option<usize>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let index = table.index;
        let view = self.view().await?;
        let default = self.visit(&view, &table.name, move |program| {
            program.pipeline().table_default(index)
        });
        let default = default.await?;
        let call = default.action;
        let annotation = view.annotations().of_default(table.index).cloned();
        let annotation = annotation.unwrap_or_default();
        let wanted = action
            .is_none_or(|action| call.as_ref().is_some_and(|call| call.action == action))
            && annotation_wanted(filter, &annotation);
        if !wanted {
            return Ok(());
        }
        let action = call.map(|call| table.action_message(&call)).transpose()?;
        #[allow(deprecated)]
        let message = p4::TableEntry {
            table_id: table.id,
            action: action.flatten().map(|action| p4::TableAction {
                r#type: Some(p4::table_action::Type::Action(action)),
            }),
            is_default_action: true,
            controller_metadata: annotation.controller_metadata,
            metadata: annotation.metadata,
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
        emitter.entity(Ok(p4::entity::Entity::TableEntry(message)));
        drop(view);
        emitter.send().await
    }
}

/// Nanoseconds as the protocol has them.
fn nanoseconds(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Whether a read with this filter asks for entries with this annotation. A field that the filter
/// leaves empty matches everything.
fn annotation_wanted(filter: &p4::TableEntry, annotation: &EntryAnnotation) -> bool {
    let wanted = controller_metadata(filter);
    (filter.metadata.is_empty() || filter.metadata == annotation.metadata)
        && (wanted == 0 || wanted == annotation.controller_metadata)
}
