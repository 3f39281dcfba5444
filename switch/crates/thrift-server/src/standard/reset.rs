//! `bm_reset_state`: the program as it was loaded, without later writes. Parser value sets stay as they are,
//! as in BMv2.

use switch::Program;
use v1model::entries::{Bits, CellValue, ControlResult, CounterValue, MeterWrite};

use super::counters::CELLS_PER_PIECE;

/// Objects deleted between two looks at whether a visit is over.
const OBJECTS_PER_PIECE: usize = 16;

const UNSET_METER: MeterWrite = MeterWrite {
    config: None,
    clear_counts: true,
};

/// The object to reset next. The numbers are those of tables, profiles, arrays and digests.
#[derive(Debug, Clone, Copy)]
enum Place {
    Entries(usize),
    Groups(usize),
    Members(usize),
    Counter(usize, usize),
    Meter(usize, usize),
    Register(usize, usize),
    Digest(usize),
    Done,
}

/// A reset under way.
pub(super) struct Reset(Place);

impl Default for Reset {
    fn default() -> Self {
        Self(Place::Entries(0))
    }
}

/// Goes on at the next cells of an array of `size`, or at the next array.
fn next_cells(
    array: usize,
    end: usize,
    size: usize,
    place: impl Fn(usize, usize) -> Place,
) -> Place {
    match end < size {
        true => place(array, end),
        false => place(array + 1, 0),
    }
}

impl Reset {
    /// Resets some more; true: all is reset.
    pub(super) fn piece(&mut self, program: &mut Program) -> ControlResult<bool> {
        self.0 = match self.0 {
            Place::Entries(table) => entries(program, table)?,
            Place::Groups(profile) => groups(program, profile)?,
            Place::Members(profile) => members(program, profile)?,
            Place::Counter(array, from) => counter(program, array, from)?,
            Place::Meter(array, from) => meter(program, array, from)?,
            Place::Register(array, from) => register(program, array, from)?,
            Place::Digest(number) => digest(program, number),
            Place::Done => return Ok(true),
        };
        Ok(false)
    }
}

fn entries(program: &mut Program, table: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    let Some(info) = pipeline.tables().get(table) else {
        return Ok(Place::Groups(0));
    };
    let (is_fixed, has_fixed_default) = (info.const_entries, info.const_default);
    pipeline.index_meter_set(table, None, UNSET_METER)?;
    if !is_fixed {
        let page = pipeline.handled_entries(table, 0, OBJECTS_PER_PIECE);
        for handled in &page.items {
            pipeline.table_delete(table, &handled.entry.key)?;
        }
        if page.next.is_some() {
            return Ok(Place::Entries(table));
        }
        pipeline.handles_forget(table)?;
    }
    if !has_fixed_default {
        pipeline.table_set_default(table, None)?;
    }
    Ok(Place::Entries(table + 1))
}

fn groups(program: &mut Program, profile: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    if profile >= pipeline.profiles().len() {
        return Ok(Place::Members(0));
    }
    let page = pipeline.groups(profile, 0, OBJECTS_PER_PIECE);
    for group in &page.items {
        pipeline.group_delete(profile, group.id)?;
    }
    Ok(match page.next {
        Some(_) => Place::Groups(profile),
        None => Place::Groups(profile + 1),
    })
}

fn members(program: &mut Program, profile: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    if profile >= pipeline.profiles().len() {
        return Ok(Place::Counter(0, 0));
    }
    let page = pipeline.members(profile, 0, OBJECTS_PER_PIECE);
    for member in &page.items {
        pipeline.member_delete(profile, member.id)?;
    }
    Ok(match page.next {
        Some(_) => Place::Members(profile),
        None => Place::Members(profile + 1),
    })
}

fn counter(program: &mut Program, array: usize, from: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    let Some(size) = pipeline.counters().get(array).map(|info| info.size) else {
        return Ok(Place::Meter(0, 0));
    };
    let end = size.min(from + CELLS_PER_PIECE);
    let zero = CellValue::Counter(CounterValue::default());
    pipeline.array_fill(array, from..end, &zero)?;
    Ok(next_cells(array, end, size, Place::Counter))
}

fn meter(program: &mut Program, array: usize, from: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    let Some(size) = pipeline.meters().get(array).map(|(info, _)| info.size) else {
        return Ok(Place::Register(0, 0));
    };
    let end = size.min(from + OBJECTS_PER_PIECE);
    pipeline.array_fill(array, from..end, &CellValue::Meter(UNSET_METER))?;
    Ok(next_cells(array, end, size, Place::Meter))
}

fn register(program: &mut Program, array: usize, from: usize) -> ControlResult<Place> {
    let pipeline = program.pipeline_mut();
    let Some(info) = pipeline.registers().get(array) else {
        return Ok(Place::Digest(0));
    };
    let (size, bytes) = (info.size, info.bits.div_ceil(8) as usize);
    let end = size.min(from + CELLS_PER_PIECE);
    let zero: Bits = vec![0; bytes].into();
    pipeline.array_fill(array, from..end, &CellValue::Register(zero))?;
    Ok(next_cells(array, end, size, Place::Register))
}

fn digest(program: &mut Program, digest: usize) -> Place {
    if digest >= program.pipeline().digests().len() {
        return Place::Done;
    }
    program.digest_reset(digest);
    Place::Digest(digest + 1)
}
