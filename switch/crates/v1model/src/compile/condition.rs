//! Conditions that are one comparison or two of which both must hold, as nearly all are: taken
//! out of the code, so that the branch runs none.

use crate::error::LoadResult;
use crate::expr::Compiler;
use crate::ops::Op;
use crate::program::{Comparison, Relation};
use crate::slot::Slot;

/// The comparisons that the code from `start` on, which leaves its truth in `slot`, amounts to;
/// that code is then taken back. `None`: it is something else, and stays.
pub(super) fn comparisons(
    c: &mut Compiler<'_>,
    start: u32,
    slot: Slot,
) -> LoadResult<Option<Vec<Comparison>>> {
    let zero = c.constant(&[0])?;
    let code = c.ops.get(start as usize..).unwrap_or_default();
    let valid = |slot: Slot| c.layout.headers.iter().any(|h| h.base == slot);
    let found = both(code, slot, zero, &valid);
    if found.is_some() {
        c.ops.truncate(start as usize);
        c.forget();
    }
    Ok(found)
}

/// The comparison or comparisons whose conjunction `slot` is, if the code computes nothing else.
fn both(
    code: &[Op],
    slot: Slot,
    zero: Slot,
    valid: &impl Fn(Slot) -> bool,
) -> Option<Vec<Comparison>> {
    let not_zero = |a: Slot| Comparison {
        relation: Relation::Ne,
        a,
        b: zero,
    };
    match code.last() {
        None => Some(vec![not_zero(slot)]),
        Some(&Op::And { d, a, b }) if d == slot => {
            let parts = &code[..code.len() - 1];
            let used = [a, b].into_iter().filter(|&s| defined(parts, s).is_some());
            if used.count() != parts.len() {
                return None;
            }
            [a, b]
                .into_iter()
                .map(|side| match defined(parts, side) {
                    Some(op) => comparison(parts, op, zero),
                    // A field of several bits would be masked here, not tested.
                    None => valid(side).then(|| not_zero(side)),
                })
                .collect()
        }
        Some(op) if code.len() == 1 && result(op) == Some(slot) => {
            Some(vec![comparison(&[], op, zero)?])
        }
        Some(_) => None,
    }
}

/// The operation that puts a value into `slot`.
fn defined(code: &[Op], slot: Slot) -> Option<&Op> {
    code.iter().find(|op| result(op) == Some(slot))
}

/// The slot of a comparison's result.
fn result(op: &Op) -> Option<Slot> {
    Some(parts_of(op, 0)?.0)
}

/// An operation as a comparison of values that no other part of the code computes.
fn comparison(parts: &[Op], op: &Op, zero: Slot) -> Option<Comparison> {
    let (_, compared) = parts_of(op, zero)?;
    let mut sides = [compared.a, compared.b].into_iter();
    let computed = sides.any(|s| defined(parts, s).is_some());
    (!computed).then_some(compared)
}

/// The result's slot and the comparison of an operation that compares.
fn parts_of(op: &Op, zero: Slot) -> Option<(Slot, Comparison)> {
    let (d, relation, a, b) = match *op {
        Op::Eq { d, a, b } => (d, Relation::Eq, a, b),
        Op::Ne { d, a, b } => (d, Relation::Ne, a, b),
        Op::Lt { d, a, b } => (d, Relation::Lt, a, b),
        Op::Le { d, a, b } => (d, Relation::Le, a, b),
        Op::LtS { d, a, b } => (d, Relation::LtS, a, b),
        Op::LeS { d, a, b } => (d, Relation::LeS, a, b),
        Op::IsZero { d, a } => (d, Relation::Eq, a, zero),
        Op::NonZero { d, a } => (d, Relation::Ne, a, zero),
        _ => return None,
    };
    Some((d, Comparison { relation, a, b }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Slot = 100;

    fn of(code: &[Op], slot: Slot) -> Option<Vec<Comparison>> {
        both(code, slot, ZERO, &|slot| slot == 7)
    }

    fn compare(relation: Relation, a: Slot, b: Slot) -> Comparison {
        Comparison { relation, a, b }
    }

    #[test]
    fn one_comparison_or_a_field() {
        assert_eq!(of(&[], 3), Some(vec![compare(Relation::Ne, 3, ZERO)]));
        let code = [Op::Le { d: 50, a: 1, b: 2 }];
        assert_eq!(of(&code, 50), Some(vec![compare(Relation::Le, 1, 2)]));
        let code = [Op::IsZero { d: 50, a: 1 }];
        assert_eq!(of(&code, 50), Some(vec![compare(Relation::Eq, 1, ZERO)]));
    }

    #[test]
    fn both_of_two() {
        let code = [
            Op::Eq { d: 50, a: 1, b: 2 },
            Op::LtS { d: 51, a: 3, b: 4 },
            Op::And {
                d: 52,
                a: 50,
                b: 51,
            },
        ];
        let expect = vec![compare(Relation::Eq, 1, 2), compare(Relation::LtS, 3, 4)];
        assert_eq!(of(&code, 52), Some(expect));
        // The validity of a header is 0 or 1.
        let code = [Op::Ne { d: 50, a: 1, b: 2 }, Op::And { d: 51, a: 7, b: 50 }];
        let expect = vec![compare(Relation::Ne, 7, ZERO), compare(Relation::Ne, 1, 2)];
        assert_eq!(of(&code, 51), Some(expect));
    }

    #[test]
    fn what_masks_or_computes_stays_code() {
        // Slot 8 may hold any number.
        let masks = [Op::Ne { d: 50, a: 1, b: 2 }, Op::And { d: 51, a: 8, b: 50 }];
        assert_eq!(of(&masks, 51), None);
        let computes = [Op::Add { d: 50, a: 1, b: 2 }, Op::Eq { d: 51, a: 50, b: 3 }];
        assert_eq!(of(&computes, 51), None);
        let nested = [
            Op::Eq { d: 50, a: 1, b: 2 },
            Op::Eq { d: 51, a: 50, b: 4 },
            Op::And {
                d: 52,
                a: 50,
                b: 51,
            },
        ];
        assert_eq!(of(&nested, 52), None);
        let three = [
            Op::Eq { d: 50, a: 1, b: 2 },
            Op::Eq { d: 51, a: 3, b: 4 },
            Op::And {
                d: 52,
                a: 50,
                b: 51,
            },
            Op::Eq { d: 53, a: 5, b: 6 },
            Op::And {
                d: 54,
                a: 52,
                b: 53,
            },
        ];
        assert_eq!(of(&three, 54), None);
    }
}
