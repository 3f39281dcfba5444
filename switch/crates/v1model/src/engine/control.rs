//! Walks a control's graph and applies its tables.

use super::chosen::Chosen;
use super::machine::Machine;
use super::outcome::Outcome;
use crate::api::Externs;
use crate::context::Context;
use crate::meter::{Metered, count};
use crate::profile::Profile;
use crate::program::{END, Indexed, Node, Program};
use crate::table::{Hit, Table, Target};
use crate::trace::Step;

impl<E: Externs> Machine<'_, E> {
    /// Runs the ingress control. A failed assertion or a fault is noted in the context.
    pub fn ingress(&mut self, ctx: &mut Context) {
        self.control(ctx, self.program.ingress).note(ctx);
    }

    /// Runs the egress control, likewise.
    pub fn egress(&mut self, ctx: &mut Context) {
        self.control(ctx, self.program.egress).note(ctx);
    }

    /// Runs a control from `node` to its end.
    fn control(&mut self, ctx: &mut Context, mut node: u32) -> Outcome {
        let nodes = &self.program.nodes[..];
        loop {
            // Most nodes are comparisons, which need nothing but the PHV.
            let phv = &ctx.phv[..];
            let current = loop {
                let Some(current) = nodes.get(node as usize) else {
                    return Outcome::Done;
                };
                let (taken, yes, no) = match current {
                    Node::IfEqual { a, b, yes, no } => {
                        (phv[*a as usize] == phv[*b as usize], yes, no)
                    }
                    Node::If { test, yes, no } => (test.holds(phv), yes, no),
                    Node::IfBoth { tests, yes, no } => {
                        (tests.iter().all(|test| test.holds(phv)), yes, no)
                    }
                    other => break other,
                };
                self.report_condition(node, taken);
                node = if taken { *yes } else { *no };
            };
            let outcome;
            (outcome, node) = match *current {
                Node::Table(table) => self.apply(ctx, table as usize),
                Node::Action { code, next } => {
                    self.report_fixed_action(node);
                    (self.run(ctx, code), next)
                }
                Node::Branch {
                    code,
                    slot,
                    yes,
                    no,
                } => {
                    let outcome = self.run(ctx, code);
                    let taken = ctx.phv[slot as usize] != 0;
                    self.report_condition(node, taken);
                    (outcome, if taken { yes } else { no })
                }
                Node::IfEqual { .. } | Node::If { .. } | Node::IfBoth { .. } => fault(),
            };
            if outcome != Outcome::Done {
                return outcome;
            }
        }
    }

    /// Applies a table: looks the packet's key up, counts and meters the packet, runs the action.
    /// Returns how the action ended, and the next node.
    fn apply(&mut self, ctx: &mut Context, index: usize) -> (Outcome, u32) {
        let Some(table) = self.tables.get(index) else {
            return fault();
        };
        let hit = table.find(&ctx.phv, &mut ctx.key);
        let chosen = self.choose(ctx, index, hit);
        let Some(table) = self.tables.get(index) else {
            return fault();
        };
        match chosen {
            Chosen::Action(local) => match table.spec.actions.get(local) {
                Some(action) => {
                    let (code, next) = (action.code, table.spec.next(Some(action), hit.is_some()));
                    (self.run(ctx, code), next)
                }
                None => fault(),
            },
            Chosen::Nothing => (Outcome::Done, table.spec.next(None, hit.is_some())),
            Chosen::Fault => fault(),
        }
    }

    /// Counts and meters the packet at a table, and chooses the action of the entry that was found, or
    /// the table's default action. Its arguments are in the PHV then.
    #[inline(always)]
    pub fn choose(&mut self, ctx: &mut Context, index: usize, hit: Option<Hit>) -> Chosen {
        let Some(table) = self.tables.get(index) else {
            return Chosen::Fault;
        };
        self.report_table(ctx, index, hit);
        let hint = hit.and_then(|hit| hit.hint);
        if let Some((hit, hint)) = hit.zip(hint) {
            table.prefetch_entry(hit.id);
            for &indexed in &table.hinted {
                self.prefetch(indexed, hint);
            }
        }
        self.note_entry(index, hit);
        if let Some(table) = self.tables.get_mut(index) {
            update_direct(table, hit, ctx, self.now_ns);
        }
        self.report_direct_meter(ctx, index, hit);
        self.chosen(ctx, index, hit)
    }

    /// The action of the entry that was found, or the table's default action.
    #[inline(always)]
    fn chosen(&mut self, ctx: &mut Context, index: usize, hit: Option<Hit>) -> Chosen {
        let Some(table) = self.tables.get(index) else {
            return Chosen::Fault;
        };
        let entry = hit.map(|hit| table.entry(hit.id));
        let report = |step: Step<'_>| self.report(step);
        let target = match entry {
            Some(Some(entry)) => Some(&entry.target),
            Some(None) => return Chosen::Fault,
            None => table.default.indirect.as_ref(),
        };
        let call = match target {
            None => table.default.call.as_ref().map(|c| (c.local(), c.args())),
            Some(Target::Call(call)) => Some((call.local(), call.args())),
            Some(target) => match choose(self.program, self.profiles, table, target, ctx, report) {
                Some(Choice::Call(local, args)) => Some((local, args)),
                Some(Choice::EmptyGroup) => None,
                None => return Chosen::Fault,
            },
        };
        // A miss without a default action, or an empty group.
        let Some((local, args)) = call else {
            return Chosen::Nothing;
        };
        self.report_action(table, local, args);
        let base = self.program.param_base as usize;
        match args {
            [] => {}
            // The most frequent case needs no call of `memcpy`.
            [one] => ctx.phv[base] = *one,
            _ => ctx.phv[base..base + args.len()].copy_from_slice(args),
        }
        let Some(action) = table.spec.actions.get(local) else {
            return Chosen::Fault;
        };
        if hit.is_none_or(|hit| hit.hint.is_none()) {
            for prefetch in &action.prefetches {
                if let Some(&index) = args.get(prefetch.argument) {
                    self.prefetch(prefetch.indexed, index);
                }
            }
        }
        Chosen::Action(local)
    }

    /// Prefetches the object at an index. The engine prefetches here only, and the next packet's
    /// first table entry in [`crate::Pipeline::prefetch_next`].
    #[inline(always)]
    fn prefetch(&self, indexed: Indexed, index: u64) {
        match indexed {
            Indexed::Rows(rows) => self.state.prefetch(rows, index),
            Indexed::Table(table) => {
                if let Some(table) = self.tables.get(table) {
                    table.prefetch_key(index);
                }
            }
            Indexed::Queue => {
                let class = u32::try_from(index).unwrap_or(u32::MAX);
                self.externs.prefetch_class(class);
            }
        }
    }
}

