//! Trains are taken apart as the kernel does it, and what is put together is taken apart to the same
//! segments again.

mod common;

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::{in_namespace, receive_where, segmenting_socket, waiter_for};
use ports::joining::{Joining, MAX_HEADERS_BYTES, MAX_SEGMENTS};
use ports::train::{Kind, MAX_TRAIN_BYTES, OFFLOAD_HEADER_BYTES, Segmentation, Train};
use ports::{Port, PortOptions, Sending, checksum};

/// A sequence of numbers that look random (xorshift64*), the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.next() % end).expect("small")
    }

    fn fill(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.next() as u8).collect()
    }
}

/// A frame of several segments, as a host hands it over: checksums not complete.
struct Given {
    frame: Vec<u8>,
    /// Where the transport header begins, and the checksum in it.
    transport: (usize, usize),
    /// Where the IP addresses are.
    addresses: Range<usize>,
    is_ipv6: bool,
    segmentation: Segmentation,
}

impl Given {
    /// `tags`: whether it may have a VLAN tag.
    fn random(numbers: &mut Numbers, tags: bool) -> Given {
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
    fn taken_apart(&self) -> Vec<Vec<u8>> {
        taken_apart(&self.frame, self.segmentation)
    }

    /// The frame after a virtio_net_hdr (linux/virtio_net.h).
    fn with_offload_header(&self) -> Vec<u8> {
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
fn taken_apart(frame: &[u8], segmentation: Segmentation) -> Vec<Vec<u8>> {
    let mut train = Train::default();
    train.room()[OFFLOAD_HEADER_BYTES..][..frame.len()].copy_from_slice(frame);
    assert!(train.begin(frame.len(), segmentation, None, 0));
    let mut segments = Vec::new();
    while let Some(place) = train.next_segment() {
        segments.push(train.bytes(place).to_vec());
    }
    segments
}

/// Segments that leave as one frame.
struct Left {
    segments: usize,
    /// `None`: the segment cannot be part of a train.
    train: Option<(Segmentation, Vec<u8>)>,
}

/// The frames that leave of `segments`, in order.
fn joined(segments: &[Vec<u8>]) -> Vec<Left> {
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

/// A packet socket that sends frames with offload headers out of `interface`.
fn offloading_socket(interface: &str) -> OwnedFd {
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: no pointers; the descriptor is new and owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)) };
    let on: libc::c_int = 1;
    // SAFETY: all-zero is a valid address; the pointers are valid across the calls, which only read.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let fd = socket.as_raw_fd();
        let length = size_of_val(&address) as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        let level = libc::SOL_PACKET;
        let on = (&raw const on).cast();
        assert_eq!(libc::setsockopt(fd, level, libc::PACKET_VNET_HDR, on, 4), 0);
    }
    socket
}

#[test]
fn segments_are_those_of_the_kernel() {
    in_namespace("segments_are_those_of_the_kernel", || {
        common::ip("link set va gso_max_size 256"); // the kernel cuts longer frames itself
        let options = PortOptions {
            rx_train_bytes: 1 << 20,
            ..PortOptions::default()
        };
        let mut b = Port::open("vb", &options).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        let socket = offloading_socket("va");
        let mut numbers = Numbers(20_251_125);
        let (mut trains, mut udp) = (0, 0);
        while trains < 1_000 {
            let given = Given::random(&mut numbers, false);
            let bytes = given.with_offload_header();
            // SAFETY: the pointer is valid for this length across the call, which only reads.
            let sent =
                unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
            let is_udp = given.segmentation.kind == Kind::Udp;
            if sent < 0 && is_udp {
                continue; // this kernel takes no UDP segments from packet sockets
            }
            assert!(sent > 0, "{}", std::io::Error::last_os_error());
            for (i, segment) in given.taken_apart().iter().enumerate() {
                let (kernels, _) = receive_where(&mut b, &mut waiter, |_| true);
                assert_eq!(&kernels, segment, "train {trains}, segment {i}");
                assert_eq!(checksum::verify(segment), Some(true));
            }
            trains += 1;
            udp += u32::from(is_udp);
        }
        let statistics = b.statistics();
        assert_eq!(statistics.rx_trains, 0, "the kernel has cut them");
        println!("{trains} trains, {udp} of UDP");
    });
}

