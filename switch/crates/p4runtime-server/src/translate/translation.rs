//! Translation of values between controllers and the switch (specification, section "PSA Metadata
//! Translation").
//!
//! `@p4runtime_translation` gives a type other values for controllers: numbers of another width, or
//! strings. [`Mappings`], read at start, say which of these values stands for which of the switch's.
//! [`Types`] joins them with a program's P4Info. [`ValueType`] reads and tells one value.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use thiserror::Error;
use tonic::Code;
use v1model::entries::Bits;

use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::p4::config::v1 as p4info;

/// Widest type.
const BITS_MAX: u32 = 2_048;
/// Most types in a file.
const TYPES_MAX: usize = 1_024;
/// Most values of a type.
const VALUES_MAX: usize = 65_536;
/// Longest string that stands for a value, in bytes.
const STRING_BYTES_MAX: usize = 256;
/// Values that an error names as examples.
const EXAMPLES: usize = 8;
/// The translation of PSA's type of ports (specification, section "Translation of Port Numbers").
const PSA_PORTS: &str = "p4.org/psa/v1/PortId_t";
/// Widest port number.
const PORT_BITS_MAX: u32 = 32;

/// The mappings between controllers' values and the switch's, by the name of the type or by the URI of its
/// translation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mappings {
    types: BTreeMap<String, Mapping>,
}

/// The mapping of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    /// Width of the switch's values.
    bits: u32,
    /// The controllers' values as they are written, with the switch's.
    values: Vec<(String, Bits)>,
    /// The type is that of ports, also where P4Info names no type.
    ports: bool,
}

/// The reason why mappings are refused.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct MappingsError(String);

/// A type as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenMapping {
    bits: u32,
    values: Members<Number>,
    #[serde(default)]
    ports: bool,
}

/// A number, or a string that has one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Written(String),
}

impl Mappings {
    /// Reads a file of mappings.
    ///
    /// # Errors
    /// It is not JSON of this form, or a mapping is not one to one.
    pub fn from_json(json: &[u8]) -> Result<Self, MappingsError> {
        let given: Members<GivenMapping> =
            serde_json::from_slice(json).map_err(|error| MappingsError(error.to_string()))?;
        if given.0.len() > TYPES_MAX {
            return Err(MappingsError(format!("more than {TYPES_MAX} types")));
        }
        let mut types = BTreeMap::new();
        for (name, mapping) in given.0 {
            let mapping = Mapping::new(mapping)
                .map_err(|error| MappingsError(format!("type {name:?}: {error}")))?;
            types.insert(name, mapping);
        }
        Ok(Self { types })
    }

    /// The mapping of a type.
    fn of(&self, name: &str, uri: &str) -> Option<&Mapping> {
        self.types.get(name).or_else(|| self.types.get(uri))
    }
}

impl Mapping {
    fn new(given: GivenMapping) -> Result<Self, String> {
        let bits = given.bits;
        if !(1..=BITS_MAX).contains(&bits) {
            return Err(format!("bits: {bits} given, 1 to {BITS_MAX} expected"));
        }
        if given.values.0.len() > VALUES_MAX {
            return Err(format!("more than {VALUES_MAX} values"));
        }
        let mut taken: HashMap<Bits, String> = HashMap::new();
        let mut values = Vec::with_capacity(given.values.0.len());
        for (controllers, number) in given.values.0 {
            if controllers.len() > STRING_BYTES_MAX {
                return Err(format!(
                    "a value of {} bytes given, at most {STRING_BYTES_MAX} expected",
                    controllers.len()
                ));
            }
            let bytes = match &number {
                Number::Plain(number) => Some(number.to_be_bytes().to_vec()),
                Number::Written(text) => bytes_of(text),
            };
            let bytes = bytes.ok_or_else(|| {
                format!("{controllers:?}: a number or a string such as \"0x1f\" expected")
            })?;
            let value = bytestring::parse(&bytes, bits, &format!("{controllers:?}"), "value");
            let value = value.map_err(|error| error.message)?;
            if let Some(other) = taken.insert(value.clone(), controllers.clone()) {
                return Err(format!(
                    "{other:?} and {controllers:?} stand for the same value, 0x{}",
                    bytestring::hex(&value)
                ));
            }
            values.push((controllers, value));
        }
        Ok(Self {
            bits,
            values,
            ports: given.ports,
        })
    }
}

