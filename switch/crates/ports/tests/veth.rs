//! AF_PACKET ports on real veth pairs.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Instant;

use common::{
    INSIDE, PATIENCE, exchange, frame, in_namespace, ip, not_run, receive_where, run,
    segmenting_socket, succeeds, waiter_for,
};
use ports::{
    LinkState, Port, PortDriver, PortError, PortOptions, PortStatistics, SendRefused, Sending,
    Waiter, WaiterOptions, checksum, clock,
};

fn open(interface: &str) -> Port {
    Port::open(interface, &PortOptions::default()).expect("port opens")
}

/// Sends `frame` until `to` has it: a link that just came up takes frames a while later (see
/// [`await_carrier`]).
fn send_until_received(
    from: &mut Port,
    to: &mut Port,
    waiter: &mut Waiter,
    frame: &[u8],
) -> Vec<u8> {
    let start = Instant::now();
    loop {
        from.send(frame).expect("taken");
        from.flush();
        let now_ns = clock::now_ns();
        waiter
            .wait(now_ns, Some(now_ns + 10_000_000), |_| false)
            .expect("waits");
        while let Some(received) = to.receive(clock::now_ns()) {
            if received.bytes()[14] == frame[14] {
                return received.bytes().to_vec();
            }
        }
        assert!(start.elapsed() < PATIENCE, "no such frame came");
    }
}

#[test]
fn an_interface_that_sends_at_once_is_refused_for_kernel_departures() {
    let name = "an_interface_that_sends_at_once_is_refused_for_kernel_departures";
    in_namespace(name, || {
        let options = PortOptions {
            kernel_departures: true,
            ..PortOptions::default()
        };
        let refused = Port::open("va", &options)
            .err()
            .expect("a veth has noqueue");
        assert!(matches!(refused, PortError::NotTimed { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("tc qdisc replace dev va root fq"), "{text}");
    });
}

#[test]
fn bytes_order_and_stamps_survive() {
    in_namespace("bytes_order_and_stamps_survive", || {
        let (mut a, mut b) = (open("va"), open("vb"));
        let mut waiter = waiter_for(&[&b]);
        assert_eq!(a.link_state(), LinkState::Up);
        // More than the ring holds, in rounds that fit, so that it wraps around; batches of 1 and
        // more.
        exchange(&mut a, &mut b, &mut waiter, 100);
        assert_eq!(a.statistics().rx_frames, 0, "a hears itself");
        assert!(!a.has_frame());
    });
}

#[test]
fn frames_larger_than_a_send_batch_leave_unasked() {
    in_namespace("frames_larger_than_a_send_batch_leave_unasked", || {
        let options = PortOptions {
            tx_batch_frames: 4,
            ..PortOptions::default()
        };
        let mut a = Port::open("va", &options).expect("opens");
        let mut b = open("vb");
        for i in 0..10 {
            a.send(&frame(100, i)).expect("fits");
        }
        assert_eq!(a.unflushed(), 2);
        assert_eq!(a.flush().sent, 2);
        assert_eq!(a.flush().sent, 0);
        let mut waiter = waiter_for(&[&b]);
        for i in 0..10 {
            let (bytes, _) = receive_where(&mut b, &mut waiter, |_| true);
            assert_eq!(bytes, frame(100, i));
        }
    });
}

#[test]
fn forgotten_frames_are_released() {
    in_namespace("forgotten_frames_are_released", || {
        let (mut a, mut b) = (open("va"), open("vb"));
        for i in 0..3 {
            a.send(&frame(100, i)).expect("fits");
        }
        a.flush();
        let mut waiter = waiter_for(&[&b]);
        receive_where(&mut b, &mut waiter, |_| true);
        let now_ns = clock::now_ns();
        std::mem::forget(b.receive(now_ns));
        assert!(b.next_arrival_ns(now_ns).is_some());
        let last = b.receive(now_ns).expect("the third").bytes().to_vec();
        assert_eq!(last, frame(100, 2));
        assert!(b.receive(now_ns).is_none());
    });
}

#[test]
fn vlan_tags_are_put_back() {
    in_namespace("vlan_tags_are_put_back", || {
        let (mut a, mut b) = (open("va"), open("vb"));
        let mut waiter = waiter_for(&[&b]);
        // As bytes: the receiving kernel takes the tag out of the frame. 802.1Q, priority 5, VLAN
        // 7.
        let mut tagged = frame(1514, 9);
        tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x07]);
        // Two tags: 802.1ad outside, 802.1Q inside.
        let mut twice = tagged.clone();
        twice.splice(12..12, [0x88, 0xa8, 0x00, 0x63]);
        twice.truncate(1514); // the kernel grants 4 bytes more than the MTU to 802.1Q alone
        for sent in [&tagged, &twice] {
            a.send(sent).expect("fits");
            assert_eq!(a.flush().failed, 0, "{:?}", a.statistics());
            let (bytes, _) = receive_where(&mut b, &mut waiter, |_| true);
            assert_eq!(&bytes, sent);
        }
        assert_eq!(b.statistics().rx_vlan_tags_restored, 2);

        // From a VLAN interface of the kernel, which never puts the tag into the bytes.
        let kernel_has_vlans = succeeds("ip", "link add link va name probe type vlan id 6");
        if !kernel_has_vlans {
            println!("VLAN interface: NOT RUN: this kernel has none (CONFIG_VLAN_8021Q)");
            return;
        }
        ip("link add link va name va7 type vlan id 7");
        ip("address add 10.7.0.1/24 dev va7");
        ip("link set va7 up");
        ip("neighbour add 10.7.0.2 lladdr 02:00:00:00:00:02 dev va7");
        let socket = UdpSocket::bind("10.7.0.1:1234").expect("binds");
        socket.send_to(b"tagged", "10.7.0.2:5001").expect("sends");
        let is_ours = |bytes: &[u8]| bytes.ends_with(b"tagged");
        let (bytes, _) = receive_where(&mut b, &mut waiter, is_ours);
        assert_eq!(bytes[12..18], [0x81, 0x00, 0x00, 0x07, 0x08, 0x00]);
        assert_eq!(checksum::verify(&bytes), Some(true));
    });
}

