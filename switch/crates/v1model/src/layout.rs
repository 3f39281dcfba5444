//! Where every header and field lives: one flat array of 64-bit words per packet (the PHV).
//!
//! A header instance is a run of words: its validity (0 or 1), then its fields in order, each
//! on `ceil(width / 64)` words, little-endian limbs, unused high bits zero. A stack adds one
//! word, the index of its next element. The `$valid$` hidden field is the validity word.
//! Everything starts a packet as zero, so an uninitialised field or a field of an invalid
//! header reads 0 or, after `setInvalid`, its last value.

use crate::error::{At, LoadError, LoadResult, refuse};
use crate::model;
use crate::wide::limbs;
use serde_json::Value;
use std::collections::HashMap;

/// Widest field, in bits.
pub(crate) const MAX_FIELD_BITS: u32 = 2_048;
/// Most words of headers and metadata.
const MAX_PHV_WORDS: u32 = 1 << 15;
/// Longest header type in bits.
const MAX_HEADER_BITS: u32 = 1 << 16;
/// Most header instances, stacks and the like.
const MAX_OBJECTS: usize = 1 << 14;

/// One field of a header type.
#[derive(Debug, Clone)]
pub(crate) struct FieldType {
    pub name: String,
    pub bits: u32,
    pub signed: bool,
    /// Words after the header's base.
    pub offset: u32,
}

/// A header type.
#[derive(Debug, Clone)]
pub(crate) struct HeaderType {
    pub name: String,
    pub fields: Vec<FieldType>,
    /// Words of an instance, validity included.
    pub words: u32,
    /// Bits on the wire.
    pub bits: u32,
}

/// A header instance.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub name: String,
    pub kind: usize,
    /// Slot of the validity word.
    pub base: u32,
    pub metadata: bool,
}

/// A header stack.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub kind: usize,
    /// Bases of the elements.
    pub bases: Vec<u32>,
    /// Slot of the next-element counter.
    pub next: u32,
}

/// A resolved field: its slot, width and sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub slot: u32,
    pub bits: u32,
    pub signed: bool,
}

impl Field {
    /// Words the field takes.
    pub fn limbs(self) -> u32 {
        limbs(self.bits)
    }
}

/// All headers, stacks and fields of a program.
#[derive(Debug)]
pub(crate) struct Layout {
    pub types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    /// Words of headers, metadata and stack counters.
    pub words: u32,
    header_names: HashMap<String, usize>,
    stack_names: HashMap<String, usize>,
    aliases: HashMap<String, (String, String)>,
}

impl Layout {
    pub fn build(root: &model::Root) -> LoadResult<Self> {
        unsupported(
            &root.header_union_types,
            "header unions",
            "header_union_types",
        )?;
        unsupported(&root.header_unions, "header unions", "header_unions")?;
        unsupported(
            &root.header_union_stacks,
            "header unions",
            "header_union_stacks",
        )?;
        let mut types = Vec::new();
        let mut type_names = HashMap::new();
        for t in &root.header_types {
            let built = header_type(t).at(|| format!("header type '{}'", t.name))?;
            if type_names.insert(t.name.clone(), types.len()).is_some() {
                refuse!("header type '{}' is defined twice", t.name);
            }
            types.push(built);
        }
        let mut layout = Self {
            types,
            headers: Vec::new(),
            stacks: Vec::new(),
            words: 0,
            header_names: HashMap::new(),
            stack_names: HashMap::new(),
            aliases: root.field_aliases.iter().cloned().collect(),
        };
        if root.headers.len() > MAX_OBJECTS || root.header_stacks.len() > MAX_OBJECTS {
            refuse!("program has more than {MAX_OBJECTS} headers or stacks");
        }
        let mut ids = HashMap::new();
        for h in &root.headers {
            let place = || format!("header '{}'", h.name);
            let Some(&kind) = type_names.get(&h.header_type) else {
                return Err(LoadError::new(format!(
                    "unknown header type '{}'",
                    h.header_type
                )))
                .at(place);
            };
            let index = layout.headers.len();
            if layout.header_names.insert(h.name.clone(), index).is_some() {
                return Err(LoadError::new("is defined twice")).at(place);
            }
            if ids.insert(h.id, index).is_some() {
                return Err(LoadError::new(format!("id {} is used twice", h.id))).at(place);
            }
            if !h.metadata && !layout.types[kind].bits.is_multiple_of(8) {
                let bits = layout.types[kind].bits;
                return Err(LoadError::new(format!(
                    "is {bits} bits long, not a whole number of bytes"
                )))
                .at(place);
            }
            let base = layout.reserve(layout.types[kind].words).at(place)?;
            layout.headers.push(Header {
                name: h.name.clone(),
                kind,
                base,
                metadata: h.metadata,
            });
        }
        for s in &root.header_stacks {
            let stack = layout
                .stack_of(s, &ids)
                .at(|| format!("header stack '{}'", s.name))?;
            layout
                .stack_names
                .insert(s.name.clone(), layout.stacks.len());
            layout.stacks.push(stack);
        }
        Ok(layout)
    }

