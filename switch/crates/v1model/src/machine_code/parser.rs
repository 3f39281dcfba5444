//! The parser as a function: its states, and the checksums to verify.

use super::emitter::{Emitter, Exits, Known, callback};
use super::untranslated::{Result, Untranslated};
use crate::context::Context;
use crate::ops::Op;
use crate::program::{Case, Program, State};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, types};
use cranelift_frontend::Variable;
use std::collections::HashMap;
use std::mem::offset_of;

/// The states while they are written.
struct States<'e, 'a, 'f> {
    emitter: &'e mut Emitter<'a, 'f>,
    /// Blocks of states.
    blocks: HashMap<u32, Block>,
    /// How many ways lead to each state.
    before: Vec<usize>,
    /// States that are still to be written, with their blocks and what is known there.
    open: Vec<(u32, Block, Known)>,
    /// The states that a packet may still pass through, if they must be counted.
    left: Option<Variable>,
    /// The parser's end, which takes the parser error.
    finished: Block,
    exits: Exits,
}

impl Emitter<'_, '_> {
    /// Writes the parser and the checksums to verify.
    pub fn parser(&mut self) -> Result<()> {
        let program = self.source.program;
        self.enter_parser()?;
        let finished = self.b.create_block();
        let error = self.b.append_block_param(finished, types::I64);
        self.states(finished)?;
        self.begin(finished);
        self.set_context(offset_of!(Context, parser_error), error);
        let wrong = self.verify(&program.verify)?;
        self.set_context(offset_of!(Context, checksum_error), wrong);
        let i = &program.intrinsics;
        self.tell(i.parser_error, error)?;
        let wrong = self.b.ins().uextend(types::I64, wrong);
        self.tell(i.checksum_error, wrong)?;
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
        Ok(())
    }

    /// Writes the states; they lead to `finished` with the parser error.
    fn states(&mut self, finished: Block) -> Result<()> {
        let program = self.source.program;
        let mut exits = self.exits(finished, Some(program.errors.none));
        // It takes the error's code, too.
        exits.error = finished;
        let states = States {
            blocks: HashMap::new(),
            before: ways(program),
            open: Vec::new(),
            left: self.state_limit(),
            finished,
            exits,
            emitter: self,
        };
        states.write()
    }

    /// The states that a packet may still pass through, if they must be counted.
    fn state_limit(&mut self) -> Option<Variable> {
        let program = self.source.program;
        let most = self.source.max_parser_states;
        if ends_soon(program, most) {
            return None;
        }
        let left = self.b.declare_var(types::I32);
        let most = self.b.ins().iconst(types::I32, i64::from(most));
        self.b.def_var(left, most);
        Some(left)
    }

    fn count_state(&mut self, left: Variable, finished: Block) {
        let now = self.b.use_var(left);
        let next = self.b.create_block();
        let timeout = self.number(self.source.program.errors.parser_timeout);
        let ins = self.b.ins();
        ins.brif(now, next, &[], finished, &[timeout.into()]);
        self.go_on(next);
        let now = self.b.ins().iadd_imm(now, -1);
        self.b.def_var(left, now);
    }

    /// Goes on where a case matches, and to `other` where it does not.
    fn case(&mut self, case: &Case, other: Block) -> Result<()> {
        if let Some(place) = case.value_set {
            let contains = self.ask(callback!(value_set), place.into());
            let yes = self.b.create_block();
            self.branch(contains, yes, other);
            self.go_on(yes);
            return Ok(());
        }
        // Before the first branch, so that they are known at `other`.
        for test in &case.tests {
            self.word(test.slot)?;
        }
        for test in &case.tests {
            let mut word = self.word(test.slot)?;
            if test.mask == 0 && test.value == 0 {
                continue;
            }
            if test.mask != u64::MAX {
                word = self.b.ins().band_imm(word, test.mask.cast_signed());
            }
            let equal = self.compare(IntCC::Equal, word, test.value);
            let yes = self.b.create_block();
            self.branch(equal, yes, other);
            self.go_on(yes);
        }
        Ok(())
    }
}

