//! Runs compiled code over a packet.

use crate::api::{CloneRequest, Externs};
use crate::context::Context;
use crate::header_io::read_bits;
use crate::layout::Field;
use crate::meter::{Metered, count};
use crate::ops::{Code, HeaderRef, Op};
use crate::profile::Profile;
use crate::program::{HeaderInfo, Indexed, Node, Program, StackInfo};
use crate::slot::{Changes, RESHAPED, Slot};
use crate::state::State;
use crate::table::{END, Hit, Table, Target, Upcoming};
use crate::value_set::ValueSets;
use crate::wide::{self, mask64, sext64};
use traffic_manager::hold::Hold;

/// simple_switch keeps 15 bits of a clone session's number.
const CLONE_SESSION_MASK: u64 = 0x7fff;

/// Most loop iterations in one run of an action, all its loops together.
const MAX_LOOP_ITERATIONS: u32 = 1 << 16;

/// How a run of code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// At its end.
    Done,
    /// The program said `exit`.
    Exit,
    /// An `assert` or `assume` failed, or a loop did not end.
    Asserted,
    /// A parser error, with its code.
    Error(u64),
}

/// Everything a packet is processed with.
pub(crate) struct Machine<'a, E> {
    pub program: &'a Program,
    pub tables: &'a mut [Table],
    pub state: &'a mut State,
    pub profiles: &'a [Profile],
    pub value_sets: &'a ValueSets,
    pub externs: &'a E,
    pub now_ns: u64,
    pub drop_port: u16,
    /// Where the packet after this one will look first.
    pub upcoming: Option<Upcoming>,
}

/// Writes a switch-owned value to a field, truncated to its width.
pub(crate) fn set_field(words: &mut [u64], field: Field, value: u64) {
    words[field.slot as usize] = value & mask64(field.bits);
    if field.bits > 64 {
        let end = (field.slot + field.limbs()) as usize;
        words[field.slot as usize + 1..end].fill(0);
    }
}

/// Reads a switch-owned field's low word.
pub(crate) fn get_field(words: &[u64], field: Field) -> u64 {
    words[field.slot as usize]
}