/// The bytes of a decimal or, after `0x`, hexadecimal number.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("0x") else {
        let number: u128 = text.parse().ok()?;
        return Some(number.to_be_bytes().to_vec());
    };
    let digits = digits.as_bytes();
    let nibble = |digit: &u8| char::from(*digit).to_digit(16);
    let nibbles: Vec<u32> = digits.iter().map(nibble).collect::<Option<_>>()?;
    let bytes = nibbles.rchunks(2).rev();
    let bytes: Vec<u8> = bytes
        .map(|pair| {
            pair.iter()
                .fold(0, |byte, nibble| byte << 4 | *nibble as u8)
        })
        .collect();
    (!bytes.is_empty()).then_some(bytes)
}

/// The members of a JSON object, none of which is given twice.
struct Members<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reading<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut names = HashSet::new();
                let mut members = Vec::new();
                while let Some((name, member)) = map.next_entry::<String, T>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format!("{name:?} is given twice")));
                    }
                    members.push((name, member));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reading(PhantomData))
    }
}

/// The values that controllers give for a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sdn {
    /// Numbers of this width.
    Bits(u32),
    Strings,
}

impl Sdn {
    fn of(translation: &p4info::P4NewTypeTranslation) -> Option<Self> {
        use p4info::p4_new_type_translation::SdnType;
        match translation.sdn_type.as_ref()? {
            SdnType::SdnBitwidth(bits) => u32::try_from(*bits).ok().map(Self::Bits),
            SdnType::SdnString(_) => Some(Self::Strings),
        }
    }

    /// A value in errors.
    fn shown(self, value: &[u8]) -> String {
        match self {
            Self::Bits(_) => format!("0x{}", bytestring::hex(value)),
            Self::Strings => {
                let start = value.get(..STRING_BYTES_MAX).unwrap_or(value);
                format!("{:?}", String::from_utf8_lossy(start))
            }
        }
    }
}

/// A translation of one type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    type_name: String,
    sdn: Sdn,
    /// Width of the switch's values.
    bits: u32,
    to_switch: HashMap<Vec<u8>, Bits>,
    to_controller: HashMap<Bits, Vec<u8>>,
    /// Some of the controllers' values.
    examples: String,
}

impl Translation {
    fn new(type_name: &str, sdn: Sdn, mapping: &Mapping) -> UpdateResult<Self> {
        let object = format!("--translation: type {type_name}");
        let mut to_switch = HashMap::with_capacity(mapping.values.len());
        let mut to_controller = HashMap::with_capacity(mapping.values.len());
        for (written, value) in &mapping.values {
            let controllers = match sdn {
                Sdn::Strings => written.clone().into_bytes(),
                Sdn::Bits(bits) => {
                    let bytes = bytes_of(written).ok_or_else(|| {
                        UpdateError::invalid(format!(
                            "{object}: {written:?} given, a number expected: P4Info translates the \
                             type to bit<{bits}>"
                        ))
                    })?;
                    let number = bytestring::parse(&bytes, bits, &object, "controller's value")?;
                    bytestring::canonical(&number)
                }
            };
            if to_switch
                .insert(controllers.clone(), value.clone())
                .is_some()
            {
                return Err(UpdateError::invalid(format!(
                    "{object}: the number {written} is given twice"
                )));
            }
            to_controller.insert(value.clone(), controllers);
        }
        let shown = mapping.values.iter().take(EXAMPLES);
        let mut examples: Vec<&str> = shown.map(|(written, _)| written.as_str()).collect();
        if mapping.values.len() > EXAMPLES {
            examples.push("...");
        }
        Ok(Self {
            type_name: type_name.to_owned(),
            sdn,
            bits: mapping.bits,
            to_switch,
            to_controller,
            examples: examples.join(", "),
        })
    }

