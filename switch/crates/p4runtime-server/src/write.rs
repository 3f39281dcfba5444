//! The `Write` RPC: runs batches of updates (specification, section "Write RPC").

use std::sync::Arc;

use tonic::{Code, Status};
use v1model::entries::CellValue;

use crate::error::{UpdateError, UpdateResult, control_status, write_status};
use crate::executor;
use crate::operation::{Operation, Undo, set_cell};
use crate::plan::{self, Planned};
use crate::proto::p4::v1 as p4;
use crate::shared::Shared;
use crate::state::PipelineState;

/// Most operations in one visit to the switch's thread. Packets pass between visits.
const OPERATIONS_PER_VISIT: usize = 256;

/// `Write`, after the checks of device and primary; the caller holds the write lock.
pub(crate) async fn write(
    shared: &Shared,
    state: &mut PipelineState,
    request: p4::WriteRequest,
) -> Result<(), Status> {
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
    let planned: Vec<UpdateResult<Planned>> = request
        .updates
        .iter()
        .map(|update| plan::plan(&pipeline, &shared.config.limits, &scope, update))
        .collect();
    use p4::write_request::Atomicity;
    let results = match Atomicity::try_from(request.atomicity) {
        Ok(Atomicity::ContinueOnError) => {
            let planned = planned.iter();
            let planned = planned.map(|planned| planned.as_ref().map_err(UpdateError::clone));
            run_each(shared, planned).await?
        }
        // A batch runs in one visit, between two packets, and is undone at the first error. That
        // fulfils both modes.
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
            active.annotations.apply(planned.annotation);
        }
    }
    write_status(&results)
}

/// Runs every operation, whether or not the others succeed.
pub(crate) async fn run_each(
    shared: &Shared,
    planned: impl Iterator<Item = UpdateResult<&Planned>>,
) -> Result<Vec<UpdateResult<()>>, Status> {
    let mut results: Vec<UpdateResult<()>> = Vec::new();
    // Operations that wait to run in one visit.
    let mut batch = Vec::new();
    for planned in planned {
        match planned {
            Err(error) => {
                results.extend(run_batch(shared, &mut batch).await?);
                results.push(Err(error));
            }
            Ok(Planned {
                operation: Operation::Fill { array, size, value },
                object,
                ..
            }) => {
                results.extend(run_batch(shared, &mut batch).await?);
                results.push(fill(shared, *array, *size, value, object).await?);
            }
            Ok(planned) => {
                batch.push((planned.operation.clone(), planned.object.clone()));
                if batch.len() >= OPERATIONS_PER_VISIT {
                    results.extend(run_batch(shared, &mut batch).await?);
                }
            }
        }
    }
    results.extend(run_batch(shared, &mut batch).await?);
    Ok(results)
}

/// Runs the operations of `batch`, which is empty then, in one visit.
async fn run_batch(
    shared: &Shared,
    batch: &mut Vec<(Operation, String)>,
) -> Result<Vec<UpdateResult<()>>, Status> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let batch = std::mem::take(batch);
    let done = executor::with(&*shared.executor, move |switch| {
        let program = switch.program_mut()?;
        let results = batch.iter().map(|(operation, object)| {
            let applied = operation.apply(program).map(drop);
            applied.map_err(|error| UpdateError::from_control(error, object))
        });
        Ok(results.collect::<Vec<_>>())
    })
    .await?;
    done.map_err(|error| control_status(&error))
}

/// Runs all operations in one visit; the first that fails undoes those before it.
async fn run_all_or_none(
    shared: &Shared,
    planned: &[UpdateResult<Planned>],
) -> Result<Vec<UpdateResult<()>>, Status> {
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
             {room} bytes, the limit of memory for taking a batch back; write them with \
             CONTINUE_ON_ERROR"
        )));
    }
    let count = operations.len();
    let run = executor::with(&*shared.executor, move |switch| {
        let program = switch.program_mut()?;
        let mut undos: Vec<Undo> = Vec::with_capacity(count);
        for (position, (operation, object)) in operations.iter().enumerate() {
            match operation.apply(program) {
                Ok(undo) => undos.push(undo),
                Err(error) => {
                    for undo in undos.into_iter().rev() {
                        if let Err(error) = undo.run(program) {
                            debug_assert!(false, "a state that was there is refused: {error}");
                            tracing::error!(%error, "rollback of a batch failed");
                        }
                    }
                    let error = UpdateError::from_control(error, object);
                    return Ok((Some((position, error)), Vec::new()));
                }
            }
        }
        Ok((None, undos))
    })
    .await?;
    // The copies of large arrays are freed here, not on the thread that owns the switch.
    let (failure, _undos) = run.map_err(|error| control_status(&error))?;
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

/// Writes all cells of an array, some thousand in a visit.
async fn fill(
    shared: &Shared,
    array: usize,
    size: usize,
    value: &CellValue,
    object: &str,
) -> Result<UpdateResult<()>, Status> {
    let mut start = 0;
    while start < size {
        let end = size.min(start + executor::CELLS_PER_VISIT);
        let value = value.clone();
        let done = executor::with(&*shared.executor, move |switch| {
            let pipeline = switch.program_mut()?.pipeline_mut();
            (start..end).try_for_each(|index| set_cell(&value, array, index, pipeline))
        })
        .await?;
        if let Err(error) = done {
            return Ok(Err(UpdateError::from_control(error, object)));
        }
        start = end;
    }
    Ok(Ok(()))
}

/// Runs the batch on a task of its own, so that it ends even if the client goes away ("the server
/// will finish processing any Write requests that have already started").
pub(crate) async fn run(shared: Arc<Shared>, request: p4::WriteRequest) -> Result<(), Status> {
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
