//! Dry runs: the trace that a packet would have now, without any effect.
//!
//! The packet takes the real way through the real program, with three differences. Its changes to
//! the program are taken back ([`v1model::Pipeline::begin_trial`]). It has a pool, a tracer and a place to
//! recirculate of its own. And it goes to a stand-in of the traffic manager
//! ([`TrafficManager::stand_in`]). For the packet, no time passes for others between its ingress and its
//! departure.
//!
//! A dry run has steps, and visits the switch as often as its driver wants ([`DryRun::go_on`]). Between two
//! visits its parts and its changes are aside, so other packets and control work pass. Its next steps
//! find the entries and registers of then.

use std::mem;

use thiserror::Error;
use traffic_manager::{Frame, TrafficManager};
use v1model::{IngressInput, InstanceType, Trial};

use crate::learning::Learning;
use crate::notification::Notification;
use crate::pause_frame::is_pause;
use crate::pool::{PacketId, Pool};
use crate::program::{Counters, Environment, Leaving, Program, Sink};
use crate::recirculation::Recirculating;
use crate::switch::Switch;
use crate::trace::{Collector, PacketTrace, Tracer};

/// Most copies of a packet, itself among them.
const COPIES_MAX: usize = 64;

/// Most steps after the first ingress.
const STEPS_MAX: usize = 256;

/// Most changes of registers, counters, meters and entries: each visit makes them again and takes them
/// back.
const CHANGES_MAX: usize = 1_024;

/// The reason why there was no dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DryRunError {
    /// No program.
    #[error("the switch has no program")]
    NoProgram,
    /// No such port.
    #[error("the switch has no port {0}")]
    NoSuchPort(u16),
    /// The frame is too long.
    #[error("a frame of {0} bytes; the switch takes at most {1}")]
    Oversize(usize, usize),
    /// A PAUSE frame.
    #[error("a PAUSE frame, which its port takes out before the program sees it")]
    PauseFrame,
    /// Another program runs than at the beginning of the dry run.
    #[error("the program was replaced during the dry run; try again")]
    ProgramReplaced,
}

/// Leads nowhere.
struct Nowhere;

impl Sink for Nowhere {
    fn transmit(&mut self, _frame: &[u8], _leaving: Leaving) {}

    fn to_controller(&mut self, _frame: &[u8]) {}

    fn notify(&mut self, _notification: Notification) -> bool {
        debug_assert!(false, "a dry run notifies nobody");
        false
    }
}

/// A dry run that has not ended.
pub struct DryRun {
    port: u16,
    frame: Vec<u8>,
    /// Steps so far.
    steps: usize,
    /// `None`: it has not visited the switch.
    parts: Option<Parts>,
}

impl DryRun {
    /// A dry run of a frame that comes in at `port`.
    pub fn new(port: u16, frame: Vec<u8>) -> Self {
        Self {
            port,
            frame,
            steps: 0,
            parts: None,
        }
    }

    /// Goes on until the trace is complete or `over` returns true; `None`: it is not complete. `over` is
    /// asked after each step: a copy of the packet goes through ingress or egress, or leaves.
    ///
    /// Nothing is sent, and nothing changes. Departures are those behind the packets that waited in FIFOs
    /// at the beginning; packets that wait for their departure times are left out of account.
    ///
    /// # Errors
    /// No program or port, a frame that no program sees, or a new program.
    pub fn go_on(
        &mut self,
        switch: &mut Switch,
        over: &mut dyn FnMut() -> bool,
    ) -> Option<Result<PacketTrace, DryRunError>> {
        let Switch { env, running, .. } = switch;
        let Some(program) = running else {
            return Some(Err(DryRunError::NoProgram));
        };
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => match Parts::new(env, program, self.port, &self.frame) {
                Ok(parts) => self.parts.insert(parts),
                Err(error) => return Some(Err(error)),
            },
        };
        let tracer = parts.tracer.as_ref();
        if !tracer.is_some_and(|tracer| program.has_made(tracer)) {
            return Some(Err(DryRunError::ProgramReplaced));
        }
        parts.exchange(env, program);
        program.pipeline.begin_trial(mem::take(&mut parts.trial));
        let ended = loop {
            let goes_on = match self.steps {
                0 => program.begin_dry(env, self.port, &self.frame),
                _ => program.step_dry(env),
            };
            self.steps += 1;
            if let Some(trace) = env.traces.take() {
                break Some(Some(trace));
            }
            let most = self.steps > STEPS_MAX || program.pipeline.trial_changes() >= CHANGES_MAX;
            if most || !goes_on {
                let tracer = program.tracer.as_mut();
                break Some(tracer.and_then(|tracer| tracer.take_unfinished(0)));
            }
            if over() {
                break None;
            }
        };
        parts.trial = program.pipeline.end_trial();
        parts.exchange(env, program);
        let trace = ended?;
        // The frame fits, and its pool is empty, so it has a trace.
        debug_assert!(trace.is_some(), "a dry run has no trace");
        Some(trace.ok_or(DryRunError::NoProgram))
    }
}

