//! Trains: frames of several segments, and how they are taken apart into packets.
//!
//! A host with segmentation offload hands its interface up to 64 KB of a stream as one frame, and
//! leaves the cutting to hardware (TSO, USO). A veth has no hardware, so the frame arrives whole. Each
//! segment gets the headers that the kernel's own segmentation gives it
//! (Documentation/networking/segmentation-offloads.rst): the IPv4 identification counts up, the TCP
//! sequence number advances, FIN and PSH stay with the last segment and CWR with the first one.
//!
//! A train in a tunnel comes marked like one that is not: TCP or UDP. Only the place of the checksum
//! that was left out says which transport header is cut. The tunnel's headers are made for each segment, too.

use std::ops::Range;

use crate::checksum::{self, Protocol, Transport, write_u16};

/// Bytes of a `virtio_net_hdr` (linux/virtio_net.h), which precedes a frame (`PACKET_VNET_HDR`).
pub const OFFLOAD_HEADER_BYTES: usize = 10;

/// Longest train, bytes: an IP packet of the greatest length, an Ethernet header and two VLAN tags.
pub const MAX_TRAIN_BYTES: usize = 65_535 + 14 + 2 * VLAN_TAG_BYTES;

const VLAN_TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;

/// Longest headers of a segment: Ethernet, tags, IP with extensions, TCP with options.
pub(crate) const MAX_HEADER_BYTES: usize = 256;

const UDP_LENGTH_AT: usize = 4;
/// The place of the flags in a TCP header.
pub(crate) const TCP_FLAGS_AT: usize = 13;
pub(crate) const TCP_FIN_PSH: u8 = 0x01 | 0x08;
pub(crate) const TCP_CWR: u8 = 0x80;

// Values of `gso_type` (linux/virtio_net.h).
const GSO_NONE: u8 = 0;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
/// Since Linux 6.2. Before, a frame of this kind is lost with the ring's.
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The flag of an offload header that says that a checksum is left out (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
pub(crate) const NEEDS_CHECKSUM: u8 = 1;

/// The checksum that is left out of a frame: the outermost one, or in a tunnel that of the packet inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The place of the transport header (`csum_start`).
    pub(crate) start: usize,
    /// The place of the field in this header (`csum_offset`).
    pub(crate) offset: usize,
}

impl Marked {
    /// Reads a `virtio_net_hdr` in the machine's byte order; `None`: no checksum is left out.
    pub(crate) fn parse(header: &[u8; OFFLOAD_HEADER_BYTES]) -> Option<Marked> {
        let field = |bytes| usize::from(u16::from_ne_bytes(bytes));
        (header[0] & NEEDS_CHECKSUM != 0).then(|| Marked {
            start: field([header[6], header[7]]),
            offset: field([header[8], header[9]]),
        })
    }
}

/// The kind of offload that a frame comes with (`gso_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// UDP over IPv4 or IPv6 (`UDP_SEGMENT` of udp(7)).
    Udp,
    /// One that this crate does not take apart.
    Other,
}

impl Kind {
    /// The `gso_type` of a train that the kernel is to cut. `has_cwr`: its first segment has the TCP flag
    /// CWR, which the kernel takes only from those who say so.
    pub(crate) fn offload_type(self, is_ipv4: bool, has_cwr: bool) -> u8 {
        let kind = match self {
            Kind::Tcp if is_ipv4 => GSO_TCP_IPV4,
            Kind::Tcp => GSO_TCP_IPV6,
            Kind::Udp => GSO_UDP,
            Kind::Other => GSO_NONE,
        };
        if has_cwr { kind | GSO_ECN } else { kind }
    }
}

/// What the kernel says of a frame of several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// How the frame is cut.
    pub kind: Kind,
    /// Payload of each segment but the last, bytes (`gso_size`).
    pub payload_bytes: usize,
    /// The place of the transport header whose payload is cut, in the frame without the VLAN tag that the
    /// kernel took out (`csum_start`). `None`: the kernel does not say; it is the outermost one.
    pub transport_at: Option<usize>,
}

impl Segmentation {
    /// Reads a `virtio_net_hdr` in the machine's byte order; `None`: the frame is one packet.
    #[must_use]
    pub fn parse(header: &[u8; OFFLOAD_HEADER_BYTES]) -> Option<Segmentation> {
        const GSO_TYPE_AT: usize = 1;
        let kind = match header[GSO_TYPE_AT] & !GSO_ECN {
            GSO_NONE => return None,
            GSO_TCP_IPV4 | GSO_TCP_IPV6 => Kind::Tcp,
            GSO_UDP => Kind::Udp,
            _ => Kind::Other,
        };
        Some(Segmentation {
            kind,
            payload_bytes: usize::from(u16::from_ne_bytes([header[4], header[5]])),
            transport_at: Marked::parse(header).map(|marked| marked.start),
        })
    }
}

/// Finds the transport header at `transport_at` of a frame, and the tunnel's if it is in one. Without a place
/// it is the outermost one.
fn locate(frame: &[u8], transport_at: Option<usize>) -> Option<(Option<Transport>, Transport)> {
    let outer = checksum::locate(frame)?;
    if transport_at.is_none_or(|at| at == outer.start) {
        return Some((None, outer));
    }
    let inner = checksum::locate_inside(frame, &outer)?;
    (transport_at == Some(inner.start)).then_some((Some(outer), inner))
}

