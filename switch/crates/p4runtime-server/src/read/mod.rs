//! The `Read` RPC (specification, section "Read RPC"): entities in a stream of bounded
//! messages, tables and arrays in pages.
//!
//! A page is read with the pipeline's lock held, and sent without it. So a page sees each write as a
//! whole or not at all, and writes are made between two pages, even if the client reads slowly. Packets
//! pass while a page is read, so counters may be of different instants.

mod cells;
mod direct;
mod objects;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use switch::Program;
use tokio::sync::{RwLockReadGuard, mpsc};
use tokio::time::Instant;
use tonic::Status;
use v1model::entries::{ControlResult, Page};

use crate::error::{UpdateError, UpdateResult, write_status};
use crate::executor;
use crate::ids::all_or_one;
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::shared::{Places, Shared};
use crate::state::{Annotations, InstalledPipeline, PipelineState};
use crate::translate::{self, BoundPipeline};

/// Most entities in one response; a table entry with its metadata stays under 4 KiB, so a
/// response stays under the 4 MiB that clients take.
const ENTITIES_PER_RESPONSE: usize = 512;
/// Longest time for which a client may leave a response unread.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// Longest time of a whole read. It is long, because a client in interpreted Python needs long for a
/// million register cells.
const READ_LIMIT: Duration = Duration::from_secs(300);

type Responses = mpsc::Sender<Result<p4::ReadResponse, Status>>;

/// The reason why reading stopped.
enum Stop {
    /// This request of the batch is refused; the others go on.
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
    /// The permissions of the controller's role. Other entities are left out.
    scope: Arc<Scope>,
    /// The time when the read must have ended.
    deadline: Instant,
    /// The first reason why an entity of the present request cannot be told.
    untold: Option<UpdateError>,
}

impl Emitter {
    /// Adds an entity of a page, which [`Self::send`] sends when the page is complete. One that cannot be
    /// told is left out, and the request ends with the reason.
    fn entity(&mut self, entity: UpdateResult<p4::entity::Entity>) {
        let entity = match entity {
            Ok(entity) => entity,
            Err(error) => {
                self.untold.get_or_insert(error);
                return;
            }
        };
        if self.scope.has_entity(&entity) {
            self.waiting.push(p4::Entity {
                entity: Some(entity),
            });
        }
    }

    /// Sends the full responses that the entities so far make.
    async fn send(&mut self) -> Result<(), Stop> {
        while self.waiting.len() >= ENTITIES_PER_RESPONSE {
            let rest = self.waiting.split_off(ENTITIES_PER_RESPONSE);
            let entities = std::mem::replace(&mut self.waiting, rest);
            self.send_response(entities).await?;
        }
        Ok(())
    }

    /// Sends the rest.
    async fn finish(&mut self) -> Result<(), Stop> {
        self.send().await?;
        let entities = std::mem::take(&mut self.waiting);
        if entities.is_empty() {
            return Ok(());
        }
        self.send_response(entities).await
    }

    async fn send_response(&self, entities: Vec<p4::Entity>) -> Result<(), Stop> {
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
/// not OK. `places` are released before the status is sent, so others may read while this client
/// leaves its status unread.
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: p4::ReadRequest,
    responses: Responses,
    places: Places,
) {
    let mut emitter = Emitter {
        responses: responses.clone(),
        waiting: Vec::new(),
        scope: shared.scope(&request.role),
        deadline: Instant::now() + READ_LIMIT,
        untold: None,
    };
    let status = match read_shared(&shared, &request, &mut emitter).await {
        Ok(()) | Err(Stop::Gone) => return,
        Err(Stop::All(status)) => status,
        Err(Stop::Request(error)) => error.into(),
    };
    drop(places);
    // Wait as long as the client needs, since an end without a status would look like success.
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
            untold: None,
        };
        let active = state.usable().map_err(Stop::All)?;
        let reader = Reader {
            shared,
            pipeline: &active.pipeline,
            held: Some(active),
        };
        reader.read_all(&request, &mut emitter).await
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

/// Reads the pipeline that is in place now.
async fn read_shared(
    shared: &Shared,
    request: &p4::ReadRequest,
    emitter: &mut Emitter,
) -> Result<(), Stop> {
    let pipeline = {
        let state = shared.pipeline.read().await;
        Arc::clone(&state.usable().map_err(Stop::All)?.pipeline)
    };
    let reader = Reader {
        shared,
        pipeline: &pipeline,
        held: None,
    };
    reader.read_all(request, emitter).await
}

struct Reader<'a> {
    shared: &'a Shared,
    /// The pipeline at the beginning of the read. It must stay in place until the end.
    pipeline: &'a Arc<BoundPipeline>,
    /// The installed pipeline, if the caller holds the lock.
    held: Option<&'a InstalledPipeline>,
}

/// The right to read a page: no write is under way while this exists.
enum View<'a> {
    Held(&'a InstalledPipeline),
    Locked(RwLockReadGuard<'a, InstalledPipeline>),
}

impl View<'_> {
    fn annotations(&self) -> &Annotations {
        match self {
            Self::Held(installed) => &installed.annotations,
            Self::Locked(installed) => &installed.annotations,
        }
    }
}

