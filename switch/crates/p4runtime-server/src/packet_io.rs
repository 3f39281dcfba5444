//! Packets to and from the controller (specification, section "Packet I/O").
//!
//! On the data plane's side a controller packet is a frame that begins with the program's
//! controller header; on the protocol's side the header's fields are metadata beside the
//! payload. P4Info's `controller_packet_metadata` says how the header is laid out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dataplane::control::Bits;
use tokio::sync::mpsc;

use crate::bytestring;
use crate::error::UpdateError;
use crate::proto::p4::config::v1 as p4info;
use crate::proto::p4::v1 as p4;
use crate::tm_service::DropCount;

/// What became of packets for the controller; counted from the start of the process.
#[derive(Debug, Default)]
pub struct PacketInCounters {
    /// Frames the data plane offered, whatever became of them.
    offered: AtomicU64,
    delivered: AtomicU64,
    queue_full: AtomicU64,
    no_controller: AtomicU64,
    controller_slow: AtomicU64,
    malformed: AtomicU64,
    pipeline_swap: AtomicU64,
}

impl PacketInCounters {
    /// Packet-ins handed to a controller's stream.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Packet-ins lost, by cause:
    /// `controller-queue-full` (the queue from the data plane was full), `no-controller` (no
    /// primary controller), `controller-slow` (it did not read its stream), `packet-in-malformed`
    /// (shorter than the packet-in header), `pipeline-swap` (of a program before the running one).
    pub fn drops(&self) -> Vec<DropCount> {
        [
            ("controller-queue-full", &self.queue_full),
            ("no-controller", &self.no_controller),
            ("controller-slow", &self.controller_slow),
            ("packet-in-malformed", &self.malformed),
            ("pipeline-swap", &self.pipeline_swap),
        ]
        .into_iter()
        .map(|(cause, count)| DropCount {
            cause,
            packets: count.load(Ordering::Relaxed),
        })
        .collect()
    }

    /// Frames offered so far. Read on the data plane's thread while a program is loaded, it
    /// tells frames of the old program from those of the new one.
    pub(crate) fn offered(&self) -> u64 {
        self.offered.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, fate: PacketInFate) {
        match fate {
            PacketInFate::Delivered => &self.delivered,
            PacketInFate::NoController => &self.no_controller,
            PacketInFate::ControllerSlow => &self.controller_slow,
            PacketInFate::Malformed => &self.malformed,
            PacketInFate::PipelineSwap => &self.pipeline_swap,
        }
        .fetch_add(1, Ordering::Relaxed);
    }
}

/// What became of one packet-in after the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketInFate {
    Delivered,
    NoController,
    ControllerSlow,
    Malformed,
    PipelineSwap,
}

/// A frame on its way to the controller.
#[derive(Debug)]
pub(crate) struct ControllerFrame {
    /// Its number among all frames offered, from 0.
    pub(crate) number: u64,
    pub(crate) bytes: Box<[u8]>,
}

/// A bounded queue for at most `capacity` (at least 1) frames from the data plane to the
/// controller.
pub fn packet_in_channel(capacity: usize) -> (PacketInSender, PacketInReceiver) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let counters = Arc::new(PacketInCounters::default());
    (
        PacketInSender {
            sender,
            counters: Arc::clone(&counters),
        },
        PacketInReceiver { receiver, counters },
    )
}

/// The data plane's end of the queue for the controller.
#[derive(Debug)]
pub struct PacketInSender {
    sender: mpsc::Sender<ControllerFrame>,
    counters: Arc<PacketInCounters>,
}

