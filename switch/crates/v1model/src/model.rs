//! BMv2 JSON as p4c-bm2-ss writes it (format 2.x, behavioral-model `docs/JSON_format.md`).
//!
//! This module checks only shapes; `compile` resolves names and ids. Polymorphic "type value"
//! objects stay JSON values until their context is known.

use crate::error::{LoadError, LoadResult, refuse};
use crate::source_info::SourceInfo;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Deepest nesting of arrays and objects that is accepted; p4c needs about four levels per
/// operator of an expression.
const MAX_NESTING: usize = 2_048;

#[derive(Debug, Deserialize)]
pub(crate) struct Root {
    #[serde(rename = "__meta__")]
    pub meta: Meta,
    pub header_types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    #[serde(default)]
    pub header_stacks: Vec<HeaderStack>,
    #[serde(default)]
    pub header_union_types: Vec<HeaderUnionType>,
    #[serde(default)]
    pub header_unions: Vec<HeaderUnion>,
    #[serde(default)]
    pub header_union_stacks: Vec<HeaderUnionStack>,
    #[serde(default)]
    pub field_lists: Vec<FieldList>,
    #[serde(default)]
    pub learn_lists: Vec<FieldList>,
    #[serde(default)]
    pub errors: Vec<(String, u32)>,
    pub parsers: Vec<Parser>,
    #[serde(default)]
    pub parse_vsets: Vec<ParseVset>,
    pub deparsers: Vec<Deparser>,
    #[serde(default)]
    pub meter_arrays: Vec<MeterArray>,
    #[serde(default)]
    pub counter_arrays: Vec<CounterArray>,
    #[serde(default)]
    pub register_arrays: Vec<RegisterArray>,
    #[serde(default)]
    pub calculations: Vec<Calculation>,
    #[serde(default)]
    pub actions: Vec<Action>,
    pub pipelines: Vec<Pipeline>,
    #[serde(default)]
    pub checksums: Vec<Checksum>,
    #[serde(default)]
    pub extern_instances: Vec<ExternInstance>,
    #[serde(default)]
    pub field_aliases: Vec<(String, (String, String))>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Meta {
    pub version: (u32, u32),
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderType {
    pub name: String,
    pub fields: Vec<Vec<Value>>,
    /// Bytes of the longest instance, where a field is variable.
    pub max_length: Option<u32>,
    /// Only in programs that were P4_14.
    #[serde(default)]
    pub length_exp: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub name: String,
    pub id: u32,
    pub header_type: String,
    pub metadata: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderStack {
    pub name: String,
    pub header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderUnionType {
    pub name: String,
    /// Name and header type of each member.
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderUnion {
    pub name: String,
    pub id: u32,
    pub union_type: String,
    pub header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct HeaderUnionStack {
    pub name: String,
    pub union_type: String,
    pub header_union_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ParseVset {
    pub name: String,
    pub compressed_bitwidth: u32,
    pub max_size: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FieldList {
    pub id: u32,
    pub name: String,
    pub elements: Vec<TypeValue>,
}

/// `{"type": .., "value": ..}`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TypeValue {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub value: Value,
    pub bitwidth: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Parser {
    pub name: String,
    #[serde(default)]
    pub id: u32,
    pub init_state: Option<String>,
    pub parse_states: Vec<ParseState>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ParseState {
    pub name: String,
    pub parser_ops: Vec<ParserOp>,
    pub transitions: Vec<Transition>,
    pub transition_key: Vec<TypeValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ParserOp {
    pub op: String,
    pub parameters: Vec<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Transition {
    #[serde(rename = "type")]
    pub kind: String,
    pub value: Option<String>,
    pub mask: Option<String>,
    pub next_state: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Deparser {
    pub name: String,
    #[serde(default)]
    pub id: u32,
    pub order: Vec<String>,
    #[serde(default)]
    pub primitives: Vec<Primitive>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MeterArray {
    pub name: String,
    pub is_direct: bool,
    #[serde(rename = "type")]
    pub unit: String,
    pub rate_count: Option<u32>,
    pub size: Option<usize>,
    pub result_target: Option<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CounterArray {
    pub name: String,
    pub is_direct: bool,
    pub size: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RegisterArray {
    pub name: String,
    pub size: usize,
    pub bitwidth: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Calculation {
    pub name: String,
    pub algo: String,
    pub input: Vec<TypeValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Action {
    pub name: String,
    pub id: u32,
    pub runtime_data: Vec<RuntimeData>,
    pub primitives: Vec<Primitive>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RuntimeData {
    pub name: String,
    pub bitwidth: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Primitive {
    pub op: String,
    #[serde(default)]
    pub parameters: Vec<TypeValue>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pipeline {
    pub name: String,
    #[serde(default)]
    pub id: u32,
    pub init_table: Option<String>,
    pub tables: Vec<Table>,
    #[serde(default)]
    pub action_profiles: Vec<ActionProfile>,
    #[serde(default)]
    pub conditionals: Vec<Conditional>,
    #[serde(default)]
    pub action_calls: Vec<ActionCallNode>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionProfile {
    pub name: String,
    pub max_size: Option<usize>,
    pub selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Selector {
    pub algo: String,
    pub input: Vec<TypeValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Table {
    #[serde(default)]
    pub id: u32,
    pub name: String,
    pub key: Vec<TableKey>,
    #[serde(rename = "type")]
    pub kind: String,
    pub max_size: usize,
    #[serde(default)]
    pub with_counters: bool,
    #[serde(default)]
    pub support_timeout: bool,
    pub direct_meters: Option<String>,
    pub action_profile: Option<String>,
    pub action_ids: Vec<u32>,
    pub base_default_next: Option<String>,
    #[serde(default)]
    pub next_tables: BTreeMap<String, Option<String>>,
    pub default_entry: Option<DefaultEntry>,
    pub entries: Option<Vec<ConstEntry>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TableKey {
    pub match_type: String,
    pub name: Option<String>,
    pub target: Value,
    pub mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DefaultEntry {
    pub action_id: u32,
    #[serde(default)]
    pub action_const: bool,
    #[serde(default)]
    pub action_data: Vec<String>,
    #[serde(default)]
    pub action_entry_const: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConstEntry {
    pub match_key: Vec<ConstMatch>,
    pub action_entry: ActionEntry,
    pub priority: Option<i32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConstMatch {
    pub match_type: String,
    pub key: Option<Value>,
    pub mask: Option<String>,
    pub prefix_length: Option<u32>,
    pub start: Option<String>,
    pub end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionEntry {
    pub action_id: u32,
    pub action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Conditional {
    pub name: String,
    #[serde(default)]
    pub id: u32,
    pub expression: TypeValue,
    pub true_next: Option<String>,
    pub false_next: Option<String>,
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ActionCallNode {
    pub name: String,
    pub action_id: u32,
    pub next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Checksum {
    pub name: String,
    pub target: (String, String),
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub calculation: String,
    #[serde(default = "yes")]
    pub update: bool,
    #[serde(default = "yes")]
    pub verify: bool,
    pub if_cond: Option<TypeValue>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(crate) struct ExternInstance {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// Finds the object with a name that the target fixes.
pub(crate) fn by_name<'r, T>(
    list: &'r [T],
    name: &str,
    name_of: impl Fn(&T) -> &String,
) -> LoadResult<&'r T> {
    match list.iter().find(|x| name_of(x) == name) {
        Some(found) => Ok(found),
        None => refuse!("there is no object named '{name}' (v1model has one)"),
    }
}

/// Reads the JSON. Errors carry the path of the offending value (`pipelines[0].tables[3].key`).
pub(crate) fn parse(text: &[u8]) -> LoadResult<Root> {
    check_nesting(text)?;
    let mut json = serde_json::Deserializer::from_slice(text);
    // The nesting was bounded above and the caller gives this thread enough stack.
    json.disable_recursion_limit();
    let root: Root = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        let inner = e.into_inner();
        LoadError::new(if path == "." || path == "?" {
            format!("not BMv2 JSON: {inner}")
        } else {
            format!("JSON path {path}: {inner}")
        })
    })?;
    json.end()
        .map_err(|e| LoadError::new(format!("not BMv2 JSON: {e}")))?;
    if root.meta.version.0 != 2 {
        let (major, minor) = root.meta.version;
        refuse!("JSON path __meta__.version: format {major}.{minor} is not supported, 2.x is");
    }
    Ok(root)
}

/// Refuses text nested deeper than [`MAX_NESTING`], so that recursion over it is bounded.
fn check_nesting(text: &[u8]) -> LoadResult<()> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_NESTING {
                    refuse!("JSON is nested deeper than {MAX_NESTING} levels");
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}
