//! Where every header and field lives: one flat array of 64-bit words per packet (the PHV).
//!
//! A header instance is a run of words: its validity (0 or 1), then its fields in order, each
//! on `ceil(width / 64)` words, little-endian limbs, unused high bits zero. A stack adds one
//! word, the index of its next element. The `$valid$` hidden field is the validity word.
//! Everything starts a packet as zero, so an uninitialised field or a field of an invalid
//! header reads 0 or, after `setInvalid`, its last value.

use crate::error::{At, LoadError, LoadResult, refuse};
use crate::model;
use crate::slot::{Changes, OTHERS, RESHAPED, Slot};
use crate::wide::limbs;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Widest field, in bits.
pub(crate) const MAX_FIELD_BITS: u32 = 2_048;
/// Most words of headers and metadata.
const MAX_PHV_WORDS: u32 = 1 << 15;
/// Longest header type in bits.
const MAX_HEADER_BITS: u32 = 1 << 16;
/// Most header instances, stacks and the like.
const MAX_OBJECTS: usize = 1 << 14;

/// Longest variable field, in bits.
const MAX_VARIABLE_BITS: u32 = 1 << 15;

/// One field of a header type.
#[derive(Debug, Clone)]
pub(crate) struct FieldType {
    pub name: String,
    /// Width; of a variable field, the largest.
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
    /// Bits on the wire, without the variable field.
    pub bits: u32,
    /// The variable field, if there is one.
    pub variable: Option<Variable>,
}

/// A header type's variable-length field. Its value stands right-aligned, zero-extended, on the
/// words of the largest width; the bits it has now stand in a word of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Index into the type's fields.
    pub field: usize,
    /// Words after the header's base: the length now, in bits.
    pub length: u32,
}

/// A header instance.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub name: String,
    pub kind: usize,
    /// Slot of the validity word.
    pub base: u32,
    pub metadata: bool,
    /// The union this is a member of.
    pub union: Option<usize>,
}

/// A header union: at most one of its members is valid.
#[derive(Debug, Clone)]
pub(crate) struct Union {
    pub kind: usize,
    /// Headers of the members.
    pub members: Vec<usize>,
}

/// A stack of unions. The members of one name in all elements make a header stack of their own;
/// these stacks share the next-element counter.
#[derive(Debug, Clone)]
pub(crate) struct UnionStack {
    pub kind: usize,
    /// One header stack per member.
    pub stacks: Vec<usize>,
}

/// A header stack.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub kind: usize,
    /// Bases of the elements.
    pub bases: Vec<u32>,
    /// Slot of the next-element counter.
    pub next: u32,
    /// The stack of unions this belongs to.
    pub union: Option<usize>,
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

#[derive(Debug, Default)]
struct Named {
    slots: HashSet<u32>,
    headers: HashSet<usize>,
}

/// All headers, stacks and fields of a program.
#[derive(Debug)]
pub(crate) struct Layout {
    pub types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub union_stacks: Vec<UnionStack>,
    /// Words of headers, metadata and stack counters.
    pub words: u32,
    /// What a change of each header is noted as.
    pub masks: Vec<Changes>,
    /// What the program names: slots of fields, and headers as a whole.
    named: RefCell<Named>,
    header_names: HashMap<String, usize>,
    stack_names: HashMap<String, usize>,
    /// Names of the members of each union type.
    union_types: Vec<Vec<String>>,
    union_names: HashMap<String, usize>,
    union_stack_names: HashMap<String, usize>,
    aliases: HashMap<String, (String, String)>,
}

