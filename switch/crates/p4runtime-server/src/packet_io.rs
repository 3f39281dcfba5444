//! Packets to and from the controller (specification, section "Packet I/O").
//!
//! In the switch, a controller packet is a frame that begins with the program's
//! controller header; in the protocol, the header's fields are metadata beside the
//! payload. P4Info's `controller_packet_metadata` describes the layout of the header.

use v1model::entries::Bits;

use crate::bytestring;
use crate::error::UpdateError;
use crate::ids;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;
use crate::translate::{Types, ValueType};

/// The layout of one controller header, from P4Info.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControllerHeader {
    /// `packet_in` or `packet_out`.
    name: String,
    fields: Vec<HeaderField>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct HeaderField {
    id: u32,
    name: String,
    value: ValueType,
    /// Annotated `@padding`: a packet-out may leave it out.
    padding: bool,
}

impl ControllerHeader {
    /// Reads the header's layout.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: widths that make no header, an id twice, a translated type without a mapping.
    pub(crate) fn from_p4info(
        metadata: &p4info::ControllerPacketMetadata,
        types: &Types<'_>,
    ) -> Result<Self, UpdateError> {
        let name = metadata
            .preamble
            .as_ref()
            .map_or_else(String::new, |preamble| preamble.name.clone());
        let mut fields: Vec<HeaderField> = Vec::with_capacity(metadata.metadata.len());
        let mut total_bits = 0u64;
        for field in &metadata.metadata {
            let what = format!("{name}: field {}", field.name);
            let named = field.type_name.as_ref();
            let value = types.value(&what, named, field.bitwidth, None)?;
            if !(1..=2_048).contains(&value.bits) {
                return Err(UpdateError::invalid(format!(
                    "P4Info: {what}: bitwidth {} given, 1 to 2048 expected",
                    field.bitwidth
                )));
            }
            if fields.iter().any(|known| known.id == field.id) {
                return Err(UpdateError::invalid(format!(
                    "P4Info: {name}: field {}: id {} is given twice",
                    field.name, field.id
                )));
            }
            total_bits += u64::from(value.bits);
            fields.push(HeaderField {
                id: field.id,
                name: field.name.clone(),
                value,
                padding: field
                    .annotations
                    .iter()
                    .any(|annotation| annotation.starts_with("@padding")),
            });
        }
        if !total_bits.is_multiple_of(8) || total_bits > 65_536 {
            return Err(UpdateError::invalid(format!(
                "P4Info: {name}: the header has {total_bits} bits, a multiple of 8 up to 65536 \
                 expected"
            )));
        }
        Ok(Self {
            name,
            fields,
            bytes: usize::try_from(total_bits / 8).unwrap_or(0),
        })
    }

    /// The frame of a packet-out: header, then payload.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: a field is missing, twice, unknown or too wide.
    pub(crate) fn assemble(&self, packet: &p4::PacketOut) -> Result<Vec<u8>, UpdateError> {
        let name = self.display_name("packet_out");
        let known = self.fields.iter();
        let known = known.map(|field| (field.id, field.name.as_str()));
        let given = packet.metadata.iter().map(|metadata| metadata.metadata_id);
        ids::check(name, "metadata", given, known)?;
        let mut frame = vec![0; self.bytes];
        let mut position = 0;
        for field in &self.fields {
            let given = packet
                .metadata
                .iter()
                .find(|metadata| metadata.metadata_id == field.id);
            match given {
                Some(metadata) => {
                    let value = field.value.parse(&metadata.value, name, &field.name);
                    let value = value.map_err(UpdateError::as_invalid)?;
                    put_bits(&mut frame, position, &value, field.value.bits);
                }
                None if field.padding => {}
                None => {
                    return Err(UpdateError::invalid(format!(
                        "{}: field {} (id {}, {}) is missing",
                        name,
                        field.name,
                        field.id,
                        field.value.expected()
                    )));
                }
            }
            position += field.value.bits as usize;
        }
        frame.extend_from_slice(&packet.payload);
        Ok(frame)
    }

    /// The packet-in of a frame; `None` when it is shorter than the header, or a field has a value that no
    /// controller's value stands for.
    pub(crate) fn split(&self, frame: &[u8]) -> Option<p4::PacketIn> {
        let payload = frame.get(self.bytes..)?.to_vec();
        let mut position = 0;
        let metadata = self.fields.iter().map(|field| {
            let value = get_bits(frame, position, field.value.bits);
            position += field.value.bits as usize;
            Some(p4::PacketMetadata {
                metadata_id: field.id,
                value: field.value.tell(&value, &self.name, &field.name).ok()?,
            })
        });
        let metadata = metadata.collect::<Option<_>>()?;
        Some(p4::PacketIn { payload, metadata })
    }

