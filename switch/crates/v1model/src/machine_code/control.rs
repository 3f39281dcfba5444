//! A control as a function: its graph, and its tables.

use super::emitter::{Emitter, Exits, Known, callback};
use super::env::Env;
use super::untranslated::{Result, Untranslated};
use crate::program::{Comparison, Node, Relation};
use crate::table::{Table, TableAction};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, JumpTableData, MemFlags, Value, types};
use std::collections::HashMap;
use std::mem::offset_of;

/// The graph while it is written.
struct Graph<'e, 'a, 'f> {
    emitter: &'e mut Emitter<'a, 'f>,
    /// Blocks of nodes.
    blocks: HashMap<u32, Block>,
    /// Nodes that lead to a node.
    before: HashMap<u32, usize>,
    /// Nodes that are still to be written, with what is known there.
    open: Vec<(u32, Known)>,
    /// Where the control ends.
    end: Block,
    exits: Exits,
}

impl Emitter<'_, '_> {
    /// Writes a control that begins with `node`.
    pub fn control(&mut self, node: u32) -> Result<()> {
        let end = self.b.create_block();
        let exits = self.exits(end, None);
        let graph = Graph {
            blocks: HashMap::new(),
            before: self.edges(node),
            open: Vec::new(),
            end,
            exits,
            emitter: self,
        };
        graph.write(node)?;
        self.begin(end);
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
        Ok(())
    }

    /// How many nodes lead to each node that is reached from `first`.
    fn edges(&self, first: u32) -> HashMap<u32, usize> {
        let mut before = HashMap::from([(first, 1)]);
        let mut open = vec![first];
        while let Some(at) = open.pop() {
            let Some(node) = self.source.program.nodes.get(at as usize) else {
                continue;
            };
            for next in self.nexts(node) {
                let count = before.entry(next).or_insert(0);
                *count += 1;
                if *count == 1 {
                    open.push(next);
                }
            }
        }
        before
    }

    /// The next nodes of a node, each as often as it leads there.
    fn nexts(&self, node: &Node) -> Vec<u32> {
        match *node {
            Node::Table(table) => match self.source.tables.get(table as usize) {
                Some(table) => {
                    let actions = table.spec.actions.iter().map(Some);
                    let ends = actions.chain([None]);
                    let each = |action| [true, false].map(|hit| table.spec.next(action, hit));
                    ends.flat_map(each).collect()
                }
                None => Vec::new(),
            },
            Node::Action { next, .. } => vec![next],
            Node::Branch { yes, no, .. }
            | Node::IfEqual { yes, no, .. }
            | Node::If { yes, no, .. }
            | Node::IfBoth { yes, no, .. } => vec![yes, no],
        }
    }

    fn comparison(&mut self, test: Comparison) -> Result<Value> {
        let relation = match test.relation {
            Relation::Eq => IntCC::Equal,
            Relation::Ne => IntCC::NotEqual,
            Relation::Lt => IntCC::UnsignedLessThan,
            Relation::Le => IntCC::UnsignedLessThanOrEqual,
            Relation::LtS => IntCC::SignedLessThan,
            Relation::LeS => IntCC::SignedLessThanOrEqual,
        };
        let (a, b) = (self.word(test.a)?, self.word(test.b)?);
        Ok(self.b.ins().icmp(relation, a, b))
    }

    /// Writes the table's packed key.
    fn key(&mut self, table: &Table) -> Result<()> {
        let mut words: Vec<Option<Value>> = vec![None; table.spec.key_words];
        for from in table.key_words() {
            let mut value = self.word(from.slot)?;
            if from.mask != u64::MAX {
                value = self.b.ins().band_imm(value, from.mask.cast_signed());
            }
            if let Some(validity) = from.validity {
                let valid = self.word(validity)?;
                let all_or_none = self.b.ins().ineg(valid);
                value = self.b.ins().band(value, all_or_none);
            }
            let value = self.shifted(value, from.shift);
            let word = words.get_mut(from.word as usize);
            let word = word.ok_or_else(|| Untranslated::missing("a word of a key"))?;
            *word = Some(match *word {
                None => value,
                Some(other) => self.b.ins().bor(other, value),
            });
        }
        if words.is_empty() {
            return Ok(());
        }
        let key = self.env_word(offset_of!(Env, key));
        for (at, word) in (0..).zip(words) {
            let word = word.unwrap_or_else(|| self.number(0));
            self.b.ins().store(MemFlags::trusted(), word, key, 8 * at);
        }
        Ok(())
    }
}

