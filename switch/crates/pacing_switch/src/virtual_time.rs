//! The driver in virtual time, which reads and writes capture files. It does not wait: the time jumps
//! to the next event. Two runs give the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use captures::{CaptureReader, Direction, WholeCapture};
use switch::notification::Notification;
use switch::{Leaving, Sink, Switch};

use crate::options::PortOption;
use crate::runtime_file::RuntimeFile;
use crate::traces::TraceWriter;

/// Most re-entries of packets into ingress (resubmitted, recirculated) after the last packet or entry,
/// if no end is given: as many as one packet makes in ten seconds.
const RECIRCULATED_MAX: u64 = 10_000_000;

/// Output captures by port; remembers the first failure, since a sink cannot return one.
struct CaptureSink {
    writers: BTreeMap<u16, WholeCapture>,
    failure: Option<anyhow::Error>,
}

impl Sink for CaptureSink {
    fn transmit(&mut self, frame: &[u8], leaving: Leaving) {
        if let Some(writer) = self.writers.get_mut(&leaving.port)
            && let Err(error) = writer.write(frame, leaving.delivery_ns)
        {
            self.failure.get_or_insert(error);
        }
    }

    fn to_controller(&mut self, _frame: &[u8]) {
        // There is no controller; the switch has counted the packet.
    }

    fn notify(&mut self, _notification: Notification) -> bool {
        // There is no controller that could ask for digests or set an idle timeout.
        false
    }
}

/// A port's input with its next frame.
struct Input {
    port: u16,
    reader: CaptureReader<BufReader<File>>,
    next: Option<(u64, Vec<u8>)>,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All input is read and all output is sent.
    Done,
    /// The time was over before all packets were sent.
    Stopped,
}

/// Runs until all input is read and all output is sent, or until `until_ns` after the first
/// packet's arrival. Output captures appear at the end; those of a run that fails do not. The traces
/// of the switch's packets go to `traces`.
///
/// # Errors
/// No ports or no input; a capture file cannot be read or written; an entry of the runtime file
/// does not fit; without `until_ns`, packets that recirculate without end.
pub fn run(
    switch: &mut Switch,
    ports: &[PortOption],
    runtime: Option<&RuntimeFile>,
    until_ns: Option<u64>,
    mut traces: Option<TraceWriter>,
) -> anyhow::Result<Ended> {
    let mut inputs = open_inputs(ports)?;
    let mut sink = CaptureSink {
        writers: BTreeMap::new(),
        failure: None,
    };
    for option in ports {
        let path = captures::path(Path::new(&option.interface), Direction::Out);
        sink.writers
            .insert(option.port, WholeCapture::create(path)?);
    }
    let begin_ns = next_arrival(&inputs).map_or(0, |(at_ns, _)| at_ns);
    let end_ns = until_ns.map(|until_ns| begin_ns.saturating_add(until_ns));

    let mut applied = 0;
    let mut recirculated_before = 0;
    let ended = loop {
        let arrival = next_arrival(&inputs);
        let due_entry_ns = runtime.and_then(|file| file.due_ns(applied));
        let Some(now_ns) = [
            arrival.map(|(at_ns, _)| at_ns),
            switch.poll_at_ns(),
            due_entry_ns,
        ]
        .into_iter()
        .flatten()
        .min() else {
            break Ended::Done;
        };
        if let Some(end_ns) = end_ns.filter(|end_ns| now_ns > *end_ns) {
            switch.poll(end_ns, &mut sink);
            break Ended::Stopped;
        }
        // At one instant, due packets leave first, then entries change, then packets arrive.
        switch.poll(now_ns, &mut sink);
        if let Some(file) = runtime
            && due_entry_ns.is_some_and(|due_ns| due_ns <= now_ns)
        {
            applied = file.apply_due(switch, applied, now_ns)?;
            recirculated_before = switch.totals().recirculated;
        }
        if let Some((at_ns, at)) = arrival
            && at_ns <= now_ns
            && let Some(input) = inputs.get_mut(at)
            && let Some((_, frame)) = input.next.take()
        {
            switch.receive(input.port, &frame, at_ns, at_ns);
            switch.poll(at_ns, &mut sink);
            input.next = input.reader.next_frame()?;
            recirculated_before = switch.totals().recirculated;
        }
        if let Some(failure) = sink.failure.take() {
            return Err(failure);
        }
        if let Some(traces) = &mut traces {
            traces.write_all(switch)?;
        }
        anyhow::ensure!(
            end_ns.is_some()
                || switch.totals().recirculated - recirculated_before < RECIRCULATED_MAX,
            "the program recirculates packets without end: {RECIRCULATED_MAX} times since the last \
             one came, until {now_ns} ns; --virtual-until TIME ends such a run"
        );
    };
    for (_, writer) in sink.writers {
        writer.finish()?;
    }
    if let Some(mut traces) = traces {
        traces.write_all(switch)?;
        traces.flush()?;
    }
    Ok(ended)
}

/// The capture files of those ports that have one.
fn open_inputs(ports: &[PortOption]) -> anyhow::Result<Vec<Input>> {
    anyhow::ensure!(
        !ports.is_empty(),
        "--virtual needs ports: -i PORT@NAME, which reads NAME_in.pcap and writes NAME_out.pcap"
    );
    let mut inputs = Vec::new();
    for option in ports {
        let path = captures::path(Path::new(&option.interface), Direction::In);
        // A port may only send: then it has no input file.
        if path.exists() {
            let mut reader = CaptureReader::open(&path)?;
            let next = reader.next_frame()?;
            inputs.push(Input {
                port: option.port,
                reader,
                next,
            });
        }
    }
    if inputs.is_empty() {
        let names: Vec<String> = ports
            .iter()
            .map(|option| format!("{}_in.pcap", option.interface))
            .collect();
        anyhow::bail!("no port has an input file; looked for {}", names.join(", "));
    }
    Ok(inputs)
}

/// The next packet to arrive: its time, and its input.
fn next_arrival(inputs: &[Input]) -> Option<(u64, usize)> {
    inputs
        .iter()
        .enumerate()
        .filter_map(|(at, input)| Some((input.next.as_ref()?.0, at)))
        .min()
}