impl Switch {
    /// The trace that a frame would have if it came in at `port` now: a [`DryRun`] in one visit.
    ///
    /// # Errors
    /// Those of [`DryRun::go_on`].
    pub fn dry_run(&mut self, port: u16, frame: &[u8]) -> Result<PacketTrace, DryRunError> {
        let ended = DryRun::new(port, frame.to_vec()).go_on(self, &mut || false);
        debug_assert!(
            ended.is_some(),
            "a visit that is never over ends with a result"
        );
        ended.unwrap_or(Err(DryRunError::NoProgram))
    }
}

/// The parts of a switch and its program that a dry run has of its own. During a visit, these are the
/// parts that they stand in for.
struct Parts {
    /// `None` during a visit: see [`Environment::real_manager`].
    manager: Option<Box<TrafficManager<PacketId>>>,
    counters: Counters,
    traces: Collector,
    now_ns: u64,
    packets: Pool,
    tracer: Option<Box<Tracer>>,
    recirculating: Recirculating,
    learning: Learning,
    trial: Trial,
}

impl Parts {
    fn new(
        env: &Environment,
        program: &mut Program,
        port: u16,
        frame: &[u8],
    ) -> Result<Self, DryRunError> {
        if env.manager.port_config(port).is_none() {
            return Err(DryRunError::NoSuchPort(port));
        }
        let longest_bytes = env.config.max_frame_bytes;
        if frame.len() > longest_bytes {
            return Err(DryRunError::Oversize(frame.len(), longest_bytes));
        }
        if is_pause(frame) {
            return Err(DryRunError::PauseFrame);
        }
        let mut traces = Collector::default();
        traces.set_driver(true);
        Ok(Self {
            manager: Some(Box::new(env.manager.stand_in(COPIES_MAX))),
            counters: Counters::default(),
            traces,
            now_ns: env.now_ns,
            packets: Pool::new(COPIES_MAX),
            tracer: Some(program.new_tracer()),
            recirculating: Recirculating::default(),
            learning: Learning::default(),
            trial: Trial::default(),
        })
    }

    /// Exchanges these parts with those of the switch and its program.
    fn exchange(&mut self, env: &mut Environment, program: &mut Program) {
        let aside = self.manager.as_mut().or(env.real_manager.as_mut());
        debug_assert!(aside.is_some(), "the traffic manager is gone");
        if let Some(aside) = aside {
            mem::swap(&mut **aside, &mut env.manager);
        }
        mem::swap(&mut self.manager, &mut env.real_manager);
        mem::swap(&mut self.counters, &mut env.counters);
        mem::swap(&mut self.traces, &mut env.traces);
        mem::swap(&mut self.now_ns, &mut env.now_ns);
        mem::swap(&mut self.packets, &mut program.packets);
        mem::swap(&mut self.tracer, &mut program.tracer);
        mem::swap(&mut self.recirculating, &mut program.recirculating);
        mem::swap(&mut self.learning, &mut program.learning);
    }
}

impl Program {
    /// The first step of a dry run, with its parts in place: the frame comes in. False: it does not.
    fn begin_dry(&mut self, env: &mut Environment, port: u16, frame: &[u8]) -> bool {
        let input = IngressInput {
            port,
            now_ns: env.now_ns,
            instance_type: InstanceType::Normal,
        };
        let Some(parsed) = self.take_in(env, frame, input) else {
            return false;
        };
        self.ingress(env, parsed.id, input);
        true
    }

    /// The next step of a dry run, with its parts in place. False: there is none.
    fn step_dry(&mut self, env: &mut Environment) -> bool {
        let next = [
            self.recirculating.next_ns(),
            env.manager.next_dequeue_ns(),
            env.manager.next_delivery_ns(),
        ];
        let Some(next_ns) = next.into_iter().flatten().min() else {
            return false;
        };
        env.now_ns = env.now_ns.max(next_ns);
        let now_ns = env.now_ns;
        if self.reenter_next(env, now_ns) {
            return true;
        }
        if let Some(start) = env.manager.dequeue(now_ns, now_ns) {
            self.egress(env, start);
        } else if let Some(delivery) = env.manager.deliver(now_ns, now_ns)
            && let Frame::Packet(id) = delivery.frame
        {
            self.deliver(env, delivery.port, id, delivery.delivery_ns, &mut Nowhere);
        }
        self.release_dropped_at_heads(env);
        true
    }
}
