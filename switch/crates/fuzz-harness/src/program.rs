//! The loader of BMv2 JSON.

use v1model::{EgressInput, IngressInput, LoadOptions, NoTrafficManager, Pipeline};

/// Most bytes of a program. The fuzzer looks for faults of structure, which short programs show.
const PROGRAM_BYTES_MAX: usize = 1 << 16;

/// Loads a program; one that loads also gets packets.
pub fn program(bytes: &[u8]) {
    let options = LoadOptions {
        max_program_bytes: PROGRAM_BYTES_MAX,
        ..LoadOptions::default()
    };
    let mut pipeline = match Pipeline::load(bytes, &options) {
        Ok(pipeline) => pipeline,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains("defect"), "{text}");
            return;
        }
    };
    let mut context = pipeline.new_context();
    for length in [0, 14, 60, 1_514] {
        context.set_frame(&vec![0x45; length]);
        let verdict = pipeline.ingress(&mut context, &IngressInput::default(), &NoTrafficManager);
        if !verdict.drop {
            pipeline.egress(&mut context, &EgressInput::default(), &NoTrafficManager);
        }
    }
}
