//! Trains are taken apart as the kernel does it, and what is put together is taken apart to the same
//! segments again.

mod common;
#[path = "common/trains.rs"]
mod trains;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::{in_namespace, receive_where, segmenting_socket, waiter_for};
use ports::joining::MAX_SEGMENTS;
use ports::train::{Kind, MAX_TRAIN_BYTES, OFFLOAD_HEADER_BYTES, Segmentation, Train};
use ports::{Port, PortOptions, Sending, checksum};
use trains::{Given, Numbers, damage, joined, taken_apart};

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
            damage(&mut of_one, &mut numbers);
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

/// The places of the IPv4 headers of a frame of IPv4 in VXLAN over IPv4.
const IP_AT: [usize; 2] = [14, 64];

/// Of such a frame, what the kernel numbers anew for each train is zero: the identifications and the
/// checksums over them.
fn without_identifications(frame: &[u8]) -> Vec<u8> {
    let mut masked = frame.to_vec();
    for at in IP_AT {
        masked[at + 4..at + 6].fill(0);
        masked[at + 10..at + 12].fill(0);
    }
    masked
}

#[test]
fn segments_in_a_tunnel_are_those_of_the_kernel() {
    in_namespace("segments_in_a_tunnel_are_those_of_the_kernel", || {
        const INNER_AT: usize = 50;
        common::ip("address add 10.0.0.1/24 dev va");
        common::ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let mut b = Port::open("vb", &PortOptions::default()).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        for own_checksum in ["udpcsum", "noudpcsum"] {
            let kind = "type vxlan id 42 dstport 4789 local 10.0.0.1 remote 10.0.0.2 dev va";
            let added = format!("link add vx {kind} {own_checksum}");
            if !common::succeeds("ip", &added) {
                common::not_run("trains in a tunnel", "this kernel has no VXLAN");
                return;
            }
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/vx/disable_ipv6", "1");
            common::ip("link set vx up");
            common::ip("address add 10.1.0.1/24 dev vx");
            common::ip("neighbour add 10.1.0.2 lladdr 02:00:00:00:00:12 dev vx");
            let socket = segmenting_socket("10.1.0.1:0", 1_000);
            let data: Vec<u8> = (0..20_300).map(|i| (i / 7) as u8).collect();
            let mut packets_of = |bytes: usize| {
                let data = &data[..bytes];
                socket.send_to(data, "10.1.0.2:5001").expect("sends");
                let mut packets: Vec<Vec<u8>> = Vec::new();
                let mut arrived: Vec<u8> = Vec::new();
                while arrived.len() < data.len() {
                    let to_us = |frame: &[u8]| frame.get(86..88) == Some(&[0x13, 0x89]);
                    let (packet, _) = receive_where(&mut b, &mut waiter, to_us);
                    let inner = &packet[INNER_AT..];
                    assert_eq!(checksum::verify(&packet), Some(true));
                    assert_eq!(checksum::verify(inner), Some(true));
                    arrived.extend(&inner[42..]);
                    packets.push(packet);
                }
                assert!(arrived == data);
                for at in IP_AT {
                    let of = |packet: &[u8]| u16::from_be_bytes([packet[at + 4], packet[at + 5]]);
                    for (ahead, packet) in (0..).zip(&packets) {
                        assert_eq!(of(packet), of(&packets[0]).wrapping_add(ahead));
                    }
                }
                let masked = packets.iter().map(|packet| without_identifications(packet));
                (masked.collect::<Vec<_>>(), b.statistics().rx_trains)
            };
            let (ours, trains) = packets_of(20_300);
            assert_eq!(ours.len(), 21);
            let (alone, _) = packets_of(300);
            // The kernel cuts, and leaves the inner checksums out; then it does all itself.
            for off in [
                "tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off",
                "tx off",
            ] {
                assert!(common::succeeds("ethtool", &format!("-K va {off}")));
                let (kernels, trains_then) = packets_of(20_300);
                assert!(kernels == ours, "{own_checksum}, {off}");
                assert_eq!(trains_then, trains);
                assert!(packets_of(300).0 == alone, "{own_checksum}, {off}");
            }
            common::ip("link delete vx");
            let on = "tx on tx-udp_tnl-segmentation on tx-udp_tnl-csum-segmentation on";
            assert!(common::succeeds("ethtool", &format!("-K va {on}")));
        }
        assert_eq!(b.statistics().rx_trains, 2);
        assert_eq!(b.statistics().rx_oversize, 0);
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
    for transport_at in [
        Some(0),
        Some(given.transport.0 + 1),
        Some(usize::from(u16::MAX)),
    ] {
        let elsewhere = Segmentation { transport_at, ..of };
        assert!(!begin(&given.frame, elsewhere), "{transport_at:?}");
    }
    let mut fragment = given.frame.clone();
    fragment[20] = 0x20; // more fragments
    assert!(!begin(&fragment, of), "a fragment");
    let mut header = given.frame.clone();
    header[given.transport.0 + 12] = 0x40; // a TCP header of 16 bytes
    assert!(!begin(&header, of), "a short header");
    assert!(!begin(&vec![0; MAX_TRAIN_BYTES], of), "zeros");
}