    /// The controllers' value, in the form in which the mapping has it.
    fn canonical(&self, value: &[u8], object: &str, field: &str) -> UpdateResult<Vec<u8>> {
        Ok(match self.sdn {
            Sdn::Strings => value.to_vec(),
            Sdn::Bits(bits) => {
                bytestring::canonical(&bytestring::parse(value, bits, object, field)?)
            }
        })
    }

    /// The switch's value for a controller's. `object` and `field` go into the error text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the mapping does not have the value; `OUT_OF_RANGE`: it is no number of the
    /// width that controllers use.
    pub(crate) fn to_switch(&self, value: &[u8], object: &str, field: &str) -> UpdateResult<Bits> {
        let given = self.canonical(value, object, field)?;
        self.to_switch.get(&given).cloned().ok_or_else(|| {
            UpdateError::invalid(format!(
                "{object}: field {field}: {} given, a value that the mapping of {} (--translation) has \
                 expected: {}",
                self.sdn.shown(&given),
                self.type_name,
                self.examples
            ))
        })
    }

    /// The controllers' value for one of the switch's.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: the mapping does not have the value.
    pub(crate) fn to_controller(
        &self,
        value: &[u8],
        object: &str,
        field: &str,
    ) -> UpdateResult<Vec<u8>> {
        self.to_controller.get(value).cloned().ok_or_else(|| {
            UpdateError::new(
                Code::FailedPrecondition,
                format!(
                    "{object}: field {field}: the switch has 0x{}, for which the mapping of {} \
                     (--translation) has no value",
                    bytestring::hex(value),
                    self.type_name
                ),
            )
        })
    }

    /// Width of the switch's values.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }
}

/// The types of a P4Info, with their translations.
pub(crate) struct Types<'a> {
    info: &'a p4info::P4TypeInfo,
    translations: HashMap<&'a str, Arc<Translation>>,
    /// That of ports where P4Info names no type.
    ports: Option<Arc<Translation>>,
}

impl<'a> Types<'a> {
    /// # Errors
    /// `INVALID_ARGUMENT`: a mapping does not fit its type.
    pub(crate) fn new(info: &'a p4info::P4TypeInfo, mappings: &Mappings) -> UpdateResult<Self> {
        let mut types = Self {
            info,
            translations: HashMap::new(),
            ports: None,
        };
        // In order, so that the same error is told each time.
        let names: BTreeSet<&String> = info.new_types.keys().collect();
        for name in names {
            let Some((uri, sdn)) = types.translated(name) else {
                continue;
            };
            if let Some(mapping) = mappings.of(name, uri) {
                let translation = Arc::new(Translation::new(name, sdn, mapping)?);
                if mapping.ports || uri == PSA_PORTS {
                    types.take_ports(&translation)?;
                }
                types.translations.insert(name, translation);
            }
        }
        Ok(types)
    }

    /// Makes a translation that of ports where P4Info names no type.
    fn take_ports(&mut self, translation: &Arc<Translation>) -> UpdateResult<()> {
        let name = &translation.type_name;
        let is_other = |other: &&Arc<Translation>| {
            (other.sdn, &other.to_switch) != (translation.sdn, &translation.to_switch)
        };
        if let Some(other) = self.ports.as_ref().filter(is_other) {
            return Err(UpdateError::invalid(format!(
                "--translation: types {} and {name} are both those of ports, with other values",
                other.type_name
            )));
        }
        if translation.bits > PORT_BITS_MAX {
            return Err(UpdateError::invalid(format!(
                "--translation: type {name}: ports of {} bits, at most {PORT_BITS_MAX} expected",
                translation.bits
            )));
        }
        self.ports = Some(Arc::clone(translation));
        Ok(())
    }

    /// The values of ports where P4Info names no type: those of replicas and `watch_port`.
    pub(crate) fn ports(&self) -> ValueType {
        match &self.ports {
            None => ValueType::plain(PORT_BITS_MAX),
            Some(translation) => ValueType::of(translation),
        }
    }

