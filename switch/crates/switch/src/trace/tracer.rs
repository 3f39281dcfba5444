//! Puts the traces of packets together while they are in the switch.

use std::cell::RefCell;
use std::sync::Arc;

use foldhash::HashMap;
use traffic_manager::Waiting;
use v1model::{Externs, IngressInput, Step};

use super::collector::{Collector, Wanted};
use super::event::Event;
use super::record::{Events, Matches, Recorder};
use super::shapes::Vocabulary;
use super::tree::{Branch, ForkReason, Outcome, PacketTrace};
use crate::externs::TrafficManagerView;
use crate::pool::PacketId;

/// Most events of one trace: a packet may recirculate for ever.
const EVENTS_MAX: usize = 4_096;

/// Most branches of one trace.
const BRANCHES_MAX: usize = 512;

/// Most forks of which each is in a branch of the one before. Protobuf's libraries read at most 100 messages
/// within each other, and a fork is two of them.
const NESTED_FORKS_MAX: usize = 32;

/// The traces of the packets that are in the switch.
pub(crate) struct Tracer {
    vocabulary: Arc<Vocabulary>,
    matches: Matches,
    /// The room that the first branch of the last trace took: the next one gets as much.
    usual_room: (usize, usize),
    growing: HashMap<u64, Growing>,
    /// Where the events of a packet go.
    places: HashMap<PacketId, Place>,
}

/// A branch of a trace that grows.
#[derive(Debug, Clone, Copy)]
struct Place {
    trace: u64,
    branch: usize,
    /// Forks that lead to the branch.
    nested_forks: usize,
    /// The branch that forked last, and why, while copies are being made.
    fork: Option<(usize, ForkReason)>,
}

/// A trace of which copies are still in the switch.
struct Growing {
    wanted: Wanted,
    ingress_port: u16,
    arrival_ns: u64,
    frame_bytes: usize,
    branches: Vec<GrowingBranch>,
    room: Room,
    /// Branches without an outcome.
    open: usize,
}

/// The room of a trace.
#[derive(Default)]
struct Room {
    events: usize,
    left_out: u64,
}

impl Room {
    /// Whether another event has room. Counts it.
    #[inline]
    fn take(&mut self) -> bool {
        let has_room = self.events < EVENTS_MAX;
        if has_room {
            self.events += 1;
        } else {
            self.left_out += 1;
        }
        has_room
    }
}

#[derive(Default)]
struct GrowingBranch {
    events: Events,
    end: Option<End>,
}

enum End {
    Outcome(Outcome),
    Fork(ForkReason, Vec<usize>),
}

impl Growing {
    /// Adds a branch; `None`: there is no room.
    fn add_branch(&mut self) -> Option<usize> {
        if self.branches.len() == BRANCHES_MAX {
            self.room.left_out += 1;
            return None;
        }
        self.branches.push(GrowingBranch::default());
        self.open += 1;
        Some(self.branches.len() - 1)
    }

    fn finish(mut self, number: u64, vocabulary: &Arc<Vocabulary>) -> PacketTrace {
        PacketTrace {
            packet_id: number,
            ingress_port: self.ingress_port,
            arrival_ns: self.arrival_ns,
            frame_bytes: self.frame_bytes,
            root: self.take(0),
            left_out: self.room.left_out,
            vocabulary: Arc::clone(vocabulary),
        }
    }

    /// Takes a branch with all that forked from it.
    fn take(&mut self, at: usize) -> Branch {
        let branch = self.branches.get_mut(at).map(std::mem::take);
        let branch = branch.unwrap_or_default();
        let outcome = match branch.end {
            Some(End::Outcome(outcome)) => outcome,
            Some(End::Fork(reason, branches)) => Outcome::Fork {
                reason,
                branches: branches.into_iter().map(|at| self.take(at)).collect(),
            },
            None => Outcome::Unfinished,
        };
        Branch {
            events: branch.events,
            outcome,
        }
    }
}

