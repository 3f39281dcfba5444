//! The interface of this server to another control server on the same switch, so that both see the same
//! program and neither disturbs a change of the other.
//!
//! Its calls wait, so they are for threads outside the runtime.

use std::sync::Arc;

use switch::{Compiler, Switch};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};
use v1model::Pipeline;
use v1model::entries::{ControlResult, EntryKey};

use crate::executor::{self, ExecuteError, Executor, Visit};
use crate::pipeline_config::bmv2_json;
use crate::refusals::RefusalCount;
use crate::shared::Shared;
use crate::standing::Standing;
use crate::state::{AnnotationChange, PipelineState};
use crate::translate::BoundPipeline;

/// The switch as another control server uses it.
#[derive(Clone)]
pub struct Beside {
    shared: Arc<Shared>,
}

/// A program that a P4Runtime controller has set.
#[derive(Clone)]
pub struct SetProgram(Arc<BoundPipeline>);

impl SetProgram {
    /// Whether it is this very program, set at the same time.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The program as BMv2 JSON.
    pub fn bmv2_json(&self) -> Vec<u8> {
        bmv2_json(&self.0.config.p4_device_config)
    }
}

/// The right to read. As long as it lives, no change is under way.
pub struct Reading<'a>(RwLockReadGuard<'a, PipelineState>);

/// The exclusive right to change. As long as it lives, no other client reads or changes.
pub struct Changing<'a> {
    shared: &'a Shared,
    state: RwLockWriteGuard<'a, PipelineState>,
}

impl Beside {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Whether a client may change something: a stranger may, as long as no holder has ever bid to be
    /// primary over P4Runtime.
    pub fn may_change(&self, standing: Standing) -> bool {
        self.shared.may_act(standing)
    }

    /// Shows the other control server's refusals among this one's, in statistics.
    pub fn report_refusals(&self, counts: impl Fn() -> Vec<RefusalCount> + Send + Sync + 'static) {
        self.shared.refusals.add_beside(Box::new(counts));
    }

    /// Waits until no change is under way.
    pub fn read(&self) -> Reading<'_> {
        Reading(self.shared.pipeline.blocking_read())
    }

    /// Waits until no client reads a page or changes something.
    pub fn change(&self) -> Changing<'_> {
        Changing {
            shared: &self.shared,
            state: self.shared.pipeline.blocking_write(),
        }
    }

    /// Compiles programs for the switch.
    pub fn compiler(&self) -> &Compiler {
        &self.shared.compiler
    }

    /// Runs `work` on the switch's thread between two packets, and waits for its result.
    ///
    /// # Errors
    /// Those of the executor.
    pub fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Switch) -> R + Send + 'static,
    ) -> Result<R, ExecuteError> {
        run(&*self.shared.executor, work)
    }

    /// Runs `work` on the switch's thread in as many visits as it needs until it returns a result, and
    /// waits for that.
    ///
    /// # Errors
    /// Those of the executor.
    pub fn run_in_visits<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Visit<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, ExecuteError> {
        executor::wait_in_visits(&*self.shared.executor, work)
    }
}

fn run<R: Send + 'static>(
    executor: &dyn Executor,
    work: impl FnOnce(&mut Switch) -> R + Send + 'static,
) -> Result<R, ExecuteError> {
    let mut work = Some(work);
    executor::wait_in_visits(executor, move |visit| {
        work.take().map(|work| work(visit.switch))
    })
}

/// The program that reads and changes refer to, if a P4Runtime controller has set it.
fn set_program(state: &PipelineState) -> Option<SetProgram> {
    let installed = state.usable().ok()?;
    Some(SetProgram(Arc::clone(&installed.pipeline)))
}

impl Reading<'_> {
    /// The program that the control plane sees, if a P4Runtime controller has set it.
    pub fn set_program(&self) -> Option<SetProgram> {
        set_program(&self.0)
    }

    /// Whether a program is staged by [`Changing::stage`].
    pub fn is_staged_beside(&self) -> bool {
        self.0.staged_beside
    }
}

impl Changing<'_> {
    /// As [`Reading::set_program`].
    pub fn set_program(&self) -> Option<SetProgram> {
        set_program(&self.state)
    }

    /// As [`Reading::is_staged_beside`].
    pub fn is_staged_beside(&self) -> bool {
        self.state.staged_beside
    }

    /// Whether any program is staged.
    pub fn is_staged(&self) -> bool {
        self.state.staged_beside || self.state.saved.is_some()
    }

    /// Forgets what P4Runtime's controllers attached to an entry that was removed; `None`: to all entries
    /// of the table. They would find it again at a later entry with this key.
    pub fn forget_entry(&mut self, table: usize, key: Option<&EntryKey>) {
        // A program without P4Info has nothing attached.
        if let Ok(active) = self.state.usable_mut() {
            match key {
                Some(key) => {
                    let change = AnnotationChange::Entry(table, key.clone(), None);
                    active.annotations.apply(change);
                }
                None => active.annotations.forget_entries(table),
            }
        }
    }

    /// Stages a program that P4Runtime knows no P4Info of. Until it is committed or replaced, P4Runtime
    /// reads and writes nothing.
    ///
    /// # Errors
    /// Those of the executor.
    pub fn stage(&mut self, program: Pipeline) -> Result<(), ExecuteError> {
        let before = run(&*self.shared.executor, move |switch| switch.stage(program))?;
        // Freed here, because freeing a large program would stop the thread that owns the switch.
        drop(before);
        self.state.saved = None;
        self.state.staged_beside = true;
        Ok(())
    }

    /// Puts the staged program in place of the running one. P4Runtime then has no forwarding pipeline
    /// until a controller sets one.
    ///
    /// # Errors
    /// Those of the executor.
    pub fn commit(&mut self) -> Result<ControlResult<()>, ExecuteError> {
        let forwarding = self.shared.forwarding.clone();
        let before = run(&*self.shared.executor, move |switch| {
            let before = switch.commit_staged()?;
            // Between two packets: no packet-in of the new program is read by the old P4Info.
            forwarding.send_replace(None);
            Ok(before)
        })?;
        Ok(before.map(|before| {
            drop(before);
            self.state.committed = None;
            self.state.staged_beside = false;
        }))
    }
}
