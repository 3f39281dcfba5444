//! Dry runs: the trace that a packet would have now, without any effect.
//!
//! The packet takes the real way through the real program, with three differences. Its changes to
//! the program are put back ([`v1model::Pipeline::begin_trial`]). It has a pool, a tracer and a place to
//! recirculate of its own. And it goes to a stand-in of the traffic manager
//! ([`TrafficManager::stand_in`]). Between its ingress and its departure no time passes for others.

use std::mem;

use thiserror::Error;
use traffic_manager::{Frame, TrafficManager};
use v1model::{IngressInput, InstanceType};

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

/// Most instants at which something happens to the packet or its copies.
const INSTANTS_MAX: usize = 256;

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

impl Switch {
    /// The trace that a frame would have if it came in at `port` now. Nothing is sent, and nothing
    /// changes. Departures are those behind the packets that wait in FIFOs now; packets that wait for
    /// their departure times are left out of account.
    ///
    /// # Errors
    /// No program or port, or a frame that no program sees.
    pub fn dry_run(&mut self, port: u16, frame: &[u8]) -> Result<PacketTrace, DryRunError> {
        let Self { env, running, .. } = self;
        let program = running.as_mut().ok_or(DryRunError::NoProgram)?;
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
        let manager = env.manager.stand_in(COPIES_MAX);
        let mut traces = Collector::default();
        traces.set_driver(true);
        let tracer = program.new_tracer();
        let mut aside = Aside {
            manager: None,
            counters: mem::take(&mut env.counters),
            traces: mem::replace(&mut env.traces, traces),
            now_ns: env.now_ns,
            packets: mem::replace(&mut program.packets, Pool::new(COPIES_MAX)),
            tracer: program.tracer.replace(tracer),
            recirculating: mem::take(&mut program.recirculating),
            learning: mem::take(&mut program.learning),
        };
        env.real_manager = Some(Box::new(mem::replace(&mut env.manager, manager)));
        program.pipeline.begin_trial();
        let trace = program.run_dry(env, port, frame);
        program.pipeline.end_trial();
        aside.manager = env.real_manager.take();
        aside.put_back(env, program);
        // The frame fits, and its pool is empty, so it has a trace.
        debug_assert!(trace.is_some(), "a dry run has no trace");
        trace.ok_or(DryRunError::NoProgram)
    }
}

/// The parts of a switch and its program that a dry run replaces.
struct Aside {
    manager: Option<Box<TrafficManager<PacketId>>>,
    counters: Counters,
    traces: Collector,
    now_ns: u64,
    packets: Pool,
    tracer: Option<Box<Tracer>>,
    recirculating: Recirculating,
    learning: Learning,
}

impl Aside {
    fn put_back(self, env: &mut Environment, program: &mut Program) {
        debug_assert!(self.manager.is_some(), "the traffic manager is gone");
        if let Some(manager) = self.manager {
            env.manager = *manager;
        }
        env.counters = self.counters;
        env.traces = self.traces;
        env.now_ns = self.now_ns;
        program.packets = self.packets;
        program.tracer = self.tracer;
        program.recirculating = self.recirculating;
        program.learning = self.learning;
    }
}

impl Program {
    /// Runs a packet to its end, with the parts of a dry run in place.
    fn run_dry(&mut self, env: &mut Environment, port: u16, frame: &[u8]) -> Option<PacketTrace> {
        let input = IngressInput {
            port,
            now_ns: env.now_ns,
            instance_type: InstanceType::Normal,
        };
        let parsed = self.take_in(env, frame, input)?;
        self.ingress(env, parsed.id, input);
        for _ in 0..INSTANTS_MAX {
            if let Some(trace) = env.traces.take() {
                return Some(trace);
            }
            let next = [
                self.recirculating.next_ns(),
                env.manager.next_dequeue_ns(),
                env.manager.next_delivery_ns(),
            ];
            let Some(next_ns) = next.into_iter().flatten().min() else {
                break;
            };
            env.now_ns = env.now_ns.max(next_ns);
            let now_ns = env.now_ns;
            self.reenter(env, now_ns);
            if let Some(start) = env.manager.dequeue(now_ns, now_ns) {
                self.egress(env, start);
            }
            self.release_dropped_at_heads(env);
            while let Some(delivery) = env.manager.deliver(now_ns, now_ns) {
                if let Frame::Packet(id) = delivery.frame {
                    self.deliver(env, delivery.port, id, delivery.delivery_ns, &mut Nowhere);
                }
            }
        }
        let finished = env.traces.take();
        finished.or_else(|| self.tracer.as_mut()?.take_unfinished(0))
    }
}
