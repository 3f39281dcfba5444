//! Lines of a log, in the words of simple_switch's log as far as it has words for it.

use switch::trace;

use crate::proto::pipeline_stage_event::{Direction, StageKind};
use crate::proto::trace_event::Event;
use crate::proto::trace_tree::Outcome;
use crate::proto::{
    ChosenMember, Condition, Dequeue, Enqueue, Hold, NamedValue, PacketTrace, PipelineStageEvent,
    Primitive, ReadQueue, SourceInfo, TableLookup, TraceTree, fork, reenter,
};

/// A trace as lines. Each begins with the packet's number and that of its copy: `[7.0]`.
pub fn to_lines(trace: &trace::PacketTrace) -> Vec<String> {
    let trace = PacketTrace::from(trace);
    let input = trace.input.unwrap_or_default();
    let mut lines = Lines {
        packet: input.packet_id,
        copies: 0,
        lines: Vec::new(),
    };
    let (port, bytes) = (input.ingress_port, input.packet_size);
    lines.put(
        0,
        &format!(
            "Processing packet received on port {port}, {bytes} bytes, at {} ns",
            input.arrival_ns
        ),
    );
    lines.branch(0, &trace.root.unwrap_or_default());
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

    fn branch(&mut self, copy: u64, branch: &TraceTree) {
        for event in branch
            .events
            .iter()
            .filter_map(|event| event.event.as_ref())
        {
            for line in words(event) {
                self.put(copy, &line);
            }
        }
        match &branch.outcome {
            Some(Outcome::Transmit(end)) => self.put(
                copy,
                &format!(
                    "Transmitting packet of size {} out of port {} at {} ns",
                    end.packet_size, end.egress_port, end.delivery_ns
                ),
            ),
            Some(Outcome::PacketIn(end)) => {
                let size = end.packet_size;
                self.put(
                    copy,
                    &format!("Packet of size {size} goes to the controller"),
                );
            }
            Some(Outcome::Drop(end)) => {
                let (cause, port) = (&end.cause, end.port);
                self.put(
                    copy,
                    &format!("Dropping packet: {cause}, counted at port {port}"),
                );
            }
            None | Some(Outcome::Unfinished(_)) => {
                self.put(copy, "The trace ends; the packet is in the switch");
            }
            Some(Outcome::Fork(fork)) => {
                let why = match fork.reason() {
                    fork::Reason::Multicast => "Replicating packet",
                    fork::Reason::Clone | fork::Reason::Unspecified => "Cloning packet",
                };
                for (number, branch) in fork.branches.iter().enumerate() {
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

fn values(values: &[NamedValue]) -> String {
    let values = values
        .iter()
        .map(|NamedValue { name, value }| format!("{name}={value}"));
    values.collect::<Vec<_>>().join(", ")
}

/// An event as lines.
fn words(event: &Event) -> Vec<String> {
    let one = match event {
        Event::PipelineStage(stage) => stage_words(stage),
        Event::ParserState(state) => format!("Parser 'parser' entering state '{}'", state.name),
        Event::Extract(extract) => format!(
            "Extracting header '{}' ({} bytes): {}",
            extract.header,
            extract.bytes,
            values(&extract.fields)
        ),
        Event::ParserError(error) => format!("Parser ended with error {}", error.name),
        Event::ChecksumError(_) => "A checksum is wrong".to_owned(),
        Event::Condition(condition) => condition_words(condition),
        Event::TableLookup(lookup) => return lookup_words(lookup),
        Event::ChosenMember(chosen) => member_words(chosen),
        Event::DirectMeter(meter) => format!(
            "Executed direct meter '{}', packet was marked as {}",
            meter.meter,
            meter.colour()
        ),
        Event::EmptyGroup(_) => "The group has no member whose port is up".to_owned(),
        Event::Action(action) => {
            format!("Action entry is {} - {}", action.name, values(&action.args))
        }
        Event::Primitive(primitive) => primitive_words(primitive),
        Event::RegisterRead(access) => cell(
            "Read",
            &access.register,
            access.index,
            access.value.as_deref(),
        ),
        Event::RegisterWrite(access) => cell(
            "Wrote",
            &access.register,
            access.index,
            access.value.as_deref(),
        ),
        Event::Count(count) => {
            format!(
                "Updated counter '{}' at index {}",
                count.counter, count.index
            )
        }
        Event::Meter(meter) => match meter.colour {
            Some(colour) => format!(
                "Executed meter '{}' at index {}, packet was marked as {colour}",
                meter.meter, meter.index
            ),
            None => format!("Meter '{}' has no index {}", meter.meter, meter.index),
        },
        other => decision_words(other),
    };
    vec![one]
}

fn lookup_words(lookup: &TableLookup) -> Vec<String> {
    let table = &lookup.table;
    let mut lines = vec![format!("Applying table '{table}'")];
    if !lookup.key.is_empty() {
        lines.push("Looking up key:".to_owned());
        let key = lookup.key.iter();
        lines.extend(key.map(|NamedValue { name, value }| format!("* {name:<20}: {value}")));
    }
    let found = match (lookup.hit, lookup.handle) {
        (true, Some(handle)) => format!("hit with handle {handle}"),
        (true, None) => "hit".to_owned(),
        (false, _) => "miss".to_owned(),
    };
    lines.push(format!("Table '{table}': {found}"));
    lines
}

/// A place in the program's text, in front of what is said of it.
fn at(source: &SourceInfo) -> String {
    format!("{}({}) ", source.filename, source.line)
}

fn condition_words(condition: &Condition) -> String {
    let (name, holds) = (&condition.name, condition.holds);
    match &condition.source_info {
        Some(source) => format!(
            "{}Condition \"{}\" ({name}) is {holds}",
            at(source),
            source.source_fragment
        ),
        None => format!("Condition \"{name}\" is {holds}"),
    }
}

fn primitive_words(primitive: &Primitive) -> String {
    match &primitive.source_info {
        Some(source) => format!("{}Primitive {}", at(source), source.source_fragment),
        None => format!("Primitive {} (no source info)", primitive.op),
    }
}

fn member_words(chosen: &ChosenMember) -> String {
    let profile = &chosen.action_profile;
    match (chosen.one_shot_index, chosen.group_id) {
        (Some(index), _) => format!("Choosing action {index} of the entry's one-shot set"),
        (None, Some(group)) => {
            format!(
                "Choosing member {} from group {group} of '{profile}'",
                chosen.member_id()
            )
        }
        (None, None) => format!("Choosing member {} of '{profile}'", chosen.member_id()),
    }
}

fn enqueue_words(queued: &Enqueue) -> String {
    let place = match &queued.hold {
        None => format!("in queue {}", queued.qid),
        Some(Hold {
            class_id,
            departure_ns,
            ..
        }) => format!("in class {class_id} until {departure_ns} ns"),
    };
    format!(
        "Egress port is {}; queued at {} ns {place}, behind {} packets; {} bytes wait",
        queued.port, queued.at_ns, queued.enq_qdepth, queued.backlog_bytes
    )
}

fn dequeue_words(start: &Dequeue) -> String {
    let gap = match start.gap_ns {
        Some(gap_ns) => format!("gap of {gap_ns} ns"),
        None => "first packet of the port".to_owned(),
    };
    format!(
        "Port {} starts the packet at {} ns, after {} ns in its queue; {gap}",
        start.port,
        start.start_ns,
        start.start_ns.saturating_sub(start.enqueued_ns)
    )
}

fn reading_words(read: &ReadQueue) -> String {
    let (port, queue) = (read.port, read.queue);
    if !read.exists {
        return format!("There is no queue {queue} of port {port}");
    }
    format!(
        "Read queue {queue} of port {port}: {} packets, {} bytes, {} ns at its head",
        read.packets, read.bytes, read.sojourn_ns
    )
}

fn decision_words(event: &Event) -> String {
    match event {
        Event::ReadQueue(read) => reading_words(read),
        Event::ChooseQueue(chosen) => format!("Choosing queue {}", chosen.queue),
        Event::MarkToDrop(_) => "Marking packet to be dropped".to_owned(),
        Event::Hold(hold) => format!(
            "Class {} holds the packet until {} ns; it takes {} ns",
            hold.class_id,
            hold.departure_ns,
            hold.cost_q24 >> 24
        ),
        Event::Truncate(truncate) => format!("Truncating packet to {} bytes", truncate.bytes),
        Event::Clone(request) => format!("Requesting a clone to session {}", request.session),
        Event::Digest(request) => format!("Requesting digest {}", request.id),
        Event::Resubmit(request) => {
            format!("Requesting a resubmission with field list {}", request.id)
        }
        Event::Recirculate(request) => {
            format!("Requesting a recirculation with field list {}", request.id)
        }
        Event::Exit(_) => "Exiting the control".to_owned(),
        Event::AssertFailed(_) => "An assert or assume failed".to_owned(),
        Event::Emit(emit) => format!("Deparsing header '{}'", emit.header),
        Event::Enqueue(queued) => enqueue_words(queued),
        Event::Dequeue(start) => dequeue_words(start),
        Event::EcnMark(_) => "The queue marks the packet: congestion experienced (CE)".to_owned(),
        Event::Reenter(again) => match again.kind() {
            reenter::Kind::Resubmitted => format!("Resubmitting packet at {} ns", again.at_ns),
            reenter::Kind::Recirculated | reenter::Kind::Unspecified => {
                format!("Recirculating packet at {} ns", again.at_ns)
            }
        },
        // The others have words of their own.
        _ => String::new(),
    }
}

fn stage_words(stage: &PipelineStageEvent) -> String {
    let name = &stage.stage_name;
    let what = match stage.direction() {
        Direction::Enter | Direction::Unspecified => "start",
        Direction::Exit => "end",
    };
    match stage.stage_kind() {
        StageKind::Parser => format!("Parser '{name}': {what}"),
        StageKind::Deparser => format!("Deparser '{name}': {what}"),
        StageKind::Control | StageKind::Unspecified => format!("Pipeline '{name}': {what}"),
    }
}

fn cell(done: &str, register: &str, index: u64, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{done} register '{register}' at index {index}: {value}"),
        None => format!("Register '{register}' has no index {index}"),
    }
}