#[test]
fn partial_checksums_are_completed() {
    in_namespace("partial_checksums_are_completed", || {
        ip("address add 10.0.0.1/24 dev va");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let mut b = open("vb");
        let mut waiter = waiter_for(&[&b]);
        let socket = UdpSocket::bind("10.0.0.1:1234").expect("binds");
        for bytes in [0usize, 1, 2, 3, 101, 1472] {
            let payload = vec![0x5a; bytes];
            socket.send_to(&payload, "10.0.0.2:5001").expect("sends");
            let length = 42 + bytes;
            let (frame, _) = receive_where(&mut b, &mut waiter, |bytes| {
                bytes.len() == length && bytes[23] == 17
            });
            assert_ne!(frame[40..42], [0, 0], "no checksum at all");
            assert_eq!(checksum::verify(&frame), Some(true), "{bytes} bytes");
        }
        let statistics = b.statistics();
        assert_eq!(statistics.rx_checksums_completed, 6, "{statistics:?}");
        assert_eq!(statistics.rx_checksums_unfinished, 0);
    });
}

#[test]
fn frames_grow_with_the_mtu() {
    in_namespace("frames_grow_with_the_mtu", || {
        ip("address add 10.0.0.1/24 dev va");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let (mut a, mut b) = (open("va"), open("vb"));
        let mut waiter = waiter_for(&[&b]);
        assert!(a.send(&frame(9_014, 1)).is_err(), "the MTU is 1500");
        for interface in ["va", "vb"] {
            ip(&format!("link set {interface} mtu 9000"));
        }
        let mut tagged = frame(9_014, 2);
        tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x07]);
        for sent in [&frame(60, 3), &frame(9_014, 1), &tagged, &frame(1_514, 4)] {
            a.send(sent).expect("fits");
            assert_eq!(a.flush().failed, 0, "{:?}", a.statistics());
            let (bytes, _) = receive_where(&mut b, &mut waiter, |_| true);
            assert_eq!(&bytes, sent);
        }
        let socket = UdpSocket::bind("10.0.0.1:1234").expect("binds");
        socket.send_to(&[7; 8_972], "10.0.0.2:5001").expect("sends");
        let (bytes, _) = receive_where(&mut b, &mut waiter, |bytes| bytes.len() == 9_014);
        assert_eq!(checksum::verify(&bytes), Some(true));
        let statistics = b.statistics();
        assert_eq!(statistics.rx_oversize, 0, "{statistics:?}");
        assert_eq!(
            (statistics.rx_vlan_tags_restored, statistics.rx_trains),
            (1, 0)
        );

        for interface in ["va", "vb"] {
            ip(&format!("link set {interface} mtu 1500"));
        }
        assert!(
            a.send(&frame(9_014, 1)).is_ok(),
            "the kernel refuses it now"
        );
        assert_eq!(a.flush().failed, 1);
    });
}

