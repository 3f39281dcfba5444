//! A loaded program that processes packets. [`compiled`] runs its machine code. The other modules below are
//! the control plane's access to it.

mod arrays;
mod compiled;
mod handles;
mod hashes;
mod profile;
mod tables;
mod value_set;

use crate::api::{
    EgressInput, EgressVerdict, Engine, EngineInUse, Externs, IngressInput, IngressVerdict,
    InstanceType, LoadOptions, NoTrafficManager,
};
use crate::bits::split_bits;
use crate::compile::{Compiled, compile};
use crate::context::{Context, Requests};
use crate::engine::{IN_FRAME, Machine, get_field, set_field};
use crate::entries::Bits;
use crate::entries::digest::DigestInfo;
use crate::error::{LoadError, LoadResult};
use crate::layout::Field;
use crate::machine_code::{CLEARED_WORDS_MAX, Input, MachineCode, Source, Untranslated};
use crate::model;
use crate::ops::Op;
use crate::profile::Profile;
use crate::program::Program;
use crate::slot::RESHAPED;
use crate::state::State;
use crate::table::Table;
use crate::trace::{Stage, Step};
use crate::trial::Trial;
use crate::value_set::ValueSets;
use crate::wide::mask64;
use std::collections::BTreeMap;

/// Stack for reading and compiling a program: deeply nested expressions recurse.
const LOADER_STACK_BYTES: usize = 64 << 20;

/// A compiled program with its tables and state.
///
/// Packets go through [`Self::ingress`] and [`Self::egress`], each working on a [`Context`].
/// Nothing here reads a clock, allocates per packet, or panics on any packet.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) program: Program,
    pub(crate) tables: Vec<Table>,
    pub(crate) state: State,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) value_sets: ValueSets,
    /// The latest time that the caller gave, in ns.
    pub(crate) clock_ns: u64,
    /// The first time that the caller gave: when the program's own entries were made.
    pub(crate) born_ns: Option<u64>,
    /// The switch's ports, and whether each can carry frames.
    pub(crate) ports: BTreeMap<u32, bool>,
    options: LoadOptions,
    /// The changes of a trial's packets, while one runs.
    trial: Option<Trial>,
    /// Tables whose entries have prefetches ([`crate::compile::prefetch_plan`]).
    prefetching_tables: Box<[usize]>,
    /// The program as machine code, if packets go through it.
    machine_code: Option<MachineCode>,
    /// Why there is none although it is wanted.
    untranslated: Option<Untranslated>,
}

