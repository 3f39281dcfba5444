//! The places of all headers and fields: one flat array of 64-bit words per packet (the PHV).
//!
//! A header instance is a run of words: its validity (0 or 1), then its fields in order, each
//! on `ceil(width / 64)` words, little-endian limbs, unused high bits zero. A stack adds one
//! word, the index of its next element. The `$valid$` hidden field is the validity word.
//! Everything starts a packet as zero, so an uninitialised field or a field of an invalid
//! header reads 0 or, after `setInvalid`, its last value.

use crate::error::{At, LoadError, LoadResult, refuse};
use crate::model;
use crate::names::{MAX_OBJECTS, Names};
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
/// Most header stacks, with those of the members of stacks of unions.
const MAX_STACKS: usize = 1 << 15;
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

impl FieldType {
    /// The field of the header at `base`.
    pub fn at(&self, base: u32) -> Field {
        Field {
            slot: base + self.offset,
            bits: self.bits,
            signed: self.signed,
        }
    }
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
    /// The bit that stands for a change of the header; none for metadata.
    pub change: Changes,
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

/// The names in the program: slots of fields, and headers as a whole.
#[derive(Debug, Default)]
struct Named {
    slots: HashSet<u32>,
    headers: HashSet<usize>,
}

/// All headers, stacks and fields of a program.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub types: Vec<HeaderType>,
    pub headers: Vec<Header>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub union_stacks: Vec<UnionStack>,
    /// Words of headers, metadata and stack counters.
    pub words: u32,
    named: RefCell<Named>,
    header_names: Names,
    stack_names: Names,
    /// Names of the members of each union type.
    union_types: Vec<Vec<String>>,
    union_names: Names,
    union_stack_names: Names,
    aliases: HashMap<String, (String, String)>,
}