/// The kernel's TCP in one namespace, through a two-port switch made of ports, to the kernel's TCP
/// in another. All offloads of the hosts are on.
#[test]
fn tcp_crosses_a_forwarder() {
    in_namespace("tcp_crosses_a_forwarder", || {
        tcp_crosses(&PortOptions::default(), false);
    });
}

#[test]
fn tcp_in_a_tunnel_crosses_a_forwarder() {
    in_namespace("tcp_in_a_tunnel_crosses_a_forwarder", || {
        tcp_crosses(&PortOptions::default(), true);
    });
}

#[test]
fn tcp_in_a_tunnel_crosses_a_forwarder_by_af_xdp() {
    in_namespace("tcp_in_a_tunnel_crosses_a_forwarder_by_af_xdp", || {
        let options = PortOptions {
            driver: PortDriver::AfXdp,
            ..PortOptions::default()
        };
        if let Some(error) = Port::open("vb", &options).err() {
            not_run("TCP in a tunnel by AF_XDP", &error.to_string());
            return;
        }
        tcp_crosses(&options, true);
    });
}

/// TCP between two hosts with their offloads on, `in_tunnel` of VXLAN, through ports that forward.
fn tcp_crosses(options: &PortOptions, in_tunnel: bool) {
    // vb and vc are the forwarder's; va stays here; vd goes to a namespace of its own, held
    // open by a child.
    let mut holder = Command::new("unshare")
        .args(["--net", "sleep", "600"])
        .spawn()
        .expect("a second namespace");
    let pid = holder.id().to_string();
    let own = std::fs::read_link("/proc/self/ns/net").expect("own namespace");
    let theirs = format!("/proc/{pid}/ns/net");
    let start = Instant::now();
    while std::fs::read_link(&theirs).is_ok_and(|namespace| namespace == own) {
        assert!(start.elapsed() < PATIENCE, "no second namespace");
        std::thread::yield_now();
    }
    ip(&format!("link set vd netns {pid}"));
    let there = |arguments: &[&str]| {
        let mut all = vec!["--net", "--target", &pid];
        all.extend(arguments);
        run("nsenter", &all);
    };
    there(&["ip", "address", "add", "10.0.0.2/24", "dev", "vd"]);
    there(&["ip", "link", "set", "vd", "up"]);
    there(&["ip", "link", "set", "lo", "up"]);
    ip("address add 10.0.0.1/24 dev va");
    let mut address = Ipv4Addr::new(10, 0, 0, 2);
    if in_tunnel {
        let kind = "type vxlan id 42 dstport 4789";
        let ends = "local 10.0.0.1 remote 10.0.0.2 dev va";
        if !succeeds("ip", &format!("link add vx {kind} {ends}")) {
            not_run("TCP in a tunnel", "this kernel has no VXLAN");
            holder.kill().expect("ends");
            let _ = holder.wait();
            return;
        }
        let ends = "local 10.0.0.2 remote 10.0.0.1 dev vd";
        let added = format!("ip link add vx {kind} {ends}");
        there(&added.split(' ').collect::<Vec<_>>());
        there(&["ip", "address", "add", "10.1.0.2/24", "dev", "vx"]);
        there(&["ip", "link", "set", "vx", "up"]);
        ip("address add 10.1.0.1/24 dev vx");
        ip("link set vx up");
        address = Ipv4Addr::new(10, 1, 0, 2);
    }
    let open = |interface| Port::open(interface, options).expect("port opens");
    let mut ports = [open("vb"), open("vc")];
    let mut waiter = waiter_for(&[&ports[0], &ports[1]]);
    let waker = waiter.waker();
    let forwarder = std::thread::spawn(move || {
        let mut now_ns = clock::now_ns();
        loop {
            let woken = waiter.wait(now_ns, None, |_| false).expect("waits");
            if woken.called {
                return ports.map(|mut port| port.statistics());
            }
            now_ns = clock::now_ns();
            let [left, right] = &mut ports;
            forward(left, right, now_ns);
            forward(right, left, now_ns);
        }
    });

    // The listener's socket must be made inside the other namespace: a thread enters it.
    let namespace = std::fs::File::open(&theirs).expect("the other namespace");
    let receiver = std::thread::spawn(move || {
        let entered = enter(&namespace);
        assert!(entered, "setns");
        let listener = TcpListener::bind(SocketAddrV4::new(address, 5001)).expect("binds");
        let (mut stream, _) = listener.accept().expect("accepts");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("reads");
        bytes
    });
    let start = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(SocketAddrV4::new(address, 5001)) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    };
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    stream.write_all(&data).expect("writes");
    drop(stream);
    let received = receiver.join().expect("receiver");
    waker.wake();
    let [left, right] = forwarder.join().expect("forwarder");
    holder.kill().expect("ends");
    let _ = holder.wait();
    assert!(received == data, "TCP delivered other bytes");
    let by_packets = options.driver == PortDriver::AfPacket;
    assert_eq!(left.rx_trains > 10, by_packets, "{left:?}");
    assert_eq!(right.tx_trains > 10, by_packets, "{right:?}");
    assert!(left.rx_frames > 2_000, "{left:?}");
    let spoilt = left.rx_checksums_unfinished + left.rx_runt + left.rx_oversize;
    assert_eq!(spoilt, 0, "{left:?}");
    let failed = |statistics: &PortStatistics| statistics.tx_failed;
    assert_eq!(failed(&left) + failed(&right), 0, "{left:?} {right:?}");
}

