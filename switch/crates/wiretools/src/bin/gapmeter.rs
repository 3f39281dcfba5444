//! Receives frames and reports the gaps between them, by the kernel's receive stamps (ns), as JSON.
//!
//! An independent look at a pacer: run it on the far end of the link. The stamp is taken where the
//! frame enters the network stack, so this program's own lateness does not matter, as long as its
//! ring does not overflow (`rx_ring_full` in the report). So it sleeps between two looks at the ring:
//! a thread that waits for each frame costs the sender of the frame a wake-up.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use ports::{Port, PortOptions, Waiter, WaiterOptions, clock};
use serde::Serialize;
use wiretools::gaps::{Arrivals, Summary};
use wiretools::select::Condition;

/// 8 bytes each.
const MAX_PACKETS: usize = 50_000_000;
/// Time between two looks at the ring, ns. The default ring holds the frames of two such times at
/// 800,000 frames per second.
const LOOK_NS: u64 = 10_000_000;

/// Measures gaps between received frames.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// The interface to listen on.
    interface: String,
    /// Count frames that meet this; may be given several times, all must hold: all, udp-dst=PORT,
    /// tcp-dst=PORT, ether-type=0xHEX, dst-mac=MAC, src-mac=MAC.
    #[arg(long = "match", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// End after this many frames that count.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=MAX_PACKETS as u64))]
    count: Option<u64>,
    /// End after this many seconds from the first frame that counts.
    #[arg(long)]
    seconds: Option<f64>,
    /// Give up if no frame that counts comes for this many seconds (0: never). Before the first
    /// frame too.
    #[arg(long, default_value_t = 10.0)]
    patience: f64,
    /// Leave out this many frames at the start.
    #[arg(long, default_value_t = 0)]
    skip: u64,
    /// The gap there should be, ns (default: the mean of the gaps).
    #[arg(long)]
    ideal_ns: Option<f64>,
    /// Frames closer than this many percent of the ideal gap are back to back.
    #[arg(long, default_value_t = 50.0)]
    back_to_back_percent: f64,
    /// Frames the receive ring holds.
    #[arg(long, default_value_t = 16384)]
    ring_frames: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    interface: String,
    #[serde(flatten)]
    gaps: Option<Summary>,
    /// Frames that did not meet the conditions.
    other_packets: u64,
    /// Frames lost because the ring was full: gaps are wrong if not 0.
    rx_ring_full: u64,
    /// Frames too long for the interface's MTU: turn offloads off.
    rx_oversize: u64,
    /// Stamps out of order or from a stepped clock, replaced.
    stamps_repaired: u64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("gapmeter: fewer than two frames came");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("gapmeter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let port_options = PortOptions {
        rx_frames: options.ring_frames,
        tx_batch_frames: 1,
        offloads: false, // the packets of a train have no gaps of their own
        ..PortOptions::default()
    };
    let mut port = Port::open(&options.interface, &port_options)?;
    let mut waiter = Waiter::new(WaiterOptions::default())?;
    waiter.end_on_signals()?;
    eprintln!("gapmeter: ready {}", port.name());

    let count = options.count.map_or(MAX_PACKETS, |count| count as usize);
    let mut arrivals = Arrivals::new(count);
    let mut to_skip = options.skip;
    let patience_ns = seconds_to_ns(options.patience).filter(|ns| *ns > 0);
    let mut now_ns = clock::now_ns();
    let mut last_ns = now_ns;
    let mut end_ns = None;
    let mut other_packets = 0;
    'measure: while !arrivals.is_full() {
        let woken = waiter.sleep_until(now_ns, now_ns.saturating_add(LOOK_NS))?;
        now_ns = clock::now_ns();
        while let Some(frame) = port.receive(now_ns) {
            if !options
                .conditions
                .iter()
                .all(|condition| condition.holds(frame.bytes()))
            {
                other_packets += 1;
                continue;
            }
            last_ns = frame.arrival_ns;
            if to_skip > 0 {
                to_skip -= 1;
                continue;
            }
            if end_ns.is_none() {
                let length_ns = options.seconds.and_then(seconds_to_ns);
                end_ns = length_ns.map(|length_ns| last_ns.saturating_add(length_ns));
            }
            let too_late = end_ns.is_some_and(|end_ns| last_ns >= end_ns);
            if too_late || !arrivals.add(last_ns, frame.bytes().len()) {
                break 'measure;
            }
        }
        let gives_up_ns = patience_ns.map(|patience_ns| last_ns.saturating_add(patience_ns));
        let over = [end_ns, gives_up_ns]
            .into_iter()
            .flatten()
            .any(|end_ns| now_ns >= end_ns);
        if woken.signal.is_some() || over {
            break;
        }
        if let Some(error) = port.take_error() {
            eprintln!("gapmeter: {}: {error}", port.name());
        }
    }
    let statistics = port.statistics();
    let gaps = arrivals.summary(options.ideal_ns, options.back_to_back_percent);
    let measured = gaps.is_some();
    let report = Report {
        interface: options.interface.clone(),
        gaps,
        other_packets,
        rx_ring_full: statistics.rx_ring_full,
        rx_oversize: statistics.rx_oversize,
        stamps_repaired: statistics.rx_stamps_repaired,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(measured)
}

fn seconds_to_ns(seconds: f64) -> Option<u64> {
    (seconds >= 0.0).then_some((seconds * 1e9) as u64)
}
