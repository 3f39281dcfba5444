//! The `Read` RPC (specification, section "Read RPC"): entities in a stream of bounded
//! messages, tables and arrays in bounded visits to the data plane.
//!
//! Packets pass between two visits, so counters that count them may be from different instants.
//! What controllers write is not torn: writes wait until a read has ended.

use std::sync::Arc;
use std::time::Duration;

use dataplane::control::{self, EntryKey};
use dataplane::profile::{ProfileGroup, ProfileMember};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

use crate::error::{UpdateError, write_status};
use crate::executor;
use crate::pipeline_config::{Cookie, PipelineState, Side};
use crate::plan::{check_default_key, controller_metadata, direct_entry};
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::server::Shared;
use crate::translate::{self, Array, Pipeline, Profile, Table};
use crate::write::CELLS_PER_VISIT;

/// Most entities in one response; a table entry with its metadata stays under 4 KiB, so a
/// response stays under the 4 MiB that clients take.
const ENTITIES_PER_RESPONSE: usize = 512;
/// Entries of a table, or members of a profile, read in one visit. (A switch of 64-byte frames
/// has some 2,000 a millisecond to forward; copying these takes a fraction of one.)
const ENTRIES_PER_VISIT: usize = 1_024;
/// Groups and sessions read in one visit: each may have hundreds of members or replicas.
const GROUPS_PER_VISIT: usize = 32;
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
    /// Of the role whose entities are asked for; others are left out.
    scope: Arc<Scope>,
    /// When the read must have ended.
    deadline: Instant,
}