impl Pipeline {
    /// Loads BMv2 JSON as p4c-bm2-ss writes it.
    ///
    /// # Errors
    /// The text is not BMv2 JSON, refers to things it does not define, exceeds a limit, or
    /// uses a feature this engine does not have; the error says which and where.
    pub fn load(bmv2_json: &[u8], options: &LoadOptions) -> Result<Self, LoadError> {
        if bmv2_json.len() > options.max_program_bytes {
            return Err(LoadError::new(format!(
                "program of {} bytes exceeds the limit of {}",
                bmv2_json.len(),
                options.max_program_bytes
            )));
        }
        let build = || -> LoadResult<Compiled> {
            let root = model::parse(bmv2_json)?;
            compile(&root, options)
        };
        let compiled = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("v1model-load".into())
                .stack_size(LOADER_STACK_BYTES)
                .spawn_scoped(scope, build)
                .map_err(|e| LoadError::new(format!("cannot start the loader: {e}")))?;
            thread
                .join()
                .map_err(|_| LoadError::new("the loader failed (this is a defect)"))?
        })?;
        let tables = compiled.tables.iter().enumerate();
        let prefetching_tables = tables.filter(|(_, table)| !table.hinted.is_empty());
        let mut pipeline = Self {
            prefetching_tables: prefetching_tables.map(|(at, _)| at).collect(),
            value_sets: ValueSets::new(&compiled.program),
            profiles: compiled.profiles,
            clock_ns: 0,
            born_ns: None,
            ports: BTreeMap::new(),
            program: compiled.program,
            tables: compiled.tables,
            state: compiled.state,
            options: options.clone(),
            trial: None,
            machine_code: None,
            untranslated: None,
        };
        match options.engine {
            Engine::Interpreter => {}
            Engine::Auto => pipeline.untranslated = pipeline.translate(options).err(),
            Engine::Machine => pipeline.translate(options).map_err(|error| {
                LoadError::new(format!("no machine code of the program: {}", error.0))
            })?,
        }
        Ok(pipeline)
    }

    /// Makes machine code of the program, through which packets go from now on.
    pub(crate) fn translate(&mut self, options: &LoadOptions) -> Result<(), Untranslated> {
        let code = MachineCode::new(&Source {
            program: &self.program,
            tables: &self.tables,
            state: &self.state,
            drop_port: options.drop_port.into(),
            max_parser_states: options.max_parser_states,
        })?;
        self.machine_code = Some(code);
        Ok(())
    }

    /// The engine of packets that are not traced.
    pub fn engine(&self) -> EngineInUse<'_> {
        match (&self.machine_code, &self.untranslated) {
            (Some(code), _) => EngineInUse::Machine {
                code_bytes: code.bytes(),
            },
            (None, error) => EngineInUse::Interpreter {
                because: error.as_ref().map(|error| error.0.as_str()),
            },
        }
    }

    /// Makes a context for packets of this pipeline.
    pub fn new_context(&self) -> Context {
        Context::new(&self.program, self.options.max_frame_bytes)
    }

    /// The options with which the program was loaded.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Whether the result for a packet does not depend on when it is computed: the program sets no
    /// departure times, reads neither backlogs nor queues, and neither resubmits nor recirculates.
    pub fn may_run_late(&self) -> bool {
        self.does_without(|op| {
            matches!(
                op,
                Op::Hold { .. }
                    | Op::Backlog { .. }
                    | Op::ReadQueue { .. }
                    | Op::Resubmit { .. }
                    | Op::Recirculate { .. }
            )
        })
    }

    /// Whether egress of a packet may run before its time: the program neither clones, resubmits nor
    /// recirculates, so that nothing with a time of its own comes of it, and reads no queues, which packets
    /// would leave before their time.
    pub fn may_start_early(&self) -> bool {
        self.does_without(|op| {
            matches!(
                op,
                Op::ReadQueue { .. }
                    | Op::Clone { .. }
                    | Op::Resubmit { .. }
                    | Op::Recirculate { .. }
            )
        })
    }

    fn does_without(&self, kind: impl Fn(&Op) -> bool) -> bool {
        !self.program.ops.iter().any(kind)
    }

    fn machine<'a, E: Externs>(&'a mut self, externs: &'a E, now_ns: u64) -> Machine<'a, E> {
        Machine {
            program: &self.program,
            tables: &mut self.tables,
            state: &mut self.state,
            profiles: &self.profiles,
            value_sets: &self.value_sets,
            externs,
            now_ns,
            drop_port: self.options.drop_port,
            trial: self.trial.as_mut(),
        }
    }

    /// Begins a trial, or goes on with one that has ended here: until [`Self::end_trial`], all packets come
    /// with an [`Externs`] that wants steps, and neither programs nor entries are changed.
    pub fn begin_trial(&mut self, mut trial: Trial) {
        debug_assert!(self.trial.is_none(), "a trial runs already");
        trial.make_again(&mut self.state, &mut self.tables);
        self.trial = Some(trial);
    }

    /// The number of changes that the trial's packets have made.
    pub fn trial_changes(&self) -> usize {
        self.trial.as_ref().map_or(0, Trial::changes)
    }

    /// Ends a trial, which may go on later: registers, counters, meters, random numbers and the data of
    /// entries are as they were when it began.
    pub fn end_trial(&mut self) -> Trial {
        let trial = self.trial.take();
        debug_assert!(trial.is_some(), "no trial runs");
        let mut trial = trial.unwrap_or_default();
        trial.take_back(&mut self.state, &mut self.tables);
        trial
    }

    /// Clears headers and metadata, and puts the preserved fields of a resubmitted or recirculated
    /// packet back. Begins all else, too.
    fn begin(&self, ctx: &mut Context) {
        let n = ctx.field_words;
        ctx.phv[..n].fill(0);
        for &slot in &self.program.metadata {
            ctx.phv[slot as usize] = 1;
        }
        self.begin_frame(ctx);
        if ctx.preserved.active {
            ctx.preserved.active = false;
            // A header that is put back may be one that the frame does not have.
            ctx.unchanged.note(RESHAPED);
            if let Some(list) = self.program.field_list(ctx.preserved.list) {
                restore(&list.fields, &ctx.preserved.words, &mut ctx.phv);
            }
        }
    }

    /// Begins all of a packet but its headers and metadata.
    #[inline]
    fn begin_frame(&self, ctx: &mut Context) {
        ctx.unchanged.begin(self.program.always_changed);
        ctx.parsed = 0;
        ctx.requests = Requests::default();
        ctx.assertion_failed = false;
        ctx.internal_error = false;
        ctx.ingress_length = ctx.frame_len() as u64;
        ctx.packet_length = ctx.ingress_length;
    }

    /// Parses the context's frame, verifies checksums and runs the ingress control.
    pub fn ingress<E: Externs>(
        &mut self,
        ctx: &mut Context,
        input: &IngressInput,
        externs: &E,
    ) -> IngressVerdict {
        self.parse(ctx, input, externs);
        self.ingress_control(ctx, input, externs)
    }

    /// Runs the first part of [`Self::ingress`]: parses the context's frame and verifies checksums.
    /// The result does not depend on other packets, so it may be computed before their turn.
    pub fn parse<E: Externs>(&mut self, ctx: &mut Context, input: &IngressInput, externs: &E) {
        // A clone of a recirculated packet is parsed with the port at which it first came in.
        if input.instance_type != InstanceType::Recirculated {
            ctx.ingress_port = input.port;
        }
        // As in simple_switch, a resubmitted or recirculated packet has only the port and the time
        // that its field list preserved.
        let again = matches!(
            input.instance_type,
            InstanceType::Resubmit | InstanceType::Recirculated
        );
        let compiled = self.compiled::<E>(Input::Parser(Some(input)));
        if let Some(call) = compiled.filter(|_| !again && !ctx.preserved.active) {
            self.begin_frame(ctx);
            if self.program.field_words > CLEARED_WORDS_MAX {
                let n = ctx.field_words;
                ctx.phv[..n].fill(0);
            }
            self.run_part(call, ctx, (externs, input.now_ns));
            return;
        }
        self.begin(ctx);
        let i = self.program.intrinsics;
        let w = &mut ctx.phv;
        if !again {
            set_field(w, i.ingress_port, u64::from(input.port));
            set_optional(w, i.ingress_global_timestamp, input.now_ns / 1_000);
        }
        set_field(w, i.packet_length, ctx.packet_length);
        set_field(w, i.instance_type, input.instance_type as u64);

        self.parse_frame(ctx, externs, input.now_ns);
        set_optional(&mut ctx.phv, i.parser_error, ctx.parser_error);
        let checksum_error = u64::from(ctx.checksum_error);
        set_optional(&mut ctx.phv, i.checksum_error, checksum_error);
    }

    /// Parses the frame of a packet whose metadata is set, and verifies checksums.
    fn parse_frame<E: Externs>(&mut self, ctx: &mut Context, externs: &E, now_ns: u64) {
        let max_states = self.options.max_parser_states;
        match self.compiled::<E>(Input::Parser(None)) {
            Some(call) => {
                self.run_part(call, ctx, (externs, now_ns));
            }
            None => self.machine(externs, now_ns).parse(ctx, max_states),
        }
    }

    /// Prefetches the table cell that a packet will look up first in a large table. To be called
    /// between [`Self::parse`] and [`Self::ingress_control`] of the packet, before another packet is
    /// processed: the cell arrives meanwhile.
    pub fn prefetch_next(&self, ctx: &mut Context) {
        let mut tables = self.prefetching_tables.iter();
        let large = tables.find_map(|&at| self.tables.get(at).filter(|table| table.is_large()));
        if let Some(table) = large {
            table.prefetch_cell(&ctx.phv, &mut ctx.key);
        }
    }

    /// Runs the second part of [`Self::ingress`], after [`Self::parse`] of the same context with the
    /// same input.
    pub fn ingress_control<E: Externs>(
        &mut self,
        ctx: &mut Context,
        input: &IngressInput,
        externs: &E,
    ) -> IngressVerdict {
        self.clock_ns = self.clock_ns.max(input.now_ns);
        match self.compiled::<E>(Input::Ingress) {
            Some(call) => {
                self.run_part(call, ctx, (externs, input.now_ns));
            }
            None => {
                let mut machine = self.machine(externs, input.now_ns);
                machine.report(Step::Enter(Stage::Ingress));
                machine.ingress(ctx);
                machine.report(Step::Leave(Stage::Ingress));
            }
        }

        let program = &self.program;
        let i = &program.intrinsics;
        let w = &ctx.phv;
        let egress_spec = get_field(w, i.egress_spec);
        let mcast_group = i.mcast_grp.map_or(0, |f| get_field(w, f)) as u16;
        let (assertion_failed, internal_error) = (ctx.assertion_failed, ctx.internal_error);
        let unicast_dropped = egress_spec == self.drop_value() && mcast_group == 0;
        IngressVerdict {
            drop: assertion_failed
                || internal_error
                || (unicast_dropped && ctx.requests.resubmit.is_none()),
            egress_port: egress_spec as u16,
            mcast_group,
            hold: ctx.requests.hold,
            resubmit: ctx.requests.resubmit,
            clone: ctx.requests.clone,
            digest: ctx.requests.digest.and_then(|id| program.digest(id)),
            parser_error: ctx.parser_error != program.errors.none,
            checksum_error: ctx.checksum_error,
            assertion_failed,
            internal_error,
        }
    }

    /// The egress queue of a packet after its ingress, or of a clone: the one that the program chose by
    /// `EgressQueues.choose`, or else `standard_metadata.priority`, as in simple_switch; 0 if the program
    /// has no such field. No port has a queue `u8::MAX`, which stands for all numbers above.
    pub fn egress_queue(&self, ctx: &Context) -> u8 {
        ctx.requests.queue.unwrap_or_else(|| {
            let field = self.program.intrinsics.priority;
            let priority = field.map_or(0, |field| get_field(&ctx.phv, field));
            u8::try_from(priority).unwrap_or(u8::MAX)
        })
    }

    /// Runs the egress control, updates checksums and deparses to [`Context::output`].
    pub fn egress<E: Externs>(
        &mut self,
        ctx: &mut Context,
        input: &EgressInput,
        externs: &E,
    ) -> EgressVerdict {
        let mut verdict = self.egress_control(ctx, input, externs);
        if !verdict.drop {
            self.deparse(ctx, input.now_ns, externs, &mut verdict);
        }
        verdict
    }

    /// Runs the egress control. [`EgressVerdict::clone`] is a clone of the packet in its state after
    /// egress. Unless the packet is dropped, call [`Self::deparse`] after the clone is made.
    pub fn egress_control<E: Externs>(
        &mut self,
        ctx: &mut Context,
        input: &EgressInput,
        externs: &E,
    ) -> EgressVerdict {
        ctx.requests.clone = None;
        ctx.requests.recirculate = None;
        match self.compiled::<E>(Input::Egress(input)) {
            Some(call) => {
                self.run_part(call, ctx, (externs, input.now_ns));
            }
            None => {
                self.enter_egress(ctx, input);
                let mut machine = self.machine(externs, input.now_ns);
                machine.report(Step::Enter(Stage::Egress));
                machine.egress(ctx);
                machine.report(Step::Leave(Stage::Egress));
            }
        }
        let (assertion_failed, internal_error) = (ctx.assertion_failed, ctx.internal_error);
        let verdict = EgressVerdict {
            drop: assertion_failed
                || internal_error
                || get_field(&ctx.phv, self.program.intrinsics.egress_spec) == self.drop_value(),
            recirculate: None,
            clone: ctx
                .requests
                .clone
                .filter(|_| !assertion_failed && !internal_error),
            truncated: false,
            assertion_failed,
            internal_error,
        };
        if verdict.drop {
            ctx.clear_output();
        }
        verdict
    }

    /// Sets the standard metadata of a packet that comes to egress.
    fn enter_egress(&self, ctx: &mut Context, input: &EgressInput) {
        let i = &self.program.intrinsics;
        let w = &mut ctx.phv;
        set_field(w, i.egress_port, u64::from(input.port));
        set_field(w, i.instance_type, input.instance_type as u64);
        // Anything but the drop port, as in simple_switch.
        set_field(w, i.egress_spec, self.drop_value().wrapping_add(1));
        set_field(w, i.packet_length, ctx.packet_length);
        let (enqueued_us, now_us) = (input.enqueued_ns / 1_000, input.now_ns / 1_000);
        set_optional(w, i.egress_global_timestamp, now_us);
        if input.instance_type != InstanceType::Normal {
            // In a packet that is not replicated it may have a value of ingress.
            set_optional(w, i.egress_rid, u64::from(input.rid));
        }
        set_optional(w, i.enq_timestamp, enqueued_us);
        set_optional(w, i.enq_qdepth, u64::from(input.enq_qdepth));
        set_optional(w, i.deq_timedelta, now_us.saturating_sub(enqueued_us));
        set_optional(w, i.deq_qdepth, u64::from(input.deq_qdepth));
        set_optional(w, i.qid, u64::from(input.qid));
    }

    /// The drop port as `egress_spec` holds it.
    fn drop_value(&self) -> u64 {
        u64::from(self.options.drop_port) & mask64(self.program.intrinsics.egress_spec.bits)
    }

    /// Updates checksums and deparses to [`Context::output`], after [`Self::egress_control`] at
    /// `now_ns`, and completes its verdict.
    pub fn deparse<E: Externs>(
        &mut self,
        ctx: &mut Context,
        now_ns: u64,
        externs: &E,
        verdict: &mut EgressVerdict,
    ) {
        match self.compiled::<E>(Input::Deparser) {
            Some(call) => {
                if self.run_part(call, ctx, (externs, now_ns)) != 0 {
                    ctx.output_in_place();
                    debug_assert!(self.machine(externs, now_ns).is_in_frame(ctx), "{IN_FRAME}");
                }
            }
            None => self.machine(externs, now_ns).deparse(ctx),
        }
        verdict.assertion_failed = ctx.assertion_failed;
        verdict.internal_error = ctx.internal_error;
        if verdict.assertion_failed || verdict.internal_error {
            verdict.drop = true;
            ctx.clear_output();
            return;
        }
        verdict.recirculate = ctx.requests.recirculate;
        // A recirculated packet is not truncated.
        if verdict.recirculate.is_none() {
            verdict.truncated = ctx.cut_output(ctx.truncate);
        }
    }

    /// Digests that the program can send.
    pub fn digests(&self) -> &[DigestInfo] {
        &self.program.digest_infos
    }

    /// The words of a digest's message in a packet that has been through `ingress`
    /// ([`IngressVerdict::digest`]). [`Self::digest_fields`] makes values of them.
    pub fn digest<'a>(&'a self, ctx: &'a Context, digest: usize) -> impl Iterator<Item = u64> + 'a {
        let digest = self.program.digests.get(digest);
        let validities = digest.map_or(&[][..], |digest| &digest.validities);
        let valid = move |at: usize| {
            let slot = validities.get(at);
            slot.is_some_and(|&slot| ctx.phv[slot as usize] != 0)
        };
        let fields = digest.map_or(&[][..], |digest| &digest.fields).iter();
        let values = fields.flat_map(move |(f, header)| {
            let slot = f.slot as usize;
            let shown = header.is_none_or(valid);
            let words = ctx.phv[slot..slot + f.limbs() as usize].iter();
            words.map(move |&word| if shown { word } else { 0 })
        });
        values.chain((0..validities.len()).map(move |at| u64::from(valid(at))))
    }

    /// Makes values of the words that [`Self::digest`] gave: the fields of the message, then a bit
    /// for each of [`DigestInfo::headers`].
    pub fn digest_fields(&self, digest: usize, words: &[u64]) -> Vec<Bits> {
        let digest = self.program.digests.get(digest);
        let fields = digest.map_or(&[][..], |digest| &digest.fields).iter();
        let validities = digest.map_or(0, |digest| digest.validities.len());
        let widths = fields.map(|(f, _)| f.bits);
        split_bits(words, widths.chain(std::iter::repeat_n(1, validities)))
    }

    /// Prepares a context for ingress again after [`IngressVerdict::resubmit`]: the frame as
    /// it was, and the metadata of `field_list`. Call `ingress` next, with
    /// [`InstanceType::Resubmit`].
    pub fn resubmit(&self, ctx: &mut Context, field_list: u16) {
        self.preserve_fields(ctx, field_list);
        ctx.truncate = u64::MAX;
        ctx.parsed = 0;
    }

    /// Prepares a context for ingress again after [`EgressVerdict::recirculate`]: the packet
    /// as it was deparsed, and the metadata of `field_list`. Call `ingress` next, with
    /// [`InstanceType::Recirculated`]. Returns false if the packet has grown beyond the longest
    /// frame and was cut: drop it.
    pub fn recirculate(&self, ctx: &mut Context, field_list: u16) -> bool {
        self.preserve_fields(ctx, field_list);
        ctx.truncate = u64::MAX;
        ctx.output_to_frame()
    }

    /// Makes `clone` a clone of the packet in `original`, which has been through `ingress` and
    /// not yet through `egress`: the frame as it entered ingress, parsed again, all metadata
    /// zero except that of `field_list`. Call `egress` next, with
    /// [`InstanceType::IngressClone`].
    pub fn clone_from_ingress(&mut self, original: &Context, clone: &mut Context, field_list: u16) {
        clone.copy_frame(original);
        clone.truncate = u64::MAX;
        self.begin(clone);
        // Parsers may branch on the port.
        let i = self.program.intrinsics;
        set_field(
            &mut clone.phv,
            i.ingress_port,
            u64::from(original.ingress_port),
        );
        // Its checksums were verified already.
        let (error, wrong) = (clone.parser_error, clone.checksum_error);
        self.parse_frame(clone, &NoTrafficManager, 0);
        (clone.parser_error, clone.checksum_error) = (error, wrong);
        self.replace_metadata(original, clone, field_list);
        let kind = InstanceType::IngressClone as u64;
        set_field(&mut clone.phv, i.instance_type, kind);
    }

    /// Makes `clone` a clone of the packet in `original`, which has been through `egress`: its
    /// headers as the egress control left them, its payload, all metadata zero except that of
    /// `field_list`. Call `egress` next, with [`InstanceType::EgressClone`].
    pub fn clone_from_egress(&self, original: &Context, clone: &mut Context, field_list: u16) {
        clone.copy_from(original);
        clone.clear_output();
        clone.requests.clone = None;
        clone.requests.recirculate = None;
        clone.requests.hold = None;
        clone.requests.queue = None;
        clone.truncate = u64::MAX;
        self.replace_metadata(original, clone, field_list);
        let i = self.program.intrinsics;
        let kind = InstanceType::EgressClone as u64;
        set_field(&mut clone.phv, i.instance_type, kind);
    }

    /// Preserves a field list's values until the next `begin`.
    fn preserve_fields(&self, ctx: &mut Context, field_list: u16) {
        ctx.preserved.words.clear();
        ctx.preserved.list = field_list;
        ctx.preserved.active = true;
        if let Some(list) = self.program.field_list(field_list) {
            for f in &list.fields {
                let slot = f.slot as usize;
                let words = &ctx.phv[slot..slot + f.limbs() as usize];
                ctx.preserved.words.extend_from_slice(words);
            }
        }
    }

    /// Clears the metadata of a clone, except the fields of `field_list`.
    fn replace_metadata(&self, original: &Context, clone: &mut Context, field_list: u16) {
        // The list may contain headers, and the frame is the original's, which was written to.
        clone.unchanged.note(RESHAPED);
        for &(from, to) in &self.program.metadata_ranges {
            clone.phv[from as usize..to as usize].fill(0);
        }
        if let Some(list) = self.program.field_list(field_list) {
            for f in &list.fields {
                let range = f.slot as usize..(f.slot + f.limbs()) as usize;
                clone.phv[range.clone()].copy_from_slice(&original.phv[range]);
            }
        }
    }
}

