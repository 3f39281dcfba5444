//! From the typed JSON to a compiled program: resolves every name and id once.

mod action;
mod condition;
mod control;
mod digest;
mod parser;
pub(crate) mod prefetch_plan;

use crate::api::LoadOptions;
use crate::calculation::{Calculation, Input};
use crate::entries::{ArrayInfo, MeterUnit};
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::expr::{Compiler, MAX_TEMP_WORDS, hex_limbs};
use crate::hash::Algorithm;
use crate::header_io::HeaderIo;
use crate::layout::list_words;
use crate::layout::{Field, Layout, pair};
use crate::model::{self, Root};
use crate::profile::Profile;
use crate::program::{Checksum, ErrorCodes, FieldList, HeaderInfo, Intrinsics, Program, StackInfo};
use crate::slot::Changes;
use crate::state::{MeterArray, State};
use crate::table::Table;
use crate::unchanged::NO_POSITION;
use crate::wide::{limbs, mask64};
use action::Action;
use std::collections::{HashMap, HashSet};

/// Most arrays of one kind, calculations and the like.
const MAX_OBJECTS: usize = 1 << 14;

/// Names of the objects that primitives refer to, with their indices.
#[derive(Debug, Default)]
pub(crate) struct Names {
    registers: HashMap<String, usize>,
    pub register_bits: Vec<u32>,
    counters: HashMap<String, usize>,
    meters: HashMap<String, usize>,
    calculations: HashMap<String, usize>,
    /// Instance to type.
    pub externs: HashMap<String, String>,
}

impl Names {
    fn find(map: &HashMap<String, usize>, kind: &str, name: &str) -> LoadResult<usize> {
        map.get(name)
            .copied()
            .ok_or_else(|| LoadError::new(format!("unknown {kind} '{name}'")))
    }

    pub fn register(&self, name: &str) -> LoadResult<usize> {
        Self::find(&self.registers, "register array", name)
    }

    pub fn counter(&self, name: &str) -> LoadResult<usize> {
        Self::find(&self.counters, "indirect counter array", name)
    }

    pub fn meter(&self, name: &str) -> LoadResult<usize> {
        Self::find(&self.meters, "indirect meter array", name)
    }

    pub fn calculation(&self, name: &str) -> LoadResult<usize> {
        Self::find(&self.calculations, "calculation", name)
    }
}

/// A direct meter array: unit and result field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectMeterInfo {
    pub unit: MeterUnit,
    pub target: Field,
}

/// Everything a running program consists of.
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