impl<E: Externs> Machine<'_, E> {
    /// The drop port as `egress_spec` holds it.
    pub fn drop_value(&self) -> u64 {
        u64::from(self.drop_port) & mask64(self.program.intrinsics.egress_spec.bits)
    }

    /// Runs a control from `node` to its end.
    pub fn control(&mut self, ctx: &mut Context, mut node: u32) -> Outcome {
        let nodes = &self.program.nodes[..];
        loop {
            // Most nodes are comparisons, which need nothing but the words.
            let words = &ctx.phv[..];
            let current = loop {
                let Some(current) = nodes.get(node as usize) else {
                    return Outcome::Done;
                };
                let (taken, yes, no) = match current {
                    Node::IfEqual { a, b, yes, no } => {
                        (words[*a as usize] == words[*b as usize], yes, no)
                    }
                    Node::If { test, yes, no } => (test.holds(words), yes, no),
                    Node::IfBoth { tests, yes, no } => {
                        (tests.iter().all(|test| test.holds(words)), yes, no)
                    }
                    other => break other,
                };
                node = if taken { *yes } else { *no };
            };
            let outcome;
            (outcome, node) = match *current {
                Node::Table(table) => self.apply(ctx, table as usize),
                Node::Action { code, next } => (self.run(ctx, code), next),
                Node::Branch {
                    code,
                    slot,
                    yes,
                    no,
                } => {
                    let outcome = self.run(ctx, code);
                    let taken = ctx.phv[slot as usize] != 0;
                    (outcome, if taken { yes } else { no })
                }
                // Dealt with above.
                Node::IfEqual { .. } | Node::If { .. } | Node::IfBoth { .. } => {
                    return Outcome::Done;
                }
            };
            if outcome != Outcome::Done {
                return outcome;
            }
        }
    }

    /// Looks up, counts, meters, runs the action; gives the next node.
    fn apply(&mut self, ctx: &mut Context, index: usize) -> (Outcome, u32) {
        let Some(table) = self.tables.get(index) else {
            return (Outcome::Done, END);
        };
        let hit = table.find(&ctx.phv, &mut ctx.key);
        let hint = hit.and_then(|hit| hit.hint);
        if let Some(Hit {
            id,
            hint: Some(argument),
        }) = hit
        {
            let looks = table.hinted.iter();
            let looks = looks.map(|&indexed| (indexed, argument));
            let upcoming = self.upcoming.take().map_or(0, |upcoming| {
                let table = self.tables.get(upcoming.table);
                table.map_or(0, |table| table.look_at_home(upcoming.home))
            });
            self.look_ahead(table.look_at_entry(id) ^ upcoming, looks);
        }
        let hit = hit.map(|hit| hit.id);
        let Some(table) = self.tables.get_mut(index) else {
            return (Outcome::Done, END);
        };
        if let Some(id) = hit {
            let (counters, meter, ageing) = (table.counters, table.meter, table.ageing);
            if let Some(entry) = table.entry_mut(id) {
                // BMv2's order: counter, then meter, then the action.
                if counters {
                    count(&mut entry.direct.counter, ctx.ingress_length);
                }
                if let Some(m) = meter {
                    let packet = Metered {
                        bytes: ctx.ingress_length,
                        now_ns: self.now_ns,
                    };
                    let colour = entry.direct.colour(m.unit, packet);
                    ctx.phv[m.slot as usize] = colour & m.mask;
                }
                if ageing {
                    entry.idle.last_hit_ns = self.now_ns;
                }
            }
        } else if table.counters || table.meter.is_some() {
            Self::count_miss(table, ctx, self.now_ns);
        }
        let Some(table) = self.tables.get(index) else {
            return (Outcome::Done, END);
        };
        let (call, chosen) = match hit.and_then(|id| table.entry(id)) {
            Some(entry) => {
                let call = match &entry.target {
                    Target::Call(call) => Some((call.local(), call.args())),
                    other => choose(self.program, self.profiles, table, other, ctx),
                };
                (call, table.next_hit)
            }
            None => {
                let call = table.default.call.as_ref();
                (
                    call.map(|call| (call.local(), call.args())),
                    table.next_miss,
                )
            }
        };
        // No default action, or an empty group.
        let Some((local, args)) = call else {
            return (Outcome::Done, chosen.unwrap_or(table.base_next));
        };
        let base = self.program.param_base as usize;
        match args {
            [] => {}
            // The most frequent case, without a call.
            [one] => ctx.phv[base] = *one,
            _ => ctx.phv[base..base + args.len()].copy_from_slice(args),
        }
        let Some(action) = table.actions.get(local) else {
            return (Outcome::Done, END);
        };
        let next = chosen.unwrap_or(action.next);
        let code = action.code;
        if hint.is_none() && !action.prefetches.is_empty() {
            let argument = |at: usize| args.get(at).copied().unwrap_or(u64::MAX);
            let looks = action.prefetches.iter();
            let looks = looks.map(|prefetch| (prefetch.indexed, argument(prefetch.argument)));
            self.look_ahead(0, looks);
        }
        (self.run(ctx, code), next)
    }

    /// Counts and meters a packet that no entry matched. (P4Runtime, section "Default Entry": it
    /// "is treated like a regular entry, including with regards to direct resources". BMv2 does
    /// neither; so that programs that never configure this meter do what they do there, the
    /// colour goes nowhere until then.)
    fn count_miss(table: &mut Table, ctx: &mut Context, now_ns: u64) {
        let direct = &mut table.default.direct;
        if table.counters {
            count(&mut direct.counter, ctx.ingress_length);
        }
        if let Some(m) = table.meter {
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

    /// Brings into the caches what will be asked for because of an action's arguments, given with
    /// what they index. Loads that wait for memory together take little longer than one; `with` is
    /// what one of them found that was begun before.
    #[inline]
    fn look_ahead(&self, with: u64, looks: impl Iterator<Item = (Indexed, u64)>) {
        let words = looks.map(|(indexed, index)| match indexed {
            Indexed::Rows(rows) => self.state.look_at(rows, index),
            Indexed::Table(table) => self.tables.get(table).map_or(0, |t| t.look_at(index)),
            Indexed::Queue => {
                let class = u32::try_from(index).unwrap_or(u32::MAX);
                self.externs.backlog_bytes(class)
            }
        });
        std::hint::black_box(words.fold(with, u64::wrapping_add));
    }

    /// Runs the parser over the context's frame; gives the parser error code.
    pub fn parse(&mut self, ctx: &mut Context, max_states: u32) -> u64 {
        let program = self.program;
        let mut state = program.start_state;
        let mut left = max_states;
        while let Some(current) = program.states.get(state as usize) {
            if left == 0 {
                return program.errors.parser_timeout;
            }
            left -= 1;
            if let Outcome::Error(code) = self.run(ctx, current.code) {
                return code;
            }
            state = current
                .cases
                .iter()
                .find(|case| match case.value_set {
                    None => case
                        .tests
                        .iter()
                        .all(|t| ctx.phv[t.slot as usize] & t.mask == t.value),
                    Some(place) => self.value_sets.contains(place, &ctx.phv),
                })
                .map_or(current.default, |case| case.next);
        }
        program.errors.none
    }

    /// Verifies checksums; true if one is wrong.
    pub fn verify(&mut self, ctx: &mut Context) -> bool {
        let program = self.program;
        let mut wrong = false;
        for checksum in &program.verify {
            if ctx.phv[checksum.valid as usize] == 0 || !self.condition(ctx, checksum.condition) {
                continue;
            }
            let value = ctx.compute(&program.calculations[checksum.calculation], &program.kinds);
            let (slot, n) = (checksum.target.slot, checksum.target.limbs());
            let above = slot as usize + 1..(slot + n) as usize;
            wrong |= value != get_field(&ctx.phv, checksum.target)
                || ctx.phv[above].iter().any(|&limb| limb != 0);
        }
        wrong
    }

    /// Updates checksums.
    pub fn update(&mut self, ctx: &mut Context) {
        let program = self.program;
        for checksum in &program.update {
            if self.condition(ctx, checksum.condition) {
                let value =
                    ctx.compute(&program.calculations[checksum.calculation], &program.kinds);
                ctx.unchanged.note(checksum.change);
                set_field(&mut ctx.phv, checksum.target, value);
            }
        }
    }

    fn condition(&mut self, ctx: &mut Context, condition: Option<(Code, Slot)>) -> bool {
        match condition {
            None => true,
            Some((code, slot)) => {
                self.run(ctx, code);
                ctx.phv[slot as usize] != 0
            }
        }
    }

    /// Writes valid headers in order before the payload. False if an assertion failed.
    pub fn deparse(&mut self, ctx: &mut Context) -> bool {
        let program = self.program;
        let outcome = self.run(ctx, program.deparser_code);
        if let Some(changed) = ctx.unchanged.changed_in_place(ctx.parsed) {
            self.rewrite(ctx, changed);
            return outcome != Outcome::Asserted;
        }
        let length = program
            .deparse_order
            .iter()
            .filter(|h| ctx.phv[h.base as usize] != 0)
            .map(|h| program.kinds[h.kind].length(&ctx.phv, h.base))
            .sum();
        let Some((mut out, words)) = ctx.prepend(length) else {
            return false;
        };
        for h in &program.deparse_order {
            if words[h.base as usize] != 0 {
                let io = &program.kinds[h.kind];
                let length = io.length(words, h.base);
                let Some((here, rest)) = out.split_at_mut_checked(length) else {
                    return false;
                };
                io.emit(words, h.base, here);
                out = rest;
            }
        }
        outcome != Outcome::Asserted
    }

    /// Writes those headers again that changed; all lie in the frame as they are to leave.
    fn rewrite(&self, ctx: &mut Context, changed: Changes) {
        let program = self.program;
        let unchanged = std::mem::take(&mut ctx.unchanged);
        let (frame, words) = ctx.output_in_place();
        if changed != 0 {
            for (position, h) in program.deparse_order.iter().enumerate() {
                if changed & h.change != 0 && words[h.base as usize] != 0 {
                    let at = unchanged.place(position);
                    if let Some(here) = frame.get_mut(at..) {
                        program.kinds[h.kind].emit(words, h.base, here);
                    }
                }
            }
        }
        debug_assert!(
            program
                .deparse_order
                .iter()
                .enumerate()
                .filter(|(_, h)| words[h.base as usize] != 0)
                .all(|(position, h)| {
                    let io = &program.kinds[h.kind];
                    let mut written = vec![0; io.length(words, h.base)];
                    io.emit(words, h.base, &mut written);
                    frame[unchanged.place(position)..].starts_with(&written)
                }),
            "a header in the frame is not the one to leave"
        );
        ctx.unchanged = unchanged;
    }

    /// The values of a header's fields, unchanged, and its validity: `to` becomes `from`.
    fn copy_header(w: &mut [u64], to: usize, from: usize, words: usize) {
        if w[from] == 0 {
            w[to] = 0;
        } else {
            w.copy_within(from..from + words, to);
        }
    }

    fn header(&self, words: &[u64], h: HeaderRef) -> Option<usize> {
        match h {
            HeaderRef::Fixed(base) => Some(base as usize),
            HeaderRef::Element(stack, index) => {
                let index = usize::try_from(words[index as usize]).ok()?;
                let bases = &self.program.stacks[stack as usize].bases;
                bases.get(index).map(|&base| base as usize)
            }
        }
    }

    /// Runs code from its start to its end.
    ///
    /// Most operations work on single words and nothing else: a small loop of its own, without
    /// the registers and the stack that the others need.
    #[inline]
    pub fn run(&mut self, ctx: &mut Context, code: Code) -> Outcome {
        if code.is_empty() {
            return Outcome::Done;
        }
        ctx.unchanged.note(code.changes);
        self.run_some(ctx, code)
    }

    fn run_some(&mut self, ctx: &mut Context, code: Code) -> Outcome {
        let program = self.program;
        // Jumps stay within the code.
        let ops = &program.ops[..code.end as usize];
        let mut pc = code.start;
        let mut iterations_left = MAX_LOOP_ITERATIONS;
        loop {
            let w = &mut ctx.phv[..];
            let other = loop {
                let Some(op) = ops.get(pc as usize) else {
                    return Outcome::Done;
                };
                pc += 1;
                macro_rules! two {
                    ($d:expr, $a:expr, $b:expr, $f:expr) => {
                        w[$d as usize] = $f(w[$a as usize], w[$b as usize])
                    };
                }
                match *op {
                    Op::Copy { d, a } => w[d as usize] = w[a as usize],
                    Op::CopyW { d, a, n: 2 } => {
                        let (a, d) = (a as usize, d as usize);
                        let (low, high) = (w[a], w[a + 1]);
                        (w[d], w[d + 1]) = (low, high);
                    }
                    Op::CopyW { d, a, n } => {
                        let a = a as usize;
                        w.copy_within(a..a + n as usize, d as usize);
                    }
                    Op::ExtendW {
                        d,
                        a,
                        from: 1,
                        n: 2,
                        signed: false,
                    } => {
                        let d = d as usize;
                        (w[d], w[d + 1]) = (w[a as usize], 0);
                    }
                    Op::Add { d, a, b } => two!(d, a, b, u64::wrapping_add),
                    Op::Sub { d, a, b } => two!(d, a, b, u64::wrapping_sub),
                    Op::Mul { d, a, b } => two!(d, a, b, u64::wrapping_mul),
                    Op::And { d, a, b } => two!(d, a, b, |x, y| x & y),
                    Op::Or { d, a, b } => two!(d, a, b, |x, y| x | y),
                    Op::Xor { d, a, b } => two!(d, a, b, |x, y| x ^ y),
                    Op::Not { d, a } => w[d as usize] = !w[a as usize],
                    Op::Shl { d, a, b } => {
                        two!(d, a, b, |x: u64, y| if y < 64 { x << y } else { 0 });
                    }
                    Op::Shr { d, a, b } => {
                        two!(d, a, b, |x: u64, y| if y < 64 { x >> y } else { 0 });
                    }
                    Op::Sar { d, a, b } => {
                        two!(d, a, b, |x: u64, y: u64| ((x as i64) >> y.min(63)) as u64);
                    }
                    Op::Div { d, a, b } => two!(d, a, b, |x: u64, y| x.checked_div(y).unwrap_or(0)),
                    Op::Rem { d, a, b } => two!(d, a, b, |x: u64, y| x.checked_rem(y).unwrap_or(0)),
                    Op::Sext { d, a, bits } => {
                        w[d as usize] = sext64(w[a as usize], u32::from(bits));
                    }
                    Op::Eq { d, a, b } => two!(d, a, b, |x, y| u64::from(x == y)),
                    Op::Ne { d, a, b } => two!(d, a, b, |x, y| u64::from(x != y)),
                    Op::Lt { d, a, b } => two!(d, a, b, |x, y| u64::from(x < y)),
                    Op::Le { d, a, b } => two!(d, a, b, |x, y| u64::from(x <= y)),
                    Op::LtS { d, a, b } => {
                        two!(d, a, b, |x, y| u64::from((x as i64) < y as i64));
                    }
                    Op::LeS { d, a, b } => {
                        two!(d, a, b, |x, y| u64::from(x as i64 <= y as i64));
                    }
                    Op::IsZero { d, a } => w[d as usize] = u64::from(w[a as usize] == 0),
                    Op::NonZero { d, a } => w[d as usize] = u64::from(w[a as usize] != 0),
                    Op::Select { d, c, a, b } => {
                        let from = if w[c as usize] != 0 { a } else { b };
                        w[d as usize] = w[from as usize];
                    }
                    Op::Jump { to } => pc = to,
                    Op::JumpIfZero { a, to } => {
                        if w[a as usize] == 0 {
                            pc = to;
                        }
                    }
                    _ => break op,
                }
            };
            if let Op::Extract { header } = *other {
                let h = &program.headers[header as usize];
                if !extract(ctx, program, h) {
                    return Outcome::Error(program.errors.packet_too_short);
                }
                continue;
            }
            if let Op::JumpBack { to } = *other {
                if iterations_left == 0 {
                    return Outcome::Asserted;
                }
                iterations_left -= 1;
                pc = to;
                continue;
            }
            let outcome = self.step(ctx, other, &mut pc);
            if outcome != Outcome::Done {
                return outcome;
            }
        }
    }

    /// Runs an operation that `run` has no quick way for. [`Outcome::Done`]: go on at `pc`.
    #[allow(clippy::too_many_lines)]
    #[inline(never)]
    fn step(&mut self, ctx: &mut Context, op: &Op, pc: &mut u32) -> Outcome {
        let program = self.program;
        let w = &mut ctx.phv;
        match *op {
            Op::AddW { d, a, b, n } => wide3(wide::add, w, d, a, b, n),
            Op::SubW { d, a, b, n } => wide3(wide::sub, w, d, a, b, n),
            Op::MulW { d, a, b, n } => wide3(wide::mul, w, d, a, b, n),
            Op::AndW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x & y),
            Op::OrW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x | y),
            Op::XorW { d, a, b, n } => bitwise(w, d, a, b, n, |x, y| x ^ y),
            Op::NotW { d, a, n } => bitwise(w, d, a, a, n, |x, _| !x),
            Op::ShlW { d, a, b, n } => {
                let amount = w[b as usize];
                wide::shl(w, d as usize, a as usize, amount, n as usize);
            }
            Op::ShrW { d, a, b, n, signed } => {
                let amount = w[b as usize];
                wide::shr(w, d as usize, a as usize, amount, n as usize, signed);
            }
            Op::DivW {
                d,
                a,
                b,
                n,
                signed,
                rest,
            } => wide::divide(
                w, d as usize, a as usize, b as usize, n as usize, signed, rest,
            ),
            Op::ExtendW {
                d,
                a,
                from,
                n,
                signed,
            } => wide::extend(w, d as usize, a as usize, from as usize, n as usize, signed),
            Op::MaskW { d, n, bits } => {
                wide::mask(w, d as usize, n as usize, u32::from(bits));
            }
            Op::SextW { d, n, bits } => {
                wide::sext(w, d as usize, n as usize, u32::from(bits));
            }
            Op::ClampW {
                d,
                n,
                bits,
                signed,
                to_signed,
            } => {
                let f = if to_signed {
                    wide::clamp_signed
                } else {
                    wide::clamp_unsigned
                };
                f(w, d as usize, n as usize, u32::from(bits), signed);
            }
            Op::EqW { d, a, b, n } => {
                w[d as usize] = u64::from(wide::eq(w, a as usize, b as usize, n as usize));
            }
            Op::LtW { d, a, b, n, signed } => {
                let less = wide::lt(w, a as usize, b as usize, n as usize, signed);
                w[d as usize] = u64::from(less);
            }
            Op::NonZeroW { d, a, n } => {
                w[d as usize] = u64::from(!wide::is_zero(w, a as usize, n as usize));
            }
            Op::SelectW { d, c, a, b, n } => {
                let from = if w[c as usize] != 0 { a } else { b } as usize;
                w.copy_within(from..from + n as usize, d as usize);
            }
            Op::Saturate { d, a, n } => {
                let fits = wide::is_zero(w, a as usize + 1, n as usize - 1);
                w[d as usize] = if fits { w[a as usize] } else { u64::MAX };
            }

            Op::LoadElement {
                d,
                stack,
                index,
                offset,
                n,
            } => {
                let (d, n) = (d as usize, n as usize);
                match self.header(w, HeaderRef::Element(stack, index)) {
                    Some(base) => {
                        let from = base + offset as usize;
                        w.copy_within(from..from + n, d);
                    }
                    None => w[d..d + n].fill(0),
                }
            }
            Op::StoreElement {
                a,
                stack,
                index,
                offset,
                n,
            } => {
                if let Some(base) = self.header(w, HeaderRef::Element(stack, index)) {
                    let a = a as usize;
                    w.copy_within(a..a + n as usize, base + offset as usize);
                }
            }
            Op::LastIndex { d, stack } => {
                let next = program.stacks[stack as usize].next;
                w[d as usize] = w[next as usize].wrapping_sub(1);
            }
            Op::SetValid { h, words, kind } => {
                if let Some(base) = self.header(w, h)
                    && w[base] == 0
                {
                    let io = &program.kinds[kind as usize];
                    let length = io.length(w, base as u32);
                    // BMv2 zeroes a header that becomes valid; a variable field keeps the
                    // length it had.
                    io.clear(&mut w[base..base + words as usize]);
                    w[base] = 1;
                    ctx.unchanged.note(RESHAPED);
                    ctx.packet_length = ctx.packet_length.wrapping_add(length as u64);
                }
            }
            Op::SetInvalid { h, kind } => {
                if let Some(base) = self.header(w, h)
                    && w[base] != 0
                {
                    w[base] = 0;
                    ctx.unchanged.note(RESHAPED);
                    let length = program.kinds[kind as usize].length(w, base as u32);
                    ctx.packet_length = ctx.packet_length.wrapping_sub(length as u64);
                }
            }
            Op::Claim { union, base } => {
                let changes = claim(program, w, union, base);
                ctx.unchanged.note(changes);
            }
            Op::ClaimElement { stack, index } => {
                let s = &program.stacks[stack as usize];
                let index = word_to_usize(w[index as usize]);
                let changes = claim_element(program, w, s, index);
                ctx.unchanged.note(changes);
            }
            Op::CopyHeader { d, a, words } => {
                ctx.unchanged.note(RESHAPED);
                if let (Some(d), Some(a)) = (self.header(w, d), self.header(w, a)) {
                    Self::copy_header(w, d, a, words as usize);
                }
            }
            Op::EqHeader { d, a, b, words } => {
                let equal = match (self.header(w, a), self.header(w, b)) {
                    (Some(a), Some(b)) => {
                        let n = words as usize;
                        w[a] != 0 && w[a..a + n] == w[b..b + n]
                    }
                    _ => false,
                };
                w[d as usize] = u64::from(equal);
            }
            Op::CopyStack { d, a, words } => {
                ctx.unchanged.note(RESHAPED);
                let (to, from) = (&program.stacks[d as usize], &program.stacks[a as usize]);
                w[to.next as usize] = w[from.next as usize];
                for (&d, &a) in to.bases.iter().zip(&from.bases) {
                    Self::copy_header(w, d as usize, a as usize, words as usize);
                }
            }
            Op::Push {
                stack,
                count,
                words,
                first,
            } => {
                ctx.unchanged.note(RESHAPED);
                let s = &program.stacks[stack as usize];
                let size = s.bases.len();
                let count = word_to_usize(w[count as usize]).min(size);
                if first {
                    w[s.next as usize] = (w[s.next as usize] + count as u64).min(size as u64);
                }
                // BMv2 swaps the elements in this order; those pushed are invalid, but of
                // unions, where what came round stays.
                if count > 0 {
                    for i in (count..size).rev() {
                        swap(w, s.bases[i], s.bases[i - count], words);
                    }
                }
                if s.siblings.is_empty() {
                    for &base in &s.bases[..count] {
                        w[base as usize] = 0;
                    }
                }
            }
            Op::Pop {
                stack,
                count,
                words,
                first,
            } => {
                ctx.unchanged.note(RESHAPED);
                let s = &program.stacks[stack as usize];
                let size = s.bases.len();
                let count = word_to_usize(w[count as usize]).min(size);
                if first {
                    w[s.next as usize] = w[s.next as usize].saturating_sub(count as u64);
                }
                if count > 0 {
                    for i in 0..size - count {
                        swap(w, s.bases[i], s.bases[i + count], words);
                    }
                }
                if s.siblings.is_empty() {
                    for &base in &s.bases[size - count..] {
                        w[base as usize] = 0;
                    }
                }
            }

            Op::Exit => return Outcome::Exit,
            Op::Assert { a } if w[a as usize] == 0 => return Outcome::Asserted,

            Op::RegisterRead {
                d,
                array,
                index,
                skip,
            } => {
                let index = word_to_usize(w[index as usize]);
                match self.state.register(array as usize, index) {
                    // v1model: out of range leaves the result unspecified; BMv2 leaves it
                    // as it was.
                    None => *pc += u32::from(skip),
                    Some(&[cell]) => w[d as usize] = cell,
                    Some(cell) => w[d as usize..d as usize + cell.len()].copy_from_slice(cell),
                }
            }
            Op::RegisterWrite { array, index, a } => {
                let index = word_to_usize(w[index as usize]);
                if let Some(cell) = self.state.register_mut(array as usize, index) {
                    let a = a as usize;
                    cell.copy_from_slice(&w[a..a + cell.len()]);
                }
            }
            Op::Count { array, index } => {
                let index = word_to_usize(w[index as usize]);
                if let Some(cell) = self.state.counter_mut(array as usize, index) {
                    count(cell, ctx.ingress_length);
                }
            }
            Op::Meter {
                d,
                mask,
                array,
                index,
                skip,
            } => {
                let m = &mut self.state.meters[array as usize];
                let index = word_to_usize(w[index as usize]);
                if index < m.len() {
                    let packet = Metered {
                        bytes: ctx.ingress_length,
                        now_ns: self.now_ns,
                    };
                    let colour = m.run(index, packet);
                    w[d as usize] = colour & u64::from(mask);
                } else {
                    *pc += u32::from(skip);
                }
            }
            Op::Hash {
                d,
                base,
                size,
                calculation,
            } => {
                let calculation = &program.calculations[calculation as usize];
                let hash = ctx.compute(calculation, &program.kinds);
                let w = &mut ctx.phv;
                // v1model: a size of 0 gives the base.
                let size = w[size as usize].max(1);
                w[d as usize] = w[base as usize].wrapping_add(hash % size);
            }
            Op::Random { d, low, high, skip } => {
                let (low, high) = (w[low as usize], w[high as usize]);
                if low <= high {
                    w[d as usize] = self.state.random_between(low, high);
                } else {
                    *pc += u32::from(skip);
                }
            }
            Op::MarkToDrop => {
                let i = &program.intrinsics;
                set_field(w, i.egress_spec, u64::from(self.drop_port));
                if let Some(f) = i.mcast_grp {
                    set_field(w, f, 0);
                }
            }
            Op::MarkCopyToDrop {
                egress_spec,
                mcast_grp,
            } => {
                let bits = program.intrinsics.egress_spec.bits;
                w[egress_spec as usize] = u64::from(self.drop_port) & mask64(bits);
                w[mcast_grp as usize] = 0;
            }
            Op::Truncate { a } => ctx.truncate = ctx.truncate.min(w[a as usize]),
            Op::Clone { session, list } => {
                ctx.clone = Some(CloneRequest {
                    session: (w[session as usize] & CLONE_SESSION_MASK) as u16,
                    field_list: w[list as usize] as u16,
                });
            }
            Op::Digest { list } => {
                ctx.digest = Some(w[list as usize] as u16).filter(|&id| id != 0);
            }
            Op::Log { message } if self.externs.logs() => {
                let text = &mut self.state.message;
                program.messages[message as usize].write(w, text);
                self.externs.log(text);
            }
            // simple_switch takes list 0 as "no request".
            Op::Resubmit { list } => {
                ctx.resubmit = Some(w[list as usize] as u16).filter(|&id| id != 0);
            }
            Op::Recirculate { list } => {
                ctx.recirculate = Some(w[list as usize] as u16).filter(|&id| id != 0);
            }
            Op::Now { d } => w[d as usize] = self.now_ns,
            Op::Backlog { d, class } => {
                let class = u32::try_from(w[class as usize]).unwrap_or(u32::MAX);
                w[d as usize] = self.externs.backlog_bytes(class);
            }
            Op::Hold { args } => {
                let args = args as usize;
                ctx.hold = Some(Hold {
                    class: w[args] as u32,
                    departure_ns: w[args + 1],
                    cost_q24: w[args + 2],
                    allowance_ns: w[args + 3],
                });
            }

            Op::ExtractNext { stack } => {
                if let Some(error) = extract_next(ctx, program, stack, None) {
                    return Outcome::Error(error);
                }
            }
            Op::ExtractVariable { header, bits } => {
                let h = &program.headers[header as usize];
                let bits = w[bits as usize];
                if let Some(error) = extract_variable(ctx, program, h, bits) {
                    return Outcome::Error(error);
                }
            }
            Op::ExtractNextVariable { stack, bits } => {
                let bits = w[bits as usize];
                if let Some(error) = extract_next(ctx, program, stack, Some(bits)) {
                    return Outcome::Error(error);
                }
            }
            Op::Advance { a } => {
                let bits = w[a as usize];
                if !bits.is_multiple_of(8) {
                    return Outcome::Error(program.errors.parser_invalid_argument);
                }
                let left = ctx.frame_len().saturating_sub(ctx.parsed);
                match usize::try_from(bits / 8) {
                    Ok(bytes) if bytes <= left => ctx.parsed += bytes,
                    _ => return Outcome::Error(program.errors.packet_too_short),
                }
            }
            Op::Lookahead { d, skip_bits, bits } => {
                let (data, words) = ctx.unparsed();
                let end = skip_bits as usize + usize::from(bits);
                if data.len() * 8 < end {
                    return Outcome::Error(program.errors.packet_too_short);
                }
                read_bits(data, skip_bits as usize, u32::from(bits), words, d as usize);
            }
            Op::Verify { a, error } if w[a as usize] == 0 => {
                return Outcome::Error(w[error as usize]);
            }
            Op::NeedLast { stack } if w[program.stacks[stack as usize].next as usize] == 0 => {
                return Outcome::Error(program.errors.stack_out_of_bounds);
            }
            // Those of `run`, checks that hold, and messages that nobody reads.
            _ => {}
        }
        Outcome::Done
    }
}