#[test]
fn what_is_joined_is_taken_apart_to_the_same_segments() {
    let mut numbers = Numbers(23);
    let (mut trains, mut alone) = (0, 0);
    for round in 0..2_000 {
        // Segments of some trains, whole or in part, and sometimes damaged.
        let mut segments = Vec::new();
        for _ in 0..1 + numbers.below(3) {
            let mut of_one = Given::random(&mut numbers, true).taken_apart();
            if numbers.below(3) == 0 {
                let at = numbers.below(of_one.len() as u64);
                of_one.remove(at);
            }
            if numbers.below(3) == 0 && !of_one.is_empty() {
                let damaged = numbers.below(of_one.len() as u64);
                let bytes = of_one[damaged].len().min(100);
                let at = numbers.below(bytes as u64);
                of_one[damaged][at] ^= 1 << numbers.below(8);
                if numbers.below(2) == 0 {
                    // The bytes are others, and their checksum is right.
                    checksum::complete(&mut of_one[damaged]);
                }
            }
            segments.extend(of_one);
        }
        let mut sent = segments.iter();
        for left in joined(&segments) {
            match left.train {
                Some((segmentation, train)) if left.segments > 1 => {
                    assert!(left.segments <= MAX_SEGMENTS && train.len() < 1 << 16);
                    trains += 1;
                    for segment in taken_apart(&train, segmentation) {
                        assert_eq!(sent.next(), Some(&segment), "round {round}");
                    }
                }
                _ => {
                    alone += 1;
                    sent.nth(left.segments - 1);
                }
            }
        }
        assert_eq!(sent.next(), None);
    }
    assert!(trains > 2_000 && alone > 500, "{trains}, {alone}");
}

#[test]
fn a_train_that_was_taken_apart_is_joined_whole() {
    let mut numbers = Numbers(5);
    for _ in 0..1_000 {
        let given = Given::random(&mut numbers, true);
        let segments = given.taken_apart();
        let counts: Vec<usize> = joined(&segments).iter().map(|left| left.segments).collect();
        assert_eq!(counts.iter().sum::<usize>(), segments.len());
        assert_eq!(
            counts.len(),
            segments.len().div_ceil(MAX_SEGMENTS),
            "{counts:?}"
        );
    }
}

#[test]
fn joined_segments_are_those_of_the_kernel() {
    in_namespace("joined_segments_are_those_of_the_kernel", || {
        // The other end takes no trains: the kernel cuts what `va` sends.
        if !common::succeeds("ethtool", "-K va tso off gso off tx-udp-segmentation off") {
            common::ip("link set va gso_max_size 256");
        }
        let mut a = Port::open("va", &PortOptions::default()).expect("opens");
        let mut b = Port::open("vb", &PortOptions::default()).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        let mut numbers = Numbers(2_311);
        let (mut sent, mut segments) = (0, 0);
        while segments < 20_000 {
            let given = Given::random(&mut numbers, true);
            let mut of_one = given.taken_apart();
            if numbers.below(2) == 0 {
                let at = numbers.below(of_one.len() as u64);
                of_one.remove(at);
            }
            for segment in &of_one {
                a.send_as(
                    segment,
                    Sending {
                        in_train: true,
                        ..Sending::default()
                    },
                )
                .expect("fits");
            }
            a.flush();
            for (i, segment) in of_one.iter().enumerate() {
                let (received, _) = receive_where(&mut b, &mut waiter, |_| true);
                assert_eq!(&received, segment, "after {segments}, segment {i}");
            }
            segments += of_one.len();
            sent += 1;
        }
        let (there, here) = (a.statistics(), b.statistics());
        assert_eq!(there.tx_frames, segments as u64);
        assert!(there.tx_trains > sent / 2, "{there:?}");
        assert_eq!(
            (there.tx_failed, here.rx_trains),
            (0, 0),
            "{there:?} {here:?}"
        );
        println!("{segments} segments in {} trains", there.tx_trains);
    });
}

#[test]
fn trains_cross_whole() {
    in_namespace("trains_cross_whole", || {
        let mut numbers = Numbers(7_001);
        let mut a = Port::open("va", &PortOptions::default()).expect("opens");
        let mut b = Port::open("vb", &PortOptions::default()).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        let in_train = Sending {
            in_train: true,
            ..Sending::default()
        };
        let mut segments = 0;
        for _ in 0..500 {
            let of_one = Given::random(&mut numbers, true).taken_apart();
            for segment in &of_one {
                a.send_as(segment, in_train).expect("fits");
            }
            a.flush();
            for segment in &of_one {
                let (received, _) = receive_where(&mut b, &mut waiter, |_| true);
                assert_eq!(&received, segment);
            }
            segments += of_one.len() as u64;
        }
        let (there, here) = (a.statistics(), b.statistics());
        assert!(here.rx_trains > 400, "{here:?}");
        assert_eq!(there.tx_trains, here.rx_trains);
        assert_eq!((there.tx_frames, here.rx_frames), (segments, segments));

        // Frames that came alone leave alone, as those of a port without offloads do.
        let without = PortOptions {
            offloads: false,
            ..PortOptions::default()
        };
        let mut c = Port::open("va", &without).expect("opens");
        for (port, sending) in [(&mut a, Sending::default()), (&mut c, in_train)] {
            let before = b.statistics().rx_trains;
            let of_one = Given::random(&mut numbers, true).taken_apart();
            for segment in &of_one {
                port.send_as(segment, sending).expect("fits");
            }
            port.flush();
            for segment in &of_one {
                let (received, _) = receive_where(&mut b, &mut waiter, |_| true);
                assert_eq!(&received, segment);
            }
            assert_eq!(b.statistics().rx_trains, before);
        }
    });
}

