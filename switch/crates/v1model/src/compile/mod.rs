//! From the typed JSON to a compiled program: resolves every name and id once.
//!
//! `objects` declares the objects of primitives; `action`, `parser`, `control` (with `table`),
//! `checksums` and `deparser` each compile one part of the program, `primitives` the statements
//! in them.

mod action;
mod calculations;
mod checksums;
mod condition;
mod control;
mod deparser;
mod digest;
mod entry;
mod extern_type;
mod field_list;
mod intrinsics;
mod objects;
mod parser;
pub(crate) mod prefetch_plan;
mod primitives;
mod select;
mod table;

use crate::api::LoadOptions;
use crate::entries::digest::DigestInfo;
use crate::error::{At, LoadResult};
use crate::expr::{Compiler, MAX_TEMP_WORDS};
use crate::header_io::HeaderIo;
use crate::json_ids::JsonIds;
use crate::layout::{Layout, Stack};
use crate::model::Root;
use crate::profile::Profile;
use crate::program::{DigestFields, ErrorCodes, FieldList, Intrinsics, Program, StackInfo};
use crate::state::State;
use crate::table::Table;
use crate::trace::{HeaderLabel, Labels};
use action::Actions;
use checksums::Checksums;
use control::Controls;
use deparser::Deparser;
use objects::Objects;
use parser::Parser;

/// Everything that a running program consists of.
pub(crate) struct Compiled {
    pub program: Program,
    pub tables: Vec<Table>,
    pub profiles: Vec<Profile>,
    pub state: State,
}

/// Compiles a program: once to learn how many temporaries it needs, and again with just as
/// many, which keeps the packets' contexts small.
pub(crate) fn compile(root: &Root, options: &LoadOptions) -> LoadResult<Compiled> {
    let (_, temp_words) = compile_with(root, options, MAX_TEMP_WORDS)?;
    compile_with(root, options, temp_words).map(|(compiled, _)| compiled)
}

/// Compiles a program with room for `temp_words` words of temporaries; returns how many it needs.
fn compile_with(
    root: &Root,
    options: &LoadOptions,
    temp_words: u32,
) -> LoadResult<(Compiled, u32)> {
    let layout = Layout::build(root)?;
    let mut objects = Objects::declare(root, &layout, options)?;
    let mut intrinsics = intrinsics::intrinsics(&layout)?;
    let mut c = Compiler::new(&layout, action::param_words(root)?, temp_words);
    for (index, register) in (0..).zip(&objects.registers) {
        let place = (index, register.bits);
        c.registers.insert(register.name.clone(), place);
    }

    let actions = Actions::compile(&mut c, &objects, root)?;
    let parser = parser::parser(&mut c, &objects, root).at(|| "parser 'parser'")?;
    let mut controls = control::controls(&mut c, root, actions, &mut objects)?;
    let checksums = Checksums::compile(&mut c, root, &objects)?;
    let lists = field_list::field_lists(&root.field_lists, "field list", &layout)?;
    let digests = digest::digests(&root.learn_lists, &layout)?;
    let deparser = deparser::deparser(&mut c, &objects, root).at(|| "deparser 'deparser'")?;

    let state = objects.state(options.random_seed);
    let (fields, params) = (0..layout.words, c.param_base()..c.temp_base());
    let tables = &mut controls.tables.tables;
    prefetch_plan::plan_prefetches(tables, &c.ops, &state, fields, params);
    for field in intrinsics.reported() {
        *field = field.filter(|field| layout.is_named(*field));
    }

    let temps_used = c.temps_used;
    let mut tables = std::mem::take(&mut controls.tables.tables);
    if options.entry_handles {
        tables.iter_mut().for_each(Table::keep_handles);
    }
    let profiles = std::mem::take(&mut controls.tables.profiles);
    let errors = root.errors.iter();
    let parts = Parts {
        objects,
        parser,
        controls,
        checksums,
        lists,
        digests,
        deparser,
        intrinsics,
        errors: intrinsics::error_codes(root),
        error_names: errors
            .map(|(name, code)| (name.clone(), (*code).into()))
            .collect(),
        ids: JsonIds::new(root),
        key_words: 2 * tables.iter().map(|t| t.spec.key_words).max().unwrap_or(0),
    };
    let compiled = Compiled {
        program: parts.program(c),
        tables,
        profiles,
        state,
    };
    Ok((compiled, temps_used))
}

