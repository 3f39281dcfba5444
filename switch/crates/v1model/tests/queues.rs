//! The extern `EgressQueues`: what a program reads of egress queues, and the queue that it chooses.

mod common;

use std::cell::RefCell;

use serde_json::{Value, json};
use traffic_manager::Waiting;
use v1model::{
    Context, EgressInput, Engine, Externs, IngressInput, LoadOptions, Pipeline, QueueRead,
    QueueReading, Step,
};

/// A switch on which packets wait in queue 40 of port 7 only.
#[derive(Default)]
struct OneQueue {
    head_arrival_ns: u64,
    steps: RefCell<Vec<String>>,
}

impl Externs for OneQueue {
    fn backlog_bytes(&self, _class: u32) -> u64 {
        0
    }

    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        (port == 7 && queue == 40).then_some(Waiting {
            packets: 3,
            bytes: 1 << 32,
            head_arrival_ns: Some(self.head_arrival_ns),
        })
    }
}

/// The same for a packet whose steps are wanted.
struct Followed(OneQueue);

impl Externs for Followed {
    const STEPS: bool = true;

    fn backlog_bytes(&self, class: u32) -> u64 {
        self.0.backlog_bytes(class)
    }

    fn waiting(&self, port: u16, queue: u8) -> Option<Waiting> {
        self.0.waiting(port, queue)
    }

    fn step(&self, step: Step<'_>) {
        if matches!(step, Step::ReadQueue(_) | Step::ChooseQueue(_)) {
            self.0.steps.borrow_mut().push(format!("{step:?}"));
        }
    }
}

/// `queues.p4` on machine code and on the interpreter.
fn engines() -> [Pipeline; 2] {
    [Engine::Machine, Engine::Interpreter].map(|engine| {
        let options = LoadOptions {
            engine,
            ..LoadOptions::default()
        };
        Pipeline::load(&common::program("queues"), &options).expect("it loads")
    })
}

/// A frame of `queues.p4`. The bytes that the program writes are ones.
fn frame(choice: Option<u8>, priority: u8, port: u16, queue: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 60];
    frame[0] = u8::from(choice.is_some()) << 7 | priority;
    frame[1] = choice.unwrap_or(0);
    frame[2..4].copy_from_slice(&port.to_be_bytes());
    frame[4] = queue;
    frame
}

/// Bytes, packets and sojourn that ingress and egress have written.
fn readings(output: &[u8]) -> [(u32, u32, u64); 2] {
    [5, 21].map(|at| {
        let word = |at| u32::from_be_bytes(output[at..at + 4].try_into().expect("4 bytes"));
        let sojourn = output[at + 8..at + 16].try_into().expect("8 bytes");
        (word(at), word(at + 4), u64::from_be_bytes(sojourn))
    })
}

/// Ingress at 5,000 ns.
fn ingress(p: &mut Pipeline, ctx: &mut Context, frame: &[u8], externs: &impl Externs) {
    ctx.set_frame(frame);
    let input = IngressInput {
        now_ns: 5_000,
        ..IngressInput::default()
    };
    p.ingress(ctx, &input, externs);
}

/// The values that a packet reads in ingress at 5,000 ns and in egress at 9,000 ns.
fn read(p: &mut Pipeline, (port, queue): (u16, u8), head_ns: u64) -> [(u32, u32, u64); 2] {
    let externs = OneQueue {
        head_arrival_ns: head_ns,
        ..OneQueue::default()
    };
    let mut ctx = p.new_context();
    ingress(p, &mut ctx, &frame(None, 0, port, queue), &externs);
    let input = EgressInput {
        now_ns: 9_000,
        ..EgressInput::default()
    };
    p.egress(&mut ctx, &input, &externs);
    readings(ctx.output())
}

#[test]
fn depth_is_saturated_and_sojourn_ends_now() {
    for mut p in engines() {
        let expected = [(u32::MAX, 3, 4_000), (u32::MAX, 3, 8_000)];
        assert_eq!(read(&mut p, (7, 40), 1_000), expected);
        // Arrivals at several ports may come a little out of order.
        let expected = [(u32::MAX, 3, 0), (u32::MAX, 3, 3_000)];
        assert_eq!(read(&mut p, (7, 40), 6_000), expected);
    }
}

#[test]
fn a_queue_that_does_not_exist_reads_zeros() {
    for mut p in engines() {
        for place in [(6, 40), (7, 41), (0, 0), (511, 255)] {
            assert_eq!(read(&mut p, place, 0), [(0, 0, 0); 2], "{place:?}");
        }
    }
}

