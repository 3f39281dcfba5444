//! Reports steps, for an [`Externs`] that wants them, and notes what trials change. Nothing of this is
//! compiled for others.

use super::machine::Machine;
use super::outcome::Outcome;
use super::phv::to_index;
use crate::api::Externs;
use crate::context::Context;
use crate::ops::Op;
use crate::slot::Slot;
use crate::table::{Hit, Table};
use crate::trace::{ArgumentValues, KeyValues, MatchingEntry, NodeLabel, QueueRead, Step, Value};

impl<E: Externs> Machine<'_, E> {
    /// Reports a step that takes no work to describe.
    #[inline]
    pub fn report(&self, step: Step<'_>) {
        if E::STEPS {
            self.externs.step(step);
        }
    }

    /// Reports that the parser is in a state.
    pub(super) fn report_state(&self, state: u32) {
        if E::STEPS {
            self.externs.step(Step::State(state as usize));
        }
    }

    /// Reports that a header has been extracted.
    pub(super) fn report_extract(&self, ctx: &Context, header: u16) {
        let header = usize::from(header);
        if E::STEPS
            && let Some(info) = self.program.headers.get(header)
            && let Some(label) = self.program.labels.headers.get(header)
        {
            self.externs.step(Step::Extract {
                header,
                bytes: self.program.kinds[info.kind].length(&ctx.phv, info.base),
                fields: label.values(&ctx.phv),
            });
        }
    }

    /// Reports the headers that the deparser emits.
    pub(super) fn report_emitted(&self, ctx: &Context) {
        if E::STEPS {
            let emitted = &self.program.labels.emitted;
            for (header, index) in self.program.deparse_order.iter().zip(emitted) {
                if ctx.phv[header.base as usize] != 0 {
                    self.externs.step(Step::Emit {
                        header: usize::from(*index),
                        bytes: self.program.kinds[header.kind].length(&ctx.phv, header.base),
                    });
                }
            }
        }
    }

    /// Reports a primitive, if one begins at this address.
    #[inline]
    pub(super) fn report_primitive(&self, address: u32) {
        if E::STEPS
            && let Some(primitive) = self.program.labels.primitive_at(address)
        {
            self.externs.step(Step::Primitive(primitive));
        }
    }

    /// Reports a condition. `taken`: the node's test holds.
    #[inline]
    pub(super) fn report_condition(&self, node: u32, taken: bool) {
        let node = node as usize;
        if E::STEPS
            && let Some(NodeLabel::Condition { is_inverted, .. }) =
                self.program.labels.nodes.get(node)
        {
            let holds = taken != *is_inverted;
            self.externs.step(Step::Condition { node, holds });
        }
    }

    /// Reports a node that runs one action: a call, or a table that can run no other action.
    pub(super) fn report_fixed_action(&self, node: u32) {
        if !E::STEPS {
            return;
        }
        match self.program.labels.nodes.get(node as usize) {
            Some(&NodeLabel::Table(table)) => {
                self.externs.step(Step::Table {
                    table,
                    key: KeyValues::new(&[], &[]),
                    entry: None,
                    handle: None,
                });
                let Some(table) = self.tables.get(table) else {
                    return;
                };
                if let Some(call) = &table.default.call {
                    self.report_action(table, call.local(), call.args());
                }
            }
            Some(&NodeLabel::Action(action)) => self.externs.step(Step::Action {
                action,
                args: ArgumentValues::new(&[], &[]),
            }),
            Some(NodeLabel::Condition { .. }) | None => {}
        }
    }

    /// Reports a look-up.
    #[inline]
    pub(super) fn report_table(&self, ctx: &Context, index: usize, hit: Option<Hit>) {
        if E::STEPS
            && let Some(table) = self.tables.get(index)
        {
            let entry = hit.and_then(|hit| table.entry(hit.id));
            self.externs.step(Step::Table {
                table: index,
                key: KeyValues::new(&table.spec.parts, &ctx.phv),
                entry: entry.map(MatchingEntry),
                handle: entry.and_then(|entry| table.handle_of(entry)),
            });
        }
    }

    /// Reports the colour that the direct meter of the entry, or of the default entry, has given.
    #[inline]
    pub(super) fn report_direct_meter(&self, ctx: &Context, index: usize, hit: Option<Hit>) {
        if E::STEPS
            && let Some(table) = self.tables.get(index)
            && let Some(meter) = table.spec.meter
            && (hit.is_some() || table.default.direct.is_configured())
        {
            self.externs.step(Step::DirectMeter {
                table: index,
                colour: ctx.phv[meter.slot as usize],
            });
        }
    }

    /// Notes the data of an entry that the packet is about to change, if a trial runs.
    #[inline]
    pub(super) fn note_entry(&mut self, index: usize, hit: Option<Hit>) {
        if E::STEPS
            && let Some(trial) = &mut self.trial
            && let Some(table) = self.tables.get(index)
        {
            trial.note_entry(index, table, hit.map(|hit| hit.id));
        }
    }

    /// Reports the action that a table runs.
    #[inline]
    pub(super) fn report_action(&self, table: &Table, local: usize, args: &[u64]) {
        if E::STEPS
            && let Some(action) = table.spec.actions.get(local)
        {
            self.externs.step(Step::Action {
                action: action.public,
                args: ArgumentValues::new(args, &action.params),
            });
        }
    }

    /// Executes an operation and reports what it has done.
    pub(super) fn step_reported(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        let next = *pc;
        // The result may take the place of the index.
        let index = index_of(op).map_or(0, |slot| ctx.phv[slot as usize]);
        self.note_before(op, to_index(index));
        let outcome = self.step_state(ctx, op, pc);
        match outcome {
            // A skip: the index is out of range.
            Outcome::Done => self.report_op(ctx, op, index, *pc != next),
            Outcome::Exit => self.externs.step(Step::Exit),
            Outcome::Asserted => self.externs.step(Step::AssertFailed),
            Outcome::Error(_) | Outcome::Fault => {}
        }
        outcome
    }

    /// Notes what an operation is about to change, if a trial runs.
    fn note_before(&mut self, op: &Op, index: usize) {
        let Some(trial) = &mut self.trial else {
            return;
        };
        let state = &*self.state;
        match *op {
            Op::RegisterWrite { array, .. } => trial.note_cell(state, array as usize, index),
            Op::Count { array, .. } => {
                trial.note_cell(state, state.counter_array(array as usize), index);
            }
            Op::Meter { array, .. } => trial.note_meter(state, array as usize, index),
            Op::Random { .. } => trial.note_random(state),
            _ => {}
        }
    }

    fn report_op(&self, ctx: &Context, op: &Op, index: u64, skipped: bool) {
        let program = self.program;
        let w = |slot: Slot| ctx.phv[slot as usize];
        let cell = |array: u16, slot: Slot| {
            let bits = program.register_infos[array as usize].bits;
            let from = slot as usize;
            Value::new(&ctx.phv[from..from + bits.div_ceil(64) as usize], bits)
        };
        let step = match *op {
            Op::RegisterRead {
                d, array, skip: _, ..
            } => Step::RegisterRead {
                register: array.into(),
                index,
                value: self.has_cell(array, index).then(|| cell(array, d)),
            },
            Op::RegisterWrite { array, a, .. } => Step::RegisterWrite {
                register: array.into(),
                index,
                value: self.has_cell(array, index).then(|| cell(array, a)),
            },
            Op::Count { array, .. } => Step::Count {
                counter: array.into(),
                index,
            },
            Op::Meter { d, array, .. } => Step::Meter {
                meter: array.into(),
                index,
                colour: (!skipped).then(|| w(d)),
            },
            Op::ReadQueue { port, queue, .. } => {
                let (port, queue) = (w(port), w(queue));
                let reading = self.read_queue(port, queue);
                Step::ReadQueue(QueueRead {
                    port,
                    queue,
                    reading,
                })
            }
            Op::ChooseQueue { .. } => match ctx.requests.queue {
                Some(queue) => Step::ChooseQueue(queue),
                None => return,
            },
            Op::MarkToDrop | Op::MarkCopyToDrop { .. } => Step::MarkToDrop,
            Op::Hold { .. } => match ctx.requests.hold {
                Some(hold) => Step::Hold(hold),
                None => return,
            },
            Op::Truncate { a } => Step::Truncate(w(a)),
            Op::Clone { .. } => match ctx.requests.clone {
                Some(request) => Step::Clone(request),
                None => return,
            },
            Op::Digest { list } => Step::Digest(w(list)),
            Op::Resubmit { list } => Step::Resubmit(w(list)),
            Op::Recirculate { list } => Step::Recirculate(w(list)),
            Op::ExtractVariable { header, .. } => return self.report_extract(ctx, header),
            Op::ExtractNext { stack } | Op::ExtractNextVariable { stack, .. } => {
                let stack = &program.stacks[stack as usize];
                let last = w(stack.next).checked_sub(1);
                let element = last.and_then(|last| stack.elements.get(to_index(last)));
                if let Some(&element) = element {
                    self.report_extract(ctx, element);
                }
                return;
            }
            _ => return,
        };
        self.externs.step(step);
    }

    fn has_cell(&self, register: u16, index: u64) -> bool {
        let index = to_index(index);
        self.state.register(register as usize, index).is_some()
    }
}

/// The slot with the index of the cell that an operation works on.
fn index_of(op: &Op) -> Option<Slot> {
    match *op {
        Op::RegisterRead { index, .. }
        | Op::RegisterWrite { index, .. }
        | Op::Count { index, .. }
        | Op::Meter { index, .. } => Some(index),
        _ => None,
    }
}
