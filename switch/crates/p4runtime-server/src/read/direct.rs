//! Direct counters and meters of tables' entries.

use v1model::entries::{self, EntryKey};

use super::{Emitter, Reader, Stop};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::v1 as p4;
use crate::translate::{self, BoundTable};

/// Direct counter and meter of an entry.
type DirectState = (Option<entries::CounterValue>, Option<entries::MeterState>);

/// The entries whose direct resources are requested.
enum Place {
    /// All entries of a table that have this priority. 0: all entries.
    Entries(i32),
    Entry(EntryKey),
    Default,
}

impl Reader<'_> {
    /// The place of the requested direct resources: one entry (its key), a table, or all tables.
    fn direct_places(
        &self,
        filter: Option<&p4::TableEntry>,
        what: &str,
        has: impl Fn(&BoundTable) -> bool,
    ) -> Result<Vec<(&BoundTable, Place)>, Stop> {
        let table_id = filter.map_or(0, |filter| filter.table_id);
        let default = filter.is_some_and(|filter| filter.is_default_action);
        let priority = filter.map_or(0, |filter| filter.priority);
        let one = filter.filter(|filter| !filter.r#match.is_empty() || default);
        if table_id == 0 && filter.is_some_and(|filter| !filter.r#match.is_empty()) {
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
                let (table, key) = self.pipeline.direct_entry(filter, what)?;
                return Ok(vec![(table, key.map_or(Place::Default, Place::Entry))]);
            }
        }
        let tables = self.pipeline.tables.iter();
        Ok(tables
            .filter(|table| has(table) && (table_id == 0 || table.id == table_id))
            .map(|table| {
                let place = if default {
                    Place::Default
                } else {
                    Place::Entries(priority)
                };
                (table, place)
            })
            .collect())
    }

    /// Emits each entry in these places. `message` translates the table, the entry's key as a
    /// controller sees it, and its counter and meter.
    async fn direct_resources(
        &self,
        places: Vec<(&BoundTable, Place)>,
        message: impl Fn(&BoundTable, p4::TableEntry, DirectState) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        for (table, place) in places {
            let index = table.index;
            let of = |entry: &entries::TableEntry| {
                let state = (entry.counter, entry.meter);
                Ok(message(table, key_message(table, entry)?, state))
            };
            match place {
                Place::Entry(key) => {
                    let view = self.view().await?;
                    let entry = self.visit(&view, &table.name, move |program| {
                        program.pipeline().table_entry(index, &key)
                    });
                    emitter.entity(of(&entry.await?));
                }
                Place::Default => {
                    let view = self.view().await?;
                    let default = self.visit(&view, &table.name, move |program| {
                        program.pipeline().table_default(index)
                    });
                    let default = default.await?;
                    let key = p4::TableEntry {
                        table_id: table.id,
                        is_default_action: true,
                        ..p4::TableEntry::default()
                    };
                    let state = (default.counter, default.meter);
                    emitter.entity(Ok(message(table, key, state)));
                }
                Place::Entries(priority) => {
                    let mut from = Some(0);
                    while let Some(at) = from {
                        let view = self.view().await?;
                        let page = self.page(&view, table, at).await?;
                        from = page.next;
                        let items = page.items.iter();
                        for entry in items.filter(|e| priority == 0 || e.key.priority == priority) {
                            emitter.entity(of(entry));
                        }
                        drop(view);
                        emitter.send().await?;
                    }
                }
            }
            emitter.send().await?;
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
        let message = |table: &BoundTable, key, (counter, _): DirectState| {
            p4::entity::Entity::DirectCounterEntry(p4::DirectCounterEntry {
                table_entry: Some(key),
                data: counter_data(table, counter),
            })
        };
        self.direct_resources(places, message, emitter).await
    }

    pub(super) async fn direct_meters(
        &self,
        filter: Option<&p4::TableEntry>,
        counts: bool,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let places = self.direct_places(filter, "direct_meter_entry", |table| {
            table.direct_meter.is_some()
        })?;
        let message = |table: &BoundTable, key, (_, meter): DirectState| {
            p4::entity::Entity::DirectMeterEntry(p4::DirectMeterEntry {
                table_entry: Some(key),
                config: meter_config(table, meter),
                counter_data: meter_counts(table, meter).filter(|_| counts),
            })
        };
        self.direct_resources(places, message, emitter).await
    }
}

/// A direct counter as a controller sees it, if P4Info gives the table one.
pub(super) fn counter_data(
    table: &BoundTable,
    counter: Option<entries::CounterValue>,
) -> Option<p4::CounterData> {
    let counter = counter.filter(|_| table.direct_counter)?;
    Some(translate::counter_message(counter))
}

/// The configuration of a direct meter; "if the meter entry's configuration is the default
/// configuration, meter_config is unset in the response".
pub(super) fn meter_config(
    table: &BoundTable,
    meter: Option<entries::MeterState>,
) -> Option<p4::MeterConfig> {
    let meter = meter.filter(|_| table.direct_meter.is_some())?;
    meter.config.map(translate::meter_message)
}

/// The counts of a direct meter's colours.
pub(super) fn meter_counts(
    table: &BoundTable,
    meter: Option<entries::MeterState>,
) -> Option<p4::MeterCounterData> {
    let meter = meter.filter(|_| table.direct_meter.is_some())?;
    Some(translate::meter_counts_message(meter.counts))
}

/// The key of an entry as a controller sees it.
fn key_message(table: &BoundTable, entry: &entries::TableEntry) -> UpdateResult<p4::TableEntry> {
    Ok(p4::TableEntry {
        table_id: table.id,
        r#match: table.keys.match_messages(&entry.key.fields)?,
        priority: entry.key.priority,
        ..p4::TableEntry::default()
    })
}