#[test]
fn the_chosen_queue_goes_before_the_priority() {
    let externs = OneQueue::default();
    for mut p in engines() {
        let mut ctx = p.new_context();
        for (choice, expected) in [(None, 5), (Some(40), 40), (Some(255), 255), (None, 5)] {
            ingress(&mut p, &mut ctx, &frame(choice, 5, 0, 0), &externs);
            assert_eq!(p.egress_queue(&ctx), expected, "{choice:?}");
        }
    }
}

#[test]
fn a_clone_does_not_have_the_chosen_queue() {
    let externs = OneQueue::default();
    for mut p in engines() {
        let (mut ctx, mut clone) = (p.new_context(), p.new_context());
        ingress(&mut p, &mut ctx, &frame(Some(40), 5, 0, 0), &externs);
        p.clone_from_ingress(&ctx, &mut clone, 0);
        assert_eq!(p.egress_queue(&clone), 0);
        p.egress_control(&mut ctx, &EgressInput::default(), &externs);
        p.clone_from_egress(&ctx, &mut clone, 0);
        assert_eq!(p.egress_queue(&clone), 0);
        assert_eq!(p.egress_queue(&ctx), 40);
    }
}

#[test]
fn steps_have_what_the_program_read_and_chose() {
    let mut p = common::load("queues");
    let mut ctx = p.new_context();
    let externs = Followed(OneQueue::default());
    ingress(&mut p, &mut ctx, &frame(Some(40), 0, 7, 40), &externs);
    ingress(&mut p, &mut ctx, &frame(None, 0, 8, 40), &externs);
    let reading = |port, reading| {
        let read = QueueRead {
            port,
            queue: 40,
            reading,
        };
        format!("{:?}", Step::ReadQueue(read))
    };
    let found = reading(
        7,
        Some(QueueReading {
            bytes: u32::MAX,
            packets: 3,
            sojourn_ns: 5_000,
        }),
    );
    let missing = reading(8, None);
    let chosen = format!("{:?}", Step::ChooseQueue(40));
    let expected = [found.clone(), found, chosen, missing.clone(), missing];
    assert_eq!(externs.0.steps.into_inner(), expected);
}

/// Frames must neither wait nor leave early: the depths would not be those of their times.
#[test]
fn a_program_that_reads_queues_runs_in_time() {
    let p = common::load("queues");
    assert!(!p.may_run_late() && !p.may_start_early());
}

/// The call of `EgressQueues.choose` in the program.
fn choose(program: &Value) -> Value {
    let actions = program["actions"].as_array().expect("actions").iter();
    let mut calls = actions.flat_map(|a| a["primitives"].as_array().expect("primitives"));
    let found = calls.find(|call| call["op"] == "_EgressQueues_choose");
    found.expect("a call").clone()
}

#[test]
fn wrong_calls_are_refused_by_name() {
    let program: Value = serde_json::from_slice(&common::program("queues")).expect("JSON");
    let call = choose(&program);
    let refused = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut program = program.clone();
        change(&mut program);
        let text = program.to_string();
        let error = Pipeline::load(text.as_bytes(), &LoadOptions::default());
        let error = error.err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|e| e.ends_with(expected)),
            "{error:?}, not {expected}"
        );
    };
    let last = program["actions"].as_array().expect("actions").len() - 1;
    refused(
        &|p| p["actions"][last]["primitives"] = json!([call]),
        "EgressQueues.choose can be called in ingress only",
    );
    let method = |name: &str| {
        let mut call = call.clone();
        call["op"] = json!(name);
        call
    };
    refused(
        &|p| p["actions"][0]["primitives"] = json!([method("_EgressQueues_shuffle")]),
        "extern type 'EgressQueues' has no method 'shuffle'",
    );
    refused(
        &|p| p["extern_instances"][0]["type"] = json!("TrafficManager"),
        "is no method of extern instance 'egress_queues' of type 'TrafficManager'",
    );
    refused(
        &|p| p["extern_instances"][0]["name"] = json!("other"),
        "unknown extern instance 'egress_queues'",
    );
    refused(
        &|p| {
            let operations = &mut p["parsers"][0]["parse_states"][0]["parser_ops"];
            let operations = operations.as_array_mut().expect("operations");
            operations.push(json!({"op": "primitive", "parameters": [call]}));
        },
        "EgressQueues.choose cannot be called from a parser",
    );
}
