//! Headers and header unions that expressions and primitives name.

use super::code::Compiler;
use super::literal::{text, type_value};
use super::node::{BinOp, HeaderNode, Kind, Node, UnionNode};
use super::tree::check_depth;
use crate::error::{LoadError, LoadResult, refuse};
use crate::layout::pair;
use crate::ops::{HeaderRef, Op};
use serde_json::Value;

impl Compiler<'_> {
    /// Resolves a parameter that must be a header.
    pub fn header(&self, kind: &str, value: &Value) -> LoadResult<HeaderNode> {
        let found = self.header_expr_of(kind, value, 0)?;
        found.ok_or_else(|| LoadError::new(format!("expected a header, found '{kind}'")))
    }

    /// Resolves a parameter that must be a header union, and returns its members.
    pub fn union_members(&self, kind: &str, value: &Value) -> LoadResult<Vec<HeaderNode>> {
        match self.union_expr_of(kind, value, 0)? {
            Some(union) => self.members(union),
            None => refuse!("expected a header union, found '{kind}'"),
        }
    }

    /// The type of a header.
    pub fn header_kind(&self, h: &HeaderNode) -> usize {
        match h {
            HeaderNode::Fixed(h) => self.layout.headers[*h].kind,
            HeaderNode::Element(s, _) => self.layout.stacks[*s].kind,
        }
    }

    /// Resolves an operand that must be a header.
    pub(super) fn header_operand(&self, value: &Value, depth: u32) -> LoadResult<HeaderNode> {
        let found = self.header_expr(value, depth)?;
        found.ok_or_else(|| LoadError::new("operand is not a header"))
    }

    /// Resolves the header that a type value names; `None` if it names something else.
    fn header_expr(&self, value: &Value, depth: u32) -> LoadResult<Option<HeaderNode>> {
        if value.is_null() {
            return Ok(None);
        }
        let (kind, value) = type_value(value)?;
        self.header_expr_of(kind, value, depth)
    }

    pub(super) fn header_expr_of(
        &self,
        kind: &str,
        value: &Value,
        depth: u32,
    ) -> LoadResult<Option<HeaderNode>> {
        check_depth(depth)?;
        match (kind, value["op"].as_str()) {
            ("header", _) if self.layout.union(text(value)?).is_ok() => Ok(None),
            ("header", _) => Ok(Some(HeaderNode::Fixed(self.layout.header(text(value)?)?))),
            ("stack_field", _) => self.last_header(value),
            ("expression", None) => self.header_expr(value, depth + 1),
            ("expression", Some("dereference_header_stack")) => {
                let (kind, name) = type_value(&value["left"])?;
                match kind {
                    "header_union_stack" => Ok(None),
                    "header_stack" => {
                        let stack = self.layout.stack(text(name)?)?;
                        let index = self.child(&value["right"], depth + 1)?;
                        Ok(Some(HeaderNode::Element(stack, Box::new(index))))
                    }
                    _ => refuse!("operand of dereference_header_stack is not a header stack"),
                }
            }
            ("expression", Some("access_union_header")) => {
                let Some(union) = self.union_expr(&value["left"], depth + 1)? else {
                    refuse!("operand of access_union_header is not a header union");
                };
                let index = value["right"].as_u64();
                let index = index.and_then(|i| usize::try_from(i).ok());
                let mut members = self.members(union)?;
                match index {
                    Some(i) if i < members.len() => Ok(Some(members.swap_remove(i))),
                    _ => refuse!("header union has no such member"),
                }
            }
            _ => Ok(None),
        }
    }

    /// The last element of a stack, which p4c writes as a field `last`. `None` if elements have a field
    /// of that name.
    fn last_header(&self, value: &Value) -> LoadResult<Option<HeaderNode>> {
        let (stack, field) = pair(value)?;
        let stack = self.layout.stack(stack)?;
        if field != "last" || self.layout.stack_field(stack, field).is_ok() {
            return Ok(None);
        }
        let index = Node::last_index(stack);
        Ok(Some(HeaderNode::Element(stack, Box::new(index))))
    }

    /// Resolves the header union that a type value names; `None` if it names something else.
    fn union_expr(&self, value: &Value, depth: u32) -> LoadResult<Option<UnionNode>> {
        if value.is_null() {
            return Ok(None);
        }
        let (kind, value) = type_value(value)?;
        self.union_expr_of(kind, value, depth)
    }

    fn union_expr_of(
        &self,
        kind: &str,
        value: &Value,
        depth: u32,
    ) -> LoadResult<Option<UnionNode>> {
        check_depth(depth)?;
        match (kind, value["op"].as_str()) {
            ("header_union", _) => Ok(Some(UnionNode::Fixed(self.layout.union(text(value)?)?))),
            // p4c's name for an element, at a constant index, of a stack of unions.
            ("header", _) => Ok(self.layout.union(text(value)?).ok().map(UnionNode::Fixed)),
            ("expression", None) => self.union_expr(value, depth + 1),
            ("expression", Some("dereference_union_stack" | "dereference_header_stack")) => {
                let (kind, name) = type_value(&value["left"])?;
                if kind != "header_union_stack" {
                    return Ok(None);
                }
                let stack = self.layout.union_stack(text(name)?)?;
                let index = self.child(&value["right"], depth + 1)?;
                Ok(Some(UnionNode::Element(stack, Box::new(index))))
            }
            _ => Ok(None),
        }
    }

    /// Resolves an operand that must be a header stack. All stacks of the members of a stack of
    /// unions share the counter: the first one stands for it.
    pub(super) fn stack_operand(&self, value: &Value) -> LoadResult<usize> {
        let (kind, name) = type_value(value)?;
        match kind {
            "header_stack" => self.layout.stack(text(name)?),
            "header_union_stack" => {
                let stack = self.layout.union_stack(text(name)?)?;
                match self.layout.union_stacks[stack].stacks.first() {
                    Some(&stack) => Ok(stack),
                    None => refuse!("stack of header unions without members"),
                }
            }
            _ => refuse!("operand is not a header stack"),
        }
    }

    /// The members of a union as headers. The index of an element must be a constant or a
    /// field, because it is computed once per member.
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

    /// Whether a member of a union is valid.
    pub(super) fn union_valid(&self, value: &Value, depth: u32) -> LoadResult<Node> {
        let Some(union) = self.union_expr(value, depth)? else {
            refuse!("operand is not a header union");
        };
        let members = self.members(union)?.into_iter();
        Node::any(members.map(|h| Ok(Node::bool(Kind::Valid(h)))))
    }

    /// A comparison of two headers or header unions; `None` if the left side is neither. Unions are
    /// equal if both hold the same member with equal fields, as BMv2 compares them.
    pub(super) fn header_equality(
        &self,
        op: BinOp,
        left: &Value,
        right: &Value,
        depth: u32,
    ) -> LoadResult<Option<Node>> {
        let differ = op == BinOp::Ne;
        if let Some(a) = self.header_expr(left, depth)? {
            let Some(b) = self.header_expr(right, depth)? else {
                refuse!("compares a header with something else");
            };
            if self.header_kind(&a) != self.header_kind(&b) {
                refuse!("compares headers of different types");
            }
            return Ok(Some(Node::bool(Kind::HeaderEq(a, b, differ))));
        }
        let Some(a) = self.union_expr(left, depth)? else {
            return Ok(None);
        };
        let Some(b) = self.union_expr(right, depth)? else {
            refuse!("compares a header union with something else");
        };
        let (a, b) = (self.members(a)?, self.members(b)?);
        if a.len() != b.len() {
            refuse!("compares header unions of different types");
        }
        let same = Node::any(a.into_iter().zip(b).map(|(a, b)| {
            if self.header_kind(&a) != self.header_kind(&b) {
                refuse!("compares header unions of different types");
            }
            Ok(Node::bool(Kind::HeaderEq(a, b, false)))
        }))?;
        Ok(Some(if differ { same.not() } else { same }))
    }

    /// Resolves a header to something code can name.
    pub fn header_ref(&mut self, h: &HeaderNode) -> LoadResult<HeaderRef> {
        Ok(match h {
            HeaderNode::Fixed(h) => HeaderRef::Fixed(self.layout.headers[*h].base),
            HeaderNode::Element(stack, index) => {
                let mut index = self.word(index)?;
                if self.layout.stacks[*stack].union.is_some() {
                    // Used again when the other members become invalid, when the field in which
                    // it stands may have another value.
                    let d = self.temp(1)?;
                    self.emit(Op::Copy { d, a: index });
                    index = d;
                }
                HeaderRef::Element(*stack as u16, index)
            }
        })
    }

    /// Makes the other members of the union of `h` invalid, after `h` may have become valid.
    pub fn claim(&mut self, node: &HeaderNode, h: HeaderRef) {
        match (node, h) {
            (HeaderNode::Fixed(header), HeaderRef::Fixed(base)) => {
                if let Some(union) = self.layout.headers[*header].union {
                    let union = union as u16;
                    self.emit(Op::Claim { union, base });
                }
            }
            (_, HeaderRef::Element(stack, index)) => {
                if self.layout.stacks[stack as usize].union.is_some() {
                    self.emit(Op::ClaimElement { stack, index });
                }
            }
            (HeaderNode::Element(..), HeaderRef::Fixed(_)) => {
                debug_assert!(false, "the element of a stack has no fixed place");
            }
        }
    }
}