    /// The types as P4Info has them.
    pub(crate) fn info(&self) -> &'a p4info::P4TypeInfo {
        self.info
    }

    /// The translation of a type; `None`: it has no mapping.
    pub(crate) fn translation(&self, name: &str) -> Option<&Arc<Translation>> {
        self.translations.get(name)
    }

    /// URI and controllers' values of a type that P4Info says is translated.
    fn translated(&self, name: &str) -> Option<(&'a str, Sdn)> {
        use p4info::p4_new_type_spec::Representation;
        match self.info.new_types.get(name)?.representation.as_ref()? {
            Representation::OriginalType(_) => None,
            Representation::TranslatedType(translation) => {
                Some((translation.uri.as_str(), Sdn::of(translation)?))
            }
        }
    }

    /// The values of a translated type without a mapping, if they are numbers.
    pub(crate) fn number_bits(&self, name: &str) -> Option<u32> {
        match self.translated(name)?.1 {
            Sdn::Bits(bits) => Some(bits),
            Sdn::Strings => None,
        }
    }

    /// The values of `what`, which has a type of this name (if any), this width in P4Info, and this one in
    /// the program. `None`: only P4Info or the mapping tells the width.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the widths differ, or a mapping is missing.
    pub(crate) fn value(
        &self,
        what: &str,
        named: Option<&p4info::P4NamedType>,
        info_bits: i32,
        program_bits: Option<u32>,
    ) -> UpdateResult<ValueType> {
        let refuse = |text: String| Err(UpdateError::invalid(format!("P4Info: {what}: {text}")));
        let translated = named.and_then(|named| {
            let (_, sdn) = self.translated(&named.name)?;
            Some((named.name.as_str(), sdn))
        });
        let controllers_bits = match translated {
            Some((_, Sdn::Strings)) => 0,
            _ => program_bits.map_or(i64::from(info_bits), i64::from),
        };
        let Some((name, sdn)) = translated else {
            if i64::from(info_bits) != controllers_bits {
                return refuse(format!(
                    "{info_bits} bits in P4Info, {controllers_bits} bits in the program"
                ));
            }
            return Ok(ValueType::plain(u32::try_from(info_bits).unwrap_or(0)));
        };
        let expected = match sdn {
            Sdn::Bits(bits) => bits,
            Sdn::Strings => 0,
        };
        if i64::from(info_bits) != i64::from(expected) {
            return refuse(format!(
                "bitwidth {info_bits} given, {expected} expected, as in its type {name}"
            ));
        }
        let Some(translation) = self.translation(name) else {
            return match (sdn, program_bits) {
                (Sdn::Bits(bits), program) if program.is_none_or(|program| program == bits) => {
                    Ok(ValueType::plain(bits))
                }
                _ => refuse(format!(
                    "its type {name} has other values for controllers (@p4runtime_translation), and \
                     there is no mapping of them: start the switch with --translation FILE.json that has \
                     {name:?}"
                )),
            };
        };
        if program_bits.is_some_and(|bits| bits != translation.bits) {
            return refuse(format!(
                "its type {name} has {} bits in the mapping (--translation), {} bits in the program",
                translation.bits,
                program_bits.unwrap_or(0)
            ));
        }
        Ok(ValueType::of(translation))
    }

    /// The translation of an array's index; `None`: controllers use the program's indices.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: controllers would use strings, for which P4Runtime's index has no place.
    pub(crate) fn index(
        &self,
        array: &str,
        named: Option<&p4info::P4NamedType>,
    ) -> UpdateResult<Option<Arc<Translation>>> {
        let translation = named.and_then(|named| self.translation(&named.name));
        if let Some(translation) = translation.filter(|it| it.sdn == Sdn::Strings) {
            return Err(UpdateError::invalid(format!(
                "P4Info: {array}: its index has type {}, whose values are strings for controllers; an \
                 index is a number",
                translation.type_name
            )));
        }
        Ok(translation.cloned())
    }
}

