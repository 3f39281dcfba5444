//! Moves frames between two interfaces, both ways, and does nothing else: the baseline for
//! benchmarks of switches. Ends on SIGTERM, SIGINT or after `--seconds`, and prints what it moved,
//! as JSON.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use ports::{Port, PortDriver, PortOptions, PortStatistics, Sending, Waiter, WaiterOptions, clock};
use serde::Serialize;

/// Frames moved one way before the other way gets its turn.
const TURN_FRAMES: usize = 256;
/// Turns before the waiter is asked whether to end.
const TURNS: usize = 16;

/// Bare forwarder between two interfaces.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// One interface.
    interface_a: String,
    /// The other interface.
    interface_b: String,
    /// End after this many seconds (default: on SIGTERM or SIGINT).
    #[arg(long)]
    seconds: Option<f64>,
    /// How the interfaces are opened: af_packet or af_xdp.
    #[arg(long, default_value = "af_packet", value_name = "DRIVER")]
    port_driver: PortDriver,
    /// Frames each receive ring holds.
    #[arg(long, default_value_t = 4096)]
    ring_frames: usize,
    /// Send past the queueing disciplines.
    #[arg(long)]
    qdisc_bypass: bool,
}

/// One direction, for the report.
#[derive(Debug, Serialize)]
struct Direction {
    from: String,
    to: String,
    /// Frames taken by the outgoing interface.
    packets: u64,
    /// Frames per second, first to last frame.
    pps: f64,
    rx_ring_full: u64,
    oversize: u64,
    tx_failed: u64,
    #[serde(skip)]
    first_ns: u64,
    #[serde(skip)]
    last_ns: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    directions: [Direction; 2],
    /// Frames that came per wake-up, both ways.
    packets_per_wakeup: f64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forwarder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let port_options = PortOptions {
        driver: options.port_driver,
        rx_frames: options.ring_frames,
        qdisc_bypass: options.qdisc_bypass,
        ..PortOptions::default()
    };
    let mut a = Port::open(&options.interface_a, &port_options)?;
    let mut b = Port::open(&options.interface_b, &port_options)?;
    let mut waiter = Waiter::new(WaiterOptions::default())?;
    waiter.end_on_signals()?;
    waiter.add(&a)?;
    waiter.add(&b)?;
    let mut there = Direction::new(&a, &b);
    let mut back = Direction::new(&b, &a);
    eprintln!("forwarder: ready {} <-> {}", a.name(), b.name());

    let mut now_ns = clock::now_ns();
    let end_ns = options
        .seconds
        .map(|seconds| now_ns.saturating_add((seconds * 1e9) as u64));
    let mut wakeups = 0u64;
    while end_ns.is_none_or(|end_ns| now_ns < end_ns) {
        // More in the rings already: a deadline of now asks for signals only, without a system
        // call.
        let busy = a.has_frame() || b.has_frame();
        let deadline_ns = if busy { Some(now_ns) } else { end_ns };
        let woken = waiter.wait(now_ns, deadline_ns, |_| false)?;
        if woken.signal.is_some() {
            break;
        }
        if woken.error {
            for error in [&a, &b].into_iter().filter_map(Port::take_error) {
                eprintln!("forwarder: {error}");
            }
        }
        wakeups += u64::from(!busy);
        now_ns = clock::now_ns();
        for _ in 0..TURNS {
            if there.turn(&mut a, &mut b, now_ns) + back.turn(&mut b, &mut a, now_ns) == 0 {
                break;
            }
        }
    }
    let statistics = [a.statistics(), b.statistics()];
    let moved = statistics[0].rx_frames + statistics[1].rx_frames;
    there.finish(&statistics[0], &statistics[1]);
    back.finish(&statistics[1], &statistics[0]);
    let report = Report {
        directions: [there, back],
        packets_per_wakeup: moved as f64 / wakeups.max(1) as f64,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

impl Direction {
    fn new(from: &Port, to: &Port) -> Direction {
        Direction {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            packets: 0,
            pps: 0.0,
            rx_ring_full: 0,
            oversize: 0,
            tx_failed: 0,
            first_ns: 0,
            last_ns: 0,
        }
    }

    /// Moves the frames that have come, up to a limit. Returns their number.
    fn turn(&mut self, from: &mut Port, to: &mut Port, now_ns: u64) -> usize {
        let mut moved = 0;
        while moved < TURN_FRAMES
            && let Some(frame) = from.receive(now_ns)
        {
            if self.first_ns == 0 {
                self.first_ns = frame.arrival_ns;
            }
            self.last_ns = frame.arrival_ns;
            let sending = Sending {
                in_train: frame.in_train,
                ..Sending::default()
            };
            let _ = to.send_as(frame.bytes(), sending); // counted if refused
            moved += 1;
        }
        to.flush();
        moved
    }

    fn finish(&mut self, from: &PortStatistics, to: &PortStatistics) {
        self.packets = to.tx_frames;
        self.rx_ring_full = from.rx_ring_full;
        self.oversize = from.rx_oversize + to.tx_oversize;
        self.tx_failed = to.tx_failed;
        if self.last_ns > self.first_ns {
            let seconds = (self.last_ns - self.first_ns) as f64 / 1e9;
            self.pps = self.packets as f64 / seconds;
        }
    }
}
