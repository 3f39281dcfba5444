//! The command line: simple_switch_grpc's where the two mean the same.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the options' comments are the text of --help, where brackets mean optional"
)]

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Parser};
use port_settings::{QueueOptions, QueueSettings, units};
use ports::PortDriver;
use traffic_manager::{
    Buffer, GAP_FRAME_DEFAULT_BYTES, GAP_FRAME_MAX_BYTES, GAP_FRAME_MIN_BYTES, Gaps, PortConfig,
    RateCounts,
};

use v1model::Engine;

use crate::generate::Generated;
use crate::log_file::LogFileOptions;
use crate::privileges::Identity;
use crate::tls::TlsOptions;

/// Default size of a port's FIFO: what Linux gives an Ethernet interface, 1000 packets of
/// 1518 bytes.
const FIFO_BYTES: u64 = 1_518_000;

/// Highest port number of v1model's 9-bit ports.
const PORT_MAX: u16 = 511;

/// Default port of simple_switch's Thrift server.
const SIMPLE_SWITCH_THRIFT_PORT: u16 = 9090;

/// A v1model software switch with a traffic manager: runs p4c's BMv2 JSON, serves P4Runtime,
/// and holds packets until their departure time. Drop-in for simple_switch_grpc.
#[derive(Parser, Debug)]
#[command(version, disable_version_flag = true, name = "pacing_switch", after_help = EXAMPLES)]
pub struct Options {
    /// BMv2 JSON program (p4c-bm2-ss's output). Without one, a controller installs a program.
    #[arg(value_name = "PROGRAM.json")]
    pub program: Option<PathBuf>,

    /// Port: PORT@INTERFACE[,rate=RATE][,counts=wire|layer2] [,fifo=SIZE][,delay=TIME][,gaps=MODE]
    /// [,queues=N][,scheduler=ORDER][,buffer=SIZE|switch] [,aqm=AQM][,qK.SETTING][,driver=DRIVER]
    /// [,departures=BY][,ring=FRAMES][,offload=on|off].
    /// rate: line rate (500mbit). Default: none, frames take no time.
    /// counts: whether the rate counts the whole frame on the wire or layer-2 bytes with FCS (default
    /// wire).
    /// fifo: size of the drop-tail queue for unpaced packets (64KB, KB = 1024).
    /// delay: propagation delay (100ms).
    /// gaps: what fills the gaps between paced packets: nothing (accounted, the default) or PAUSE
    /// frames (pause-frames, needs a rate; pause-frames:60 for frames of at most 60 bytes without
    /// FCS, 60 to 9216, default 1514).
    /// queues: egress queues in place of the FIFO (1 to 64). Default: as --priority-queues.
    /// scheduler: the order in which they send. strict (default): the highest goes first. drr:4:2:1 and
    /// wfq:4:2:1: by weight, that of queue 0 first (deficit round robin, weighted fair queueing).
    /// strict{q3+wfq{q2:4+q1+q0}:rate=40mbit}: a tree of these. paced in it is the place of held packets
    /// (default: before all).
    /// buffer: a buffer that the queues have in common (1MB); a queue holds at most as much as is free
    /// in it, or qK.share times that. switch: the buffer of --switch-buffer, together with other ports.
    /// qK.fifo, qK.packets: depth of queue K in bytes (default: as fifo) and in packets.
    /// qK.rate, qK.burst: its highest rate, and the bytes that it may make up after a wait (default
    /// 1518). qK.min: its minimum rate, which it has before the others have more than theirs.
    /// aqm, qK.aqm: active queue management of all queues, or of queue K: none (default), codel:5ms:100ms
    /// (TARGET, INTERVAL), fq_codel:5ms:100ms, pie:15ms, dualpi2:15ms, red:30KB:90KB:0.1 (MIN, MAX, P), wred with three profiles for the
    /// drop precedences low/medium/high. With :ecn behind codel, pie, red or wred, ECN-capable packets are
    /// marked; fq_codel and dualpi2 always mark them.
    /// driver: as --port-driver, for this port.
    /// departures: who sends each frame when it is due. switch (default); or kernel, given for all
    /// ports: the switch hands over many frames at once before they are due, and the interface's
    /// queueing discipline (fq) sends them.
    /// ring: frames that the interface's receive ring holds, 2 to 524288 (default 4096). More are
    /// dropped as rx-ring-full. Each takes 2 KB of memory at an MTU of 1500.
    /// offload: whether frames of several segments, from hosts with segmentation offload, are taken
    /// apart into packets, which leave together if they can (on, the default), or dropped as oversize
    /// (off).
    #[arg(short = 'i', long = "interface", value_name = "PORT@INTERFACE[,...]")]
    pub ports: Vec<PortOption>,

