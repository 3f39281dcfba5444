//! Runs the server's work on the thread that owns the switch.
//!
//! The server never touches the switch itself. It hands jobs ([`Job`]) to an [`Executor`], which
//! runs them on the owning thread between packets. [`channel`] is an executor over a bounded queue,
//! which a driver drains in its own loop.
//!
//! A job is resumable: in each visit to the switch it works until it is done or the visit is over
//! ([`Visit::is_over`]). The driver ends visits, so no job delays a packet for longer than the driver
//! allows, even if it has much to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;
use tonic::Status;

use switch::Switch;

/// Most cells of an array that one job reads or writes. Packets pass between jobs.
pub(crate) const CELLS_PER_VISIT: usize = 4_096;
/// Cells of an array that a job reads or writes between two checks of [`Visit::is_over`]: some
/// microseconds of work.
pub(crate) const CELLS_PER_LOOK: usize = 256;

/// A job's stay on the thread that owns the switch.
pub struct Visit<'a> {
    /// The switch.
    pub switch: &'a mut Switch,
    over: &'a mut dyn FnMut() -> bool,
}

impl<'a> Visit<'a> {
    /// A visit that lasts until `over` returns true.
    pub fn new(switch: &'a mut Switch, over: &'a mut dyn FnMut() -> bool) -> Self {
        Self { switch, over }
    }

    /// Whether the job must leave now and go on in another visit. A job asks after each piece of
    /// work of at most some microseconds.
    pub fn is_over(&mut self) -> bool {
        (self.over)()
    }

    /// The switch, and [`Self::is_over`], for work that asks by itself.
    pub fn split(&mut self) -> (&mut Switch, &mut dyn FnMut() -> bool) {
        (self.switch, self.over)
    }
}

/// The progress of a job at the end of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The job is complete.
    Done,
    /// The job needs another visit.
    More,
}

/// A piece of work for the thread that owns the switch.
pub type Job = Box<dyn FnMut(&mut Visit<'_>) -> Progress + Send>;

/// A job of one visit: `work` takes some microseconds.
pub fn once(work: impl FnOnce(&mut Switch) + Send + 'static) -> Job {
    let mut work = Some(work);
    Box::new(move |visit| {
        if let Some(work) = work.take() {
            work(visit.switch);
        }
        Progress::Done
    })
}

/// The reason why an executor refused a job.
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

/// Runs jobs on the thread that owns the switch.
pub trait Executor: Send + Sync {
    /// Queues a job, which runs later in as many visits as it needs. If the switch ends first, the job
    /// is dropped, which its submitter notices.
    ///
    /// # Errors
    /// [`ExecuteError::Closed`], [`ExecuteError::Busy`]; the job is dropped.
    fn execute(&self, job: Job) -> Result<(), ExecuteError>;
}

/// Runs `work` on the switch's thread in one visit and waits for its result.
///
/// # Errors
/// As [`Executor::execute`]; [`ExecuteError::Closed`] also when the switch ended before the job
/// ran.
pub async fn with<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnOnce(&mut Switch) -> R + Send + 'static,
) -> Result<R, ExecuteError> {
    let mut work = Some(work);
    in_visits(executor, move |visit| {
        work.take().map(|work| work(visit.switch))
    })
    .await
}

/// Runs `work` on the switch's thread, in as many visits as it needs to return a result, and waits for
/// the result. The work goes on even if the requester has gone.
///
/// # Errors
/// As [`with`].
pub async fn in_visits<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
) -> Result<R, ExecuteError> {
    submit(executor, work, false)?
        .await
        .map_err(|_| ExecuteError::Closed)
}

/// As [`in_visits`], for work that changes nothing: it ends if the requester has gone.
///
/// # Errors
/// As [`with`].
pub async fn reading_in_visits<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
) -> Result<R, ExecuteError> {
    submit(executor, work, true)?
        .await
        .map_err(|_| ExecuteError::Closed)
}

/// As [`in_visits`], on a thread that may wait: one outside the runtime.
///
/// # Errors
/// As [`with`].
pub(crate) fn wait_in_visits<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
) -> Result<R, ExecuteError> {
    let result = submit(executor, work, false)?;
    result.blocking_recv().map_err(|_| ExecuteError::Closed)
}