fn set_optional(words: &mut [u64], field: Option<Field>, value: u64) {
    if let Some(field) = field {
        set_field(words, field, value);
    }
}

/// Puts the preserved values of fields back.
fn restore(fields: &[Field], preserved: &[u64], phv: &mut [u64]) {
    let mut rest = preserved;
    for f in fields {
        let Some((now, later)) = rest.split_at_checked(f.limbs() as usize) else {
            debug_assert!(false, "a preserved value is missing");
            return;
        };
        let slot = f.slot as usize;
        phv[slot..slot + now.len()].copy_from_slice(now);
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use crate::entries::profile::{IndirectAction, ProfileMember};
    use crate::entries::{ActionCall, EntryAction, EntryKey, MatchField};
    use crate::{Context, IngressInput, IngressVerdict, LoadOptions, NoTrafficManager, Pipeline};

    const INPUT: IngressInput = IngressInput {
        port: 1,
        now_ns: 0,
        instance_type: crate::InstanceType::Normal,
    };

    /// `profile.p4`, whose table has an entry for Ethernet type 1 that names member 1.
    fn pipeline() -> (Pipeline, Context) {
        let json = include_bytes!("../../tests/programs/profile.json");
        let mut p = Pipeline::load(json, &LoadOptions::default()).expect("it loads");
        let action = p.actions().iter().position(|action| action.name == "I.a");
        let member = ProfileMember {
            id: 1,
            call: ActionCall {
                action: action.expect("action I.a"),
                args: vec![vec![0, 2].into()],
            },
        };
        p.member_insert(0, &member).expect("there is room");
        let key = EntryKey {
            fields: vec![MatchField::Exact(vec![0, 1].into())],
            priority: 0,
        };
        let action = EntryAction::Indirect(IndirectAction::Member(1));
        p.table_insert(0, &key, &action).expect("there is room");
        let mut ctx = p.new_context();
        let mut frame = [0; 60];
        frame[13] = 1;
        assert!(ctx.set_frame(&frame));
        (p, ctx)
    }

    fn assert_internal_error(verdict: IngressVerdict) {
        assert!(verdict.internal_error && verdict.drop);
    }

    #[test]
    fn a_fault_of_the_parser_is_an_internal_error_of_ingress() {
        let (mut p, mut ctx) = pipeline();
        p.parse(&mut ctx, &INPUT, &NoTrafficManager);
        ctx.internal_error = true;
        assert_internal_error(p.ingress_control(&mut ctx, &INPUT, &NoTrafficManager));
        // The next packet in the same context is not affected.
        let verdict = p.ingress(&mut ctx, &INPUT, &NoTrafficManager);
        assert!(!verdict.internal_error && !verdict.drop);
        assert_eq!(verdict.egress_port, 2);
    }

    /// In release, the packet is dropped.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "does not exist"))]
    fn a_missing_member_is_an_internal_error() {
        let (mut p, mut ctx) = pipeline();
        p.profiles[0].members.clear();
        assert_internal_error(p.ingress(&mut ctx, &INPUT, &NoTrafficManager));
    }

    /// In release, the packet is dropped.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "does not exist"))]
    fn a_missing_group_is_an_internal_error() {
        let (mut p, mut ctx) = pipeline();
        p.tables[0].change_targets(|target| *target = crate::table::Target::Group(7));
        assert_internal_error(p.ingress(&mut ctx, &INPUT, &NoTrafficManager));
    }
}
