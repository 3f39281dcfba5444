//! The switch as the services use it: who may change it, reads, changes and jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use p4runtime_server::{Beside, Changing, ExecuteError, Reading, Standing, Visit};
use switch::{Program, Switch};

use crate::errors::{Exception, application};
use crate::limits::ThriftLimits;
use crate::refusals::{Refusal, ThriftRefusals};

/// The switch and the limits on its use.
pub(crate) struct Control {
    pub(crate) beside: Beside,
    pub(crate) limits: ThriftLimits,
    pub(crate) refusals: Arc<ThriftRefusals>,
    /// Long answers under way, of holders and of strangers.
    long_answers: [Arc<AtomicUsize>; 2],
}

/// A long answer under way, until it is dropped.
pub(crate) struct LongAnswer(Arc<AtomicUsize>);

impl Drop for LongAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Control {
    pub(crate) fn new(beside: Beside, limits: ThriftLimits, refusals: Arc<ThriftRefusals>) -> Self {
        Self {
            beside,
            limits,
            refusals,
            long_answers: Default::default(),
        }
    }

    /// Begins a change.
    ///
    /// # Errors
    /// The client is a stranger, and holders control the switch.
    pub(crate) fn begin(&self, standing: Standing) -> thrift::Result<Changing<'_>> {
        // Before the wait, too: a client that is refused keeps nobody waiting.
        self.check(standing)?;
        let changing = self.beside.change();
        self.check(standing)?;
        Ok(changing)
    }

    /// Checks that a client may change something.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(crate) fn check(&self, standing: Standing) -> thrift::Result<()> {
        if self.beside.may_change(standing) {
            return Ok(());
        }
        self.refusals.count(Refusal::Stranger);
        Err(application(
            "not allowed: this switch has controllers of its own user or with credentials; run the \
             client as root or as the switch's user",
        ))
    }

    /// Begins a read.
    pub(crate) fn begin_read(&self) -> Reading<'_> {
        self.beside.read()
    }

    /// A job on the switch's thread.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Switch) -> R + Send + 'static,
    ) -> thrift::Result<R> {
        self.beside.run(work).map_err(|error| self.failed(error))
    }

    /// A job of several visits on the switch's thread.
    pub(crate) fn run_in_visits<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
    ) -> thrift::Result<R> {
        let done = self.beside.run_in_visits(work);
        done.map_err(|error| self.failed(error))
    }

    pub(crate) fn failed(&self, error: ExecuteError) -> thrift::Error {
        if error == ExecuteError::Busy {
            self.refusals.count(Refusal::Busy);
        }
        application(error.to_string())
    }

    /// Changes the program.
    pub(crate) fn change<R: Send + 'static, E: Exception>(
        &self,
        standing: Standing,
        work: impl FnOnce(&mut Program) -> Result<R, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let changing = self.begin(standing)?;
        self.change_as(&changing, work)
    }

    /// Changes the program as a part of a change.
    pub(crate) fn change_as<R: Send + 'static, E: Exception>(
        &self,
        _changing: &Changing<'_>,
        work: impl FnOnce(&mut Program) -> Result<R, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let done = self.run(move |switch| match switch.program_mut() {
            Ok(program) => work(program),
            Err(_) => Err(E::no_program()),
        })?;
        done.map_err(Into::into)
    }

    /// Changes the program piece by piece: until `work` returns a result.
    pub(crate) fn change_in_visits<R: Send + 'static, E: Exception>(
        &self,
        standing: Standing,
        work: impl FnMut(&mut Program) -> Result<Option<R>, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let changing = self.begin(standing)?;
        self.change_in_visits_as(&changing, work)
    }

    /// As [`Self::change_in_visits`], as a part of a change.
    pub(crate) fn change_in_visits_as<R: Send + 'static, E: Exception>(
        &self,
        _changing: &Changing<'_>,
        mut work: impl FnMut(&mut Program) -> Result<Option<R>, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let done = self.run_in_visits(move |visit| {
            pieces(visit, |switch| match switch.program_mut() {
                Ok(program) => work(program),
                Err(_) => Err(E::no_program()),
            })
        })?;
        done.map_err(Into::into)
    }

    /// Reads the program.
    pub(crate) fn read<R: Send + 'static, E: Exception>(
        &self,
        work: impl FnOnce(&Program) -> Result<R, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let _reading = self.begin_read();
        // The latest time, for what is told since when.
        let done = self.run(move |switch| match switch.program_mut() {
            Ok(program) => work(program),
            Err(_) => Err(E::no_program()),
        })?;
        done.map_err(Into::into)
    }

    /// Reads the program piece by piece: until `work` returns a result.
    pub(crate) fn read_in_visits<R: Send + 'static, E: Exception>(
        &self,
        mut work: impl FnMut(&Program) -> Result<Option<R>, E> + Send + 'static,
    ) -> thrift::Result<R> {
        let _reading = self.begin_read();
        let done = self.run_in_visits(move |visit| {
            pieces(visit, |switch| match switch.program_mut() {
                Ok(program) => work(program),
                Err(_) => Err(E::no_program()),
            })
        })?;
        done.map_err(Into::into)
    }

    /// A place for an answer that may be long.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn long_answer(&self, standing: Standing) -> thrift::Result<LongAnswer> {
        let [of_holders, of_strangers] = &self.long_answers;
        let (under_way, most) = match standing {
            Standing::Holder => (of_holders, self.limits.long_answers),
            Standing::Stranger => (of_strangers, self.limits.long_answers / 2),
        };
        let place = LongAnswer(Arc::clone(under_way));
        let before = under_way.fetch_add(1, Ordering::AcqRel);
        if before < most {
            return Ok(place);
        }
        self.refusals.count(Refusal::AnswersFull);
        Err(application(format!(
            "{most} long answers are under way already, the most at once; try again"
        )))
    }

    /// Refuses an answer with too many elements.
    pub(crate) fn too_long(&self, what: &str) -> thrift::Error {
        self.refusals.count(Refusal::AnswerTooLong);
        application(format!(
            "{what}: more than {}, the most in an answer; read them over P4Runtime",
            self.limits.answer_elements
        ))
    }
}

/// Works piece by piece until there is a result, or the visit is over.
fn pieces<R, E>(
    visit: &mut Visit<'_>,
    mut piece: impl FnMut(&mut Switch) -> Result<Option<R>, E>,
) -> Option<Result<R, E>> {
    loop {
        match piece(visit.switch) {
            Ok(Some(result)) => return Some(Ok(result)),
            Err(error) => return Some(Err(error)),
            Ok(None) if visit.is_over() => return None,
            Ok(None) => {}
        }
    }
}
