//! Joins segments that leave one after the other to a train, the reverse of [`train`](crate::train).
//!
//! A segment joins a train only if the train, taken apart by the kernel, by a card or by
//! [`train`](crate::train), has these bytes again: headers that count up as theirs do, right checksums,
//! nothing behind the payload. It may differ from the segments before it in nothing else.

use crate::checksum::{self, Protocol, Transport, read_u16, write_u16};
use crate::train::{
    Kind, MAX_HEADER_BYTES, NEEDS_CHECKSUM, OFFLOAD_HEADER_BYTES, TCP_CWR, TCP_FIN_PSH,
    TCP_FLAGS_AT,
};

/// Most segments of a train. Older kernels take no more of UDP.
pub const MAX_SEGMENTS: usize = 64;

/// Longest train, bytes. The kernel cuts longer ones itself (`gso_max_size`).
const MAX_BYTES: usize = 65_535;

/// Segments with these flags (SYN, RST, URG) are never joined, as they are never cut.
const TCP_ALONE: u8 = 0x02 | 0x04 | 0x20;

const TYPE_VLAN: u16 = 0x8100;
const VLAN_TAG_BYTES: usize = 4;

/// Bytes of the headers that precede the payloads of a train: the offload header, then the frame's.
pub const MAX_HEADERS_BYTES: usize = OFFLOAD_HEADER_BYTES + MAX_HEADER_BYTES;

/// A train that segments join. It is of one segment at first.
///
/// It knows the place of everything in the first segment, whose bytes each call gets.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    transport: Transport,
    /// Where the payload of a segment begins.
    payload_at: usize,
    /// Payload of each segment but the last, bytes (`gso_size`).
    payload_bytes: usize,
    segments: usize,
    /// Bytes of the train: the headers once, and all payloads.
    bytes: usize,
    /// FIN and PSH of the last segment.
    last_flags: u8,
    /// The last segment may have none after it.
    ended: bool,
}

impl Joining {
    /// A train that begins with the segment in `frame`; `None`: it cannot be one of several.
    /// `longest_bytes`: the longest frame, without a VLAN tag, that the kernel takes for the interface.
    #[must_use]
    pub fn begin(frame: &[u8], longest_bytes: usize) -> Option<Joining> {
        let transport = checksum::locate(frame)?;
        let tag_bytes = match read_u16(frame, 12) {
            Some(TYPE_VLAN) => VLAN_TAG_BYTES,
            _ => 0,
        };
        let header_bytes = match transport.protocol {
            Protocol::Tcp => usize::from(*frame.get(transport.start + 12)? >> 4) * 4,
            Protocol::Udp => 8,
            Protocol::Icmpv6 => return None,
        };
        let payload_at = transport.start + header_bytes;
        let flags = match transport.protocol {
            Protocol::Tcp if header_bytes < 20 => return None,
            Protocol::Tcp => *frame.get(transport.start + TCP_FLAGS_AT)?,
            _ => 0,
        };
        let joins = payload_at < transport.end
            && payload_at <= MAX_HEADER_BYTES
            && transport.end == frame.len()
            && frame.len() <= longest_bytes + tag_bytes
            && flags & TCP_ALONE == 0
            && states_length(frame, &transport)
            && transport.has_network_checksum(frame)
            && transport.is_complete(frame);
        if !joins {
            return None;
        }
        Some(Joining {
            transport,
            payload_at,
            payload_bytes: frame.len() - payload_at,
            segments: 1,
            bytes: frame.len(),
            last_flags: flags & TCP_FIN_PSH,
            ended: flags & TCP_FIN_PSH != 0,
        })
    }

    /// Joins the segment in `next` to the train whose first segment is `first`. False: it does not
    /// belong there.
    pub fn join(&mut self, first: &[u8], next: &[u8]) -> bool {
        if self.ended || self.segments >= MAX_SEGMENTS {
            return false;
        }
        let Some(payload_bytes) = next.len().checked_sub(self.payload_at) else {
            return false;
        };
        let fits = (1..=self.payload_bytes).contains(&payload_bytes)
            && self.bytes + payload_bytes <= MAX_BYTES;
        if !fits || !self.continues(first, next) {
            return false;
        }
        let flags = match self.transport.protocol {
            Protocol::Tcp => next[self.transport.start + TCP_FLAGS_AT] & TCP_FIN_PSH,
            _ => 0,
        };
        self.segments += 1;
        self.bytes += payload_bytes;
        self.last_flags = flags;
        self.ended = flags != 0 || payload_bytes < self.payload_bytes;
        true
    }

