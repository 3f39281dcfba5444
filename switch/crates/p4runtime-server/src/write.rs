//! The `Write` RPC: batches of updates and their execution (specification, section "Write RPC").

use std::sync::Arc;

use tonic::{Code, Status};
use v1model::entries::CellValue;

use crate::error::{UpdateError, write_status};
use crate::executor;
use crate::operation::{Operation, Undo, set_cell};
use crate::plan::{self, Planned};
use crate::proto::p4::v1 as p4;
use crate::shared::Shared;
use crate::state::PipelineState;

type Result<T> = std::result::Result<T, UpdateError>;

/// Operations run in one visit to the data plane's thread; packets pass between visits.
const OPERATIONS_PER_VISIT: usize = 256;

/// `Write`, after the checks of device and primary; the caller holds the write lock.
pub(crate) async fn write(
    shared: &Shared,
    state: &mut PipelineState,
    request: p4::WriteRequest,
) -> std::result::Result<(), Status> {
    let active = state.usable_mut()?;
    let pipeline = Arc::clone(&active.pipeline);
    let most = shared.config.limits.updates_per_write;
    if request.updates.len() > most {
        return Err(Status::invalid_argument(format!(
            "updates: {} given, at most {most} expected in one WriteRequest",
            request.updates.len()
        )));
    }
    let scope = shared.scope(&request.role);
    let planned: Vec<Result<Planned>> = request
        .updates
        .iter()
        .map(|update| plan::plan(&pipeline, &shared.config.limits, &scope, update))
        .collect();
    use p4::write_request::Atomicity;
    let results = match Atomicity::try_from(request.atomicity) {
        Ok(Atomicity::ContinueOnError) => run_each(shared, &planned).await?,
        // A batch runs in one visit, between two packets, and is undone at the first error:
        // that is both modes at once.
        Ok(Atomicity::RollbackOnError | Atomicity::DataplaneAtomic) => {
            run_all_or_none(shared, &planned).await?
        }
        Err(_) => {
            return Err(Status::invalid_argument(format!(
                "atomicity: {} given, CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR or DATAPLANE_ATOMIC \
                 expected",
                request.atomicity
            )));
        }
    };
    for (planned, result) in planned.into_iter().zip(&results) {
        if let (Ok(planned), Ok(())) = (planned, result) {
            planned.side.apply(&mut active.side);
        }
    }
    write_status(&results)
}

/// Runs every operation whatever becomes of the others.
pub(crate) async fn run_each(
    shared: &Shared,
    planned: &[Result<Planned>],
) -> std::result::Result<Vec<Result<()>>, Status> {
    let mut results: Vec<Result<()>> = Vec::with_capacity(planned.len());
    let mut rest = planned;
    while let Some(first) = rest.first() {
        match first {
            Err(error) => {
                results.push(Err(error.clone()));
                rest = rest.get(1..).unwrap_or(&[]);
            }
            Ok(Planned {
                operation: Operation::Fill { array, size, value },
                object,
                ..
            }) => {
                results.push(fill(shared, *array, *size, value, object).await?);
                rest = rest.get(1..).unwrap_or(&[]);
            }
            Ok(_) => {
                let run: Vec<(Operation, String)> = rest
                    .iter()
                    .take(OPERATIONS_PER_VISIT)
                    .map_while(|planned| match planned {
                        Ok(planned) if !matches!(planned.operation, Operation::Fill { .. }) => {
                            Some((planned.operation.clone(), planned.object.clone()))
                        }
                        _ => None,
                    })
                    .collect();
                rest = rest.get(run.len()..).unwrap_or(&[]);
                let done = executor::with(&*shared.executor, move |switch| {
                    run.iter()
                        .map(|(operation, object)| {
                            operation
                                .apply(switch)
                                .map_err(|error| UpdateError::from_control(error, object))
                        })
                        .collect::<Vec<_>>()
                })
                .await?;
                results.extend(done);
            }
        }
    }
    Ok(results)
}

