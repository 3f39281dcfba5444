//! The `Read` RPC (specification, section "Read RPC"): entities in a stream of bounded
//! messages, tables and arrays in bounded visits to the switch's thread.
//!
//! Packets pass between two visits, so counters may be of different instants. Writes wait until a
//! read has ended, so a read sees each write done or not begun.

mod cells;
mod direct;
mod objects;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use switch::Program;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tonic::Status;
use v1model::entries::ControlResult;

use crate::error::{UpdateError, write_status};
use crate::executor;
use crate::ids::all_or_one;
use crate::proto::p4::v1 as p4;
use crate::roles::Scope;
use crate::shared::Shared;
use crate::state::{Annotations, PipelineState};
use crate::translate::{self, BoundPipeline};

/// Most entities in one response; a table entry with its metadata stays under 4 KiB, so a
/// response stays under the 4 MiB that clients take.
const ENTITIES_PER_RESPONSE: usize = 512;
/// How long a client may leave a response unread. A read excludes writes while it lasts, so it must
/// not wait for ever for a client that stops reading.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a whole read may take, for the same reason; generous, because a client in
/// interpreted Python takes its time over a million register cells.
const READ_LIMIT: Duration = Duration::from_secs(300);

type Responses = mpsc::Sender<Result<p4::ReadResponse, Status>>;

/// Why reading stopped.
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
/// not OK. `permit` is given back before the status is sent, so others may read while this client
/// leaves its status unread.
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: p4::ReadRequest,
    responses: Responses,
    permit: OwnedSemaphorePermit,
) {
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
    drop(permit);
    // Without the lock, and for as long as the client takes. An end without a status would look
    // like success.
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
        annotations: &active.annotations,
        pipeline: &active.pipeline,
    };
    let mut results = Vec::with_capacity(request.entities.len());
    let mut rest = &request.entities[..];
    while let Some(entity) = rest.first() {
        let cells = cells::run_length(rest);
        let (now, later) = rest.split_at(cells.max(1));
        rest = later;
        let read = if cells > 0 {
            reader.single_cells(now, emitter).await
        } else {
            let read = reader.read(entity, emitter).await;
            read.map(|()| vec![Ok(())])
        };
        match read {
            Ok(read) => results.extend(read),
            // An error of the array is an error of each entity.
            Err(Stop::Request(error)) => results.extend(now.iter().map(|_| Err(error.clone()))),
            Err(stop) => return Err(stop),
        }
    }
    emitter.flush().await?;
    write_status(&results).map_err(Stop::All)
}

struct Reader<'a> {
    shared: &'a Shared,
    annotations: &'a Annotations,
    pipeline: &'a BoundPipeline,
}

impl Reader<'_> {
    /// Reads from the program in one visit to the thread that owns the switch. `object` is for
    /// errors.
    async fn visit<R: Send + 'static>(
        &self,
        object: &str,
        read: impl FnOnce(&Program) -> ControlResult<R> + Send + 'static,
    ) -> Result<R, Stop> {
        let result = executor::with(&*self.shared.executor, |switch| read(switch.program()?));
        let result = result.await?;
        result.map_err(|error| UpdateError::from_control(error, object).into())
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
