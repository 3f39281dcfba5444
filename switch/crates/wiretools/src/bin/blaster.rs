//! Sends equal UDP frames from a batch of raw frames, at a rate or as fast as it goes: load for
//! switches. Prints what it sent as JSON. At a rate, frames leave one by one at their times, or together
//! at intervals; frames it is late for are sent at once, up to a batch. Some of them can be probes, by
//! which a receiver measures latency.

use std::error::Error;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Parser;
use ports::{Port, PortOptions, Waiter, WaiterOptions, clock};
use serde::Serialize;
use wiretools::frame::{HEADERS_BYTES, Mac, UdpFrame};

/// Sends UDP frames at a rate.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// The interface to send from.
    interface: String,
    /// Ethernet destination.
    #[arg(long, default_value = "02:00:00:00:00:02")]
    dst_mac: Mac,
    /// Ethernet source (default: the interface's).
    #[arg(long)]
    src_mac: Option<Mac>,
    /// IPv4 source.
    #[arg(long, default_value = "10.0.0.1")]
    src_ip: Ipv4Addr,
    /// IPv4 destination.
    #[arg(long, default_value = "10.0.0.2")]
    dst_ip: Ipv4Addr,
    /// UDP source port.
    #[arg(long, default_value_t = 5000)]
    src_port: u16,
    /// UDP destination port.
    #[arg(long, default_value_t = 5001)]
    dst_port: u16,
    /// Length of a frame: layer 2 without FCS (a 64-byte Ethernet frame has 60).
    #[arg(long, default_value_t = 64)]
    frame_bytes: usize,
    /// Frames per second, or "max".
    #[arg(long, default_value = "max")]
    rate_pps: Rate,
    /// For so long.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Or end after this many frames.
    #[arg(long)]
    count: Option<u64>,
    /// Frames handed to the kernel at once, at most.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// At a rate: stay awake for waits shorter than this, us.
    #[arg(long, default_value_t = 100)]
    spin_us: u64,
    /// At a rate: wait so long between batches, us. Frames that are due by then leave together.
    #[arg(long, default_value_t = 0)]
    every_us: u64,
    /// Send past the queueing discipline.
    #[arg(long)]
    qdisc_bypass: bool,
    /// One frame of so many is a probe: it goes to the UDP port after `--dst-port`, and its payload begins
    /// with its number, from 0, in eight bytes of the machine's order.
    #[arg(long)]
    probe_every: Option<NonZeroU64>,
}

/// Bytes of a probe's number.
const NUMBER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rate {
    Max,
    PerSecond(f64),
}

impl Rate {
    /// The departure time of frame `number` (from 0). Only this computes it: by two formulas, a rounding
    /// error would make the loop wait for a time that has passed; in virtual time, forever.
    fn due_ns(self, start_ns: u64, number: u64) -> u64 {
        match self {
            Rate::Max => start_ns,
            Rate::PerSecond(pps) => start_ns + (number as f64 * 1e9 / pps).ceil() as u64,
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "max" {
            return Ok(Rate::Max);
        }
        match text.parse::<f64>() {
            Ok(pps) if pps > 0.0 && pps <= 1e9 => Ok(Rate::PerSecond(pps)),
            _ => Err(format!("'{text}' is neither 'max' nor a number above 0")),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    interface: String,
    frame_bytes: usize,
    sent: u64,
    failed: u64,
    seconds: f64,
    pps: f64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("blaster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let number_bytes = options.probe_every.map_or(0, |_| NUMBER_BYTES);
    let least_bytes = HEADERS_BYTES + number_bytes;
    if options.frame_bytes < least_bytes {
        return Err(format!("--frame-bytes: at least {least_bytes}").into());
    }
    let port_options = PortOptions {
        receive: false,
        max_frame_bytes: Some(options.frame_bytes.max(60)),
        tx_batch_frames: options.batch,
        qdisc_bypass: options.qdisc_bypass,
        ..PortOptions::default()
    };
    let mut port = Port::open(&options.interface, &port_options)?;
    let addresses = UdpFrame {
        src_mac: options.src_mac.unwrap_or(Mac(port.mac())),
        dst_mac: options.dst_mac,
        src_address: options.src_ip,
        dst_address: options.dst_ip,
        src_port: options.src_port,
        dst_port: options.dst_port,
    };
    let frame = addresses.bytes(options.frame_bytes)?;
    let mut probe = UdpFrame {
        dst_port: options.dst_port.wrapping_add(1),
        ..addresses
    }
    .bytes(options.frame_bytes)?;
    let mut waiter = Waiter::new(WaiterOptions {
        spin_ns: options.spin_us.saturating_mul(1000),
    })?;
    waiter.end_on_signals()?;

    let every_ns = options.every_us.saturating_mul(1000);
    let count = options.count.unwrap_or(u64::MAX);
    let start_ns = clock::now_ns();
    let end_ns = start_ns.saturating_add((options.seconds * 1e9) as u64);
    let mut now_ns = start_ns;
    let mut offered = 0u64;
    while now_ns < end_ns && offered < count {
        let most = (options.batch as u64).min(count - offered);
        let mut burst = 0;
        while burst < most && options.rate_pps.due_ns(start_ns, offered + burst) <= now_ns {
            let number = offered + burst;
            match options.probe_every {
                Some(every) if number % every == 0 => {
                    write_number(&mut probe, number / every);
                    port.send(&probe)?;
                }
                _ => port.send(&frame)?,
            }
            burst += 1;
        }
        port.flush();
        offered += burst;
        let next_ns = options.rate_pps.due_ns(start_ns, offered);
        // After a full batch, more frames may be due.
        let batch_ns = if burst < most { every_ns } else { 0 };
        let deadline_ns = next_ns.max(now_ns.saturating_add(batch_ns)).min(end_ns);
        if waiter
            .wait(now_ns, Some(deadline_ns), |_| false)?
            .signal
            .is_some()
        {
            break;
        }
        now_ns = clock::now_ns();
    }
    let statistics = port.statistics();
    let seconds = (clock::now_ns() - start_ns) as f64 / 1e9;
    let report = Report {
        interface: options.interface.clone(),
        frame_bytes: options.frame_bytes,
        sent: statistics.tx_frames,
        failed: statistics.tx_failed,
        seconds,
        pps: statistics.tx_frames as f64 / seconds,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

/// Writes the number of a probe into its frame.
fn write_number(probe: &mut [u8], number: u64) {
    if let Some(place) = probe.get_mut(HEADERS_BYTES..HEADERS_BYTES + NUMBER_BYTES) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    ports::checksum::complete(probe);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_its_number_and_a_right_checksum() {
        let mut probe = UdpFrame::default().bytes(60).unwrap();
        for number in [0, 1, u64::MAX] {
            write_number(&mut probe, number);
            assert_eq!(probe[42..50], number.to_ne_bytes());
            assert_eq!(ports::checksum::verify(&probe), Some(true));
        }
    }
}