impl States<'_, '_, '_> {
    /// Writes the states that are reached from the first one.
    fn write(mut self) -> Result<()> {
        let program = self.emitter.source.program;
        self.go_to(program.start_state);
        while let Some((state, block, known)) = self.open.pop() {
            let state = program.states.get(state as usize);
            let state = state.ok_or_else(|| Untranslated::missing("a state"))?;
            self.emitter.begin_with(block, known);
            self.state(state)?;
        }
        Ok(())
    }

    /// Writes a state.
    fn state(&mut self, state: &State) -> Result<()> {
        let emitter = &mut *self.emitter;
        if let Some(left) = self.left {
            emitter.count_state(left, self.finished);
        }
        // `exit` ends the code of the state, not the parser.
        let select = emitter.b.create_block();
        let exits = Exits {
            exit: select,
            ..self.exits
        };
        emitter.code(state.code, exits)?;
        let known = emitter.known();
        emitter.jump(select);
        let ops = &emitter.source.program.ops;
        let may_exit = ops[state.code.start as usize..state.code.end as usize]
            .iter()
            .any(|op| matches!(op, Op::Exit));
        if may_exit || state.code.is_empty() {
            emitter.begin(select);
        } else {
            emitter.begin_with(select, known);
        }
        self.transition(state)
    }

    /// Jumps to a state, which will be written, or to the parser's end.
    fn go_to(&mut self, state: u32) {
        let program = self.emitter.source.program;
        if program.states.get(state as usize).is_none() {
            let none = self.emitter.number(program.errors.none);
            self.emitter.b.ins().jump(self.finished, &[none.into()]);
            return;
        }
        let block = match self.blocks.get(&state) {
            Some(&block) => block,
            None => {
                let block = self.emitter.b.create_block();
                self.blocks.insert(state, block);
                let alone = self.before.get(state as usize) == Some(&1);
                let known = if alone {
                    self.emitter.known()
                } else {
                    Known::default()
                };
                self.open.push((state, block, known));
                block
            }
        };
        self.emitter.jump(block);
    }

    /// Writes the select of a state.
    fn transition(&mut self, state: &State) -> Result<()> {
        for case in &state.cases {
            let next = self.emitter.b.create_block();
            self.emitter.case(case, next)?;
            self.go_to(case.next);
            self.emitter.go_on(next);
        }
        self.go_to(state.default);
        Ok(())
    }
}

/// How many ways lead to each state, the parser's beginning among them.
fn ways(program: &Program) -> Vec<usize> {
    let mut before = vec![0; program.states.len()];
    let nexts = program.states.iter().flat_map(|state| {
        let cases = state.cases.iter().map(|case| case.next);
        cases.chain([state.default])
    });
    for next in nexts.chain([program.start_state]) {
        if let Some(before) = before.get_mut(next as usize) {
            *before += 1;
        }
    }
    before
}

/// Whether every packet passes through at most `most` states: the states have no loop, and are no more.
fn ends_soon(program: &Program, most: u32) -> bool {
    let states = &program.states;
    if u32::try_from(states.len()).is_ok_and(|states| states > most) {
        return false;
    }
    // A state whose successors all end ends. Without loops, the last state is found in as many turns.
    let mut ends = vec![false; states.len()];
    for _ in 0..states.len() {
        let mut changed = false;
        for (at, state) in states.iter().enumerate() {
            let nexts = state.cases.iter().map(|case| case.next);
            let mut nexts = nexts.chain([state.default]);
            let all = nexts.all(|next| ends.get(next as usize).copied().unwrap_or(true));
            changed |= all && !ends[at];
            ends[at] |= all;
        }
        if !changed {
            break;
        }
    }
    ends.into_iter().all(|ends| ends)
}