    /// How ports without driver= receive and send frames: af_packet (any interface) or af_xdp (an
    /// AF_XDP socket and an XDP program; interfaces with one receive queue). The machine's own
    /// network stack does not see what an af_xdp port receives.
    #[arg(long, default_value = "af_packet", value_name = "DRIVER")]
    pub port_driver: PortDriver,

    /// P4Runtime device id.
    #[arg(long, default_value_t = 0)]
    pub device_id: u64,

    /// Address of the gRPC server (P4Runtime and pacer.v1.TrafficManager). Port 0: any free port;
    /// the line "ready" says which.
    #[arg(long, default_value = "127.0.0.1:9559", value_name = "HOST:PORT",
          value_parser = server_address)]
    pub grpc_server_addr: SocketAddr,

    /// Serve BMv2's Thrift services at this port of loopback, for simple_switch_CLI and what is made for
    /// it. Default: no Thrift server. Port 0: any free port; a line before "ready" says which.
    #[arg(long, value_name = "PORT")]
    pub thrift_port: Option<u16>,

    /// Publish digests, idle entries and ports that go up or down by nanomsg at ipc://PATH or
    /// tcp://127.0.0.1:PORT, as simple_switch does. All digests are collected then; while somebody has
    /// subscribed, P4Runtime's controllers get neither digests nor idle entries.
    #[arg(long, value_name = "ADDRESS")]
    pub notifications_addr: Option<notifications::Address>,

    /// Publish BMv2's event log by nanomsg at this address, as for --notifications-addr. Packets are traced
    /// while somebody has subscribed, which slows the switch down. If the address cannot be used, the
    /// switch says so and has no event log.
    #[arg(long, value_name = "ADDRESS")]
    pub nanolog: Option<String>,

    /// Folder of the certificates and the token that clients on other machines need. They are made at
    /// the first start with an address that other machines reach. Default: systemd's STATE_DIRECTORY;
    /// /var/lib/pacing-switch for root; ~/.local/state/pacing-switch.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Become this user once all sockets and files are open. Capabilities are given up in any case.
    #[arg(long, value_name = "USER[:GROUP]", value_parser = Identity::named)]
    pub user: Option<Identity>,

    /// Trust processes of this user on this machine like those of the switch's own user, because a
    /// controller runs as it; may be repeated. A user that does not exist is left out.
    #[arg(long, value_name = "USER")]
    pub controller_user: Vec<String>,

    /// Port whose packets go to and come from the controller (1 to 511).
    #[arg(long, value_name = "PORT",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(PORT_MAX)))]
    pub cpu_port: Option<u16>,

    /// egress_spec that means "drop".
    #[arg(long, default_value_t = PORT_MAX, value_name = "PORT",
          value_parser = clap::value_parser!(u16).range(0..=i64::from(PORT_MAX)))]
    pub drop_port: u16,

    /// Start without a program even if one is given; a controller installs one.
    #[arg(long)]
    pub no_p4: bool,

    /// Table entries and multicast groups to install at start: JSON in the format of the P4
    /// tutorials' runtime files (examples/virtual has one). In virtual time, an entry with at_ns is
    /// installed at that time.
    #[arg(long, value_name = "FILE.json")]
    pub runtime_json: Option<PathBuf>,

    /// Values of types with @p4runtime_translation, as controllers and as the switch have them: JSON, with
    /// a member for each type (docs/p4runtime.md has an example).
    #[arg(long, value_name = "FILE.json")]
    pub translation: Option<PathBuf>,

    /// Run in virtual time, with capture files instead of interfaces. Port PORT@NAME reads
    /// NAME_in.pcap (Ethernet, stamps in us or ns; may be missing) and writes NAME_out.pcap with
    /// departure times in ns. The switch ends when all is sent. It has no gRPC server.
    #[arg(long = "virtual")]
    pub virtual_time: bool,

    /// With --virtual: end this long after the arrival of the first packet, even if packets are
    /// still to be sent (10s; units ns, us, ms, s).
    #[arg(long, value_name = "TIME", requires = "virtual_time",
          value_parser = units::duration_ns)]
    pub virtual_until: Option<u64>,

    /// Write what each port receives and sends to INTERFACE_in.pcap and INTERFACE_out.pcap in this
    /// folder (default: the current one).
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub pcap: Option<PathBuf>,

    /// Write each packet's way to this file: the parser's states, tables, actions, queues and the
    /// outcome. A line of JSON for each packet, or a protobuf message with its length in front if
    /// the name ends with .binpb. --log-console --log-level trace shows the same as text.
    #[arg(long, value_name = "FILE")]
    pub packet_trace: Option<PathBuf>,

    /// At the end, write the statistics to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub stats_file: Option<PathBuf>,

    /// Egress queues of each port without queues= (1 to 64), in strict order: standard_metadata.priority
    /// chooses one, and the highest goes first, as in simple_switch. A packet for a queue that the port
    /// does not have is dropped as no-such-queue. Default: a port has one FIFO and priorities have no
    /// effect.
    #[arg(long, value_name = "N", value_parser = port_settings::count)]
    pub priority_queues: Option<usize>,

    /// Most packets held or queued at once. As many more may be in delay lines. Each takes about
    /// 5 KB. No class queue or FIFO may hold more packets than are free (one alone: half), so none
    /// starves the others; packets beyond that are dropped as hold-limit. No delay line may hold
    /// more than four times what is free (delay-line-full).
    #[arg(long, default_value_t = 1 << 18, value_name = "N")]
    pub max_held_packets: usize,

    /// Buffer that the egress queues of all ports with buffer=switch share (12MB). A queue holds at most as
    /// much as is free in it, or qK.share times that; packets beyond are dropped as switch-buffer. Default:
    /// none.
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub switch_buffer: Option<u64>,

    /// How long before a departure the switch stops sleeping and polls the clock. Longer is more
    /// exact and takes more processor time. 0: always sleep.
    #[arg(long, default_value = "100us", value_name = "TIME", value_parser = units::duration_ns)]
    pub spin: u64,

    /// Whether the pacing thread has a real-time scheduling class (SCHED_FIFO), so that other processes
    /// do not delay departures: auto (if it is allowed and there are two processors), on, or off. It
    /// leaves at least a 20th of its processor to others.
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    pub realtime: Realtime,

    /// Processor (from 0) for the pacing thread alone: the switch's other threads keep off it. Keep other
    /// programs off it, too (taskset, systemd's CPUAffinity, isolcpus): one that waits for the processor
    /// of a real-time thread waits long. Default: the kernel chooses.
    #[arg(long, value_name = "N")]
    pub pacing_cpu: Option<usize>,

    /// Threads that packets go through: 1, or 3 (one receives, one runs the program and the traffic
    /// manager, one sends). The results are the same. auto: 3 with four processors or more, where
    /// ports use af_packet without departures=kernel.
    #[arg(long, default_value = "auto", value_name = "N")]
    pub threads: Threads,

    /// Engine that runs programs, with the same results: auto (machine code, made when a program is loaded; the
    /// interpreter where that is not possible), machine (machine code; a program of which none can be
    /// made is refused) or interpreter. Packets that are traced go through the interpreter in any case.
    #[arg(long, default_value = "auto", value_name = "ENGINE")]
    pub engine: EngineOption,

    /// Log at level debug, to standard error.
    #[arg(long)]
    pub log_console: bool,

    #[command(flatten)]
    pub log_file: LogFileOptions,

    /// Lowest level that is logged (default: warn; debug with --log-console and --log-file). RUST_LOG sets
    /// it per module.
    #[arg(short = 'L', long, value_name = "LEVEL",
          value_parser = ["trace", "debug", "info", "warn", "error", "off"])]
    pub log_level: Option<String>,

    #[command(flatten)]
    pub tls: TlsOptions,

    #[command(flatten)]
    pub ignored: Ignored,

    #[command(flatten)]
    pub refused: Refused,

    /// Print the man page or a shell's completion, and end.
    #[arg(long, value_name = "WHAT")]
    pub generate: Option<Generated>,

    /// Print version.
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Options of simple_switch_grpc that this switch ignores, so that its scripts work.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Options of simple_switch_grpc that are accepted and ignored")]
pub struct Ignored {
    /// There is no debugger.
    #[arg(long)]
    debugger: bool,

