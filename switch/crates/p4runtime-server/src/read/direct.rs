//! Direct counters and meters: what belongs to entries of tables.

use dataplane::control::{self, EntryKey};

use super::{Emitter, Reader, Stop};
use crate::error::UpdateError;
use crate::executor;
use crate::plan::direct_entry;
use crate::proto::p4::v1 as p4;
use crate::translate::{self, Table};

impl Reader<'_> {
    /// Where the wanted direct resources are: at one entry (its key), in a table, or in all.
    fn direct_places(
        &self,
        filter: Option<&p4::TableEntry>,
        what: &str,
        has: impl Fn(&Table) -> bool,
    ) -> Result<Vec<(&Table, Option<EntryKey>)>, Stop> {
        let table_id = filter.map_or(0, |filter| filter.table_id);
        let one = filter.filter(|filter| !filter.r#match.is_empty() || filter.is_default_action);
        if table_id == 0 && one.is_some() {
            return Err(UpdateError::invalid(format!(
                "{what}: match given without table_id; the ids in it belong to one table"
            ))
            .into());
        }
        if table_id != 0 {
            let table = self.pipeline.table(table_id)?;
            if !has(table) {
                return Err(UpdateError::invalid(format!(
                    "{}: {what}: the table has no such direct resource",
                    table.name
                ))
                .into());
            }
            if one.is_some() {
                let (table, key) = direct_entry(self.pipeline, filter, what)?;
                return Ok(vec![(table, Some(key))]);
            }
        }
        let tables = self.pipeline.tables.iter();
        Ok(tables
            .filter(|table| has(table) && (table_id == 0 || table.id == table_id))
            .map(|table| (table, None))
            .collect())
    }

    /// Emits what `message` makes of each entry in these places.
    async fn direct_resources(
        &self,
        places: Vec<(&Table, Option<EntryKey>)>,
        message: impl Fn(&Table, &control::TableEntry) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        for (table, key) in places {
            let index = table.index;
            if let Some(key) = key {
                let entry = executor::with(&*self.shared.executor, move |switch| {
                    switch.table_entry(index, &key)
                })
                .await?
                .map_err(|error| UpdateError::from_control(error, &table.name))?;
                emitter.entity(message(table, &entry)).await?;
                continue;
            }
            let mut from = Some(0);
            while let Some(at) = from {
                let page = self.page(index, at).await?;
                from = page.next;
                for entry in &page.items {
                    emitter.entity(message(table, entry)).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn direct_counters(
        &self,
        filter: Option<&p4::TableEntry>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let places =
            self.direct_places(filter, "direct_counter_entry", |table| table.direct_counter)?;
        let message = |table: &Table, entry: &control::TableEntry| {
            p4::entity::Entity::DirectCounterEntry(p4::DirectCounterEntry {
                table_entry: Some(key_message(table, entry)),
                data: entry.counter.map(translate::counter_message),
            })
        };
        self.direct_resources(places, message, emitter).await
    }

    pub(super) async fn direct_meters(
        &self,
        filter: Option<&p4::TableEntry>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let places = self.direct_places(filter, "direct_meter_entry", |table| {
            table.direct_meter.is_some()
        })?;
        let message = |table: &Table, entry: &control::TableEntry| {
            p4::entity::Entity::DirectMeterEntry(p4::DirectMeterEntry {
                table_entry: Some(key_message(table, entry)),
                config: entry.meter.map(translate::meter_message),
                counter_data: None,
            })
        };
        self.direct_resources(places, message, emitter).await
    }
}

/// What identifies an entry, as a controller sees it.
fn key_message(table: &Table, entry: &control::TableEntry) -> p4::TableEntry {
    p4::TableEntry {
        table_id: table.id,
        r#match: table.keys.match_messages(&entry.key.fields),
        priority: entry.key.priority,
        ..p4::TableEntry::default()
    }
}
