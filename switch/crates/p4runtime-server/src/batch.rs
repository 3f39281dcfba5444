//! Batches of operations on the switch's thread, in as many visits as they need.

use switch::Switch;
use v1model::entries::ControlResult;

use crate::error::{UpdateError, UpdateResult};
use crate::executor::{self, ExecuteError, Executor, Visit};
use crate::operation::{Operation, Undo};

/// An operation with the name of its object, for errors.
pub(crate) type Named = (Operation, String);

/// The position of the operation that failed, and its error.
pub(crate) type Failure = (usize, UpdateError);

/// Operations, and the progress in carrying them out.
#[derive(Debug, Default)]
struct Place {
    operations: Vec<Named>,
    /// Position of the next operation.
    next: usize,
    /// The cell at which its next piece begins.
    from: usize,
}

impl Place {
    /// Applies the next piece. Returns its undo, and whether the operation is complete; `None`: all
    /// operations have been applied.
    fn apply(&mut self, switch: &mut Switch) -> Option<ControlResult<(Undo, bool)>> {
        let (operation, _) = self.operations.get(self.next)?;
        let program = match switch.program_mut() {
            Ok(program) => program,
            Err(error) => return Some(Err(error)),
        };
        let applied = operation.apply_piece(self.from, program);
        let rest = applied.as_ref().map_or(None, |(_, rest)| *rest);
        self.from = rest.unwrap_or(0);
        self.next += usize::from(rest.is_none());
        Some(applied.map(|(undo, _)| (undo, rest.is_none())))
    }

    /// The name of the object of the operation before the next one.
    fn last_object(&self) -> &str {
        let last = self.next.checked_sub(1);
        let last = last.and_then(|last| self.operations.get(last));
        last.map_or("", |(_, object)| object)
    }
}

/// Runs every operation, even if others fail. Returns a result for each.
///
/// # Errors
/// Those of the executor.
pub(crate) async fn each(
    executor: &dyn Executor,
    operations: Vec<Named>,
) -> Result<Vec<UpdateResult<()>>, ExecuteError> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    let mut results = Vec::with_capacity(operations.len());
    let mut place = Place {
        operations,
        ..Place::default()
    };
    let done = executor::in_visits(executor, move |visit| {
        while let Some(applied) = place.apply(visit.switch) {
            match applied {
                Ok((_, false)) => {}
                Ok((_, true)) => results.push(Ok(())),
                Err(error) => {
                    results.push(Err(UpdateError::from_control(error, place.last_object())));
                }
            }
            if visit.is_over() {
                return None;
            }
        }
        // The operations are freed by the requester, not on the thread that owns the switch.
        Some((std::mem::take(&mut results), std::mem::take(&mut place)))
    });
    let (results, _place) = done.await?;
    Ok(results)
}

/// Runs all operations; if one fails, those before it are undone. Packets pass meanwhile, but no other
/// change of the program is made.
///
/// # Errors
/// Those of the executor.
pub(crate) async fn all_or_none(
    executor: &dyn Executor,
    operations: Vec<Named>,
) -> Result<Option<Failure>, ExecuteError> {
    let mut batch = Undoable::new(operations);
    let done = executor::in_visits(executor, move |visit| {
        batch.go_on(visit).then(|| std::mem::take(&mut batch))
    });
    // Copies of large arrays are freed here, not on the thread that owns the switch.
    Ok(done.await?.failure)
}

/// As [`all_or_none`], between two packets. The caller limits the work.
///
/// # Errors
/// Those of the executor.
pub(crate) async fn at_once(
    executor: &dyn Executor,
    operations: Vec<Named>,
) -> Result<Option<Failure>, ExecuteError> {
    let mut batch = Undoable::new(operations);
    let done = executor::with(executor, move |switch| {
        let finished = batch.go_on(&mut Visit::new(switch, &mut || false));
        debug_assert!(finished, "a visit without an end ends when all is done");
        batch
    });
    Ok(done.await?.failure)
}

/// Operations that are all carried out, or none of them.
#[derive(Debug, Default)]
struct Undoable {
    place: Place,
    undos: Vec<Undo>,
    failure: Option<Failure>,
}

impl Undoable {
    fn new(operations: Vec<Named>) -> Self {
        Self {
            // Allocated here, not on the thread that owns the switch.
            undos: Vec::with_capacity(operations.len()),
            place: Place {
                operations,
                ..Place::default()
            },
            failure: None,
        }
    }

    /// Works until the visit is over; returns whether all is done.
    fn go_on(&mut self, visit: &mut Visit<'_>) -> bool {
        loop {
            let more = if self.failure.is_none() {
                self.apply(visit.switch)
            } else {
                self.take_back(visit.switch)
            };
            if !more {
                return true;
            }
            if visit.is_over() {
                return false;
            }
        }
    }

    /// Applies a piece; false if there is none.
    fn apply(&mut self, switch: &mut Switch) -> bool {
        let position = self.place.next;
        match self.place.apply(switch) {
            None => return false,
            Some(Ok((undo, _))) => self.undos.push(undo),
            Some(Err(error)) => {
                let error = UpdateError::from_control(error, self.place.last_object());
                self.failure = Some((position, error));
            }
        }
        true
    }

    /// Undoes the last piece; false if there is none.
    fn take_back(&mut self, switch: &mut Switch) -> bool {
        let Some(undo) = self.undos.pop() else {
            return false;
        };
        let undone = switch.program_mut().and_then(|program| undo.run(program));
        if let Err(error) = undone {
            debug_assert!(false, "a state that was there is refused: {error}");
            tracing::error!(%error, "rollback of a batch failed");
        }
        true
    }
}