    /// There is no debugger.
    #[arg(long, value_name = "ADDRESS")]
    debugger_addr: Option<String>,

    /// A controller or --runtime-json restores the state.
    #[arg(long, value_name = "FILE")]
    restore_state: Option<PathBuf>,

    /// The log has no bytes of packets. Use --pcap.
    #[arg(long, value_name = "BYTES")]
    dump_packet_data: Option<u64>,

    /// Clients that may change the switch may replace the program.
    #[arg(long)]
    disable_swap: bool,

    /// As for --disable-swap. An option of simple_switch.
    #[arg(long)]
    enable_swap: bool,

    /// v1model has 512 ports.
    #[arg(long, value_name = "N")]
    max_port_count: Option<u64>,

    /// Multicast has limits of its own (docs/v1model.md).
    #[arg(long, value_name = "N")]
    max_mc_groups: Option<u64>,

    /// As for --max-mc-groups.
    #[arg(long, value_name = "N")]
    max_l1_entries: Option<u64>,

    /// As for --max-mc-groups.
    #[arg(long, value_name = "N")]
    max_l2_entries: Option<u64>,
}

impl Ignored {
    /// Those that were given, as on the command line.
    pub fn given(matches: &ArgMatches) -> Vec<String> {
        let known = Self::augment_args(Command::new(""));
        let given = known.get_arguments().filter(|option| {
            matches
                .value_source(option.get_id().as_str())
                .is_some_and(|source| source == ValueSource::CommandLine)
        });
        given
            .map(|option| {
                let name = option.get_long().unwrap_or_default();
                let values = matches.get_raw(option.get_id().as_str());
                let value = values.and_then(|mut values| values.next());
                match value.filter(|_| option.get_action().takes_values()) {
                    Some(value) => format!("--{name} {}", value.display()),
                    None => format!("--{name}"),
                }
            })
            .collect()
    }
}

