//! The `Read` RPC (specification, section "Read RPC"): entities in a stream of bounded
//! messages, tables and arrays in bounded visits to the data plane.
//!
//! Packets pass between two visits, so counters that count them may be from different instants.
//! What controllers write is not torn: writes wait until a read has ended.

use std::sync::Arc;
use std::time::Duration;

use dataplane::control::{self, EntryKey};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::error::{UpdateError, write_status};
use crate::executor;
use crate::pipeline_config::{Cookie, PipelineState};
use crate::proto::p4::v1 as p4;
use crate::server::Shared;
use crate::translate::{self, Array, Pipeline, Table};
use crate::write::{
    CELLS_PER_VISIT, ENTRIES_PER_VISIT, controller_metadata, direct_entry, entity_name,
    refuse_colour_counters,
};

/// Most entities in one response; a table entry with its metadata stays under 4 KiB, so a
/// response stays under the 4 MiB that clients take.
const ENTITIES_PER_RESPONSE: usize = 512;
/// How long a client may leave a response unread. A read excludes writes while it lasts, so a
/// client that stops reading must not last for ever.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a whole read may take, for the same reason; generous, because a client in
/// interpreted Python takes its time over a million register cells.
const READ_LIMIT: Duration = Duration::from_secs(300);

type Responses = mpsc::Sender<Result<p4::ReadResponse, Status>>;

/// Why reading stopped.
enum Stop {
    /// This request of the batch is wrong; the others go on.
    Request(UpdateError),
    /// The whole read ends with this status.
    All(Status),
    /// The client has gone.
    Gone,
}

impl From<UpdateError> for Stop {
    fn from(error: UpdateError) -> Self {
        Self::Request(error)
    }
}

impl From<executor::ExecuteError> for Stop {
    fn from(error: executor::ExecuteError) -> Self {
        Self::All(error.into())
    }
}

/// Collects entities into responses.
struct Emitter {
    responses: Responses,
    waiting: Vec<p4::Entity>,
    /// When the read must have ended.
    deadline: Instant,
}

impl Emitter {
    async fn entity(&mut self, entity: p4::entity::Entity) -> Result<(), Stop> {
        self.waiting.push(p4::Entity {
            entity: Some(entity),
        });
        if self.waiting.len() >= ENTITIES_PER_RESPONSE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Stop> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let entities = std::mem::take(&mut self.waiting);
        let send = self.responses.send(Ok(p4::ReadResponse { entities }));
        let until = self.deadline.min(Instant::now() + STALL_LIMIT);
        match tokio::time::timeout_at(until, send).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Stop::Gone),
            Err(_) => Err(Stop::All(Status::aborted(format!(
                "the client left a response unread for {} s, or took more than {} s for the whole \
                 read; read less at once",
                STALL_LIMIT.as_secs(),
                READ_LIMIT.as_secs()
            )))),
        }
    }
}

/// Serves a `Read` after the check of the device: sends responses, and last the status if it is
/// not OK.
pub(crate) async fn run(shared: Arc<Shared>, request: p4::ReadRequest, responses: Responses) {
    let status = {
        let state = shared.pipeline.read().await;
        let mut emitter = Emitter {
            responses: responses.clone(),
            waiting: Vec::new(),
            deadline: Instant::now() + READ_LIMIT,
        };
        match read_all(&shared, &state, &request, &mut emitter).await {
            Ok(()) | Err(Stop::Gone) => return,
            Err(Stop::All(status)) => status,
            Err(Stop::Request(error)) => error.into(),
        }
    };
    // Without the lock, and as long as the client takes: an end without status would look like
    // success.
    let _ = responses.send(Err(status)).await;
}

async fn read_all(
    shared: &Shared,
    state: &PipelineState,
    request: &p4::ReadRequest,
    emitter: &mut Emitter,
) -> Result<(), Stop> {
    let pipeline = state.usable().map_err(Stop::All)?;
    let reader = Reader {
        shared,
        state,
        pipeline: &pipeline,
    };
    let mut results = Vec::with_capacity(request.entities.len());
    for entity in &request.entities {
        match reader.read(entity, emitter).await {
            Ok(()) => results.push(Ok(())),
            Err(Stop::Request(error)) => results.push(Err(error)),
            Err(stop) => return Err(stop),
        }
    }
    emitter.flush().await?;
    write_status(&results).map_err(Stop::All)
}

struct Reader<'a> {
    shared: &'a Shared,
    state: &'a PipelineState,
    pipeline: &'a Pipeline,
}

