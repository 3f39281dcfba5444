//! Keeps the switch's groups and sessions as BMv2's nodes, LAGs and mirror sessions say, and these as
//! P4Runtime's controllers change the switch's.
//!
//! A switch knows replicas only: a group's and a session's. So each change reads them first, takes over
//! those that have changed since its last write, and then writes those that it has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use p4runtime_server::Standing;
use switch::{CloneSession, Program, Replica, Switch};
use v1model::entries::ControlResult;

use crate::control::Control;
use crate::mirrors::Mirrors;
use crate::pre::{Pre, Refused};

/// Groups or sessions read or written between two looks at whether a visit is over.
const OBJECTS_PER_PIECE: usize = 16;
/// Numbers of groups that packets can ask for.
const GROUP_IDS: std::ops::RangeInclusive<u32> = 1..=0xFFFF;
/// Numbers of sessions that the switch has.
const SESSION_IDS: std::ops::RangeInclusive<u32> = 0..=0x7FFF;

/// Groups and sessions as clients see them.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) pre: Pre,
    pub(crate) mirrors: Mirrors,
}

/// Groups and sessions as the switch has them.
#[derive(Debug, Clone, Default)]
struct Installed {
    groups: BTreeMap<u32, Vec<Replica>>,
    sessions: BTreeMap<u32, CloneSession>,
    /// Ports that replicas may name.
    ports: BTreeSet<u32>,
}

/// A change of the switch.
#[derive(Debug, Clone)]
enum Step {
    SetGroup(u32, Vec<Replica>),
    DeleteGroup(u32),
    SetSession(u32, CloneSession),
    DeleteSession(u32),
}

/// Groups and sessions, kept in step with the switch.
#[derive(Debug, Default)]
pub(crate) struct Replication(Mutex<State>);

impl Replication {
    /// The state. A panic elsewhere leaves it consistent: it is replaced as a whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes groups or sessions.
    ///
    /// # Errors
    /// The outer ones: the client may not, or the switch cannot be asked. The inner ones: `change` or
    /// the switch refuses; nothing has changed then.
    pub(crate) fn change<R>(
        &self,
        control: &Control,
        standing: Standing,
        change: impl FnOnce(&mut State) -> Result<R, Refused>,
    ) -> thrift::Result<Result<R, Refused>> {
        let _changing = control.begin(standing)?;
        let mut state = self.state();
        let installed = installed(control)?;
        state.adopt(&installed);
        let mut next = state.clone();
        let result = match change(&mut next) {
            Ok(result) => result,
            Err(refused) => return Ok(Err(refused)),
        };
        let done = install(control, next.steps_from(&installed))?;
        if let Err(error) = done {
            tracing::info!(%error, "a multicast group or mirror session is refused");
            return Ok(Err(Refused::Error));
        }
        *state = next;
        Ok(Ok(result))
    }

    /// Reads groups and sessions.
    pub(crate) fn read<R>(
        &self,
        control: &Control,
        read: impl FnOnce(&State) -> R,
    ) -> thrift::Result<R> {
        let _reading = control.begin_read();
        let mut state = self.state();
        state.adopt(&installed(control)?);
        Ok(read(&state))
    }

    /// Gives a new program the groups and sessions. The caller holds the right to change.
    pub(crate) fn install_again(&self, control: &Control) -> thrift::Result<()> {
        let state = self.state();
        let installed = installed(control)?;
        if let Err(error) = install(control, state.steps_from(&installed))? {
            tracing::warn!(%error, "not all multicast groups and mirror sessions are kept");
        }
        Ok(())
    }

    /// Takes over the switch's groups and sessions, before its program is replaced.
    pub(crate) fn take_over(&self, control: &Control) -> thrift::Result<()> {
        let mut state = self.state();
        state.adopt(&installed(control)?);
        Ok(())
    }

    /// Forgets the groups, and changes the switch accordingly. The caller holds the right to change.
    pub(crate) fn reset_groups(&self, control: &Control) -> thrift::Result<()> {
        self.state().pre = Pre::default();
        self.install_again(control)
    }
}

impl State {
    /// Takes over the groups and sessions in the switch that differ from this state.
    fn adopt(&mut self, installed: &Installed) {
        let mine: Vec<u32> = self.pre.groups().collect();
        for group in mine.into_iter().filter(|id| GROUP_IDS.contains(id)) {
            if !installed.groups.contains_key(&group) {
                self.pre.forget_group(group);
            }
        }
        let known: BTreeSet<u32> = self.pre.groups().collect();
        for (group, replicas) in &installed.groups {
            let wanted = installed.possible(self.pre.replicas(*group));
            if !known.contains(group) || !same(&wanted, replicas) {
                self.pre.adopt_group(*group, replicas);
            }
        }
        let mine: Vec<u32> = self.mirrors.ids().collect();
        for session in mine.into_iter().filter(|id| SESSION_IDS.contains(id)) {
            if !installed.sessions.contains_key(&session) {
                self.mirrors.forget(session);
            }
        }
        let known: BTreeSet<u32> = self.mirrors.ids().collect();
        for (id, session) in &installed.sessions {
            let wanted = installed.possible(self.mirrors.replicas(*id, &self.pre));
            if !known.contains(id) || !same(&wanted, &session.replicas) {
                self.mirrors.adopt(*id, &session.replicas);
            }
        }
    }