/// Options of simple_switch_grpc that this switch refuses. The error says what to use instead.
#[derive(Args, Debug, Default)]
pub struct Refused {
    #[arg(long, hide = true, value_name = "SECONDS")]
    use_files: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    packet_in: Option<String>,
    #[arg(long, hide = true, value_name = "ADDRESS")]
    dp_grpc_server_addr: Option<String>,
    #[arg(long, hide = true)]
    json_version: bool,
}

impl Refused {
    /// # Errors
    /// One of them was given: the text names the option to use instead.
    fn check(&self) -> Result<(), &'static str> {
        let Self {
            use_files,
            packet_in,
            dp_grpc_server_addr,
            json_version,
        } = self;
        let given = [
            (
                use_files.is_some(),
                "--use-files is not supported: with --virtual, ports read and write capture files",
            ),
            (
                packet_in.is_some(),
                "--packet-in is not supported: ports are interfaces or, with --virtual, capture files",
            ),
            (
                dp_grpc_server_addr.is_some(),
                "--dp-grpc-server-addr is not supported: ports are interfaces (for instance a veth pair) \
                 or, with --virtual, capture files",
            ),
            (
                *json_version,
                "--json-version is not supported: programs are JSON of p4c's BMv2 backend, version 2.x",
            ),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, instead)) => Err(instead),
            None => Ok(()),
        }
    }
}

/// The arguments without the `--` that simple_switch_grpc requires before options of its target
/// (`program.json -- --cpu-port 510`).
pub fn arguments(given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut separated = false;
    given.filter(move |argument| {
        let separator = !separated && argument == "--";
        separated |= separator;
        !separator
    })
}

const EXAMPLES: &str = "\
Examples:
  A 500 Mbit/s, 100 ms bottleneck with a 64 KB FIFO between two interfaces:
    pacing_switch -i 1@a -i 2@b,rate=500mbit,counts=layer2,fifo=64KB,delay=100ms gtrcnet.json
  In virtual time, from p1_in.pcap to p2_out.pcap:
    pacing_switch --virtual -i 1@p1 -i 2@p2,rate=1gbit --runtime-json entries.json pacer.json
  (examples/virtual has such files, and explains how a rate becomes a table entry)";

/// When the pacing thread has a real-time scheduling class.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realtime {
    /// If it is allowed, and other threads have a processor.
    Auto,
    /// Always; the switch ends if it is not allowed.
    On,
    /// Never.
    Off,
}

/// The threads that packets go through.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As many as the machine has processors for.
    Auto,
    /// One for all work.
    #[value(name = "1")]
    One,
    /// One receives, one runs the program and the traffic manager, one sends.
    #[value(name = "3")]
    Three,
}

/// Fewest processors with which the switch has three threads unless told otherwise: the control servers
/// need one, too.
const PROCESSORS_FOR_THREADS: usize = 4;

/// The engine that runs programs.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineOption {
    /// Machine code; the interpreter where there is none.
    Auto,
    /// Machine code.
    Machine,
    /// The interpreter.
    Interpreter,
}

impl From<EngineOption> for Engine {
    fn from(option: EngineOption) -> Self {
        match option {
            EngineOption::Auto => Self::Auto,
            EngineOption::Machine => Self::Machine,
            EngineOption::Interpreter => Self::Interpreter,
        }
    }
}