fn forward(from: &mut Port, to: &mut Port, now_ns: u64) {
    while let Some(frame) = from.receive(now_ns) {
        let sending = Sending {
            in_train: frame.in_train,
            ..Sending::default()
        };
        let _ = to.send_as(frame.bytes(), sending); // ends up in the counters
    }
    to.flush();
}

/// setns(2) for the calling thread.
fn enter(namespace: &std::fs::File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: no pointers involved.
    unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) == 0 }
}

#[test]
fn oversize_is_counted_and_dropped() {
    in_namespace("oversize_is_counted_and_dropped", || {
        let mut a = Port::open(
            "va",
            &PortOptions {
                max_frame_bytes: Some(9000),
                ..PortOptions::default()
            },
        )
        .expect("opens");
        let small = PortOptions {
            max_frame_bytes: Some(600),
            ..PortOptions::default()
        };
        let mut b = Port::open("vb", &small).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        for bytes in [601, 1514, 600] {
            a.send(&frame(bytes, 1)).expect("fits");
        }
        a.flush();
        let (bytes, _) = receive_where(&mut b, &mut waiter, |_| true);
        assert_eq!(bytes.len(), 600);
        assert_eq!(b.statistics().rx_oversize, 2);

        let refused = b.send(&frame(601, 0)).expect_err("too long");
        assert_eq!(
            refused,
            SendRefused::Oversize {
                bytes: 601,
                max_bytes: 600
            }
        );
        assert_eq!(b.send(&[0; 13]), Err(SendRefused::Runt { bytes: 13 }));
        assert_eq!(b.statistics().tx_oversize, 1);
        // The kernel refuses the frame that exceeds its MTU; the frames around it leave.
        for bytes in [100, 5000, 101] {
            a.send(&frame(bytes, 1)).expect("fits");
        }
        let flushed = a.flush();
        assert_eq!((flushed.sent, flushed.failed), (2, 1), "{flushed:?}");
        assert_eq!(a.statistics().tx_failed, 1);
        for bytes in [100, 101] {
            assert_eq!(receive_where(&mut b, &mut waiter, |_| true).0.len(), bytes);
        }
    });
}

