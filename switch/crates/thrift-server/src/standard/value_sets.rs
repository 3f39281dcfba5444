//! Parser value sets. A value has the bits of all fields of the set, one after the other.

use bmv2_thrift::standard::{InvalidParseVSetOperation, ParseVSetOperationErrorCode as Code};
use switch::Program;
use v1model::Pipeline;
use v1model::entries::{Bits, MatchField, ValueSetInfo};

use super::lookup::named;
use super::values::bytes_of;

type Result<T> = std::result::Result<T, InvalidParseVSetOperation>;
type Member = Vec<MatchField>;

fn refused(code: Code) -> InvalidParseVSetOperation {
    InvalidParseVSetOperation::new(code)
}

fn set<'a>(pipeline: &'a Pipeline, name: &str) -> Result<(usize, &'a ValueSetInfo)> {
    let found = named(pipeline.value_sets(), name, |info| &info.name);
    found.ok_or_else(|| refused(Code::INVALID_PARSE_VSET_NAME))
}

/// The bit at `place` from the lowest one.
fn bit(value: &[u8], place: usize) -> u8 {
    let byte = value.len().checked_sub(place / 8 + 1);
    let byte = byte.and_then(|byte| value.get(byte)).copied();
    byte.unwrap_or(0) >> (place % 8) & 1
}

/// `bits` bits of a value, from `place` from the lowest one on.
fn part(value: &[u8], place: usize, bits: u32) -> Bits {
    let mut part = vec![0; bytes_of(bits)];
    for at in 0..bits as usize {
        let byte = part.len() - at / 8 - 1;
        if let Some(byte) = part.get_mut(byte) {
            *byte |= bit(value, place + at) << (at % 8);
        }
    }
    part.into()
}

/// The member with this value. The command line gives values of whole bytes a byte more, which is 0.
fn member(info: &ValueSetInfo, value: &[u8]) -> Result<Member> {
    let total: u32 = info.widths.iter().sum();
    let above = value.len().checked_sub(bytes_of(total));
    let above = above.ok_or_else(|| refused(Code::ERROR))?;
    let (above, value) = value.split_at(above);
    if above.iter().any(|byte| *byte != 0) {
        return Err(refused(Code::ERROR));
    }
    let mut left = total;
    let fields = info.widths.iter().map(|bits| {
        left -= bits;
        MatchField::Exact(part(value, left as usize, *bits))
    });
    Ok(fields.collect())
}

/// The value of a member. A client of P4Runtime may have given it masks, which BMv2 does not have.
fn told(info: &ValueSetInfo, member: &Member) -> Vec<u8> {
    let total: u32 = info.widths.iter().sum();
    let mut value = vec![0; bytes_of(total)];
    let mut place = total as usize;
    for (bits, field) in info.widths.iter().zip(member) {
        let field: &[u8] = match field {
            MatchField::Exact(value) | MatchField::Optional(Some(value)) => value,
            MatchField::Lpm { value, .. } | MatchField::Ternary { value, .. } => value,
            MatchField::Range { low, .. } => low,
            MatchField::Optional(None) => &[],
        };
        place -= *bits as usize;
        for at in 0..*bits as usize {
            let byte = value.len() - (place + at) / 8 - 1;
            if let Some(byte) = value.get_mut(byte) {
                *byte |= bit(field, at) << ((place + at) % 8);
            }
        }
    }
    value
}

fn change(
    program: &mut Program,
    name: &str,
    change: impl FnOnce(&ValueSetInfo, &mut Vec<Member>) -> Result<()>,
) -> Result<()> {
    let pipeline = program.pipeline_mut();
    let (number, info) = set(pipeline, name)?;
    let members = pipeline.value_set_members(number);
    let mut members = members.map_err(|_| refused(Code::ERROR))?;
    change(info, &mut members)?;
    let written = pipeline.value_set_write(number, &members);
    written.map_err(|_| refused(Code::ERROR))
}

/// Adds a value; one that is there already is no error.
pub(super) fn add(program: &mut Program, name: &str, value: &[u8]) -> Result<()> {
    change(program, name, |info, members| {
        let member = member(info, value)?;
        if !members.contains(&member) {
            members.push(member);
        }
        Ok(())
    })
}

/// Removes a value; one that is not there is no error.
pub(super) fn remove(program: &mut Program, name: &str, value: &[u8]) -> Result<()> {
    change(program, name, |info, members| {
        let member = member(info, value)?;
        members.retain(|other| *other != member);
        Ok(())
    })
}

pub(super) fn clear(program: &mut Program, name: &str) -> Result<()> {
    change(program, name, |_, members| {
        members.clear();
        Ok(())
    })
}

pub(super) fn get(program: &Program, name: &str) -> Result<Vec<Vec<u8>>> {
    let (number, info) = set(program.pipeline(), name)?;
    let members = program.pipeline().value_set_members(number);
    let members = members.map_err(|_| refused(Code::ERROR))?;
    Ok(members.iter().map(|member| told(info, member)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_into_fields_and_put_together_again() {
        let info = ValueSetInfo {
            name: "set".to_owned(),
            widths: vec![4, 9, 16],
            size: 4,
        };
        // 29 bits: 0xA, 0x155, 0xBEEF.
        let value = (0xA_u32 << 25 | 0x155 << 16 | 0xBEEF).to_be_bytes();
        let member = member(&info, &value).expect("4 bytes");
        let exact = |bytes: &[u8]| MatchField::Exact(bytes.into());
        assert_eq!(
            member,
            [exact(&[0xA]), exact(&[1, 0x55]), exact(&[0xBE, 0xEF])]
        );
        assert_eq!(told(&info, &member), value);
        assert!(super::member(&info, &[0; 3]).is_err());
        let longer = [&[0, 0][..], &value].concat();
        assert_eq!(super::member(&info, &longer), Ok(member));
        assert!(super::member(&info, &[&[1][..], &value].concat()).is_err());
    }
}