fn submit<R: Send + 'static>(
    executor: &dyn Executor,
    mut work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
    only_while_awaited: bool,
) -> Result<oneshot::Receiver<R>, ExecuteError> {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    executor.execute(Box::new(move |visit| {
        let awaited = sender.as_ref().is_some_and(|sender| !sender.is_closed());
        if only_while_awaited && !awaited {
            return Progress::Done;
        }
        let Some(result) = work(visit) else {
            return Progress::More;
        };
        if let Some(sender) = sender.take() {
            // The requester may have gone away; then the result is not needed.
            let _ = sender.send(result);
        }
        Progress::Done
    }))?;
    Ok(receiver)
}

/// An [`Executor`] over a bounded queue of at most `capacity` jobs, and the queue's other end
/// for the thread that owns the switch. `wake` is called after each queued job, on the
/// server's thread: a driver that sleeps in `poll` writes to its eventfd there.
pub fn channel(
    capacity: usize,
    wake: impl Fn() + Send + Sync + 'static,
) -> (Arc<dyn Executor>, JobQueue) {
    let (sender, receiver) = mpsc::sync_channel(capacity);
    let complete = Arc::new(AtomicIsize::new(0));
    let executor = QueueExecutor {
        sender: Mutex::new(sender),
        complete: Arc::clone(&complete),
        wake: Box::new(wake),
    };
    let queue = JobQueue {
        receiver,
        complete,
        begun: VecDeque::new(),
        begun_most: capacity.max(1),
    };
    (Arc::new(executor), queue)
}

struct QueueExecutor {
    /// Locked by one submitter at a time, so that no incomplete job is ahead of a complete one. The
    /// thread that owns the switch does not take this lock.
    sender: Mutex<mpsc::SyncSender<Job>>,
    complete: Arc<AtomicIsize>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Executor for QueueExecutor {
    fn execute(&self, job: Job) -> Result<(), ExecuteError> {
        // A panic elsewhere leaves the channel as it was.
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.try_send(job).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => ExecuteError::Busy,
            mpsc::TrySendError::Disconnected(_) => ExecuteError::Closed,
        })?;
        self.complete.fetch_add(1, Ordering::Release);
        drop(sender);
        (self.wake)();
        Ok(())
    }
}

/// The jobs that wait for the switch. Dropping it makes every later request fail with
/// `UNAVAILABLE`.
pub struct JobQueue {
    receiver: mpsc::Receiver<Job>,
    /// Jobs in the channel whose submitters have left it. A submitter that loses its processor within
    /// the channel leaves a place without a job, and `try_recv` spins until that submitter goes on. The
    /// thread that owns the switch paces, and submitters have a lower priority, so it takes complete jobs
    /// only.
    complete: Arc<AtomicIsize>,
    /// Jobs that take turns until they are done. At most `begun_most`.
    begun: VecDeque<Job>,
    begun_most: usize,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue")
            .field("begun", &self.begun.len())
            .finish_non_exhaustive()
    }
}

impl JobQueue {
    /// Whether a job waits for a visit.
    pub fn has_jobs(&self) -> bool {
        !self.begun.is_empty() || self.complete.load(Ordering::Acquire) > 0
    }

    /// Lets the next job visit the switch until it is done or `over` returns true, without blocking;
    /// returns false if no job waits. Jobs take turns, so a long one delays the others by one visit.
    pub fn visit(&mut self, switch: &mut Switch, over: &mut dyn FnMut() -> bool) -> bool {
        while self.begun.len() < self.begun_most
            && self.complete.load(Ordering::Acquire) > 0
            && let Ok(job) = self.receiver.try_recv()
        {
            self.complete.fetch_sub(1, Ordering::Relaxed);
            self.begun.push_back(job);
        }
        let Some(mut job) = self.begun.pop_front() else {
            return false;
        };
        if job(&mut Visit::new(switch, over)) == Progress::More {
            self.begun.push_back(job);
        }
        true
    }