/// One `-i`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortOption {
    /// P4 port number.
    pub port: u16,
    /// Interface, or stem of the capture files.
    pub interface: String,
    /// The settings of the port.
    pub config: PortConfig,
    /// The driver; `None`: that of `--port-driver`.
    pub driver: Option<PortDriver>,
    /// The kernel sends each frame when it is due.
    pub kernel_departures: bool,
    /// Frames that its receive ring holds.
    pub ring_frames: usize,
    /// Frames of several segments are taken apart.
    pub offloads: bool,
    /// The egress queues.
    pub queues: QueueOptions,
}

impl FromStr for PortOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let place = parts.next().unwrap_or_default();
        let (number, interface) = place
            .split_once('@')
            .ok_or_else(|| format!("'{place}' is not PORT@INTERFACE{}", meant(place)))?;
        let port = port_number(number).ok_or_else(|| {
            let turned = port_number(interface).map_or_else(String::new, |port| {
                format!("; did you mean {port}@{number}?")
            });
            format!("port '{number}' is not a number from 0 to {PORT_MAX}{turned}")
        })?;
        if interface.is_empty() {
            return Err(format!("port {port} names no interface"));
        }
        let mut config = PortConfig {
            line_rate_bps: None,
            counts: RateCounts::Wire,
            fifo_bytes: FIFO_BYTES,
            delay_ns: 0,
            gaps: Gaps::Accounted,
        };
        let mut driver = None;
        let mut kernel_departures = false;
        let mut ring_frames = ports::PortOptions::default().rx_frames;
        let mut offloads = true;
        let mut queues = QueueOptions::default();
        let mut seen = HashSet::new();
        for part in parts {
            let (key, value) =
                setting(part, &mut seen).map_err(|error| format!("port {port}: {error}"))?;
            let named = |error: String| format!("port {port}: {key}: {error}");
            match key {
                "rate" => {
                    let rate_bps = units::rate_bps(value).map_err(named)?;
                    if traffic_manager::hold::time_per_byte_q24(rate_bps).is_none() {
                        return Err(named(format!("{value} is outside 8 kbit/s to 100 Gbit/s")));
                    }
                    config.line_rate_bps = Some(rate_bps);
                }
                "counts" => {
                    config.counts = match value {
                        "wire" => RateCounts::Wire,
                        "layer2" => RateCounts::Layer2,
                        _ => return Err(named(format!("'{value}' is not wire or layer2"))),
                    };
                }
                "fifo" => {
                    config.fifo_bytes = units::bytes(value).map_err(named)?;
                    if config.fifo_bytes == 0 {
                        return Err(named("a FIFO of 0 bytes takes no packet".to_owned()));
                    }
                }
                "driver" => driver = Some(value.parse().map_err(named)?),
                "delay" => config.delay_ns = units::duration_ns(value).map_err(named)?,
                "departures" => {
                    kernel_departures = match value {
                        "switch" => false,
                        "kernel" => true,
                        _ => return Err(named(format!("'{value}' is not switch or kernel"))),
                    };
                }
                "gaps" => config.gaps = gaps(value).map_err(named)?,
                "ring" => ring_frames = ring(value).map_err(named)?,
                "offload" => {
                    offloads = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(named(format!("'{value}' is not on or off"))),
                    };
                }
                _ => {
                    if !queues.take(key, value).map_err(named)? {
                        return Err(format!(
                            "port {port}: unknown '{key}'; known: rate, counts, fifo, delay, \
                             gaps, queues, scheduler, buffer, aqm, qK.fifo, qK.packets, qK.share, \
                             qK.rate, qK.min, qK.burst, qK.aqm, driver, departures, ring, offload"
                        ));
                    }
                }
            }
        }
        if config.gaps != Gaps::Accounted && config.line_rate_bps.is_none() {
            return Err(format!("port {port}: gaps: pause-frames needs a rate"));
        }
        if config.delay_ns > traffic_manager::DELAY_MAX_NS {
            return Err(format!("port {port}: delay: more than 10 s"));
        }
        Ok(Self {
            port,
            interface: interface.to_owned(),
            config,
            driver,
            kernel_departures,
            ring_frames,
            offloads,
            queues,
        })
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port <= PORT_MAX)
}

/// The valid form of a place without `@`: `1@eth0` for `eth0`, `2@eth0` for `2:eth0` or `2=eth0`.
fn meant(place: &str) -> String {
    let separated = place
        .split_once([':', '='])
        .and_then(|(number, interface)| Some((port_number(number)?, interface)));
    match separated.unwrap_or((1, place)) {
        (_, interface) if interface.is_empty() || port_number(interface).is_some() => String::new(),
        (port, interface) => format!("; write {port}@{interface} for {interface} as port {port}"),
    }
}

