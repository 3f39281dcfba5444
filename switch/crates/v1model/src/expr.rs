//! Expressions: from BMv2 JSON trees to flat code.
//!
//! BMv2 evaluates with unbounded integers and truncates on assignment. To get the same result
//! in fixed width, every node carries the range its value can take. Where only the low bits of
//! a result matter (an assignment, a mask), operations that respect truncation run on just
//! those bits; where the whole value matters (comparison, right shift, saturation), they run
//! on as many limbs as the range needs. Most code ends up on single words.

use crate::error::{At, LoadError, LoadResult, refuse};
use crate::layout::{Field, Layout, pair};
use crate::ops::{Code, HeaderRef, Op, Slot};
use crate::wide::{limbs, mask64};
use serde_json::Value;
use std::collections::HashMap;

/// Most words of temporaries of one primitive.
pub(crate) const MAX_TEMP_WORDS: u32 = 8_192;
/// Widest intermediate value in bits.
const MAX_BITS: u32 = 8_192;
/// Deepest expression tree.
const MAX_DEPTH: u32 = 1_024;
/// Most operations of a program.
const MAX_OPS: usize = 4 << 20;
/// Most words of constants.
const MAX_CONSTANT_WORDS: usize = 1 << 20;

/// Range of a value: `0 <= v < 2^bits`, or `-2^bits <= v < 2^bits` where `neg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    neg: bool,
    bits: u32,
}

impl Range {
    const BOOL: Self = Self::unsigned(1);

    const fn unsigned(bits: u32) -> Self {
        Self { neg: false, bits }
    }

    const fn signed(bits: u32) -> Self {
        Self { neg: true, bits }
    }

    /// Bits that hold any such value, with its sign bit if it needs one.
    fn storage(self) -> u32 {
        (self.bits + u32::from(self.neg)).max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LAnd,
    LOr,
}

#[derive(Debug)]
enum Kind {
    /// Two's complement limbs.
    Const(Vec<u64>),
    Slot(Field),
    Element {
        stack: usize,
        index: Box<Node>,
        field: Field,
    },
    Last {
        stack: usize,
        field: Field,
    },
    LastIndex(usize),
    Size(usize),
    Invert(Box<Node>),
    Not(Box<Node>),
    Truth(Box<Node>),
    Bin(BinOp, Box<Node>, Box<Node>),
    Select(Box<Node>, Box<Node>, Box<Node>),
    TwoComp(Box<Node>, u32),
    USat(Box<Node>, u32),
    SSat(Box<Node>, u32),
    HeaderEq(HeaderNode, HeaderNode, bool),
    Valid(HeaderNode),
}

/// A typed expression.
#[derive(Debug)]
pub(crate) struct Node {
    kind: Kind,
    range: Range,
    depth: u32,
}

impl Node {
    /// Is the value certainly 0 or 1?
    fn is_bool(&self) -> bool {
        self.range == Range::BOOL
    }
}

/// A header named by an expression.
#[derive(Debug)]
pub(crate) enum HeaderNode {
    Fixed(usize),
    Element(usize, Box<Node>),
}

/// Where a computed value stands.
#[derive(Debug, Clone, Copy)]
struct Val {
    slot: Slot,
    limbs: u32,
    /// `Some`: the limbs hold exactly a value of this range, extended over all of them.
    /// `None`: only the low bits that were asked for are meaningful.
    exact: Option<Range>,
}

/// What of a value is needed.
#[derive(Debug, Clone, Copy)]
enum Need {
    All,
    Low(u32),
}

/// Where an assignment goes.
#[derive(Debug)]
pub(crate) enum Dest {
    Field(Field),
    /// Field (offset in `slot`) of a stack element.
    Element(usize, Node, Field),
}

impl Dest {
    /// Width of the destination.
    pub fn bits(&self) -> u32 {
        match self {
            Dest::Field(f) | Dest::Element(_, _, f) => f.bits,
        }
    }
}

/// Compiles expressions against a layout; owns the growing code and constants.
pub(crate) struct Compiler<'a> {
    pub layout: &'a Layout,
    pub ops: Vec<Op>,
    /// Values of the constant slots, from `constant_base` on.
    pub constants: Vec<u64>,
    constant_base: Slot,
    constant_slots: HashMap<Vec<u64>, Slot>,
    temp_base: Slot,
    temp_words: u32,
    temp_next: Slot,
    /// Most words of temporaries that were in use at once.
    pub temps_used: u32,
    /// Parameters of the action being compiled.
    pub params: Vec<Field>,
}

impl<'a> Compiler<'a> {
    /// `param_words`: the most words that one action's arguments take; `temp_words`: words set
    /// aside for temporaries.
    pub fn new(layout: &'a Layout, param_words: u32, temp_words: u32) -> Self {
        let temp_base = layout.words + param_words;
        Self {
            layout,
            ops: Vec::new(),
            constants: Vec::new(),
            constant_base: temp_base + temp_words,
            constant_slots: HashMap::new(),
            temp_base,
            temp_words,
            temp_next: temp_base,
            temps_used: 0,
            params: Vec::new(),
        }
    }

    /// First slot of action arguments.
    pub fn param_base(&self) -> Slot {
        self.layout.words
    }

    /// First slot of the constants.
    pub fn constant_base(&self) -> Slot {
        self.constant_base
    }

    /// Address of the next operation.
    pub fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Code from `start` to here.
    pub fn since(&self, start: u32) -> Code {
        Code {
            start,
            end: self.here(),
        }
    }

    /// Gives the temporaries back; values computed before are gone.
    pub fn free_temps(&mut self) {
        self.temp_next = self.temp_base;
    }

