//! gtrcnet.p4 measures every file of `tests/vectors/burstiness` to the integer.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use switch::notification::Notification;
use switch::{Leaving, Sink, Switch, SwitchConfig};
use traffic_manager::{Gaps, Limits, PortConfig, RateCounts};
use v1model::Pipeline;
use v1model::entries::{ActionCall, Bits, EntryKey, MatchField};

const FCS_BYTES: usize = 4;
const PORT: usize = 1;
const WINDOWS: u64 = 4096;
const KEPT_PACKETS: u64 = 131_072;
const DYNAMIC_UNKNOWN: u64 = u64::MAX;

#[derive(Deserialize)]
struct Vector {
    name: String,
    window_ns: u64,
    bytes_per_ns_q24: u64,
    /// Time of the first packet, packets, time between them, and their length with FCS.
    trains: Vec<(u64, u64, u64, usize)>,
    /// Number, bytes, and the longest static, dynamic and previous-window queue.
    windows: Vec<[u64; 5]>,
}

struct Nowhere;

impl Sink for Nowhere {
    fn transmit(&mut self, _frame: &[u8], _leaving: Leaving) {}

    fn to_controller(&mut self, _frame: &[u8]) {}

    fn notify(&mut self, _notification: Notification) -> bool {
        true
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn bits(value: u64, width: u32) -> Bits {
    let bytes = value.to_be_bytes();
    bytes[8 - width.div_ceil(8) as usize..].into()
}

fn pipeline(switch: &Switch) -> &Pipeline {
    switch.program().expect("one is loaded").pipeline()
}

/// A wire whose port 1 is measured in front of a virtual bottleneck.
fn measuring(bytes_per_ns_q24: u64) -> Switch {
    let mut switch = Switch::new(SwitchConfig::default(), Limits::default());
    let port = PortConfig {
        line_rate_bps: None,
        counts: RateCounts::Layer2,
        fifo_bytes: 1 << 20,
        delay_ns: 0,
        gaps: Gaps::Accounted,
    };
    switch.add_port(1, "p1", port).expect("a new port");
    let program = root().join("p4src/compiled/pacing_switch/gtrcnet.json");
    let json = std::fs::read(program).expect("the compiled program");
    switch.load(&json).expect("it loads");
    let tables = pipeline(&switch).tables();
    let monitor = tables
        .iter()
        .position(|table| table.name == "GtrcnetIngress.monitor")
        .expect("the table");
    let measure = *tables[monitor]
        .actions
        .iter()
        .find(|action| pipeline(&switch).actions()[**action].name == "GtrcnetIngress.measure")
        .expect("the action");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(PORT as u64, 9))],
        priority: 0,
    };
    let call = ActionCall {
        action: measure,
        args: vec![bits(bytes_per_ns_q24, 64)],
    };
    switch
        .program_mut()
        .expect("one is loaded")
        .pipeline_mut()
        .table_insert(monitor, &key, &call.into())
        .expect("an entry");
    switch
}

fn receive(switch: &mut Switch, at_ns: u64, length: usize) {
    let frame = vec![0; length - FCS_BYTES];
    switch.receive(PORT as u16, &frame, at_ns, at_ns);
    switch.poll(at_ns, &mut Nowhere);
}

fn register(switch: &Switch, name: &str, cell: usize) -> u64 {
    let pipeline = pipeline(switch);
    let name = format!("GtrcnetIngress.{name}");
    let array = pipeline
        .registers()
        .iter()
        .position(|register| register.name == name)
        .expect("the register");
    let value = pipeline.register_read(array, cell).expect("a cell");
    value
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn measured(switch: &Switch, number: u64, window_ns: u64) -> [u64; 5] {
    let cell = PORT * WINDOWS as usize + (number % WINDOWS) as usize;
    let read = |name: &str| register(switch, name, cell);
    [
        read("window_id"),
        read("window_bytes"),
        read("window_vb_max_bytes"),
        read("window_dynamic_max") / window_ns,
        read("window_previous_max") / window_ns,
    ]
}

fn vectors() -> Vec<Vector> {
    let folder = root().join("tests/vectors/burstiness");
    let files = std::fs::read_dir(folder).expect("the folder");
    files
        .map(|file| std::fs::read(file.expect("a file").path()).expect("its text"))
        .map(|text| serde_json::from_slice(&text).expect("a vector"))
        .collect()
}

#[test]
fn every_window_is_that_of_the_reference_model() {
    let vectors = vectors();
    assert!(vectors.len() >= 9);
    for vector in vectors {
        let mut switch = measuring(vector.bytes_per_ns_q24);
        let mut packets = 0;
        for &(first_ns, count, gap_ns, length) in &vector.trains {
            for n in 0..count {
                receive(&mut switch, first_ns + n * gap_ns, length);
            }
            packets += count;
        }
        // The second stage goes on with packets of a later window, two with each.
        let last = vector.windows.last().expect("a window")[0];
        let mut later_ns = (last + 2) * vector.window_ns;
        while register(&switch, "taken_count", PORT) < packets {
            let taken = register(&switch, "taken_count", PORT);
            receive(&mut switch, later_ns, 64);
            assert!(register(&switch, "taken_count", PORT) > taken);
            later_ns += 1;
        }
        assert!(later_ns - (last + 2) * vector.window_ns <= packets.div_ceil(2));
        for window in &vector.windows {
            let found = measured(&switch, window[0], vector.window_ns);
            assert_eq!(found, *window, "{}", vector.name);
        }
    }
}

#[test]
fn a_window_of_which_a_packet_was_not_kept_is_unknown() {
    let mut switch = measuring(1 << 20);
    for n in 0..KEPT_PACKETS + 3 {
        receive(&mut switch, n * 100, 64);
    }
    // The next window is kept as places become free, and is known.
    let next_ns = 200_000_000;
    for n in 0..KEPT_PACKETS {
        receive(&mut switch, next_ns + n, 64);
    }
    receive(&mut switch, 2 * next_ns, 64);
    assert_eq!(register(&switch, "kept_overflow", PORT), 3);
    let first = PORT * WINDOWS as usize;
    let of = |window| register(&switch, "window_dynamic_max", first + window);
    assert_eq!(of(0), DYNAMIC_UNKNOWN);
    assert_ne!(of(2), DYNAMIC_UNKNOWN);
}
