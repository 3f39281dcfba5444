//! The driver in virtual time: capture files in, capture files out. Nothing waits; the next
//! event is simply next. Two runs give the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use switch_core::{Sink, Switch};

use crate::captures::{self, CaptureReader, CaptureWriter, Direction};
use crate::options::PortOption;
use crate::runtime_file::RuntimeFile;

/// Output captures by port; remembers the first failure, since a sink cannot return one.
struct CaptureSink {
    writers: BTreeMap<u16, CaptureWriter>,
    failure: Option<anyhow::Error>,
}

impl Sink for CaptureSink {
    fn transmit(&mut self, port: u16, frame: &[u8], delivery_ns: u64) {
        if let Some(writer) = self.writers.get_mut(&port)
            && let Err(error) = writer.write(frame, delivery_ns)
        {
            self.failure.get_or_insert(error);
        }
    }

    fn to_controller(&mut self, _frame: &[u8]) {
        // There is no controller; the switch has counted the packet.
    }
}

/// A port's input with its next frame.
struct Input {
    port: u16,
    reader: CaptureReader,
    next: Option<(u64, Vec<u8>)>,
}

/// Runs until all input is read and all output is sent.
///
/// # Errors
/// A capture file cannot be read or written; an entry of the runtime file does not fit.
pub fn run(
    switch: &mut Switch,
    ports: &[PortOption],
    runtime: Option<&RuntimeFile>,
) -> anyhow::Result<()> {
    let mut inputs = Vec::new();
    let mut sink = CaptureSink {
        writers: BTreeMap::new(),
        failure: None,
    };
    for option in ports {
        let stem = Path::new(&option.interface);
        let path = captures::path(stem, Direction::In);
        // A port may only send: then it has no input file.
        if path.exists() {
            let mut reader = CaptureReader::open(&path)?;
            let next = reader.next()?;
            inputs.push(Input {
                port: option.port,
                reader,
                next,
            });
        }
        let writer = CaptureWriter::create(&captures::path(stem, Direction::Out))?;
        sink.writers.insert(option.port, writer);
    }

    if inputs.is_empty() {
        let names: Vec<String> = ports
            .iter()
            .map(|option| format!("{}_in.pcap", option.interface))
            .collect();
        anyhow::bail!("no port has an input file; looked for {}", names.join(", "));
    }

    let mut applied = 0;
    loop {
        let arrival = inputs
            .iter()
            .enumerate()
            .filter_map(|(at, input)| Some((input.next.as_ref()?.0, at)))
            .min();
        let due_entry_ns = runtime.and_then(|file| file.due_ns(applied));
        let Some(now_ns) = [
            arrival.map(|(at_ns, _)| at_ns),
            switch.next_event_ns(),
            due_entry_ns,
        ]
        .into_iter()
        .flatten()
        .min() else {
            break;
        };
        // At one instant: what is due leaves, then entries change, then packets arrive.
        switch.advance(now_ns, &mut sink);
        if let Some(file) = runtime
            && due_entry_ns.is_some_and(|due_ns| due_ns <= now_ns)
        {
            applied = file.apply_due(switch, applied, now_ns)?;
        }
        if let Some((at_ns, at)) = arrival
            && at_ns <= now_ns
            && let Some(input) = inputs.get_mut(at)
            && let Some((_, frame)) = input.next.take()
        {
            switch.receive(input.port, &frame, at_ns, at_ns);
            switch.advance(at_ns, &mut sink);
            input.next = input.reader.next()?;
        }
        if let Some(failure) = sink.failure.take() {
            return Err(failure).context("output capture");
        }
    }
    Ok(())
}