/// A train under way: a buffer with the whole frame, and the place of the next segment in it.
#[derive(Default)]
pub struct Train {
    /// `OFFLOAD_HEADER_BYTES` of anything, then the frame. Allocated with the first train.
    buffer: Vec<u8>,
    /// The headers of the first segment, tag included.
    header: Vec<u8>,
    transport: Transport,
    /// The outer transport header, of a train in a tunnel.
    tunnel: Option<Transport>,
    payload_bytes: usize,
    /// The payload that no segment has had yet.
    left: Range<usize>,
    /// Segments that were made.
    made: u16,
    /// The arrival time of the train, ns.
    pub arrival_ns: u64,
}

impl Train {
    /// Whether it has another segment.
    #[must_use]
    pub fn has_segment(&self) -> bool {
        !self.left.is_empty()
    }

    /// The room for a train: the offload header, then the frame.
    pub fn room(&mut self) -> &mut [u8] {
        self.left = 0..0;
        self.buffer
            .resize(OFFLOAD_HEADER_BYTES + MAX_TRAIN_BYTES, 0);
        &mut self.buffer
    }

    /// The bytes of a segment.
    #[must_use]
    pub fn bytes(&self, segment: Range<usize>) -> &[u8] {
        self.buffer.get(segment).unwrap_or_default()
    }

    /// Begins with the train of `frame_bytes` in [`room`](Train::room). Returns false, with no segment
    /// left, if its headers do not say what `segmentation` does.
    pub fn begin(
        &mut self,
        frame_bytes: usize,
        segmentation: Segmentation,
        vlan_tag: Option<[u8; VLAN_TAG_BYTES]>,
        arrival_ns: u64,
    ) -> bool {
        self.left = 0..0;
        self.made = 0;
        self.arrival_ns = arrival_ns;
        self.payload_bytes = segmentation.payload_bytes;
        let mut start = OFFLOAD_HEADER_BYTES;
        let end = start + frame_bytes;
        let tag_bytes = vlan_tag.map_or(0, |tag| tag.len());
        if let Some(tag) = vlan_tag {
            // The addresses move into the room of the offload header.
            const { assert!(OFFLOAD_HEADER_BYTES >= VLAN_TAG_BYTES) }
            if frame_bytes < ADDRESSES_BYTES || end > self.buffer.len() {
                return false;
            }
            let addresses = start..start + ADDRESSES_BYTES;
            start -= VLAN_TAG_BYTES;
            self.buffer.copy_within(addresses, start);
            let tag_at = start + ADDRESSES_BYTES;
            self.buffer[tag_at..tag_at + VLAN_TAG_BYTES].copy_from_slice(&tag);
        }
        let Some(frame) = self.buffer.get(start..end) else {
            return false;
        };
        let transport_at = segmentation.transport_at.map(|at| at + tag_bytes);
        let Some((tunnel, transport)) = locate(frame, transport_at) else {
            return false;
        };
        let header_bytes = match (segmentation.kind, transport.protocol) {
            (Kind::Tcp, Protocol::Tcp) => frame
                .get(transport.start + 12)
                .map(|offset| usize::from(offset >> 4) * 4)
                .filter(|bytes| *bytes >= 20),
            (Kind::Udp, Protocol::Udp) => Some(8),
            _ => None,
        };
        let Some(payload_at) = header_bytes.map(|bytes| transport.start + bytes) else {
            return false;
        };
        if payload_at > MAX_HEADER_BYTES
            || payload_at >= transport.end
            || segmentation.payload_bytes == 0
        {
            return false;
        }
        self.header.clear();
        self.header.extend_from_slice(&frame[..payload_at]);
        self.left = start + payload_at..start + transport.end;
        self.transport = transport;
        self.tunnel = tunnel;
        true
    }

    /// The length of the longest segment, bytes.
    #[must_use]
    pub fn longest_bytes(&self) -> usize {
        self.header.len() + self.payload_bytes.min(self.left.len())
    }

    /// Drops the segments that are left.
    pub fn end(&mut self) {
        self.left = 0..0;
    }

    /// Makes the next segment; returns its place in the buffer.
    pub fn next_segment(&mut self) -> Option<Range<usize>> {
        if self.left.is_empty() {
            return None;
        }
        // The headers go over the end of the payload before, which its segment has had.
        let place = self.left.start - self.header.len()
            ..self.left.end.min(self.left.start + self.payload_bytes);
        let is_first = self.made == 0;
        let is_last = place.end == self.left.end;
        let segment = self.buffer.get_mut(place.clone())?;
        segment
            .get_mut(..self.header.len())?
            .copy_from_slice(&self.header);
        let from = &self.transport;
        let end = segment.len();
        from.adapt_network_header(segment, end, self.made);
        let header = segment.get_mut(from.start..)?;
        match from.protocol {
            Protocol::Tcp => {
                if !is_last {
                    header[TCP_FLAGS_AT] &= !TCP_FIN_PSH;
                }
                if !is_first {
                    header[TCP_FLAGS_AT] &= !TCP_CWR;
                }
                // The next one's sequence number, in the template.
                let sequence = self.header.get_mut(from.start + 4..from.start + 8)?;
                let number =
                    u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
                let advanced = number.wrapping_add(u32::try_from(self.payload_bytes).ok()?);
                sequence.copy_from_slice(&advanced.to_be_bytes());
            }
            Protocol::Udp => {
                let bytes = u16::try_from(header.len()).ok()?;
                write_u16(header, UDP_LENGTH_AT, bytes);
            }
            Protocol::Icmpv6 => return None,
        }
        from.store(segment, end);
        if let Some(outer) = &self.tunnel {
            outer.adapt_network_header(segment, end, self.made);
            let bytes = u16::try_from(end - outer.start).ok()?;
            write_u16(segment, outer.start + UDP_LENGTH_AT, bytes);
            if !outer.is_without(segment) {
                outer.store(segment, end);
            }
        }
        self.left.start = place.end;
        self.made = self.made.wrapping_add(1);
        Some(place)
    }
}