    /// Runs all jobs that wait, each to its end, without blocking: for a switch that forwards no
    /// packets meanwhile.
    pub fn run(&mut self, switch: &mut Switch) {
        while self.visit(switch, &mut || false) {}
    }

    /// Blocks until a job arrives and runs it to its end; returns `false` when no executor is left.
    pub fn run_next(&mut self, switch: &mut Switch) -> bool {
        let Ok(job) = self.receiver.recv() else {
            return false;
        };
        // Perhaps before its submitter has counted it.
        self.complete.fetch_sub(1, Ordering::Relaxed);
        self.begun.push_back(job);
        self.run(switch);
        true
    }
}

#[cfg(test)]
mod tests {
    use switch::SwitchConfig;
    use traffic_manager::Limits;

    use super::*;

    /// A job of `pieces` pieces that notes `name` for each visit.
    fn pieces(name: char, mut pieces: usize, seen: mpsc::Sender<char>) -> Job {
        Box::new(move |visit| {
            seen.send(name).expect("the test listens");
            loop {
                pieces -= 1;
                if pieces == 0 {
                    return Progress::Done;
                }
                if visit.is_over() {
                    return Progress::More;
                }
            }
        })
    }

    fn switch() -> Switch {
        Switch::new(SwitchConfig::default(), Limits::default())
    }

    #[test]
    fn jobs_take_turns_and_a_visit_ends_when_it_is_over() {
        let (executor, mut jobs) = channel(8, || ());
        let (seen, visits) = mpsc::channel();
        for (name, count) in [('a', 5), ('b', 1), ('c', 2)] {
            let job = pieces(name, count, seen.clone());
            executor.execute(job).expect("room");
        }
        let mut switch = switch();
        // Each visit has time for two pieces.
        loop {
            let mut looks = 0;
            let mut over = || {
                looks += 1;
                looks == 2
            };
            if !jobs.visit(&mut switch, &mut over) {
                break;
            }
        }
        drop((seen, executor));
        assert_eq!(visits.try_iter().collect::<String>(), "abcaa");
    }

    #[test]
    fn no_more_jobs_are_taken_than_the_queue_holds() {
        let (executor, mut jobs) = channel(2, || ());
        let (seen, visits) = mpsc::channel();
        let mut switch = switch();
        let mut refused = 0;
        for _ in 0..10 {
            let job = pieces('x', 100, seen.clone());
            refused += usize::from(executor.execute(job) == Err(ExecuteError::Busy));
            jobs.visit(&mut switch, &mut || true);
        }
        // Two have begun and two wait.
        assert_eq!((jobs.begun.len(), refused), (2, 6));
        jobs.run(&mut switch);
        assert!(jobs.begun.is_empty());
        assert!(visits.try_iter().count() > 4);
    }

    #[test]
    fn a_job_that_is_not_complete_is_not_waited_for() {
        let (executor, mut jobs) = channel(2, || ());
        let (seen, visits) = mpsc::channel();
        executor.execute(pieces('a', 1, seen)).expect("room");
        let mut switch = switch();
        // As if its submitter had not left the channel.
        jobs.complete.fetch_sub(1, Ordering::Relaxed);
        assert!(!jobs.has_jobs() && !jobs.visit(&mut switch, &mut || false));
        jobs.complete.fetch_add(1, Ordering::Relaxed);
        assert!(jobs.has_jobs() && jobs.visit(&mut switch, &mut || false));
        assert_eq!(visits.try_iter().collect::<String>(), "a");
        assert!(!jobs.visit(&mut switch, &mut || false));
    }

    #[tokio::test]
    async fn reading_ends_with_its_requester_and_changes_do_not() {
        let (executor, mut jobs) = channel(8, || ());
        let (seen, visits) = mpsc::channel();
        for only_while_awaited in [false, true] {
            let seen = seen.clone();
            let mut left = 3;
            let work = move |_: &mut Visit<'_>| {
                left -= 1;
                seen.send(only_while_awaited).expect("the test listens");
                (left == 0).then_some(())
            };
            drop(submit(&*executor, work, only_while_awaited).expect("room"));
        }
        jobs.run(&mut switch());
        assert_eq!(visits.try_iter().collect::<Vec<_>>(), [false; 3]);
    }
}
