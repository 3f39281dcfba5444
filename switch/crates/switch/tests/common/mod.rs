//! Switches with the project's programs, and the frames that leave them.

#![allow(dead_code)] // each test binary uses a part of it

use std::path::PathBuf;

use switch::notification::Notification;
use v1model::Pipeline;
use v1model::entries::{ActionCall, Bits, EntryKey, MatchField, TableInfo};

use switch::{Leaving, Program, Replica, Sink, Switch, SwitchConfig};
use traffic_manager::{DropCause, Gaps, Limits, PortConfig, RateCounts};

pub const CPU_PORT: u16 = 510;
pub const FRAME_BYTES: usize = 100;

/// Frames that left, by port.
#[derive(Default)]
pub struct Sent {
    pub frames: Vec<(u16, u64, Vec<u8>)>,
    /// Which of them came in trains.
    pub in_train: Vec<bool>,
    pub to_controller: Vec<Vec<u8>>,
    pub notified: Vec<Notification>,
}

impl Sent {
    /// How many frames came in trains.
    pub fn segments(&self) -> usize {
        self.in_train.iter().filter(|in_train| **in_train).count()
    }
}

impl Sink for Sent {
    fn transmit(&mut self, frame: &[u8], leaving: Leaving) {
        let Leaving {
            port, delivery_ns, ..
        } = leaving;
        self.in_train.push(leaving.in_train);
        self.frames.push((port, delivery_ns, frame.to_vec()));
    }

    fn to_controller(&mut self, frame: &[u8]) {
        self.to_controller.push(frame.to_vec());
    }

    fn notify(&mut self, notification: Notification) -> bool {
        self.notified.push(notification);
        true
    }
}

pub fn compiled(target: &str, program: &str) -> Vec<u8> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../../p4src/compiled",
        target,
        &format!("{program}.json"),
    ]
    .iter()
    .collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Ports 1 and 2 of 100 Mbit/s, and no program. `buffer_bytes`: that ports may share.
pub fn with_slow_ports(config: SwitchConfig, buffer_bytes: Option<u64>) -> Switch {
    let limits = Limits {
        buffer_bytes,
        ..Limits::default()
    };
    let mut switch = Switch::new(config, limits);
    for port in [1, 2] {
        let config = PortConfig {
            line_rate_bps: Some(100_000_000),
            counts: RateCounts::Layer2,
            fifo_bytes: 100_000,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        switch.add_port(port, "p", config).expect("a new port");
    }
    switch
}

/// Three ports, pacer.p4, both groups flooding to all of them.
pub fn switch(target: &str, config: SwitchConfig) -> Switch {
    let mut switch = Switch::new(config, Limits::default());
    for port in 1..=3 {
        let config = PortConfig {
            line_rate_bps: Some(1_000_000_000),
            counts: RateCounts::Wire,
            fifo_bytes: 1 << 20,
            delay_ns: 1_000,
            gaps: Gaps::Accounted,
        };
        switch
            .add_port(port, &format!("p{port}"), config)
            .expect("a new port");
    }
    switch.load(&compiled(target, "pacer")).expect("it loads");
    flood_everywhere(&mut switch);
    switch
}

pub fn flood_everywhere(switch: &mut Switch) {
    let replicas: Vec<Replica> = (1..=3).map(|port| Replica { port, rid: 1 }).collect();
    program(switch)
        .multicast_insert(1, replicas.clone())
        .expect("group 1");
    let with_controller = [
        replicas,
        vec![Replica {
            port: u32::from(CPU_PORT),
            rid: 1,
        }],
    ]
    .concat();
    program(switch)
        .multicast_insert(2, with_controller)
        .expect("group 2");
}

pub fn with_cpu_port() -> SwitchConfig {
    SwitchConfig {
        cpu_port: Some(CPU_PORT),
        ..SwitchConfig::default()
    }
}

pub fn frame() -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x90, 0]);
    frame
}

pub fn bits(value: u64, width: u32) -> Bits {
    let bytes = value.to_be_bytes();
    bytes[8 - width.div_ceil(8) as usize..].into()
}

/// The program that controllers read and write.
pub fn program(switch: &mut Switch) -> &mut Program {
    switch.program_mut().expect("one is loaded")
}

pub fn pipeline(switch: &Switch) -> &Pipeline {
    switch.program().expect("one is loaded").pipeline()
}

pub fn insert(switch: &mut Switch, table: usize, key: &EntryKey, call: ActionCall) {
    let pipeline = program(switch).pipeline_mut();
    pipeline
        .table_insert(table, key, &call.into())
        .expect("an entry");
}

pub fn table<'a>(switch: &'a Switch, name: &str) -> (usize, &'a TableInfo) {
    let mut tables = pipeline(switch).tables().iter().enumerate();
    tables.find(|(_, table)| table.name == name).expect(name)
}

/// Every unclassified packet belongs to class 0, paced at 8 kbit/s: 13 ms per 13 bytes.
pub fn pace_everything(switch: &mut Switch) {
    pace_everything_at(switch, 1_000_000);
}

pub fn pace_everything_at(switch: &mut Switch, ns_per_byte: u64) {
    let (classes, info) = table(switch, "PacerIngress.classes");
    let action = *info
        .actions
        .iter()
        .find(|action| pipeline(switch).actions()[**action].name == "PacerIngress.paced_static")
        .expect("the action");
    let key = EntryKey {
        fields: vec![MatchField::Exact(bits(0, 32))],
        priority: 0,
    };
    let call = ActionCall {
        action,
        args: vec![bits(ns_per_byte << 24, 64), bits(1 << 20, 32), bits(0, 64)],
    };
    insert(switch, classes, &key, call);
}

pub fn drops(switch: &Switch, port: u16, cause: DropCause) -> u64 {
    let statistics = switch.traffic_manager().port_statistics(port);
    statistics.map_or(0, |statistics| statistics.drops.get(cause))
}

pub fn small_program(name: &str) -> Vec<u8> {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.push(format!("../v1model/tests/programs/{name}.json"));
    std::fs::read(path).expect("the engine's test program")
}

/// `v1model`'s program `misc`: operation 11 is cloned at the end of ingress to session 6 with
/// `y + 1` kept, operation 18 at the end of egress to session 7, operation 12 is resubmitted.
pub fn misc() -> Switch {
    let mut switch = switch("pacing_switch", with_cpu_port());
    switch.load(&small_program("misc")).expect("it loads");
    switch
}

pub fn operation(op: u8, x: u8, y: u16, z: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x12, 0x35, op, x];
    frame.extend_from_slice(&y.to_be_bytes());
    frame.extend_from_slice(&z.to_be_bytes());
    frame.extend_from_slice(&[7; 40]);
    frame
}

pub fn replica(port: u32, rid: u16) -> Replica {
    Replica { port, rid }
}