    /// Whether the headers of `next` are those that the kernel gives the next segment of the train, and
    /// its checksums right.
    fn continues(&self, first: &[u8], next: &[u8]) -> bool {
        let (Some(before), Some(after)) =
            (first.get(..self.payload_at), next.get(..self.payload_at))
        else {
            return false;
        };
        let Transport { network, start, .. } = self.transport;
        let same = |from: usize, to: usize| before[from..to] == after[from..to];
        let ip_continues = if before[network] >> 4 == 4 {
            let ahead = u16::try_from(self.segments).unwrap_or(u16::MAX);
            let identification =
                read_u16(before, network + 4).map(|first| first.wrapping_add(ahead));
            same(0, network + 2)
                && read_u16(after, network + 4) == identification
                && same(network + 6, network + 10)
                && same(network + 12, start)
        } else {
            same(0, network + 4) && same(network + 6, start)
        };
        let transport_continues = || match self.transport.protocol {
            Protocol::Tcp => {
                let at = start + TCP_FLAGS_AT;
                let ahead = u32::try_from(self.segments * self.payload_bytes).unwrap_or(u32::MAX);
                let sequence = sequence_of(before, start).wrapping_add(ahead);
                same(start, start + 4)
                    && sequence_of(after, start) == sequence
                    && same(start + 8, at)
                    // CWR is the first one's, FIN and PSH are the last one's.
                    && after[at] & !TCP_FIN_PSH == before[at] & !TCP_FIN_PSH & !TCP_CWR
                    && same(at + 1, start + 16)
                    && same(start + 18, self.payload_at)
            }
            Protocol::Udp => same(start, start + 4),
            Protocol::Icmpv6 => false,
        };
        ip_continues
            && transport_continues()
            && states_length(next, &self.transport)
            && self.transport.has_network_checksum(next)
            && self.transport.is_complete(next)
    }

    /// Segments of the train so far.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Where the payload begins in each segment.
    #[must_use]
    pub fn payload_at(&self) -> usize {
        self.payload_at
    }

    /// Writes what precedes the payloads: the offload header (`virtio_net_hdr`), then the headers of the
    /// train whose first segment is `first`. Returns the number of bytes.
    pub fn write_headers(&self, first: &[u8], into: &mut [u8; MAX_HEADERS_BYTES]) -> usize {
        let (offload, headers) = into.split_at_mut(OFFLOAD_HEADER_BYTES);
        let headers = &mut headers[..self.payload_at];
        headers.copy_from_slice(&first[..self.payload_at]);
        let transport = &self.transport;
        let is_ipv4 = headers[transport.network] >> 4 == 4;
        let mut has_cwr = false;
        match transport.protocol {
            Protocol::Tcp => {
                let flags = &mut headers[transport.start + TCP_FLAGS_AT];
                *flags |= self.last_flags;
                has_cwr = *flags & TCP_CWR != 0;
            }
            Protocol::Udp | Protocol::Icmpv6 => {
                let bytes = u16::try_from(self.bytes - transport.start).unwrap_or(u16::MAX);
                write_u16(headers, transport.start + 4, bytes);
            }
        }
        transport.adapt_network_header(headers, self.bytes, 0);
        transport.leave_incomplete(headers, self.bytes);
        let kind = match transport.protocol {
            Protocol::Tcp => Kind::Tcp,
            Protocol::Udp | Protocol::Icmpv6 => Kind::Udp,
        };
        offload[0] = NEEDS_CHECKSUM;
        offload[1] = kind.offload_type(is_ipv4, has_cwr);
        let checksum_offset = transport.checksum_at - transport.start;
        let fields = [
            self.payload_at,
            self.payload_bytes,
            transport.start,
            checksum_offset,
        ];
        for (place, field) in offload[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&u16::try_from(field).unwrap_or(u16::MAX).to_ne_bytes());
        }
        OFFLOAD_HEADER_BYTES + self.payload_at
    }
}

/// Whether the lengths in the headers of a packet that ends with its last byte are its length.
fn states_length(packet: &[u8], transport: &Transport) -> bool {
    let at = transport.network;
    let ip_states = if packet.get(at).is_some_and(|byte| byte >> 4 == 4) {
        read_u16(packet, at + 2).map(usize::from) == Some(packet.len() - at)
    } else {
        let payload_bytes = packet.len() - at - checksum::IPV6_BYTES;
        read_u16(packet, at + 4).map(usize::from) == Some(payload_bytes)
    };
    let udp_states = || {
        read_u16(packet, transport.start + 4).map(usize::from)
            == Some(packet.len() - transport.start)
    };
    ip_states && (transport.protocol != Protocol::Udp || udp_states())
}

fn sequence_of(packet: &[u8], transport_at: usize) -> u32 {
    let field = packet
        .get(transport_at + 4..)
        .and_then(|rest| rest.first_chunk());
    field.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
