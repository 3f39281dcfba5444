//! Digests: their configuration, and their messages as `P4Data` (specification, sections
//! "DigestEntry" and "Representation of Arbitrary P4 Types").

use dataplane::control::Bits;
use dataplane::notify::DigestConfig;

use super::Result;
use crate::bytestring;
use crate::error::UpdateError;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;

/// Deepest nesting of types.
const DEPTH_MAX: usize = 16;

/// A digest.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Index in the data plane.
    pub(crate) index: usize,
    /// How a message's fields make its value; `None`: a type that is not implemented.
    shape: Option<Shape>,
}

/// How a value is made of fields.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Bits(u32),
    Signed(u32),
    Bool,
    SerializableEnum(u32),
    /// Names of the members by number.
    Enum(Vec<String>),
    Tuple(Vec<Shape>),
    Struct(Vec<Shape>),
}

impl Shape {
    /// `None`: a type that digests of this switch do not have.
    fn of(spec: &p4info::P4DataTypeSpec, types: &p4info::P4TypeInfo, depth: usize) -> Option<Self> {
        use p4info::p4_bitstring_like_type_spec::TypeSpec as Bitstring;
        use p4info::p4_data_type_spec::TypeSpec;
        use p4info::p4_new_type_spec::Representation;
        if depth > DEPTH_MAX {
            return None;
        }
        let width = |bits: i32| u32::try_from(bits).ok().filter(|bits| *bits > 0);
        let of = |spec: &p4info::P4DataTypeSpec| Self::of(spec, types, depth + 1);
        Some(match spec.type_spec.as_ref()? {
            TypeSpec::Bitstring(bitstring) => match bitstring.type_spec.as_ref()? {
                Bitstring::Bit(bit) => Self::Bits(width(bit.bitwidth)?),
                Bitstring::Int(int) => Self::Signed(width(int.bitwidth)?),
                Bitstring::Varbit(_) => return None,
            },
            TypeSpec::Bool(_) => Self::Bool,
            TypeSpec::SerializableEnum(named) => {
                let spec = types.serializable_enums.get(&named.name)?;
                Self::SerializableEnum(width(spec.underlying_type.as_ref()?.bitwidth)?)
            }
            TypeSpec::Enum(named) => {
                let members = types.enums.get(&named.name)?.members.iter();
                Self::Enum(members.map(|member| member.name.clone()).collect())
            }
            TypeSpec::Tuple(tuple) => {
                Self::Tuple(tuple.members.iter().map(of).collect::<Option<_>>()?)
            }
            TypeSpec::Struct(named) => {
                let members = types.structs.get(&named.name)?.members.iter();
                let shapes = members.map(|member| of(member.type_spec.as_ref()?));
                Self::Struct(shapes.collect::<Option<_>>()?)
            }
            TypeSpec::NewType(named) => {
                match types.new_types.get(&named.name)?.representation.as_ref()? {
                    Representation::OriginalType(original) => of(original)?,
                    Representation::TranslatedType(_) => return None,
                }
            }
            TypeSpec::Header(_)
            | TypeSpec::HeaderUnion(_)
            | TypeSpec::HeaderStack(_)
            | TypeSpec::HeaderUnionStack(_)
            | TypeSpec::Error(_) => return None,
        })
    }

