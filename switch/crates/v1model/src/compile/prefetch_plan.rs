//! Plans which memory to prefetch once a table entry's arguments are known.
//!
//! An entry that says which class a packet is of decides which entry of the table of classes, which
//! registers and counters and which queue the packet uses next. With many classes that memory has
//! left the caches. Prefetched together, as soon as the class is known, all of it takes little
//! longer than one part.

use crate::ops::{Code, Op};
use crate::program::Indexed;
use crate::slot::Slot;
use crate::state::State;
use crate::table::{Prefetch, Table};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The collections that the values in slots index.
type Uses = HashMap<Slot, BTreeSet<Indexed>>;

/// Sets the prefetches of each table's actions for their arguments.
///
/// `fields`: the slots of headers and metadata. `params`: those of arguments. Values are followed
/// through plain copies, in any order of statements: a wrong guess costs one prefetch.
pub(crate) fn plan_prefetches(
    tables: &mut [Table],
    ops: &[Op],
    state: &State,
    fields: Range<Slot>,
    params: Range<Slot>,
) {
    let mut uses = direct_uses(tables, ops, state, &fields);
    follow_copies(&mut uses, ops, &fields);
    for table in tables {
        for action in &mut table.spec.actions {
            let Code { start, end, .. } = action.code;
            let code = ops.get(start as usize..end as usize).unwrap_or_default();
            let of_copy = |(to, from): (Slot, Slot)| {
                let argument = (from - params.start) as usize;
                let uses = uses.get(&to).into_iter().flatten();
                uses.map(move |&indexed| Prefetch { argument, indexed })
            };
            let copies = copies(code).filter(|(_, from)| params.contains(from));
            action.prefetches = copies.flat_map(of_copy).collect();
        }
        let hinted = table.spec.actions.iter().flat_map(|action| {
            let hint = action.prefetches.first().map(|first| first.argument);
            let all = action.prefetches.iter();
            all.filter(move |prefetch| Some(prefetch.argument) == hint)
        });
        let hinted: BTreeSet<Indexed> = hinted.map(|prefetch| prefetch.indexed).collect();
        table.hinted = hinted.into_iter().collect();
    }
}

/// The collections that operations and table keys index by fields.
fn direct_uses(tables: &[Table], ops: &[Op], state: &State, fields: &Range<Slot>) -> Uses {
    let of_op = |op: &Op| match *op {
        Op::RegisterRead { array, index, .. } | Op::RegisterWrite { array, index, .. } => Some((
            index,
            Indexed::Rows(state.cells.first_of_rows(array.into())?),
        )),
        Op::Count { array, index } => {
            let array = state.counter_array(array.into());
            Some((index, Indexed::Rows(state.cells.first_of_rows(array)?)))
        }
        Op::Backlog { class, .. } => Some((class, Indexed::Queue)),
        Op::Hold { args } => Some((args, Indexed::Queue)),
        _ => None,
    };
    let of_key = |(at, table): (usize, &Table)| Some((table.small_key()?, Indexed::Table(at)));
    let keys = tables.iter().enumerate().filter_map(of_key);
    let mut uses = Uses::new();
    for (slot, indexed) in ops.iter().filter_map(of_op).chain(keys) {
        if fields.contains(&slot) {
            uses.entry(slot).or_default().insert(indexed);
        }
    }
    uses
}

/// Adds the uses of each field to the fields that it is copied from, until nothing changes.
fn follow_copies(uses: &mut Uses, ops: &[Op], fields: &Range<Slot>) {
    let copies: Vec<(Slot, Slot)> = copies(ops)
        .filter(|(to, from)| fields.contains(to) && fields.contains(from))
        .collect();
    loop {
        let mut changed = false;
        for (to, from) in &copies {
            let found = uses.get(to).cloned().unwrap_or_default();
            if !found.is_empty() {
                let known = uses.entry(*from).or_default();
                let before = known.len();
                known.extend(found);
                changed |= known.len() > before;
            }
        }
        if !changed {
            return;
        }
    }
}

/// The plain copies of words: destination and source.
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
    fn a_flow_prefetches_all_of_its_class() {
        let path = "../../../p4src/compiled/pacing_switch/pacer.json";
        let json = std::fs::read(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect("pacer");
        let pipeline = Pipeline::load(&json, &LoadOptions::default()).expect("it loads");
        let table = |name: &str| pipeline.tables().iter().position(|t| t.name == name);
        let flows = table("PacerIngress.flows").expect("flows");
        let classes = table("PacerIngress.classes").expect("classes");
        let prefetches = &pipeline.tables[flows].spec.actions[0].prefetches;
        let kinds: Vec<Indexed> = prefetches.iter().map(|prefetch| prefetch.indexed).collect();
        assert!(prefetches.iter().all(|prefetch| prefetch.argument == 0));
        assert!(
            matches!(kinds[..], [Indexed::Rows(_), Indexed::Table(at), Indexed::Queue] if at == classes),
            "{kinds:?}"
        );
        // The entry's hint is enough for all of them.
        assert_eq!(*pipeline.tables[flows].hinted, kinds[..]);
    }
}