fn compile_with(
    root: &Root,
    options: &LoadOptions,
    temp_words: u32,
) -> LoadResult<(Compiled, u32)> {
    let layout = Layout::build(root)?;
    let mut names = Names::default();
    for e in &root.extern_instances {
        if e.kind != "TrafficManager" {
            refuse!(
                "extern instance '{}': extern type '{}' is not supported",
                e.name,
                e.kind
            );
        }
        names.externs.insert(e.name.clone(), e.kind.clone());
    }
    let arrays = arrays(root, &layout, &mut names, options)?;
    let mut calculations = calculations(root, &layout, &mut names)?;
    let mut intrinsics = intrinsics(&layout)?;
    let errors = errors(root);

    let param_words = root.actions.iter().map(action::param_words).max();
    let param_words = param_words.unwrap_or(0);
    if param_words > 1 << 15 {
        refuse!("an action has more than {} words of parameters", 1 << 15);
    }
    let mut c = Compiler::new(&layout, param_words, temp_words);
    for (name, &index) in &names.registers {
        let register = (index as u16, names.register_bits[index]);
        c.registers.insert(name.clone(), register);
    }

    let mut actions: HashMap<u32, Action> = HashMap::new();
    for a in &root.actions {
        let place = || format!("action '{}' (id {})", a.name, a.id);
        let compiled = action::action(&mut c, &names, a).at(place)?;
        if actions.insert(a.id, compiled).is_some() {
            return Err(LoadError::new("id is used twice")).at(place);
        }
    }

    let json_parser = by_name(&root.parsers, "parser", |p| &p.name)?;
    let mut value_sets = parser::ValueSets::new(&root.parse_vsets)?;
    let (states, start_state) =
        parser::parser(&mut c, &names, json_parser, &mut value_sets).at(|| "parser 'parser'")?;
    let mut controls = control::controls(
        &mut c,
        root,
        &actions,
        &arrays.direct_meters,
        &mut calculations,
    )?;
    let (verify, update) = checksums(&mut c, root, &names)?;
    let lists = field_lists(&root.field_lists, "field list", &layout)?;
    let (digests, digest_infos) = digest::digests(&root.learn_lists, &layout)?;

    let deparser = by_name(&root.deparsers, "deparser", |d| &d.name)?;
    let place = || "deparser 'deparser'";
    if deparser
        .primitives
        .iter()
        .any(|p| p.op.starts_with("_TrafficManager_"))
    {
        return Err(LoadError::new(
            "the traffic manager cannot be called from the deparser",
        ))
        .at(place);
    }
    let deparser_code = action::primitives(&mut c, &names, &deparser.primitives).at(place)?;
    let mut deparse_order: Vec<HeaderInfo> = Vec::new();
    let mut headers: Vec<HeaderInfo> = layout
        .headers
        .iter()
        .zip(&layout.masks)
        .map(|(h, &change)| HeaderInfo {
            base: h.base,
            kind: h.kind,
            position: NO_POSITION,
            change,
        })
        .collect();
    let mut written = HashSet::new();
    for name in &deparser.order {
        let index = layout.header(name).at(place)?;
        if layout.headers[index].metadata {
            return Err(LoadError::new(format!("emits metadata '{name}'"))).at(place);
        }
        let header = &mut headers[index];
        header.position = if written.insert(index) {
            deparse_order.len() as u32
        } else {
            NO_POSITION
        };
        deparse_order.push(*header);
    }
    if deparse_order.len() > 1 << 16 {
        refuse!("deparser emits more than {} headers", 1 << 16);
    }

    let param_base = c.param_base();
    prefetch_plan::plan_prefetches(
        &mut controls.tables,
        &c.ops,
        &arrays.state,
        0..layout.words,
        param_base..param_base + param_words,
    );

    intrinsics.forget_unread(|field| layout.is_named(field));
    let kinds: Box<[HeaderIo]> = layout.types.iter().map(HeaderIo::new).collect();
    let metadata: Vec<_> = layout.headers.iter().filter(|h| h.metadata).collect();
    let program = Program {
        constant_base: c.constant_base(),
        param_base: c.param_base(),
        constants: std::mem::take(&mut c.constants).into(),
        ops: std::mem::take(&mut c.ops).into(),
        field_words: layout.words,
        headers: headers.into(),
        stacks: layout
            .stacks
            .iter()
            .map(|s| StackInfo {
                bases: s.bases.clone().into(),
                elements: s.bases.iter().map(|&base| layout.header_at(base)).collect(),
                next: s.next,
                siblings: s.union.map_or_else(Box::default, |u| {
                    let stacks = layout.union_stacks[u].stacks.iter();
                    stacks.map(|&stack| stack as u16).collect()
                }),
            })
            .collect(),
        unions: layout
            .unions
            .iter()
            .map(|u| u.members.iter().map(|&h| layout.headers[h].base).collect())
            .collect(),
        metadata: metadata.iter().map(|h| h.base).collect(),
        metadata_ranges: metadata
            .iter()
            .map(|h| (h.base + 1, h.base + layout.types[h.kind].words))
            .collect(),
        states: states.into(),
        start_state,
        nodes: controls.nodes.into(),
        ingress: controls.ingress,
        egress: controls.egress,
        deparsed_bytes: deparse_order
            .iter()
            .map(|h| kinds[h.kind].max_bytes())
            .sum(),
        deparse_order: deparse_order.into(),
        scratch_bytes: calculations
            .iter()
            .map(|x| x.max_bytes(&kinds))
            .max()
            .unwrap_or(0),
        calculations: calculations.into(),
        verify: verify.into(),
        update: update.into(),
        key_words: 2 * controls
            .tables
            .iter()
            .map(|t| t.key_words)
            .max()
            .unwrap_or(0),
        preserved_words: lists
            .iter()
            .map(|l| list_words(&l.fields))
            .max()
            .unwrap_or(0),
        field_lists: lists.into(),
        digests: digests.into(),
        value_set_uses: value_sets.uses.into(),
        messages: std::mem::take(&mut c.messages).into(),
        always_changed: always_changed(&layout, &intrinsics, &arrays.direct_meters)
            | deparser_code.changes,
        deparser_code,
        errors,
        intrinsics,
        kinds,
        table_infos: controls.table_infos,
        action_infos: controls.action_infos,
        counter_infos: arrays.counter_infos,
        meter_infos: arrays.meter_infos,
        register_infos: arrays.register_infos,
        value_set_infos: value_sets.infos,
        digest_infos,
        profile_infos: controls.profile_infos,
    };
    let compiled = Compiled {
        program,
        tables: controls.tables,
        profiles: controls.profiles,
        state: arrays.state,
    };
    Ok((compiled, c.temps_used))
}

