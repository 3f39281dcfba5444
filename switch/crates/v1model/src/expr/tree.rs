//! Typed trees of JSON expressions.

use super::code::Compiler;
use super::literal::{constant, text, type_value};
use super::node::{BinOp, Dest, HeaderNode, Kind, MAX_BITS, Node, Range};
use crate::error::{At, LoadResult, refuse};
use crate::layout::pair;
use serde_json::Value;

/// Deepest expression tree.
const MAX_DEPTH: u32 = 1_024;

/// Bounds the recursion over a tree.
pub(super) fn check_depth(depth: u32) -> LoadResult<()> {
    if depth > MAX_DEPTH {
        refuse!("expression is nested deeper than {MAX_DEPTH} levels");
    }
    Ok(())
}

impl Compiler<'_> {
    /// Makes a tree of `{"type": kind, "value": value}`.
    pub fn node(&self, kind: &str, value: &Value) -> LoadResult<Node> {
        self.node_at(kind, value, 0)
    }

    fn node_at(&self, kind: &str, value: &Value, depth: u32) -> LoadResult<Node> {
        check_depth(depth)?;
        match kind {
            "expression" => match value.get("op") {
                Some(Value::String(op)) => self
                    .operation(op, value, depth)
                    .at(|| format!("operator '{op}'")),
                Some(_) => refuse!("operator is not a string"),
                None => self.child(value, depth + 1),
            },
            "field" if value[0].is_object() => self.computed_field(value, depth),
            "field" => Ok(Node::field(self.layout.field_value(value)?)),
            "hexstr" => constant(text(value)?),
            "bool" => match value.as_bool() {
                Some(b) => Ok(Node::bool(Kind::Const(vec![u64::from(b)]))),
                None => refuse!("expected true or false, found {value}"),
            },
            "local" | "runtime_data" => {
                let index = value.as_u64().and_then(|i| usize::try_from(i).ok());
                match index.and_then(|i| self.params.get(i)) {
                    Some(&f) => Ok(Node::field(f)),
                    None => refuse!("unknown action parameter {value}"),
                }
            }
            "stack_field" => {
                let (stack, field) = pair(value)?;
                self.last(self.layout.stack(stack)?, field)
            }
            "union_stack_field" => {
                let [stack, member, field] = triple(value)?;
                self.last(self.layout.member_stack(stack, member)?, field)
            }
            "lookahead" => refuse!("lookahead is only possible as a parser's source or key"),
            "register" => {
                let name = text(&value[0])?;
                let Some(&(array, bits)) = self.registers.get(name) else {
                    refuse!("unknown register array '{name}'");
                };
                let index = Box::new(self.child(&value[1], depth)?);
                Ok(Node {
                    kind: Kind::Register(array, index, bits),
                    range: Range::unsigned(bits),
                })
            }
            other => refuse!("operand of type '{other}' is not supported"),
        }
    }

    /// Makes a tree of a type value inside another.
    pub(super) fn child(&self, value: &Value, depth: u32) -> LoadResult<Node> {
        let (kind, value) = type_value(value)?;
        self.node_at(kind, value, depth + 1)
    }

    /// A field of the last element of a stack.
    fn last(&self, stack: usize, field: &str) -> LoadResult<Node> {
        let field = self.layout.stack_field(stack, field)?;
        Ok(Node {
            range: Range::of_field(field),
            kind: Kind::Last { stack, field },
        })
    }

    fn operation(&self, op: &str, value: &Value, depth: u32) -> LoadResult<Node> {
        let (left, right) = (&value["left"], &value["right"]);
        // p4c writes a single operand on the right; the left is null.
        let single = if right.is_null() { left } else { right };
        let child = |side| self.child(side, depth);
        match op {
            "+" if left.is_null() => child(right),
            "-" if left.is_null() => Node::binary(BinOp::Sub, Node::zero(), child(right)?),
            "not" => Ok(child(single)?.truth().not()),
            "d2b" | "b2d" => Ok(child(single)?.truth()),
            "~" => {
                let x = child(single)?;
                Ok(Node {
                    range: Range::signed(x.range.bits),
                    kind: Kind::Invert(Box::new(x)),
                })
            }
            "?" => {
                let cond = child(&value["cond"])?.truth();
                let (a, b) = (child(left)?, child(right)?);
                let range = Range {
                    neg: a.range.neg || b.range.neg,
                    bits: a.range.bits.max(b.range.bits),
                };
                let kind = Kind::Select(Box::new(cond), Box::new(a), Box::new(b));
                Ok(Node { kind, range })
            }
            "two_comp_mod" | "usat_cast" | "sat_cast" => cast(op, child(left)?, &child(right)?),
            "valid" => Ok(Node::bool(Kind::Valid(self.header_operand(single, depth)?))),
            "access_field" => self.access_field(self.header_operand(left, depth)?, right),
            "last_stack_index" => Ok(Node::last_index(self.stack_operand(single)?)),
            "size_stack" => Ok(Node {
                kind: Kind::Size(self.stack_operand(single)?),
                range: Range::unsigned(32),
            }),
            "valid_union" => self.union_valid(single, depth),
            _ => {
                let Some(bin) = BinOp::from_json(op) else {
                    refuse!("unknown operator '{op}'");
                };
                if matches!(bin, BinOp::Eq | BinOp::Ne)
                    && let Some(node) = self.header_equality(bin, left, right, depth)?
                {
                    return Ok(node);
                }
                Node::binary(bin, child(left)?, child(right)?)
            }
        }
    }

    /// A field whose header is itself an expression: p4c writes the validity of an element of
    /// a stack as `[{"op": "dereference_header_stack", ..}, "$valid$"]`.
    fn computed_field(&self, value: &Value, depth: u32) -> LoadResult<Node> {
        let header = self.header_expr_of("expression", &value[0], depth + 1)?;
        let (Some(h), Some(name)) = (header, value[1].as_str()) else {
            refuse!("expected a header and the name of a field");
        };
        if name == "$valid$" {
            return Ok(Node::bool(Kind::Valid(h)));
        }
        let kind = &self.layout.types[self.header_kind(&h)];
        let index = kind.fields.iter().position(|f| f.name == name);
        self.access_field(h, &Value::from(index))
    }

    /// A field of a header by its number.
    fn access_field(&self, h: HeaderNode, index: &Value) -> LoadResult<Node> {
        let kind = &self.layout.types[self.header_kind(&h)];
        let index_of = |value: &Value| usize::try_from(value.as_u64()?).ok();
        let Some(f) = index_of(index).and_then(|i| kind.fields.get(i)) else {
            refuse!("header type '{}' has no field number {index}", kind.name);
        };
        Ok(match h {
            HeaderNode::Fixed(h) => Node::field(f.at(self.layout.headers[h].base)),
            HeaderNode::Element(stack, index) => {
                let field = f.at(0);
                Node {
                    range: Range::of_field(field),
                    kind: Kind::Element {
                        stack,
                        index,
                        field,
                    },
                }
            }
        })
    }

    /// Resolves a parameter that can be assigned to.
    pub fn dest(&self, kind: &str, value: &Value) -> LoadResult<Dest> {
        let node = self.node(kind, value)?;
        match node.kind {
            Kind::Slot(f) if self.params.contains(&f) => refuse!("assigns to an action parameter"),
            Kind::Slot(f) if self.layout.headers.iter().any(|h| h.base == f.slot) => {
                refuse!("assigns to the read-only field '$valid$'")
            }
            Kind::Slot(f) => Ok(Dest::Field(f)),
            Kind::Element {
                stack,
                index,
                field,
            } => Ok(Dest::Element(stack, *index, field)),
            Kind::Last { stack, field } => Ok(Dest::Element(stack, Node::last_index(stack), field)),
            _ => refuse!("is not something that can be assigned to"),
        }
    }
}

/// A cast of `x` to a number of bits that is a constant.
fn cast(op: &str, x: Node, width: &Node) -> LoadResult<Node> {
    let bits = match &width.kind {
        Kind::Const(limbs) if limbs.len() == 1 && (1..=u64::from(MAX_BITS)).contains(&limbs[0]) => {
            limbs[0] as u32
        }
        _ => refuse!("width is not a constant from 1 to {MAX_BITS}"),
    };
    let x = Box::new(x);
    let (kind, range) = match op {
        "two_comp_mod" => (Kind::TwoComp(x, bits), Range::signed(bits - 1)),
        "sat_cast" => (Kind::SSat(x, bits), Range::signed(bits - 1)),
        _ => (Kind::USat(x, bits), Range::unsigned(bits)),
    };
    Ok(Node { kind, range })
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