#[test]
fn a_refused_train_is_refused_segment_by_segment() {
    in_namespace("a_refused_train_is_refused_segment_by_segment", || {
        let mut numbers = Numbers(11);
        let mut given = Given::random(&mut numbers, false);
        while given.taken_apart().len() < 5 {
            given = Given::random(&mut numbers, false);
        }
        let segments = given.taken_apart();
        let mut a = Port::open("va", &PortOptions::default()).expect("opens");
        common::ip("link set va down");
        let in_train = Sending {
            in_train: true,
            ..Sending::default()
        };
        for segment in &segments {
            a.send_as(segment, in_train).expect("fits");
        }
        let flushed = a.flush();
        assert_eq!((flushed.sent, flushed.failed), (0, segments.len()));
        assert_eq!(a.statistics().tx_last_errno, libc::ENETDOWN);
        assert_eq!(a.statistics().tx_trains, 0);
    });
}

#[test]
fn a_train_arrives_as_packets() {
    in_namespace("a_train_arrives_as_packets", || {
        common::ip("address add 10.0.0.1/24 dev va");
        common::ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let mut b = Port::open("vb", &PortOptions::default()).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        // Longer than a slot of the ring, and shorter.
        for (payload_bytes, bytes) in [(1_000, 20_300), (300, 900)] {
            let socket = segmenting_socket("10.0.0.1:0", payload_bytes);
            let data: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
            socket.send_to(&data, "10.0.0.2:5001").expect("sends");
            let mut arrived: Vec<u8> = Vec::new();
            let mut arrivals_ns = Vec::new();
            while arrived.len() < data.len() {
                let (packet, arrival_ns) = receive_where(&mut b, &mut waiter, |_| true);
                assert_eq!(checksum::verify(&packet), Some(true));
                arrived.extend(&packet[42..]);
                arrivals_ns.push(arrival_ns);
            }
            assert_eq!(arrived, data);
            arrivals_ns.dedup();
            assert_eq!(arrivals_ns.len(), 1, "the segments came at the same time");
        }
        let statistics = b.statistics();
        assert_eq!((statistics.rx_trains, statistics.rx_frames), (2, 24));
        assert_eq!(statistics.rx_oversize + statistics.rx_ring_full, 0);
    });
}

#[test]
fn trains_that_lie_have_no_segments() {
    let mut numbers = Numbers(7);
    let mut train = Train::default();
    let mut begin = |frame: &[u8], segmentation| {
        train.room()[OFFLOAD_HEADER_BYTES..][..frame.len()].copy_from_slice(frame);
        train.begin(frame.len(), segmentation, None, 0) || train.has_segment()
    };
    let mut given = Given::random(&mut numbers, false);
    while given.segmentation.kind != Kind::Tcp || given.is_ipv6 {
        given = Given::random(&mut numbers, false);
    }
    let of = given.segmentation;
    assert!(begin(&given.frame, of));
    let none = Segmentation {
        payload_bytes: 0,
        ..of
    };
    assert!(!begin(&given.frame, none), "segments of no bytes");
    for kind in [Kind::Udp, Kind::Other] {
        assert!(
            !begin(&given.frame, Segmentation { kind, ..of }),
            "{kind:?}"
        );
    }
    for bytes in 0..given.transport.0 + 20 {
        assert!(!begin(&given.frame[..bytes], of), "cut at {bytes}");
    }
    let mut fragment = given.frame.clone();
    fragment[20] = 0x20; // more fragments
    assert!(!begin(&fragment, of), "a fragment");
    let mut header = given.frame.clone();
    header[given.transport.0 + 12] = 0x40; // a TCP header of 16 bytes
    assert!(!begin(&header, of), "a short header");
    assert!(!begin(&vec![0; MAX_TRAIN_BYTES], of), "zeros");
}