/// The object with a name that the target fixes.
fn by_name<'r, T>(list: &'r [T], name: &str, of: impl Fn(&T) -> &String) -> LoadResult<&'r T> {
    list.iter().find(|x| of(x) == name).ok_or_else(|| {
        LoadError::new(format!(
            "there is no object named '{name}' (v1model has one)"
        ))
    })
}

struct Arrays {
    state: State,
    register_infos: Vec<ArrayInfo>,
    counter_infos: Vec<ArrayInfo>,
    meter_infos: Vec<(ArrayInfo, MeterUnit)>,
    direct_meters: HashMap<String, DirectMeterInfo>,
}

fn arrays(
    root: &Root,
    layout: &Layout,
    names: &mut Names,
    options: &LoadOptions,
) -> LoadResult<Arrays> {
    let most = root
        .register_arrays
        .len()
        .max(root.counter_arrays.len())
        .max(root.meter_arrays.len());
    if most > MAX_OBJECTS {
        refuse!("program has more than {MAX_OBJECTS} registers, counters or meters");
    }
    let mut bytes_left = options.max_state_bytes;
    let mut reserve = |cells: usize, bytes: usize| -> LoadResult<()> {
        match cells
            .checked_mul(bytes)
            .and_then(|b| bytes_left.checked_sub(b))
        {
            Some(left) => {
                bytes_left = left;
                Ok(())
            }
            None => refuse!(
                "{cells} cells do not fit in the limit of {} bytes for all state",
                options.max_state_bytes
            ),
        }
    };
    let mut registers = Vec::new();
    let mut register_infos = Vec::new();
    for r in &root.register_arrays {
        let place = || format!("register '{}'", r.name);
        if !(1..=crate::layout::MAX_FIELD_BITS).contains(&r.bitwidth) {
            return Err(LoadError::new(format!("width {} bits", r.bitwidth))).at(place);
        }
        let n = limbs(r.bitwidth) as usize;
        reserve(r.size, 8 * n).at(place)?;
        let index = names.register_bits.len();
        if names.registers.insert(r.name.clone(), index).is_some() {
            return Err(LoadError::new("is defined twice")).at(place);
        }
        names.register_bits.push(r.bitwidth);
        registers.push((r.size, n));
        register_infos.push(ArrayInfo {
            name: r.name.clone(),
            size: r.size,
            bits: r.bitwidth,
        });
    }
    let mut counters = Vec::new();
    let mut counter_infos = Vec::new();
    for k in root.counter_arrays.iter().filter(|k| !k.is_direct) {
        let place = || format!("counter '{}'", k.name);
        let size = k.size.unwrap_or(0);
        reserve(size, 16).at(place)?;
        if names
            .counters
            .insert(k.name.clone(), counters.len())
            .is_some()
        {
            return Err(LoadError::new("is defined twice")).at(place);
        }
        counters.push(size);
        counter_infos.push(ArrayInfo {
            name: k.name.clone(),
            size,
            bits: 0,
        });
    }
    let mut meters = Vec::new();
    let mut meter_infos = Vec::new();
    let mut direct_meters = HashMap::new();
    for m in &root.meter_arrays {
        let place = || format!("meter '{}'", m.name);
        let unit = match m.unit.as_str() {
            "bytes" => MeterUnit::Bytes,
            "packets" => MeterUnit::Packets,
            other => return Err(LoadError::new(format!("unknown unit '{other}'"))).at(place),
        };
        if m.rate_count.is_some_and(|n| n != 2) {
            return Err(LoadError::new("only meters with two rates are supported")).at(place);
        }
        if m.is_direct {
            let Some((header, field)) = &m.result_target else {
                return Err(LoadError::new("direct meter without result_target")).at(place);
            };
            let target = layout.field(header, field).at(place)?;
            if target.bits > 64 {
                return Err(LoadError::new("result is wider than 64 bits")).at(place);
            }
            direct_meters.insert(m.name.clone(), DirectMeterInfo { unit, target });
            continue;
        }
        let size = m.size.unwrap_or(0);
        reserve(size, 20).at(place)?;
        if names.meters.insert(m.name.clone(), meters.len()).is_some() {
            return Err(LoadError::new("is defined twice")).at(place);
        }
        meters.push(MeterArray::new(size, unit));
        let info = ArrayInfo {
            name: m.name.clone(),
            size,
            bits: 0,
        };
        meter_infos.push((info, unit));
    }
    Ok(Arrays {
        state: State::new(&registers, &counters, meters, options.random_seed),
        register_infos,
        counter_infos,
        meter_infos,
        direct_meters,
    })
}