/// Runs all operations in one visit; the first that fails undoes those before it.
async fn run_all_or_none(
    shared: &Shared,
    planned: &[Result<Planned>],
) -> std::result::Result<Vec<Result<()>>, Status> {
    let aborted = || {
        UpdateError::new(
            Code::Aborted,
            "not applied: another update of the batch failed",
        )
    };
    if planned.iter().any(Result::is_err) {
        return Ok(planned
            .iter()
            .map(|planned| match planned {
                Ok(_) => Err(aborted()),
                Err(error) => Err(error.clone()),
            })
            .collect());
    }
    let operations: Vec<(Operation, String)> = planned
        .iter()
        .filter_map(|planned| planned.as_ref().ok())
        .map(|planned| (planned.operation.clone(), planned.object.clone()))
        .collect();
    let room = shared.config.limits.rollback_bytes;
    let needed = operations
        .iter()
        .map(|(operation, _)| operation.array_bytes());
    if needed.fold(0, usize::saturating_add) > room {
        // "If a P4Runtime supports some batches in an atomic way but not others, an UNIMPLEMENTED
        // error is returned when the batch cannot be executed in a data plane-atomic way."
        return Err(Status::unimplemented(format!(
            "atomicity: the whole arrays that this batch writes (index not given) take more than \
             {room} bytes, which is what is kept to take a batch back; write them with \
             CONTINUE_ON_ERROR"
        )));
    }
    let count = operations.len();
    let (failure, _kept) = executor::with(&*shared.executor, move |switch| {
        let mut undos: Vec<Undo> = Vec::with_capacity(count);
        for (position, (operation, object)) in operations.iter().enumerate() {
            match operation.apply_with_undo(switch) {
                Ok(undo) => undos.push(undo),
                Err(error) => {
                    // Each restores a state that was there: it cannot be refused.
                    if let Err(error) = Undo::All(undos).run(switch) {
                        tracing::error!(%error, "rollback of a batch failed");
                    }
                    let error = UpdateError::from_control(error, object);
                    return (Some((position, error)), Vec::new());
                }
            }
        }
        // What large arrays held is freed on this side.
        (None, undos)
    })
    .await?;
    Ok(match failure {
        None => (0..count).map(|_| Ok(())).collect(),
        Some((failed, error)) => (0..count)
            .map(|position| {
                Err(if position == failed {
                    error.clone()
                } else {
                    aborted()
                })
            })
            .collect(),
    })
}

/// Writes all cells of an array, some thousand per visit.
async fn fill(
    shared: &Shared,
    array: usize,
    size: usize,
    value: &CellValue,
    object: &str,
) -> std::result::Result<Result<()>, Status> {
    let mut start = 0;
    while start < size {
        let end = size.min(start + executor::CELLS_PER_VISIT);
        let value = value.clone();
        let done = executor::with(&*shared.executor, move |switch| {
            (start..end).try_for_each(|index| set_cell(&value, array, index, switch))
        })
        .await?;
        if let Err(error) = done {
            return Ok(Err(UpdateError::from_control(error, object)));
        }
        start = end;
    }
    Ok(Ok(()))
}

/// The batch on a task of its own: a client that goes away does not cut it short ("the server
/// will finish processing any Write requests that have already started").
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: p4::WriteRequest,
) -> std::result::Result<(), Status> {
    shared.check_primary(
        request.device_id,
        &request.role,
        request.election_id.as_ref(),
    )?;
    let task = tokio::spawn(async move {
        let mut state = shared.pipeline.write().await;
        let _changing = shared.begin(
            request.device_id,
            &request.role,
            request.election_id.as_ref(),
        )?;
        write(&shared, &mut state, request).await
    });
    task.await
        .map_err(|error| Status::internal(format!("the write was cut short: {error}")))?
}