    fn stack_of(&mut self, s: &model::HeaderStack, ids: &HashMap<u32, usize>) -> LoadResult<Stack> {
        let mut elements = Vec::new();
        for id in &s.header_ids {
            match ids.get(id).map(|&h| &self.headers[h]) {
                Some(h) => elements.push((h.base, h.kind)),
                None => refuse!("unknown header id {id}"),
            }
        }
        let Some(&(_, kind)) = elements.first() else {
            refuse!("has no elements");
        };
        if elements.iter().any(|&(_, k)| k != kind) {
            refuse!("mixes header types");
        }
        Ok(Stack {
            kind,
            bases: elements.into_iter().map(|(base, _)| base).collect(),
            next: self.reserve(1)?,
        })
    }

    fn reserve(&mut self, words: u32) -> LoadResult<u32> {
        let base = self.words;
        self.words += words;
        if self.words > MAX_PHV_WORDS {
            refuse!("headers and metadata need more than {MAX_PHV_WORDS} words");
        }
        Ok(base)
    }

    pub fn header(&self, name: &str) -> LoadResult<usize> {
        match self.header_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header '{name}'"),
        }
    }

    pub fn stack(&self, name: &str) -> LoadResult<usize> {
        match self.stack_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header stack '{name}'"),
        }
    }

    pub fn field(&self, header: &str, field: &str) -> LoadResult<Field> {
        let h = &self.headers[self.header(header)?];
        self.field_of(h.kind, h.base, field)
            .ok_or_else(|| LoadError::new(format!("header '{header}' has no field '{field}'")))
    }

    /// A field of type `kind` at `base`, or relative to a header when `base` is 0.
    pub fn field_of(&self, kind: usize, base: u32, field: &str) -> Option<Field> {
        if field == "$valid$" {
            return Some(Field {
                slot: base,
                bits: 1,
                signed: false,
            });
        }
        let f = self.types[kind].fields.iter().find(|f| f.name == field)?;
        Some(Field {
            slot: base + f.offset,
            bits: f.bits,
            signed: f.signed,
        })
    }

    /// A field given as the JSON pair `[header, field]`.
    pub fn field_value(&self, value: &Value) -> LoadResult<Field> {
        let (header, field) = pair(value)?;
        self.field(header, field)
    }

    /// A field the switch itself uses, under simple_switch's name or its alias.
    pub fn intrinsic(&self, header: &str, field: &str) -> LoadResult<Option<Field>> {
        if let Some((h, f)) = self.aliases.get(&format!("{header}.{field}")) {
            return self
                .field(h, f)
                .map(Some)
                .at(|| format!("field alias '{header}.{field}'"));
        }
        Ok(self.field(header, field).ok())
    }
}

/// The JSON pair `["header", "field"]`.
pub(crate) fn pair(value: &Value) -> LoadResult<(&str, &str)> {
    if let Some([a, b]) = value.as_array().map(Vec::as_slice)
        && let (Some(a), Some(b)) = (a.as_str(), b.as_str())
    {
        return Ok((a, b));
    }
    refuse!("expected a pair of names, found {value}")
}

/// Refuses a non-empty JSON array of a feature that is not implemented.
pub(crate) fn unsupported(list: &[Value], feature: &str, key: &str) -> LoadResult<()> {
    if list.is_empty() {
        Ok(())
    } else {
        refuse!("{feature} are not supported yet ({key})")
    }
}

fn header_type(t: &model::HeaderType) -> LoadResult<HeaderType> {
    let mut fields: Vec<FieldType> = Vec::new();
    let (mut offset, mut total) = (1u32, 0u32);
    for field in &t.fields {
        let Some(name) = field.first().and_then(Value::as_str) else {
            refuse!("a field has no name");
        };
        let bits = match field.get(1) {
            Some(Value::String(s)) if s == "*" => {
                refuse!("field '{name}': variable-length fields (varbit) are not supported yet")
            }
            Some(v) => v
                .as_u64()
                .and_then(|b| u32::try_from(b).ok())
                .ok_or_else(|| LoadError::new(format!("field '{name}': width {v} is no number")))?,
            None => refuse!("field '{name}' has no width"),
        };
        if !(1..=MAX_FIELD_BITS).contains(&bits) {
            refuse!("field '{name}': width {bits} is outside 1 to {MAX_FIELD_BITS} bits");
        }
        let signed = field.get(2).and_then(Value::as_bool).unwrap_or(false);
        if fields.iter().any(|f| f.name == name) {
            refuse!("field '{name}' is defined twice");
        }
        fields.push(FieldType {
            name: name.to_owned(),
            bits,
            signed,
            offset,
        });
        offset += limbs(bits);
        total += bits;
        if total > MAX_HEADER_BITS {
            refuse!("is wider than {MAX_HEADER_BITS} bits");
        }
    }
    Ok(HeaderType {
        name: t.name.clone(),
        fields,
        words: offset,
        bits: total,
    })
}
