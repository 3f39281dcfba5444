//! Lines of a log, in the words of simple_switch's log as far as it has words for it.

use switch::trace::{Branch, Event, ForkReason, Outcome, PacketTrace};
use v1model::{InstanceType, Stage};

use crate::message::hex;

/// A trace as lines. Each begins with the packet's number and that of its copy: `[7.0]`.
pub fn to_lines(trace: &PacketTrace) -> Vec<String> {
    let mut lines = Lines {
        packet: trace.packet_id,
        copies: 0,
        lines: Vec::new(),
    };
    let (port, bytes) = (trace.ingress_port, trace.frame_bytes);
    lines.put(
        0,
        &format!(
            "Processing packet received on port {port}, {bytes} bytes, at {} ns",
            trace.arrival_ns
        ),
    );
    lines.branch(0, &trace.root);
    if trace.left_out > 0 {
        lines.put(
            0,
            &format!("{} more events have no room in the trace", trace.left_out),
        );
    }
    lines.lines
}

struct Lines {
    packet: u64,
    copies: u64,
    lines: Vec<String>,
}

impl Lines {
    fn put(&mut self, copy: u64, text: &str) {
        self.lines.push(format!("[{}.{copy}] {text}", self.packet));
    }

    fn branch(&mut self, copy: u64, branch: &Branch) {
        for event in &branch.events {
            for line in words(event) {
                self.put(copy, &line);
            }
        }
        match &branch.outcome {
            Outcome::Transmit {
                port,
                frame_bytes,
                delivery_ns,
            } => self.put(
                copy,
                &format!("Transmitting packet of size {frame_bytes} out of port {port} at {delivery_ns} ns"),
            ),
            Outcome::PacketIn { frame_bytes } => {
                self.put(copy, &format!("Packet of size {frame_bytes} goes to the controller"));
            }
            Outcome::Drop { port, cause } => {
                self.put(copy, &format!("Dropping packet: {}, counted at port {port}", cause.as_str()));
            }
            Outcome::Unfinished => self.put(copy, "The trace ends; the packet is in the switch"),
            Outcome::Fork { reason, branches } => {
                let why = match reason {
                    ForkReason::Clone => "Cloning packet",
                    ForkReason::Multicast => "Replicating packet",
                };
                for (number, branch) in branches.iter().enumerate() {
                    if number == 0 {
                        self.branch(copy, branch);
                    } else {
                        self.copies += 1;
                        let new = self.copies;
                        self.put(copy, &format!("{why}: the copy is {}.{new}", self.packet));
                        self.branch(new, branch);
                    }
                }
            }
        }
    }
}

fn values<N: AsRef<str>, V: AsRef<[u8]>>(values: &[(N, V)]) -> String {
    let values = values.iter();
    let values = values.map(|(name, value)| format!("{}={}", name.as_ref(), hex(value.as_ref())));
    values.collect::<Vec<_>>().join(", ")
}

/// An event as lines.
fn words(event: &Event) -> Vec<String> {
    let one = match event {
        Event::Enter(stage) => stage_words(*stage, "start"),
        Event::Leave(stage) => stage_words(*stage, "end"),
        Event::State(name) => format!("Parser 'parser' entering state '{name}'"),
        Event::Extract {
            header,
            bytes,
            fields,
        } => format!(
            "Extracting header '{header}' ({bytes} bytes): {}",
            values(fields)
        ),
        Event::ParserError(name) => format!("Parser ended with error {name}"),
        Event::ChecksumError => "A checksum is wrong".to_owned(),
        Event::Condition { name, holds } => format!("Condition \"{name}\" is {holds}"),
        Event::Table {
            table,
            key,
            entry,
            handle,
        } => {
            let mut lines = vec![format!("Applying table '{table}'")];
            if !key.is_empty() {
                lines.push("Looking up key:".to_owned());
                let key = key.iter();
                lines.extend(key.map(|(name, value)| format!("* {name:<20}: {}", hex(value))));
            }
            let found = match (entry, handle) {
                (Some(_), Some(handle)) => format!("hit with handle {handle}"),
                (Some(_), None) => "hit".to_owned(),
                (None, _) => "miss".to_owned(),
            };
            lines.push(format!("Table '{table}': {found}"));
            return lines;
        }
        Event::EmptyGroup => "The group has no member whose port is up".to_owned(),
        Event::Action { action, args } => format!("Action entry is {action} - {}", values(args)),
        Event::RegisterRead {
            register,
            index,
            value,
        } => cell("Read", register, *index, value.as_deref()),
        Event::RegisterWrite {
            register,
            index,
            value,
        } => cell("Wrote", register, *index, value.as_deref()),
        Event::Count { counter, index } => {
            format!("Updated counter '{counter}' at index {index}")
        }
        Event::Meter {
            meter,
            index,
            colour: Some(colour),
        } => format!("Executed meter '{meter}' at index {index}, packet was marked as {colour}"),
        Event::Meter { meter, index, .. } => format!("Meter '{meter}' has no index {index}"),
        other => return decision_words(other).into_iter().collect(),
    };
    vec![one]
}

fn decision_words(event: &Event) -> Option<String> {
    let one = match event {
        Event::MarkToDrop => "Marking packet to be dropped".to_owned(),
        Event::Hold(hold) => format!(
            "Class {} holds the packet until {} ns; it takes {} ns",
            hold.class,
            hold.departure_ns,
            hold.cost_q24 >> 24
        ),
        Event::Truncate(bytes) => format!("Truncating packet to {bytes} bytes"),
        Event::Clone(request) => format!("Requesting a clone to session {}", request.session),
        Event::Digest(id) => format!("Requesting digest {id}"),
        Event::Resubmit(list) => format!("Requesting a resubmission with field list {list}"),
        Event::Recirculate(list) => format!("Requesting a recirculation with field list {list}"),
        Event::Exit => "Exiting the control".to_owned(),
        Event::AssertFailed => "An assert or assume failed".to_owned(),
        Event::Emit { header, .. } => format!("Deparsing header '{header}'"),
        Event::Enqueue { port, at_ns, hold } => match hold {
            None => format!("Egress port is {port}; queued at {at_ns} ns"),
            Some(hold) => format!(
                "Egress port is {port}; queued at {at_ns} ns in class {} until {} ns",
                hold.class, hold.departure_ns
            ),
        },
        Event::Dequeue {
            port,
            start_ns,
            enqueued_ns,
        } => format!(
            "Port {port} starts the packet at {start_ns} ns, after {} ns in its queue",
            start_ns.saturating_sub(*enqueued_ns)
        ),
        Event::Reenter {
            instance_type,
            at_ns,
        } => match instance_type {
            InstanceType::Resubmit => format!("Resubmitting packet at {at_ns} ns"),
            _ => format!("Recirculating packet at {at_ns} ns"),
        },
        other => {
            debug_assert!(false, "{other:?} is an event of the engine");
            return None;
        }
    };
    Some(one)
}

fn stage_words(stage: Stage, what: &str) -> String {
    match stage {
        Stage::Parser => format!("Parser 'parser': {what}"),
        Stage::Deparser => format!("Deparser 'deparser': {what}"),
        Stage::Ingress | Stage::Egress => format!("Pipeline '{}': {what}", stage.name()),
    }
}

fn cell(done: &str, register: &str, index: u64, value: Option<&[u8]>) -> String {
    match value {
        Some(value) => format!(
            "{done} register '{register}' at index {index}: {}",
            hex(value)
        ),
        None => format!("Register '{register}' has no index {index}"),
    }
}