impl<'a> Reader<'a> {
    async fn read_all(&self, request: &p4::ReadRequest, emitter: &mut Emitter) -> Result<(), Stop> {
        let mut results = Vec::with_capacity(request.entities.len());
        let mut rest = &request.entities[..];
        while let Some(entity) = rest.first() {
            let cells = Self::run_length(rest);
            let (now, later) = rest.split_at(cells.max(1));
            rest = later;
            let read = if cells > 0 {
                self.single_cells(now, emitter).await
            } else {
                let read = self.read(entity, emitter).await;
                read.map(|()| vec![Ok(())])
            };
            let untold = emitter.untold.take();
            match (read, untold) {
                (Ok(_), Some(error)) => results.push(Err(error)),
                (Ok(read), None) => results.extend(read),
                // An error of the array is an error of each entity.
                (Err(Stop::Request(error)), _) => {
                    results.extend(now.iter().map(|_| Err(error.clone())));
                }
                (Err(stop), _) => return Err(stop),
            }
        }
        emitter.finish().await?;
        write_status(&results).map_err(Stop::All)
    }

    /// Waits for the writes that have begun, and holds off others while a page is read.
    async fn view(&self) -> Result<View<'a>, Stop> {
        if let Some(installed) = self.held {
            return Ok(View::Held(installed));
        }
        let state = self.shared.pipeline.read().await;
        let installed = RwLockReadGuard::try_map(state, |state| {
            let installed = state.usable().ok()?;
            Arc::ptr_eq(&installed.pipeline, self.pipeline).then_some(installed)
        });
        installed.map(View::Locked).map_err(|_| {
            Stop::All(Status::aborted(
                "the forwarding pipeline config was replaced during the read; read again",
            ))
        })
    }

    /// Reads from the program in one visit to the thread that owns the switch: work of some
    /// microseconds. `object` is for errors.
    async fn visit<R: Send + 'static>(
        &self,
        view: &View<'_>,
        object: &str,
        read: impl FnOnce(&Program) -> ControlResult<R> + Send + 'static,
    ) -> Result<R, Stop> {
        let mut read = Some(read);
        self.visits(view, object, move |program| {
            read.take().map(|read| read(program)).transpose()
        })
        .await
    }

    /// Calls `piece` on the thread that owns the switch, in as many visits as it takes, until it
    /// returns a value. A piece is work of some microseconds.
    async fn visits<R: Send + 'static>(
        &self,
        _view: &View<'_>,
        object: &str,
        mut piece: impl FnMut(&Program) -> ControlResult<Option<R>> + Send + 'static,
    ) -> Result<R, Stop> {
        let result = executor::reading_in_visits(&*self.shared.executor, move |visit| {
            loop {
                let read = visit.switch.program().and_then(&mut piece);
                if let Some(result) = read.transpose() {
                    return Some(result);
                }
                if visit.is_over() {
                    return None;
                }
            }
        });
        let result = result.await?;
        result.map_err(|error| UpdateError::from_control(error, object).into())
    }

    /// Reads a page of at most `most` objects from `from` on, `at_once` of them between two checks of
    /// [`Visit::is_over`](crate::executor::Visit::is_over).
    async fn page_of<V: Send + 'static>(
        &self,
        view: &View<'_>,
        object: &str,
        from: u64,
        [most, at_once]: [usize; 2],
        read: impl Fn(&Program, u64, usize) -> Page<V> + Send + 'static,
    ) -> Result<Page<V>, Stop> {
        let mut items = Vec::with_capacity(most);
        let mut next = Some(from);
        self.visits(view, object, move |program| {
            let Some(at) = next else {
                return Ok(None);
            };
            let piece = read(program, at, at_once.min(most - items.len()));
            items.extend(piece.items);
            next = piece.next;
            let complete = next.is_none() || items.len() >= most;
            Ok(complete.then(|| Page {
                items: std::mem::take(&mut items),
                next,
            }))
        })
        .await
    }

    async fn read(&self, entity: &p4::Entity, emitter: &mut Emitter) -> Result<(), Stop> {
        use p4::entity::Entity;
        let Some(entity) = &entity.entity else {
            return Err(
                UpdateError::invalid("entity: not given, the kind to read expected").into(),
            );
        };
        let pipeline = self.pipeline;
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
            // Single cells are read together with others.
            Entity::CounterEntry(entry) => {
                let find = |id| pipeline.counter(id);
                for array in all_or_one(&pipeline.counters, entry.counter_id, find)? {
                    self.counters(array, None, emitter).await?;
                }
                Ok(())
            }
            Entity::MeterEntry(entry) => {
                let counts = entry.counter_data.is_some();
                let find = |id| pipeline.meter(id);
                for array in all_or_one(&pipeline.meters, entry.meter_id, find)? {
                    self.meters(array, None, counts, emitter).await?;
                }
                Ok(())
            }
            Entity::RegisterEntry(entry) => {
                let find = |id| pipeline.register(id);
                for array in all_or_one(&pipeline.registers, entry.register_id, find)? {
                    self.registers(array, None, emitter).await?;
                }
                Ok(())
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
                    None => Err(translate::empty_replication_entry().into()),
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
}