impl Graph<'_, '_, '_> {
    /// Writes the nodes that are reached from `first`.
    fn write(mut self, first: u32) -> Result<()> {
        let block = self.node_block(first);
        self.emitter.jump(block);
        while let Some((node, known)) = self.open.pop() {
            if let Some(&block) = self.blocks.get(&node) {
                self.emitter.begin_with(block, known);
                self.node(node)?;
            }
        }
        Ok(())
    }

    /// The block of a node, which will be written; the control's end if there is none.
    fn node_block(&mut self, node: u32) -> Block {
        if self
            .emitter
            .source
            .program
            .nodes
            .get(node as usize)
            .is_none()
        {
            return self.end;
        }
        if let Some(&block) = self.blocks.get(&node) {
            return block;
        }
        let block = self.emitter.b.create_block();
        self.blocks.insert(node, block);
        let alone = self.before.get(&node) == Some(&1);
        let known = if alone {
            self.emitter.known()
        } else {
            Known::default()
        };
        self.open.push((node, known));
        block
    }

    /// Jumps to a node.
    fn go_to(&mut self, node: u32) {
        let block = self.node_block(node);
        self.emitter.jump(block);
    }

    /// Jumps to one of two nodes.
    fn fork(&mut self, truth: Value, yes: u32, no: u32) {
        let (yes, no) = (self.node_block(yes), self.node_block(no));
        self.emitter.branch(truth, yes, no);
    }

    /// Writes a node.
    fn node(&mut self, node: u32) -> Result<()> {
        let node = self.emitter.source.program.nodes.get(node as usize);
        let node = *node.ok_or_else(|| Untranslated::missing("a node"))?;
        match node {
            Node::Table(index) => self.table(index)?,
            Node::Action { code, next } => {
                self.emitter.code(code, self.exits)?;
                self.go_to(next);
            }
            Node::Branch {
                code,
                slot,
                yes,
                no,
            } => {
                self.emitter.code(code, self.exits)?;
                let truth = self.emitter.truth(slot)?;
                self.fork(truth, yes, no);
            }
            Node::IfEqual { a, b, yes, no } => {
                let test = Comparison {
                    relation: Relation::Eq,
                    a,
                    b,
                };
                let holds = self.emitter.comparison(test)?;
                self.fork(holds, yes, no);
            }
            Node::If { test, yes, no } => {
                let holds = self.emitter.comparison(test)?;
                self.fork(holds, yes, no);
            }
            Node::IfBoth { tests, yes, no } => {
                let [first, second] = tests;
                let first = self.emitter.comparison(first)?;
                let second = self.emitter.comparison(second)?;
                let both = self.emitter.b.ins().band(first, second);
                self.fork(both, yes, no);
            }
        }
        Ok(())
    }

    /// Writes the application of a table: its key, the look-up, and each action that it may run.
    fn table(&mut self, index: u32) -> Result<()> {
        let table = self.emitter.source.tables.get(index as usize);
        let table = table.ok_or_else(|| Untranslated::missing("a table"))?;
        self.emitter.key(table)?;
        let answer = self.emitter.call(callback!(apply), index.into());
        let hit = self.emitter.b.ins().band_imm(answer, 1);
        let choice = self.emitter.b.ins().ushr_imm(answer, 1);
        let choice = self.emitter.b.ins().ireduce(types::I32, choice);
        let actions = table.spec.actions.iter().map(Some);
        let choices: Vec<Option<&TableAction>> = actions.chain([None]).collect();
        let blocks: Vec<Block> = choices
            .iter()
            .map(|_| self.emitter.b.create_block())
            .collect();
        let mut call = |block| self.emitter.b.func.dfg.block_call(block, &[]);
        let arms: Vec<_> = blocks.iter().map(|&block| call(block)).collect();
        let data = JumpTableData::new(call(self.exits.fault), &arms);
        let arms = self.emitter.b.create_jump_table(data);
        self.emitter.b.ins().br_table(choice, arms);
        for (choice, block) in choices.into_iter().zip(blocks) {
            self.emitter.begin(block);
            if let Some(action) = choice {
                self.emitter.code(action.code, self.exits)?;
            }
            let [yes, no] = [true, false].map(|hit| table.spec.next(choice, hit));
            if yes == no {
                self.go_to(yes);
            } else {
                self.fork(hit, yes, no);
            }
        }
        Ok(())
    }
}