fn calculations(root: &Root, layout: &Layout, names: &mut Names) -> LoadResult<Vec<Calculation>> {
    if root.calculations.len() > MAX_OBJECTS {
        refuse!("program has more than {MAX_OBJECTS} calculations");
    }
    let mut all = Vec::new();
    for k in &root.calculations {
        names.calculations.insert(k.name.clone(), all.len());
        all.push(
            calculation(&k.algo, &k.input, layout).at(|| format!("calculation '{}'", k.name))?,
        );
    }
    Ok(all)
}

fn calculation(
    algorithm: &str,
    input: &[model::TypeValue],
    layout: &Layout,
) -> LoadResult<Calculation> {
    let algorithm = Algorithm::from_name(algorithm)?;
    let mut inputs = Vec::new();
    let mut payload = false;
    for (i, input) in input.iter().enumerate() {
        let place = || format!("input {i}");
        match input.kind.as_str() {
            "field" => {
                let (header, field) = pair(&input.value).at(place)?;
                let valid = layout.headers[layout.header(header).at(place)?].base;
                inputs.push(match layout.variable(header, field).at(place)? {
                    Some((field, length)) => Input::Variable {
                        field,
                        length,
                        valid,
                    },
                    None => Input::Field {
                        field: layout.field_value(&input.value).at(place)?,
                        valid,
                    },
                });
            }
            "hexstr" => {
                let bits = match input.bitwidth {
                    Some(bits) if (1..=crate::layout::MAX_FIELD_BITS).contains(&bits) => bits,
                    _ => {
                        return Err(LoadError::new("constant without a usable bitwidth")).at(place);
                    }
                };
                let mut value = hex_limbs(crate::expr::text(&input.value).at(place)?).at(place)?;
                value.resize(limbs(bits) as usize, 0);
                if let Some(top) = value.last_mut() {
                    *top &= mask64(bits - 64 * (limbs(bits) - 1));
                }
                inputs.push(Input::Constant { bits, value });
            }
            "header" => {
                let name = crate::expr::text(&input.value).at(place)?;
                let h = &layout.headers[layout.header(name).at(place)?];
                inputs.push(Input::Header {
                    base: h.base,
                    kind: h.kind,
                });
            }
            "payload" => payload = true,
            other => {
                return Err(LoadError::new(format!(
                    "input of type '{other}' is not supported"
                )))
                .at(place);
            }
        }
    }
    Ok(Calculation::new(algorithm, inputs, payload))
}

fn checksums(
    c: &mut Compiler<'_>,
    root: &Root,
    names: &Names,
) -> LoadResult<(Vec<Checksum>, Vec<Checksum>)> {
    let (mut verify, mut update) = (Vec::new(), Vec::new());
    for k in &root.checksums {
        let built = checksum(c, names, k).at(|| format!("checksum '{}'", k.name))?;
        if k.verify {
            verify.push(built.clone());
        }
        if k.update {
            update.push(built);
        }
    }
    Ok((verify, update))
}

fn checksum(c: &mut Compiler<'_>, names: &Names, k: &model::Checksum) -> LoadResult<Checksum> {
    if k.kind != "generic" {
        refuse!("type '{}' is not supported", k.kind);
    }
    let target = c.layout.field(&k.target.0, &k.target.1)?;
    let condition = match &k.if_cond {
        None => None,
        Some(e) => {
            c.free_temps();
            let start = c.here();
            let node = c.node(&e.kind, &e.value).at(|| "if_cond")?;
            let slot = c.condition(node).at(|| "if_cond")?;
            Some((c.since(start), slot))
        }
    };
    Ok(Checksum {
        calculation: names.calculation(&k.calculation)?,
        change: c.layout.changes(target.slot, target.limbs()),
        target,
        valid: c.layout.headers[c.layout.header(&k.target.0)?].base,
        condition,
    })
}

