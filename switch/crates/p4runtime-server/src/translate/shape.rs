//! Translates values of digests and registers to `P4Data` (specification, section
//! "Representation of Arbitrary P4 Types").

use std::sync::Arc;

use v1model::entries::Bits;
use v1model::entries::digest::DigestInfo;

use super::translation::{Translation, Types};
use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

/// Deepest nesting of types.
const DEPTH_MAX: usize = 16;

/// The composition of a value from fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Bits(u32),
    Signed(u32),
    Bool,
    SerializableEnum(u32),
    /// Names of the members by number.
    Enum(Vec<String>),
    Tuple(Vec<Shape>),
    Struct(Vec<Shape>),
    /// Of bitstrings.
    Header(Vec<Shape>),
    /// A type that has other values for controllers.
    Translated(Arc<Translation>),
}

/// Widths of the fields that follow, and the headers among the fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Widths<'a> {
    rest: &'a [u32],
    headers: &'a [std::ops::Range<usize>],
    /// Fields before these.
    at: usize,
}

impl<'a> Widths<'a> {
    /// Of the fields of a digest's messages.
    pub(crate) fn of(info: &'a DigestInfo) -> Self {
        Self {
            rest: &info.widths,
            headers: &info.headers,
            at: 0,
        }
    }

    /// Of the one field of a register's cells.
    pub(crate) fn one(bits: &'a u32) -> Self {
        Self {
            rest: std::slice::from_ref(bits),
            headers: &[],
            at: 0,
        }
    }

    fn next(&mut self) -> Option<u32> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.at += 1;
        Some(*first)
    }
}

/// Values of the fields that follow, and the validity of the headers among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [Bits],
    headers: &'a [std::ops::Range<usize>],
    /// One for each of `headers`.
    validities: &'a [Bits],
    /// Fields before these.
    at: usize,
}

impl<'a> Fields<'a> {
    /// Of a digest's message.
    pub(crate) fn new(message: &'a [Bits], info: &'a DigestInfo) -> Self {
        let count = info.widths.len().min(message.len());
        let (rest, validities) = message.split_at(count);
        Self {
            rest,
            headers: &info.headers,
            validities,
            at: 0,
        }
    }

    fn next(&mut self) -> &'a [u8] {
        let Some((first, rest)) = self.rest.split_first() else {
            return &[];
        };
        self.rest = rest;
        self.at += 1;
        first
    }

    /// Whether the header that the next field belongs to is valid.
    fn in_valid_header(&self) -> bool {
        let mut headers = self.headers.iter().zip(self.validities);
        headers.any(|(fields, valid)| fields.contains(&self.at) && !bytestring::is_zero(valid))
    }
}

impl Shape {
    /// `None`: a type that values of this switch do not have, or one of more than `fields` fields.
    pub(crate) fn new(
        spec: Option<&p4info::P4DataTypeSpec>,
        types: &Types<'_>,
        fields: usize,
    ) -> Option<Self> {
        // Nested structs can grow without bound, so the number of parts is limited.
        let mut parts = DEPTH_MAX.saturating_add(2 * fields);
        Self::of(spec?, types, 0, &mut parts)
    }