/// Extracts a header at the parser's position; false if the frame is too short.
#[inline]
fn extract(ctx: &mut Context, program: &Program, h: &HeaderInfo) -> bool {
    let io = &program.kinds[h.kind];
    let (data, words) = ctx.unparsed();
    if data.len() < io.bytes {
        return false;
    }
    io.extract(data, words, h.base);
    words[h.base as usize] = 1;
    ctx.unchanged.found(h.position, ctx.parsed, io.bytes);
    ctx.parsed += io.bytes;
    true
}

/// Extracts a header with a variable field of `bits` bits; gives the parser error if there is
/// one, in BMv2's order of tests.
fn extract_variable(
    ctx: &mut Context,
    program: &Program,
    h: &HeaderInfo,
    bits: u64,
) -> Option<u64> {
    let errors = &program.errors;
    // What BMv2 reads as an int is at most 2^31 - 1, which is no number of bytes.
    if bits > i32::MAX as u64 || !bits.is_multiple_of(8) {
        return Some(errors.parser_invalid_argument);
    }
    let io = &program.kinds[h.kind];
    let (data, words) = ctx.unparsed();
    let length = word_to_usize(bits / 8).saturating_add(io.bytes);
    if data.len() < length {
        return Some(errors.packet_too_short);
    }
    if length > io.max_bytes() {
        return Some(errors.header_too_short);
    }
    io.extract_variable(data, words, h.base, bits as u32);
    words[h.base as usize] = 1;
    ctx.unchanged.found(h.position, ctx.parsed, length);
    ctx.parsed += length;
    None
}