/// Resolves field lists; `what` they are is for errors.
fn field_lists(
    all: &[model::FieldList],
    what: &str,
    layout: &Layout,
) -> LoadResult<Vec<FieldList>> {
    let mut lists: Vec<FieldList> = Vec::new();
    for l in all {
        let place = || format!("{what} '{}'", l.name);
        let Ok(id) = u16::try_from(l.id) else {
            return Err(LoadError::new(format!("id {} is too large", l.id))).at(place);
        };
        if lists.iter().any(|other| other.id == id) {
            return Err(LoadError::new(format!("id {id} is used twice"))).at(place);
        }
        let mut fields = Vec::new();
        for e in &l.elements {
            match e.kind.as_str() {
                "field" => fields.push(layout.field_value(&e.value).at(place)?),
                // Constants keep nothing.
                "hexstr" => {}
                other => {
                    return Err(LoadError::new(format!(
                        "element of type '{other}' is not supported"
                    )))
                    .at(place);
                }
            }
        }
        lists.push(FieldList {
            id,
            fields: fields.into(),
        });
    }
    Ok(lists)
}

/// Headers that the switch itself writes to: none, of a program that p4c made.
fn always_changed(
    layout: &Layout,
    i: &Intrinsics,
    direct_meters: &HashMap<String, DirectMeterInfo>,
) -> Changes {
    let required = [
        i.ingress_port,
        i.packet_length,
        i.instance_type,
        i.egress_spec,
        i.egress_port,
    ];
    let optional = [
        i.parser_error,
        i.checksum_error,
        i.ingress_global_timestamp,
        i.egress_global_timestamp,
        i.mcast_grp,
        i.egress_rid,
        i.enq_timestamp,
        i.enq_qdepth,
        i.deq_timedelta,
        i.deq_qdepth,
        i.qid,
    ];
    let meters = direct_meters.values().map(|meter| meter.target);
    let all = required.into_iter().chain(optional.into_iter().flatten());
    all.chain(meters).fold(0, |all, field| {
        all | layout.changes(field.slot, field.limbs())
    })
}

fn errors(root: &Root) -> ErrorCodes {
    let code = |name: &str, otherwise: u64| {
        root.errors
            .iter()
            .find(|(n, _)| n == name)
            .map_or(otherwise, |&(_, code)| u64::from(code))
    };
    // The numbers p4c gives core.p4's errors, for a program that lists none.
    ErrorCodes {
        none: code("NoError", 0),
        packet_too_short: code("PacketTooShort", 1),
        stack_out_of_bounds: code("StackOutOfBounds", 3),
        header_too_short: code("HeaderTooShort", 4),
        parser_timeout: code("ParserTimeout", 5),
        parser_invalid_argument: code("ParserInvalidArgument", 6),
    }
}

fn intrinsics(layout: &Layout) -> LoadResult<Intrinsics> {
    let standard = |name: &str| -> LoadResult<Field> {
        match layout.intrinsic("standard_metadata", name)? {
            Some(f) if f.bits <= 64 => Ok(f),
            Some(_) => refuse!("field 'standard_metadata.{name}' is wider than 64 bits"),
            None => refuse!("field 'standard_metadata.{name}' is required by v1model"),
        }
    };
    let optional = |header: &str, name: &str| layout.intrinsic(header, name);
    Ok(Intrinsics {
        ingress_port: standard("ingress_port")?,
        packet_length: standard("packet_length")?,
        instance_type: standard("instance_type")?,
        egress_spec: standard("egress_spec")?,
        egress_port: standard("egress_port")?,
        parser_error: optional("standard_metadata", "parser_error")?,
        checksum_error: optional("standard_metadata", "checksum_error")?,
        ingress_global_timestamp: optional("intrinsic_metadata", "ingress_global_timestamp")?,
        egress_global_timestamp: optional("intrinsic_metadata", "egress_global_timestamp")?,
        mcast_grp: optional("intrinsic_metadata", "mcast_grp")?,
        egress_rid: optional("intrinsic_metadata", "egress_rid")?,
        enq_timestamp: optional("queueing_metadata", "enq_timestamp")?,
        enq_qdepth: optional("queueing_metadata", "enq_qdepth")?,
        deq_timedelta: optional("queueing_metadata", "deq_timedelta")?,
        deq_qdepth: optional("queueing_metadata", "deq_qdepth")?,
        qid: optional("queueing_metadata", "qid")?,
        priority: optional("intrinsic_metadata", "priority")?,
    })
}
