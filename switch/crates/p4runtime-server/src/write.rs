//! The `Write` RPC: runs batches of updates (specification, section "Write RPC").

use std::sync::Arc;

use tonic::{Code, Status};

use crate::batch::{self, Named};
use crate::error::{UpdateError, UpdateResult, write_status};
use crate::executor;
use crate::intake::Caller;
use crate::plan::{self, Planned};
use crate::proto::p4::v1 as p4;
use crate::shared::Shared;
use crate::state::PipelineState;

/// `Write`, after the checks of device and primary; the caller holds the write lock.
pub(crate) async fn write(
    shared: &Shared,
    state: &mut PipelineState,
    request: p4::WriteRequest,
) -> Result<(), Status> {
    let active = state.usable_mut()?;
    let pipeline = Arc::clone(&active.pipeline);
    debug_assert!(
        request.updates.len() <= shared.config.limits.updates_per_write,
        "the intake has counted them"
    );
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
        Ok(Atomicity::RollbackOnError) => {
            let operations = undoable(shared, &planned)?;
            run_all_or_none(shared, &planned, operations, false).await?
        }
        Ok(Atomicity::DataplaneAtomic) => {
            let operations = undoable(shared, &planned)?;
            check_work(shared, &operations)?;
            run_all_or_none(shared, &planned, operations, true).await?
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

/// Runs every operation, even if others fail.
pub(crate) async fn run_each(
    shared: &Shared,
    planned: impl Iterator<Item = UpdateResult<&Planned>>,
) -> Result<Vec<UpdateResult<()>>, Status> {
    let mut operations = Vec::new();
    let refused: Vec<UpdateResult<()>> = planned
        .map(|planned| {
            let planned = planned?;
            operations.push((planned.operation.clone(), planned.object.clone()));
            Ok(())
        })
        .collect();
    let mut results = batch::each(&*shared.executor, operations)
        .await?
        .into_iter();
    let merged = refused.into_iter().map(|refused| match refused {
        Ok(()) => results.next().unwrap_or(Ok(())),
        Err(error) => Err(error),
    });
    Ok(merged.collect())
}

/// The operations of a batch that can be undone. None if an update is refused before anything is done.
///
/// # Errors
/// `UNIMPLEMENTED`: the undo would need too much memory.
fn undoable(shared: &Shared, planned: &[UpdateResult<Planned>]) -> Result<Vec<Named>, Status> {
    let Ok(operations) = planned
        .iter()
        .map(|planned| match planned {
            Ok(planned) => Ok((planned.operation.clone(), planned.object.clone())),
            Err(_) => Err(()),
        })
        .collect::<Result<Vec<Named>, ()>>()
    else {
        return Ok(Vec::new());
    };
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
    Ok(operations)
}

/// Checks that a batch can be carried out between two packets without delaying them.
fn check_work(shared: &Shared, operations: &[Named]) -> Result<(), Status> {
    let most = shared.config.limits.atomic_work;
    let work = operations.iter().map(|(operation, _)| operation.work());
    let work = work.fold(0, usize::saturating_add);
    if work <= most {
        return Ok(());
    }
    Err(Status::unimplemented(format!(
        "atomicity: DATAPLANE_ATOMIC: a batch of {work} units of work given, at most {most} between \
         two packets (an update is one unit; a whole array one for each {} cells, or each cell of a \
         meter); send it as ROLLBACK_ON_ERROR, during which packets pass",
        executor::CELLS_PER_LOOK
    )))
}

/// Runs all operations; if one fails, those before it are undone. `at_once`: between two packets.
async fn run_all_or_none(
    shared: &Shared,
    planned: &[UpdateResult<Planned>],
    operations: Vec<Named>,
    at_once: bool,
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
    let failure = if at_once {
        batch::at_once(&*shared.executor, operations).await?
    } else {
        batch::all_or_none(&*shared.executor, operations).await?
    };
    let Some((failed, error)) = failure else {
        return Ok(planned.iter().map(|_| Ok(())).collect());
    };
    let results = (0..planned.len()).map(|position| {
        Err(if position == failed {
            error.clone()
        } else {
            aborted()
        })
    });
    Ok(results.collect())
}

/// Runs the batch on a task of its own, so that it completes even if the client disconnects ("the server
/// will finish processing any Write requests that have already started").
pub(crate) async fn run(
    shared: Arc<Shared>,
    caller: Caller,
    request: p4::WriteRequest,
) -> Result<(), Status> {
    let client = caller.client;
    shared.check_primary(
        client.standing,
        request.device_id,
        &request.role,
        request.election_id.as_ref(),
    )?;
    let task = tokio::spawn(async move {
        let mut state = shared.pipeline.write().await;
        let _taken = caller.taken;
        let _changing = shared.begin(
            client,
            request.device_id,
            &request.role,
            request.election_id.as_ref(),
        )?;
        shared.note_writer(client, &request.role, request.election_id.as_ref());
        write(&shared, &mut state, request).await
    });
    task.await
        .map_err(|error| Status::internal(format!("the write was cut short: {error}")))?
}