/// How one value of a request is read, and told in an answer.
#[derive(Debug, Clone)]
pub(crate) struct ValueType {
    /// Width of the switch's values.
    pub(crate) bits: u32,
    translation: Option<Arc<Translation>>,
}

impl ValueType {
    /// Of `bit<bits>` for controllers and for the switch.
    pub(crate) fn plain(bits: u32) -> Self {
        Self {
            bits,
            translation: None,
        }
    }

    /// Of a translated type.
    fn of(translation: &Arc<Translation>) -> Self {
        Self {
            bits: translation.bits,
            translation: Some(Arc::clone(translation)),
        }
    }

    /// Whether controllers' values are others than the switch's.
    pub(crate) fn is_translated(&self) -> bool {
        self.translation.is_some()
    }

    /// The width of controllers' values; `None`: they are strings.
    pub(crate) fn controllers_bits(&self) -> Option<u32> {
        match self.translation.as_ref().map(|it| it.sdn) {
            None => Some(self.bits),
            Some(Sdn::Bits(bits)) => Some(bits),
            Some(Sdn::Strings) => None,
        }
    }

    /// The form of controllers' values, for errors.
    pub(crate) fn expected(&self) -> String {
        match self.controllers_bits() {
            Some(bits) => format!("{bits} bits"),
            None => "a string of the mapping".to_owned(),
        }
    }

    /// Reads a value. `object` and `field` go into the error text.
    pub(crate) fn parse(&self, value: &[u8], object: &str, field: &str) -> UpdateResult<Bits> {
        match &self.translation {
            None => bytestring::parse(value, self.bits, object, field),
            Some(translation) => translation.to_switch(value, object, field),
        }
    }

    /// A value as controllers see it.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION`: the mapping does not have it.
    pub(crate) fn tell(&self, value: &[u8], object: &str, field: &str) -> UpdateResult<Vec<u8>> {
        match &self.translation {
            None => Ok(bytestring::canonical(value)),
            Some(translation) => translation.to_controller(value, object, field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal_or_hexadecimal() {
        for (text, bytes) in [
            ("0x1f", &[0x1f][..]),
            ("0x123", &[0x01, 0x23]),
            ("0x0", &[0]),
        ] {
            assert_eq!(bytes_of(text).as_deref(), Some(bytes), "{text}");
        }
        let decimal = bytes_of("258").expect("a number");
        assert_eq!(bytestring::canonical(&decimal), [1, 2]);
        for text in ["", "0x", "0xg", "-1", "eth0", "1 "] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }

    #[test]
    fn mappings_that_are_wrong_are_refused_with_the_reason() {
        for (json, expected) in [
            ("[]", "expected an object"),
            (r#"{"t": {"bits": 9}}"#, "missing field `values`"),
            (
                r#"{"t": {"bits": 9, "values": {}, "width": 9}}"#,
                "unknown field `width`",
            ),
            (r#"{"t": {"bits": 0, "values": {}}}"#, "1 to 2048 expected"),
            (
                r#"{"t": {"bits": 9, "values": {"a": 512}}}"#,
                "needs 10 bits, 9 bits expected",
            ),
            (
                r#"{"t": {"bits": 9, "values": {"a": "eth0"}}}"#,
                "a number or a string such as",
            ),
            (
                r#"{"t": {"bits": 9, "values": {"a": 1, "b": "0x01"}}}"#,
                r#""a" and "b" stand for the same value, 0x0001"#,
            ),
            (
                r#"{"t": {"bits": 9, "values": {"a": 1, "a": 2}}}"#,
                r#""a" is given twice"#,
            ),
            (
                r#"{"t": {"bits": 9, "values": {}}, "t": {"bits": 9, "values": {}}}"#,
                r#""t" is given twice"#,
            ),
        ] {
            let error = Mappings::from_json(json.as_bytes()).expect_err(json);
            assert!(error.to_string().contains(expected), "{json}: {error}");
        }
    }
}