    fn display_name<'a>(&'a self, unnamed: &'a str) -> &'a str {
        if self.name.is_empty() {
            unnamed
        } else {
            &self.name
        }
    }
}

/// Bit `position` of `bytes`, counted from the most significant bit of the first byte.
fn bit(bytes: &[u8], position: usize) -> bool {
    bytes
        .get(position / 8)
        .is_some_and(|byte| byte & (0x80 >> (position % 8)) != 0)
}

/// Writes the low `bits` bits of `value` at bit `position` of `target`, which is zero there.
fn put_bits(target: &mut [u8], position: usize, value: &[u8], bits: u32) {
    let skip = value.len() * 8 - bits as usize;
    for offset in 0..bits as usize {
        if bit(value, skip + offset) {
            let place = position + offset;
            if let Some(byte) = target.get_mut(place / 8) {
                *byte |= 0x80 >> (place % 8);
            }
        }
    }
}

/// The `bits` bits at bit `position` of `source`.
fn get_bits(source: &[u8], position: usize, bits: u32) -> Bits {
    let mut value = bytestring::zero(bits);
    let skip = value.len() * 8 - bits as usize;
    for offset in 0..bits as usize {
        if bit(source, position + offset) {
            let place = skip + offset;
            if let Some(byte) = value.get_mut(place / 8) {
                *byte |= 0x80 >> (place % 8);
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::Mappings;
    use p4info::controller_packet_metadata::Metadata;

    fn header(fields: &[(&str, i32)]) -> ControllerHeader {
        let metadata = p4info::ControllerPacketMetadata {
            preamble: Some(p4info::Preamble {
                name: "packet_out".to_owned(),
                ..Default::default()
            }),
            metadata: fields
                .iter()
                .zip(1..)
                .map(|((name, bitwidth), id)| Metadata {
                    id,
                    name: (*name).to_owned(),
                    bitwidth: *bitwidth,
                    ..Default::default()
                })
                .collect(),
        };
        let types = p4info::P4TypeInfo::default();
        let types = Types::new(&types, &Mappings::default()).expect("no types");
        ControllerHeader::from_p4info(&metadata, &types).expect("valid header")
    }

    fn metadata(metadata_id: u32, value: &[u8]) -> p4::PacketMetadata {
        p4::PacketMetadata {
            metadata_id,
            value: value.to_vec(),
        }
    }

    #[test]
    fn packet_out_fields_are_packed_in_header_order() {
        let header = header(&[("egress_port", 9), ("pad", 7)]);
        let frame = header
            .assemble(&p4::PacketOut {
                payload: vec![0xaa, 0xbb],
                metadata: vec![metadata(2, &[0x7f]), metadata(1, &[0x01, 0x03])],
            })
            .expect("valid");
        assert_eq!(frame, [0x81, 0xff, 0xaa, 0xbb]);
    }

    #[test]
    fn packet_in_is_the_inverse_and_canonical() {
        let header = header(&[("ingress_port", 9), ("reason", 7)]);
        let packet = header.split(&[0x00, 0x81, 0xcc]).expect("long enough");
        assert_eq!(packet.payload, [0xcc]);
        assert_eq!(packet.metadata, [metadata(1, &[1]), metadata(2, &[1])]);
        assert_eq!(header.split(&[0x00]), None);
        assert!(
            header
                .split(&[0, 0])
                .expect("no payload")
                .payload
                .is_empty()
        );
    }

    #[test]
    fn bad_packet_outs_are_refused_by_name() {
        let header = header(&[("egress_port", 9), ("pad", 7)]);
        let refuse = |fields: Vec<p4::PacketMetadata>| {
            let error = header
                .assemble(&p4::PacketOut {
                    payload: Vec::new(),
                    metadata: fields,
                })
                .expect_err("refused");
            assert_eq!(error.code, tonic::Code::InvalidArgument);
            error.message
        };
        assert_eq!(
            refuse(vec![metadata(1, &[1])]),
            "packet_out: field pad (id 2, 7 bits) is missing"
        );
        assert_eq!(
            refuse(vec![metadata(7, &[1])]),
            "packet_out: metadata id 7 given, 1 (egress_port), 2 (pad) expected"
        );
        assert_eq!(
            refuse(vec![metadata(1, &[1]), metadata(1, &[1])]),
            "packet_out: metadata egress_port: given twice"
        );
        assert!(
            refuse(vec![metadata(1, &[2, 0]), metadata(2, &[0])])
                .contains("needs 10 bits, 9 bits expected")
        );
    }
}