    /// Whether fields of the widths that `rest` gives make this value.
    fn fits<'a>(&self, rest: &mut impl Iterator<Item = &'a u32>) -> bool {
        match self {
            Self::Bits(bits) | Self::Signed(bits) | Self::SerializableEnum(bits) => {
                rest.next() == Some(bits)
            }
            Self::Bool => rest.next() == Some(&1),
            Self::Enum(_) => rest.next().is_some(),
            Self::Tuple(shapes) | Self::Struct(shapes) => {
                shapes.iter().all(|shape| shape.fits(rest))
            }
        }
    }

    /// The value that the next of `fields` make.
    fn value<'a>(&self, fields: &mut impl Iterator<Item = &'a Bits>) -> p4::P4Data {
        use p4::p4_data::Data;
        let mut next = || fields.next().map_or(&[][..], |field| field);
        let data = match self {
            Self::Bits(_) => Data::Bitstring(bytestring::canonical(next())),
            Self::Signed(bits) => Data::Bitstring(bytestring::canonical_signed(next(), *bits)),
            Self::Bool => Data::Bool(!bytestring::is_zero(next())),
            Self::SerializableEnum(_) => Data::EnumValue(bytestring::canonical(next())),
            Self::Enum(names) => {
                let number = next()
                    .iter()
                    .fold(0usize, |number, byte| (number << 8) | usize::from(*byte));
                Data::Enum(names.get(number).cloned().unwrap_or_default())
            }
            Self::Tuple(shapes) => Data::Tuple(p4::P4StructLike {
                members: shapes.iter().map(|shape| shape.value(fields)).collect(),
            }),
            Self::Struct(shapes) => Data::Struct(p4::P4StructLike {
                members: shapes.iter().map(|shape| shape.value(fields)).collect(),
            }),
        };
        p4::P4Data { data: Some(data) }
    }
}

impl Digest {
    /// `widths`: of the fields of its messages in the program.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: P4Info's type has other fields.
    pub(super) fn new(
        (id, name): (u32, String),
        index: usize,
        spec: Option<&p4info::P4DataTypeSpec>,
        types: Option<&p4info::P4TypeInfo>,
        widths: &[u32],
    ) -> Result<Self> {
        let none = p4info::P4TypeInfo::default();
        let shape = spec.and_then(|spec| Shape::of(spec, types.unwrap_or(&none), 0));
        let mut rest = widths.iter();
        let fits = |shape: &Shape| shape.fits(&mut rest) && rest.next().is_none();
        if !shape.as_ref().is_none_or(fits) {
            return Err(UpdateError::invalid(format!(
                "P4Info: digest {name}: the fields of its type in P4Info are not those in the \
                 program ({widths:?} bits)"
            )));
        }
        Ok(Self {
            id,
            name,
            index,
            shape,
        })
    }

    /// Reads a configuration.
    pub(crate) fn config(&self, given: Option<&p4::digest_entry::Config>) -> Result<DigestConfig> {
        if self.shape.is_none() {
            return Err(UpdateError::unimplemented(format!(
                "{}: the digest's type is not implemented; bit, int, bool, enums, and structs and \
                 tuples of them are",
                self.name
            )));
        }
        let Some(given) = given else {
            return Err(UpdateError::invalid(format!(
                "{}: config: not given, the timeouts and list size expected",
                self.name
            )));
        };
        let refuse = |field: &str, value: i64| {
            UpdateError::invalid(format!(
                "{}: {field}: {value} given, at least 0 expected",
                self.name
            ))
        };
        let time = |value: i64, field| u64::try_from(value).map_err(|_| refuse(field, value));
        Ok(DigestConfig {
            max_timeout_ns: time(given.max_timeout_ns, "max_timeout_ns")?,
            max_list_size: u32::try_from(given.max_list_size)
                .map_err(|_| refuse("max_list_size", given.max_list_size.into()))?,
            ack_timeout_ns: time(given.ack_timeout_ns, "ack_timeout_ns")?,
        })
    }

    /// A configuration as a controller sees it.
    pub(crate) fn config_message(&self, config: DigestConfig) -> p4::DigestEntry {
        let time = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        p4::DigestEntry {
            digest_id: self.id,
            config: Some(p4::digest_entry::Config {
                max_timeout_ns: time(config.max_timeout_ns),
                max_list_size: i32::try_from(config.max_list_size).unwrap_or(i32::MAX),
                ack_timeout_ns: time(config.ack_timeout_ns),
            }),
        }
    }

    /// A message as a controller sees it.
    pub(crate) fn message(&self, fields: &[Bits]) -> p4::P4Data {
        let shape = self.shape.as_ref();
        shape.map_or_else(p4::P4Data::default, |shape| shape.value(&mut fields.iter()))
    }
}
