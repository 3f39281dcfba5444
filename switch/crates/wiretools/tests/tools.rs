//! The three tools together on real veth pairs: blaster -> forwarder -> gapmeter, in a network
//! namespace of their own. Said loudly when not possible; PORTS_TESTS_REQUIRED=1 makes that a
//! failure.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

const FORWARDER: &str = env!("CARGO_BIN_EXE_forwarder");
const GAPMETER: &str = env!("CARGO_BIN_EXE_gapmeter");
const BLASTER: &str = env!("CARGO_BIN_EXE_blaster");

const SETUP: &str = "
    for pair in 'va vb' 'vc vd'; do
        set -- $pair
        ip link add name $1 type veth peer name $2
        for end in $1 $2; do
            echo 1 >/proc/sys/net/ipv6/conf/$end/disable_ipv6 || true
            ip link set dev $end up
        done
    done
    # The kernel deals with a change of carrier when it has time; until then frames are lost.
    for end in va vb vc vd; do
        while ! ip link show dev $end | grep -q 'state UP'; do :; done
    done
    # Waits until the program with this log says that its ports are open.
    ready() { while ! grep -q ready $1; do :; done; }
";

/// The command that makes a network namespace here; `None`: there is none.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--net"], &["--map-root-user", "--net"]];
    ways.into_iter().find(|way| {
        Command::new("unshare")
            .args(*way)
            .args("ip link add name va type veth peer name vb".split(' '))
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// Runs a script there, and gives the JSON objects it prints.
fn script(test: &str, body: &str) -> Option<Vec<Value>> {
    let Some(way) = namespace() else {
        assert!(
            std::env::var_os("PORTS_TESTS_REQUIRED").is_none(),
            "{test}: network namespaces are not allowed here"
        );
        let text = format!("{test}: NOT RUN: needs CAP_NET_RAW in its own network namespace\n");
        let _ = std::io::stderr().write_all(text.as_bytes());
        return None;
    };
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&directory).expect("a directory for the logs");
    let output = Command::new("unshare")
        .args(way)
        .args(["timeout", "300", "sh", "-euc", &format!("{SETUP}{body}")])
        .current_dir(directory)
        .env("FORWARDER", FORWARDER)
        .env("GAPMETER", GAPMETER)
        .env("BLASTER", BLASTER)
        .output()
        .expect("unshare runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    Some(objects.map(|object| object.expect("JSON")).collect())
}

#[test]
fn what_is_sent_is_forwarded_and_measured() {
    let body = "
        $FORWARDER vb vc 2>f.log >f.json & forwarder=$!
        $GAPMETER vd --match udp-dst=5001 --count 2000 --ideal-ns 1000000000 --patience 120 \
            2>g.log >g.json &
        meter=$!
        ready f.log; ready g.log
        $BLASTER va --dst-port 6000 --count 10
        $BLASTER va --frame-bytes 1514 --rate-pps 2000 --count 2000
        wait $meter
        kill $forwarder
        wait $forwarder
        cat g.json f.json
    ";
    let Some(reports) = script("what_is_sent_is_forwarded_and_measured", body) else {
        return;
    };
    let [other, sent, gaps, forwarded] = reports.as_slice() else {
        panic!("{reports:?}");
    };
    assert_eq!((&other["sent"], &other["failed"]), (&10.into(), &0.into()));
    assert_eq!(sent["sent"], 2000);
    assert_eq!(gaps["packets"], 2000);
    assert_eq!(gaps["bytes"], 2000 * 1518);
    assert_eq!(gaps["other_packets"], 10);
    assert_eq!(gaps["rx_ring_full"], 0);
    // 500 us apart where 1 s is asked for: all of them back to back, but for stalls.
    assert!(gaps["back_to_back_max"].as_u64() > Some(100), "{gaps}");
    // They were sent over a second: only one that kept the first for half of it changes that.
    let seconds = gaps["seconds"].as_f64().expect("a number");
    assert!(seconds > 0.5, "{gaps}");
    assert_eq!(forwarded["directions"][0]["packets"], 2010);
    assert_eq!(forwarded["directions"][1]["packets"], 0);
}

#[test]
fn one_frame_of_so_many_is_a_probe() {
    let body = "
        $GAPMETER vb --match udp-dst=5002 --count 100 --patience 120 2>g.log >g.json &
        meter=$!
        ready g.log
        $BLASTER va --frame-bytes 60 --rate-pps 2000 --count 1000 --probe-every 10 >/dev/null
        wait $meter
        cat g.json
    ";
    let Some(reports) = script("one_frame_of_so_many_is_a_probe", body) else {
        return;
    };
    let [probes] = reports.as_slice() else {
        panic!("{reports:?}");
    };
    assert_eq!(probes["packets"], 100);
    // Nine between each two, and those behind the last that came with it.
    let others = probes["other_packets"].as_u64().expect("a number");
    assert!((99 * 9..=100 * 9).contains(&others), "{probes}");
}

#[test]
fn bad_input_is_named() {
    let error = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .output()
            .expect("runs");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = error(FORWARDER, &["no-such-0", "no-such-1"]);
    assert!(
        text.contains("no interface 'no-such-0'; existing: "),
        "{text}"
    );
    assert!(error(GAPMETER, &["lo", "--match", "udp-dst=x"]).contains("'x' is not a port number"));
    assert!(error(BLASTER, &["lo", "--rate-pps", "0"]).contains("'0' is neither"));
    assert!(error(BLASTER, &["lo", "--frame-bytes", "41"]).contains("at least 42"));
    let short = ["lo", "--frame-bytes", "49", "--probe-every", "2"];
    assert!(error(BLASTER, &short).contains("at least 50"));
    assert!(error(BLASTER, &["lo", "--dst-mac", "red"]).contains("'red' is not a MAC address"));
}