/// A case that cannot happen.
#[cold]
pub(crate) fn fault() -> (Outcome, u32) {
    debug_assert!(
        false,
        "a node, table, entry, member or action that the engine goes to does not exist"
    );
    (Outcome::Fault, END)
}

/// Updates the direct counter, the direct meter and the time of the last hit of the entry that was
/// found, or of the default entry; in BMv2's order, before the action.
#[inline(always)]
fn update_direct(table: &mut Table, hit: Option<Hit>, ctx: &mut Context, now_ns: u64) {
    let (counters, meter, ageing) = (table.spec.counters, table.spec.meter, table.spec.ageing);
    let Some(hit) = hit else {
        if counters || meter.is_some() {
            update_direct_default(table, ctx, now_ns);
        }
        return;
    };
    let Some(entry) = table.entry_mut(hit.id) else {
        debug_assert!(false, "the look-up found an entry that does not exist");
        return;
    };
    if counters {
        count(&mut entry.direct.counter, ctx.ingress_length);
    }
    if let Some(m) = meter {
        let packet = Metered {
            bytes: ctx.ingress_length,
            now_ns,
        };
        let colour = entry.direct.colour(m.unit, packet);
        ctx.phv[m.slot as usize] = colour & m.mask;
    }
    if ageing {
        entry.idle.last_hit_ns = now_ns;
    }
}

/// Counts and meters a packet that matched no entry. P4Runtime, section "Default Entry": it "is
/// treated like a regular entry, including with regards to direct resources". BMv2 does neither.
/// Programs that never configure this meter must behave as on BMv2, so an unconfigured meter writes
/// no colour.
fn update_direct_default(table: &mut Table, ctx: &mut Context, now_ns: u64) {
    let direct = &mut table.default.direct;
    if table.spec.counters {
        count(&mut direct.counter, ctx.ingress_length);
    }
    if let Some(m) = table.spec.meter {
        let packet = Metered {
            bytes: ctx.ingress_length,
            now_ns,
        };
        let colour = direct.colour(m.unit, packet);
        if direct.is_configured() {
            ctx.phv[m.slot as usize] = colour & m.mask;
        }
    }
}

/// The choice for a packet at an entry that names a member, a group or a one-shot set.
enum Choice<'t> {
    /// The table's number of an action, and the action's arguments.
    Call(usize, &'t [u64]),
    /// The group or the set has no member whose port is up.
    EmptyGroup,
}

/// The choice at an entry that names a member, a group or a one-shot set; reports it. `None` if something
/// that it names does not exist, which cannot happen.
fn choose<'t>(
    program: &Program,
    profiles: &'t [Profile],
    table: &'t Table,
    target: &'t Target,
    ctx: &mut Context,
    report: impl Fn(Step<'_>),
) -> Option<Choice<'t>> {
    let number = table.spec.profile?;
    let profile = profiles.get(number)?;
    let mut pick = |from: &[u32]| -> Option<u32> {
        let size = u32::try_from(from.len()).ok()?;
        let calculation = program.calculations.get(profile.calculation?)?;
        let hash = ctx.compute(calculation, &program.kinds);
        // BMv2 uses 32 bits of the hash.
        let index = (hash as u32).checked_rem(size)?;
        from.get(index as usize).copied()
    };
    let (group, member) = match target {
        Target::Call(call) => return Some(Choice::Call(call.local(), call.args())),
        Target::OneShot(set) => {
            if set.spread.is_empty() {
                report(Step::EmptyGroup);
                return Some(Choice::EmptyGroup);
            }
            let action = pick(&set.spread)?;
            let call = set.calls.get(action as usize)?;
            report(Step::OneShot {
                profile: number,
                action,
            });
            return Some(Choice::Call(call.local(), call.args()));
        }
        Target::Member(at) => (None, profile.member(*at)?),
        Target::Group(at) => {
            let group = profile.group(*at)?;
            if group.spread.is_empty() {
                report(Step::EmptyGroup);
                return Some(Choice::EmptyGroup);
            }
            let member = profile.member(pick(&group.spread)?)?;
            (Some(group.given.id), member)
        }
    };
    report(Step::Member {
        profile: number,
        group,
        member: member.id,
    });
    Some(Choice::Call(table.local(member.action)?, &member.args))
}
