//! The loader of BMv2 JSON, and both engines.

use v1model::{EgressInput, Engine, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

/// Most bytes of a program. The fuzzer looks for faults of structure, which short programs show.
const PROGRAM_BYTES_MAX: usize = 1 << 16;

/// Loads a program; one that loads also gets packets, through machine code and through the interpreter.
pub fn program(bytes: &[u8]) {
    let [machine, interpreter] = [Engine::Machine, Engine::Interpreter].map(|engine| {
        let options = LoadOptions {
            max_program_bytes: PROGRAM_BYTES_MAX,
            engine,
            ..LoadOptions::default()
        };
        match Pipeline::load(bytes, &options) {
            Ok(pipeline) => Some(results(pipeline)),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains("defect"), "{text}");
                None
            }
        }
    });
    assert_eq!(machine, interpreter, "the engines differ");
}

/// The outcome of packets.
fn results(mut pipeline: Pipeline) -> Vec<String> {
    let mut context = pipeline.new_context();
    let packets = [0, 14, 60, 1_514].map(|length| {
        context.set_frame(&vec![0x45; length]);
        let verdict = pipeline.ingress(&mut context, &IngressInput::default(), &NoTrafficManager);
        let mut result = format!("{verdict:?}");
        if !verdict.drop {
            let input = EgressInput::default();
            let verdict = pipeline.egress(&mut context, &input, &NoTrafficManager);
            result += &format!(" {verdict:?} {:x?}", context.output());
        }
        result
    });
    packets.into()
}