#[test]
fn segmentation_offload_is_counted_as_oversize_where_it_is_off() {
    let name = "segmentation_offload_is_counted_as_oversize_where_it_is_off";
    in_namespace(name, || {
        ip("address add 10.0.0.1/24 dev va");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let options = PortOptions {
            offloads: false,
            ..PortOptions::default()
        };
        let mut b = Port::open("vb", &options).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        let socket = segmenting_socket("10.0.0.1:1234", 500);
        socket
            .send_to(&[1; 10_000], "10.0.0.2:5001")
            .expect("sends");
        socket.send_to(&[2; 100], "10.0.0.2:5001").expect("sends");
        let (bytes, _) = receive_where(&mut b, &mut waiter, |bytes| bytes[23] == 17);
        assert_eq!(bytes.len(), 142);
        assert_eq!(b.statistics().rx_oversize, 1);
    });
}

#[test]
fn trains_that_find_no_room_are_counted() {
    in_namespace("trains_that_find_no_room_are_counted", || {
        ip("address add 10.0.0.1/24 dev va");
        ip("neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va");
        let options = PortOptions {
            rx_train_bytes: 100_000,
            ..PortOptions::default()
        };
        let mut b = Port::open("vb", &options).expect("opens");
        let mut waiter = waiter_for(&[&b]);
        let socket = segmenting_socket("10.0.0.1:1234", 1_000);
        for _ in 0..50 {
            socket
                .send_to(&[1; 30_000], "10.0.0.2:5001")
                .expect("sends");
        }
        socket.send_to(&[2; 100], "10.0.0.2:5001").expect("sends");
        let mut segments = 0;
        while receive_where(&mut b, &mut waiter, |bytes| bytes[23] == 17)
            .0
            .len()
            != 142
        {
            segments += 1;
        }
        let statistics = b.statistics();
        assert_eq!(statistics.rx_trains * 30, segments, "{statistics:?}");
        assert!(statistics.rx_trains > 0, "{statistics:?}");
        let lost = statistics.rx_ring_full;
        assert_eq!(statistics.rx_trains + lost, 50, "{statistics:?}");
    });
}

#[test]
fn frames_beyond_the_kernels_room_wait_in_the_port() {
    const TEST: &str = "frames_beyond_the_kernels_room_wait_in_the_port";
    in_namespace(TEST, || {
        let shape = "qdisc replace dev va root tbf rate 10mbit burst 5k limit 10m";
        if !succeeds("tc", shape) {
            common::not_run(TEST, "needs tc and the discipline tbf");
            return;
        }
        let (mut a, mut b) = (open("va"), open("vb"));
        let mut waiter = waiter_for(&[&b]);
        let (mut sent, mut stuck) = (0, 0);
        let mut received = 0;
        while received < 400_u32 {
            if a.is_stuck() {
                stuck += 1;
                a.flush();
            } else if sent < 400 {
                let mut frame = frame(1000, 0);
                frame[14..18].copy_from_slice(&u32::to_be_bytes(sent));
                a.send(&frame).expect("fits");
                sent += 1;
            } else {
                a.flush();
            }
            while let Some(frame) = b.receive(clock::now_ns()) {
                assert_eq!(frame.bytes()[14..18], received.to_be_bytes());
                received += 1;
            }
            if a.is_stuck() || sent == 400 {
                let now_ns = clock::now_ns();
                let until_ns = Some(now_ns + 100_000);
                waiter.wait(now_ns, until_ns, |_| false).expect("waits");
            }
        }
        assert!(stuck > 0, "the interface is slower than this");
        let statistics = a.statistics();
        assert_eq!((statistics.tx_frames, statistics.tx_failed), (400, 0));
        assert_eq!(statistics.tx_bytes, 400_000);
    });
}

