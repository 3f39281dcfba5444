//! Messages of BMv2's event log (`event_logger.h`): a packed header of 40 bytes with type, device, context,
//! signature, packet and copy, then numbers of 32 bits, all in the byte order of the machine.

use std::sync::Arc;

use switch::trace::{self, JsonIds};

use crate::proto::pipeline_stage_event::{Direction, StageKind};
use crate::proto::trace_event::Event;
use crate::proto::trace_tree::Outcome;
use crate::proto::{PacketTrace, PipelineStageEvent, TraceTree};

/// Types of messages.
const PACKET_IN: u32 = 0;
const PACKET_OUT: u32 = 1;
const PARSER_START: u32 = 2;
const PARSER_DONE: u32 = 3;
const PARSER_EXTRACT: u32 = 4;
const DEPARSER_START: u32 = 5;
const DEPARSER_DONE: u32 = 6;
const DEPARSER_EMIT: u32 = 7;
const PIPELINE_START: u32 = 9;
const PIPELINE_DONE: u32 = 10;
const CONDITION_EVAL: u32 = 11;
const TABLE_HIT: u32 = 12;
const TABLE_MISS: u32 = 13;
const ACTION_EXECUTE: u32 = 14;
const CONFIG_CHANGE: u32 = 999;

/// The one context of simple_switch.
const CONTEXT: u32 = 0;
/// BMv2's hash of the packet's bytes, which is not computed.
const SIGNATURE: u64 = 0;

/// Makes the messages of a switch's event log from its traces.
#[derive(Debug)]
pub struct EventLog {
    device_id: u64,
    cpu_port: Option<u16>,
    /// The program of the last trace.
    program: Option<Arc<JsonIds>>,
}

impl EventLog {
    /// The log of a switch. Packets for the controller leave by `cpu_port`.
    pub fn new(device_id: u64, cpu_port: Option<u16>) -> Self {
        Self {
            device_id,
            cpu_port,
            program: None,
        }
    }

    /// Gives `publish` the messages of a trace, those of a copy after those before it was made. The first
    /// trace of another program begins with the message that the program has changed.
    pub fn put(&mut self, trace: &trace::PacketTrace, publish: impl FnMut(&[u8])) {
        let before = self.program.replace(Arc::clone(trace.ids()));
        let message = PacketTrace::from(trace);
        let input = message.input.unwrap_or_default();
        let mut events = Events {
            device_id: self.device_id,
            cpu_port: self.cpu_port,
            ids: trace.ids(),
            packet: 0,
            copies: 0,
            table: None,
            publish,
        };
        if before.is_some_and(|before| !Arc::ptr_eq(&before, trace.ids())) {
            events.put(0, CONFIG_CHANGE, &[]);
        }
        events.packet = input.packet_id;
        events.put(0, PACKET_IN, &[input.ingress_port]);
        events.branch(0, &message.root.unwrap_or_default());
    }
}

/// The messages of one trace.
struct Events<'a, P> {
    device_id: u64,
    cpu_port: Option<u16>,
    ids: &'a JsonIds,
    packet: u64,
    copies: u64,
    /// The table of the last event, if that is a look-up: the next event is its action.
    table: Option<String>,
    publish: P,
}

impl<P: FnMut(&[u8])> Events<'_, P> {
    fn put(&mut self, copy: u64, kind: u32, numbers: &[u32]) {
        let mut message = kind.to_ne_bytes().to_vec();
        message.extend_from_slice(&self.device_id.to_ne_bytes());
        message.extend_from_slice(&CONTEXT.to_ne_bytes());
        for number in [SIGNATURE, self.packet, copy] {
            message.extend_from_slice(&number.to_ne_bytes());
        }
        for number in numbers {
            message.extend_from_slice(&number.to_ne_bytes());
        }
        (self.publish)(&message);
    }

    /// Puts a message about an object, if the program's JSON has it.
    fn put_of(&mut self, copy: u64, kind: u32, id: Option<u32>, more: &[u32]) {
        if let Some(id) = id {
            let mut numbers = vec![id];
            numbers.extend_from_slice(more);
            self.put(copy, kind, &numbers);
        }
    }

    fn branch(&mut self, copy: u64, branch: &TraceTree) {
        let events = branch.events.iter();
        for event in events.filter_map(|event| event.event.as_ref()) {
            self.event(copy, event);
        }
        match &branch.outcome {
            Some(Outcome::Transmit(end)) => self.put(copy, PACKET_OUT, &[end.egress_port]),
            Some(Outcome::PacketIn(_)) => {
                let port = self.cpu_port.map(u32::from);
                self.put_of(copy, PACKET_OUT, port, &[]);
            }
            Some(Outcome::Fork(fork)) => {
                for (number, branch) in fork.branches.iter().enumerate() {
                    // The first is the packet itself.
                    self.copies += u64::from(number > 0);
                    let of = if number > 0 { self.copies } else { copy };
                    self.branch(of, branch);
                }
            }
            None | Some(Outcome::Drop(_) | Outcome::Unfinished(_)) => {}
        }
    }

    fn event(&mut self, copy: u64, event: &Event) {
        let table = self.table.take();
        let ids = self.ids;
        match event {
            Event::PipelineStage(stage) => {
                let id = ids.stage(&stage.stage_name);
                self.put_of(copy, kind_of(stage), id, &[]);
            }
            Event::Extract(extract) => {
                self.put_of(copy, PARSER_EXTRACT, ids.header(&extract.header), &[]);
            }
            Event::Emit(emit) => {
                self.put_of(copy, DEPARSER_EMIT, ids.header(&emit.header), &[]);
            }
            Event::Condition(condition) => {
                let id = ids.condition(&condition.name);
                self.put_of(copy, CONDITION_EVAL, id, &[condition.holds.into()]);
            }
            Event::TableLookup(lookup) => {
                let id = ids.table(&lookup.table);
                if lookup.hit {
                    let handle = lookup.handle.unwrap_or(u32::MAX);
                    self.put_of(copy, TABLE_HIT, id, &[handle]);
                } else {
                    self.put_of(copy, TABLE_MISS, id, &[]);
                }
                self.table = Some(lookup.table.clone());
            }
            Event::Action(action) => {
                let id = ids.action(table.as_deref(), &action.name);
                self.put_of(copy, ACTION_EXECUTE, id, &[]);
            }
            // BMv2 does not log the others.
            _ => {}
        }
    }
}

fn kind_of(stage: &PipelineStageEvent) -> u32 {
    let begins = stage.direction() != Direction::Exit;
    match (stage.stage_kind(), begins) {
        (StageKind::Parser, true) => PARSER_START,
        (StageKind::Parser, false) => PARSER_DONE,
        (StageKind::Deparser, true) => DEPARSER_START,
        (StageKind::Deparser, false) => DEPARSER_DONE,
        (StageKind::Control | StageKind::Unspecified, true) => PIPELINE_START,
        (StageKind::Control | StageKind::Unspecified, false) => PIPELINE_DONE,
    }
}