/// The compiled parts of a program.
struct Parts {
    objects: Objects,
    parser: Parser,
    controls: Controls,
    checksums: Checksums,
    lists: Vec<FieldList>,
    digests: (Vec<DigestFields>, Vec<DigestInfo>),
    deparser: Deparser,
    intrinsics: Intrinsics,
    errors: ErrorCodes,
    error_names: Vec<(String, u64)>,
    ids: JsonIds,
    key_words: usize,
}

impl Parts {
    /// Puts the parts and the code that `c` has made of them together.
    fn program(self, c: Compiler<'_>) -> Program {
        let layout = c.layout;
        let kinds: Box<[HeaderIo]> = layout.types.iter().map(HeaderIo::new).collect();
        let metadata = || layout.headers.iter().filter(|h| h.metadata);
        let unions = layout.unions.iter().map(|u| {
            let members = u.members.iter();
            members.map(|&h| layout.headers[h].base).collect()
        });
        let calculations = &self.objects.calculations;
        let inputs = calculations.iter().map(|x| x.max_bytes(&kinds));
        let emitted = self
            .deparser
            .order
            .iter()
            .map(|h| kinds[h.kind].max_bytes());
        let written = intrinsics::always_changed(layout, self.intrinsics, &self.objects);
        let (constant_base, param_base) = (c.constant_base(), c.param_base());
        let order = self.deparser.order.iter();
        let labels = Labels {
            states: self.parser.names.into(),
            headers: HeaderLabel::all(layout),
            emitted: order.map(|h| layout.header_at(h.base)).collect(),
            nodes: self.controls.labels.into(),
            errors: self.error_names.into(),
            ids: self.ids.into(),
            primitive_at: Labels::primitives_at(&c.primitives, c.ops.len()),
            primitives: c.primitives.into(),
        };
        Program {
            labels: labels.into(),
            constant_base,
            param_base,
            constants: c.constants.into(),
            ops: c.ops.into(),
            messages: c.messages.into(),
            field_words: layout.words,
            stacks: stack_infos(layout),
            unions: unions.collect(),
            metadata: metadata().map(|h| h.base).collect(),
            metadata_ranges: metadata()
                .map(|h| (h.base + 1, h.base + layout.types[h.kind].words))
                .collect(),
            states: self.parser.states.into(),
            start_state: self.parser.start,
            value_set_uses: self.parser.value_sets.uses.into(),
            value_set_infos: self.parser.value_sets.infos,
            nodes: self.controls.nodes.into(),
            ingress: self.controls.ingress,
            egress: self.controls.egress,
            table_infos: self.controls.tables.infos,
            action_infos: self.controls.tables.actions.infos,
            profile_infos: self.controls.tables.profile_infos,
            deparsed_bytes: emitted.sum(),
            headers: self.deparser.headers.into(),
            deparse_order: self.deparser.order.into(),
            always_changed: written | self.deparser.code.changes,
            deparser_code: self.deparser.code,
            scratch_bytes: inputs.max().unwrap_or(0),
            calculations: self.objects.calculations.into(),
            counter_infos: self.objects.counters,
            meter_infos: self.objects.meters,
            register_infos: self.objects.registers,
            verify: self.checksums.verify.into(),
            update: self.checksums.update.into(),
            key_words: self.key_words,
            preserved_words: self.lists.iter().map(FieldList::words).max().unwrap_or(0),
            field_lists: self.lists.into(),
            digests: self.digests.0.into(),
            digest_infos: self.digests.1,
            errors: self.errors,
            intrinsics: self.intrinsics,
            kinds,
        }
    }
}

/// The data of the header stacks for running code.
fn stack_infos(layout: &Layout) -> Box<[StackInfo]> {
    let info = |s: &Stack| StackInfo {
        bases: s.bases.clone().into(),
        elements: s.bases.iter().map(|&base| layout.header_at(base)).collect(),
        next: s.next,
        siblings: s.union.map_or_else(Box::default, |u| {
            let stacks = layout.union_stacks[u].stacks.iter();
            stacks.map(|&stack| stack as u16).collect()
        }),
    };
    layout.stacks.iter().map(info).collect()
}
