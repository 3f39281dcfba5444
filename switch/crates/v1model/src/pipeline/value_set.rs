//! The control plane's access to parser value sets.

use crate::bits::{from_bits, prefix_mask};
use crate::entries::error::{internal, invalid, not_found};
use crate::entries::{ControlError, ControlResult, MatchField, ValueSetInfo};
use crate::pipeline::Pipeline;
use crate::value_set::Test;
use crate::wide::mask64;

/// The tests that one field of a member makes of the words from `slot` on.
fn field_tests(
    field: &MatchField,
    bits: u32,
    slot: u32,
    what: &str,
    tests: &mut Vec<Test>,
) -> ControlResult<()> {
    let value_of = |value: &[u8]| from_bits(value, bits, || what.to_owned());
    let (value, mask) = match field {
        MatchField::Exact(value) | MatchField::Optional(Some(value)) => {
            (value_of(value)?, prefix_mask(bits, bits))
        }
        MatchField::Optional(None) => return Ok(()),
        MatchField::Lpm { value, prefix_bits } => {
            (value_of(value)?, prefix_mask(bits, *prefix_bits))
        }
        MatchField::Ternary { value, mask } => (value_of(value)?, value_of(mask)?),
        MatchField::Range { low, high } => {
            let (&[low], &[high]) = (value_of(low)?.as_slice(), value_of(high)?.as_slice()) else {
                return invalid(format!("{what}: range of more than 64 bits"));
            };
            if low > high {
                return invalid(format!("{what}: range ends before it starts"));
            }
            tests.push(Test {
                slot,
                mask: mask64(bits),
                low,
                span: high - low,
            });
            return Ok(());
        }
    };
    for (i, (value, mask)) in value.iter().zip(mask).enumerate() {
        tests.push(Test {
            slot: slot + i as u32,
            mask,
            low: value & mask,
            span: 0,
        });
    }
    Ok(())
}

impl Pipeline {
    /// Parser value sets of the program.
    pub fn value_sets(&self) -> &[ValueSetInfo] {
        &self.program.value_set_infos
    }

    /// The members of a value set.
    pub fn value_set_members(&self, set: usize) -> ControlResult<Vec<Vec<MatchField>>> {
        match self.value_sets.members.get(set) {
            Some(members) => Ok(members.clone()),
            None => not_found(format!("no value set number {set}")),
        }
    }

    /// Replaces the members of a value set.
    pub fn value_set_write(
        &mut self,
        set: usize,
        members: &[Vec<MatchField>],
    ) -> ControlResult<()> {
        let Some(info) = self.program.value_set_infos.get(set) else {
            return not_found(format!("no value set number {set}"));
        };
        if members.len() > info.size {
            return Err(ControlError::ResourceExhausted(format!(
                "value set '{}' takes {} members, {} given",
                info.name,
                info.size,
                members.len()
            )));
        }
        let tests_of = |member: &[MatchField], slots: &[u32]| -> ControlResult<Box<[Test]>> {
            if member.len() != info.widths.len() {
                return invalid(format!(
                    "value set '{}' has {} fields, {} given",
                    info.name,
                    info.widths.len(),
                    member.len()
                ));
            }
            let mut tests = Vec::new();
            for (i, (field, &bits)) in member.iter().zip(&info.widths).enumerate() {
                let what = format!("value set '{}', field {i}", info.name);
                let slot = slots.get(i).copied().unwrap_or(0);
                field_tests(field, bits, slot, &what, &mut tests)?;
            }
            Ok(tests.into())
        };
        // Checked even if the program does not use the set.
        for member in members {
            tests_of(member, &[])?;
        }
        let mut all = Vec::new();
        for (place, used) in self.program.value_set_uses.iter().enumerate() {
            if used.set == set {
                let tests = members.iter().map(|m| tests_of(m, &used.slots));
                all.push((place, tests.collect::<ControlResult<Vec<_>>>()?));
            }
        }
        let Some(kept) = self.value_sets.members.get_mut(set) else {
            return internal("a value set's members are missing");
        };
        *kept = members.to_vec();
        for (place, tests) in all {
            match self.value_sets.tests.get_mut(place) {
                Some(kept) => *kept = tests,
                None => return internal("a value set's tests are missing"),
            }
        }
        Ok(())
    }
}