    /// The steps that bring the switch from its installed state to this one.
    fn steps_from(&self, installed: &Installed) -> Vec<Step> {
        let mut steps = Vec::new();
        let groups = self.pre.groups().filter(|id| GROUP_IDS.contains(id));
        let groups: BTreeSet<u32> = groups.collect();
        for group in &groups {
            let wanted = installed.possible(self.pre.replicas(*group));
            let before = installed.groups.get(group);
            if before.is_none_or(|before| !same(&wanted, before)) {
                steps.push(Step::SetGroup(*group, wanted));
            }
        }
        let gone = installed.groups.keys().filter(|id| !groups.contains(id));
        steps.extend(gone.map(|group| Step::DeleteGroup(*group)));
        let sessions = self.mirrors.ids().filter(|id| SESSION_IDS.contains(id));
        let sessions: BTreeSet<u32> = sessions.collect();
        for id in &sessions {
            let wanted = installed.possible(self.mirrors.replicas(*id, &self.pre));
            let before = installed.sessions.get(id);
            if before.is_none_or(|before| !same(&wanted, &before.replicas)) {
                let session = CloneSession {
                    replicas: wanted,
                    ..before.cloned().unwrap_or_default()
                };
                steps.push(Step::SetSession(*id, session));
            }
        }
        let gone = installed.sessions.keys();
        let gone = gone.filter(|id| !sessions.contains(id));
        steps.extend(gone.map(|session| Step::DeleteSession(*session)));
        steps
    }
}

impl Installed {
    /// The replicas that the switch can have: it sends no copy to a port that it does not have, nor two
    /// that cannot be told apart.
    fn possible(&self, replicas: Vec<Replica>) -> Vec<Replica> {
        let mut seen = BTreeSet::new();
        let possible = replicas.into_iter();
        possible
            .filter(|replica| self.ports.contains(&replica.port) && seen.insert(*replica))
            .collect()
    }
}

/// Whether two lists have the same replicas.
fn same(one: &[Replica], other: &[Replica]) -> bool {
    let set = |replicas: &[Replica]| replicas.iter().copied().collect::<BTreeSet<_>>();
    one.len() == other.len() && set(one) == set(other)
}

/// Reads groups, sessions and ports of the switch; without a program, it has none.
fn installed(control: &Control) -> thrift::Result<Installed> {
    let mut found = Installed::default();
    let (mut groups, mut sessions) = (Some(0), Some(0));
    control.run_in_visits(move |visit| {
        loop {
            let Ok(program) = visit.switch.program() else {
                return Some(std::mem::take(&mut found));
            };
            if let Some(from) = groups {
                let page = program.multicast_groups().page(from, OBJECTS_PER_PIECE);
                found.groups.extend(page.items);
                groups = page.next;
            } else if let Some(from) = sessions {
                let page = program.clone_sessions().page(from, OBJECTS_PER_PIECE);
                found.sessions.extend(page.items);
                sessions = page.next;
            } else {
                found.ports = ports(visit.switch);
                return Some(std::mem::take(&mut found));
            }
            if visit.is_over() {
                return None;
            }
        }
    })
}

fn ports(switch: &Switch) -> BTreeSet<u32> {
    let ports = switch.traffic_manager().ports();
    ports.map(|(port, _)| u32::from(port)).collect()
}

/// Carries steps out, in order, until one is refused.
fn install(control: &Control, steps: Vec<Step>) -> thrift::Result<ControlResult<()>> {
    let mut steps = steps.into_iter();
    control.run_in_visits(move |visit| {
        loop {
            let Some(step) = steps.next() else {
                return Some(Ok(()));
            };
            let done = visit.switch.program_mut().and_then(|p| carry_out(step, p));
            if let Err(error) = done {
                return Some(Err(error));
            }
            if visit.is_over() {
                return None;
            }
        }
    })
}

fn carry_out(step: Step, program: &mut Program) -> ControlResult<()> {
    match step {
        Step::SetGroup(group, replicas) if program.multicast_groups().get(group).is_ok() => {
            program.multicast_modify(group, replicas)
        }
        Step::SetGroup(group, replicas) => program.multicast_insert(group, replicas),
        Step::DeleteGroup(group) => program.multicast_delete(group),
        Step::SetSession(id, session) if program.clone_sessions().get(id).is_ok() => {
            program.clone_session_modify(id, session)
        }
        Step::SetSession(id, session) => program.clone_session_insert(id, session),
        Step::DeleteSession(id) => program.clone_session_delete(id),
    }
}