#[test]
fn a_full_ring_is_counted() {
    in_namespace("a_full_ring_is_counted", || {
        let mut a = open("va");
        let tiny = PortOptions {
            rx_frames: 2,
            ..PortOptions::default()
        };
        let mut b = Port::open("vb", &tiny).expect("opens");
        for i in 0..200u8 {
            a.send(&frame(1000, i)).expect("fits");
        }
        a.flush();
        // All 200 went one way or the other; none is missing from the books.
        let start = Instant::now();
        let mut received = 0;
        loop {
            while b.receive(clock::now_ns()).is_some() {
                received += 1;
            }
            let statistics = b.statistics();
            if received + statistics.rx_ring_full == 200 {
                assert!(statistics.rx_ring_full > 0);
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{received} {statistics:?}");
        }
    });
}

#[test]
fn errors_name_the_thing() {
    in_namespace("errors_name_the_thing", || {
        let error = |name: &str, options: &PortOptions| match Port::open(name, options) {
            Ok(_) => panic!("{name} opened"),
            Err(error) => error.to_string(),
        };
        let defaults = PortOptions::default();
        let text = error("s1-eth9", &defaults);
        assert!(
            text.starts_with("no interface 's1-eth9'; existing: lo, "),
            "{text}"
        );
        assert!(
            ["va", "vb", "vc", "vd"]
                .iter()
                .all(|name| text.contains(name))
        );
        for name in ["", "an-interface-name-too-long", "a\0b"] {
            assert!(error(name, &defaults).contains("no interface"), "{name}");
        }
        let none = PortOptions {
            rx_frames: 0,
            ..PortOptions::default()
        };
        assert_eq!(
            error("va", &none),
            "interface 'va': option rx_frames is 0, must be 2 to 524288"
        );
        let vast = PortOptions {
            rx_frames: 500_000,
            max_frame_bytes: Some(9000),
            ..PortOptions::default()
        };
        assert!(error("va", &vast).contains("too large"));
        // A tun device carries IP packets without Ethernet headers. Not everybody may make one.
        if succeeds("ip", "tuntap add mode tun name t0") {
            assert!(matches!(
                Port::open("t0", &defaults),
                Err(PortError::NotEthernet { .. })
            ));
        }
        // Without the capability.
        let output = Command::new("setpriv")
            .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"])
            .arg(std::env::current_exe().expect("own path"))
            .args(["--exact", "without_the_capability", "--nocapture"])
            .env(INSIDE, "1")
            .output();
        if let Ok(output) = output {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    });
}

/// Run by `errors_name_the_thing`, in its namespace, without CAP_NET_RAW.
#[test]
fn without_the_capability() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    match Port::open("va", &PortOptions::default()) {
        Ok(_) => panic!("opened without CAP_NET_RAW"),
        Err(error) => assert!(error.to_string().contains("needs CAP_NET_RAW"), "{error}"),
    }
}

#[test]
fn interfaces_go_down_come_up_and_vanish() {
    in_namespace("interfaces_go_down_come_up_and_vanish", || {
        ip("link set vb down");
        let (mut a, mut b) = (open("va"), open("vb"));
        assert_eq!(b.link_state(), LinkState::Down);
        assert_eq!(a.link_state(), LinkState::NoCarrier);
        a.send(&frame(100, 0)).expect("taken");
        // Lost on the way, as on a wire; whether it counts as refused is the kernel's affair.
        a.flush();
        b.send(&frame(100, 0)).expect("taken");
        assert_eq!(
            b.flush().failed,
            1,
            "an interface that is down takes no frame"
        );

        ip("link set vb up");
        let mut waiter = Waiter::new(WaiterOptions::default()).expect("a waiter");
        let token = waiter.add(&b).expect("added");
        let bytes = send_until_received(&mut a, &mut b, &mut waiter, &frame(100, 1));
        assert_eq!(bytes, frame(100, 1));

        ip("link set vb down");
        let mut woken = waiter
            .wait(clock::now_ns(), None, |_| false)
            .expect("waits");
        while !woken.error {
            // Copies of the frame that were still on their way.
            while b.receive(clock::now_ns()).is_some() {}
            woken = waiter
                .wait(clock::now_ns(), None, |_| false)
                .expect("waits");
        }
        while b.receive(clock::now_ns()).is_some() {}
        assert!(waiter.has_error(token));
        assert_eq!(
            b.take_error().and_then(|error| error.raw_os_error()),
            Some(libc::ENETDOWN)
        );
        assert!(b.take_error().is_none());
        ip("link delete va");
        assert_eq!(b.link_state(), LinkState::Gone);
        assert_eq!(a.link_state(), LinkState::Gone);
        a.send(&frame(100, 2)).expect("taken");
        assert_eq!(a.flush().failed, 1);
        waiter.remove(&b);
        let now_ns = clock::now_ns();
        let woken = waiter.wait(now_ns, Some(now_ns), |_| false).expect("waits");
        assert!(!woken.error && woken.deadline);
    });
}

#[test]
fn a_waiter_tells_which_port() {
    in_namespace("a_waiter_tells_which_port", || {
        let (mut a, b, d) = (open("va"), open("vb"), open("vd"));
        let mut waiter = Waiter::new(WaiterOptions::default()).expect("a waiter");
        let (at_b, at_d) = (
            waiter.add(&b).expect("added"),
            waiter.add(&d).expect("added"),
        );
        a.send(&frame(64, 0)).expect("taken");
        a.flush();
        let start = Instant::now();
        loop {
            let now_ns = clock::now_ns();
            let deadline_ns = Some(now_ns + 1_000_000_000);
            let woken = waiter.wait(now_ns, deadline_ns, |_| false).expect("waits");
            assert!(!woken.called && !woken.error);
            if woken.readable {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "the frame never came");
        }
        assert!(waiter.is_readable(at_b) && !waiter.is_readable(at_d));
        assert_eq!(waiter.readable(), Some([0].as_slice()), "the first added");
        let now_ns = clock::now_ns();
        let woken = waiter.wait(now_ns, None, |_| true).expect("waits");
        assert!(woken.readable && waiter.readable().is_none(), "not asked");
        assert!(b.has_frame() && !d.has_frame());
    });
}

#[test]
fn signals_end_a_wait() {
    in_namespace("signals_end_a_wait", || {
        let mut waiter = Waiter::new(WaiterOptions::default()).expect("a waiter");
        waiter.end_on_signals().expect("handlers");
        let pid = std::process::id().to_string();
        run("kill", &["-TERM", &pid]);
        let mut woken = waiter
            .wait(clock::now_ns(), None, |_| false)
            .expect("waits");
        while woken.signal.is_none() {
            woken = waiter
                .wait(clock::now_ns(), None, |_| false)
                .expect("waits");
        }
        assert_eq!(woken.signal, Some(libc::SIGTERM));
    });
}

/// Sets the clock of the whole machine, so only in the virtual-time lab (which sets LAB=1).
#[test]
fn a_step_of_the_clock_is_noticed() {
    if std::env::var_os("LAB").is_none() {
        println!("NOT RUN: steps the machine's clock, so only in the lab");
        return;
    }
    in_namespace("a_step_of_the_clock_is_noticed", || {
        let (mut a, mut b) = (open("va"), open("vb"));
        let mut waiter = waiter_for(&[&b]);
        for step_s in [3600, -7200, 86_400] {
            let before_ns = clock::now_ns();
            let offset_ns = clock::realtime_offset_ns();
            run("date", &["--set", &format!("{step_s} seconds")]);
            // One frame is received before the step is known.
            a.send(&frame(100, 1)).expect("taken");
            a.flush();
            let (_, arrival_ns) = receive_where(&mut b, &mut waiter, |_| true);
            assert!(arrival_ns <= clock::now_ns() && arrival_ns + 1_000_000_000 > before_ns);
            // The first wait may have told already, within receive_where.
            let now_ns = clock::now_ns();
            waiter
                .wait(now_ns, Some(now_ns + 1), |_| false)
                .expect("waits");
            let moved_ns = clock::realtime_offset_ns() - offset_ns;
            assert!(
                (moved_ns - step_s * 1_000_000_000).abs() < 2_000_000_000,
                "{moved_ns}"
            );
            a.send(&frame(100, 2)).expect("taken");
            let before_ns = clock::now_ns();
            a.flush();
            let (_, arrival_ns) = receive_where(&mut b, &mut waiter, |_| true);
            assert!((before_ns..=clock::now_ns()).contains(&arrival_ns));
        }
        assert_eq!(b.statistics().rx_frames, 6);
        assert!(b.statistics().rx_stamps_repaired <= 3);
    });
}