impl Layout {
    pub fn build(root: &model::Root) -> LoadResult<Self> {
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
            unions: Vec::new(),
            union_stacks: Vec::new(),
            words: 0,
            masks: Vec::new(),
            named: RefCell::default(),
            header_names: HashMap::new(),
            stack_names: HashMap::new(),
            union_types: Vec::new(),
            union_names: HashMap::new(),
            union_stack_names: HashMap::new(),
            aliases: root.field_aliases.iter().cloned().collect(),
        };
        let objects = [
            root.headers.len(),
            root.header_stacks.len(),
            root.header_unions.len(),
            root.header_union_stacks.len(),
        ];
        if objects.iter().any(|&n| n > MAX_OBJECTS) {
            refuse!("program has more than {MAX_OBJECTS} headers, unions or stacks");
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
                union: None,
            });
        }
        layout.masks = change_masks(&layout.headers, &layout.types);
        for s in &root.header_stacks {
            let stack = layout
                .stack_of(s, &ids)
                .at(|| format!("header stack '{}'", s.name))?;
            layout
                .stack_names
                .insert(s.name.clone(), layout.stacks.len());
            layout.stacks.push(stack);
        }
        layout.build_unions(root, &ids)?;
        Ok(layout)
    }

    fn build_unions(&mut self, root: &model::Root, ids: &HashMap<u32, usize>) -> LoadResult<()> {
        let mut kinds = HashMap::new();
        for t in &root.header_union_types {
            kinds.insert(t.name.as_str(), self.union_types.len());
            self.union_types
                .push(t.headers.iter().map(|(name, _)| name.clone()).collect());
        }
        let kind_of = |name: &str| match kinds.get(name) {
            Some(&kind) => Ok(kind),
            None => refuse!("unknown header union type '{name}'"),
        };
        let mut union_ids = HashMap::new();
        for u in &root.header_unions {
            let place = || format!("header union '{}'", u.name);
            let kind = kind_of(&u.union_type).at(place)?;
            let index = self.unions.len();
            let mut members = Vec::new();
            for id in &u.header_ids {
                let Some(header) = ids.get(id).copied() else {
                    return Err(LoadError::new(format!("unknown header id {id}"))).at(place);
                };
                if self.headers[header].union.replace(index).is_some() {
                    return Err(LoadError::new("shares a header with another union")).at(place);
                }
                members.push(header);
            }
            if members.len() != self.union_types[kind].len() {
                return Err(LoadError::new("has not as many headers as its type")).at(place);
            }
            union_ids.insert(u.id, index);
            self.union_names.insert(u.name.clone(), index);
            self.unions.push(Union { kind, members });
        }
        for s in &root.header_union_stacks {
            let stack = self
                .union_stack_of(s, kind_of(&s.union_type)?, &union_ids)
                .at(|| format!("header union stack '{}'", s.name))?;
            self.union_stack_names
                .insert(s.name.clone(), self.union_stacks.len());
            self.union_stacks.push(stack);
        }
        Ok(())
    }

    fn union_stack_of(
        &mut self,
        s: &model::HeaderUnionStack,
        kind: usize,
        ids: &HashMap<u32, usize>,
    ) -> LoadResult<UnionStack> {
        let mut unions = Vec::new();
        for id in &s.header_union_ids {
            match ids.get(id) {
                Some(&union) if self.unions[union].kind == kind => unions.push(union),
                Some(_) => refuse!("mixes header union types"),
                None => refuse!("unknown header union id {id}"),
            }
        }
        if unions.is_empty() {
            refuse!("has no elements");
        }
        let next = self.reserve(1)?;
        let mut stacks = Vec::new();
        for member in 0..self.union_types[kind].len() {
            let headers = unions.iter().map(|&u| self.unions[u].members[member]);
            let headers: Vec<&Header> = headers.map(|h| &self.headers[h]).collect();
            let header_kind = headers[0].kind;
            if headers.iter().any(|h| h.kind != header_kind) {
                refuse!("mixes header types");
            }
            let stack = Stack {
                kind: header_kind,
                bases: headers.iter().map(|h| h.base).collect(),
                next,
                union: Some(self.union_stacks.len()),
            };
            stacks.push(self.stacks.len());
            self.stacks.push(stack);
        }
        Ok(UnionStack { kind, stacks })
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
            union: None,
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

    /// The index of the header at `base`.
    pub fn header_at(&self, base: u32) -> u16 {
        let index = self.headers.partition_point(|h| h.base < base);
        // There are at most MAX_OBJECTS of them.
        u16::try_from(index).unwrap_or(u16::MAX)
    }

    /// What writing `words` words from `slot` on changes of the headers.
    pub fn changes(&self, slot: u32, words: u32) -> Changes {
        changes_of_words(&self.headers, &self.types, &self.masks, slot, words)
    }

    pub fn header(&self, name: &str) -> LoadResult<usize> {
        let index = self.header_called(name)?;
        self.named.borrow_mut().headers.insert(index);
        Ok(index)
    }

    /// The same, for the switch's own use.
    fn header_called(&self, name: &str) -> LoadResult<usize> {
        match self.header_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header '{name}'"),
        }
    }

    /// Has the program named this field, or its header?
    pub fn is_named(&self, field: Field) -> bool {
        let named = self.named.borrow();
        let index = usize::from(self.header_at(field.slot + 1)).checked_sub(1);
        named.slots.contains(&field.slot)
            || index.is_none_or(|index| named.headers.contains(&index))
    }

    pub fn stack(&self, name: &str) -> LoadResult<usize> {
        match self.stack_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header stack '{name}'"),
        }
    }

    pub fn union(&self, name: &str) -> LoadResult<usize> {
        match self.union_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header union '{name}'"),
        }
    }

    pub fn union_stack(&self, name: &str) -> LoadResult<usize> {
        match self.union_stack_names.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown header union stack '{name}'"),
        }
    }

    /// The header stack of the members called `member` of a stack of unions.
    pub fn member_stack(&self, union_stack: &str, member: &str) -> LoadResult<usize> {
        let stack = &self.union_stacks[self.union_stack(union_stack)?];
        let names = &self.union_types[stack.kind];
        match names.iter().position(|name| name == member) {
            Some(index) => Ok(stack.stacks[index]),
            None => refuse!("header union stack '{union_stack}' has no member '{member}'"),
        }
    }

    /// The variable-length field `[header, field]` and the slot of its length; `None` for any
    /// other field.
    pub fn variable(&self, header: &str, field: &str) -> LoadResult<Option<(Field, u32)>> {
        let h = &self.headers[self.header_called(header)?];
        let kind = &self.types[h.kind];
        Ok(kind.variable.and_then(|v| {
            let found = kind.fields.get(v.field).filter(|f| f.name == field)?;
            let field = Field {
                slot: h.base + found.offset,
                bits: found.bits,
                signed: false,
            };
            Some((field, h.base + v.length))
        }))
    }

    pub fn field(&self, header: &str, field: &str) -> LoadResult<Field> {
        let found = self.field_called(header, field)?;
        self.named.borrow_mut().slots.insert(found.slot);
        Ok(found)
    }

    /// The same, for the switch's own use.
    fn field_called(&self, header: &str, field: &str) -> LoadResult<Field> {
        let h = &self.headers[self.header_called(header)?];
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
                .field_called(h, f)
                .map(Some)
                .at(|| format!("field alias '{header}.{field}'"));
        }
        Ok(self.field_called(header, field).ok())
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

