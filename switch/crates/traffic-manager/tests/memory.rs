//! The memory of a million idle classes, in a test binary of its own, so that nothing else allocates
//! meanwhile.

use traffic_manager::hold::Hold;
use traffic_manager::{
    Frame, Gaps, HeaderFields, Limits, PortConfig, Queued, RateCounts, TrafficManager,
};

const CLASSES: u32 = 1 << 20;
const PORTS: u16 = 64;

/// Bytes of data that the process has been given.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.expect("VmData").parse().expect("a number");
    kilobytes * 1024
}

/// Each class sends a packet and is idle afterwards. Neighbouring classes are on different ports.
#[test]
fn an_idle_class_takes_at_most_64_bytes() {
    let before = data_bytes();
    let mut tm = TrafficManager::new(Limits {
        max_held_packets: 1_024,
        ..Limits::default()
    });
    for port in 0..PORTS {
        let config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Wire,
            fifo_bytes: 1 << 16,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        tm.add_port(port, config).expect("a new port");
    }
    for class in 0..CLASSES {
        let hold = Hold {
            class,
            counts_to: None,
            departure_ns: 0,
            cost_q24: 1 << 24,
            allowance_ns: 0,
        };
        let packet = Queued {
            queue: 0,
            header: HeaderFields::default(),
            payload: class,
            length_bytes: 60,
            arrival_ns: 0,
            hold: Some(hold),
        };
        let port = (class % u32::from(PORTS)) as u16;
        tm.enqueue(port, packet).expect("room");
        let start = tm.dequeue(0, 0).expect("due");
        let result = tm.transmit(start.token, start.length_bytes, start.payload);
        result.expect("room");
        assert_eq!(
            tm.deliver(0, 0).map(|sent| sent.frame),
            Some(Frame::Packet(class))
        );
    }
    assert_eq!(tm.statistics().queues, u64::from(CLASSES));
    let bytes = data_bytes() - before;
    let per_class = bytes as f64 / f64::from(CLASSES);
    assert!(per_class <= 64.0, "{per_class} bytes per class");
    assert!(
        per_class >= 32.0,
        "{per_class} bytes per class: counted wrongly"
    );
}
