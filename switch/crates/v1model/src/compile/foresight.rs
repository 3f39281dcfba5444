//! What a packet will need of memory once a table entry's arguments are known.
//!
//! An entry that says which class a packet is of decides which entry of the table of classes, which
//! registers and counters and which queue come next. They lie in memory that left the caches long
//! ago where there are many classes; looked at together, as soon as the class is known, they cost
//! little more than one of them.

use crate::ops::{Code, Op, Slot};
use crate::state::State;
use crate::table::{Foreseen, Table};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// What the value in a slot is an index of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Indexed {
    /// Cells of this array and its neighbours ([`crate::rows`]).
    Rows(usize),
    /// Entries of this table.
    Table(usize),
    /// Queues of the traffic manager.
    Queue,
}

/// Tells each table's actions what their arguments will be used for.
///
/// `fields`: the slots of headers and metadata. `params`: those of arguments. Where a value goes is
/// followed through plain copies, whatever the order of statements: a guess too many costs a look.
pub(crate) fn foresee(
    tables: &mut [Table],
    ops: &[Op],
    state: &State,
    fields: Range<Slot>,
    params: Range<Slot>,
) {
    let mut uses: HashMap<Slot, BTreeSet<Indexed>> = HashMap::new();
    let mut note = |slot: Slot, indexed: Option<Indexed>| {
        if let Some(indexed) = indexed.filter(|_| fields.contains(&slot)) {
            uses.entry(slot).or_default().insert(indexed);
        }
    };
    for op in ops {
        match *op {
            Op::RegisterRead { array, index, .. } | Op::RegisterWrite { array, index, .. } => {
                note(index, state.register_rows(array.into()).map(Indexed::Rows));
            }
            Op::Count { array, index } => {
                note(index, state.counter_rows(array.into()).map(Indexed::Rows));
            }
            Op::Backlog { class, .. } => note(class, Some(Indexed::Queue)),
            Op::Hold { args } => note(args, Some(Indexed::Queue)),
            _ => {}
        }
    }
    for (at, table) in tables.iter().enumerate() {
        note(
            table.small_key().unwrap_or(Slot::MAX),
            Some(Indexed::Table(at)),
        );
    }
    let moves: Vec<(Slot, Slot)> = copies(ops)
        .filter(|(to, from)| fields.contains(to) && fields.contains(from))
        .collect();
    loop {
        let mut more = false;
        for (to, from) in &moves {
            let found = uses.get(to).cloned().unwrap_or_default();
            if !found.is_empty() {
                let known = uses.entry(*from).or_default();
                let before = known.len();
                known.extend(found);
                more |= known.len() > before;
            }
        }
        if !more {
            break;
        }
    }
    for table in tables {
        for action in &mut table.actions {
            let Code { start, end, .. } = action.code;
            let code = ops.get(start as usize..end as usize).unwrap_or_default();
            let mut foreseen = Vec::new();
            for (to, from) in copies(code).filter(|(_, from)| params.contains(from)) {
                let uses = uses.get(&to).into_iter().flatten();
                let argument = (from - params.start) as usize;
                foreseen.extend(uses.map(|&indexed| Foreseen { argument, indexed }));
            }
            action.foreseen = foreseen.into();
        }
        let indexed = table.actions.iter().flat_map(|action| {
            let first = action.foreseen.first().map(|foreseen| foreseen.argument);
            let foreseen = action.foreseen.iter();
            foreseen.filter(move |foreseen| Some(foreseen.argument) == first)
        });
        let indexed: BTreeSet<Indexed> = indexed.map(|foreseen| foreseen.indexed).collect();
        table.foreseen = indexed.into_iter().collect();
    }
}

/// Plain copies of words: to where, from where.
fn copies(ops: &[Op]) -> impl Iterator<Item = (Slot, Slot)> {
    ops.iter().filter_map(|op| match *op {
        Op::Copy { d, a } => Some((d, a)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, Pipeline};

    #[test]
    fn a_flow_tells_all_that_its_class_has() {
        let path = "../../../p4src/compiled/pacing_switch/pacer.json";
        let json = std::fs::read(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect("pacer");
        let pipeline = Pipeline::load(&json, &LoadOptions::default()).expect("it loads");
        let table = |name: &str| pipeline.tables().iter().position(|t| t.name == name);
        let flows = table("PacerIngress.flows").expect("flows");
        let classes = table("PacerIngress.classes").expect("classes");
        let foreseen = &pipeline.tables[flows].actions[0].foreseen;
        let kinds: Vec<Indexed> = foreseen.iter().map(|foreseen| foreseen.indexed).collect();
        assert!(foreseen.iter().all(|foreseen| foreseen.argument == 0));
        assert!(
            matches!(kinds[..], [Indexed::Rows(_), Indexed::Table(at), Indexed::Queue] if at == classes),
            "{kinds:?}"
        );
        // As a hint, without a look at the entry.
        assert_eq!(*pipeline.tables[flows].foreseen, kinds[..]);
    }
}
