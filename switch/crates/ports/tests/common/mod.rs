//! The setup of the tests on real interfaces: a network namespace of their own with veth pairs.
//!
//! Each test re-runs itself as a child inside `unshare --net` (with `--map-root-user` where it is
//! not root), so no interface of the machine is touched. Where that is not allowed the tests say
//! so, loudly, and pass; with PORTS_TESTS_REQUIRED=1 they fail instead.

#![allow(dead_code)] // each test binary uses a part of it

use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ports::{Port, Waiter, WaiterOptions, clock};

/// Set in the child inside the namespace.
pub const INSIDE: &str = "PORTS_TEST_INSIDE";
/// Nothing here takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `body` inside a fresh network namespace with veth pairs va-vb and vc-vd, up, MTU 1500.
pub fn in_namespace(test: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        for (left, right) in [("va", "vb"), ("vc", "vd")] {
            ip(&format!("link add {left} type veth peer name {right}"));
        }
        for interface in ["lo", "va", "vb", "vc", "vd"] {
            let no_ipv6 = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
            let _ = std::fs::write(no_ipv6, "1"); // no router solicitations among our frames
            ip(&format!("link set {interface} up"));
        }
        for interface in ["va", "vb", "vc", "vd"] {
            await_carrier(interface);
        }
        body();
        return;
    }
    let probe = "--net ip link add name va type veth peer name vb";
    let arguments: &[&str] = if succeeds("unshare", probe) {
        &[]
    } else if succeeds("unshare", &format!("--map-root-user {probe}")) {
        &["--map-root-user"]
    } else {
        not_run(test, "needs CAP_NET_RAW in its own network namespace");
        return;
    };
    let output = Command::new("unshare")
        .args(arguments)
        .args(["--net", "--"])
        .arg(std::env::current_exe().expect("this test's own path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} inside its namespace:\n{text}"
    );
}

/// Reports that a test, or the rest of it, is not run, and why.
pub fn not_run(test: &str, why: &str) {
    assert!(
        std::env::var_os("PORTS_TESTS_REQUIRED").is_none(),
        "{test}: {why}"
    );
    let text = format!("{test}: NOT RUN: {why}\n");
    let _ = std::io::stderr().write_all(text.as_bytes()); // not captured, unlike eprintln!
}

pub fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{program} {arguments:?}: {status:?}"
    );
}

/// Whether a program with these words for arguments ends well.
pub fn succeeds(program: &str, words: &str) -> bool {
    Command::new(program)
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// `ip` with these words for arguments.
pub fn ip(arguments: &str) {
    run("ip", &arguments.split(' ').collect::<Vec<_>>());
}

/// An Ethernet frame of a local experimental type, whose payload counts up from `seed`.
pub fn frame(bytes: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let payload = (0..bytes - frame.len()).map(|i| (i as u8).wrapping_add(seed));
    frame.extend(payload);
    frame
}

/// Waits for the next frame of `port` that `wanted` likes.
pub fn receive_where(
    port: &mut Port,
    waiter: &mut Waiter,
    wanted: impl Fn(&[u8]) -> bool,
) -> (Vec<u8>, u64) {
    let start = Instant::now();
    loop {
        let now_ns = clock::now_ns();
        while let Some(frame) = port.receive(now_ns) {
            if wanted(frame.bytes()) {
                return (frame.bytes().to_vec(), frame.arrival_ns);
            }
        }
        assert!(start.elapsed() < PATIENCE, "no such frame came");
        let deadline_ns = Some(now_ns + 1_000_000_000);
        waiter.wait(now_ns, deadline_ns, |_| false).expect("waits");
    }
}

/// Waits until `interface` takes frames. The kernel handles a change of carrier some time after the
/// call that made it; until then the interface drops all frames.
pub fn await_carrier(interface: &str) {
    let start = Instant::now();
    loop {
        let shown = Command::new("ip")
            .args(["link", "show", "dev", interface])
            .output()
            .expect("ip runs");
        if String::from_utf8_lossy(&shown.stdout).contains("state UP") {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{interface} has no carrier");
    }
}

pub fn waiter_for(ports: &[&Port]) -> Waiter {
    let mut waiter = Waiter::new(WaiterOptions::default()).expect("a waiter");
    for port in ports {
        waiter.add(port).expect("added");
    }
    waiter
}

/// Whether somebody has set CLOCK_REALTIME since the offset was measured. Stamps of frames that came
/// since then are wrong by the step until the waiter learns of it.
fn clock_was_stepped() -> bool {
    let offset_ns = clock::realtime_offset_ns();
    clock::remeasure_realtime_offset().abs_diff(offset_ns) > 500
}

/// Sends `rounds` batches from one port to the other; all come, whole, in order, stamped in
/// between.
pub fn exchange(from: &mut Port, to: &mut Port, waiter: &mut Waiter, rounds: usize) {
    let mut last_ns = 0;
    for round in 0..rounds {
        let count = 1 + round;
        let length = |i: usize| 60 + (i * 31) % 1455;
        let before_ns = clock::now_ns();
        for i in 0..count {
            from.send(&frame(length(i), i as u8)).expect("fits");
        }
        from.flush();
        for i in 0..count {
            let (bytes, arrival_ns) = receive_where(to, waiter, |_| true);
            assert_eq!(bytes, frame(length(i), i as u8));
            assert!(arrival_ns >= last_ns, "stamps run backwards");
            last_ns = arrival_ns;
            // The offset between the clocks is known to well under a microsecond.
            let times_ns = before_ns - 1_000..=clock::now_ns() + 1_000;
            assert!(
                times_ns.contains(&arrival_ns) || clock_was_stepped(),
                "round {round}, frame {i}: stamped {arrival_ns} ns, not within {times_ns:?}"
            );
        }
    }
    let sent = (rounds * (rounds + 1) / 2) as u64;
    let (there, here) = (from.statistics(), to.statistics());
    assert_eq!(there.tx_frames, sent, "{there:?}");
    assert_eq!((there.tx_failed, here.rx_frames), (0, sent), "{here:?}");
    assert_eq!((here.rx_ring_full, here.rx_oversize), (0, 0), "{here:?}");
    assert_eq!(here.rx_stamps_repaired, 0, "{here:?}");
}

/// A UDP socket that hands over all that is written at once as one frame of segments with
/// `payload_bytes` each (UDP_SEGMENT of udp(7)).
pub fn segmenting_socket(address: &str, payload_bytes: libc::c_int) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("binds");
    // SAFETY: the value is an int that lives across the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const payload_bytes).cast(),
            4,
        )
    };
    assert_eq!(set, 0, "UDP_SEGMENT");
    socket
}
