//! AF_XDP ports on real veth pairs.

mod common;

use std::net::UdpSocket;
use std::process::Command;
use std::time::Instant;

use common::{
    PATIENCE, await_carrier, exchange, frame, in_namespace, ip, not_run, receive_where, run,
    succeeds, waiter_for,
};
use ports::{
    LinkState, MAX_RX_FRAMES, Port, PortDriver, PortError, PortMode, PortOptions, Waiter, checksum,
    clock,
};

fn options() -> PortOptions {
    PortOptions {
        driver: PortDriver::AfXdp,
        ..PortOptions::default()
    }
}

/// A port, or `None`, loudly, where there is no AF_XDP for us.
fn open_xdp(interface: &str, options: &PortOptions) -> Option<Port> {
    match Port::open(interface, options) {
        Ok(port) => Some(port),
        Err(error @ (PortError::NoXdp { .. } | PortError::XdpNotPermitted { .. })) => {
            not_run("AF_XDP", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open_packet(interface: &str) -> Port {
    Port::open(interface, &PortOptions::default()).expect("port opens")
}

/// What `ip link` shows of an interface.
fn shown(interface: &str) -> String {
    let output = Command::new("ip")
        .args(["-details", "link", "show", "dev", interface])
        .output()
        .expect("ip runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The error that keeps a port from opening.
fn refusal(interface: &str) -> PortError {
    match Port::open(interface, &options()) {
        Ok(port) => panic!("{interface} opens: {}", port.mode()),
        Err(error) => error,
    }
}

#[test]
fn frames_cross_to_and_from_a_packet_socket() {
    in_namespace("frames_cross_to_and_from_a_packet_socket", || {
        // So few that the rings wrap around many times.
        let few = PortOptions {
            rx_frames: 128,
            tx_buffer_bytes: 128 * 2048,
            ..options()
        };
        let Some(mut b) = open_xdp("vb", &few) else {
            return;
        };
        let mut a = open_packet("va");
        let native = PortMode::AfXdp {
            in_driver: true,
            zero_copy: false,
        };
        assert_eq!(b.mode(), native, "a veth has a native mode, and copies");
        assert!(!b.has_frame());
        let mut waiter = waiter_for(&[&a, &b]);
        exchange(&mut a, &mut b, &mut waiter, 100);
        exchange(&mut b, &mut a, &mut waiter, 100);
    });
}

#[test]
fn frames_cross_between_two() {
    in_namespace("frames_cross_between_two", || {
        let Some(mut a) = open_xdp("va", &options()) else {
            return;
        };
        let mut b = open_xdp("vb", &options()).expect("as the first");
        let mut waiter = waiter_for(&[&a, &b]);
        exchange(&mut a, &mut b, &mut waiter, 64);
        exchange(&mut b, &mut a, &mut waiter, 64);
    });
}

#[test]
fn what_does_not_fit_is_counted() {
    in_namespace("what_does_not_fit_is_counted", || {
        let small = PortOptions {
            rx_frames: 64,
            max_frame_bytes: Some(100),
            ..options()
        };
        let Some(mut b) = open_xdp("vb", &small) else {
            return;
        };
        let mut a = open_packet("va");
        let mut waiter = waiter_for(&[&b]);
        // Longer than the port takes: that the next one comes says that it is through.
        a.send(&frame(101, 0)).expect("fits");
        a.send(&frame(100, 1)).expect("fits");
        a.flush();
        receive_where(&mut b, &mut waiter, |_| true);
        assert_eq!(b.statistics().rx_oversize, 1);
        // More than the ring holds.
        for i in 0..200 {
            a.send(&frame(100, i)).expect("fits");
        }
        a.flush();
        let start = Instant::now();
        while b.statistics().rx_frames + b.statistics().rx_ring_full < 201 {
            while b.receive(clock::now_ns()).is_some() {}
            assert!(start.elapsed() < PATIENCE, "{:?}", b.statistics());
        }
        let statistics = b.statistics();
        assert!(statistics.rx_ring_full > 0, "{statistics:?}");
        assert_eq!(statistics.rx_oversize, 1, "{statistics:?}");
    });
}

/// Frames of one place, of several, and with an MTU of 9000 the longest.
const LENGTHS: [usize; 9] = [60, 3_840, 3_841, 4_096, 4_097, 7_680, 7_681, 8_192, 9_014];

/// Options of a port for interfaces with an MTU of 9000, which this sets; `None`, loudly, where AF_XDP has no
/// frames of several parts.
fn long_frames(interfaces: &[&str]) -> Option<PortOptions> {
    for interface in interfaces {
        ip(&format!("link set {interface} mtu 9000"));
    }
    // So few that the rings wrap around many times.
    let few = PortOptions {
        rx_frames: 32,
        tx_batch_frames: 16,
        tx_buffer_bytes: 64 * 4096,
        ..options()
    };
    if let Some(error @ PortError::TooLongForXdp { .. }) = Port::open(interfaces[0], &few).err() {
        not_run("frames of several parts", &error.to_string());
        return None;
    }
    open_xdp(interfaces[0], &few).map(|_| few)
}

/// Frames of all [`LENGTHS`] cross whole, in order.
fn exchange_long(from: &mut Port, to: &mut Port) {
    let mut waiter = waiter_for(&[from, to]);
    let before = from.statistics();
    let rounds = 40;
    for round in 0..rounds {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            from.send(&frame(length, round + i as u8)).expect("fits");
        }
        from.flush();
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let (bytes, _) = receive_where(to, &mut waiter, |_| true);
            assert_eq!(bytes, frame(length, round + i as u8), "{length} bytes");
        }
    }
    let (there, here) = (from.statistics(), to.statistics());
    let sent = u64::from(rounds) * LENGTHS.len() as u64;
    assert_eq!(there.tx_frames - before.tx_frames, sent, "{there:?}");
    assert_eq!(there.tx_failed, 0, "{there:?}");
    assert_eq!((here.rx_ring_full, here.rx_oversize), (0, 0), "{here:?}");
}

#[test]
fn frames_longer_than_a_place_cross() {
    in_namespace("frames_longer_than_a_place_cross", || {
        let Some(options) = long_frames(&["va", "vb", "vc", "vd"]) else {
            return;
        };
        let mut a = open_packet("va");
        let mut b = Port::open("vb", &options).expect("as the first");
        exchange_long(&mut a, &mut b);
        exchange_long(&mut b, &mut a);
        let mut c = Port::open("vc", &options).expect("as the first");
        let mut d = Port::open("vd", &options).expect("as the first");
        exchange_long(&mut c, &mut d);
    });
}

#[test]
fn what_is_longer_than_the_port_takes_or_its_places_hold_is_counted() {
    in_namespace(
        "what_is_longer_than_the_port_takes_or_its_places_hold_is_counted",
        || {
            let Some(options) = long_frames(&["va", "vb"]) else {
                return;
            };
            let most = PortOptions {
                max_frame_bytes: Some(5_000),
                ..options
            };
            let mut a = open_packet("va");
            let mut b = Port::open("vb", &most).expect("as the first");
            let mut waiter = waiter_for(&[&b]);
            for (bytes, seed) in [(5_001, 1), (9_014, 2), (5_000, 3)] {
                a.send(&frame(bytes, seed)).expect("fits");
            }
            a.flush();
            let (received, _) = receive_where(&mut b, &mut waiter, |_| true);
            assert_eq!(received, frame(5_000, 3));
            assert_eq!(b.statistics().rx_oversize, 2);
            let sent = 200;
            for i in 0..sent {
                a.send(&frame(5_000, i)).expect("fits");
            }
            a.flush();
            let start = Instant::now();
            while b.statistics().rx_frames + b.statistics().rx_ring_full < 1 + u64::from(sent) {
                while b.receive(clock::now_ns()).is_some() {}
                assert!(start.elapsed() < PATIENCE, "{:?}", b.statistics());
            }
            let statistics = b.statistics();
            assert!(statistics.rx_ring_full > 0, "{statistics:?}");
            assert_eq!(statistics.rx_oversize, 2, "{statistics:?}");
        },
    );
}

#[test]
fn a_ring_without_end_is_refused() {
    in_namespace("a_ring_without_end_is_refused", || {
        let Some(options) = long_frames(&["vb"]) else {
            return;
        };
        let many = PortOptions {
            rx_frames: MAX_RX_FRAMES,
            ..options
        };
        let error = Port::open("vb", &many).err().expect("refused");
        assert!(matches!(error, PortError::RingTooLarge { .. }), "{error}");
    });
}

#[test]
fn checksums_that_the_sender_left_out_are_completed() {
    in_namespace("checksums_that_the_sender_left_out_are_completed", || {
        ip("address add 10.0.0.1/24 dev va");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let Some(mut b) = open_xdp("vb", &options()) else {
            return;
        };
        let mut waiter = waiter_for(&[&b]);
        let socket = UdpSocket::bind("10.0.0.1:1234").expect("binds");
        for bytes in [0usize, 1, 101, 1472] {
            let payload = vec![0x5a; bytes];
            socket.send_to(&payload, "10.0.0.2:5001").expect("sends");
            let (frame, _) = receive_where(&mut b, &mut waiter, |frame| {
                frame.len() == 42 + bytes && frame[23] == 17
            });
            assert_eq!(checksum::verify(&frame), Some(true), "{bytes} bytes");
        }
        assert_eq!(b.statistics().rx_checksums_completed, 4);
    });
}

#[test]
fn the_program_goes_with_the_port() {
    in_namespace("the_program_goes_with_the_port", || {
        let Some(port) = open_xdp("vb", &options()) else {
            return;
        };
        assert!(shown("vb").contains("prog/xdp"), "{}", shown("vb"));
        let error = refusal("vb");
        assert!(matches!(error, PortError::XdpOccupied { .. }), "{error}");
        let says = error.to_string();
        assert!(says.contains("ip link set dev vb xdp off"), "{says}");
        drop(port);
        assert!(!shown("vb").contains("prog/xdp"), "{}", shown("vb"));
        assert!(Port::open("vb", &options()).is_ok());
    });
}

#[test]
fn interfaces_it_cannot_serve_are_refused() {
    in_namespace("interfaces_it_cannot_serve_are_refused", || {
        if open_xdp("vb", &options()).is_none() {
            return;
        }
        ip("link add vq numrxqueues 4 type veth peer name vr");
        let error = refusal("vq");
        let expected = matches!(error, PortError::ManyQueues { queues: 4, .. });
        assert!(expected, "{error}");
        run("ethtool", &["-L", "vq", "rx", "1"]);
        assert!(Port::open("vq", &options()).is_ok());
        // No native mode there.
        if !succeeds("ip", "link add vu type dummy") {
            not_run("generic mode", "this kernel has no dummy interface");
            return;
        }
        let generic = Port::open("vu", &options()).expect("opens").mode();
        let expected = PortMode::AfXdp {
            in_driver: false,
            zero_copy: false,
        };
        assert_eq!(generic, expected);
    });
}

#[test]
fn an_interface_that_was_down_works_again() {
    in_namespace("an_interface_that_was_down_works_again", || {
        let Some(mut b) = open_xdp("vb", &options()) else {
            return;
        };
        ip("link set vb down");
        assert_eq!(b.link_state(), LinkState::Down);
        let batches = 20;
        for i in 0..batches {
            b.send(&frame(100, i)).expect("fits");
            b.flush();
        }
        // The kernel has not taken one batch; the rest is lost and counted.
        let down = b.statistics();
        assert_eq!(down.tx_frames, 0, "{down:?}");
        assert_eq!(down.tx_failed, u64::from(batches) - 1, "{down:?}");
        assert_eq!(down.tx_last_errno, libc::ENETDOWN, "{down:?}");
        ip("link set vb up");
        await_carrier("vb");
        let mut a = open_packet("va");
        let mut waiter = waiter_for(&[&a, &b]);
        let start = Instant::now();
        let mut seed = 100;
        while b.statistics().tx_frames < 3 {
            b.send(&frame(100, seed)).expect("fits");
            b.flush();
            seed = seed.wrapping_add(1);
            assert!(start.elapsed() < PATIENCE, "{:?}", b.statistics());
        }
        receive_where(&mut a, &mut waiter, |bytes| bytes[14] >= 100);
        exchange_one(&mut a, &mut b, &mut waiter);
    });
}

#[test]
fn what_the_kernel_did_not_take_leaves_without_another_frame() {
    in_namespace(
        "what_the_kernel_did_not_take_leaves_without_another_frame",
        || {
            let Some(mut b) = open_xdp("vb", &options()) else {
                return;
            };
            ip("link set vb down");
            b.send(&frame(100, 1)).expect("fits");
            b.flush();
            assert!(b.is_stuck());
            ip("link set vb up");
            await_carrier("vb");
            let start = Instant::now();
            while b.is_stuck() {
                b.flush();
                assert!(start.elapsed() < PATIENCE, "{:?}", b.statistics());
            }
            let statistics = b.statistics();
            assert_eq!(
                statistics.tx_frames + statistics.tx_failed,
                1,
                "{statistics:?}"
            );
        },
    );
}

/// Sends until one frame has come: a link that just came up takes frames a while later.
fn exchange_one(from: &mut Port, to: &mut Port, waiter: &mut Waiter) {
    let start = Instant::now();
    loop {
        from.send(&frame(77, 7)).expect("fits");
        from.flush();
        let now_ns = clock::now_ns();
        waiter
            .wait(now_ns, Some(now_ns + 10_000_000), |_| false)
            .expect("waits");
        while let Some(received) = to.receive(clock::now_ns()) {
            if received.bytes() == frame(77, 7) {
                return;
            }
        }
        assert!(start.elapsed() < PATIENCE, "no frame came");
    }
}