impl Layout {
    /// Lays out all headers of a program.
    pub fn build(root: &model::Root) -> LoadResult<Self> {
        let mut layout = Self {
            aliases: root.field_aliases.iter().cloned().collect(),
            ..Self::default()
        };
        let mut type_names = Names::default();
        for t in &root.header_types {
            let place = || format!("header type '{}'", t.name);
            layout.types.push(header_type(t).at(place)?);
            type_names.add(&t.name).at(place)?;
        }
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
            layout
                .add_header(h, &type_names, &mut ids)
                .at(|| format!("header '{}'", h.name))?;
        }
        layout.set_changes();
        for s in &root.header_stacks {
            layout
                .add_stack(s, &ids)
                .at(|| format!("header stack '{}'", s.name))?;
        }
        layout.build_unions(root, &ids)?;
        Ok(layout)
    }

    fn add_header(
        &mut self,
        h: &model::Header,
        type_names: &Names,
        ids: &mut HashMap<u32, usize>,
    ) -> LoadResult<()> {
        let kind = type_names.find("header type", &h.header_type)?;
        let index = self.header_names.add(&h.name)?;
        if ids.insert(h.id, index).is_some() {
            refuse!("id {} is used twice", h.id);
        }
        let HeaderType { bits, words, .. } = self.types[kind];
        if !h.metadata && !bits.is_multiple_of(8) {
            refuse!("is {bits} bits long, not a whole number of bytes");
        }
        let base = self.reserve(words)?;
        self.headers.push(Header {
            name: h.name.clone(),
            kind,
            base,
            metadata: h.metadata,
            union: None,
            change: 0,
        });
        Ok(())
    }

    /// Gives each header the bit that stands for a change of it.
    fn set_changes(&mut self) {
        let packet_headers = self.headers.iter_mut().filter(|h| !h.metadata);
        for (number, header) in (0..).zip(packet_headers) {
            header.change = match self.types[header.kind].variable {
                // Its length may change with it.
                Some(_) => RESHAPED,
                None => 1 << OTHERS.min(number),
            };
        }
    }

    fn build_unions(&mut self, root: &model::Root, ids: &HashMap<u32, usize>) -> LoadResult<()> {
        let mut kinds = Names::default();
        for t in &root.header_union_types {
            let place = || format!("header union type '{}'", t.name);
            kinds.add(&t.name).at(place)?;
            let members = t.headers.iter().map(|(name, _)| name.clone());
            self.union_types.push(members.collect());
        }
        let mut union_ids = HashMap::new();
        for u in &root.header_unions {
            let index = self
                .add_union(u, &kinds, ids)
                .at(|| format!("header union '{}'", u.name))?;
            union_ids.insert(u.id, index);
        }
        for s in &root.header_union_stacks {
            self.add_union_stack(s, &kinds, &union_ids)
                .at(|| format!("header union stack '{}'", s.name))?;
        }
        Ok(())
    }

    fn add_union(
        &mut self,
        u: &model::HeaderUnion,
        kinds: &Names,
        ids: &HashMap<u32, usize>,
    ) -> LoadResult<usize> {
        let kind = kinds.find("header union type", &u.union_type)?;
        let index = self.union_names.add(&u.name)?;
        let mut members = Vec::new();
        for id in &u.header_ids {
            let Some(header) = ids.get(id).copied() else {
                refuse!("unknown header id {id}");
            };
            if self.headers[header].union.replace(index).is_some() {
                refuse!("shares a header with another union");
            }
            members.push(header);
        }
        if members.len() != self.union_types[kind].len() {
            refuse!("has not as many headers as its type");
        }
        self.unions.push(Union { kind, members });
        Ok(index)
    }

    fn add_union_stack(
        &mut self,
        s: &model::HeaderUnionStack,
        kinds: &Names,
        ids: &HashMap<u32, usize>,
    ) -> LoadResult<()> {
        let kind = kinds.find("header union type", &s.union_type)?;
        self.union_stack_names.add(&s.name)?;
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
        if self.stacks.len() > MAX_STACKS {
            refuse!(
                "program has more than {MAX_STACKS} stacks of headers and of members of unions"
            );
        }
        self.union_stacks.push(UnionStack { kind, stacks });
        Ok(())
    }

    fn add_stack(&mut self, s: &model::HeaderStack, ids: &HashMap<u32, usize>) -> LoadResult<()> {
        self.stack_names.add(&s.name)?;
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
        let next = self.reserve(1)?;
        self.stacks.push(Stack {
            kind,
            bases: elements.into_iter().map(|(base, _)| base).collect(),
            next,
            union: None,
        });
        Ok(())
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
        const { assert!(MAX_OBJECTS <= u16::MAX as usize) };
        index as u16
    }

    /// The headers that writing `words` words from `slot` on changes.
    pub fn changes(&self, slot: Slot, words: u32) -> Changes {
        let end = slot.saturating_add(words);
        let ends_before = |h: &Header| h.base + self.types[h.kind].words <= slot;
        let first = self.headers.partition_point(ends_before);
        let written = self.headers.iter().skip(first);
        written.take_while(|h| h.base < end).fold(0, |all, h| {
            // A write of its validity adds or removes it.
            let validity = h.change != 0 && (slot..end).contains(&h.base);
            all | h.change | if validity { RESHAPED } else { 0 }
        })
    }

    /// Finds a header, and notes that the program names it.
    pub fn header(&self, name: &str) -> LoadResult<usize> {
        let index = self.header_for_switch(name)?;
        self.named.borrow_mut().headers.insert(index);
        Ok(index)
    }

    /// Finds a header for the switch's own use.
    fn header_for_switch(&self, name: &str) -> LoadResult<usize> {
        self.header_names.find("header", name)
    }

    /// Whether the program names this field, or its header.
    pub fn is_named(&self, field: Field) -> bool {
        let named = self.named.borrow();
        let index = usize::from(self.header_at(field.slot + 1)).checked_sub(1);
        named.slots.contains(&field.slot)
            || index.is_none_or(|index| named.headers.contains(&index))
    }

    /// Finds a header stack.
    pub fn stack(&self, name: &str) -> LoadResult<usize> {
        self.stack_names.find("header stack", name)
    }

    /// Finds a header union.
    pub fn union(&self, name: &str) -> LoadResult<usize> {
        self.union_names.find("header union", name)
    }

    /// Finds a stack of header unions.
    pub fn union_stack(&self, name: &str) -> LoadResult<usize> {
        self.union_stack_names.find("header union stack", name)
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
        let h = &self.headers[self.header_for_switch(header)?];
        let kind = &self.types[h.kind];
        Ok(kind.variable.and_then(|v| {
            let found = kind.fields.get(v.field).filter(|f| f.name == field)?;
            Some((found.at(h.base), h.base + v.length))
        }))
    }

    /// Finds a field, and notes that the program names it.
    pub fn field(&self, header: &str, field: &str) -> LoadResult<Field> {
        let found = self.field_for_switch(header, field)?;
        self.named.borrow_mut().slots.insert(found.slot);
        Ok(found)
    }

    /// The slot of a header's validity; metadata have none.
    pub fn validity(&self, header: &str) -> LoadResult<Option<Slot>> {
        let header = &self.headers[self.header_for_switch(header)?];
        Ok((!header.metadata).then_some(header.base))
    }

    /// Finds a field for the switch's own use.
    fn field_for_switch(&self, header: &str, field: &str) -> LoadResult<Field> {
        let h = &self.headers[self.header_for_switch(header)?];
        self.field_of(h.kind, h.base, field)
            .ok_or_else(|| LoadError::new(format!("header '{header}' has no field '{field}'")))
    }

    /// Finds a field of the elements of a header stack; its slot is relative to the element.
    pub fn stack_field(&self, stack: usize, field: &str) -> LoadResult<Field> {
        self.field_of(self.stacks[stack].kind, 0, field)
            .ok_or_else(|| LoadError::new(format!("header stack has no field '{field}'")))
    }

    /// A field of type `kind` at `base`.
    fn field_of(&self, kind: usize, base: u32, field: &str) -> Option<Field> {
        if field == "$valid$" {
            return Some(Field {
                slot: base,
                bits: 1,
                signed: false,
            });
        }
        let found = self.types[kind].fields.iter().find(|f| f.name == field)?;
        Some(found.at(base))
    }

    /// A field given as the JSON pair `[header, field]`.
    pub fn field_value(&self, value: &Value) -> LoadResult<Field> {
        let (header, field) = pair(value)?;
        self.field(header, field)
    }

    /// A field that the switch itself uses, under simple_switch's name or its alias.
    pub fn intrinsic(&self, header: &str, field: &str) -> LoadResult<Option<Field>> {
        match self.aliases.get(&format!("{header}.{field}")) {
            Some((h, f)) => self
                .field_for_switch(h, f)
                .map(Some)
                .at(|| format!("field alias '{header}.{field}'")),
            None => Ok(self.field_for_switch(header, field).ok()),
        }
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
    if !t.length_exp.is_null() {
        refuse!("a length expression in the header type (P4_14) is not supported (length_exp)");
    }
    let mut fields: Vec<FieldType> = Vec::new();
    let mut variable = None;
    let (mut offset, mut total) = (1u32, 0u32);
    for field in &t.fields {
        let Some(name) = field.first().and_then(Value::as_str) else {
            refuse!("a field has no name");
        };
        let place = || format!("field '{name}'");
        let bits = if field.get(1).and_then(Value::as_str) == Some("*") {
            if variable.is_some() {
                refuse!("has more than one variable-length field");
            }
            variable = Some(Variable {
                field: fields.len(),
                length: offset,
            });
            offset += 1;
            variable_bits(t).at(place)?
        } else {
            let bits = field_bits(field).at(place)?;
            total += bits;
            if total > MAX_HEADER_BITS {
                refuse!("is wider than {MAX_HEADER_BITS} bits");
            }
            bits
        };
        // 1 and true alike: p4c writes both.
        let marked = field
            .get(2)
            .is_some_and(|v| v.as_bool().unwrap_or(v.as_u64().is_some_and(|n| n != 0)));
        let signed = marked && bits > 0;
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

/// Width of a field of fixed length.
fn field_bits(field: &[Value]) -> LoadResult<u32> {
    let Some(width) = field.get(1) else {
        refuse!("has no width");
    };
    match width.as_u64().and_then(|bits| u32::try_from(bits).ok()) {
        Some(bits) if bits <= MAX_FIELD_BITS => Ok(bits),
        Some(bits) => refuse!("a width of {bits} bits; at most {MAX_FIELD_BITS} are possible"),
        None => refuse!("width {width} is no number"),
    }
}

/// Largest width of the variable-length field of a header type.
fn variable_bits(t: &model::HeaderType) -> LoadResult<u32> {
    let widths = t.fields.iter().filter_map(|f| f.get(1)?.as_u64());
    let fixed = widths.fold(0, u64::saturating_add);
    let bits = (u64::from(t.max_length.unwrap_or(0)) * 8).saturating_sub(fixed);
    let most = u64::from(MAX_VARIABLE_BITS);
    if !(1..=most).contains(&bits) {
        refuse!("a variable-length field of {bits} bits at most; 1 to {most} are possible");
    }
    Ok(bits as u32)
}