    /// `parts` is how many more types may be visited.
    fn of(
        spec: &p4info::P4DataTypeSpec,
        types: &Types<'_>,
        depth: usize,
        parts: &mut usize,
    ) -> Option<Self> {
        use p4info::p4_data_type_spec::TypeSpec;
        use p4info::p4_new_type_spec::Representation;
        if depth > DEPTH_MAX {
            return None;
        }
        *parts = parts.checked_sub(1)?;
        let info = types.info();
        let mut of = |spec: &p4info::P4DataTypeSpec| Self::of(spec, types, depth + 1, parts);
        Some(match spec.type_spec.as_ref()? {
            TypeSpec::Bitstring(bitstring) => Self::bitstring(bitstring)?,
            TypeSpec::Bool(_) => Self::Bool,
            TypeSpec::SerializableEnum(named) => {
                let spec = info.serializable_enums.get(&named.name)?;
                Self::SerializableEnum(width(spec.underlying_type.as_ref()?.bitwidth)?)
            }
            TypeSpec::Enum(named) => {
                let members = info.enums.get(&named.name)?.members.iter();
                Self::Enum(members.map(|member| member.name.clone()).collect())
            }
            TypeSpec::Tuple(tuple) => {
                Self::Tuple(tuple.members.iter().map(&mut of).collect::<Option<_>>()?)
            }
            TypeSpec::Struct(named) => {
                let members = info.structs.get(&named.name)?.members.iter();
                let shapes = members.map(|member| of(member.type_spec.as_ref()?));
                Self::Struct(shapes.collect::<Option<_>>()?)
            }
            TypeSpec::NewType(named) => {
                match info.new_types.get(&named.name)?.representation.as_ref()? {
                    Representation::OriginalType(original) => of(original)?,
                    Representation::TranslatedType(_) => match types.translation(&named.name) {
                        Some(translation) => Self::Translated(Arc::clone(translation)),
                        None => Self::Bits(types.number_bits(&named.name)?),
                    },
                }
            }
            TypeSpec::Header(named) => {
                let members = &info.headers.get(&named.name)?.members;
                *parts = parts.checked_sub(members.len())?;
                let shapes = members
                    .iter()
                    .map(|member| Self::bitstring(member.type_spec.as_ref()?));
                Self::Header(shapes.collect::<Option<_>>()?)
            }
            TypeSpec::HeaderUnion(_)
            | TypeSpec::HeaderStack(_)
            | TypeSpec::HeaderUnionStack(_)
            | TypeSpec::Error(_) => return None,
        })
    }

    fn bitstring(spec: &p4info::P4BitstringLikeTypeSpec) -> Option<Self> {
        use p4info::p4_bitstring_like_type_spec::TypeSpec;
        Some(match spec.type_spec.as_ref()? {
            TypeSpec::Bit(bit) => Self::Bits(width(bit.bitwidth)?),
            TypeSpec::Int(int) => Self::Signed(width(int.bitwidth)?),
            TypeSpec::Varbit(_) => return None,
        })
    }

    /// Whether exactly the fields of these widths compose this value.
    pub(crate) fn is_made_of(&self, mut widths: Widths<'_>) -> bool {
        self.fits(&mut widths) && widths.rest.is_empty()
    }

    fn fits(&self, widths: &mut Widths<'_>) -> bool {
        match self {
            Self::Bits(bits) | Self::Signed(bits) | Self::SerializableEnum(bits) => {
                widths.next() == Some(*bits)
            }
            Self::Bool => widths.next() == Some(1),
            Self::Translated(translation) => widths.next() == Some(translation.bits()),
            Self::Enum(_) => widths.next().is_some(),
            Self::Tuple(shapes) | Self::Struct(shapes) => {
                shapes.iter().all(|shape| shape.fits(widths))
            }
            Self::Header(shapes) => {
                let fields = widths.at..widths.at + shapes.len();
                // The header's validity must cover exactly these fields.
                widths.headers.contains(&fields) && shapes.iter().all(|shape| shape.fits(widths))
            }
        }
    }

    /// The value composed of these fields. `object` goes into the error text.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: a value that no controller's value stands for.
    pub(crate) fn value(&self, mut fields: Fields<'_>, object: &str) -> UpdateResult<p4::P4Data> {
        self.take(&mut fields, object)
    }

    fn take(&self, fields: &mut Fields<'_>, object: &str) -> UpdateResult<p4::P4Data> {
        use p4::p4_data::Data;
        let data = match self {
            Self::Tuple(shapes) => Data::Tuple(members(shapes, fields, object)?),
            Self::Struct(shapes) => Data::Struct(members(shapes, fields, object)?),
            Self::Header(shapes) => {
                let is_valid = fields.in_valid_header();
                let bitstrings = shapes.iter().map(|shape| shape.bytes(fields.next()));
                let mut bitstrings: Vec<_> = bitstrings.collect();
                if !is_valid {
                    // "An invalid header is represented by a P4Header message where the is_valid
                    // field is false and the bitstrings repeated field is empty."
                    bitstrings.clear();
                }
                Data::Header(p4::P4Header {
                    is_valid,
                    bitstrings,
                })
            }
            _ => return self.one(fields.next(), object),
        };
        Ok(p4::P4Data { data: Some(data) })
    }