/// Key and value of a setting whose key is none of those that have been `seen`.
fn setting<'a>(part: &'a str, seen: &mut HashSet<&'a str>) -> Result<(&'a str, &'a str), String> {
    let setting = part.split_once('=');
    let (key, value) = setting.ok_or_else(|| format!("'{part}' is not key=value"))?;
    if !seen.insert(key) {
        return Err(format!("{key} is given twice"));
    }
    Ok((key, value))
}

/// What `ring=` says.
fn ring(value: &str) -> Result<usize, String> {
    let frames = value.parse().ok();
    frames
        .filter(|frames| (2..=ports::MAX_RX_FRAMES).contains(frames))
        .ok_or_else(|| format!("'{value}' is not 2 to {} frames", ports::MAX_RX_FRAMES))
}

/// What `gaps=` says.
fn gaps(value: &str) -> Result<Gaps, String> {
    let longest = |bytes: &str| {
        bytes
            .parse()
            .ok()
            .filter(|bytes| (GAP_FRAME_MIN_BYTES..=GAP_FRAME_MAX_BYTES).contains(bytes))
            .ok_or_else(|| {
                format!("'{bytes}' is not {GAP_FRAME_MIN_BYTES} to {GAP_FRAME_MAX_BYTES} bytes")
            })
    };
    match value.split_once(':') {
        None if value == "accounted" => Ok(Gaps::Accounted),
        None if value == "pause-frames" => Ok(Gaps::PauseFrames {
            longest_bytes: GAP_FRAME_DEFAULT_BYTES,
        }),
        Some(("pause-frames", bytes)) => Ok(Gaps::PauseFrames {
            longest_bytes: longest(bytes)?,
        }),
        _ => Err(format!(
            "'{value}' is not accounted, pause-frames or pause-frames:BYTES"
        )),
    }
}

/// An address to listen on. Of a name, the first address is taken.
fn server_address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| {
        format!("{error}; expected an address and a port, such as 127.0.0.1:9559")
    })?;
    addresses
        .next()
        .ok_or_else(|| format!("'{text}' has no address"))
}

impl Options {
    /// The program that the switch starts with.
    pub fn program_at_start(&self) -> Option<&Path> {
        self.program.as_deref().filter(|_| !self.no_p4)
    }

    /// Under the name `simple_switch`, as of a symbolic link, takes that program's defaults: a Thrift
    /// server at its port, published digests, and no gRPC at a fixed address, so that several can run on
    /// one machine.
    pub fn adapt_to_name(&mut self, name: Option<&OsStr>, matches: &ArgMatches) {
        let name = name.and_then(|name| Path::new(name).file_name());
        if name != Some(OsStr::new("simple_switch")) || self.virtual_time {
            return;
        }
        self.thrift_port.get_or_insert(SIMPLE_SWITCH_THRIFT_PORT);
        if matches.value_source("grpc_server_addr") == Some(ValueSource::DefaultValue) {
            self.grpc_server_addr.set_port(0);
        }
        let path = format!("/tmp/bmv2-{}-notifications.ipc", self.device_id);
        self.notifications_addr
            .get_or_insert_with(|| notifications::Address::Ipc(path.into()));
    }

    /// Removes ports that are given again with the same settings, as some scripts for
    /// simple_switch_grpc do.
    pub fn forget_repeated_ports(&mut self) {
        let mut known: Vec<PortOption> = Vec::with_capacity(self.ports.len());
        for option in self.ports.drain(..) {
            if !known.contains(&option) {
                known.push(option);
            }
        }
        self.ports = known;
    }

