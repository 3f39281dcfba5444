//! Expressions: from BMv2 JSON trees to flat code.
//!
//! BMv2 evaluates with unbounded integers and truncates on assignment. To get the same result
//! in fixed width, every node carries the range its value can take. Where only the low bits of
//! a result matter (an assignment, a mask), operations that respect truncation run on just
//! those bits; where the whole value matters (comparison, right shift, saturation), they run
//! on as many limbs as the range needs. Most code ends up on single words.
//!
//! * `node`: typed trees; `tree` and `header` make them of JSON.
//! * `code`: the [`Compiler`], which owns the growing code, the constants and the temporaries.
//! * `value` and `arith` make code of trees, `store` assigns values.

mod arith;
mod code;
mod header;
mod known;
mod literal;
mod node;
mod store;
mod tree;
mod value;
mod want;

pub(crate) use code::{Compiler, MAX_TEMP_WORDS};
pub(crate) use literal::{hex_limbs, text, type_value};
pub(crate) use node::{Dest, HeaderNode, Node};