    pub fn emit(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// `n` fresh temporary words.
    pub fn temp(&mut self, n: u32) -> LoadResult<Slot> {
        let slot = self.temp_next;
        if slot + n > self.temp_base + self.temp_words {
            refuse!("expression needs more than {MAX_TEMP_WORDS} words of temporaries");
        }
        if self.ops.len() > MAX_OPS {
            refuse!("program needs more than {MAX_OPS} operations");
        }
        self.temp_next += n;
        self.temps_used = self.temps_used.max(self.temp_next - self.temp_base);
        Ok(slot)
    }

    /// The slot of a constant.
    pub fn constant(&mut self, value: &[u64]) -> LoadResult<Slot> {
        if let Some(&slot) = self.constant_slots.get(value) {
            return Ok(slot);
        }
        if self.constants.len() + value.len() > MAX_CONSTANT_WORDS {
            refuse!("program needs more than {MAX_CONSTANT_WORDS} words of constants");
        }
        let slot = self.constant_base + self.constants.len() as u32;
        self.constants.extend_from_slice(value);
        self.constant_slots.insert(value.to_vec(), slot);
        Ok(slot)
    }

    // ---- trees ----------------------------------------------------------------------------

    /// A tree from `{"type": kind, "value": value}`.
    pub fn node(&self, kind: &str, value: &Value) -> LoadResult<Node> {
        self.node_at(kind, value, 0)
    }

    fn node_at(&self, kind: &str, value: &Value, depth: u32) -> LoadResult<Node> {
        if depth > MAX_DEPTH {
            refuse!("expression is nested deeper than {MAX_DEPTH} levels");
        }
        match kind {
            "expression" => match value.get("op") {
                Some(Value::String(op)) => self
                    .operation(op, value, depth)
                    .at(|| format!("operator '{op}'")),
                Some(_) => refuse!("operator is not a string"),
                None => self.child(value, depth + 1),
            },
            "field" if value.get(0).is_some_and(Value::is_object) => {
                self.computed_field(value, depth)
            }
            "field" => Ok(leaf_field(self.layout.field_value(value)?)),
            "hexstr" => constant_node(text(value)?),
            "bool" => match value.as_bool() {
                Some(b) => Ok(Node {
                    kind: Kind::Const(vec![u64::from(b)]),
                    range: Range::BOOL,
                    depth: 0,
                }),
                None => refuse!("expected true or false, found {value}"),
            },
            "local" | "runtime_data" => {
                let index = value.as_u64().and_then(|i| usize::try_from(i).ok());
                match index.and_then(|i| self.params.get(i)) {
                    Some(&f) => Ok(leaf_field(f)),
                    None => refuse!("unknown action parameter {value}"),
                }
            }
            "stack_field" => {
                let (stack, field) = pair(value)?;
                let stack = self.layout.stack(stack)?;
                let field = self.stack_member(stack, field)?;
                Ok(Node {
                    range: field_range(field),
                    kind: Kind::Last { stack, field },
                    depth: 0,
                })
            }
            "lookahead" => refuse!("lookahead is only possible as a parser's source or key"),
            "register" => {
                refuse!("registers inside expressions are not supported yet (register)")
            }
            "union_stack_field" | "header_union" | "header_union_stack" => {
                refuse!("header unions are not supported yet ({kind})")
            }
            other => refuse!("operand of type '{other}' is not supported"),
        }
    }

    fn child(&self, value: &Value, depth: u32) -> LoadResult<Node> {
        let (kind, value) = type_value(value)?;
        self.node_at(kind, value, depth + 1)
    }

    fn stack_member(&self, stack: usize, field: &str) -> LoadResult<Field> {
        self.layout
            .field_of(self.layout.stacks[stack].kind, 0, field)
            .ok_or_else(|| LoadError::new(format!("header stack has no field '{field}'")))
    }

    fn operation(&self, op: &str, value: &Value, depth: u32) -> LoadResult<Node> {
        let left = || self.child(value.get("left").unwrap_or(&Value::Null), depth);
        let right = || self.child(value.get("right").unwrap_or(&Value::Null), depth);
        let unary = || {
            // p4c writes the operand on the right; the left is null.
            let side = value.get("right").filter(|v| !v.is_null());
            self.child(side.or(value.get("left")).unwrap_or(&Value::Null), depth)
        };
        let bin = match op {
            "+" => BinOp::Add,
            "-" if value.get("left").is_none_or(Value::is_null) => {
                let zero = constant_node("0")?;
                return binary(BinOp::Sub, zero, right()?);
            }
            "-" => BinOp::Sub,
            "*" => BinOp::Mul,
            "/" => BinOp::Div,
            "%" => BinOp::Rem,
            "&" => BinOp::And,
            "|" => BinOp::Or,
            "^" => BinOp::Xor,
            "<<" => BinOp::Shl,
            ">>" => BinOp::Shr,
            "<" => BinOp::Lt,
            "<=" => BinOp::Le,
            ">" => BinOp::Gt,
            ">=" => BinOp::Ge,
            "and" => BinOp::LAnd,
            "or" => BinOp::LOr,
            "==" | "!=" => {
                let is_header = |side: &str| {
                    value
                        .get(side)
                        .and_then(|v| self.header_expr(v, depth).transpose())
                        .transpose()
                };
                if let Some(a) = is_header("left")? {
                    let Some(b) = is_header("right")? else {
                        refuse!("compares a header with something else");
                    };
                    if self.header_kind(&a) != self.header_kind(&b) {
                        refuse!("compares headers of different types");
                    }
                    return Ok(Node {
                        kind: Kind::HeaderEq(a, b, op == "!="),
                        range: Range::BOOL,
                        depth: 1,
                    });
                }
                if op == "==" { BinOp::Eq } else { BinOp::Ne }
            }
            "not" => {
                let x = truth(unary()?);
                let depth = x.depth + 1;
                return Ok(Node {
                    kind: Kind::Not(Box::new(x)),
                    range: Range::BOOL,
                    depth,
                });
            }
            "~" => {
                let x = unary()?;
                let (range, depth) = (Range::signed(x.range.bits), x.depth + 1);
                return Ok(Node {
                    kind: Kind::Invert(Box::new(x)),
                    range,
                    depth,
                });
            }
            "d2b" => return Ok(truth(unary()?)),
            "b2d" => return Ok(truth(unary()?)),
            "valid" => {
                let side = value.get("right").filter(|v| !v.is_null());
                let side = side.or(value.get("left")).unwrap_or(&Value::Null);
                let Some(h) = self.header_expr(side, depth)? else {
                    refuse!("operand is not a header");
                };
                return Ok(Node {
                    kind: Kind::Valid(h),
                    range: Range::BOOL,
                    depth: 1,
                });
            }
            "?" => {
                let cond = truth(self.child(value.get("cond").unwrap_or(&Value::Null), depth)?);
                let (a, b) = (left()?, right()?);
                let range = Range {
                    neg: a.range.neg || b.range.neg,
                    bits: a.range.bits.max(b.range.bits),
                };
                let depth = cond.depth.max(a.depth).max(b.depth) + 1;
                return Ok(Node {
                    kind: Kind::Select(Box::new(cond), Box::new(a), Box::new(b)),
                    range,
                    depth,
                });
            }
            "two_comp_mod" | "usat_cast" | "sat_cast" => {
                let x = left()?;
                let bits = match right()?.kind {
                    Kind::Const(limbs)
                        if limbs.len() == 1 && (1..=u64::from(MAX_BITS)).contains(&limbs[0]) =>
                    {
                        limbs[0] as u32
                    }
                    _ => refuse!("width is not a constant from 1 to {MAX_BITS}"),
                };
                let depth = x.depth + 1;
                let x = Box::new(x);
                let (kind, range) = match op {
                    "two_comp_mod" => (Kind::TwoComp(x, bits), Range::signed(bits - 1)),
                    "sat_cast" => (Kind::SSat(x, bits), Range::signed(bits - 1)),
                    _ => (Kind::USat(x, bits), Range::unsigned(bits)),
                };
                return Ok(Node { kind, range, depth });
            }
            "access_field" => {
                let header = value.get("left").unwrap_or(&Value::Null);
                let Some(h) = self.header_expr(header, depth)? else {
                    refuse!("operand is not a header");
                };
                return self.access_field(h, value.get("right").unwrap_or(&Value::Null));
            }
            "last_stack_index" | "size_stack" => {
                let side = value.get("right").filter(|v| !v.is_null());
                let (kind, name) = type_value(side.or(value.get("left")).unwrap_or(&Value::Null))?;
                if kind != "header_stack" {
                    refuse!("operand is not a header stack");
                }
                let stack = self.layout.stack(text(name)?)?;
                let (kind, range) = if op == "size_stack" {
                    (Kind::Size(stack), Range::unsigned(32))
                } else {
                    (Kind::LastIndex(stack), Range::signed(32))
                };
                return Ok(Node {
                    kind,
                    range,
                    depth: 0,
                });
            }
            "valid_union" | "dereference_union_stack" | "access_union_header" => {
                refuse!("header unions are not supported yet")
            }
            other => refuse!("unknown operator '{other}'"),
        };
        binary(bin, left()?, right()?)
    }

    /// A field whose header is itself an expression: p4c writes the validity of an element of
    /// a stack as `[{"op": "dereference_header_stack", ..}, "$valid$"]`.
    fn computed_field(&self, value: &Value, depth: u32) -> LoadResult<Node> {
        let header = value.get(0).unwrap_or(&Value::Null);
        let (Some(h), Some(name)) = (
            self.header_expr_of("expression", header, depth + 1)?,
            value.get(1).and_then(Value::as_str),
        ) else {
            refuse!("expected a header and the name of a field");
        };
        if name == "$valid$" {
            return Ok(Node {
                kind: Kind::Valid(h),
                range: Range::BOOL,
                depth: 1,
            });
        }
        let kind = &self.layout.types[self.header_kind(&h)];
        let index = kind.fields.iter().position(|f| f.name == name);
        self.access_field(h, &Value::from(index))
    }

    fn access_field(&self, h: HeaderNode, index: &Value) -> LoadResult<Node> {
        let kind = &self.layout.types[self.header_kind(&h)];
        let Some(f) = index
            .as_u64()
            .and_then(|i| usize::try_from(i).ok())
            .and_then(|i| kind.fields.get(i))
        else {
            refuse!("header type '{}' has no field number {index}", kind.name);
        };
        let field = Field {
            slot: f.offset,
            bits: f.bits,
            signed: f.signed,
        };
        Ok(match h {
            HeaderNode::Fixed(h) => leaf_field(Field {
                slot: self.layout.headers[h].base + f.offset,
                ..field
            }),
            HeaderNode::Element(stack, index) => Node {
                depth: index.depth + 1,
                kind: Kind::Element {
                    stack,
                    index,
                    field,
                },
                range: field_range(field),
            },
        })
    }

    /// The header that a type value names, `None` if it is no header at all.
    fn header_expr(&self, value: &Value, depth: u32) -> LoadResult<Option<HeaderNode>> {
        if value.is_null() {
            return Ok(None);
        }
        let (kind, value) = type_value(value)?;
        self.header_expr_of(kind, value, depth)
    }

    fn header_expr_of(
        &self,
        kind: &str,
        value: &Value,
        depth: u32,
    ) -> LoadResult<Option<HeaderNode>> {
        if depth > MAX_DEPTH {
            refuse!("expression is nested deeper than {MAX_DEPTH} levels");
        }
        match kind {
            "header" => Ok(Some(HeaderNode::Fixed(self.layout.header(text(value)?)?))),
            "expression" => match value.get("op").and_then(Value::as_str) {
                None => self.header_expr(value, depth + 1),
                Some("dereference_header_stack") => {
                    let (kind, name) = type_value(value.get("left").unwrap_or(&Value::Null))?;
                    if kind != "header_stack" {
                        refuse!("operand of dereference_header_stack is not a header stack");
                    }
                    let stack = self.layout.stack(text(name)?)?;
                    let index =
                        self.child(value.get("right").unwrap_or(&Value::Null), depth + 1)?;
                    Ok(Some(HeaderNode::Element(stack, Box::new(index))))
                }
                Some("access_union_header" | "dereference_union_stack") => {
                    refuse!("header unions are not supported yet")
                }
                Some(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Type of a header.
    pub fn header_kind(&self, h: &HeaderNode) -> usize {
        match h {
            HeaderNode::Fixed(h) => self.layout.headers[*h].kind,
            HeaderNode::Element(s, _) => self.layout.stacks[*s].kind,
        }
    }

    /// A parameter that must be a header.
    pub fn header(&self, kind: &str, value: &Value) -> LoadResult<HeaderNode> {
        let found = self.header_expr_of(kind, value, 0)?;
        found.ok_or_else(|| LoadError::new(format!("expected a header, found '{kind}'")))
    }

    /// A parameter that can be assigned to.
    pub fn dest(&self, kind: &str, value: &Value) -> LoadResult<Dest> {
        let node = self.node(kind, value)?;
        match node.kind {
            Kind::Slot(f) if self.params.contains(&f) => {
                refuse!("assigns to an action parameter")
            }
            Kind::Slot(f) if self.layout.headers.iter().any(|h| h.base == f.slot) => {
                refuse!("assigns to the read-only field '$valid$'")
            }
            Kind::Slot(f) => Ok(Dest::Field(f)),
            Kind::Element {
                stack,
                index,
                field,
            } => Ok(Dest::Element(stack, *index, field)),
            Kind::Last { stack, field } => Ok(Dest::Element(
                stack,
                Node {
                    kind: Kind::LastIndex(stack),
                    range: Range::signed(32),
                    depth: 0,
                },
                field,
            )),
            _ => refuse!("is not something that can be assigned to"),
        }
    }

    // ---- code -----------------------------------------------------------------------------

    /// Resolves a header to something code can name.
    pub fn header_ref(&mut self, h: &HeaderNode) -> LoadResult<HeaderRef> {
        Ok(match h {
            HeaderNode::Fixed(h) => HeaderRef::Fixed(self.layout.headers[*h].base),
            HeaderNode::Element(stack, index) => {
                HeaderRef::Element(*stack as u16, self.word(index)?)
            }
        })
    }

    /// `dest = node`, truncated to the destination's width.
    pub fn assign(&mut self, dest: &Dest, node: &Node) -> LoadResult<()> {
        let bits = dest.bits();
        let value = self.value(node, Need::Low(bits))?;
        let fits = value
            .exact
            .is_some_and(|r| !r.neg && r.bits <= bits && value.limbs <= limbs(bits));
        self.store(dest, value, fits)
    }

    /// Stores the low bits of a word at `slot` (a temporary) to `dest`. `value_bits` bounds it.
    pub fn store_word(&mut self, dest: &Dest, slot: Slot, value_bits: u32) -> LoadResult<()> {
        self.store_words(dest, slot, value_bits)
    }

    /// Stores an unsigned value of `value_bits` bits at `slot` to `dest`, truncated or extended.
    pub fn store_words(&mut self, dest: &Dest, slot: Slot, value_bits: u32) -> LoadResult<()> {
        let value = Val {
            slot,
            limbs: limbs(value_bits),
            exact: Some(Range::unsigned(value_bits)),
        };
        let fits = value_bits <= dest.bits();
        self.store(dest, value, fits)
    }

    fn store(&mut self, dest: &Dest, value: Val, fits: bool) -> LoadResult<()> {
        let bits = dest.bits();
        let n = limbs(bits);
        let value = self.resized(value, n)?;
        match dest {
            Dest::Field(f) => {
                if n > 1 {
                    if f.slot != value {
                        self.emit(Op::CopyW {
                            d: f.slot,
                            a: value,
                            n: n as u16,
                        });
                    }
                    if !fits && !bits.is_multiple_of(64) {
                        self.emit(Op::MaskW {
                            d: f.slot,
                            n: n as u16,
                            bits: bits as u16,
                        });
                    }
                } else if fits || bits == 64 {
                    let is_temp = (self.temp_base..self.constant_base).contains(&value);
                    let direct = is_temp
                        && self
                            .ops
                            .last_mut()
                            .is_some_and(|o| o.retarget(value, f.slot));
                    if !direct && f.slot != value {
                        self.emit(Op::Copy {
                            d: f.slot,
                            a: value,
                        });
                    }
                } else {
                    let mask = self.constant(&[mask64(bits)])?;
                    self.emit(Op::And {
                        d: f.slot,
                        a: value,
                        b: mask,
                    });
                }
            }
            Dest::Element(stack, index, f) => {
                let index = self.word(index)?;
                let a = self.temp(n)?;
                self.emit(Op::CopyW {
                    d: a,
                    a: value,
                    n: n as u16,
                });
                self.emit(Op::MaskW {
                    d: a,
                    n: n as u16,
                    bits: bits as u16,
                });
                self.emit(Op::StoreElement {
                    a,
                    stack: *stack as u16,
                    index,
                    offset: f.slot as u16,
                    n: n as u16,
                });
            }
        }
        Ok(())
    }

    /// The value as one unsigned word; larger ones (and negative ones) become all ones. For
    /// indices, lengths and shift amounts.
    pub fn word(&mut self, node: &Node) -> LoadResult<Slot> {
        let v = self.value(node, Need::All)?;
        if v.limbs == 1 {
            return Ok(v.slot);
        }
        let d = self.temp(1)?;
        self.emit(Op::Saturate {
            d,
            a: v.slot,
            n: v.limbs as u16,
        });
        Ok(d)
    }

    /// The low `bits` (at most 64) bits of the value, in one word that may be a field.
    pub fn low_word(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        let v = self.value(node, Need::Low(bits))?;
        if v.exact.is_some_and(|r| !r.neg && r.bits <= bits) {
            return Ok(v.slot);
        }
        if bits == 64 {
            return Ok(v.slot);
        }
        let d = self.temp(1)?;
        let mask = self.constant(&[mask64(bits)])?;
        self.emit(Op::And {
            d,
            a: v.slot,
            b: mask,
        });
        Ok(d)
    }

    /// The low `bits` bits, zero extended over `limbs(bits)` words.
    pub fn low_words(&mut self, node: &Node, bits: u32) -> LoadResult<Slot> {
        if bits <= 64 {
            return self.low_word(node, bits);
        }
        let v = self.value(node, Need::Low(bits))?;
        let n = limbs(bits);
        let slot = self.resized(v, n)?;
        let d = self.temp(n)?;
        self.emit(Op::CopyW {
            d,
            a: slot,
            n: n as u16,
        });
        self.emit(Op::MaskW {
            d,
            n: n as u16,
            bits: bits as u16,
        });
        Ok(d)
    }

    /// The truth of a condition, 0 or 1, in a word.
    pub fn condition(&mut self, node: Node) -> LoadResult<Slot> {
        let node = truth(node);
        Ok(self.value(&node, Need::All)?.slot)
    }

    /// `value` on exactly `n` limbs (fewer: its low limbs).
    fn resized(&mut self, value: Val, n: u32) -> LoadResult<Slot> {
        if value.limbs >= n {
            return Ok(value.slot);
        }
        let d = self.temp(n)?;
        self.emit(Op::ExtendW {
            d,
            a: value.slot,
            from: value.limbs as u16,
            n: n as u16,
            signed: value.exact.is_some_and(|r| r.neg),
        });
        Ok(d)
    }

    fn operand(&mut self, node: &Node, need: Need, n: u32) -> LoadResult<Slot> {
        let v = self.value(node, need)?;
        self.resized(v, n)
    }

    /// Computes `node`. With `Need::Low(k)`, at least the low `k` bits are right.
    fn value(&mut self, node: &Node, need: Need) -> LoadResult<Val> {
        let storage = node.range.storage();
        // Everything fits in what was asked for: then the exact value costs no more.
        let need = match need {
            Need::Low(k) if storage <= k => Need::All,
            other => other,
        };
        let (bits, exact) = match need {
            Need::All => (storage, Some(node.range)),
            Need::Low(k) => (k, None),
        };
        if bits > MAX_BITS {
            refuse!("a value of {bits} bits is needed; the limit is {MAX_BITS}");
        }
        let n = limbs(bits);
        let val = |slot| Val {
            slot,
            limbs: n,
            exact,
        };
        match &node.kind {
            Kind::Const(value) => {
                let mut value = value.clone();
                let fill = if node.range.neg { u64::MAX } else { 0 };
                value.resize(n as usize, fill);
                Ok(val(self.constant(&value)?))
            }
            Kind::Slot(f) => self.loaded(*f, f.slot, f.slot, need),
            Kind::Element {
                stack,
                index,
                field,
            } => {
                let index = self.word(index)?;
                let d = self.temp(field.limbs())?;
                self.emit(Op::LoadElement {
                    d,
                    stack: *stack as u16,
                    index,
                    offset: field.slot as u16,
                    n: field.limbs() as u16,
                });
                self.loaded(*field, d, d, need)
            }
            Kind::Last { stack, field } => {
                let index = self.temp(1)?;
                self.emit(Op::LastIndex {
                    d: index,
                    stack: *stack as u16,
                });
                let d = self.temp(field.limbs())?;
                self.emit(Op::LoadElement {
                    d,
                    stack: *stack as u16,
                    index,
                    offset: field.slot as u16,
                    n: field.limbs() as u16,
                });
                self.loaded(*field, d, d, need)
            }
            Kind::LastIndex(stack) => {
                let d = self.temp(1)?;
                self.emit(Op::LastIndex {
                    d,
                    stack: *stack as u16,
                });
                Ok(Val {
                    slot: d,
                    limbs: 1,
                    exact: Some(node.range),
                })
            }
            Kind::Size(stack) => Ok(Val {
                slot: self.layout.stacks[*stack].next,
                limbs: 1,
                exact: Some(node.range),
            }),
            Kind::Invert(x) => {
                let a = self.operand(x, need_of(need, bits), n)?;
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::Not { d, a }
                } else {
                    Op::NotW { d, a, n: n as u16 }
                });
                Ok(val(d))
            }
            Kind::Not(x) => {
                let a = self.value(x, Need::All)?.slot;
                let d = self.temp(1)?;
                self.emit(Op::IsZero { d, a });
                Ok(val(d))
            }
            Kind::Truth(x) => {
                let v = self.value(x, Need::All)?;
                let d = self.temp(1)?;
                self.emit(if v.limbs == 1 {
                    Op::NonZero { d, a: v.slot }
                } else {
                    Op::NonZeroW {
                        d,
                        a: v.slot,
                        n: v.limbs as u16,
                    }
                });
                Ok(val(d))
            }
            Kind::Select(c, a, b) => {
                let c = self.value(c, Need::All)?.slot;
                let a = self.operand(a, need_of(need, bits), n)?;
                let b = self.operand(b, need_of(need, bits), n)?;
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::Select { d, c, a, b }
                } else {
                    Op::SelectW {
                        d,
                        c,
                        a,
                        b,
                        n: n as u16,
                    }
                });
                Ok(val(d))
            }
            Kind::TwoComp(x, width) => {
                if let Need::Low(k) = need {
                    // Fewer bits than the width: sign extension does not show.
                    return self.value(x, Need::Low(k));
                }
                let a = self.operand(x, Need::Low(*width), n)?;
                let d = self.temp(n)?;
                if n == 1 {
                    self.emit(Op::Sext {
                        d,
                        a,
                        bits: *width as u16,
                    });
                } else {
                    self.emit(Op::CopyW { d, a, n: n as u16 });
                    self.emit(Op::SextW {
                        d,
                        n: n as u16,
                        bits: *width as u16,
                    });
                }
                Ok(val(d))
            }
            Kind::USat(x, width) | Kind::SSat(x, width) => {
                let to_signed = matches!(node.kind, Kind::SSat(..));
                let v = self.value(x, Need::All)?;
                let m = v.limbs.max(limbs(storage));
                let a = self.resized(v, m)?;
                let d = self.temp(m)?;
                self.emit(Op::CopyW { d, a, n: m as u16 });
                self.emit(Op::ClampW {
                    d,
                    n: m as u16,
                    bits: *width as u16,
                    signed: x.range.neg,
                    to_signed,
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact: Some(node.range),
                })
            }
            Kind::HeaderEq(a, b, negated) => {
                let words = self.layout.types[self.header_kind(a)].words as u16;
                let (a, b) = (self.header_ref(a)?, self.header_ref(b)?);
                let d = self.temp(1)?;
                self.emit(Op::EqHeader { d, a, b, words });
                if *negated {
                    self.emit(Op::IsZero { d, a: d });
                }
                Ok(val(d))
            }
            Kind::Valid(h) => match h {
                HeaderNode::Fixed(h) => Ok(val(self.layout.headers[*h].base)),
                HeaderNode::Element(stack, index) => {
                    let index = self.word(index)?;
                    let d = self.temp(1)?;
                    self.emit(Op::LoadElement {
                        d,
                        stack: *stack as u16,
                        index,
                        offset: 0,
                        n: 1,
                    });
                    Ok(val(d))
                }
            },
            Kind::Bin(op, l, r) => self.binary_value(*op, l, r, node.range, need, bits, exact),
        }
    }

    /// A field that stands at `slot`; sign-extended if it is signed and all of it is needed.
    fn loaded(&mut self, f: Field, slot: Slot, _at: Slot, need: Need) -> LoadResult<Val> {
        let n = f.limbs();
        if !f.signed {
            return Ok(Val {
                slot,
                limbs: n,
                exact: Some(Range::unsigned(f.bits)),
            });
        }
        if matches!(need, Need::Low(_)) {
            return Ok(Val {
                slot,
                limbs: n,
                exact: None,
            });
        }
        let d = self.temp(n)?;
        if n == 1 {
            self.emit(Op::Sext {
                d,
                a: slot,
                bits: f.bits as u16,
            });
        } else {
            self.emit(Op::CopyW {
                d,
                a: slot,
                n: n as u16,
            });
            self.emit(Op::SextW {
                d,
                n: n as u16,
                bits: f.bits as u16,
            });
        }
        Ok(Val {
            slot: d,
            limbs: n,
            exact: Some(Range::signed(f.bits - 1)),
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn binary_value(
        &mut self,
        op: BinOp,
        l: &Node,
        r: &Node,
        range: Range,
        need: Need,
        bits: u32,
        exact: Option<Range>,
    ) -> LoadResult<Val> {
        let n = limbs(bits);
        let wide = n as u16;
        let val = |slot| Val {
            slot,
            limbs: n,
            exact,
        };
        match op {
            BinOp::And => {
                // A non-negative side bounds what is needed of the other.
                let (l_need, r_need, exact) = if !range.neg && range.bits <= bits {
                    let all_or = |side: &Node, other: &Node| {
                        if !side.range.neg && side.range.bits <= other.range.bits.max(1) {
                            Need::All
                        } else {
                            Need::Low(range.bits.max(1))
                        }
                    };
                    let (mut ln, mut rn) = (all_or(l, r), all_or(r, l));
                    // Exactly one exact non-negative side is enough to clear the high bits.
                    if !l.range.neg && l.range.bits == range.bits {
                        ln = Need::All;
                    } else if !r.range.neg && r.range.bits == range.bits {
                        rn = Need::All;
                    }
                    (ln, rn, Some(range))
                } else {
                    (need_of(need, bits), need_of(need, bits), exact)
                };
                let n = if exact == Some(range) {
                    limbs(range.storage())
                } else {
                    n
                };
                let a = self.operand(l, l_need, n)?;
                let b = self.operand(r, r_need, n)?;
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::And { d, a, b }
                } else {
                    Op::AndW {
                        d,
                        a,
                        b,
                        n: n as u16,
                    }
                });
                Ok(Val {
                    slot: d,
                    limbs: n,
                    exact,
                })
            }
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Or | BinOp::Xor => {
                // Exact results: low bits of the operands are enough, because the result is
                // known to fit; but it must then be extended, so operands are taken whole.
                let need = need_of(need, bits);
                let a = self.operand(l, need, n)?;
                let b = self.operand(r, need, n)?;
                let d = self.temp(n)?;
                self.emit(match (op, n) {
                    (BinOp::Add, 1) => Op::Add { d, a, b },
                    (BinOp::Sub, 1) => Op::Sub { d, a, b },
                    (BinOp::Mul, 1) => Op::Mul { d, a, b },
                    (BinOp::Or, 1) => Op::Or { d, a, b },
                    (BinOp::Xor, 1) => Op::Xor { d, a, b },
                    (BinOp::Add, _) => Op::AddW { d, a, b, n: wide },
                    (BinOp::Sub, _) => Op::SubW { d, a, b, n: wide },
                    (BinOp::Mul, _) => Op::MulW { d, a, b, n: wide },
                    (BinOp::Or, _) => Op::OrW { d, a, b, n: wide },
                    _ => Op::XorW { d, a, b, n: wide },
                });
                Ok(val(d))
            }
            BinOp::Shl => {
                let b = self.word(r)?;
                let a = self.operand(l, need_of(need, bits), n)?;
                let d = self.temp(n)?;
                self.emit(if n == 1 {
                    Op::Shl { d, a, b }
                } else {
                    Op::ShlW { d, a, b, n: wide }
                });
                Ok(val(d))
            }
            BinOp::Shr => {
                // Low k bits of a constant shift by s need the low k + s bits of the operand.
                let whole = l.range.storage();
                let wanted = match (&r.kind, need) {
                    (Kind::Const(s), Need::Low(k)) if s.len() == 1 && s[0] < 1 << 16 => {
                        k + s[0] as u32
                    }
                    _ => whole,
                };
                let b = self.word(r)?;
                let (v, signed, exact) = if wanted < whole {
                    (self.value(l, Need::Low(wanted))?, false, None)
                } else {
                    (self.value(l, Need::All)?, l.range.neg, Some(range))
                };
                let m = v.limbs;
                let d = self.temp(m)?;
                self.emit(match (m, signed) {
                    (1, false) => Op::Shr { d, a: v.slot, b },
                    (1, true) => Op::Sar { d, a: v.slot, b },
                    _ => Op::ShrW {
                        d,
                        a: v.slot,
                        b,
                        n: m as u16,
                        signed,
                    },
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact,
                })
            }
            BinOp::Div | BinOp::Rem => {
                if l.range.neg || r.range.neg {
                    refuse!("division of signed values is not supported yet");
                }
                if r.range.bits > 64 {
                    refuse!("division by a value wider than 64 bits is not supported yet");
                }
                let m = limbs(l.range.storage());
                let a = self.value(l, Need::All)?.slot;
                let b = self.value(r, Need::All)?.slot;
                let d = self.temp(m)?;
                self.emit(match (op, m) {
                    (BinOp::Div, 1) => Op::Div { d, a, b },
                    (BinOp::Rem, 1) => Op::Rem { d, a, b },
                    (BinOp::Div, _) => Op::DivW {
                        d,
                        a,
                        b,
                        n: m as u16,
                    },
                    _ => Op::RemW {
                        d,
                        a,
                        b,
                        n: m as u16,
                    },
                });
                Ok(Val {
                    slot: d,
                    limbs: m,
                    exact: Some(range),
                })
            }
            BinOp::LAnd | BinOp::LOr => {
                let a = self.value(l, Need::All)?.slot;
                let b = self.value(r, Need::All)?.slot;
                let d = self.temp(1)?;
                self.emit(if op == BinOp::LAnd {
                    Op::And { d, a, b }
                } else {
                    Op::Or { d, a, b }
                });
                Ok(val(d))
            }
            BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => {
                self.comparison(op, l, r)
            }
        }
    }

    fn comparison(&mut self, op: BinOp, l: &Node, r: &Node) -> LoadResult<Val> {
        let signed = l.range.neg || r.range.neg;
        let bits = l.range.bits.max(r.range.bits) + u32::from(signed);
        let n = limbs(bits.max(1));
        let mut a = self.operand(l, Need::All, n)?;
        let mut b = self.operand(r, Need::All, n)?;
        if matches!(op, BinOp::Gt | BinOp::Ge) {
            std::mem::swap(&mut a, &mut b);
        }
        let d = self.temp(1)?;
        let wide = n as u16;
        match (op, n, signed) {
            (BinOp::Eq, 1, _) => self.emit(Op::Eq { d, a, b }),
            (BinOp::Ne, 1, _) => self.emit(Op::Ne { d, a, b }),
            (BinOp::Lt | BinOp::Gt, 1, false) => self.emit(Op::Lt { d, a, b }),
            (BinOp::Lt | BinOp::Gt, 1, true) => self.emit(Op::LtS { d, a, b }),
            (_, 1, false) => self.emit(Op::Le { d, a, b }),
            (_, 1, true) => self.emit(Op::LeS { d, a, b }),
            (BinOp::Eq, ..) => self.emit(Op::EqW { d, a, b, n: wide }),
            (BinOp::Ne, ..) => {
                self.emit(Op::EqW { d, a, b, n: wide });
                self.emit(Op::IsZero { d, a: d });
            }
            (BinOp::Lt | BinOp::Gt, ..) => self.emit(Op::LtW {
                d,
                a,
                b,
                n: wide,
                signed,
            }),
            _ => {
                // a <= b is not (b < a).
                self.emit(Op::LtW {
                    d,
                    a: b,
                    b: a,
                    n: wide,
                    signed,
                });
                self.emit(Op::IsZero { d, a: d });
            }
        }
        Ok(Val {
            slot: d,
            limbs: 1,
            exact: Some(Range::BOOL),
        })
    }
}

/// What an operand must deliver when the result needs `need`, computed on `bits` bits.
fn need_of(need: Need, bits: u32) -> Need {
    match need {
        Need::All => Need::All,
        Need::Low(_) => Need::Low(bits),
    }
}

fn field_range(f: Field) -> Range {
    if f.signed {
        Range::signed(f.bits - 1)
    } else {
        Range::unsigned(f.bits)
    }
}

fn leaf_field(f: Field) -> Node {
    Node {
        range: field_range(f),
        kind: Kind::Slot(f),
        depth: 0,
    }
}

fn truth(x: Node) -> Node {
    if x.is_bool() {
        return x;
    }
    Node {
        depth: x.depth + 1,
        kind: Kind::Truth(Box::new(x)),
        range: Range::BOOL,
    }
}

fn binary(op: BinOp, l: Node, r: Node) -> LoadResult<Node> {
    let (l, r) = match op {
        BinOp::LAnd | BinOp::LOr => (truth(l), truth(r)),
        _ => (l, r),
    };
    let (a, b) = (l.range, r.range);
    let neg = a.neg || b.neg;
    let most = a.bits.max(b.bits);
    let range = match op {
        BinOp::Add => Range {
            neg,
            bits: most + 1,
        },
        BinOp::Sub => Range::signed(most + 1),
        BinOp::Mul => Range {
            neg,
            bits: a.bits + b.bits + u32::from(neg),
        },
        BinOp::Div => a,
        BinOp::Rem => {
            if b.neg {
                a
            } else {
                Range {
                    neg: a.neg,
                    bits: b.bits,
                }
            }
        }
        BinOp::And => match (a.neg, b.neg) {
            (false, false) => Range::unsigned(a.bits.min(b.bits)),
            (false, true) => a,
            (true, false) => b,
            (true, true) => Range::signed(most),
        },
        BinOp::Or | BinOp::Xor => Range { neg, bits: most },
        BinOp::Shl => {
            // The largest amount that can occur; a constant is known exactly.
            let amount = match &r.kind {
                Kind::Const(v) if !b.neg && v.iter().skip(1).all(|&x| x == 0) => {
                    v.first().copied().unwrap_or(0)
                }
                _ => mask64(b.bits),
            };
            Range {
                neg: a.neg,
                bits: a
                    .bits
                    .saturating_add(u32::try_from(amount).unwrap_or(u32::MAX / 4))
                    .min(u32::MAX / 4),
            }
        }
        BinOp::Shr => {
            let amount = match &r.kind {
                Kind::Const(v) if !b.neg && v.iter().skip(1).all(|&x| x == 0) => {
                    u32::try_from(v.first().copied().unwrap_or(0)).unwrap_or(u32::MAX)
                }
                _ => 0,
            };
            Range {
                neg: a.neg,
                bits: a.bits.saturating_sub(amount),
            }
        }
        _ => Range::BOOL,
    };
    if range.bits > u32::MAX / 4 {
        refuse!("the result can be wider than any limit");
    }
    let depth = l.depth.max(r.depth) + 1;
    Ok(Node {
        kind: Kind::Bin(op, Box::new(l), Box::new(r)),
        range,
        depth,
    })
}

fn constant_node(text: &str) -> LoadResult<Node> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut value = hex_limbs(digits)?;
    let bits = bit_length(&value);
    if negative && bits > 0 {
        let mut carry = true;
        for limb in &mut value {
            let (v, c) = (!*limb).overflowing_add(u64::from(carry));
            *limb = v;
            carry = c;
        }
        // One more limb where the sign bit would not fit.
        if bits.is_multiple_of(64) {
            value.push(u64::MAX);
        }
        return Ok(Node {
            kind: Kind::Const(value),
            range: Range::signed(bits),
            depth: 0,
        });
    }
    Ok(Node {
        kind: Kind::Const(value),
        range: Range::unsigned(bits),
        depth: 0,
    })
}

fn bit_length(value: &[u64]) -> u32 {
    value
        .iter()
        .enumerate()
        .rev()
        .find(|&(_, &limb)| limb != 0)
        .map_or(0, |(i, limb)| 64 * i as u32 + 64 - limb.leading_zeros())
}

/// Limbs of a hexadecimal string such as `0x1f`; at least one limb, no more than needed.
pub(crate) fn hex_limbs(text: &str) -> LoadResult<Vec<u64>> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let bad = || LoadError::new(format!("'{text}' is not a hexadecimal number"));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() > MAX_BITS as usize / 4 {
        refuse!("a constant is wider than {MAX_BITS} bits");
    }
    let mut out = Vec::new();
    for chunk in digits.as_bytes().rchunks(16) {
        let chunk = std::str::from_utf8(chunk).map_err(|_| bad())?;
        out.push(u64::from_str_radix(chunk, 16).map_err(|_| bad())?);
    }
    if out.is_empty() {
        out.push(0);
    }
    Ok(out)
}

/// A JSON string.
pub(crate) fn text(value: &Value) -> LoadResult<&str> {
    match value.as_str() {
        Some(s) => Ok(s),
        None => refuse!("expected a string, found {value}"),
    }
}

/// The parts of a `{"type": .., "value": ..}` object.
pub(crate) fn type_value(value: &Value) -> LoadResult<(&str, &Value)> {
    match (
        value.get("type").and_then(Value::as_str),
        value.get("value"),
    ) {
        (Some(kind), Some(value)) => Ok((kind, value)),
        _ if value.is_null() => refuse!("an operand is missing"),
        _ => refuse!("expected an object with 'type' and 'value'"),
    }
}