    /// Checks options against each other: numbers and interfaces given twice, the CPU port among
    /// the ports.
    ///
    /// # Errors
    /// An option is wrong: the text names the option and the error.
    pub fn check(&self) -> Result<(), String> {
        self.refused.check()?;
        for (index, option) in self.ports.iter().enumerate() {
            let line_rate_bps = option.config.line_rate_bps;
            let settings = option.queues.settings(self.priority_queues);
            settings
                .and_then(|queues| {
                    queues.map_or(Ok(()), |queues| {
                        self.check_buffer(&queues)?;
                        queues.check(line_rate_bps)
                    })
                })
                .map_err(|error| format!("port {}: {error}", option.port))?;
            let before = self.ports.get(..index).unwrap_or(&[]);
            if let Some(other) = before.iter().find(|other| other.port == option.port) {
                return Err(format!(
                    "port {} is given twice: {} and {}",
                    option.port, other.interface, option.interface
                ));
            }
            if let Some(other) = before
                .iter()
                .find(|other| other.interface == option.interface)
            {
                return Err(format!(
                    "interface {} is given twice: as port {} and port {}",
                    option.interface, other.port, option.port
                ));
            }
            if Some(option.port) == self.cpu_port || option.port == self.drop_port {
                return Err(format!(
                    "port {} ({}) is also the CPU or drop port",
                    option.port, option.interface
                ));
            }
        }
        if self.cpu_port == Some(self.drop_port) {
            return Err(format!(
                "port {} is both the CPU and the drop port",
                self.drop_port
            ));
        }
        if self.virtual_time && self.notifications_addr.is_some() {
            return Err("--notifications-addr: nobody can subscribe with --virtual".to_owned());
        }
        if self.virtual_time && self.thrift_port.is_some() {
            return Err("--thrift-port: there is no Thrift server with --virtual".to_owned());
        }
        if self.virtual_time && self.translation.is_some() {
            return Err("--translation: there is no P4Runtime server with --virtual".to_owned());
        }
        if self.switch_buffer == Some(0) {
            return Err("--switch-buffer: at least 1".to_owned());
        }
        if self.max_held_packets == 0 {
            return Err("--max-held-packets: at least 1".to_owned());
        }
        if self.threads == Threads::Three {
            if self.virtual_time {
                return Err("--threads 3: virtual time has one thread".to_owned());
            }
            if let Some(port) = self.ports.iter().find(|port| !self.may_have_threads(port)) {
                return Err(format!(
                    "--threads 3: port {} must use af_packet, without departures=kernel",
                    port.port
                ));
            }
        }
        Ok(())
    }

    fn check_buffer(&self, queues: &QueueSettings) -> Result<(), String> {
        if queues.buffer == Some(Buffer::OfSwitch) && self.switch_buffer.is_none() {
            return Err("buffer=switch: needs --switch-buffer".to_owned());
        }
        Ok(())
    }

    /// Whether threads of their own receive and send on a machine with so many processors.
    pub fn has_threads(&self, processors: usize) -> bool {
        match self.threads {
            Threads::One => false,
            Threads::Three => true,
            Threads::Auto => {
                processors >= PROCESSORS_FOR_THREADS
                    && self.ports.iter().all(|port| self.may_have_threads(port))
            }
        }
    }

