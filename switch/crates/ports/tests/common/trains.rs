//! Random trains, taken apart to segments, and segments joined to trains.

#![allow(dead_code)] // each test binary uses a part of it

use std::ops::Range;

use ports::checksum;
use ports::joining::{Joining, MAX_HEADERS_BYTES};
use ports::train::{Kind, OFFLOAD_HEADER_BYTES, Segmentation, Train};

/// A sequence of numbers that look random (xorshift64*), the same for the same seed.
pub struct Numbers(pub u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.next() % end).expect("small")
    }

    fn fill(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.next() as u8).collect()
    }
}

/// A frame of several segments, as a host hands it over: checksums not complete.
pub struct Given {
    pub frame: Vec<u8>,
    /// Where the transport header begins, and the checksum in it.
    pub transport: (usize, usize),
    /// Where the IP addresses are.
    addresses: Range<usize>,
    pub is_ipv6: bool,
    pub segmentation: Segmentation,
}

impl Given {
    /// `tags`: whether it may have a VLAN tag.
    pub fn random(numbers: &mut Numbers, tags: bool) -> Given {
        let is_ipv6 = numbers.below(2) == 0;
        let kind = if numbers.below(3) == 0 {
            Kind::Udp
        } else {
            Kind::Tcp
        };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if tags && numbers.below(4) == 0 {
            frame.extend([0x81, 0x00, 0x20, 0x07]);
        }
        frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let options = if kind == Kind::Tcp {
            4 * numbers.below(11)
        } else {
            0
        };
        let header = if kind == Kind::Tcp { 20 + options } else { 8 };
        let payload_bytes = 88 + numbers.below(1460 - 88 - 60);
        // The kernel takes at most 64 segments of UDP.
        let longest = (payload_bytes * 60).min(60_000);
        let payload = payload_bytes + 1 + numbers.below((longest - payload_bytes) as u64);
        let length = u16::try_from(header + payload).expect("fits");
        let protocol = if kind == Kind::Tcp { 6 } else { 17 };
        let network_at = frame.len();
        let extension_bytes: usize;
        if is_ipv6 {
            frame.extend([0x60, 0x12, 0x34, 0x56]);
            // Destination options that say nothing, sometimes.
            extension_bytes = 8 * (numbers.below(4) / 3);
            frame.extend((length + extension_bytes as u16).to_be_bytes());
            frame.extend([if extension_bytes > 0 { 60 } else { protocol }, 64]);
            frame.extend(numbers.fill(32));
            if extension_bytes > 0 {
                frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            // Options that say nothing, sometimes.
            extension_bytes = 4 * (numbers.below(6) / 4);
            let header_bytes = 20 + extension_bytes;
            frame.extend([0x40 | (header_bytes / 4) as u8, 0xb8]);
            frame.extend((length + header_bytes as u16).to_be_bytes());
            frame.extend(numbers.fill(2));
            let fragmentation = 0x40 * (numbers.below(2) as u8);
            frame.extend([fragmentation, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(vec![1; extension_bytes]);
        }
        let addresses = if is_ipv6 {
            network_at + 8..network_at + 40
        } else {
            network_at + 12..network_at + 20
        };
        let at = frame.len();
        frame.extend(numbers.fill(4)); // ports
        if kind == Kind::Tcp {
            frame.extend(numbers.fill(8));
            frame.push(u8::try_from((header / 4) << 4).expect("fits"));
            // Not SYN, RST or URG, which are never cut; sometimes CWR.
            frame.push(0x10 | (numbers.below(256) as u8 & 0x89));
            frame.extend(numbers.fill(2));
            frame.extend([0, 0, 0, 0]);
            frame.extend(numbers.fill(options));
        } else {
            frame.extend(length.to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend(numbers.fill(payload));
        let offset = if kind == Kind::Tcp { 16 } else { 6 };
        let mut given = Given {
            frame,
            transport: (at, offset),
            addresses,
            is_ipv6,
            segmentation: Segmentation {
                kind,
                payload_bytes,
                transport_at: Some(at),
            },
        };
        given.sum_pseudo_header(length, protocol);
        given
    }

    /// Leaves the sum of the pseudo-header in the checksum, as the kernel wants it.
    fn sum_pseudo_header(&mut self, length: u16, protocol: u8) {
        let (at, offset) = self.transport;
        let mut sum = u32::from(length) + u32::from(protocol);
        for word in self.frame[self.addresses.clone()].chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
        }
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        let sum = u16::try_from(sum).expect("folded");
        self.frame[at + offset..at + offset + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The segments, by this crate.
    pub fn taken_apart(&self) -> Vec<Vec<u8>> {
        taken_apart(&self.frame, self.segmentation)
    }

    /// The frame after a virtio_net_hdr (linux/virtio_net.h).
    pub fn with_offload_header(&self) -> Vec<u8> {
        let (at, offset) = self.transport;
        let kind: u8 = match (self.segmentation.kind, self.is_ipv6) {
            (Kind::Udp, _) => 5,
            (_, false) => 1,
            (_, true) => 4,
        };
        // The kernel takes CWR only from those who say that it is there.
        let is_cwr = kind != 5 && self.frame[at + 13] & 0x80 != 0;
        let mut bytes = vec![1, kind | if is_cwr { 0x80 } else { 0 }];
        let header_bytes = self.frame.len().min(128);
        for field in [header_bytes, self.segmentation.payload_bytes, at, offset] {
            bytes.extend(u16::try_from(field).expect("fits").to_ne_bytes());
        }
        bytes.extend(&self.frame);
        bytes
    }
}

/// The segments of a frame, by this crate.
pub fn taken_apart(frame: &[u8], segmentation: Segmentation) -> Vec<Vec<u8>> {
    let mut train = Train::default();
    train.room()[OFFLOAD_HEADER_BYTES..][..frame.len()].copy_from_slice(frame);
    assert!(train.begin(frame.len(), segmentation, None, 0));
    let mut segments = Vec::new();
    while let Some(place) = train.next_segment() {
        segments.push(train.bytes(place).to_vec());
    }
    segments
}

/// Takes away a segment, and changes a bit of one, each sometimes.
pub fn damage(segments: &mut Vec<Vec<u8>>, numbers: &mut Numbers) {
    if numbers.below(3) == 0 {
        let at = numbers.below(segments.len() as u64);
        segments.remove(at);
    }
    if numbers.below(3) == 0 && !segments.is_empty() {
        let damaged = numbers.below(segments.len() as u64);
        let bytes = segments[damaged].len().min(100);
        let at = numbers.below(bytes as u64);
        segments[damaged][at] ^= 1 << numbers.below(8);
        if numbers.below(2) == 0 {
            // The bytes are others, and their checksum is right.
            checksum::complete(&mut segments[damaged]);
        }
    }
}

/// Segments that leave as one frame.
pub struct Left {
    pub segments: usize,
    /// `None`: the segment cannot be part of a train.
    pub train: Option<(Segmentation, Vec<u8>)>,
}

/// The frames that leave of `segments`, in order.
pub fn joined(segments: &[Vec<u8>]) -> Vec<Left> {
    let mut leaving = Vec::new();
    let mut at = 0;
    while let Some(first) = segments.get(at) {
        let Some(mut joining) = Joining::begin(first, 1514) else {
            leaving.push(Left {
                segments: 1,
                train: None,
            });
            at += 1;
            continue;
        };
        let rest = &segments[at + 1..];
        let more = rest.iter().take_while(|next| joining.join(first, next));
        let count = 1 + more.count();
        assert_eq!(joining.segments(), count);
        let mut headers = [0; MAX_HEADERS_BYTES];
        let end = joining.write_headers(first, &mut headers);
        let (offload, headers) = headers[..end].split_at(OFFLOAD_HEADER_BYTES);
        let segmentation = Segmentation::parse(offload.try_into().expect("a header"));
        let mut train = headers.to_vec();
        for segment in &segments[at..at + count] {
            train.extend(&segment[joining.payload_at()..]);
        }
        leaving.push(Left {
            segments: count,
            train: Some((segmentation.expect("several"), train)),
        });
        at += count;
    }
    leaving
}