/// Extracts the next element of a stack; gives the parser error if there is one.
fn extract_next(
    ctx: &mut Context,
    program: &Program,
    stack: u16,
    bits: Option<u64>,
) -> Option<u64> {
    let s = &program.stacks[stack as usize];
    let next = word_to_usize(ctx.phv[s.next as usize]);
    let Some(&element) = s.elements.get(next) else {
        return Some(program.errors.stack_out_of_bounds);
    };
    let h = &program.headers[element as usize];
    match bits {
        None if !extract(ctx, program, h) => {
            return Some(program.errors.packet_too_short);
        }
        None => {}
        Some(bits) => {
            let error = extract_variable(ctx, program, h, bits);
            if error.is_some() {
                return error;
            }
        }
    }
    let changes = claim_element(program, &mut ctx.phv, s, next);
    ctx.unchanged.note(changes);
    ctx.phv[s.next as usize] += 1;
    None
}

/// If the member at `base` is valid, no other member of the union is.
fn claim(program: &Program, w: &mut [u64], union: u16, base: Slot) -> Changes {
    let mut gone = false;
    if w[base as usize] != 0 {
        for &other in &program.unions[union as usize] {
            if other != base {
                gone |= std::mem::take(&mut w[other as usize]) != 0;
            }
        }
    }
    if gone { RESHAPED } else { 0 }
}

