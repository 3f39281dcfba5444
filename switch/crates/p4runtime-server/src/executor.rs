//! Runs the server's work on the thread that owns the switch.
//!
//! The server never touches the switch itself. It hands closures ([`Job`]) to an [`Executor`],
//! which runs them on the owning thread between packets. [`channel`] is an executor over a
//! bounded queue, which a driver drains in its own loop.

use std::sync::Arc;
use std::sync::mpsc;

use tokio::sync::oneshot;
use tonic::Status;

use switch::Switch;

/// Most cells of an array that one job reads or writes. Packets pass between jobs.
pub(crate) const CELLS_PER_VISIT: usize = 4_096;

/// A piece of work for the thread that owns the switch.
pub type Job = Box<dyn FnOnce(&mut Switch) + Send>;

/// Why an executor refused a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    /// The thread that owns the switch has ended.
    #[error("the switch is shutting down")]
    Closed,
    /// Too many jobs wait already.
    #[error("too many control requests wait for the switch; try again")]
    Busy,
}

impl From<ExecuteError> for Status {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Closed => Status::unavailable(error.to_string()),
            ExecuteError::Busy => Status::resource_exhausted(error.to_string()),
        }
    }
}

/// Runs jobs on the thread that owns the switch, between packets, in the order given.
pub trait Executor: Send + Sync + 'static {
    /// Queues `job` and returns at once. A job that never runs, because the switch ends, is dropped,
    /// which its submitter notices.
    ///
    /// # Errors
    /// [`ExecuteError::Closed`], [`ExecuteError::Busy`]; the job is dropped.
    fn execute(&self, job: Job) -> Result<(), ExecuteError>;
}

/// Runs `work` on the switch's thread and waits for its result.
///
/// # Errors
/// As [`Executor::execute`]; [`ExecuteError::Closed`] also when the switch ended before the job
/// ran.
pub async fn with<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnOnce(&mut Switch) -> R + Send + 'static,
) -> Result<R, ExecuteError> {
    let (sender, receiver) = oneshot::channel();
    executor.execute(Box::new(move |switch| {
        // The requester may have gone away; then the result is not needed.
        let _ = sender.send(work(switch));
    }))?;
    receiver.await.map_err(|_| ExecuteError::Closed)
}

/// An [`Executor`] over a bounded queue of at most `capacity` jobs, and the queue's other end
/// for the thread that owns the switch. `wake` is called after each queued job, on the
/// server's thread: a driver that sleeps in `poll` writes to its eventfd there.
pub fn channel(
    capacity: usize,
    wake: impl Fn() + Send + Sync + 'static,
) -> (Arc<dyn Executor>, JobQueue) {
    let (sender, receiver) = mpsc::sync_channel(capacity);
    let executor = QueueExecutor {
        sender,
        wake: Box::new(wake),
    };
    (Arc::new(executor), JobQueue { receiver })
}

struct QueueExecutor {
    sender: mpsc::SyncSender<Job>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Executor for QueueExecutor {
    fn execute(&self, job: Job) -> Result<(), ExecuteError> {
        self.sender.try_send(job).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => ExecuteError::Busy,
            mpsc::TrySendError::Disconnected(_) => ExecuteError::Closed,
        })?;
        (self.wake)();
        Ok(())
    }
}

/// The jobs that wait for the switch. Dropping it makes every later request fail with
/// `UNAVAILABLE`.
#[derive(Debug)]
pub struct JobQueue {
    receiver: mpsc::Receiver<Job>,
}

impl JobQueue {
    /// Runs at most `most` of the jobs that wait, without blocking; returns how many ran.
    /// A job takes some hundred microseconds at most, except an atomic batch of very many
    /// updates.
    pub fn run(&self, switch: &mut Switch, most: usize) -> usize {
        let mut ran = 0;
        while ran < most {
            match self.receiver.try_recv() {
                Ok(job) => job(switch),
                Err(_) => break,
            }
            ran += 1;
        }
        ran
    }

    /// Blocks until a job has come and runs it; `false` when no executor is left.
    pub fn run_next(&self, switch: &mut Switch) -> bool {
        match self.receiver.recv() {
            Ok(job) => {
                job(switch);
                true
            }
            Err(_) => false,
        }
    }
}
