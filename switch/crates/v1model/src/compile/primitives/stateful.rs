//! Registers, counters, meters, hashes and random numbers.

use super::params::Params;
use crate::compile::objects::Objects;
use crate::error::{LoadResult, refuse};
use crate::expr::{Compiler, Dest};
use crate::ops::Op;
use crate::wide::limbs;

/// Reads a register cell; an index out of range leaves the destination unchanged.
pub(super) fn register_read(
    c: &mut Compiler<'_>,
    objects: &Objects,
    params: Params<'_>,
) -> LoadResult<()> {
    let [dest, array, index] = params.all()?;
    let dest = dest.dest(c)?;
    let (array, bits) = objects.register(array.named("register_array")?)?;
    let index = index.word(c)?;
    let read = |d| Op::RegisterRead {
        d,
        array,
        index,
        skip: 0,
    };
    match dest {
        Dest::Field(f) if bits <= f.bits && limbs(bits) == f.limbs() => {
            c.emit(read(f.slot));
            Ok(())
        }
        dest => {
            let d = c.temp(limbs(bits))?;
            store_unless_skipped(c, read(d), &dest, d, bits)
        }
    }
}

/// Writes a register cell.
pub(super) fn register_write(
    c: &mut Compiler<'_>,
    objects: &Objects,
    params: Params<'_>,
) -> LoadResult<()> {
    let [array, index, value] = params.all()?;
    let (array, bits) = objects.register(array.named("register_array")?)?;
    let (index, value) = (index.word(c)?, value.node(c)?);
    let a = c.low_words(&value, bits)?;
    c.emit(Op::RegisterWrite { array, index, a });
    Ok(())
}

/// Counts the packet.
pub(super) fn count(c: &mut Compiler<'_>, objects: &Objects, params: Params<'_>) -> LoadResult<()> {
    let [array, index] = params.all()?;
    let array = objects.counter(array.named("counter_array")?)?;
    let index = index.word(c)?;
    c.emit(Op::Count { array, index });
    Ok(())
}

/// Meters the packet; an index out of range leaves the destination unchanged.
pub(super) fn meter(c: &mut Compiler<'_>, objects: &Objects, params: Params<'_>) -> LoadResult<()> {
    let [array, index, dest] = params.all()?;
    let array = objects.meter(array.named("meter_array")?)?;
    let index = index.word(c)?;
    let run = |d, mask| Op::Meter {
        d,
        mask,
        array,
        index,
        skip: 0,
    };
    match dest.dest(c)? {
        Dest::Field(f) if f.bits <= 64 => {
            c.emit(run(f.slot, if f.bits == 1 { 1 } else { 3 }));
            Ok(())
        }
        dest => {
            let d = c.temp(1)?;
            store_unless_skipped(c, run(d, 3), &dest, d, 2)
        }
    }
}

/// Computes a hash in a range.
pub(super) fn hash(c: &mut Compiler<'_>, objects: &Objects, params: Params<'_>) -> LoadResult<()> {
    let [dest, base, calculation, size] = params.all()?;
    let dest = dest.dest(c)?;
    let calculation = objects.calculation(calculation.named("calculation")?)? as u16;
    let (base, size) = (base.low_word(c, 64)?, size.low_word(c, 64)?);
    let d = c.temp(1)?;
    c.emit(Op::Hash {
        d,
        base,
        size,
        calculation,
    });
    c.store_words(&dest, d, 64)
}

/// Draws a random number in a range; an empty range leaves the destination unchanged.
pub(super) fn random(c: &mut Compiler<'_>, params: Params<'_>) -> LoadResult<()> {
    let [dest, low, high] = params.all()?;
    let dest = dest.dest(c)?;
    let (low, high) = (low.low_word(c, 64)?, high.low_word(c, 64)?);
    let d = c.temp(1)?;
    let op = Op::Random {
        d,
        low,
        high,
        skip: 0,
    };
    store_unless_skipped(c, op, &dest, d, 64)
}

/// Emits `op` and a store of its result, `bits` bits at `d`, to `dest`. When `op` has no result, it
/// skips the store.
fn store_unless_skipped(
    c: &mut Compiler<'_>,
    op: Op,
    dest: &Dest,
    d: u32,
    bits: u32,
) -> LoadResult<()> {
    let at = c.here();
    c.emit(op);
    c.store_words(dest, d, bits)?;
    let after = c.here() - at - 1;
    c.forget();
    match (c.ops.get_mut(at as usize), u8::try_from(after)) {
        (
            Some(Op::RegisterRead { skip, .. } | Op::Random { skip, .. } | Op::Meter { skip, .. }),
            Ok(after),
        ) => {
            *skip = after;
            Ok(())
        }
        _ => refuse!("result cannot be stored"),
    }
}