    /// The canonical byte string of a number.
    fn bytes(&self, value: &[u8]) -> Vec<u8> {
        match self {
            Self::Signed(bits) => bytestring::canonical_signed(value, *bits),
            _ => bytestring::canonical(value),
        }
    }

    /// The value of a type that has one field. `object` goes into the error text.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub(crate) fn one(&self, value: &[u8], object: &str) -> UpdateResult<p4::P4Data> {
        use p4::p4_data::Data;
        let data = match self {
            Self::Bool => Data::Bool(!bytestring::is_zero(value)),
            Self::SerializableEnum(_) => Data::EnumValue(self.bytes(value)),
            Self::Enum(names) => {
                let number = value
                    .iter()
                    .fold(0usize, |number, byte| (number << 8) | usize::from(*byte));
                Data::Enum(names.get(number).cloned().unwrap_or_default())
            }
            Self::Translated(translation) => {
                Data::Bitstring(translation.to_controller(value, object, "data")?)
            }
            _ => Data::Bitstring(self.bytes(value)),
        };
        Ok(p4::P4Data { data: Some(data) })
    }

    /// Reads a value that one field of `bits` bits holds.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: of another type; `OUT_OF_RANGE`: does not fit; `UNIMPLEMENTED`: a type
    /// that takes several fields.
    pub(crate) fn parse_one(
        &self,
        data: Option<&p4::P4Data>,
        bits: u32,
        object: &str,
    ) -> UpdateResult<Bits> {
        use p4::p4_data::Data;
        let given = data.and_then(|data| data.data.as_ref());
        let expected = match (self, given) {
            (Self::Bits(_), Some(Data::Bitstring(value)))
            | (Self::SerializableEnum(_), Some(Data::EnumValue(value))) => {
                return bytestring::parse(value, bits, object, "data");
            }
            (Self::Signed(_), Some(Data::Bitstring(value))) => {
                return bytestring::parse_signed(value, bits, object, "data");
            }
            (Self::Bool, Some(Data::Bool(value))) => {
                return bytestring::parse(&[u8::from(*value)], bits, object, "data");
            }
            (Self::Enum(names), Some(Data::Enum(name))) => {
                let Some(number) = names.iter().position(|known| known == name) else {
                    return Err(UpdateError::invalid(format!(
                        "{object}: data: {name:?} given, one of {} expected",
                        names.join(", ")
                    )));
                };
                return bytestring::parse(&number.to_be_bytes(), bits, object, "data");
            }
            (Self::Translated(translation), Some(Data::Bitstring(value))) => {
                return translation.to_switch(value, object, "data");
            }
            (Self::Translated(_), _) => "a bitstring that stands for a value",
            (Self::Bits(_) | Self::Signed(_), _) => "a bitstring",
            (Self::SerializableEnum(_), _) => "an enum_value",
            (Self::Bool, _) => "a bool",
            (Self::Enum(_), _) => "an enum",
            (Self::Tuple(_) | Self::Struct(_) | Self::Header(_), _) => {
                return Err(UpdateError::unimplemented(format!(
                    "{object}: values of several fields are not implemented"
                )));
            }
        };
        Err(UpdateError::invalid(format!(
            "{object}: data: {} given, {expected} of {bits} bits expected",
            if given.is_some() {
                "another kind of value"
            } else {
                "nothing"
            },
        )))
    }
}

fn members(
    shapes: &[Shape],
    fields: &mut Fields<'_>,
    object: &str,
) -> UpdateResult<p4::P4StructLike> {
    let members = shapes.iter().map(|shape| shape.take(fields, object));
    Ok(p4::P4StructLike {
        members: members.collect::<UpdateResult<_>>()?,
    })
}

fn width(bits: i32) -> Option<u32> {
    u32::try_from(bits).ok().filter(|bits| *bits > 0)
}