impl PacketInSender {
    /// Offers a frame that the program sent to the CPU port; never blocks. Returns whether the
    /// queue took it; a frame it does not take is lost and counted.
    pub fn send(&self, frame: &[u8]) -> bool {
        let number = self.counters.offered.fetch_add(1, Ordering::Relaxed);
        match self.sender.try_reserve() {
            Ok(place) => {
                place.send(ControllerFrame {
                    number,
                    bytes: frame.into(),
                });
                true
            }
            Err(_) => {
                self.counters.queue_full.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// What became of the frames.
    pub fn counters(&self) -> &PacketInCounters {
        &self.counters
    }
}

/// The server's end of the queue for the controller.
#[derive(Debug)]
pub struct PacketInReceiver {
    pub(crate) receiver: mpsc::Receiver<ControllerFrame>,
    pub(crate) counters: Arc<PacketInCounters>,
}

impl PacketInReceiver {
    /// What became of the frames; goes on counting, and can be read when the server has ended.
    pub fn counters(&self) -> Arc<PacketInCounters> {
        Arc::clone(&self.counters)
    }
}

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
    bits: u32,
    /// Annotated `@padding`: a packet-out may leave it out.
    padding: bool,
}

impl ControllerHeader {
    /// Reads the header's layout.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: widths that make no header, an id twice; `UNIMPLEMENTED`: a
    /// translated type that is a string.
    pub(crate) fn from_p4info(
        metadata: &p4info::ControllerPacketMetadata,
    ) -> Result<Self, UpdateError> {
        let name = metadata
            .preamble
            .as_ref()
            .map_or_else(String::new, |preamble| preamble.name.clone());
        let mut fields: Vec<HeaderField> = Vec::with_capacity(metadata.metadata.len());
        let mut total_bits = 0u64;
        for field in &metadata.metadata {
            let bits = u32::try_from(field.bitwidth)
                .ok()
                .filter(|bits| (1..=2_048).contains(bits))
                .ok_or_else(|| {
                    UpdateError::invalid(format!(
                        "P4Info: {name}: field {}: bitwidth {} given, 1 to 2048 expected",
                        field.name, field.bitwidth
                    ))
                })?;
            if fields.iter().any(|known| known.id == field.id) {
                return Err(UpdateError::invalid(format!(
                    "P4Info: {name}: field {}: id {} is given twice",
                    field.name, field.id
                )));
            }
            total_bits += u64::from(bits);
            fields.push(HeaderField {
                id: field.id,
                name: field.name.clone(),
                bits,
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
        for (position, given) in packet.metadata.iter().enumerate() {
            let Some(field) = self.fields.iter().find(|f| f.id == given.metadata_id) else {
                return Err(UpdateError::invalid(format!(
                    "{}: metadata id {} is not in P4Info; ids {} expected",
                    self.display_name("packet_out"),
                    given.metadata_id,
                    self.ids()
                )));
            };
            let earlier = packet.metadata.get(..position).unwrap_or(&[]);
            if earlier
                .iter()
                .any(|other| other.metadata_id == given.metadata_id)
            {
                return Err(UpdateError::invalid(format!(
                    "{}: field {} is given twice",
                    self.display_name("packet_out"),
                    field.name
                )));
            }
        }
        let mut frame = vec![0; self.bytes];
        let mut position = 0;
        for field in &self.fields {
            let given = packet
                .metadata
                .iter()
                .find(|metadata| metadata.metadata_id == field.id);
            match given {
                Some(metadata) => {
                    let value = bytestring::parse(
                        &metadata.value,
                        field.bits,
                        self.display_name("packet_out"),
                        &field.name,
                    )
                    .map_err(UpdateError::as_invalid)?;
                    put_bits(&mut frame, position, &value, field.bits);
                }
                None if field.padding => {}
                None => {
                    return Err(UpdateError::invalid(format!(
                        "{}: field {} (id {}, {} bits) is missing",
                        self.display_name("packet_out"),
                        field.name,
                        field.id,
                        field.bits
                    )));
                }
            }
            position += field.bits as usize;
        }
        frame.extend_from_slice(&packet.payload);
        Ok(frame)
    }

    /// The packet-in of a frame; `None` when it is shorter than the header.
    pub(crate) fn split(&self, frame: &[u8]) -> Option<p4::PacketIn> {
        let payload = frame.get(self.bytes..)?.to_vec();
        let mut position = 0;
        let metadata = self
            .fields
            .iter()
            .map(|field| {
                let value = get_bits(frame, position, field.bits);
                position += field.bits as usize;
                p4::PacketMetadata {
                    metadata_id: field.id,
                    value: bytestring::canonical(&value),
                }
            })
            .collect();
        Some(p4::PacketIn { payload, metadata })
    }

    fn display_name<'a>(&'a self, unnamed: &'a str) -> &'a str {
        if self.name.is_empty() {
            unnamed
        } else {
            &self.name
        }
    }

    fn ids(&self) -> String {
        if self.fields.is_empty() {
            return "none".to_owned();
        }
        let ids: Vec<String> = self
            .fields
            .iter()
            .map(|field| format!("{} ({})", field.id, field.name))
            .collect();
        ids.join(", ")
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
    use p4info::controller_packet_metadata::Metadata;

    fn header(fields: &[(&str, i32)]) -> ControllerHeader {
        ControllerHeader::from_p4info(&p4info::ControllerPacketMetadata {
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
        })
        .expect("valid header")
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
            "packet_out: metadata id 7 is not in P4Info; ids 1 (egress_port), 2 (pad) expected"
        );
        assert_eq!(
            refuse(vec![metadata(1, &[1]), metadata(1, &[1])]),
            "packet_out: field egress_port is given twice"
        );
        assert!(
            refuse(vec![metadata(1, &[2, 0]), metadata(2, &[0])])
                .contains("needs 10 bits, 9 bits expected")
        );
    }

    #[test]
    fn a_full_queue_loses_frames_and_counts_them() {
        let (sender, receiver) = packet_in_channel(2);
        assert!(sender.send(&[1]) && sender.send(&[2]) && !sender.send(&[3]));
        let full = sender
            .counters()
            .drops()
            .into_iter()
            .find(|drop| drop.cause == "controller-queue-full")
            .expect("cause");
        assert_eq!(full.packets, 1);
        assert_eq!(receiver.counters.offered(), 3);
    }
}