    /// Whether different threads may receive from and send to a port.
    fn may_have_threads(&self, port: &PortOption) -> bool {
        let driver = port.driver.unwrap_or(self.port_driver);
        driver == PortDriver::AfPacket && !port.kernel_departures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_everything() {
        let text = "2@s1-eth2,rate=500mbit,counts=layer2,fifo=64KB,delay=100ms,\
                    gaps=pause-frames:60,driver=af_xdp,ring=16384";
        let option: PortOption = text.parse().expect("valid");
        assert_eq!(option.port, 2);
        assert_eq!(option.interface, "s1-eth2");
        assert_eq!(option.driver, Some(PortDriver::AfXdp));
        assert_eq!(option.ring_frames, 16_384);
        assert_eq!(
            option.config,
            PortConfig {
                line_rate_bps: Some(500_000_000),
                counts: RateCounts::Layer2,
                fifo_bytes: 65_536,
                delay_ns: 100_000_000,
                gaps: Gaps::PauseFrames { longest_bytes: 60 },
            }
        );
    }

    #[test]
    fn threads_need_processors_and_ports_that_can_be_shared() {
        let has = |arguments: &str, processors| {
            let words = format!("pacing_switch --no-p4 {arguments}");
            let options = Options::try_parse_from(words.split(' ')).expect("valid");
            options.check().map(|()| options.has_threads(processors))
        };
        assert_eq!(has("-i 1@a -i 2@b", 2), Ok(false));
        assert_eq!(has("-i 1@a -i 2@b", 4), Ok(true));
        assert_eq!(has("-i 1@a -i 2@b --threads 1", 4), Ok(false));
        assert_eq!(has("-i 1@a -i 2@b --threads 3", 1), Ok(true));
        for port in ["2@b,departures=kernel", "2@b,driver=af_xdp"] {
            assert_eq!(has(&format!("-i 1@a -i {port}"), 4), Ok(false));
            let error = has(&format!("-i 1@a -i {port} --threads 3"), 4);
            let says = "--threads 3: port 2 must use af_packet, without departures=kernel";
            assert_eq!(error, Err(says.to_owned()));
        }
    }

    #[test]
    fn errors_name_the_port_and_the_key() {
        for (text, expected) in [
            ("s1-eth2", "PORT@INTERFACE"),
            ("600@x", "port '600'"),
            ("1@", "no interface"),
            ("1@x,rate=fast", "port 1: rate: 'fast'"),
            ("1@x,rate=0", "outside 8 kbit/s"),
            ("1@x,speed=1gbit", "unknown 'speed'"),
            ("1@x,fifo=0", "0 bytes"),
            ("eth7", "write 1@eth7 for eth7 as port 1"),
            ("eth7,rate=1gbit", "write 1@eth7 for eth7 as port 1"),
            ("2:eth7", "write 2@eth7 for eth7 as port 2"),
            ("eth7@2", "did you mean 2@eth7?"),
            ("1@x,rate=500mbps", "write 500mbit for bits"),
            ("1@x,delay=11s", "more than 10 s"),
            ("1@x,counts=frames", "not wire or layer2"),
            ("1@x,departures=late", "'late' is not switch or kernel"),
            ("1@x,gaps=pause-frames", "pause-frames needs a rate"),
            (
                "1@x,rate=1gbit,gaps=pause-frames:59",
                "'59' is not 60 to 9216",
            ),
            ("1@x,rate=1gbit,gaps=empty", "'empty' is not accounted"),
            ("1@x,driver=dpdk", "not af_packet or af_xdp"),
            ("1@x,rate=10mbit,rate=20mbit", "port 1: rate is given twice"),
            ("1@x,queues=2,queues=3", "queues is given twice"),
            ("1@x,queues=1,aqm=codel,aqm=none", "aqm is given twice"),
            (
                "1@x,queues=2,scheduler=wfq:1:0,scheduler=strict",
                "scheduler is given twice",
            ),
            (
                "1@x,queues=2,q1.rate=1mbit,q1.rate=2mbit",
                "q1.rate is given twice",
            ),
            (
                "1@x,queues=2,q1.rate=1mbit,q01.rate=2mbit",
                "port 1: q01.rate: 'q01': write q1",
            ),
            ("1@x,ring=1", "port 1: ring: '1' is not 2 to 524288 frames"),
            ("1@x,ring=many", "'many' is not 2 to 524288 frames"),
        ] {
            let error = text.parse::<PortOption>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_name_simple_switch_has_its_defaults() {
        let adapted = |name: &str, arguments: &[&str]| {
            let arguments = std::iter::once(&name).chain(arguments);
            let matches = <Options as clap::CommandFactory>::command().get_matches_from(arguments);
            let mut options =
                <Options as clap::FromArgMatches>::from_arg_matches(&matches).expect("parses");
            options.adapt_to_name(Some(OsStr::new(name)), &matches);
            (options.thrift_port, options.grpc_server_addr.port())
        };
        let given = [
            "--no-p4",
            "--thrift-port",
            "9",
            "--grpc-server-addr",
            "127.0.0.1:8",
        ];
        assert_eq!(adapted("/a/simple_switch", &["--no-p4"]), (Some(9_090), 0));
        assert_eq!(adapted("simple_switch", &given), (Some(9), 8));
        assert_eq!(adapted("simple_switch_grpc", &["--no-p4"]), (None, 9_559));
        let offline = ["--virtual", "program.json"];
        assert_eq!(adapted("simple_switch", &offline), (None, 9_559));
    }

    #[test]
    fn what_is_given_twice_is_refused() {
        let parse = |arguments: &[&str]| {
            Options::try_parse_from(std::iter::once(&"pacing_switch").chain(arguments))
                .expect("parses")
                .check()
        };
        assert!(parse(&["-i", "1@a", "-i", "2@b"]).is_ok());
        assert!(parse(&["-i", "1@a", "-i", "1@b"]).is_err());
        assert!(parse(&["-i", "1@a", "-i", "2@a"]).is_err());
        assert!(parse(&["-i", "9@a", "--cpu-port", "9"]).is_err());
        let shared = ["-i", "1@a,queues=2,buffer=switch"];
        assert_eq!(
            parse(&shared),
            Err("port 1: buffer=switch: needs --switch-buffer".to_owned())
        );
        let with = |size| [shared[0], shared[1], "--switch-buffer", size];
        assert_eq!(parse(&with("1MB")), Ok(()));
        assert!(parse(&with("0")).is_err());
        assert!(parse(&["--virtual", "--thrift-port", "9090"]).is_err());
        assert!(parse(&["--virtual", "--translation", "ports.json"]).is_err());
    }
}
