//! From JSON to typed trees.

use super::literal::{constant_node, text, type_value};
use super::{BinOp, Compiler, Dest, HeaderNode, Kind, MAX_BITS, MAX_DEPTH, Node, Range, UnionNode};
use crate::error::{At, LoadError, LoadResult, refuse};
use crate::layout::{Field, pair};
use crate::wide::mask64;
use serde_json::Value;

impl Compiler<'_> {
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
            "union_stack_field" => {
                let [stack, member, field] = triple(value)?;
                let stack = self.layout.member_stack(stack, member)?;
                let field = self.stack_member(stack, field)?;
                Ok(Node {
                    range: field_range(field),
                    kind: Kind::Last { stack, field },
                    depth: 0,
                })
            }
            "lookahead" => refuse!("lookahead is only possible as a parser's source or key"),
            "register" => {
                let name = text(value.get(0).unwrap_or(&Value::Null))?;
                let Some(&(array, bits)) = self.registers.get(name) else {
                    refuse!("unknown register array '{name}'");
                };
                let index = self.child(value.get(1).unwrap_or(&Value::Null), depth)?;
                Ok(Node {
                    depth: index.depth + 1,
                    kind: Kind::Register(array, Box::new(index), bits),
                    range: Range::unsigned(bits),
                })
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
            "+" if value.get("left").is_none_or(Value::is_null) => return right(),
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
                let is_union = |side: &str| match value.get(side) {
                    Some(v) => self.union_expr(v, depth),
                    None => Ok(None),
                };
                if let Some(a) = is_union("left")? {
                    let Some(b) = is_union("right")? else {
                        refuse!("compares a header union with something else");
                    };
                    let same = self.unions_equal(a, b)?;
                    return Ok(if op == "==" { same } else { not(same) });
                }
                if op == "==" { BinOp::Eq } else { BinOp::Ne }
            }
            "not" => {
                return Ok(not(truth(unary()?)));
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
                let stack = match kind {
                    "header_stack" => self.layout.stack(text(name)?)?,
                    // All stacks of the members share the counter.
                    "header_union_stack" => {
                        let stack = self.layout.union_stack(text(name)?)?;
                        match self.layout.union_stacks[stack].stacks.first() {
                            Some(&stack) => stack,
                            None => refuse!("stack of header unions without members"),
                        }
                    }
                    _ => refuse!("operand is not a header stack"),
                };
                let (kind, range) = if op == "size_stack" {
                    (Kind::Size(stack), Range::unsigned(32))
                } else {
                    // Of an empty stack 2^64 - 1: what BMv2 takes from 0 has no sign.
                    (Kind::LastIndex(stack), Range::unsigned(64))
                };
                return Ok(Node {
                    kind,
                    range,
                    depth: 0,
                });
            }
            "valid_union" => {
                let side = value.get("right").filter(|v| !v.is_null());
                let side = side.or(value.get("left")).unwrap_or(&Value::Null);
                let Some(union) = self.union_expr(side, depth)? else {
                    refuse!("operand is not a header union");
                };
                let members = self.members(union)?;
                return any(members.into_iter().map(|h| Node {
                    kind: Kind::Valid(h),
                    range: Range::BOOL,
                    depth: 1,
                }));
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
            "header" if self.layout.union(text(value)?).is_ok() => Ok(None),
            "header" => Ok(Some(HeaderNode::Fixed(self.layout.header(text(value)?)?))),
            "expression" => match value.get("op").and_then(Value::as_str) {
                None => self.header_expr(value, depth + 1),
                Some("dereference_header_stack") => {
                    let (kind, name) = type_value(value.get("left").unwrap_or(&Value::Null))?;
                    if kind == "header_union_stack" {
                        return Ok(None);
                    }
                    if kind != "header_stack" {
                        refuse!("operand of dereference_header_stack is not a header stack");
                    }
                    let stack = self.layout.stack(text(name)?)?;
                    let index =
                        self.child(value.get("right").unwrap_or(&Value::Null), depth + 1)?;
                    Ok(Some(HeaderNode::Element(stack, Box::new(index))))
                }
                Some("access_union_header") => {
                    let union = value.get("left").unwrap_or(&Value::Null);
                    let Some(union) = self.union_expr(union, depth + 1)? else {
                        refuse!("operand of access_union_header is not a header union");
                    };
                    let index = value.get("right").and_then(Value::as_u64);
                    let index = index.and_then(|i| usize::try_from(i).ok());
                    let mut members = self.members(union)?;
                    match index {
                        Some(i) if i < members.len() => Ok(Some(members.swap_remove(i))),
                        _ => refuse!("header union has no such member"),
                    }
                }
                Some(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The header union that a type value names, `None` if it is none.
    fn union_expr(&self, value: &Value, depth: u32) -> LoadResult<Option<UnionNode>> {
        if depth > MAX_DEPTH {
            refuse!("expression is nested deeper than {MAX_DEPTH} levels");
        }
        if value.is_null() {
            return Ok(None);
        }
        let (kind, value) = type_value(value)?;
        match kind {
            "header_union" => Ok(Some(UnionNode::Fixed(self.layout.union(text(value)?)?))),
            // p4c's name for an element, at a constant index, of a stack of unions.
            "header" => Ok(self.layout.union(text(value)?).ok().map(UnionNode::Fixed)),
            "expression" => match value.get("op").and_then(Value::as_str) {
                None => self.union_expr(value, depth + 1),
                Some("dereference_union_stack" | "dereference_header_stack") => {
                    let (kind, name) = type_value(value.get("left").unwrap_or(&Value::Null))?;
                    if kind != "header_union_stack" {
                        return Ok(None);
                    }
                    let stack = self.layout.union_stack(text(name)?)?;
                    let index =
                        self.child(value.get("right").unwrap_or(&Value::Null), depth + 1)?;
                    Ok(Some(UnionNode::Element(stack, Box::new(index))))
                }
                Some(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The members of a union as headers. The index of an element must be a constant or a
    /// field: it is computed once per member.
    fn members(&self, union: UnionNode) -> LoadResult<Vec<HeaderNode>> {
        match union {
            UnionNode::Fixed(union) => {
                let members = self.layout.unions[union].members.iter();
                Ok(members.map(|&h| HeaderNode::Fixed(h)).collect())
            }
            UnionNode::Element(stack, index) => {
                let mut members = Vec::new();
                for &stack in &self.layout.union_stacks[stack].stacks {
                    let kind = match &index.kind {
                        Kind::Slot(f) => Kind::Slot(*f),
                        Kind::Const(value) => Kind::Const(value.clone()),
                        _ => refuse!(
                            "the index of a stack of header unions is neither constant nor field"
                        ),
                    };
                    let index = Node { kind, ..*index };
                    members.push(HeaderNode::Element(stack, Box::new(index)));
                }
                Ok(members)
            }
        }
    }

    /// True where both unions hold the same member with equal fields, as BMv2 compares them.
    fn unions_equal(&self, a: UnionNode, b: UnionNode) -> LoadResult<Node> {
        let (a, b) = (self.members(a)?, self.members(b)?);
        if a.len() != b.len() {
            refuse!("compares header unions of different types");
        }
        let mut pairs = Vec::new();
        for (a, b) in a.into_iter().zip(b) {
            if self.header_kind(&a) != self.header_kind(&b) {
                refuse!("compares header unions of different types");
            }
            pairs.push(Node {
                kind: Kind::HeaderEq(a, b, false),
                range: Range::BOOL,
                depth: 1,
            });
        }
        any(pairs.into_iter())
    }

    /// Members of a union that is a parameter.
    pub fn union_members(&self, kind: &str, value: &Value) -> LoadResult<Vec<HeaderNode>> {
        let whole = serde_json::json!({"type": kind, "value": value});
        match self.union_expr(&whole, 0)? {
            Some(union) => self.members(union),
            None => refuse!("expected a header union, found '{kind}'"),
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
                    range: Range::unsigned(64),
                    depth: 0,
                },
                field,
            )),
            _ => refuse!("is not something that can be assigned to"),
        }
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

pub(super) fn truth(x: Node) -> Node {
    if x.is_bool() {
        return x;
    }
    Node {
        depth: x.depth + 1,
        kind: Kind::Truth(Box::new(x)),
        range: Range::BOOL,
    }
}

pub(super) fn binary(op: BinOp, l: Node, r: Node) -> LoadResult<Node> {
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
        BinOp::Div => Range {
            neg,
            bits: a.bits + u32::from(a.neg && b.neg),
        },
        // The sign of the dividend; the size of the divisor at most.
        BinOp::Rem => Range {
            neg: a.neg,
            bits: if b.neg { a.bits } else { b.bits },
        },
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

/// The logical negation of a truth value.
fn not(x: Node) -> Node {
    Node {
        depth: x.depth + 1,
        kind: Kind::Not(Box::new(x)),
        range: Range::BOOL,
    }
}

/// True if any of the truth values is.
fn any(mut all: impl Iterator<Item = Node>) -> LoadResult<Node> {
    let Some(first) = all.next() else {
        return constant_node("0");
    };
    all.try_fold(first, |a, b| binary(BinOp::LOr, a, b))
}

/// The JSON triple `["a", "b", "c"]`.
fn triple(value: &Value) -> LoadResult<[&str; 3]> {
    if let Some([a, b, c]) = value.as_array().map(Vec::as_slice)
        && let (Some(a), Some(b), Some(c)) = (a.as_str(), b.as_str(), c.as_str())
    {
        return Ok([a, b, c]);
    }
    refuse!("expected three names, found {value}")
}