fn header_type(t: &model::HeaderType) -> LoadResult<HeaderType> {
    let is_variable = |field: &[Value]| field.get(1).and_then(Value::as_str) == Some("*");
    let number = |v: &Value| v.as_u64().and_then(|b| u32::try_from(b).ok());
    if !t.length_exp.is_null() {
        refuse!("a length expression in the header type (P4_14) is not supported (length_exp)");
    }
    let fixed_bits: u64 = t
        .fields
        .iter()
        .filter_map(|f| f.get(1).and_then(Value::as_u64))
        .fold(0, u64::saturating_add);
    let mut fields: Vec<FieldType> = Vec::new();
    let mut variable = None;
    let (mut offset, mut total) = (1u32, 0u32);
    for field in &t.fields {
        let Some(name) = field.first().and_then(Value::as_str) else {
            refuse!("a field has no name");
        };
        let place = || format!("field '{name}'");
        let bits = if is_variable(field) {
            if variable.is_some() {
                refuse!("has more than one variable-length field");
            }
            let longest = u64::from(t.max_length.unwrap_or(0)) * 8;
            let most = u64::from(MAX_VARIABLE_BITS);
            let bits = longest.saturating_sub(fixed_bits);
            if !(1..=most).contains(&bits) {
                return Err(LoadError::new(format!(
                    "a variable-length field of {bits} bits at most; 1 to {most} are possible"
                )))
                .at(place);
            }
            variable = Some(Variable {
                field: fields.len(),
                length: offset,
            });
            offset += 1;
            bits as u32
        } else {
            let bits = match field.get(1) {
                Some(v) => number(v).ok_or_else(|| {
                    LoadError::new(format!("field '{name}': width {v} is no number"))
                })?,
                None => refuse!("field '{name}' has no width"),
            };
            if !(1..=MAX_FIELD_BITS).contains(&bits) {
                refuse!("field '{name}': width {bits} is outside 1 to {MAX_FIELD_BITS} bits");
            }
            total += bits;
            if total > MAX_HEADER_BITS {
                refuse!("is wider than {MAX_HEADER_BITS} bits");
            }
            bits
        };
        // 1 and true alike: p4c writes both.
        let signed = field
            .get(2)
            .is_some_and(|v| v.as_bool().unwrap_or(v.as_u64().is_some_and(|n| n != 0)));
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
    }
    Ok(HeaderType {
        name: t.name.clone(),
        fields,
        words: offset,
        bits: total,
        variable,
    })
}

/// Words a field list's fields take.
pub(crate) fn list_words(fields: &[Field]) -> usize {
    fields.iter().map(|f| limbs(f.bits) as usize).sum()
}

/// The bit that stands for a change of each header; none for metadata.
fn change_masks(headers: &[Header], types: &[HeaderType]) -> Vec<Changes> {
    let mut next = 0;
    let mask = |header: &Header| {
        if header.metadata {
            return 0;
        }
        let bit = next.min(OTHERS);
        next += 1;
        // Its length may change with it.
        match types[header.kind].variable {
            Some(_) => RESHAPED,
            None => 1 << bit,
        }
    };
    headers.iter().map(mask).collect()
}

/// The headers that writing `words` words from `slot` on changes. `headers` are in order of their bases.
fn changes_of_words(
    headers: &[Header],
    types: &[HeaderType],
    masks: &[Changes],
    slot: Slot,
    words: u32,
) -> Changes {
    let end = slot.saturating_add(words);
    let first = headers.partition_point(|h| h.base + types[h.kind].words <= slot);
    let written = headers.iter().zip(masks).skip(first);
    written
        .take_while(|(h, _)| h.base < end)
        .fold(0, |all, (h, &mask)| {
            // A write of its validity adds or removes it.
            let validity = mask != 0 && (slot..end).contains(&h.base);
            all | mask | if validity { RESHAPED } else { 0 }
        })
}