/// The same for element `index` of a stack of members of unions; nothing for other stacks.
fn claim_element(program: &Program, w: &mut [u64], stack: &StackInfo, index: usize) -> Changes {
    let mut gone = false;
    let Some(&base) = stack.bases.get(index) else {
        return 0;
    };
    if w[base as usize] == 0 {
        return 0;
    }
    for &sibling in &stack.siblings {
        if let Some(&other) = program.stacks[sibling as usize].bases.get(index)
            && other != base
        {
            gone |= std::mem::take(&mut w[other as usize]) != 0;
        }
    }
    if gone { RESHAPED } else { 0 }
}

/// Swaps two headers.
fn swap(w: &mut [u64], a: Slot, b: Slot, words: u16) {
    for i in 0..words as usize {
        w.swap(a as usize + i, b as usize + i);
    }
}

/// The action of an entry that names a member, a group or a one-shot set: the table's number of
/// it and its arguments; `None` for an empty group.
fn choose<'t>(
    program: &Program,
    profiles: &'t [Profile],
    table: &'t Table,
    target: &'t Target,
    ctx: &mut Context,
) -> Option<(usize, &'t [u64])> {
    let profile = profiles.get(table.profile?)?;
    let mut pick = |from: &[u32]| -> Option<u32> {
        let size = u32::try_from(from.len()).ok().filter(|&n| n > 0)?;
        let calculation = program.calculations.get(profile.calculation?)?;
        let hash = ctx.compute(calculation, &program.kinds);
        // BMv2 keeps 32 bits of the hash.
        from.get((hash as u32 % size) as usize).copied()
    };
    let member = match target {
        Target::Call(call) => return Some((call.local(), call.args())),
        Target::OneShot(set) => {
            let call = set.calls.get(pick(&set.spread)? as usize)?;
            return Some((call.local(), call.args()));
        }
        Target::Member(at) => profile.member(*at)?,
        Target::Group(at) => profile.member(pick(profile.group(*at))?)?,
    };
    Some((table.local(member.action)?, &member.args))
}

fn word_to_usize(word: u64) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

type Wide3 = fn(&mut [u64], usize, usize, usize, usize);

fn wide3(f: Wide3, w: &mut [u64], d: Slot, a: Slot, b: Slot, n: u16) {
    f(w, d as usize, a as usize, b as usize, n as usize);
}

fn bitwise(w: &mut [u64], d: Slot, a: Slot, b: Slot, n: u16, f: impl Fn(u64, u64) -> u64) {
    for i in 0..n as usize {
        w[d as usize + i] = f(w[a as usize + i], w[b as usize + i]);
    }
}