impl Tracer {
    /// A tracer of packets that a program processes.
    pub(crate) fn new(vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            vocabulary,
            matches: Matches::default(),
            usual_room: (0, 0),
            growing: HashMap::default(),
            places: HashMap::default(),
        }
    }

    /// Whether its traces have the names of this vocabulary.
    pub(crate) fn names_by(&self, vocabulary: &Arc<Vocabulary>) -> bool {
        Arc::ptr_eq(&self.vocabulary, vocabulary)
    }

    /// Begins the trace, with this number, of a packet that has come in.
    pub(crate) fn begin(
        &mut self,
        id: PacketId,
        (trace, wanted): (u64, Wanted),
        input: &IngressInput,
        frame_bytes: usize,
    ) {
        let first = GrowingBranch {
            events: Events::with_room(self.usual_room),
            end: None,
        };
        self.growing.insert(
            trace,
            Growing {
                wanted,
                ingress_port: input.port,
                arrival_ns: input.now_ns,
                frame_bytes,
                branches: vec![first],
                room: Room::default(),
                open: 1,
            },
        );
        let place = Place {
            trace,
            branch: 0,
            nested_forks: 0,
            fork: None,
        };
        self.places.insert(id, place);
    }

    /// Takes an event of a packet. `event` is called only if the packet is traced.
    pub(crate) fn event(&mut self, id: PacketId, event: impl FnOnce() -> Event) {
        if let Some(place) = self.places.get_mut(&id) {
            place.fork = None;
            if let Some(trace) = self.growing.get_mut(&place.trace)
                && trace.room.take()
                && let Some(branch) = trace.branches.get_mut(place.branch)
            {
                branch.events.put_event(&event());
            }
        }
    }

    /// An `Externs` that takes the steps of a packet; `None`: the packet is not traced.
    pub(crate) fn externs<'a>(
        &'a mut self,
        id: PacketId,
        view: TrafficManagerView<'a>,
    ) -> Option<Traced<'a>> {
        let place = self.places.get_mut(&id)?;
        place.fork = None;
        let trace = self.growing.get_mut(&place.trace)?;
        let recorder = Recorder {
            names: &self.vocabulary.names,
            matches: &mut self.matches,
            events: &mut trace.branches.get_mut(place.branch)?.events,
        };
        Some(Traced {
            view,
            recorder: RefCell::new((&mut trace.room, recorder)),
        })
    }

    /// A copy of a packet has been made.
    pub(crate) fn copied(&mut self, of: PacketId, copy: PacketId, reason: ForkReason) {
        let Some(place) = self.places.get_mut(&of) else {
            return;
        };
        let Some(trace) = self.growing.get_mut(&place.trace) else {
            return;
        };
        let from = match place.fork {
            Some((from, why)) if why == reason => from,
            _ if place.nested_forks == NESTED_FORKS_MAX => {
                trace.room.left_out += 1;
                return;
            }
            _ => {
                let from = place.branch;
                let Some(own) = trace.add_branch() else {
                    return;
                };
                // The branch that forks has its outcome.
                trace.open -= 1;
                if let Some(branch) = trace.branches.get_mut(from) {
                    branch.end = Some(End::Fork(reason, vec![own]));
                }
                place.branch = own;
                place.nested_forks += 1;
                place.fork = Some((from, reason));
                from
            }
        };
        let Some(branch) = trace.add_branch() else {
            return;
        };
        if let Some(End::Fork(_, branches)) = trace.branches[from].end.as_mut() {
            branches.push(branch);
        }
        let place = Place {
            branch,
            fork: None,
            ..*place
        };
        self.places.insert(copy, place);
    }

    /// A packet leaves the switch.
    pub(crate) fn end(&mut self, id: PacketId, outcome: Outcome, traces: &mut Collector) {
        let Some(place) = self.places.remove(&id) else {
            return;
        };
        let Some(trace) = self.growing.get_mut(&place.trace) else {
            return;
        };
        if let Some(branch) = trace.branches.get_mut(place.branch) {
            branch.end = Some(End::Outcome(outcome));
        }
        trace.open -= 1;
        if trace.open == 0
            && let Some(trace) = self.growing.remove(&place.trace)
        {
            let first = trace.branches.first();
            self.usual_room = first.map_or((0, 0), |first| first.events.room());
            traces.put(trace.wanted, trace.finish(place.trace, &self.vocabulary));
        }
    }

    /// Takes the trace of this number as far as it goes.
    pub(crate) fn take_unfinished(&mut self, trace: u64) -> Option<PacketTrace> {
        self.places.retain(|_, place| place.trace != trace);
        let growing = self.growing.remove(&trace)?;
        Some(growing.finish(trace, &self.vocabulary))
    }
}

/// The traffic manager as the program sees it, and a place for its steps.
pub(crate) struct Traced<'a> {
    view: TrafficManagerView<'a>,
    recorder: RefCell<(&'a mut Room, Recorder<'a>)>,
}

impl Externs for Traced<'_> {
    const STEPS: bool = true;

    fn backlog_bytes(&self, class: u32) -> u64 {
        self.view.all_backlog_bytes(class)
    }

    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        self.view.waiting(port, queue)
    }

    fn prefetch_class(&self, class: u32) {
        self.view.prefetch_class(class);
    }

    fn logs(&self) -> bool {
        self.view.logs()
    }

    fn log(&self, message: &str) {
        self.view.log(message);
    }

    #[inline(always)]
    fn step(&self, step: Step<'_>) {
        let (room, recorder) = &mut *self.recorder.borrow_mut();
        if room.take() {
            recorder.step(&step);
        }
    }
}