impl Emitter {
    async fn entity(&mut self, entity: p4::entity::Entity) -> Result<(), Stop> {
        if !self.scope.has_entity(&entity) {
            return Ok(());
        }
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
            scope: shared.scope(&request.role),
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

/// Reads entities for the server itself: those that are `wanted`.
///
/// # Errors
/// The status that a client would get.
pub(crate) async fn collect(
    shared: &Shared,
    state: &PipelineState,
    entities: Vec<p4::entity::Entity>,
    wanted: impl Fn(&p4::entity::Entity) -> bool,
) -> Result<Vec<p4::entity::Entity>, Status> {
    let (responses, mut receiver) = mpsc::channel(2);
    let request = p4::ReadRequest {
        entities: entities
            .into_iter()
            .map(|entity| p4::Entity {
                entity: Some(entity),
            })
            .collect(),
        ..p4::ReadRequest::default()
    };
    let reading = async {
        // Dropped at the end, which ends the collection.
        let mut emitter = Emitter {
            responses,
            waiting: Vec::new(),
            scope: Arc::default(),
            deadline: Instant::now() + READ_LIMIT,
        };
        read_all(shared, state, &request, &mut emitter).await
    };
    let collecting = async {
        let mut all = Vec::new();
        while let Some(Ok(response)) = receiver.recv().await {
            let entities = response.entities.into_iter();
            all.extend(entities.filter_map(|entity| entity.entity).filter(&wanted));
        }
        all
    };
    match tokio::join!(reading, collecting) {
        (Ok(()), all) => Ok(all),
        (Err(Stop::All(status)), _) => Err(status),
        (Err(Stop::Request(error)), _) => Err(error.into()),
        (Err(Stop::Gone), _) => Err(Status::internal("the collection ended early")),
    }
}

async fn read_all(
    shared: &Shared,
    state: &PipelineState,
    request: &p4::ReadRequest,
    emitter: &mut Emitter,
) -> Result<(), Stop> {
    let active = state.usable().map_err(Stop::All)?;
    let reader = Reader {
        shared,
        side: &active.side,
        pipeline: &active.pipeline,
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

/// Direct counter and meter of an entry.
type DirectState = (Option<control::CounterValue>, Option<control::MeterState>);

/// Whose direct resources are wanted.
enum Place {
    /// Those of all entries of a table.
    Entries,
    Entry(EntryKey),
    Default,
}

struct Reader<'a> {
    shared: &'a Shared,
    side: &'a Side,
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
                let counts = entry.counter_data.is_some();
                self.direct_meters(entry.table_entry.as_ref(), counts, emitter)
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
                let counts = entry.counter_data.is_some();
                if entry.meter_id == 0 {
                    for array in &self.pipeline.meters {
                        self.meters(array, None, counts, emitter).await?;
                    }
                    return Ok(());
                }
                let array = self.pipeline.meter(entry.meter_id)?;
                self.meters(array, entry.index.as_ref(), counts, emitter)
                    .await
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
                    Some(Type::CloneSessionEntry(session)) => {
                        self.sessions(session.session_id, emitter).await
                    }
                    None => Err(UpdateError::invalid(
                        "packet_replication_engine_entry: empty, a multicast_group_entry or \
                         clone_session_entry expected",
                    )
                    .into()),
                }
            }
            Entity::ActionProfileMember(filter) => {
                let (id, member) = (filter.action_profile_id, filter.member_id);
                for profile in self.profiles(id, member, "member_id")? {
                    self.members(profile, member, emitter).await?;
                }
                Ok(())
            }
            Entity::ActionProfileGroup(filter) => {
                let (id, group) = (filter.action_profile_id, filter.group_id);
                for profile in self.profiles(id, group, "group_id")? {
                    self.profile_groups(profile, group, emitter).await?;
                }
                Ok(())
            }
            Entity::ValueSetEntry(filter) => self.value_sets(filter.value_set_id, emitter).await,
            Entity::DigestEntry(filter) => self.digests(filter.digest_id, emitter).await,
            // "Read all extern instances for all supported extern types": there are none.
            Entity::ExternEntry(filter) if filter.extern_type_id == 0 => Ok(()),
            Entity::ExternEntry(_) => Err(translate::unimplemented_entity("extern_entry").into()),
        }
    }

    /// Specification, section "TableEntry", "Wildcard Reads".
    async fn table_entries(
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
                Err(control::ControlError::NotFound(_)) => Ok(()),
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
    async fn page(
        &self,
        table: usize,
        from: u64,
    ) -> Result<control::Page<control::TableEntry>, Stop> {
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

    /// Where the wanted direct resources are: at one entry (its key), in a table, or in all.
    fn direct_places(
        &self,
        filter: Option<&p4::TableEntry>,
        what: &str,
        has: impl Fn(&Table) -> bool,
    ) -> Result<Vec<(&Table, Place)>, Stop> {
        let table_id = filter.map_or(0, |filter| filter.table_id);
        let default = filter.is_some_and(|filter| filter.is_default_action);
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
                let (table, key) = direct_entry(self.pipeline, filter, what)?;
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
                    Place::Entries
                };
                (table, place)
            })
            .collect())
    }

    /// Emits what `message` makes of each entry in these places: of the table, the entry's key as a
    /// controller sees it, and its counter and meter.
    async fn direct_resources(
        &self,
        places: Vec<(&Table, Place)>,
        message: impl Fn(&Table, p4::TableEntry, DirectState) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        for (table, place) in places {
            let index = table.index;
            let of = |entry: &control::TableEntry| {
                let state = (entry.counter, entry.meter);
                message(table, key_message(table, entry), state)
            };
            match place {
                Place::Entry(key) => {
                    let entry = executor::with(&*self.shared.executor, move |switch| {
                        switch.table_entry(index, &key)
                    })
                    .await?
                    .map_err(|error| UpdateError::from_control(error, &table.name))?;
                    emitter.entity(of(&entry)).await?;
                }
                Place::Default => {
                    let default = executor::with(&*self.shared.executor, move |switch| {
                        switch.table_default(index)
                    })
                    .await?
                    .map_err(|error| UpdateError::from_control(error, &table.name))?;
                    let key = p4::TableEntry {
                        table_id: table.id,
                        is_default_action: true,
                        ..p4::TableEntry::default()
                    };
                    let state = (default.counter, default.meter);
                    emitter.entity(message(table, key, state)).await?;
                }
                Place::Entries => {
                    let mut from = Some(0);
                    while let Some(at) = from {
                        let page = self.page(index, at).await?;
                        from = page.next;
                        for entry in &page.items {
                            emitter.entity(of(entry)).await?;
                        }
                    }
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
        let message = |table: &Table, key, (counter, _): DirectState| {
            p4::entity::Entity::DirectCounterEntry(p4::DirectCounterEntry {
                table_entry: Some(key),
                data: counter_data(table, counter),
            })
        };
        self.direct_resources(places, message, emitter).await
    }

    async fn direct_meters(
        &self,
        filter: Option<&p4::TableEntry>,
        counts: bool,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let places = self.direct_places(filter, "direct_meter_entry", |table| {
            table.direct_meter.is_some()
        })?;
        let message = |table: &Table, key, (_, meter): DirectState| {
            p4::entity::Entity::DirectMeterEntry(p4::DirectMeterEntry {
                table_entry: Some(key),
                config: meter_config(table, meter),
                counter_data: meter_counts(table, meter).filter(|_| counts),
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
        counts: bool,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let message = |index, meter: control::MeterState| {
            p4::entity::Entity::MeterEntry(p4::MeterEntry {
                meter_id: array.id,
                index: Some(index),
                config: meter.config.map(translate::meter_message),
                counter_data: counts.then(|| translate::meter_counts_message(meter.counts)),
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
        let shape = array.register_shape()?;
        let message = |index, value: control::Bits| {
            p4::entity::Entity::RegisterEntry(p4::RegisterEntry {
                register_id: array.id,
                index: Some(index),
                data: Some(shape.one(&value)),
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

    /// Emits what `message` makes of the object that `one` reads, or, where there is none, of all
    /// that `page` reads, a page per visit.
    async fn objects<V: Send + 'static>(
        &self,
        object: &str,
        one: Option<
            impl FnOnce(&mut dyn executor::Switch) -> control::ControlResult<V> + Send + 'static,
        >,
        page: impl Fn(&mut dyn executor::Switch, u64) -> control::Page<V> + Send + Copy + 'static,
        message: impl Fn(V) -> p4::entity::Entity,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        if let Some(one) = one {
            let value = executor::with(&*self.shared.executor, one)
                .await?
                .map_err(|error| UpdateError::from_control(error, object))?;
            return emitter.entity(message(value)).await;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            let read = executor::with(&*self.shared.executor, move |switch| page(switch, at));
            let read = read.await?;
            from = read.next;
            for value in read.items {
                emitter.entity(message(value)).await?;
            }
        }
        Ok(())
    }

    async fn groups(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0).then_some(move |switch: &mut dyn executor::Switch| {
            Ok((id, switch.multicast_group(id)?))
        });
        let message = |(multicast_group_id, replicas): (u32, Vec<control::Replica>)| {
            let cookie = self.side.groups.get(&multicast_group_id).cloned();
            let cookie = cookie.unwrap_or_default();
            pre_entity(
                p4::packet_replication_engine_entry::Type::MulticastGroupEntry(
                    p4::MulticastGroupEntry {
                        multicast_group_id,
                        replicas: translate::replica_messages(&replicas, &cookie.deprecated_ports),
                        metadata: cookie.metadata,
                    },
                ),
            )
        };
        self.objects(
            &format!("multicast group {id}"),
            one,
            |switch, from| switch.multicast_groups(from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    async fn sessions(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let one = (id != 0).then_some(move |switch: &mut dyn executor::Switch| {
            Ok((id, switch.clone_session(id)?))
        });
        let message = |(id, session): (u32, control::CloneSession)| {
            let deprecated = self.side.sessions.get(&id).map_or(&[][..], Vec::as_slice);
            pre_entity(
                p4::packet_replication_engine_entry::Type::CloneSessionEntry(
                    translate::clone_session_message(id, &session, deprecated),
                ),
            )
        };
        self.objects(
            &format!("clone session {id}"),
            one,
            |switch, from| switch.clone_sessions(from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    /// The profiles whose members or groups are wanted; `inner`: the id of one of these.
    fn profiles(&self, id: u32, inner: u32, field: &str) -> Result<Vec<&Profile>, Stop> {
        if id != 0 {
            return Ok(vec![self.pipeline.profile(id)?]);
        }
        if inner != 0 {
            return Err(UpdateError::invalid(format!(
                "{field}: {inner} given without action_profile_id; the id belongs to one profile"
            ))
            .into());
        }
        Ok(self.pipeline.profiles.iter().collect())
    }

    async fn members(&self, profile: &Profile, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let index = profile.index;
        let table = self.pipeline.table_of(profile).ok();
        let one =
            (id != 0).then_some(move |switch: &mut dyn executor::Switch| switch.member(index, id));
        let message = |member: ProfileMember| {
            p4::entity::Entity::ActionProfileMember(p4::ActionProfileMember {
                action_profile_id: profile.id,
                member_id: member.id,
                action: table.and_then(|table| table.action_message(&member.call)),
            })
        };
        self.objects(
            &profile.name,
            one,
            move |switch, from| switch.members(index, from, ENTRIES_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    async fn profile_groups(
        &self,
        profile: &Profile,
        id: u32,
        emitter: &mut Emitter,
    ) -> Result<(), Stop> {
        let index = profile.index;
        let one =
            (id != 0).then_some(move |switch: &mut dyn executor::Switch| switch.group(index, id));
        let message = |group: ProfileGroup| {
            p4::entity::Entity::ActionProfileGroup(profile.group_message(&group))
        };
        self.objects(
            &profile.name,
            one,
            move |switch, from| switch.groups(index, from, GROUPS_PER_VISIT),
            message,
            emitter,
        )
        .await
    }

    async fn value_sets(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let sets = match id {
            0 => self.pipeline.value_sets.iter().collect(),
            id => vec![self.pipeline.value_set(id)?],
        };
        for set in sets {
            let index = set.index;
            let members = executor::with(&*self.shared.executor, move |switch| {
                switch.value_set_members(index)
            })
            .await?
            .map_err(|error| UpdateError::from_control(error, &set.name))?;
            let members = members.iter().map(|fields| p4::ValueSetMember {
                r#match: set.keys.match_messages(fields),
            });
            let message = p4::ValueSetEntry {
                value_set_id: set.id,
                members: members.collect(),
            };
            emitter
                .entity(p4::entity::Entity::ValueSetEntry(message))
                .await?;
        }
        Ok(())
    }

    async fn digests(&self, id: u32, emitter: &mut Emitter) -> Result<(), Stop> {
        let digests = match id {
            0 => self.pipeline.digests.iter().collect(),
            id => vec![self.pipeline.digest(id)?],
        };
        for digest in digests {
            let index = digest.index;
            let config = executor::with(&*self.shared.executor, move |switch| {
                switch.digest_config(index)
            })
            .await?
            .map_err(|error| UpdateError::from_control(error, &digest.name))?;
            match config {
                Some(config) => {
                    let message = digest.config_message(config);
                    emitter
                        .entity(p4::entity::Entity::DigestEntry(message))
                        .await?;
                }
                None if id != 0 => {
                    return Err(UpdateError::not_found(format!(
                        "{}: the digest is not enabled",
                        digest.name
                    ))
                    .into());
                }
                None => {}
            }
        }
        Ok(())
    }
}

fn pre_entity(entry: p4::packet_replication_engine_entry::Type) -> p4::entity::Entity {
    p4::entity::Entity::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry {
        r#type: Some(entry),
    })
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

/// A direct counter as a controller sees it, if P4Info gives the table one.
fn counter_data(table: &Table, counter: Option<control::CounterValue>) -> Option<p4::CounterData> {
    let counter = counter.filter(|_| table.direct_counter)?;
    Some(translate::counter_message(counter))
}

/// The configuration of a direct meter; "if the meter entry's configuration is the default
/// configuration, meter_config is unset in the response".
fn meter_config(table: &Table, meter: Option<control::MeterState>) -> Option<p4::MeterConfig> {
    let meter = meter.filter(|_| table.direct_meter.is_some())?;
    meter.config.map(translate::meter_message)
}

/// What a direct meter has coloured.
fn meter_counts(table: &Table, meter: Option<control::MeterState>) -> Option<p4::MeterCounterData> {
    let meter = meter.filter(|_| table.direct_meter.is_some())?;
    Some(translate::meter_counts_message(meter.counts))
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