impl Reader<'_> {
    async fn read(&self, entity: &p4::Entity, emitter: &mut Emitter) -> Result<(), Stop> {
        use p4::entity::Entity;
        let Some(entity) = &entity.entity else {
            return Err(
                UpdateError::invalid("entity: not given, the kind to read expected").into(),
            );
        };
        match entity {
            Entity::TableEntry(entry) => self.table_entries(entry, emitter).await,
            Entity::DirectCounterEntry(entry) => {
                self.direct_counters(entry.table_entry.as_ref(), emitter)
                    .await
            }
            Entity::DirectMeterEntry(entry) => {
                refuse_colour_counters(entry.counter_data.as_ref(), "direct_meter_entry")?;
                self.direct_meters(entry.table_entry.as_ref(), emitter)
                    .await
            }
            Entity::CounterEntry(entry) => {
                if entry.counter_id == 0 {
                    for array in &self.pipeline.counters {
                        self.counters(array, None, emitter).await?;
                    }
                    return Ok(());
                }
                let array = self.pipeline.counter(entry.counter_id)?;
                self.counters(array, entry.index.as_ref(), emitter).await
            }
            Entity::MeterEntry(entry) => {
                refuse_colour_counters(entry.counter_data.as_ref(), "meter_entry")?;
                if entry.meter_id == 0 {
                    for array in &self.pipeline.meters {
                        self.meters(array, None, emitter).await?;
                    }
                    return Ok(());
                }
                let array = self.pipeline.meter(entry.meter_id)?;
                self.meters(array, entry.index.as_ref(), emitter).await
            }
            Entity::RegisterEntry(entry) => {
                if entry.register_id == 0 {
                    for array in &self.pipeline.registers {
                        self.registers(array, None, emitter).await?;
                    }
                    return Ok(());
                }
                let array = self.pipeline.register(entry.register_id)?;
                self.registers(array, entry.index.as_ref(), emitter).await
            }
            Entity::PacketReplicationEngineEntry(entry) => {
                use p4::packet_replication_engine_entry::Type;
                match &entry.r#type {
                    Some(Type::MulticastGroupEntry(group)) => {
                        self.groups(group.multicast_group_id, emitter).await
                    }
                    Some(Type::CloneSessionEntry(_)) => {
                        Err(translate::unimplemented_entity("clone_session_entry").into())
                    }
                    None => Err(UpdateError::invalid(
                        "packet_replication_engine_entry: empty, a multicast_group_entry expected",
                    )
                    .into()),
                }
            }
            other => Err(translate::unimplemented_entity(entity_name(other)).into()),
        }
    }

    /// Specification, section "TableEntry", "Wildcard Reads".
    async fn table_entries(
        &self,
        filter: &p4::TableEntry,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        refuse_colour_counters(filter.meter_counter_data.as_ref(), "table_entry")?;
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
            Some(Some(Type::Action(action))) => Some(table.action(action.action_id)?.index),
            Some(_) => {
                return Err(UpdateError::invalid(format!(
                    "{}: action: an action with its id expected as a filter",
                    table.name
                ))
                .into());
            }
        };
        let fields = if filter.r#match.is_empty() {
            None
        } else {
            Some(table.match_fields(&filter.r#match)?)
        };
        if filter.is_default_action {
            if fields.is_some() || filter.priority != 0 {
                return Err(UpdateError::invalid(format!(
                    "{}: is_default_action: true given with a match or a priority; the default \
                     entry has neither",
                    table.name
                ))
                .into());
            }
            return self.default_of(table, filter, action, emitter).await;
        }
        let index = table.index;
        let exact_key = fields
            .clone()
            .filter(|_| filter.priority != 0 || !table.has_priorities())
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
                Err(control::ControlError::NotFound(_)) => Ok(()),
                Err(error) => Err(UpdateError::from_control(error, &table.name).into()),
                Ok(entry) => self.entry(table, filter, action, entry, emitter).await,
            };
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let page = self.page(index, at).await?;
            from = page.next;
            for entry in page.entries {
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
    async fn page(&self, table: usize, from: u64) -> Result<control::EntryPage, Stop> {
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
        entry: control::TableEntry,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let cookie = self
            .state
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
        #[allow(deprecated)]
        let message = p4::TableEntry {
            table_id: table.id,
            r#match: table.match_messages(&entry.key.fields),
            action: table.action_message(&entry.action),
            priority: entry.key.priority,
            controller_metadata: cookie.controller_metadata,
            metadata: cookie.metadata,
            meter_config: filter
                .meter_config
                .and(entry.meter)
                .filter(|_| table.direct_meter.is_some())
                .map(translate::meter_message),
            counter_data: filter
                .counter_data
                .and(entry.counter)
                .filter(|_| table.direct_counter)
                .map(translate::counter_message),
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
        let call = executor::with(&*self.shared.executor, move |switch| {
            switch.table_default(index)
        })
        .await?;
        let cookie = self
            .state
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
            action: call.and_then(|call| table.action_message(&call)),
            is_default_action: true,
            controller_metadata: cookie.controller_metadata,
            metadata: cookie.metadata,
            is_const: table.const_default,
            ..p4::TableEntry::default()
        };
        emitter
            .entity(p4::entity::Entity::TableEntry(message))
            .await
    }

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
                for entry in &page.entries {
                    emitter.entity(message(table, entry)).await?;
                }
            }
        }
        Ok(())
    }

    async fn direct_counters(
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

    async fn direct_meters(
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

    /// Visits the wanted cells in bounded portions and emits what `message` makes of each.
    async fn cells<V: Send + 'static>(
        &self,
        array: &Array,
        index: Option<&p4::Index>,
        read: impl Fn(&mut dyn executor::Switch, usize, usize) -> control::ControlResult<V>
        + Send
        + Copy
        + 'static,
        message: impl Fn(p4::Index, V) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let (mut start, end) = match array.index(index)? {
            Some(index) => (index, index + 1),
            None => (0, array.size),
        };
        let number = array.index;
        while start < end {
            let stop = end.min(start + CELLS_PER_VISIT);
            let values = executor::with(&*self.shared.executor, move |switch| {
                (start..stop)
                    .map(|cell| read(switch, number, cell))
                    .collect::<control::ControlResult<Vec<V>>>()
            })
            .await?
            .map_err(|error| UpdateError::from_control(error, &array.name))?;
            for (cell, value) in (start..stop).zip(values) {
                let index = p4::Index {
                    index: i64::try_from(cell).unwrap_or(i64::MAX),
                };
                emitter.entity(message(index, value)).await?;
            }
            start = stop;
        }
        Ok(())
    }

    async fn counters(
        &self,
        array: &Array,
        index: Option<&p4::Index>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let message = |index, value| {
            p4::entity::Entity::CounterEntry(p4::CounterEntry {
                counter_id: array.id,
                index: Some(index),
                data: Some(translate::counter_message(value)),
            })
        };
        self.cells(
            array,
            index,
            |switch, counter, cell| switch.counter_read(counter, cell),
            message,
            emitter,
        )
        .await
    }

    async fn meters(
        &self,
        array: &Array,
        index: Option<&p4::Index>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let message = |index, value: Option<control::MeterConfig>| {
            p4::entity::Entity::MeterEntry(p4::MeterEntry {
                meter_id: array.id,
                index: Some(index),
                config: value.map(translate::meter_message),
                counter_data: None,
            })
        };
        self.cells(
            array,
            index,
            |switch, meter, cell| switch.meter_read(meter, cell),
            message,
            emitter,
        )
        .await
    }

    async fn registers(
        &self,
        array: &Array,
        index: Option<&p4::Index>,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        if array.cell == translate::Cell::Register(translate::RegisterType::Other) {
            return Err(array.not_implemented().into());
        }
        let message = |index, value: control::Bits| {
            p4::entity::Entity::RegisterEntry(p4::RegisterEntry {
                register_id: array.id,
                index: Some(index),
                data: Some(array.register_message(&value)),
            })
        };
        self.cells(
            array,
            index,
            |switch, register, cell| switch.register_read(register, cell),
            message,
            emitter,
        )
        .await
    }

    async fn groups(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let groups =
            executor::with(&*self.shared.executor, |switch| switch.multicast_groups()).await?;
        let mut found = false;
        for (group, replicas) in groups {
            if id != 0 && group != id {
                continue;
            }
            found = true;
            let cookie = self
                .state
                .group_cookies
                .get(&group)
                .cloned()
                .unwrap_or_default();
            let message = p4::MulticastGroupEntry {
                multicast_group_id: group,
                replicas: replicas
                    .iter()
                    .map(|replica| translate::replica_message(replica, cookie.deprecated_ports))
                    .collect(),
                metadata: cookie.metadata,
            };
            emitter
                .entity(p4::entity::Entity::PacketReplicationEngineEntry(
                    p4::PacketReplicationEngineEntry {
                        r#type: Some(
                            p4::packet_replication_engine_entry::Type::MulticastGroupEntry(message),
                        ),
                    },
                ))
                .await?;
        }
        if id != 0 && !found {
            return Err(UpdateError::new(
                Code::NotFound,
                format!("multicast group {id}: no such group"),
            )
            .into());
        }
        Ok(())
    }
}

/// Whether a read with this filter asks for entries with this cookie: what the filter leaves empty,
/// any will do.
fn cookie_wanted(filter: &p4::TableEntry, cookie: &Cookie) -> bool {
    let wanted = controller_metadata(filter);
    (filter.metadata.is_empty() || filter.metadata == cookie.metadata)
        && (wanted == 0 || wanted == cookie.controller_metadata)
}

/// What identifies an entry, as a controller sees it.
fn key_message(table: &Table, entry: &control::TableEntry) -> p4::TableEntry {
    p4::TableEntry {
        table_id: table.id,
        r#match: table.match_messages(&entry.key.fields),
        priority: entry.key.priority,
        ..p4::TableEntry::default()
    }
}
